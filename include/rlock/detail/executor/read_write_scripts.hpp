// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/reply_number.hpp>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rlock::detail {

/// The scripts that both sides of a read-write lock share: about one hash with the field `mode`,
/// one channel, and a private key by which a waiting writer holds new readers back.
///
/// **Thread safety:** Immutable, safe from any thread.
class ReadWriteScripts : public LockScripts {
 public:
  void composeForceRelease(Call& call, std::chrono::milliseconds remember) const override;
  void composeIsLocked(Call& call) const override;

 protected:
  ReadWriteScripts(std::string_view lockName, LockTraits lockTraits);

  const std::string holdKeys_;  ///< what the keys of all read holds begin with
  const std::string anyHold_;   ///< no key has this name; it stands for all of them
  const std::string intent_;    ///< the key of a waiting writer

 private:
  [[nodiscard]] std::string_view side() const noexcept;
};

/// The shared side. Each hold of an owner is a key of its own with a lease of its own, numbered
/// from 1 in the order of the grants. A release takes one away, and those after it move up. One
/// that is over is counted until its owner gives it back, or all of the owner's are over.
///
/// **Thread safety:** Immutable, safe from any thread.
class ReadLockScripts final : public ReadWriteScripts {
 public:
  explicit ReadLockScripts(std::string_view lockName);
  [[nodiscard]] std::string_view kind() const noexcept override { return "readLock"; }

  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  void composeRelease(Call& call, const ReleaseRequest& request) const override;
  [[nodiscard]] std::optional<ReleaseReply> parseRelease(const Reply& reply) const override;
  void composeReconcile(Call& call, const ReconcileRequest& request) const override;
  [[nodiscard]] std::optional<ReconcileReply> parseReconcile(const Reply& reply) const override;
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

/// The exclusive side. Its holds are counted in one field of the hash, `<owner>:write`, so that an
/// owner that writes may read as well. A writer that waits renews a private key, its intent, as
/// long as it waits: while that is there readers that come new are refused, which keeps a stream of
/// readers from shutting writers out. It may vanish at any time without harm to mutual exclusion.
///
/// **Thread safety:** Immutable, safe from any thread.
class WriteLockScripts final : public ReadWriteScripts {
 public:
  /// How long new readers stand back for a waiting writer that does not come again, and how often
  /// it comes.
  static constexpr std::chrono::milliseconds kIntentLife{2000};
  static constexpr std::chrono::milliseconds kIntentRefresh{1000};

  explicit WriteLockScripts(std::string_view lockName);
  [[nodiscard]] std::string_view kind() const noexcept override { return "writeLock"; }

