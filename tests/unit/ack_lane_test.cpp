// SPDX-License-Identifier: Apache-2.0
#include "unit/manual_env.hpp"
#include <rlock/detail/executor/ack_lane.hpp>
#include <rlock/detail/net/pending_requests.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace {

using namespace std::chrono_literals;
using Clock = AckLane::Clock;

/// A connection whose other end is the test.
class FakeLink final : public net::CommandTransport {
 public:
  FakeLink(std::shared_ptr<ManualEnv> env, net::LinkEvents& events)
      : env_(std::move(env)), events_(events) {}

  void open() override {
    if (std::exchange(unopenable, false)) {
      throw std::bad_alloc();
    }
    opened = true;
  }
  void close() noexcept override { break_(); }
  bool submit(net::Request& request,
              std::span<const std::string_view> argv,
              Mode /*mode*/) override {
    if (!up_) {
      return false;
    }
    if (full == argv.front()) {
      full = {};
      throw std::bad_alloc();
    }
    std::string text;
    for (const std::string_view word : argv) {
      text.append(text.empty() ? "" : " ").append(word);
    }
    sent.push_back(std::move(text));
    pending_.append(request, 1, Mode::background, env_->now());
    pending_.offer(1);
    return true;
  }
  Awaited await(net::Request& /*request*/, Clock::time_point /*deadline*/) override {
    return Awaited::timedOut;
  }
  void distrust() noexcept override {}
  void abandon(Clock::time_point /*since*/, Errc /*errc*/, const char* /*what*/) noexcept override {
    ++abandoned;
    break_();
  }
  [[nodiscard]] bool up() const noexcept override { return up_; }
  [[nodiscard]] Totals totals() const noexcept override { return {}; }

  void connect(std::string runId, std::string version = "7.0.15", std::string address = {}) {
    up_ = true;
    pending_.begin(true, env_->now());
    auto session = std::make_shared<net::ServerSession>();
    session->runId = std::move(runId);
    session->serverVersion = std::move(version);
    session->address = std::move(address);
    events_.onUp(session);
  }
  void lose() {
    break_();
    events_.onDown(Error(Errc::connectionFailed, "cut"));
  }
  void answer(Reply reply) {
    net::PendingRequests::Ended ended;
    ASSERT_TRUE(pending_.take(std::move(reply), env_->now(), ended));
    tell(ended);
  }

  bool opened = false;
  bool unopenable = false;  // there is no memory for it, once
  int abandoned = 0;
  std::string_view full;  // there is no memory for this command, once
  std::vector<std::string> sent;

 private:
  void break_() noexcept {
    up_ = false;
    net::PendingRequests::Ended ended;
    pending_.fail(std::make_shared<net::ServerSession>(), ended);
    tell(ended);
  }
  static void tell(net::PendingRequests::Ended& ended) noexcept {
    while (const auto request = ended.background.pop()) {
      net::PendingRequests::complete(*request);
    }
  }

  std::shared_ptr<ManualEnv> env_;
  net::LinkEvents& events_;
  net::PendingRequests pending_{3s};
  bool up_ = false;
};

Reply number(std::int64_t value) {
  Reply reply;
  reply.type = Reply::Type::integer;
  reply.integer = value;
  return reply;
}
Reply text(Reply::Type type, std::string words) {
  Reply reply;
  reply.type = type;
  reply.text = std::move(words);
  return reply;
}
Reply pong() {
  return text(Reply::Type::status, "PONG");
}
Reply error(std::string words) {
  return text(Reply::Type::error, std::move(words));
}
Reply info(int replicas) {
  return text(
      Reply::Type::string,
      "# Replication\r\nrole:master\r\nconnected_slaves:" + std::to_string(replicas) + "\r\n");
}
Reply files(int local, int remote) {
  Reply reply;
  reply.type = Reply::Type::array;
  reply.elements = {number(local), number(remote)};
  return reply;
}

using Sent = std::vector<std::string>;

class AckLaneTest : public ::testing::Test {
 protected:
  using Outcome = std::shared_ptr<std::optional<Acks>>;

  AckLaneTest() { makeLane(3s); }

