// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/random_bits.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/connection_killer.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/detail/executor/script_texts.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/result.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The events that the dispatcher tells, all of them on the loop thread.
class DispatcherEvents {
 public:
  DispatcherEvents() = default;
  DispatcherEvents(const DispatcherEvents&) = delete;
  DispatcherEvents& operator=(const DispatcherEvents&) = delete;
  virtual ~DispatcherEvents() = default;

  /// There is a connection again: the server behind it may be another, or have lost its data.
  virtual void reconnected() = 0;

  virtual void channelConfirmed(const std::string& channel) = 0;
  virtual void channelRefused(const std::string& channel, const Error& error) = 0;
  virtual void channelMessage(const std::string& channel, std::string_view payload) = 0;
  virtual void channelsLost() = 0;
};

/// Brings calls to the server and decides what a reply, an error or a broken connection means for
/// them. Knows one node now; whoever uses it names keys and channels, never nodes.
///
/// Two ways: directly, on the calling thread, for the common case that everything works; or through
/// the loop thread, which waits for a connection, repeats what the server did not execute, and
/// gives up at a point in time. A direct call that meets trouble is passed to the loop with
/// resume().
///
/// **Thread safety:** direct(), await(), start(), startAhead(), resume(), post() and the observers
/// from any thread; the rest on the loop thread.
class Dispatcher final : public std::enable_shared_from_this<Dispatcher>, private net::LinkEvents {
 public:
  using Clock = std::chrono::steady_clock;
  using CallPtr = IntrusivePtr<Call>;
  enum class Direct : std::uint8_t {
    replied,      ///< Call::reply() is the answer, no error
    failed,       ///< a fatal error reply, in takeError()
    trouble,      ///< pass it to resume()
    timedOut,     ///< the call goes on in the background and ends in finished()
    interrupted,  ///< likewise
  };

  Dispatcher(std::shared_ptr<Env> env,
             const net::Transports& transports,
             const Options& options,
             std::shared_ptr<const Logger> log,
             DispatcherEvents& events);
  ~Dispatcher() override;

  /// Starts connecting; `ready` is called on the loop when the first attempt has succeeded or
  /// failed.
  void open(UniqueFunction<void(Result<void>)> ready);
  /// Ends all connections; calls under way finish with `closed`.
  void close() noexcept;

  /// Sends on the calling thread, which then takes the reply with await(). False: no connection.
  bool direct(Call& call);
  /// Waits for a direct call. Sends a script's text on this thread if the server wants it.
  Direct await(Call& call, Clock::time_point deadline);
  /// Why await() said `failed`.
  [[nodiscard]] Error takeError(Call& call) const;

  /// Sends in the background; Call::finished() has the outcome. The call is not sent after
  /// `sendBefore`.
  void start(CallPtr call, Clock::time_point sendBefore);
  /// As start(), but where there is a connection the call is ahead of whatever this thread sends
  /// after it.
  void startAhead(const CallPtr& call, Clock::time_point sendBefore);
  /// As start(), after the call has ended in trouble or was lost and is to be judged.
  void resume(CallPtr call, Clock::time_point sendBefore);

  /// Whether requests must carry a tombstone, because a lost one cannot be fenced on this server.
  /// A guess before there is a connection, and where it changes: a call that was composed for
  /// another is composed again before it goes out.
  [[nodiscard]] bool needsTombstone() const noexcept {
    return tombstones_.load(std::memory_order_relaxed);
  }
  /// The node that calls go to, for messages.
  [[nodiscard]] std::string node() const;

  void subscribe(std::string channel) { pubsub_->subscribe(std::move(channel)); }
  void unsubscribe(const std::string& channel) { pubsub_->unsubscribe(channel); }

  void post(UniqueFunction<void()> function) { env_->post(std::move(function)); }
  [[nodiscard]] bool onLoopThread() const noexcept { return env_->onLoopThread(); }

  struct Counters {
    std::uint64_t commands;
    std::uint64_t reconnects;
    std::uint64_t scriptsLoaded;
  };
  [[nodiscard]] Counters counters() const noexcept;

 private:
  friend class Call;
  class Channels;

  void onUp(const std::shared_ptr<const net::ServerSession>& session) override;
  void onDown(const Error& error) override;

