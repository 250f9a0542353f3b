// SPDX-License-Identifier: Apache-2.0

// The master moves, dies, freezes or is cut off while locks are held and waited for.

#include "integration/sentinel_harness.hpp"
#include "support/closed_at_end.hpp"
#include "support/contested.hpp"
#include "support/fenced_resource.hpp"
#include "support/worker.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace rlock::test {
namespace {

/// The events. Afterwards there is a settled master again, which may be another.
enum class Event {
  plannedFailover,
  masterKilled,
  masterFrozen,
  masterCutOff,
  everyNodeRestarted,
  masterMovedThereAndBack,
};

const char* toString(Event event) {
  switch (event) {
    case Event::plannedFailover:
      return "plannedFailover";
    case Event::masterKilled:
      return "masterKilled";
    case Event::masterFrozen:
      return "masterFrozen";
    case Event::masterCutOff:
      return "masterCutOff";
    case Event::everyNodeRestarted:
      return "everyNodeRestarted";
    case Event::masterMovedThereAndBack:
      return "masterMovedThereAndBack";
  }
  return "unknown";
}

class SentinelFailover : public SentinelTest {
 protected:
  static constexpr std::string_view kClientName = "inside";

  /// Its connections are told from those of servers and Sentinels.
  [[nodiscard]] Options named(std::chrono::milliseconds watchdog) {
    Options settings = options(watchdog);
    settings.clientName = kClientName;
    return settings;
  }
  /// Cuts a node off from everybody but the clients of this test.
  void cutOff(std::size_t node) {
    world().proxy(node).blackHole(
        TcpProxy::Direction::both,
        [](const TcpProxy::ConnectionInfo& info) { return info.clientName != kClientName; });
  }

  std::size_t happen(Event event, std::size_t master) {
    switch (event) {
      case Event::plannedFailover:
        return world().failover();
      case Event::masterKilled:
        world().node(master).kill();
        return world().awaitMaster(master);
      case Event::masterFrozen: {
        world().node(master).freeze();
        return world().awaitMaster(master);
      }
      case Event::masterCutOff:
        cutOff(master);
        return world().awaitMaster(master);
      case Event::everyNodeRestarted: {
        for (std::size_t i = 0; i < world().sentinels(); ++i) {
          world().sentinel(i).kill();
          world().sentinel(i).start();
        }
        for (std::size_t i = 0; i < world().nodes(); ++i) {
          if (i != master) {
            world().node(i).restart();
          }
        }
        world().awaitSettled();
        const std::size_t next = world().failover();
        world().awaitSettled();
        world().node(master).restart();
        world().awaitSettled();
        return next;
      }
      case Event::masterMovedThereAndBack: {
        (void)world().failover();
        world().awaitSettled();
        const std::size_t next = world().failover();
        return next;
      }
    }
    return master;
  }
};

class SentinelEvents : public SentinelFailover, public ::testing::WithParamInterface<Event> {};

INSTANTIATE_TEST_SUITE_P(All,
                         SentinelEvents,
                         ::testing::Values(Event::plannedFailover,
                                           Event::masterKilled,
                                           Event::masterFrozen,
                                           Event::masterCutOff,
                                           Event::everyNodeRestarted,
                                           Event::masterMovedThereAndBack),
                         [](const ::testing::TestParamInfo<Event>& test) {
                           return std::string(toString(test.param));
                         });

/// A waiter that says when it is in, and goes out when told.
class Entrant {
 public:
  template <class Enter>
  explicit Entrant(Enter enter)
      : outcome_(inThread([this, enter] {
          return outcomeOf([&] {
            enter();
            in_ = true;
          });
        })) {}
  Entrant(const Entrant&) = delete;
  Entrant& operator=(const Entrant&) = delete;

  [[nodiscard]] bool in() const { return in_; }
  std::string outcome() { return outcome_.get(); }

