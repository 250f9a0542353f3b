// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/deadline_heap.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/engine/best_fit_order.hpp>
#include <rlock/detail/engine/channel_changes.hpp>
#include <rlock/detail/engine/hand_over_chain.hpp>
#include <rlock/detail/engine/precedence.hpp>
#include <rlock/detail/engine/waiter.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// Where a waiter waits and for what.
struct WaitTerms {
  std::string_view channel;
  WakeRule rule = WakeRule::fifo;  ///< the same for all waiters of one wake-up queue
  std::uint8_t wakeupQueue = 0;    ///< LockTraits::wakeupQueue
  int need = 1;
  /// WakeRule::broadcast: the message that says that what all of them wait for has happened. It
  /// ends the wait of everybody who waited when it was sent, whatever has come since. A message may
  /// be older than the wait that it meets: it counts for those only whose subscription was
  /// confirmed after they had begun to wait; for the others it just begins a generation. Empty:
  /// none does.
  std::string_view opensOn{};
  /// It looks again after this long even if the client's safety poll is longer. Zero: after the
  /// safety poll.
  std::chrono::milliseconds poll{0};
  /// The channel is kept for a while after its last waiter, because others may need it soon.
  bool lingers = true;
  /// WakeRule::fifo: the name of the lock that a release may hand over to this waiter. The bytes
  /// must stay. Empty: none.
  std::string_view takesOver{};
};

/// The receiver of a lock that is about to be released.
struct Succession {
  /// It takes the lock from its holder's hands; null: the lock is released for everybody.
  Waiter* waiter = nullptr;
  /// Released for everybody: the number of the pause in which this client stands back if other
  /// clients hear of it, see Precedence; 0: it does not.
  std::uint64_t pause = 0;
};

struct WakeupChannel;

