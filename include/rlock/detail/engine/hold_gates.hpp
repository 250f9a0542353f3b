// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/engine/closing.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/hold_book.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/owner.hpp>

#include <memory>
#include <utility>

namespace rlock::detail {

/// The gates of the holds: requests about one hold go one after the other, so that the count known
/// before a request says what the server must count after it.
///
/// A request inside a gate may have obtained something that nobody has booked yet, so closing
/// waits until all have left (HoldBook::unsettled).
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
class HoldGates {
 public:
  HoldGates(EngineContext& context, HoldBook& book, Closing& closing) noexcept
      : context_(context), book_(book), closing_(closing) {}

  struct Gate {
    HoldPtr hold;
    bool entered = false;  ///< false: GateWaiter::gateOpened() or gateClosed() follows
    int count = 0;         ///< countOf() when it was entered
  };
  Gate enter(const std::shared_ptr<const LockScripts>& scripts, OwnerId owner, GateWaiter& waiter);
  /// The hold whose gate was passed to a waiter.
  [[nodiscard]] HoldPtr entry(const std::shared_ptr<const LockScripts>& scripts, OwnerId owner);
  /// How often a hold that is not lost is held.
  [[nodiscard]] int countOf(const Hold& hold);
  /// Passes the gate on.
  void leave(Hold& hold);
  /// Sends everybody away who waits: a gate is passed on only as long as there is a loop to do it.
  /// Loop thread.
  void dismissAll() noexcept;

 private:
  /// A request about it may obtain something that must not stay behind.
  [[nodiscard]] static bool mayObtain(const Hold& hold) noexcept {
    return scriptsOf(hold).traits.changesState;
  }

  EngineContext& context_;
  HoldBook& book_;
  Closing& closing_;
};

inline HoldGates::Gate HoldGates::enter(const std::shared_ptr<const LockScripts>& scripts,
                                        OwnerId owner,
                                        GateWaiter& waiter) {
  const MutexLock lock(book_.mutex);
  Gate gate;
  gate.hold = book_.ledger.find(scripts, scripts->traits.holdKind, scripts->name, owner);
  gate.entered = HoldLedger::enter(*gate.hold, waiter);
  if (gate.entered && mayObtain(*gate.hold)) {
    ++book_.unsettled;
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
  GateWaiter* next = nullptr;
  bool lastUnsettled = false;
  {
    const MutexLock lock(book_.mutex);
    const bool unsettled = mayObtain(hold);
    next = book_.ledger.leave(hold);
    // A gate that is passed on stays counted for the next one.
    if (unsettled && next == nullptr) {
      lastUnsettled = --book_.unsettled == 0 && context_.closed();
    }
  }
  if (lastUnsettled) {
    closing_.mayBeOver();
  }
  if (next != nullptr) {
    next->gateOpened();
    next->gateDropRef();
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
