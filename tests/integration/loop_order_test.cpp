// SPDX-License-Identifier: Apache-2.0

// Answers that come in another order than they are booked, and calls that meet an end: each order
// is made by hand.

#include "integration/lock_harness.hpp"

#include <latch>

namespace rlock::test {
namespace {

class LoopOrder : public SafetyTest {
 protected:
  /// Keeps a client's loop thread busy from the constructor to the end of its life.
  class BusyLoop {
   public:
    explicit BusyLoop(Client& client) {
      RLock lock = client.getLock("refused");
      // A call that is refused runs its handler on the loop without a word to the server.
      lock.tryLockAsync({.lease = Duration::zero()}, newOwner())
          .start([begun = begun_, over = over_](const Result<bool>&) {
            begun->count_down();
            over->wait();
          });
      begun_->wait();
    }
    BusyLoop(const BusyLoop&) = delete;
    BusyLoop& operator=(const BusyLoop&) = delete;
    ~BusyLoop() { over_->count_down(); }

   private:
    std::shared_ptr<std::latch> begun_ = std::make_shared<std::latch>(1);
    std::shared_ptr<std::latch> over_ = std::make_shared<std::latch>(1);
  };
};

// The hold ends and is taken anew before the loop gets to book the answer to the renewal of the
// hold before.
TEST_F(LoopOrder, AStaleRenewalDoesNotLengthenAShorterHold) {
  Client client = connect(3s);
  RLock lock = client.getLock("stale");
  const OwnerId owner = newOwner();
  const Lease lease = lock.acquire({}, owner);
  const auto sends = [&client](std::uint64_t before) {
    return eventually(kLong, [&] { return client.stats().commands > before; });
  };
  // From here on the server knows all scripts, so that requests are answered in the order they are
  // sent.
  client.getLock("other").forceUnlock();
  ASSERT_EVENTUALLY(kLong, client.stats().renewals == 1);
  server().freeze();
  ASSERT_TRUE(sends(client.stats().commands)) << "nothing is renewed";
  Clock::time_point latest;
  Lease again;
  {
    const BusyLoop busy(client);
    std::uint64_t before = client.stats().commands;
    auto forced = inThread([lock]() mutable { return lock.forceUnlock(); });
    ASSERT_TRUE(sends(before));
    before = client.stats().commands;
    // A re-entry as far as this client knows, so that the hold stays known meanwhile.
    auto call = inThread([lock, owner]() mutable { return lock.acquire({.lease = 300ms}, owner); });
    ASSERT_TRUE(sends(before));
    server().thaw();
    again = call.get();
    latest = Clock::now() + 300ms;
    EXPECT_TRUE(forced.get());
  }
  // The answer comes after everything that the loop had to do before.
  EXPECT_TRUE(lock.isLockedAsync().toFuture().get());
  EXPECT_EQ(client.stats().renewals, 1U) << "the answer is not about what is held now";
  EXPECT_LE(again.validUntil(), latest);
}

// The server still has the hold, and would count one more under its token.
TEST_F(LoopOrder, AFencedHoldLostWhileItIsTakenAgainHasANewToken) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("fenced");
  const OwnerId owner = newOwner();
  const Lease first = lock.acquire({.lease = 500ms}, owner);
  raw().run({"PEXPIRE", "fenced", "120000"});
  server().freeze();
  auto again = lock.tryAcquireAsync({}, owner).toFuture();
  ASSERT_EVENTUALLY(kLong, first.lossReason() == LossReason::expired);
  server().thaw();
  std::optional<Lease> second = again.get();
  ASSERT_TRUE(second && second->held());
  ASSERT_TRUE(first.token() && second->token());
  EXPECT_GT(*second->token(), *first.token());
  EXPECT_EQ(onlyEntry("fenced").second, "1");
  EXPECT_EQ(second->release(), ReleaseResult::released);
}

// Nobody passes the gate on to a call that waits for another one of its owner when the client ends.
TEST_F(LoopOrder, ClosingEndsACallThatWaitsForAnother) {
  Client client = connect();
  RLock lock = client.getLock("gate");
  const OwnerId owner = newOwner();
  ASSERT_TRUE(lock.tryLockAsync({}, owner).get());
  server().freeze();
  auto first = lock.unlockAsync(owner).toFuture();
  auto second = lock.unlockAsync(owner).toFuture();
  auto closed = inThread([&] { client.close(kLong); });
  EXPECT_TRUE(ready(second, kLong / 3)) << "it waits for the end of the client";
  server().thaw();
  EXPECT_EQ(outcomeOf([&] { second.get(); }), "closed");
  EXPECT_TRUE(ready(closed, kLong));
  EXPECT_TRUE(ready(first, kLong));
}

// Each of its members is lost from the first moment on, so that no further round could do better.
TEST_F(LoopOrder, AGroupIsNotTakenForAThreadThatHasEnded) {
  Client client = connect();
  OwnerId ended{};
  std::thread([&] { ended = currentOwner(); }).join();
  const auto members = [&] {
    return std::vector<RLock>{client.getLock("a"), client.getLock("b"), client.getLock("c")};
  };
  const std::vector<std::pair<std::string, std::function<RLock()>>> kinds{
      {"multi-lock", [&] { return multiLock(members()); }},
      {"RedLock", [&] { return redLock(members()); }}};
  for (const auto& [kind, make] : kinds) {
    auto call = make().acquireAsync({}, ended).toFuture();
    ASSERT_TRUE(ready(call, kLong)) << kind;
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(call.get()); }), "cancelled") << kind;
    raw().run({"FLUSHALL"});
  }
}

}  // namespace
}  // namespace rlock::test
