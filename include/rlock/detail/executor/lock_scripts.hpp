// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/publish_refusal.hpp>
#include <rlock/detail/executor/reply_number.hpp>
#include <rlock/detail/executor/start_script.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// The channel payload that says a lock is free.
inline constexpr std::string_view kReleaseMessage = "0";

/// The answer of the scripts to an owner that takes a non-reentrant lock again; the first word says
/// it to classifyError().
inline constexpr std::string_view kReacquired =
    "NON_REENTRANT_REACQUIRE this owner holds the lock already";

struct AcquireRequest {
  std::string_view owner;
  std::chrono::milliseconds lease;
  std::string_view tombstone;  ///< empty: the connection of a lost request can be killed
  bool waits = false;          ///< the caller waits if it is refused
  bool enrolled = false;       ///< it may have an entry in the server's queue already
  bool again = false;          ///< the owner has a hold already, as far as the client knows
};
struct AcquireReply {
  bool granted = false;
  std::int64_t count = 1;  ///< granted: holds now
  std::chrono::milliseconds remaining{
      -1};  ///< refused: how long until it is worth looking again; -1: not known
  std::optional<std::uint64_t> token{};  ///< granted: the fencing token
  std::string_view publishError{};  ///< ReleaseReply::publishError, of what came back meanwhile
};

struct ReleaseRequest {
  std::string_view owner;
  std::chrono::milliseconds restore;  ///< lease to restore when holds remain; zero: leave it
  std::string_view tombstone;         ///< empty: the connection of a lost request can be killed
  int partIndex = 0;  ///< of the hold to release, where each has a lease of its own; 0: the latest
  int before = 0;     ///< holds before the request; 0: not known
};
/// The owner that gets the lock from the one that releases it.
struct HandOverRequest {
  std::string_view owner;  ///< empty: nobody, and the reply says how many clients were told
  std::chrono::milliseconds lease;
};
struct ReleaseReply {
  bool owned = false;  ///< a hold was there to be released
  std::int64_t remain = 0;
  std::string_view publishError{};  ///< why waiters were not told; empty: they were
  /// How long the holds that remain last, where that depends on which one was released.
  std::optional<std::chrono::milliseconds> remaining{};
  PartIndexes over{};       ///< of those that remain, the ones whose own lease is over
  bool handedOver = false;  ///< the next owner has the lock, once
  /// How many clients were told that the lock is free, where the request was for that.
  std::optional<std::int64_t> receivers{};
};

struct ReconcileRequest {
  std::string_view owner;
  std::int64_t target;  ///< at most so many holds may remain
  std::string_view tombstone;
  /// Counts the reconciliations of one request, so that none undoes a later one; 1 or more.
  std::int64_t number = 1;
  enum class Of : std::uint8_t {
    acquisition,  ///< the newest hold is among those that remain
    unwanted,     ///< an acquisition whose hold is not to remain
    release
  };
  Of lost = Of::release;  ///< the lost request
  int before = 0;         ///< holds before it
  int partIndex = 0;      ///< ReleaseRequest::partIndex of it
};
struct ReconcileReply {
  std::int64_t before = 0;
  std::int64_t now = 0;
  std::optional<std::uint64_t> token{};  ///< of the hold, if one remains
  /// How long the holds that remain last; empty: without end or not known.
  std::optional<std::chrono::milliseconds> remaining{};
  /// How long the hold of a lost acquisition lasts, zero: it is not there; empty: the count says
  /// whether it is.
  std::optional<std::chrono::milliseconds> taken{};
  PartIndexes over{};               ///< after a lost release: ReleaseReply::over
  std::string_view publishError{};  ///< ReleaseReply::publishError, where the script says it
};

class LockScripts;

/// One hold that is to be renewed.
struct RenewalRequest {
  const LockScripts* scripts;
  std::string_view owner;
  std::chrono::milliseconds lease;
};
/// Fills a call that renews several holds of one form. The reply has an element for each: 1 =
/// renewed, 0 = gone, text = the server refused this one.
using ComposeRenewals = void (*)(Call& call, std::span<const RenewalRequest> renewals);

