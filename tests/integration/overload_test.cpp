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

  // A call that gives something back is not refused.
  EXPECT_EQ(outcomeOf([&] { held.unlock(); }), "ok");
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EQ(outcomeOf([&] { semaphore.release(); }), "ok");

  stop.request_stop();
  for (auto& each : waiting) {
    EXPECT_EQ(outcomeOf([&] { each.get(); }), "cancelled");
  }
  EXPECT_EVENTUALLY(kLong, answerOf([&] { return other.tryLock(); }) == "true");
}

/// A list asks about many names, and is one operation: it does not refuse itself.
TEST_F(Overload, AListIsOneOperation) {
  constexpr std::size_t kLocks = 3 * kLimit;
  for (std::size_t i = 0; i < kLocks; ++i) {
    rawHold("many" + std::to_string(i), "00000000-0000-4000-8000-000000000000:1", 60s);
  }
  for (const int limit : {1, kLimit}) {
    SCOPED_TRACE(limit);
    Options settings = proxied();
    settings.maxOperations = limit;
    Client client = Client::connect(settings);
    EXPECT_EQ(client.list("many*").size(), kLocks);
    EXPECT_EQ(client.listAsync("many*").toFuture().get().size(), kLocks);
  }
}

/// It leaves room for others.
TEST_F(Overload, AListLetsOthersIn) {
  for (int i = 0; i < 3 * kLimit; ++i) {
    rawHold("many" + std::to_string(i), "00000000-0000-4000-8000-000000000000:1", 60s);
  }
  const auto held = proxy().addRule(running(lua::inspect), TcpProxy::Action::stallReply());
  Client client = limited();
  auto listed = client.listAsync("many*").toFuture();
  ASSERT_TRUE(held.waitForHits(kLimit / 2, kLong));
  EXPECT_FALSE(held.waitForHits(kLimit / 2 + 2, 200ms));
  auto other = client.getLock("other").tryLockAsync({}, newOwner()).toFuture();
  proxy().clearRules();
  proxy().releaseStalled();
  EXPECT_EQ(answerOf([&] { return other.get(); }), "true");
  EXPECT_EQ(listed.get().size(), static_cast<std::size_t>(3 * kLimit));
}

}  // namespace
}  // namespace rlock::test
