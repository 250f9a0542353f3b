// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/net/subscriber_requests.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace rlock::detail::net {
namespace subscriber_requests_test {
namespace {

using namespace std::chrono_literals;
using Requests = SubscriberRequests<std::string>;
using Kind = Requests::Kind;

class SubscriberRequestsTest : public testing::Test {
 protected:
  SubscriberRequestsTest() { requests_.begin(now_); }

  static constexpr std::chrono::milliseconds kTimeout{1000};

  Requests requests_;
  Requests::TimePoint now_ = Requests::TimePoint(1h);
  std::string a_ = "a";
  std::string b_ = "b";
};

TEST_F(SubscriberRequestsTest, ARequestIsUnansweredUntilEachOfItsChannelsIs) {
  const std::uint64_t both = requests_.add(Kind::subscribe, {&a_, &b_}, now_);
  EXPECT_TRUE(requests_.answered(both, b_, now_));
  EXPECT_FALSE(requests_.empty());
  EXPECT_FALSE(requests_.answered(both, b_, now_)) << "it was";
  EXPECT_TRUE(requests_.answered(both, a_, now_));
  EXPECT_TRUE(requests_.empty());
  EXPECT_FALSE(requests_.answered(both, a_, now_)) << "nothing more is owed";
}

TEST_F(SubscriberRequestsTest, ALaterRequestMayBeAnsweredBeforeTheFirst) {
  const std::uint64_t first = requests_.add(Kind::subscribe, {&a_}, now_);
  requests_.add(Kind::ping, {}, now_);
  EXPECT_TRUE(requests_.ponged(now_));
  EXPECT_FALSE(requests_.ponged(now_)) << "there is no other";
  EXPECT_FALSE(requests_.empty());
  EXPECT_TRUE(requests_.answered(first, a_, now_));
  EXPECT_TRUE(requests_.empty());
}

TEST_F(SubscriberRequestsTest, AnErrorAnswersTheRestOfTheOldest) {
  requests_.add(Kind::subscribe, {&a_, &b_}, now_);
  const std::uint64_t next = requests_.add(Kind::unsubscribe, {&a_, &b_}, now_);
  EXPECT_EQ(requests_.takeOldest(now_).channels.size(), 2U);
  EXPECT_TRUE(requests_.answered(next, a_, now_));
  EXPECT_EQ(requests_.takeOldest(now_).channels, std::vector<std::string*>{&b_})
      << "one that was answered may be gone";
}

TEST_F(SubscriberRequestsTest, OneThatWasAnsweredEarlyIsNotTheOldestAfterAnError) {
  requests_.add(Kind::subscribe, {&a_}, now_);
  const std::uint64_t early = requests_.add(Kind::unsubscribe, {&b_}, now_);
  EXPECT_TRUE(requests_.answered(early, b_, now_));
  EXPECT_EQ(requests_.takeOldest(now_).channels, std::vector<std::string*>{&a_});
  EXPECT_EQ(requests_.oldest(), nullptr);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(SubscriberRequestsTest, ANumberOfAnEarlierConnectionAnswersNothing) {
  const std::uint64_t old = requests_.add(Kind::subscribe, {&a_}, now_);
  requests_.clear();
  requests_.begin(now_);
  requests_.add(Kind::subscribe, {&a_}, now_);
  EXPECT_FALSE(requests_.answered(old, a_, now_));
  EXPECT_FALSE(requests_.empty());
}

TEST_F(SubscriberRequestsTest, TheServerIsSilentAfterTheTimeoutWithoutAnything) {
  EXPECT_FALSE(requests_.silent(now_ + 1h, kTimeout)) << "nothing was asked";
  now_ += 1h;
  requests_.add(Kind::ping, {}, now_);
  EXPECT_FALSE(requests_.silent(now_ + kTimeout - 1ms, kTimeout));
  EXPECT_TRUE(requests_.silent(now_ + kTimeout, kTimeout));
}

TEST_F(SubscriberRequestsTest, MessagesProlongTheTimeToTwiceTheTimeoutAndNoFurther) {
  requests_.add(Kind::ping, {}, now_);
  const auto asked = now_;
  requests_.received(asked + 900ms);
  EXPECT_EQ(requests_.peerDeadline(kTimeout), asked + 1900ms);
  requests_.received(asked + 1800ms);
  EXPECT_EQ(requests_.peerDeadline(kTimeout), asked + 2 * kTimeout);
}

TEST_F(SubscriberRequestsTest, AnAnswerBeginsTheTimeAnew) {
  const std::uint64_t both = requests_.add(Kind::subscribe, {&a_, &b_}, now_);
  now_ += 900ms;
  requests_.received(now_);
  EXPECT_TRUE(requests_.answered(both, a_, now_));
  EXPECT_EQ(requests_.peerDeadline(kTimeout), now_ + kTimeout);
}

}  // namespace
}  // namespace subscriber_requests_test
}  // namespace rlock::detail::net