  /// Does one step for a call on the loop. A call that there is no memory for is over.
  template <class Step>
  void guarded(const CallPtr& call, Step step) noexcept;
  void begin(Call& call, Clock::time_point sendBefore);
  void send(const CallPtr& call);
  void judge(const CallPtr& call);
  /// False: the call cannot go out yet, and was parked or finished.
  bool passesKills(const CallPtr& call);
  static void prolong(Call& call);
  void supplyScript(Call& call);
  void noteAnswered(Call& call) noexcept;
  void waitForLink(const CallPtr& call);
  void retryLater(const CallPtr& call);
  void park(const CallPtr& call, Clock::time_point until, Call::Wait wait);
  void unpark(Call& call) noexcept;
  void sendParked(const CallPtr& call);
  [[nodiscard]] std::vector<CallPtr> parkedFor(Call::Wait wait) const;
  void timeIsUp(const CallPtr& call);
  void fail(const CallPtr& call, Error error, bool answered = false);
  void leaveReadOnly(const Call& call);
  void finish(const CallPtr& call, Outcome outcome) noexcept;
  [[nodiscard]] Error describe(const Call& call, Errc errc, std::string_view text) const;
  [[nodiscard]] bool firstAhead(const lua::Script& script);

  const std::shared_ptr<Env> env_;
  const std::shared_ptr<const Logger> log_;
  const LostReplyPolicy policy_;
  const std::chrono::nanoseconds retryMin_;
  const std::chrono::nanoseconds retryMax_;
  const Error noMemory_;  // made in time
  std::atomic<bool> tombstones_;
  std::atomic<std::uint64_t> scriptsLoaded_{0};
  ScriptTexts texts_;
  std::shared_ptr<net::CommandTransport> link_;
  ConnectionKiller killer_;
  std::unique_ptr<net::PubSubEvents> channels_;
  std::unique_ptr<net::SubscriptionTransport> pubsub_;

  mutable AnnotatedMutex nodeMutex_;
  std::string node_ RLOCK_GUARDED_BY(nodeMutex_);

  AnnotatedMutex aheadMutex_;
  /// On this connection.
  std::vector<const lua::Script*> sentAhead_ RLOCK_GUARDED_BY(aheadMutex_);

  // Loop thread only.
  UniqueFunction<void(Result<void>)> ready_;
  std::vector<CallPtr> parked_;
  std::optional<Error> linkError_;
  DispatcherEvents& events_;
  std::uint32_t random_ = 1;
  Clock::time_point leaveReadOnlyFrom_{};
  std::chrono::nanoseconds readOnlyPause_{};
  bool closed_ = false;
};

/// How long a follow-up may wait for its turn on the loop.
inline constexpr std::chrono::milliseconds kFollowUpPatience{5};

/// Failures to connect that waiting does not cure.
inline bool isPermanent(Errc errc) noexcept {
  return errc == Errc::authenticationFailed || errc == Errc::denied ||
         errc == Errc::invalidArgument;
}

inline Error noMemoryError() {
  return Error(Errc::overloaded, "this process has no memory for the request");
}

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

inline void Call::completed() noexcept {
  if (dispatcher_ != nullptr) {
    const Dispatcher::CallPtr self(this);
    dispatcher_->guarded(self, [&] { self->dispatcher_->judge(self); });
  }
}

