// SPDX-License-Identifier: Apache-2.0

// Two or three calls at once, some 10,000 times each, and 100,000 times each by
// tests/matrix/races.sh. The product is compiled with a schedule point at every mutex and at every
// atomic that orders threads, where the threads give way to each other by lots that follow from a
// seed. Waiters have no safety poll that could save them: a lost wake-up is a call that does not
// end.
//
// RLOCK_RACE_ROUNDS is the number of rounds of each test, that is how often its calls meet. The
// default takes a few seconds, and ends early where it takes more than kEnough. RLOCK_RACE_SEED is
// the first seed, to begin where a failure was; the round that fails prints the command for that.

#include "races/memory_world.hpp"
#include "races/rounds.hpp"
#include "races/schedule.hpp"
#include <rlock/rlock.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace rlock::races {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Longer than any round takes on a loaded machine, and far shorter than the safety poll.
constexpr auto kEnds = 20s;

/// So long a test goes on with its rounds on a machine that is busy with other work.
constexpr auto kEnough = 40s;

/// Threads that begin one step of a round at the same moment, again and again.
class Crew {
 public:
  using Step = std::function<void()>;

  explicit Crew(std::size_t size) : steps_(size), seeds_(size) {
    for (std::size_t i = 0; i < size; ++i) {
      threads_.emplace_back([this, i] { work(i); });
    }
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      ++round_;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  /// Returns whether all have ended in time.
  bool run(std::uint64_t seed, std::vector<Step> steps) {
    std::unique_lock lock(mutex_);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      steps_[i] = i < steps.size() ? std::move(steps[i]) : Step();
      seeds_[i] = seed * 7 + i;
    }
    left_ = steps_.size();
    ++round_;
    changed_.notify_all();
    return changed_.wait_for(lock, kEnds, [this] { return left_ == 0; });
  }

