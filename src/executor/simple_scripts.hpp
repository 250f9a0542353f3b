// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "executor/lock_scripts.hpp"

#include <string_view>

namespace rlock::detail {

/// A lock that is one key with its owner as the value, and cannot be taken twice.
///
/// **Thread safety:** Immutable, safe from any thread.
class SimpleScripts final : public LockScripts {
 public:
  explicit SimpleScripts(std::string_view lockName);

  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  void composeRelease(Call& call, const ReleaseRequest& request) const override;
  void composeSettle(Call& call, const SettleRequest& request) const override;
  [[nodiscard]] ComposeRenewals renewals() const noexcept override;
  void composeForceRelease(Call& call) const override;
  void composeHoldCount(Call& call, std::string_view owner) const override;
};

}  // namespace rlock::detail