 private:
  std::atomic<bool> in_{false};
  std::future<std::string> outcome_;
};

TEST_P(SentinelEvents, XFO5_HoldsAreKeptAndWaitersEnterOnTheNewMaster) {
  RedisSentinelsOptions setup;
  setup.proxied = GetParam() == Event::masterCutOff;
  start(setup);
  // Nothing but the Sentinels says that a frozen master is none any more.
  Client holder = Client::connect(patient(named(60s)));
  Client others = Client::connect(patient(named(60s)));

  const auto objects = contestedObjects(holder, [](const std::string& kind, std::size_t member) {
    return kind + std::to_string(member);
  });
  const ClosedAtEnd end(others);
  ASSERT_TRUE(contendAll(objects, others));
  replicate(0);

  const std::size_t master = happen(GetParam(), 0);
  // A grant or a release by the old master in its last moment may be lost.
  const std::uint64_t moves = GetParam() == Event::masterMovedThereAndBack ? 2 : 1;
  EXPECT_EVENTUALLY(kLong, holder.stats().reconnects >= moves);
  EXPECT_EVENTUALLY(kLong, others.stats().reconnects >= moves);
  RawRedis server = raw(master);
  for (const auto& object : objects) {
    EXPECT_TRUE(object->held()) << object->kind().name;
    EXPECT_FALSE(object->entered()) << object->kind().name;
    EXPECT_TRUE(server.exists(object->names()[0])) << "not the master is asked";
  }
  for (const auto& object : objects) {
    SCOPED_TRACE(object->kind().name);
    expectToHandOn(*object);
  }
  expectToEndWell(objects);
  if (GetParam() == Event::masterFrozen) {
    world().node(0).thaw();
  }
}

TEST_P(SentinelEvents, AWatchedHoldIsRenewedOnTheNewMaster) {
  RedisSentinelsOptions setup;
  setup.proxied = GetParam() == Event::masterCutOff;
  start(setup);
  // Longer than a failover takes, also one whose first election fails.
  Client holder = Client::connect(patient(named(scaled(24s))));
  Lease lease = holder.getLock("renewed").acquire();
  replicate(0);
  const std::size_t master = happen(GetParam(), 0);
  RawRedis server = raw(master);
  // Verified at once: the lease is a fresh one long before a third of it is over.
  EXPECT_EVENTUALLY(kLong, server.pttl("renewed") > scaled(20s).count());
  const auto until = lease.validUntil();
  EXPECT_EVENTUALLY(kLong, lease.validUntil() > until);
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::none);
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_FALSE(server.exists("renewed"));
  if (GetParam() == Event::masterFrozen) {
    world().node(0).thaw();
  }
}

TEST_F(SentinelFailover, C9_AHoldThatTheNewMasterDoesNotKnowIsToldAsLost) {
  RedisSentinelsOptions setup;
  setup.proxied = true;
  // All that is to be lost is taken before the Sentinels begin.
  setup.downAfter = 4s;
  start(setup);
  std::mutex mutex;
  std::vector<LostHold> told;
  Options settings = patient(named(60s));
  settings.onLost = [&](const LostHold& hold) {
    const std::lock_guard guard(mutex);
    told.push_back(hold);
  };
  Client holder = Client::connect(settings);
  Client others = Client::connect(patient(named(60s)));
  holder.getLock("before").lock();
  replicate(0);
  // From here on nothing reaches the replica, and a moment later it is the master.
  cutOff(0);
  Lease watched = holder.getLock("watched").acquire();
  Lease leased = holder.getLock("leased").acquire({.lease = 300s});
  Lease written = holder.getReadWriteLock("rw").writeLock().acquire();
  Lease read = holder.getReadWriteLock("rw2").readLock().acquire({.lease = 300s});
  Permit permit = [&] {
    PermitExpirableSemaphore semaphore = holder.getPermitExpirableSemaphore("permits");
    EXPECT_TRUE(semaphore.trySetPermits(1));
    return semaphore.hold();
  }();
  RLock plain = holder.getLock("plain");
  plain.lock(300s);
  Entrant waiter([&] { others.getLock("leased").lock(60s); });
  const ClosedAtEnd end(others);
  ASSERT_EVENTUALLY(kLong, others.stats().waiters == 1);
  const std::size_t master = world().awaitMaster(0);
  const auto isLost = [&](const Lease& lease) {
    return lease.lossReason() == LossReason::failover && lease.lostToken().stop_requested() &&
           !lease.held();
  };
  EXPECT_EVENTUALLY(kLong, isLost(watched));
  EXPECT_EVENTUALLY(kLong, isLost(leased));
  EXPECT_EVENTUALLY(kLong, isLost(written));
  EXPECT_EVENTUALLY(kLong, isLost(read));
  EXPECT_EVENTUALLY(kLong, isLost(permit));
  EXPECT_EVENTUALLY(kLong, [&] {
    const std::lock_guard guard(mutex);
    return told.size() == 6;
  }());
  for (const LostHold& each : told) {
    EXPECT_EQ(each.reason, LossReason::failover) << each.name;
    EXPECT_NE(each.name, "before");
  }
  EXPECT_EVENTUALLY(kLong, waiter.in());
  EXPECT_EQ(leased.release(), ReleaseResult::lost);
  EXPECT_EQ(outcomeOf([&] { plain.unlock(); }), "notOwner");
  EXPECT_TRUE(raw(master).exists("leased")) << "the other's";
  EXPECT_EQ(outcomeOf([&] { holder.getLock("before").unlock(); }), "ok");
}