/// For kinds that are renewed by their one key: the keys, then a lease and an owner for each.
void startRenewals(Call& call, const lua::Script& script, std::span<const RenewalRequest> renewals);

/// One lock as it stands on the server: its keys, the requests that an owner can make about it, and
/// what the replies mean. Each kind of lock is a class of its own; this base is the re-entrant lock
/// on one key, and others change what differs.
///
/// Compose functions fill a call; the bytes that they are given, and the object itself, must
/// outlive the call. Parse functions return nothing for what the script cannot return.
///
/// **Thread safety:** Immutable, safe from any thread.
class LockScripts {
 public:
  /// The plain lock, re-entrant or not.
  explicit LockScripts(std::string_view lockName, LockTraits lockTraits = {});
  LockScripts(const LockScripts&) = delete;
  LockScripts& operator=(const LockScripts&) = delete;
  virtual ~LockScripts() { delete title_.load(std::memory_order_relaxed); }

  const std::string channel;    ///< where releases are announced
  const std::string_view name;  ///< on the server; a part of `channel`
  const LockTraits traits;

  /// The application's name for it, which messages and getName() give.
  [[nodiscard]] std::string_view title() const noexcept {
    const std::string* const other = title_.load(std::memory_order_acquire);
    return other != nullptr ? std::string_view(*other) : name;
  }
  /// The same as a string, which stays as long as this object. Few ask for it, so that it is made
  /// for the first of them.
  /// @throws std::bad_alloc
  [[nodiscard]] const std::string& titleString() const;
  /// Gives it another name than the server's. Call before the object is shared.
  void setTitle(std::string_view title) { titleIs(title); }

  /// The word for it in errors.
  [[nodiscard]] virtual std::string_view noun() const noexcept { return "lock"; }

  /// The word for it in events, the log and metrics. Of static storage.
  [[nodiscard]] virtual std::string_view kind() const noexcept { return "lock"; }

  /// The channel on which releases are announced to this owner; one for each owner if
  /// traits.channelPerOwner.
  [[nodiscard]] virtual std::string channelOf(std::string_view /*owner*/) const { return channel; }

  /// The field that stands for an owner on the server; may be stored in the call.
  [[nodiscard]] virtual std::string_view fieldOf(Call& /*call*/, std::string_view owner) const {
    return owner;
  }

  virtual void composeAcquire(Call& call, const AcquireRequest& request) const;
  [[nodiscard]] virtual std::optional<AcquireReply> parseAcquire(const Reply& reply) const;

  virtual void composeRelease(Call& call, const ReleaseRequest& request) const;
  [[nodiscard]] virtual std::optional<ReleaseReply> parseRelease(const Reply& reply) const;
  /// Gives the last hold to another owner instead of making the lock free, if traits.handsOver.
  /// Never with a tombstone. The reply is for parseRelease().
  virtual void composeHandOver(Call& call,
                               const ReleaseRequest& request,
                               const HandOverRequest& next) const;

  /// Ends the doubt about a lost request: brings the owner's holds down to a target.
  virtual void composeReconcile(Call& call, const ReconcileRequest& request) const;
  [[nodiscard]] virtual std::optional<ReconcileReply> parseReconcile(const Reply& reply) const;

  /// For how long a waiter sleeps at most after so many refusals. Zero: for the client's safety
  /// poll.
  [[nodiscard]] virtual std::chrono::milliseconds pollAfter(int /*attempts*/) const {
    return std::chrono::milliseconds::zero();
  }

  /// Gives up a waiter's entry, if traits.queuesOnServer.
  virtual void composeWithdraw(Call& /*call*/, std::string_view /*owner*/) const {}

  [[nodiscard]] virtual ComposeRenewals renewals() const noexcept;

