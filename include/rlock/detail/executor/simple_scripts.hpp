// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <span>
#include <string_view>

namespace rlock::detail {

/// A lock that is one key with its owner as the value, and cannot be taken twice.
///
/// **Thread safety:** Immutable, safe from any thread.
class SimpleScripts final : public LockScripts {
 public:
  explicit SimpleScripts(std::string_view lockName);
  [[nodiscard]] std::string_view kind() const noexcept override { return "simpleLock"; }

  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  void composeRelease(Call& call, const ReleaseRequest& request) const override;
  void composeReconcile(Call& call, const ReconcileRequest& request) const override;
  [[nodiscard]] ComposeRenewals renewals() const noexcept override;
  void composeForceRelease(Call& call, std::chrono::milliseconds remember) const override;
  void composeHoldCount(Call& call, std::string_view owner) const override;
};

inline void composeSimpleRenewals(Call& call, std::span<const RenewalRequest> renewals) {
  startRenewals(call, lua::simple_renew, renewals);
}

inline SimpleScripts::SimpleScripts(std::string_view lockName)
    : LockScripts(lockName, {.holdKind = HoldKind::simple}, simpleChannel(lockName)) {}

inline void SimpleScripts::composeAcquire(Call& call, const AcquireRequest& request) const {
  startScript(call, lua::simple_acquire, name, request.tombstone);
  call.addNumber(request.lease.count());
  call.addArgument(request.owner);
  call.addNumber(request.again ? 1 : 0);
}

inline void SimpleScripts::composeRelease(Call& call, const ReleaseRequest& request) const {
  startScript(call, lua::simple_release, name, request.tombstone);
  call.addArgument(request.owner);
  call.addArgument(kReleaseMessage);
  call.addPublish();
  call.addArgument(channel);
  call.setFreesMemory(true);
}

inline void SimpleScripts::composeReconcile(Call& call, const ReconcileRequest& request) const {
  startScript(call, lua::simple_reconcile, name, request.tombstone);
  addReconcileArguments(call, *this, request);
}

inline ComposeRenewals SimpleScripts::renewals() const noexcept {
  return &composeSimpleRenewals;
}

inline void SimpleScripts::composeForceRelease(Call& call,
                                               std::chrono::milliseconds remember) const {
  LockScripts::composeForceRelease(call, remember);
  call.addArgument("string");
}

inline void SimpleScripts::composeHoldCount(Call& call, std::string_view owner) const {
  call.setScript(lua::simple_count, 1);
  call.addArgument(name);
  call.addArgument(owner);
}

}  // namespace rlock::detail
