// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "executor/lock_scripts.hpp"
#include "executor/marker_pool.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {

/// Bytes in a permit's id, which users see as twice as many hexadecimal digits.
inline constexpr std::size_t kPermitIdSize = 16;

/// The bytes of an id written as 32 hexadecimal digits, in upper or lower case; empty: it is not.
std::optional<std::string> permitIdFromHex(std::string_view text);
/// In lower case.
std::string permitIdToHex(std::string_view bytes);

/// A semaphore whose permits expire, or one acquisition of some of its permits.
///
/// The client chooses the ids of the permits that it wants before it asks for them, one set for
/// each acquisition. So what an acquisition has taken can be told from everything else on the
/// server, and a request that is repeated takes nothing twice.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class PermitScripts final : public LockScripts {
 public:
  /// The semaphore.
  PermitScripts(std::string_view name, std::shared_ptr<MarkerPool> markers);
  /// One acquisition of some of a semaphore's permits.
  /// @param permits  1 or more
  /// @param kind     HoldKind::permit if what is taken is kept and renewed, else HoldKind::none
  /// @param expires  whether the permits have a lease
  PermitScripts(const PermitScripts& semaphore, int permits, HoldKind kind, bool expires);

  [[nodiscard]] std::string_view noun() const noexcept override { return "semaphore"; }

  /// It is an acquisition of this one permit.
  [[nodiscard]] bool isFor(std::string_view id) const noexcept { return ids_ == id; }
  /// The ids of the acquisition, in hexadecimal.
  [[nodiscard]] std::vector<std::string> ids() const;

  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  /// Needs no tombstone: the ids are never taken again, so a release that runs late finds nothing.
  void composeRelease(Call& call, const ReleaseRequest& request) const override;
  [[nodiscard]] std::optional<ReleaseReply> parseRelease(const Reply& reply) const override;
  void composeSettle(Call& call, const SettleRequest& request) const override;
  [[nodiscard]] std::optional<SettleReply> parseSettle(const Reply& reply) const override;
  [[nodiscard]] ComposeRenewals renewals() const noexcept override;
  /// Deletes the semaphore with all permits.
  void composeForceRelease(Call& call) const override;
  [[nodiscard]] bool forceReleaseEnds(HoldKind kind) const noexcept override {
    return kind == HoldKind::permit;
  }

  // About the semaphore: whether any permit is taken, how many are, and their expiry if it has one.
  void composeIsLocked(Call& call) const override;
  void composeHoldCount(Call& call, std::string_view owner) const override;
  void composeTimeToLive(Call& call) const override;

  /// Reply: array {free, taken, 1 = there is such a semaphore}.
  void composeCount(Call& call) const;
  enum class Change : std::uint8_t { init, total, add };
  /// Reply: 1 = done, 0 = init, and there is one already, -1 = the number is too large.
  void composeChange(Call& call, Change change, int number) const;
  /// Reply: how many were given back, all or none.
  /// @param ids  their bytes, one id after the other
  void composeGiveBack(Call& call, std::string_view ids) const;
  /// Reply: ms, -1 = never expires, -2 = not taken.
  void composeGetLease(Call& call, std::string_view id) const;
  /// Reply: 1 = done, 0 = not taken.
  /// @param lease  zero: never expires
  void composeUpdateLease(Call& call, std::string_view id, std::chrono::milliseconds lease) const;

 private:
  /// The method of the base for three keys, of which the third is optional.
  void start(Call& call, const lua::Script& script, std::string_view tombstone) const;
  /// Starts a script with a marker, for the same keys.
  void startChange(Call& call, const lua::Script& script) const;
  void startSettle(Call& call, std::string_view target, std::string_view tombstone) const;
  void addChannel(Call& call) const;
  static void addIds(Call& call, std::string_view ids);

  const std::string taken_;  // the key of the permits that are taken
  const std::string ids_;
  const bool expires_;
  const std::shared_ptr<MarkerPool> markers_;
};

}  // namespace rlock::detail
