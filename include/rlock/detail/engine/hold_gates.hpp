// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/engine/closing.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/force_listener.hpp>
#include <rlock/detail/engine/hold_book.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/owner.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace rlock::detail {

/// The gates of the holds: requests about one hold go one after the other, so that the count known
/// before a request says what the server must count after it.
///
/// A request inside a gate may have obtained something that nobody has booked yet, so closing
/// waits until all have left (HoldBook::unreconciled).
///
/// The call that leaves a gate passes it on under the mutex, and the loop thread tells the next
/// one. That takes no memory: many gates may be passed on before the loop comes to it, and a call
/// that is not told would keep its gate for ever.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
class HoldGates {
 public:
  using Clock = std::chrono::steady_clock;

  HoldGates(EngineContext& context, HoldBook& book, ForceListener& listener, Closing& closing)
      : context_(context),
        book_(book),
        listener_(listener),
        closing_(closing),
        tell_(context.env()->makeTask([this] { tellOpened(); })) {}

  struct Gate {
    HoldPtr hold;
    bool entered = false;  ///< false: GateWaiter::gateOpened() or gateClosed() follows
    bool refused = false;  ///< the client is closed: nothing follows
    int count = 0;         ///< countOf() when it was entered
  };
  Gate enter(const std::shared_ptr<const LockScripts>& scripts, OwnerId owner, GateWaiter& waiter) {
    return enter(scripts, owner, waiter, [](Hold& /*hold*/) {});
  }
  /// @param inside  `void(Hold&)`, called under the mutex of the book when the gate is entered
  template <class Inside>
  Gate enter(const std::shared_ptr<const LockScripts>& scripts,
             OwnerId owner,
             GateWaiter& waiter,
             Inside inside) RLOCK_EXCLUDES(book_.mutex);
  /// As enter(), for one who does not wait: enters only if nobody is inside and the client is not
  /// closed.
  Gate tryEnter(const std::shared_ptr<const LockScripts>& scripts, OwnerId owner)
      RLOCK_EXCLUDES(book_.mutex);
  /// The hold whose gate was passed to a waiter.
  [[nodiscard]] HoldPtr entry(const std::shared_ptr<const LockScripts>& scripts, OwnerId owner);
  /// How often a hold that is not lost is held.
  [[nodiscard]] int countOf(const Hold& hold);
  /// Passes the gate on. If a doubt about the hold came while it was held, the server is asked now
  /// that nothing goes on which could change the answer.
  void leave(Hold& hold) RLOCK_EXCLUDES(book_.mutex);
  /// The consequences of leaving, for when the mutex is free.
  struct Left {
    bool passedOn = false;
    bool lastUnreconciled = false;
    std::optional<HoldDoubt> doubt{};
  };
  ///@{
  /// The two halves of leave(), for who has booked something and leaves in the same step. The book
  /// is the one of these gates.
  [[nodiscard]] Left leaveWithin(HoldBook& book, Hold& hold) RLOCK_REQUIRES(book.mutex);
  void afterLeaving(Left left) RLOCK_EXCLUDES(book_.mutex);
  ///@}
  /// Sends everybody away who waits: a gate is passed on only as long as there is a loop to do it.
  /// Loop thread.
  void dismissAll() noexcept RLOCK_EXCLUDES(book_.mutex);
  /// Has the loop thread call gateOpened() and gateDropRef() of one that waits at no gate. Takes no
  /// memory.
  void tellSoon(GateWaiter& waiter) noexcept RLOCK_EXCLUDES(book_.mutex);
  /// Tells those to whom a gate was passed. Loop thread.
  void tellOpened() noexcept RLOCK_EXCLUDES(book_.mutex);

 private:
  /// A request about it may obtain something that must not stay behind.
  [[nodiscard]] static bool mayObtain(const Hold& hold) noexcept {
    return scriptsOf(hold).traits.changesState;
  }

  EngineContext& context_;
  HoldBook& book_;
  ForceListener& listener_;
  Closing& closing_;
  const std::unique_ptr<ReadyTask> tell_;
};

