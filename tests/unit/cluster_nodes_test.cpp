// SPDX-License-Identifier: Apache-2.0
#include "unit/idle_nodes.hpp"
#include <rlock/detail/executor/cluster_nodes.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace rlock::detail {
namespace cluster_nodes_test {
namespace {

class ClusterNodesTest : public ::testing::Test, protected IdleNodes {
 protected:
  using Ports = std::vector<std::uint16_t>;

  static Ports ports(const std::vector<Endpoint>& endpoints) {
    Ports result;
    for (const Endpoint& endpoint : endpoints) {
      result.push_back(endpoint.port);
    }
    return result;
  }
};

TEST_F(ClusterNodesTest, ANodeIsMadeWhenItIsNeededFirst) {
  static_cast<void>(nodes_.adopt(map(1, 2)));
  EXPECT_EQ(made_, 0);
  EXPECT_EQ(nodes_.table().nodeOf(0), nullptr);
  const auto node = nodes_.ofSlot(0);
  ASSERT_NE(node, nullptr);
  EXPECT_TRUE(link(1).opened);
  EXPECT_EQ(nodes_.ofSlot(0), node);
  EXPECT_EQ(nodes_.at(address(1)), node) << "one for an address";
  EXPECT_EQ(nodes_.table().nodeOf(0), node) << "callers find it, too";
  EXPECT_EQ(nodes_.addressOf(*node), address(1));
  EXPECT_EQ(made_, 1);
}

TEST_F(ClusterNodesTest, ASlotMayHaveNobody) {
  EXPECT_EQ(nodes_.ofSlot(0), nullptr);
  static_cast<void>(nodes_.adopt(map(0, 2)));
  EXPECT_EQ(nodes_.ofSlot(0), nullptr);
  EXPECT_NE(nodes_.ofSlot(1), nullptr);
}

TEST_F(ClusterNodesTest, AMasterThatNoCallHasNeededIsNamed) {
  static_cast<void>(nodes_.adopt(map(1, 2)));
  EXPECT_EQ(ports(nodes_.unneeded()), (Ports{1, 2}));
  static_cast<void>(nodes_.ofSlot(0));
  EXPECT_EQ(ports(nodes_.unneeded()), Ports{2});
}

TEST_F(ClusterNodesTest, ANodeThatTheMapHasNoMoreIsDropped) {
  static_cast<void>(nodes_.adopt(map(1, 2)));
  auto node = nodes_.ofSlot(0);
  const std::weak_ptr<Node> kept = node;
  auto adopted = nodes_.adopt(map(2, 2));
  EXPECT_TRUE(adopted.changed);
  ASSERT_EQ(adopted.dropped.size(), 1U);
  EXPECT_EQ(adopted.dropped[0], node);
  EXPECT_EQ(nodes_.addressOf(*node), Endpoint());
  EXPECT_TRUE(nodes_.members().empty());
  adopted.dropped.clear();
  static_cast<void>(nodes_.adopt(map(2, 2)));
  EXPECT_FALSE(kept.expired()) << "a call may refer to it";
  node.reset();
  EXPECT_FALSE(kept.expired()) << "it is not destroyed by whoever comes last";
  static_cast<void>(nodes_.adopt(map(2, 2)));
  EXPECT_TRUE(kept.expired());
}

TEST_F(ClusterNodesTest, WhatADroppedNodeHasDoneStaysCounted) {
  static_cast<void>(nodes_.adopt(map(1, 2)));
  static_cast<void>(nodes_.ofSlot(0));
  link(1).sums = {.commands = 7, .connections = 3};
  link(1).isUp = true;
  EXPECT_EQ(nodes_.table().counters().commands, 7U);
  EXPECT_EQ(nodes_.table().counters().reconnects, 2U);
  static_cast<void>(nodes_.adopt(map(2, 2)));
  EXPECT_EQ(nodes_.table().counters().commands, 7U);
  EXPECT_EQ(nodes_.table().counters().reconnects, 2U) << "it was left, and not lost";
  static_cast<void>(nodes_.ofSlot(0));
  link(2).sums = {.commands = 1, .connections = 1};
  static_cast<void>(nodes_.adopt(map(3, 3)));
  EXPECT_EQ(nodes_.table().counters().commands, 8U);
  EXPECT_EQ(nodes_.table().counters().reconnects, 3U) << "it was lost, and another one made";
}

TEST_F(ClusterNodesTest, WhoTakesSlotsFromAMasterThatIsGoneIsASuccessor) {
  static_cast<void>(nodes_.adopt(map(1, 2)));
  EXPECT_EQ(ports(nodes_.adopt(map(3, 2)).successors), (Ports{3}));
  const auto same = nodes_.adopt(map(3, 2));
  EXPECT_FALSE(same.changed);
  EXPECT_TRUE(same.successors.empty());
}

TEST_F(ClusterNodesTest, WhoTakesThemFromOneThatLivesIsNone) {
  static_cast<void>(nodes_.adopt(map(1, 2)));
  static_cast<void>(nodes_.ofSlot(1));
  link(2).isUp = true;
  SlotMap moved = map(2, 1);
  EXPECT_EQ(ports(nodes_.adopt(moved).successors), Ports());
  link(2).isUp = false;
  EXPECT_EQ(ports(nodes_.adopt(map(1, 2)).successors), (Ports{1}))
      << "it cannot be reached, but its slot has gone";
}

TEST_F(ClusterNodesTest, ASuccessorIsExpectedUntilItIsConnected) {
  nodes_.expect({address(3), address(3)});
  const auto node = nodes_.at(address(3));
  EXPECT_EQ(made_, 1);
  EXPECT_TRUE(nodes_.expects(*node));
  nodes_.arrived(*node);
  EXPECT_FALSE(nodes_.expects(*node)) << "once";
  link(3).isUp = true;
  nodes_.expect({address(3)});
  EXPECT_FALSE(nodes_.expects(*node)) << "it had a connection already";
}

TEST_F(ClusterNodesTest, ASuccessorThatIsDroppedIsExpectedNoMore) {
  static_cast<void>(nodes_.adopt(map(3, 2)));
  nodes_.expect({address(3)});
  const auto node = nodes_.at(address(3));
  static_cast<void>(nodes_.adopt(map(2, 2)));
  EXPECT_FALSE(nodes_.expects(*node));
}

TEST_F(ClusterNodesTest, OnlyWhoIsConnectedCanBeAskedForTheMap) {
  EXPECT_TRUE(nodes_.allUp());
  static_cast<void>(nodes_.at(address(1)));
  static_cast<void>(nodes_.at(address(2)));
  link(2).isUp = true;
  EXPECT_FALSE(nodes_.allUp());
  const auto witnesses = nodes_.witnesses();
  ASSERT_EQ(witnesses.size(), 1U);
  EXPECT_EQ(witnesses[0].at, address(2));
  link(1).isUp = true;
  EXPECT_TRUE(nodes_.allUp());
}

TEST_F(ClusterNodesTest, ARedirectionHoldsUntilTheMapIsRead) {
  static_cast<void>(nodes_.adopt(map(1, 2)));
  nodes_.assign(0, address(3));
  EXPECT_EQ(nodes_.addressOf(*nodes_.ofSlot(0)), address(3));
  ASSERT_NE(nodes_.map().owner(0), nullptr);
  EXPECT_EQ(*nodes_.map().owner(0), address(1)) << "what was read stays";
  static_cast<void>(nodes_.adopt(map(1, 2)));
  EXPECT_EQ(nodes_.addressOf(*nodes_.ofSlot(0)), address(1));
}

}  // namespace
}  // namespace cluster_nodes_test
}  // namespace rlock::detail
