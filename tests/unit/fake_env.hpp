// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>

#include <memory>
#include <stdexcept>

namespace rlock::detail {

/// The system's clock, timers that never expire, and nothing else: for what is tested without a
/// loop.
class FakeEnv : public Env {
 public:
  [[nodiscard]] Clock::time_point now() const noexcept override { return Clock::now(); }
  [[nodiscard]] std::unique_ptr<Timer> makeTimer(UniqueFunction<void()> /*onExpiry*/) override {
    return std::make_unique<StoppedTimer>();
  }
  void post(UniqueFunction<void()> /*function*/) override {
    throw std::logic_error("there is no loop");
  }
  [[nodiscard]] std::unique_ptr<ReadyTask> makeTask(UniqueFunction<void()> /*function*/) override {
    throw std::logic_error("there is no loop");
  }
  [[nodiscard]] bool onLoopThread() const noexcept override { return false; }
  void runElsewhere(UniqueFunction<void()> /*function*/) override {
    throw std::logic_error("there are no other threads");
  }
  void sleep(const std::atomic<std::uint32_t>& /*word*/,
             std::uint32_t /*expected*/,
             Clock::time_point /*deadline*/) noexcept override {}
  void wakeOne(const std::atomic<std::uint32_t>* /*word*/) noexcept override {}
  void stop(Clock::time_point /*deadline*/) noexcept override {}
  void keepToTheEnd(std::shared_ptr<const void> client) noexcept override { kept = client; }
  void abandonInChild() noexcept override {}
  [[nodiscard]] bool abandoned() const noexcept override { return false; }

  /// The client that was to be kept until the loop has ended.
  std::weak_ptr<const void> kept;

 private:
  class StoppedTimer final : public Timer {
   public:
    void armAt(Clock::time_point /*due*/) noexcept override { armed_ = true; }
    void disarm() noexcept override { armed_ = false; }
    [[nodiscard]] bool armed() const noexcept override { return armed_; }

   private:
    bool armed_ = false;
  };
};

}  // namespace rlock::detail
