// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/executor/ack_tickets.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {
namespace ack_tickets_test {
namespace {

using namespace std::chrono_literals;
using Kind = SyncPolicy::Kind;

class AckTicketsTest : public testing::Test {
 protected:
  void add(const SyncPolicy& policy, std::string_view name = "") {
    tickets_.add(
        {policy, now_, now_ + policy.limit, [this, name = std::string(name)](const Acks& acks) {
           over_.push_back(name + (acks.met ? "+" : "-") + std::to_string(acks.replicas));
         }});
  }

  using Over = std::vector<std::string>;

  AckTickets tickets_;
  AckTickets::Clock::time_point now_ = AckTickets::Clock::time_point(1h);
  Over over_;
};

TEST_F(AckTicketsTest, ARoundAsksForWhatTheEasiestNeeds) {
  add(SyncPolicy::replicas(3, 1s));
  add(SyncPolicy::replicas(1, 2s));
  const AckTickets::Round round = tickets_.beginRound(now_);
  EXPECT_EQ(round.wanted, 1);
  EXPECT_EQ(round.longest, 2s);
  EXPECT_EQ(tickets_.form(), Kind::replicas);
}

TEST_F(AckTicketsTest, AnAnswerEndsThoseForWhomItIsEnough) {
  add(SyncPolicy::replicas(2, 1s), "two");
  add(SyncPolicy::replicas(1, 1s), "one");
  tickets_.beginRound(now_);
  tickets_.acknowledged(1, false);
  EXPECT_EQ(over_, Over{"one+1"});
  EXPECT_FALSE(tickets_.empty());
}

TEST_F(AckTicketsTest, ARoundSaysNothingOfTicketsThatCameLater) {
  tickets_.countedReplicas(2);
  add(SyncPolicy::replicas(1, 1s), "before");
  tickets_.beginRound(now_);
  add(SyncPolicy::replicas(1, 1s), "after");
  tickets_.acknowledged(2, false);
  EXPECT_EQ(over_, Over{"before+2"});
  tickets_.beginRound(now_);
  tickets_.acknowledged(2, false);
  EXPECT_EQ(over_, (Over{"before+2", "after+2"}));
}

TEST_F(AckTicketsTest, FormsTakeTurns) {
  add(SyncPolicy::replicas(2, 1s));
  add(SyncPolicy::localAof(1s));
  tickets_.beginRound(now_);
  EXPECT_EQ(tickets_.form(), Kind::replicas);
  tickets_.acknowledged(1, false);
  tickets_.beginRound(now_);
  EXPECT_EQ(tickets_.form(), Kind::localAof);
  tickets_.acknowledged(0, false);
  tickets_.beginRound(now_);
  EXPECT_EQ(tickets_.form(), Kind::replicas);
}

TEST_F(AckTicketsTest, AMajorityIsOfTheReplicasThatWereCounted) {
  add(SyncPolicy::majority(1s), "m");
  tickets_.countedReplicas(3);
  EXPECT_EQ(tickets_.beginRound(now_).wanted, 2);
  tickets_.acknowledged(1, false);
  EXPECT_EQ(over_, Over{});
  tickets_.acknowledged(2, false);
  EXPECT_EQ(over_, Over{"m+2"});
}

TEST_F(AckTicketsTest, ATicketMayAddAnotherWhileItEnds) {
  tickets_.add({SyncPolicy::replicas(1, 1s), now_, now_ + 1s, [this](const Acks&) {
                  add(SyncPolicy::replicas(1, 5s), "second");
                }});
  tickets_.beginRound(now_);
  tickets_.acknowledged(1, false);
  EXPECT_EQ(over_, Over{}) << "the second belongs to no round yet";
  EXPECT_EQ(tickets_.nextDue(), now_ + 5s);
  tickets_.endAll("closed");
  EXPECT_EQ(over_, Over{"second-0"});
  EXPECT_EQ(tickets_.nextDue(), AckTickets::Clock::time_point::max());
}

}  // namespace
}  // namespace ack_tickets_test
}  // namespace rlock::detail
