// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/loop.hpp"
#include <rlock/detail/base/env.hpp>

#include <memory>
#include <utility>

namespace rlock::detail::net {

/// The world of a client that runs on a Loop: the system's clock, the loop's timers, futexes.
///
/// **Thread safety:** as Env.
class LoopEnv final : public Env {
 public:
  explicit LoopEnv(std::shared_ptr<Loop> loop) : loop_(std::move(loop)) {}

  [[nodiscard]] Clock::time_point now() const noexcept override { return Clock::now(); }
  [[nodiscard]] std::unique_ptr<detail::Timer> makeTimer(UniqueFunction<void()> onExpiry) override;
  void post(UniqueFunction<void()> function) override { loop_->post(std::move(function)); }
  [[nodiscard]] std::unique_ptr<ReadyTask> makeTask(UniqueFunction<void()> function) override;
  [[nodiscard]] bool onLoopThread() const noexcept override { return loop_->onLoopThread(); }
  void runElsewhere(UniqueFunction<void()> function) override;
  void sleep(const std::atomic<std::uint32_t>& word,
             std::uint32_t expected,
             Clock::time_point deadline) noexcept override;
  void wakeOne(const std::atomic<std::uint32_t>* word) noexcept override;
  void stop(Clock::time_point deadline) noexcept override { loop_->stop(deadline); }
  void keepToTheEnd(std::shared_ptr<const void> client) noexcept override {
    loop_->keepToTheEnd(std::move(client));
  }
  void abandonInChild() noexcept override { loop_->abandonInChild(); }
  [[nodiscard]] bool abandoned() const noexcept override { return loop_->abandoned(); }

 private:
  const std::shared_ptr<Loop> loop_;
};

}  // namespace rlock::detail::net
