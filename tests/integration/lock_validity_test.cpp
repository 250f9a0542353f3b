// SPDX-License-Identifier: Apache-2.0

// The validity of a hold when replies are late: the time counts from the request, and a reply about
// what is over changes nothing.

#include "integration/lock_harness.hpp"

#include <ostream>

namespace rlock::test {
namespace {

struct ValidKind {
  const char* name;
  RLock (*make)(Client& client, const std::string& lockName);
};

std::ostream& operator<<(std::ostream& out, const ValidKind& kind) {
  return out << kind.name;
}

// The lock of the given name is the first that a group asks.
constexpr ValidKind kValidKinds[] = {
    {"plain", [](Client& client, const std::string& name) { return client.getLock(name); }},
    {"fair", [](Client& client, const std::string& name) { return client.getFairLock(name); }},
    {"nonReentrant",
     [](Client& client, const std::string& name) { return client.getNonReentrantLock(name); }},
    {"fenced",
     [](Client& client, const std::string& name) -> RLock { return client.getFencedLock(name); }},
    {"spin", [](Client& client, const std::string& name) { return client.getSpinLock(name); }},
    {"simple", [](Client& client, const std::string& name) { return client.getSimpleLock(name); }},
    {"read",
     [](Client& client, const std::string& name) {
       return client.getReadWriteLock(name).readLock();
     }},
    {"write",
     [](Client& client, const std::string& name) {
       return client.getReadWriteLock(name).writeLock();
     }},
    {"multi",
     [](Client& client, const std::string& name) {
       return multiLock({client.getLock(name), client.getLock(name + "2")});
     }},
    {"red",
     [](Client& client, const std::string& name) {
       return redLock(
           {client.getLock(name), client.getLock(name + "2"), client.getLock(name + "3")});
     }},
};

class LockValidity : public SafetyTest, public ::testing::WithParamInterface<ValidKind> {
 protected:
  static constexpr std::chrono::milliseconds kLate{300};

  RLock lockOf(Client& client, const std::string& name) { return GetParam().make(client, name); }

  /// Stalls the reply to the next script on `name`, which the server knows already.
  TcpProxy::Rule stallNext(const std::string& name) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    return proxy().addRule(TcpProxy::script(name), TcpProxy::Action::stallReply(), once);
  }
  /// Delivers it late. @returns a moment between the request and its reply
  Clock::time_point deliver(const TcpProxy::Rule& rule) {
    EXPECT_TRUE(rule.waitForHits(1, kLong));
    const auto caught = Clock::now();
    std::this_thread::sleep_for(kLate);
    proxy().releaseStalled();
    return caught;
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds,
                         LockValidity,
                         ::testing::ValuesIn(kValidKinds),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(LockValidity, AGrantCountsFromItsRequest) {
  Options settings = proxied();
  settings.watchdogTimeout = 10s;
  Client client = Client::connect(settings);
  RLock lock = lockOf(client, "v");
  lock.acquire().release();
  for (const std::optional<Duration>& lease : {std::optional<Duration>(), {8s}}) {
    const auto rule = stallNext("v");
    auto future = lock.acquireAsync({.lease = lease}, newOwner()).toFuture();
    const auto caught = deliver(rule);
    ASSERT_TRUE(ready(future, kLong));
    Lease granted = future.get();
    EXPECT_TRUE(granted.held());
    EXPECT_LT(granted.validUntil(), caught + (lease ? 8s : 10s));
    EXPECT_EQ(granted.release(), ReleaseResult::released);
  }
}

// Its caller waited for a connection, not for the server.
TEST_P(LockValidity, AGrantDoesNotCountFromTheOutageBefore) {
  Client client = Client::connect(proxied());
  RLock lock = lockOf(client, "v");
  lock.acquire().release();
  proxy().refuseConnections(true);
  (void)proxy().cutAll();
  ASSERT_EVENTUALLY(kLong, !client.connected());
  auto future = lock.acquireAsync({.lease = 8s}, newOwner()).toFuture();
  std::this_thread::sleep_for(kLate);
  const auto up = Clock::now();
  proxy().refuseConnections(false);
  ASSERT_TRUE(ready(future, kLong));
  Lease granted = future.get();
  EXPECT_GE(granted.validUntil(), up + 8s - kLate / 2);
  EXPECT_EQ(granted.release(), ReleaseResult::released);
}

TEST_P(LockValidity, ARenewalCountsFromItsRequest) {
  Options settings = proxied();
  settings.watchdogTimeout = 3s;
  Client client = Client::connect(settings);
  RLock lock = lockOf(client, "v");
  Lease lease = lock.acquire();
  // The server knows the script of a renewal after the first.
  ASSERT_EVENTUALLY(kLong, client.stats().renewals > 0);
  const auto rule = stallNext("v");
  const auto before = lease.validUntil();
  const auto caught = deliver(rule);
  ASSERT_EVENTUALLY(kLong, lease.validUntil() > before);
  EXPECT_LT(lease.validUntil(), caught + 3s);
  EXPECT_EQ(lease.release(), ReleaseResult::released);
}

// It may be the next holder's time already.
TEST_P(LockValidity, AGrantThatComesAfterItsLeaseIsNone) {
  Client client = Client::connect(proxied());
  RLock lock = lockOf(client, "v");
  lock.acquire().release();
  const OwnerId owner = newOwner();
  auto rule = stallNext("v");
  auto once = lock.tryLockAsync({.lease = 100ms}, owner).toFuture();
  deliver(rule);
  ASSERT_TRUE(ready(once, kLong));
  // Of a RedLock the nodes count as unreachable before.
  const std::string none = GetParam().name == std::string_view("red") ? "noQuorum" : "false";
  EXPECT_EQ(answerOf([&] { return once.get(); }), none);
  rule = stallNext("v");
  auto object = lock.tryAcquireAsync({.lease = 100ms}, owner).toFuture();
  deliver(rule);
  ASSERT_TRUE(ready(object, kLong));
  EXPECT_EQ(answerOf([&] { return object.get().has_value(); }), none);
  EXPECT_EQ(client.stats().holds, 0U);
  // A call that has time tries again.
  rule = stallNext("v");
  auto patient = lock.lockAsync({.wait = kLong, .lease = 100ms}, owner).toFuture();
  deliver(rule);
  ASSERT_TRUE(ready(patient, kLong));
  EXPECT_EQ(outcomeOf([&] { patient.get(); }), "ok");
}

/// A hold whose renewal is under way, and a loop that will hear of its reply after the holder's
/// thread has gone on.
class StaleRenewal : public SafetyTest {
 protected:
  static constexpr std::chrono::milliseconds kTimeout{3000};

  void SetUp() override {
    LockTest::SetUp();
    Options settings = proxied();
    settings.watchdogTimeout = kTimeout;
    client_.emplace(Client::connect(settings));
    raw().run({"SCRIPT", "LOAD", std::string(lua::lock_renew.body)});
    rawHold("other", "somebody", kLong);
    client_->getLock("other")
        .lockAsync({.stop = stop_.get_token()}, newOwner())
        .start([this](const Result<void>&) {
          busy_.set_value();
          free_.get_future().wait_for(2 * kLong);
        });
    ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("other")) == 1);
    lock_.emplace(client_->getLock("stale"));
    old_ = lock_->acquire({}, owner_);
  }
  void TearDown() override {
    old_ = Lease();
    lock_.reset();
    client_.reset();
    LockTest::TearDown();
  }

