// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>
#include <rlock/options.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rlock {

/// The part that all events about locks and synchronizers share. The texts last as long as the
/// call.
struct LockEvent {
  std::string_view name{};   ///< as the application gave it
  std::string_view owner{};  ///< the owner field, `uuid:number`; empty: there is no owner
  /// `lock`, `fairLock`, `spinLock`, `fencedLock`, `readLock`, `writeLock`, `simpleLock`,
  /// `permitSemaphore`, `semaphore` or `latch`.
  std::string_view kind{};
  /// When it happened, as far as this client can tell: a hold begins when its grant has come and
  /// ends when its release is about to be sent. So the holds of one lock do not overlap by it,
  /// whichever threads tell of them in whichever order.
  std::chrono::steady_clock::time_point at{};
};

/// A call obtained what it asked for.
struct AcquiredEvent : LockEvent {
  int count = 1;                         ///< holds of this owner now; 1 where owners have no holds
  std::chrono::nanoseconds waited{0};    ///< from the beginning of the call
  bool contended = false;                ///< it found the lock taken
  std::optional<std::uint64_t> token{};  ///< the fencing token, where the lock issues one
  std::string_view label{};              ///< AcquireOptions::label
};

/// A call that found the lock taken has ended.
struct WaitedEvent : LockEvent {
  /// How it ended.
  enum class Outcome : std::uint8_t {
    acquired,  ///< AcquiredEvent follows
    refused,   ///< its time was over
    failed,    ///< it was stopped, or failed
  };
  std::chrono::nanoseconds waited{0};   ///< from the beginning of the call
  Outcome outcome = Outcome::acquired;  ///< how it ended
};

/// The server confirmed a release. Not told of a hold that was told lost before.
struct ReleasedEvent : LockEvent {
  int remaining = 0;                 ///< holds of this owner that are left
  std::chrono::nanoseconds held{0};  ///< since this owner's first hold
};

/// A hold ended before its release.
struct LostEvent : LockEvent {
  LossReason reason = LossReason::none;  ///< never `none` in a call
  std::chrono::nanoseconds held{0};      ///< since this owner's first hold
  std::string_view label{};              ///< AcquireOptions::label
};

/// A renewal was confirmed when more than half of the lease was over.
struct RenewedLateEvent : LockEvent {
  std::chrono::nanoseconds lag{0};   ///< since the renewal was due
  std::chrono::nanoseconds left{0};  ///< until the hold would have been lost; 0: no time at all
};

/// It became known what a request did whose reply was lost.
struct SettledEvent : LockEvent {
  /// The request whose reply was lost.
  enum class Request : std::uint8_t { acquire, release };
  /// The effect of that request.
  enum class Outcome : std::uint8_t {
    executed,     ///< it took effect, and that stays
    undone,       ///< it took effect, which was taken back
    notExecuted,  ///< it did not take effect, and will not
    unknown,      ///< it could not be found out in its time; what it left expires
  };
  Request request = Request::acquire;  ///< what was asked for
  Outcome outcome = Outcome::unknown;  ///< what became of it
  std::chrono::nanoseconds took{0};    ///< since the reply was known to be lost
};

/// The connection to a node was made again. The texts last as long as the call.
struct ReconnectedEvent {
  std::string_view node{};                     ///< the node's address
  bool replaced = false;                       ///< it is another server process than the one before
  std::chrono::steady_clock::time_point at{};  ///< when
};

/// A node of a cluster sent a request to another one. The texts last as long as the call.
struct RedirectedEvent {
  std::string_view from{};                     ///< the address of the node that was asked
  std::string_view to{};                       ///< the address of the node that it names
  std::uint16_t slot = 0;                      ///< of the keys
  bool moved = true;                           ///< MOVED; false: ASK, in the course of a migration
  std::chrono::steady_clock::time_point at{};  ///< when
};

/// The enumerator's name; "unknown" for any other number.
RLOCK_EXPORT std::string_view toString(WaitedEvent::Outcome outcome) noexcept;
RLOCK_EXPORT std::string_view toString(SettledEvent::Request request) noexcept;
RLOCK_EXPORT std::string_view toString(SettledEvent::Outcome outcome) noexcept;

/// Is told what happens to the locks of a client; see Options::observer. Each function does nothing
/// unless it is overridden.
///
/// A function is called on the thread where the event happens: the caller's, before its call
/// returns, or the client's loop thread. None of the library's mutexes is locked meanwhile, and the
/// event's consequences have taken place. It may call the library, close the client and destroy it;
/// on the loop thread a blocking call is refused with `wouldDeadlock`, as in every callback. The
/// events of calls that it makes itself on the same thread are not told, so that it cannot meet
/// itself.
///
/// An exception that it throws is swallowed, logged and counted in Stats::handlerFailures. Its
/// caller waits until it returns; on the loop thread so does all of the client, renewals
/// included: holds whose renewal comes too late for that are lost, and told so. A function that
/// may block passes a copy of the event on to a thread of its own.
///
/// **Thread safety:** The functions are called from any thread, by several at once.
class Observer {
 public:
  virtual ~Observer() = default;

  ///@{
  /// The event has happened.
  virtual void acquired(const AcquiredEvent& /*event*/) {}
  virtual void waited(const WaitedEvent& /*event*/) {}
  virtual void released(const ReleasedEvent& /*event*/) {}
  virtual void lost(const LostEvent& /*event*/) {}
  virtual void renewedLate(const RenewedLateEvent& /*event*/) {}
  virtual void reconnected(const ReconnectedEvent& /*event*/) {}
  virtual void redirected(const RedirectedEvent& /*event*/) {}
  virtual void settled(const SettledEvent& /*event*/) {}
  ///@}

 protected:
  ///@{
  /// An observer is made as what it really is.
  Observer() = default;
  Observer(const Observer&) = default;
  Observer(Observer&&) = default;
  Observer& operator=(const Observer&) = default;
  Observer& operator=(Observer&&) = default;
  ///@}
};

}  // namespace rlock
