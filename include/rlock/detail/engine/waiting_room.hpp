// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/wakeup_queues.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Lets callers wait for locks: the WakeupQueues under its mutex, the timer of its polls, and the
/// subscriptions that it wants. No thread sleeps in here: a thread that waits sleeps in its own
/// call, in CallingThread::sleepInQueue().
///
/// Every event changes the wake-up queues in one step under the mutex and comes out with the
/// waiters whose turn it is. They get it afterwards, on the same thread and with no lock held,
/// because a turn sends a request. Subscriptions begin and end on the loop thread only, so whoever
/// makes a change that is about the loop wakes it once.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
/// The caller holds no lock of the engine.
class WaitingRoom {
 public:
  using Clock = std::chrono::steady_clock;

  explicit WaitingRoom(EngineContext& context)
      : context_(context),
        queues_(context.options().safetyPoll,
                context.options().subscriptionLinger,
                context.options().topology == Topology::single),
        handOvers_{context.options().handOverLimit,
                   context.options().handOverTime,
                   context.env()->timePasses()},
        timer_(context.env()->makeTimer([this] { serve(); })) {}

  [[nodiscard]] WakeupQueues::Mark mark(std::string_view channel, std::uint8_t wakeupQueue) const;
  [[nodiscard]] WakeupQueues::Mark expect(std::string_view channel, std::uint8_t wakeupQueue);
  void queue(Waiter& waiter,
             const WaitTerms& terms,
             std::optional<WakeupQueues::Mark> mark,
             bool tried,
             std::chrono::milliseconds remaining) RLOCK_EXCLUDES(mutex_);
  void leave(Waiter& waiter, bool obtained, std::chrono::milliseconds lease) noexcept
      RLOCK_EXCLUDES(mutex_);

  /// Chooses the waiter that gets the lock from the release that is about to be sent. It comes with
  /// a reference that the caller drops; it has its turn, and must be told of it by
  /// Waiter::offered(). After a pause releasedForAll() must follow.
  /// @param lock  its name
  [[nodiscard]] Succession takeSuccessor(std::string_view channel,
                                         std::uint8_t wakeupQueue,
                                         std::string_view lock,
                                         Clock::time_point now) noexcept RLOCK_EXCLUDES(mutex_);
  /// As WakeupQueue::releasedForAll().
  void releasedForAll(std::string_view channel,
                      std::uint8_t wakeupQueue,
                      std::uint64_t pause,
                      std::optional<std::int64_t> receivers) noexcept RLOCK_EXCLUDES(mutex_);

  ///@{
  /// Events of the channels that the wake-up queues have subscribed to. Loop thread.
  void confirmed(const std::string& channel);
  void refused(const std::string& channel, const Error& error);
  void message(const std::string& channel, std::string_view payload);
  void disconnected();
  void disconnected(const std::string& channel);
  ///@}
  /// Requests go to another server from here on: everybody looks there. Loop thread.
  void serverReplaced();

  /// The client is closed: everybody is told. It cannot fail: they would wait for ever.
  void endWaits() noexcept;
  /// endWaits(), and nobody is looked after any more. Loop thread.
  void close() noexcept;

  struct Size {
    std::size_t waiters;
    std::size_t channels;
  };
  [[nodiscard]] Size size() const;

 private:
  struct Handout;
  class PassedTurns;

  /// One thread hands out at most so many turns. Each is a request on its way, so the rest is left
  /// to the loop thread, which does its other work in between.
  static constexpr std::size_t kTurnsAtOnce = 256;

  void give(WakeupQueues::Turns turns) noexcept RLOCK_EXCLUDES(mutex_);
  void passToLoop(WakeupQueues::Turns& turns) noexcept;
  [[nodiscard]] bool needsLoop() noexcept RLOCK_REQUIRES(mutex_);
  void wakeLoop() noexcept RLOCK_EXCLUDES(mutex_);
  void serve();

