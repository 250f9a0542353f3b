// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "unit/manual_env.hpp"
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/engine/hold_keeper.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
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

/// A log that nobody reads.
[[nodiscard]] inline std::shared_ptr<const Logger> silentLog() {
  return std::make_shared<const Logger>([](LogLevel /*level*/, std::string_view /*text*/) {},
                                        LogLevel::error);
}

/// The connections of a client that has no server.
[[nodiscard]] inline net::Transports noServer() {
  return {[](net::LinkEvents&) { return std::make_shared<NoCommands>(); },
          [](net::PubSubEvents&) { return std::make_unique<NoSubscriptions>(); }};
}
/// The same with a connection for subscriptions.
/// @param subscriptions  makes a std::unique_ptr to it
template <class Make>
[[nodiscard]] net::Transports subscriptionsOnly(Make subscriptions) {
  net::Transports transports = noServer();
  transports.subscriptions = [make = std::move(subscriptions)](net::PubSubEvents& /*events*/) {
    return make();
  };
  return transports;
}

/// The engine of the client "client".
[[nodiscard]] inline std::shared_ptr<LockEngine> makeEngine(
    std::shared_ptr<Env> env,
    const net::Transports& transports,
    const Options& options = Options::fromUri("redis://host"),
    std::shared_ptr<const Logger> log = silentLog()) {
  return std::make_shared<LockEngine>(
      "client", options, std::move(log), std::move(env), transports);
}

/// An engine on a clock and a loop of its own, which ends with it.
struct LoneEngine {
  explicit LoneEngine(const net::Transports& transports,
                      std::shared_ptr<const Logger> log = silentLog())
      : engine(makeEngine(env, transports, Options::fromUri("redis://host"), std::move(log))) {}
  LoneEngine(const LoneEngine&) = delete;
  LoneEngine& operator=(const LoneEngine&) = delete;
  ~LoneEngine() { end(); }

  /// Also before its time.
  void end() const {
    engine->disconnect();
    // The functions that are posted keep the engine, which keeps the loop.
    env->dropPosted();
  }

  const std::shared_ptr<ManualEnv> env = std::make_shared<ManualEnv>();
  const std::shared_ptr<LockEngine> engine;
};

/// The terms of a grant of half a minute that is sent and booked now.
[[nodiscard]] inline HoldKeeper::GrantTerms grantedNow(const LockEngine& engine) {
  HoldKeeper::GrantTerms terms{};
  terms.sentAt = engine.now();
  terms.now = engine.now();
  terms.lease = std::chrono::seconds(30);
  terms.wantsHandle = true;
  return terms;
}

/// An owner has so many holds of a lock and takes one more, where nothing else is under way.
inline IntrusivePtr<HoldHandle> takeHold(LockEngine& engine,
                                         const std::shared_ptr<const LockScripts>& scripts,
                                         std::uint64_t owner,
                                         const HoldKeeper::GrantTerms& terms,
                                         int before = 0) {
  NoGateWaiter nobody;
  const HoldGates::Gate gate = engine.gates().enter(scripts, OwnerId{owner}, nobody);
  const auto handle = engine.holds().granted(*gate.hold, before, before + 1, terms).handle;
  engine.gates().leave(*gate.hold);
  return handle;
}

/// The engine of a client, on a clock and a loop of the test's, without a server: what one part
/// books, the others find.
class EngineFixture : public testing::Test {
 protected:
  explicit EngineFixture(
      std::shared_ptr<net::CommandTransport> commands = std::make_shared<NoCommands>())
      : commands_(std::move(commands)) {}
  ~EngineFixture() override {
    engine_->disconnect();
    // A posted function keeps the engine, which keeps the loop.
    env_->dropPosted();
  }

  std::function<void()> onLog_;  // called with each line
  const std::shared_ptr<net::CommandTransport> commands_;
  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  const std::shared_ptr<LockEngine> engine_ = makeEngine(
      env_,
      net::Transports{[this](net::LinkEvents&) { return commands_; },
                      [](net::PubSubEvents&) { return std::make_unique<NoSubscriptions>(); }},
      Options::fromUri("redis://host"),
      std::make_shared<const Logger>(
          [this](LogLevel, std::string_view) {
            if (onLog_) {
              onLog_();
            }
          },
          LogLevel::info));
  const std::shared_ptr<const LockScripts> scripts_ = std::make_shared<const LockScripts>("orders");
};

}  // namespace rlock::detail
