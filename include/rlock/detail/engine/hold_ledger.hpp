// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/block_cache.hpp>
#include <rlock/detail/base/deadline_heap.hpp>
#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/intrusive_table.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/base/rare.hpp>
#include <rlock/detail/executor/idempotency_key_pool.hpp>
#include <rlock/owner.hpp>
#include <rlock/sync_policy.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Somebody who wants to send a request about a hold on which another request is under way.
class GateWaiter {
 public:
  GateWaiter() = default;
  GateWaiter(const GateWaiter&) = delete;
  GateWaiter& operator=(const GateWaiter&) = delete;
  virtual ~GateWaiter() = default;
  /// The gate was passed to this waiter. Called with no lock held, on the loop thread.
  virtual void gateOpened() noexcept = 0;
  /// The client was closed: the gate will not be passed to this waiter. Called with no lock held,
  /// on the loop thread.
  virtual void gateClosed() noexcept = 0;
  /// The gate is taken: one of the two above will be called, from now on. Keeps the waiter until
  /// gateDropRef(). Called on its own thread, under the mutex of the holds.
  virtual void gateShut() noexcept = 0;
  virtual void gateDropRef() noexcept = 0;

 private:
  friend class HoldLedger;
  GateWaiter* nextAtGate_ = nullptr;
};

/// One of several holds of one owner that have a lease each.
struct HoldPart {
  using Clock = std::chrono::steady_clock;

  std::uint64_t incarnation = 0;
  bool lost = false;       ///< its holder is told
  bool watched = false;    ///< it has the watchdog's lease: it was taken so, or was renewed
  bool renews = false;     ///< it was taken without a lease of its own: it is why all are renewed
  bool releasing = false;  ///< its release is under way
  /// So many later ones, which no object stands for, are gone from the server and were not given
  /// back by their owner.
  int forfeited = 0;
  std::chrono::milliseconds lease{0};
  Clock::time_point grantedAt{};  ///< when its grant was booked
  Clock::time_point validUntil{};
  Clock::time_point maxHoldUntil = Clock::time_point::max();
  IntrusivePtr<HoldHandle> handle{};  ///< null: nobody watches it
  RareText label{};
};

/// Changes of a hold's lease by the id of what is held. They do not pass its gate.
struct LeaseChanges {
  int underWay = 0;
  bool mixed = false;  ///< several at a time: nobody knows which is the last
  /// The idempotency key of one whose end nobody knows. Once the next one has taken effect with the
  /// same key, the lost one cannot any more.
  IdempotencyKeyPool::Loan lost{};
  /// The longest of the leases that the server may have, while nobody knows which of them it has;
  /// zero: it has the hold's.
  std::chrono::milliseconds longest{0};
};

/// All that one owner holds of one lock, as far as this client knows.
struct Hold final : RefCounted<Hold>, FromBlockCache<Hold> {
  using Clock = std::chrono::steady_clock;

  Hold(std::shared_ptr<const void> lockAlive,
       HoldKind holdKind,
       std::string_view lockName,
       OwnerId holder) noexcept
      : Hold(std::move(lockAlive),
             holdKind,
             lockName,
             holder,
             std::hash<std::string_view>{}(lockName)) {}
  /// @param hashOfName  std::hash of it
  Hold(std::shared_ptr<const void> lockAlive,
       HoldKind holdKind,
       std::string_view lockName,
       OwnerId holder,
       std::size_t hashOfName) noexcept
      : kind(holdKind),
        keepAlive(std::move(lockAlive)),
        name(lockName),
        owner(holder),
        nameHash(hashOfName) {}

  // The order of the members leaves no room between them: there may be a hundred thousand of these.
  const HoldKind kind;
  bool watched = false;   ///< the watchdog renews it
  bool lost = false;      ///< its holder is told; kept until the server must have dropped it, too
  bool renewing = false;  ///< a renewal is under way
  const std::shared_ptr<const void> keepAlive;  ///< owns the bytes of `name`
  const std::string_view name;
  const OwnerId owner;
  const std::size_t nameHash;