inline Dispatcher::Dispatcher(std::shared_ptr<Env> env,
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
      random_(static_cast<std::uint32_t>(randomBits())) {
  node_ = toString(options.endpoints.front());
  pubsub_ = transports.subscriptions(*channels_);
}

inline Dispatcher::~Dispatcher() = default;

inline void Dispatcher::open(UniqueFunction<void(Result<void>)> ready) {
  ready_ = std::move(ready);
  link_->open();
}

inline void Dispatcher::close() noexcept {
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

inline bool Dispatcher::direct(Call& call) {
  // Should the caller leave, the call must not be sent again on its behalf.
  begin(call, Clock::time_point::min());
  return link_->submit(call, call.argv(), net::CommandTransport::Mode::awaited);
}

inline Dispatcher::Direct Dispatcher::await(Call& call, Clock::time_point deadline) {
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

inline Error Dispatcher::takeError(Call& call) const {
  const std::string& text = call.reply().text;
  return describe(call, classifyError(text).errc, text);
}

inline void Dispatcher::start(CallPtr call, Clock::time_point sendBefore) {
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

inline bool Dispatcher::firstAhead(const lua::Script& script) {
  const MutexLock lock(aheadMutex_);
  if (std::find(sentAhead_.begin(), sentAhead_.end(), &script) != sentAhead_.end()) {
    return false;
  }
  sentAhead_.push_back(&script);
  return true;
}

inline void Dispatcher::startAhead(const CallPtr& call, Clock::time_point sendBefore) {
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

inline void Dispatcher::resume(CallPtr call, Clock::time_point sendBefore) {
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

inline void Dispatcher::begin(Call& call, Clock::time_point sendBefore) {
  call.dispatcher_ = this;
  call.sendBefore_ = sendBefore;
  call.attempts_ = 0;
  call.waitsFor_ = Call::Wait::pause;
  call.lastError_.reset();
  call.maybeExecuted_ = false;
  prolong(call);
}

inline void Dispatcher::send(const CallPtr& call) {
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

inline bool Dispatcher::passesKills(const CallPtr& call) {
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
inline void Dispatcher::prolong(Call& call) {
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

inline void Dispatcher::timeIsUp(const CallPtr& call) {
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

inline void Dispatcher::fail(const CallPtr& call, Error error, bool answered) {
  finish(call, {Outcome::Kind::failed, std::move(error), false, call->maybeExecuted_, answered});
}

/// The server does not know the script: the call goes out again, with the text unless that is on
/// its way already.
inline void Dispatcher::supplyScript(Call& call) {
  const bool mine = texts_.claim(call.script_);
  if (!mine && !std::exchange(call.behindText_, true)) {
    return;
  }
  call.bringsText_ = mine;
  scriptsLoaded_.fetch_add(1, std::memory_order_relaxed);
  call.sendText();
}

/// Answered, or lost: in both cases the text is not under way any more.
inline void Dispatcher::noteAnswered(Call& call) noexcept {
  if (std::exchange(call.bringsText_, false)) {
    texts_.arrived(call.script_);
  }
}

inline void Dispatcher::judge(const CallPtr& call) {
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
inline void Dispatcher::leaveReadOnly(const Call& call) {
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

inline void Dispatcher::waitForLink(const CallPtr& call) {
  if (linkError_ && isPermanent(linkError_->errc()) && !call->persistent_) {
    fail(call, *linkError_);
    return;
  }
  park(call, call->sendBefore_, Call::Wait::link);
}

inline void Dispatcher::retryLater(const CallPtr& call) {
  random_ = random_ * 1664525U + 1013904223U;
  const auto pause = backoffPause(retryMin_, retryMax_, call->attempts_++, random_ >> 8U);
  const auto now = env_->now();
  if (call->sendBefore_ - pause <= now) {
    fail(call, *call->lastError_, true);
    return;
  }
  park(call, now + pause, Call::Wait::pause);
}

inline void Dispatcher::park(const CallPtr& call, Clock::time_point until, Call::Wait wait) {
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

inline void Dispatcher::unpark(Call& call) noexcept {
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
inline void Dispatcher::sendParked(const CallPtr& call) {
  if (call->parkedAt_ != Call::kNotParked) {
    unpark(*call);
    guarded(call, [&] { send(call); });
  }
}

inline std::vector<Dispatcher::CallPtr> Dispatcher::parkedFor(Call::Wait wait) const {
  std::vector<CallPtr> result;
  std::copy_if(
      parked_.begin(), parked_.end(), std::back_inserter(result), [wait](const CallPtr& call) {
        return call->waitsFor_ == wait;
      });
  return result;
}

inline void Dispatcher::finish(const CallPtr& call, Outcome outcome) noexcept {
  noteAnswered(*call);
  call->dispatcher_ = nullptr;
  call->finished(std::move(outcome));
}

inline Error Dispatcher::describe(const Call& /*call*/, Errc errc, std::string_view text) const {
  ErrorContext context;
  context.node = node();
  if (errc == Errc::closed || errc == Errc::connectionFailed) {
    return Error(errc, text, std::move(context));
  }
  context.serverMessage = text;
  return Error(errc, {}, std::move(context));
}

inline std::string Dispatcher::node() const {
  // In a child another thread of the parent may have the mutex for ever.
  if (env_->abandoned()) {
    return {};
  }
  const MutexLock lock(nodeMutex_);
  return node_;
}

inline Dispatcher::Counters Dispatcher::counters() const noexcept {
  const net::CommandTransport::Totals link = link_->totals();
  return {link.commands,
          link.connections > 0 ? link.connections - 1 : 0,
          scriptsLoaded_.load(std::memory_order_relaxed)};
}

inline void Dispatcher::onUp(const std::shared_ptr<const net::ServerSession>& session) {
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
    log_->write(LogLevel::warning,
                "lostReplyPolicy is fence, but the server does not allow CLIENT KILL: "
                "tombstones are used");
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

inline void Dispatcher::onDown(const Error& error) {
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
