// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/export.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

namespace rlock {

namespace detail {
class LockBackend;
struct Grant;
}  // namespace detail

class Permit;

/// The outcome of a release.
enum class ReleaseResult {
  released,   ///< the lock is free, as far as this owner is concerned
  stillHeld,  ///< the owner has more holds on the same lock
  lost,       ///< the hold was over before: expired, refused, forced, or the client was closed
  unknown,    ///< the server did not answer in time, and the release goes on in the background
              ///< until the lease is over; or it refused, and the hold is left to expire
};

/// One hold of one lock as an object. The hold belongs to the object, not to a thread: any code
/// that has the Lease may use and release it. A Lease belongs to one incarnation of its owner's
/// hold: a hold that the owner takes after this one was lost is another one, which this object can
/// neither see nor end.
///
/// **Thread safety:** observers from any thread; move, assignment and release() one thread at a
/// time.
///
/// A default-constructed or moved-from Lease is empty: it holds nothing and does nothing. The
/// destructor and move assignment release in the background: they send the release and do not wait
/// for its answer. They never throw and never hang.
// Exported member by member: GCC takes [[nodiscard]] and an exported class together in no order.
class [[nodiscard]] Lease {
 public:
  Lease() noexcept = default;
  /// For RLock, which makes the hold.
  RLOCK_EXPORT Lease(std::shared_ptr<detail::LockBackend> backend,
                     OwnerId owner,
                     detail::Grant grant) noexcept;
  ///@{
  /// `other` is empty afterwards. The hold that the target had is released in the background.
  RLOCK_EXPORT Lease(Lease&& other) noexcept;
  RLOCK_EXPORT Lease& operator=(Lease&& other) noexcept;
  ///@}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  RLOCK_EXPORT ~Lease();

  ///@{
  /// Exchanges the holds.
  RLOCK_EXPORT void swap(Lease& other) noexcept;
  void swap(Permit& other) = delete;
  ///@}

  /// True while the hold is valid on this machine's clock. Local, no round trip, does not block.
  [[nodiscard]] RLOCK_EXPORT bool held() const noexcept;
  /// As held().
  explicit operator bool() const noexcept { return held(); }

  /// The end of the validity: until then the hold is certainly this owner's, unless it is lost
  /// earlier; a renewal moves it on. It counts from before the request was sent, less an allowance
  /// for clock rates, and is rounded down. The epoch for an empty Lease.
  [[nodiscard]] RLOCK_EXPORT std::chrono::steady_clock::time_point validUntil() const noexcept;

  /// A token that stops when the hold is lost, no later than validUntil(). At that time the server
  /// still refuses all other owners, unless it was itself told to give the lock away. A regular
  /// release does not stop the token. Its callbacks run on the loop thread. They must not block,
  /// and the standard ends the process if one throws. The token of an empty Lease never stops.
  [[nodiscard]] RLOCK_EXPORT std::stop_token lostToken() const noexcept;

  /// Why the hold was lost; `none` while it is not.
  [[nodiscard]] RLOCK_EXPORT LossReason lossReason() const noexcept;

  /// The fencing token of this hold, if the kind of lock issues one.
  [[nodiscard]] std::optional<std::uint64_t> token() const noexcept { return token_; }

  /// How many replicas had acknowledged the acquisition when it was told: at least as many as its
  /// SyncPolicy asked for. 0 without a policy, and for a hold that consists of several.
  [[nodiscard]] int acknowledged() const noexcept { return acknowledged_; }

  /// The owner in whose name the lock is held.
  [[nodiscard]] OwnerId owner() const noexcept { return owner_; }

  /// Gives the hold back and empties the Lease. One round trip; blocks until the answer, at most
  /// `Options::callTimeout`. On the loop thread it sends the release and returns `unknown` without
  /// waiting. `lost` for an empty Lease, when something else stands where the lock was, and when
  /// the hold was lost: then the rest of that hold on the server is given back, but never a hold
  /// that the same owner has taken since. A second call says `lost`.
  RLOCK_EXPORT ReleaseResult release() noexcept;

 private:
  void releaseInBackground() noexcept;

  std::shared_ptr<detail::LockBackend> backend_;
  OwnerId owner_{};
  detail::IntrusivePtr<detail::HoldHandle> hold_;
  std::optional<std::uint64_t> token_;
  int acknowledged_ = 0;
};

/// Exchanges the holds.
inline void swap(Lease& a, Lease& b) noexcept {
  a.swap(b);
}

}  // namespace rlock
