// SPDX-License-Identifier: Apache-2.0

// An address that leads to something else than a Redis that takes writes: what it is, and what to
// write instead.

#include "integration/lock_harness.hpp"

#include <fstream>

namespace rlock::test {
namespace {

class WrongServer : public LockTest {
 protected:
  /// The error of a connection that cannot be had.
  static Error refusal(const std::string& uri) {
    try {
      Client client = Client::connect(uri);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "connected to " << uri;
    return Error(Errc::serverError, "none");
  }
  static bool says(const Error& error, std::string_view text) {
    return std::string_view(error.what()).find(text) != std::string_view::npos;
  }
};

TEST_F(WrongServer, ASentinelIsRefused) {
  const TempDir directory;
  const PortReservation port;
  const std::string config = directory.file("sentinel.conf");
  std::ofstream(config) << "port " << port.port() << "\nbind 127.0.0.1\ndir "
                        << directory.path().string() << "\n";
  const char* const configured = std::getenv("RLOCK_TEST_REDIS_SERVER");
  ChildProcess sentinel(configured != nullptr && *configured != '\0' ? configured : "redis-server",
                        {config, "--sentinel"});
  const std::string address = "127.0.0.1:" + std::to_string(port.port());
  // It has no password, though the server that it watches may have one.
  for (const std::string& uri :
       {"redis://" + address, "redis://" + address + "/3", "redis://:secret@" + address}) {
    ASSERT_EVENTUALLY(kLong, refusal(uri).errc() != Errc::connectionFailed);
    const Error error = refusal(uri);
    EXPECT_EQ(error.errc(), Errc::invalidArgument);
    EXPECT_TRUE(says(error, "Sentinel")) << error.what();
    EXPECT_TRUE(says(error, "write redis+sentinel://" + address + "/NAME")) << error.what();
  }
}

TEST_F(WrongServer, ANodeOfAClusterIsRefused) {
  RedisServerOptions settings;
  settings.extraArgs = {"--cluster-enabled", "yes"};
  const RedisServer node(settings);
  const std::string address = node.uri().substr(std::string_view("redis://").size());
  for (const std::string& uri :
       {"redis://" + address, "redis://" + address + "/3", "redis://:secret@" + address}) {
    const Error error = refusal(uri);
    EXPECT_EQ(error.errc(), Errc::invalidArgument);
    EXPECT_TRUE(says(error, "node of a cluster")) << error.what();
    EXPECT_TRUE(says(error, "write redis+cluster://" + address)) << error.what();
  }
}

TEST_F(WrongServer, AReplicaIsNamedWhereItRefusesToWrite) {
  RLOCK_ONE_SERVER_ONLY("makes a replica of its server");
  raw().run({"REPLICAOF", "127.0.0.1", "1"});
  Options settings = options();
  settings.callTimeout = 300ms;
  Client client = Client::connect(settings);
  EXPECT_TRUE(log().contains("is a replica, which takes no writes; give its master's address"))
      << "nobody is warned";
  std::optional<Error> error;
  // A call whose time is up while a request is under way can only say that.
  ASSERT_EVENTUALLY(kLong, [&] {
    const Result<bool> answer = client.getLock("r").tryLockAsync().wait();
    EXPECT_FALSE(answer) << "a replica has written";
    error = answer ? std::optional<Error>() : answer.error();
    return !error || error->errc() == Errc::readOnly;
  }());
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "replica")) << error->what();
}

/// Says nothing of itself by HELLO, as servers older than 6.
RedisServerOptions withoutHello() {
  RedisServerOptions settings;
  settings.extraArgs = {"--rename-command", "HELLO", "HELLO-OF-OURS"};
  return settings;
}

TEST_F(WrongServer, AReplicaWithoutHelloIsWarnedOf) {
  const RedisServer replica(withoutHello());
  RawRedis(replica).run({"REPLICAOF", "127.0.0.1", "1"});
  const Client client = Client::connect(tuned(replica.uri()));
  EXPECT_TRUE(log().contains("give its master's address"));
}

TEST_F(WrongServer, ANodeOfAClusterWithoutHelloIsRefusedWhoeverConnects) {
  RedisServerOptions settings = withoutHello();
  settings.extraArgs.insert(settings.extraArgs.end(), {"--cluster-enabled", "yes"});
  const RedisServer node(settings);
  // A client that kills no connections asks for less.
  for (const char* const parameters : {"", "?lost-reply-policy=marker"}) {
    const Error error = refusal(node.uri() + parameters);
    EXPECT_EQ(error.errc(), Errc::invalidArgument);
    EXPECT_TRUE(says(error, "write redis+cluster://")) << error.what();
  }
}

}  // namespace
}  // namespace rlock::test
