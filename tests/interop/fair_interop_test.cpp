// SPDX-License-Identifier: Apache-2.0
#include "interop/interop_harness.hpp"
#include <rlock/options.hpp>

#include <algorithm>
#include <thread>

namespace rlock::test::interop {
namespace {

constexpr std::string_view kName = "object";
constexpr std::string_view kQueue = "redisson_lock_queue:{object}";

class FairInteropTest : public SubjectTest {
 protected:
  struct Waiter {
    Side side;
    int owner;
    Call call;
  };

  std::int64_t queued() { return raw().run({"LLEN", kQueue}).integer(); }

  Waiter enrol(Side side, int owner) {
    const std::int64_t before = queued();
    const Waiter waiter{side, owner, peer(side).start(1, owner, "lock", kind(), kName, {"-1"})};
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
      EXPECT_TRUE(peer(inside->side).ask(1, inside->owner, "unlock", kind(), kName).ok());
      waiters.erase(inside);
    }
    return entered;
  }
};

TEST_P(FairInteropTest, IO6_TheOrderOfArrivalIsKept) {
  ASSERT_NO_FATAL_FAILURE(begin("order of arrival", GetParam()));
  if (IsSkipped()) {
    return;
  }
  // Redisson's default, 5 minutes, and what a fleet may have set instead.
  for (const std::chrono::milliseconds wait : {0ms, 5'000ms, 1'000ms}) {
    peer(Side::java).open(1, uri(), {.fairWait = wait});
    peer(Side::cpp).open(1, uri(), {});
    for (const Side holder : kSides) {
      for (const std::string_view sides : {"jcjcjc", "cjcjcj", "jjjccc", "cccjjj", "jjcjcc"}) {
        SCOPED_TRACE(std::string(toString(holder)) + " holds, then come " + std::string(sides) +
                     ", fairLockWaitTimeout " + std::to_string(wait.count()));
        ASSERT_ANSWER(peer(holder).ask(1, 9, "lock", kind(), kName, {"-1"}));
        std::vector<Waiter> waiters;
        std::vector<std::string> arrived;
        for (std::size_t i = 0; i < sides.size(); ++i) {
          const Side side = sides[i] == 'j' ? Side::java : Side::cpp;
          waiters.push_back(enrol(side, static_cast<int>(i) + 1));
          arrived.push_back(toString(side) + std::to_string(i + 1));
        }
        ASSERT_ANSWER(peer(holder).ask(1, 9, "unlock", kind(), kName));
        EXPECT_EQ(entriesOf(std::move(waiters)), arrived);
      }
    }
    peer(Side::java).ask(1, 0, "close", "-", "-");
    peer(Side::cpp).ask(1, 0, "close", "-", "-");
  }
}

TEST_P(FairInteropTest, IO6_ADeadWaiterBetweenOthersCostsNoMoreThanItsPlace) {
  ASSERT_NO_FATAL_FAILURE(begin("rlock waiter killed in a long queue", GetParam()));
  if (IsSkipped()) {
    return;
  }
  openBoth({});
  std::unique_ptr<Peer> victim = newPeer(Side::cpp);
  victim->open(1, uri(), {});
  ASSERT_ANSWER(peer(Side::java).ask(1, 9, "lock", kind(), kName, {"-1"}));
  std::vector<Waiter> waiters = {enrol(Side::java, 1)};
  victim->start(1, 1, "lock", kind(), kName, {"-1"});
  ASSERT_EVENTUALLY(5s, queued() == 2);
  for (const Side side : {Side::java, Side::cpp, Side::java}) {
    waiters.push_back(enrol(side, static_cast<int>(waiters.size()) + 1));
  }
  victim->process().kill();
  const Stopwatch since;
  ASSERT_ANSWER(peer(Side::java).ask(1, 9, "unlock", kind(), kName));
  EXPECT_EQ(entriesOf(std::move(waiters)),
            (std::vector<std::string>{"java1", "java2", "cpp3", "java4"}));
  EXPECT_LE(since.elapsedMs(), Options().fairWaiterLease + scaled(1500ms));
  note("all were through in " + inMs(since.elapsedMs()));
}

TEST_P(FairInteropTest, IO6_ADeadWaiterBehindARedissonWaiterCostsThatOnesTimeToo) {
  ASSERT_NO_FATAL_FAILURE(begin("waiter killed behind Redisson's", GetParam()));
  if (IsSkipped()) {
    return;
  }
  constexpr Peer::Tuning java{.watchdog = 2000ms, .fairWait = 1000ms};
  const Peer::Tuning cpp{.watchdog = 2000ms};
  peer(Side::java).open(1, uri(), java);
  peer(Side::cpp).open(1, uri(), cpp);
  std::vector<std::string> told;
  for (const Side side : kSides) {
    SCOPED_TRACE(std::string(toString(side)) + " dies");
    ASSERT_ANSWER(peer(Side::cpp).ask(1, 9, "lock", kind(), kName, {"-1"}));
    std::vector<Waiter> waiters = {enrol(Side::java, 1)};
    std::unique_ptr<Peer> victim = newPeer(side);
    victim->open(1, uri(), side == Side::java ? java : cpp);
    victim->start(1, 1, "lock", kind(), kName, {"-1"});
    ASSERT_EVENTUALLY(5s, queued() == 2);
    // Nobody of rlock's is left who would look after the dead.
    waiters.push_back(enrol(Side::java, 2));
    victim->process().kill();
    const Stopwatch since;
    ASSERT_ANSWER(peer(Side::cpp).ask(1, 9, "unlock", kind(), kName));
    EXPECT_EQ(entriesOf(std::move(waiters)), (std::vector<std::string>{"java1", "java2"}));
    // Redisson's: its waiting time, and what was left of the time of the one before it. Ours: its
    // place, and what it takes for the waiting time of the one before it, which that one's place
    // does not show apart from what was left of the holder's lease.
    const std::chrono::milliseconds place =
        side == Side::java ? java.watchdog + 2 * java.fairWait
                           : Options().fairWaiterLease + java.watchdog + java.fairWait;
    EXPECT_LE(since.elapsedMs(), place + scaled(1500ms));
    told.push_back(inMs(since.elapsedMs()) + " (" + toString(side) + ")");
  }
  note("all were through in " + told[0] + ", " + told[1]);
}

TEST_P(FairInteropTest, IO6_ADeadWaiterCostsNoMoreThanItsPlace) {
  ASSERT_NO_FATAL_FAILURE(begin("waiter killed", GetParam()));
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
      ASSERT_ANSWER(peer(Side::cpp).ask(1, 9, "lock", kind(), kName, {"-1"}));
      std::unique_ptr<Peer> victim = newPeer(side);
      victim->open(1, uri(), side == Side::java ? java : cpp);
      victim->start(1, 1, "lock", kind(), kName, {"-1"});
      ASSERT_EVENTUALLY(5s, queued() == 1);
      std::vector<Waiter> waiters = {enrol(next, 1), enrol(other(next), 1)};
      victim->process().kill();
      const Stopwatch since;
      ASSERT_ANSWER(peer(Side::cpp).ask(1, 9, "unlock", kind(), kName));
      EXPECT_EQ(entriesOf(std::move(waiters)),
                (std::vector<std::string>{toString(next) + std::string("1"),
                                          toString(other(next)) + std::string("1")}));
      const std::chrono::milliseconds place = side == Side::java ? kJavaPlace : cpp.fairWait;
      EXPECT_LE(since.elapsedMs(), place + scaled(1500ms));
      told.push_back(inMs(since.elapsedMs()) + " (" + toString(side) + " before " + toString(next) +
                     ")");
    }
  }
  std::string text = "all were through in";
  for (const std::string& each : told) {
    text.append(text.ends_with("in") ? " " : ", ").append(each);
  }
  note(text);
}

INSTANTIATE_TEST_SUITE_P(Interop,
                         FairInteropTest,
                         ::testing::ValuesIn(newest({"fair", "nonreentrantfair"})),
                         subjectName);

}  // namespace
}  // namespace rlock::test::interop
