// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/atomic.hpp>
#include <rlock/stats.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The names with the largest sums of something, or the largest single values, in a list of fixed
/// length: that of the Space-Saving algorithm of Metwally, Agrawal and El Abbadi. A name that is
/// not in the full list takes the place of the lowest one and begins at its rank, so that a name
/// whose true sum is above a place's share of the total is always listed. The sum that is shown
/// counts only from the name's coming into the list: it is never too large. Of single values the
/// largest are exact.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class NameRanking {
 public:
  enum class By : std::uint8_t {
    time,     ///< the sum of the durations
    count,    ///< how many there are
    longest,  ///< the longest of them
  };

  /// @param places  0: it is off
  NameRanking(By by, std::size_t places) : by_(by), places_(places) {}

  [[nodiscard]] bool on() const noexcept { return places_ > 0; }

  /// @throws std::bad_alloc  then nothing was added
  void add(std::string_view name, std::chrono::nanoseconds time) RLOCK_EXCLUDES(mutex_);

  /// The first of the list.
  [[nodiscard]] std::vector<TopName> top(std::size_t most) const RLOCK_EXCLUDES(mutex_);

 private:
  struct Entry {
    TopName shown;
    std::uint64_t rank = 0;
  };

  static std::uint64_t sum(std::uint64_t a, std::uint64_t b) noexcept {
    return a > std::numeric_limits<std::uint64_t>::max() - b
               ? std::numeric_limits<std::uint64_t>::max()
               : a + b;
  }
  Entry& lowest() RLOCK_REQUIRES(mutex_) {
    return *std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.rank < b.rank;
    });
  }
  /// Null: the name is not in the list.
  Entry* known(std::string_view name) RLOCK_REQUIRES(mutex_) {
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& each) {
      return each.shown.name == name;
    });
    return entry == entries_.end() ? nullptr : &*entry;
  }
  /// The entry of a name, made if need be.
  Entry& find(std::string_view name) RLOCK_REQUIRES(mutex_);
  void addLongest(std::string_view name, std::uint64_t duration) RLOCK_REQUIRES(mutex_);

  const By by_;
  const std::size_t places_;
  Atomic<std::uint64_t> floor_{0};  // a full list of the longest takes what is above it
  mutable AnnotatedMutex mutex_;
  std::vector<Entry> entries_ RLOCK_GUARDED_BY(mutex_);
};

inline void NameRanking::add(std::string_view name, std::chrono::nanoseconds time) {
  const auto duration = static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
  // The usual case of a list of the longest: it is no news for any name.
  if (by_ == By::longest && duration <= floor_.load(std::memory_order_relaxed)) {
    return;
  }
  const MutexLock lock(mutex_);
  if (by_ == By::longest) {
    addLongest(name, duration);
    return;
  }
  Entry& entry = find(name);
  entry.rank = sum(entry.rank, by_ == By::time ? duration : 1);
  ++entry.shown.count;
  entry.shown.time += std::chrono::nanoseconds(static_cast<std::int64_t>(duration));
}

inline std::vector<TopName> NameRanking::top(std::size_t most) const {
  std::vector<Entry> entries;
  {
    const MutexLock lock(mutex_);
    entries = entries_;
  }
  const auto shown = [this](const Entry& entry) {
    return by_ == By::count ? static_cast<std::int64_t>(entry.shown.count)
                            : entry.shown.time.count();
  };
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return shown(a) > shown(b);
  });
  entries.resize(std::min(entries.size(), most));
  std::vector<TopName> result;
  result.reserve(entries.size());
  for (Entry& entry : entries) {
    result.push_back(std::move(entry.shown));
  }
  return result;
}

inline NameRanking::Entry& NameRanking::find(std::string_view name) {
  if (Entry* const entry = known(name)) {
    return *entry;
  }
  if (entries_.size() < places_) {
    return entries_.emplace_back(Entry{{std::string(name), 0, {}}, 0});
  }
  Entry& entry = lowest();
  entry.shown = TopName{std::string(name), 0, {}};
  return entry;
}

inline void NameRanking::addLongest(std::string_view name, std::uint64_t duration) {
  const bool full = entries_.size() == places_;
  if (full && known(name) == nullptr && duration <= lowest().rank) {
    // Race: another thread has raised the floor meanwhile.
    return;
  }
  const bool fresh = known(name) == nullptr;
  Entry& entry = find(name);
  entry.rank = fresh ? duration : std::max(entry.rank, duration);
  entry.shown.time = std::chrono::nanoseconds(static_cast<std::int64_t>(entry.rank));
  floor_.store(entries_.size() < places_ ? 0 : lowest().rank, std::memory_order_relaxed);
}

}  // namespace rlock::detail
