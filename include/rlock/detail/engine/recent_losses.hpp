// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/error.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <new>
#include <string>
#include <string_view>

namespace rlock::detail {

/// Remembers how the latest holds were lost, after the ledger has forgotten them, so that an owner
/// that comes to release one can be told what became of it. It remembers a fixed number: what it
/// has forgotten costs nothing but a sentence in an error.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class RecentLosses {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::size_t kMost = 64;

  struct Loss {
    LossReason reason = LossReason::none;
    std::chrono::milliseconds lease{0};
    Clock::time_point at{};  ///< expired: the end of the lease; otherwise: when it was told
  };

  void note(const Hold& hold, const Loss& loss) noexcept;
  /// Its owner has taken it since, and released it in order.
  void forget(const Hold& hold) noexcept;
  /// The end of the latest hold of this owner, as a sentence's end; empty: it is not known.
  [[nodiscard]] std::string tell(HoldKind kind,
                                 std::string_view name,
                                 OwnerId owner,
                                 Clock::time_point now) const;

 private:
  struct Entry {
    HoldKind kind{};
    OwnerId owner{};
    std::string name{};
    Loss loss{};

    [[nodiscard]] bool is(HoldKind ofKind, std::string_view ofName, OwnerId of) const noexcept {
      return loss.reason != LossReason::none && owner == of && kind == ofKind && name == ofName;
    }
  };

  mutable AnnotatedMutex mutex_;
  std::array<Entry, kMost> entries_ RLOCK_GUARDED_BY(mutex_){};
  std::size_t next_ RLOCK_GUARDED_BY(mutex_) = 0;
  /// There may be an entry: releases in order pass the mutex by as long as nothing was ever lost.
  Atomic<bool> any_{false};
};

inline void RecentLosses::note(const Hold& hold, const Loss& loss) noexcept {
  const MutexLock lock(mutex_);
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.is(hold.kind, hold.name, hold.owner);
  });
  Entry& entry = known != entries_.end() ? *known : entries_[next_];
  try {
    entry.name = hold.name;
  } catch (const std::bad_alloc&) {
    return;
  }
  if (known == entries_.end()) {
    next_ = (next_ + 1) % kMost;
  }
  entry.kind = hold.kind;
  entry.owner = hold.owner;
  entry.loss = loss;
  any_.store(true, std::memory_order_relaxed);
}

inline void RecentLosses::forget(const Hold& hold) noexcept {
  if (!any_.load(std::memory_order_relaxed)) {
    return;
  }
  const MutexLock lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.is(hold.kind, hold.name, hold.owner)) {
      entry.loss.reason = LossReason::none;
    }
  }
}

inline std::string RecentLosses::tell(HoldKind kind,
                                      std::string_view name,
                                      OwnerId owner,
                                      Clock::time_point now) const {
  const MutexLock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.is(kind, name, owner)) {
      const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(
                           std::max(now - entry.loss.at, Clock::duration::zero()))
                           .count();
      return entry.loss.reason == LossReason::expired
                 ? fmt::format("the lease of {} ms ended {} ms ago", entry.loss.lease.count(), ago)
                 : fmt::format("it was lost {} ms ago: {}", ago, toString(entry.loss.reason));
    }
  }
  return {};
}

}  // namespace rlock::detail
