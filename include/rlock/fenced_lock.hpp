// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/lock.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>

namespace rlock {

namespace detail {
class TokenBackend;
}  // namespace detail

/// A re-entrant lock that numbers its holds, so that a resource can refuse a holder that does not
/// know yet that it has lost the lock: see docs/fencing.md. Redisson's clients share it
/// (`RFencedLock` there).
///
/// **Thread safety:** Safe to call concurrently from any thread.
///
/// Each first hold of an owner gets the next token. Tokens are above 0 and strictly increasing over
/// all clients, whatever ended the earlier holds. A nested hold has the token of the first. The
/// numbers come from a counter beside the lock, which has no expiry unless
/// `Options::fencingTokenRetention` gives it one; they need not be consecutive.
///
/// A FencedLock can be used wherever an RLock is wanted, with the same effect; Lease::token() then
/// has the token. The errors, blocking and costs are those of RLock. In addition, every acquisition
/// throws `serverError` when the counter is no positive number, or is gone while the owner holds
/// the lock.
class RLOCK_EXPORT FencedLock : public RLock {
 public:
  /// For Client, which makes the locks.
  FencedLock(std::shared_ptr<detail::LockBackend> lock,
             std::shared_ptr<detail::TokenBackend> tokens) noexcept;

  /// As lock(). @returns the token of the hold
  /// @par Cost    as lock()
  /// @par Source  Redisson `RFencedLock.lockAndGetToken()`; lua/fenced_acquire.lua
  std::uint64_t lockAndGetToken();
  /// As lock(lease). @returns the token of the hold
  /// @param lease  more than 0, at most 365 days, rounded up to 1 ms; else `invalidArgument`
  std::uint64_t lockAndGetToken(Duration lease);

  /// One attempt. @returns the token, or empty when another owner holds the lock
  /// @par Cost    1 round trip
  /// @par Source  Redisson `RFencedLock.tryLockAndGetToken()`, which waits; lua/fenced_acquire.lua
  [[nodiscard]] std::optional<std::uint64_t> tryLockAndGetToken();
  /// Waits at most `wait` (zero or less: one attempt; max(): for ever). The watchdog keeps the
  /// hold. @returns the token, or empty when another owner held the lock all the time
  [[nodiscard]] std::optional<std::uint64_t> tryLockAndGetToken(Duration wait);
  /// As tryLockAndGetToken(wait), with a hold that ends after `lease`.
  [[nodiscard]] std::optional<std::uint64_t> tryLockAndGetToken(Duration wait, Duration lease);

  /// The token of the calling thread's own hold, according to the server.
  /// @throws Error  `notOwner` when this thread does not hold the lock, or no longer
  /// @par Cost    1 round trip
  /// @par Source  Redisson `RFencedLock.getToken()`, which asks for no ownership;
  ///              lua/fenced_token.lua
  std::uint64_t getToken();

  ///@{
  /// The same as an Operation, as RLock::lockAsync() and RLock::tryLockAsync() describe it.
  ThreadOperation<std::uint64_t> lockAndGetTokenAsync() {
    return lockAndGetTokenAsync(AcquireOptions{});
  }
  ThreadOperation<std::uint64_t> lockAndGetTokenAsync(AcquireOptions options);
  Operation<std::uint64_t> lockAndGetTokenAsync(AcquireOptions options, OwnerId owner);
  ThreadOperation<std::optional<std::uint64_t>> tryLockAndGetTokenAsync() {
    return tryLockAndGetTokenAsync(AcquireOptions{});
  }
  ThreadOperation<std::optional<std::uint64_t>> tryLockAndGetTokenAsync(AcquireOptions options);
  Operation<std::optional<std::uint64_t>> tryLockAndGetTokenAsync(AcquireOptions options,
                                                                  OwnerId owner);
  // As in RLock: for `co_await` with GCC before 13.
  template <std::same_as<OwnerId> Owner>
  Operation<std::uint64_t> lockAndGetTokenAsync(Owner owner) {
    return lockAndGetTokenAsync(AcquireOptions{}, owner);
  }
  template <std::same_as<OwnerId> Owner>
  Operation<std::optional<std::uint64_t>> tryLockAndGetTokenAsync(Owner owner) {
    return tryLockAndGetTokenAsync(AcquireOptions{}, owner);
  }
  template <std::convertible_to<Duration> Lifetime>
  ThreadOperation<std::uint64_t> lockAndGetTokenAsync(Lifetime lease) {
    return lockAndGetTokenAsync(AcquireOptions{.lease = lease});
  }
  template <std::convertible_to<Duration> Lifetime>
  Operation<std::uint64_t> lockAndGetTokenAsync(Lifetime lease, OwnerId owner) {
    return lockAndGetTokenAsync(AcquireOptions{.lease = lease}, owner);
  }
  template <std::convertible_to<Duration> Wait>
  ThreadOperation<std::optional<std::uint64_t>> tryLockAndGetTokenAsync(
      Wait wait, std::optional<Duration> lease = {}) {
    return tryLockAndGetTokenAsync(AcquireOptions{.wait = wait, .lease = lease});
  }
  template <std::convertible_to<Duration> Wait>
  Operation<std::optional<std::uint64_t>> tryLockAndGetTokenAsync(Wait wait,
                                                                  std::optional<Duration> lease,
                                                                  OwnerId owner) {
    return tryLockAndGetTokenAsync(AcquireOptions{.wait = wait, .lease = lease}, owner);
  }
  Operation<std::uint64_t> getTokenAsync(OwnerId owner = currentOwner());
  ///@}

 private:
  std::shared_ptr<detail::LockBackend> lock_;
  std::shared_ptr<detail::TokenBackend> tokens_;
};

}  // namespace rlock
