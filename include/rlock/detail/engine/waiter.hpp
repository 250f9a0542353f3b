// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/block_cache.hpp>
#include <rlock/detail/base/deadline_heap.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace rlock::detail {

class Call;
class Waiter;
class WakeupQueue;
struct HandOverRequest;

/// The neighbours of a waiter in a WaiterChain.
struct WaiterLink {
  Waiter* before = nullptr;
  Waiter* after = nullptr;
};

/// A mark to take before a try: by it a wake-up queue sees whether a new generation has begun
/// since.
struct WakeupMark {
  std::uint64_t generation = 0;
  bool othersWait = false;
  std::uint64_t confirmation = 0;  ///< as WakeupQueues::expect() says; 0: none was asked for
  std::uint64_t openings = 0;      ///< WakeRule::broadcast: the wake-up queue's last opening
};

/// When a waiter that polls looks again.
struct WaiterAlarm final : FromBlockCache<WaiterAlarm> {
  explicit WaiterAlarm(Waiter& whose) noexcept : waiter(whose) {}

  Waiter& waiter;
  DeadlineHook hook{};
};

/// One caller that waits until it is its turn to try again, as the wake-up queues see it. The
/// thread itself sleeps elsewhere, in CallingThread::sleepInQueue(), and a waiter in the background
/// has no thread at all.
///
/// Invariants: it is in one wake-up queue at most, and in one of its chains: in line, told that the
/// event has come, or polling by itself. It has one turn at most; the queue gives it another only
/// when it has come back with sleep() or leave(). From entering to leaving the queue has a
/// reference to it.
///
/// Guarantees of the queue: each generation that begins while it waits leads to a turn, of this
/// waiter or of one before it.
///
/// **Thread safety:** The private members belong to the queues and are guarded by the mutex of the
/// WaitingRoom, except `happened_`. The virtual functions are called with no lock held, each on the
/// thread that its comment names. keepMark() and takeMark() are for the thread that drives the
/// call, before it is in a queue.
class Waiter {
 public:
  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  virtual ~Waiter() = default;

  /// Try now. Called with no lock held, from any thread, and never from within another turn of the
  /// same client. A waiter that is leaving ignores it: leave() passes the turn on.
  virtual void turn() noexcept = 0;
  /// The client is closed: stop waiting. Called with no lock held, from any thread. False: there is
  /// no memory to tell it from here, and shutDownOnLoop() is to follow.
  virtual bool shutDown() noexcept = 0;
  /// The same without memory. Called with no lock held, on the loop thread.
  virtual void shutDownOnLoop() noexcept {}

  ///@{
  /// A turn of another sort, for a waiter with WaitTerms::takesOver: the holder's release takes the
  /// lock for it. Called with no lock held, from any thread, handOverLost() on the loop thread.

  /// It is to say for whom. False: it does not take it, and uses its turn as after turn(). True:
  /// one of the others follows, unless the client is closed before.
  virtual bool offered(std::chrono::steady_clock::time_point /*sentAt*/,
                       HandOverRequest& /*next*/) noexcept {
    return false;
  }
  /// It has the lock.
  virtual void handedOver(std::chrono::steady_clock::time_point /*answeredAt*/) noexcept {}
  /// It has not, and tries by itself.
  virtual void notHandedOver() noexcept {}
  /// Whether it has the lock is not known.
  virtual void handOverLost(const Call& /*request*/) noexcept {}
  ///@}

  ///@{
  /// Of the thread that drives it, before it is in a queue: a mark for its entry, kept where it
  /// will be of use.
  void keepMark(const WakeupMark& mark) noexcept {
    marked_ = true;
    seen_ = mark.generation;
    openings_ = mark.openings;
    round_ = mark.confirmation;
  }
  [[nodiscard]] std::optional<WakeupMark> takeMark() noexcept {
    if (!std::exchange(marked_, false)) {
      return std::nullopt;
    }
    return WakeupMark{
        std::exchange(seen_, 0), false, std::exchange(round_, 0), std::exchange(openings_, 0)};
  }
  ///@}

  virtual void waiterAddRef() noexcept = 0;
  virtual void waiterDropRef() noexcept = 0;

 protected:
  /// In a turn: the message came that ends the wait (WaitTerms::opensOn), so there is no need to
  /// try.
  [[nodiscard]] bool happened() const noexcept { return happened_.load(std::memory_order_acquire); }

 private:
  friend class BestFitOrder;
  friend class PollingWaiters;
  friend class WaiterTurns;
  friend class WakeupQueue;
  friend class WakeupQueues;

