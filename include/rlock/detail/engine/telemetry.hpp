// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/duration_counts.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/engine/name_ranking.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/observer.hpp>
#include <rlock/options.hpp>
#include <rlock/stats.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The account of a client's work besides the counters: durations, the names that stand out, and
/// events, to the observer and at level debug to the log.
///
/// Durations are always counted, from times that their callers know anyway. Events are made only if
/// anybody listens(). Nothing that an observer does or throws gets back to the caller. An event
/// that an observer causes itself, by a call on the same thread, is logged and not told, so that an
/// observer that takes a lock in acquired() does not meet itself.
///
/// **Thread safety:** Safe to call concurrently from any thread. The caller holds no lock of the
/// engine when it tells an event: the application's own code runs.
class Telemetry {
 public:
  using Clock = std::chrono::steady_clock;

  /// Durations behind Stats.
  struct Durations {
    DurationCounts waits, holdTimes, renewalLags, roundTrips;
  };

  /// @param failures  counts what the observer throws
  Telemetry(const Options& options, const Logger& log, std::atomic<std::uint64_t>& failures)
      : observer_(options.observer),
        log_(log),
        failures_(failures),
        listens_(observer_ != nullptr || log.enabled(LogLevel::debug)),
        waited_(NameRanking::By::time, static_cast<std::size_t>(options.topNames)),
        contended_(NameRanking::By::count, static_cast<std::size_t>(options.topNames)),
        held_(NameRanking::By::longest, static_cast<std::size_t>(options.topNames)) {}
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;
  ~Telemetry() = default;

  [[nodiscard]] Durations& durations() noexcept { return durations_; }
  [[nodiscard]] const Durations& durations() const noexcept { return durations_; }
  /// Whether there is any use in an event.
  [[nodiscard]] bool listens() const noexcept { return listens_; }
  /// The beginning of all events about a lock.
  [[nodiscard]] static LockEvent about(const LockScripts& scripts,
                                       std::string_view owner,
                                       Clock::time_point at) noexcept {
    return {scripts.title(),
            scripts.traits.holdKind == HoldKind::none ? std::string_view() : owner,
            scripts.kind(),
            at};
  }

  // Durations.

  /// A call that had to wait is over.
  void noteContended(const LockScripts& scripts, std::chrono::nanoseconds waited) noexcept;
  /// A hold is over.
  void noteHold(const LockScripts& scripts, std::chrono::nanoseconds held) noexcept {
    durations_.holdTimes.add(held);
    if (held_.on()) {
      rankHold(scripts, held);
    }
  }
  [[nodiscard]] std::vector<TopName> top(TopBy order, std::size_t most) const;

  ///@{
  /// Events. Only if anybody listens().
  void tell(const AcquiredEvent& event) noexcept;
  void tell(const WaitedEvent& event) noexcept;
  void tell(const ReleasedEvent& event) noexcept;
  void tell(const LostEvent& event) noexcept;
  void tell(const RenewedLateEvent& event) noexcept;
  void tell(const SettledEvent& event) noexcept;
  void tell(const ReconnectedEvent& event) noexcept;
  void tell(const RedirectedEvent& event) noexcept;
  ///@}

 private:
  static std::int64_t micros(std::chrono::nanoseconds duration) noexcept {
    return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  }
  static std::int64_t micros(Clock::time_point at) noexcept {
    return micros(std::chrono::nanoseconds(at.time_since_epoch()));
  }
  static std::string quoted(std::string_view text) {
    return '"' + escapeForDisplay(text, std::numeric_limits<std::size_t>::max()) + '"';
  }
  [[nodiscard]] static std::string lineFor(std::string_view word, const LockEvent& event);
  void rankHold(const LockScripts& scripts, std::chrono::nanoseconds held) noexcept;
  /// @param call  calls the observer's function
  /// @param line  makes the line, if it is wanted
  template <class Call, class Line>
  void tellBoth(Call call, Line line) noexcept;

  const std::shared_ptr<Observer> observer_;
  const Logger& log_;
  std::atomic<std::uint64_t>& failures_;
  const bool listens_;
  Durations durations_;
  NameRanking waited_;
  NameRanking contended_;
  NameRanking held_;
  /// An observer is being told something on this thread.
  static constinit thread_local bool telling;
};

inline constinit thread_local bool Telemetry::telling = false;

// Durations.

inline void Telemetry::noteContended(const LockScripts& scripts,
                                     std::chrono::nanoseconds waited) noexcept {
  if (waited_.on()) {
    try {
      waited_.add(scripts.title(), waited);
      contended_.add(scripts.title(), waited);
    } catch (const std::exception&) {
      // Without memory the name is not listed.
    }
  }
}

inline void Telemetry::rankHold(const LockScripts& scripts,
                                std::chrono::nanoseconds held) noexcept {
  try {
    held_.add(scripts.title(), held);
  } catch (const std::exception&) {
    // Without memory the name is not listed.
  }
}