  void makeLane(std::chrono::milliseconds commandTimeout) {
    lane = std::make_unique<AckLane>(
        env,
        [this](net::LinkEvents& events) {
          link = std::make_shared<FakeLink>(env, events);
          return link;
        },
        commandTimeout);
    setServer("run-1");
  }
  void setServer(std::string runId, std::string address = {}) {
    auto session = std::make_shared<net::ServerSession>();
    session->runId = std::move(runId);
    session->address = std::move(address);
    lane->setServer(session);
  }
  Outcome add(SyncPolicy policy) {
    auto outcome = std::make_shared<std::optional<Acks>>();
    lane->add({policy,
               env->now(),
               env->now() + policy.limit,
               [outcome](Acks acks) {
                 ASSERT_FALSE(outcome->has_value()) << "told twice";
                 *outcome = std::move(acks);
               },
               nullptr,
               markKey});
    return outcome;
  }
  Sent sent() { return std::exchange(link->sent, {}); }
  static bool met(const Outcome& outcome) { return outcome->has_value() && (*outcome)->met; }
  static bool waits(const Outcome& outcome) { return !outcome->has_value(); }
  static std::string why(const Outcome& outcome) {
    return outcome->has_value() ? (*outcome)->why : "waits";
  }
  /// To both commands of a round.
  void answers(Reply last, Reply first = pong()) {
    link->answer(std::move(first));
    link->answer(std::move(last));
  }

  std::shared_ptr<ManualEnv> env = std::make_shared<ManualEnv>();
  std::string markKey = "mark";  // of the tickets from here on
  std::shared_ptr<FakeLink> link;
  std::unique_ptr<AckLane> lane;
};

TEST_F(AckLaneTest, ConnectsOnlyWhenSomebodyAsks) {
  EXPECT_FALSE(link->opened);
  const auto one = add(SyncPolicy::replicas(1));
  EXPECT_TRUE(link->opened);
  EXPECT_EQ(sent(), Sent());
  link->connect("run-1");
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  answers(number(2));
  ASSERT_TRUE(met(one));
  EXPECT_EQ((*one)->replicas, 2);
  EXPECT_EQ(sent(), Sent());
}

TEST_F(AckLaneTest, TicketsThatComeDuringARoundShareTheNext) {
  link->connect("run-1");
  const auto first = add(SyncPolicy::replicas(1));
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  std::vector<Outcome> later;
  for (int i = 0; i < 99; ++i) {
    later.push_back(add(SyncPolicy::replicas(1)));
  }
  EXPECT_EQ(sent(), Sent());
  answers(number(1));
  EXPECT_TRUE(met(first));
  for (const Outcome& one : later) {
    EXPECT_TRUE(waits(one)) << "its write may be newer than what was acknowledged";
  }
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  answers(number(1));
  for (const Outcome& one : later) {
    EXPECT_TRUE(met(one));
  }
  EXPECT_EQ(sent(), Sent());
}

TEST_F(AckLaneTest, ATicketThatNeedsLessDoesNotWaitForOneThatNeedsMore) {
  const auto hard = add(SyncPolicy::replicas(2));
  const auto easy = add(SyncPolicy::replicas(1));
  link->connect("run-1");
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  answers(number(1));
  EXPECT_TRUE(met(easy));
  EXPECT_TRUE(waits(hard));
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 2 100"}));
  const auto next = add(SyncPolicy::replicas(1));
  env->advance(100ms);
  answers(number(1));
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  answers(number(1));
  EXPECT_TRUE(met(next));
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 2 100"}));
  env->advance(900ms);
  EXPECT_EQ(why(hard), "1 of 2 replicas within 1000 ms");
  EXPECT_EQ((*hard)->replicas, 1);
}

TEST_F(AckLaneTest, TheLastRoundOfATicketIsNoLongerThanItsTime) {
  link->connect("run-1");
  const auto one = add(SyncPolicy::replicas(1, 30ms));
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 30"}));
  env->advance(29ms);
  EXPECT_TRUE(waits(one));
  env->advance(1ms);
  EXPECT_EQ(why(one), "0 of 1 replicas within 30 ms");
  // An answer after that belongs to nobody.
  answers(number(1));
  EXPECT_EQ(sent(), Sent());
}

