// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "unit/fake_env.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace rlock::detail {

/// A clock that the test sets, the timers on it, and a loop whose turn the test takes.
class ManualEnv final : public FakeEnv {
 public:
  [[nodiscard]] Clock::time_point now() const noexcept override { return now_; }
  [[nodiscard]] std::unique_ptr<Timer> makeTimer(UniqueFunction<void()> onExpiry) override {
    return std::make_unique<ManualTimer>(*this, std::move(onExpiry));
  }
  void post(UniqueFunction<void()> function) override {
    if (full_) {
      throw std::bad_alloc();
    }
    posted_.push_back(std::move(function));
  }
  [[nodiscard]] std::unique_ptr<ReadyTask> makeTask(UniqueFunction<void()> function) override {
    return std::make_unique<ManualTask>(*this, std::move(function));
  }
  [[nodiscard]] bool onLoopThread() const noexcept override { return onLoopThread_; }
  void setOnLoopThread(bool on) noexcept { onLoopThread_ = on; }

  /// While there is no memory only what was made in advance can be queued.
  void setFull(bool full) noexcept { full_ = full; }
  /// Time passes, and the timers expire that are due then.
  void advance(Clock::duration by) {
    now_ += by;
    while (nextDue() <= now_) {
      (*next())->expire();
    }
  }
  [[nodiscard]] bool armed() const noexcept { return nextDue() != Clock::time_point::max(); }
  /// Time goes on until the next timer expires, which must be armed. Returns how long that took.
  Clock::duration expire() {
    const auto took = nextDue() - now_;
    advance(took);
    return took;
  }
  /// How many functions the loop has been woken for and has not run yet.
  [[nodiscard]] std::size_t posted() const noexcept { return posted_.size(); }
  /// Runs what was posted, and what that posts.
  void runPosted() {
    while (!posted_.empty()) {
      UniqueFunction<void()> next = std::move(posted_.front());
      posted_.pop_front();
      next();
    }
  }
  /// The loop ends without running what was posted.
  void dropPosted() {
    while (!posted_.empty()) {
      // Its end may post again. A new queue would take memory.
      const UniqueFunction<void()> dropped = std::move(posted_.front());
      posted_.pop_front();
    }
  }

 private:
  class ManualTimer final : public Timer {
   public:
    ManualTimer(ManualEnv& env, UniqueFunction<void()> onExpiry)
        : env_(env), onExpiry_(std::move(onExpiry)) {
      env_.timers_.push_back(this);
    }
    ~ManualTimer() override { std::erase(env_.timers_, this); }
    void armAt(Clock::time_point due) noexcept override { due_ = due; }
    void disarm() noexcept override { due_ = Clock::time_point::max(); }
    [[nodiscard]] bool armed() const noexcept override { return due_ != Clock::time_point::max(); }
    void expire() {
      disarm();
      onExpiry_();
    }

    ManualEnv& env_;
    UniqueFunction<void()> onExpiry_;
    Clock::time_point due_ = Clock::time_point::max();
  };

  class ManualTask final : public ReadyTask {
   public:
    ManualTask(ManualEnv& env, UniqueFunction<void()> function)
        : env_(env), function_(std::move(function)) {}
    void post(std::shared_ptr<const void> owner) noexcept override {
      env_.posted_.emplace_back([this, owner = std::move(owner)] { function_(); });
    }

   private:
    ManualEnv& env_;
    UniqueFunction<void()> function_;
  };

  [[nodiscard]] std::vector<ManualTimer*>::const_iterator next() const noexcept {
    return std::min_element(
        timers_.begin(), timers_.end(), [](const ManualTimer* a, const ManualTimer* b) {
          return a->due_ < b->due_;
        });
  }
  [[nodiscard]] Clock::time_point nextDue() const noexcept {
    const auto first = next();
    return first == timers_.end() ? Clock::time_point::max() : (*first)->due_;
  }

  Clock::time_point now_ = Clock::time_point(std::chrono::hours(1));
  std::vector<ManualTimer*> timers_;
  std::deque<UniqueFunction<void()>> posted_;
  bool full_ = false;
  bool onLoopThread_ = true;
};

}  // namespace rlock::detail
