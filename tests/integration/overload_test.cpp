// SPDX-License-Identifier: Apache-2.0

// More operations than a client accepts.

#include "integration/lock_harness.hpp"

#include <utility>

namespace rlock::test {
namespace {

class Overload : public LockTest {
 protected:
  static constexpr int kLimit = 20;

  [[nodiscard]] Client limited() {
    Options settings = options();
    settings.maxOperations = kLimit;
    return Client::connect(settings);
  }
};

TEST_F(Overload, RefusesAtOnceAndSendsNothing) {
  Client client = limited();
  RLock held = client.getLock("held");
  held.lock();
  Lease lease = client.getLock("leased").acquire();
  Semaphore semaphore = client.getSemaphore("permits");
  semaphore.trySetPermits(1);
  semaphore.acquire();
  rawHold("foreign", "other:1", 60s);
  RLock foreign = client.getLock("foreign");
  std::stop_source stop;
  std::vector<std::future<void>> waiting;
  for (int i = 0; i < kLimit; ++i) {
    waiting.push_back(foreign.lockAsync({.stop = stop.get_token()}, newOwner()).toFuture());
  }
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == kLimit);
  // Each has looked once more after it had subscribed.
  std::uint64_t sent = 0;
  ASSERT_EVENTUALLY(kLong, [&] {
    const std::uint64_t before = std::exchange(sent, client.stats().commands);
    std::this_thread::sleep_for(scaled(50ms));
    return before == sent && client.stats().commands == sent;
  }());

  RLock other = client.getLock("other");
  EXPECT_EQ(answerOf([&] { return other.tryLock(); }), "overloaded");
  EXPECT_EQ(answerOf([&] { return other.isLocked(); }), "overloaded");
  auto later = other.tryLockAsync({}, newOwner()).toFuture();
  ASSERT_TRUE(ready(later, kLong));
  EXPECT_EQ(answerOf([&] { return later.get(); }), "overloaded");
  EXPECT_EQ(client.stats().commands, sent);

  // What gives something back is not refused.
  EXPECT_EQ(outcomeOf([&] { held.unlock(); }), "ok");
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EQ(outcomeOf([&] { semaphore.release(); }), "ok");

  stop.request_stop();
  for (auto& each : waiting) {
    EXPECT_EQ(outcomeOf([&] { each.get(); }), "cancelled");
  }
  EXPECT_EVENTUALLY(kLong, answerOf([&] { return other.tryLock(); }) == "true");
}

}  // namespace
}  // namespace rlock::test
