// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/options.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>

namespace rlock::detail {

/// The local view of a hold: its validity, its loss and its release, without asking the server. The
/// engine, which moves the deadline and reports the loss, shares it with every Lease of the same
/// incarnation of the hold.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class HoldHandle : public RefCounted<HoldHandle> {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param incarnation  the number of the incarnation, by which it is released
  /// @throws std::bad_alloc
  explicit HoldHandle(std::uint64_t incarnation = 0) : incarnation_(incarnation) {}
  HoldHandle(const HoldHandle&) = delete;
  HoldHandle& operator=(const HoldHandle&) = delete;
  virtual ~HoldHandle() = default;

  /// The end of the validity. A hold that consists of others has no deadline of its own and asks
  /// them.
  [[nodiscard]] virtual Clock::time_point validUntil() const noexcept {
    return Clock::time_point(Clock::duration(validUntil_.load(std::memory_order_acquire)));
  }
  void setValidUntil(Clock::time_point until) noexcept {
    validUntil_.store(until.time_since_epoch().count(), std::memory_order_release);
  }

  /// Call it before anybody else has the handle.
  void setIncarnation(std::uint64_t incarnation) noexcept { incarnation_ = incarnation; }
  /// The number of this incarnation of the owner's hold: a hold that was lost and taken again has
  /// another.
  [[nodiscard]] std::uint64_t incarnation() const noexcept { return incarnation_; }
  [[nodiscard]] LossReason reason() const noexcept {
    return reason_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool released() const noexcept { return released_.load(std::memory_order_acquire); }
  void setReleased() noexcept { released_.store(true, std::memory_order_release); }
  ///@{
  /// How often this incarnation is held, as far as its client knows; 0 once it was released. Nobody
  /// may have said: then it is a number that no owner reaches.
  [[nodiscard]] int count() const noexcept {
    return released() ? 0 : count_.load(std::memory_order_acquire);
  }
  void setCount(int count) noexcept { count_.store(count, std::memory_order_release); }
  ///@}

  /// Marks the hold lost. Race: several threads may find the loss at once. The first one gets true,
  /// and must then call signalLoss() with no lock held.
  bool markLost(LossReason reason) noexcept {
    LossReason none = LossReason::none;
    return reason_.compare_exchange_strong(none, reason, std::memory_order_acq_rel);
  }
  /// Runs the stop callbacks of the application on the calling thread.
  void signalLoss() noexcept { lost_.request_stop(); }
  [[nodiscard]] std::stop_token lostToken() const noexcept { return lost_.get_token(); }

  [[nodiscard]] bool heldAt(Clock::time_point now) const noexcept {
    // The process first: in a child nothing else may be asked that could wait.
    return inItsProcess() && reason() == LossReason::none && !released() && now < validUntil();
  }

 protected:
  /// False in a child of the process that has the hold. A thread that is not in the child may have
  /// a mutex there for ever.
  [[nodiscard]] bool inItsProcess() const noexcept { return forkGeneration() == forkGeneration_; }

 private:
  std::uint64_t incarnation_;
  Atomic<Clock::rep> validUntil_{std::numeric_limits<Clock::rep>::min()};
  Atomic<LossReason> reason_{LossReason::none};
  Atomic<bool> released_{false};
  Atomic<int> count_{std::numeric_limits<int>::max()};
  std::stop_source lost_;
  const std::uint32_t forkGeneration_ = forkGeneration();
};

}  // namespace rlock::detail
