// SPDX-License-Identifier: Apache-2.0
#include "simulation/sim_env.hpp"

#include <algorithm>
#include <cstdlib>

namespace rlock::sim {

SimEnv* SimEnv::running_ = nullptr;

namespace {

/// How long a loop takes from one piece of work to the next.
constexpr int kLongestStepUs = 20;
/// How late a timer expires, usually.
constexpr int kLongestLatenessUs = 60;

[[noreturn]] void wouldBlock(const char* what) {
  std::fprintf(stderr, "the simulation has one thread, and that calls %s\n", what);
  std::abort();
}

}  // namespace

// The process.

void SimProcess::pause(Time length) {
  paused_ = true;
  pausedUntil_ = std::max(pausedUntil_, world_.now() + length);
  world_.at(pausedUntil_, [this] {
    if (paused_ && world_.now() >= pausedUntil_) {
      resume();
    }
  });
}

void SimProcess::resume() {
  paused_ = false;
  awakeSince_ = world_.now();
  world_.trace("process ", index_, " goes on");
  // One thing after the other; what comes meanwhile comes after it.
  while (!backlog_.empty() && !paused_ && !dead_) {
    auto [env, action] = std::move(backlog_.front());
    backlog_.pop_front();
    env->run(action);
  }
}

void SimProcess::enter(SimEnv& env, Action action) {
  if (dead_) {
    return;
  }
  if (paused_) {
    backlog_.emplace_back(&env, std::move(action));
    return;
  }
  env.run(action);
}

void SimProcess::exhume(const std::vector<SimEnv*>& loops) {
  dead_ = false;
  paused_ = false;
  backlog_.clear();
  for (SimEnv* const loop : loops) {
    loop->restart();
  }
}

// The loop.

SimEnv::~SimEnv() = default;

void SimEnv::run(SimProcess::Action& action) {
  SimEnv* const outer = std::exchange(running_, this);
  action();
  action = nullptr;
  while (!passEnd_.empty()) {
    for (auto& function : std::exchange(passEnd_, {})) {
      function();
    }
  }
  running_ = outer;
}

void SimEnv::atPassEnd(detail::UniqueFunction<void()> function) {
  if (!onLoopThread()) {
    wouldBlock("atPassEnd() outside of the loop");
  }
  passEnd_.push_back(std::move(function));
}

void SimEnv::post(detail::UniqueFunction<void()> function) {
  if (stopping_) {
    return;
  }
  ready_.push_back(std::move(function));
  schedulePump();
}

void SimEnv::schedulePump() {
  if (std::exchange(pumping_, true)) {
    return;
  }
  world().after(microseconds(world().random().between(1, kLongestStepUs)),
                [this] { process_.enter(*this, [this] { pump(); }); });
}

void SimEnv::restart() {
  pumping_ = false;
  timersAt_ = Time::max();
  scheduleTimers();
  if (!ready_.empty()) {
    schedulePump();
  }
}

void SimEnv::pump() {
  pumping_ = false;
  if (ready_.empty()) {
    return;
  }
  detail::UniqueFunction<void()> function = std::move(ready_.front());
  ready_.pop_front();
  function();
  if (!ready_.empty()) {
    schedulePump();
  }
}

class SimEnv::Task final : public detail::ReadyTask {
 public:
  Task(SimEnv& env, detail::UniqueFunction<void()> function)
      : env_(env), state_(std::make_shared<State>(std::move(function))) {}

  void post(std::shared_ptr<const void> owner) noexcept override {
    if (std::exchange(state_->posted, true)) {
      return;
    }
    env_.post([state = state_, owner = std::move(owner)] {
      state->posted = false;
      state->function();
    });
  }

 private:
  struct State {
    explicit State(detail::UniqueFunction<void()> what) : function(std::move(what)) {}
    detail::UniqueFunction<void()> function;
    bool posted = false;
  };

  SimEnv& env_;
  const std::shared_ptr<State> state_;
};

std::unique_ptr<detail::ReadyTask> SimEnv::makeTask(detail::UniqueFunction<void()> function) {
  return std::make_unique<Task>(*this, std::move(function));
}

void SimEnv::runElsewhere(detail::UniqueFunction<void()> function) {
  world().after(microseconds(world().random().between(1, 200)),
                [this, function = std::move(function)]() mutable {
                  if (!process_.dead()) {
                    function();
                  }
                });
}

void SimEnv::sleep(const std::atomic<std::uint32_t>& /*word*/,
                   std::uint32_t /*expected*/,
                   Clock::time_point /*deadline*/) noexcept {
  wouldBlock("Env::sleep()");
}

void SimEnv::wakeOne(const std::atomic<std::uint32_t>* /*word*/) noexcept {
  // Nobody can be asleep.
}

void SimEnv::stop(Clock::time_point /*deadline*/) noexcept {
  if (!onLoopThread()) {
    wouldBlock("Env::stop() outside of the loop, which waits for the loop's end");
  }
  stopping_ = true;
}

// Timers.

class SimEnv::TimerHandle final : public detail::Timer {
 public:
  TimerHandle(SimEnv& env, detail::UniqueFunction<void()> onExpiry)
      : env_(env), state_(std::make_shared<TimerState>()) {
    state_->onExpiry = std::move(onExpiry);
  }
  ~TimerHandle() override { env_.disarm(state_); }

  void armAt(Clock::time_point due) noexcept override { env_.arm(state_, due); }
  void disarm() noexcept override { env_.disarm(state_); }
  [[nodiscard]] bool armed() const noexcept override { return state_->armed; }

 private:
  SimEnv& env_;
  const TimerPtr state_;
};

std::unique_ptr<detail::Timer> SimEnv::makeTimer(detail::UniqueFunction<void()> onExpiry) {
  return std::make_unique<TimerHandle>(*this, std::move(onExpiry));
}

void SimEnv::arm(const TimerPtr& timer, TimePoint due) {
  disarm(timer);
  timer->due = due;
  timer->order = ++armings_;
  timer->armed = true;
  timers_.insert(timer);
  scheduleTimers();
}

void SimEnv::disarm(const TimerPtr& timer) {
  if (std::exchange(timer->armed, false)) {
    timers_.erase(timer);
  }
}

void SimEnv::scheduleTimers() {
  // A hundred years and more are never, and no sum of times overflows.
  constexpr auto kNever = std::chrono::hours(24) * 365 * 100;
  if (timers_.empty() || (*timers_.begin())->due > now() + kNever) {
    return;
  }
  Random& random = world().random();
  const Time late = microseconds(random.oneIn(50) ? random.between(0, 40 * kLongestLatenessUs)
                                                  : random.between(0, kLongestLatenessUs));
  const Time when = std::max(process_.when((*timers_.begin())->due), world().now()) + late;
  if (when >= timersAt_) {
    return;
  }
  timersAt_ = when;
  world().at(when, [this, when] {
    if (timersAt_ == when) {
      process_.enter(*this, [this] { serveTimers(); });
    }
  });
}

void SimEnv::serveTimers() {
  timersAt_ = Time::max();
  if (!stopping_ && !timers_.empty() && (*timers_.begin())->due <= now()) {
    const TimerPtr timer = *timers_.begin();
    disarm(timer);
    timer->onExpiry();
  }
  scheduleTimers();
}

}  // namespace rlock::sim