  /// Frees the lock whoever holds it; may be repeated. The reply is 1 or 0.
  /// @param remember  how long the server recognises a repetition; must exceed the time in which
  ///                  the call may be repeated
  virtual void composeForceRelease(Call& call, std::chrono::milliseconds remember) const;
  /// Whether that ends holds of a kind on this name.
  [[nodiscard]] virtual bool forceReleaseEnds(HoldKind kind) const noexcept {
    return kind == traits.holdKind;
  }

  // Questions. The replies are a number above 0 for yes; a number or nothing; what PTTL returns.
  virtual void composeIsLocked(Call& call) const;
  virtual void composeHoldCount(Call& call, std::string_view owner) const;
  virtual void composeTimeToLive(Call& call) const;

 protected:
  LockScripts(std::string_view lockName, LockTraits lockTraits, std::string releaseChannel);

 private:
  const std::string& titleIs(std::string_view title) const;

  mutable Atomic<const std::string*> title_{nullptr};  // owned; null: the name
};

// The arguments of the scripts that release, reconcile and release by force, which follow the keys.
void addReleaseArguments(Call& call, const LockScripts& scripts, const ReleaseRequest& request);
void addReconcileArguments(Call& call, const LockScripts& scripts, const ReconcileRequest& request);
void addForceArguments(Call& call, const LockScripts& scripts, std::chrono::milliseconds remember);

inline void composeHashRenewals(Call& call, std::span<const RenewalRequest> renewals) {
  startRenewals(call, lua::lock_renew, renewals);
}

inline void startRenewals(Call& call,
                          const lua::Script& script,
                          std::span<const RenewalRequest> renewals) {
  call.setScript(script, renewals.size());
  for (const RenewalRequest& renewal : renewals) {
    call.addArgument(renewal.scripts->name);
  }
  for (const RenewalRequest& renewal : renewals) {
    call.addNumber(renewal.lease.count());
    call.addArgument(renewal.scripts->fieldOf(call, renewal.owner));
  }
  call.setRepeatable(false);
}

inline LockScripts::LockScripts(std::string_view lockName, LockTraits lockTraits)
    : LockScripts(lockName, lockTraits, lockChannel(lockName)) {}

inline LockScripts::LockScripts(std::string_view lockName,
                                LockTraits lockTraits,
                                std::string releaseChannel)
    : channel(std::move(releaseChannel)),
      name(std::string_view(channel).substr(channel.rfind(lockName), lockName.size())),
      traits(lockTraits) {}

inline const std::string& LockScripts::titleString() const {
  const std::string* const known = title_.load(std::memory_order_acquire);
  return known != nullptr ? *known : titleIs(name);
}

/// Race: several threads may make it at once; the first one's stays.
inline const std::string& LockScripts::titleIs(std::string_view title) const {
  auto made = std::make_unique<const std::string>(title);
  const std::string* known = nullptr;
  if (title_.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
    return *made.release();
  }
  return *known;
}

inline void LockScripts::composeAcquire(Call& call, const AcquireRequest& request) const {
  startScript(call, lua::lock_acquire, name, request.tombstone);
  call.addNumber(request.lease.count());
  call.addArgument(request.owner);
  if (!traits.reentrant) {
    call.addArgument(kReacquired);
  }
}

inline std::optional<AcquireReply> LockScripts::parseAcquire(const Reply& reply) const {
  AcquireReply result;
  if (reply.isInteger()) {
    result.remaining = timeOf(reply.integer);
    return result;
  }
  result.publishError = publishRefusal(reply);
  const std::size_t size = reply.elements.size() - (result.publishError.empty() ? 0 : 1);
  const int count = reply.isArray() && size > 0 ? countIn(reply.elements[0]).value_or(-1) : -1;
  if (!result.publishError.empty() && size == 2 && count == 0 && reply.elements[1].isInteger()) {
    result.remaining = timeOf(reply.elements[1].integer);
    return result;
  }
  if (count < 0 || size != 1) {
    return std::nullopt;
  }
  result.granted = true;
  result.count = count;
  return result;
}

inline void LockScripts::composeRelease(Call& call, const ReleaseRequest& request) const {
  startScript(call, lua::lock_release, name, request.tombstone);
  addReleaseArguments(call, *this, request);
}

