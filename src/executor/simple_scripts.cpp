// SPDX-License-Identifier: Apache-2.0
#include "executor/simple_scripts.hpp"

#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <span>

namespace rlock::detail {

namespace {

void composeSimpleRenewals(Call& call, std::span<const RenewalRequest> renewals) {
  startRenewals(call, lua::simple_renew, renewals);
}

}  // namespace

SimpleScripts::SimpleScripts(std::string_view lockName)
    : LockScripts(lockName, {.holdKind = HoldKind::simple}, simpleChannel(lockName)) {}

void SimpleScripts::composeAcquire(Call& call, const AcquireRequest& request) const {
  startScript(call, lua::simple_acquire, name, request.tombstone);
  call.addNumber(request.lease.count());
  call.addArgument(request.owner);
  call.addNumber(request.again ? 1 : 0);
}

void SimpleScripts::composeRelease(Call& call, const ReleaseRequest& request) const {
  startScript(call, lua::simple_release, name, request.tombstone);
  call.addArgument(request.owner);
  call.addArgument(kReleaseMessage);
  call.addArgument(kPublish);
  call.addArgument(channel);
  call.setFreesMemory(true);
}

void SimpleScripts::composeSettle(Call& call, const SettleRequest& request) const {
  startScript(call, lua::simple_settle, name, request.tombstone);
  addSettleArguments(call, request);
}

ComposeRenewals SimpleScripts::renewals() const noexcept {
  return &composeSimpleRenewals;
}

void SimpleScripts::composeForceRelease(Call& call) const {
  LockScripts::composeForceRelease(call);
  call.addArgument("string");
}

void SimpleScripts::composeHoldCount(Call& call, std::string_view owner) const {
  call.setScript(lua::simple_count, 1);
  call.addArgument(name);
  call.addArgument(owner);
}

}  // namespace rlock::detail
