// SPDX-License-Identifier: Apache-2.0

// Renewal: what goes on, what stops, and who is told when it does not work.

#include "integration/lock_harness.hpp"

namespace rlock::test {
namespace {

class LockWatchdog : public LockTest {};
class LockWatchdogSlow : public LockTest {};

/// From this lease on the loss is told as early as it ever is.
constexpr std::chrono::milliseconds kTold{2000};

/// The holder must be told in time whatever becomes of its renewals.
void renewalsFail(TcpProxy& proxy,
                  const Options& settings,
                  TcpProxy::Action action,
                  RawRedis& raw) {
  Client client = Client::connect(settings);
  Lease lease = client.getLock("wd1").acquire();
  RLock plain = client.getLock("wd1-plain");
  plain.lock();
  std::atomic<Clock::rep> toldAt{0};
  const std::stop_callback callback(lease.lostToken(),
                                    [&] { toldAt = Clock::now().time_since_epoch().count(); });
  proxy.addRule(running(lua::lock_renew), std::move(action));
  const auto blockedAt = Clock::now();
  ASSERT_EVENTUALLY(kLong, toldAt != 0);
  const Clock::time_point told{Clock::duration(toldAt.load())};
  EXPECT_LE(told, lease.validUntil());
  EXPECT_LE(told - blockedAt, settings.watchdogTimeout);
  EXPECT_EQ(lease.lossReason(), LossReason::unreachable);
  EXPECT_FALSE(lease.held());
  EXPECT_EVENTUALLY(kLong, !raw.exists("wd1"));
  EXPECT_EVENTUALLY(kLong, !raw.exists("wd1-plain"));
  proxy.clearRules();
  EXPECT_EQ(outcomeOf([&] { plain.unlock(); }), "notOwner");
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_EQ(client.stats().holds, 0U);
  EXPECT_GE(client.stats().renewalFailures, 1U);
}

TEST_F(LockWatchdogSlow, XWD1_RenewalsRefused) {
  renewalsFail(proxy(), proxied(kTold), TcpProxy::Action::replyWithError("ERR not now"), raw());
}

TEST_F(LockWatchdogSlow, XWD1_RenewalsDropped) {
  Options settings = proxied(kTold);
  settings.commandTimeout = 150ms;
  renewalsFail(proxy(), settings, TcpProxy::Action::dropRequest(), raw());
}

TEST_F(LockWatchdogSlow, XWD1_ConnectionCutAtEveryRenewal) {
  renewalsFail(proxy(), proxied(kTold), TcpProxy::Action::cutBeforeForward(), raw());
}

TEST_F(LockWatchdogSlow, ARenewalThatFailsOnceIsTriedAgainSoon) {
  Client client = Client::connect(proxied(kWatchdog));
  TcpProxy::RuleOptions once;
  once.limit = 2;
  const auto rule = proxy().addRule(
      running(lua::lock_renew), TcpProxy::Action::replyWithError("ERR not now"), once);
  Lease lease = client.getLock("again").acquire();
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(rule.hits(), 2U);
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
}

TEST_F(LockWatchdogSlow, XWD9_AProcessStoppedForMostOfALeaseKeepsItsLock) {
  Worker worker(uri("watchdog-timeout=4s"));
  EXPECT_EQ(worker.ask("acquire wd9"), "ok");
  worker.process().stop();
  std::this_thread::sleep_for(3200ms);
  raw().resetStats();
  worker.process().cont();
  EXPECT_EQ(worker.ask("held"), "yes");
  EXPECT_EVENTUALLY(500ms, raw().pttl("wd9") > 2400);
  std::this_thread::sleep_for(3s);
  EXPECT_EQ(worker.ask("held"), "yes");
  EXPECT_LE(raw().commandCalls("evalsha"), 5) << "a burst of renewals";
  EXPECT_EQ(worker.ask("release"), "released");
}

TEST_F(LockWatchdogSlow, XWD10_ARenewalNeverMakesADeletedKeyAgain) {
  Client owner = connect(kWatchdog);
  Client admin = connect(kWatchdog);
  RLock lock = owner.getLock("wd10");
  lock.lock();
  EXPECT_TRUE(admin.getLock("wd10").forceUnlock());
  const auto end = Clock::now() + kWatchdog;
  bool seen = false;
  while (Clock::now() < end) {
    seen = seen || raw().exists("wd10");
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_FALSE(seen);
  EXPECT_EQ(owner.stats().holds, 0U);
  EXPECT_EQ(owner.stats().lost, 1U);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
}

TEST_F(LockWatchdogSlow, XWD11_ARenewalNeverExtendsAnothersLease) {
  Client owner = connect(kWatchdog);
  Client admin = connect(kWatchdog);
  RLock lock = owner.getLock("wd11");
  lock.lock();
  EXPECT_TRUE(admin.getLock("wd11").forceUnlock());
  Lease second = admin.getLock("wd11").acquire({.lease = 700ms});
  std::this_thread::sleep_for(350ms);
  EXPECT_LE(raw().pttl("wd11"), 350);
  EXPECT_EVENTUALLY(scaled(1s), !raw().exists("wd11"));
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
}

TEST_F(LockWatchdogSlow, XWD12_AfterAFailedUnlockNothingIsRenewed) {
  Options settings = proxied(kWatchdog);
  settings.commandTimeout = 100ms;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("wd12");
  lock.lock();
  proxy().blackHole();
  const Stopwatch watch;
  const std::string outcome = outcomeOf([&] { lock.unlock(); });
  EXPECT_TRUE(outcome == "timedOut" || outcome == "connectionFailed") << outcome;
  EXPECT_EVENTUALLY(kWatchdog + 300ms, !raw().exists("wd12"));
  EXPECT_LT(watch.elapsedMs(), kWatchdog + scaled(500ms));
  proxy().endBlackHole();
  EXPECT_EVENTUALLY(kLong, outcomeOf([&] { lock.unlock(); }) == "notOwner");
  std::this_thread::sleep_for(kWatchdog / 2);
  EXPECT_FALSE(raw().exists("wd12"));
  EXPECT_EQ(client.stats().holds, 0U);
}

TEST_F(LockWatchdogSlow, XWD13_ALostRenewalReplyIsHarmless) {
  constexpr auto kTimeout = 3 * kWatchdog;
  Options settings = proxied(kTimeout);
  settings.commandTimeout = 300ms;
  Client client = Client::connect(settings);
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto lost =
      proxy().addRule(running(lua::lock_renew), TcpProxy::Action::swallowReplyAndCut(), once);
  const auto stalled =
      proxy().addRule(running(lua::lock_renew), TcpProxy::Action::stallReply(), once);
  Lease lease = client.getLock("wd13").acquire();
  EXPECT_TRUE(stalled.waitForHits(1, kLong));
  EXPECT_EQ(lost.hits(), 1U);
  // Beyond the lease that it had then.
  const std::uint64_t renewals = client.stats().renewals;
  ASSERT_EVENTUALLY(kLong, client.stats().renewals >= renewals + 4);
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(onlyEntry("wd13").second, "1");
  EXPECT_EQ(lease.release(), ReleaseResult::released);
}

TEST_F(LockWatchdogSlow, XWD14_ABlockedLoopThreadDoesNotHideALoss) {
  Client client = connect(kWatchdog);
  Lease lease = client.getLock("wd14").acquire();
  std::promise<void> blocked;
  client.getLock("other").tryLockAsync().start([&](const Result<bool>&) {
    blocked.set_value();
    std::this_thread::sleep_for(kWatchdog + 400ms);
  });
  blocked.get_future().wait();
  const auto validUntil = lease.validUntil();
  std::this_thread::sleep_until(validUntil + 1ms);
  EXPECT_FALSE(lease.held()) << "held() needs no thread";
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
}

TEST_F(LockWatchdogSlow, XWD14_ABlockedExecutorDoesNotDelayRenewals) {
  Options settings = options(kWatchdog);
  std::vector<std::thread> threads;
  std::mutex mutex;
  settings.executor = [&](std::function<void()> task) {
    const std::lock_guard guard(mutex);
    threads.emplace_back(std::move(task));
  };
  {
    Client client = Client::connect(settings);
    Lease lease = client.getLock("wd14").acquire();
    client.getLock("other").tryLockAsync().start(
        [&](const Result<bool>&) { std::this_thread::sleep_for(2 * kWatchdog); });
    std::this_thread::sleep_for(kWatchdog + kWatchdog / 2);
    EXPECT_TRUE(lease.held());
    EXPECT_GT(raw().pttl("wd14"), 0);
    EXPECT_EQ(lease.release(), ReleaseResult::released);
  }
  const std::lock_guard guard(mutex);
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_F(LockWatchdog, XWD15_TimeoutsAreValidated) {
  for (const std::chrono::milliseconds bad :
       {0ms,
        1ms,
        10ms,
        99ms,
        -1ms,
        std::chrono::milliseconds::min(),
        std::chrono::milliseconds(std::chrono::hours(24 * 365)) + 1ms,
        std::chrono::milliseconds::max()}) {
    Options settings = options(kWatchdog);
    settings.watchdogTimeout = bad;
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(Client::connect(settings)); }), "invalidArgument")
        << bad.count();
  }
}

TEST_F(LockWatchdog, XWD15_ALongTimeoutDoesNotOverflow) {
  Options settings = options(kWatchdog);
  settings.watchdogTimeout = std::chrono::milliseconds((std::int64_t{1} << 31) + 5);
  Client client = Client::connect(settings);
  Lease lease = client.getLock("wd15").acquire();
  EXPECT_GT(raw().pttl("wd15"), (std::int64_t{1} << 31) - 60'000);
  raw().resetStats();
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(client.stats().renewals, 0U);
  EXPECT_EQ(raw().commandCalls("evalsha"), 0);
  EXPECT_TRUE(lease.held());
}

TEST_F(LockWatchdogSlow, XWD15_TheShortestTimeoutWorksWithoutSpinning) {
  Options settings = options(kWatchdog);
  settings.watchdogTimeout = 100ms;
  Client client = Client::connect(settings);
  ASSERT_TRUE(client.getLock("warm").tryLock());
  client.getLock("warm").unlock();
  raw().resetStats();
  {
    Lease lease = client.getLock("wd15").acquire();
    std::this_thread::sleep_for(1s);
  }
  // 30 periods in the second; retries of a starved machine may double that.
  EXPECT_LE(raw().commandCalls("evalsha"), 80);
}

TEST_F(LockWatchdogSlow, XWD16_NothingIsRenewedAfterClose) {
  Client client = connect(kWatchdog);
  for (int i = 0; i < 50; ++i) {
    client.getLock("wd16-" + std::to_string(i)).lock();
  }
  client.close(2s);
  expectNoKeys();
  raw().resetStats();
  std::this_thread::sleep_for(kWatchdog);
  EXPECT_EQ(raw().commandCalls("evalsha") + raw().commandCalls("eval"), 0);
}

TEST_F(LockWatchdogSlow, XWD16_CloseDoesNotWaitForAServerThatDoesNotAnswer) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client client = connect(kWatchdog);
  client.getLock("wd16").lock();
  server().freeze();
  const Stopwatch watch;
  client.close(300ms);
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(2 * kLate));
  server().thaw();
  EXPECT_EVENTUALLY(kWatchdog + 500ms, !raw().exists("wd16"));
}