/// One wake-up queue: the waiters of one client for one channel, in the order they came, of which
/// the WakeRule says who tries. It gives turns, by adding waiters to `turns`, each with a reference
/// that the receiver drops after turn(). A waiter that has a turn comes back with sleep() or
/// leave(), and a turn that it could not use goes to the next.
///
/// Waking n waiters costs O(n) in all. Where all get in together (WakeRule::broadcast), the first
/// that gets in opens the wake-up queue for the others, once for each turn that came from outside:
/// those who get in by that opening have nothing to tell the others. A waiter that tried while the
/// wake-up queue was opened, or came meanwhile, has missed it and tries once more.
///
/// Where waiters need different amounts (WakeRule::bestFit), smaller ones may pass a first one that
/// is refused: BestFitOrder says who.
///
/// **Thread safety:** One thread at a time, together with the other wake-up queues of the client.
class WakeupQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;
  using Turns = WaiterTurns;
  struct Shared;

  WakeupQueue(WakeupChannel& channel, Shared& shared) noexcept
      : channel_(channel), shared_(shared) {}
  WakeupQueue(const WakeupQueue&) = delete;
  WakeupQueue& operator=(const WakeupQueue&) = delete;

  [[nodiscard]] WakeupChannel& channel() const noexcept { return channel_; }
  /// Nobody is here, not even one that was told and has not left yet.
  [[nodiscard]] bool empty() const noexcept { return line_.empty() && told_.empty(); }
  [[nodiscard]] WakeupMark mark() const noexcept;

  /// The terms that all its waiters have in common.
  void setTerms(const WaitTerms& terms) {
    opensOn_ = terms.opensOn;
    rule_ = terms.rule;
  }
  /// Takes the memory that enter() needs.
  void makeRoom(const WaitTerms& terms) {
    if (terms.rule == WakeRule::bestFit) {
      fit_.makeRoom(terms.need);
    }
  }
  /// A new waiter is the last; it has not tried, or sleep() says so.
  /// @param round  the confirmation from which on messages are meant for it
  void enter(Waiter& waiter, const WaitTerms& terms, std::uint64_t round) noexcept;

  /// How a waiter comes to sleep.
  struct Rest {
    bool isNew;
    bool tried;                           ///< it has tried since it was last asleep
    std::chrono::milliseconds poll;       ///< WaitTerms::poll
    std::chrono::milliseconds remaining;  ///< how long the holder has it at most; negative: unknown
  };
  void sleep(Waiter& waiter,
             const std::optional<WakeupMark>& mark,
             const Rest& rest,
             TimePoint now,
             Turns& turns) noexcept;
  /// It leaves, with what it waited for or without.
  /// @param lease  how long the leaving waiter's hold lasts if it is not renewed: after that the
  ///               lock is free without a message. Zero: not known
  void leave(Waiter& waiter,
             bool obtained,
             std::chrono::milliseconds lease,
             TimePoint now,
             Turns& turns) noexcept;

  /// The lock is about to be released. Gives the first one a turn in which it takes the lock from
  /// its holder's hands, within the limits. A pause must be told to releasedForAll().
  Succession takeSuccessor(std::string_view lock,
                           const HandOverLimits& limits,
                           TimePoint now) noexcept;
  /// A release with a pause has been answered, or has failed.
  /// @param receivers  how many clients have heard it; empty: not known, or nobody
  void releasedForAll(std::uint64_t pause,
                      std::optional<std::int64_t> receivers,
                      TimePoint now,
                      Turns& turns) noexcept;

  /// A message came, of which the text may be the one that opens.
  void heard(std::string_view text, Turns& turns) noexcept;
  /// Call after heard() of both queues, once the message has begun a new generation of the channel.
  void lookAfterMessage(TimePoint now, Turns& turns) noexcept {
    follow(precedence_.message(), now, turns);
  }
  /// Something may have changed on the server: the first one looks.
  void lookAgain(Turns& turns) noexcept;
  void stopPolling() noexcept;
  /// Somebody who waits, or was told of an opening; null: nobody.
  [[nodiscard]] Waiter* front() const noexcept {
    return line_.empty() ? told_.front() : line_.front();
  }

 private:
  using Line = WaiterChain<&Waiter::line_>;
  struct Parting {
    bool first;
    bool obtained;
    bool hadTurn;
  };

  [[nodiscard]] bool isOutdated(const Waiter& waiter) const noexcept;
  void give(Waiter& waiter, Turns& turns) noexcept;
  void give(Waiter& waiter, std::uint64_t wave, Turns& turns) noexcept;
  bool endTurn(Waiter& waiter) noexcept;
  void follow(Precedence::Answer answer, TimePoint now, Turns& turns) noexcept;
  void remove(Waiter& waiter) noexcept;
  void handOn(const Waiter& left,
              Parting parting,
              std::chrono::milliseconds lease,
              TimePoint now,
              Turns& turns) noexcept;
  // WakeRule::broadcast.
  void tell(Waiter& waiter, Turns& turns) noexcept;
  void open(std::uint64_t wave, Turns& turns) noexcept;
  // WakeRule::bestFit.
  void sleepFitting(Waiter& waiter,
                    bool tried,
                    bool outdated,
                    bool hadTurn,
                    TimePoint now,
                    Turns& turns) noexcept;
  void passOn(TimePoint now, Turns& turns) noexcept;

  WakeupChannel& channel_;
  Shared& shared_;
  WakeRule rule_ = WakeRule::fifo;
  Line line_;
  HandOverChain handOvers_;
  Precedence precedence_;
  DeadlineHook poll_;
  std::size_t trying_ = 0;  // how many have a turn
  // WakeRule::broadcast. A wave is one turn from a message, a poll or a waiter that left, together
  // with the turns of the opening that it leads to.
  std::uint64_t wave_ = 0;
  std::uint64_t openedWave_ = 0;  // the last in which somebody got in
  std::uint64_t openings_ = 0;    // counts those waves, over all wake-up queues
  std::string opensOn_;
  std::uint64_t openedIn_ =
      0;              // the confirmation that was the newest when the last such message came
  Line told_;         // for whom it has happened
  BestFitOrder fit_;  // WakeRule::bestFit: the line once more, by what they need
};

