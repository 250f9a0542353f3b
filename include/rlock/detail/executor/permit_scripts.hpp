// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/idempotency_key_pool.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/publish_refusal.hpp>
#include <rlock/detail/executor/reply_number.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  PermitScripts(std::string_view name, std::shared_ptr<IdempotencyKeyPool> idempotencyKeys);
  /// One acquisition of some of a semaphore's permits.
  /// @param permits  1 or more
  /// @param kind     HoldKind::permit if what is taken is kept and renewed, else HoldKind::none
  /// @param expires  whether the permits have a lease
  PermitScripts(const PermitScripts& semaphore, int permits, HoldKind kind, bool expires);

  [[nodiscard]] std::string_view noun() const noexcept override { return "semaphore"; }
  [[nodiscard]] std::string_view kind() const noexcept override { return "permitSemaphore"; }

  /// It is an acquisition of this one permit.
  [[nodiscard]] bool isFor(std::string_view id) const noexcept { return ids_ == id; }
  /// The ids of the acquisition, one after the other.
  [[nodiscard]] std::string_view bytes() const noexcept { return ids_; }
  /// The ids of the acquisition, in hexadecimal.
  [[nodiscard]] std::vector<std::string> ids() const;

  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  /// Needs no tombstone: the ids are never taken again, so a release that runs late finds nothing.
  void composeRelease(Call& call, const ReleaseRequest& request) const override;
  [[nodiscard]] std::optional<ReleaseReply> parseRelease(const Reply& reply) const override;
  void composeReconcile(Call& call, const ReconcileRequest& request) const override;
  [[nodiscard]] std::optional<ReconcileReply> parseReconcile(const Reply& reply) const override;
  [[nodiscard]] ComposeRenewals renewals() const noexcept override;
  /// Deletes the semaphore with all permits.
  void composeForceRelease(Call& call, std::chrono::milliseconds remember) const override;
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
  /// @param key  null: any
  void composeUpdateLease(Call& call,
                          std::string_view id,
                          std::chrono::milliseconds lease,
                          const IdempotencyKeyPool::Loan& key = nullptr) const;

 private:
  /// The method of the base for three keys, of which the third is optional.
  void start(Call& call, const lua::Script& script, std::string_view tombstone) const;
  /// Starts a script with an idempotency key, for the same keys.
  void startChange(Call& call, const lua::Script& script) const;
  void startChange(Call& call,
                   const lua::Script& script,
                   const IdempotencyKeyPool::Loan& idempotencyKey) const;
  void startReconcile(Call& call, std::string_view target, std::string_view tombstone) const;
  void addChannel(Call& call) const;
  static void addIds(Call& call, std::string_view ids);

  const std::string taken_;  // the key of the permits that are taken
  const std::string ids_;
  const bool expires_;
  const std::shared_ptr<IdempotencyKeyPool> idempotencyKeys_;
};

inline LockTraits traitsOf(HoldKind kind, int permits) {
  LockTraits traits;
  traits.holdKind = kind;
  traits.wakeRule = WakeRule::bestFit;
  traits.need = permits;
  traits.ownIds = true;
  return traits;
}

inline std::string newPermitIds(int permits) {
  std::string ids;
  ids.reserve(static_cast<std::size_t>(permits) * kPermitIdSize);
  for (int half = 0; half < 2 * permits; ++half) {
    std::uint64_t bits = randomBits();
    for (int i = 0; i < 8; ++i, bits >>= 8U) {
      ids += static_cast<char>(bits & 0xffU);
    }
  }
  return ids;
}

inline std::optional<unsigned> digitValue(char digit) {
  if (digit >= '0' && digit <= '9') {
    return static_cast<unsigned>(digit - '0');
  }
  if (digit >= 'a' && digit <= 'f') {
    return static_cast<unsigned>(digit - 'a') + 10U;
  }
  if (digit >= 'A' && digit <= 'F') {
    return static_cast<unsigned>(digit - 'A') + 10U;
  }
  return std::nullopt;
}