TEST_F(LockWatchdogSlow, ManyHoldsAreRenewedInBatches) {
  RLOCK_ONE_MASTER_ONLY("counts commands, which are one for each slot there");
  constexpr int kHolds = 250;
  Client client = connect(kWatchdog);
  for (int i = 0; i < kHolds; ++i) {
    client.getLock("batch-" + std::to_string(i)).lock();
  }
  raw().resetStats();
  std::this_thread::sleep_for(kWatchdog + kWatchdog / 2);
  EXPECT_LE(raw().commandCalls("evalsha"), 250) << "one request per hold and period";
  EXPECT_EQ(client.stats().holds, static_cast<std::uint64_t>(kHolds));
  EXPECT_EQ(client.stats().lost, 0U);
  EXPECT_EQ(raw().keys("batch-*").size(), static_cast<std::size_t>(kHolds));
}

/// Many holds whose renewals are small requests.
class ManyRenewals : public LockTest {
 protected:
  static constexpr std::size_t kHolds = 600;
  static constexpr std::size_t kBatch = 3;

  [[nodiscard]] Client connectAndTake() {
    Options settings = proxied();
    settings.watchdogTimeout = 60s;
    settings.watchdogBatchSize = static_cast<int>(kBatch);
    Client client = Client::connect(settings);
    std::vector<std::future<void>> held;
    for (std::size_t i = 0; i < kHolds; ++i) {
      held.push_back(
          client.getLock("turn-" + std::to_string(i)).lockAsync({}, newOwner()).toFuture());
    }
    for (auto& each : held) {
      each.get();
    }
    return client;
  }
};

