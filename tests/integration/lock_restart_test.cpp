// SPDX-License-Identifier: Apache-2.0

// Redis killed, frozen, restarted and cut off, and clients stopped and killed, while processes
// work.

#include "integration/lock_harness.hpp"
#include "support/fenced_resource.hpp"

#include <filesystem>

namespace rlock::test {
namespace {

class LockRestart : public LockTest {};
class LockRestartSlow : public LockTest {};

class LockPersistentSlow : public LockTest {
 protected:
  RedisServerOptions serverOptions() override {
    RedisServerOptions options;
    options.persistence = true;
    return options;
  }
};

/// Waiters that keep the lock once they have it, until told to give it back.
class Keepers {
 public:
  /// @param onEntry  called by each when it has the lock
  Keepers(
      Client& client,
      const std::string& name,
      int count,
      const std::function<void()>& onEntry = [] {}) {
    for (int i = 0; i < count; ++i) {
      threads_.push_back(inThread([this, &client, name, onEntry] {
        RLock lock = client.getLock(name);
        const std::string got = answerOf([&] { return lock.tryLock(40s); });
        if (got != "true") {
          return got;
        }
        onEntry();
        entered_.fetch_add(1);
        while (!free_.load()) {
          std::this_thread::sleep_for(5ms);
        }
        return outcomeOf([&] { lock.unlock(); });
      }));
    }
  }
  Keepers(const Keepers&) = delete;
  Keepers& operator=(const Keepers&) = delete;
  ~Keepers() { free_ = true; }

  [[nodiscard]] int entered() const { return entered_.load(); }
  std::vector<std::string> finish() {
    free_ = true;
    std::vector<std::string> outcomes;
    for (auto& thread : threads_) {
      outcomes.push_back(thread.get());
    }
    return outcomes;
  }

 private:
  std::atomic<int> entered_{0};
  std::atomic<bool> free_{false};
  std::vector<std::future<std::string>> threads_;
};

TEST_F(LockRestartSlow, XFO1_RestartedEmptyWithWaiters) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client owner = connect(kWatchdog);
  Client others = connect(kWatchdog);
  Lease lease = owner.getLock("fo1").acquire();
  RLock plain = owner.getLock("fo1-plain");
  plain.lock();
  Keepers waiters(others, "fo1", 4);
  ASSERT_EVENTUALLY(kLong, others.stats().waiters == 4);
  server().kill();
  std::this_thread::sleep_for(100ms);
  server().start();
  reconnectRaw();
  EXPECT_EVENTUALLY(kLong, waiters.entered() == 1);
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::failover);
  std::this_thread::sleep_for(kWatchdog);
  EXPECT_EQ(waiters.entered(), 1) << "exactly one";
  const auto before = raw().hgetall("fo1");
  ASSERT_EQ(before.size(), 1U);
  EXPECT_EQ(before.begin()->first.substr(0, 36), others.id());
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_EQ(outcomeOf([&] { plain.unlock(); }), "notOwner");
  EXPECT_EQ(raw().hgetall("fo1"), before);
  EXPECT_EQ(waiters.finish(), std::vector<std::string>(4, "ok"));
}

TEST_F(LockPersistentSlow, XFO2_RestartedWithItsData) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Options settings = options();
  settings.watchdogTimeout = 3s;
  Client owner = Client::connect(settings);
  Client others = Client::connect(settings);
  RLock watched = owner.getLock("watched");
  watched.lock();
  Lease leased = owner.getLock("leased").acquire({.lease = 30s});
  Lease expired = owner.getLock("expired").acquire({.lease = 200ms});
  Keepers waiters(others, "watched", 2);
  ASSERT_EVENTUALLY(kLong, others.stats().waiters == 2);
  server().kill();
  std::this_thread::sleep_for(300ms);
  server().start();
  reconnectRaw();
  EXPECT_TRUE(raw().exists("watched"));
  EXPECT_TRUE(raw().exists("leased"));
  EXPECT_FALSE(raw().exists("expired"));
  EXPECT_EVENTUALLY(kLong, answerOf([&] { return others.getLock("expired").tryLock(); }) == "true");
  EXPECT_EQ(expired.lossReason(), LossReason::expired);
  // The watchdog goes on where it was.
  std::this_thread::sleep_for(3500ms);
  EXPECT_TRUE(raw().exists("watched"));
  EXPECT_EQ(waiters.entered(), 0);
  EXPECT_TRUE(leased.held());
  EXPECT_EQ(leased.release(), ReleaseResult::released);
  EXPECT_EQ(outcomeOf([&] { watched.unlock(); }), "ok");
  EXPECT_EVENTUALLY(kLong, waiters.entered() == 1);
  EXPECT_EQ(waiters.finish(), std::vector<std::string>(2, "ok"));
}

