// SPDX-License-Identifier: Apache-2.0
#include "interop/interop_harness.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace rlock::test::interop {
namespace {

constexpr std::string_view kName = "object";
const Subject kReadWrite{"read-write", kNewest};

class ReadWriteInteropTest : public InteropTest {
 protected:
  Answer ask(Side side, int owner, std::string_view verb, std::string_view kind) {
    return peer(side).ask(1, owner, verb, kind, kName);
  }
  std::string tryNow(Side side, int owner, std::string_view kind) {
    return peer(side).ask(1, owner, "tryLock", kind, kName, {"0", "-1"}).text();
  }
  void lock(Side side, int owner, std::string_view kind) {
    ASSERT_ANSWER(peer(side).ask(1, owner, "lock", kind, kName, {"-1"}));
  }
  void unlock(Side side, int owner, std::string_view kind) {
    ASSERT_ANSWER(ask(side, owner, "unlock", kind));
  }
};

TEST_F(ReadWriteInteropTest, IO7_ReadersShareAndWritersExclude) {
  ASSERT_NO_FATAL_FAILURE(begin("readers share, writers exclude", kReadWrite));
  if (IsSkipped()) {
    return;
  }
  openBoth({});
  for (const Side side : kSides) {
    SCOPED_TRACE(std::string(toString(side)) + " first");
    lock(side, 1, "read");
    EXPECT_EQ(tryNow(other(side), 1, "read"), "true");
    for (const Side writer : kSides) {
      EXPECT_EQ(tryNow(writer, 2, "write"), "false");
    }
    unlock(side, 1, "read");
    EXPECT_EQ(tryNow(side, 2, "write"), "false");
    EXPECT_EQ(tryNow(other(side), 2, "write"), "false");
    unlock(other(side), 1, "read");

    lock(side, 1, "write");
    for (const std::string_view kind : {"read", "write"}) {
      EXPECT_EQ(tryNow(other(side), 1, kind), "false");
      EXPECT_EQ(tryNow(side, 2, kind), "false");
    }
    // A writer that reads as well and gives up writing lets readers in.
    lock(side, 1, "read");
    unlock(side, 1, "write");
    EXPECT_EQ(tryNow(other(side), 1, "read"), "true");
    EXPECT_EQ(tryNow(other(side), 2, "write"), "false");
    unlock(side, 1, "read");
    unlock(other(side), 1, "read");
    EXPECT_EQ(raw().keys("*object*"), std::set<std::string>());
  }
}

TEST_F(ReadWriteInteropTest, IO7_AReadersUnlockLeavesTheOtherSidesHoldsAlone) {
  ASSERT_NO_FATAL_FAILURE(begin("unlock leaves others alone", kReadWrite));
  if (IsSkipped()) {
    return;
  }
  // Shorter than the test: what is not renewed is gone.
  constexpr Peer::Tuning tuning{.watchdog = 1500ms};
  openBoth(tuning);
  for (const Side side : kSides) {
    SCOPED_TRACE(std::string(toString(side)) + " leaves first");
    const Side stays = other(side);
    lock(stays, 1, "read");
    lock(stays, 1, "read");
    lock(side, 1, "read");
    lock(side, 1, "read");
    lock(side, 2, "read");
    unlock(side, 1, "read");
    EXPECT_EQ(ask(stays, 1, "holdCount", "read").text(), "2");
    unlock(side, 1, "read");
    unlock(side, 2, "read");
    EXPECT_EQ(ask(side, 1, "unlock", "read").text(), "notOwner");
    EXPECT_EQ(ask(stays, 1, "holdCount", "read").text(), "2");
    const Deadline end(2 * tuning.watchdog);
    while (!end.expired()) {
      EXPECT_EQ(tryNow(side, 3, "write"), "false");
      EXPECT_EQ(tryNow(stays, 3, "write"), "false");
      std::this_thread::sleep_for(100ms);
    }
    EXPECT_EQ(ask(stays, 1, "holdCount", "read").text(), "2");
    unlock(stays, 1, "read");
    EXPECT_EQ(tryNow(side, 3, "write"), "false");
    unlock(stays, 1, "read");
    EXPECT_EQ(tryNow(side, 3, "write"), "true");
    unlock(side, 3, "write");
  }
}

TEST_F(ReadWriteInteropTest, IO7_ReadersAndWritersOfBothSidesKeepApart) {
  ASSERT_NO_FATAL_FAILURE(begin("readers and writers together", kReadWrite));
  if (IsSkipped()) {
    return;
  }
  openBoth({});
  constexpr int kEach = 100;
  const auto hammer = [&](Side side, int owner, std::string_view kind) {
    return startSections(side, owner, kind, kName, kEach, 200us);
  };
  // A virtual machine that has only just started would come when rlock is through.
  ASSERT_ANSWER(peer(Side::java).finish(hammer(Side::java, 1, "read")));
  ASSERT_ANSWER(peer(Side::java).finish(hammer(Side::java, 3, "write")));
  std::vector<std::pair<Side, Call>> calls;
  for (const Side side : kSides) {
    calls.emplace_back(side, hammer(side, 1, "read"));
    calls.emplace_back(side, hammer(side, 2, "read"));
    calls.emplace_back(side, hammer(side, 3, "write"));
    calls.emplace_back(side, hammer(side, 4, "write"));
  }
  for (const auto& [side, call] : calls) {
    const Answer answer = peer(side).finish(call, 120s);
    EXPECT_EQ(answer.text(), std::to_string(kEach)) << side << ": " << answer;
  }
  const int changes = checkSections(5 * kEach, 10 * kEach);
  // Otherwise the two did not meet.
  EXPECT_GE(changes, 10);
  note("changed sides " + std::to_string(changes) + " times");
}

TEST_F(ReadWriteInteropTest, IO2_ReadersAndWritersWakeEachOther) {
  ASSERT_NO_FATAL_FAILURE(begin("wake-up", kReadWrite));
  if (IsSkipped()) {
    return;
  }
  constexpr Peer::Tuning tuning{.watchdog = 60'000ms, .safetyPoll = 1000ms};
  openBoth(tuning);
  std::chrono::microseconds worst{0};
  for (const Side side : kSides) {
    for (const auto& [held, wanted] : {std::pair{"write", "read"}, std::pair{"read", "write"}}) {
      Peer& waiting = peer(other(side));
      const std::chrono::microseconds p99 = handOffP99(
          waiting,
          {.hold = [&, mode = held] { lock(side, 1, mode); },
           .wait = [&, mode = wanted] { return waiting.start(1, 1, "lock", mode, kName, {"-1"}); },
           .release = [&, mode = held] { return ask(side, 1, "unlock", mode); },
           .leave = [&, mode = wanted](const Answer&) { unlock(other(side), 1, mode); }});
      EXPECT_LT(p99, scaled(tuning.safetyPoll / 10))
          << wanted << " after " << held << " of " << side;
      worst = std::max(worst, p99);
    }
  }
  note("p99 at most " + inMs(worst) + " in either direction");
}

TEST_F(ReadWriteInteropTest, IO4_ADeadReaderDelaysWritersByItsLease) {
  ASSERT_NO_FATAL_FAILURE(begin("reader killed", kReadWrite));
  if (IsSkipped()) {
    return;
  }
  constexpr Peer::Tuning tuning{.watchdog = 2000ms};
  openBoth(tuning);
  for (const Side side : kSides) {
    SCOPED_TRACE(std::string(toString(side)) + " dies");
    std::unique_ptr<Peer> victim = newPeer(side);
    victim->open(1, uri(), tuning);
    ASSERT_ANSWER(victim->ask(1, 1, "lock", "read", kName, {"-1"}));
    lock(other(side), 1, "read");
    victim->process().kill();
    // A live reader keeps writers out beyond the dead one's lease.
    std::this_thread::sleep_for(tuning.watchdog + 300ms);
    EXPECT_EQ(tryNow(side, 2, "write"), "false");
    EXPECT_EQ(tryNow(other(side), 2, "write"), "false");
    const auto unlocked = std::chrono::steady_clock::now().time_since_epoch();
    unlock(other(side), 1, "read");
    const Call wait = peer(other(side)).start(1, 2, "lock", "write", kName, {"-1"});
    const Answer entered = peer(other(side)).finish(wait);
    ASSERT_TRUE(entered.ok()) << entered;
    // The dead one's hold is over and counts no more.
    EXPECT_LE(entered.end - unlocked, scaled(500ms));
    unlock(other(side), 2, "write");
  }
}

}  // namespace
}  // namespace rlock::test::interop