TEST_F(ManyRenewals, TakeTurnsWithTheApplicationAfterAReconnection) {
  Client client = connectAndTake();
  // The batches after the first one, which goes alone.
  TcpProxy::RuleOptions others;
  others.skip = 1;
  auto renewals =
      proxy().addRule(running(lua::lock_renew), TcpProxy::Action::delayReply(200ms), others);
  proxy().cutAll();
  ASSERT_TRUE(renewals.waitForHits(1, kLong));
  RLock other = client.getLock("another");
  other.lock();
  other.unlock();
  // In this order: what is confirmed in between does not count against it.
  const std::size_t sent = renewals.hits();
  const std::uint64_t confirmed = client.stats().renewals;
  EXPECT_LT(confirmed, kHolds) << "the others wait for their turn";
  EXPECT_LE(sent, confirmed / kBatch + 16) << "only so many wait for their answer at once";
  proxy().clearRules();
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= kHolds);
  EXPECT_EQ(client.stats().lost, 0U);
}

TEST_F(ManyRenewals, OnlyOneOfThemMeetsAServerWithoutItsScript) {
  RLOCK_ONE_MASTER_ONLY("counts requests, of which each node has a first one");
  Client client = connectAndTake();
  const Stats before = client.stats();
  auto renewals = proxy().addRule(running(lua::lock_renew), TcpProxy::Action::pass());
  raw().command({"SCRIPT", "FLUSH"});
  proxy().cutAll();
  EXPECT_EVENTUALLY(kLong, client.stats().renewals - before.renewals >= kHolds);
  EXPECT_EQ(client.stats().scriptsLoaded - before.scriptsLoaded, 1U);
  EXPECT_EQ(renewals.hits(), kHolds / kBatch + 1) << "one is sent again with the text";
  EXPECT_EQ(client.stats().lost, 0U);
}

