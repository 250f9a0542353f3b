// SPDX-License-Identifier: Apache-2.0

// Objects, threads, callbacks and loops that come and go while locks are held and waited for.

#include "integration/lock_harness.hpp"
#include "support/closed_at_end.hpp"

#include <uv.h>

#include <filesystem>
#include <shared_mutex>
#include <stdexcept>

namespace rlock::test {
namespace {

class LockLifecycle : public LockTest {};
class LockLifecycleSlow : public LockTest {};
class LockCancel : public FaceTest {};
class LockMutex : public LockTest {};
class LockOwnLoop : public LockTest {};

INSTANTIATE_TEST_SUITE_P(Faces, LockCancel, ::testing::ValuesIn(kFaces), faceName);

[[nodiscard]] std::size_t entriesOf(const char* directory) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) {
    ++count;
  }
  return count;
}

// Handles.

TEST_F(LockLifecycle, XCPP2_HandlesMayGoWhileTheirWorkGoesOn) {
  Client client = connect();
  const OwnerId owner = newOwner();
  std::future<void> locked;
  std::future<bool> waiting;
  {
    RLock lock = client.getLock("cpp2");
    locked = lock.lockAsync({}, owner).toFuture();
  }
  locked.get();
  {
    RLock lock = client.getLock("cpp2");
    waiting = lock.tryLockAsync({.wait = 30s}, newOwner()).toFuture();
  }
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  EXPECT_EQ(outcomeOf(client.getLock("cpp2").unlockAsync(owner).wait()), "ok");
  EXPECT_TRUE(waiting.get());
}

TEST_F(LockLifecycle, XCPP2_AnOperationDroppedUnstartedDoesNothing) {
  Client client = connect();
  raw().resetStats();
  static_cast<void>(client.getLock("cpp2").lockAsync());
  static_cast<void>(client.getLock("cpp2").acquireAsync());
  EXPECT_EQ(raw().commandCalls("evalsha") + raw().commandCalls("eval"), 0);
}

TEST_F(LockLifecycle, XCPP2_AFutureThatNobodyReads) {
  Client client = connect();
  static_cast<void>(client.getLock("cpp2").lockAsync().toFuture());
  EXPECT_EVENTUALLY(kLong, raw().exists("cpp2"));
}

TEST_F(LockLifecycle, HandlesOutliveTheClient) {
  std::optional<Client> client = connect();
  RLock lock = client->getLock("outlive");
  Lease lease = client->getLock("leased").acquire();
  client.reset();
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "closed");
  EXPECT_EQ(answerOf([&] { return lock.tryLock(1s); }), "closed");
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "closed");
  EXPECT_EQ(answerOf([&] { return lock.isLocked(); }), "closed");
  for (const Face face : kFaces) {
    auto future = startBy(face, lock.tryLockAsync(newOwner()));
    EXPECT_EQ(answerOf(future.get()), "closed") << face;
  }
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
}

// The end of a client.

TEST_F(LockLifecycle, XCPP3_CloseEndsEveryWaitingCall) {
  rawHold("cpp3", "foreign:1", 60s);
  auto client = std::make_unique<Client>(connect());
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 8; ++i) {
    threads.push_back(inThread([&client, i, lock = client->getLock("cpp3")]() mutable {
      return i % 2 == 0 ? outcomeOf([&] { lock.lock(); })
                        : answerOf([&] { return lock.tryLock(50s); });
    }));
  }
  std::vector<std::future<Result<bool>>> calls;
  for (const Face face : {Face::callback, Face::future, Face::coroutine}) {
    for (int i = 0; i < 3; ++i) {
      calls.push_back(startBy(
          face, client->getLock("cpp3").tryLockAsync({.wait = Duration::max()}, newOwner())));
    }
  }
  ASSERT_EVENTUALLY(kLong, client->stats().waiters == 17);
  const Stopwatch watch;
  client.reset();
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "closed");
  }
  for (auto& call : calls) {
    EXPECT_EQ(answerOf(call.get()), "closed");
  }
  EXPECT_LT(watch.elapsedMs(), scaled(3s));
  EXPECT_EQ(raw().hgetall("cpp3").size(), 1U);
}

