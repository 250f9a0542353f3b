// SPDX-License-Identifier: Apache-2.0
#include "interop/interop_harness.hpp"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

namespace rlock::test::interop {
namespace {

constexpr std::string_view kName = "object";
constexpr int kOwners = 4;
constexpr int kOperations = 1000;

class PermitCountTest : public SubjectTest {};

TEST_P(PermitCountTest, IO8_RandomOperationsOfBothSidesKeepTheCount) {
  ASSERT_NO_FATAL_FAILURE(begin("count kept", GetParam()));
  if (IsSkipped()) {
    return;
  }
  openBoth({});
  constexpr int kPermits = 5;
  ASSERT_ANSWER(peer(Side::cpp).ask(1, 0, "trySet", kind(), kName, {std::to_string(kPermits)}));
  std::vector<std::pair<Side, Call>> calls;
  const int each = kOperations / (2 * kOwners);
  const auto churn = [&](Side side, int owner) {
    return peer(side).start(
        1, owner, "churn", kind(), kName, {std::to_string(each), std::to_string(owner)});
  };
  // A virtual machine that has only just started would come when rlock is through.
  ASSERT_ANSWER(peer(Side::java).finish(churn(Side::java, 1)));
  for (int owner = 1; owner <= kOwners; ++owner) {
    for (const Side side : kSides) {
      calls.emplace_back(side, churn(side, owner));
    }
  }
  int least = kPermits;
  const auto all = [&] {
    return std::all_of(calls.begin(), calls.end(), [&](const auto& call) {
      return peer(call.first).finished(call.second);
    });
  };
  const Deadline end(120s);
  while (!all() && !end.expired()) {
    const int left = std::stoi(raw().get(kName).value_or("0"));
    promised(left >= 0 && left <= kPermits, std::to_string(left) + " permits are free");
    least = std::min(least, left);
    std::this_thread::sleep_for(1ms);
  }
  std::int64_t grants[2] = {0, 0};
  std::chrono::nanoseconds ends[2] = {};
  auto begin = std::chrono::nanoseconds::zero();
  for (const auto& [side, call] : calls) {
    const Answer answer = peer(side).finish(call);
    ASSERT_TRUE(answer.ok()) << side << ": " << answer;
    const std::size_t i = side == Side::java ? 0 : 1;
    grants[i] += answer.number();
    ends[i] = std::max(ends[i], answer.end);
    begin = std::max(begin, answer.begin);
  }
  // Otherwise the two did not meet.
  EXPECT_LT(least, kPermits);
  EXPECT_GE(grants[0], kOperations / 40);
  EXPECT_GE(grants[1], kOperations / 40);
  EXPECT_GT(std::min(ends[0], ends[1]), begin + 50ms);
  for (const Side side : kSides) {
    // rlock may still give back what came too late.
    std::string free;
    const bool complete = eventually(5s, [&] {
      free = peer(side).ask(1, 1, "available", kind(), kName).text();
      return free == std::to_string(kPermits);
    });
    promised(complete, free + " permits are left");
  }
  note("Redisson was granted " + std::to_string(grants[0]) + ", rlock " +
       std::to_string(grants[1]) + " times");
  if (kind() == "permits") {
    EXPECT_EQ(peer(Side::java).ask(1, 1, "acquired", kind(), kName).text(), "0");
    EXPECT_EQ(peer(Side::cpp).ask(1, 1, "acquired", kind(), kName).text(), "0");
  }
}

INSTANTIATE_TEST_SUITE_P(Interop,
                         PermitCountTest,
                         ::testing::ValuesIn(newest({"semaphore", "permits"})),
                         subjectName);

class PermitInteropTest : public InteropTest {};

TEST_F(PermitInteropTest, IO4_TheOtherSideEntersWithinTheLeaseOfAKilledHoldersPermit) {
  ASSERT_NO_FATAL_FAILURE(begin("holder killed", Subject{"permits", kNewest}));
  if (IsSkipped()) {
    return;
  }
  constexpr std::chrono::milliseconds kLease{1500};
  openBoth({});
  ASSERT_ANSWER(peer(Side::cpp).ask(1, 0, "trySet", "permits", kName, {"1"}));
  for (const Side side : kSides) {
    SCOPED_TRACE(std::string(toString(side)) + " is killed");
    std::unique_ptr<Peer> victim = newPeer(side);
    victim->open(1, uri(), {});
    const Answer held =
        victim->ask(1, 1, "acquire", "permits", kName, {std::to_string(kLease.count())});
    ASSERT_TRUE(held.ok()) << held;
    Peer& survivor = peer(other(side));
    const Call wait = survivor.start(1, 1, "acquire", "permits", kName, {"-1"});
    victim->process().kill();
    const Answer entered = survivor.finish(wait);
    ASSERT_TRUE(entered.ok()) << entered;
    EXPECT_LE(entered.end - held.end, kLease + scaled(300ms));
    EXPECT_GE(entered.end - held.begin, kLease - 10ms);
    ASSERT_ANSWER(survivor.ask(1, 1, "release", "permits", kName, {entered.value}));
    EXPECT_EQ(survivor.ask(1, 1, "tryRelease", "permits", kName, {held.value}).text(), "false");
    EXPECT_EQ(survivor.ask(1, 1, "available", "permits", kName).text(), "1");
  }
}

class LatchInteropTest : public InteropTest {};

TEST_F(LatchInteropTest, IO2_WhoWaitsOnTheOtherSideGoesOnBecauseOfTheMessage) {
  ASSERT_NO_FATAL_FAILURE(begin("wake-up", Subject{"latch", kNewest}));
  if (IsSkipped()) {
    return;
  }
  const Peer::Tuning tuning{.safetyPoll = scaled(1000ms)};
  openBoth(tuning);
  std::string text = "p99";
  for (const Side counter : kSides) {
    Peer& counting = peer(counter);
    Peer& waiting = peer(other(counter));
    const std::chrono::microseconds longest = handOffP99(
        waiting,
        {.hold =
             [&] { EXPECT_EQ(counting.ask(1, 1, "trySet", "latch", kName, {"1"}).text(), "true"); },
         .wait = [&] { return waiting.start(1, 1, "await", "latch", kName, {"-1"}); },
         .release = [&] { return counting.ask(1, 1, "countDown", "latch", kName); },
         .leave = [](const Answer&) {}});
    EXPECT_LT(longest, tuning.safetyPoll / 10) << counter << " counts down";
    text.append(counter == Side::java ? " " : ", ")
        .append(inMs(longest))
        .append(counter == Side::java ? " to rlock" : " to Redisson");
  }
  note(text);
}

TEST_F(LatchInteropTest, IO8_EachCountDownCountsAndTheLastOneLetsAllIn) {
  ASSERT_NO_FATAL_FAILURE(begin("count kept", Subject{"latch", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth({});
  for (const Side setter : kSides) {
    EXPECT_EQ(
        peer(setter).ask(1, 0, "trySet", "latch", kName, {std::to_string(kOperations + 1)}).text(),
        "true");
    EXPECT_EQ(peer(other(setter)).ask(1, 0, "trySet", "latch", kName, {"5"}).text(), "false");
    std::vector<std::pair<Side, Call>> waits;
    for (const Side side : kSides) {
      waits.emplace_back(side, peer(side).start(1, 7, "await", "latch", kName, {"-1"}));
      waits.emplace_back(side, peer(side).start(1, 8, "await", "latch", kName, {"60000"}));
    }
    std::vector<std::pair<Side, Call>> calls;
    const int each = kOperations / (2 * kOwners);
    for (int owner = 1; owner <= kOwners; ++owner) {
      for (const Side side : kSides) {
        calls.emplace_back(
            side,
            peer(side).start(
                1, owner, "churn", "latch", kName, {std::to_string(each), std::to_string(owner)}));
      }
    }
    for (const auto& [side, call] : calls) {
      ASSERT_ANSWER(peer(side).finish(call));
    }
    for (const Side side : kSides) {
      const Answer count = peer(side).ask(1, 0, "count", "latch", kName);
      promised(count.text() == "1", "the count is " + count.text());
    }
    for (const auto& [side, call] : waits) {
      promised(!peer(side).finished(call), "let through before zero");
    }
    ASSERT_ANSWER(peer(setter).ask(1, 0, "countDown", "latch", kName));
    for (const auto& [side, call] : waits) {
      EXPECT_EQ(peer(side).finish(call).text(), "true") << side;
    }
    EXPECT_FALSE(raw().exists(kName));
  }
}

}  // namespace
}  // namespace rlock::test::interop
