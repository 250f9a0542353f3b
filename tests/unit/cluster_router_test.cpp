// SPDX-License-Identifier: Apache-2.0
#include "unit/dispatched.hpp"
#include "unit/idle_link.hpp"
#include "unit/manual_env.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/executor/ack_tickets.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/cluster_router.hpp>
#include <rlock/detail/executor/dispatcher.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/net/pending_requests.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/options.hpp>
#include <rlock/sync_policy.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace cluster_router_test {
namespace {

using namespace std::chrono_literals;

/// A connection to one server, which is the test.
class ServerLink final : public IdleLink {
 public:
  ServerLink(const ManualEnv& env, net::LinkEvents& events) : env_(env), events_(events) {}

  void close() noexcept override { end(); }
  bool submit(net::Request& request, std::span<const std::string_view> argv, Mode mode) override {
    if (!isUp) {
      return false;
    }
    put(request, argv, mode);
    return true;
  }
  bool submitGroup(std::span<const Part> group) override {
    for (const Part& part : group) {
      put(part.request, part.argv, Mode::background);
    }
    return isUp;
  }

  void connect(const std::string& runId, bool canKill = true) {
    isUp = true;
    pending_.begin(canKill, env_.now());
    session_ = std::make_shared<net::ServerSession>();
    session_->node = "node of " + runId;
    session_->address = "10.0.0.1:7000";
    session_->runId = runId;
    session_->clientId = ++connections_;
    session_->canKill = canKill;
    events_.onUp(session_);
  }
  void cut(Errc errc = Errc::connectionFailed) {
    end();
    events_.onDown(Error(errc, "cut"));
  }
  /// Answers the oldest request.
  void answer(Reply reply) {
    net::PendingRequests::Ended ended;
    ASSERT_TRUE(pending_.take(std::move(reply), env_.now(), ended));
    tell(ended);
  }
  void refuse(std::string error) {
    Reply reply;
    reply.type = Reply::Type::error;
    reply.text = std::move(error);
    answer(std::move(reply));
  }
  /// The requests sent since the last call.
  std::vector<std::string> sent() { return std::exchange(sent_, {}); }

 private:
  void put(net::Request& request, std::span<const std::string_view> argv, Mode mode) {
    std::string text;
    for (const std::string_view word : argv) {
      text.append(text.empty() ? "" : " ").append(word);
    }
    sent_.push_back(std::move(text));
    pending_.append(request, 1, mode, env_.now());
    pending_.offer(1);
  }
  void end() noexcept {
    isUp = false;
    net::PendingRequests::Ended ended;
    pending_.fail(session_, ended);
    tell(ended);
  }
  static void tell(net::PendingRequests::Ended& ended) noexcept {
    while (const auto request = ended.background.pop()) {
      net::PendingRequests::complete(*request);
    }
  }

  const ManualEnv& env_;
  net::LinkEvents& events_;
  net::PendingRequests pending_{3s};
  std::shared_ptr<net::ServerSession> session_ = std::make_shared<net::ServerSession>();
  std::uint64_t connections_ = 0;
  std::vector<std::string> sent_;
};

/// The memory that there is for connections and subscriptions.
struct Memory {
  /// There is none for one of them, and for the next one there is.
  void take() {
    if (std::exchange(missing, false)) {
      throw std::bad_alloc();
    }
  }

  bool missing = false;
};

/// A connection for subscriptions to one node.
class Subscriptions final : public net::SubscriptionTransport {
 public:
  Subscriptions(Memory& memory, std::vector<std::string>& told, std::string node)
      : memory_(memory), told_(told), node_(std::move(node)) {}

  void subscribe(std::string channel) override { told_.push_back(node_ + " has " + channel); }
  void unsubscribe(const std::string& /*channel*/) override {}
  void renew() override {
    memory_.take();
    told_.push_back(node_ + " is renewed");
  }
  void close() noexcept override {}

