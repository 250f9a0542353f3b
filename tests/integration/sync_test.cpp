// SPDX-License-Identifier: Apache-2.0

// Acknowledged grants and renewals: a master with two replicas, of which some are stopped.

#include "integration/lock_harness.hpp"

namespace rlock::test {
namespace {

/// For a call that ends when a policy's limit is over.
constexpr std::chrono::milliseconds kLimit{300};

class Sync : public LockTest {
 protected:
  void SetUp() override {
    LockTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    for (auto& replica : replicas_) {
      RedisServerOptions options;
      options.extraArgs = {"--replicaof", "127.0.0.1", std::to_string(server().port())};
      replica = std::make_unique<RedisServer>(options);
    }
    ASSERT_EVENTUALLY(kLong, online() == 2);
    // The first script that writes after replicas have come is acknowledged up to a second late.
    raw().eval(
        "redis.call('hset', KEYS[1], 'a', '1') redis.call('pexpire', KEYS[1], 30000) "
        "return redis.call('del', KEYS[1])",
        {"warm"});
    ASSERT_EQ(raw().run({"WAIT", "2", std::to_string(kLong.count())}).integer(), 2);
    raw().resetStats();
  }
  RedisServerOptions serverOptions() override {
    RedisServerOptions options;
    options.extraArgs = {"--repl-diskless-sync-delay", "0"};
    return options;
  }

  [[nodiscard]] RedisServer& replica(std::size_t index) { return *replicas_.at(index); }
  void freezeBoth() {
    replica(0).freeze();
    replica(1).freeze();
  }
  int online() {
    int count = 0;
    for (const auto& [field, value] : raw().infoSection("replication")) {
      if (field.starts_with("slave") && value.find("state=online") != std::string::npos) {
        ++count;
      }
    }
    return count;
  }
  /// A call waits for acknowledgements.
  bool blocked() { return raw().info("blocked_clients") != "0"; }

  /// The message of the error that an unacknowledged acquisition throws.
  template <class Call>
  static std::string refusalOf(Call call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.errc(), Errc::notSynced) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "it was acknowledged";
    return {};
  }
  static bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }

 private:
  std::array<std::unique_ptr<RedisServer>, 2> replicas_;
};

class SyncSlow : public Sync {};

TEST_F(Sync, AGrantIsThereBeforeItIsTold) {
  Client client = connect();
  RLock lock = client.getLock("met");
  Lease lease = lock.acquire({.sync = SyncPolicy::replicas(2)});
  EXPECT_EQ(lease.acknowledged(), 2);
  EXPECT_TRUE(RawRedis(replica(0)).exists("met"));
  EXPECT_TRUE(RawRedis(replica(1)).exists("met"));
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EQ(lease.acknowledged(), 0);
  // In the background, too, and as the client's own policy.
  Options options = this->options();
  options.sync = SyncPolicy::replicas(1);
  Client strict = Client::connect(options);
  lease = strict.getLock("met").acquireAsync().get();
  EXPECT_GE(lease.acknowledged(), 1);
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  strict.getLock("met").lock();
  strict.getLock("met").unlock();
  expectNoKeys();
}

TEST_F(Sync, WithoutAPolicyNobodyIsAsked) {
  Client client = connect();
  Lease lease = client.getLock("none").acquire();
  EXPECT_EQ(lease.acknowledged(), 0);
  EXPECT_EQ(raw().commandCalls("wait"), 0);
  // The client's subscriber connection comes a moment after the first hold.
  ASSERT_EVENTUALLY(kLong, raw().numsub("rlock_client:" + client.id()) == 1);
  EXPECT_EQ(raw().clientList().size(), 5U)
      << "two replicas, this connection, and the client's for commands and for messages";
}

