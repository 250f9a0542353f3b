// SPDX-License-Identifier: Apache-2.0
#include "support/redis_server.hpp"

#include "support/child_process.hpp"
#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/tcp_proxy.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace rlock::test {
namespace redis_server_test {
namespace {

using std::chrono::milliseconds;
constexpr auto kPatience = milliseconds(10'000);

class RedisServerTest : public ::testing::Test {
 protected:
  void SetUp() override { RLOCK_REQUIRE_REDIS_SERVER(); }
};

TEST_F(RedisServerTest, StartsEmptyOnAPortOfItsOwn) {
  const RedisServer server;
  EXPECT_GE(server.port(), 1024);
  EXPECT_EQ(server.uri(), "redis://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_TRUE(server.running());
  RawRedis redis(server);
  EXPECT_TRUE(redis.ping());
  EXPECT_EQ(redis.dbsize(), 0);
  EXPECT_EQ(redis.info("process_id"), std::to_string(server.pid()));
  EXPECT_EQ(redis.configGet("save"), "");
  EXPECT_EQ(redis.configGet("appendonly"), "no");
  EXPECT_NE(server.log().find("eady to accept connections"), std::string::npos) << server.log();
  if (RedisServer::version().major >= 7) {
    EXPECT_FALSE(redis.command({"DEBUG", "SLEEP", "0"}).isError());
  }
}

TEST_F(RedisServerTest, SeveralRunAtOnce) {
  std::vector<std::unique_ptr<RedisServer>> servers(4);
  std::vector<std::thread> starters;
  for (auto& server : servers) {
    starters.emplace_back([&server] { server = std::make_unique<RedisServer>(); });
  }
  for (std::thread& starter : starters) {
    starter.join();
  }
  for (std::size_t i = 0; i < servers.size(); ++i) {
    RawRedis(*servers[i]).set("number", std::to_string(i));
  }
  for (std::size_t i = 0; i < servers.size(); ++i) {
    EXPECT_EQ(RawRedis(*servers[i]).get("number"), std::to_string(i));
  }
}

TEST_F(RedisServerTest, RestartsEmptyOnTheSamePort) {
  RedisServer server;
  const std::uint16_t port = server.port();
  const pid_t pid = server.pid();
  RawRedis(server).set("key", "value");
  server.restart();
  EXPECT_EQ(server.port(), port);
  EXPECT_NE(server.pid(), pid);
  EXPECT_FALSE(processExists(pid));
  EXPECT_FALSE(RawRedis(server).exists("key"));
}

TEST_F(RedisServerTest, PersistenceSurvivesAKill) {
  RedisServer::Options options;
  options.persistence = true;
  RedisServer server(options);
  RawRedis(server).set("key", "value");
  server.kill();
  EXPECT_FALSE(server.running());
  server.start();
  EXPECT_EQ(RawRedis(server).get("key"), "value");
  server.restart();
  EXPECT_EQ(RawRedis(server).get("key"), "value");
}

TEST_F(RedisServerTest, RefusesConnectionsWhileStopped) {
  RedisServer server;
  const pid_t pid = server.pid();
  server.stop();
  EXPECT_FALSE(server.running());
  EXPECT_FALSE(processExists(pid));
  try {
    RawRedis redis(server);
    FAIL() << "connected";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("refused"), std::string::npos) << error.what();
  }
  server.stop();
  server.kill();
  server.start();
  EXPECT_TRUE(RawRedis(server).ping());
  EXPECT_THROW(server.start(), std::runtime_error);
}

TEST_F(RedisServerTest, FrozenServerAnswersAfterTheThaw) {
  RedisServer server;
  RawRedis redis(server);
  server.freeze();
  redis.send({"PING"});
  EXPECT_FALSE(redis.tryReceive(milliseconds(80)));
  EXPECT_TRUE(server.running());
  server.thaw();
  EXPECT_EQ(redis.receive().string(), "PONG");
  server.freeze();
  server.restart();
  EXPECT_TRUE(RawRedis(server).ping());
}

TEST_F(RedisServerTest, FrozenServerIsEndedByTheDestructor) {
  pid_t pid = -1;
  std::filesystem::path directory;
  {
    RedisServer server;
    pid = server.pid();
    directory = server.directory().path();
    server.freeze();
  }
  EXPECT_FALSE(processExists(pid));
  EXPECT_FALSE(std::filesystem::exists(directory));
}

TEST_F(RedisServerTest, AsksForThePassword) {
  RedisServer::Options options;
  options.password = "p@ss \"word\"";
  options.aclUsers = {"alice on >wonder ~alice:* &* +@all"};
  const RedisServer server(options);
  EXPECT_EQ(server.uri(),
            "redis://:p%40ss%20%22word%22@127.0.0.1:" + std::to_string(server.port()));
  EXPECT_TRUE(RawRedis(server).ping());

  RawRedisOptions anonymous;
  anonymous.port = server.port();
  const Value refused = RawRedis(anonymous).command({"PING"});
  EXPECT_EQ(refused.error().rfind("NOAUTH", 0), 0U) << refused;

  RawRedisOptions alice = anonymous;
  alice.username = "alice";
  alice.password = "wonder";
  RawRedis redis(alice);
  redis.set("alice:key", "1");
  EXPECT_EQ(redis.command({"GET", "other"}).error().rfind("NOPERM", 0), 0U);
  alice.password = "wrong";
  EXPECT_THROW(RawRedis{alice}, std::runtime_error);
}

TEST_F(RedisServerTest, ListensOnAUnixSocket) {
  RedisServer::Options options;
  options.unixSocketOnly = true;
  RedisServer server(options);
  EXPECT_EQ(server.port(), 0);
  EXPECT_EQ(server.uri(), "unix://" + server.socketPath());
  EXPECT_TRUE(RawRedis(server).ping());
  server.restart();
  EXPECT_TRUE(RawRedis(server).ping());

  options = {};
  options.unixSocket = true;
  const RedisServer both(options);
  RawRedisOptions viaSocket;
  viaSocket.unixPath = both.socketPath();
  RawRedis(viaSocket).set("key", "value");
  EXPECT_EQ(RawRedis(both).get("key"), "value");
}

TEST_F(RedisServerTest, TakesAFixedPortAndExtraArguments) {
  const PortReservation reservation;
  RedisServer::Options options;
  options.port = reservation.port();
  options.extraArgs = {"--maxmemory", "64mb", "--databases", "3"};
  const RedisServer server(options);
  EXPECT_EQ(server.port(), options.port);
  EXPECT_EQ(RawRedis(server).configGet("databases"), "3");
  EXPECT_THROW(RedisServer{options}, std::runtime_error);
}

TEST_F(RedisServerTest, FailureToStartShowsTheLog) {
  RedisServer::Options options;
  options.extraArgs = {"--no-such-option", "1"};
  try {
    const RedisServer server(options);
    FAIL() << "started";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("no-such-option"), std::string::npos) << error.what();
  }
}

TEST_F(RedisServerTest, SurvivesTheThreadThatStartedIt) {
  std::unique_ptr<RedisServer> server;
  std::thread([&] { server = std::make_unique<RedisServer>(); }).join();
  RawRedis redis(*server);
  std::thread([&] { server->restart(); }).join();
  // A signal for the death of the starting thread would have come by now.
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(server->running());
  EXPECT_TRUE(RawRedis(*server).ping());
}

TEST_F(RedisServerTest, ForkedChildLeavesEverythingAlone) {
  auto server = std::make_unique<RedisServer>();
  auto proxy = std::make_unique<TcpProxy>(*server);
  auto subscriber = std::make_unique<RawSubscriber>(*server);
  auto child = std::make_unique<ChildProcess>("cat");
  const pid_t forked = ::fork();
  if (forked == 0) {
    child.reset();
    subscriber.reset();
    proxy.reset();
    server.reset();
    ::_exit(0);
  }
  ASSERT_GT(forked, 0);
  EXPECT_EQ(reapProcess(forked, scaled(kPatience)), (ExitStatus{0, 0}));
  RawRedisOptions options;
  options.port = proxy->port();
  EXPECT_TRUE(RawRedis(options).ping());
  EXPECT_TRUE(std::filesystem::exists(server->directory().path()));
  subscriber->subscribe("ch");
  child->send("alive");
  EXPECT_EQ(child->expectLine(kPatience), "alive");
}

constexpr const char* kHelperVariable = "RLOCK_SUPPORT_TEST_HELPER";

/// Run in a process of its own by DiesWithTheTestProcess.
TEST(RedisServerHelper, DISABLED_StartsAServerAndWaits) {
  if (std::getenv(kHelperVariable) == nullptr) {
    GTEST_SKIP() << "only for DiesWithTheTestProcess";
  }
  const RedisServer server;
  RedisServer frozen;
  frozen.freeze();
  std::cout << "\nservers " << server.pid() << ' ' << frozen.pid() << std::endl;
  std::cin.get();
}

TEST_F(RedisServerTest, DiesWithTheTestProcess) {
  const TempDir leftOvers;
  ChildProcess::Options options;
  options.environment = {std::string(kHelperVariable) + "=1",
                         "TMPDIR=" + leftOvers.path().string()};
  ChildProcess helper(selfExecutable(),
                      {"--gtest_filter=RedisServerHelper.*", "--gtest_also_run_disabled_tests"},
                      options);
  std::istringstream line(helper.expectLineContaining("servers ", kPatience));
  std::string word;
  pid_t running = 0;
  pid_t frozen = 0;
  line >> word >> running >> frozen;
  ASSERT_GT(frozen, 0);
  EXPECT_TRUE(processExists(running));
  EXPECT_TRUE(processExists(frozen));
  helper.kill(SIGKILL);
  ASSERT_TRUE(helper.wait(kPatience));
  // Orphans may stay visible as zombies where nobody reaps them.
  const auto gone = [](pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    std::string name;
    char state = 'Z';
    status >> name >> name >> state;
    return state == 'Z' || state == 'X';
  };
  EXPECT_EVENTUALLY(kPatience, gone(running) && gone(frozen));
}

}  // namespace
}  // namespace redis_server_test
}  // namespace rlock::test