 private:
  void work(std::size_t number) {
    std::uint64_t done = 0;
    for (;;) {
      Step step;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return round_ != done; });
        done = round_;
        if (ending_) {
          return;
        }
        step = std::move(steps_[number]);
        seedThread(seeds_[number]);
      }
      if (step) {
        step();
      }
      const std::lock_guard lock(mutex_);
      if (--left_ == 0) {
        changed_.notify_all();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Step> steps_;
  std::vector<std::uint64_t> seeds_;
  std::uint64_t round_ = 0;
  std::size_t left_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

class Races : public testing::Test {
 protected:
  Races() {
    options_.log = [](LogLevel, std::string_view) {};
    // Nothing but a wake-up may wake a waiter, and nothing but a release may end a hold.
    options_.safetyPoll = 1h;
    options_.watchdogTimeout = 10min;
    options_.subscriptionLinger = 1min;
  }

  Client connect() { return memoryClient(server_, weather_, options_); }
  static std::string describe(const Stats& stats) {
    return "waiters " + std::to_string(stats.waiters) + ", holds " + std::to_string(stats.holds) +
           ", wake-ups " + std::to_string(stats.wakeUps) + ", safety polls " +
           std::to_string(stats.safetyPolls) + ", commands " + std::to_string(stats.commands) +
           ", reconnects " + std::to_string(stats.reconnects);
  }

  /// @param round  does one round, given its seed; it stops at the first failure
  /// @param meetings  how often the calls that the test is about meet in one round:
  /// RLOCK_RACE_ROUNDS
  ///   counts each of them
  void rounds(std::uint64_t count,
              const std::function<void(std::uint64_t seed)>& round,
              std::uint64_t meetings = 1) {
    const std::uint64_t first = fromEnvironment("RLOCK_RACE_SEED", 1);
    const std::uint64_t wanted = fromEnvironment("RLOCK_RACE_ROUNDS", count * meetings / kSlowness);
    const std::uint64_t last = first + (wanted + meetings - 1) / meetings;
    // Each meeting is a few thread switches, and one takes milliseconds where others compute: there
    // a tenth of the default number is enough. A number that was asked for is kept.
    const bool askedFor = std::getenv("RLOCK_RACE_ROUNDS") != nullptr;
    const std::uint64_t least = first + (last - first) / 10;
    const auto enough = Clock::now() + kEnough;
    for (std::uint64_t seed = first; seed < last && !HasFailure(); ++seed) {
      if (!askedFor && seed >= least && Clock::now() > enough) {
        std::printf("%llu of %llu rounds\n",
                    static_cast<unsigned long long>(seed - first),
                    static_cast<unsigned long long>(last - first));
        break;
      }
      seedThread(seed);
      round(seed);
      // Also where another thread than this one has noticed.
      if (HasFailure()) {
        std::printf("%s\n", replayCommand(seed, std::max<std::uint64_t>(1000, meetings)).c_str());
      }
    }
  }

  /// As Crew::run(). A call that never ends cannot be waited for.
  void atOnce(std::uint64_t seed, std::vector<Crew::Step> steps) {
    if (!crew_.run(seed, std::move(steps))) {
      std::fprintf(stderr,
                   "%s: a call does not end\n%s\nthe server has:\n%s\n",
                   testing::UnitTest::GetInstance()->current_test_info()->name(),
                   replayCommand(seed).c_str(),
                   server_.dump().c_str());
      if (watched_ != nullptr) {
        for (int second = 0; second < 3; ++second) {
          std::fprintf(stderr, "%s\n", describe(watched_->stats()).c_str());
          std::this_thread::sleep_for(1s);
        }
      }
      std::abort();
    }
  }

  static std::string outcomeOf(const std::function<void()>& call) {
    try {
      call();
      return "ok";
    } catch (const Error& error) {
      return std::string(toString(error.errc()));
    }
  }

  /// Work in the background ends soon; the round is not over before.
  void expectFree(const char* key = "l") {
    const auto deadline = Clock::now() + kEnds;
    while (server_.command({"EXISTS", key}).integer != 0) {
      if (Clock::now() > deadline) {
        ADD_FAILURE() << "it is still held:\n" << server_.dump();
        return;
      }
      std::this_thread::yield();
    }
  }

  /// The client whose numbers are printed when a call does not end.
  const Client* watched_ = nullptr;
  RaceServer server_;
  Weather weather_;
  Options options_ = Options::fromUri("redis://memory?hand-over-limit=16");
  Crew crew_{3};
};

// The waiter queues while the holder releases: the message is sent before, between or after.
TEST_F(Races, AcquiringAndReleasing) {
  Client client = connect();
  Client other = connect();
  long unprotected = 0;
  std::uint64_t done = 0;
  rounds(12'000, [&](std::uint64_t seed) {
    Client& second = seed % 2 == 0 ? client : other;
    RLock held = client.getLock("l");
    RLock wanted = second.getLock("l");
    auto lease = std::make_optional(held.acquire());
    atOnce(seed,
           {[&] {
              const long seen = unprotected;
              unprotected = seen + 1;
              lease->release();
            },
            [&] {
              wanted.lock();
              const long seen = unprotected;
              unprotected = seen + 1;
              wanted.unlock();
            }});
    done += 2;
    expectFree();
  });
  EXPECT_EQ(static_cast<std::uint64_t>(unprotected), done);
}

// The first waiter gets the message and is cancelled: its turn must go on to the second.
TEST_F(Races, CancellingAndGranting) {
  Client client = connect();
  rounds(12'000, [&](std::uint64_t seed) {
    RLock lock = client.getLock("l");
    auto lease = std::make_optional(lock.acquire());
    std::stop_source stop;
    std::string first;
    std::string second;
    std::vector<Crew::Step> steps{[&] {
                                    first = outcomeOf([&] {
                                      if (lock.tryLock(stop.get_token(), 1h)) {
                                        lock.unlock();
                                      }
                                    });
                                  },
                                  [&] {
                                    second = outcomeOf([&] {
                                      lock.lock();
                                      lock.unlock();
                                    });
                                  },
                                  [&] {
                                    if (draw() % 2 == 0) {
                                      stop.request_stop();
                                      lease->release();
                                    } else {
                                      lease->release();
                                      stop.request_stop();
                                    }
                                  }};
    atOnce(seed, std::move(steps));
    EXPECT_TRUE(first == "ok" || first == "cancelled") << first;
    EXPECT_EQ(second, "ok");
    expectFree();
  });
}

// The stop comes before, between and after the steps with which an attempt begins.
TEST_F(Races, CancellingARedLock) {
  Client client = connect();
  watched_ = &client;
  rounds(4'000, [&](std::uint64_t seed) {
    RLock group = redLock({client.getLock("a"), client.getLock("b"), client.getLock("c")});
    std::stop_source stop;
    std::string outcome;
    atOnce(seed,
           {[&] {
              outcome =
                  outcomeOf([&] { static_cast<void>(group.acquire({.stop = stop.get_token()})); });
            },
            [&] { stop.request_stop(); }});
    EXPECT_TRUE(outcome == "ok" || outcome == "cancelled") << outcome;
    for (const char* name : {"a", "b", "c"}) {
      expectFree(name);
    }
  });
}