TEST_F(Sync, AGrantThatIsNotAcknowledgedIsUndone) {
  noteSafetyCheck();
  Client client = connect();
  RLock lock = client.getLock("unmet");
  // So that the lane is there.
  static_cast<void>(lock.acquire({.sync = SyncPolicy::replicas(2, 30s)}).release());
  replica(0).freeze();
  const AcquireOptions strict{.sync = SyncPolicy::replicas(2, kLimit)};
  refusalOf([&] { static_cast<void>(lock.acquire(strict)); });
  EXPECT_FALSE(raw().exists("unmet"));
  refusalOf([&] { static_cast<void>(lock.acquireAsync(strict).get()); });
  EXPECT_FALSE(raw().exists("unmet"));
  refusalOf([&] { static_cast<void>(lock.tryAcquire(strict)); });
  EXPECT_FALSE(raw().exists("unmet"));
  EXPECT_EQ(client.stats().holds, 0U);
  EXPECT_EQ(client.stats().undone, 3U);
  // One replica still answers.
  EXPECT_EQ(lock.acquire({.sync = SyncPolicy::replicas(1, 30s)}).acknowledged(), 1);
  EXPECT_EVENTUALLY(kLong, !raw().exists("unmet"));
}

TEST_F(Sync, AnAcquisitionThatIsNotAcknowledgedEndsWithThePolicysLimit) {
  Client client = connect();
  RLock lock = client.getLock("unmet");
  // So that the lane is there.
  static_cast<void>(lock.acquire({.sync = SyncPolicy::replicas(2)}).release());
  replica(0).freeze();
  const Stopwatch watch;
  const std::string why = refusalOf(
      [&] { static_cast<void>(lock.acquire({.sync = SyncPolicy::replicas(2, kLimit)})); });
  EXPECT_GE(watch.elapsed(), kLimit);
  EXPECT_LE(watch.elapsed(), kLimit + scaled(kLate));
  EXPECT_TRUE(contains(why, "1 of 2 replicas within 300 ms")) << why;
}

// The grant cannot be undone in time.
TEST_F(Sync, AnAcquisitionEndsWithThePolicysLimitThoughItsMasterHangs) {
  Options options = this->options();
  options.commandTimeout = 60s;
  Client client = Client::connect(options);
  RLock lock = client.getLock("hung");
  // So that the lane is there.
  static_cast<void>(lock.acquire({.sync = SyncPolicy::replicas(2)}).release());
  replica(0).freeze();
  auto call = inThread([&] {
    return outcomeOf(
        [&] { static_cast<void>(lock.acquire({.sync = SyncPolicy::replicas(2, 3s)})); });
  });
  ASSERT_EVENTUALLY(kLong, blocked());
  server().freeze();
  const bool inTime = ready(call, 3s + scaled(1s));
  server().thaw();
  EXPECT_TRUE(inTime);
  EXPECT_EQ(call.get(), "notSynced");
}

TEST_F(Sync, AGrantWhoseLeaseIsOverBeforeItIsAcknowledgedIsNone) {
  noteSafetyCheck();
  freezeBoth();
  Options options = this->options();
  options.callTimeout = 60s;
  Client client = Client::connect(options);
  auto call = inThread([&] {
    return answerOf([&] {
      return client.getLock("over")
          .tryAcquire({.lease = 1s, .sync = SyncPolicy::replicas(1, 60s)})
          .has_value();
    });
  });
  ASSERT_EVENTUALLY(kLong, blocked());
  // Here it lasts longer than for its holder.
  ASSERT_EVENTUALLY(kLong, !raw().exists("over"));
  replica(0).thaw();
  replica(1).thaw();
  EXPECT_EQ(call.get(), "false");
}

TEST_F(Sync, TryLockSaysThatItIsNotAcknowledged) {
  freezeBoth();
  Options options = this->options();
  options.sync = SyncPolicy::replicas(1, kLimit);
  Client client = Client::connect(options);
  RLock lock = client.getLock("try");
  EXPECT_EQ(answerOf([&] { return lock.tryLock(); }), "notSynced");
  EXPECT_EQ(answerOf([&] { return lock.tryLock(10s, 10s); }), "notSynced");
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "notSynced");
  expectNoKeys();
  // One acquisition may ask for nothing.
  Lease lease = lock.acquire({.sync = SyncPolicy::none()});
  EXPECT_TRUE(lease.held());
}