/// A channel with its wake-up queues.
struct WakeupChannel {
  static constexpr std::size_t kQueues = 2;

  explicit WakeupChannel(WakeupQueue::Shared& shared) noexcept
      : queues{WakeupQueue(*this, shared), WakeupQueue(*this, shared)} {}

  [[nodiscard]] bool empty() const noexcept {
    return std::all_of(
        queues.begin(), queues.end(), [](const WakeupQueue& queue) { return queue.empty(); });
  }

  std::string name;
  std::array<WakeupQueue, kQueues> queues;
  std::uint64_t generation = 1;  // a message or a confirmation begins the next
  bool lingers = true;
  bool subscribed = false;
  bool refused = false;  // and not confirmed since
  ChannelChanges::Confirmations confirmations;
  DeadlineHook linger;
};

/// The state that the wake-up queues of a client have in common.
struct WakeupQueue::Shared {
  Shared(std::chrono::milliseconds poll, bool countsEverybody) noexcept
      : safetyPoll(poll), countsAll(countsEverybody) {}

  const std::chrono::milliseconds safetyPoll;
  const bool countsAll;  // receivers that the server tells of are all that there are
  std::uint64_t openings = 0;
  DeadlineHeap<WakeupQueue, &WakeupQueue::poll_> polls;  // when each first one looks by itself
};

// Coming and going.

inline WakeupMark WakeupQueue::mark() const noexcept {
  return {channel_.generation, !line_.empty(), 0, openings_};
}

inline void WakeupQueue::enter(Waiter& waiter,
                               const WaitTerms& terms,
                               std::uint64_t round) noexcept {
  waiter.waiterAddRef();
  waiter.wakeupQueue_ = this;
  waiter.round_ = round;
  waiter.takesOver_ = rule_ == WakeRule::fifo ? terms.takesOver : std::string_view();
  waiter.trying_ = false;
  waiter.happened_.store(false, std::memory_order_release);
  waiter.queued_ = true;
  line_.pushBack(waiter);
  if (rule_ == WakeRule::bestFit) {
    fit_.add(waiter, terms.need);
  }
}

inline void WakeupQueue::remove(Waiter& waiter) noexcept {
  line_.remove(waiter);
  if (rule_ == WakeRule::bestFit) {
    fit_.remove(waiter);
  }
}

inline void WakeupQueue::sleep(Waiter& waiter,
                               const std::optional<WakeupMark>& mark,
                               const Rest& rest,
                               TimePoint now,
                               Turns& turns) noexcept {
  const bool hadTurn = endTurn(waiter);
  if (hadTurn && rest.tried && line_.front() == &waiter) {
    precedence_.refused();
  }
  if (mark) {
    waiter.seen_ = mark->generation;
  }
  if (rest.isNew) {
    waiter.openings_ = mark ? mark->openings : openings_;
  }
  if (rest.isNew && !opensOn_.empty() && openedIn_ >= waiter.round_) {
    tell(waiter, turns);
    return;
  }
  if (waiter.happened_.load(std::memory_order_relaxed)) {
    give(waiter, turns);
    return;
  }
  Clock::duration sleep = shared_.safetyPoll;
  if (rest.poll.count() > 0) {
    sleep = std::min<Clock::duration>(sleep, rest.poll);
  }
  if (rest.remaining.count() >= 0) {
    // One more millisecond: the server drops an expired key when its clock has passed the end.
    sleep = std::min<Clock::duration>(sleep, rest.remaining + std::chrono::milliseconds(1));
  }
  waiter.looksAt_ = now + sleep;
  // Without a subscription generations say nothing; its confirmation will bring a turn.
  const bool outdated = isOutdated(waiter);
  const bool missedOpening =
      rule_ == WakeRule::broadcast && rest.tried && waiter.openings_ != openings_;
  if (line_.front() != &waiter) {
    if (missedOpening) {
      give(waiter, openedWave_, turns);
    } else if (rule_ == WakeRule::bestFit) {
      sleepFitting(waiter, rest.tried, outdated, hadTurn, now, turns);
    }
    return;
  }
  if (!rest.tried || outdated || missedOpening) {
    give(waiter, turns);
    return;
  }
  shared_.polls.schedule(*this, waiter.looksAt_);
  if (rule_ == WakeRule::bestFit) {
    fit_.refused(waiter);
    passOn(now, turns);
  }
}