TEST_F(AckLaneTest, AMajorityIsOfTheReplicasThatThereAre) {
  link->connect("run-1");
  const std::vector<std::pair<int, int>> cases{{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}};
  for (const auto& [replicas, needed] : cases) {
    SCOPED_TRACE(replicas);
    link->lose();
    link->connect("run-1");
    const auto one = add(SyncPolicy::majority());
    EXPECT_EQ(sent(), (Sent{"INFO replication"}));
    link->answer(info(replicas));
    EXPECT_EQ(sent(), (Sent{"INFO replication", "WAIT " + std::to_string(needed) + " 100"}));
    answers(number(needed - 1), info(replicas));
    EXPECT_TRUE(waits(one));
    sent();
    answers(number(needed), info(replicas));
    EXPECT_TRUE(met(one));
  }
  const auto grown = add(SyncPolicy::majority());
  EXPECT_EQ(sent(), (Sent{"INFO replication", "WAIT 3 100"}));
  answers(number(3), info(7));
  EXPECT_TRUE(waits(grown)) << "there are more replicas by now";
  EXPECT_EQ(sent(), (Sent{"INFO replication", "WAIT 4 100"}));
  env->advance(1s);
  EXPECT_EQ(why(grown), "3 of 4 replicas within 1000 ms");
}

TEST_F(AckLaneTest, AMasterWithoutReplicasIsAMajority) {
  link->connect("run-1");
  const auto one = add(SyncPolicy::majority());
  link->answer(info(0));
  ASSERT_TRUE(met(one));
  EXPECT_EQ((*one)->replicas, 0);
}

TEST_F(AckLaneTest, WithoutTheRightToCountThereIsNoMajority) {
  link->connect("run-1");
  const auto one = add(SyncPolicy::majority());
  link->answer(error("NOPERM this user has no permissions to run the 'info' command"));
  EXPECT_NE(why(one).find("the user may not ask"), std::string::npos) << why(one);
}

// It would be taken for a master without replicas.
TEST_F(AckLaneTest, AServerThatDoesNotTellTheNumberOfItsReplicasHasNoMajority) {
  link->connect("run-1");
  for (const char* const told :
       {"# Replication\r\nrole:master\r\n", "connected_slaves:\r\n", "connected_slaves:-1\r\n"}) {
    const auto one = add(SyncPolicy::majority());
    link->answer(text(Reply::Type::string, told));
    EXPECT_EQ(why(one), "the server does not say how many replicas it has") << told;
    EXPECT_FALSE(met(one)) << told;
  }
}

TEST_F(AckLaneTest, AMajorityIsNotThatOfAnEarlierCount) {
  link->connect("run-1");
  const auto before = add(SyncPolicy::majority());
  link->answer(info(1));
  answers(number(1), info(1));
  EXPECT_TRUE(met(before));
  const auto one = add(SyncPolicy::majority());
  answers(number(1), error("NOPERM this user has no permissions to run the 'info' command"));
  EXPECT_NE(why(one).find("the user may not ask"), std::string::npos) << why(one);
}

TEST_F(AckLaneTest, AnAnswerOfAnotherFormAcknowledgesNothing) {
  link->connect("run-1");
  const auto replica = add(SyncPolicy::replicas(1));
  answers(files(1, 1));
  EXPECT_EQ(why(replica), "the server's answer makes no sense");
  const auto file = add(SyncPolicy::localAof());
  answers(number(1));
  EXPECT_EQ(why(file), "the server's answer makes no sense");
}

TEST_F(AckLaneTest, AsksForAppendOnlyFiles) {
  link->connect("run-1");
  const auto local = add(SyncPolicy::localAof());
  EXPECT_EQ(sent(), (Sent{"PING", "WAITAOF 1 0 100"}));
  answers(files(0, 2));
  EXPECT_TRUE(waits(local));
  sent();
  answers(files(1, 0));
  EXPECT_TRUE(met(local));
  const auto remote = add(SyncPolicy::remoteAof(2));
  EXPECT_EQ(sent(), (Sent{"PING", "WAITAOF 0 2 100"}));
  answers(files(1, 1));
  EXPECT_TRUE(waits(remote));
  answers(files(0, 2));
  EXPECT_TRUE(met(remote));
}

TEST_F(AckLaneTest, FormsTakeTurns) {
  link->connect("run-1");
  const auto file = add(SyncPolicy::localAof());
  const auto replica = add(SyncPolicy::replicas(1));
  sent();
  answers(files(0, 0));
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  answers(number(0));
  EXPECT_EQ(sent(), (Sent{"PING", "WAITAOF 1 0 100"}));
  EXPECT_TRUE(waits(file));
  EXPECT_TRUE(waits(replica));
}

