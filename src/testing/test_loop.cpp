// SPDX-License-Identifier: Apache-2.0

// The loop of a client of the test double: its timers and tasks first, then the thread that runs it
// with run() and perform(), then the calls that other threads make, and last the Env over it.
//
// The queue and the timers of a loop are guarded by the mutex of its Timekeeper, which is the same
// one for all loops of a clock: time moves only when none of them has anything to do, so each
// change is told to it. A function runs and is destroyed without the mutex, because it may call its
// loop, and what it owns may.
#include "testing/test_loop.hpp"

#include "base/detached_thread.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace rlock::sim {

namespace {

/// Functions that its last functions queue are run as well, up to so many: the end of a call is
/// told in steps.
constexpr int kLastFunctions = 1000;
/// How long they may take, in real time, before whoever stops the loop goes on without it.
constexpr std::chrono::seconds kLongestEnd{10};

thread_local TestLoop* currentLoop = nullptr;
thread_local bool helper = false;

class LoopTimer final : public detail::Timer {
 public:
  LoopTimer(std::shared_ptr<TestLoop> loop, TestLoop::Function onExpiry)
      : loop_(std::move(loop)), state_(std::make_shared<TestLoop::TimerState>()) {
    state_->onExpiry = std::move(onExpiry);
  }
  ~LoopTimer() override { loop_->disarm(state_); }

  void armAt(Clock::time_point due) noexcept override { loop_->arm(state_, due); }
  void disarm() noexcept override { loop_->disarm(state_); }
  [[nodiscard]] bool armed() const noexcept override { return state_->armed; }

 private:
  const std::shared_ptr<TestLoop> loop_;
  const TestLoop::TimerPtr state_;
};

class LoopTask final : public detail::ReadyTask {
 public:
  LoopTask(std::shared_ptr<TestLoop> loop, TestLoop::Function function)
      : loop_(std::move(loop)), state_(std::make_shared<State>(std::move(function))) {}

  void post(std::shared_ptr<const void> owner) noexcept override {
    if (state_->posted.exchange(true)) {
      return;
    }
    loop_->post([state = state_, owner = std::move(owner)] {
      state->posted = false;
      state->function();
    });
  }

 private:
  struct State {
    explicit State(TestLoop::Function what) : function(std::move(what)) {}
    TestLoop::Function function;
    std::atomic<bool> posted{false};
  };

  const std::shared_ptr<TestLoop> loop_;
  const std::shared_ptr<State> state_;
};

}  // namespace

TestLoop* TestLoop::ofThisThread() noexcept {
  return currentLoop;
}

bool TestLoop::helperThread() noexcept {
  return helper;
}

void TestLoop::setHelperThread() noexcept {
  helper = true;
}

TestLoop::TestLoop(std::shared_ptr<Timekeeper> time, std::shared_ptr<const detail::Logger> log)
    : time_(std::move(time)), log_(std::move(log)) {}

std::shared_ptr<TestLoop> TestLoop::start(std::shared_ptr<Timekeeper> time,
                                          std::shared_ptr<const detail::Logger> log) {
  auto loop = std::make_shared<TestLoop>(std::move(time), std::move(log));
  const detail::MutexLock lock(loop->time_->mutex());
  loop->reached_ = loop->time_->now();
  loop->thread_ = std::thread([loop] { loop->run(); });
  loop->time_->add(*loop);
  return loop;
}

void TestLoop::run() noexcept {
  currentLoop = this;
  // Destroyed when the mutex is free.
  std::deque<Function> dropped;
  const detail::MutexLock lock(time_->mutex());
  int last = kLastFunctions;
  while (!stopping_ || (!ready_.empty() && last > 0)) {
    if (!ready_.empty()) {
      Function function = std::move(ready_.front());
      ready_.pop_front();
      perform(std::move(function), nullptr);
      last -= stopping_ ? 1 : 0;
    } else if (timerDue()) {
      TimerPtr timer = *timers_.begin();
      timers_.erase(timers_.begin());
      timer->armed = false;
      perform({}, std::move(timer));
    } else {
      time_->wait(timers_.empty() ? TimePoint::max() : (*timers_.begin())->due);
    }
  }
  ended_ = true;
  time_->remove(*this);
  time_->changed();
  dropped = std::move(ready_);
}

