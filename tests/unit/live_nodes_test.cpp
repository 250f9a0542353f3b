// SPDX-License-Identifier: Apache-2.0
#include "unit/idle_nodes.hpp"
#include <rlock/detail/executor/live_nodes.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {
namespace live_nodes_test {
namespace {

net::ServerSession good() {
  net::ServerSession session;
  session.clientId = 7;
  session.runId = "feed";
  session.canKill = true;
  session.serverVersion = "7.0.15";
  session.role = "slave";
  session.found.clientKill = true;
  session.found.scripts = true;
  return session;
}

constexpr Wants kWants{};
constexpr Wants kLess{.kills = false};
constexpr Wants kAll{.kills = true, .wait = true, .waitAof = true};

class LiveNodesTest : public ::testing::Test, protected IdleNodes {
 protected:
  Node& node(std::uint16_t port) { return *nodes_.at(address(port)); }

  std::vector<std::string> warnings_;
  std::vector<bool> told_;
  LiveNodes live_{std::make_shared<const Logger>(
                      [this](LogLevel, std::string_view text) { warnings_.emplace_back(text); },
                      LogLevel::warning),
                  kWants,
                  [this](bool connected) { told_.push_back(connected); }};
};

TEST_F(LiveNodesTest, TheClientIsConnectedWhileOneNodeIs) {
  EXPECT_FALSE(live_.connected());
  live_.up(node(1), good());
  live_.up(node(2), good());
  live_.down(node(1));
  EXPECT_TRUE(live_.connected());
  live_.down(node(1));
  EXPECT_EQ(told_, (std::vector<bool>{true})) << "that was no change";
  live_.down(node(2));
  EXPECT_FALSE(live_.connected());
  EXPECT_EQ(told_, (std::vector<bool>{true, false}));
}

TEST_F(LiveNodesTest, AShortcomingIsToldOnceHoweverOftenItIsFound) {
  net::ServerSession session = good();
  session.canKill = false;
  live_.up(node(1), session);
  live_.down(node(1));
  live_.up(node(1), session);
  live_.up(node(2), session);
  EXPECT_EQ(warnings_.size(), 1U);
  session.found.scripts = false;
  live_.up(node(2), session);
  EXPECT_EQ(warnings_.size(), 2U) << "another one";
}

TEST(LiveNodes, ACompleteServerHasNoShortcomings) {
  EXPECT_TRUE(shortcomings(good(), kWants).empty());
  net::ServerSession silent = good();
  silent.found = {};
  EXPECT_TRUE(shortcomings(silent, kAll).empty()) << "what is not known is not missing";
}

TEST(LiveNodes, WhatKeepsAClientFromKillingIsOneShortcoming) {
  net::ServerSession session = good();
  session.canKill = false;
  session.runId.clear();
  ASSERT_EQ(shortcomings(session, kWants).size(), 1U);
  EXPECT_NE(shortcomings(session, kWants)[0].find("CLIENT KILL"), std::string_view::npos);
  EXPECT_TRUE(shortcomings(session, kLess).empty());
  session.canKill = true;
  ASSERT_EQ(shortcomings(session, kWants).size(), 1U);
  EXPECT_NE(shortcomings(session, kWants)[0].find("CLIENT INFO"), std::string_view::npos);
}

TEST(LiveNodes, AServerWithoutScriptsIsOfNoUse) {
  net::ServerSession session = good();
  session.found.scripts = false;
  ASSERT_EQ(shortcomings(session, kLess).size(), 1U);
  EXPECT_NE(shortcomings(session, kLess)[0].find("EVALSHA"), std::string_view::npos);
}

TEST(LiveNodes, WhatThePolicyNeedsAndTheServerLacksIsAShortcoming) {
  net::ServerSession session = good();
  session.found.wait = false;
  session.found.waitAof = false;
  const auto found = [&](const SyncPolicy& policy) {
    Options options;
    options.sync = policy;
    return shortcomings(session, wantsOf(options));
  };
  EXPECT_TRUE(found(SyncPolicy::none()).empty());
  for (const SyncPolicy& policy : {SyncPolicy::replicas(1), SyncPolicy::majority()}) {
    ASSERT_EQ(found(policy).size(), 1U) << toString(policy);
    EXPECT_NE(found(policy)[0].find("WAIT,"), std::string_view::npos);
  }
  for (const SyncPolicy& policy : {SyncPolicy::localAof(), SyncPolicy::remoteAof()}) {
    ASSERT_EQ(found(policy).size(), 1U) << toString(policy);
    EXPECT_NE(found(policy)[0].find("WAITAOF"), std::string_view::npos);
  }
  session.found.wait = true;
  EXPECT_TRUE(found(SyncPolicy::majority()).empty());
}

TEST(LiveNodes, TheApplicationSeesOneWordForARole) {
  const Capabilities told = capabilitiesOf(good());
  EXPECT_EQ(told.role, "replica");
  EXPECT_EQ(told.version, "7.0.15");
  EXPECT_EQ(told.clientKill, true);
  EXPECT_EQ(told.wait, std::nullopt);
}

}  // namespace
}  // namespace live_nodes_test
}  // namespace rlock::detail
