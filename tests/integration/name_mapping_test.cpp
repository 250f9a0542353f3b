// SPDX-License-Identifier: Apache-2.0

// Names on the server that are not the application's: Options::namePrefix and Options::nameMapper.

#include "integration/lock_harness.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NameMapping : public LockTest {
 protected:
  [[nodiscard]] Options prefixed(const std::string& prefix = "app:") {
    Options settings = options();
    settings.namePrefix = prefix;
    return settings;
  }
  [[nodiscard]] Options mapped(std::function<std::string(std::string_view)> mapper) {
    Options settings = options();
    settings.nameMapper = std::move(mapper);
    return settings;
  }
  /// Every key, and every channel but those of clients, is made of the server's name.
  void expectOnly(const std::string& onServer) {
    const auto keys = raw().keys();
    EXPECT_FALSE(keys.empty());
    for (const std::string& key : keys) {
      EXPECT_THAT(key, HasSubstr(onServer));
    }
    for (const std::string& channel : raw().pubsubChannels()) {
      if (!channel.starts_with("rlock_client:")) {
        EXPECT_THAT(channel, HasSubstr(onServer));
      }
    }
  }
};

TEST_F(NameMapping, XNAM5_GoesIntoEveryKeyAndChannelOfEachLock) {
  using Make = std::function<RLock(Client&)>;
  const std::vector<Make> kinds{
      [](Client& client) { return client.getLock("17"); },
      [](Client& client) { return client.getFairLock("17"); },
      [](Client& client) { return client.getNonReentrantLock("17"); },
      [](Client& client) { return client.getNonReentrantFairLock("17"); },
      [](Client& client) { return client.getReadWriteLock("17").readLock(); },
      [](Client& client) { return client.getReadWriteLock("17").writeLock(); },
      [](Client& client) { return client.getSimpleLock("17"); },
      [](Client& client) -> RLock { return client.getFencedLock("17"); },
      [](Client& client) { return client.getSpinLock("17"); },
  };
  for (const Make& make : kinds) {
    SCOPED_TRACE(&make - kinds.data());
    raw().flushAll();
    Client client = Client::connect(prefixed());
    Client plain = connect();
    RLock lock = make(client);
    EXPECT_EQ(lock.getName(), "17");
    Lease lease = lock.acquire({.label = "import"});
    EXPECT_TRUE(raw().exists("app:17"));
    EXPECT_EVENTUALLY(kLong, raw().exists("rlock_label:{app:17}"));
    // A client without the prefix has the longer name, and the lock is the same.
    EXPECT_TRUE(plain.inspect("app:17").has_value());
    auto contender = inThread([&] {
      Client second = Client::connect(prefixed());
      return answerOf([&] { return make(second).tryLock(scaled(500ms)); });
    });
    EXPECT_THAT(contender.get(), ::testing::AnyOf("false", "true"));
    expectOnly("app:17");
    EXPECT_EQ(lease.release(), ReleaseResult::released);
  }
}

TEST_F(NameMapping, GoesIntoSemaphoresAndLatches) {
  Client client = Client::connect(prefixed());
  Semaphore semaphore = client.getSemaphore("17");
  EXPECT_EQ(semaphore.getName(), "17");
  EXPECT_TRUE(semaphore.trySetPermits(3));
  EXPECT_EQ(raw().get("app:17"), "3");
  semaphore.acquire(3);
  auto waiter = inThread([&] { return outcomeOf([&] { semaphore.acquire(); }); });
  EXPECT_EVENTUALLY(kLong, raw().numsub("redisson_sc:{app:17}") == 1);
  expectOnly("app:17");
  semaphore.release(3);
  EXPECT_EQ(waiter.get(), "ok");
  raw().flushAll();
  CountDownLatch latch = client.getCountDownLatch("17");
  EXPECT_EQ(latch.getName(), "17");
  EXPECT_TRUE(latch.trySetCount(2));
  EXPECT_EQ(raw().get("app:17"), "2");
  auto awaiting = inThread([&] { return answerOf([&] { return latch.await(scaled(10s)); }); });
  EXPECT_EVENTUALLY(kLong, raw().numsub("redisson_countdownlatch__channel__{app:17}") == 1);
  latch.countDown();
  latch.countDown();
  EXPECT_EQ(awaiting.get(), "true");
  raw().flushAll();
  PermitExpirableSemaphore permits = client.getPermitExpirableSemaphore("17");
  EXPECT_EQ(permits.getName(), "17");
  EXPECT_TRUE(permits.trySetPermits(2));
  const std::string id = permits.acquire();
  EXPECT_TRUE(raw().exists("{app:17}:timeout"));
  expectOnly("app:17");
  try {
    permits.release("00112233445566778899aabbccddeeff");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.key(), "17");
  }
  permits.release(id);
}