TEST_F(SentinelFailover, C3_XCLK2_AWriterStoppedOverAFailoverIsRefusedAtTheResource) {
  start();
  const RedisServer storage;
  FencedResource resource(storage.port());
  const std::string write = "write " + std::to_string(storage.port()) + " ";
  Worker stopped(world().uri() + "?watchdog-timeout=1s");
  EXPECT_EQ(stopped.ask("fenced XCLK2"), "1");
  EXPECT_EQ(stopped.ask(write + "early"), "written");
  replicate(0);
  stopped.process().stop();
  // The first thing that it does when it goes on, before it can hear of anything.
  stopped.tell(write + "late");
  world().node(0).kill();
  const std::size_t master = world().awaitMaster(0);
  Client client = Client::connect(options());
  FencedLock lock = client.getFencedLock("XCLK2");
  const std::optional<std::uint64_t> token = lock.tryLockAndGetToken(kLong);
  ASSERT_EQ(token, 2U) << "the counter is where the hold was";
  EXPECT_TRUE(resource.write(*token, "next"));
  lock.unlock();
  EXPECT_FALSE(raw(master).exists("XCLK2"));
  stopped.process().cont();
  EXPECT_EQ(stopped.answer(), "refused");
  EXPECT_EQ(resource.value(), "next");
  // It finds the master that there is now.
  EXPECT_EQ(stopped.ask("fenced XCLK2"), "3");
  EXPECT_EQ(stopped.ask(write + "again"), "written");
  EXPECT_EQ(resource.value(), "again");
}