TEST_F(ManyRenewals, TheFirstOneGoesAlone) {
  RLOCK_ONE_MASTER_ONLY("counts requests, of which each node has a first one");
  Client client = connectAndTake();
  auto renewals = proxy().addRule(running(lua::lock_renew), TcpProxy::Action::stallReply());
  proxy().cutAll();
  ASSERT_TRUE(renewals.waitForHits(1, kLong));
  // A request that is sent now has its answer behind the one that stands still.
  auto other = client.getLock("another").lockAsync({}, newOwner()).toFuture();
  ASSERT_EVENTUALLY(kLong, raw().exists("another"));
  EXPECT_EQ(renewals.hits(), 1U);
  proxy().clearRules();
  proxy().releaseStalled();
  other.get();
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= kHolds);
}

TEST_F(LockWatchdogSlow, OneUnrenewableHoldDoesNotSpoilTheBatch) {
  Client client = connect(kWatchdog);
  for (int i = 0; i < 9; ++i) {
    client.getLock("spoil-" + std::to_string(i)).lock();
  }
  raw().del("spoil-4");
  raw().set("spoil-4", "something else");
  std::this_thread::sleep_for(kWatchdog + kWatchdog / 2);
  EXPECT_EQ(client.stats().lost, 1U);
  EXPECT_EQ(client.stats().holds, 8U);
  EXPECT_EQ(raw().get("spoil-4"), "something else");
  EXPECT_EQ(raw().pttl("spoil-4"), -1);
  EXPECT_GT(raw().pttl("spoil-8"), 0);
}