TEST_F(NameMapping, FL20_AQueueHasTheMappedName) {
  Client client =
      Client::connect(mapped([](std::string_view name) { return "test::" + std::string(name); }));
  RLock lock = client.getFairLock("orders");
  lock.lock();
  auto waiter = inThread([&] { return answerOf([&] { return lock.tryLock(scaled(10s)); }); });
  EXPECT_EVENTUALLY(kLong, raw().exists("redisson_lock_queue:{test::orders}"));
  EXPECT_TRUE(raw().exists("redisson_lock_timeout:{test::orders}"));
  EXPECT_TRUE(lock.isLocked());
  lock.unlock();
  EXPECT_EQ(waiter.get(), "true");
  EXPECT_EQ(lock.getName(), "orders");
}

TEST_F(NameMapping, PS30_XNAM5_AMappedNameKeepsItsKeysInOneSlot) {
  Client client =
      Client::connect(mapped([](std::string_view name) { return "test::" + std::string(name); }));
  PermitExpirableSemaphore permits = client.getPermitExpirableSemaphore("orders");
  EXPECT_TRUE(permits.trySetPermits(1));
  const std::string id = permits.acquire();
  EXPECT_EQ(raw().keys("*test::orders*"), raw().keys("*"));
  EXPECT_TRUE(raw().exists("{test::orders}:timeout"));
  permits.release(id);
}

TEST_F(NameMapping, ErrorsAndLossesHaveTheApplicationsName) {
  std::mutex mutex;
  std::vector<LostHold> lost;
  Options settings = prefixed();
  settings.watchdogTimeout = scaled(1s);
  settings.onLost = [&](const LostHold& hold) {
    const std::lock_guard guard(mutex);
    lost.push_back(hold);
  };
  Client client = Client::connect(settings);
  RLock lock = client.getLock("17");
  try {
    lock.unlock();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::notOwner);
    EXPECT_EQ(error.key(), "17");
    EXPECT_THAT(error.what(), Not(HasSubstr("app:")));
  }
  lock.lock();
  raw().del("app:17");
  EXPECT_EVENTUALLY(kLong, [&] {
    const std::lock_guard guard(mutex);
    return lost.size() == 1 && lost[0].name == "17";
  }());
  EXPECT_TRUE(log().waitFor("lock \"17\"", kLong));
}

TEST_F(NameMapping, ErrorsOfEachKindHaveTheApplicationsName) {
  Client client = Client::connect(prefixed());
  raw().run({"RPUSH", "app:17", "no lock"});
  raw().run({"RPUSH", "{app:17}:timeout", "no permits"});
  const std::vector<std::function<void()>> calls{
      [&] { client.getLock("17").lock(); },
      [&] { client.getFairLock("17").lock(); },
      [&] { client.getNonReentrantLock("17").lock(); },
      [&] { client.getSpinLock("17").lock(); },
      [&] { client.getSimpleLock("17").lock(); },
      [&] { client.getFencedLock("17").lock(); },
      [&] { client.getReadWriteLock("17").readLock().lock(); },
      [&] { client.getReadWriteLock("17").writeLock().lock(); },
      [&] { client.getSemaphore("17").acquire(); },
      [&] { client.getSemaphore("17").release(); },
      [&] { static_cast<void>(client.getSemaphore("17").availablePermits()); },
      [&] { static_cast<void>(client.getPermitExpirableSemaphore("17").acquire()); },
      [&] { client.getCountDownLatch("17").await(); },
      [&] { client.getCountDownLatch("17").countDown(); },
  };
  for (const auto& call : calls) {
    SCOPED_TRACE(&call - calls.data());
    try {
      call();
      ADD_FAILURE() << "was not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.errc(), Errc::wrongType) << error.what();
      EXPECT_EQ(error.key(), "17") << error.what();
      EXPECT_THAT(error.what(), HasSubstr("\"17\""));
    }
  }
}

TEST_F(NameMapping, EventsOfSemaphoresHaveTheApplicationsName) {
  class Names : public Observer {
   public:
    void acquired(const AcquiredEvent& event) override { add(event.name); }
    void waited(const WaitedEvent& event) override { add(event.name); }
    void released(const ReleasedEvent& event) override { add(event.name); }
    [[nodiscard]] std::set<std::string> told() const {
      const std::lock_guard guard(mutex_);
      return told_;
    }

   private:
    void add(std::string_view name) {
      const std::lock_guard guard(mutex_);
      told_.emplace(name);
    }
    mutable std::mutex mutex_;
    std::set<std::string> told_;
  };
  const auto names = std::make_shared<Names>();
  Options settings = prefixed();
  settings.observer = names;
  Client client = Client::connect(settings);
  Semaphore semaphore = client.getSemaphore("permits");
  ASSERT_TRUE(semaphore.trySetPermits(1));
  semaphore.acquire();
  auto waiter = inThread([&] { return outcomeOf([&] { semaphore.acquire(); }); });
  EXPECT_EVENTUALLY(kLong, client.stats().waiters == 1);
  semaphore.release();
  EXPECT_EQ(waiter.get(), "ok");
  PermitExpirableSemaphore leased = client.getPermitExpirableSemaphore("leased");
  ASSERT_TRUE(leased.trySetPermits(1));
  leased.release(leased.acquire());
  EXPECT_EVENTUALLY(kLong, names->told() == (std::set<std::string>{"leased", "permits"}));
}

