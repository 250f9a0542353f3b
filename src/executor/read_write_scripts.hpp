// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "executor/lock_scripts.hpp"

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rlock::detail {

/// What the two sides of a read-write lock have in common: one hash with the field `mode`, one
/// channel, and a private key by which a waiting writer holds new readers back.
///
/// **Thread safety:** Immutable, safe from any thread.
class ReadWriteScripts : public LockScripts {
 public:
  void composeForceRelease(Call& call) const override;
  void composeIsLocked(Call& call) const override;

 protected:
  ReadWriteScripts(std::string_view lockName, LockTraits lockTraits);

  const std::string holdKeys_;  ///< what the keys of all read holds begin with
  const std::string intent_;    ///< the key of a waiting writer

 private:
  [[nodiscard]] std::string_view side() const noexcept;
};

/// The shared side. An owner's holds are keys of their own, each with its lease.
class ReadLockScripts final : public ReadWriteScripts {
 public:
  explicit ReadLockScripts(std::string_view lockName);

  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  [[nodiscard]] std::optional<AcquireReply> parseAcquire(const Reply& reply) const override;
  void composeRelease(Call& call, const ReleaseRequest& request) const override;
  [[nodiscard]] std::optional<ReleaseReply> parseRelease(const Reply& reply) const override;
  void composeSettle(Call& call, const SettleRequest& request) const override;
  [[nodiscard]] ComposeRenewals renewals() const noexcept override;
  void composeHoldCount(Call& call, std::string_view owner) const override;

 private:
  [[nodiscard]] std::string prefixOf(std::string_view owner) const;
  void start(Call& call,
             const lua::Script& script,
             std::string_view owner,
             std::string_view tombstone) const;
  static void composeReadRenewals(Call& call, std::span<const RenewalRequest> renewals);
};

/// The exclusive side.
class WriteLockScripts final : public ReadWriteScripts {
 public:
  /// How long new readers stand back for a waiting writer that does not come again, and how often
  /// it comes.
  static constexpr std::chrono::milliseconds kIntentLife{2000};
  static constexpr std::chrono::milliseconds kIntentRefresh{1000};

  explicit WriteLockScripts(std::string_view lockName);

  [[nodiscard]] std::string_view fieldOf(Call& call, std::string_view owner) const override;
  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  void composeRelease(Call& call, const ReleaseRequest& request) const override;
  void composeSettle(Call& call, const SettleRequest& request) const override;
  [[nodiscard]] std::chrono::milliseconds pollAfter(int /*attempts*/) const override {
    return kIntentRefresh;
  }
  void composeWithdraw(Call& call, std::string_view owner) const override;
  [[nodiscard]] bool forceReleaseEnds(HoldKind kind) const noexcept override {
    return kind == HoldKind::write || kind == HoldKind::read;
  }
};

}  // namespace rlock::detail
