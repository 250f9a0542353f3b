// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/log.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace rlock::detail {

/// Keeps an outage from being logged once for each hold. The first event of a kind is told in full,
/// the others are counted and told together: 1 s later, then after twice as long each time, at most
/// 1 min, and when the outage is over.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class OutageLog {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Event : std::uint8_t {
    renewal,  ///< a hold was not renewed
    loss,     ///< a hold was lost, because it could not be renewed
    release,  ///< a release in the background failed
    expiry,   ///< a release was given up: the hold is left to expire
    settling  ///< what a lost request did could not be found out
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
  using Counts = std::array<Count, 5>;

  static void write(const Logger& log, const Counts& counts);

  std::atomic<bool> going_{false};
  AnnotatedMutex mutex_;
  Counts counts_ RLOCK_GUARDED_BY(mutex_){};
  bool arranged_ RLOCK_GUARDED_BY(mutex_) = false;
  std::chrono::seconds interval_ RLOCK_GUARDED_BY(mutex_){1};
  Clock::time_point lastNoted_ RLOCK_GUARDED_BY(mutex_){};
};

}  // namespace rlock::detail