TEST_F(NameMapping, InspectAndListGiveTheApplicationsNames) {
  // As a glob pattern it would match other names, too.
  for (const std::string prefix : {"app:", "a[b]*?:\\"}) {
    raw().flushAll();
    Client client = Client::connect(prefixed(prefix));
    Client plain = connect();
    RLock mine = client.getLock("orders:1");
    mine.lock();
    RLock other = client.getLock("bills:1");
    other.lock();
    RLock foreign = plain.getLock("abx:orders:1");
    foreign.lock();
    EXPECT_EQ(client.inspect("orders:1").value().name, "orders:1");
    EXPECT_FALSE(client.inspect(prefix + "orders:1").has_value());
    const auto names = [](const std::vector<LockInfo>& infos) {
      std::vector<std::string> result;
      for (const LockInfo& info : infos) {
        result.push_back(info.name);
      }
      return result;
    };
    EXPECT_THAT(names(client.list()), ::testing::ElementsAre("bills:1", "orders:1"));
    EXPECT_THAT(names(client.list("orders:*")), ::testing::ElementsAre("orders:1"));
    EXPECT_THAT(names(client.listAsync("bills:?").toFuture().get()),
                ::testing::ElementsAre("bills:1"));
    EXPECT_EQ(plain.list().size(), 3U);
  }
}

TEST_F(NameMapping, AMapperThatGivesNoNameIsRefusedAndNothingIsSent) {
  Client client = Client::connect(mapped([](std::string_view name) -> std::string {
    if (name == "throws") {
      throw std::runtime_error("no such tenant");
    }
    if (name == "throws a number") {
      throw 1;
    }
    return name == "empty" ? "" : name == "long" ? std::string(65537, 'x') : std::string(name);
  }));
  client.ping();
  const auto sent = client.stats().commands;
  for (const char* const name : {"throws", "throws a number", "empty", "long", ""}) {
    EXPECT_EQ(outcomeOf([&] { client.getLock(name); }), "invalidArgument") << name;
    EXPECT_EQ(outcomeOf([&] { client.getSemaphore(name); }), "invalidArgument") << name;
    EXPECT_EQ(outcomeOf([&] { client.inspect(name); }), "invalidArgument") << name;
  }
  try {
    client.getLock("throws");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no such tenant"));
    EXPECT_EQ(error.key(), "throws");
  }
  EXPECT_EQ(client.stats().commands, sent);
  Client narrow = Client::connect(prefixed());
  EXPECT_EQ(outcomeOf([&] { narrow.getLock(std::string(65533, 'x')); }), "invalidArgument");
  EXPECT_EQ(outcomeOf([&] { narrow.getLock(std::string(65532, 'x')); }), "ok");
  Options both = prefixed();
  both.nameMapper = [](std::string_view name) { return std::string(name); };
  EXPECT_EQ(outcomeOf([&] { Client::connect(both); }), "invalidArgument");
}

TEST_F(NameMapping, GoesIntoLocksOfSeveral) {
  Client client = Client::connect(prefixed());
  Client plain = connect();
  std::vector<RLock> members{client.getLock("1"), client.getLock("2")};
  RLock both = multiLock(members);
  both.lock();
  EXPECT_TRUE(raw().exists("app:1"));
  EXPECT_TRUE(raw().exists("app:2"));
  EXPECT_THAT(both.getName(), Not(HasSubstr("app:")));
  both.unlock();
  members = {client.getLock("1"), client.getLock("2"), plain.getLock("3")};
  RLock most = redLock(members);
  most.lock();
  // Two of three are enough; the third may still be on its way.
  EXPECT_TRUE(eventually(5s, [&] { return raw().exists("app:2") && raw().exists("3"); }));
  most.unlock();
  // The same lock by two names is the same lock.
  members = {client.getLock("1"), plain.getLock("app:1")};
  EXPECT_EQ(outcomeOf([&] { multiLock(members); }), "invalidArgument");
}

TEST_F(NameMapping, IsAnOptionOfTheUri) {
  Client client = Client::connect(uri("name-prefix=svc%3A"));
  client.getLock("17").lock();
  EXPECT_TRUE(raw().exists("svc:17"));
}

}  // namespace
}  // namespace rlock::test