/// The clients on the old master's side hear nothing of the others', and the other way round.
TEST_F(SentinelFailover, XFO6_EachTokenIsAcceptedOnceInASplit) {
  RedisSentinelsOptions setup;
  setup.proxied = true;
  start(setup);
  const RedisServer storage;
  FencedResource resource(storage.port());
  const auto lease = scaled(6s);
  // It renews the hold for as long as it reaches the old master, which is all the time.
  Client holder = Client::connect(options(world().node(0).uri(), lease));
  Client beside = Client::connect(options(world().node(0).uri()));
  Client outside = Client::connect(named(60s));
  const SyncPolicy acknowledged = SyncPolicy::replicas(1, 500ms);
  Lease first = holder.getFencedLock("split").acquire({.sync = SyncPolicy::replicas(1, 20s)});
  ASSERT_EQ(first.token(), 1U);
  Lease stale = holder.getFencedLock("stale").acquire();
  ASSERT_TRUE(resource.write(1, "first"));
  replicate(0);
  world().proxy(0).blackHole();
  const std::size_t master = world().awaitMaster(0);

  // The new master gives the lock away when the lease is over that it knows.
  FencedLock lock = outside.getFencedLock("split");
  std::set<std::uint64_t> accepted{1};
  const auto enter = [&](FencedLock& through, const std::string& value) {
    const std::optional<std::uint64_t> token = through.tryLockAndGetToken(kLong);
    ASSERT_TRUE(token) << value;
    EXPECT_TRUE(resource.write(*token, value)) << *token;
    EXPECT_TRUE(accepted.insert(*token).second) << *token << " was accepted before";
    EXPECT_EQ(*token, *accepted.rbegin());
  };
  enter(lock, "second");
  EXPECT_TRUE(raw(0).exists("stale"));
  EXPECT_TRUE(stale.held()) << "the split has two holders: that is what tokens are for";
  EXPECT_FALSE(resource.write(1, "late"));
  // On this side of the split the same number is drawn again, but nobody is given it.
  EXPECT_TRUE(raw(0).exists("split") || first.lossReason() != LossReason::none);
  first.release();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(outcomeOf([&] {
                static_cast<void>(
                    beside.getFencedLock("split").acquire({.wait = 0s, .sync = acknowledged}));
              }),
              "notSynced");
  }
  EXPECT_EQ(resource.value(), "second");
  lock.unlock();
  enter(lock, "third");
  lock.unlock();

  // Together again: the old master follows the new one.
  world().proxy(0).endBlackHole();
  world().awaitSettled();
  EXPECT_EVENTUALLY(kLong, !stale.held());
  EXPECT_TRUE(raw(master).get("redisson_lock_token:{split}") == "3");
  Client after = Client::connect(named(60s));
  FencedLock again = after.getFencedLock("split");
  enter(again, "fourth");
  EXPECT_FALSE(resource.write(1, "very late"));
  EXPECT_EQ(resource.value(), "fourth");
  EXPECT_EQ(accepted, (std::set<std::uint64_t>{1, 2, 3, 4}));
}

TEST_F(SentinelFailover, SU08_AllNodesGoneForLongerThanEveryLeaseAndBack) {
  RedisSentinelsOptions setup;
  setup.persistence = true;
  start(setup);
  // Long enough that no hold is lost too early on a host that stands still for a moment.
  const auto shortest = scaled(2s);
  Options settings = named(shortest);
  settings.commandTimeout = 500ms;
  settings.callTimeout = 10s;
  Client holder = Client::connect(settings);
  // A waiter's hold counts from its request, which waits for as long as there is no server.
  settings.watchdogTimeout = 3 * shortest;
  Client others = Client::connect(settings);
  const auto objects = contestedObjects(holder, [](const std::string& kind, std::size_t member) {
    return kind + std::to_string(member);
  });
  const Lease leased = holder.getLock("short").acquire({.lease = shortest});
  const ClosedAtEnd end(others);
  ASSERT_TRUE(contendAll(objects, others));
  replicate(0);
  for (std::size_t i = 0; i < world().sentinels(); ++i) {
    world().sentinel(i).kill();
  }
  for (std::size_t i = 0; i < world().nodes(); ++i) {
    world().node(i).kill();
  }
  EXPECT_EVENTUALLY(kLong, leased.lossReason() == LossReason::expired);
  for (const auto& object : objects) {
    SCOPED_TRACE(object->kind().name);
    if (object->kind().watched) {
      EXPECT_EVENTUALLY(kLong, object->lease()->lossReason() == LossReason::unreachable);
    }
    EXPECT_FALSE(object->entered());
  }
  for (std::size_t i = 0; i < world().nodes(); ++i) {
    world().node(i).start();
  }
  for (std::size_t i = 0; i < world().sentinels(); ++i) {
    world().sentinel(i).start();
  }
  world().awaitSettled();
  for (const auto& object : objects) {
    SCOPED_TRACE(object->kind().name);
    if (object->kind().watched) {
      EXPECT_EVENTUALLY(kLong, object->entered());
      EXPECT_FALSE(object->giveBack());
    } else {
      // The files have it.
      EXPECT_FALSE(object->entered());
      EXPECT_TRUE(object->giveBack());
      EXPECT_EVENTUALLY(kLong, object->entered());
    }
    EXPECT_EQ(object->outcome(), "ok");
    EXPECT_EQ(object->overlaps(), 0);
  }
  // A message wakes them again.
  const std::size_t master = world().awaitMaster();
  RLock lock = holder.getLock("after");
  lock.lock(300s);
  const std::int64_t scripts = raw(master).commandCalls("evalsha");
  Entrant waiter([&] { others.getLock("after").lock(60s); });
  const ClosedAtEnd endAfter(others);
  ASSERT_EVENTUALLY(kLong, others.stats().waiters == 1);
  // Its look after the confirmation must not find the lock free: nobody would wait for the message
  // then.
  ASSERT_EVENTUALLY(kLong, raw(master).commandCalls("evalsha") >= scripts + 2);
  const auto messages = others.stats().messages;
  lock.unlock();
  EXPECT_EVENTUALLY(kLong, waiter.in());
  EXPECT_EVENTUALLY(kLong, others.stats().messages > messages) << "no message came";
}

