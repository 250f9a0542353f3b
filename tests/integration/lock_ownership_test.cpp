// SPDX-License-Identifier: Apache-2.0

// Ownership of holds: threads, clients, processes, forks and callbacks.

#include "integration/lock_harness.hpp"

#include <gmock/gmock.h>

#include <csignal>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

namespace rlock::test {
namespace {

class LockOwnership : public LockTest {};
class LockOwnershipSlow : public LockTest {};

TEST_F(LockOwnership, XOWN1_AReusedNativeThreadIdIsNotTheOldOwner) {
  Options settings = options();
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  const auto dead = inThread([&] {
                      client.getLock("own1").lock();
                      return std::pair(::pthread_self(), currentOwner());
                    }).get();
  struct Seen {
    bool reused = false;
    bool held = true;
    std::string tryLock;
    std::string unlock;
    OwnerId owner;
  } seen;
  for (int i = 0; i < 1000 && !seen.reused; ++i) {
    seen = inThread([&] {
             Seen now;
             now.reused = ::pthread_equal(::pthread_self(), dead.first) != 0;
             now.owner = currentOwner();
             RLock lock = client.getLock("own1");
             now.held = lock.isHeldByCurrentThread();
             now.tryLock = answerOf([&] { return lock.tryLock(); });
             now.unlock = outcomeOf([&] { lock.unlock(); });
             return now;
           }).get();
  }
  EXPECT_TRUE(seen.reused) << "no thread got the old id";
  EXPECT_NE(seen.owner, dead.second);
  EXPECT_FALSE(seen.held);
  EXPECT_EQ(seen.tryLock, "false");
  EXPECT_EQ(seen.unlock, "notOwner");
}

TEST_F(LockOwnership, XOWN2_TheHoldOfAThreadThatEndedIsTheOthersAfterOneLease) {
  std::promise<LostHold> told;
  Options settings = options(kWatchdog);
  settings.onLost = [&](const LostHold& hold) { told.set_value(hold); };
  Client client = Client::connect(settings);
  const OwnerId owner = inThread([&] {
                          client.getLock("own2").lock();
                          return currentOwner();
                        }).get();
  auto future = told.get_future();
  ASSERT_TRUE(ready(future, kLong));
  const LostHold hold = future.get();
  EXPECT_EQ(hold.name, "own2");
  EXPECT_EQ(hold.owner, ownerField(client, owner));
  EXPECT_EQ(hold.reason, LossReason::threadEnded);
  EXPECT_TRUE(raw().exists("own2")) << "the work it protects may go on elsewhere";
  EXPECT_EVENTUALLY(kWatchdog + 500ms, !raw().exists("own2"));
  EXPECT_GE(log().count("threadEnded"), 1U);
}

TEST_F(LockOwnership, XOWN2_WhatAnEndedThreadStillWaitsForIsNotRenewed) {
  std::mutex mutex;
  std::vector<LostHold> told;
  Options settings = options(kWatchdog);
  settings.onLost = [&](const LostHold& hold) {
    const std::lock_guard lock(mutex);
    told.push_back(hold);
  };
  Client client = Client::connect(settings);
  Client holder = connect(kWatchdog);
  const auto kinds = [](Client& of) {
    const ReadWriteLock sides = of.getReadWriteLock("own2:rw");
    return std::vector<RLock>{of.getLock("own2:plain"),
                              of.getFairLock("own2:fair"),
                              of.getFencedLock("own2:fenced"),
                              of.getSpinLock("own2:spin"),
                              of.getSimpleLock("own2:simple"),
                              sides.readLock(),
                              multiLock({of.getLock("own2:a"), of.getLock("own2:b")})};
  };
  std::vector<RLock> held = kinds(holder);
  held[5] = holder.getReadWriteLock("own2:rw").writeLock();
  for (RLock& lock : held) {
    lock.lock();
  }
  std::vector<std::future<void>> answers;
  std::vector<std::optional<Operation<bool>>> later;
  const OwnerId ended =
      inThread([&] {
        for (RLock& lock : kinds(client)) {
          auto operation = lock.lockAsync();
          answers.push_back(operation.toFuture());
        }
        for (const char* name : {"own2:late", "own2:late2"}) {
          later.emplace_back(client.getLock(name).tryLockAsync());
        }
        later.emplace_back(client.getReadWriteLock("own2:late3").readLock().tryLockAsync());
        return currentOwner();
      }).get();
  EXPECT_EQ(answerOf(later[0]->wait()), "true");
  EXPECT_TRUE(later[1]->toFuture().get());
  EXPECT_EQ(answerOf(later[2]->wait()), "true");
  // An owner that is only named, by a thread that lives.
  EXPECT_TRUE(client.getLock("own2:named").tryLockAsync(AcquireOptions{}, ended).get());
  for (RLock& lock : held) {
    lock.unlock();
  }
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(outcomeOf([&] { answers[i].get(); }), i + 1 < answers.size() ? "ok" : "cancelled");
  }
  EXPECT_EVENTUALLY(3 * kWatchdog, raw().keys("own2*").empty());
  const std::lock_guard lock(mutex);
  EXPECT_GE(told.size(), answers.size() + later.size());
  for (const LostHold& hold : told) {
    EXPECT_EQ(hold.reason, LossReason::threadEnded) << hold.name;
  }
}

TEST_F(LockOwnership, XOWN2_TheOwnerOfALivingThreadMayBeUsedByOthers) {
  Client client = connect(kWatchdog);
  std::promise<OwnerId> named;
  std::promise<void> end;
  auto thread = inThread([&] {
    named.set_value(currentOwner());
    end.get_future().wait();
  });
  const OwnerId owner = named.get_future().get();
  EXPECT_TRUE(client.getLock("own2").tryLockAsync(AcquireOptions{}, owner).get());
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_TRUE(client.getLock("own2").isHeldBy(owner)) << "renewed as long as the thread lives";
  end.set_value();
  thread.get();
  EXPECT_EVENTUALLY(3 * kWatchdog, !raw().exists("own2"));
}

TEST_F(LockOwnership, XOWN2_AGrantThatComesAfterTheEndOfItsThreadIsNotRenewed) {
  std::promise<LostHold> told;
  Options settings = proxied(kWatchdog);
  settings.onLost = [&](const LostHold& hold) { told.set_value(hold); };
  Client client = Client::connect(settings);
  // The server knows the script from here on, so that the grant is the first reply.
  client.getLock("warm").lock();
  client.getLock("warm").unlock();
  const auto held = proxy().addRule(TcpProxy::command("EVALSHA"), TcpProxy::Action::stallReply());
  std::promise<std::string> granted;
  inThread([&] {
    client.getLock("own2").lockAsync().start(
        [&](const Result<void>& result) { granted.set_value(outcomeOf(result)); });
    ASSERT_EVENTUALLY(kLong, raw().exists("own2"));
  }).get();
  auto answer = granted.get_future();
  EXPECT_TRUE(held.waitForHits(1, kLong));
  EXPECT_FALSE(ready(answer, 0ms)) << "otherwise this tests nothing";
  proxy().clearRules();
  proxy().releaseStalled();
  EXPECT_EQ(answer.get(), "ok");
  auto future = told.get_future();
  ASSERT_TRUE(ready(future, kLong));
  EXPECT_EQ(future.get().reason, LossReason::threadEnded);
  EXPECT_EVENTUALLY(2 * kWatchdog, !raw().exists("own2"));
}

TEST_F(LockOwnership, XOWN2_AHoldOfAnExplicitOwnerOutlivesTheThread) {
  Client client = connect(kWatchdog);
  const OwnerId owner = newOwner();
  EXPECT_EQ(inThread([&] {
              return answerOf(client.getLock("own2").tryLockAsync({}, owner).wait());
            }).get(),
            "true");
  std::this_thread::sleep_for(kWatchdog + kWatchdog / 2);
  EXPECT_TRUE(client.getLock("own2").isHeldBy(owner));
  EXPECT_EQ(outcomeOf(client.getLock("own2").unlockAsync(owner).wait()), "ok");
}

TEST_F(LockOwnership, XOWN3_TwoClientsInOneThreadExcludeEachOther) {
  Client one = connect();
  Client two = connect();
  EXPECT_NE(one.id(), two.id());
  RLock first = one.getLock("own3");
  RLock second = two.getLock("own3");
  first.lock();
  EXPECT_FALSE(second.tryLock());
  EXPECT_FALSE(second.isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf([&] { second.unlock(); }), "notOwner");
  EXPECT_TRUE(first.isHeldByCurrentThread());
  first.unlock();
  EXPECT_TRUE(second.tryLock());
  second.unlock();
}

TEST_F(LockOwnership, XOWN4_IdsOfProcessesStartedTogetherDiffer) {
  constexpr int kProcesses = 12;
  std::vector<std::unique_ptr<ChildProcess>> processes;
  for (int i = 0; i < kProcesses; ++i) {
    processes.push_back(std::make_unique<ChildProcess>(testProgram("rlock_lock_worker"),
                                                       std::vector<std::string>{uri()}));
  }
  std::set<std::string> ids;
  for (auto& process : processes) {
    ids.insert(process->expectLineContaining("id ", kLong));
  }
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(kProcesses));
}