inline const PermitScripts& permitOf(const RenewalRequest& renewal) {
  return *static_cast<const PermitScripts*>(renewal.scripts);
}

inline bool isFlag(const Reply& reply) {
  return reply.isInteger() && (reply.integer == 0 || reply.integer == 1);
}

inline std::optional<std::string> permitIdFromHex(std::string_view text) {
  if (text.size() != 2 * kPermitIdSize) {
    return std::nullopt;
  }
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const auto high = digitValue(text[i]);
    const auto low = digitValue(text[i + 1]);
    if (!high || !low) {
      return std::nullopt;
    }
    bytes += static_cast<char>(*high << 4U | *low);
  }
  return bytes;
}

inline std::string permitIdToHex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    const auto bits = static_cast<unsigned char>(byte);
    text += kDigits[bits >> 4U];
    text += kDigits[bits & 15U];
  }
  return text;
}

inline PermitScripts::PermitScripts(std::string_view semaphoreName,
                                    std::shared_ptr<IdempotencyKeyPool> idempotencyKeys)
    : LockScripts(semaphoreName, traitsOf(HoldKind::permit, 1), semaphoreChannel(semaphoreName)),
      taken_(suffixed(semaphoreName, "timeout")),
      expires_(true),
      idempotencyKeys_(std::move(idempotencyKeys)) {}

inline PermitScripts::PermitScripts(const PermitScripts& semaphore,
                                    int permits,
                                    HoldKind kind,
                                    bool expires)
    : LockScripts(semaphore.name, traitsOf(kind, permits), semaphore.channel),
      taken_(semaphore.taken_),
      ids_(newPermitIds(permits)),
      expires_(expires),
      idempotencyKeys_(semaphore.idempotencyKeys_) {
  setTitle(semaphore.title());
}

inline std::vector<std::string> PermitScripts::ids() const {
  std::vector<std::string> result;
  result.reserve(ids_.size() / kPermitIdSize);
  for (std::size_t at = 0; at < ids_.size(); at += kPermitIdSize) {
    result.push_back(permitIdToHex(std::string_view(ids_).substr(at, kPermitIdSize)));
  }
  return result;
}

inline void PermitScripts::start(Call& call,
                                 const lua::Script& script,
                                 std::string_view tombstone) const {
  startScript(call, script, {name, taken_}, tombstone);
}

inline void PermitScripts::startChange(Call& call, const lua::Script& script) const {
  startChange(call, script, idempotencyKeys_->borrow(newRequestId));
}

inline void PermitScripts::startChange(Call& call,
                                       const lua::Script& script,
                                       const IdempotencyKeyPool::Loan& idempotencyKey) const {
  ++idempotencyKey->number;
  startNumbered(call, script, name, {name, taken_}, idempotencyKey, idempotencyKeys_->life());
}

inline void PermitScripts::addChannel(Call& call) const {
  call.addPublish();
  call.addArgument(channel);
}

inline void PermitScripts::addIds(Call& call, std::string_view ids) {
  for (std::size_t at = 0; at < ids.size(); at += kPermitIdSize) {
    call.addArgument(ids.substr(at, kPermitIdSize));
  }
}

inline void PermitScripts::composeAcquire(Call& call, const AcquireRequest& request) const {
  start(call, lua::permit_acquire, request.tombstone);
  call.addNumber(expires_ ? request.lease.count() : 0);
  call.addArgument(kNeverExpires);
  addChannel(call);
  addIds(call, ids_);
}

inline void PermitScripts::startReconcile(Call& call,
                                          std::string_view target,
                                          std::string_view tombstone) const {
  start(call, lua::permit_reconcile, tombstone);
  call.addArgument(target);
  addChannel(call);
  call.addNumber(kTombstoneLife.count());
  addIds(call, ids_);
  call.setFreesMemory(true);
}

inline void PermitScripts::composeRelease(Call& call, const ReleaseRequest& /*request*/) const {
  startReconcile(call, "0", {});
}