TEST_F(LockWatchdog, ARenewalBringsItsScriptOverASlowNetwork) {
  RLOCK_DEFAULT_USER_ONLY("has a read hold beside a plain one");
  Client client = Client::connect(proxied(kWatchdog));
  Lease lease = client.getLock("slow").acquire();
  ReadWriteLock both = client.getReadWriteLock("slow-too");
  Lease read = both.readLock().acquire();
  // As after a restart: the server knows no script, and every answer takes its time.
  raw().run({"SCRIPT", "FLUSH"});
  proxy().addRule(TcpProxy::anyCommand(), TcpProxy::Action::delayReply(30ms));
  // Both of them, beyond what the first lease was good for.
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= 8);
  EXPECT_TRUE(lease.held());
  EXPECT_TRUE(read.held());
  EXPECT_EQ(client.stats().renewalFailures, 0U);
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EQ(read.release(), ReleaseResult::released);
}

TEST_F(LockWatchdog, OnLostIsToldOnceWithNameOwnerAndReason) {
  std::mutex mutex;
  std::vector<LostHold> told;
  Options settings = options(kWatchdog);
  settings.onLost = [&](const LostHold& hold) {
    const std::lock_guard guard(mutex);
    told.push_back(hold);
  };
  Client client = Client::connect(settings);
  client.getLock("told").lock();
  raw().del("told");
  EXPECT_EVENTUALLY(kLong, client.stats().lost == 1);
  std::this_thread::sleep_for(kWatchdog / 2);
  const std::lock_guard guard(mutex);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].name, "told");
  EXPECT_EQ(told[0].owner, ownerField(client, currentOwner()));
  EXPECT_EQ(told[0].reason, LossReason::refused);
}

TEST_F(LockWatchdog, OnLostIsToldWhatACallOfTheOwnerFindsToo) {
  std::atomic<int> told{0};
  Options settings = options();
  settings.onLost = [&](const LostHold& hold) {
    told += hold.reason == LossReason::refused ? 1 : 0;
  };
  Client client = Client::connect(settings);
  RLock lock = client.getLock("found");
  lock.lock();
  raw().del("found");
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
  EXPECT_EVENTUALLY(kLong, told == 1);
  lock.lock();
  raw().del("found");
  lock.lock();
  EXPECT_EVENTUALLY(kLong, told == 2);
  lock.unlock();
  EXPECT_EQ(client.stats().lost, 2U);
}

TEST_F(LockWatchdog, AFailedReleaseOfOneOfSeveralLeavesThemRenewed) {
  Client client = Client::connect(proxied(kWatchdog));
  RLock lock = client.getLock("several");
  lock.lock();
  lock.lock();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto refused = proxy().addRule(
      running(lua::lock_release), TcpProxy::Action::replyWithError("ERR not now"), once);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "serverError");
  EXPECT_EQ(refused.hits(), 1U);
  const auto renewals = client.stats().renewals;
  // For longer than the lease lasts.
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= renewals + 5);
  EXPECT_EQ(lock.getHoldCount(), 2);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
}

// A client that only renews, and a master that takes no writes any more.

/// Two servers of the test's own, whose addresses the client has, and a hold at the first of them.
class DemotedMaster : public LockTest {
 protected:
  static std::chrono::milliseconds lease() { return scaled(kTold); }

  /// @param syncDelay  how long a full synchronization waits before it begins
  static RedisServerOptions withReplicas(std::chrono::seconds syncDelay) {
    RedisServerOptions settings;
    settings.extraArgs = {"--repl-diskless-sync",
                          "yes",
                          "--repl-diskless-sync-delay",
                          std::to_string(syncDelay.count())};
    return settings;
  }
  [[nodiscard]] Options optionsOf(const RedisServer& first, const RedisServer& second) {
    return tuned(first.uri() + ",127.0.0.1:" + std::to_string(second.port()), lease());
  }
  static void follow(RawRedis& server, std::uint16_t master) {
    server.run({"REPLICAOF", "127.0.0.1", std::to_string(master)});
  }
};