/// Runs and destroys it without the mutex: what it owns may go with it, timers of this loop
/// included.
void TestLoop::perform(Function function, TimerPtr timer) noexcept {
  working_ = true;
  time_->mutex().unlock();
  const auto failed = [this](const char* what) {
    log_->write(LogLevel::error, std::string("a function on the loop thread has thrown: ") + what);
  };
  try {
    timer ? timer->onExpiry() : function();
  } catch (const std::exception& error) {
    failed(error.what());
  } catch (...) {
    failed("what is no std::exception");
  }
  function = nullptr;
  timer = nullptr;
  time_->mutex().lock();
  working_ = false;
  time_->changed();
}

bool TestLoop::timerDue() const noexcept {
  return !timers_.empty() && (*timers_.begin())->due <= std::max(reached_, time_->passed());
}

bool TestLoop::busy() const noexcept {
  return working_ ? blocked_ == 0 : !ready_.empty() || timerDue();
}

TestLoop::TimePoint TestLoop::firstDue() const noexcept {
  return blocked_ > 0 || timers_.empty() ? TimePoint::max() : (*timers_.begin())->due;
}

void TestLoop::post(Function function) {
  {
    const detail::MutexLock lock(time_->mutex());
    if (!ended_ && (!stopping_ || currentLoop == this)) {
      ready_.push_back(std::move(function));
      time_->changed();
      return;
    }
  }
  // It is destroyed without the mutex.
}

void TestLoop::arm(const TimerPtr& timer, TimePoint due) noexcept {
  const detail::MutexLock lock(time_->mutex());
  if (timer->armed) {
    timers_.erase(timer);
  }
  timer->due = due;
  timer->order = ++armings_;
  timer->armed = due != TimePoint::max();
  if (timer->armed) {
    timers_.insert(timer);
  }
  time_->changed();
}

void TestLoop::disarm(const TimerPtr& timer) noexcept {
  const detail::MutexLock lock(time_->mutex());
  if (timer->armed) {
    timer->armed = false;
    timers_.erase(timer);
    time_->changed();
  }
}

void TestLoop::stop() noexcept {
  std::thread thread;
  {
    const detail::MutexLock lock(time_->mutex());
    stopping_ = true;
    time_->changed();
    thread = std::move(thread_);
    const auto limit = Timekeeper::Clock::now() + kLongestEnd;
    while (thread.joinable() && !ended_ && currentLoop != this &&
           Timekeeper::Clock::now() < limit) {
      time_->waitReally(limit);
    }
    if (thread.joinable() && !ended_) {
      thread.detach();
    }
  }
  if (thread.joinable()) {
    thread.join();
  }
}

// The environment.

TestEnv::~TestEnv() {
  loop_->stop();
}

std::unique_ptr<detail::Timer> TestEnv::makeTimer(detail::UniqueFunction<void()> onExpiry) {
  return std::make_unique<LoopTimer>(loop_, std::move(onExpiry));
}

void TestEnv::post(detail::UniqueFunction<void()> function) {
  loop_->time().noteCaller();
  loop_->post(std::move(function));
}

std::unique_ptr<detail::ReadyTask> TestEnv::makeTask(detail::UniqueFunction<void()> function) {
  return std::make_unique<LoopTask>(loop_, std::move(function));
}

void TestEnv::runElsewhere(detail::UniqueFunction<void()> function) {
  loop_->time().countHelper(1);
  detail::startDetached([time = loop_->timePtr(), function = std::move(function)]() mutable {
    TestLoop::setHelperThread();
    function();
    function = nullptr;
    time->countHelper(-1);
  });
}

}  // namespace rlock::sim