inline void LockScripts::composeHandOver(Call& call,
                                         const ReleaseRequest& request,
                                         const HandOverRequest& next) const {
  startScript(call, lua::lock_hand_over, name, {});
  addReleaseArguments(call, *this, request);
  // Copied: the next owner's task may end before this request does.
  call.addArgument(call.store(next.owner));
  call.addNumber(next.lease.count());
}

inline std::optional<ReleaseReply> LockScripts::parseRelease(const Reply& reply) const {
  ReleaseReply result;
  if (reply.isNil()) {
    return result;
  }
  result.owned = true;
  if (traits.handsOver && reply.isArray() && reply.elements.size() == 1) {
    result.handedOver = true;
    return countIn(reply.elements[0]) == 1 ? std::optional(result) : std::nullopt;
  }
  const bool pair = reply.isArray() && reply.elements.size() == 2;
  const auto remain = countIn(pair ? reply.elements[0] : reply);
  if (!remain) {
    return std::nullopt;
  }
  result.remain = *remain;
  if (pair && reply.elements[1].isInteger()) {
    result.receivers = reply.elements[1].integer;
  } else if (pair) {
    result.publishError = reply.elements[1].text;
  }
  return result;
}

inline void LockScripts::composeReconcile(Call& call, const ReconcileRequest& request) const {
  startScript(call, lua::lock_reconcile, name, request.tombstone);
  addReconcileArguments(call, *this, request);
}

inline std::optional<ReconcileReply> LockScripts::parseReconcile(const Reply& reply) const {
  if (!reply.isArray() || reply.elements.size() < 3) {
    return std::nullopt;
  }
  const auto before = countIn(reply.elements[0]);
  const auto now = countIn(reply.elements[1]);
  if (!before || !now) {
    return std::nullopt;
  }
  ReconcileReply result;
  result.before = *before;
  result.now = *now;
  if (reply.elements[2].isInteger() && reply.elements[2].integer >= 0) {
    result.remaining = timeOf(reply.elements[2].integer);
  }
  return result;
}

inline ComposeRenewals LockScripts::renewals() const noexcept {
  return &composeHashRenewals;
}

inline void LockScripts::composeForceRelease(Call& call, std::chrono::milliseconds remember) const {
  startWithKey(call, lua::lock_force_release, name, {name});
  addForceArguments(call, *this, remember);
}

inline void LockScripts::composeIsLocked(Call& call) const {
  call.setCommand({"EXISTS", name});
}

inline void LockScripts::composeHoldCount(Call& call, std::string_view owner) const {
  call.setCommand({"HGET", name, fieldOf(call, owner)});
}

inline void LockScripts::composeTimeToLive(Call& call) const {
  call.setCommand({"PTTL", name});
}

// Arguments that several scripts have.

inline void addReleaseArguments(Call& call,
                                const LockScripts& scripts,
                                const ReleaseRequest& request) {
  call.addArgument(request.owner);
  call.addArgument(kReleaseMessage);
  call.addPublish();
  call.addNumber(request.restore.count());
  call.addArgument(scripts.channel);
  call.setFreesMemory(true);
}

inline void addReconcileArguments(Call& call,
                                  const LockScripts& scripts,
                                  const ReconcileRequest& request) {
  call.addArgument(request.owner);
  call.addNumber(request.target);
  call.addArgument(kReleaseMessage);
  call.addPublish();
  call.addNumber(kTombstoneLife.count());
  call.addArgument(scripts.channel);
  call.addNumber(request.number);
  call.setRepeatable(true);
  call.setFreesMemory(true);
}

inline void addForceArguments(Call& call,
                              const LockScripts& scripts,
                              std::chrono::milliseconds remember) {
  call.addArgument(kReleaseMessage);
  call.addPublish();
  call.addNumber(remember.count());
  call.addArgument(scripts.channel);
  call.setFreesMemory(true);
}

}  // namespace rlock::detail
