// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/unique_function.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

/// Time as an outside observer of the whole simulation would measure it, from its beginning.
using Time = nanoseconds;

/// A generator whose numbers are the same everywhere, unlike those of the standard distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}

  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  /// Both ends included.
  std::int64_t between(std::int64_t low, std::int64_t high) noexcept {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  int between(int low, int high) noexcept {
    return static_cast<int>(between(std::int64_t{low}, std::int64_t{high}));
  }
  Time between(Time low, Time high) noexcept { return Time(between(low.count(), high.count())); }
  milliseconds betweenMs(int low, int high) noexcept { return milliseconds(between(low, high)); }
  Time someMs(int low, int high) noexcept {
    return between(Time(milliseconds(low)), Time(milliseconds(high)));
  }
  /// One of so many.
  std::size_t below(std::size_t count) noexcept {
    return static_cast<std::size_t>(next() % std::uint64_t{count});
  }
  bool chance(int percent) noexcept { return between(1, 100) <= percent; }
  /// As chance(), for things that are rare.
  bool oneIn(int n) noexcept { return between(1, n) == 1; }

 private:
  std::uint64_t state_;
};

/// Everything that is to happen, in the order of its time. Events of one instant come in an order
/// drawn by lot: whoever needs an order schedules one thing after the other.
///
/// It also keeps a hash of all that happened, by which two runs of one seed are compared, and
/// prints what happens when a schedule is replayed.
class World {
 public:
  using Action = detail::UniqueFunction<void()>;

  explicit World(std::uint64_t seed, bool traced) : random_(seed), traced_(traced) {}

  [[nodiscard]] Time now() const noexcept { return now_; }
  [[nodiscard]] Random& random() noexcept { return random_; }

  void at(Time when, Action action) {
    std::uint32_t slot = 0;
    if (free_.empty()) {
      slot = static_cast<std::uint32_t>(actions_.size());
      actions_.push_back(std::move(action));
    } else {
      slot = free_.back();
      free_.pop_back();
      actions_[slot] = std::move(action);
    }
    const auto lot = static_cast<std::uint32_t>(random_.next());
    heap_.push_back({std::max(when, now_), lot, slot, sequence_++});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  void after(Time delay, Action action) { at(now_ + delay, std::move(action)); }

  /// False when nothing is due up to `end`; the time is `end` then.
  bool runNext(Time end) {
    if (heap_.empty() || heap_.front().at > end) {
      now_ = std::max(now_, end);
      return false;
    }
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry entry = heap_.back();
    heap_.pop_back();
    now_ = entry.at;
    ++executed_;
    note(static_cast<std::uint64_t>(now_.count()));
    Action action = std::exchange(actions_[entry.slot], nullptr);
    free_.push_back(entry.slot);
    action();
    return true;
  }
  /// Nothing that was scheduled happens any more.
  void clear() {
    heap_.clear();
    // An action may schedule something as it is destroyed, which is dropped as well.
    while (!actions_.empty()) {
      const std::vector<Action> gone = std::exchange(actions_, {});
      free_.clear();
      heap_.clear();
    }
    free_.clear();
    heap_.clear();
  }

  [[nodiscard]] std::uint64_t executed() const noexcept { return executed_; }

  ///@{
  /// Adds to the hash.
  void note(std::uint64_t value) noexcept {
    hash_ = (hash_ ^ value) * 0x100000001b3ULL;
    hash_ ^= hash_ >> 29U;
  }
  void note(std::string_view text) noexcept {
    for (const char byte : text) {
      note(static_cast<std::uint64_t>(static_cast<unsigned char>(byte)));
    }
  }
  ///@}
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  [[nodiscard]] bool traced() const noexcept { return traced_; }
  template <class... Parts>
  void trace(const Parts&... parts) const {
    if (!traced_) {
      return;
    }
    std::ostringstream line;
    line << std::fixed << std::setprecision(3) << std::setw(10)
         << std::chrono::duration<double, std::milli>(now_).count() << "  ";
    (line << ... << parts);
    line << '\n';
    std::fputs(line.str().c_str(), stdout);
  }

 private:
  struct Entry {
    Time at;
    std::uint32_t lot;
    std::uint32_t slot;
    std::uint64_t sequence;
  };
  static bool later(const Entry& a, const Entry& b) noexcept {
    if (a.at != b.at) {
      return a.at > b.at;
    }
    return a.lot != b.lot ? a.lot > b.lot : a.sequence > b.sequence;
  }

  Random random_;
  const bool traced_;
  Time now_{0};
  std::uint64_t sequence_ = 0;
  std::uint64_t executed_ = 0;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
  std::vector<Entry> heap_;
  std::vector<Action> actions_;
  std::vector<std::uint32_t> free_;
};

/// A clock that starts anywhere and runs a little too fast or too slow.
class DriftingClock {
 public:
  DriftingClock(Time start, int ppm) noexcept : start_(start), ppm_(ppm) {}

  [[nodiscard]] Time read(Time now) const noexcept { return start_ + now + now * ppm_ / 1'000'000; }
  /// The first instant at which it shows `reading` or more.
  [[nodiscard]] Time when(Time reading) const noexcept {
    const Time elapsed = reading - start_;
    Time guess = elapsed - elapsed / 1'000'000 * ppm_;
    while (read(guess) < reading) {
      guess += std::max(Time(1), reading - read(guess));
    }
    return guess;
  }

 private:
  Time start_;
  int ppm_;
};

}  // namespace rlock::sim
