// SPDX-License-Identifier: Apache-2.0

// Networks that lose, delay, swallow and refuse. Every call ends in its time.

#include "integration/lock_harness.hpp"
#include "support/free_port.hpp"

#include <algorithm>
#include <csignal>
#include <sys/time.h>

namespace rlock::test {
namespace {

class LockNetwork : public LockTest {
 protected:
  /// Time limits that notice a dead peer in a fraction of the watchdog's timeout.
  [[nodiscard]] Options alert() {
    // From this lease on a loss is told as early as it ever is.
    Options settings = proxied(2 * kWatchdog);
    settings.commandTimeout = 200ms;
    settings.callTimeout = scaled(5s);
    settings.connectTimeout = 300ms;
    settings.heartbeatInterval = 100ms;
    settings.reconnectDelayMax = 100ms;
    return settings;
  }
};
class LockNetworkSlow : public LockNetwork {};

void holderIsTold(TcpProxy& proxy, const Options& settings, TcpProxy::Direction direction) {
  Client client = Client::connect(settings);
  Lease lease = client.getLock("net").acquire();
  std::atomic<Clock::rep> toldAt{0};
  const std::stop_callback callback(lease.lostToken(),
                                    [&] { toldAt = Clock::now().time_since_epoch().count(); });
  proxy.blackHole(direction);
  ASSERT_EVENTUALLY(kLong, toldAt != 0);
  const Clock::time_point told{Clock::duration(toldAt.load())};
  EXPECT_LE(told, lease.validUntil());
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::unreachable);
  proxy.endBlackHole();
  EXPECT_EVENTUALLY(kLong, answerOf([&] { return client.getLock("healed").tryLock(); }) == "true");
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
}

TEST_F(LockNetworkSlow, XNET1_ABlackHoleWhileHolding) {
  holderIsTold(proxy(), alert(), TcpProxy::Direction::both);
}

TEST_F(LockNetworkSlow, XNET2_ABlackHoleToTheServerOnly) {
  holderIsTold(proxy(), alert(), TcpProxy::Direction::toServer);
}

TEST_F(LockNetworkSlow, XNET2_ABlackHoleToTheClientOnly) {
  holderIsTold(proxy(), alert(), TcpProxy::Direction::toClient);
}

TEST_F(LockNetworkSlow, XNET3_AHalfOpenSubscriberConnectionIsFound) {
  Client client = Client::connect(alert());
  rawHold("net3", "foreign:1", 60s);
  auto waiter =
      inThread([&] { return answerOf([&] { return client.getLock("net3").tryLock(30s); }); });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("net3")) >= 1);
  std::this_thread::sleep_for(50ms);
  proxy().blackHole(TcpProxy::Direction::both, TcpProxy::subscribersOnly());
  rawRelease("net3");
  EXPECT_TRUE(log().waitFor("subscriber connection lost", 3s));
  // The host is back; the old connection is not.
  proxy().endBlackHole();
  const Stopwatch watch;
  EXPECT_EQ(waiter.get(), "true");
  EXPECT_LT(watch.elapsedMs(), scaled(3s));
}

TEST_F(LockNetworkSlow, XNET3_AHalfOpenCommandConnectionIsFoundWhileIdle) {
  Client client = Client::connect(alert());
  ASSERT_TRUE(client.getLock("net3").tryLock());
  proxy().blackHole();
  EXPECT_TRUE(log().waitFor("no connection", 3s)) << "an idle connection is checked";
  proxy().endBlackHole();
  EXPECT_EVENTUALLY(kLong, answerOf([&] { return client.getLock("after").tryLock(); }) == "true");
}

TEST_F(LockNetworkSlow, XNET4_APartitionBetweenTheHolderAndRedis) {
  Client first = Client::connect(alert());
  Client second = connect(kWatchdog);
  RLock mine = first.getLock("net4");
  // It is taken first, so that it is over when the other client gets the lock.
  Lease lease = first.getLock("net4-lease").acquire();
  mine.lock();
  proxy().blackHole();
  RLock theirs = second.getLock("net4");
  EXPECT_EQ(answerOf([&] { return theirs.tryLock(scaled(5s)); }), "true");
  EXPECT_EQ(first.stats().lost, 2U) << "the old holder was told before";
  EXPECT_FALSE(lease.held());
  proxy().endBlackHole();
  std::string outcome;
  EXPECT_EVENTUALLY(kLong, (outcome = outcomeOf([&] { mine.unlock(); })) == "notOwner");
  EXPECT_EQ(raw().hgetall("net4"),
            (std::map<std::string, std::string>{{ownerField(second, currentOwner()), "1"}}));
  EXPECT_EQ(outcomeOf([&] { theirs.unlock(); }), "ok");
}