  int count = 0;  ///< confirmed by the server
  int renewalFailures = 0;
  std::uint64_t incarnation = 0;  ///< a new one when what there was is all gone or lost
  std::chrono::milliseconds lease{0};
  Clock::time_point grantedAt{};  ///< when the last grant was booked
  Clock::time_point heldSince{};  ///< when the first was, of those that are counted
  /// When it was last heard that somebody had ended it, while a request about it was under way:
  /// what that one is granted may have been there before the end.
  Clock::time_point doubtedAt = Clock::time_point::min();
  Clock::time_point validUntil{};
  Clock::time_point renewAt{};
  Clock::time_point maxHoldUntil = Clock::time_point::max();
  RareText label;
  DeadlineHook hook;
  IntrusivePtr<HoldHandle> handle;  ///< made when somebody wants to watch the hold
  /// Where each has a lease of its own (HoldKind::read): the holds in the server's order. `lost` is
  /// then said of all of them, and `validUntil` is the latest.
  RareVector<HoldPart> parts;

  ///@{
  /// The policy of the latest grant that had one, in the room that the numbers around leave.
  [[nodiscard]] SyncPolicy sync() const noexcept {
    return {syncKind, syncCount, std::chrono::milliseconds(syncLimit)};
  }
  void setSync(const SyncPolicy& policy) noexcept {
    syncKind = policy.kind;
    syncCount = static_cast<std::uint16_t>(policy.count);
    syncLimit = static_cast<std::uint32_t>(policy.limit.count());
  }
  ///@}
  /// LeaseChanges::longest
  [[nodiscard]] std::chrono::milliseconds doubtfulLease() const noexcept {
    return leaseChanges ? leaseChanges->longest : std::chrono::milliseconds::zero();
  }

  /// Whether its owner certainly holds more than the one that is being released. Not where each has
  /// a lease of its own.
  [[nodiscard]] bool leavesOthers() const noexcept { return count > 1 && !overcounted; }
  /// Whether the request that is under way gives back all of it. The watchdog has no such hold.
  [[nodiscard]] bool beingReleased() const noexcept { return busy && !hook.linked(); }

  bool renewedAlone = false;  ///< the server refused its renewal: others must not suffer
  bool leftToExpire = false;  ///< its owner's thread has ended: closing does not give it back
  bool busy = false;          ///< a request about this hold is under way
  bool known = false;         ///< a HoldLedger has it
  bool suspect = false;       ///< the server is another since: it may not know the hold
  bool overdue = false;       ///< its renewal is due, but nobody has taken it yet
  std::uint16_t syncCount = 1;
  std::uint32_t syncLimit = 0;
  SyncPolicy::Kind syncKind = SyncPolicy::Kind::none;
  bool abandoned = false;    ///< its release has failed: the next grant begins another hold
  bool overcounted = false;  ///< one of several may have been released that is counted still
  std::unique_ptr<LeaseChanges> leaseChanges;  ///< null: there never was one
  GateWaiter* lastAtGate = nullptr;            ///< the next of it is the first
  TableHook<Hold> byKey;
  TableHook<Hold> byName;
  TableHook<Hold> byOwner;
};

using HoldPtr = IntrusivePtr<Hold>;

/// All holds of one client, by kind, lock and owner. Requests about one hold go one after the
/// other, so that the count known before a request says what the server must count after it.
///
/// Invariants: there is one Hold for a kind, name and owner; it is kept while it is held, lost but
/// perhaps still on the server, or somebody is at its gate, and is forgotten otherwise. At most one
/// request is inside a gate; those that wait have it in the order they came, and are linked to each
/// other, so that neither waiting nor being told takes memory. It is a part of the HoldBook and
/// called under its mutex, by HoldGates (the gates) and by those who book.
///
/// **Thread safety:** One thread at a time.
class HoldLedger {
 public:
  HoldLedger() = default;
  HoldLedger(const HoldLedger&) = delete;
  HoldLedger& operator=(const HoldLedger&) = delete;
  ~HoldLedger() {
    byKey_.visitAll([this](Hold& hold) { forget(hold); });
  }

