// SPDX-License-Identifier: Apache-2.0

// Very many callers wait for one lock in one client. Each of them may give its turn on; none of
// them may need a part of the stack for that.

#include "integration/lock_harness.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace rlock::test {
namespace {

/// How far apart in one thread's stack the handlers begin.
class StackProbe {
 public:
  /// An executor that runs handlers where they are given out.
  [[nodiscard]] Executor executor() {
    return [this](std::function<void()> handler) {
      note();
      handler();
    };
  }
  [[nodiscard]] std::size_t depth() const {
    const std::lock_guard lock(mutex_);
    std::size_t deepest = 0;
    for (const auto& [thread, seen] : stacks_) {
      deepest = std::max(deepest, seen.highest - seen.lowest);
    }
    return deepest;
  }

 private:
  struct Seen {
    std::uintptr_t lowest = std::numeric_limits<std::uintptr_t>::max();
    std::uintptr_t highest = 0;
  };

  void note() {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the number is what is wanted
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const std::lock_guard lock(mutex_);
    Seen& seen = stacks_[std::this_thread::get_id()];
    seen.lowest = std::min(seen.lowest, here);
    seen.highest = std::max(seen.highest, here);
  }

  mutable std::mutex mutex_;
  std::map<std::thread::id, Seen> stacks_;
};

/// The answers that a crowd's handlers were told.
class Answers {
 public:
  template <class T>
  void add(const Result<T>& result) {
    const std::lock_guard lock(mutex_);
    ++answers_[outcomeOf(result)];
    ++count_;
  }
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  [[nodiscard]] std::map<std::string, std::size_t> all() const {
    const std::lock_guard lock(mutex_);
    return answers_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::size_t> answers_;
  std::size_t count_ = 0;
};

using Told = std::map<std::string, std::size_t>;

/// A crowd that waits for what somebody else has, by any kind of lock.
struct Kind {
  const char* name;
  /// Somebody else takes what the crowd waits for.
  std::function<void(Client&)> take;
  /// One more waits.
  std::function<void(Client&, Answers&)> join;
};

template <class T>
void tell(Operation<T> operation, Answers& answers) {
  std::move(operation).start([&answers](Result<T> result) { answers.add(result); });
}

Kind lockKind(const char* name, RLock (*get)(Client&)) {
  return {name,
          [get](Client& client) { get(client).lockAsync({.lease = 3600s}, newOwner()).get(); },
          [get](Client& client, Answers& answers) {
            tell(get(client).lockAsync({}, newOwner()), answers);
          }};
}

std::vector<Kind> kinds() {
  std::vector<Kind> all{
      lockKind("plain", [](Client& client) { return client.getLock("crowd"); }),
      lockKind("spin", [](Client& client) { return client.getSpinLock("crowd"); }),
      lockKind("simple", [](Client& client) { return client.getSimpleLock("crowd"); }),
      lockKind("write",
               [](Client& client) { return client.getReadWriteLock("crowd").writeLock(); }),
      lockKind("multi",
               [](Client& client) {
                 return multiLock({client.getLock("crowd"), client.getLock("crowd2")});
               }),
  };
  all.push_back(
      {"read",
       [](Client& client) {
         client.getReadWriteLock("crowd").writeLock().lockAsync({.lease = 3600s}, newOwner()).get();
       },
       [](Client& client, Answers& answers) {
         tell(client.getReadWriteLock("crowd").readLock().lockAsync({}, newOwner()), answers);
       }});
  all.push_back({"semaphore",
                 [](Client& client) { client.getSemaphore("crowd").trySetPermits(0); },
                 [](Client& client, Answers& answers) {
                   tell(client.getSemaphore("crowd").acquireAsync(), answers);
                 }});
  all.push_back({"permits",
                 [](Client& client) {
                   client.getPermitExpirableSemaphore("crowd").trySetPermits(1);
                   static_cast<void>(client.getPermitExpirableSemaphore("crowd").acquire(3600s));
                 },
                 [](Client& client, Answers& answers) {
                   tell(client.getPermitExpirableSemaphore("crowd").acquireAsync(), answers);
                 }});
  all.push_back({"latch",
                 [](Client& client) { client.getCountDownLatch("crowd").trySetCount(1); },
                 [](Client& client, Answers& answers) {
                   tell(client.getCountDownLatch("crowd").awaitAsync(), answers);
                 }});
  return all;
}

std::string kindName(const ::testing::TestParamInfo<Kind>& info) {
  return info.param.name;
}

class LockCrowd : public LockTest, public ::testing::WithParamInterface<Kind> {
 protected:
  static constexpr std::size_t kCrowd = 1500;
  /// A few hundred bytes for each of the crowd would be far more.
  static constexpr std::size_t kStack = 64UL * 1024UL;

