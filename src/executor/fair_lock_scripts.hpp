// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "executor/lock_scripts.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace rlock::detail {

/// The fair lock: who waits has a place in a queue on the server, and a channel of its own. A place
/// dies unless its owner refreshes it, which every attempt of a waiting caller does.
///
/// **Thread safety:** Immutable, safe from any thread.
class FairLockScripts final : public LockScripts {
 public:
  /// @param waiterLease  how long a place lasts unless refreshed
  /// @param reentrant    an owner that holds the lock may take it again
  FairLockScripts(std::string_view lockName, std::chrono::milliseconds waiterLease, bool reentrant);

  [[nodiscard]] std::string channelOf(std::string_view owner) const override;
  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  void composeRelease(Call& call, const ReleaseRequest& request) const override;
  void composeSettle(Call& call, const SettleRequest& request) const override;
  void composeForceRelease(Call& call) const override;
  void composeWithdraw(Call& call, std::string_view owner) const override;
  /// Two refreshes may fail before a place dies.
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

}  // namespace rlock::detail
