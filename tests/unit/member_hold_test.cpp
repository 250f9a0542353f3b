// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/group/member_hold.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace member_hold_test {
namespace {

using namespace std::chrono_literals;

class MemberHoldTest : public testing::Test {
 protected:
  /// A hold of one incarnation that is valid for ten seconds.
  IntrusivePtr<HoldHandle> handle(std::uint64_t incarnation) const {
    auto made = makeIntrusive<HoldHandle>(incarnation);
    made->setValidUntil(now_ + 10s);
    return made;
  }
  /// @param count  the server's
  static Grant grant(const IntrusivePtr<HoldHandle>& hold, int count) {
    Grant result;
    result.hold = hold;
    result.count = count;
    return result;
  }

  using Incarnations = std::vector<std::uint64_t>;

  void add(const Grant& grant) {
    member_.makeRoom();
    member_.add(grant);
  }
  Incarnations surplus(int count) {
    Incarnations taken;
    taken.reserve(static_cast<std::size_t>(member_.count()));
    member_.takeSurplus(count, taken);
    return taken;
  }

  MemberHold::Clock::time_point now_ = MemberHold::Clock::time_point(1h);
  MemberHold member_;
};

TEST_F(MemberHoldTest, ReleasesTheNewestFirst) {
  const auto hold = handle(7);
  add(grant(hold, 1));
  add(grant(hold, 2));
  EXPECT_EQ(member_.count(), 2);
  EXPECT_EQ(surplus(1), Incarnations{7});
  EXPECT_EQ(surplus(1), Incarnations{}) << "each is released once";
  EXPECT_EQ(surplus(0), Incarnations{7});
}

TEST_F(MemberHoldTest, ReleasesLostHoldsBeforeTheOthers) {
  const auto older = handle(7);
  const auto lost = handle(8);
  const auto newest = handle(9);
  add(grant(older, 1));
  add(grant(lost, 2));
  add(grant(newest, 3));
  add(grant(newest, 4));
  lost->markLost(LossReason::expired);
  EXPECT_EQ(surplus(3), Incarnations{8});
  EXPECT_EQ(surplus(1), (Incarnations{9, 9}));
  EXPECT_TRUE(member_.alive());
  EXPECT_EQ(surplus(0), Incarnations{7});
}

// A lost hold of another incarnation is none of those that the server counts for the latest one.
TEST_F(MemberHoldTest, TheReleaseOfALostHoldLeavesTheCountOfTheLatest) {
  const auto lost = handle(7);
  const auto latest = handle(8);
  add(grant(lost, 1));
  add(grant(latest, 2));
  add(grant(latest, 3));
  lost->markLost(LossReason::expired);
  EXPECT_EQ(surplus(2), Incarnations{7});
  // The reply to an earlier request of the same owner comes late.
  add(grant(latest, 1));
  EXPECT_EQ(member_.count(), 3);
}

TEST_F(MemberHoldTest, NeverCountsMoreThanTheServer) {
  const auto hold = handle(7);
  add(grant(hold, 1));
  add(grant(hold, 2));
  (void)surplus(1);
  // The owner gives one back outside the group, and takes the lock again through it.
  add(grant(hold, 1));
  EXPECT_EQ(member_.count(), 1);
}

TEST_F(MemberHoldTest, KnowsWhatItsOwnerHasGivenBackByOtherWays) {
  const auto hold = handle(7);
  add(grant(hold, 1));
  add(grant(hold, 2));
  EXPECT_EQ(member_.returned(nullptr), 0) << "nobody has said how many there are";
  hold->setCount(2);
  EXPECT_EQ(member_.returned(nullptr), 0);
  EXPECT_EQ(member_.returned(hold.get()), 1) << "one of these two is not booked yet";
  hold->setCount(1);
  EXPECT_EQ(member_.returned(nullptr), 1);
  hold->setReleased();
  EXPECT_EQ(member_.returned(nullptr), 2);
  EXPECT_EQ(member_.returned(handle(8).get()), 2) << "that is of another incarnation";
  hold->markLost(LossReason::forced);
  EXPECT_EQ(member_.returned(nullptr), 0) << "they were lost";
}

TEST_F(MemberHoldTest, DropsOfWhatWasGivenBackSoManyAsItIsTold) {
  for (const std::uint64_t each : {7U, 8U, 9U, 10U}) {
    const auto hold = handle(each);
    if (each == 8 || each == 9) {
      hold->setReleased();
    }
    add(grant(hold, 1));
  }
  // What a grant finds released is dropped by that.
  const auto last = handle(11);
  add(grant(last, 1));
  last->setReleased();
  EXPECT_EQ(member_.returned(nullptr), 1);
  member_.dropReturned(0, nullptr);
  EXPECT_EQ(member_.count(), 3);
  member_.dropReturned(2, nullptr);
  EXPECT_EQ(surplus(0), (Incarnations{10, 7}));
}

TEST_F(MemberHoldTest, ALostHoldIsDroppedByTheNextGrant) {
  const auto first = handle(7);
  add(grant(first, 1));
  first->markLost(LossReason::expired);
  EXPECT_FALSE(member_.alive());
  EXPECT_EQ(member_.reason(), LossReason::expired);
  add(grant(handle(8), 1));
  EXPECT_TRUE(member_.alive());
  EXPECT_EQ(member_.reason(), LossReason::none);
  EXPECT_EQ(surplus(0), Incarnations{8});
}

TEST_F(MemberHoldTest, IsValidAsLongAsTheLongest) {
  EXPECT_EQ(member_.validUntil(), MemberHold::Clock::time_point::min());
  const auto hold = handle(7);
  add(grant(hold, 1));
  EXPECT_EQ(member_.validUntil(), now_ + 10s);
  EXPECT_TRUE(member_.heldAt(now_ + 9s));
  EXPECT_FALSE(member_.heldAt(now_ + 10s));
}

TEST_F(MemberHoldTest, IsRepairedByOneAtATimeAndOnlyIfNobodyEndedIt) {
  const auto hold = handle(7);
  add(grant(hold, 1));
  EXPECT_FALSE(member_.beginRepair(now_)) << "it is held";
  hold->markLost(LossReason::unreachable);
  EXPECT_TRUE(member_.beginRepair(now_));
  EXPECT_FALSE(member_.beginRepair(now_));
  member_.repaired();
  EXPECT_TRUE(member_.beginRepair(now_));

  MemberHold forced;
  const auto ended = handle(8);
  forced.makeRoom();
  forced.add(grant(ended, 1));
  ended->markLost(LossReason::forced);
  EXPECT_FALSE(forced.beginRepair(now_));
}

TEST_F(MemberHoldTest, EachHoldIsHeardOnceUntilItIsGone) {
  const auto first = handle(7);
  add(grant(first, 1));
  MemberHold::Listeners old;
  EXPECT_EQ(member_.unheard(old), first);
  std::list<StopListener> listener;
  int losses = 0;
  listener.emplace_back(first->lostToken(), [&losses] { ++losses; });
  member_.hear(first, listener);
  EXPECT_TRUE(listener.empty()) << "it is kept";
  EXPECT_EQ(member_.unheard(old), nullptr);
  EXPECT_TRUE(old.empty());
  (void)surplus(0);
  EXPECT_EQ(member_.unheard(old), nullptr);
  EXPECT_EQ(old.size(), 1U) << "handed out, to be destroyed without the mutex";
}

}  // namespace
}  // namespace member_hold_test
}  // namespace rlock::detail