// Fork.

/// Runs `body` in a child; the bits it returns are its exit code. -1: it hung or was killed.
template <class Body>
int inFork(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body() & 0xff);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
    return -1;
  }
  return WEXITSTATUS(status);
}

/// Sets bit `bit` when the call does not end with `expected`.
template <class F>
int wrong(int bit, const std::string& expected, F call) {
  return outcomeOf(call) == expected ? 0 : 1 << bit;
}

TEST_F(LockOwnershipSlow, XOWN5_AChildIsNotTheParentsOwner) {
  auto client = std::make_unique<Client>(connect(kWatchdog));
  RLock lock = client->getLock("own5");
  lock.lock();
  raw().resetStats();
  const int code = inFork([&] {
    int bits = wrong(0, "forked", [&] { static_cast<void>(lock.isHeldByCurrentThread()); });
    bits |= wrong(1, "forked", [&] { lock.unlock(); });
    bits |= wrong(2, "forked", [&] { static_cast<void>(lock.tryLock()); });
    bits |= wrong(3, "forked", [&] { lock.lock(); });
    bits |= wrong(4, "forked", [&] { static_cast<void>(client->getLock("other").tryLock()); });
#if !defined(__SANITIZE_THREAD__)
    // It starts a thread, for which that sanitizer ends a forked child.
    bits |= wrong(5, "forked", [&] { static_cast<void>(lock.tryLockAsync().toFuture().get()); });
#endif
    try {
      lock.lock();
    } catch (const Error& error) {
      const std::string_view said = error.what();
      bits |= said.find("create a new one after fork()") != std::string_view::npos ? 0 : 1 << 7;
    }
    const auto before = Clock::now();
    client.reset();
    bits |= Clock::now() - before < 2s ? 0 : 1 << 6;
    return bits;
  });
  EXPECT_EQ(code, 0) << "the bits name the calls that went wrong";
  EXPECT_EQ(raw().commandCalls("evalsha") + raw().commandCalls("eval"), 0);
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(lock.getHoldCount(), 1);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  expectNoKeys();
}