  [[nodiscard]] Options probed(std::string_view uri) {
    Options result = tuned(uri);
    result.executor = probe_.executor();
    result.safetyPoll = 200ms;
    result.logLevel = LogLevel::error;
    return result;
  }
  void gather(Client& client, std::size_t count = kCrowd) {
    for (std::size_t i = 0; i < count; ++i) {
      GetParam().join(client, answers_);
    }
    ASSERT_EVENTUALLY(kLong, client.stats().waiters >= count);
  }

  StackProbe probe_;
  Answers answers_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, LockCrowd, ::testing::ValuesIn(kinds()), kindName);

TEST_P(LockCrowd, AChangedPasswordEndsAllWaits) {
  RLOCK_DEFAULT_USER_ONLY("changes the password of the default user");
  RLOCK_ONE_SERVER_ONLY("changes the password of its server");
  Client holder = connect();
  GetParam().take(holder);
  Client client = Client::connect(probed(uri()));
  gather(client);
  raw().run({"CONFIG", "SET", "requirepass", "changed"});
  raw().run({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  raw().run({"CLIENT", "KILL", "TYPE", "pubsub"});
  ASSERT_EVENTUALLY(2 * kLong, answers_.count() == kCrowd);
  EXPECT_EQ(answers_.all(), (Told{{"authenticationFailed", kCrowd}}));
  EXPECT_LT(probe_.depth(), kStack);
  EXPECT_EQ(client.stats().waiters, 0U);
}

TEST_P(LockCrowd, CloseEndsAllWaitsWhileThereIsNoServer) {
  Client holder = connect();
  GetParam().take(holder);
  Client client = Client::connect(probed(proxyUri()));
  gather(client);
  proxy().refuseConnections(true);
  proxy().cutAll();
  client.close(1s);
  EXPECT_EVENTUALLY(kLong, answers_.count() == kCrowd);
  EXPECT_EQ(answers_.all(), (Told{{"closed", kCrowd}}));
  EXPECT_LT(probe_.depth(), kStack);
}

class LockCrowdPlain : public LockCrowd {};
INSTANTIATE_TEST_SUITE_P(Kinds, LockCrowdPlain, ::testing::Values(kinds().front()), kindName);

TEST_P(LockCrowdPlain, TheSameTimeLimitEndsAllWaitsWhileThereIsNoServer) {
  Client holder = connect();
  GetParam().take(holder);
  Client client = Client::connect(probed(proxyUri()));
  for (std::size_t i = 0; i < kCrowd; ++i) {
    tell(client.getLock("crowd").tryLockAsync({.wait = Duration(scaled(5s))}, newOwner()),
         answers_);
  }
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == kCrowd);
  proxy().refuseConnections(true);
  proxy().cutAll();
  ASSERT_EVENTUALLY(kLong, answers_.count() == kCrowd);
  EXPECT_LT(probe_.depth(), kStack);
  EXPECT_EQ(client.stats().waiters, 0U);
}

// Calls of one owner about one lock wait for one another, not for the lock.

TEST_P(LockCrowdPlain, ManyCallsOfOneOwnerEndWithTheClient) {
  const auto stalled = proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::stallReply());
  Client client = Client::connect(probed(proxyUri()));
  const OwnerId owner = newOwner();
  for (std::size_t i = 0; i < kCrowd; ++i) {
    tell(client.getLock("crowd").lockAsync({}, owner), answers_);
  }
  ASSERT_TRUE(stalled.waitForHits(1, kLong));
  client.close(100ms);
  EXPECT_EVENTUALLY(kLong, answers_.count() == kCrowd);
  EXPECT_EQ(answers_.all(), (Told{{"closed", kCrowd}}));
  EXPECT_LT(probe_.depth(), kStack);
}

TEST_P(LockCrowdPlain, ManyCallsOfOneOwnerAreAllServed) {
  Client client = Client::connect(probed(uri()));
  const OwnerId owner = newOwner();
  for (std::size_t i = 0; i < kCrowd; ++i) {
    tell(client.getLock("crowd").lockAsync({}, owner), answers_);
  }
  ASSERT_EVENTUALLY(kLong, answers_.count() == kCrowd);
  EXPECT_EQ(answers_.all(), (Told{{"ok", kCrowd}}));
  EXPECT_LT(probe_.depth(), kStack);
}

}  // namespace
}  // namespace rlock::test