inline void WakeupQueue::leave(Waiter& waiter,
                               bool obtained,
                               std::chrono::milliseconds lease,
                               TimePoint now,
                               Turns& turns) noexcept {
  const bool hadTurn = endTurn(waiter);
  if (waiter.happened_.load(std::memory_order_relaxed)) {
    told_.remove(waiter);
    return;
  }
  const bool first = line_.front() == &waiter;
  remove(waiter);
  if (first) {
    fit_.firstHasLeft();
    if (obtained) {
      precedence_.granted(now);
    }
  }
  if (line_.empty()) {
    precedence_.end();
    fit_.firstTries();
    stopPolling();
  } else {
    handOn(waiter, {first, obtained, hadTurn}, lease, now, turns);
  }
}

/// Gives a turn to whoever must try now that `left` is gone. The line is not empty.
inline void WakeupQueue::handOn(const Waiter& left,
                                Parting parting,
                                std::chrono::milliseconds lease,
                                TimePoint now,
                                Turns& turns) noexcept {
  Waiter& next = *line_.front();
  if (rule_ == WakeRule::bestFit) {
    if (parting.first) {
      // The permits kept for it, or those it has left over, may be enough for the next.
      give(next, turns);
    } else if (parting.hadTurn) {
      passOn(now, turns);
    }
    return;
  }
  if (rule_ == WakeRule::broadcast && parting.obtained) {
    if (left.wave_ > openedWave_) {
      open(left.wave_, turns);
    }
    // A new generation and the end of a lease are for the first only.
    if (isOutdated(next)) {
      give(next, turns);
    } else if (!next.trying_) {
      shared_.polls.schedule(*this, std::max(now, next.looksAt_));
    }
    return;
  }
  if (!parting.first) {
    return;
  }
  if (parting.hadTurn && (!parting.obtained || isOutdated(left))) {
    // A generation that began during a successful try is about what happened after it: the lock
    // may be free again.
    give(next, turns);
  } else if (parting.obtained) {
    const bool sooner = lease.count() > 0 && lease < shared_.safetyPoll;
    shared_.polls.schedule(
        *this, now + (sooner ? lease + std::chrono::milliseconds(1) : shared_.safetyPoll));
  }
}

inline void WakeupQueue::stopPolling() noexcept {
  shared_.polls.remove(*this);
}

// Turns.

inline bool WakeupQueue::isOutdated(const Waiter& waiter) const noexcept {
  return channel_.subscribed && waiter.seen_ != channel_.generation;
}

/// A turn that comes from outside, or is handed on.
inline void WakeupQueue::give(Waiter& waiter, Turns& turns) noexcept {
  if (!waiter.trying_) {
    give(waiter, ++wave_, turns);
  }
}

/// The waiter is told outside the lock and may leave before that: the caller of the wake-up queues
/// gets a reference with it and drops it after turn().
inline void WakeupQueue::give(Waiter& waiter, std::uint64_t wave, Turns& turns) noexcept {
  if (std::exchange(waiter.trying_, true)) {
    return;
  }
  ++trying_;
  waiter.seen_ = channel_.generation;
  waiter.openings_ = openings_;
  waiter.wave_ = wave;
  if (line_.front() == &waiter) {
    precedence_.tries();
    fit_.firstTries();
  }
  waiter.waiterAddRef();
  turns.pushBack(waiter);
}

/// Ends the waiter's turn. Returns false if it had none.
inline bool WakeupQueue::endTurn(Waiter& waiter) noexcept {
  const bool had = std::exchange(waiter.trying_, false);
  trying_ -= had ? 1 : 0;
  return had;
}

