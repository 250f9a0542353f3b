// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/executor/lost_requests.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace rlock::detail {
namespace lost_requests_test {
namespace {

using namespace std::chrono_literals;

using Late = LostRequests::Late;
using Lost = LostRequests::Lost;
using State = LostRequests::State;
using TimePoint = LostRequests::TimePoint;

class LostRequestsTest : public ::testing::Test {
 protected:
  LostRequests::SessionPtr add(std::uint64_t id, Late late, TimePoint lostAt = TimePoint(1h)) {
    auto session = std::make_shared<net::ServerSession>();
    session->clientId = id;
    lost_.add({session, late, lostAt, nullptr, nullptr});
    return session;
  }
  /// Answers with these states, by the ids of the sessions.
  LostRequests::Killed killed(std::map<std::uint64_t, State> states, bool despiteRefusal = false) {
    asked_.clear();
    return lost_.killed(despiteRefusal, [&](const Lost& lost) {
      asked_.push_back(lost.session->clientId);
      return states.at(lost.session->clientId);
    });
  }

  LostRequests lost_;
  std::vector<std::uint64_t> asked_;
};

TEST_F(LostRequestsTest, AreWaitedForUntilAllAreDead) {
  add(1, Late::takes);
  add(2, Late::adds);
  const auto none = killed({{1, State::asked}, {2, State::dead}});
  EXPECT_EQ(none.state, State::asked);
  ASSERT_NE(none.by, nullptr);
  EXPECT_EQ(none.by->session->clientId, 1U);
  EXPECT_EQ(asked_, (std::vector<std::uint64_t>{1, 2})) << "all are asked for at once";
  const auto both = killed({{1, State::asked}, {2, State::asked}});
  EXPECT_EQ(both.state, State::asked);
  EXPECT_EQ(both.by->session->clientId, 2U);
  const auto all = killed({{1, State::dead}, {2, State::dead}});
  EXPECT_EQ(all.state, State::dead);
  EXPECT_EQ(all.by, nullptr);
  EXPECT_FALSE(lost_.empty()) << "for the node that was asked about; another may say otherwise";
}

TEST_F(LostRequestsTest, ARefusalEndsTheSearch) {
  add(1, Late::takes);
  add(2, Late::takes);
  add(3, Late::takes);
  const auto refused = killed({{1, State::asked}, {2, State::refused}, {3, State::dead}});
  EXPECT_EQ(refused.state, State::refused);
  EXPECT_EQ(refused.by->session->clientId, 2U);
  EXPECT_EQ(asked_, (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(LostRequestsTest, ARefusalIsWaitedForByWhoGoesOnDespiteIt) {
  add(1, Late::takes);
  add(2, Late::takes);
  const auto refused = killed({{1, State::refused}, {2, State::dead}}, true);
  EXPECT_EQ(refused.state, State::asked) << "a refused kill is not a dead connection";
  EXPECT_EQ(refused.by->session->clientId, 1U);
  EXPECT_EQ(asked_, (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(LostRequestsTest, TheFirstRefusalSaysWhy) {
  add(1, Late::takes);
  add(2, Late::takes);
  add(3, Late::takes);
  const auto why = lost_.refusal([](const Lost& lost) {
    return lost.session->clientId == 1
               ? std::nullopt
               : std::optional(Error(lost.session->clientId == 2 ? Errc::denied : Errc::closed));
  });
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(why->errc(), Errc::denied);
  EXPECT_FALSE(lost_.refusal([](const Lost&) { return std::optional<Error>(); }).has_value());
}

TEST_F(LostRequestsTest, AreForgottenWhenTheirConnectionIsDeadOrTheirLifeIsOver) {
  const TimePoint start(1h);
  const auto dead = add(1, Late::takes, start);
  add(2, Late::takes, start);
  add(3, Late::takes, start + 1s);
  dead->dead = true;
  lost_.expire(start + 59s, 60s);
  EXPECT_EQ(killed({{2, State::dead}, {3, State::dead}}).state, State::dead);
  EXPECT_EQ(asked_, (std::vector<std::uint64_t>{2, 3}));
  lost_.expire(start + 60s, 60s);
  killed({{3, State::dead}});
  EXPECT_EQ(asked_, (std::vector<std::uint64_t>{3}));
  EXPECT_FALSE(lost_.empty());
  lost_.expire(start + 61s, 60s);
  EXPECT_TRUE(lost_.empty());
}

TEST_F(LostRequestsTest, OfAnotherCallDoTheirHarmToThisOne) {
  const TimePoint start(1h);
  add(1, Late::takes, start);
  LostRequests mine;
  mine.share(lost_, Late::adds);
  EXPECT_FALSE(mine.empty());
  EXPECT_EQ(mine.lastThatTakes(), TimePoint::min());
  EXPECT_EQ(lost_.lastThatTakes(), start) << "the other's stay as they are";
}

TEST_F(LostRequestsTest, SayWhenTheLastWasLostThatTakes) {
  const TimePoint start(1h);
  EXPECT_EQ(lost_.lastThatTakes(), TimePoint::min());
  add(1, Late::adds, start + 9s);
  EXPECT_EQ(lost_.lastThatTakes(), TimePoint::min());
  add(2, Late::takes, start + 5s);
  add(3, Late::takes, start + 2s);
  EXPECT_EQ(lost_.lastThatTakes(), start + 5s);
}

}  // namespace
}  // namespace lost_requests_test
}  // namespace rlock::detail