TEST_F(Sync, OneCountOfAHoldIsUndone) {
  Client client = connect();
  RLock lock = client.getLock("count");
  lock.lock();
  freezeBoth();
  const AcquireOptions strict{.sync = SyncPolicy::replicas(1, kLimit)};
  refusalOf([&] { static_cast<void>(lock.tryLockAsync(strict, currentOwner()).get()); });
  EXPECT_EQ(lock.getHoldCount(), 1);
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  expectNoKeys();
}

TEST_F(Sync, OthersAreNotDelayedByAReplicaThatHangs) {
  Client client = connect();
  RLock lock = client.getLock("hung");
  replica(0).freeze();
  auto hung = inThread([&] {
    return outcomeOf(
        [&] { static_cast<void>(lock.acquire({.sync = SyncPolicy::replicas(2, 3s)})); });
  });
  ASSERT_EVENTUALLY(kLong, blocked());
  Stopwatch watch;
  RLock free = client.getLock("free");
  for (int i = 0; i < 20; ++i) {
    free.lock();
    free.unlock();
  }
  EXPECT_LE(watch.elapsed(), scaled(1s)) << "who asks for nothing";
  watch.restart();
  Lease lease = free.acquire({.sync = SyncPolicy::replicas(1, 3s)});
  EXPECT_LE(watch.elapsed(), scaled(1s)) << "who asks for less";
  EXPECT_FALSE(ready(hung, 0ms));
  EXPECT_EQ(hung.get(), "notSynced");
}

TEST_F(Sync, AMajorityNeedsOneReplicaOfTwo) {
  Client client = connect();
  RLock lock = client.getLock("majority");
  replica(0).freeze();
  Lease lease = lock.acquire({.sync = SyncPolicy::majority()});
  EXPECT_EQ(lease.acknowledged(), 1);
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  replica(1).freeze();
  const std::string why =
      refusalOf([&] { static_cast<void>(lock.acquire({.sync = SyncPolicy::majority(kLimit)})); });
  EXPECT_TRUE(contains(why, "0 of 1 replicas")) << why;
  expectNoKeys();
}

TEST_F(Sync, AcquisitionsThatComeTogetherAskTogether) {
  constexpr int kMany = 100;
  Options options = this->options();
  options.sync = SyncPolicy::replicas(2, 30s);
  Client client = Client::connect(options);
  static_cast<void>(client.getLock("warm").acquire().release());
  raw().resetStats();
  // All of them are granted before the first is acknowledged, however slow this thread is.
  freezeBoth();
  std::vector<std::future<Lease>> calls;
  calls.reserve(kMany);
  for (int i = 0; i < kMany; ++i) {
    calls.push_back(client.getLock("group-" + std::to_string(i)).acquireAsync().toFuture());
  }
  ASSERT_EVENTUALLY(kLong, raw().exists("group-" + std::to_string(kMany - 1)));
  replica(0).thaw();
  replica(1).thaw();
  std::vector<Lease> leases;
  leases.reserve(kMany);
  for (auto& call : calls) {
    leases.push_back(call.get());
    EXPECT_EQ(leases.back().acknowledged(), 2);
  }
  EXPECT_GE(raw().commandCalls("wait"), 1);
  EXPECT_LE(raw().commandCalls("wait"), kMany / 4);
  RecordProperty("waits", std::to_string(raw().commandCalls("wait")));
}