 private:
  Memory& memory_;
  std::vector<std::string>& told_;
  const std::string node_;
};

/// Finds nothing left to ask for when it could be sent, and with it the client ends.
class LastCall final : public Call {
 public:
  explicit LastCall(Dispatcher& dispatcher) : dispatcher_(dispatcher) {
    setCommand({"LEAVE", "key"});
    setSlot(7);
  }

 private:
  bool aboutToSend(std::chrono::steady_clock::time_point /*now*/) override { return false; }
  void finished(Outcome /*outcome*/) noexcept override { dispatcher_.close(); }

  Dispatcher& dispatcher_;
};

constexpr lua::Script kScript{"script", "0123456789012345678901234567890123456789", "return 1"};

/// A script about a key of that slot.
class ScriptCall final : public Call {
 public:
  explicit ScriptCall(std::uint16_t slot) {
    setScript(kScript, 0);
    setSlot(slot);
  }

 private:
  void finished(Outcome /*outcome*/) noexcept override {}
};

/// A cluster of which node `a` has all slots, as its map says.
class ClusterRouterTest : public ::testing::Test {
 protected:
  ClusterRouterTest() {
    dispatcher_->open([](const Result<void>& /*ready*/) {});
    tellMap("a");
    dispatcher_->start(call_, env_->now() + 1min);
    server("a").connect("run-a");
    EXPECT_EQ(server("a").sent(), (Sent{"TAKE key"}));
  }
  ~ClusterRouterTest() override {
    dispatcher_->close();
    env_->runPosted();
  }

  using Sent = std::vector<std::string>;

  /// The map is read over a connection of its own: one node has all slots.
  void tellMap(const std::string& host) { tellMap(test::allSlotsAt(host)); }
  void tellMap(Reply slots) {
    seed_->connect("seed");
    seed_->answer(test::textReply("cluster_state:ok\r\ncluster_current_epoch:1\r\n"));
    seed_->refuse("ERR unknown subcommand 'SHARDS'");
    seed_->answer(test::listReply({}));
    seed_->answer(std::move(slots));
    env_->runPosted();
  }
  ServerLink& server(const std::string& host) { return *links_.at(host); }
  void sendOn(const std::string& host) { server("a").refuse("ASK 7 " + host + ":7000"); }
  /// The key has gone ahead to another node, to which a connection is made, and which does not
  /// answer before that connection is lost.
  void loseAt(const std::string& host, const std::string& runId) {
    sendOn(host);
    server(host).connect(runId);
    // The way begins where the map says.
    EXPECT_EQ(server("a").sent(), (Sent{"TAKE key"}));
    sendOn(host);
    EXPECT_EQ(server(host).sent(), (Sent{"ASKING", "TAKE key"}));
    server(host).cut();
    EXPECT_EQ(server("a").sent(), (Sent{"TAKE key"})) << "`a` has nothing that was lost";
  }

  /// The map is read again: the slot of the call is `b`'s, and `a` has others.
  void giveTheSlotToB() {
    Reply slots = test::allSlotsAt("a");
    slots.elements[0].elements[0] = test::numberReply(8);
    slots.elements.push_back(test::allSlotsAt("b").elements[0]);
    slots.elements[1].elements[1] = test::numberReply(7);
    tellMap(std::move(slots));
  }

  /// The call was lost at `a`, and the slot is `b`'s by now: it goes there when `a`, which has
  /// other slots, has killed the connection.
  void waitForTheKillAtA() {
    env_->advance(1s);
    server("a").cut();
    giveTheSlotToB();
    server("a").connect("run-a");
    EXPECT_EQ(server("a").sent(), Sent());
    server("b").connect("run-b");
    EXPECT_EQ(server("a").sent(), (Sent{"CLIENT KILL ID 1"}));
    EXPECT_EQ(server("b").sent(), Sent());
  }