// The first waiter's time ends while the message is on its way to it.
TEST_F(Races, TimeRunningOutAndGranting) {
  Client client = connect();
  rounds(6'000, [&](std::uint64_t seed) {
    RLock lock = client.getLock("l");
    auto lease = std::make_optional(lock.acquire());
    atOnce(seed,
           {[&] {
              const std::string outcome = outcomeOf([&] {
                if (lock.tryLock(std::chrono::microseconds(1 + draw() % 300))) {
                  lock.unlock();
                }
              });
              // A thread that stood still says that the answer did not come in its time.
              EXPECT_TRUE(outcome == "ok" || outcome == "timedOut") << outcome;
            },
            [&] {
              lock.lock();
              lock.unlock();
            },
            [&] {
              std::this_thread::sleep_for(std::chrono::microseconds(draw() % 300));
              lease->release();
            }});
    expectFree();
  });
}

TEST_F(Races, GrantingAndClosing) {
  rounds(3'000, [&](std::uint64_t seed) {
    Client client = connect();
    std::optional<Lease> lease;
    std::string outcome;
    atOnce(seed,
           {[&] { outcome = outcomeOf([&] { lease = client.getLock("l").acquire(); }); },
            [&] { client.close(5s); }});
    EXPECT_TRUE(outcome == "ok" || outcome == "closed") << outcome;
    EXPECT_TRUE(!lease || !lease->held());
    // close() has returned: what was held was given back before, or is no more.
    EXPECT_EQ(server_.command({"EXISTS", "l"}).integer, 0) << server_.dump();
    server_.command({"DEL", "l"});
  });
}

// The lock is on its way from one owner of a client to the next one.
TEST_F(Races, HandingOverAndClosing) {
  rounds(2'000, [&](std::uint64_t seed) {
    Client client = connect();
    auto lease = std::make_optional(client.getLock("l").acquire());
    std::string outcome;
    atOnce(seed,
           {[&] { outcome = outcomeOf([&] { client.getLock("l").lock(); }); },
            [&] { lease->release(); },
            [&] { client.close(5s); }});
    EXPECT_TRUE(outcome == "ok" || outcome == "closed") << outcome;
    EXPECT_EQ(server_.command({"EXISTS", "l"}).integer, 0) << server_.dump();
    server_.command({"DEL", "l"});
  });
}

// Owners of one client only, which hand the lock over, more often than one after the other may.
TEST_F(Races, HandingOver) {
  Client client = connect();
  long unprotected = 0;
  std::atomic<std::uint64_t> done{0};
  rounds(4'000, [&](std::uint64_t seed) {
    const auto take = [&] {
      RLock lock = client.getLock("l");
      for (int i = 0; i < 4; ++i) {
        if (draw() % 4 == 0) {
          bool held = false;
          const std::string outcome =
              outcomeOf([&] { held = lock.tryLock(std::chrono::microseconds(1 + draw() % 200)); });
          // A thread that stood still says that the answer did not come in its time.
          EXPECT_TRUE(outcome == "ok" || outcome == "timedOut") << outcome;
          if (!held) {
            continue;
          }
        } else {
          lock.lock();
        }
        const long seen = unprotected;
        unprotected = seen + 1;
        ++done;
        lock.unlock();
      }
    };
    atOnce(seed, {take, take, take});
    expectFree();
  });
  EXPECT_EQ(static_cast<std::uint64_t>(unprotected), done.load());
}

TEST_F(Races, WaitingAndClosing) {
  Client holder = connect();
  rounds(2'000, [&](std::uint64_t seed) {
    Client client = connect();
    auto lease = std::make_optional(holder.getLock("l").acquire());
    std::string outcome;
    atOnce(seed,
           {[&] { outcome = outcomeOf([&] { client.getLock("l").lock(); }); },
            [&] { client.close(5s); },
            [&] { lease->release(); }});
    EXPECT_TRUE(outcome == "ok" || outcome == "closed") << outcome;
    expectFree();
  });
}