TEST_F(Sync, ACommandThatTheServerDoesNotKnowIsARefusal) {
  const RedisServerVersion version = RedisServer::version();
  if (version.major > 7 || (version.major == 7 && version.minor >= 2)) {
    GTEST_SKIP() << "this server has WAITAOF";
  }
  Client client = connect();
  RLock lock = client.getLock("aof");
  Stopwatch watch;
  for (const SyncPolicy& policy : {SyncPolicy::localAof(30s), SyncPolicy::remoteAof(1, 30s)}) {
    const std::string why = refusalOf([&] { static_cast<void>(lock.acquire({.sync = policy})); });
    EXPECT_TRUE(contains(why, "it does not know WAITAOF, which came with Redis 7.2")) << why;
  }
  EXPECT_LE(watch.elapsed(), scaled(5s)) << "nothing to wait for";
  expectNoKeys();
}

TEST_F(Sync, ADeniedCommandIsARefusal) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">secret", "~*", "&*", "+@all", "-wait"});
  Options options = this->options();
  options.username = "weak";
  options.password = "secret";
  Client client = Client::connect(options);
  const std::string why = refusalOf(
      [&] { static_cast<void>(client.getLock("acl").acquire({.sync = SyncPolicy::replicas(1)})); });
  EXPECT_TRUE(contains(why, "the user may not ask for acknowledgements")) << why;
  expectNoKeys();
}

TEST_F(Sync, ALaneThatBreaksIsMadeAgain) {
  Client client = Client::connect(proxied());
  RLock lock = client.getLock("cut");
  TcpProxy::RuleOptions once;
  once.limit = 2;
  const auto rule =
      proxy().addRule(TcpProxy::command("WAIT"), TcpProxy::Action::cutBeforeForward(), once);
  Lease lease = lock.acquire({.sync = SyncPolicy::replicas(2, 5s)});
  EXPECT_EQ(lease.acknowledged(), 2);
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EQ(client.stats().lostReplies, 0U) << "the other connection stays";
  proxy().clearRules();
  proxy().addRule(TcpProxy::command("WAIT"), TcpProxy::Action::cutMidReply());
  const std::string why = refusalOf(
      [&] { static_cast<void>(lock.acquire({.sync = SyncPolicy::replicas(2, kLimit)})); });
  EXPECT_TRUE(contains(why, "0 of 2 replicas within 300 ms")) << why;
  expectNoKeys();
}

TEST_F(Sync, ACallerThatLeavesLeavesNothingBehind) {
  freezeBoth();
  Options options = this->options();
  options.sync = SyncPolicy::replicas(1, 30s);
  Client client = Client::connect(options);
  RLock lock = client.getLock("left");
  for (const bool blocking : {true, false}) {
    SCOPED_TRACE(blocking);
    std::stop_source stop;
    auto call = inThread([&] {
      return outcomeOf([&] {
        if (blocking) {
          lock.lockInterruptibly(stop.get_token());
        } else {
          static_cast<void>(lock.acquireAsync({.stop = stop.get_token()}).get());
        }
      });
    });
    ASSERT_EVENTUALLY(kLong, raw().exists("left") && blocked());
    stop.request_stop();
    ASSERT_TRUE(ready(call, 1000ms));
    EXPECT_EQ(call.get(), "cancelled");
    EXPECT_EVENTUALLY(kLong, !raw().exists("left"));
    EXPECT_EVENTUALLY(kLong, !blocked()) << "nobody asks for it any more";
  }
  // Its own time is over before that of the policy.
  Stopwatch watch;
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.tryAcquire({.wait = kLimit})); }), "notSynced");
  EXPECT_GE(watch.elapsed(), kLimit);
  EXPECT_LE(watch.elapsed(), kLimit + scaled(kLate));
  expectNoKeys();
}

TEST_F(Sync, AClientThatIsClosedLeavesNothingBehind) {
  freezeBoth();
  Client client = connect();
  RLock lock = client.getLock("closed");
  auto blocking = inThread([&] {
    return outcomeOf(
        [&] { static_cast<void>(lock.acquire({.sync = SyncPolicy::replicas(1, 30s)})); });
  });
  auto background =
      client.getLock("closed-too").acquireAsync({.sync = SyncPolicy::replicas(1, 30s)}).toFuture();
  ASSERT_EVENTUALLY(kLong, raw().exists("closed") && raw().exists("closed-too") && blocked());
  Stopwatch watch;
  client.close(5s);
  EXPECT_LE(watch.elapsed(), scaled(5s));
  EXPECT_EQ(blocking.get(), "closed");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(background.get()); }), "closed");
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
}

