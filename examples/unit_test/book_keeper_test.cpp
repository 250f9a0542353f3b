// SPDX-License-Identifier: Apache-2.0

// Unit tests of a service that takes locks: no Redis, no socket, no sleeping. Build them with
// rlock::testing and GoogleTest:
//
//   find_package(rlock 0.1 REQUIRED CONFIG COMPONENTS testing)
//   target_link_libraries(book_keeper_test PRIVATE rlock::testing GTest::gtest_main)

#include "book_keeper.hpp"

#include <rlock/testing.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <future>

using namespace std::chrono_literals;
using Outcome = BookKeeper::Outcome;

namespace {

class BookKeeperTest : public testing::Test {
 protected:
  rlock::TestServer redis;
  rlock::Client client = redis.connect();
  BookKeeper keeper{client};
  int steps = 0;

  /// A day with three steps, each of which takes a minute.
  bool step() {
    redis.clock().advance(1min);
    return ++steps < 3;
  }
  Outcome close() {
    return keeper.close("monday", [this] { return step(); });
  }
};

TEST_F(BookKeeperTest, ClosesADay) {
  EXPECT_EQ(close(), Outcome::closed);
  EXPECT_EQ(steps, 3);
  EXPECT_FALSE(client.getLock("books:monday").isLocked());
}

TEST_F(BookKeeperTest, LeavesADayToAnotherMachine) {
  const rlock::Lease theirs = redis.otherHolds("books:monday");
  EXPECT_EQ(close(), Outcome::busy);  // after two seconds, which take no time here
  EXPECT_EQ(steps, 0);
}

TEST_F(BookKeeperTest, TakesOverFromAMachineThatDied) {
  const rlock::Lease theirs = redis.otherHolds("books:monday", 1s);
  EXPECT_EQ(close(), Outcome::closed);
}

TEST_F(BookKeeperTest, StopsWhenItsLockIsLost) {
  const auto outcome = keeper.close("monday", [this] {
    redis.lose("books:monday");  // as by a failover
    return step();
  });
  EXPECT_EQ(outcome, Outcome::interrupted);
  EXPECT_EQ(steps, 1);
}

TEST_F(BookKeeperTest, GoesOnThroughAShortOutage) {
  const auto outcome = keeper.close("monday", [this] {
    redis.down(5s);
    return step();
  });
  EXPECT_EQ(outcome, Outcome::closed);
}

TEST_F(BookKeeperTest, ALostReplyChangesNothing) {
  redis.dropReplies();
  EXPECT_EQ(close(), Outcome::closed);
  EXPECT_EQ(client.stats().lostReplies, 1U);
}

TEST_F(BookKeeperTest, WaitsForAnotherThread) {
  rlock::Lease theirs = redis.otherHolds("books:monday");
  auto closing = std::async(std::launch::async, [this] { return close(); });
  redis.clock().awaitWaiting();
  theirs.release();
  EXPECT_EQ(closing.get(), Outcome::closed);
}

}  // namespace
