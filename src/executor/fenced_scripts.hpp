// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "executor/lock_scripts.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rlock::detail {

/// The re-entrant lock with a counter beside it, from which each first hold draws a token.
///
/// **Thread safety:** Immutable, safe from any thread.
class FencedScripts final : public LockScripts {
 public:
  /// @param retention  how long the counter is kept after an acquisition or renewal at least;
  /// zero: for ever
  FencedScripts(std::string_view lockName, std::chrono::milliseconds retention);

  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  [[nodiscard]] std::optional<AcquireReply> parseAcquire(const Reply& reply) const override;
  void composeSettle(Call& call, const SettleRequest& request) const override;
  [[nodiscard]] std::optional<SettleReply> parseSettle(const Reply& reply) const override;
  [[nodiscard]] ComposeRenewals renewals() const noexcept override;

  /// Asks for the token of an owner's own hold.
  void composeToken(Call& call, std::string_view owner) const;
  using Token = std::optional<std::uint64_t>;  ///< empty: the owner does not hold the lock
  [[nodiscard]] static std::optional<Token> parseToken(const Reply& reply);

 private:
  static void composeFencedRenewals(Call& call, std::span<const RenewalRequest> renewals);

  const std::string counter_;
  const std::chrono::milliseconds retention_;
};

}  // namespace rlock::detail