TEST_F(Sync, WhatIsUndoneIsFreeForAWaiter) {
  freezeBoth();
  Client client = connect();
  Client other = connect();
  auto undone = inThread([&] {
    return outcomeOf([&] {
      static_cast<void>(client.getLock("next").acquire({.sync = SyncPolicy::replicas(1, 1s)}));
    });
  });
  ASSERT_EVENTUALLY(kLong, raw().exists("next"));
  Lease lease = other.getLock("next").acquire({.wait = kLong});
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(undone.get(), "notSynced");
}

TEST_F(Sync, AServerThatForgotItAcknowledgesNothing) {
  freezeBoth();
  Client client = connect();
  auto call = inThread([&] {
    return refusalOf([&] {
      static_cast<void>(
          client.getLock("forgotten").acquire({.sync = SyncPolicy::replicas(1, 30s)}));
    });
  });
  ASSERT_EVENTUALLY(kLong, blocked());
  server().kill();
  server().start();
  replica(0).thaw();
  replica(1).thaw();
  const std::string why = call.get();
  EXPECT_TRUE(contains(why, "the server was replaced")) << why;
  reconnectRaw();
  EXPECT_EVENTUALLY(kLong, !raw().exists("forgotten"));
}

TEST_F(Sync, EveryKindOfLockObeys) {
  Options options = this->options();
  options.sync = SyncPolicy::replicas(2, 30s);
  Client patient = Client::connect(options);
  options.sync = SyncPolicy::replicas(2, kLimit);
  Client client = Client::connect(options);
  ASSERT_TRUE(patient.getSemaphore("sem").trySetPermits(3));
  ASSERT_TRUE(patient.getPermitExpirableSemaphore("permits").trySetPermits(3));
  const std::set<std::string> before = raw().keys();
  const auto locksOf = [](Client& of) {
    const ReadWriteLock both = of.getReadWriteLock("rw");
    return std::vector<RLock>{of.getLock("plain"),
                              of.getFairLock("fair"),
                              of.getNonReentrantLock("once"),
                              of.getSpinLock("spin"),
                              of.getSimpleLock("simple"),
                              both.readLock(),
                              both.writeLock(),
                              multiLock({of.getLock("m1"), of.getLock("m2")})};
  };
  for (RLock& lock : locksOf(patient)) {
    Lease lease = lock.acquire();
    EXPECT_TRUE(lease.held()) << lock.getName();
    EXPECT_EQ(lease.release(), ReleaseResult::released);
  }
  EXPECT_EQ(patient.getPermitExpirableSemaphore("permits").hold().acknowledged(), 2);
  Semaphore semaphore = client.getSemaphore("sem");
  PermitExpirableSemaphore permits = client.getPermitExpirableSemaphore("permits");
  EXPECT_EVENTUALLY(kLong, permits.availablePermits() == 3);
  EXPECT_TRUE(patient.getSemaphore("sem").tryAcquire(2));
  semaphore.release(2);
  replica(1).freeze();
  for (RLock& lock : locksOf(client)) {
    SCOPED_TRACE(lock.getName());
    refusalOf([&] { static_cast<void>(lock.acquire()); });
    EXPECT_FALSE(lock.isLocked());
  }
  refusalOf([&] { static_cast<void>(client.getFencedLock("fenced").lockAndGetToken()); });
  refusalOf([&] { static_cast<void>(permits.hold()); });
  refusalOf([&] { static_cast<void>(permits.acquire()); });
  EXPECT_EQ(permits.availablePermits(), 3);
  refusalOf([&] { static_cast<void>(semaphore.tryAcquire(2)); });
  EXPECT_EQ(semaphore.availablePermits(), 3);
  std::set<std::string> after = raw().keys();
  std::erase_if(after, [](const std::string& key) {
    return key.starts_with("redisson_lock_token:") || key.find("rlock_request") != key.npos;
  });
  for (const std::string& key : before) {
    after.erase(key);
  }
  EXPECT_EQ(after, std::set<std::string>());
}

