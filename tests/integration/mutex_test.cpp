// SPDX-License-Identifier: Apache-2.0

// Mutex and SharedMutex shared by threads, and what a thread releases beside what it takes next.

#include "integration/lock_harness.hpp"
#include "integration/read_write_harness.hpp"

#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

namespace rlock::test {
namespace {

class LockMutexShared : public ReadWriteFixture<LockTest> {};

TEST_F(LockMutexShared, ThreadsThatShareAMutexExclude) {
  Client client = connect();
  Client other = connect();
  Mutex mutex(client.getLock("mutex"));
  Mutex elsewhere(other.getLock("mutex"));
  Resource resource;
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 6; ++i) {
    threads.push_back(inThread([&, i] {
      Mutex& mine = i < 4 ? mutex : elsewhere;
      return outcomeOf([&] {
        for (int round = 0; round < 25; ++round) {
          if (round % 5 == 4) {
            const std::unique_lock guard(mine, std::try_to_lock);
            if (guard.owns_lock()) {
              resource.use();
              EXPECT_FALSE(mine.try_lock());
            }
          } else {
            const std::lock_guard guard(mine);
            resource.use();
          }
        }
      });
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_GE(resource.value(), 120);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EVENTUALLY(kLong, !raw().exists("mutex"));
}

TEST_F(LockMutexShared, ThreadsThatShareASharedMutexExclude) {
  Client client = connect();
  Client other = connect();
  SharedMutex mutex(client.getReadWriteLock("shared"));
  SharedMutex elsewhere(other.getReadWriteLock("shared"));
  SharedResource resource;
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 6; ++i) {
    threads.push_back(inThread([&, i] {
      SharedMutex& mine = i < 4 ? mutex : elsewhere;
      return outcomeOf([&] {
        for (int round = 0; round < 20; ++round) {
          if ((i + round) % 3 == 0) {
            const std::unique_lock guard(mine);
            resource.write(100us);
          } else {
            const std::shared_lock guard(mine);
            resource.read(100us);
          }
        }
      });
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(resource.written() + resource.readings(), 120);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
}

TEST_F(LockMutexShared, EachUnlockSharedGivesOneHoldBack) {
  Client client = connect();
  SharedMutex mutex(client.getReadWriteLock("shared"));
  SharedMutex other(client.getReadWriteLock("shared"));
  mutex.lock_shared();
  EXPECT_TRUE(inThread([&] { return mutex.try_lock_shared(); }).get());
  EXPECT_TRUE(mutex.try_lock_shared_for(20s));
  for (int left = 3; left > 0; --left) {
    EXPECT_FALSE(other.try_lock()) << left << " readers are inside";
    mutex.unlock_shared();
  }
  EXPECT_TRUE(other.try_lock_for(20s));
  mutex.unlock_shared();
  EXPECT_FALSE(mutex.try_lock_shared()) << "the writer is inside";
  other.unlock();
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
}

TEST_F(LockMutexShared, ADeadlineAtTheEndOfAllTimesIsForEver) {
  // Both are beyond what the clock's own unit can hold.
  using Minute = std::chrono::time_point<std::chrono::steady_clock, std::chrono::minutes>;
  Client client = connect();
  Mutex mutex(client.getLock("mutex"));
  rawHold("mutex", "foreign:1", 60s);
  EXPECT_FALSE(mutex.try_lock_until(Minute::min()));
  auto waiter = inThread([&] { return mutex.try_lock_until(Minute::max()); });
  EXPECT_EVENTUALLY(kLong, client.stats().waiters == 1);
  rawRelease("mutex");
  EXPECT_TRUE(waiter.get());
  mutex.unlock();
}

TEST_F(LockMutexShared, AnyThreadMayUnlock) {
  Client client = connect();
  Mutex mutex(client.getLock("mutex"));
  inThread([&] { mutex.lock(); }).get();
  EXPECT_FALSE(mutex.try_lock());
  inThread([&] { mutex.unlock(); }).get();
  EXPECT_TRUE(mutex.try_lock_for(20s));
  mutex.unlock();
}

TEST_F(LockMutexShared, AThreadThatHasLockedDoesNotWaitForItself) {
  Client client = connect();
  Mutex mutex(client.getLock("mutex"));
  mutex.lock();
  try {
    mutex.lock();
    ADD_FAILURE() << "locked twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::wouldDeadlock);
    EXPECT_NE(std::string_view(error.what()).find("unlock it"), std::string_view::npos)
        << error.what();
    EXPECT_EQ(error.key(), "mutex");
  }
  EXPECT_FALSE(mutex.try_lock());

  // A hold that is lost is in nobody's way.
  raw().run({"DEL", "mutex"});
  mutex.unlock();
  mutex.lock();
  mutex.unlock();

  SharedMutex shared(client.getReadWriteLock("shared"));
  shared.lock();
  EXPECT_EQ(outcomeOf([&] { shared.lock(); }), "wouldDeadlock");
  shared.unlock();
  // Of readers there may be several.
  shared.lock_shared();
  shared.lock_shared();
  shared.unlock_shared();
  shared.unlock_shared();
}

TEST_F(LockMutexShared, TheUnlockOfALostHoldLeavesTheNextHolderAlone) {
  Client client = connect();
  Mutex mutex(client.getLock("mutex"));
  mutex.lock();
  raw().run({"DEL", "mutex"});
  std::promise<void> holds;
  std::promise<void> end;
  auto next = inThread([&] {
    const std::lock_guard guard(mutex);
    holds.set_value();
    end.get_future().wait();
    return mutex.lease().held();
  });
  ASSERT_TRUE(ready(holds.get_future(), kLong));
  mutex.unlock();
  EXPECT_FALSE(mutex.try_lock()) << "the next holder is inside";
  end.set_value();
  EXPECT_TRUE(next.get());
  EXPECT_TRUE(mutex.try_lock_for(20s));
  mutex.unlock();
}

TEST_F(LockMutexShared, TheUnlockOfAThreadWithoutAHoldTakesTheOneThatIsLost) {
  // A renewal finds out the loss after a third of that time.
  Client client = connect(3s);
  SharedMutex mutex(client.getReadWriteLock("shared"));
  SharedMutex other(client.getReadWriteLock("shared"));
  std::promise<void> end;
  const std::shared_future<void> over = end.get_future().share();
  const auto reads = [&mutex, &over](std::promise<void>& inside) {
    return inThread([&mutex, over, &inside] {
      mutex.lock_shared();
      inside.set_value();
      over.wait();
    });
  };
  const auto fields = [this] {
    const std::vector<std::string> all = raw().run({"HKEYS", "shared"}).strings();
    return std::set<std::string>(all.begin(), all.end());
  };
  std::promise<void> first;
  std::promise<void> second;
  auto firstReader = reads(first);
  first.get_future().get();
  const std::set<std::string> before = fields();
  auto secondReader = reads(second);
  second.get_future().get();
  for (const std::string& field : fields()) {
    if (!before.contains(field)) {
      raw().run({"HDEL", "shared", field});
    }
  }
  EXPECT_EVENTUALLY(kLong, client.stats().lost == 1);
  mutex.unlock_shared();
  EXPECT_FALSE(other.try_lock()) << "the first reader is inside";
  end.set_value();
  firstReader.get();
  secondReader.get();
}

// A release in the background and what the same thread does next.

TEST_F(LockMutexShared, AThreadDoesNotMeetItsOwnRelease) {
  Client client = connect();
  Client second = connect();
  const auto failures = [](auto attempt) {
    int count = 0;
    for (int i = 0; i < 200; ++i) {
      count += attempt() ? 0 : 1;
    }
    return count;
  };
  Mutex mutex(client.getLock("mutex"));
  EXPECT_EQ(failures([&] { return std::unique_lock(mutex, std::try_to_lock).owns_lock(); }), 0);
  SharedMutex shared(client.getReadWriteLock("shared"));
  EXPECT_EQ(failures([&] { return std::shared_lock(shared, std::try_to_lock).owns_lock(); }), 0);
  EXPECT_EQ(failures([&] { return std::unique_lock(shared, std::try_to_lock).owns_lock(); }), 0);
  for (RLock lock : {client.getLock("plain"),
                     client.getFairLock("fair"),
                     RLock(client.getFencedLock("fenced")),
                     client.getSimpleLock("simple"),
                     client.getSpinLock("spin"),
                     multiLock({client.getLock("one"), second.getLock("two")})}) {
    EXPECT_EQ(failures([&] { return lock.tryAcquire().has_value(); }), 0) << lock.getName();
    EXPECT_EQ(failures([&] {
                auto attempt = lock.tryAcquireAsync();
                return attempt.toFuture().get().has_value();
              }),
              0)
        << lock.getName();
  }
  PermitExpirableSemaphore permits = client.getPermitExpirableSemaphore("permits");
  permits.trySetPermits(1);
  EXPECT_EQ(failures([&] { return permits.tryHold().has_value(); }), 0);
}

// One for the grant and one for the release: the next attempt of a thread is not refused by its own
// hold, whose release is under way, and waits for no message about it.
TEST_F(LockMutexShared, AScopeCostsTwoCommands) {
  Client client = connect();
  Mutex mutex(client.getLock("mutex"));
  RLock lock = client.getLock("plain");
  const auto commandsOf = [&](auto scope) {
    scope();
    const auto before = client.stats().commands;
    for (int i = 0; i < 200; ++i) {
      scope();
    }
    return client.stats().commands - before;
  };
  // A heartbeat or a channel's end may come in between.
  constexpr std::uint64_t kMostCommands = 2 * 200 + 5;
  EXPECT_LE(commandsOf([&] { const std::lock_guard guard(mutex); }), kMostCommands);
  EXPECT_LE(commandsOf([&] { const Lease lease = lock.acquire(); }), kMostCommands);
  EXPECT_LE(commandsOf([&] { EXPECT_TRUE(lock.tryAcquire().has_value()); }), kMostCommands);
  EXPECT_EQ(client.stats().channels, 0U) << "nobody waited";
}

}  // namespace
}  // namespace rlock::test