  [[nodiscard]] std::string_view fieldOf(Call& call, std::string_view owner) const override;
  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  void composeRelease(Call& call, const ReleaseRequest& request) const override;
  void composeReconcile(Call& call, const ReconcileRequest& request) const override;
  [[nodiscard]] std::chrono::milliseconds pollAfter(int /*attempts*/) const override {
    return kIntentRefresh;
  }
  void composeWithdraw(Call& call, std::string_view owner) const override;
  [[nodiscard]] bool forceReleaseEnds(HoldKind kind) const noexcept override {
    return kind == HoldKind::write || kind == HoldKind::read;
  }
};

/// The indexes of holds as a script names them; empty: it cannot have.
inline std::optional<PartIndexes> partIndexesIn(const Reply& reply) {
  PartIndexes indexes;
  for (const Reply& element : reply.elements) {
    if (!element.isInteger() || element.integer < 1) {
      return std::nullopt;
    }
    indexes.push_back(static_cast<int>(element.integer));
  }
  return reply.isArray() ? std::optional(std::move(indexes)) : std::nullopt;
}

inline std::string writerField(std::string_view owner) {
  return std::string(owner) + ":write";
}

// Both sides.

inline ReadWriteScripts::ReadWriteScripts(std::string_view lockName, LockTraits lockTraits)
    : LockScripts(lockName, lockTraits, prefixed("redisson_rwlock", lockName)),
      holdKeys_(braced(lockName)),
      anyHold_(suffixed(lockName, "rwlock_timeout")),
      intent_(prefixed("rlock_rw_intent", lockName)) {}

inline std::string_view ReadWriteScripts::side() const noexcept {
  return traits.holdKind == HoldKind::read ? "read" : "write";
}

inline void ReadWriteScripts::composeForceRelease(Call& call,
                                                  std::chrono::milliseconds remember) const {
  startWithKey(call, lua::rw_force_release, name, {name});
  call.addArgument(side());
  call.addArgument(holdKeys_);
  call.addPublish();
  call.addNumber(remember.count());
  call.addArgument(channel);
  call.setFreesMemory(true);
}

inline void ReadWriteScripts::composeIsLocked(Call& call) const {
  call.setScript(lua::rw_is_locked, 2);
  call.addArgument(name);
  call.addArgument(anyHold_);
  call.addArgument(side());
  call.addArgument(holdKeys_);
}

// The shared side.

inline ReadLockScripts::ReadLockScripts(std::string_view lockName)
    : ReadWriteScripts(
          lockName,
          {.holdKind = HoldKind::read, .wakeRule = WakeRule::broadcast, .wakeupQueue = 0}) {}

inline std::string ReadLockScripts::prefixOf(std::string_view owner) const {
  return suffixed(name, std::string(owner) + ":rwlock_timeout");
}

inline void ReadLockScripts::start(Call& call,
                                   const lua::Script& script,
                                   std::string_view owner,
                                   std::string_view tombstone) const {
  call.setScript(script, tombstone.empty() ? 3 : 4);
  call.addArgument(name);
  call.addArgument(call.store(prefixOf(owner)));
  call.addArgument(intent_);
  if (!tombstone.empty()) {
    call.addArgument(tombstone);
  }
  call.setRepeatable(false);
}

inline void ReadLockScripts::composeAcquire(Call& call, const AcquireRequest& request) const {
  start(call, lua::rw_read_acquire, request.owner, request.tombstone);
  call.addNumber(request.lease.count());
  call.addArgument(request.owner);
  call.addArgument(call.store(writerField(request.owner)));
}

inline void ReadLockScripts::composeRelease(Call& call, const ReleaseRequest& request) const {
  start(call, lua::rw_read_release, request.owner, request.tombstone);
  call.addArgument(request.owner);
  call.addArgument(holdKeys_);
  call.addPublish();
  call.addArgument(channel);
  call.addNumber(request.restore.count());
  call.addNumber(request.partIndex);
  call.addNumber(request.before);
  call.setFreesMemory(true);
}

inline std::optional<ReleaseReply> ReadLockScripts::parseRelease(const Reply& reply) const {
  ReleaseReply result;
  if (reply.isNil()) {
    return result;
  }
  if (!reply.isArray() || reply.elements.size() != 5) {
    return std::nullopt;
  }
  const auto owned = countIn(reply.elements[0]);
  const auto remain = countIn(reply.elements[1]);
  if (!owned || !remain || !countIn(reply.elements[2])) {
    return std::nullopt;
  }
  auto over = partIndexesIn(reply.elements[4]);
  if (!over) {
    return std::nullopt;
  }
  result.over = std::move(*over);
  result.owned = *owned == 1;
  result.remain = *remain;
  result.remaining = timeOf(reply.elements[2].integer);
  result.publishError = reply.elements[3].text;
  return result;
}

/// As rw_read_reconcile calls it.
inline std::string_view wordFor(ReconcileRequest::Of request) noexcept {
  switch (request) {
    case ReconcileRequest::Of::acquisition:
      return "acquire";
    case ReconcileRequest::Of::unwanted:
      return "undo";
    case ReconcileRequest::Of::release:
      break;
  }
  return "release";
}

inline void ReadLockScripts::composeReconcile(Call& call, const ReconcileRequest& request) const {
  start(call, lua::rw_read_reconcile, request.owner, request.tombstone);
  call.addArgument(request.owner);
  call.addArgument(holdKeys_);
  call.addPublish();
  call.addArgument(channel);
  call.addNumber(request.target);
  call.addNumber(kTombstoneLife.count());
  call.addArgument(wordFor(request.lost));
  call.addNumber(request.partIndex);
  call.addNumber(request.before);
  call.addNumber(request.number);
  call.setRepeatable(true);
  call.setFreesMemory(true);
}

inline std::optional<ReconcileReply> ReadLockScripts::parseReconcile(const Reply& reply) const {
  auto result = LockScripts::parseReconcile(reply);
  if (!result || reply.elements.size() == 3) {
    return result;
  }
  if (reply.elements[3].isInteger()) {
    result->taken = timeOf(reply.elements[3].integer);
    return result;
  }
  auto over = partIndexesIn(reply.elements[3]);
  if (!over) {
    return std::nullopt;
  }
  result->over = std::move(*over);
  return result;
}

inline void ReadLockScripts::composeReadRenewals(Call& call,
                                                 std::span<const RenewalRequest> renewals) {
  call.setScript(lua::rw_read_renew, 2 * renewals.size());
  for (const RenewalRequest& renewal : renewals) {
    const auto& scripts = static_cast<const ReadLockScripts&>(*renewal.scripts);
    call.addArgument(scripts.name);
    call.addArgument(call.store(scripts.prefixOf(renewal.owner)));
  }
  for (const RenewalRequest& renewal : renewals) {
    call.addNumber(renewal.lease.count());
    call.addArgument(renewal.owner);
  }
  call.setRepeatable(false);
}

inline ComposeRenewals ReadLockScripts::renewals() const noexcept {
  return &ReadLockScripts::composeReadRenewals;
}

inline void ReadLockScripts::composeHoldCount(Call& call, std::string_view owner) const {
  call.setScript(lua::rw_read_count, 2);
  call.addArgument(name);
  call.addArgument(call.store(prefixOf(owner)));
  call.addArgument(owner);
}

// The exclusive side.

inline WriteLockScripts::WriteLockScripts(std::string_view lockName)
    : ReadWriteScripts(lockName,
                       {.holdKind = HoldKind::write,
                        .wakeRule = WakeRule::fifo,
                        .wakeupQueue = 1,
                        .queuesOnServer = true}) {}

inline std::string_view WriteLockScripts::fieldOf(Call& call, std::string_view owner) const {
  return call.store(writerField(owner));
}

inline void WriteLockScripts::composeAcquire(Call& call, const AcquireRequest& request) const {
  startScript(call, lua::rw_write_acquire, {name, intent_, anyHold_}, request.tombstone);
  call.addNumber(request.lease.count());
  call.addArgument(fieldOf(call, request.owner));
  call.addArgument(request.owner);
  call.addArgument(holdKeys_);
  call.addNumber(request.waits ? kIntentLife.count() : 0);
}

inline void WriteLockScripts::composeRelease(Call& call, const ReleaseRequest& request) const {
  startScript(call, lua::rw_write_release, {name, anyHold_}, request.tombstone);
  call.addArgument(fieldOf(call, request.owner));
  call.addArgument(holdKeys_);
  call.addPublish();
  call.addArgument(channel);
  call.addNumber(request.restore.count());
  call.setFreesMemory(true);
}

inline void WriteLockScripts::composeReconcile(Call& call, const ReconcileRequest& request) const {
  startScript(call, lua::rw_write_reconcile, {name, anyHold_}, request.tombstone);
  call.addArgument(fieldOf(call, request.owner));
  call.addArgument(holdKeys_);
  call.addPublish();
  call.addArgument(channel);
  call.addNumber(request.target);
  call.addNumber(kTombstoneLife.count());
  call.addNumber(request.number);
  call.setRepeatable(true);
  call.setFreesMemory(true);
}

inline void WriteLockScripts::composeWithdraw(Call& call, std::string_view owner) const {
  call.setScript(lua::rw_write_withdraw, 1);
  call.addArgument(intent_);
  call.addArgument(fieldOf(call, owner));
  call.addPublish();
  call.addArgument(channel);
  call.setRepeatable(true);
  call.setFreesMemory(true);
}

}  // namespace rlock::detail