// Another client frees the lock by force while its owner takes it once more.
TEST_F(Races, ForcedReleaseAndReentry) {
  Client client = connect();
  Client other = connect();
  rounds(8'000, [&](std::uint64_t seed) {
    RLock lock = client.getLock("l");
    const OwnerId owner = newOwner();
    ASSERT_TRUE(lock.tryLockAsync({}, owner).get());
    std::string again;
    Client& forcing = seed % 2 == 0 ? client : other;
    atOnce(
        seed,
        {[&] { again = outcomeOf([&] { static_cast<void>(lock.tryLockAsync({}, owner).get()); }); },
         [&] { forcing.getLock("l").forceUnlock(); }});
    EXPECT_EQ(again, "ok");
    // As many releases as there are holds, then none.
    int releases = 0;
    while (outcomeOf([&] { lock.unlockAsync(owner).get(); }) == "ok" && releases < 3) {
      ++releases;
    }
    EXPECT_LE(releases, 1);
    expectFree();
  });
}

// The thread in whose name a lock is taken ends meanwhile.
TEST_F(Races, TheEndOfAThreadAndGranting) {
  Client client = connect();
  rounds(3'000, [&](std::uint64_t seed) {
    RLock lock = client.getLock("l");
    std::optional<OwnerId> owner;
    std::barrier begin(3);
    std::thread ending([&] {
      owner = currentOwner();
      begin.arrive_and_wait();
    });
    std::optional<Lease> lease;
    atOnce(seed,
           {[&] {
              begin.arrive_and_wait();
              lease = lock.tryAcquireAsync({}, *owner).get();
            },
            [&] { begin.arrive_and_wait(); }});
    ending.join();
    ASSERT_TRUE(lease);
    // It is left to expire, and its holder is told.
    const auto deadline = Clock::now() + kEnds;
    while (lease->lossReason() == LossReason::none && Clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_EQ(lease->lossReason(), LossReason::threadEnded);
    EXPECT_FALSE(lease->held());
    server_.command({"DEL", "l"});
  });
}

// A renewal that was under way when the release was sent must not bring the hold back. A round
// waits for the moment at which renewals are due, so it has many holds, and each of them is renewed
// and released at that moment.
TEST_F(Races, ReleaseAndRenewal) {
  constexpr std::size_t kHolds = 128;
  options_.watchdogTimeout = 300ms;
  Client client = connect();
  const auto body = [&](std::uint64_t seed) {
    std::vector<std::string> keys;
    std::vector<Lease> leases;
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < kHolds; ++i) {
      keys.push_back("l" + std::to_string(i));
      leases.push_back(client.getLock(keys.back()).acquire());
    }
    // The first is due at the former moment, the last at the latter.
    const auto due = begin + 100ms;
    const auto end = Clock::now() + 100ms;
    const auto spread = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(end - due + 3ms).count());
    const auto release = [&](std::size_t from, std::size_t to) {
      return [&, from, to] {
        std::this_thread::sleep_until(due + std::chrono::microseconds(draw() % spread));
        for (std::size_t i = from; i < to; ++i) {
          const ReleaseResult result = leases[i].release();
          // Only a host that stood still for the rest of the lease may have lost it.
          const bool late = Clock::now() >= begin + options_.watchdogTimeout;
          EXPECT_TRUE(result == ReleaseResult::released || (late && result == ReleaseResult::lost))
              << keys[i];
        }
      };
    };
    atOnce(seed, {release(0, kHolds / 2), release(kHolds / 2, kHolds)});
    for (const std::string& key : keys) {
      EXPECT_EQ(server_.command({"EXISTS", key}).integer, 0) << key;
    }
  };
  rounds(40, body, kHolds);
  EXPECT_GT(client.stats().renewals, 0U);
}

TEST_F(Races, ReadersAndAWriter) {
  Client client = connect();
  Client other = connect();
  long unprotected = 0;
  rounds(4'000, [&](std::uint64_t seed) {
    const auto reads = [&](Client& from) {
      return [&] {
        RLock lock = from.getReadWriteLock("l").readLock();
        lock.lock();
        const long seen = unprotected;
        std::this_thread::yield();
        EXPECT_EQ(unprotected, seen);
        lock.unlock();
      };
    };
    atOnce(seed, {reads(client), reads(other), [&] {
                    RLock lock = client.getReadWriteLock("l").writeLock();
                    lock.lock();
                    ++unprotected;
                    lock.unlock();
                  }});
    expectFree();
  });
}

