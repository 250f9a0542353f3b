// SPDX-License-Identifier: Apache-2.0
#include "executor/executor.hpp"

#include <rlock/detail/executor/backoff.hpp>
#include <rlock/detail/executor/reply_error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

namespace rlock::detail {

namespace {

/// Failures to connect that waiting does not cure.
bool isPermanent(Errc errc) noexcept {
  return errc == Errc::authenticationFailed || errc == Errc::denied ||
         errc == Errc::invalidArgument;
}

net::LinkSettings linkSettings(const Options& options, std::shared_ptr<const Logger> log) {
  net::LinkSettings settings;
  settings.endpoints = options.endpoints;
  settings.username = options.username;
  settings.password = options.password;
  settings.clientName = options.clientName;
  settings.database = options.database;
  settings.connectTimeout = options.connectTimeout;
  settings.reconnectDelayMin = options.reconnectDelayMin;
  settings.reconnectDelayMax = options.reconnectDelayMax;
  settings.replyTimeout = options.commandTimeout;
  settings.heartbeatInterval = options.heartbeatInterval;
  settings.idleLinger = options.subscriptionLinger;
  settings.log = std::move(log);
  return settings;
}

}  // namespace

/// Has the server close a connection of ours that we lost. Sent on the same connection before the
/// call that relies on it, so its reply need not be waited for.
class Executor::Fence final : public net::Request {
 public:
  explicit Fence(std::shared_ptr<const Logger> log) : log_(std::move(log)) {}

 private:
  void completed() noexcept override {
    if (delivery() == Delivery::replied && reply().isError()) {
      log_->write(LogLevel::warning,
                  "the server refused to close a lost connection: " + reply().text);
    }
  }

  std::shared_ptr<const Logger> log_;
};

class Executor::Channels final : public net::PubSubEvents {
 public:
  Channels(ExecutorEvents& events, std::shared_ptr<const Logger> log)
      : events_(events), log_(std::move(log)) {}

 private:
  void onSubscribed(const std::string& channel) override { events_.channelConfirmed(channel); }
  void onRefused(const std::string& channel, const Error& error) override {
    events_.channelRefused(channel, error);
  }
  void onMessage(const std::string& channel, std::string_view payload) override {
    events_.channelMessage(channel, payload);
  }
  void onUp() override { down_ = false; }
  void onDown(const Error& error) override {
    log_->write(std::exchange(down_, true) ? LogLevel::debug : LogLevel::warning,
                fmt::format("subscriber connection lost, connecting again: {}", error.what()));
    events_.channelsLost();
  }