  [[nodiscard]] RLock& lock() { return *lock_; }
  [[nodiscard]] Lease& old() { return old_; }
  [[nodiscard]] OwnerId owner() const { return owner_; }

  /// From here on until freeLoop() the loop does nothing.
  void keepLoopBusy() {
    stop_.request_stop();
    busy_.get_future().wait();
  }
  /// Afterwards it has heard of everything.
  void freeLoop() {
    free_.set_value();
    std::promise<void> done;
    lock().isLockedAsync().start([&](const Result<bool>&) { done.set_value(); });
    EXPECT_TRUE(ready(done.get_future(), kLong));
  }
  TcpProxy::Rule atRenewal(TcpProxy::Action action) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    return proxy().addRule(running(lua::lock_renew), std::move(action), once);
  }

 private:
  std::optional<Client> client_;
  std::stop_source stop_;
  std::promise<void> busy_;
  std::promise<void> free_;
  const OwnerId owner_ = newOwner();
  std::optional<RLock> lock_;
  Lease old_;
};

TEST_F(StaleRenewal, ThatSucceededDoesNotProlongTheNextHold) {
  const auto rule = atRenewal(TcpProxy::Action::stallReply());
  ASSERT_TRUE(rule.waitForHits(1, kLong));
  keepLoopBusy();
  proxy().releaseStalled();
  EXPECT_EQ(old().release(), ReleaseResult::released);
  Lease newer = lock().acquire({.lease = 1s}, owner());
  const auto obtained = Clock::now();
  freeLoop();
  EXPECT_LT(newer.validUntil(), obtained + 1s);
}

TEST_F(StaleRenewal, ThatWasRefusedDoesNotEndTheNextHold) {
  const auto rule = atRenewal(TcpProxy::Action::stallRequest());
  ASSERT_TRUE(rule.waitForHits(1, kLong));
  keepLoopBusy();
  raw().del("stale");
  proxy().releaseStalled();
  EXPECT_EQ(old().release(), ReleaseResult::lost);
  Lease newer = lock().acquire({.lease = 20s}, owner());
  freeLoop();
  EXPECT_TRUE(newer.held());
  EXPECT_EQ(newer.lossReason(), LossReason::none);
  EXPECT_EQ(newer.release(), ReleaseResult::released);
}

}  // namespace
}  // namespace rlock::test
