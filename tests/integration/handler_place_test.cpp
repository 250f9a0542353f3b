// SPDX-License-Identifier: Apache-2.0

// No handler runs inside start(), also where the executor runs at once what it is given.

#include "integration/lock_harness.hpp"

namespace rlock::test {
namespace {

/// This thread runs what the executor was given.
thread_local bool runsTask = false;

class HandlerPlace : public LockTest {
 protected:
  [[nodiscard]] Client connectInline() {
    Options settings = options();
    settings.executor = [](std::function<void()> task) { task(); };
    return Client::connect(settings);
  }

  /// Says how the operation ended, and whether its handler ran inside start().
  template <class T>
  static std::string startedOutside(Operation<T> operation) {
    struct State {
      std::atomic<bool> starting{true};
      std::thread::id starter = std::this_thread::get_id();
      std::promise<std::string> told;
    };
    auto state = std::make_shared<State>();
    auto future = state->told.get_future();
    std::move(operation).start([state](const Result<T>& result) {
      const bool inside = state->starting && std::this_thread::get_id() == state->starter;
      state->told.set_value((inside ? "inside start(): " : "") + outcomeOf(result));
    });
    state->starting = false;
    return ready(future, kLong) ? future.get() : "never told";
  }

  /// Every kind of object, each with a call that is refused before anything is sent.
  static void expectAll(Client& client, const std::string& outcome) {
    const AcquireOptions bad{.lease = 0s};
    const std::vector<RLock> locks{
        client.getLock("a"),
        client.getFairLock("b"),
        client.getSimpleLock("c"),
        client.getSpinLock("d"),
        client.getFencedLock("e"),
        client.getReadWriteLock("f").readLock(),
        client.getReadWriteLock("f").writeLock(),
        multiLock({client.getLock("a"), client.getLock("b")}),
        redLock({client.getLock("a"), client.getLock("b"), client.getLock("c")})};
    for (RLock lock : locks) {
      EXPECT_EQ(startedOutside(lock.lockAsync(bad)), outcome) << lock.getName();
      EXPECT_EQ(startedOutside(lock.tryLockAsync(bad)), outcome) << lock.getName();
      EXPECT_EQ(startedOutside(lock.acquireAsync(bad, newOwner())), outcome) << lock.getName();
    }
    EXPECT_EQ(startedOutside(client.getSemaphore("s").acquireAsync(-1)), outcome);
    PermitExpirableSemaphore permits = client.getPermitExpirableSemaphore("p");
    EXPECT_EQ(startedOutside(permits.acquireManyAsync(-1)), outcome);
    EXPECT_EQ(startedOutside(permits.releaseAsync("no id")), outcome);
    EXPECT_EQ(startedOutside(client.getCountDownLatch("l").trySetCountAsync(-1)), outcome);
  }
};

TEST_F(HandlerPlace, ARefusedCallIsToldLater) {
  Client client = connectInline();
  expectAll(client, "invalidArgument");
  EXPECT_EQ(startedOutside(client.getSemaphore("s").acquireAsync(0)), "ok");
  EXPECT_EQ(startedOutside(client.getPermitExpirableSemaphore("p").acquireManyAsync(0)), "ok");
}

TEST_F(HandlerPlace, ACallOfAClosedClientIsToldLater) {
  Client client = connectInline();
  RLock lock = client.getLock("a");
  RLock both = multiLock({client.getLock("a"), client.getLock("b")});
  Semaphore semaphore = client.getSemaphore("s");
  client.close(1s);
  EXPECT_EQ(startedOutside(lock.lockAsync()), "closed");
  EXPECT_EQ(startedOutside(lock.unlockAsync()), "closed");
  EXPECT_EQ(startedOutside(lock.isLockedAsync()), "closed");
  EXPECT_EQ(startedOutside(both.lockAsync()), "closed");
  EXPECT_EQ(startedOutside(semaphore.acquireAsync()), "closed");
}

TEST_F(HandlerPlace, ACallOfAClosedClientIsToldByTheExecutor) {
  Options settings = options();
  settings.executor = [](std::function<void()> task) {
    runsTask = true;
    task();
    runsTask = false;
  };
  Client client = Client::connect(settings);
  RLock lock = client.getLock("a");
  client.close(1s);
  const auto told = std::make_shared<std::promise<bool>>();
  auto future = told->get_future();
  lock.lockAsync().start([told](const Result<void>& /*result*/) { told->set_value(runsTask); });
  ASSERT_TRUE(ready(future, kLong));
  EXPECT_TRUE(future.get());
}

}  // namespace
}  // namespace rlock::test