inline std::vector<TopName> Telemetry::top(TopBy order, std::size_t most) const {
  switch (order) {
    case TopBy::waited:
      return waited_.top(most);
    case TopBy::contended:
      return contended_.top(most);
    case TopBy::held:
      return held_.top(most);
  }
  return {};
}

// Events.

template <class Call, class Line>
void Telemetry::tellBoth(Call call, Line line) noexcept {
  if (log_.enabled(LogLevel::debug)) {
    try {
      log_.write(LogLevel::debug, line());
    } catch (const std::exception&) {
      // There is no memory for the line.
    }
  }
  if (!observer_ || std::exchange(telling, true)) {
    return;
  }
  std::string_view failure;
  try {
    call(*observer_);
  } catch (const std::exception& thrown) {
    failures_.fetch_add(1, std::memory_order_relaxed);
    try {
      log_.write(LogLevel::error, std::string("an observer threw: ") + thrown.what());
    } catch (const std::exception&) {
      failure = "an observer threw";
    }
  } catch (...) {
    failures_.fetch_add(1, std::memory_order_relaxed);
    failure = "an observer threw: unknown exception";
  }
  telling = false;
  if (!failure.empty()) {
    log_.write(LogLevel::error, failure);
  }
}

inline std::string Telemetry::lineFor(std::string_view word, const LockEvent& event) {
  std::string line = fmt::format("event={} kind={} name={}", word, event.kind, quoted(event.name));
  if (!event.owner.empty()) {
    fmt::format_to(std::back_inserter(line), " owner={}", event.owner);
  }
  fmt::format_to(std::back_inserter(line), " at_us={}", micros(event.at));
  return line;
}

inline void Telemetry::tell(const AcquiredEvent& event) noexcept {
  tellBoth([&](Observer& observer) { observer.acquired(event); },
           [&] {
             std::string line = lineFor("acquired", event);
             fmt::format_to(std::back_inserter(line),
                            " count={} waited_us={} contended={}",
                            event.count,
                            micros(event.waited),
                            event.contended ? 1 : 0);
             if (event.token) {
               fmt::format_to(std::back_inserter(line), " token={}", *event.token);
             }
             if (!event.label.empty()) {
               line += " label=" + quoted(event.label);
             }
             return line;
           });
}

inline void Telemetry::tell(const WaitedEvent& event) noexcept {
  tellBoth([&](Observer& observer) { observer.waited(event); },
           [&] {
             return lineFor("waited", event) + fmt::format(" outcome={} waited_us={}",
                                                           toString(event.outcome),
                                                           micros(event.waited));
           });
}

inline void Telemetry::tell(const ReleasedEvent& event) noexcept {
  tellBoth([&](Observer& observer) { observer.released(event); },
           [&] {
             return lineFor("released", event) +
                    fmt::format(" remaining={} held_us={}", event.remaining, micros(event.held));
           });
}

inline void Telemetry::tell(const LostEvent& event) noexcept {
  tellBoth([&](Observer& observer) { observer.lost(event); },
           [&] {
             std::string line =
                 lineFor("lost", event) +
                 fmt::format(" reason={} held_us={}", toString(event.reason), micros(event.held));
             if (!event.label.empty()) {
               line += " label=" + quoted(event.label);
             }
             return line;
           });
}

inline void Telemetry::tell(const RenewedLateEvent& event) noexcept {
  tellBoth([&](Observer& observer) { observer.renewedLate(event); },
           [&] {
             return lineFor("renewed_late", event) +
                    fmt::format(" lag_us={} left_us={}", micros(event.lag), micros(event.left));
           });
}

inline void Telemetry::tell(const SettledEvent& event) noexcept {
  tellBoth([&](Observer& observer) { observer.settled(event); },
           [&] {
             return lineFor("settled", event) + fmt::format(" request={} outcome={} took_us={}",
                                                            toString(event.request),
                                                            toString(event.outcome),
                                                            micros(event.took));
           });
}

inline void Telemetry::tell(const ReconnectedEvent& event) noexcept {
  tellBoth([&](Observer& observer) { observer.reconnected(event); },
           [&] {
             return fmt::format("event=reconnected node={} at_us={} replaced={}",
                                quoted(event.node),
                                micros(event.at),
                                event.replaced ? 1 : 0);
           });
}

inline void Telemetry::tell(const RedirectedEvent& event) noexcept {
  tellBoth([&](Observer& observer) { observer.redirected(event); },
           [&] {
             return fmt::format("event=redirected from={} to={} at_us={} slot={} by={}",
                                quoted(event.from),
                                quoted(event.to),
                                micros(event.at),
                                event.slot,
                                event.moved ? "moved" : "ask");
           });
}

}  // namespace rlock::detail
