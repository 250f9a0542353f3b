// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/env.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <utility>

namespace rlock::detail {

/// The place where a caller's thread sleeps, and the reasons to wake it.
///
/// **Thread safety:** give(), all() and has() from any thread, take() and sleep() on the caller's,
/// watchStop() and forgetStop() on the one that drives the call.
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
    env_.wakeOne(&bits_.word());
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
    env_.sleep(bits_.word(), seen, deadline);
  }

  /// @throws std::bad_alloc
  /// @param onStop  called once, on the thread that asks for the stop, or at once
  void watchStop(const std::stop_token& stop, std::function<void()> onStop) {
    if (stop.stop_possible()) {
      stopCallback_ = std::make_unique<StopCallback>(stop, std::move(onStop));
    }
  }
  /// From here on nothing is called; waits for a call that is under way on another thread.
  void forgetStop() noexcept { stopCallback_.reset(); }

 private:
  using StopCallback = std::stop_callback<std::function<void()>>;

  Env& env_;
  Atomic<std::uint32_t> bits_{0};
  std::unique_ptr<StopCallback> stopCallback_;  // few calls have a token
};

}  // namespace rlock::detail
