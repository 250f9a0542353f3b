// SPDX-License-Identifier: Apache-2.0
#include "engine/outage_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace rlock::detail {

namespace {

constexpr std::chrono::seconds kFirstInterval{1};
constexpr std::chrono::seconds kLongestInterval{60};
constexpr std::chrono::seconds kQuiet{1};

struct Line {
  LogLevel level;
  std::string_view text;
};

// By OutageLog::Event.
constexpr std::array<Line, 5> kLines{{
    {LogLevel::warning, "more renewals of holds failed"},
    {LogLevel::error, "more holds were lost: unreachable"},
    {LogLevel::warning, "more releases in the background failed"},
    {LogLevel::warning, "more releases could not be completed: the holds are left to expire"},
    {LogLevel::warning, "more requests whose replies were lost could not be settled"},
}};

}  // namespace

OutageLog::Noted OutageLog::note(Event event, std::size_t times, Clock::time_point now) noexcept {
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
    noted.summariseAt = now + interval_;
  }
  return noted;
}

std::optional<OutageLog::Clock::time_point> OutageLog::summarise(const Logger& log,
                                                                 Clock::time_point now) {
  Counts counts;
  std::optional<Clock::time_point> again;
  {
    const MutexLock lock(mutex_);
    counts = counts_;
    for (Count& count : counts_) {
      count.more = 0;
    }
    if (lastNoted_ + interval_ > now) {
      interval_ = std::min(2 * interval_, kLongestInterval);
      again = now + interval_;
    } else {
      arranged_ = false;
      interval_ = kFirstInterval;
      counts_ = {};
      going_.store(false, std::memory_order_relaxed);
    }
  }
  write(log, counts);
  return again;
}

void OutageLog::over(const Logger& log, Clock::time_point now) {
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
    interval_ = kFirstInterval;
    going_.store(false, std::memory_order_relaxed);
  }
  write(log, counts);
}

void OutageLog::write(const Logger& log, const Counts& counts) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i].more > 0) {
      log.write(kLines[i].level, fmt::format("{} {}", counts[i].more, kLines[i].text));
    }
  }
}

}  // namespace rlock::detail
