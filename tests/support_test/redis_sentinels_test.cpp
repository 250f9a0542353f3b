// SPDX-License-Identifier: Apache-2.0
#include "support/redis_sentinels.hpp"

#include "support/eventually.hpp"
#include "support/raw_redis.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <stdexcept>

namespace rlock::test {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kEnough{30'000};

class RedisSentinelsTest : public ::testing::Test {
 protected:
  void SetUp() override { RLOCK_REQUIRE_REDIS_SERVER(); }
};

TEST_F(RedisSentinelsTest, MovesTheMasterWithItsData) {
  RedisSentinels world;
  EXPECT_EQ(world.awaitMaster(), 0U);
  RawRedis before(world.node(0));
  before.set("key", "value");
  EXPECT_EQ(before.command({"WAIT", "1", "10000"}).integer(), 1);
  EXPECT_EQ(world.failover(), 1U);
  EXPECT_EQ(RawRedis(world.node(1)).get("key"), "value");
  world.awaitSettled();
  EXPECT_EQ(RawRedis(world.node(0)).command({"ROLE"}).array().at(0).string(), "slave");
}

TEST_F(RedisSentinelsTest, KnowsNodesByTheirProxies) {
  RedisSentinelsOptions options;
  options.proxied = true;
  options.replicas = 2;
  options.password = "s3cret";
  options.sentinelPassword = "w4tch";
  RedisSentinels world(options);
  world.proxy(0).blackHole();
  const std::size_t master = world.awaitMaster(0);
  EXPECT_NE(master, 0U);
  // The old one lives, and holds itself for the master.
  EXPECT_EQ(RawRedis(world.node(0)).command({"ROLE"}).array().at(0).string(), "master");
  world.proxy(0).endBlackHole();
  // Sentinels close the connections of a node that they demote.
  EXPECT_EVENTUALLY(kEnough, [&] {
    try {
      return RawRedis(world.node(0)).command({"ROLE"}).array().at(0).string() == "slave";
    } catch (const std::runtime_error&) {
      return false;
    }
  }());
}

TEST_F(RedisSentinelsTest, ASentinelComesBackWithWhatItKnew) {
  RedisSentinels world;
  world.sentinel(0).kill();
  EXPECT_FALSE(world.sentinel(0).running());
  world.sentinel(0).start();
  world.awaitSettled();
}

}  // namespace
}  // namespace rlock::test