template <class Inside>
HoldGates::Gate HoldGates::enter(const std::shared_ptr<const LockScripts>& scripts,
                                 OwnerId owner,
                                 GateWaiter& waiter,
                                 Inside inside) {
  const MutexLock lock(book_.mutex);
  Gate gate;
  gate.hold = book_.ledger.find(scripts, scripts->traits.holdKind, scripts->name, owner);
  if (context_.closed() && gate.hold->busy) {
    // Closing has dismissed everybody who waited, or is about to. A call that came after the last
    // time would wait for ever if the loop ends before the gate is passed on to it.
    gate.refused = true;
    return gate;
  }
  gate.entered = HoldLedger::enter(*gate.hold, waiter);
  if (gate.entered && mayObtain(*gate.hold)) {
    ++book_.unreconciled;
  }
  gate.count = gate.hold->lost ? 0 : gate.hold->count;
  if (gate.entered) {
    inside(*gate.hold);
  }
  return gate;
}

inline HoldGates::Gate HoldGates::tryEnter(const std::shared_ptr<const LockScripts>& scripts,
                                           OwnerId owner) {
  const MutexLock lock(book_.mutex);
  Gate gate;
  gate.hold = book_.ledger.find(scripts, scripts->traits.holdKind, scripts->name, owner);
  if (context_.closed() || !HoldLedger::tryEnter(*gate.hold)) {
    book_.ledger.forgetIfUnused(*gate.hold);
    return gate;
  }
  gate.entered = true;
  if (mayObtain(*gate.hold)) {
    ++book_.unreconciled;
  }
  gate.count = gate.hold->lost ? 0 : gate.hold->count;
  return gate;
}

inline HoldPtr HoldGates::entry(const std::shared_ptr<const LockScripts>& scripts, OwnerId owner) {
  const MutexLock lock(book_.mutex);
  return book_.ledger.find(scripts, scripts->traits.holdKind, scripts->name, owner);
}

inline int HoldGates::countOf(const Hold& hold) {
  const MutexLock lock(book_.mutex);
  return hold.lost ? 0 : hold.count;
}

inline void HoldGates::leave(Hold& hold) {
  Left left;
  {
    const MutexLock lock(book_.mutex);
    left = leaveWithin(book_, hold);
  }
  afterLeaving(std::move(left));
}

inline HoldGates::Left HoldGates::leaveWithin(HoldBook& book, Hold& hold) {
  Left left;
  const bool unreconciled = mayObtain(hold);
  if (hold.doubtedAt >= hold.grantedAt && hold.count > 0 && !hold.lost) {
    left.doubt = HoldDoubt{HoldPtr(&hold), hold.grantedAt};
  }
  if (GateWaiter* const next = book.ledger.leave(hold)) {
    book.ledger.keepOpened(*next);
    left.passedOn = true;
  } else {
    // No request is under way that may have been executed before the doubt.
    hold.doubtedAt = Clock::time_point::min();
  }
  // A gate that is passed on stays counted for the next one.
  if (unreconciled && !left.passedOn) {
    left.lastUnreconciled = --book.unreconciled == 0 && context_.closed();
  }
  return left;
}

inline void HoldGates::afterLeaving(Left left) {
  if (left.lastUnreconciled) {
    closing_.mayBeOver();
  }
  if (left.doubt) {
    listener_.check(std::move(*left.doubt));
  }
  if (left.passedOn) {
    tell_->post(context_.sharing(*this));
  }
}

inline void HoldGates::tellSoon(GateWaiter& waiter) noexcept {
  {
    const MutexLock lock(book_.mutex);
    book_.ledger.keepOpened(waiter);
  }
  tell_->post(context_.sharing(*this));
}

inline void HoldGates::tellOpened() noexcept {
  GateWaiter* opened = nullptr;
  {
    const MutexLock lock(book_.mutex);
    opened = book_.ledger.takeOpened();
  }
  while (opened != nullptr) {
    GateWaiter* const waiter = std::exchange(opened, HoldLedger::next(*opened));
    waiter->gateOpened();
    waiter->gateDropRef();
  }
}

inline void HoldGates::dismissAll() noexcept {
  GateWaiter* dismissed = nullptr;
  {
    const MutexLock lock(book_.mutex);
    dismissed = book_.ledger.dismissAll();
  }
  while (dismissed != nullptr) {
    GateWaiter* const waiter = std::exchange(dismissed, HoldLedger::next(*dismissed));
    waiter->gateClosed();
    waiter->gateDropRef();
  }
}

}  // namespace rlock::detail
