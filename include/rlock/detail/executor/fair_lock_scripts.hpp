// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace rlock::detail {

/// The fair lock: who waits has an entry in a queue on the server, and a channel of its own. An
/// entry dies unless its owner refreshes it, which every attempt of a waiting caller does.
///
/// **Thread safety:** Immutable, safe from any thread.
class FairLockScripts final : public LockScripts {
 public:
  /// @param waiterLease  how long an entry lasts unless refreshed
  /// @param reentrant    an owner that holds the lock may take it again
  FairLockScripts(std::string_view lockName, std::chrono::milliseconds waiterLease, bool reentrant);
  [[nodiscard]] std::string_view kind() const noexcept override { return "fairLock"; }

  [[nodiscard]] std::string channelOf(std::string_view owner) const override;
  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  void composeRelease(Call& call, const ReleaseRequest& request) const override;
  void composeReconcile(Call& call, const ReconcileRequest& request) const override;
  void composeForceRelease(Call& call, std::chrono::milliseconds remember) const override;
  void composeWithdraw(Call& call, std::string_view owner) const override;
  /// Two refreshes may fail before an entry dies.
  [[nodiscard]] std::chrono::milliseconds pollAfter(int /*attempts*/) const override {
    return waiterLease_ / 3;
  }

 private:
  const std::chrono::milliseconds waiterLease_;
  const std::string queueKey_;
  const std::string deadlinesKey_;
  const std::string leasesKey_;
  const std::string orderKey_;
  const std::string foreignWaitsKey_;
};

inline LockTraits fairTraits(bool reentrant) {
  LockTraits traits;
  // All who wait on one channel are the same owner.
  traits.wakeRule = WakeRule::broadcast;
  traits.queuesOnServer = true;
  traits.channelPerOwner = true;
  traits.reentrant = reentrant;
  return traits;
}

inline FairLockScripts::FairLockScripts(std::string_view lockName,
                                        std::chrono::milliseconds waiterLease,
                                        bool reentrant)
    : LockScripts(lockName, fairTraits(reentrant)),
      waiterLease_(waiterLease),
      queueKey_(prefixed("redisson_lock_queue", lockName)),
      deadlinesKey_(prefixed("redisson_lock_timeout", lockName)),
      leasesKey_(prefixed("rlock_lock_waiter_lease", lockName)),
      orderKey_(prefixed("rlock_lock_order", lockName)),
      foreignWaitsKey_(prefixed("rlock_lock_foreign_wait", lockName)) {}

inline std::string FairLockScripts::channelOf(std::string_view owner) const {
  std::string result;
  result.reserve(channel.size() + 1 + owner.size());
  result += channel;
  result += ':';
  result += owner;
  return result;
}

inline void FairLockScripts::composeAcquire(Call& call, const AcquireRequest& request) const {
  startScript(call,
              lua::fair_acquire,
              {name, queueKey_, deadlinesKey_, leasesKey_, orderKey_, foreignWaitsKey_},
              request.tombstone);
  call.addNumber(request.lease.count());
  call.addArgument(request.owner);
  call.addNumber(!request.waits ? 0 : request.enrolled ? 2 : 1);
  call.addNumber(waiterLease_.count());
  call.addArgument(kReleaseMessage);
  call.addPublish();
  call.addArgument(channel);
  if (!traits.reentrant) {
    call.addArgument(kReacquired);
  }
}

inline void FairLockScripts::composeRelease(Call& call, const ReleaseRequest& request) const {
  startScript(
      call, lua::fair_release, {name, queueKey_, deadlinesKey_, leasesKey_}, request.tombstone);
  addReleaseArguments(call, *this, request);
}

inline void FairLockScripts::composeReconcile(Call& call, const ReconcileRequest& request) const {
  startScript(
      call, lua::fair_reconcile, {name, queueKey_, deadlinesKey_, leasesKey_}, request.tombstone);
  addReconcileArguments(call, *this, request);
}

inline void FairLockScripts::composeForceRelease(Call& call,
                                                 std::chrono::milliseconds remember) const {
  startWithKey(call, lua::fair_force_release, name, {name, queueKey_, deadlinesKey_, leasesKey_});
  addForceArguments(call, *this, remember);
}

inline void FairLockScripts::composeWithdraw(Call& call, std::string_view owner) const {
  startScript(call,
              lua::fair_withdraw,
              {name, queueKey_, deadlinesKey_, leasesKey_, orderKey_, foreignWaitsKey_},
              {});
  call.addArgument(owner);
  call.addArgument(kReleaseMessage);
  call.addPublish();
  call.addArgument(channel);
  call.setRepeatable(true);
  call.setFreesMemory(true);
}

}  // namespace rlock::detail
