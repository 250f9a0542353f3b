// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "testing/timekeeper.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/log.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <thread>

namespace rlock::sim {

/// The loop of one client, with a thread of its own: functions, one after the other, and timers by
/// the time of a Timekeeper, whose mutex guards it.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
class TestLoop : public std::enable_shared_from_this<TestLoop> {
 public:
  using TimePoint = Timekeeper::TimePoint;
  using Function = detail::UniqueFunction<void()>;

  struct TimerState {
    Function onExpiry{};
    TimePoint due{};
    std::uint64_t order = 0;
    bool armed = false;
  };
  using TimerPtr = std::shared_ptr<TimerState>;

  /// Starts the thread, which keeps the loop until stop().
  static std::shared_ptr<TestLoop> start(std::shared_ptr<Timekeeper> time,
                                         std::shared_ptr<const detail::Logger> log);
  TestLoop(std::shared_ptr<Timekeeper> time, std::shared_ptr<const detail::Logger> log);
  TestLoop(const TestLoop&) = delete;
  TestLoop& operator=(const TestLoop&) = delete;
  ~TestLoop() = default;

  [[nodiscard]] Timekeeper& time() const noexcept { return *time_; }
  [[nodiscard]] const std::shared_ptr<Timekeeper>& timePtr() const noexcept { return time_; }

  void post(Function function);
  void arm(const TimerPtr& timer, TimePoint due) noexcept;
  void disarm(const TimerPtr& timer) noexcept;
  /// As Env::stop(), however long the last functions take.
  void stop() noexcept;
  /// From here on its callers need not wait for the test to move time.
  void setClosing() noexcept { closing_.store(true, std::memory_order_release); }
  [[nodiscard]] bool closing() const noexcept { return closing_.load(std::memory_order_acquire); }

  /// The loop that this thread runs; null: it is another thread.
  static TestLoop* ofThisThread() noexcept;
  /// Whether this thread is one of the library's own that runs no loop.
  static bool helperThread() noexcept;
  static void setHelperThread() noexcept;

  /// Says meanwhile that the function that runs waits in a call of another client.
  class Blocked {
   public:
    explicit Blocked(TestLoop* loop) noexcept : loop_(loop) { count(1); }
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;
    ~Blocked() { count(-1); }

   private:
    // Not analysed: the Timekeeper that makes one holds its mutex, which is the loop's as well, for
    // clients that call each other share a clock.
    void count(int change) noexcept RLOCK_NO_THREAD_SAFETY_ANALYSIS {
      if (loop_ != nullptr) {
        loop_->blocked_ += change;
      }
    }
    TestLoop* const loop_;
  };

  // For the Timekeeper, which holds its mutex. Not analysed, because the analysis cannot know that
  // it is the mutex of the loop.

  /// It runs a function, or is about to.
  [[nodiscard]] bool busy() const noexcept RLOCK_NO_THREAD_SAFETY_ANALYSIS;
  /// When its next timer is due; max(): never, or it is not free to serve it.
  [[nodiscard]] TimePoint firstDue() const noexcept RLOCK_NO_THREAD_SAFETY_ANALYSIS;
  /// Timers up to `when` may expire.
  void reach(TimePoint when) noexcept RLOCK_NO_THREAD_SAFETY_ANALYSIS { reached_ = when; }

 private:
  struct Earlier {
    bool operator()(const TimerPtr& a, const TimerPtr& b) const noexcept {
      return a->due != b->due ? a->due < b->due : a->order < b->order;
    }
  };

  void run() noexcept;
  void perform(Function function, TimerPtr timer) noexcept RLOCK_REQUIRES(time_->mutex());
  [[nodiscard]] bool timerDue() const noexcept RLOCK_REQUIRES(time_->mutex());

  const std::shared_ptr<Timekeeper> time_;
  const std::shared_ptr<const detail::Logger> log_;
  std::thread thread_ RLOCK_GUARDED_BY(time_->mutex());
  std::atomic<bool> closing_{false};
  std::deque<Function> ready_ RLOCK_GUARDED_BY(time_->mutex());
  std::set<TimerPtr, Earlier> timers_ RLOCK_GUARDED_BY(time_->mutex());
  std::uint64_t armings_ RLOCK_GUARDED_BY(time_->mutex()) = 0;
  TimePoint reached_ RLOCK_GUARDED_BY(time_->mutex()){};
  int blocked_ RLOCK_GUARDED_BY(time_->mutex()) = 0;
  bool working_ RLOCK_GUARDED_BY(time_->mutex()) = false;
  bool stopping_ RLOCK_GUARDED_BY(time_->mutex()) = false;
  bool ended_ RLOCK_GUARDED_BY(time_->mutex()) = false;
};

/// The world of a client beside its connections, on a TestLoop.
///
/// **Thread safety:** as Env.
class TestEnv final : public detail::Env {
 public:
  explicit TestEnv(std::shared_ptr<TestLoop> loop) noexcept : loop_(std::move(loop)) {}
  ~TestEnv() override;

  [[nodiscard]] Clock::time_point now() const noexcept override { return loop_->time().now(); }
  [[nodiscard]] std::unique_ptr<detail::Timer> makeTimer(
      detail::UniqueFunction<void()> onExpiry) override;
  void post(detail::UniqueFunction<void()> function) override;
  [[nodiscard]] std::unique_ptr<detail::ReadyTask> makeTask(
      detail::UniqueFunction<void()> function) override;
  [[nodiscard]] bool onLoopThread() const noexcept override {
    return TestLoop::ofThisThread() == loop_.get();
  }
  void runElsewhere(detail::UniqueFunction<void()> function) override;
  void sleep(const std::atomic<std::uint32_t>& word,
             std::uint32_t expected,
             Clock::time_point deadline) noexcept override {
    loop_->time().sleep(*loop_, word, expected, deadline);
  }
  void wakeOne(const std::atomic<std::uint32_t>* word) noexcept override {
    loop_->time().wakeOne(word);
  }
  [[nodiscard]] bool timePasses() const noexcept override { return loop_->time().passesByItself(); }
  void callBegins() noexcept override { loop_->time().noteCall(); }
  void closing() noexcept override { loop_->setClosing(); }
  void stop(Clock::time_point /*deadline*/) noexcept override { loop_->stop(); }
  void abandonInChild() noexcept override { abandoned_.store(true, std::memory_order_release); }
  [[nodiscard]] bool abandoned() const noexcept override {
    return abandoned_.load(std::memory_order_acquire);
  }

 private:
  const std::shared_ptr<TestLoop> loop_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace rlock::sim