TEST_F(AckLaneTest, ARefusalIsToldInWordsAtOnce) {
  link->connect("run-1");
  const auto file = add(SyncPolicy::remoteAof());
  answers(error("ERR unknown command 'WAITAOF', with args beginning with: '0' '1'"));
  EXPECT_NE(why(file).find("it does not know WAITAOF, which came with Redis 7.2"),
            std::string::npos)
      << why(file);
  const auto plain = add(SyncPolicy::replicas(1));
  answers(error("ERR unknown command 'WAIT'"));
  EXPECT_NE(why(plain).find("it does not know WAIT ("), std::string::npos) << why(plain);
  const auto denied = add(SyncPolicy::replicas(1));
  answers(error("NOPERM User x has no permissions to run the 'wait' command"));
  EXPECT_NE(why(denied).find("the user may not ask"), std::string::npos) << why(denied);
  const auto replica = add(SyncPolicy::replicas(1));
  answers(error("ERR WAIT cannot be used with replica instances."));
  EXPECT_NE(why(replica).find("replica instances"), std::string::npos) << why(replica);
}

TEST_F(AckLaneTest, APassingRefusalIsAskedAgain) {
  link->connect("run-1");
  const auto one = add(SyncPolicy::replicas(1));
  sent();
  answers(error("LOADING Redis is loading the dataset in memory"));
  EXPECT_TRUE(waits(one));
  EXPECT_EQ(sent(), Sent());
  env->advance(100ms);
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  answers(number(1));
  EXPECT_TRUE(met(one));
}

/// The replicas cannot be counted on this connection, but may be on the next one.
TEST_F(AckLaneTest, APassingRefusalToCountIsAskedAgain) {
  link->connect("run-1");
  const auto one = add(SyncPolicy::majority());
  sent();
  link->answer(error("NOAUTH Authentication required."));
  EXPECT_TRUE(waits(one)) << why(one);
  EXPECT_EQ(sent(), Sent());
  link->lose();
  link->connect("run-1");
  env->advance(100ms);
  EXPECT_EQ(sent(), (Sent{"INFO replication"}));
  link->answer(info(1));
  sent();
  answers(error("NOAUTH Authentication required."), error("NOAUTH Authentication required."));
  EXPECT_TRUE(waits(one)) << why(one);
  env->advance(100ms);
  EXPECT_EQ(sent(), (Sent{"INFO replication"}));
  link->answer(info(1));
  answers(number(1), info(1));
  EXPECT_TRUE(met(one));
}

TEST_F(AckLaneTest, ALostConnectionAcknowledgesNothing) {
  link->connect("run-1");
  const auto one = add(SyncPolicy::replicas(1));
  link->answer(pong());
  link->lose();
  EXPECT_TRUE(waits(one));
  sent();
  link->connect("run-1");
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  answers(number(1));
  EXPECT_TRUE(met(one));
}

TEST_F(AckLaneTest, SaysThatThereWasNoConnection) {
  const auto one = add(SyncPolicy::replicas(1));
  link->lose();
  env->advance(1s);
  EXPECT_TRUE(why(one).starts_with("0 of 1 replicas within 1000 ms; no connection to ask on: "))
      << why(one);
}

TEST_F(AckLaneTest, AnotherServerAcknowledgesNothing) {
  const auto one = add(SyncPolicy::replicas(1));
  link->connect("run-2");
  EXPECT_EQ(sent(), Sent());
  EXPECT_EQ(link->abandoned, 1);
  EXPECT_TRUE(waits(one));
  link->connect("run-1");
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  setServer("run-2");
  EXPECT_EQ(why(one), "the server was replaced");
  answers(number(1));
  const auto next = add(SyncPolicy::replicas(1));
  EXPECT_EQ(link->abandoned, 2);
  link->connect("run-2");
  answers(number(1));
  EXPECT_TRUE(met(next));
}

// Servers that do not tell their run ids would otherwise all be one.
TEST_F(AckLaneTest, AServerWithoutANameAtAnotherAddressAcknowledgesNothing) {
  setServer("", "10.0.0.1:6379");
  const auto one = add(SyncPolicy::replicas(1));
  link->connect("", "7.0.15", "10.0.0.2:6379");
  EXPECT_EQ(sent(), Sent());
  EXPECT_EQ(link->abandoned, 1);
  link->connect("", "7.0.15", "10.0.0.1:6379");
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  answers(number(1));
  EXPECT_TRUE(met(one));
}

TEST_F(AckLaneTest, ClosingEndsWhatWaits) {
  link->connect("run-1");
  const auto one = add(SyncPolicy::replicas(1));
  lane->close();
  EXPECT_EQ(why(one), "its connection was given up");
  EXPECT_EQ(why(add(SyncPolicy::replicas(1))), "its connection was given up");
}

