// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/schedule_point.hpp>

#include <atomic>

namespace rlock::detail {

/// A std::atomic that orders threads, with a schedule point before each use. Counters that order
/// nothing need none and stay std::atomic.
///
/// **Thread safety:** as std::atomic.
template <class T>
class Atomic {
 public:
  Atomic() noexcept = default;
  constexpr explicit Atomic(T value) noexcept : value_(value) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  [[nodiscard]] T load(std::memory_order order = std::memory_order_seq_cst) const noexcept {
    schedulePoint();
    return value_.load(order);
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    schedulePoint();
    value_.store(value, order);
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    schedulePoint();
    return value_.exchange(value, order);
  }
  T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    schedulePoint();
    return value_.fetch_add(value, order);
  }
  T fetch_sub(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    schedulePoint();
    return value_.fetch_sub(value, order);
  }
  T fetch_or(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    schedulePoint();
    return value_.fetch_or(value, order);
  }
  T fetch_and(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    schedulePoint();
    return value_.fetch_and(value, order);
  }
  bool compare_exchange_weak(T& expected,
                             T desired,
                             std::memory_order order = std::memory_order_seq_cst) noexcept {
    schedulePoint();
    return value_.compare_exchange_weak(expected, desired, order);
  }
  bool compare_exchange_strong(T& expected,
                               T desired,
                               std::memory_order order = std::memory_order_seq_cst) noexcept {
    schedulePoint();
    return value_.compare_exchange_strong(expected, desired, order);
  }

  /// For sleeping on it.
  [[nodiscard]] const std::atomic<T>& word() const noexcept { return value_; }

 private:
  std::atomic<T> value_;
};

}  // namespace rlock::detail