  EngineContext& context_;
  mutable AnnotatedMutex mutex_;
  WakeupQueues queues_ RLOCK_GUARDED_BY(mutex_);
  Clock::time_point armed_ RLOCK_GUARDED_BY(mutex_) = Clock::time_point::max();
  bool changesPosted_ RLOCK_GUARDED_BY(mutex_) = false;
  const HandOverLimits handOvers_;
  Atomic<bool> idle_{true};             // so that uncontended calls pass without the mutex
  const std::unique_ptr<Timer> timer_;  // loop thread only
};

/// Turns that one thread is handing out for one client.
struct WaitingRoom::Handout {
  WaitingRoom* room;
  WakeupQueues::Turns turns;
  Handout* outer;
};

/// Turns on their way to the loop thread. If there is no memory to send them they are given where
/// they are. Turns that the loop does not take any more are dropped: the client is closed, and
/// everybody who waits is told of that.
class WaitingRoom::PassedTurns {
 public:
  PassedTurns(std::shared_ptr<WaitingRoom> room, WakeupQueues::Turns& turns) noexcept
      : room_(std::move(room)), turns_(std::exchange(turns, {})) {}
  PassedTurns(PassedTurns&& other) noexcept
      : room_(std::move(other.room_)), turns_(std::exchange(other.turns_, {})) {}
  PassedTurns(const PassedTurns&) = delete;
  PassedTurns& operator=(const PassedTurns&) = delete;
  PassedTurns& operator=(PassedTurns&&) = delete;
  ~PassedTurns() {
    if (!turns_.empty() && !room_->context_.closed()) {
      give();
    }
    while (Waiter* const waiter = turns_.popFront()) {
      waiter->waiterDropRef();
    }
  }

  void give() noexcept { room_->give(std::exchange(turns_, {})); }

 private:
  std::shared_ptr<WaitingRoom> room_;
  WakeupQueues::Turns turns_;
};

/// A turn may come to its end at once, when there is no server or no time, and hand itself on. So
/// turns that are given within a turn wait until that one is over: any number of waiters needs the
/// stack of one.
inline void WaitingRoom::give(WakeupQueues::Turns turns) noexcept {
  if (turns.empty()) {
    return;
  }
  thread_local Handout* innermost = nullptr;
  for (Handout* handout = innermost; handout != nullptr; handout = handout->outer) {
    if (handout->room == this) {
      handout->turns.append(turns);
      return;
    }
  }
  Handout here{this, turns, innermost};
  innermost = &here;
  std::size_t given = 0;
  while (Waiter* const waiter = here.turns.popFront()) {
    waiter->turn();
    waiter->waiterDropRef();
    if (++given % kTurnsAtOnce == 0 && !here.turns.empty()) {
      passToLoop(here.turns);
    }
  }
  innermost = here.outer;
}

/// Leaves in `turns` what cannot be passed on.
inline void WaitingRoom::passToLoop(WakeupQueues::Turns& turns) noexcept {
  try {
    context_.dispatcher().post(
        [passed = PassedTurns(context_.sharing(*this), turns)]() mutable { passed.give(); });
  } catch (const std::bad_alloc&) {
    // Out of memory: PassedTurns has given the turns on this thread.
  }
}

inline void WaitingRoom::wakeLoop() noexcept {
  try {
    context_.dispatcher().post([self = context_.sharing(*this)] { self->serve(); });
  } catch (const std::bad_alloc&) {
    // Out of memory: the next queue() or leave() asks for the loop again.
    const MutexLock lock(mutex_);
    changesPosted_ = false;
    armed_ = Clock::time_point::max();
  }
}

inline bool WaitingRoom::needsLoop() noexcept {
  idle_.store(queues_.idle(), std::memory_order_release);
  bool needed = false;
  if (queues_.hasChanges() && !changesPosted_) {
    changesPosted_ = true;
    needed = true;
  }
  const auto due = queues_.nextDue();
  if (due < armed_) {
    armed_ = due;
    needed = true;
  }
  return needed;
}

