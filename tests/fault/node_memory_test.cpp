// SPDX-License-Identifier: Apache-2.0

// Connections to one server that come and go, and what is asked of it, while an allocation fails.

#include "fault/each_allocation.hpp"
#include "fault/faults.hpp"
#include "unit/dispatched.hpp"
#include "unit/engine_fixture.hpp"
#include "unit/idle_link.hpp"
#include "unit/manual_env.hpp"
#include "unit/pending_commands.hpp"
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/dispatcher.hpp>
#include <rlock/detail/executor/node_acks.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace node_memory_test {
namespace {

using namespace std::chrono_literals;
using test::eachAllocation;
using test::failing;

/// Questions for acknowledgements, to a server that does not answer.
class AcksWorld {
 public:
  void connect(const std::string& runId) { acks_.connected(session(runId), env->now()); }
  static std::shared_ptr<net::ServerSession> session(const std::string& runId) {
    auto session = std::make_shared<net::ServerSession>();
    session->runId = runId;
    return session;
  }
  AckTicket ticket() {
    AckTicket ticket;
    ticket.policy = SyncPolicy::replicas(1);
    ticket.since = env->now();
    ticket.until = env->now() + 1s;
    ticket.done = [this](const Acks& acks) {
      EXPECT_FALSE(acks.met);
      ++told;
    };
    return ticket;
  }
  void ask(AckTicket ticket) { acks_.ask(env->now(), "key", std::move(ticket)); }
  [[nodiscard]] NodeAcks& acks() noexcept { return acks_; }

  const std::shared_ptr<ManualEnv> env = std::make_shared<ManualEnv>();
  int told = 0;

 private:
  NodeAcks acks_{env, [](net::LinkEvents& /*events*/) { return std::make_shared<IdleLink>(); }, 3s};
};

TEST(NodeMemory, TicketsEndWithTheirServer) {
  eachAllocation([](long k) {
    AcksWorld world;
    world.connect("a");
    world.ask(world.ticket());
    world.ask(world.ticket());
    const auto other = AcksWorld::session("b");
    const bool failed = failing(k, [&] { world.acks().connected(other, world.env->now()); });
    EXPECT_EQ(world.told, 2);
    world.ask(world.ticket());
    EXPECT_EQ(world.told, 2) << "this one is of the new server";
    return failed;
  });
}

/// A ticket that cannot be taken is told so, and the next one is taken.
TEST(NodeMemory, ATicketIsToldOnce) {
  eachAllocation([](long k) {
    AcksWorld world;
    world.connect("a");
    AckTicket first = world.ticket();
    const bool failed = failing(k, [&] { world.ask(std::move(first)); });
    EXPECT_LE(world.told, 1);
    world.ask(world.ticket());
    world.env->advance(1s);
    EXPECT_EQ(world.told, 2) << "the times of both are over";
    return failed;
  });
}

TEST(NodeMemory, TicketsEndWithTheClient) {
  eachAllocation([](long k) {
    AcksWorld world;
    world.connect("a");
    world.ask(world.ticket());
    world.ask(world.ticket());
    const bool failed = failing(k, [&] { world.acks().end(); });
    EXPECT_EQ(world.told, 2);
    return failed;
  });
}

/// A client of one server, which the test is.
struct ServerWorld {
  ServerWorld() {
    dispatcher->open([](const Result<void>& /*ready*/) {});
  }
  ServerWorld(const ServerWorld&) = delete;
  ServerWorld& operator=(const ServerWorld&) = delete;
  ~ServerWorld() {
    dispatcher->close();
    env->runPosted();
  }

  const std::shared_ptr<ManualEnv> env = std::make_shared<ManualEnv>();
  const std::shared_ptr<PendingCommands> server = std::make_shared<PendingCommands>(*env);
  net::LinkEvents* link = nullptr;
  NotedEvents events;
  const std::shared_ptr<Dispatcher> dispatcher = std::make_shared<Dispatcher>(
      env,
      net::Transports{[this](net::LinkEvents& made) {
                        link = &made;
                        return server;
                      },
                      [](net::PubSubEvents&) { return std::make_unique<NoSubscriptions>(); }},
      Options::fromUri("redis://host"),
      std::make_shared<const Logger>([](LogLevel, std::string_view) {}, LogLevel::debug),
      events);
};

/// There is a connection, to another process than before: the call that waits for it goes out, and
/// holds are verified.
TEST(NodeMemory, AConnectionIsTold) {
  eachAllocation([](long k) {
    ServerWorld world;
    world.server->connect(*world.link, true);
    const auto call = makeIntrusive<TakingCall>();
    world.dispatcher->start(call, world.env->now() + 10s);
    world.server->disconnect(*world.link);
    EXPECT_FALSE(call->outcome.has_value()) << "it waits";
    const auto session =
        std::make_shared<net::ServerSession>(*world.server->begin(true, "another run"));
    session->node = "a host whose name takes memory:6379";
    const bool failed = failing(k, [&] { world.link->onUp(session); });
    EXPECT_TRUE(world.server->underWay() == 1 || call->outcome.has_value());
    world.env->advance(1s);
    // Once more where it was told and what followed had no memory.
    EXPECT_FALSE(world.events.told.empty());
    for (const bool replaced : world.events.told) {
      EXPECT_TRUE(replaced);
    }
    EXPECT_TRUE(world.dispatcher->liveNodes().connected());
    return failed;
  });
}

/// A call whose request was lost waits for the kill of its connection.
struct KillingWorld : ServerWorld {
  KillingWorld() {
    server->connect(*link, true);
    dispatcher->start(call, env->now() + 10s);
    server->disconnect(*link);
    server->connect(*link, true);
    expectKill();
  }

  void expectKill() const {
    // Where there was no memory to go on waiting the call is over.
    if (!call->outcome.has_value()) {
      ASSERT_EQ(server->underWay(), 1U);
      EXPECT_EQ(server->oldest(), (std::vector<std::string>{"CLIENT", "KILL", "ID", "1"}));
    }
  }
  static Reply busy() {
    Reply reply;
    reply.type = Reply::Type::error;
    reply.text = "BUSY Redis is busy running a script.";
    return reply;
  }

  const IntrusivePtr<TakingCall> call = makeIntrusive<TakingCall>();
};

TEST(NodeMemory, AKillThatIsRefusedIsAskedForAgain) {
  eachAllocation([](long k) {
    KillingWorld world;
    Reply refusal = KillingWorld::busy();
    const bool failed = failing(k, [&] { world.server->answer(std::move(refusal)); });
    world.env->advance(3s);
    world.expectKill();
    return failed;
  });
}

TEST(NodeMemory, AKillIsAskedForAgainUntilThereIsMemory) {
  eachAllocation([](long k) {
    KillingWorld world;
    world.server->answer(KillingWorld::busy());
    const bool failed = failing(k, [&] { EXPECT_NO_THROW(world.env->advance(100ms)); });
    world.env->advance(3s);
    world.expectKill();
    return failed;
  });
}

}  // namespace
}  // namespace node_memory_test
}  // namespace rlock::detail
