// SPDX-License-Identifier: Apache-2.0
#include "net/loop_env.hpp"

#include "base/detached_thread.hpp"
#include "base/futex.hpp"
#include <rlock/detail/base/block_cache.hpp>

#include <utility>

namespace rlock::detail::net {

namespace {

class LoopTimer final : public detail::Timer, public FromBlockCache<LoopTimer> {
 public:
  LoopTimer(Loop& loop, UniqueFunction<void()> onExpiry) : timer_(loop, std::move(onExpiry)) {}

  void armAt(Clock::time_point due) noexcept override { timer_.armAt(due); }
  void disarm() noexcept override { timer_.disarm(); }
  [[nodiscard]] bool armed() const noexcept override { return timer_.armed(); }

 private:
  net::Timer timer_;
};

class LoopReadyTask final : public ReadyTask {
 public:
  LoopReadyTask(Loop& loop, UniqueFunction<void()> function) : task_(loop, std::move(function)) {}

  void post(std::shared_ptr<const void> owner) noexcept override { task_.post(std::move(owner)); }

 private:
  LoopTask task_;
};

}  // namespace

std::unique_ptr<detail::Timer> LoopEnv::makeTimer(UniqueFunction<void()> onExpiry) {
  return std::make_unique<LoopTimer>(*loop_, std::move(onExpiry));
}

std::unique_ptr<ReadyTask> LoopEnv::makeTask(UniqueFunction<void()> function) {
  return std::make_unique<LoopReadyTask>(*loop_, std::move(function));
}

void LoopEnv::runElsewhere(UniqueFunction<void()> function) {
  startDetached(std::move(function));
}

void LoopEnv::sleep(const std::atomic<std::uint32_t>& word,
                    std::uint32_t expected,
                    Clock::time_point deadline) noexcept {
  futexWait(word, expected, deadline);
}

void LoopEnv::wakeOne(const std::atomic<std::uint32_t>* word) noexcept {
  futexWakeOne(word);
}

}  // namespace rlock::detail::net