  /// The map is read again, and no master has the slot of the call. Node `a` has the others.
  void leaveTheSlotToNobody() {
    server("a").answer(test::numberReply(1));
    env_->advance(1s);
    server("a").cut();
    server("a").connect("run-a");
    Reply slots = test::allSlotsAt("a");
    slots.elements[0].elements[0] = test::numberReply(8);
    tellMap(std::move(slots));
    server("a").sent();
  }

  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  Memory memory_;
  std::vector<std::string> subscriptions_;
  std::shared_ptr<ServerLink> seed_;
  std::map<std::string, std::shared_ptr<ServerLink>> links_;
  NotedEvents events_;
  const std::shared_ptr<Dispatcher> dispatcher_ = std::make_shared<Dispatcher>(
      env_,
      net::Transports{[this](net::LinkEvents& events) {
                        memory_.take();
                        seed_ = std::make_shared<ServerLink>(*env_, events);
                        return seed_;
                      },
                      {},
                      [this](const Endpoint& node, net::LinkEvents& events) {
                        return links_[node.host] = std::make_shared<ServerLink>(*env_, events);
                      },
                      [this](const Endpoint& node, net::ChannelKind, net::PubSubEvents&) {
                        memory_.take();
                        return std::make_unique<Subscriptions>(memory_, subscriptions_, node.host);
                      }},
      Options::fromUri("redis+cluster://seed:7000"),
      std::make_shared<const Logger>([](LogLevel, std::string_view) {}, LogLevel::error),
      events_);
  const IntrusivePtr<TakingCall> call_ = makeIntrusive<TakingCall>();
};

TEST_F(ClusterRouterTest, WhatWasLostAtANodeThatHasTheKeyAheadIsKilledBeforeTheCallComesThere) {
  loseAt("b", "run-b");
  sendOn("b");
  server("b").connect("run-b");
  EXPECT_EQ(server("b").sent(), (Sent{"CLIENT KILL ID 1"}));
  EXPECT_EQ(server("a").sent(), (Sent())) << "the kill is waited for";
  server("b").answer(test::numberReply(1));
  EXPECT_EQ(server("a").sent(), (Sent{"TAKE key"}));
  sendOn("b");
  EXPECT_EQ(server("b").sent(), (Sent{"ASKING", "TAKE key"}));
}

// Without a connection to it the call would not have waited.
TEST_F(ClusterRouterTest, ACallGoesOutWhenTheNodeThatIsToKillCannotBeReached) {
  waitForTheKillAtA();
  server("a").cut();
  EXPECT_EQ(server("b").sent(), (Sent{"TAKE key"}));
  EXPECT_FALSE(call_->outcome.has_value());
}

TEST_F(ClusterRouterTest, ACallDoesNotFailWithTheErrorOfTheNodeThatIsToKill) {
  waitForTheKillAtA();
  server("a").cut(Errc::authenticationFailed);
  EXPECT_EQ(server("b").sent(), (Sent{"TAKE key"}));
  EXPECT_FALSE(call_->outcome.has_value());
}

// The slot may go where it was lost before the next request does.
TEST_F(ClusterRouterTest, WhatIsNotKnownToBeDeadKeepsTheNextRequestFromTheDirectWay) {
  loseAt("b", "run-b");
  server("a").answer(test::numberReply(1));
  ASSERT_TRUE(call_->outcome.has_value());
  EXPECT_FALSE(dispatcher_->direct(*call_));
  dispatcher_->startAhead(call_, env_->now() + 1min);
  EXPECT_EQ(server("a").sent(), (Sent{"TAKE key"})) << "it still has nothing that was lost";
  server("a").refuse("MOVED 7 b:7000");
  server("b").connect("run-b");
  EXPECT_EQ(server("b").sent().front(), "CLIENT KILL ID 1");
}

// A node is told by its name and by its number, and is two nodes then.
TEST_F(ClusterRouterTest, AServerThatHasTwoAddressesKillsByTheOther) {
  loseAt("b", "run-b");
  sendOn("10.0.0.2");
  server("10.0.0.2").connect("run-b");
  EXPECT_EQ(server("a").sent(), (Sent{"TAKE key"}));
  sendOn("10.0.0.2");
  EXPECT_EQ(server("10.0.0.2").sent(), (Sent{"CLIENT KILL ID 1"}));
  server("10.0.0.2").answer(test::numberReply(1));
  EXPECT_EQ(server("a").sent(), (Sent{"TAKE key"}));
  sendOn("10.0.0.2");
  EXPECT_EQ(server("10.0.0.2").sent(), (Sent{"ASKING", "TAKE key"}));
}

TEST_F(ClusterRouterTest, AServerThatDoesNotKillByItsOtherAddressSaysWhy) {
  loseAt("b", "run-b");
  sendOn("10.0.0.2");
  server("10.0.0.2").connect("run-b");
  sendOn("10.0.0.2");
  server("10.0.0.2").refuse("NOPERM no permissions to run the 'client|kill' command");
  server("a").sent();
  sendOn("10.0.0.2");
  ASSERT_TRUE(call_->outcome.has_value());
  ASSERT_TRUE(call_->outcome->error.has_value());
  EXPECT_EQ(call_->outcome->error->errc(), Errc::denied);
}

// One slot has moved, and others may have moved with it.
TEST_F(ClusterRouterTest, ASlotThatHasMovedIsAReasonToReadTheMap) {
  env_->advance(1s);
  server("a").refuse("MOVED 7 b:7000");
  EXPECT_EQ(server("a").sent(), (Sent{"CLUSTER INFO", "CLUSTER SHARDS", "PUBSUB SHARDNUMSUB"}));
}

// Another cluster may be at the same host.
TEST_F(ClusterRouterTest, AMasterWhoseNameIsNotKnownIsLookedUpInTheMap) {
  env_->advance(1s);
  const std::shared_ptr<ServerLink> asked = links_["a"];
  server("a").refuse("MOVED 7 ?:7001");
  EXPECT_EQ(links_["a"], asked) << "nobody else is connected to there";
  EXPECT_EQ(server("a").sent(), (Sent{"CLUSTER INFO", "CLUSTER SHARDS", "PUBSUB SHARDNUMSUB"}));
}

TEST_F(ClusterRouterTest, AKeyThatHasGoneAheadToANameThatIsNotKnownIsAskedForAgain) {
  const std::shared_ptr<ServerLink> asked = links_["a"];
  server("a").refuse("ASK 7 ?:7001");
  EXPECT_EQ(links_["a"], asked) << "nobody else is connected to there";
}

TEST_F(ClusterRouterTest, AKeyThatHasGoneAheadIsNone) {
  env_->advance(1s);
  sendOn("b");
  EXPECT_EQ(server("a").sent(), Sent());
}

// The server's word was to ask elsewhere, and was followed: what failed is the time.
TEST_F(ClusterRouterTest, ARedirectionWithoutTimeToFollowItIsNotTheReason) {
  sendOn("b");
  server("b").connect("run-b");
  server("a").answer(test::numberReply(1));
  for (const char* const redirection : {"ASK 7 b:7000", "MOVED 7 b:7000"}) {
    SCOPED_TRACE(redirection);
    const auto call = makeIntrusive<TakingCall>();
    dispatcher_->start(call, env_->now() + 10ms);
    env_->advance(10ms);
    server("a").refuse(redirection);
    ASSERT_TRUE(call->outcome.has_value());
    ASSERT_TRUE(call->outcome->error.has_value());
    EXPECT_EQ(call->outcome->error->errc(), Errc::connectionFailed);
    EXPECT_THAT(call->outcome->error->what(), testing::HasSubstr("no time left"));
  }
}

// The two nodes would send it to each other for all its time, and that would be its error.
TEST_F(ClusterRouterTest, AnAskingThatIsRefusedIsTheReason) {
  constexpr const char* kRefusal = "NOPERM this user has no permissions to run 'asking'";
  sendOn("b");
  server("b").connect("run-b");
  server("a").refuse("ASK 7 b:7000");
  EXPECT_EQ(server("b").sent(), (Sent{"ASKING", "TAKE key"}));
  server("a").sent();
  server("b").refuse(kRefusal);
  server("b").refuse("MOVED 7 a:7000");
  EXPECT_EQ(server("a").sent(), Sent());
  ASSERT_TRUE(call_->outcome.has_value());
  ASSERT_TRUE(call_->outcome->error.has_value());
  EXPECT_EQ(call_->outcome->error->errc(), Errc::denied);
  EXPECT_EQ(call_->outcome->error->serverMessage(), kRefusal);
}

// The slot may have come to the node meanwhile.
TEST_F(ClusterRouterTest, AnAskingThatIsRefusedIsNoReasonIfTheCallIsExecuted) {
  sendOn("b");
  server("b").connect("run-b");
  server("a").refuse("ASK 7 b:7000");
  server("b").refuse("NOPERM this user has no permissions to run 'asking'");
  server("b").answer(test::numberReply(1));
  ASSERT_TRUE(call_->outcome.has_value());
  EXPECT_EQ(call_->outcome->kind, Outcome::Kind::replied);
}

// A renewal has little patience, and would never get through over a slow network.
TEST_F(ClusterRouterTest, ARedirectionIsFollowedUpPastItsTime) {
  sendOn("b");
  server("b").connect("run-b");
  server("a").answer(test::numberReply(1));
  const auto call = makeIntrusive<TakingCall>();
  call->setFollowsUp(true);
  dispatcher_->start(call, env_->now() + 5ms);
  server("b").sent();
  env_->advance(20ms);
  server("a").refuse("ASK 7 b:7000");
  EXPECT_FALSE(call->outcome.has_value());
  EXPECT_THAT(server("b").sent(), testing::ElementsAre("ASKING", "TAKE key"));
}

// Nobody is there any more for whom it could be sent again.
TEST_F(ClusterRouterTest, ADirectCallWithoutItsCallerEndsWithARefusal) {
  server("a").answer(test::numberReply(1));
  const auto call = makeIntrusive<TakingCall>();
  ASSERT_TRUE(dispatcher_->direct(*call, Dispatcher::Mode::background));
  server("a").refuse("BUSY Redis is busy running a script.");
  ASSERT_TRUE(call->outcome.has_value()) << "it waits for a pause to be over";
  ASSERT_TRUE(call->outcome->error.has_value());
  EXPECT_EQ(call->outcome->error->errc(), Errc::serverError);
}

// A call that waits for a connection is sent before the connection is told.
TEST_F(ClusterRouterTest, AClientThatEndsWithACallIsToldOfNoConnection) {
  server("a").answer(test::numberReply(1));
  EXPECT_TRUE(dispatcher_->liveNodes().connected());
  server("a").cut();
  dispatcher_->start(makeIntrusive<LastCall>(*dispatcher_), env_->now() + 1min);
  server("a").connect("run-a");
  EXPECT_FALSE(dispatcher_->liveNodes().connected());
}

// A map is adopted once, so there is one occasion to tell of the master.
TEST_F(ClusterRouterTest, AMasterThatHasTakenOverIsVerifiedAlsoWithoutMemoryForItsChannels) {
  dispatcher_->subscribe("channel");
  EXPECT_EQ(subscriptions_, (Sent{"a has channel"}));
  env_->advance(1s);
  server("a").cut();
  memory_.missing = true;
  tellMap("b");
  EXPECT_FALSE(memory_.missing);
  EXPECT_EQ(events_.told, std::vector<bool>{true});
  EXPECT_EQ(subscriptions_, (Sent{"a has channel", "b has channel"}));
  EXPECT_EQ(links_.count("b"), 1U) << "the call waits there";
}

TEST_F(ClusterRouterTest, ACallHearsThatWaitingIsOfNoUseAlsoWithoutMemoryToReadTheMap) {
  env_->advance(1s);
  memory_.missing = true;
  EXPECT_NO_THROW(server("a").cut(Errc::authenticationFailed));
  EXPECT_FALSE(memory_.missing);
  ASSERT_TRUE(call_->outcome.has_value());
  ASSERT_TRUE(call_->outcome->error.has_value());
  EXPECT_EQ(call_->outcome->error->errc(), Errc::authenticationFailed);
}

TEST_F(ClusterRouterTest, NewCredentialsAreAnsweredAlsoWithoutMemoryForTheSubscriptions) {
  dispatcher_->subscribe("channel");
  subscriptions_.clear();
  memory_.missing = true;
  std::vector<bool> answers;
  EXPECT_NO_THROW(dispatcher_->authenticate(
      [&](const Result<void>& answer) { answers.push_back(answer.has_value()); }));
  EXPECT_EQ(answers, std::vector<bool>{true});
  EXPECT_EQ(subscriptions_, (Sent{"a is renewed"}));
}

// Until then its renewals wait for a connection, and may have no time for it.
TEST_F(ClusterRouterTest, AMasterThatHasTakenOverIsVerifiedWhenItIsConnectedToo) {
  env_->advance(1s);
  server("a").cut();
  tellMap("b");
  EXPECT_EQ(events_.told, std::vector<bool>{true});
  server("b").connect("run-b");
  EXPECT_EQ(events_.told, (std::vector<bool>{true, true}));
  server("b").cut();
  server("b").connect("run-b");
  EXPECT_EQ(events_.told, (std::vector<bool>{true, true, false})) << "it is the same process";
}

// The map that there is does not say so, and nothing else happens.
TEST_F(ClusterRouterTest, ACallWhoseSlotNobodyHasIsAReasonToReadTheMap) {
  leaveTheSlotToNobody();
  const auto call = makeIntrusive<TakingCall>();
  dispatcher_->start(call, env_->now() + 1min);
  env_->advance(100ms);
  ASSERT_EQ(server("a").sent(), (Sent{"CLUSTER INFO", "CLUSTER SHARDS", "PUBSUB SHARDNUMSUB"}));
  server("a").answer(test::textReply("cluster_state:ok\r\ncluster_current_epoch:2\r\n"));
  server("a").refuse("ERR unknown subcommand 'SHARDS'");
  server("a").answer(test::listReply({}));
  server("a").answer(test::allSlotsAt("a"));
  EXPECT_EQ(server("a").sent(), (Sent{"CLUSTER SLOTS", "TAKE key"}));
}

TEST_F(ClusterRouterTest, ACallWhoseSlotNobodyHasHearsThatWaitingIsOfNoUse) {
  leaveTheSlotToNobody();
  const auto call = makeIntrusive<TakingCall>();
  dispatcher_->start(call, env_->now() + 1min);
  server("a").cut();
  env_->advance(1s);
  EXPECT_FALSE(call->outcome.has_value());
  seed_->cut(Errc::authenticationFailed);
  ASSERT_TRUE(call->outcome.has_value());
  ASSERT_TRUE(call->outcome->error.has_value());
  EXPECT_EQ(call->outcome->error->errc(), Errc::authenticationFailed);
}

/// The refusal of a direct call is judged on the loop, and the map may drop the node before that.
class DroppedNode : public ClusterRouterTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(DroppedNode, WhatItHasRefusedGoesToTheNodeOfTheMap) {
  server("a").answer(test::numberReply(1));
  const auto call = makeIntrusive<TakingCall>();
  ASSERT_TRUE(dispatcher_->direct(*call));
  server("a").refuse(GetParam());
  env_->advance(1s);
  server("a").cut();
  tellMap("b");
  dispatcher_->resume(call, env_->now() + 1min);
  env_->runPosted();
  EXPECT_FALSE(call->outcome.has_value());
  EXPECT_EQ(links_.count(""), 0U);
  server("b").connect("run-b");
  EXPECT_EQ(server("b").sent(), Sent{"TAKE key"});
}

INSTANTIATE_TEST_SUITE_P(Refusals,
                         DroppedNode,
                         ::testing::Values("CLUSTERDOWN The cluster is down",
                                           "LOADING Redis is loading the dataset in memory",
                                           "MOVED 7 :7001",
                                           "MOVED 7 a:7000"));

TEST_F(ClusterRouterTest, ACallWhoseSlotNobodyHasEndsWithTheClient) {
  leaveTheSlotToNobody();
  const auto call = makeIntrusive<TakingCall>();
  dispatcher_->start(call, env_->now() + 1min);
  EXPECT_FALSE(call->outcome.has_value());
  dispatcher_->close();
  ASSERT_TRUE(call->outcome.has_value());
  ASSERT_TRUE(call->outcome->error.has_value());
  EXPECT_EQ(call->outcome->error->errc(), Errc::closed);
}

// The key may be where the map says by now, and a thread waits for this reply.
TEST_F(ClusterRouterTest, TheNextRequestOfACallThatWasSentAheadBeginsWhereTheMapSays) {
  sendOn("b");
  server("b").connect("run-b");
  sendOn("b");
  ASSERT_EQ(server("b").sent(), (Sent{"ASKING", "TAKE key"}));
  server("b").answer(test::textReply("OK"));
  server("b").answer(test::numberReply(1));
  ASSERT_TRUE(call_->outcome.has_value());
  server("a").sent();
  EXPECT_TRUE(dispatcher_->direct(*call_, Dispatcher::Mode::background));
  EXPECT_EQ(server("a").sent(), Sent{"TAKE key"});
}

// Nobody asks it any more, and its connections are closed.
TEST_F(ClusterRouterTest, WhoWaitsForTheReplicasOfANodeThatIsDroppedIsTold) {
  server("a").answer(test::numberReply(1));
  const std::shared_ptr<ServerLink> node = links_.at("a");
  Sent told;
  Dispatcher::acknowledge(
      *call_, {SyncPolicy::replicas(1), env_->now(), env_->now() + 1h, [&told](const Acks& acks) {
                 told.push_back(acks.why);
               }});
  ASSERT_NE(links_.at("a"), node) << "it is asked over a connection of its own";
  EXPECT_EQ(told, Sent());
  env_->advance(1s);
  node->cut();
  tellMap("b");
  EXPECT_EQ(told, Sent{"its connection was given up"});
}

TEST_F(ClusterRouterTest, AClientIsConnectedWhileOneOfItsNodesIs) {
  sendOn("b");
  server("b").connect("run-b");
  server("b").cut();
  EXPECT_TRUE(dispatcher_->liveNodes().connected());
  server("a").cut();
  EXPECT_FALSE(dispatcher_->liveNodes().connected());
}

// The others at the first node would go out by the hash once more, in vain, for ever.
TEST_F(ClusterRouterTest, ATextThatGoesToAnotherNodeIsNotWaitedForAtTheFirst) {
  server("a").answer(test::numberReply(1));
  dispatcher_->start(makeIntrusive<ScriptCall>(std::uint16_t{7}), env_->now() + 1min);
  EXPECT_THAT(server("a").sent(), testing::ElementsAre(testing::StartsWith("EVALSHA ")));
  env_->advance(1s);
  // The connection fails, and the node hears of that after the answer.
  server("a").isUp = false;
  server("a").refuse("NOSCRIPT No matching script. Please use EVAL.");
  server("a").cut();
  giveTheSlotToB();
  server("b").connect("run-b");
  EXPECT_THAT(server("b").sent(), testing::ElementsAre(testing::StartsWith("EVAL ")));
  server("a").connect("run-a");
  dispatcher_->start(makeIntrusive<ScriptCall>(std::uint16_t{8}), env_->now() + 1min);
  EXPECT_THAT(server("a").sent(), testing::ElementsAre(testing::StartsWith("EVALSHA ")));
  server("a").refuse("NOSCRIPT No matching script. Please use EVAL.");
  EXPECT_THAT(server("a").sent(), testing::ElementsAre(testing::StartsWith("EVAL ")));
}

// A call does not know to which server its key will have gone.
TEST_F(ClusterRouterTest, OneServerThatKillsNothingIsEnoughForTombstones) {
  EXPECT_FALSE(dispatcher_->needsTombstone());
  sendOn("b");
  server("b").connect("run-b", false);
  EXPECT_TRUE(dispatcher_->needsTombstone());
}

}  // namespace
}  // namespace cluster_router_test
}  // namespace rlock::detail
