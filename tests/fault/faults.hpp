// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

// Faults of the process itself, which this program has in place of the standard library's and the
// system's own functions.

namespace rlock::test {

/// Lets one allocation by `operator new` fail: the `k`-th from here on, of this thread, of the
/// library's threads, or of both; or as many `times` in a row. `std::bad_alloc` is thrown there.
class FailedAllocation {
 public:
  enum class Of : std::uint8_t { thisThread, otherThreads, allThreads };

  FailedAllocation(long k, Of threads, int times = 1) noexcept;
  FailedAllocation(const FailedAllocation&) = delete;
  FailedAllocation& operator=(const FailedAllocation&) = delete;
  ~FailedAllocation();

  /// Ends the counting early; an allocation that has failed stays so.
  static void disarm() noexcept;
  /// Whether there were as many as `k`.
  [[nodiscard]] static bool happened() noexcept;
  /// Return addresses where it happened, for messages.
  static void print() noexcept;
};

#if !defined(__SANITIZE_THREAD__)
/// Puts this thread to sleep for so long after each mutex that it gives back.
void pauseAfterUnlocking(std::chrono::microseconds pause) noexcept;

/// At the `k`-th mutex that this thread takes from here on, just before it takes it, something else
/// happens first: so two calls meet in each order that mutexes allow, by counting and not by luck.
class AtMutex {
 public:
  /// @param meanwhile  called once, by this thread; must not wait for it without limit
  AtMutex(long k, std::function<void()> meanwhile);
  AtMutex(const AtMutex&) = delete;
  AtMutex& operator=(const AtMutex&) = delete;
  ~AtMutex();

  /// Whether there were as many as `k`.
  [[nodiscard]] static bool happened() noexcept;
};

/// The next so many epoll_ctl() of the whole process that do `operation` on a descriptor fail with
/// ENOSPC.
/// @param onEpoll  only those on an epoll descriptor
void failEpollCtl(int operation, int times, bool onEpoll) noexcept;
/// How many of them are yet to come.
[[nodiscard]] int epollFailuresLeft() noexcept;
#endif

}  // namespace rlock::test