/// A snapshot from before the second of two holds: the new server knows the first one's lease only.
TEST_F(LockPersistentSlow, C2_AVerifiedHoldIsNoLongerThanItsKey) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client client = connect();
  RLock lock = client.getLock("older");
  const OwnerId owner = newOwner();
  Lease first = lock.acquire({.lease = 5s}, owner);
  Lease second = lock.acquire({.lease = 60s}, owner);
  raw().run({"HINCRBY", "older", ownerField(client, owner), "-1"});
  raw().run({"PEXPIRE", "older", "5000"});
  server().kill();
  server().start();
  reconnectRaw();
  EXPECT_EVENTUALLY(kLong, raw().pttl("older") > 40'000);
  EXPECT_TRUE(second.held());
  EXPECT_LE(second.validUntil() - Clock::now(), std::chrono::milliseconds(raw().pttl("older")));
}

/// A lock is back that was released since, and tokens are given once more: nobody enters before
/// that lease is over, and the resource refuses what is smaller than it has seen.
TEST_F(LockPersistentSlow, XFO3_RestartedWithAnOldSnapshot) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  const RedisServer storage;
  FencedResource resource(storage.port());
  Client owner = connect();
  Client others = connect();
  const auto lease = scaled(8s);
  const Stopwatch sinceLease;
  Lease back = owner.getLock("back").acquire({.lease = lease});
  Lease kept = owner.getLock("kept").acquire({.lease = 60s});
  FencedLock fenced = owner.getFencedLock("fenced");
  ASSERT_EQ(fenced.lockAndGetToken(), 1U);
  fenced.unlock();

  const std::filesystem::path files = server().directory().path();
  const TempDir snapshot;
  server().stop();
  for (const auto& one : std::filesystem::directory_iterator(files)) {
    if (one.is_directory()) {
      std::filesystem::copy(one, snapshot.path() / one.path().filename());
    }
  }
  server().start();
  ASSERT_EVENTUALLY(kLong, back.release() == ReleaseResult::released);
  for (const std::uint64_t token : {2U, 3U}) {
    ASSERT_EQ(fenced.lockAndGetToken(), token);
    ASSERT_TRUE(resource.write(token, std::to_string(token)));
    fenced.unlock();
  }
  Lease newer = others.getLock("newer").acquire();
  server().kill();
  for (const auto& one : std::filesystem::directory_iterator(snapshot.path())) {
    std::filesystem::remove_all(files / one.path().filename());
    std::filesystem::copy(one, files / one.path().filename());
  }
  server().start();
  reconnectRaw();

  // What was taken since is gone, and its holder told; what was there before goes on.
  EXPECT_EVENTUALLY(kLong, newer.lossReason() == LossReason::failover);
  EXPECT_TRUE(kept.held());
  EXPECT_EQ(kept.release(), ReleaseResult::released);
  ASSERT_TRUE(raw().exists("back")) << "the host stood still";
  EXPECT_EQ(answerOf([&] { return others.getLock("back").tryLock(lease + 5s); }), "true");
  EXPECT_GE(sinceLease.elapsedMs(), lease);
  EXPECT_FALSE(back.held());
  // Nobody is told, but the smaller one does no harm.
  FencedLock theirs = others.getFencedLock("fenced");
  EXPECT_EQ(theirs.lockAndGetToken(), 2U);
  EXPECT_FALSE(resource.write(2, "again"));
  EXPECT_EQ(resource.value(), "3");
}