  /// The hold of `owner` on a lock, made with count 0 when there is none.
  HoldPtr find(const std::shared_ptr<const void>& keepAlive,
               HoldKind kind,
               std::string_view name,
               OwnerId owner);

  /// Null when this client knows of no hold.
  [[nodiscard]] HoldPtr peek(HoldKind kind, std::string_view name, OwnerId owner) const {
    return peek(kind, name, std::hash<std::string_view>{}(name), owner);
  }

  /// Takes the gate of a hold; false when another request has it.
  static bool tryEnter(Hold& hold) noexcept { return !std::exchange(hold.busy, true); }
  /// The same; when another request has it, `waiter` is queued.
  static bool enter(Hold& hold, GateWaiter& waiter) noexcept;

  /// Takes everybody out who waits at a gate, each with a reference that the caller drops. Returns
  /// the first of them, or null; next() has the others.
  GateWaiter* dismissAll() noexcept;
  [[nodiscard]] static GateWaiter* next(const GateWaiter& waiter) noexcept {
    return waiter.nextAtGate_;
  }

  /// Gives the gate on. Returns who has it now, to be told with no lock held, or null. A hold that
  /// nobody holds or wants is forgotten.
  GateWaiter* leave(Hold& hold) noexcept;

  /// A gate was passed to this waiter, which is not told yet.
  void keepOpened(GateWaiter& waiter) noexcept {
    GateWaiter* const last = std::exchange(lastOpened_, &waiter);
    waiter.nextAtGate_ = last == nullptr ? &waiter : std::exchange(last->nextAtGate_, &waiter);
  }
  /// Takes out those who are not told yet, as dismissAll() does, the first of them first.
  GateWaiter* takeOpened() noexcept {
    GateWaiter* const last = std::exchange(lastOpened_, nullptr);
    return last == nullptr ? nullptr : std::exchange(last->nextAtGate_, nullptr);
  }

  /// Drops the entry of a hold that is not held and about which nothing is under way. A late reply
  /// may be about a hold that was forgotten before.
  void forgetIfUnused(Hold& hold) noexcept {
    if (hold.known && hold.count == 0 && !hold.busy && hold.lastAtGate == nullptr) {
      forget(hold);
    }
  }

  /// Holds and entries with requests under way.
  [[nodiscard]] std::size_t size() const noexcept { return byKey_.size(); }

  /// All entries, for closing.
  [[nodiscard]] std::vector<HoldPtr> all() const {
    std::vector<HoldPtr> result;
    result.reserve(size());
    byKey_.visitAll([&](Hold& hold) { result.emplace_back(&hold); });
    return result;
  }
  /// The entries about one name, of whatever kind and owner.
  [[nodiscard]] std::vector<HoldPtr> named(std::string_view name) const;
  /// The entries of one owner.
  [[nodiscard]] std::vector<HoldPtr> ownedBy(OwnerId owner) const {
    std::vector<HoldPtr> result;
    visitOwnedBy(owner, [&](Hold& hold) { result.emplace_back(&hold); });
    return result;
  }
  /// The same without memory. The function must not change which entries there are.
  template <class Visit>
  void visitOwnedBy(OwnerId owner, Visit visit) const;

