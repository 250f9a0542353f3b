// SPDX-License-Identifier: Apache-2.0

// The queues of waiters together with the loop's timer.

#include "unit/engine_fixture.hpp"
#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/engine/hand_over.hpp>
#include <rlock/detail/engine/precedence.hpp>
#include <rlock/detail/engine/waiting_room.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace waiting_room_test {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kUnknown{-1};

class CountedWaiter final : public Waiter {
 public:
  void turn() noexcept override { ++turns; }
  bool shutDown() noexcept override { return true; }
  void waiterAddRef() noexcept override {}
  void waiterDropRef() noexcept override {}

  int turns = 0;
};

class WaitingRoomTest : public EngineFixture {
 protected:
  /// It was refused, and sleeps.
  void sleep(CountedWaiter& waiter) {
    WaitTerms terms{scripts_->channel};
    terms.takesOver = scripts_->name;
    room().queue(waiter, terms, std::nullopt, true, kUnknown);
  }
  Succession takeSuccessor() {
    return room().takeSuccessor(scripts_->channel, 0, scripts_->name, env_->now());
  }
  /// So many waiters that each but the last gets the lock from the hands of the one before it.
  static std::vector<CountedWaiter> makeCrowd() {
    return std::vector<CountedWaiter>(static_cast<std::size_t>(Options().handOverLimit) + 1);
  }
  /// They do. Returns the number of the pause in which the last one stands back.
  std::uint64_t handOver(std::vector<CountedWaiter>& crowd) {
    for (CountedWaiter& waiter : crowd) {
      sleep(waiter);
    }
    room().confirmed(scripts_->channel);
    sleep(crowd.front());
    for (std::size_t i = 0; i + 1 < crowd.size(); ++i) {
      EXPECT_EQ(takeSuccessor().waiter, &crowd[i]) << i;
      room().leave(crowd[i], true, 0ms);
    }
    env_->runPosted();
    return takeSuccessor().pause;
  }
  [[nodiscard]] WaitingRoom& room() const noexcept { return engine_->waiting(); }
};

/// The answer of the release may be late: the pause that its message begins ends by itself.
TEST_F(WaitingRoomTest, APauseThatBeginsWithTheMessageHasAnEnd) {
  std::vector<CountedWaiter> crowd = makeCrowd();
  const CountedWaiter& last = crowd.back();
  ASSERT_NE(handOver(crowd), 0U);
  room().message(scripts_->channel, "0");
  env_->runPosted();
  EXPECT_EQ(last.turns, 0);
  env_->advance(Precedence::kPause);
  EXPECT_EQ(last.turns, 1);
  room().leave(crowd.back(), false, 0ms);
}

/// The answer says that other clients hear of the release, and comes before the message.
TEST_F(WaitingRoomTest, APauseThatBeginsWithTheAnswerHasAnEnd) {
  std::vector<CountedWaiter> crowd = makeCrowd();
  const CountedWaiter& last = crowd.back();
  const std::uint64_t pause = handOver(crowd);
  ASSERT_NE(pause, 0U);
  room().releasedForAll(scripts_->channel, 0, pause, 2);
  env_->runPosted();
  EXPECT_EQ(last.turns, 0);
  env_->advance(Precedence::kPause);
  EXPECT_EQ(last.turns, 1);
  room().leave(crowd.back(), false, 0ms);
}

TEST_F(WaitingRoomTest, AMessageThatGivesATurnIsCounted) {
  CountedWaiter waiter;
  sleep(waiter);
  room().confirmed(scripts_->channel);
  EXPECT_EQ(engine_->stats().wakeUps, 0U) << "nobody said anything";
  sleep(waiter);
  room().message(scripts_->channel, "0");
  EXPECT_EQ(waiter.turns, 2);
  EXPECT_EQ(engine_->stats().wakeUps, 1U);
  room().message("another", "0");
  EXPECT_EQ(engine_->stats().wakeUps, 1U) << "nobody waits for it";
  room().leave(waiter, false, 0ms);
}

/// A waiter that holds itself while it waits, and does not take over from others.
class RefCountedWaiter final : public Waiter {
 public:
  void turn() noexcept override {}
  bool shutDown() noexcept override { return true; }
  void waiterAddRef() noexcept override { ++references; }
  void waiterDropRef() noexcept override { --references; }

  int references = 0;
};

TEST_F(WaitingRoomTest, AWaiterThatDeclinesAHandOverIsLetGo) {
  RefCountedWaiter waiter;
  WaitTerms terms{scripts_->channel};
  terms.takesOver = scripts_->name;
  room().queue(waiter, terms, std::nullopt, true, kUnknown);
  const int before = waiter.references;
  HandOver handOver;
  handOver.offer(room(), *scripts_, env_->now());
  EXPECT_FALSE(handOver.open());
  EXPECT_EQ(waiter.references, before);
  room().leave(waiter, false, 0ms);
}