TEST_F(LockRestartSlow, XCLK1_AHolderStoppedPastItsLease) {
  Worker worker(uri("watchdog-timeout=2s"));
  EXPECT_EQ(worker.ask("acquire clk1"), "ok");
  EXPECT_EQ(worker.ask("lock clk1-plain"), "ok");
  EXPECT_EQ(worker.ask("held"), "yes");
  worker.process().stop();
  Client other = connect();
  RLock theirs = other.getLock("clk1");
  EXPECT_TRUE(theirs.tryLock(scaled(5s)));
  theirs.lock();
  EXPECT_TRUE(other.getLock("clk1-plain").tryLock(scaled(5s)));
  // Nothing the worker sends is answered: what it says, it says by itself.
  const std::string field = ownerField(other, currentOwner());
  worker.process().cont();
  EXPECT_EQ(worker.ask("held").substr(0, 2), "no");
  EXPECT_EQ(worker.ask("unlock clk1-plain"), "notOwner");
  EXPECT_EQ(worker.ask("release"), "lost");
  EXPECT_EQ(raw().hgetall("clk1"), (std::map<std::string, std::string>{{field, "2"}}));
  EXPECT_EQ(raw().hgetall("clk1-plain"), (std::map<std::string, std::string>{{field, "1"}}));
}

TEST_F(LockRestartSlow, XCLK7_AServerFrozenForLongerThanTheLease) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  noteSafetyCheck();
  Options settings = options();
  settings.commandTimeout = 300ms;
  settings.reconnectDelayMax = 100ms;
  Client others = Client::connect(settings);
  settings.watchdogTimeout = 600ms;
  Client owner = Client::connect(settings);
  Lease lease = owner.getLock("clk7").acquire();
  std::atomic<int> beside{0};
  Keepers waiters(others, "clk7", 3, [&] { beside += static_cast<int>(lease.held()); });
  // Where the host stands still now, one of them may be inside already, and rightly so.
  ASSERT_EVENTUALLY(kLong,
                    others.stats().waiters + static_cast<std::uint64_t>(waiters.entered()) == 3);
  server().freeze();
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_FALSE(lease.held());
  std::this_thread::sleep_for(1s);
  server().thaw();
  EXPECT_EVENTUALLY(kLong, waiters.entered() == 1);
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  std::this_thread::sleep_for(700ms);
  EXPECT_EQ(waiters.entered(), 1);
  EXPECT_EQ(raw().hgetall("clk7").size(), 1U);
  EXPECT_EQ(waiters.finish(), std::vector<std::string>(3, "ok"));
  EXPECT_EQ(beside, 0) << "entered beside the first owner";
}

TEST_F(LockRestart, XCLK7_AWaitEndsInItsTimeBesideAFrozenServer) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Options settings = options();
  settings.commandTimeout = 300ms;
  settings.reconnectDelayMax = 100ms;
  Client client = Client::connect(settings);
  rawHold("clk7", "foreign:1", 60s);
  auto impatient = inThread([&] {
    const Stopwatch watch;
    RLock lock = client.getLock("clk7");
    const std::string answer = answerOf([&] { return lock.tryLock(500ms); });
    return std::pair(answer, watch.elapsedMs());
  });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  server().freeze();
  const auto [answer, elapsed] = impatient.get();
  server().thaw();
  expectNotObtained(answer);
  EXPECT_TRUE(answer == "false" || answer == "timedOut") << answer;
  EXPECT_LE(elapsed, 500ms + scaled(2 * kLate));
}

// Four processes work; something happens; nobody loses an update, and the work goes on.

enum class Trouble { killedAndRestartedEmpty, frozen, cutOff, connectionsCut, refused };