  ExecutorEvents& events_;
  std::shared_ptr<const Logger> log_;
  bool down_ = false;
};

void Call::completed() noexcept {
  if (executor_ != nullptr) {
    executor_->judge(IntrusivePtr<Call>(this));
  }
}

Executor::Executor(std::shared_ptr<net::Loop> loop,
                   const Options& options,
                   std::shared_ptr<const Logger> log,
                   ExecutorEvents& events)
    : loop_(std::move(loop)),
      log_(std::move(log)),
      policy_(options.lostReplyPolicy),
      retryMin_(options.retryDelayMin),
      retryMax_(options.retryDelayMax),
      tombstones_(policy_ == LostReplyPolicy::marker),
      channels_(std::make_unique<Channels>(events, log_)),
      events_(events),
      random_(std::random_device{}()) {
  const net::LinkSettings settings = linkSettings(options, log_);
  node_ = toString(options.endpoints.front());
  link_ = std::make_shared<net::CommandLink>(
      loop_, settings, static_cast<net::LinkEvents&>(*this), options.spin);
  pubsub_ = std::make_unique<net::PubSubLink>(loop_, settings, *channels_);
}

Executor::~Executor() = default;

void Executor::open(UniqueFunction<void(Result<void>)> ready) {
  ready_ = std::move(ready);
  link_->open();
}

void Executor::close() noexcept {
  closed_ = true;
  link_->close();
  pubsub_->close();
  while (!parked_.empty()) {
    const CallPtr call = parked_.back();
    unpark(*call);
    finish(call, {Outcome::Kind::failed, describe(*call, Errc::closed, "the client was closed")});
  }
}

bool Executor::direct(Call& call) {
  call.executor_ = this;
  // Should the caller leave, the call must not be sent again on its behalf.
  call.sendBefore_ = Clock::time_point::min();
  call.lastError_.reset();
  return link_->submit(call, call.argv(), net::CommandLink::Mode::awaited);
}

Executor::Direct Executor::await(Call& call, Clock::time_point deadline) {
  for (;;) {
    switch (link_->await(call, deadline)) {
      case net::CommandLink::Awaited::timedOut:
        return Direct::timedOut;
      case net::CommandLink::Awaited::interrupted:
        return Direct::interrupted;
      case net::CommandLink::Awaited::complete:
        break;
    }
    if (call.delivery() != net::Request::Delivery::replied) {
      return Direct::trouble;
    }
    if (!call.reply().isError()) {
      return Direct::replied;
    }
    const ErrorClass known = classifyError(call.reply().text);
    if (known.errc == Errc::outOfMemory && call.sendDespiteMemoryLimit()) {
      if (!link_->submit(call, call.argv(), net::CommandLink::Mode::awaited)) {
        return Direct::trouble;
      }
      continue;
    }
    if (known.action == ErrorAction::fatal) {
      return Direct::failed;
    }
    if (known.action != ErrorAction::reload || call.sendsText()) {
      return Direct::trouble;
    }
    scriptsLoaded_.fetch_add(1, std::memory_order_relaxed);
    call.sendText();
    if (!link_->submit(call, call.argv(), net::CommandLink::Mode::awaited)) {
      // The reply to the hash still stands there, and resume() is to judge it as such.
      call.sendHash();
      return Direct::trouble;
    }
  }
}

Error Executor::takeError(Call& call) const {
  const std::string& text = call.reply().text;
  return describe(call, classifyError(text).errc, text);
}

void Executor::start(CallPtr call, Clock::time_point sendBefore) {
  if (loop_->onLoopThread()) {
    begin(call, sendBefore);
    send(call);
    return;
  }
  loop_->post([self = shared_from_this(), call = std::move(call), sendBefore] {
    self->begin(call, sendBefore);
    self->send(call);
  });
}

bool Executor::firstAhead(const lua::Script& script) {
  const std::lock_guard lock(aheadMutex_);
  if (std::find(sentAhead_.begin(), sentAhead_.end(), &script) != sentAhead_.end()) {
    return false;
  }
  sentAhead_.push_back(&script);
  return true;
}

void Executor::startAhead(const CallPtr& call, Clock::time_point sendBefore) {
  begin(call, sendBefore);
  // A server that does not know the script would ask for its text, and by the time that comes the
  // call would not be ahead any more.
  if (call->script_ != nullptr && firstAhead(*call->script_)) {
    call->sendText();
  }
  if (loop_->onLoopThread() ||
      !link_->submit(*call, call->argv(), net::CommandLink::Mode::background)) {
    start(call, sendBefore);
  }
}

void Executor::resume(CallPtr call, Clock::time_point sendBefore) {
  loop_->post([self = shared_from_this(), call = std::move(call), sendBefore] {
    self->begin(call, sendBefore);
    if (call->delivery() == net::Request::Delivery::pending) {
      self->send(call);
    } else {
      self->judge(call);
    }
  });
}

void Executor::startFenced(CallPtr call,
                           std::shared_ptr<const net::ServerSession> lost,
                           Clock::time_point sendBefore) {
  loop_->post(
      [self = shared_from_this(), call = std::move(call), lost = std::move(lost), sendBefore] {
        self->begin(call, sendBefore);
        call->fence_.assign(1, lost);
        self->send(call);
      });
}

void Executor::begin(const CallPtr& call, Clock::time_point sendBefore) {
  call->executor_ = this;
  call->sendBefore_ = sendBefore;
  call->attempts_ = 0;
  call->waitsForLink_ = false;
  call->fence_.clear();
  call->lastError_.reset();
}

void Executor::send(const CallPtr& call) {
  if (closed_) {
    finish(call, {Outcome::Kind::failed, describe(*call, Errc::closed, "the client was closed")});
    return;
  }
  if (Clock::now() >= call->sendBefore_) {
    const bool noTimeLeft = link_->up() && !call->waitsForLink_;
    const std::string_view why =
        noTimeLeft ? "there was no time left to send it" : "there was no connection in time";
    if (call->lastError_) {
      finish(call, {Outcome::Kind::failed, call->lastError_});
    } else {
      finish(call,
             {Outcome::Kind::failed, describe(*call, Errc::connectionFailed, why), noTimeLeft});
    }
    return;
  }
  if (!link_->up()) {
    waitForLink(call);
    return;
  }
  for (const auto& session : call->fence_) {
    if (!session || session == session_ || !session->canKill || session->clientId == 0) {
      continue;
    }
    // The address makes sure that an id given anew, by a restarted server, is not hit.
    const std::string id = std::to_string(session->clientId);
    std::vector<std::string_view> kill{"CLIENT", "KILL", "ID", id};
    if (!session->clientAddress.empty()) {
      kill.insert(kill.end(), {"ADDR", session->clientAddress});
    }
    const auto fence = makeIntrusive<Fence>(log_);
    link_->submit(*fence, kill, net::CommandLink::Mode::background);
  }
  if (!link_->submit(*call, call->argv(), net::CommandLink::Mode::background)) {
    waitForLink(call);
  }
}

void Executor::judge(const CallPtr& call) {
  switch (call->delivery()) {
    case net::Request::Delivery::pending:
      return;
    case net::Request::Delivery::unsent:
      send(call);
      return;
    case net::Request::Delivery::lost:
      if (!call->repeatable()) {
        finish(call, {Outcome::Kind::unknown, std::nullopt});
        return;
      }
      // A settling call must not run late either: by then the count may be another's business.
      if (!call->fence_.empty()) {
        call->fence_.push_back(call->session());
      }
      send(call);
      return;
    case net::Request::Delivery::replied:
      break;
  }
  if (!call->reply().isError()) {
    finish(call, {Outcome::Kind::replied, std::nullopt});
    return;
  }
  const std::string& text = call->reply().text;
  const ErrorClass known = classifyError(text);
  if (known.action == ErrorAction::reload && !call->sendsText()) {
    scriptsLoaded_.fetch_add(1, std::memory_order_relaxed);
    call->sendText();
    send(call);
    return;
  }
  if (known.errc == Errc::outOfMemory && call->sendDespiteMemoryLimit()) {
    send(call);
    return;
  }
  call->lastError_ = describe(*call, known.errc, text);
  if (known.action == ErrorAction::retry && !closed_) {
    retryLater(call);
    return;
  }
  finish(call, {Outcome::Kind::failed, call->lastError_});
}

void Executor::waitForLink(const CallPtr& call) {
  if (linkError_ && isPermanent(linkError_->errc())) {
    finish(call, {Outcome::Kind::failed, linkError_});
    return;
  }
  park(call, call->sendBefore_, true);
}

void Executor::retryLater(const CallPtr& call) {
  random_ = random_ * 1664525U + 1013904223U;
  const auto pause = backoffPause(retryMin_, retryMax_, call->attempts_++, random_ >> 8U);
  const auto now = Clock::now();
  if (call->sendBefore_ - pause <= now) {
    finish(call, {Outcome::Kind::failed, call->lastError_});
    return;
  }
  park(call, now + pause, false);
}

void Executor::park(const CallPtr& call, Clock::time_point until, bool forLink) {
  call->waitsForLink_ = forLink;
  call->parkedAt_ = parked_.size();
  parked_.push_back(call);
  call->timer_ = std::make_unique<Timer>(*loop_, [this, raw = call.get()] {
    const CallPtr parked(raw);
    const bool waited = parked->waitsForLink_;
    unpark(*parked);
    if (!waited) {
      send(parked);
      return;
    }
    finish(parked,
           {Outcome::Kind::failed,
            linkError_
                ? *linkError_
                : describe(*parked, Errc::connectionFailed, "there was no connection in time")});
  });
  call->timer_->armAt(until);
}

void Executor::unpark(Call& call) noexcept {
  if (call.parkedAt_ == Call::kNotParked) {
    return;
  }
  const std::size_t index = call.parkedAt_;
  call.parkedAt_ = Call::kNotParked;
  call.timer_.reset();
  if (index + 1 != parked_.size()) {
    parked_[index] = std::move(parked_.back());
    parked_[index]->parkedAt_ = index;
  }
  parked_.pop_back();
}

void Executor::finish(const CallPtr& call, Outcome outcome) noexcept {
  call->fence_.clear();
  call->executor_ = nullptr;
  call->finished(std::move(outcome));
}

Error Executor::describe(const Call& /*call*/, Errc errc, std::string_view text) const {
  ErrorContext context;
  context.node = node();
  if (errc == Errc::closed || errc == Errc::connectionFailed) {
    return Error(errc, text, std::move(context));
  }
  context.serverMessage = text;
  return Error(errc, {}, std::move(context));
}

std::string Executor::node() const {
  // In a child another thread of the parent may have the mutex for ever.
  if (loop_->abandoned()) {
    return {};
  }
  const std::lock_guard lock(nodeMutex_);
  return node_;
}

Executor::Counters Executor::counters() const noexcept {
  const auto& link = link_->counters();
  const std::uint64_t connections = link.connections.load(std::memory_order_relaxed);
  return {link.commands.load(std::memory_order_relaxed),
          connections > 0 ? connections - 1 : 0,
          scriptsLoaded_.load(std::memory_order_relaxed)};
}

void Executor::onUp(const std::shared_ptr<const net::ServerSession>& session) {
  session_ = session;
  {
    const std::lock_guard lock(aheadMutex_);
    sentAhead_.clear();
  }
  {
    const std::lock_guard lock(nodeMutex_);
    node_ = session->node;
  }
  const bool canFence = session->canKill && session->clientId != 0;
  if (!canFence && policy_ == LostReplyPolicy::fence) {
    log_->write(
        LogLevel::warning,
        "lostReplyPolicy is fence, but the server does not allow CLIENT KILL: markers are used");
  }
  tombstones_.store(policy_ == LostReplyPolicy::marker || !canFence, std::memory_order_relaxed);
  const bool again = linkError_.has_value() || !ready_;
  linkError_.reset();
  log_->write(LogLevel::info,
              fmt::format("connected to {} as client {}", session->node, session->clientId));
  std::vector<CallPtr> waiting;
  std::copy_if(
      parked_.begin(), parked_.end(), std::back_inserter(waiting), [](const CallPtr& call) {
        return call->waitsForLink_;
      });
  for (const CallPtr& call : waiting) {
    unpark(*call);
    send(call);
  }
  if (ready_) {
    std::exchange(ready_, nullptr)(Result<void>());
  }
  if (again) {
    events_.reconnected();
  }
}

void Executor::onDown(const Error& error) {
  // Of an outage only its beginning is news, and what it turns into.
  const bool known = linkError_ && linkError_->errc() == error.errc();
  linkError_ = error;
  if (ready_) {
    std::exchange(ready_, nullptr)(Result<void>(error));
  } else {
    log_->write(known ? LogLevel::debug : LogLevel::warning,
                fmt::format("no connection, trying again: {}", error.what()));
  }
  if (!isPermanent(error.errc())) {
    return;
  }
  std::vector<CallPtr> waiting;
  std::copy_if(
      parked_.begin(), parked_.end(), std::back_inserter(waiting), [](const CallPtr& call) {
        return call->waitsForLink_;
      });
  for (const CallPtr& call : waiting) {
    unpark(*call);
    finish(call, {Outcome::Kind::failed, error});
  }
}

}  // namespace rlock::detail
