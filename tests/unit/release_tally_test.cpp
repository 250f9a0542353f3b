// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/group/release_tally.hpp>

#include <gtest/gtest.h>

namespace rlock::detail {
namespace release_tally_test {
namespace {

TEST(ReleaseTally, OfAllNeedsEveryAnswer) {
  ReleaseTally tally;
  tally.members = 2;
  tally.valid = true;
  tally.released = 1;
  EXPECT_EQ(tally.ofAll(), ReleaseTally::Result::pending);
  tally.released = 2;
  EXPECT_EQ(tally.ofAll(), ReleaseTally::Result::released);
  tally.valid = false;
  EXPECT_EQ(tally.ofAll(), ReleaseTally::Result::notOwner);
}

TEST(ReleaseTally, OfAllALostMemberCountsMoreThanAFailure) {
  ReleaseTally tally;
  tally.members = 3;
  tally.valid = true;
  tally.released = 1;
  tally.failed = 1;
  tally.notOwner = 1;
  EXPECT_EQ(tally.ofAll(), ReleaseTally::Result::notOwner);
  tally.notOwner = 0;
  tally.released = 2;
  EXPECT_EQ(tally.ofAll(), ReleaseTally::Result::failed);
}

TEST(ReleaseTally, OfAMajorityDoesNotWaitForTheRest) {
  ReleaseTally tally;
  tally.members = 5;
  tally.valid = true;
  tally.released = 2;
  EXPECT_EQ(tally.ofMajority(3), ReleaseTally::Result::pending);
  tally.released = 3;
  EXPECT_EQ(tally.ofMajority(3), ReleaseTally::Result::released);
}

TEST(ReleaseTally, OfAMajorityThatWasNotHeldIsNotOwner) {
  ReleaseTally tally;
  tally.members = 3;
  tally.valid = false;
  tally.released = 3;
  EXPECT_EQ(tally.ofMajority(2), ReleaseTally::Result::notOwner);
  tally.valid = true;
  tally.released = 1;
  tally.notOwner = 2;
  EXPECT_EQ(tally.ofMajority(2), ReleaseTally::Result::notOwner);
  tally.notOwner = 1;
  tally.failed = 1;
  EXPECT_EQ(tally.ofMajority(2), ReleaseTally::Result::failed);
}

TEST(ReleaseTally, OfSpareMembersNoAnswerIsWaitedFor) {
  ReleaseTally tally;
  tally.members = 3;
  tally.spare = 2;
  EXPECT_EQ(tally.ofMajority(3), ReleaseTally::Result::pending);
  tally.failed = 1;
  EXPECT_EQ(tally.ofMajority(3), ReleaseTally::Result::notOwner);
  tally.spare = 3;
  tally.failed = 0;
  EXPECT_EQ(tally.ofMajority(3), ReleaseTally::Result::notOwner);
}

TEST(ReleaseTally, OfAReentryThatFewMembersSaw) {
  ReleaseTally tally;
  tally.members = 1;
  tally.valid = true;
  EXPECT_EQ(tally.ofMajority(3), ReleaseTally::Result::pending);
  tally.released = 1;
  EXPECT_EQ(tally.ofMajority(3), ReleaseTally::Result::released);
  tally = ReleaseTally();
  tally.valid = true;
  EXPECT_EQ(tally.ofMajority(3), ReleaseTally::Result::released);
}

}  // namespace
}  // namespace release_tally_test
}  // namespace rlock::detail