TEST_F(Sync, ReadersAreUndoneOneByOne) {
  Client client = connect();
  RLock readers = client.getReadWriteLock("readers").readLock();
  Lease first = readers.acquire({}, OwnerId{7});
  freezeBoth();
  refusalOf([&] {
    static_cast<void>(readers.acquire({.sync = SyncPolicy::replicas(1, kLimit)}, OwnerId{7}));
  });
  EXPECT_TRUE(first.held());
  EXPECT_EQ(readers.getHoldCountAsync(OwnerId{7}).get(), 1);
  EXPECT_EQ(first.release(), ReleaseResult::released);
  expectNoKeys();
}

TEST_F(Sync, APolicyOutsideItsRangeIsRefused) {
  Client client = connect();
  RLock lock = client.getLock("range");
  for (const SyncPolicy& policy : {SyncPolicy::replicas(0),
                                   SyncPolicy::replicas(1001),
                                   SyncPolicy::majority(0ms),
                                   SyncPolicy::majority(2h)}) {
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.acquire({.sync = policy})); }),
              "invalidArgument");
  }
}

TEST_F(SyncSlow, ARenewalThatIsNotAcknowledgedIsNone) {
  noteSafetyCheck();
  constexpr auto kTimeout = 3 * kWatchdog;
  Client client = connect(kTimeout);
  RLock lock = client.getLock("renewed");
  Lease strict = lock.acquire({.sync = SyncPolicy::replicas(2)});
  Lease free = client.getLock("free").acquire();
  std::atomic<Clock::rep> toldAt{0};
  const std::stop_callback callback(strict.lostToken(),
                                    [&] { toldAt = Clock::now().time_since_epoch().count(); });
  const auto first = strict.validUntil();
  ASSERT_EVENTUALLY(kLong, strict.validUntil() > first);
  EXPECT_TRUE(strict.held());
  replica(0).freeze();
  const auto frozenAt = Clock::now();
  ASSERT_EVENTUALLY(kLong, toldAt != 0);
  const Clock::time_point told{Clock::duration(toldAt.load())};
  EXPECT_LE(told, strict.validUntil());
  EXPECT_LE(strict.validUntil(), frozenAt + kTimeout) << "what was sent since has counted";
  EXPECT_EQ(strict.lossReason(), LossReason::unreachable);
  EXPECT_FALSE(strict.held());
  EXPECT_GE(client.stats().renewalFailures, 1U);
  EXPECT_TRUE(free.held()) << "it asks for nothing";
  const auto later = free.validUntil();
  EXPECT_EVENTUALLY(kLong, free.validUntil() > later && free.held());
  EXPECT_EQ(strict.release(), ReleaseResult::lost);
  EXPECT_EVENTUALLY(kLong, !raw().exists("renewed"));
}

TEST_F(SyncSlow, TheLossIsToldOneTimeoutAfterTheLastAcknowledgedRenewal) {
  Client client = connect(kWatchdog);
  Lease strict = client.getLock("renewed").acquire({.sync = SyncPolicy::replicas(2, kLimit)});
  std::atomic<Clock::rep> toldAt{0};
  const std::stop_callback callback(strict.lostToken(),
                                    [&] { toldAt = Clock::now().time_since_epoch().count(); });
  const auto first = strict.validUntil();
  ASSERT_EVENTUALLY(kLong, strict.validUntil() > first + kWatchdog);
  replica(0).freeze();
  const auto frozenAt = Clock::now();
  ASSERT_EVENTUALLY(kLong, toldAt != 0);
  const Clock::time_point told{Clock::duration(toldAt.load())};
  EXPECT_LE(told - frozenAt, kWatchdog + kLate);
}

}  // namespace
}  // namespace rlock::test