const char* toString(Trouble trouble) {
  switch (trouble) {
    case Trouble::killedAndRestartedEmpty:
      return "killedAndRestartedEmpty";
    case Trouble::frozen:
      return "frozen";
    case Trouble::cutOff:
      return "cutOff";
    case Trouble::connectionsCut:
      return "connectionsCut";
    case Trouble::refused:
      return "refused";
  }
  return "unknown";
}

class WorkersSlow : public LockTest, public ::testing::WithParamInterface<Trouble> {
 protected:
  static constexpr int kWorkers = 4;

  void startWorkers() {
    for (int i = 0; i < kWorkers; ++i) {
      workers_.push_back(std::make_unique<Worker>(
          proxyUri() + "?watchdog-timeout=1s&command-timeout=300ms&reconnect-delay-max=100ms" +
          "&heartbeat-interval=200ms&safety-poll=200ms&log-level=error"));
    }
    startWork();
  }
  void startWork() {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      EXPECT_EQ(workers_[i]->ask("work shared " + counterFile() + " " + journalFile() + " w" +
                                 std::to_string(i) + "r" + std::to_string(round_) + " 500"),
                "started");
    }
    ++round_;
  }
  /// Sections of each worker since it was started.
  std::vector<long> stopWork() {
    for (auto& worker : workers_) {
      worker->tell("stop");
    }
    std::vector<long> sections;
    for (auto& worker : workers_) {
      const std::string line = worker->answer();
      EXPECT_TRUE(line.starts_with("done ")) << line;
      sections.push_back(std::stol(line.substr(5)));
    }
    return sections;
  }
  void disturb() {
    switch (GetParam()) {
      case Trouble::killedAndRestartedEmpty:
        server().kill();
        std::this_thread::sleep_for(400ms);
        server().start();
        reconnectRaw();
        break;
      case Trouble::frozen:
        server().freeze();
        std::this_thread::sleep_for(1500ms);
        server().thaw();
        break;
      case Trouble::cutOff:
        proxy().blackHole();
        std::this_thread::sleep_for(1500ms);
        proxy().endBlackHole();
        break;
      case Trouble::connectionsCut:
        for (int i = 0; i < 20; ++i) {
          proxy().cutAll();
          std::this_thread::sleep_for(50ms);
        }
        break;
      case Trouble::refused:
        proxy().refuseConnections(true);
        proxy().cutAll();
        std::this_thread::sleep_for(1s);
        proxy().refuseConnections(false);
        break;
    }
  }
  [[nodiscard]] std::string counterFile() const { return directory_.file("counter"); }
  [[nodiscard]] std::string journalFile() const { return directory_.file("journal"); }
  [[nodiscard]] std::vector<std::unique_ptr<Worker>>& workers() { return workers_; }

 private:
  TempDir directory_;
  std::vector<std::unique_ptr<Worker>> workers_;
  int round_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Troubles,
                         WorkersSlow,
                         ::testing::Values(Trouble::killedAndRestartedEmpty,
                                           Trouble::frozen,
                                           Trouble::cutOff,
                                           Trouble::connectionsCut,
                                           Trouble::refused),
                         [](const ::testing::TestParamInfo<Trouble>& test) {
                           return std::string(toString(test.param));
                         });

TEST_P(WorkersSlow, XPROP1_NoUpdateIsLostAndTheWorkGoesOn) {
  startWorkers();
  const UnprotectedCounter counter(counterFile());
  EXPECT_EVENTUALLY(kLong, counter.value() > 50);
  disturb();
  const std::int64_t healed = counter.value();
  EXPECT_EVENTUALLY(kLong, counter.value() > healed + 50);
  long sum = 0;
  for (const long sections : stopWork()) {
    sum += sections;
  }
  EXPECT_EQ(counter.value(), sum);
  // Nobody had to restart anything: each of them works.
  startWork();
  std::this_thread::sleep_for(scaled(3s));
  for (const long sections : stopWork()) {
    sum += sections;
    EXPECT_GT(sections, 0);
  }
  EXPECT_EQ(counter.value(), sum) << "an update was lost";
  const auto journal = OverlapDetector(journalFile()).verify();
  EXPECT_TRUE(journal.ok()) << journal.describe();
  EXPECT_EQ(journal.unfinished, 0U);
}

