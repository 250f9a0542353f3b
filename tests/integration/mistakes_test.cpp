// SPDX-License-Identifier: Apache-2.0

// Mistakes of docs/mistakes.md, and what a new user is told of them. The document names the tests
// of the others.

#include "integration/lock_harness.hpp"

#include <gmock/gmock.h>

namespace rlock::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Mistakes : public LockTest {
 protected:
  /// The name of the error and its text; "ok".
  template <class F>
  static std::string said(F call) {
    try {
      call();
      return "ok";
    } catch (const Error& error) {
      return std::string(rlock::toString(error.errc())) + ": " + error.what();
    }
  }
  template <class T>
  static std::string said(const Result<T>& result) {
    return result ? "ok" : said([&] { throw result.error(); });
  }

  /// The words that a call in a callback gets.
  template <class F>
  static std::string inCallback(const RLock& lock, F call) {
    std::promise<std::string> told;
    RLock(lock).isLockedAsync().start(
        [&](const Result<bool>& /*locked*/) { told.set_value(said(call)); });
    return told.get_future().get();
  }
};

TEST_F(Mistakes, ACallbackBlocks) {
  Client client = connect();
  RLock lock = client.getLock("m");
  EXPECT_THAT(inCallback(lock, [&] { lock.lock(); }),
              AllOf(HasSubstr("wouldDeadlock"), HasSubstr("use its async twin")));
}

TEST_F(Mistakes, AnOwnerThatIsNone) {
  Client client = connect();
  RLock lock = client.getLock("m");
  EXPECT_THAT(said([&] { lock.lockAsync({}, OwnerId{}).get(); }),
              AllOf(HasSubstr("invalidArgument"), HasSubstr("0 is no owner")));
  EXPECT_THAT(said([&] { static_cast<void>(multiLock({lock}).tryAcquire({}, OwnerId{})); }),
              AllOf(HasSubstr("invalidArgument"), HasSubstr("0 is no owner")));
  expectNoKeys();
}

TEST_F(Mistakes, ACallbackLocksWithoutAnOwner) {
  Client client = connect();
  RLock lock = client.getLock("m");
  std::optional<Operation<void>> made;
  EXPECT_EQ(inCallback(lock, [&] { made.emplace(lock.lockAsync()); }), "ok");
  EXPECT_THAT(said(made->wait()),
              AllOf(HasSubstr("invalidArgument"),
                    HasSubstr("the loop thread is no owner: make one by newOwner()")));
}

Detached await(Operation<void>& operation, std::promise<std::string>& told) {
  std::string words = "ok";
  try {
    co_await operation;
  } catch (const Error& error) {
    words = error.what();
  }
  told.set_value(words);
}

TEST_F(Mistakes, ACoroutineAwaitsInTheNameOfAThread) {
  Client client = connect();
  RLock lock = client.getLock("m");
  const auto saidToACoroutine = [](Operation<void> operation) {
    std::promise<std::string> told;
    await(operation, told);
    return told.get_future().get();
  };
  // That a ThreadOperation itself cannot be awaited, the compiler says.
  EXPECT_THAT(saidToACoroutine(lock.lockAsync()),
              HasSubstr("a coroutine has no thread: make an owner by newOwner()"));
  EXPECT_FALSE(lock.isLocked());
  EXPECT_EQ(saidToACoroutine(lock.lockAsync(newOwner())), "ok");
  EXPECT_TRUE(lock.isLocked());
}

TEST_F(Mistakes, AThreadLocksAndThenAcquires) {
  Client client = connect();
  RLock lock = client.getLock("m");
  lock.lock();
  EXPECT_THAT(said([&] { static_cast<void>(lock.acquire()); }),
              AllOf(HasSubstr("wouldDeadlock"), HasSubstr("give acquire() currentOwner()")));
  EXPECT_EQ(said([&] { static_cast<void>(lock.acquire({}, currentOwner())); }), "ok");
}

TEST_F(Mistakes, AReaderWantsToWrite) {
  Client client = connect();
  ReadWriteLock sides = client.getReadWriteLock("m");
  sides.readLock().lock();
  EXPECT_THAT(said([&] { sides.writeLock().lock(); }),
              AllOf(HasSubstr("wouldDeadlock"), HasSubstr("it would wait for itself")));
}

TEST_F(Mistakes, AKindWithoutReentryIsTakenTwice) {
  Client client = connect();
  for (RLock lock : {client.getSimpleLock("simple"), client.getNonReentrantLock("plain")}) {
    lock.lock();
    EXPECT_THAT(said([&] { lock.lock(); }), AllOf(HasSubstr("reentry"), HasSubstr("already")));
  }
}

TEST_F(Mistakes, AHandleThatWasMovedFrom) {
  Client client = connect();
  RLock lock = client.getLock("m");
  const RLock other = std::move(lock);
  // NOLINTNEXTLINE(bugprone-use-after-move): it is what is tested
  EXPECT_THAT(said([&] { lock.lock(); }),
              AllOf(HasSubstr("invalidArgument"), HasSubstr("use the one that it was moved to")));
}

TEST_F(Mistakes, AHandleOutlivesItsClient) {
  std::optional<Client> client = connect();
  RLock lock = client->getLock("m");
  client.reset();
  EXPECT_THAT(said([&] { lock.lock(); }),
              AllOf(HasSubstr("closed: "), HasSubstr("the client was closed")));
}

TEST_F(Mistakes, AGroupOfTheSameOrOfNone) {
  Client client = connect();
  EXPECT_THAT(
      said([&] {
        multiLock({client.getLock("m"), client.getLock("m")});
      }),
      AllOf(HasSubstr("invalidArgument"), HasSubstr("cannot be part of another one twice")));
  EXPECT_THAT(said([&] { multiLock({}); }),
              AllOf(HasSubstr("invalidArgument"), HasSubstr("cannot consist of no locks")));
}

TEST_F(Mistakes, CountsBelowZero) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("m");
  EXPECT_THAT(said([&] { semaphore.acquire(-1); }),
              AllOf(HasSubstr("invalidArgument"), HasSubstr("-1 permits are less than none")));
  CountDownLatch latch = client.getCountDownLatch("c");
  EXPECT_THAT(said([&] { static_cast<void>(latch.trySetCount(-1)); }),
              AllOf(HasSubstr("invalidArgument"), HasSubstr("-1")));
  expectNoKeys();
}

TEST_F(Mistakes, AnIdThatIsNone) {
  Client client = connect();
  PermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore("m");
  EXPECT_THAT(said([&] { semaphore.release("first"); }),
              AllOf(HasSubstr("invalidArgument"), HasSubstr("32 hexadecimal digits")));
  EXPECT_THAT(said([&] { semaphore.release(std::string(32, 'a')); }), HasSubstr("notOwner"));
}

TEST_F(Mistakes, ASemaphoreThatNobodyHasSet) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("m");
  EXPECT_FALSE(semaphore.tryAcquire(1, 300ms));
  EXPECT_TRUE(semaphore.trySetPermits(1));
  EXPECT_TRUE(semaphore.tryAcquire(1, 300ms));
}

TEST_F(Mistakes, CountsAreSetOnce) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("m");
  EXPECT_TRUE(semaphore.trySetPermits(3));
  EXPECT_FALSE(semaphore.trySetPermits(5));
  EXPECT_EQ(semaphore.availablePermits(), 3);
  CountDownLatch latch = client.getCountDownLatch("c");
  EXPECT_TRUE(latch.trySetCount(3));
  EXPECT_FALSE(latch.trySetCount(5));
  EXPECT_EQ(latch.getCount(), 3);
}

}  // namespace
}  // namespace rlock::test