/// A waiter that has a turn is no successor. Race: its request may be refused before the release
/// runs, and then only the release's message wakes it.
inline Succession WakeupQueue::takeSuccessor(std::string_view lock,
                                             const HandOverLimits& limits,
                                             TimePoint now) noexcept {
  Waiter* const first = line_.front();
  if (first == nullptr || first->trying_ || first->takesOver_ != lock) {
    handOvers_.end();
    return {};
  }
  if (!handOvers_.next(limits, now)) {
    return {nullptr, limits.any() && limits.standsBack ? precedence_.begin(now) : 0};
  }
  Turns turns;
  give(*first, turns);
  return {turns.popFront(), 0};
}

inline void WakeupQueue::releasedForAll(std::uint64_t pause,
                                        std::optional<std::int64_t> receivers,
                                        TimePoint now,
                                        Turns& turns) noexcept {
  const std::int64_t told = receivers.value_or(0);
  const std::int64_t ownSubscription = channel_.subscribed ? 1 : 0;
  const bool others = told > ownSubscription || (receivers && !shared_.countsAll);
  follow(precedence_.answered(pause, told > 0 && channel_.subscribed, others), now, turns);
}

inline void WakeupQueue::follow(Precedence::Answer answer, TimePoint now, Turns& turns) noexcept {
  switch (answer) {
    case Precedence::Answer::turn:
      lookAgain(turns);
      break;
    case Precedence::Answer::pause:
      shared_.polls.schedule(*this, now + Precedence::kPause);
      break;
    case Precedence::Answer::nothing:
      break;
  }
}

inline void WakeupQueue::lookAgain(Turns& turns) noexcept {
  if (!line_.empty()) {
    give(*line_.front(), turns);
  }
}

// WakeRule::broadcast.

inline void WakeupQueue::heard(std::string_view text, Turns& turns) noexcept {
  if (opensOn_.empty() || opensOn_ != text) {
    return;
  }
  openedIn_ = channel_.confirmations.confirmed;
  // They leave the line, so that no later message meets them again.
  Waiter* next = nullptr;
  for (Waiter* waiter = line_.front(); waiter != nullptr; waiter = next) {
    next = Line::after(*waiter);
    if (waiter->round_ <= openedIn_) {
      tell(*waiter, turns);
    }
  }
}

/// The event that the waiter waits for has happened.
inline void WakeupQueue::tell(Waiter& waiter, Turns& turns) noexcept {
  remove(waiter);
  told_.pushBack(waiter);
  waiter.happened_.store(true, std::memory_order_release);
  give(waiter, turns);
}

/// Somebody got in, so everybody can.
inline void WakeupQueue::open(std::uint64_t wave, Turns& turns) noexcept {
  openedWave_ = wave;
  openings_ = ++shared_.openings;
  for (Waiter* waiter = line_.front(); waiter != nullptr; waiter = Line::after(*waiter)) {
    give(*waiter, wave, turns);
  }
}

// WakeRule::bestFit.

/// For a waiter that is not the first in line: it is new, or was refused.
inline void WakeupQueue::sleepFitting(
    Waiter& waiter, bool tried, bool outdated, bool hadTurn, TimePoint now, Turns& turns) noexcept {
  if (tried && outdated) {
    // A generation that began during its try gave the first one a turn, which could not be passed
    // on to this one.
    give(waiter, turns);
    return;
  }
  if (tried) {
    fit_.refused(waiter);
  }
  if (hadTurn || (!tried && trying_ == 0)) {
    passOn(now, turns);
  }
}

/// Gives a turn to a waiter behind the first, if one may pass it.
inline void WakeupQueue::passOn(TimePoint now, Turns& turns) noexcept {
  const auto hasTurn = [](const Waiter& waiter) { return waiter.trying_; };
  if (Waiter* const next = fit_.pass(now, shared_.safetyPoll, hasTurn); next != nullptr) {
    give(*next, turns);
  }
}

}  // namespace rlock::detail
