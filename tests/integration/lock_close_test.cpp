// SPDX-License-Identifier: Apache-2.0

// Closing a client leaves nothing behind on a server that is well.

#include "integration/lock_harness.hpp"

namespace rlock::test {
namespace {

class LockClose : public LockTest {};

TEST_F(LockClose, GivesBackWhatIsBeingAcquired) {
  for (int round = 0; round < 12; ++round) {
    Client client = connect();
    std::atomic<bool> go{false};
    std::vector<std::future<std::string>> threads;
    for (int i = 0; i < 6; ++i) {
      threads.push_back(inThread([&, i] {
        const std::string name = "close" + std::to_string(i);
        RLock lock = i % 3 == 0   ? client.getReadWriteLock(name).readLock()
                     : i % 3 == 1 ? client.getFairLock(name)
                                  : client.getLock(name);
        while (!go) {
        }
        return outcomeOf([&] {
          for (;;) {
            lock.lock();
            lock.unlock();
          }
        });
      }));
    }
    go = true;
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + 300 * round));
    client.close(10s);
    EXPECT_EQ(raw().keys(), std::set<std::string>()) << "round " << round;
    for (auto& thread : threads) {
      const std::string outcome = thread.get();
      // A hold that close() gives back under an unlock() is no longer that unlock()'s to release.
      EXPECT_TRUE(outcome == "closed" || outcome == "notOwner") << outcome;
    }
  }
}

TEST_F(LockClose, EndsEveryLeaseAtOnce) {
  for (int round = 0; round < 12; ++round) {
    Client client = connect();
    std::vector<std::future<std::vector<Lease>>> threads;
    for (int i = 0; i < 4; ++i) {
      threads.push_back(inThread([&, i] {
        std::vector<Lease> leases;
        try {
          for (int number = 0;; ++number) {
            const std::string name = "l" + std::to_string(i) + ":" + std::to_string(number);
            leases.push_back(client.getLock(name).acquire());
          }
        } catch (const Error& error) {
          EXPECT_EQ(error.errc(), Errc::closed);
        }
        return leases;
      }));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + 300 * round));
    client.close(10s);
    EXPECT_EQ(raw().keys(), std::set<std::string>()) << "round " << round;
    for (auto& thread : threads) {
      for (const Lease& lease : thread.get()) {
        EXPECT_FALSE(lease.held());
        EXPECT_EQ(lease.lossReason(), LossReason::clientClosed);
        EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
      }
    }
  }
}

TEST_F(LockClose, TakesAnyDeadline) {
  using std::chrono::milliseconds;
  for (const milliseconds deadline :
       {milliseconds::max(), milliseconds::max() - 1ms, milliseconds(24h * 365)}) {
    Client client = connect();
    const Lease lease = client.getLock("held").acquire();
    const Stopwatch watch;
    client.close(deadline);
    EXPECT_LT(watch.elapsedMs(), scaled(2s));
    EXPECT_FALSE(lease.held());
    EXPECT_FALSE(raw().exists("held"));
  }
  for (const milliseconds deadline : {milliseconds(0), milliseconds(-1), milliseconds::min()}) {
    Client client = connect();
    const Lease lease = client.getLock("held").acquire({.lease = 50ms});
    const Stopwatch watch;
    client.close(deadline);
    EXPECT_LT(watch.elapsedMs(), scaled(500ms));
    EXPECT_FALSE(lease.held());
  }
}

// A silent server is waited for as long as closeTimeout says, however long its replies may take.
TEST_F(LockClose, TheDestructorHasATimeLimitOfItsOwn) {
  Options settings = options();
  settings.commandTimeout = 60s;
  settings.closeTimeout = 1s;
  std::optional<Client> client(Client::connect(settings));
  client->getLock("held").lock();
  server().freeze();
  const Stopwatch watch;
  client.reset();
  const auto took = watch.elapsedMs();
  server().thaw();
  EXPECT_GE(took, 900ms);
  EXPECT_LT(took, 1s + scaled(4s));
}

// The work of the thread may go on elsewhere, so nobody else gets in before its lease is over.
TEST_F(LockClose, LeavesWhatAnEndedThreadHeldToItsLease) {
  Client client = connect();
  inThread([&] { client.getLock("ended").lock(); }).get();
  ASSERT_EVENTUALLY(kLong, log().contains("threadEnded"));
  client.getLock("kept").lock();
  client.close(10s);
  EXPECT_EQ(raw().keys(), std::set<std::string>{"ended"});
}

// The loop is in a callback until after close() has returned.
TEST_F(LockClose, EndsWhatIsUnderWayHoweverLateTheLoopIs) {
  Client client = Client::connect(proxied());
  client.getLock("warm").lock();
  const auto late = proxy().addRule(TcpProxy::script("stalled"), TcpProxy::Action::stallReply());
  auto busy = std::make_shared<std::promise<void>>();
  auto free = std::make_shared<std::promise<void>>();
  client.getLock("warm").isLockedAsync().start(
      [busy, done = free->get_future().share()](const Result<bool>&) {
        busy->set_value();
        done.wait_for(kLong);
      });
  busy->get_future().wait();
  auto first = client.getLock("stalled").lockAsync({}, newOwner()).toFuture();
  auto second = client.getLock("stalled").lockAsync({}, newOwner()).toFuture();
  client.close(10ms);
  free->set_value();
  for (auto* each : {&first, &second}) {
    ASSERT_TRUE(ready(*each, kLong));
    EXPECT_EQ(outcomeOf([&] { each->get(); }), "closed");
  }
}

TEST_F(LockClose, GivesThousandsOfHoldsBack) {
  Client client = connect();
  std::vector<std::future<Lease>> futures;
  for (int i = 0; i < 5000; ++i) {
    auto operation = client.getLock("many" + std::to_string(i)).acquireAsync();
    futures.push_back(operation.toFuture());
  }
  std::vector<Lease> leases;
  for (auto& future : futures) {
    leases.push_back(future.get());
  }
  client.close(scaled(kLong));
  expectNoKeys();
}

}  // namespace
}  // namespace rlock::test
