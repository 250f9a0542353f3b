// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/deadline_heap.hpp>
#include <rlock/detail/hold_handle.hpp>
#include <rlock/detail/intrusive_ptr.hpp>
#include <rlock/detail/lock_traits.hpp>
#include <rlock/owner.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
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
  /// The gate was passed to this waiter. Called with no lock held, from any thread.
  virtual void gateOpened() noexcept = 0;
  virtual void gateAddRef() noexcept = 0;
  virtual void gateDropRef() noexcept = 0;
};

/// What one owner holds of one lock, as far as this client knows.
struct Hold : RefCounted<Hold> {
  using Clock = std::chrono::steady_clock;

  Hold(std::shared_ptr<const void> lockAlive,
       HoldKind holdKind,
       std::string_view lockName,
       OwnerId holder) noexcept
      : keepAlive(std::move(lockAlive)), kind(holdKind), name(lockName), owner(holder) {}

  const std::shared_ptr<const void> keepAlive;  ///< owns the bytes of `name`
  const HoldKind kind;
  const std::string_view name;
  const OwnerId owner;

  int count = 0;           ///< confirmed by the server
  std::uint64_t line = 0;  ///< numbers what was never all gone in between
  bool watched = false;    ///< the watchdog renews it
  bool lost = false;       ///< its holder was told; kept until the server must have dropped it too
  bool renewing = false;   ///< a renewal is under way
  int renewalFailures = 0;
  std::chrono::milliseconds lease{0};
  Clock::time_point grantedAt{};  ///< when the last grant was booked
  Clock::time_point validUntil{};
  Clock::time_point renewAt{};
  Clock::time_point maxHoldUntil = Clock::time_point::max();
  std::string label;
  DeadlineHook hook;
  IntrusivePtr<HoldHandle> handle;  ///< made when somebody wants to watch the hold

  bool busy = false;        ///< a request about this hold is under way
  bool ownerEnded = false;  ///< meanwhile the owner's thread has ended
  std::deque<GateWaiter*> gate;
};

using HoldPtr = IntrusivePtr<Hold>;

/// All holds of one client, by kind, lock and owner. Requests about one hold go one after the
/// other, so that the count known before a request says what the server must count after it.
///
/// **Thread safety:** One thread at a time.
class HoldLedger {
 public:
  /// The hold of `owner` on a lock, made with count 0 when there is none.
  HoldPtr find(const std::shared_ptr<const void>& keepAlive,
               HoldKind kind,
               std::string_view name,
               OwnerId owner) {
    const auto found = holds_.find(Key{name, owner.value, kind});
    if (found != holds_.end()) {
      return found->second;
    }
    auto hold = makeIntrusive<Hold>(keepAlive, kind, name, owner);
    holds_.emplace(keyOf(*hold), hold);
    return hold;
  }

  /// Null when this client knows of no hold.
  [[nodiscard]] HoldPtr peek(HoldKind kind, std::string_view name, OwnerId owner) const {
    const auto found = holds_.find(Key{name, owner.value, kind});
    return found == holds_.end() ? HoldPtr() : found->second;
  }

  /// Takes the gate of a hold; false when another request has it, then `waiter` is queued.
  static bool enter(Hold& hold, GateWaiter& waiter) {
    if (!hold.busy) {
      hold.busy = true;
      return true;
    }
    waiter.gateAddRef();
    hold.gate.push_back(&waiter);
    return false;
  }

  /// Takes a queued waiter back; false when it is not queued, so that its gateOpened() is due.
  static bool withdraw(Hold& hold, GateWaiter& waiter) noexcept {
    for (auto it = hold.gate.begin(); it != hold.gate.end(); ++it) {
      if (*it == &waiter) {
        hold.gate.erase(it);
        waiter.gateDropRef();
        return true;
      }
    }
    return false;
  }

  /// Gives the gate on. Returns who has it now, to be told with no lock held, or null. A hold that
  /// nobody holds or wants is forgotten.
  GateWaiter* leave(Hold& hold) noexcept {
    if (!hold.gate.empty()) {
      GateWaiter* next = hold.gate.front();
      hold.gate.pop_front();
      return next;
    }
    hold.busy = false;
    forgetIfUnused(hold);
    return nullptr;
  }

  /// Drops the entry of a hold that is not held and about which nothing is under way.
  void forgetIfUnused(Hold& hold) noexcept {
    if (hold.count != 0 || hold.busy || !hold.gate.empty()) {
      return;
    }
    // A late reply may be about a hold that was forgotten before: its place may be taken by now.
    const auto found = holds_.find(keyOf(hold));
    if (found != holds_.end() && found->second.get() == &hold) {
      holds_.erase(found);
    }
  }

  /// Holds and entries with requests under way.
  [[nodiscard]] std::size_t size() const noexcept { return holds_.size(); }

  /// All entries, for closing and for threads that ended.
  [[nodiscard]] std::vector<HoldPtr> all() const {
    std::vector<HoldPtr> result;
    result.reserve(holds_.size());
    for (const auto& [key, hold] : holds_) {
      result.push_back(hold);
    }
    return result;
  }

 private:
  struct Key {
    std::string_view name;
    std::uint64_t owner;
    HoldKind kind;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<std::string_view>{}(key.name) ^
             static_cast<std::size_t>((key.owner + (static_cast<std::uint64_t>(key.kind) << 56U)) *
                                      0x9e3779b97f4a7c15ULL);
    }
  };
  static Key keyOf(const Hold& hold) noexcept { return {hold.name, hold.owner.value, hold.kind}; }

  std::unordered_map<Key, HoldPtr, KeyHash> holds_;
};

}  // namespace rlock::detail
