// SPDX-License-Identifier: Apache-2.0
#include "support/tcp_proxy.hpp"

#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace rlock::test {
namespace tcp_proxy_test {
namespace {

using std::chrono::milliseconds;
using Action = TcpProxy::Action;
using CutKind = TcpProxy::CutKind;
using Direction = TcpProxy::Direction;
using Argv = TcpProxy::Argv;

constexpr auto kPatience = milliseconds(10'000);
/// Long enough for a loopback answer, which must not come.
constexpr auto kSilence = milliseconds(80);
constexpr const char* kTimedOut = "timed out";
constexpr const char* kReset = "reset";
constexpr const char* kClosed = "closed the connection";

class TcpProxyTest : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override {
    RLOCK_REQUIRE_REDIS_SERVER();
    if (!server_) {
      server_ = std::make_unique<RedisServer>();
    }
    direct_ = std::make_unique<RawRedis>(*server_);
    direct_->flushAll();
    direct_->run({"SCRIPT", "FLUSH"});
    // The connections of the test before must be gone.
    ASSERT_EVENTUALLY(kPatience, direct_->clientList().size() == 1);
    proxy_ = std::make_unique<TcpProxy>(*server_);
  }

  RedisServer& server() { return *server_; }
  /// Past the proxy.
  RawRedis& direct() { return *direct_; }
  TcpProxy& proxy() { return *proxy_; }

  RawRedis client() const { return RawRedis(proxy_->port()); }

 private:
  static inline std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RawRedis> direct_;
  std::unique_ptr<TcpProxy> proxy_;
};

/// The message of the exception that `body` throws; empty when it throws none.
template <class Body>
std::string failureOf(Body&& body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

#define EXPECT_FAILS_WITH(text, ...)                                                          \
  do {                                                                                        \
    const std::string failure = failureOf([&] { (void)(__VA_ARGS__); });                      \
    EXPECT_NE(failure.find(text), std::string::npos) << #__VA_ARGS__ ": '" << failure << "'"; \
  } while (false)

TEST_F(TcpProxyTest, ForwardsEverythingUnchanged) {
  RawRedis redis = client();
  std::string binary(200'000, '\0');
  for (std::size_t i = 0; i < binary.size(); ++i) {
    binary[i] = static_cast<char>(i * 31);
  }
  redis.set("big", binary);
  EXPECT_EQ(redis.get("big"), binary);
  EXPECT_EQ(direct().get("big"), binary);
  EXPECT_EQ(redis.eval("return {1, {'a', false}, {ok = 'fine'}}").describe(),
            direct().eval("return {1, {'a', false}, {ok = 'fine'}}").describe());
  EXPECT_TRUE(redis.command({"NOSUCH"}).isError());
  const auto stats = proxy().stats();
  EXPECT_EQ(stats.accepted, 1U);
  EXPECT_EQ(stats.open, 1U);
  EXPECT_EQ(stats.requests, 4U);
  EXPECT_GT(stats.clientBytes, binary.size());
  EXPECT_GT(stats.serverBytes, binary.size());
  EXPECT_EQ(proxy().uri(), "redis://127.0.0.1:" + std::to_string(proxy().port()));
}

TEST_F(TcpProxyTest, NothingIsSentTwice) {
  direct().resetStats();
  RawRedis redis = client();
  for (int i = 0; i < 500; ++i) {
    redis.send({"INCR", "n"});
  }
  for (int i = 1; i <= 500; ++i) {
    EXPECT_EQ(redis.receive().integer(), i);
  }
  EXPECT_EQ(direct().commandCalls("incr"), 500);
}

TEST_F(TcpProxyTest, ForwardsInlineCommandsAndRequestsInPieces) {
  RawRedis redis = client();
  redis.sendRaw("PING\r\n");
  EXPECT_EQ(redis.receive().string(), "PONG");
  const std::string request = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nv\r\nw\r\n";
  for (const char byte : request) {
    redis.sendRaw(std::string(1, byte));
  }
  EXPECT_EQ(redis.receive().string(), "OK");
  EXPECT_EQ(direct().get("k"), "v\r\nw");
  redis.sendRaw("\r\n*0\r\nPING\r\n");
  EXPECT_EQ(redis.receive().string(), "PONG");
}

TEST_F(TcpProxyTest, ForwardsWhatIsNotRespWithoutRules) {
  proxy().addRule(TcpProxy::anyCommand(), Action::dropRequest());
  RawRedis redis = client();
  // A TLS client begins like this; Redis calls it an unknown command.
  redis.sendRaw("\x16\x03\x01\x02\x05hello\r\n");
  const std::string failure = failureOf([&] { EXPECT_TRUE(redis.receive().isError()); });
  EXPECT_EQ(failure.find(kTimedOut), std::string::npos) << failure;
  EXPECT_EQ(proxy().stats().requests, 0U);
}

TEST_F(TcpProxyTest, PassesPubSubMessages) {
  RawRedisOptions options;
  options.port = proxy().port();
  RawSubscriber subscriber(options);
  subscriber.subscribe("ch");
  subscriber.psubscribe("p*");
  for (int i = 0; i < 100; ++i) {
    direct().publish("ch", std::to_string(i));
  }
  direct().publish("pony", "x");
  ASSERT_TRUE(subscriber.waitFor(101, kPatience));
  EXPECT_EQ(subscriber.messages()[99].payload, "99");
  const auto connections = proxy().connections();
  ASSERT_EQ(connections.size(), 1U);
  EXPECT_TRUE(connections[0].isSubscriber);
}

TEST_F(TcpProxyTest, RepliesArePairedAmongMessages) {
  RawRedis redis = client();
  const auto swallowed = proxy().addRule(TcpProxy::command("PING"), Action::swallowReply());
  redis.command({"SUBSCRIBE", "a"});
  direct().publish("a", "1");
  EXPECT_EQ(redis.receive().strings(), (Argv{"message", "a", "1"}));

  redis.sendRaw("SUBSCRIBE b c\r\nPING\r\n");
  EXPECT_EQ(redis.receive().array()[1].string(), "b");
  EXPECT_EQ(redis.receive().array()[1].string(), "c");
  EXPECT_TRUE(swallowed.waitForHits(1, kPatience));

  proxy().setDelay(Direction::toServer, milliseconds(300));
  redis.send({"PING"});
  direct().publish("a", "2");
  EXPECT_EQ(redis.receive().strings(), (Argv{"message", "a", "2"}));
  EXPECT_TRUE(swallowed.waitForHits(2, kPatience));
  proxy().setDelay(Direction::toServer, milliseconds(0));

  redis.send({"UNSUBSCRIBE"});
  redis.send({"PING"});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(redis.receive().array()[0].string(), "unsubscribe");
  }
  EXPECT_TRUE(swallowed.waitForHits(3, kPatience));
  EXPECT_FALSE(redis.tryReceive(kSilence)) << "every PING was swallowed";
}

TEST_F(TcpProxyTest, RepliesThatLookLikeMessagesAreReplies) {
  direct().run({"RPUSH", "confirmation", "subscribe", "a", "1"});
  direct().run({"RPUSH", "message", "message", "a", "1"});
  RawRedis redis = client();
  EXPECT_EQ(redis.command({"LRANGE", "confirmation", "0", "-1"}).array().size(), 3U);
  const auto rule = proxy().addRule(TcpProxy::command("LRANGE"), Action::swallowReply());
  redis.send({"LRANGE", "message", "0", "-1"});
  EXPECT_EQ(redis.command({"ECHO", "after"}).string(), "after");
  EXPECT_EQ(rule.hits(), 1U);

  redis.command({"SUBSCRIBE", "a"});
  redis.command({"UNSUBSCRIBE", "a"});
  redis.send({"LRANGE", "message", "0", "-1"});
  EXPECT_EQ(redis.command({"ECHO", "after"}).string(), "after");
  EXPECT_EQ(rule.hits(), 2U);
}

TEST_F(TcpProxyTest, RecordsCommands) {
  RawRedis redis = client();
  redis.ping();
  EXPECT_TRUE(proxy().commands().empty());
  proxy().recordCommands(true);
  redis.set("k", "v");
  redis.get("k");
  redis.get("other");
  EXPECT_EQ(proxy().commands(),
            (std::vector<Argv>{{"SET", "k", "v"}, {"GET", "k"}, {"GET", "other"}}));
  EXPECT_EQ(proxy().countCommands(TcpProxy::command("get")), 2U);
  EXPECT_EQ(proxy().countCommands(TcpProxy::command("GET", "k")), 1U);
  EXPECT_EQ(proxy().countCommands(TcpProxy::withArgument("k")), 2U);
  EXPECT_TRUE(proxy().waitForCommands(TcpProxy::command("SET"), 1, milliseconds(0)));
  EXPECT_FALSE(proxy().waitForCommands(TcpProxy::command("SET"), 2, milliseconds(10)));
  proxy().clearCommands();
  EXPECT_TRUE(proxy().commands().empty());
}

TEST_F(TcpProxyTest, MatchersTellCommandsApart) {
  const auto script = TcpProxy::script("key");
  EXPECT_TRUE(script({"EVALSHA", "abc", "2", "other", "key", "arg"}));
  EXPECT_FALSE(script({"evalsha", "abc", "1", "other", "key"}));
  EXPECT_FALSE(script({"GET", "abc", "1", "key"}));
  EXPECT_FALSE(script({"EVAL"}));
  const auto setName = TcpProxy::command("CLIENT SETNAME");
  EXPECT_TRUE(setName({"client", "setname", "x"}));
  EXPECT_FALSE(setName({"client", "id"}));
  EXPECT_FALSE(setName({"client"}));
}

TEST_F(TcpProxyTest, DelaysEachDirection) {
  RawRedis redis = client();
  redis.ping();
  Stopwatch watch;
  proxy().setDelay(Direction::toServer, milliseconds(120));
  redis.ping();
  EXPECT_GE(watch.elapsedMs(), milliseconds(120));
  proxy().setDelay(Direction::toClient, milliseconds(80));
  watch.restart();
  redis.ping();
  EXPECT_GE(watch.elapsedMs(), milliseconds(200));
  watch.restart();
  for (int i = 0; i < 20; ++i) {
    redis.send({"PING"});
  }
  for (int i = 0; i < 20; ++i) {
    redis.receive();
  }
  EXPECT_LT(watch.elapsedMs(), scaled(milliseconds(20 * 80))) << "a delay, not a bandwidth";
  proxy().setDelay(Direction::both, milliseconds(60'000));
  proxy().setDelay(Direction::both, milliseconds(0));
  EXPECT_TRUE(redis.ping());
}

TEST_F(TcpProxyTest, DelayedRequestReachesTheServerLate) {
  RawRedis redis = client();
  redis.ping();
  proxy().setDelay(Direction::toServer, milliseconds(1'500));
  const Stopwatch watch;
  redis.send({"SET", "k", "v"});
  EXPECT_FALSE(direct().exists("k"));
  EXPECT_EVENTUALLY(kPatience, direct().exists("k"));
  EXPECT_GE(watch.elapsedMs(), milliseconds(1'500));
}

TEST_F(TcpProxyTest, JitterKeepsTheOrder) {
  proxy().setDelay(Direction::both, milliseconds(0), milliseconds(15));
  RawRedis redis = client();
  const Stopwatch watch;
  for (int i = 1; i <= 20; ++i) {
    redis.send({"INCR", "n"});
    EXPECT_EQ(redis.receive().integer(), i);
  }
  EXPECT_GE(watch.elapsedMs(), milliseconds(60)) << "20 round trips of 15 ms on average";
}

TEST_F(TcpProxyTest, DelaysOnlySubscribers) {
  proxy().setDelay(
      Direction::toClient, milliseconds(60'000), milliseconds(0), TcpProxy::subscribersOnly());
  RawRedis commands = client();
  RawRedis subscriber = client();
  EXPECT_TRUE(commands.ping());
  subscriber.send({"SUBSCRIBE", "ch"});
  EXPECT_FALSE(subscriber.tryReceive(kSilence));
  EXPECT_EVENTUALLY(kPatience, direct().numsub("ch") == 1) << "the other direction is not delayed";
}

TEST_F(TcpProxyTest, ThrottlesBytes) {
  RawRedis redis = client();
  redis.ping();
  proxy().setThrottle(Direction::toClient, 1, milliseconds(10));
  Stopwatch watch;
  redis.ping();
  EXPECT_GE(watch.elapsedMs(), milliseconds(60)) << "7 bytes, 10 ms apart";
  proxy().setThrottle(Direction::toClient, 1, milliseconds(60'000));
  redis.send({"PING"});
  EXPECT_FALSE(redis.tryReceive(kSilence));
  proxy().setThrottle(Direction::toClient, 0, milliseconds(0));
  EXPECT_EQ(redis.receive().string(), "PONG");
}

TEST_F(TcpProxyTest, BlackHoleHoldsEverythingBackUntilItEnds) {
  RawRedis redis = client();
  redis.ping();
  proxy().blackHole();
  redis.send({"SET", "k", "v"});
  EXPECT_FALSE(redis.tryReceive(kSilence));
  EXPECT_FALSE(direct().exists("k"));
  RawRedis late = client();
  late.send({"PING"});
  EXPECT_FALSE(late.tryReceive(kSilence));
  proxy().endBlackHole();
  EXPECT_EQ(redis.receive().string(), "OK");
  EXPECT_EQ(late.receive().string(), "PONG");
  EXPECT_EQ(direct().get("k"), "v");
}

TEST_F(TcpProxyTest, BlackHoleTowardsTheClientLetsRequestsThrough) {
  RawRedis redis = client();
  redis.ping();
  proxy().blackHole(Direction::toClient);
  redis.send({"SET", "k", "v"});
  EXPECT_FALSE(redis.tryReceive(kSilence));
  EXPECT_EVENTUALLY(kPatience, direct().get("k") == "v");
  proxy().endBlackHole();
  EXPECT_EQ(redis.receive().string(), "OK");
}

TEST_F(TcpProxyTest, BlackHoleTowardsTheServerLetsMessagesThrough) {
  RawRedis redis = client();
  redis.command({"SUBSCRIBE", "ch"});
  proxy().blackHole(Direction::toServer);
  redis.send({"SUBSCRIBE", "other"});
  direct().publish("ch", "1");
  EXPECT_EQ(redis.receive().strings(), (Argv{"message", "ch", "1"}));
  EXPECT_EQ(direct().numsub("other"), 0);
  proxy().endBlackHole();
  EXPECT_EQ(redis.receive().array()[1].string(), "other");
}

TEST_F(TcpProxyTest, BlackHoleHidesThatTheOtherSideIsGone) {
  RedisServer doomed;
  TcpProxy proxy(doomed);
  RawRedisOptions options;
  options.port = proxy.port();
  RawRedis redis(options);
  redis.ping();
  proxy.blackHole();
  doomed.kill();
  redis.send({"PING"});
  EXPECT_FALSE(redis.tryReceive(kSilence));
  proxy.endBlackHole();
  const std::string failure = failureOf([&] { redis.receive(); });
  EXPECT_FALSE(failure.empty());
  EXPECT_EQ(failure.find(kTimedOut), std::string::npos) << failure;
}

TEST_F(TcpProxyTest, BlackHoleOnlySubscribers) {
  RawRedis commands = client();
  RawRedis subscriber = client();
  subscriber.command({"SUBSCRIBE", "ch"});
  proxy().blackHole(Direction::both, TcpProxy::subscribersOnly());
  direct().publish("ch", "1");
  EXPECT_FALSE(subscriber.tryReceive(kSilence));
  EXPECT_TRUE(commands.ping());
  proxy().heal();
  EXPECT_EQ(subscriber.receive().strings(), (Argv{"message", "ch", "1"}));
}

TEST_F(TcpProxyTest, RefusesNewConnectionsOnly) {
  RawRedis existing = client();
  existing.ping();
  proxy().refuseConnections(true);
  EXPECT_FAILS_WITH("refused", client());
  EXPECT_TRUE(existing.ping());
  proxy().refuseConnections(false);
  EXPECT_TRUE(client().ping());
  proxy().refuseConnections(true);
  proxy().refuseConnections(true);
  EXPECT_FAILS_WITH("refused", client());
  proxy().heal();
  EXPECT_TRUE(client().ping());
}

TEST_F(TcpProxyTest, CutsAllConnectionsByResetOrOrderly) {
  RawRedis first = client();
  RawRedis second = client();
  first.ping();
  second.ping();
  EXPECT_EQ(proxy().cutAll(CutKind::reset), 2U);
  EXPECT_FAILS_WITH(kReset, first.receive());
  EXPECT_FAILS_WITH(kReset, second.receive());
  EXPECT_EQ(proxy().stats().open, 0U);
  RawRedis third = client();
  third.ping();
  EXPECT_EQ(proxy().cutAll(CutKind::orderly), 1U);
  EXPECT_FAILS_WITH(kClosed, third.receive());
  EXPECT_TRUE(client().ping());
  EXPECT_EVENTUALLY(kPatience, direct().clientList().size() == 1);
}

TEST_F(TcpProxyTest, CutsOnlySubscribers) {
  RawRedis commands = client();
  RawRedis subscriber = client();
  commands.ping();
  subscriber.command({"SUBSCRIBE", "ch"});
  EXPECT_EQ(proxy().cutAll(CutKind::reset, TcpProxy::subscribersOnly()), 1U);
  EXPECT_FAILS_WITH(kReset, subscriber.receive());
  EXPECT_TRUE(commands.ping());
}

TEST_F(TcpProxyTest, FiltersByClientName) {
  RawRedis named = client();
  RawRedis other = client();
  named.run({"CLIENT", "SETNAME", "victim"});
  other.ping();
  EXPECT_EQ(proxy().cutAll(CutKind::reset,
                           [](const TcpProxy::ConnectionInfo& connection) {
                             return connection.clientName == "victim";
                           }),
            1U);
  EXPECT_FAILS_WITH(kReset, named.receive());
  EXPECT_TRUE(other.ping());
}

TEST_F(TcpProxyTest, CutsAfterClientBytes) {
  RawRedis redis = client();
  redis.ping();
  const std::string request = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
  proxy().cutCurrentAfterClientBytes(request.size() + 5);
  redis.sendRaw(request + request);
  EXPECT_EVENTUALLY(kPatience, proxy().stats().open == 0);
  EXPECT_EVENTUALLY(kPatience, direct().exists("k")) << "the first request was complete";
  EXPECT_EVENTUALLY(kPatience, direct().clientList().size() == 1);

  proxy().cutNextAfterClientBytes(request.size() - 1);
  RawRedis next = client();
  RawRedis later = client();
  EXPECT_TRUE(later.ping());
  direct().del("k");
  next.sendRaw(request);
  EXPECT_FAILS_WITH(kReset, next.receive());
  EXPECT_TRUE(later.ping()) << "only the next connection is cut";
  EXPECT_FALSE(direct().exists("k")) << "one byte was missing";
}

TEST_F(TcpProxyTest, CutsBeforeAllBytesOfALongRequestHaveArrived) {
  proxy().cutNextAfterClientBytes(3);
  RawRedis redis = client();
  redis.sendRaw("*3\r\n$3");
  EXPECT_FAILS_WITH(kReset, redis.receive());
}

TEST_F(TcpProxyTest, CutsAfterServerBytes) {
  RawRedis redis = client();
  direct().set("k", "0123456789");
  proxy().cutCurrentAfterServerBytes(9);
  redis.ping();
  // "+PONG\r\n" has 7 bytes, so 2 of the next reply arrive.
  redis.send({"GET", "k"});
  EXPECT_FAILS_WITH(kClosed, redis.receive());
  EXPECT_EQ(redis.bytesReceived(), 9U);

  proxy().cutNextAfterServerBytes(7, CutKind::orderly);
  RawRedis next = client();
  EXPECT_TRUE(next.ping());
  EXPECT_FAILS_WITH(kClosed, next.receive());
}

TEST_F(TcpProxyTest, DropsRequests) {
  const auto rule = proxy().addRule(TcpProxy::command("SET"), Action::dropRequest());
  RawRedis redis = client();
  redis.send({"ECHO", "before"});
  redis.send({"SET", "k", "v"});
  redis.send({"SET", "k", "w"});
  EXPECT_TRUE(rule.waitForHits(1, kPatience));
  EXPECT_EQ(redis.receive().string(), "before");
  redis.send({"INCR", "n"});
  EXPECT_FALSE(redis.tryReceive(kSilence)) << "TCP delivers in order, so the rest is lost as well";
  EXPECT_FALSE(direct().exists("k"));
  EXPECT_FALSE(direct().exists("n"));
  EXPECT_EQ(rule.hits(), 1U);
  proxy().heal();
  redis.send({"INCR", "n"});
  EXPECT_FALSE(redis.tryReceive(kSilence)) << "what is lost does not come back";
  EXPECT_EQ(direct().keys().size(), 0U);
  EXPECT_TRUE(client().ping());
}

TEST_F(TcpProxyTest, StallsFromTheMatchedReplyOn) {
  const auto rule = proxy().addRule(TcpProxy::command("INCR"), Action::stallReply());
  RawRedis redis = client();
  redis.send({"ECHO", "before"});
  redis.send({"INCR", "n"});
  redis.send({"ECHO", "after"});
  EXPECT_EQ(redis.receive().string(), "before");
  EXPECT_FALSE(redis.tryReceive(kSilence));
  ASSERT_TRUE(rule.waitForHits(1, kPatience));
  EXPECT_EQ(direct().get("n"), "1") << "the server has executed it";
  redis.send({"SET", "k", "v"});
  EXPECT_EVENTUALLY(kPatience, direct().exists("k")) << "requests still reach the server";
  EXPECT_FALSE(redis.tryReceive(kSilence));

  proxy().releaseStalled();
  EXPECT_EQ(redis.receive().integer(), 1);
  EXPECT_EQ(redis.receive().string(), "after");
  EXPECT_EQ(redis.receive().string(), "OK");
  EXPECT_TRUE(redis.ping());
}

TEST_F(TcpProxyTest, StalledConnectionCanBeCut) {
  const auto rule = proxy().addRule(TcpProxy::command("INCR"), Action::stallReply());
  RawRedis redis = client();
  redis.send({"INCR", "n"});
  ASSERT_TRUE(rule.waitForHits(1, kPatience));
  EXPECT_EQ(proxy().cutAll(), 1U);
  EXPECT_FAILS_WITH(kReset, redis.receive());
}

TEST_F(TcpProxyTest, StalledConnectionEndsWithItsClient) {
  const auto rule = proxy().addRule(TcpProxy::command("INCR"), Action::stallReply());
  {
    RawRedis redis = client();
    redis.send({"INCR", "n"});
    ASSERT_TRUE(rule.waitForHits(1, kPatience));
  }
  EXPECT_EVENTUALLY(kPatience, proxy().stats().open == 0);
}

TEST_F(TcpProxyTest, StallsRequestsUntilReleased) {
  const auto rule = proxy().addRule(TcpProxy::command("SET", "a"), Action::stallRequest());
  RawRedis redis = client();
  RawRedis other = client();
  redis.send({"SET", "a", "1"});
  redis.send({"SET", "b", "1"});
  EXPECT_TRUE(rule.waitForHits(1, kPatience));
  EXPECT_TRUE(other.ping()) << "only that connection stalls";
  EXPECT_FALSE(redis.tryReceive(kSilence));
  EXPECT_EQ(direct().dbsize(), 0);
  proxy().releaseStalled();
  EXPECT_EQ(redis.receive().string(), "OK");
  EXPECT_EQ(redis.receive().string(), "OK");
  EXPECT_EQ(direct().dbsize(), 2);
}

TEST_F(TcpProxyTest, SwallowsOneReply) {
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto rule = proxy().addRule(TcpProxy::command("INCR"), Action::swallowReply(), once);
  RawRedis redis = client();
  redis.send({"INCR", "n"});
  redis.send({"INCR", "n"});
  EXPECT_EQ(redis.receive().integer(), 2) << "the first reply is missing";
  EXPECT_EQ(rule.hits(), 1U);
  EXPECT_EQ(redis.command({"INCR", "n"}).integer(), 3);
}

TEST_F(TcpProxyTest, SwallowsTheReplyAndCuts) {
  for (const CutKind kind : {CutKind::reset, CutKind::orderly}) {
    direct().flushAll();
    proxy().clearRules();
    const auto rule = proxy().addRule(TcpProxy::command("INCR"), Action::swallowReplyAndCut(kind));
    RawRedis redis = client();
    redis.send({"ECHO", "before"});
    EXPECT_EQ(redis.receive().string(), "before");
    redis.send({"INCR", "n"});
    EXPECT_FAILS_WITH(kind == CutKind::reset ? kReset : kClosed, redis.receive());
    EXPECT_TRUE(rule.waitForHits(1, kPatience));
    EXPECT_EQ(direct().get("n"), "1") << "the server has executed it";
  }
}

TEST_F(TcpProxyTest, CutsBeforeForwarding) {
  const auto rule = proxy().addRule(TcpProxy::command("INCR"), Action::cutBeforeForward());
  RawRedis redis = client();
  redis.send({"SET", "before", "1"});
  // A server drops what it has not read yet when the connection ends.
  redis.receive();
  redis.send({"INCR", "n"});
  EXPECT_TRUE(rule.waitForHits(1, kPatience));
  EXPECT_EVENTUALLY(kPatience, direct().clientList().size() == 1);
  EXPECT_TRUE(direct().exists("before")) << "earlier requests are forwarded";
  EXPECT_FALSE(direct().exists("n"));
  EXPECT_FALSE(failureOf([&] { redis.receive(); }).empty());
}

TEST_F(TcpProxyTest, CutsInTheMiddleOfARequest) {
  const auto rule = proxy().addRule(TcpProxy::command("INCR"), Action::cutMidRequest());
  RawRedis redis = client();
  redis.ping();
  const std::int64_t before = std::stoll(*direct().info("total_net_input_bytes"));
  redis.send({"INCR", std::string(10'000, 'n')});
  EXPECT_FAILS_WITH(kReset, redis.receive());
  EXPECT_EQ(rule.hits(), 1U);
  EXPECT_EVENTUALLY(kPatience, direct().clientList().size() == 1);
  EXPECT_EQ(direct().dbsize(), 0);
  EXPECT_GT(std::stoll(*direct().info("total_net_input_bytes")), before + 5'000)
      << "half of the request arrived";
}

TEST_F(TcpProxyTest, CutsInTheMiddleOfAReply) {
  const auto rule = proxy().addRule(TcpProxy::command("GET"), Action::cutMidReply());
  direct().set("k", std::string(10'000, 'v'));
  RawRedis redis = client();
  redis.send({"GET", "k"});
  EXPECT_FAILS_WITH(kClosed, redis.receive());
  EXPECT_EQ(rule.hits(), 1U);
  EXPECT_GT(redis.bytesReceived(), 4'000U);
  EXPECT_LT(redis.bytesReceived(), 6'000U);
}

TEST_F(TcpProxyTest, DelaysSingleRepliesAndRequests) {
  RawRedis redis = client();
  redis.ping();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto reply =
      proxy().addRule(TcpProxy::command("INCR"), Action::delayReply(milliseconds(100)), once);
  Stopwatch watch;
  redis.send({"INCR", "n"});
  ASSERT_TRUE(reply.waitForHits(1, kPatience));
  EXPECT_EQ(direct().get("n"), "1") << "executed while the reply is on its way";
  redis.receive();
  EXPECT_GE(watch.elapsedMs(), milliseconds(100));
  redis.command({"INCR", "n"});
  EXPECT_EQ(reply.hits(), 1U) << "only the first one";

  const auto request =
      proxy().addRule(TcpProxy::command("SET"), Action::delayRequest(milliseconds(1'500)), once);
  watch.restart();
  redis.send({"SET", "k", "v"});
  ASSERT_TRUE(request.waitForHits(1, kPatience));
  EXPECT_FALSE(direct().exists("k"));
  redis.receive();
  EXPECT_GE(watch.elapsedMs(), milliseconds(1'500));
}

TEST_F(TcpProxyTest, AnswersWithAnErrorInOrder) {
  const auto rule =
      proxy().addRule(TcpProxy::command("SET"), Action::replyWithError("READONLY You can't write"));
  direct().resetStats();
  RawRedis redis = client();
  redis.send({"ECHO", "before"});
  redis.send({"SET", "k", "v"});
  redis.send({"ECHO", "after"});
  EXPECT_EQ(redis.receive().string(), "before");
  EXPECT_EQ(redis.receive().error(), "READONLY You can't write");
  EXPECT_EQ(redis.receive().string(), "after");
  EXPECT_EQ(rule.hits(), 1U);
  EXPECT_EQ(direct().commandCalls("set"), 0);
}

TEST_F(TcpProxyTest, RulesCountSkipAndHaveAnOrder) {
  TcpProxy::RuleOptions second;
  second.skip = 1;
  second.limit = 1;
  const auto shield = proxy().addRule(TcpProxy::command("INCR", "free"), Action::pass());
  const auto rule =
      proxy().addRule(TcpProxy::command("INCR"), Action::replyWithError("ERR no"), second);
  RawRedis redis = client();
  EXPECT_FALSE(redis.command({"INCR", "n"}).isError());
  EXPECT_FALSE(redis.command({"INCR", "free"}).isError());
  EXPECT_EQ(rule.hits(), 0U);
  EXPECT_TRUE(redis.command({"INCR", "n"}).isError());
  EXPECT_FALSE(redis.command({"INCR", "n"}).isError());
  EXPECT_EQ(rule.hits(), 1U);
  EXPECT_EQ(shield.hits(), 1U);
  EXPECT_FALSE(rule.waitForHits(2, milliseconds(10)));

  const auto all = proxy().addRule(TcpProxy::anyCommand(), Action::replyWithError("ERR all"));
  EXPECT_TRUE(redis.command({"PING"}).isError());
  proxy().removeRule(all);
  EXPECT_TRUE(redis.ping());
}

TEST_F(TcpProxyTest, RulesCanBeLimitedToConnections) {
  TcpProxy::RuleOptions subscribers;
  subscribers.filter = TcpProxy::subscribersOnly();
  proxy().addRule(TcpProxy::anyCommand(), Action::dropRequest(), subscribers);
  RawRedis commands = client();
  RawRedis subscriber = client();
  EXPECT_TRUE(subscriber.ping());
  subscriber.send({"SUBSCRIBE", "ch"});
  EXPECT_FALSE(subscriber.tryReceive(kSilence));
  EXPECT_TRUE(commands.ping());
  EXPECT_EQ(direct().numsub("ch"), 0);
}

TEST_F(TcpProxyTest, ErrorRepliesCanBePassed) {
  TcpProxy::RuleOptions options;
  options.limit = 1;
  options.ignoreErrorReplies = true;
  const auto rule = proxy().addRule(TcpProxy::script("k"), Action::swallowReplyAndCut(), options);
  RawRedis redis = client();
  const std::string script = "return redis.call('INCR', KEYS[1])";
  const std::string sha = direct().run({"SCRIPT", "LOAD", script}).string();
  direct().run({"SCRIPT", "FLUSH"});
  EXPECT_EQ(redis.command({"EVALSHA", sha, "1", "k"}).error().rfind("NOSCRIPT", 0), 0U);
  EXPECT_EQ(rule.hits(), 0U);
  direct().run({"SCRIPT", "LOAD", script});
  redis.send({"EVALSHA", sha, "1", "k"});
  EXPECT_FAILS_WITH(kReset, redis.receive());
  EXPECT_EQ(rule.hits(), 1U);
  EXPECT_EQ(direct().get("k"), "1");
}

TEST_F(TcpProxyTest, DelaysTheConfirmationOfASubscription) {
  const auto rule = proxy().addRule(TcpProxy::command("SUBSCRIBE", "ch"), Action::stallReply());
  RawRedis redis = client();
  redis.send({"SUBSCRIBE", "ch"});
  ASSERT_TRUE(rule.waitForHits(1, kPatience));
  EXPECT_EQ(direct().numsub("ch"), 1);
  direct().publish("ch", "1");
  EXPECT_FALSE(redis.tryReceive(kSilence));
  proxy().releaseStalled();
  EXPECT_EQ(redis.receive().array()[0].string(), "subscribe");
  EXPECT_EQ(redis.receive().strings(), (Argv{"message", "ch", "1"}));
}

TEST_F(TcpProxyTest, HealEndsEverything) {
  RawRedis redis = client();
  redis.ping();
  proxy().addRule(TcpProxy::command("INCR"), Action::stallReply());
  proxy().setThrottle(Direction::both, 1, milliseconds(5'000));
  proxy().setDelay(Direction::both, milliseconds(60'000));
  proxy().blackHole();
  proxy().refuseConnections(true);
  proxy().cutNextAfterClientBytes(1);
  proxy().cutCurrentAfterServerBytes(1);
  redis.send({"INCR", "n"});
  proxy().heal();
  EXPECT_EQ(redis.receive().integer(), 1);
  const Stopwatch watch;
  EXPECT_TRUE(client().ping());
  EXPECT_LT(watch.elapsedMs(), scaled(milliseconds(4'000)));
}

TEST_F(TcpProxyTest, ShowsThatTheServerIsGone) {
  RedisServer doomed;
  TcpProxy proxy(doomed);
  RawRedisOptions options;
  options.port = proxy.port();
  RawRedis redis(options);
  redis.ping();
  doomed.kill();
  const std::string failure = failureOf([&] { redis.receive(); });
  EXPECT_TRUE(failure.find(kClosed) != std::string::npos ||
              failure.find(kReset) != std::string::npos)
      << failure;
  EXPECT_FALSE(failureOf([&] { RawRedis(options).ping(); }).empty());
  EXPECT_EVENTUALLY(kPatience, proxy.stats().targetFailed == 1);
  doomed.start();
  EXPECT_TRUE(RawRedis(options).ping());
}

TEST_F(TcpProxyTest, LeadsToANewTarget) {
  const RedisServer other;
  RawRedis(other).set("name", "other");
  RawRedis before = client();
  before.ping();
  proxy().setTarget(other.port());
  EXPECT_EQ(client().get("name"), "other");
  EXPECT_EQ(before.get("name"), std::nullopt);
}

TEST_F(TcpProxyTest, KeepsThePasswordInItsUri) {
  RedisServer::Options options;
  options.password = "se:cret";
  const RedisServer secured(options);
  const TcpProxy proxy(secured);
  EXPECT_EQ(proxy.uri(), "redis://:se%3Acret@127.0.0.1:" + std::to_string(proxy.port()));
}

TEST_F(TcpProxyTest, FrozenServerFillsTheSendBuffer) {
  RedisServer frozen;
  TcpProxy proxy(frozen);
  RawRedisOptions options;
  options.port = proxy.port();
  options.timeout = milliseconds(1'000);
  RawRedis redis(options);
  redis.ping();
  frozen.freeze();
  const std::string value(1'000'000, 'v');
  EXPECT_FAILS_WITH(kTimedOut, [&] {
    for (int i = 0; i < 64; ++i) {
      redis.send({"SET", "k", value});
    }
  }());
}

TEST_F(TcpProxyTest, ClosesTheServerSideWithTheClient) {
  {
    RawRedis redis = client();
    redis.ping();
    EXPECT_EQ(direct().clientList().size(), 2U);
  }
  EXPECT_EVENTUALLY(kPatience, direct().clientList().size() == 1);
  EXPECT_EVENTUALLY(kPatience, proxy().stats().open == 0);
  EXPECT_EQ(proxy().stats().accepted, 1U);
  EXPECT_TRUE(proxy().waitForAccepted(1, milliseconds(0)));
  EXPECT_FALSE(proxy().waitForAccepted(2, milliseconds(10)));
}

TEST_F(TcpProxyTest, FaultsFromManyThreadsWhileClientsWork) {
  std::atomic<bool> stop = false;
  std::atomic<int> done = 0;
  std::vector<std::thread> workers;
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&] {
      while (!stop) {
        try {
          RawRedis redis = client();
          while (!stop) {
            redis.command({"INCR", "n"});
            ++done;
          }
        } catch (const std::runtime_error&) {
          // Cut or refused; the next connection goes on.
        }
      }
    });
  }
  std::thread chaos([&] {
    for (int i = 0; i < 20; ++i) {
      proxy().cutAll(i % 2 == 0 ? CutKind::reset : CutKind::orderly);
      proxy().refuseConnections(i % 3 == 0);
      const auto rule = proxy().addRule(TcpProxy::command("INCR"), Action::pass());
      (void)rule.waitForHits(1, milliseconds(5));
      (void)proxy().connections();
      proxy().setDelay(Direction::both, milliseconds(i % 2));
      proxy().clearRules();
    }
    proxy().heal();
  });
  chaos.join();
  const int before = done;
  EXPECT_EVENTUALLY(kPatience, done > before + 10);
  stop = true;
  for (std::thread& worker : workers) {
    worker.join();
  }
  EXPECT_GE(std::stoi(*direct().get("n")), done.load());
}

}  // namespace
}  // namespace tcp_proxy_test
}  // namespace rlock::test