inline std::optional<ReleaseReply> PermitScripts::parseRelease(const Reply& reply) const {
  if (!reply.isArray() || reply.elements.size() < 2 || reply.elements.size() > 3 ||
      !isFlag(reply.elements[0]) || !isFlag(reply.elements[1])) {
    return std::nullopt;
  }
  ReleaseReply result;
  result.owned = reply.elements[0].integer == 1;
  if (reply.elements.size() == 3) {
    result.publishError = reply.elements[2].text;
  }
  return result;
}

inline void PermitScripts::composeReconcile(Call& call, const ReconcileRequest& request) const {
  startReconcile(call, request.target > 0 ? "1" : "0", request.tombstone);
  call.setRepeatable(true);
}

inline std::optional<ReconcileReply> PermitScripts::parseReconcile(const Reply& reply) const {
  if (!parseRelease(reply)) {
    return std::nullopt;
  }
  ReconcileReply result{reply.elements[0].integer, reply.elements[1].integer, {}};
  if (reply.elements.size() == 3 && reply.elements[2].isInteger()) {
    result.remaining = timeOf(std::max<std::int64_t>(reply.elements[2].integer, 0));
  }
  result.publishError = publishRefusal(reply);
  return result;
}

inline ComposeRenewals PermitScripts::renewals() const noexcept {
  return [](Call& call, std::span<const RenewalRequest> renewals) {
    call.setScript(lua::permit_renew, renewals.size());
    for (const RenewalRequest& renewal : renewals) {
      call.addArgument(permitOf(renewal).taken_);
    }
    for (const RenewalRequest& renewal : renewals) {
      call.addNumber(renewal.lease.count());
      call.addArgument(permitOf(renewal).ids_);
    }
    call.setRepeatable(false);
  };
}

inline void PermitScripts::composeForceRelease(Call& call,
                                               std::chrono::milliseconds /*remember*/) const {
  startChange(call, lua::permit_remove);
  call.setFreesMemory(true);
}

inline void PermitScripts::composeIsLocked(Call& call) const {
  call.setCommand({"EXISTS", taken_});
}

inline void PermitScripts::composeHoldCount(Call& call, std::string_view /*owner*/) const {
  call.setCommand({"ZCARD", taken_});
}

inline void PermitScripts::composeTimeToLive(Call& call) const {
  call.setCommand({"PTTL", taken_});
}

inline void PermitScripts::composeCount(Call& call) const {
  start(call, lua::permit_count, {});
  addChannel(call);
}

inline void PermitScripts::composeChange(Call& call, Change change, int number) const {
  startChange(call, lua::permit_change);
  switch (change) {
    case Change::init:
      call.addArgument("init");
      break;
    case Change::total:
      call.addArgument("total");
      break;
    case Change::add:
      call.addArgument("add");
      break;
  }
  call.addNumber(number);
  addChannel(call);
  if (change == Change::add) {
    addsUp(call);
  }
}

inline void PermitScripts::composeGiveBack(Call& call, std::string_view ids) const {
  startChange(call, lua::permit_release);
  addChannel(call);
  addIds(call, call.store(ids));
  call.setFreesMemory(true);
  // No id is taken twice, so it may be repeated when its idempotency key has lapsed, too.
  call.setGoesOn(true);
}

inline void PermitScripts::composeGetLease(Call& call, std::string_view id) const {
  start(call, lua::permit_get_lease, {});
  addChannel(call);
  call.addArgument(kNeverExpires);
  call.addArgument(call.store(id));
}

inline void PermitScripts::composeUpdateLease(Call& call,
                                              std::string_view id,
                                              std::chrono::milliseconds lease,
                                              const IdempotencyKeyPool::Loan& key) const {
  startChange(call, lua::permit_update_lease, key ? key : idempotencyKeys_->borrow(newRequestId));
  addChannel(call);
  call.addArgument(kNeverExpires);
  call.addArgument(call.store(id));
  call.addNumber(lease.count());
}

}  // namespace rlock::detail