 private:
  [[nodiscard]] HoldPtr peek(HoldKind kind,
                             std::string_view name,
                             std::size_t nameHash,
                             OwnerId owner) const {
    return HoldPtr(byKey_.find(keyHash(nameHash, owner, kind), [&](const Hold& hold) {
      return hold.owner == owner && hold.kind == kind && hold.name == name;
    }));
  }
  static std::size_t keyHash(std::size_t nameHash, OwnerId owner, HoldKind kind) noexcept {
    return nameHash ^
           static_cast<std::size_t>((owner.value + (static_cast<std::uint64_t>(kind) << 56U)) *
                                    0xff51afd7ed558ccdULL);
  }
  struct HashOfKey {
    std::size_t operator()(const Hold& hold) const noexcept {
      return keyHash(hold.nameHash, hold.owner, hold.kind);
    }
  };
  struct HashOfName {
    std::size_t operator()(const Hold& hold) const noexcept { return hold.nameHash; }
  };
  struct HashOfOwner {
    std::size_t operator()(const Hold& hold) const noexcept {
      return static_cast<std::size_t>(hold.owner.value);
    }
  };

  void forget(Hold& hold) noexcept;

  IntrusiveTable<Hold, &Hold::byKey, HashOfKey> byKey_;
  IntrusiveTable<Hold, &Hold::byName, HashOfName> byName_;
  IntrusiveTable<Hold, &Hold::byOwner, HashOfOwner> byOwner_;
  GateWaiter* lastOpened_ = nullptr;  // the next of it is the first
};

inline HoldPtr HoldLedger::find(const std::shared_ptr<const void>& keepAlive,
                                HoldKind kind,
                                std::string_view name,
                                OwnerId owner) {
  const std::size_t hash = std::hash<std::string_view>{}(name);
  if (HoldPtr known = peek(kind, name, hash, owner)) {
    return known;
  }
  auto hold = makeIntrusive<Hold>(keepAlive, kind, name, owner, hash);
  hold->addRef();
  hold->known = true;
  byKey_.insert(*hold);
  byName_.insert(*hold);
  byOwner_.insert(*hold);
  return hold;
}

inline bool HoldLedger::enter(Hold& hold, GateWaiter& waiter) noexcept {
  if (tryEnter(hold)) {
    return true;
  }
  waiter.gateShut();
  GateWaiter* const last = std::exchange(hold.lastAtGate, &waiter);
  waiter.nextAtGate_ = last == nullptr ? &waiter : std::exchange(last->nextAtGate_, &waiter);
  return false;
}

inline GateWaiter* HoldLedger::dismissAll() noexcept {
  GateWaiter* first = nullptr;
  byKey_.visitAll([&](Hold& hold) {
    if (GateWaiter* const last = std::exchange(hold.lastAtGate, nullptr)) {
      first = std::exchange(last->nextAtGate_, first);
    }
  });
  return first;
}

inline GateWaiter* HoldLedger::leave(Hold& hold) noexcept {
  if (GateWaiter* const last = hold.lastAtGate) {
    GateWaiter* const next = last->nextAtGate_;
    if (next == last) {
      hold.lastAtGate = nullptr;
    } else {
      last->nextAtGate_ = next->nextAtGate_;
    }
    return next;
  }
  hold.busy = false;
  forgetIfUnused(hold);
  return nullptr;
}

inline std::vector<HoldPtr> HoldLedger::named(std::string_view name) const {
  std::vector<HoldPtr> result;
  byName_.visit(std::hash<std::string_view>{}(name), [&](Hold& hold) {
    if (hold.name == name) {
      result.emplace_back(&hold);
    }
  });
  return result;
}

template <class Visit>
void HoldLedger::visitOwnedBy(OwnerId owner, Visit visit) const {
  byOwner_.visit(static_cast<std::size_t>(owner.value), [&](Hold& hold) {
    if (hold.owner == owner) {
      visit(hold);
    }
  });
}

inline void HoldLedger::forget(Hold& hold) noexcept {
  byKey_.remove(hold);
  byName_.remove(hold);
  byOwner_.remove(hold);
  hold.known = false;
  hold.dropRef();
}

}  // namespace rlock::detail
