// SPDX-License-Identifier: Apache-2.0

// A name that gets another address while locks are held and waited for: the server has moved, or
// another one has taken over its name, as managed services let a replica do.

#include "support/closed_at_end.hpp"
#include "support/contested.hpp"
#include "support/hanging_names.hpp"
#include "support/tcp_proxy.hpp"
#include "topology/topology_harness.hpp"

#include <cstdint>
#include <optional>
#include <ostream>

namespace rlock::test {
namespace {

/// Where the name has led before.
enum class Before {
  closed,  ///< connections are reset, and others refused
  silent,  ///< no packet comes back
  // The following for a server that another has taken over from.
  killed,
  demoted,  ///< it lives on as a replica of the other
  lives,    ///< it lives on as a master, and has closed no connection but those for commands
};

const char* toString(Before before) {
  switch (before) {
    case Before::closed:
      return "closed";
    case Before::silent:
      return "silent";
    case Before::killed:
      return "killed";
    case Before::demoted:
      return "demoted";
    case Before::lives:
      return "lives";
  }
  return "unknown";
}

/// A name with two addresses, one after the other: 127.0.0.1 and 127.0.0.2, where a proxy listens
/// at the same port.
class MovingName : public TopologyTest {
 protected:
  MovingName() { moveNames(1); }

  void SetUp() override { RLOCK_REQUIRE_REDIS_SERVER(); }

  /// @param there  the server at the second address; null: the first one's
  void start(RedisServer& here, RedisServer* there = nullptr) {
    const std::uint16_t behind = there == nullptr ? here.port() : there->port();
    first_ = std::make_unique<TcpProxy>(here);
    second_ = std::make_unique<TcpProxy>(PortReservation(first_->port(), 2), behind);
  }
  [[nodiscard]] TcpProxy& address(int host) { return host == 1 ? *first_ : *second_; }

  /// Nothing but messages wakes a waiter, and a silent server is noticed soon.
  [[nodiscard]] Options settings() {
    const std::string port = std::to_string(first_->port());
    Options result = tuned("redis://server.moves.test:" + port);
    result.commandTimeout = scaled(500ms);
    result.callTimeout = kLong;
    result.heartbeatInterval = 200ms;
    result.reconnectDelayMax = 200ms;
    return result;
  }

  void closeOld(int host) {
    address(host).refuseConnections(true);
    address(host).cutAll();
  }
  /// Of one address: with channels, and for commands.
  struct Connections {
    std::size_t subscribers = 0;
    std::size_t others = 0;
    bool operator==(const Connections&) const = default;
    friend void PrintTo(const Connections& all, std::ostream* to) {
      *to << all.subscribers << " with channels, " << all.others << " for commands";
    }
  };
  /// Of a client that holds and one that waits.
  static constexpr Connections kAll{.subscribers = 2, .others = 2};
  [[nodiscard]] Connections connections(int host) {
    Connections found;
    for (const TcpProxy::ConnectionInfo& one : address(host).connections()) {
      ++(one.isSubscriber ? found.subscribers : found.others);
    }
    return found;
  }