TEST_F(LockLifecycle, CloseEndsAWaitThatACallbackWaitsFor) {
  rawHold("cpp3", "foreign:1", 60s);
  Client client = connect();
  auto waiter = inThread([&] { return outcomeOf([&] { client.getLock("cpp3").lock(); }); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  // The loop stands still in it until the waiter has ended.
  struct Callback {
    std::promise<void> begun;
    std::promise<void> ends;
  };
  const auto callback = std::make_shared<Callback>();
  client.getLock("other").isLockedAsync().start([callback](const Result<bool>&) {
    callback->begun.set_value();
    callback->ends.get_future().wait_for(kLong);
  });
  callback->begun.get_future().wait();
  client.close(200ms);
  EXPECT_EQ(waiter.wait_for(scaled(1s)), std::future_status::ready);
  callback->ends.set_value();
  EXPECT_EQ(waiter.get(), "closed");
}

TEST_F(LockLifecycle, XCPP3_CloseWhileTheServerIsFrozen) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  rawHold("cpp3", "foreign:1", 60s);
  Client client = connect();
  auto waiter = inThread([&] { return outcomeOf([&] { client.getLock("cpp3").lock(); }); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  server().freeze();
  auto asking = inThread([&] { return answerOf([&] { return client.getLock("x").isLocked(); }); });
  std::this_thread::sleep_for(50ms);
  const Stopwatch watch;
  client.close(200ms);
  EXPECT_EQ(waiter.get(), "closed");
  EXPECT_EQ(asking.get(), "closed");
  EXPECT_LT(watch.elapsedMs(), 200ms + scaled(500ms));
  server().thaw();
}

TEST_F(LockLifecycle, XCPP3_CloseWhileTheServerIsAway) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client client = connect();
  client.getLock("cpp3").lock();
  server().kill();
  auto waiter = inThread([&] { return outcomeOf([&] { client.getLock("other").lock(); }); });
  std::this_thread::sleep_for(100ms);
  const Stopwatch watch;
  client.close(200ms);
  EXPECT_EQ(waiter.get(), "closed");
  EXPECT_LT(watch.elapsedMs(), 200ms + scaled(500ms));
}

TEST_F(LockLifecycle, XCPP3_TheLastReferenceDiesInACallback) {
  auto client = std::make_shared<std::optional<Client>>(connect());
  RLock lock = (*client)->getLock("cpp3");
  std::promise<void> gone;
  auto future = gone.get_future();
  lock.lockAsync().start([&gone, client](const Result<void>&) mutable {
    client->reset();
    client.reset();
    gone.set_value();
  });
  client.reset();
  EXPECT_TRUE(ready(future, kLong));
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "closed");
}

TEST_F(LockLifecycle, CloseFromManyThreadsAtOnce) {
  Client client = connect();
  client.getLock("close").lock();
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 8; ++i) {
    threads.push_back(inThread([&] { return outcomeOf([&] { client.close(2s); }); }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  client.close(2s);
  EXPECT_EQ(outcomeOf([&] { client.getLock("close").lock(); }), "closed");
  EXPECT_EVENTUALLY(kLong, !raw().exists("close"));
}

TEST_F(LockLifecycle, CloseInsideCallbacks) {
  for (int round = 0; round < 5; ++round) {
    Client client = connect();
    std::promise<void> closed;
    auto future = closed.get_future();
    client.getLock("close").tryLockAsync().start([&](const Result<bool>&) {
      client.close(1s);
      closed.set_value();
    });
    EXPECT_TRUE(ready(future, kLong));
    EXPECT_EQ(outcomeOf([&] { client.getLock("close").lock(); }), "closed");
    EXPECT_EVENTUALLY(kLong, !raw().exists("close"));
  }
}

TEST_F(LockLifecycle, CloseInsideTheLossCallbacks) {
  Options settings = options();
  std::optional<Client> client;
  std::promise<void> closed;
  std::atomic<int> calls{0};
  settings.onLost = [&](const LostHold&) {
    if (calls.fetch_add(1) == 0) {
      client->close(1s);
      closed.set_value();
    }
  };
  client.emplace(Client::connect(settings));
  client->getLock("close2").lock();
  client->getLock("close").lock(100ms);
  auto future = closed.get_future();
  EXPECT_TRUE(ready(future, kLong));
  client.reset();
  EXPECT_EVENTUALLY(kLong, !raw().exists("close2"));
}

TEST_F(LockLifecycle, CallsRacingWithCloseEndWithoutAnswerOrWithClosed) {
  Options settings = options();
  // Nothing goes by itself before somebody looks.
  settings.watchdogTimeout = 4 * kLong;
  for (int round = 0; round < 10; ++round) {
    auto client = std::make_unique<Client>(Client::connect(settings));
    // In a cluster it has a connection to the node of the lock from here on.
    EXPECT_FALSE(client->getLock("race").isLocked());
    std::vector<std::future<std::vector<std::string>>> threads;
    std::atomic<bool> started{false};
    for (int i = 0; i < 6; ++i) {
      threads.push_back(inThread([&started, lock = client->getLock("race")]() mutable {
        std::vector<std::string> odd;
        started = true;
        for (;;) {
          const std::string got = answerOf([&] { return lock.tryLock(5ms); });
          if (got == "closed") {
            return odd;
          }
          if (got == "true") {
            const std::string gone = outcomeOf([&] { lock.unlock(); });
            if (gone == "closed") {
              return odd;
            }
            if (gone != "ok") {
              odd.push_back("unlock " + gone);
            }
          } else if (got != "false" && got != "timedOut") {
            odd.push_back("tryLock " + got);
          }
        }
      }));
    }
    EXPECT_EVENTUALLY(kLong, started.load());
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    client->close(2s);
    for (auto& thread : threads) {
      EXPECT_EQ(thread.get(), std::vector<std::string>());
    }
    EXPECT_EVENTUALLY(kLong, !raw().exists("race")) << "a hold was left behind";
  }
}

TEST_F(LockLifecycle, C6_NoThreadDescriptorOrConnectionIsLeft) {
  RLOCK_ONE_SERVER_ONLY("counts all connections to its server");
  static_cast<void>(connect());
  const std::size_t threads = entriesOf("/proc/self/task");
  const std::size_t descriptors = entriesOf("/proc/self/fd");
  for (int i = 0; i < 10; ++i) {
    Client client = connect();
    RLock lock = client.getLock("leak");
    lock.lock();
    expectNotObtained(
        inThread([&] { return answerOf([&] { return lock.tryLock(300ms); }); }).get());
    lock.unlock();
  }
  EXPECT_EVENTUALLY(kLong, entriesOf("/proc/self/task") <= threads);
  EXPECT_EVENTUALLY(kLong, entriesOf("/proc/self/fd") <= descriptors);
  EXPECT_EVENTUALLY(kLong, raw().clientList().size() == 1);
  EXPECT_TRUE(raw().pubsubChannels("redisson*").empty());
}

TEST_F(LockLifecycle, ClientsMove) {
  Client one = connect();
  const std::string id = one.id();
  RLock lock = one.getLock("move");
  lock.lock();
  Client two = std::move(one);
  EXPECT_EQ(two.id(), id);
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  Client three = connect();
  three = std::move(two);
  EXPECT_EQ(three.id(), id);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
}

// Coroutines.

Detached criticalSection(RLock lock,
                         OwnerId owner,
                         Resource& resource,
                         std::atomic<int>& done,
                         std::atomic<int>& failed) {
  try {
    // Named: GCC 12 destroys a braced argument inside a co_await expression twice.
    Operation<void> locking = lock.lockAsync({}, owner);
    co_await std::move(locking);
    resource.use();
    co_await lock.unlockAsync(owner);
    done.fetch_add(1);
  } catch (const Error&) {
    failed.fetch_add(1);
  }
}

TEST_F(LockLifecycle, XCPP8_ACoroutineResumesElsewhereAndStillOwnsItsLock) {
  std::vector<std::thread> pool;
  std::mutex mutex;
  Options settings = options();
  // Every callback on a thread of its own.
  settings.executor = [&](std::function<void()> task) {
    const std::lock_guard guard(mutex);
    pool.emplace_back(std::move(task));
  };
  Resource resource;
  std::atomic<int> done{0};
  std::atomic<int> failed{0};
  {
    Client client = Client::connect(settings);
    for (int i = 0; i < 20; ++i) {
      criticalSection(client.getLock("cpp8"), newOwner(), resource, done, failed);
    }
    EXPECT_EVENTUALLY(kLong, done.load() + failed.load() == 20);
  }
  EXPECT_EQ(done.load(), 20);
  EXPECT_EQ(resource.value(), 20);
  EXPECT_EQ(resource.overlaps(), 0);
  const std::lock_guard guard(mutex);
  for (std::thread& thread : pool) {
    thread.join();
  }
}

TEST_F(LockLifecycle, XCPP7_AnExceptionLeavesNoHold) {
  Client client = connect();
  RLock lock = client.getLock("cpp7");
  EXPECT_EQ(outcomeOf([&] {
              const Lease lease = lock.acquire();
              throw std::runtime_error("work failed");
            }),
            "work failed");
  EXPECT_EVENTUALLY(kLong, !raw().exists("cpp7"));
}

// Cancelling.

TEST_P(LockCancel, XCPP11_AStopAtAnyMomentLeavesNothing) {
  Client client = connect();
  const auto sweep = [&](bool contended) {
    int obtained = 0;
    int cancelled = 0;
    for (int step = 0; step < 60; ++step) {
      // A lock for each: what a stopped call obtains late must not meet the next foreign hold.
      const std::string name = (contended ? "cpp11-held-" : "cpp11-free-") + std::to_string(step);
      if (contended) {
        rawHold(name, "foreign:1", 60s);
      }
      const OwnerId owner = newOwner();
      std::stop_source stop;
      auto call = inThread([&] {
        AcquireOptions options;
        options.wait = 10s;
        options.stop = stop.get_token();
        return answerOf(
            runBy(GetParam(), client.getLock(name).tryLockAsync(std::move(options), owner)));
      });
      std::this_thread::sleep_for(std::chrono::microseconds(20 * step));
      if (contended) {
        rawRelease(name);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(7 * step));
      stop.request_stop();
      const std::string answer = call.get();
      if (answer == "true") {
        ++obtained;
        EXPECT_EQ(outcomeOf(client.getLock(name).unlockAsync(owner).wait()), "ok");
      } else {
        EXPECT_EQ(answer, "cancelled");
        ++cancelled;
      }
      EXPECT_EVENTUALLY(kLong, !raw().exists(name));
    }
    return std::pair(obtained, cancelled);
  };
  const auto [freeObtained, freeCancelled] = sweep(false);
  const auto [heldObtained, heldCancelled] = sweep(true);
  EXPECT_EQ(freeObtained + freeCancelled + heldObtained + heldCancelled, 120);
  EXPECT_GT(freeCancelled + heldCancelled, 0);
  EXPECT_EVENTUALLY(kLong, client.stats().holds == 0);
  EXPECT_EQ(client.stats().waiters, 0U);
}

TEST_P(LockCancel, EveryWaitingFormTakesAStopToken) {
  Client client = connect();
  rawHold("stop", "foreign:1", 60s);
  std::stop_source stop;
  std::vector<std::future<std::string>> calls;
  const auto start = [&](auto make) {
    calls.push_back(inThread([&, make] { return outcomeOf(runBy(GetParam(), make())); }));
  };
  const auto withStop = [&] {
    AcquireOptions options;
    options.stop = stop.get_token();
    return options;
  };
  start([&] { return client.getLock("stop").lockAsync(withStop(), newOwner()); });
  start([&] { return client.getLock("stop").acquireAsync(withStop(), newOwner()); });
  start([&] {
    return client.getLock("stop").lockInterruptiblyAsync(stop.get_token(), {}, newOwner());
  });
  calls.push_back(inThread([&] {
    return outcomeOf([&] { client.getLock("stop").lockInterruptibly(stop.get_token()); });
  }));
  calls.push_back(inThread([&] {
    return answerOf([&] { return client.getLock("stop").tryLock(stop.get_token(), 60s); });
  }));
  calls.push_back(inThread([&] {
    return answerOf(runBy(
        GetParam(), client.getLock("stop").tryLockAsync(stop.get_token(), 60s, {}, newOwner())));
  }));
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == calls.size());
  const Stopwatch watch;
  stop.request_stop();
  for (auto& call : calls) {
    EXPECT_EQ(call.get(), "cancelled");
  }
  EXPECT_LT(watch.elapsedMs(), scaled(1s));
  EXPECT_EQ(client.stats().waiters, 0U);
}

// Callbacks.

TEST_F(LockLifecycleSlow, XCPP15_CallbacksThatThrowAreCountedAndSurvived) {
  Options settings = options(kWatchdog);
  settings.onLost = [](const LostHold&) { throw std::runtime_error("from onLost"); };
  Client client = Client::connect(settings);
  RLock lock = client.getLock("cpp15");
  lock.lockAsync({}, newOwner()).start([](const Result<void>&) {
    throw std::runtime_error("from a handler");
  });
  EXPECT_EVENTUALLY(kLong, client.stats().handlerFailures == 1);
  lock.forceUnlock();
  EXPECT_EVENTUALLY(kLong, client.stats().handlerFailures == 2);
  // An exception is counted before it is logged.
  EXPECT_EVENTUALLY(kLong, log().contains("from onLost"));
  EXPECT_EVENTUALLY(kLong, log().contains("from a handler"));
  Lease lease = client.getLock("alive").acquire();
  std::this_thread::sleep_for(kWatchdog + kWatchdog / 2);
  EXPECT_TRUE(lease.held());
}

TEST_F(LockLifecycle, XCPP15_CallbacksThatCallBack) {
  Options settings = options();
  std::optional<Client> client;
  std::promise<std::string> told;
  settings.onLost = [&](const LostHold& hold) {
    if (hold.reason == LossReason::clientClosed) {
      return;  // the second hold, told while the client is being destroyed
    }
    client->getLock(hold.name)
        .tryLockAsync({.wait = 20s}, newOwner())
        .start([&](const Result<bool>& again) { told.set_value(answerOf(again)); });
  };
  client.emplace(Client::connect(settings));
  client->getLock("cpp15").lock(100ms);
  EXPECT_EQ(told.get_future().get(), "true");
}

TEST_F(LockLifecycle, TheExecutorRunsEveryCallback) {
  Options settings = options();
  std::mutex mutex;
  std::vector<std::function<void()>> tasks;
  settings.executor = [&](std::function<void()> task) {
    const std::lock_guard guard(mutex);
    tasks.push_back(std::move(task));
  };
  const auto submitted = [&] {
    const std::lock_guard guard(mutex);
    return !tasks.empty();
  };
  std::atomic<int> lost{0};
  settings.onLost = [&](const LostHold&) { lost.fetch_add(1); };
  const auto runAll = [&] {
    std::vector<std::function<void()>> now;
    {
      const std::lock_guard guard(mutex);
      now.swap(tasks);
    }
    for (auto& task : now) {
      task();
    }
    return now.size();
  };
  Client client = Client::connect(settings);
  const std::thread::id here = std::this_thread::get_id();
  std::optional<std::thread::id> ranOn;
  client.getLock("executor")
      .lockAsync({.lease = 100ms}, newOwner())
      .start([&](const Result<void>&) {
        ranOn = std::this_thread::get_id();
        // No loop thread here, so blocking is allowed.
        EXPECT_EQ(answerOf([&] { return client.getLock("inner").tryLock(); }), "true");
      });
  EXPECT_EVENTUALLY(kLong, submitted());
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(ranOn) << "nothing runs before the executor says so";
  EXPECT_EVENTUALLY(kLong, runAll() > 0 && ranOn.has_value());
  EXPECT_EQ(ranOn, here);
  // The loss may have been among the tasks that ran together with the handler.
  EXPECT_EVENTUALLY(kLong, (runAll(), lost.load() == 1));
  settings.executor = nullptr;
}

TEST_F(LockLifecycle, AnExecutorThatThrowsIsSurvived) {
  Options settings = options();
  settings.executor = [](const std::function<void()>&) { throw std::runtime_error("no room"); };
  Client client = Client::connect(settings);
  client.getLock("executor").lockAsync({}, newOwner()).start([](const Result<void>&) {});
  EXPECT_EVENTUALLY(kLong, client.stats().handlerFailures >= 1);
  EXPECT_TRUE(client.getLock("other").tryLock());
}

/// Nobody else could give back what they are told of.
TEST_F(LockLifecycle, HandlersThatTheExecutorDoesNotRunAreToldTheTruth) {
  for (const bool throws : {true, false}) {
    SCOPED_TRACE(throws ? "it throws" : "it drops the task");
    Options settings = options();
    settings.executor = [throws](const std::function<void()>&) {
      if (throws) {
        throw std::runtime_error("no room");
      }
    };
    Client client = Client::connect(settings);
    std::optional<Lease> lease = client.getLock("executor").acquireAsync({}, newOwner()).get();
    EXPECT_TRUE(lease->held());
    lease.reset();
    EXPECT_EVENTUALLY(kLong, !raw().exists("executor"));
    std::promise<std::string> told;
    auto answer = told.get_future();
    client.getLock("executor").lockAsync({}, newOwner()).start([&](const Result<void>& result) {
      told.set_value(result.has_value() ? "ok" : result.error().what());
    });
    ASSERT_TRUE(ready(answer, kLong));
    EXPECT_EQ(answer.get(), "ok");
    client.getLock("executor").forceUnlock();
  }
}

TEST_F(LockLifecycle, HandlersNeverRunInsideStart) {
  Client client = connect();
  rawHold("inside", "foreign:1", 60s);
  for (int i = 0; i < 200; ++i) {
    std::promise<bool> inside;
    auto future = inside.get_future();
    const std::thread::id here = std::this_thread::get_id();
    client.getLock("inside").tryLockAsync({}, newOwner()).start([&](const Result<bool>&) {
      inside.set_value(std::this_thread::get_id() == here);
    });
    EXPECT_FALSE(future.get());
  }
  std::promise<bool> inside;
  auto future = inside.get_future();
  const std::thread::id here = std::this_thread::get_id();
  client.getLock("inside").tryLockAsync({.lease = 0s}).start([&](const Result<bool>& result) {
    EXPECT_EQ(answerOf(result), "invalidArgument");
    inside.set_value(std::this_thread::get_id() == here);
  });
  EXPECT_FALSE(future.get());
}

TEST_F(LockLifecycle, XCPP13_OneHandleUsedBy64Threads) {
  Client client = connect();
  RLock lock = client.getLock("cpp13");
  Resource resource;
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 64; ++i) {
    threads.push_back(inThread([&, i] {
      return outcomeOf([&] {
        for (int round = 0; round < 5; ++round) {
          if (i % 2 == 0) {
            lock.lock();
          } else {
            Lease lease = lock.acquire();
            resource.use();
            if (lease.release() != ReleaseResult::released) {
              throw std::runtime_error("not released");
            }
            continue;
          }
          resource.use();
          lock.unlock();
        }
      });
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(resource.value(), 320);
  EXPECT_EQ(resource.overlaps(), 0);
}

// The application's own loop.

TEST_F(LockOwnLoop, EverythingRunsOnTheCallersLoop) {
  uv_loop_t loop;
  ASSERT_EQ(::uv_loop_init(&loop), 0);
  Options settings = options();
  settings.loop = &loop;
  std::vector<std::string> told;
  std::vector<bool> onThisThread;
  const std::thread::id here = std::this_thread::get_id();
  {
    Client client = Client::connect(settings);
    RLock lock = client.getLock("loop");
    const OwnerId owner = newOwner();
    lock.lockAsync({.wait = scaled(5s)}, owner).start([&](const Result<void>& locked) {
      told.push_back("lock " + outcomeOf(locked));
      onThisThread.push_back(std::this_thread::get_id() == here);
      told.push_back("blocking " + outcomeOf([&] { lock.lock(); }));
      lock.lockAsync().start([&](const Result<void>& refused) {
        told.push_back("without owner " + outcomeOf(refused));
        onThisThread.push_back(std::this_thread::get_id() == here);
        lock.unlockAsync(owner).start([&](const Result<void>& unlocked) {
          told.push_back("unlock " + outcomeOf(unlocked));
          onThisThread.push_back(std::this_thread::get_id() == here);
          client.close(1s);
        });
      });
    });
    EXPECT_TRUE(told.empty());
    ::uv_run(&loop, UV_RUN_DEFAULT);
  }
  EXPECT_EQ(
      told,
      (std::vector<std::string>{
          "lock ok", "blocking wouldDeadlock", "without owner invalidArgument", "unlock ok"}));
  EXPECT_EQ(onThisThread, (std::vector<bool>{true, true, true}));
  EXPECT_EQ(::uv_loop_close(&loop), 0) << "handles are left on the loop";
  expectNoKeys();
}

TEST_F(LockOwnLoop, BlockingCallsWorkOnOtherThreads) {
  uv_loop_t loop;
  ASSERT_EQ(::uv_loop_init(&loop), 0);
  Options settings = options();
  settings.loop = &loop;
  std::optional<Client> client = Client::connect(settings);
  RLock lock = client->getLock("loop");
  {
    const std::jthread runner([&] { ::uv_run(&loop, UV_RUN_DEFAULT); });
    std::future<std::string> waiter;
    // The loop runs, and the waiter waits, until the client is closed.
    const ClosedAtEnd end(*client);
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
    waiter = inThread([&] { return answerOf([&] { return lock.tryLock(20s); }); });
    ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("loop")) == 1);
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_EQ(waiter.get(), "true");
    client->close(2s);
  }
  client.reset();
  EXPECT_EQ(::uv_loop_close(&loop), 0);
}

TEST_F(LockOwnLoop, CloseEndsAWaitWhenTheLoopRunsNoMore) {
  rawHold("loop", "foreign:1", 60s);
  uv_loop_t loop;
  ASSERT_EQ(::uv_loop_init(&loop), 0);
  Options settings = options();
  settings.loop = &loop;
  {
    Client client = Client::connect(settings);
    std::future<std::string> waiter;
    {
      const std::jthread runner([&] { ::uv_run(&loop, UV_RUN_DEFAULT); });
      waiter = inThread([&] { return outcomeOf([&] { client.getLock("loop").lock(); }); });
      EXPECT_EVENTUALLY(kLong, client.stats().waiters == 1);
      client.getLock("other").isLockedAsync().start(
          [&loop](const Result<bool>&) { ::uv_stop(&loop); });
    }
    client.close(200ms);
    EXPECT_EQ(waiter.wait_for(scaled(1s)), std::future_status::ready);
    // With the loop everything else of the client ends.
    ::uv_run(&loop, UV_RUN_DEFAULT);
    EXPECT_EQ(waiter.get(), "closed");
  }
  EXPECT_EQ(::uv_loop_close(&loop), 0);
}

/// The loop stands still for longer than close() waits, and has a timer of the call that waits at
/// the gate. The turn of that call comes on another thread.
TEST_F(LockOwnLoop, ACallWhoseTurnComesAfterCloseGaveUpEndsOnTheLoop) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  rawHold("loop", "foreign:1", 60s);
  struct Pause {
    std::promise<void> begun;
    std::promise<void> ends;
  } pause;
  uv_loop_t loop;
  ASSERT_EQ(::uv_loop_init(&loop), 0);
  uv_async_t pausing;
  pausing.data = &pause;
  const auto onPause = [](uv_async_t* handle) {
    auto* const asked = static_cast<Pause*>(handle->data);
    asked->begun.set_value();
    asked->ends.get_future().wait_for(kLong);
    ::uv_close(reinterpret_cast<uv_handle_t*>(handle), nullptr);
  };
  ASSERT_EQ(::uv_async_init(&loop, &pausing, onPause), 0);
  Options settings = options();
  settings.loop = &loop;
  std::string told;
  std::thread::id toldBy;
  std::thread::id ranBy;
  {
    Client client = Client::connect(settings);
    RLock lock = client.getLock("loop");
    const OwnerId owner = newOwner();
    std::jthread runner([&] { ::uv_run(&loop, UV_RUN_DEFAULT); });
    ranBy = runner.get_id();
    EXPECT_EVENTUALLY(kLong, client.connected());
    // The first call is refused, and so leaves the gate on its own thread.
    server().freeze();
    const auto sent = client.stats().commands;
    auto inside =
        inThread([&] { return outcomeOf([&] { static_cast<void>(lock.acquire({}, owner)); }); });
    EXPECT_EVENTUALLY(kLong, client.stats().commands > sent);
    lock.lockAsync({}, owner).start([&](const Result<void>& result) {
      told = outcomeOf(result);
      toldBy = std::this_thread::get_id();
    });
    std::this_thread::sleep_for(50ms);
    ::uv_async_send(&pausing);
    pause.begun.get_future().wait();
    client.close(100ms);
    server().thaw();
    EXPECT_EQ(inside.wait_for(kLong), std::future_status::ready);
    pause.ends.set_value();
  }
  EXPECT_EQ(told, "closed");
  EXPECT_EQ(toldBy, ranBy);
  EXPECT_EQ(::uv_loop_close(&loop), 0);
}

TEST_F(LockOwnLoop, ARefusedConnectionEndsTheCallsInTime) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  uv_loop_t loop;
  ASSERT_EQ(::uv_loop_init(&loop), 0);
  Options settings = options();
  settings.loop = &loop;
  settings.connectTimeout = 200ms;
  server().kill();
  std::string told;
  const Stopwatch watch;
  {
    Client client = Client::connect(settings);
    client.getLock("loop").tryLockAsync({.wait = 1s}).start([&](const Result<bool>& result) {
      told = answerOf(result);
      client.close(0ms);
    });
    ::uv_run(&loop, UV_RUN_DEFAULT);
  }
  EXPECT_EQ(told, "connectionFailed");
  EXPECT_LT(watch.elapsedMs(), 1s + scaled(500ms));
  EXPECT_EQ(::uv_loop_close(&loop), 0);
  // connect() has returned before, so the log is all that says why there is no connection. Failures
  // after the first are no news.
  std::vector<CapturedLog::Line> failures = log().lines();
  std::erase_if(failures, [](const CapturedLog::Line& line) {
    return line.text.find("no connection, trying again: ") == std::string::npos;
  });
  ASSERT_FALSE(failures.empty());
  EXPECT_EQ(failures.front().level, static_cast<int>(LogLevel::warning));
  EXPECT_NE(failures.front().text.find("127.0.0.1:"), std::string::npos) << failures.front();
  for (std::size_t i = 1; i < failures.size(); ++i) {
    EXPECT_EQ(failures[i].level, static_cast<int>(LogLevel::debug)) << failures[i];
  }
}

// The standard's lockables.

TEST_F(LockMutex, LockGuardsExclude) {
  Client client = connect();
  Client other = connect();
  Resource resource;
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 8; ++i) {
    threads.push_back(inThread([&, i] {
      Mutex mutex((i % 2 == 0 ? client : other).getLock("mutex"));
      return outcomeOf([&] {
        for (int round = 0; round < 20; ++round) {
          const std::lock_guard guard(mutex);
          resource.use();
        }
      });
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(resource.value(), 160);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EVENTUALLY(kLong, !raw().exists("mutex"));
}

TEST_F(LockMutex, TimedAndTriedLocks) {
  Client client = connect();
  Mutex held(client.getLock("mutex"));
  Mutex mutex(client.getLock("mutex"));
  held.lock();
  EXPECT_TRUE(held.lease().held());
  EXPECT_FALSE(mutex.try_lock());
  EXPECT_FALSE(held.try_lock()) << "not recursive";
  const Stopwatch watch;
  std::unique_lock timed(mutex, 1s);
  EXPECT_FALSE(timed.owns_lock());
  EXPECT_GE(watch.elapsedMs(), 1s);
  EXPECT_FALSE(mutex.try_lock_until(Clock::now() + 1s));
  EXPECT_FALSE(mutex.try_lock_until(std::chrono::system_clock::now() + 1s));
  EXPECT_FALSE(mutex.try_lock_until(Clock::now() - 1h));
  EXPECT_FALSE(mutex.try_lock_until(Clock::time_point::min()));
  EXPECT_FALSE(mutex.try_lock_for(std::chrono::hours::min()));
  EXPECT_FALSE(mutex.try_lock_for(0s));
  auto waiter = inThread([&] {
    Mutex mine(client.getLock("mutex"));
    const bool got = mine.try_lock_until(Clock::time_point::max());
    mine.unlock();
    return got;
  });
  EXPECT_FALSE(ready(waiter, 100ms));
  held.unlock();
  EXPECT_TRUE(waiter.get());
  EXPECT_TRUE(timed.try_lock_for(scaled(5s)));
}

TEST_F(LockMutex, StdLockAndScopedLockDoNotDeadlock) {
  Client client = connect();
  Resource resource;
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(inThread([&, i] {
      Mutex a(client.getLock("a"));
      Mutex b(client.getLock("b"));
      return outcomeOf([&] {
        for (int round = 0; round < 10; ++round) {
          if (i % 2 == 0) {
            const std::scoped_lock both(a, b);
            resource.use();
          } else {
            std::lock(b, a);
            resource.use();
            a.unlock();
            b.unlock();
          }
        }
      });
    }));
  }
  for (auto& thread : threads) {
    ASSERT_TRUE(ready(thread, 60s));
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(resource.value(), 40);
  EXPECT_EQ(resource.overlaps(), 0);
}

TEST_F(LockMutex, SharedLocksOverAPlainLockExclude) {
  Client client = connect();
  SharedMutex mutex(client.getLock("shared"));
  SharedMutex other(client.getLock("shared"));
  {
    const std::shared_lock shared(mutex);
    EXPECT_TRUE(shared.owns_lock());
    EXPECT_FALSE(other.try_lock());
    EXPECT_FALSE(other.try_lock_shared());
    EXPECT_FALSE(other.try_lock_for(1s));
    EXPECT_FALSE(other.try_lock_shared_for(1s));
  }
  EXPECT_TRUE(other.try_lock_for(scaled(5s)));
  EXPECT_FALSE(mutex.try_lock_shared());
  other.unlock();
  EXPECT_TRUE(mutex.try_lock_shared_until(Clock::now() + scaled(5s)));
  mutex.unlock_shared();
}

TEST_F(LockMutex, UnlockNeitherThrowsNorWaitsWhenRedisIsDown) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client client = connect();
  Mutex mutex(client.getLock("down"));
  mutex.lock();
  server().kill();
  const Stopwatch watch;
  mutex.unlock();
  EXPECT_LT(watch.elapsedMs(), scaled(kLate));
  static_assert(noexcept(mutex.unlock()));
  // Else the request may go out on the connection whose end the client is yet to learn of.
  ASSERT_EVENTUALLY(kLong, !client.connected());
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(mutex.try_lock_for(1s)); }), "connectionFailed");
}

}  // namespace
}  // namespace rlock::test