TEST_F(AckLaneTest, NothingIsAskedForWhoHasLeft) {
  link->connect("run-1");
  bool left = false;
  bool told = false;
  lane->add({SyncPolicy::replicas(1),
             env->now(),
             env->now() + 1h,
             [&told](const Acks& acks) { told = !acks.met; },
             [&left] { return left; }});
  sent();
  answers(number(0));
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  left = true;
  answers(number(0));
  EXPECT_TRUE(told);
  EXPECT_EQ(sent(), Sent());
}

TEST_F(AckLaneTest, ATicketMayBeFollowedByAnother) {
  link->connect("run-1");
  auto second = std::make_shared<std::optional<Acks>>();
  lane->add({SyncPolicy::replicas(1), env->now(), env->now() + 1s, [this, &second](const Acks&) {
               second = add(SyncPolicy::replicas(1));
             }});
  sent();
  answers(number(1));
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 100"}));
  answers(number(1));
  EXPECT_TRUE(met(second));
}

TEST_F(AckLaneTest, WhereOnlyWritesStampAConnectionTheRoundBeginsWithOne) {
  for (const char* const version : {"7.2.0", "8.0.2", "10.1.0", "", "unstable"}) {
    const auto one = add(SyncPolicy::replicas(1));
    link->connect("run-1", version);
    EXPECT_EQ(sent(), (Sent{"SET mark  PX 1", "WAIT 1 100"})) << version;
    answers(number(1), text(Reply::Type::status, "OK"));
    EXPECT_TRUE(met(one));
    link->lose();
  }
  markKey = "of the last";
  const auto file = add(SyncPolicy::localAof());
  link->connect("run-1", "7.4.1");
  EXPECT_EQ(sent(), (Sent{"SET of the last  PX 1", "WAITAOF 1 0 100"}));
  answers(files(1, 0), text(Reply::Type::status, "OK"));
  EXPECT_TRUE(met(file));
  const auto many = add(SyncPolicy::majority());
  EXPECT_EQ(sent(), Sent{"INFO replication"});
  link->answer(info(2));
  EXPECT_EQ(sent(), (Sent{"SET of the last  PX 1", "INFO replication", "WAIT 1 100"}));
  link->answer(text(Reply::Type::status, "OK"));
  answers(number(1), info(2));
  EXPECT_TRUE(met(many));
}

TEST_F(AckLaneTest, AnOffsetThatCoversAllDoesNotMoveOn) {
  const auto one = add(SyncPolicy::remoteAof(2));
  link->connect("run-1", "8.0.2");
  EXPECT_EQ(sent(), (Sent{"SET mark  PX 1", "WAITAOF 0 2 100"}));
  answers(files(0, 1), text(Reply::Type::status, "OK"));
  // The same question again, about the same offset.
  EXPECT_EQ(sent(), Sent{"WAITAOF 0 2 100"});
  link->answer(files(0, 1));
  EXPECT_EQ(sent(), Sent{"WAITAOF 0 2 100"});
  // A newer write needs a newer offset.
  const auto two = add(SyncPolicy::remoteAof(2));
  link->answer(files(0, 1));
  EXPECT_EQ(sent(), (Sent{"SET mark  PX 1", "WAITAOF 0 2 100"}));
  // Another connection has none.
  link->lose();
  link->connect("run-1", "8.0.2");
  EXPECT_EQ(sent(), (Sent{"SET mark  PX 1", "WAITAOF 0 2 100"}));
  answers(files(0, 2), text(Reply::Type::status, "OK"));
  EXPECT_TRUE(met(one));
  EXPECT_TRUE(met(two));
}

TEST_F(AckLaneTest, WithoutAStampNothingIsAcknowledged) {
  const auto denied = add(SyncPolicy::replicas(1));
  link->connect("run-1", "7.2.0");
  answers(number(2), error("NOPERM No permissions to access a key"));
  ASSERT_TRUE(denied->has_value());
  EXPECT_FALSE(met(denied));
  EXPECT_NE(why(denied).find("WAIT, PING or SET"), std::string::npos) << why(denied);
  // A passing state, and a key that another node has now: the next round may do better.
  for (const char* const passing : {"MOVED 1 127.0.0.1:7000", "READONLY You can't write"}) {
    const auto one = add(SyncPolicy::replicas(1));
    answers(number(2), error(passing));
    EXPECT_TRUE(waits(one)) << passing;
    sent();
    env->advance(AckLane::kSlice);
    EXPECT_EQ(sent(), (Sent{"SET mark  PX 1", "WAIT 1 100"})) << passing;
    answers(number(1), text(Reply::Type::status, "OK"));
    EXPECT_TRUE(met(one));
  }
}

