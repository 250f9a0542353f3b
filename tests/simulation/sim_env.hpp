// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_world.hpp"
#include <rlock/detail/base/env.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace rlock::sim {

class SimEnv;

/// A process: a clock, and whether it runs. Stopped, its clock goes on and everything that is to
/// happen in it waits, in its order; dead, nothing happens in it any more.
class SimProcess {
 public:
  using Action = World::Action;

  SimProcess(World& world, int index, DriftingClock clock)
      : world_(world), index_(index), clock_(clock) {}
  SimProcess(const SimProcess&) = delete;
  SimProcess& operator=(const SimProcess&) = delete;

  [[nodiscard]] World& world() const noexcept { return world_; }
  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] TimePoint now() const noexcept { return TimePoint(clock_.read(world_.now())); }
  [[nodiscard]] Time when(TimePoint reading) const noexcept {
    return clock_.when(reading.time_since_epoch());
  }

  void pause(Time length);
  [[nodiscard]] bool paused() const noexcept { return paused_; }
  /// When it last began to run again.
  [[nodiscard]] Time awakeSince() const noexcept { return awakeSince_; }
  /// Nothing of it runs from here on.
  void kill() noexcept { dead_ = true; }
  /// For the end of a simulation, when what is left of a killed process is put away.
  void exhume(const std::vector<SimEnv*>& loops);
  [[nodiscard]] bool dead() const noexcept { return dead_; }

  /// Lets something happen in the process, on the loop thread of `env`.
  void enter(SimEnv& env, Action action);

 private:
  void resume();

  World& world_;
  const int index_;
  const DriftingClock clock_;
  bool paused_ = false;
  bool dead_ = false;
  Time pausedUntil_{0};
  Time awakeSince_{0};
  std::deque<std::pair<SimEnv*, Action>> backlog_;
};

/// The world of one simulated client: virtual time by the clock of its process, and a loop that is
/// run by the simulation. There is one thread, so whatever would block ends the program.
///
/// Posted functions run in their order, each at a later time, so that other clients come in
/// between.
class SimEnv final : public detail::Env {
 public:
  explicit SimEnv(SimProcess& process) : process_(process) {}
  ~SimEnv() override;

  [[nodiscard]] SimProcess& process() const noexcept { return process_; }
  [[nodiscard]] World& world() const noexcept { return process_.world(); }

  [[nodiscard]] Clock::time_point now() const noexcept override { return process_.now(); }
  [[nodiscard]] std::unique_ptr<detail::Timer> makeTimer(
      detail::UniqueFunction<void()> onExpiry) override;
  void post(detail::UniqueFunction<void()> function) override;
  [[nodiscard]] std::unique_ptr<detail::ReadyTask> makeTask(
      detail::UniqueFunction<void()> function) override;
  [[nodiscard]] bool onLoopThread() const noexcept override { return running_ == this; }
  void runElsewhere(detail::UniqueFunction<void()> function) override;
  void sleep(const std::atomic<std::uint32_t>& word,
             std::uint32_t expected,
             Clock::time_point deadline) noexcept override;
  void wakeOne(const std::atomic<std::uint32_t>* word) noexcept override;
  void stop(Clock::time_point deadline) noexcept override;
  void abandonInChild() noexcept override {}
  [[nodiscard]] bool abandoned() const noexcept override { return false; }

  /// The loop was stopped and has run what was queued.
  [[nodiscard]] bool ended() const noexcept { return stopping_ && ready_.empty(); }
  /// Runs a function when the present pass of the loop is over. Within a pass only.
  void atPassEnd(detail::UniqueFunction<void()> function);

 private:
  friend class SimProcess;
  class Task;
  class TimerHandle;
  struct TimerState {
    detail::UniqueFunction<void()> onExpiry;
    TimePoint due{};
    std::uint64_t order = 0;
    bool armed = false;
  };
  using TimerPtr = std::shared_ptr<TimerState>;
  struct Earlier {
    bool operator()(const TimerPtr& a, const TimerPtr& b) const noexcept {
      return a->due != b->due ? a->due < b->due : a->order < b->order;
    }
  };

  /// Timers and functions that were due while the process was dead are due now.
  void restart();
  /// One pass of the loop.
  void run(SimProcess::Action& action);
  void schedulePump();
  void pump();
  void arm(const TimerPtr& timer, TimePoint due);
  void disarm(const TimerPtr& timer);
  void scheduleTimers();
  void serveTimers();

  static SimEnv* running_;

  SimProcess& process_;
  std::deque<detail::UniqueFunction<void()>> ready_;
  bool pumping_ = false;
  bool stopping_ = false;
  std::vector<detail::UniqueFunction<void()>> passEnd_;
  std::set<TimerPtr, Earlier> timers_;
  std::uint64_t armings_ = 0;
  Time timersAt_ = Time::max();
};

}  // namespace rlock::sim
