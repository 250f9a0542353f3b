// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/log.hpp>

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rlock::detail {

/// Keeps an outage, or a right that is missing, from being logged once for each hold. The first
/// event of a kind is told in full, the others are counted and told together: 1 s later, then after
/// twice as long each time, at most 1 min, and when the outage is over.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class OutageLog {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Event : std::uint8_t {
    renewal,      ///< a hold was not renewed
    loss,         ///< a hold was lost, because it could not be renewed
    release,      ///< a release in the background failed
    expiry,       ///< a release was given up: the hold is left to expire
    reconciling,  ///< what a lost request did could not be found out
    untold        ///< the server refused a message to waiters
  };

  struct Noted {
    bool first = false;  ///< the caller writes it
    /// summarise() is to be called then; empty: that is arranged already.
    std::optional<Clock::time_point> summariseAt{};
  };

  [[nodiscard]] Noted note(Event event, std::size_t times, Clock::time_point now) noexcept;
  /// Writes what was counted. @returns when to call this again; empty: there is no need to
  std::optional<Clock::time_point> summarise(const Logger& log, Clock::time_point now);
  /// The server works again, or at least did for one request. If nothing has been noted for 1 s,
  /// the next event of each kind is told in full.
  void over(const Logger& log, Clock::time_point now);

 private:
  struct Count {
    bool told = false;
    std::size_t more = 0;
  };
  using Counts = std::array<Count, 6>;
  struct Summary {
    LogLevel level;
    std::string_view text;
  };

  static constexpr std::chrono::seconds kFirstInterval{1};
  static constexpr std::chrono::seconds kLongestInterval{60};
  static constexpr std::chrono::seconds kQuiet{1};
  /// By Event.
  static constexpr std::array<Summary, 6> kSummaries{{
      {LogLevel::warning, "more renewals of holds failed"},
      {LogLevel::error, "more holds were lost: unreachable"},
      {LogLevel::warning, "more releases in the background failed"},
      {LogLevel::warning, "more releases could not be completed: the holds are left to expire"},
      {LogLevel::warning, "more requests whose replies were lost could not be reconciled"},
      {LogLevel::warning, "more times waiters could not be told"},
  }};

  static void write(const Logger& log, const Counts& counts);

  std::atomic<bool> going_{false};
  AnnotatedMutex mutex_;
  Counts counts_ RLOCK_GUARDED_BY(mutex_){};
  bool arranged_ RLOCK_GUARDED_BY(mutex_) = false;
  DoublingPause interval_ RLOCK_GUARDED_BY(mutex_){kFirstInterval, kLongestInterval};
  Clock::time_point lastNoted_ RLOCK_GUARDED_BY(mutex_){};
};

inline OutageLog::Noted OutageLog::note(Event event,
                                        std::size_t times,
                                        Clock::time_point now) noexcept {
  const MutexLock lock(mutex_);
  going_.store(true, std::memory_order_relaxed);
  lastNoted_ = now;
  Noted noted;
  Count& count = counts_[static_cast<std::size_t>(event)];
  if (!count.told) {
    count.told = true;
    noted.first = true;
  } else {
    count.more += times;
  }
  if (!arranged_) {
    arranged_ = true;
    noted.summariseAt = now + interval_.current();
  }
  return noted;
}

inline std::optional<OutageLog::Clock::time_point> OutageLog::summarise(const Logger& log,
                                                                        Clock::time_point now) {
  Counts counts;
  std::optional<Clock::time_point> again;
  {
    const MutexLock lock(mutex_);
    counts = counts_;
    for (Count& count : counts_) {
      count.more = 0;
    }
    if (lastNoted_ + interval_.current() > now) {
      interval_.grow();
      again = now + interval_.current();
    } else {
      arranged_ = false;
      interval_.reset();
      counts_ = {};
      going_.store(false, std::memory_order_relaxed);
    }
  }
  write(log, counts);
  return again;
}

inline void OutageLog::over(const Logger& log, Clock::time_point now) {
  if (!going_.load(std::memory_order_relaxed)) {
    return;
  }
  Counts counts;
  {
    const MutexLock lock(mutex_);
    if (lastNoted_ + kQuiet > now) {
      return;
    }
    counts = counts_;
    counts_ = {};
    interval_.reset();
    going_.store(false, std::memory_order_relaxed);
  }
  write(log, counts);
}

inline void OutageLog::write(const Logger& log, const Counts& counts) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i].more > 0) {
      log.write(kSummaries[i].level, fmt::format("{} {}", counts[i].more, kSummaries[i].text));
    }
  }
}

}  // namespace rlock::detail