TEST_F(LockOwnershipSlow, XOWN5_ALeaseInTheChildReleasesNothing) {
  Client client = connect(kWatchdog);
  auto lease = std::make_unique<Lease>(client.getLock("own5").acquire());
  auto second = std::make_unique<Lease>(client.getLock("own5b").acquire());
  const int code = inFork([&] {
    int bits = lease->release() == ReleaseResult::lost ? 0 : 1;
    second.reset();
    return bits;
  });
  EXPECT_EQ(code, 0);
  std::this_thread::sleep_for(kWatchdog + kWatchdog / 2);
  EXPECT_TRUE(lease->held());
  EXPECT_TRUE(second->held());
  EXPECT_EQ(lease->release(), ReleaseResult::released);
  EXPECT_EQ(second->release(), ReleaseResult::released);
}

TEST_F(LockOwnership, XOWN5_AChildMayMakeAClientOfItsOwn) {
  Client client = connect();
  RLock lock = client.getLock("own5");
  lock.lock();
  const std::string parentId = client.id();
  const Options settings = options();
  const int code = inFork([&] {
    try {
      Client mine = Client::connect(settings);
      RLock child = mine.getLock("own5");
      int bits = mine.id() != parentId ? 0 : 1;
      bits |= !child.tryLock() ? 0 : 2;
      bits |= mine.getLock("own5-child").tryLock() ? 0 : 4;
      mine.getLock("own5-child").unlock();
      return bits;
    } catch (const std::exception&) {
      return 128;
    }
  });
#if defined(__SANITIZE_THREAD__)
  // That sanitizer ends a forked child that starts a thread.
  if (code != 0) {
    GTEST_SKIP() << "a forked child cannot start threads under this sanitizer";
  }
#endif
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(lock.isHeldByCurrentThread());
}

