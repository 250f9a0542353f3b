// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "unit/manual_env.hpp"
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/net/transport.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// For who finds nobody at a gate.
class NoGateWaiter final : public GateWaiter {
 public:
  void gateOpened() noexcept override {}
  void gateClosed() noexcept override {}
  void gateShut() noexcept override {}
  void gateDropRef() noexcept override {}
};

/// A connection that never comes about.
class NoCommands : public net::CommandTransport {
 public:
  void open() override {}
  void close() noexcept override {}
  bool submit(net::Request& /*request*/,
              std::span<const std::string_view> /*argv*/,
              Mode /*mode*/) override {
    return false;
  }
  Awaited await(net::Request& /*request*/, Env::Clock::time_point /*deadline*/) override {
    return Awaited::timedOut;
  }
  void distrust() noexcept override {}
  void abandon(Env::Clock::time_point /*since*/,
               Errc /*errc*/,
               const char* /*what*/) noexcept override {}
  [[nodiscard]] bool up() const noexcept override { return false; }
  [[nodiscard]] Totals totals() const noexcept override { return {}; }
};
class NoSubscriptions final : public net::SubscriptionTransport {
 public:
  void subscribe(std::string /*channel*/) override {}
  void unsubscribe(const std::string& /*channel*/) override {}
  void close() noexcept override {}
};

/// The engine of a client, on a clock and a loop of the test's, without a server: what one part
/// books, the others find.
class EngineFixture : public testing::Test {
 protected:
  explicit EngineFixture(
      std::shared_ptr<net::CommandTransport> commands = std::make_shared<NoCommands>())
      : commands_(std::move(commands)) {}
  ~EngineFixture() override {
    engine_->disconnect();
    // What is posted keeps the engine, which keeps the loop.
    env_->dropPosted();
  }

  std::function<void()> onLog_;  // called with each line
  const std::shared_ptr<net::CommandTransport> commands_;
  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  const std::shared_ptr<LockEngine> engine_ = std::make_shared<LockEngine>(
      "client",
      Options::fromUri("redis://host"),
      std::make_shared<const Logger>(
          [this](LogLevel, std::string_view) {
            if (onLog_) {
              onLog_();
            }
          },
          LogLevel::info),
      env_,
      net::Transports{[this](net::LinkEvents&) { return commands_; },
                      [](net::PubSubEvents&) { return std::make_unique<NoSubscriptions>(); }});
  const std::shared_ptr<const LockScripts> scripts_ = std::make_shared<const LockScripts>("orders");
};

}  // namespace rlock::detail
