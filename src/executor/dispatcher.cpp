// SPDX-License-Identifier: Apache-2.0
#include "executor/dispatcher.hpp"

#include "executor/lock_scripts.hpp"
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/executor/reply_error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <random>
#include <utility>

namespace rlock::detail {

namespace {

/// How long a follow-up may wait for its turn on the loop.
constexpr std::chrono::milliseconds kFollowUpPatience{5};

/// Failures to connect that waiting does not cure.
bool isPermanent(Errc errc) noexcept {
  return errc == Errc::authenticationFailed || errc == Errc::denied ||
         errc == Errc::invalidArgument;
}

Error noMemoryError() {
  return Error(Errc::overloaded, "this process has no memory for the request");
}

}  // namespace

class Dispatcher::Channels final : public net::PubSubEvents {
 public:
  Channels(DispatcherEvents& events, std::shared_ptr<const Logger> log)
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

  DispatcherEvents& events_;
  std::shared_ptr<const Logger> log_;
  bool down_ = false;
};

template <class Step>
void Dispatcher::guarded(const CallPtr& call, Step step) noexcept {
  try {
    step();
  } catch (const std::bad_alloc&) {
    // Nothing throws once a call has been sent or finished, so it is neither.
    unpark(*call);
    if (call->delivery() == net::Request::Delivery::lost) {
      finish(call, {Outcome::Kind::unknown, std::nullopt});
    } else {
      finish(call, {Outcome::Kind::failed, noMemory_, false, call->maybeExecuted_});
    }
  }
}

void Call::completed() noexcept {
  if (dispatcher_ != nullptr) {
    const Dispatcher::CallPtr self(this);
    dispatcher_->guarded(self, [&] { self->dispatcher_->judge(self); });
  }
}

Dispatcher::Dispatcher(std::shared_ptr<Env> env,
                       const net::Transports& transports,
                       const Options& options,
                       std::shared_ptr<const Logger> log,
                       DispatcherEvents& events)
    : env_(std::move(env)),
      log_(std::move(log)),
      policy_(options.lostReplyPolicy),
      retryMin_(options.retryDelayMin),
      retryMax_(options.retryDelayMax),
      noMemory_(noMemoryError()),
      tombstones_(policy_ == LostReplyPolicy::marker),
      link_(transports.commands(*this)),
      killer_(
          env_,
          link_,
          log_,
          [this] {
            for (const CallPtr& call : parkedFor(Call::Wait::kill)) {
              sendParked(call);
            }
          },
          [this] {
            tombstones_.store(true, std::memory_order_relaxed);
            link_->distrust();
          }),
      channels_(std::make_unique<Channels>(events, log_)),
      events_(events),
      random_(std::random_device{}()) {
  node_ = toString(options.endpoints.front());
  pubsub_ = transports.subscriptions(*channels_);
}

Dispatcher::~Dispatcher() = default;

void Dispatcher::open(UniqueFunction<void(Result<void>)> ready) {
  ready_ = std::move(ready);
  link_->open();
}

void Dispatcher::close() noexcept {
  closed_ = true;
  killer_.close();
  link_->close();
  pubsub_->close();
  while (!parked_.empty()) {
    const CallPtr call = parked_.back();
    unpark(*call);
    fail(call, describe(*call, Errc::closed, "the client was closed"));
  }
}

bool Dispatcher::direct(Call& call) {
  // Should the caller leave, the call must not be sent again on its behalf.
  begin(call, Clock::time_point::min());
  return link_->submit(call, call.argv(), net::CommandTransport::Mode::awaited);
}

Dispatcher::Direct Dispatcher::await(Call& call, Clock::time_point deadline) {
  for (;;) {
    switch (link_->await(call, deadline)) {
      case net::CommandTransport::Awaited::timedOut:
        return Direct::timedOut;
      case net::CommandTransport::Awaited::interrupted:
        return Direct::interrupted;
      case net::CommandTransport::Awaited::complete:
        break;
    }
    noteAnswered(call);
    if (call.delivery() != net::Request::Delivery::replied) {
      return Direct::trouble;
    }
    if (!call.reply().isError()) {
      return Direct::replied;
    }
    const ErrorClass known = classifyError(call.reply().text);
    if (known.errc == Errc::outOfMemory && call.sendDespiteMemoryLimit()) {
      if (!link_->submit(call, call.argv(), net::CommandTransport::Mode::awaited)) {
        call.unsent_ = true;
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
    supplyScript(call);
    if (!link_->submit(call, call.argv(), net::CommandTransport::Mode::awaited)) {
      call.unsent_ = true;
      return Direct::trouble;
    }
  }
}

Error Dispatcher::takeError(Call& call) const {
  const std::string& text = call.reply().text;
  return describe(call, classifyError(text).errc, text);
}

void Dispatcher::start(CallPtr call, Clock::time_point sendBefore) {
  if (env_->onLoopThread()) {
    begin(*call, sendBefore);
    guarded(call, [&] { send(call); });
    return;
  }
  env_->post([self = shared_from_this(), call = std::move(call), sendBefore] {
    self->begin(*call, sendBefore);
    self->guarded(call, [&] { self->send(call); });
  });
}

bool Dispatcher::firstAhead(const lua::Script& script) {
  const MutexLock lock(aheadMutex_);
  if (std::find(sentAhead_.begin(), sentAhead_.end(), &script) != sentAhead_.end()) {
    return false;
  }
  sentAhead_.push_back(&script);
  return true;
}

void Dispatcher::startAhead(const CallPtr& call, Clock::time_point sendBefore) {
  begin(*call, sendBefore);
  // A server that does not know the script would ask for its text, and by the time that comes the
  // call would not be ahead any more.
  if (call->script_ != nullptr && firstAhead(*call->script_)) {
    call->sendText();
  }
  if (env_->onLoopThread() ||
      !link_->submit(*call, call->argv(), net::CommandTransport::Mode::background)) {
    start(call, sendBefore);
  }
}

void Dispatcher::resume(CallPtr call, Clock::time_point sendBefore) {
  env_->post([self = shared_from_this(), call = std::move(call), sendBefore] {
    self->begin(*call, sendBefore);
    self->guarded(call, [&] {
      if (std::exchange(call->unsent_, false)) {
        // To another server, perhaps, which may know the script.
        call->sendHash();
        self->send(call);
      } else if (call->delivery() == net::Request::Delivery::pending) {
        self->send(call);
      } else {
        self->judge(call);
      }
    });
  });
}

void Dispatcher::begin(Call& call, Clock::time_point sendBefore) {
  call.dispatcher_ = this;
  call.sendBefore_ = sendBefore;
  call.attempts_ = 0;
  call.waitsFor_ = Call::Wait::pause;
  call.lastError_.reset();
  call.maybeExecuted_ = false;
  prolong(call);
}

void Dispatcher::send(const CallPtr& call) {
  if (closed_) {
    fail(call, describe(*call, Errc::closed, "the client was closed"));
    return;
  }
  if (env_->now() >= call->sendBefore_) {
    timeIsUp(call);
    return;
  }
  if (!link_->up()) {
    waitForLink(call);
    return;
  }
  if (!passesKills(call)) {
    return;
  }
  if (call->late() != Call::Late::harmless && needsTombstone()) {
    call->recompose(true);
  }
  if (!link_->submit(*call, call->argv(), net::CommandTransport::Mode::background)) {
    waitForLink(call);
  }
}

bool Dispatcher::passesKills(const CallPtr& call) {
  const auto now = env_->now();
  std::erase_if(call->stragglers_, [now](const Call::Straggler& straggler) {
    return straggler.session->dead || now - straggler.lostAt >= kTombstoneLife;
  });
  bool asked = false;
  for (const Call::Straggler& straggler : call->stragglers_) {
    const ConnectionKiller::State state = killer_.check(straggler.session);
    if (state == ConnectionKiller::State::refused && !call->persistent_) {
      fail(call, *killer_.refusal(straggler.session));
      return false;
    }
    asked = asked || state != ConnectionKiller::State::dead;
  }
  if (asked) {
    park(call, call->sendBefore_, Call::Wait::kill);
    return false;
  }
  call->stragglers_.clear();
  return true;
}

/// A call that nobody waits for goes on until what was lost before it can do no harm.
void Dispatcher::prolong(Call& call) {
  if (!call.persistent_) {
    return;
  }
  for (const Call::Straggler& straggler : call.stragglers_) {
    if (straggler.late == Call::Late::takes) {
      // A little more: it is to be sent after that.
      call.sendBefore_ =
          std::max(call.sendBefore_, straggler.lostAt + kTombstoneLife + std::chrono::seconds(10));
    }
  }
}

void Dispatcher::timeIsUp(const CallPtr& call) {
  const bool parkedForLink = call->waitsFor_ == Call::Wait::link;
  if (call->waitsFor_ == Call::Wait::kill) {
    for (const Call::Straggler& straggler : call->stragglers_) {
      if (auto why = killer_.refusal(straggler.session)) {
        fail(call, std::move(*why));
        return;
      }
    }
  }
  if (const auto& known = parkedForLink ? linkError_ : call->lastError_) {
    fail(call, *known, !parkedForLink);
    return;
  }
  const bool noTimeLeft = link_->up() && call->waitsFor_ == Call::Wait::pause;
  const std::string_view why =
      noTimeLeft ? "there was no time left to send it" : "there was no connection in time";
  finish(call,
         {Outcome::Kind::failed,
          describe(*call, Errc::connectionFailed, why),
          noTimeLeft && !call->maybeExecuted_,
          call->maybeExecuted_});
}

void Dispatcher::fail(const CallPtr& call, Error error, bool answered) {
  finish(call, {Outcome::Kind::failed, std::move(error), false, call->maybeExecuted_, answered});
}

/// The server does not know the script: the call goes out again, with the text unless that is on
/// its way already.
void Dispatcher::supplyScript(Call& call) {
  const bool mine = texts_.claim(call.script_);
  if (!mine && !std::exchange(call.behindText_, true)) {
    return;
  }
  call.bringsText_ = mine;
  scriptsLoaded_.fetch_add(1, std::memory_order_relaxed);
  call.sendText();
}

/// Answered, or lost: in both cases the text is not under way any more.
void Dispatcher::noteAnswered(Call& call) noexcept {
  if (std::exchange(call.bringsText_, false)) {
    texts_.arrived(call.script_);
  }
}

void Dispatcher::judge(const CallPtr& call) {
  if (call->delivery() != net::Request::Delivery::pending) {
    noteAnswered(*call);
  }
  switch (call->delivery()) {
    case net::Request::Delivery::pending:
      return;
    case net::Request::Delivery::unsent:
      call->lastError_.reset();
      send(call);
      return;
    case net::Request::Delivery::lost:
      call->lastError_.reset();
      if (call->late() != Call::Late::harmless) {
        call->stragglers_.push_back({call->session(), call->late(), env_->now()});
        prolong(*call);
      }
      if (!call->repeatable()) {
        finish(call, {Outcome::Kind::unknown, std::nullopt});
        return;
      }
      call->maybeExecuted_ = true;
      call->recompose(false);
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
    supplyScript(*call);
    if (call->followsUp_) {
      call->sendBefore_ = std::max(call->sendBefore_, env_->now() + kFollowUpPatience);
    }
    send(call);
    return;
  }
  if (known.errc == Errc::outOfMemory && call->sendDespiteMemoryLimit()) {
    send(call);
    return;
  }
  call->lastError_ = describe(*call, known.errc, text);
  if (known.errc == Errc::readOnly) {
    leaveReadOnly(*call);
  }
  const bool passing =
      known.action == ErrorAction::retry ||
      (call->persistent_ && known.errc != Errc::wrongType && known.errc != Errc::invalidArgument);
  if (passing && !closed_) {
    retryLater(call);
    return;
  }
  fail(call, *call->lastError_, true);
}

/// The master has become a replica, and whatever led to it may lead to the new one by now.
void Dispatcher::leaveReadOnly(const Call& call) {
  const auto now = env_->now();
  if (now < leaveReadOnlyFrom_) {
    return;
  }
  // It may also be read-only for good: then connecting again and again is of no use.
  constexpr int kCalm = 10;
  const bool calm = now - leaveReadOnlyFrom_ > kCalm * readOnlyPause_;
  readOnlyPause_ = calm ? retryMin_ : std::min(2 * readOnlyPause_, retryMax_);
  leaveReadOnlyFrom_ = now + readOnlyPause_;
  link_->abandon(call.submittedAt(), Errc::readOnly, "the server takes no writes any more");
}

void Dispatcher::waitForLink(const CallPtr& call) {
  if (linkError_ && isPermanent(linkError_->errc()) && !call->persistent_) {
    fail(call, *linkError_);
    return;
  }
  park(call, call->sendBefore_, Call::Wait::link);
}

void Dispatcher::retryLater(const CallPtr& call) {
  random_ = random_ * 1664525U + 1013904223U;
  const auto pause = backoffPause(retryMin_, retryMax_, call->attempts_++, random_ >> 8U);
  const auto now = env_->now();
  if (call->sendBefore_ - pause <= now) {
    fail(call, *call->lastError_, true);
    return;
  }
  park(call, now + pause, Call::Wait::pause);
}

void Dispatcher::park(const CallPtr& call, Clock::time_point until, Call::Wait wait) {
  call->waitsFor_ = wait;
  call->timer_ = env_->makeTimer([this, raw = call.get()] {
    const CallPtr parked(raw);
    unpark(*parked);
    if (parked->waitsFor_ == Call::Wait::pause) {
      guarded(parked, [&] { send(parked); });
    } else {
      guarded(parked, [&] { timeIsUp(parked); });
    }
  });
  parked_.push_back(call);
  call->parkedAt_ = parked_.size() - 1;
  call->timer_->armAt(until);
}

void Dispatcher::unpark(Call& call) noexcept {
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

/// One of several, unless another of them took it along.
void Dispatcher::sendParked(const CallPtr& call) {
  if (call->parkedAt_ != Call::kNotParked) {
    unpark(*call);
    guarded(call, [&] { send(call); });
  }
}

std::vector<Dispatcher::CallPtr> Dispatcher::parkedFor(Call::Wait wait) const {
  std::vector<CallPtr> result;
  std::copy_if(
      parked_.begin(), parked_.end(), std::back_inserter(result), [wait](const CallPtr& call) {
        return call->waitsFor_ == wait;
      });
  return result;
}

void Dispatcher::finish(const CallPtr& call, Outcome outcome) noexcept {
  noteAnswered(*call);
  call->dispatcher_ = nullptr;
  call->finished(std::move(outcome));
}

Error Dispatcher::describe(const Call& /*call*/, Errc errc, std::string_view text) const {
  ErrorContext context;
  context.node = node();
  if (errc == Errc::closed || errc == Errc::connectionFailed) {
    return Error(errc, text, std::move(context));
  }
  context.serverMessage = text;
  return Error(errc, {}, std::move(context));
}

std::string Dispatcher::node() const {
  // In a child another thread of the parent may have the mutex for ever.
  if (env_->abandoned()) {
    return {};
  }
  const MutexLock lock(nodeMutex_);
  return node_;
}

Dispatcher::Counters Dispatcher::counters() const noexcept {
  const net::CommandTransport::Totals link = link_->totals();
  return {link.commands,
          link.connections > 0 ? link.connections - 1 : 0,
          scriptsLoaded_.load(std::memory_order_relaxed)};
}

void Dispatcher::onUp(const std::shared_ptr<const net::ServerSession>& session) {
  {
    const MutexLock lock(aheadMutex_);
    sentAhead_.clear();
  }
  {
    const MutexLock lock(nodeMutex_);
    node_ = session->node;
  }
  const bool canKill = session->canBeKilled();
  if (!canKill && policy_ == LostReplyPolicy::fence) {
    log_->write(
        LogLevel::warning,
        "lostReplyPolicy is fence, but the server does not allow CLIENT KILL: markers are used");
  }
  tombstones_.store(policy_ == LostReplyPolicy::marker || !canKill, std::memory_order_relaxed);
  const bool again = linkError_.has_value() || !ready_;
  linkError_.reset();
  log_->write(LogLevel::info,
              fmt::format("connected to {} as client {}", session->node, session->clientId));
  killer_.up(session);
  std::vector<CallPtr> waiting = parkedFor(Call::Wait::link);
  const std::vector<CallPtr> fenced = parkedFor(Call::Wait::kill);
  waiting.insert(waiting.end(), fenced.begin(), fenced.end());
  for (const CallPtr& call : waiting) {
    sendParked(call);
  }
  if (ready_) {
    std::exchange(ready_, nullptr)(Result<void>());
  }
  if (again) {
    events_.reconnected();
  }
}

void Dispatcher::onDown(const Error& error) {
  // Of an outage only its beginning is news, and what it turns into.
  const bool known = linkError_ && linkError_->errc() == error.errc();
  // Its time is that of one attempt to connect; the calls that it ends have times of their own.
  ErrorContext context = error.context();
  context.elapsed = ErrorContext().elapsed;
  linkError_.emplace(error.errc(), error.message(), std::move(context));
  if (ready_) {
    std::exchange(ready_, nullptr)(Result<void>(error));
  } else {
    log_->write(known ? LogLevel::debug : LogLevel::warning,
                fmt::format("no connection, trying again: {}", error.what()));
  }
  if (!isPermanent(error.errc())) {
    return;
  }
  for (const Call::Wait wait : {Call::Wait::link, Call::Wait::kill}) {
    for (const CallPtr& call : parkedFor(wait)) {
      if (!call->persistent_ && call->parkedAt_ != Call::kNotParked) {
        unpark(*call);
        fail(call, *linkError_);
      }
    }
  }
}

}  // namespace rlock::detail
