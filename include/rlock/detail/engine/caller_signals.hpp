// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace rlock::detail {

/// The place where a caller's thread sleeps, and the reasons to wake it.
///
/// **Thread safety:** take() and sleep() on the caller's thread, the rest from any.
class CallerSignals {
 public:
  enum Signal : std::uint32_t {
    kSent = 1,      ///< a request was sent on behalf of the sleeping thread, which takes its reply
    kMoved = 2,     ///< the loop thread has taken over
    kStopped = 4,   ///< the caller's stop token
    kClosed = 8,    ///< the client was closed
    kAnswered = 16  ///< the loop thread has left the answer
  };

  explicit CallerSignals(Env& env) noexcept : env_(env) {}

  void give(Signal signal) noexcept {
    bits_.fetch_or(signal, std::memory_order_acq_rel);
    // Waking nobody is a cheap system call, and signals are rare.
    env_.wakeOne(&bits_);
  }
  [[nodiscard]] std::uint32_t all() const noexcept { return bits_.load(std::memory_order_acquire); }
  [[nodiscard]] bool has(Signal signal) const noexcept { return (all() & signal) != 0; }
  /// The caller is to leave, wherever it waits.
  [[nodiscard]] static bool sayLeave(std::uint32_t seen) noexcept {
    return (seen & (kStopped | kClosed)) != 0;
  }
  void take(Signal signal) noexcept {
    bits_.fetch_and(~static_cast<std::uint32_t>(signal), std::memory_order_acq_rel);
  }
  /// Sleeps until a signal that is not in `seen` comes, at most until `deadline`.
  void sleep(std::uint32_t seen, std::chrono::steady_clock::time_point deadline) noexcept {
    env_.sleep(bits_, seen, deadline);
  }

 private:
  Env& env_;
  std::atomic<std::uint32_t> bits_{0};
};

}  // namespace rlock::detail
