// SPDX-License-Identifier: Apache-2.0

// Messages to callers, holders and the log about a release that finds nothing, a repetition and an
// outage.

#include "integration/lock_harness.hpp"

namespace rlock::test {
namespace {

class Outcome : public LockTest {
 protected:
  /// The error of unlock() by the calling thread.
  static std::string refusalOf(RLock lock) {
    try {
      lock.unlock();
    } catch (const Error& error) {
      EXPECT_EQ(error.errc(), Errc::notOwner);
      return error.what();
    }
    ADD_FAILURE() << "it was released";
    return {};
  }
  static bool says(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }
  [[nodiscard]] std::size_t warnings(std::string_view part) {
    std::size_t found = 0;
    for (const CapturedLog::Line& line : log().lines()) {
      found += line.level == static_cast<int>(LogLevel::warning) && says(line.text, part) ? 1U : 0U;
    }
    return found;
  }
};

TEST_F(Outcome, AnUnlockAfterTheLeaseSaysWhenThatEnded) {
  Client client = connect();
  RLock lock = client.getLock("late");
  lock.lock(300ms);
  ASSERT_EVENTUALLY(kLong, client.stats().lost == 1 && !raw().exists("late"));
  const std::string refusal = refusalOf(lock);
  EXPECT_TRUE(says(refusal, "the lease of 300 ms ended ")) << refusal;
  EXPECT_TRUE(says(refusal, " ms ago")) << refusal;
}

TEST_F(Outcome, AnUnlockAfterALossSaysWhatBecameOfTheHold) {
  Client client = connect();
  RLock lock = client.getLock("taken");
  lock.lock();
  client.getLock("taken").forceUnlock();
  // The reason that the refusal gives is there before the log is told.
  ASSERT_EVENTUALLY(kLong, log().contains("lost its hold"));
  const std::string refusal = refusalOf(lock);
  EXPECT_TRUE(says(refusal, "it was lost ") && says(refusal, "forced")) << refusal;
}

TEST_F(Outcome, AnUnlockTooManySaysNothingOfEarlierLosses) {
  Client client = connect();
  RLock lock = client.getLock("again");
  lock.lock(50ms);
  ASSERT_EVENTUALLY(kLong, client.stats().lost == 1 && !raw().exists("again"));
  lock.lock();
  lock.unlock();
  const std::string refusal = refusalOf(lock);
  EXPECT_FALSE(says(refusal, "lease of")) << refusal;
}

TEST_F(Outcome, ALeaseWhoseKeyHoldsSomethingElseIsLost) {
  Client client = connect();
  Lease lease = client.getLock("other").acquire();
  raw().run({"SET", "other", "data"});
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_EQ(raw().run({"GET", "other"}).string(), "data");
}

TEST_F(Outcome, AnUnreachableHoldIsGivenBack) {
  Client client = Client::connect(proxied(kWatchdog));
  Lease lease = client.getLock("back").acquire();
  // So that it does not end by itself; a renewal makes it no shorter.
  ASSERT_EQ(raw().run({"PEXPIRE", "back", "600000"}).integer(), 1);
  proxy().addRule(running(lua::lock_renew), TcpProxy::Action::replyWithError("ERR not now"));
  ASSERT_EVENTUALLY(kLong, lease.lossReason() == LossReason::unreachable);
  EXPECT_EVENTUALLY(kLong, !raw().exists("back"));
}

// A repetition is recognised for as long as there may be one.
TEST_F(Outcome, AForcedReleaseIsRememberedForLongerThanItIsRepeated) {
  Options settings = options();
  settings.callTimeout = 1h;
  Client client = Client::connect(settings);
  const std::vector<std::pair<std::string, std::function<RLock()>>> kinds{
      {"plain", [&] { return client.getLock("forced"); }},
      {"fair", [&] { return client.getFairLock("forced"); }},
      {"simple", [&] { return client.getSimpleLock("forced"); }},
      {"write", [&] { return client.getReadWriteLock("forced").writeLock(); }}};
  for (const auto& [kind, make] : kinds) {
    raw().run({"FLUSHALL"});
    RLock lock = make();
    lock.lock();
    EXPECT_TRUE(lock.forceUnlock()) << kind;
    const std::set<std::string> left = raw().keys();
    ASSERT_EQ(left.size(), 1U) << kind;
    EXPECT_GT(raw().pttl(*left.begin()), std::chrono::milliseconds(1h).count()) << kind;
  }
}

// The request may be repeated for as long as its call may take, and be lost on the way for longer.
TEST_F(Outcome, ANumberedRequestIsRememberedForLongerThanItsCallMayTake) {
  Options settings = options();
  settings.callTimeout = 1h;
  Client client = Client::connect(settings);
  client.getPermitExpirableSemaphore("numbered").addPermits(1);
  const std::set<std::string> keys = raw().keys("rlock_request:*");
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_GT(raw().pttl(*keys.begin()), std::chrono::milliseconds(1h + 15min).count());
}

TEST_F(Outcome, AReplicaIsWarnedOfOnce) {
  RLOCK_ONE_SERVER_ONLY("makes a replica of its server");
  raw().run({"REPLICAOF", "127.0.0.1", "1"});
  Options settings = options();
  settings.callTimeout = 200ms;
  settings.retryDelayMin = 1ms;
  settings.retryDelayMax = 10ms;
  settings.reconnectDelayMin = 1ms;
  settings.reconnectDelayMax = 10ms;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("r");
  const auto connectsAgain = [&](std::uint64_t times) {
    const std::uint64_t before = client.stats().reconnects;
    return eventually(kLong, [&] {
      EXPECT_FALSE(lock.forceUnlockAsync().wait().has_value());
      return client.stats().reconnects >= before + times;
    });
  };
  ASSERT_TRUE(connectsAgain(4));
  EXPECT_EQ(warnings("is a replica"), 1U);
  EXPECT_EQ(warnings("no connection"), 1U);

  raw().run({"REPLICAOF", "NO", "ONE"});
  ASSERT_EVENTUALLY(kLong, lock.forceUnlockAsync().wait().has_value());
  // A connection to a master, so that the next replica is news.
  raw().run({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  ASSERT_EVENTUALLY(kLong,
                    log().count("connected to") >= 2 && lock.isLockedAsync().wait().has_value());
  log().clear();
  raw().run({"REPLICAOF", "127.0.0.1", "1"});
  ASSERT_TRUE(connectsAgain(4));
  EXPECT_EQ(warnings("is a replica"), 1U);
}

}  // namespace
}  // namespace rlock::test
