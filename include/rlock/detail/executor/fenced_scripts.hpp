// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/reply_number.hpp>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace rlock::detail {

/// The re-entrant lock with a counter beside it, from which each first hold draws a token.
///
/// **Thread safety:** Immutable, safe from any thread.
class FencedScripts final : public LockScripts {
 public:
  /// @param retention  how long the counter is kept after an acquisition or renewal at least;
  /// zero: for ever
  FencedScripts(std::string_view lockName, std::chrono::milliseconds retention);
  [[nodiscard]] std::string_view kind() const noexcept override { return "fencedLock"; }

  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  [[nodiscard]] std::optional<AcquireReply> parseAcquire(const Reply& reply) const override;
  void composeReconcile(Call& call, const ReconcileRequest& request) const override;
  [[nodiscard]] std::optional<ReconcileReply> parseReconcile(const Reply& reply) const override;
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

/// A decimal number above 0, or nothing.
inline std::optional<std::uint64_t> tokenOf(const Reply& reply) {
  std::uint64_t token = 0;
  const char* const first = reply.text.data();
  const char* const last = first + reply.text.size();
  const auto [end, error] = std::from_chars(first, last, token);
  return error == std::errc() && end == last && token > 0 ? std::optional(token) : std::nullopt;
}

inline FencedScripts::FencedScripts(std::string_view lockName, std::chrono::milliseconds retention)
    : LockScripts(lockName), counter_(fencingKey(lockName)), retention_(retention) {}

inline void FencedScripts::composeAcquire(Call& call, const AcquireRequest& request) const {
  startScript(call, lua::fenced_acquire, {name, counter_}, request.tombstone);
  call.addNumber(request.lease.count());
  call.addArgument(request.owner);
  call.addNumber(retention_.count());
}

inline std::optional<AcquireReply> FencedScripts::parseAcquire(const Reply& reply) const {
  if (!reply.isArray()) {
    return LockScripts::parseAcquire(reply);
  }
  const auto count = reply.elements.size() == 2 ? countIn(reply.elements[0]) : std::nullopt;
  if (!count) {
    return std::nullopt;
  }
  AcquireReply result;
  result.granted = true;
  result.count = *count;
  result.token = tokenOf(reply.elements[1]);
  return result.token ? std::optional(result) : std::nullopt;
}

inline void FencedScripts::composeReconcile(Call& call, const ReconcileRequest& request) const {
  startScript(call, lua::fenced_reconcile, {name, counter_}, request.tombstone);
  addReconcileArguments(call, *this, request);
}

inline std::optional<ReconcileReply> FencedScripts::parseReconcile(const Reply& reply) const {
  if (reply.elements.size() != 4) {
    return std::nullopt;
  }
  auto result = LockScripts::parseReconcile(reply);
  if (result) {
    result->token = tokenOf(reply.elements[3]);
  }
  return result;
}

inline ComposeRenewals FencedScripts::renewals() const noexcept {
  return &composeFencedRenewals;
}

inline void FencedScripts::composeFencedRenewals(Call& call,
                                                 std::span<const RenewalRequest> renewals) {
  const auto scriptsOf = [](const RenewalRequest& renewal) -> const FencedScripts& {
    return *static_cast<const FencedScripts*>(renewal.scripts);
  };
  call.setScript(lua::fenced_renew, 2 * renewals.size());
  for (const RenewalRequest& renewal : renewals) {
    call.addArgument(scriptsOf(renewal).name);
    call.addArgument(scriptsOf(renewal).counter_);
  }
  for (const RenewalRequest& renewal : renewals) {
    call.addNumber(renewal.lease.count());
    call.addArgument(renewal.owner);
    call.addNumber(scriptsOf(renewal).retention_.count());
  }
  call.setRepeatable(false);
}

inline void FencedScripts::composeToken(Call& call, std::string_view owner) const {
  call.setScript(lua::fenced_token, 2);
  call.addArgument(name);
  call.addArgument(counter_);
  call.addArgument(owner);
}

inline std::optional<FencedScripts::Token> FencedScripts::parseToken(const Reply& reply) {
  if (reply.isNil()) {
    return Token();
  }
  const Token token = tokenOf(reply);
  return token ? std::optional(token) : std::nullopt;
}

}  // namespace rlock::detail
