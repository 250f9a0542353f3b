// SPDX-License-Identifier: Apache-2.0
#include "interop/interop_harness.hpp"

#include <algorithm>
#include <thread>

namespace rlock::test::interop {
namespace {

constexpr std::string_view kKind = "fair";
constexpr std::string_view kName = "object";
constexpr std::string_view kQueue = "redisson_lock_queue:{object}";

class FairInteropTest : public InteropTest {
 protected:
  struct Waiter {
    Side side;
    int owner;
    Call call;
  };

  std::int64_t queued() { return raw().run({"LLEN", kQueue}).integer(); }

  Waiter enrol(Side side, int owner) {
    const std::int64_t before = queued();
    const Waiter waiter{side, owner, peer(side).start(1, owner, "lock", kKind, kName, {"-1"})};
    EXPECT_EVENTUALLY(5s, queued() > before);
    return waiter;
  }

  /// Lets whoever enters leave again, until all have been in: who came when.
  std::vector<std::string> entriesOf(std::vector<Waiter> waiters) {
    std::vector<std::string> entered;
    const Deadline end(30s);
    while (!waiters.empty() && !end.expired()) {
      const auto inside = std::find_if(waiters.begin(), waiters.end(), [&](const Waiter& waiter) {
        return peer(waiter.side).finished(waiter.call);
      });
      if (inside == waiters.end()) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      entered.push_back(toString(inside->side) + std::to_string(inside->owner));
      EXPECT_TRUE(peer(inside->side).finish(inside->call).ok());
      // So that everybody has time to come in the wrong order.
      std::this_thread::sleep_for(30ms);
      EXPECT_TRUE(peer(inside->side).ask(1, inside->owner, "unlock", kKind, kName).ok());
      waiters.erase(inside);
    }
    return entered;
  }
};

TEST_F(FairInteropTest, IO6_TheOrderOfArrivalIsKept) {
  ASSERT_NO_FATAL_FAILURE(begin("order of arrival", Subject{"fair", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth({});
  for (const Side holder : kSides) {
    SCOPED_TRACE(std::string(toString(holder)) + " holds");
    ASSERT_ANSWER(peer(holder).ask(1, 9, "lock", kKind, kName, {"-1"}));
    std::vector<Waiter> waiters;
    std::vector<std::string> arrived;
    for (int owner = 1; owner <= 3; ++owner) {
      for (const Side side : kSides) {
        waiters.push_back(enrol(side, owner));
        arrived.push_back(toString(side) + std::to_string(owner));
      }
    }
    ASSERT_ANSWER(peer(holder).ask(1, 9, "unlock", kKind, kName));
    EXPECT_EQ(entriesOf(std::move(waiters)), arrived);
  }
}

TEST_F(FairInteropTest, IO6_ADeadWaiterCostsNoMoreThanItsPlace) {
  ASSERT_NO_FATAL_FAILURE(begin("waiter killed", Subject{"fair", kNewest}));
  if (IsSkipped()) {
    return;
  }
  // Redisson's waiter counts as dead when what was left of the holder's lease and then its own
  // waiting time are over; ours when it has not been refreshed for its waiting time.
  constexpr Peer::Tuning java{.watchdog = 2000ms, .fairWait = 1000ms};
  constexpr Peer::Tuning cpp{.watchdog = 2000ms, .fairWait = 4000ms};
  constexpr std::chrono::milliseconds kJavaPlace = java.watchdog + java.fairWait;
  peer(Side::java).open(1, uri(), java);
  peer(Side::cpp).open(1, uri(), cpp);
  std::vector<std::string> told;
  for (const Side side : kSides) {
    for (const Side next : kSides) {
      SCOPED_TRACE(std::string(toString(side)) + " dies, " + toString(next) + " is next");
      ASSERT_ANSWER(peer(Side::cpp).ask(1, 9, "lock", kKind, kName, {"-1"}));
      std::unique_ptr<Peer> victim = newPeer(side);
      victim->open(1, uri(), side == Side::java ? java : cpp);
      victim->start(1, 1, "lock", kKind, kName, {"-1"});
      ASSERT_EVENTUALLY(5s, queued() == 1);
      std::vector<Waiter> waiters = {enrol(next, 1), enrol(other(next), 1)};
      victim->process().kill();
      const Stopwatch since;
      ASSERT_ANSWER(peer(Side::cpp).ask(1, 9, "unlock", kKind, kName));
      EXPECT_EQ(entriesOf(std::move(waiters)).size(), 2U);
      const std::chrono::milliseconds place = side == Side::java ? kJavaPlace : cpp.fairWait;
      EXPECT_LE(since.elapsedMs(), place + scaled(1500ms));
      told.push_back(inMs(since.elapsedMs()) + " after " + toString(side));
    }
  }
  std::string text = "all were through in";
  for (const std::string& each : told) {
    text.append(text.ends_with("in") ? " " : ", ").append(each);
  }
  note(text);
}

}  // namespace
}  // namespace rlock::test::interop
