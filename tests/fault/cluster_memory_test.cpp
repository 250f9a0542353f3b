// SPDX-License-Identifier: Apache-2.0

// The map of a cluster and its nodes, while an allocation fails.

#include "fault/each_allocation.hpp"
#include "unit/idle_nodes.hpp"
#include "unit/pending_commands.hpp"
#include <rlock/detail/executor/map_source.hpp>
#include <rlock/detail/executor/node_table.hpp>
#include <rlock/detail/net/hash_slot.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace cluster_memory_test {
namespace {

using namespace std::chrono_literals;
using test::eachAllocation;
using test::failing;

/// Whether the k-th allocation of this thread happened, and failed, in `act`, which throws then.
template <class F>
bool throwing(long k, F&& act) {
  return failing(k, [&] {
    try {
      act();
    } catch (const std::bad_alloc&) {
      return;
    }
  });
}

Endpoint address(std::uint16_t port) {
  Endpoint result;
  // Too long for a string that needs no memory.
  result.host = "a-node-of-the-cluster.example.org";
  result.port = port;
  return result;
}

/// All that callers' threads ask of a slot that has an owner and no node yet.
void expectNoNode(const NodeTable& table, const Endpoint& owner) {
  const NodeTable::Found found = table.find(net::hashSlot("orders"));
  EXPECT_EQ(found.node, nullptr);
  ASSERT_TRUE(found.owner);
  EXPECT_EQ(*found.owner, owner);
  EXPECT_EQ(table.nodeOf(net::hashSlot("orders")), nullptr);
  EXPECT_LE(table.placeOf("orders").node, 2U);
}

TEST(NodeTableMemory, ARedirectionToAnotherMasterHoldsWhollyOrNotAtAll) {
  const std::uint16_t slot = net::hashSlot("orders");
  eachAllocation([&](long k) {
    SlotMap map;
    map.assign(slot, address(1));
    NodeTable table;
    table.replace(map, {}, {});
    const bool failed = throwing(k, [&] { table.assign(slot, address(2), {}); });
    expectNoNode(table, address(failed ? 1 : 2));
    return failed;
  });
}

TEST(NodeTableMemory, AnotherMapIsThereWhollyOrNotAtAll) {
  const std::uint16_t slot = net::hashSlot("orders");
  eachAllocation([&](long k) {
    SlotMap before;
    before.assign(slot, address(1));
    SlotMap after;
    after.assign(std::size_t{0}, address(1));
    after.assign(slot, address(2));
    NodeTable table;
    table.replace(before, {}, {});
    const bool failed = throwing(k, [&] { table.replace(std::move(after), {}, {}); });
    expectNoNode(table, address(failed ? 1 : 2));
    return failed;
  });
}

class World : private IdleNodes {
 public:
  World() {
    static_cast<void>(nodes_.adopt(map(1, 2)));
    for (std::uint16_t slot = 0; slot < 2; ++slot) {
      before_.push_back(nodes_.ofSlot(slot));
    }
  }
  /// The first of the two masters is replaced. Returns whether the k-th allocation failed.
  bool adopt(long k) {
    return throwing(k, [&] { take(nodes_.adopt(map(3, 2)).dropped); });
  }
  void adopt() { take(nodes_.adopt(map(3, 2)).dropped); }

  void expectBefore() const {
    ASSERT_EQ(nodes_.members().size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(nodes_.members()[i].node, before_[i]);
      EXPECT_EQ(nodes_.table().nodeOf(static_cast<std::uint16_t>(i)), before_[i]);
    }
    EXPECT_TRUE(dropped_.empty());
  }
  void expectAfter() const {
    ASSERT_EQ(nodes_.members().size(), 1U);
    EXPECT_EQ(nodes_.members()[0].node, before_[1]);
    EXPECT_EQ(nodes_.table().nodeOf(0), nullptr);
    EXPECT_EQ(nodes_.table().nodeOf(1), before_[1]);
    ASSERT_EQ(dropped_.size(), 1U) << "else nobody closes it";
    EXPECT_EQ(dropped_[0], before_[0]);
  }

 private:
  void take(std::vector<std::shared_ptr<Node>> dropped) { dropped_ = std::move(dropped); }

  std::vector<std::shared_ptr<Node>> before_;
  std::vector<std::shared_ptr<Node>> dropped_;
};

TEST(ClusterNodesMemory, AMapIsAdoptedWhollyOrNotAtAll) {
  eachAllocation([](long k) {
    World world;
    const bool failed = world.adopt(k);
    if (failed) {
      world.expectBefore();
      world.adopt();
    }
    world.expectAfter();
    return failed;
  });
}

/// One node, which does not answer.
class Asking : private MapEvents, private net::LinkEvents {
 public:
  Asking() { node_->connect(*this); }
  ~Asking() override {
    source_.close();
    node_->drop();
  }

  void want() { source_.want(); }
  void advance(std::chrono::milliseconds by) { env_->advance(by); }
  [[nodiscard]] std::size_t asked() const { return node_->sent(); }

 private:
  [[nodiscard]] std::vector<MapWitness> witnesses() const override {
    return {{address(1), node_.get()}};
  }
  [[nodiscard]] std::vector<Endpoint> unneeded() const override { return {}; }
  [[nodiscard]] bool unsettled() const override { return false; }
  bool mapRead(SlotMap /*map*/, bool /*sharded*/) override { return true; }
  void mapFailed(const Error& /*error*/, bool /*everywhere*/) override {}
  void onUp(const std::shared_ptr<const net::ServerSession>& /*session*/) override {}
  void onDown(const Error& /*error*/) override {}

  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  const std::shared_ptr<PendingCommands> node_ = std::make_shared<PendingCommands>(*env_);
  // The configured address is that of the node, so that there is nobody else to ask.
  MapSource source_{env_,
                    net::Transports{},
                    Options::fromUri("redis://a-node-of-the-cluster.example.org:1"),
                    *this};
};

TEST(MapSourceMemory, WhatIsNotAnsweredIsAskedAgain) {
  eachAllocation([](long k) {
    Asking asking;
    asking.want();
    const std::size_t before = asking.asked();
    const bool failed = throwing(k, [&] { asking.advance(1100ms); });
    for (int i = 0; i < 4; ++i) {
      asking.advance(500ms);
    }
    EXPECT_GE(asking.asked(), before + 3);
    return failed;
  });
}

TEST(MapSourceMemory, AQuestionThatCouldNotBePutIsPutAgain) {
  eachAllocation([](long k) {
    Asking asking;
    const bool failed = throwing(k, [&] { asking.want(); });
    asking.advance(900ms);
    EXPECT_GE(asking.asked(), 3U);
    return failed;
  });
}

}  // namespace
}  // namespace cluster_memory_test
}  // namespace rlock::detail
