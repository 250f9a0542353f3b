// SPDX-License-Identifier: Apache-2.0
#include "support/raw_redis.hpp"

#include "support/eventually.hpp"
#include "support/free_port.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

namespace rlock::test {
namespace raw_redis_test {
namespace {

using std::chrono::milliseconds;
constexpr auto kPatience = milliseconds(10'000);

class RawRedisTest : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override {
    RLOCK_REQUIRE_REDIS_SERVER();
    if (!server_) {
      server_ = std::make_unique<RedisServer>();
    }
    redis_ = std::make_unique<RawRedis>(*server_);
    redis_->flushAll();
  }
  RawRedis& redis() { return *redis_; }
  static RedisServer& server() { return *server_; }

 private:
  static inline std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RawRedis> redis_;
};

TEST_F(RawRedisTest, ReturnsEveryKindOfReply) {
  EXPECT_EQ(redis().command({"SET", "s", "text"}).kind(), Value::Kind::status);
  EXPECT_EQ(redis().command({"GET", "s"}).string(), "text");
  EXPECT_TRUE(redis().command({"GET", "none"}).isNil());
  EXPECT_EQ(redis().command({"INCR", "n"}).integer(), 1);
  const Value error = redis().command({"INCR", "s"});
  EXPECT_TRUE(error.isError());
  EXPECT_NE(error.error().find("not an integer"), std::string::npos);
  const Value nested = redis().eval("return {1, 'a', {KEYS[1], ARGV[1]}, false}", {"k"}, {"v"});
  ASSERT_EQ(nested.array().size(), 4U);
  EXPECT_EQ(nested.array()[2].strings(), (std::vector<std::string>{"k", "v"}));
  EXPECT_TRUE(nested.array()[3].isNil());
  std::ostringstream shown;
  shown << nested;
  EXPECT_EQ(shown.str(), "(array) [(integer) 1, \"a\", (array) [\"k\", \"v\"], (nil)]");
}

TEST_F(RawRedisTest, WrongKindThrowsWithTheReply) {
  const Value value = redis().command({"PING"});
  EXPECT_EQ(value.string(), "PONG");
  try {
    (void)value.integer();
    FAIL() << "expected an exception";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("PONG"), std::string::npos) << error.what();
  }
  EXPECT_THROW((void)value.array(), std::runtime_error);
  EXPECT_THROW((void)value.error(), std::runtime_error);
  EXPECT_THROW(redis().run({"NOSUCHCOMMAND"}), std::runtime_error);
}

TEST_F(RawRedisTest, IsBinarySafe) {
  std::string key = "a b\r\n\"\\";
  for (int byte = 0; byte < 256; ++byte) {
    key += static_cast<char>(byte);
  }
  const std::string value(300'000, '\0');
  redis().set(key, value);
  EXPECT_EQ(redis().get(key), value);
  EXPECT_EQ(redis().keys(), std::set<std::string>{key});
  redis().run({"HSET", "h", key, value});
  EXPECT_EQ(redis().hgetall("h").at(key), value);
}

TEST_F(RawRedisTest, HelpersReadKeys) {
  EXPECT_FALSE(redis().exists("k"));
  EXPECT_EQ(redis().pttl("k"), -2);
  EXPECT_EQ(redis().type("k"), "none");
  EXPECT_EQ(redis().get("k"), std::nullopt);
  redis().set("k", "v");
  EXPECT_EQ(redis().pttl("k"), -1);
  redis().set("k", "v", milliseconds(60'000));
  EXPECT_GT(redis().pttl("k"), 50'000);
  EXPECT_TRUE(redis().exists("k"));
  redis().run({"HSET", "lock", "owner:1", "2", "owner:2", "1"});
  EXPECT_EQ(redis().hgetall("lock"),
            (std::map<std::string, std::string>{{"owner:1", "2"}, {"owner:2", "1"}}));
  EXPECT_EQ(redis().hget("lock", "owner:2"), "1");
  EXPECT_EQ(redis().hget("lock", "owner:3"), std::nullopt);
  EXPECT_TRUE(redis().hgetall("none").empty());
  EXPECT_THROW(redis().hgetall("k"), std::runtime_error);
  EXPECT_EQ(redis().type("lock"), "hash");
  EXPECT_EQ(redis().dbsize(), 2);
  EXPECT_EQ(redis().del("k"), 1);
  EXPECT_EQ(redis().del("k"), 0);
  EXPECT_GT(redis().serverTimeUs(), 1'600'000'000'000'000);
}

TEST_F(RawRedisTest, ScansAllKeys) {
  std::set<std::string> expected;
  for (int i = 0; i < 3'000; ++i) {
    const std::string key = "key:" + std::to_string(i);
    redis().send({"SET", key, "1"});
    expected.insert(key);
  }
  for (int i = 0; i < 3'000; ++i) {
    EXPECT_EQ(redis().receive().string(), "OK");
  }
  redis().set("other", "1");
  EXPECT_EQ(redis().keys("key:*"), expected);
  EXPECT_EQ(redis().keys().size(), 3'001U);
}

TEST_F(RawRedisTest, CountsCommands) {
  redis().resetStats();
  redis().get("a");
  redis().get("b");
  redis().eval("redis.call('HSET', KEYS[1], 'f', 1) return redis.call('GET', 'c')", {"h"});
  redis().clientId();
  const auto stats = redis().commandStats();
  EXPECT_EQ(stats.at("get"), 3);
  EXPECT_EQ(stats.at("hset"), 1);
  EXPECT_EQ(stats.at("eval"), 1);
  // Redis 6 does not count subcommands each for itself.
  EXPECT_EQ(stats.at(RedisServer::version().major >= 7 ? "client|id" : "client"), 1);
  EXPECT_EQ(redis().commandCalls("HSET"), 1);
  redis().resetStats();
  EXPECT_EQ(redis().commandCalls("get"), 0);
}

TEST_F(RawRedisTest, ListsAndKillsClients) {
  RawRedisOptions options;
  options.port = server().port();
  options.clientName = "victim";
  options.database = 5;
  RawRedis victim(options);
  bool found = false;
  for (const auto& client : redis().clientList()) {
    if (client.at("name") == "victim") {
      found = true;
      EXPECT_EQ(client.at("db"), "5");
      EXPECT_EQ(client.at("id"), std::to_string(victim.clientId()));
    }
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(redis().clientKillId(victim.clientId()), 1);
  EXPECT_THROW(victim.ping(), std::runtime_error);

  RawSubscriber subscriber(server());
  subscriber.subscribe("ch");
  EXPECT_EQ(redis().clientKillType("pubsub"), 1);
  EXPECT_EVENTUALLY(kPatience, !subscriber.error().empty());
  EXPECT_FALSE(subscriber.waitFor(1, kPatience));
  EXPECT_THROW(subscriber.subscribe("ch2"), std::runtime_error);
  EXPECT_TRUE(redis().ping());
}

TEST_F(RawRedisTest, ReadsInfoAndConfiguration) {
  EXPECT_EQ(redis().info("role"), "master");
  EXPECT_EQ(redis().info("no_such_field"), std::nullopt);
  EXPECT_TRUE(redis().infoSection("memory").contains("used_memory"));
  redis().configSet("maxmemory", "123456789");
  EXPECT_EQ(redis().configGet("maxmemory"), "123456789");
  redis().configSet("maxmemory", "0");
}

TEST_F(RawRedisTest, PausesClients) {
  RawRedisOptions options;
  options.port = server().port();
  options.timeout = milliseconds(1'000);
  RawRedis writer(options);
  redis().clientPause(milliseconds(60'000), "WRITE");
  EXPECT_TRUE(writer.ping());
  EXPECT_THROW(writer.set("k", "v"), std::runtime_error);
  redis().clientUnpause();
  EXPECT_EVENTUALLY(kPatience, redis().exists("k"));
}

TEST_F(RawRedisTest, SubscriberCollectsMessages) {
  RawSubscriber subscriber(server());
  const std::string channel = "lock:{a b}\r\n";
  subscriber.subscribe(channel);
  subscriber.psubscribe("p*");
  EXPECT_EQ(redis().numsub(channel), 1);
  EXPECT_EQ(redis().numpat(), 1);
  EXPECT_EQ(redis().pubsubChannels(), std::set<std::string>{channel});
  EXPECT_EQ(redis().publish(channel, "0"), 1);
  EXPECT_EQ(redis().publish("pony", std::string("a\0b", 3)), 1);
  ASSERT_TRUE(subscriber.waitFor(2, kPatience));
  const std::vector<RawSubscriber::Message> expected{{"", channel, "0"},
                                                     {"p*", "pony", std::string("a\0b", 3)}};
  EXPECT_EQ(subscriber.messages(), expected);
  subscriber.clear();
  EXPECT_EQ(subscriber.count(), 0U);
  EXPECT_FALSE(subscriber.waitFor(1, milliseconds(10)));
  subscriber.unsubscribe(channel);
  EXPECT_EQ(redis().numsub(channel), 0);
  EXPECT_EQ(redis().publish(channel, "1"), 0);
}

TEST_F(RawRedisTest, SubscriberCountsWhatWasPublishedBefore) {
  RawSubscriber subscriber(server());
  subscriber.subscribe("often");
  for (std::size_t i = 1; i <= 500; ++i) {
    redis().publish("often", "0");
    ASSERT_EQ(subscriber.count(), i);
  }
  redis().publish("often", "0");
  subscriber.clear();
  EXPECT_FALSE(subscriber.waitFor(1, milliseconds(10)));
}

TEST_F(RawRedisTest, BrokenConnectionThrowsWithoutSigpipe) {
  RedisServer doomed;
  RawRedis client(doomed);
  EXPECT_TRUE(client.ping());
  doomed.kill();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(client.ping(), std::runtime_error);
  }
}

TEST(RawRedisConnecting, EndsAtTheTimeout) {
  const SilentListener silent;
  RawRedisOptions options;
  options.port = silent.port();
  options.timeout = milliseconds(50);
  EXPECT_THROW(RawRedis{options}, std::runtime_error);
  options.unixPath = "/nowhere/at-all";
  EXPECT_THROW(RawRedis{options}, std::runtime_error);
  options.unixPath = std::string(200, 'x');
  EXPECT_THROW(RawRedis{options}, std::runtime_error);
}

}  // namespace
}  // namespace raw_redis_test
}  // namespace rlock::test