 private:
  std::unique_ptr<TcpProxy> first_;
  std::unique_ptr<TcpProxy> second_;
};

std::vector<std::unique_ptr<Contested>> objectsOf(Client& holder) {
  return contestedObjects(holder, [](const std::string& kind, std::size_t member) {
    return kind + std::to_string(member);
  });
}

std::string nameOf(const ::testing::TestParamInfo<Before>& test) {
  return toString(test.param);
}

class ServerThatMoves : public MovingName, public ::testing::WithParamInterface<Before> {};

INSTANTIATE_TEST_SUITE_P(All,
                         ServerThatMoves,
                         ::testing::Values(Before::closed, Before::silent),
                         nameOf);

TEST_P(ServerThatMoves, XNET6_SU10_HoldsAreKeptAndWaitersEnter) {
  RedisServer server;
  start(server);
  Client holder = Client::connect(settings());
  Client others = Client::connect(settings());
  const auto objects = objectsOf(holder);
  const ClosedAtEnd end(others);
  ASSERT_TRUE(contendAll(objects, others));
  ASSERT_EVENTUALLY(kLong, connections(1) == kAll);
  moveNames(2);
  if (GetParam() == Before::silent) {
    address(1).blackHole();
  } else {
    closeOld(1);
  }
  // The subscribers, too: a message wakes each of the waiters below.
  EXPECT_EVENTUALLY(kLong, connections(2) == kAll);
  for (const auto& object : objects) {
    EXPECT_TRUE(object->held()) << object->kind().name;
  }
  for (const auto& object : objects) {
    SCOPED_TRACE(object->kind().name);
    expectToHandOn(*object);
  }
  expectToEndWell(objects);
  EXPECT_EQ(holder.stats().lost, 0U);
  EXPECT_EQ(others.stats().lost, 0U);
}

TEST_F(MovingName, SU10_EachReleaseWakesTheWaiterRoundAfterRound) {
  RedisServer server;
  start(server);
  Client holder = Client::connect(settings());
  Client others = Client::connect(settings());
  RLock mine = holder.getLock("rounds");
  RLock theirs = others.getLock("rounds");
  std::future<std::string> waiter;
  const ClosedAtEnd end(others);
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    const int next = round % 2 == 0 ? 2 : 1;
    mine.lock();
    waiter = inThread([&] {
      return outcomeOf([&] {
        theirs.lock();
        theirs.unlock();
      });
    });
    ASSERT_EVENTUALLY(kLong, others.stats().waiters == 1 && connections(3 - next) == kAll);
    address(next).refuseConnections(false);
    moveNames(next);
    closeOld(3 - next);
    ASSERT_EVENTUALLY(kLong, connections(next) == kAll);
    mine.unlock();
    ASSERT_EVENTUALLY(2s, waiter.wait_for(0s) == std::future_status::ready);
    EXPECT_EQ(waiter.get(), "ok");
  }
}

class AnotherServer : public MovingName, public ::testing::WithParamInterface<Before> {};

INSTANTIATE_TEST_SUITE_P(
    All,
    AnotherServer,
    ::testing::Values(Before::killed, Before::demoted, Before::silent, Before::lives),
    nameOf);

TEST_P(AnotherServer, XNET6_SU10_HoldsAreVerifiedAndWaitersEnter) {
  RedisServerOptions plain;
  plain.extraArgs = {"--repl-diskless-sync-delay", "0"};
  RedisServer before(plain);
  RedisServerOptions follower = plain;
  follower.extraArgs.insert(follower.extraArgs.end(),
                            {"--replicaof", "127.0.0.1", std::to_string(before.port())});
  RedisServer after(follower);
  start(before, &after);
  Options kept = settings();
  // A renewal is what finds out that a master is none any more.
  kept.watchdogTimeout = scaled(12s);
  Client holder = Client::connect(kept);
  Client others = Client::connect(settings());
  const auto objects = objectsOf(holder);
  const ClosedAtEnd end(others);
  ASSERT_TRUE(contendAll(objects, others));
  ASSERT_EVENTUALLY(kLong, connections(1) == kAll);
  RawRedis old(before);
  old.set("replicated", "");
  ASSERT_EVENTUALLY(kLong, old.command({"WAIT", "1", "1000"}).integer() == 1);
  RawRedis next(after);
  next.run({"REPLICAOF", "NO", "ONE"});
  // From here on the new one does not know what the old one grants.
  Lease unknown = holder.getLock("unknown").acquire({.lease = 300s});
  moveNames(2);
  switch (GetParam()) {
    case Before::killed:
      before.kill();
      break;
    case Before::demoted:
      old.run({"REPLICAOF", "127.0.0.1", std::to_string(after.port())});
      // Only then its clients hear what the other one publishes.
      ASSERT_EVENTUALLY(kLong, old.info("master_link_status") == "up");
      break;
    case Before::silent:
    case Before::closed:
      address(1).blackHole();
      break;
    case Before::lives:
      address(1).cutAll(TcpProxy::CutKind::orderly, TcpProxy::commandsOnly());
      break;
  }
  EXPECT_EVENTUALLY(kLong, unknown.lossReason() == LossReason::failover);
  if (GetParam() != Before::demoted) {
    EXPECT_EVENTUALLY(kLong, connections(2) == kAll);
  }
  for (const auto& object : objects) {
    EXPECT_TRUE(object->held()) << object->kind().name;
    EXPECT_FALSE(object->entered()) << object->kind().name;
  }
  for (const auto& object : objects) {
    SCOPED_TRACE(object->kind().name);
    expectToHandOn(*object);
  }
  expectToEndWell(objects);
  EXPECT_EQ(holder.stats().lost, 1U);
  EXPECT_EQ(others.stats().lost, 0U);
  EXPECT_FALSE(next.exists("unknown"));
}

}  // namespace
}  // namespace rlock::test
