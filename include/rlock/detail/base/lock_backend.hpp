// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/duration.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>
#include <rlock/sync_policy.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

namespace rlock::detail {

/// The parameters of one acquisition, the same for all public calls.
struct AcquireParams {
  OwnerId owner{};
  /// How long the caller waits while somebody else holds the lock; infinite = for ever.
  Duration wait = Duration::zero();
  std::optional<Duration> lease{};  ///< empty: renewed by the watchdog
  std::optional<Duration> maxHold{};
  std::stop_token stop{};
  std::string label{};
  bool wantsHandle = false;          ///< the caller will make a Lease of it
  bool willRetry = false;            ///< the caller goes on after a refusal without a wait
  bool forEver = false;              ///< the caller has no time limit; outageTimeout bounds outages
  std::optional<SyncPolicy> sync{};  ///< empty: the client's
  int afresh = 0;  ///< the number of the owner's holds that are over for their maxHold
};

struct Grant {
  IntrusivePtr<HoldHandle> hold{};  ///< only with AcquireParams::wantsHandle
  std::optional<std::uint64_t> token{};
  int count = 0;         ///< the server's hold count of the owner; only together with `hold`
  int acknowledged = 0;  ///< replicas, with a SyncPolicy
};

/// The hold that a release is for.
struct ReleaseTarget {
  OwnerId owner;
  /// HoldHandle::incarnation(), the number of the incarnation to be released; nothing happens when
  /// that incarnation is over. 0: the hold that the owner has when the release is sent.
  std::uint64_t incarnation = 0;
  /// The caller will not ask again: a release that the server refuses goes on in the background,
  /// too.
  bool mustGo = false;
};

/// The identity of a lock. Two locks with the same node, database, name and kind are the same lock.
struct LockPlace {
  std::string node;
  int database = 0;
  std::string name;  ///< on the server
  HoldKind kind;
  std::string client;  ///< the id of the client it belongs to
};

enum class ReleaseOutcome : std::uint8_t { released, stillHeld };

class LockMember;

/// One lock of any kind, as the public handles see it. Every operation exists in a blocking form,
/// which returns when it is done, and a background form, whose handler is called exactly once on
/// the callback thread and never inside the call.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class LockBackend {
 public:
  template <class T>
  using Handler = UniqueFunction<void(Result<T>)>;
  using Acquired = std::optional<Grant>;  ///< empty: another owner held the lock all the time
  using TimeToLive = std::optional<std::chrono::milliseconds>;

  LockBackend() = default;
  LockBackend(const LockBackend&) = delete;
  LockBackend& operator=(const LockBackend&) = delete;
  virtual ~LockBackend() = default;

  [[nodiscard]] virtual const std::string& name() const = 0;
  /// By the clock of its client's world.
  [[nodiscard]] virtual HoldHandle::Clock::time_point now() const noexcept = 0;
  [[nodiscard]] virtual LockPlace place() const = 0;
  /// This lock as a member of a group; null for a lock that is a group itself.
  [[nodiscard]] virtual std::shared_ptr<LockMember> member() const { return nullptr; }

  virtual Result<Acquired> acquire(AcquireParams params) = 0;
  virtual void acquireAsync(AcquireParams params, Handler<Acquired> handler) = 0;

  virtual Result<ReleaseOutcome> release(ReleaseTarget target) = 0;
  virtual void releaseAsync(ReleaseTarget target, Handler<ReleaseOutcome> handler) = 0;
  /// Releases in the background, for a holder that does not ask for the outcome. Does nothing when
  /// nothing can be released: the client is closed, or belongs to a parent process.
  virtual void releaseQuietly(ReleaseTarget target) = 0;
  /// True when a blocking call on this thread would fail with `wouldDeadlock`.
  [[nodiscard]] virtual bool refusesBlocking() const noexcept = 0;
  /// True when, as far as this client knows, the owner has a hold that only a release ends, so that
  /// another owner could wait for ever. No round trip.
  [[nodiscard]] virtual bool keeps(OwnerId owner) const = 0;

  virtual Result<bool> forceRelease() = 0;
  virtual void forceReleaseAsync(Handler<bool> handler) = 0;

  virtual Result<bool> isLocked() = 0;
  virtual void isLockedAsync(Handler<bool> handler) = 0;

  virtual Result<int> holdCount(OwnerId owner) = 0;
  virtual void holdCountAsync(OwnerId owner, Handler<int> handler) = 0;

  virtual Result<TimeToLive> timeToLive() = 0;
  virtual void timeToLiveAsync(Handler<TimeToLive> handler) = 0;

  /// Runs a handler of the application where the handlers of the calls above run, never inside this
  /// call.
  virtual void runHandler(UniqueFunction<void()> handler) = 0;
};

/// The time limits of one client, which a lock over several clients respects.
struct LockLimits {
  std::chrono::milliseconds watchdogTimeout;
  std::chrono::milliseconds commandTimeout;
  std::chrono::milliseconds callTimeout;
  std::chrono::milliseconds outageTimeout;
};

/// One lock as a member of a lock that consists of several. Its handlers are internal: they run on
/// the loop thread, also when the application runs callbacks elsewhere, and must not block or
/// throw.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class LockMember : public LockBackend {
 public:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] virtual LockLimits limits() const = 0;
  /// The environment of its client.
  [[nodiscard]] virtual const std::shared_ptr<Env>& env() const noexcept = 0;
  /// Calls `function` exactly once and never inside this call: at `when` or a little later, or as
  /// soon as the client is closed.
  virtual void callAt(Clock::time_point when, UniqueFunction<void()> function) = 0;
};

}  // namespace rlock::detail
