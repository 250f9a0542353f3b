// SPDX-License-Identifier: Apache-2.0
#include "executor/fair_lock_scripts.hpp"

#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>

namespace rlock::detail {

namespace {

LockTraits fairTraits(bool reentrant) {
  LockTraits traits;
  // All who wait on one channel are the same owner.
  traits.wakeRule = WakeRule::each;
  traits.queuesOnServer = true;
  traits.channelPerOwner = true;
  traits.reentrant = reentrant;
  return traits;
}

}  // namespace

FairLockScripts::FairLockScripts(std::string_view lockName,
                                 std::chrono::milliseconds waiterLease,
                                 bool reentrant)
    : LockScripts(lockName, fairTraits(reentrant)),
      waiterLease_(waiterLease),
      queueKey_(prefixed("redisson_lock_queue", lockName)),
      deadlinesKey_(prefixed("redisson_lock_timeout", lockName)),
      leasesKey_(prefixed("rlock_lock_waiter_lease", lockName)),
      orderKey_(prefixed("rlock_lock_order", lockName)),
      foreignWaitsKey_(prefixed("rlock_lock_foreign_wait", lockName)) {}

std::string FairLockScripts::channelOf(std::string_view owner) const {
  std::string result;
  result.reserve(channel.size() + 1 + owner.size());
  result += channel;
  result += ':';
  result += owner;
  return result;
}

void FairLockScripts::composeAcquire(Call& call, const AcquireRequest& request) const {
  startScript(call,
              lua::fair_acquire,
              {name, queueKey_, deadlinesKey_, leasesKey_, orderKey_, foreignWaitsKey_},
              request.tombstone);
  call.addNumber(request.lease.count());
  call.addArgument(request.owner);
  call.addNumber(!request.waits ? 0 : request.enrolled ? 2 : 1);
  call.addNumber(waiterLease_.count());
  call.addArgument(kReleaseMessage);
  call.addArgument(kPublish);
  call.addArgument(channel);
  if (!traits.reentrant) {
    call.addArgument(kReacquired);
  }
}

void FairLockScripts::composeRelease(Call& call, const ReleaseRequest& request) const {
  startScript(
      call, lua::fair_release, {name, queueKey_, deadlinesKey_, leasesKey_}, request.tombstone);
  addReleaseArguments(call, request);
}

void FairLockScripts::composeSettle(Call& call, const SettleRequest& request) const {
  startScript(
      call, lua::fair_settle, {name, queueKey_, deadlinesKey_, leasesKey_}, request.tombstone);
  addSettleArguments(call, request);
}

void FairLockScripts::composeForceRelease(Call& call) const {
  startMarked(call, lua::fair_force_release, {name, queueKey_, deadlinesKey_, leasesKey_});
  addForceArguments(call);
}

void FairLockScripts::composeWithdraw(Call& call, std::string_view owner) const {
  startScript(call,
              lua::fair_withdraw,
              {name, queueKey_, deadlinesKey_, leasesKey_, orderKey_, foreignWaitsKey_},
              {});
  call.addArgument(owner);
  call.addArgument(kReleaseMessage);
  call.addArgument(kPublish);
  call.addArgument(channel);
  call.setRepeatable(true);
  call.setFreesMemory(true);
}

}  // namespace rlock::detail