  WakeupQueue* wakeupQueue_ = nullptr;
  // In its wake-up queue, or among those that were told, or among those that poll.
  WaiterLink line_;
  WaiterLink fellows_;  // WakeRule::bestFit: those who need as much
  Waiter* nextTurn_ = nullptr;
  std::string_view takesOver_;  // WaitTerms::takesOver
  bool queued_ = false;
  bool alone_ = false;
  bool marked_ = false;
  bool trying_ = false;  // it was given a turn and has not come back
  Atomic<bool> happened_{false};
  int need_ = 1;                // WakeRule::bestFit
  std::uint64_t number_ = 0;    // WakeRule::bestFit: in the order of arrival
  std::uint64_t seen_ = 0;      // the channel's generation when its last try began
  std::uint64_t openings_ = 0;  // the wake-up queue's last opening then
  std::uint64_t wave_ = 0;      // which the turn belongs to
  std::uint64_t round_ = 0;     // the confirmation from which on messages are meant for it
  std::chrono::steady_clock::time_point looksAt_{};  // when it is to look again if it is first
  std::unique_ptr<WaiterAlarm> alarm_;               // WakeRule::polling, once it has slept
};

/// Waiters one after the other. Putting in, taking out and moving on cost the same however many
/// there are, and nothing is allocated.
///
/// **Thread safety:** One thread at a time.
template <WaiterLink Waiter::*Link>
class WaiterChain {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  /// Null when empty.
  [[nodiscard]] Waiter* front() const noexcept { return first_; }
  [[nodiscard]] static Waiter* after(const Waiter& waiter) noexcept { return (waiter.*Link).after; }

  void pushBack(Waiter& waiter) noexcept {
    (waiter.*Link) = {last_, nullptr};
    (last_ == nullptr ? first_ : (last_->*Link).after) = &waiter;
    last_ = &waiter;
  }
  /// The waiter must be in this chain.
  void remove(Waiter& waiter) noexcept {
    const WaiterLink link = std::exchange(waiter.*Link, {});
    (link.before == nullptr ? first_ : (link.before->*Link).after) = link.after;
    (link.after == nullptr ? last_ : (link.after->*Link).before) = link.before;
  }

 private:
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
};

/// Waiters whose turn it is, each with a reference that the receiver drops after turn(). A waiter
/// is in one of these at most, and nothing is allocated.
///
/// **Thread safety:** One thread at a time.
class WaiterTurns {
 public:
  class Iterator {
   public:
    using value_type = Waiter*;
    using difference_type = std::ptrdiff_t;
    Iterator() noexcept = default;
    explicit Iterator(Waiter* waiter) noexcept : waiter_(waiter) {}
    Waiter* operator*() const noexcept { return waiter_; }
    Iterator& operator++() noexcept {
      waiter_ = waiter_->nextTurn_;
      return *this;
    }
    Iterator operator++(int) noexcept {
      const Iterator old = *this;
      ++*this;
      return old;
    }
    friend bool operator==(const Iterator&, const Iterator&) noexcept = default;

   private:
    Waiter* waiter_ = nullptr;
  };

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Null when empty.
  [[nodiscard]] Waiter* front() const noexcept { return first_; }
  [[nodiscard]] Iterator begin() const noexcept { return Iterator(first_); }
  [[nodiscard]] Iterator end() const noexcept { return Iterator(); }

  void pushBack(Waiter& waiter) noexcept {
    waiter.nextTurn_ = nullptr;
    (last_ == nullptr ? first_ : last_->nextTurn_) = &waiter;
    last_ = &waiter;
    ++size_;
  }
  /// Takes all of another.
  void append(WaiterTurns& other) noexcept;
  /// Takes the first out; null when empty.
  Waiter* popFront() noexcept;

 private:
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
  std::size_t size_ = 0;
};

inline void WaiterTurns::append(WaiterTurns& other) noexcept {
  if (other.empty()) {
    return;
  }
  (last_ == nullptr ? first_ : last_->nextTurn_) = other.first_;
  last_ = other.last_;
  size_ += other.size_;
  other = WaiterTurns();
}

inline Waiter* WaiterTurns::popFront() noexcept {
  Waiter* const waiter = first_;
  if (waiter != nullptr) {
    first_ = std::exchange(waiter->nextTurn_, nullptr);
    last_ = first_ == nullptr ? nullptr : last_;
    --size_;
  }
  return waiter;
}

}  // namespace rlock::detail