class WorkersKilledSlow : public WorkersSlow {};
INSTANTIATE_TEST_SUITE_P(Once, WorkersKilledSlow, ::testing::Values(Trouble::cutOff));

TEST_P(WorkersKilledSlow, AKilledHolderDelaysTheOthersByOneLease) {
  startWorkers();
  const UnprotectedCounter counter(counterFile());
  OverlapDetector journal(journalFile());
  for (std::size_t victim = 0; victim < 2; ++victim) {
    const std::int64_t before = counter.value();
    EXPECT_EVENTUALLY(kLong, counter.value() > before + 20);
    // Killed in the middle of a section, if there is any.
    EXPECT_EVENTUALLY(kLong, [&] {
      const auto fields = raw().hgetall("shared");
      return !fields.empty() &&
             fields.begin()->first.substr(0, 36) == workers()[victim]->clientId();
    }());
    workers()[victim]->process().kill();
    EXPECT_TRUE(workers()[victim]->process().wait(kLong));
    journal.abandon("w" + std::to_string(victim) + "r0");
    const std::int64_t killed = counter.value();
    const Stopwatch watch;
    EXPECT_EVENTUALLY(kLong, counter.value() > killed + 5);
    EXPECT_LT(watch.elapsedMs(), kWatchdog + scaled(1s));
  }
  workers().erase(workers().begin(), workers().begin() + 2);
  for (const long sections : stopWork()) {
    EXPECT_GT(sections, 0);
  }
  const auto result = journal.verify();
  EXPECT_TRUE(result.ok()) << result.describe();
}

TEST_F(LockRestartSlow, XCPP10_AProcessThatEndsPolitelyGivesItsLocksBack) {
  Worker worker(uri("watchdog-timeout=30s"));
  EXPECT_EQ(worker.ask("lock polite"), "ok");
  EXPECT_EQ(worker.ask("acquire polite2"), "ok");
  EXPECT_TRUE(raw().exists("polite"));
  worker.tell("exit");
  const auto status = worker.process().wait(kLong);
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->success());
  expectNoKeys();
}

TEST_F(LockRestart, AProcessThatDoesNotKnowAHoldEndsItAtOnce) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client client = connect();
  Lease watched = client.getLock("watched").acquire();
  Lease leased = client.getLock("leased").acquire({.lease = 300s});
  server().restart();
  EXPECT_EVENTUALLY(kLong, watched.lossReason() == LossReason::failover);
  EXPECT_EVENTUALLY(kLong, leased.lossReason() == LossReason::failover);
  EXPECT_EVENTUALLY(kLong, leased.lostToken().stop_requested());
  EXPECT_FALSE(leased.held());
}

TEST_F(LockRestart, AConnectionThatWasCutDoesNotMakeAHoldSuspect) {
  Client client = Client::connect(proxied());
  Lease leased = client.getLock("leased").acquire({.lease = 300s});
  raw().del("leased");
  proxy().cutAll();
  EXPECT_EVENTUALLY(kLong, client.stats().reconnects == 1);
  EXPECT_EQ(outcomeOf([&] { client.getLock("other").lock(); }), "ok");
  EXPECT_TRUE(leased.held()) << "nobody asks the same process";
  EXPECT_EQ(leased.release(), ReleaseResult::lost);
}

TEST_F(LockRestart, ReconnectsAreCountedAndLogged) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client client = connect();
  server().restart();
  reconnectRaw();
  EXPECT_EVENTUALLY(kLong, answerOf([&] { return client.getLock("again").tryLock(); }) == "true");
  EXPECT_EQ(client.stats().reconnects, 1U);
  EXPECT_GE(log().count("connected to"), 2U);
}

}  // namespace
}  // namespace rlock::test
