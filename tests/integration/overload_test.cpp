// SPDX-License-Identifier: Apache-2.0

// More operations than a client accepts.

#include "integration/lock_harness.hpp"

namespace rlock::test {
namespace {

class Overload : public LockTest {
 protected:
  static constexpr int kLimit = 20;

  [[nodiscard]] Client limited() {
    Options settings = proxied();
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
  const auto sent = proxy().addRule(TcpProxy::withArgument("other"), TcpProxy::Action::pass());

  RLock other = client.getLock("other");
  EXPECT_EQ(answerOf([&] { return other.tryLock(); }), "overloaded");
  EXPECT_EQ(answerOf([&] { return other.isLocked(); }), "overloaded");
  auto later = other.tryLockAsync({}, newOwner()).toFuture();
  ASSERT_TRUE(ready(later, kLong));
  EXPECT_EQ(answerOf([&] { return later.get(); }), "overloaded");
  EXPECT_EQ(sent.hits(), 0U);

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