TEST_F(Races, PermitsOfASemaphore) {
  Client client = connect();
  Semaphore permits = client.getSemaphore("s");
  permits.trySetPermits(1);
  long unprotected = 0;
  std::uint64_t done = 0;
  rounds(8'000, [&](std::uint64_t seed) {
    const auto use = [&] {
      permits.acquire();
      const long seen = unprotected;
      unprotected = seen + 1;
      permits.release();
    };
    atOnce(seed, {use, use, use});
    done += 3;
  });
  EXPECT_EQ(static_cast<std::uint64_t>(unprotected), done);
  EXPECT_EQ(permits.availablePermits(), 1);
}

TEST_F(Races, CountingDownAndAwaiting) {
  Client client = connect();
  Client other = connect();
  CountDownLatch latch = client.getCountDownLatch("c");
  CountDownLatch same = other.getCountDownLatch("c");
  rounds(8'000, [&](std::uint64_t seed) {
    ASSERT_TRUE(latch.trySetCount(1));
    atOnce(seed, {[&] { latch.await(); }, [&] { same.await(); }, [&] { same.countDown(); }});
    EXPECT_EQ(latch.getCount(), 0);
  });
}

// Fair waiters have a channel each, and the server says whose turn it is.
TEST_F(Races, FairWaitersAndARelease) {
  Client client = connect();
  Client other = connect();
  long unprotected = 0;
  std::uint64_t done = 0;
  rounds(4'000, [&](std::uint64_t seed) {
    auto lease = std::make_optional(client.getFairLock("l").acquire());
    const auto take = [&](Client& from) {
      return [&] {
        RLock lock = from.getFairLock("l");
        lock.lock();
        const long seen = unprotected;
        unprotected = seen + 1;
        lock.unlock();
      };
    };
    atOnce(seed, {take(client), take(other), [&] { lease->release(); }});
    done += 2;
    expectFree();
  });
  EXPECT_EQ(static_cast<std::uint64_t>(unprotected), done);
}

// A caller that leaves gives its place in the server's queue up while the loop, which has read the
// refusal of its request, has it queue.
TEST_F(Races, FairWaitersThatLeaveAsTheyAreRefused) {
  weather_.late = 300;
  weather_.lost = 60;
  Client client = connect();
  watched_ = &client;
  rounds(6'000, [&](std::uint64_t seed) {
    RLock lock = client.getFairLock("l");
    auto lease = std::make_optional(lock.acquire());
    std::stop_source stop;
    std::string outcome;
    atOnce(seed,
           {[&] {
              outcome = outcomeOf([&] {
                if (lock.tryLock(stop.get_token(), 1h)) {
                  lock.unlock();
                }
              });
            },
            [&] { stop.request_stop(); }});
    EXPECT_EQ(outcome, "cancelled");
    lease.reset();
    expectFree();
  });
}

// Connections break under the calls; some requests run, some later, some never.
TEST_F(Races, LostConnections) {
  weather_.late = 100;
  weather_.lost = 30;
  Client client = connect();
  Client other = connect();
  long unprotected = 0;
  std::uint64_t done = 0;
  rounds(8'000, [&](std::uint64_t seed) {
    const auto take = [&](Client& from) {
      return [&] {
        RLock lock = from.getLock("l");
        lock.lock();
        const long seen = unprotected;
        unprotected = seen + 1;
        EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
      };
    };
    atOnce(seed, {take(client), take(other), take(client)});
    done += 3;
    expectFree();
  });
  EXPECT_EQ(static_cast<std::uint64_t>(unprotected), done);
}

TEST_F(Races, LostConnectionsAndCancelling) {
  weather_.late = 200;
  weather_.lost = 60;
  Client client = connect();
  watched_ = &client;
  rounds(8'000, [&](std::uint64_t seed) {
    RLock lock = client.getLock("l");
    std::stop_source stop;
    std::string first;
    atOnce(seed,
           {[&] {
              first = outcomeOf([&] {
                if (lock.tryLock(stop.get_token(), 1h)) {
                  lock.unlock();
                }
              });
            },
            [&] {
              lock.lock();
              lock.unlock();
            },
            [&] { stop.request_stop(); }});
    EXPECT_TRUE(first == "ok" || first == "cancelled") << first;
    expectFree();
  });
}

}  // namespace
}  // namespace rlock::races
