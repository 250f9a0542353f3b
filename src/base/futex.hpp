// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rlock::detail {

// std::atomic::wait has no time limit in C++20, and every wait of this library has one.
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

/// Sleeps while `word` is `expected`, at most until `deadline` (time_point::max(): no limit). The
/// call may return early for no reason.
inline void futexWait(const std::atomic<std::uint32_t>& word,
                      std::uint32_t expected,
                      std::chrono::steady_clock::time_point deadline) noexcept {
  timespec absolute{};
  timespec* limit = nullptr;
  if (deadline != std::chrono::steady_clock::time_point::max()) {
    const auto sinceEpoch = deadline.time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(sinceEpoch);
    absolute.tv_sec = static_cast<std::time_t>(seconds.count());
    absolute.tv_nsec = static_cast<long>((sinceEpoch - seconds).count());
    limit = &absolute;
  }
  // FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time, which is what steady_clock is.
  ::syscall(SYS_futex,
            &word,
            FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG,
            expected,
            limit,
            nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

/// Wakes one thread that sleeps on `word`. Race: the sleeper may have gone on, and the word with
/// it; then no thread is woken.
inline void futexWakeOne(const std::atomic<std::uint32_t>* word) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
}

}  // namespace rlock::detail