/// The server before refused it, and will not send it a message any more.
TEST(WaitingRoomOfAnotherServer, AWaiterThatWasRefusedByTheOneBeforeLooksAgain) {
  PendingEngine world(Options::fromUri("redis://host"));
  world.connect();
  CountedWaiter waiter;
  WaitingRoom& room = world.engine->waiting();
  room.queue(waiter, WaitTerms{"a"}, std::nullopt, true, kUnknown);
  room.confirmed("a");
  room.queue(waiter, WaitTerms{"a"}, std::nullopt, true, kUnknown);
  world.disconnect();
  world.connect();
  world.env->runPosted();
  EXPECT_EQ(waiter.turns, 1) << "the same server";
  world.disconnect();
  world.connect(false, "another");
  world.env->runPosted();
  EXPECT_EQ(waiter.turns, 2);
  room.leave(waiter, false, 0ms);
}

/// The connection to a node of a cluster for subscriptions, whose events are the test's.
class ToldSubscriptions final : public net::SubscriptionTransport {
 public:
  ToldSubscriptions(net::PubSubEvents*& events, net::PubSubEvents& own) { events = &own; }

  void subscribe(std::string /*channel*/) override {}
  void unsubscribe(const std::string& /*channel*/) override {}
  void close() noexcept override {}
};

/// The waiting room of a client of a cluster of which one node has all slots.
class ClusterRoomTest : public testing::Test {
 protected:
  ClusterRoomTest() {
    engine_->dispatcher().open([](const Result<void>& /*ready*/) {});
    seed_->connect(*seedEvents_);
    seed_->answer(test::textReply("cluster_state:ok\r\ncluster_current_epoch:1\r\n"));
    seed_->refuse("ERR unknown subcommand 'SHARDS'");
    seed_->answer(test::listReply({}));
    seed_->answer(test::allSlotsAt("node"));
    env_->runPosted();
  }
  ~ClusterRoomTest() override {
    engine_->disconnect();
    env_->dropPosted();
  }

  /// It was refused, and sleeps.
  void sleep(CountedWaiter& waiter, std::string_view channel) {
    engine_->waiting().queue(waiter, WaitTerms{channel}, std::nullopt, true, kUnknown);
    env_->runPosted();
  }

  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  const std::shared_ptr<PendingCommands> seed_ = std::make_shared<PendingCommands>(*env_);
  net::LinkEvents* seedEvents_ = nullptr;
  net::PubSubEvents* channels_ = nullptr;
  const std::shared_ptr<LockEngine> engine_ = makeEngine(
      env_,
      net::Transports{
          [this](net::LinkEvents& events) {
            seedEvents_ = &events;
            return seed_;
          },
          {},
          [](const Endpoint&, net::LinkEvents&) { return std::make_shared<NoCommands>(); },
          [this](const Endpoint&, net::ChannelKind, net::PubSubEvents& events) {
            return std::make_unique<ToldSubscriptions>(channels_, events);
          }},
      Options::fromUri("redis+cluster://seed:7000"));
};

/// A slot has moved, and with it one channel. Messages on another one still count.
TEST_F(ClusterRoomTest, TheLossOfOneChannelLeavesTheOthersHeard) {
  CountedWaiter mover;
  CountedWaiter stayer;
  sleep(mover, "a");
  sleep(stayer, "b");
  ASSERT_NE(channels_, nullptr);
  channels_->onSubscribed("a");
  channels_->onSubscribed("b");
  ASSERT_EQ(stayer.turns, 1);
  sleep(stayer, "b");
  channels_->onMessage("b", "0");
  ASSERT_EQ(stayer.turns, 2);
  // While it tries: what the next message says may have come too late for it.
  channels_->onMoved("a");
  channels_->onMessage("b", "0");
  EXPECT_EQ(stayer.turns, 2);
  sleep(stayer, "b");
  EXPECT_EQ(stayer.turns, 3);
  engine_->waiting().leave(mover, false, 0ms);
  engine_->waiting().leave(stayer, false, 0ms);
}

/// Subscribes, but there is no memory for the first.
class FullSubscriptions final : public net::SubscriptionTransport {
 public:
  explicit FullSubscriptions(std::vector<std::string>& channels) : channels_(channels) {}

  void subscribe(std::string channel) override {
    if (std::exchange(full_, false)) {
      throw std::bad_alloc();
    }
    channels_.push_back(std::move(channel));
  }
  void unsubscribe(const std::string& /*channel*/) override {}
  void close() noexcept override {}

 private:
  std::vector<std::string>& channels_;
  bool full_ = true;
};

/// Both are waited for, and nobody asks for them again.
TEST(WaitingRoomWithoutMemory, AChannelIsSubscribedAndSoAreTheOthers) {
  std::vector<std::string> channels;
  const LoneEngine client(
      subscriptionsOnly([&] { return std::make_unique<FullSubscriptions>(channels); }));
  WaitingRoom& room = client.engine->waiting();
  CountedWaiter first;
  CountedWaiter second;
  room.queue(first, WaitTerms{"a"}, std::nullopt, true, kUnknown);
  room.queue(second, WaitTerms{"b"}, std::nullopt, true, kUnknown);
  EXPECT_NO_THROW(client.env->runPosted());
  EXPECT_EQ(channels, (std::vector<std::string>{"a", "b"}));
  room.leave(first, false, 0ms);
  room.leave(second, false, 0ms);
}

}  // namespace
}  // namespace waiting_room_test
}  // namespace rlock::detail