TEST_F(SentinelFailover, AServerThatBecomesAReplicaIsNoErrorForTheCaller) {
  start();
  // Each call may take as long as a failover does.
  Options settings = named(60s);
  settings.callTimeout = kLong;
  Client client = Client::connect(settings);
  std::atomic<bool> done{false};
  auto work = inThread([&] {
    std::vector<std::string> outcomes;
    for (int i = 0; !done || i < 100; ++i) {
      RLock lock = client.getLock("work" + std::to_string(i % 10));
      const std::string outcome = outcomeOf([&] {
        lock.lock(60s);
        lock.unlock();
      });
      if (outcome != "ok" && outcome != "notOwner") {
        outcomes.push_back(outcome);
      }
    }
    return outcomes;
  });
  const std::size_t master = world().failover();
  EXPECT_EVENTUALLY(kLong, log().contains("connected to " + world().address(master)));
  done = true;
  EXPECT_EQ(work.get(), std::vector<std::string>());
}

TEST_F(SentinelFailover, TP01_ManyNamesOverAFailoverAndTheReturnOfTheOldMaster) {
  start();
  // Each call may take as long as a failover does.
  Options settings = named(60s);
  settings.callTimeout = kLong;
  Client client = Client::connect(settings);
  std::atomic<bool> done{false};
  std::vector<std::future<std::pair<std::string, std::string>>> loads;
  for (int load = 0; load < 5; ++load) {
    loads.push_back(inThread([&, load] {
      std::string last;
      std::string bad;
      for (unsigned i = 0; !done; ++i) {
        RLock lock =
            client.getLock("tp" + std::to_string((i * 7 + static_cast<unsigned>(load)) % 20));
        last = outcomeOf([&] {
          lock.lock(10s);
          lock.unlock();
        });
        if (last != "ok" && last != "readOnly" && last != "notOwner") {
          bad += last + " ";
        }
        std::this_thread::sleep_for(5ms);
      }
      return std::pair(last, bad);
    }));
  }
  const auto acquired = [&] { return client.stats().acquired; };
  EXPECT_EVENTUALLY(kLong, acquired() > 100);
  world().node(0).kill();
  (void)world().awaitMaster(0);
  const auto moved = acquired();
  EXPECT_EVENTUALLY(kLong, acquired() > moved + 100);
  world().node(0).start();
  world().awaitSettled();
  const auto returned = acquired();
  EXPECT_EVENTUALLY(kLong, acquired() > returned + 100);
  done = true;
  for (auto& load : loads) {
    const auto [last, bad] = load.get();
    EXPECT_EQ(last, "ok");
    EXPECT_EQ(bad, "");
  }
}

}  // namespace
}  // namespace rlock::test