inline WakeupQueues::Mark WaitingRoom::mark(std::string_view channel,
                                            std::uint8_t wakeupQueue) const {
  // A stale answer only costs a try too many.
  if (idle_.load(std::memory_order_acquire)) {
    return {};
  }
  const MutexLock lock(mutex_);
  return queues_.mark(channel, wakeupQueue);
}

inline WakeupQueues::Mark WaitingRoom::expect(std::string_view channel, std::uint8_t wakeupQueue) {
  if (idle_.load(std::memory_order_acquire)) {
    return {};
  }
  WakeupQueues::Mark result;
  bool loopNeeded = false;
  {
    const MutexLock lock(mutex_);
    result = queues_.expect(channel, wakeupQueue);
    loopNeeded = needsLoop();
  }
  if (loopNeeded) {
    wakeLoop();
  }
  return result;
}

inline void WaitingRoom::queue(Waiter& waiter,
                               const WaitTerms& terms,
                               std::optional<WakeupQueues::Mark> mark,
                               bool tried,
                               std::chrono::milliseconds remaining) {
  WakeupQueues::Turns turns;
  bool loopNeeded = false;
  {
    const MutexLock lock(mutex_);
    turns = queues_.queue(waiter, terms, mark, tried, remaining, context_.now());
    loopNeeded = needsLoop();
  }
  if (context_.closed()) {
    // Race: it may have joined after close() told the others.
    // Without memory the end of the connections tells it.
    static_cast<void>(waiter.shutDown());
  }
  if (loopNeeded) {
    wakeLoop();
  }
  give(turns);
}

inline void WaitingRoom::leave(Waiter& waiter,
                               bool obtained,
                               std::chrono::milliseconds lease) noexcept {
  if (idle_.load(std::memory_order_acquire)) {
    return;
  }
  WakeupQueues::Turns turns;
  bool loopNeeded = false;
  {
    const MutexLock lock(mutex_);
    try {
      turns = queues_.leave(waiter, obtained, context_.now(), lease);
      loopNeeded = needsLoop();
    } catch (const std::bad_alloc&) {
      // Without memory nobody is told; the others look again at the next safety poll.
      loopNeeded = true;
    }
  }
  if (loopNeeded) {
    wakeLoop();
  }
  give(turns);
}

/// A stale look at idle_ only costs a message: whoever came meanwhile hears it, or has not tried.
inline Succession WaitingRoom::takeSuccessor(std::string_view channel,
                                             std::uint8_t wakeupQueue,
                                             std::string_view lock,
                                             Clock::time_point now) noexcept {
  if (idle_.load(std::memory_order_acquire)) {
    return {};
  }
  const MutexLock lockOfQueues(mutex_);
  return queues_.takeSuccessor(channel, wakeupQueue, lock, handOvers_, now);
}

inline void WaitingRoom::releasedForAll(std::string_view channel,
                                        std::uint8_t wakeupQueue,
                                        std::uint64_t pause,
                                        std::optional<std::int64_t> receivers) noexcept {
  WakeupQueues::Turns turns;
  bool loopNeeded = false;
  {
    const MutexLock lock(mutex_);
    turns = queues_.releasedForAll(channel, wakeupQueue, pause, receivers, context_.now());
    loopNeeded = needsLoop();
  }
  if (loopNeeded) {
    wakeLoop();
  }
  give(turns);
}