// The slot of one key is open: the server sends a new key of it to another node.
TEST_F(AckLaneTest, ASlotThatIsOpenDelaysTheTicketsOfOthersByOneRound) {
  const Reply ok = text(Reply::Type::status, "OK");
  markKey = "a";
  const auto fine = add(SyncPolicy::replicas(1));
  markKey = "b";
  const auto moving = add(SyncPolicy::replicas(1));
  link->connect("run-1", "7.2.0");
  EXPECT_EQ(sent(), (Sent{"SET b  PX 1", "WAIT 1 100"}));
  answers(number(1), error("ASK 3300 127.0.0.1:7000"));
  EXPECT_TRUE(waits(fine));
  EXPECT_TRUE(waits(moving));
  EXPECT_EQ(sent(), Sent());
  env->advance(AckLane::kSlice);
  EXPECT_EQ(sent(), (Sent{"SET a  PX 1", "WAIT 1 100"}));
  answers(number(1), ok);
  EXPECT_TRUE(met(fine));
  EXPECT_TRUE(met(moving)) << "its write is older than the stamp, too";
}

TEST_F(AckLaneTest, ATicketOfAnOpenSlotIsStampedByTheKeyThatCouldBeWrittenLast) {
  const Reply ok = text(Reply::Type::status, "OK");
  markKey = "a";
  const auto before = add(SyncPolicy::replicas(1));
  link->connect("run-1", "7.2.0");
  answers(number(1), ok);
  EXPECT_TRUE(met(before));
  markKey = "b";
  const auto moving = add(SyncPolicy::replicas(1));
  answers(number(1), error("ASK 3300 127.0.0.1:7000"));
  sent();
  env->advance(AckLane::kSlice);
  EXPECT_EQ(sent(), (Sent{"SET a  PX 1", "WAIT 1 100"}));
  // That slot has moved away as well, and nothing is left but its own key.
  answers(number(1), error("MOVED 15495 127.0.0.1:7000"));
  env->advance(AckLane::kSlice);
  EXPECT_EQ(sent(), (Sent{"SET b  PX 1", "WAIT 1 100"}));
  answers(number(1), ok);
  EXPECT_TRUE(met(moving));
}

TEST_F(AckLaneTest, AStampThatThereWasNoMemoryForIsSentBeforeTheNextWait) {
  link->connect("run-1", "7.2.0");
  link->full = "SET";
  const auto one = add(SyncPolicy::replicas(1));
  EXPECT_EQ(sent(), Sent());
  env->advance(AckLane::kSlice);
  EXPECT_EQ(sent(), (Sent{"SET mark  PX 1", "WAIT 1 100"}));
  answers(number(1));
  EXPECT_TRUE(met(one));
}

TEST_F(AckLaneTest, ALaneThatThereWasNoMemoryToOpenIsOpenedLater) {
  link->unopenable = true;
  const auto one = add(SyncPolicy::replicas(1));
  EXPECT_FALSE(link->opened);
  const auto two = add(SyncPolicy::replicas(1));
  EXPECT_TRUE(link->opened);
}

// The stamp may have been refused, and its answer was not looked at.
TEST_F(AckLaneTest, AStampIsSentAgainWhereThereWasNoMemoryForTheWait) {
  link->connect("run-1", "7.2.0");
  link->full = "WAIT";
  const auto one = add(SyncPolicy::replicas(1));
  EXPECT_EQ(sent(), (Sent{"SET mark  PX 1"}));
  link->answer(error("READONLY You can't write against a read only replica."));
  env->advance(AckLane::kSlice);
  EXPECT_EQ(sent(), (Sent{"SET mark  PX 1", "WAIT 1 100"}));
  answers(number(1));
  EXPECT_TRUE(met(one));
}

// WAIT that lasts longer than a reply may take would end the connection.
TEST_F(AckLaneTest, ARoundIsShorterThanTheTimeForAReply) {
  makeLane(50ms);
  const auto one = add(SyncPolicy::replicas(1));
  link->connect("run-1");
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 25"}));
  lane->close();
}

// WAIT takes 0 for no limit.
TEST_F(AckLaneTest, ARoundHasALimitHoweverShortTheTimeForAReply) {
  makeLane(1ms);
  const auto one = add(SyncPolicy::replicas(1));
  link->connect("run-1");
  EXPECT_EQ(sent(), (Sent{"PING", "WAIT 1 1"}));
  lane->close();
}

}  // namespace
}  // namespace rlock::detail
