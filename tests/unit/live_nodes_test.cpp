// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/executor/live_nodes.hpp>

#include <gtest/gtest.h>

#include <optional>

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

TEST(LiveNodes, ACompleteServerHasNoShortcomings) {
  EXPECT_TRUE(shortcomings(good(), true).empty());
  net::ServerSession silent = good();
  silent.found = {};
  EXPECT_TRUE(shortcomings(silent, true).empty()) << "what is not known is not missing";
}

TEST(LiveNodes, WhatKeepsAClientFromKillingIsOneShortcoming) {
  net::ServerSession session = good();
  session.canKill = false;
  session.runId.clear();
  ASSERT_EQ(shortcomings(session, true).size(), 1U);
  EXPECT_NE(shortcomings(session, true)[0].find("CLIENT KILL"), std::string_view::npos);
  EXPECT_TRUE(shortcomings(session, false).empty());
  session.canKill = true;
  ASSERT_EQ(shortcomings(session, true).size(), 1U);
  EXPECT_NE(shortcomings(session, true)[0].find("CLIENT INFO"), std::string_view::npos);
}

TEST(LiveNodes, AServerWithoutScriptsIsOfNoUse) {
  net::ServerSession session = good();
  session.found.scripts = false;
  ASSERT_EQ(shortcomings(session, false).size(), 1U);
  EXPECT_NE(shortcomings(session, false)[0].find("EVALSHA"), std::string_view::npos);
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