TEST_F(LockNetworkSlow, XNET5_LatencyAndJitter) {
  proxy().setDelay(TcpProxy::Direction::toServer, 1ms, 40ms);
  proxy().setDelay(TcpProxy::Direction::toClient, 1ms, 40ms);
  Options settings = proxied();
  Client one = Client::connect(settings);
  Client two = Client::connect(settings);
  Resource resource;
  std::vector<std::future<std::string>> threads;
  for (Client* client : {&one, &two, &one, &two}) {
    threads.push_back(inThread([&resource, client] {
      RLock lock = client->getLock("net5");
      return outcomeOf([&] {
        for (int i = 0; i < 8; ++i) {
          lock.lock();
          resource.use(500us);
          lock.unlock();
        }
      });
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(resource.value(), 32);
  EXPECT_EQ(resource.overlaps(), 0);
}

TEST_F(LockNetworkSlow, XNET5_AFewBytesAtATime) {
  // How many bytes a second get through depends on how busy the machine is. Renewals of a short
  // lease may then not fit, which is a loss, and not what is tested here.
  Options options = proxied();
  options.watchdogTimeout = 30s;
  options.commandTimeout = 10s;
  Client client = Client::connect(options);
  RLock lock = client.getLock("net5");
  lock.lock();
  lock.unlock();
  proxy().setThrottle(TcpProxy::Direction::both, 1, 1ms);
  EXPECT_EQ(outcomeOf([&] {
              lock.lock();
              lock.lock();
              lock.unlock();
              lock.unlock();
            }),
            "ok");
  const Stopwatch watch;
  const std::string outcome = answerOf([&] { return lock.tryLock(50ms); });
  EXPECT_LT(watch.elapsedMs(), 50ms + scaled(2 * kLate));
  EXPECT_TRUE(outcome == "true" || outcome == "timedOut") << outcome;
  proxy().heal();
  if (outcome != "true") {
    EXPECT_EVENTUALLY(kLong, !raw().exists("net5"));
  }
}

// Signals.

namespace signals {
std::atomic<long> alarms{0};
extern "C" void countAlarm(int /*number*/) {
  alarms.fetch_add(1);
}
}  // namespace signals

TEST_F(LockNetworkSlow, XNET8_SignalsEveryMillisecondChangeNothing) {
  struct sigaction action {};
  action.sa_handler = signals::countAlarm;  // without SA_RESTART
  struct sigaction old {};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &old), 0);
  itimerval every{};
  every.it_interval.tv_usec = 1000;
  every.it_value.tv_usec = 1000;
  Client before = connect();
  ASSERT_EQ(::setitimer(ITIMER_REAL, &every, nullptr), 0);
  const std::string outcome = outcomeOf([&] {
    Client client = connect();
    RLock lock = client.getLock("net8");
    const Deadline end(1s);
    while (!end.expired()) {
      lock.lock();
      lock.unlock();
      before.getLock("net8").lock();
      before.getLock("net8").unlock();
    }
    lock.lock();
    const Stopwatch watch;
    const bool got = before.getLock("net8").tryLock(1s);
    if (got || watch.elapsedMs() < 1s) {
      throw std::runtime_error("the wait ended early");
    }
    lock.unlock();
  });
  const itimerval off{};
  ::setitimer(ITIMER_REAL, &off, nullptr);
  ::sigaction(SIGALRM, &old, nullptr);
  EXPECT_EQ(outcome, "ok");
  EXPECT_GT(signals::alarms.load(), 100);
}

TEST_F(LockNetwork, SigpipeNeverReachesTheApplication) {
  struct sigaction fatal {};
  fatal.sa_handler = SIG_DFL;
  struct sigaction old {};
  ASSERT_EQ(::sigaction(SIGPIPE, &fatal, &old), 0);
  Client client = Client::connect(proxied());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(client.getLock("pipe").tryLock());
    proxy().cutAll();
    static_cast<void>(outcomeOf([&] { client.getLock("pipe").forceUnlock(); }));
  }
  ::sigaction(SIGPIPE, &old, nullptr);
}

// Deadlines, at each stage.

enum class Stage { refused, blackHoled, frozen, unresolvable };

const char* toString(Stage stage) {
  switch (stage) {
    case Stage::refused:
      return "refused";
    case Stage::blackHoled:
      return "blackHoled";
    case Stage::frozen:
      return "frozen";
    case Stage::unresolvable:
      return "unresolvable";
  }
  return "unknown";
}

class Deadlines : public LockTest, public ::testing::WithParamInterface<std::tuple<Stage, Face>> {
 protected:
  void breakIt() {
    switch (std::get<0>(GetParam())) {
      case Stage::refused:
        proxy().refuseConnections(true);
        proxy().cutAll();
        break;
      case Stage::blackHoled:
        proxy().blackHole();
        break;
      case Stage::frozen:
        server().freeze();
        break;
      case Stage::unresolvable:
        break;
    }
  }
  void TearDown() override {
    if (!IsSkipped() && std::get<0>(GetParam()) == Stage::frozen) {
      server().thaw();
    }
  }

  /// How a call failed; empty: it did not.
  static std::optional<Error> failureOf(const Result<bool>& result) {
    return result ? std::nullopt : std::optional(result.error());
  }
  template <class F>
  static std::optional<Error> failureOf(F call) {
    try {
      call();
      return std::nullopt;
    } catch (const Error& error) {
      return error;
    }
  }

  /// Runs a call that must fail within `limit` and kLate. The error must tell the time of the call,
  /// and not of one of its requests or attempts to connect.
  template <class F>
  void expectInTime(const char* what, std::chrono::milliseconds limit, F call) {
    const Stopwatch watch;
    const std::optional<Error> error = call();
    const auto took = watch.elapsedMs();
    ASSERT_TRUE(error) << what << " succeeds";
    EXPECT_TRUE(error->errc() == Errc::connectionFailed || error->errc() == Errc::timedOut)
        << what << ": " << error->what();
    EXPECT_LE(error->elapsed(), took) << what << ": " << error->what();
    EXPECT_GE(error->elapsed(), took / 2) << what << ": " << error->what();
    EXPECT_LE(took, limit + scaled(kLate)) << what << ": " << error->what();
  }
};

INSTANTIATE_TEST_SUITE_P(
    Stages,
    Deadlines,
    ::testing::Combine(::testing::Values(Stage::refused, Stage::blackHoled, Stage::frozen),
                       ::testing::ValuesIn(kFaces)),
    [](const ::testing::TestParamInfo<std::tuple<Stage, Face>>& test) {
      return std::string(toString(std::get<0>(test.param))) + "_" +
             rlock::test::toString(std::get<1>(test.param));
    });

TEST_P(Deadlines, C4_EveryCallEndsInItsTime) {
  Options settings = proxied();
  // Far from the waits below, so that no call ends in its time by another limit.
  settings.commandTimeout = 500ms;
  settings.connectTimeout = 200ms;
  settings.outageTimeout = 800ms;
  settings.closeTimeout = 200ms;
  Client client = Client::connect(settings);
  FaceLock lock(std::get<1>(GetParam()), client.getLock("c4"));
  const OwnerId owner = newOwner();
  lock.lock(owner).value();
  breakIt();
  const auto callTimeout = 2 * settings.commandTimeout;
  expectInTime("tryLock(wait)", 150ms, [&] { return failureOf(lock.tryLock(newOwner(), 150ms)); });
  expectInTime("tryLock(wait) longer than the command timeout", 800ms, [&] {
    return failureOf(lock.tryLock(newOwner(), 800ms));
  });
  expectInTime("tryLock()", callTimeout, [&] { return failureOf(lock.tryLock(newOwner())); });
  expectInTime("isLocked()", callTimeout, [&] {
    return failureOf([&] { static_cast<void>(lock.isLocked()); });
  });
  expectInTime("forceUnlock()", callTimeout, [&] { return failureOf(lock.forceUnlock()); });
  const Stopwatch watch;
  const std::string unlocked = outcomeOf(lock.unlock(owner));
  EXPECT_TRUE(unlocked == "connectionFailed" || unlocked == "timedOut") << unlocked;
  EXPECT_LE(watch.elapsedMs(), callTimeout + scaled(2 * kLate));
  const Stopwatch untimed;
  const auto locked = lock.lock(newOwner());
  EXPECT_EQ(outcomeOf(locked), "connectionFailed");
  EXPECT_GE(untimed.elapsedMs(), 700ms) << "an untimed call keeps trying";
  EXPECT_GE(locked.error().elapsed(), 700ms) << locked.error().what();
  EXPECT_LE(untimed.elapsedMs(), 800ms + scaled(1s));
  const Stopwatch closing;
  client.close(200ms);
  EXPECT_LE(closing.elapsedMs(), 200ms + scaled(2 * kLate));
}

TEST_P(Deadlines, C4_AWaiterEndsInItsTimeWhenTheServerGoesAway) {
  Options settings = proxied();
  settings.commandTimeout = 200ms;
  settings.safetyPoll = 100ms;
  Client client = Client::connect(settings);
  rawHold("c4", "foreign:1", 60s);
  auto waiter = inThread([&] {
    FaceLock lock(std::get<1>(GetParam()), client.getLock("c4"));
    const Stopwatch watch;
    const std::string answer = answerOf(lock.tryLock(newOwner(), 700ms));
    return std::pair(answer, watch.elapsedMs());
  });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  breakIt();
  const auto [answer, elapsed] = waiter.get();
  expectNotObtained(answer);
  EXPECT_TRUE(answer == "connectionFailed" || answer == "timedOut") << answer;
  EXPECT_LE(elapsed, 700ms + scaled(2 * kLate));
  EXPECT_GE(elapsed, 650ms);
}

class DeadlinesOfConnect : public LockTest {};

TEST_F(DeadlinesOfConnect, C4_ConnectEndsInItsTime) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  const SilentListener silent;
  const PortReservation refused;
  const std::vector<std::pair<std::string, std::string>> addresses{
      {"127.0.0.1:" + std::to_string(refused.port()), "connectionFailed"},
      {"127.0.0.1:" + std::to_string(silent.port()), "connectionFailed"},
      {"no-such-host.invalid:6379", "connectionFailed"}};
  for (const auto& [address, expected] : addresses) {
    Options settings = tuned("redis://" + address);
    settings.connectTimeout = 400ms;
    const Stopwatch watch;
    const std::string outcome = outcomeOf([&] { static_cast<void>(Client::connect(settings)); });
    EXPECT_TRUE(outcome == expected || outcome == "timedOut") << address << ": " << outcome;
    EXPECT_LE(watch.elapsedMs(), 400ms + scaled(2 * kLate)) << address;
  }
  server().freeze();
  Options settings = options();
  settings.connectTimeout = 400ms;
  const Stopwatch watch;
  const std::string outcome = outcomeOf([&] { static_cast<void>(Client::connect(settings)); });
  EXPECT_TRUE(outcome == "connectionFailed" || outcome == "timedOut") << outcome;
  EXPECT_LE(watch.elapsedMs(), 400ms + scaled(2 * kLate));
  server().thaw();
}

TEST_F(DeadlinesOfConnect, AnyAddressOfTheListWillDo) {
  const PortReservation refused;
  Options settings = options();
  settings.endpoints.insert(settings.endpoints.begin(), Endpoint{"127.0.0.1", refused.port(), {}});
  settings.endpoints.insert(settings.endpoints.begin(), Endpoint{"no-such-host.invalid", 6379, {}});
  settings.connectTimeout = scaled(10s);
  Client client = Client::connect(settings);
  EXPECT_TRUE(client.getLock("any").tryLock());
}

class UnixSocket : public LockTest {
 protected:
  RedisServerOptions serverOptions() override {
    RedisServerOptions options;
    options.unixSocketOnly = true;
    return options;
  }
};

TEST_F(UnixSocket, LocksWorkOverAUnixSocket) {
  RLOCK_ONE_SERVER_ONLY("connects to the address of its server");
  Client client = Client::connect(server().unixUri());
  RLock lock = client.getLock("unix");
  lock.lock();
  auto waiter = inThread([&] { return client.getLock("unix").tryLock(20s); });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("unix")) == 1);
  lock.unlock();
  EXPECT_TRUE(waiter.get());
}

}  // namespace
}  // namespace rlock::test