inline void WaitingRoom::serve() {
  if (context_.closed()) {
    return;
  }
  WakeupQueues::Turns turns;
  std::vector<WakeupQueues::Change> changes;
  Clock::time_point due{};
  {
    const MutexLock lock(mutex_);
    changesPosted_ = false;
    armed_ = Clock::time_point::max();
    const auto now = context_.now();
    turns = queues_.poll(now);
    try {
      queues_.expireLingering(now);
    } catch (const std::bad_alloc&) {
      // The others are forgotten next time.
    }
    changes = queues_.takeChanges();
    due = armed_ = queues_.nextDue();
    idle_.store(queues_.idle(), std::memory_order_release);
  }
  context_.counters().safetyPolls.fetch_add(turns.size(), std::memory_order_relaxed);
  give(turns);
  timer_->armAt(due);
  for (const WakeupQueues::Change& change : changes) {
    // Nobody asks for a change twice: one that is not made, and the others behind it, would be
    // missing as long as their channels are waited for.
    ifThereIsMemorySoon([&] {
      if (change.subscribe) {
        context_.dispatcher().subscribe(change.channel);
      } else {
        context_.dispatcher().unsubscribe(change.channel);
      }
    });
  }
}

inline void WaitingRoom::confirmed(const std::string& channel) {
  WakeupQueues::Turns turns;
  bool loopNeeded = false;
  {
    const MutexLock lock(mutex_);
    turns = queues_.subscribed(channel);
    loopNeeded = needsLoop();
  }
  if (loopNeeded) {
    wakeLoop();
  }
  give(turns);
}

inline void WaitingRoom::message(const std::string& channel, std::string_view payload) {
  // The text does not matter here: something may have changed.
  context_.counters().messages.fetch_add(1, std::memory_order_relaxed);
  WakeupQueues::Turns turns;
  bool loopNeeded = false;
  {
    const MutexLock lock(mutex_);
    turns = queues_.message(channel, payload, context_.now());
    // A pause may begin, which has an end.
    loopNeeded = needsLoop();
  }
  context_.counters().wakeUps.fetch_add(turns.size(), std::memory_order_relaxed);
  if (loopNeeded) {
    wakeLoop();
  }
  give(turns);
}

inline void WaitingRoom::serverReplaced() {
  WakeupQueues::Turns turns;
  {
    const MutexLock lock(mutex_);
    turns = queues_.serverReplaced();
  }
  give(turns);
}

inline void WaitingRoom::refused(const std::string& channel, const Error& error) {
  bool isNew = false;
  {
    const MutexLock lock(mutex_);
    isNew = queues_.refused(channel);
  }
  context_.log().write(
      isNew ? LogLevel::warning : LogLevel::debug,
      fmt::format(
          "cannot subscribe to {}, its waiters poll: {}", escapeForDisplay(channel), error.what()));
}

inline void WaitingRoom::disconnected() {
  const MutexLock lock(mutex_);
  queues_.disconnected();
}

inline void WaitingRoom::disconnected(const std::string& channel) {
  const MutexLock lock(mutex_);
  queues_.disconnected(channel);
}

inline void WaitingRoom::close() noexcept {
  timer_->disarm();
  endWaits();
  const auto takeUntold = [this] {
    const MutexLock lock(mutex_);
    return queues_.takeUntold();
  };
  while (Waiter* const waiter = takeUntold()) {
    waiter->shutDownOnLoop();
    waiter->waiterDropRef();
  }
}

/// One that is not told for want of memory is left to close(). One that was trying needs nobody:
/// its request ends with the connections, and brings it back if it has to be told.
inline void WaitingRoom::endWaits() noexcept {
  const auto takeOne = [this] {
    const MutexLock lock(mutex_);
    return queues_.takeOne(context_.now());
  };
  for (auto next = takeOne(); next.waiter != nullptr; next = takeOne()) {
    if (!next.waiter->shutDown() && !next.trying) {
      const MutexLock lock(mutex_);
      queues_.keepUntold(*next.waiter);
    } else {
      next.waiter->waiterDropRef();
    }
  }
}

inline WaitingRoom::Size WaitingRoom::size() const {
  const MutexLock lock(mutex_);
  return {queues_.waiting(), queues_.channels()};
}

}  // namespace rlock::detail