TEST_F(LockOwnership, XOWN5_AChildDoesNotKeepAClosedClientConnected) {
  Options settings = options();
  settings.clientName = "own5";
  auto client = std::make_unique<Client>(Client::connect(settings));
  rawHold("own5", "foreign:1", 30s);
  EXPECT_FALSE(client->getLock("own5").tryLock(1s));
  const auto connections = [&] {
    int count = 0;
    for (const auto& connection : raw().clientList()) {
      count += connection.at("name") == "own5" ? 1 : 0;
    }
    return count;
  };
  ASSERT_EVENTUALLY(kLong, connections() == 2);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::pause();
    ::_exit(0);
  }
  client->close(scaled(1s));
  EXPECT_EVENTUALLY(kLong, connections() == 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(LockOwnership, XOWN6_ADeadProcessIsNotKeptConnectedByItsChildren) {
  for (const std::string how : {"fork-exec", "fork"}) {
    SCOPED_TRACE(how);
    Worker worker(uri("client-name=own6&watchdog-timeout=1s"));
    EXPECT_EQ(worker.ask("lock own6"), "ok");
    const pid_t sleeper = static_cast<pid_t>(std::stol(worker.ask(how + " 60")));
    const auto connections = [&] {
      int count = 0;
      for (const auto& connection : raw().clientList()) {
        count += connection.at("name") == "own6" ? 1 : 0;
      }
      return count;
    };
    EXPECT_GE(connections(), 1);
    worker.process().kill();
    EXPECT_EVENTUALLY(kLong, connections() == 0);
    EXPECT_EVENTUALLY(kLong, !raw().exists("own6"));
    ::kill(sleeper, SIGKILL);
  }
}

// Callbacks.

TEST_F(LockOwnership, XOWN7_ACallbackUsesTheOwnerOfTheAcquisition) {
  Client client = connect();
  RLock lock = client.getLock("own7");
  const OwnerId owner = currentOwner();
  std::promise<std::pair<std::string, std::string>> told;
  lock.lockAsync().start([&](const Result<void>& locked) {
    EXPECT_TRUE(locked.has_value());
    // Here another thread runs: its own id must not pass for the holder's.
    lock.unlockAsync().start([&](const Result<void>& wrongOwner) {
      const std::string first = outcomeOf(wrongOwner);
      lock.unlockAsync(owner).start([&told, first](const Result<void>& rightOwner) {
        told.set_value({first, outcomeOf(rightOwner)});
      });
    });
  });
  const auto [implicit, explicitOwner] = told.get_future().get();
  EXPECT_EQ(implicit, "invalidArgument");
  EXPECT_EQ(explicitOwner, "ok");
  expectNoKeys();
}

TEST_F(LockOwnership, XOWN7_TheLoopThreadIsNobodysOwner) {
  constexpr int kCalls = 8;
  std::mutex mutex;
  std::vector<std::string> said;
  const auto note = [&](std::string outcome) {
    const std::lock_guard guard(mutex);
    said.push_back(std::move(outcome));
  };
  const auto tell = [&](const auto& result) { note(outcomeOf(result)); };
  Client client = connect();
  RLock lock = client.getLock("own7");
  FencedLock fenced = client.getFencedLock("own7:fenced");
  Operation<void> made = lock.lockAsync({}, newOwner());
  std::promise<void> begun;
  lock.isLockedAsync().start([&](const Result<bool>& /*free*/) {
    lock.lockAsync().start(tell);
    lock.lockAsync({.wait = scaled(5s)}).start(tell);
    lock.tryLockAsync().start(tell);
    lock.tryLockAsync(scaled(5s)).start(tell);
    lock.lockInterruptiblyAsync(std::stop_token()).start(tell);
    lock.unlockAsync().start(tell);
    fenced.lockAndGetTokenAsync().start(tell);
    fenced.tryLockAndGetTokenAsync(scaled(5s)).start(tell);
    made = lock.lockAsync();
    begun.set_value();
  });
  begun.get_future().get();
  EXPECT_EQ(outcomeOf(made.wait()), "invalidArgument") << "made there, started here";
  ASSERT_TRUE(eventually(kLong, [&] {
    const std::lock_guard guard(mutex);
    return said.size() == kCalls;
  }));
  EXPECT_EQ(said, std::vector<std::string>(kCalls, "invalidArgument"));
  expectNoKeys();
}

TEST_F(LockOwnership, XOWN8_BlockingCallsOnTheLoopThreadAreRefused) {
  Client client = connect();
  RLock lock = client.getLock("own8");
  std::promise<std::vector<std::string>> told;
  const Stopwatch watch;
  lock.tryLockAsync().start([&](const Result<bool>& result) {
    std::vector<std::string> outcomes{answerOf(result)};
    const auto note = [&](auto call) { outcomes.push_back(outcomeOf(call)); };
    note([&] { lock.lock(); });
    note([&] { lock.lock(1s); });
    note([&] { static_cast<void>(lock.tryLock()); });
    note([&] { static_cast<void>(lock.tryLock(1s, 1s)); });
    note([&] { lock.unlock(); });
    note([&] { static_cast<void>(lock.forceUnlock()); });
    note([&] { static_cast<void>(lock.isLocked()); });
    note([&] { static_cast<void>(lock.getHoldCount()); });
    note([&] { static_cast<void>(lock.remainTimeToLive()); });
    note([&] { static_cast<void>(lock.acquire()); });
    note([&] { static_cast<void>(lock.lockAsync().get()); });
    told.set_value(std::move(outcomes));
  });
  const std::vector<std::string> outcomes = told.get_future().get();
  ASSERT_EQ(outcomes.size(), 12U);
  EXPECT_EQ(outcomes[0], "true");
  for (std::size_t i = 1; i < outcomes.size(); ++i) {
    EXPECT_EQ(outcomes[i], "wouldDeadlock") << i;
  }
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok") << "the client works on";
}

/// Its own hold does not keep it out for ever, so that it is not refused.
TEST_F(LockOwnership, AThreadAcquiresWhatItReadsOrHasForATime) {
  Client client = connect();
  RLock read = client.getReadWriteLock("read").readLock();
  read.lock();
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(read.acquire()); }), "ok");
  RLock lock = client.getLock("for-a-time");
  lock.lockAsync({.maxHold = 300ms}, currentOwner()).get();
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.acquire()); }), "ok");
}