TEST_F(DemotedMaster, AHoldGoesOnAtTheReplicaThatIsTheMasterNow) {
  RLOCK_ONE_SERVER_ONLY("has two servers of its own");
  const RedisServer first(withReplicas(0s));
  const RedisServer second(withReplicas(0s));
  RawRedis before(first);
  RawRedis after(second);
  follow(after, first.port());
  ASSERT_EVENTUALLY(kLong, after.info("master_link_status") == "up");
  Client client = Client::connect(optionsOf(first, second));
  Lease held = client.getLock("demoted").acquire();
  // The server counts from the connection's own last write.
  before.set("replicated", "");
  ASSERT_EVENTUALLY(kLong, before.run({"WAIT", "1", "1000"}).integer() >= 1);
  after.run({"REPLICAOF", "NO", "ONE"});
  follow(before, second.port());
  const auto demoted = Clock::now();
  // Only the new master can have confirmed a renewal that was sent since.
  EXPECT_EVENTUALLY(kLong, held.validUntil() > demoted + lease());
  EXPECT_TRUE(held.held());
  EXPECT_GE(client.stats().reconnects, 1U);
  EXPECT_EQ(client.stats().lost, 0U);
  EXPECT_EQ(held.release(), ReleaseResult::released);
  EXPECT_FALSE(after.exists("demoted"));
}

TEST_F(DemotedMaster, AHoldThatTheNewMasterDoesNotHaveIsTold) {
  RLOCK_ONE_SERVER_ONLY("has two servers of its own");
  const RedisServer first;
  // It never sends its keys, so that the replica has its own ones.
  RedisServer second(withReplicas(3600s));
  RawRedis before(first);
  // However slow the host is, the first one is quicker to answer.
  second.freeze();
  Client client = Client::connect(optionsOf(first, second));
  second.thaw();
  RawRedis after(second);
  Lease held = client.getLock("demoted").acquire();
  std::atomic<Clock::rep> toldAt{0};
  const std::stop_callback callback(held.lostToken(),
                                    [&] { toldAt = Clock::now().time_since_epoch().count(); });
  follow(before, second.port());
  ASSERT_EVENTUALLY(kLong, toldAt != 0);
  EXPECT_LE(Clock::time_point(Clock::duration(toldAt.load())), held.validUntil());
  EXPECT_EQ(held.lossReason(), LossReason::failover) << "the new master was not asked";
  EXPECT_FALSE(held.held());
  EXPECT_FALSE(after.exists("demoted")) << "a renewal has made it anew";
  EXPECT_EQ(held.release(), ReleaseResult::lost);
  RLock next = client.getLock("next");
  EXPECT_TRUE(next.tryLock());
  EXPECT_TRUE(after.exists("next"));
}

/// There is no other server, or it is not known: each connection leads to the same one.
TEST_F(DemotedMaster, AHoldIsToldInTimeWhereNoMasterIsFound) {
  RLOCK_ONE_SERVER_ONLY("has a server of its own");
  const RedisServer first;
  RawRedis before(first);
  Client client = Client::connect(tuned(first.uri(), lease()));
  Lease held = client.getLock("demoted").acquire();
  std::atomic<Clock::rep> toldAt{0};
  const std::stop_callback callback(held.lostToken(),
                                    [&] { toldAt = Clock::now().time_since_epoch().count(); });
  follow(before, 1);
  const auto demoted = Clock::now();
  ASSERT_EVENTUALLY(kLong, toldAt != 0);
  EXPECT_LE(Clock::time_point(Clock::duration(toldAt.load())), held.validUntil());
  EXPECT_LE(held.validUntil(), demoted + lease()) << "a renewal that was refused counts";
  EXPECT_EQ(held.lossReason(), LossReason::unreachable);
  EXPECT_FALSE(held.held());
  EXPECT_GE(client.stats().reconnects, 1U);
  EXPECT_LE(client.stats().reconnects, 30U + 2U * static_cast<std::uint64_t>(lease() / 1s));
}

}  // namespace
}  // namespace rlock::test