TEST_F(LockOwnership, XOWN8_ALeaseReleasedOnTheLoopThreadDoesNotWait) {
  Client client = connect();
  RLock lock = client.getLock("own8");
  std::promise<ReleaseResult> told;
  lock.acquireAsync().start(
      [&](Result<Lease> lease) { told.set_value(std::move(lease).value().release()); });
  EXPECT_EQ(told.get_future().get(), ReleaseResult::unknown);
  EXPECT_EVENTUALLY(kLong, !raw().exists("own8"));
}

TEST_F(LockOwnership, AReleaseByTheWrongOwnerNamesTheRightOne) {
  Client client = connect();
  RLock lock = client.getLock("l");
  const auto message = [&] {
    try {
      lock.unlock();
    } catch (const Error& error) {
      EXPECT_EQ(error.errc(), Errc::notOwner);
      return std::string(error.what());
    }
    return std::string("released");
  };
  EXPECT_THAT(message(), ::testing::Not(::testing::HasSubstr("this client holds it")));
  const OwnerId other = newOwner();
  Lease lease = lock.acquire({}, other);
  EXPECT_THAT(
      message(),
      ::testing::HasSubstr("holds it for owner " + ownerField(client, other) + ": another"));
  lease.release();
  EXPECT_THAT(message(), ::testing::Not(::testing::HasSubstr("this client holds it")));
}

TEST_F(LockOwnership, XCPP6_ALeaseMovedToAnotherThreadIsReleasedThere) {
  Client client = connect();
  Lease lease = client.getLock("own").acquire();
  const ReleaseResult result =
      inThread([moved = std::move(lease)]() mutable { return moved.release(); }).get();
  EXPECT_EQ(result, ReleaseResult::released);
  EXPECT_FALSE(lease.held());  // NOLINT(bugprone-use-after-move): an empty Lease is defined
  expectNoKeys();
}

}  // namespace
}  // namespace rlock::test
