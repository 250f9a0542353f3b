// SPDX-License-Identifier: Apache-2.0

// The fair lock: order of arrival, dead waiters, the queue on the server, and company that plays by
// the older rules. What it shares with all other locks is in lock_kinds_test.cpp.

#include "integration/lock_harness.hpp"

#include <algorithm>
#include <array>
#include <ostream>
#include <set>
#include <tuple>

namespace rlock::test {
namespace {

using Names = std::vector<std::string>;
using Fields = std::map<std::string, std::string>;

/// A client of the older rules, as its scripts do it: it subtracts its waiting time from
/// everybody's when it acquires, and never refreshes its place.
class ForeignClient {
 public:
  /// @param wait  its waiting time
  ForeignClient(RawRedis& redis, std::string name, std::chrono::milliseconds wait = 300s)
      : redis_(redis), name_(std::move(name)), wait_(std::to_string(wait.count())) {}

  /// True: held. False: enrolled.
  bool acquire(const std::string& owner, std::chrono::milliseconds lease) {
    constexpr std::string_view kScript = R"(
      while true do
        local first = redis.call('lindex', KEYS[2], 0)
        if not first then break end
        local score = redis.call('zscore', KEYS[3], first)
        if not score or tonumber(score) > tonumber(ARGV[4]) then break end
        redis.call('zrem', KEYS[3], first)
        redis.call('lpop', KEYS[2])
      end
      local first = redis.call('lindex', KEYS[2], 0)
      if redis.call('exists', KEYS[1]) == 0 and (not first or first == ARGV[2]) then
        redis.call('lpop', KEYS[2])
        redis.call('zrem', KEYS[3], ARGV[2])
        for _, other in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
          redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), other)
        end
        redis.call('hset', KEYS[1], ARGV[2], 1)
        redis.call('pexpire', KEYS[1], ARGV[1])
        return 1
      end
      if not redis.call('zscore', KEYS[3], ARGV[2]) then
        local last = redis.call('lindex', KEYS[2], -1)
        local ttl = last and tonumber(redis.call('zscore', KEYS[3], last)) - tonumber(ARGV[4])
                    or redis.call('pttl', KEYS[1])
        redis.call('zadd', KEYS[3], string.format('%.0f', ttl + ARGV[3] + ARGV[4]), ARGV[2])
        redis.call('rpush', KEYS[2], ARGV[2])
      end
      return 0)";
    return redis_.eval(kScript, keys(), {std::to_string(lease.count()), owner, wait_, now()})
               .integer() == 1;
  }
  void release() {
    constexpr std::string_view kScript = R"(
      while true do
        local first = redis.call('lindex', KEYS[2], 0)
        if not first then break end
        local score = redis.call('zscore', KEYS[3], first)
        if not score or tonumber(score) > tonumber(ARGV[1]) then break end
        redis.call('zrem', KEYS[3], first)
        redis.call('lpop', KEYS[2])
      end
      redis.call('del', KEYS[1])
      local first = redis.call('lindex', KEYS[2], 0)
      if first then redis.call('publish', ARGV[2] .. ':' .. first, '0') end
      return 1)";
    redis_.eval(kScript, keys(), {now(), "redisson_lock__channel:{" + name_ + "}"});
  }
  /// Gives its place up, and shortens the times of those behind.
  void leave(const std::string& owner) {
    constexpr std::string_view kScript = R"(
      local behind = false
      for _, other in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
        if behind then redis.call('zincrby', KEYS[3], -tonumber(ARGV[2]), other) end
        behind = behind or other == ARGV[1]
      end
      redis.call('zrem', KEYS[3], ARGV[1])
      return redis.call('lrem', KEYS[2], 0, ARGV[1]))";
    redis_.eval(kScript, keys(), {owner, wait_});
  }

 private:
  [[nodiscard]] RawRedis::Args keys() const {
    return {name_, "redisson_lock_queue:{" + name_ + "}", "redisson_lock_timeout:{" + name_ + "}"};
  }
  [[nodiscard]] std::string now() { return std::to_string(redis_.serverTimeUs() / 1000); }

  RawRedis& redis_;
  const std::string name_;
  const std::string wait_;
};

/// Locks by scripts alone, for the steps that the client cannot be held between.
class Steps {
 public:
  Steps(RawRedis& redis, std::string name, std::chrono::milliseconds place)
      : redis_(redis), name_(std::move(name)), place_(place) {}

  enum class Wait { none, begin, on };

  /// Empty: held. Else the time told.
  std::optional<std::int64_t> acquire(const std::string& owner,
                                      std::chrono::milliseconds lease,
                                      Wait wait) {
    const Value reply = redis_.eval(lua::fair_acquire.body,
                                    keys(6),
                                    {std::to_string(lease.count()),
                                     owner,
                                     std::to_string(static_cast<int>(wait)),
                                     std::to_string(place_.count()),
                                     "0",
                                     "PUBLISH",
                                     channel()});
    if (reply.kind() == Value::Kind::array) {
      return std::nullopt;
    }
    return reply.integer();
  }
  Value release(const std::string& owner) {
    return redis_.eval(lua::fair_release.body, keys(4), {owner, "0", "PUBLISH", "0", channel()});
  }
  std::int64_t withdraw(const std::string& owner) {
    return redis_.eval(lua::fair_withdraw.body, keys(6), {owner, "0", "PUBLISH", channel()})
        .integer();
  }

 private:
  [[nodiscard]] std::string channel() const { return "redisson_lock__channel:{" + name_ + "}"; }
  [[nodiscard]] RawRedis::Args keys(std::size_t count) const {
    RawRedis::Args all{name_,
                       "redisson_lock_queue:{" + name_ + "}",
                       "redisson_lock_timeout:{" + name_ + "}",
                       "rlock_lock_waiter_lease:{" + name_ + "}",
                       "rlock_lock_order:{" + name_ + "}",
                       "rlock_lock_foreign_wait:{" + name_ + "}"};
    all.resize(count);
    return all;
  }

  RawRedis& redis_;
  const std::string name_;
  const std::chrono::milliseconds place_;
};

/// Callers of one lock that come one after the other, and the order in which they got in.
class Visitors {
 public:
  explicit Visitors(std::chrono::milliseconds hold = 1ms) : hold_(hold) {}
  Visitors(const Visitors&) = delete;
  Visitors& operator=(const Visitors&) = delete;
  // A test that has failed must not wait for them.
  ~Visitors() { stop_.request_stop(); }

  void send(RLock lock, int number, AcquireOptions options = {}) {
    if (!options.stop.stop_possible()) {
      options.stop = stop_.get_token();
    }
    threads_.push_back(inThread([this, lock, number, options]() mutable {
      return outcomeOf([&] {
        Lease lease = lock.acquire(options);
        {
          const std::lock_guard guard(mutex_);
          order_.push_back(number);
        }
        resource_.use(hold_);
        if (lease.release() != ReleaseResult::released) {
          throw std::runtime_error("not released");
        }
      });
    }));
  }
  /// All outcomes but "ok", and what became of the resource.
  [[nodiscard]] Names troubles() {
    Names found;
    for (auto& thread : threads_) {
      std::string outcome = thread.get();
      if (outcome != "ok") {
        found.push_back(std::move(outcome));
      }
    }
    threads_.clear();
    if (resource_.overlaps() != 0) {
      found.emplace_back("overlap");
    }
    return found;
  }
  [[nodiscard]] std::vector<int> order() {
    const std::lock_guard guard(mutex_);
    return order_;
  }

 private:
  const std::chrono::milliseconds hold_;
  std::stop_source stop_;
  Resource resource_;
  std::mutex mutex_;
  std::vector<int> order_;
  std::vector<std::future<std::string>> threads_;
};

std::vector<int> upTo(int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) {
    numbers.push_back(i);
  }
  return numbers;
}

class FairLockTest : public LockTest {
 protected:
  /// How long a place lasts. The shortest there is.
  static constexpr std::chrono::milliseconds kPlace{1000};

  [[nodiscard]] static Options fair(Options options) {
    options.fairWaiterLease = kPlace;
    return options;
  }
  [[nodiscard]] Client connectFair() { return Client::connect(fair(options())); }

  [[nodiscard]] static std::string queueKey(const std::string& name) {
    return "redisson_lock_queue:{" + name + "}";
  }
  [[nodiscard]] static std::string deadlinesKey(const std::string& name) {
    return "redisson_lock_timeout:{" + name + "}";
  }
  [[nodiscard]] static std::string leasesKey(const std::string& name) {
    return "rlock_lock_waiter_lease:{" + name + "}";
  }
  [[nodiscard]] static std::string orderKey(const std::string& name) {
    return "rlock_lock_order:{" + name + "}";
  }
  [[nodiscard]] static std::string foreignWaitsKey(const std::string& name) {
    return "rlock_lock_foreign_wait:{" + name + "}";
  }
  [[nodiscard]] Names queue(const std::string& name) {
    return raw().run({"LRANGE", queueKey(name), "0", "-1"}).strings();
  }
  [[nodiscard]] bool waiting(const std::string& name, std::size_t count) {
    return queue(name).size() == count;
  }
  /// How long the places last, by the server's clock.
  [[nodiscard]] std::vector<std::int64_t> placesLeft(const std::string& name) {
    const Names all = raw().run({"ZRANGE", deadlinesKey(name), "0", "-1", "WITHSCORES"}).strings();
    const std::int64_t now = raw().serverTimeUs() / 1000;
    std::vector<std::int64_t> left;
    for (std::size_t i = 1; i < all.size(); i += 2) {
      left.push_back(std::stoll(all[i]) - now);
    }
    return left;
  }
  /// The longest of them seen until a deadline.
  [[nodiscard]] std::int64_t longestPlace(const std::string& name, const Deadline& until) {
    std::int64_t longest = 0;
    while (!until.expired()) {
      for (const std::int64_t left : placesLeft(name)) {
        longest = std::max(longest, left);
      }
    }
    return longest;
  }
  /// A waiter of another program, whose place lasts for long.
  void rawEnrol(const std::string& name, const std::string& owner) {
    raw().run({"RPUSH", queueKey(name), owner});
    raw().run(
        {"ZADD", deadlinesKey(name), std::to_string(raw().serverTimeUs() / 1000 + 600'000), owner});
    raw().run({"PEXPIRE", queueKey(name), "900000"});
    raw().run({"PEXPIRE", deadlinesKey(name), "900000"});
  }
  /// Nobody waits and nothing of those who did is left.
  void expectNoQueue(const std::string& name) {
    EXPECT_EQ(queue(name), Names());
    EXPECT_FALSE(raw().exists(deadlinesKey(name)));
    EXPECT_FALSE(raw().exists(leasesKey(name)));
    EXPECT_FALSE(raw().exists(orderKey(name)));
  }
  /// A worker process whose locks are fair.
  [[nodiscard]] std::unique_ptr<Worker> fairWorker() {
    auto worker =
        std::make_unique<Worker>(server().uri() + "?watchdog-timeout=1s&fair-waiter-lease=1s");
    EXPECT_EQ(worker->ask("kind fair"), "ok");
    return worker;
  }
};

class FairLock : public FairLockTest {};
class FairLockSlow : public FairLockTest {};
class FairLockFaces : public FairLockTest, public ::testing::WithParamInterface<Face> {
 protected:
  [[nodiscard]] static FaceLock lockOf(Client& client, std::string_view name) {
    return {GetParam(), client.getFairLock(name)};
  }
};

INSTANTIATE_TEST_SUITE_P(Faces, FairLockFaces, ::testing::ValuesIn(kFaces), faceName);

// Order.

TEST_F(FairLock, FL01_FirstComeFirstServedAmongThreads) {
  Client client = connectFair();
  RLock lock = client.getFairLock("FL01");
  lock.lock();
  Visitors visitors;
  for (int i = 0; i < 8; ++i) {
    visitors.send(client.getFairLock("FL01"), i);
    ASSERT_EVENTUALLY(kLong, waiting("FL01", static_cast<std::size_t>(i) + 1));
  }
  lock.unlock();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), upTo(8));
  expectNoKeys();
}

TEST_F(FairLock, XFAIR3_FirstComeFirstServedAmong16Clients) {
  constexpr int kClients = 16;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(connectFair()));
  }
  rawHold("XFAIR3", "foreign:1", 60s);
  Visitors visitors;
  for (int i = 0; i < kClients; ++i) {
    visitors.send(clients[static_cast<std::size_t>(i)]->getFairLock("XFAIR3"), i);
  }
  ASSERT_EVENTUALLY(kLong, waiting("XFAIR3", kClients));
  // Whoever came first to the server is first in its list.
  std::vector<int> arrived;
  for (const std::string& owner : queue("XFAIR3")) {
    for (int i = 0; i < kClients; ++i) {
      if (owner.starts_with(clients[static_cast<std::size_t>(i)]->id())) {
        arrived.push_back(i);
      }
    }
  }
  // They stay in order while they refresh their places.
  std::this_thread::sleep_for(kPlace * 3 / 2);
  ForeignClient(raw(), "XFAIR3").release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), arrived);
  expectNoKeys();
}

TEST_F(FairLockSlow, FL03_ManyThreadsWithALeaseEach) {
  Client client = connectFair();
  Resource resource;
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 120; ++i) {
    threads.push_back(inThread([&] {
      RLock lock = client.getFairLock("FL03");
      return outcomeOf([&] {
        lock.lock(5s);
        resource.use(5ms);
        lock.unlock();
      });
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(resource.value(), 120);
  EXPECT_EQ(resource.overlaps(), 0);
  expectNoKeys();
}

TEST_P(FairLockFaces, XFAIR4_OneAttemptNeitherJumpsNorJoinsTheQueue) {
  Client client = connectFair();
  FaceLock lock = lockOf(client, "XFAIR4");
  rawEnrol("XFAIR4", "foreign:7");
  EXPECT_EQ(answerOf(lock.tryLock()), "false") << "it is another's turn";
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), Duration::zero())), "false");
  EXPECT_EQ(queue("XFAIR4"), Names{"foreign:7"});
  raw().del(queueKey("XFAIR4"));
  raw().del(deadlinesKey("XFAIR4"));
  EXPECT_EQ(answerOf(lock.tryLock()), "true");
  EXPECT_EQ(answerOf(lockOf(client, "XFAIR4").tryLock(newOwner())), "false");
  expectNoQueue("XFAIR4");
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
}

TEST_P(FairLockFaces, XFAIR4_AReentrantOwnerIsNotQueued) {
  Client client = connectFair();
  const OwnerId owner = newOwner();
  FaceLock lock = lockOf(client, "again");
  lock.lock(owner).value();
  Visitors visitors;
  visitors.send(client.getFairLock("again"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("again", 1));
  const Names before = queue("again");
  EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
  EXPECT_EQ(answerOf(lock.tryLock(owner)), "true");
  EXPECT_EQ(answerOf(lock.tryLock(owner, 1s)), "true");
  EXPECT_EQ(queue("again"), before);
  EXPECT_EQ(lock.holdCount(owner), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  }
  EXPECT_EQ(visitors.troubles(), Names());
  expectNoKeys();
}

TEST_P(FairLockFaces, TwoCallsOfOneOwnerShareItsPlace) {
  Client client = connectFair();
  rawHold("shared", "foreign:1", 60s);
  const OwnerId owner = newOwner();
  const auto call = [&] {
    return inThread([&] { return outcomeOf(lockOf(client, "shared").lock(owner)); });
  };
  auto one = call();
  auto two = call();
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
  EXPECT_EQ(queue("shared"), Names{ownerField(client, owner)});
  ForeignClient(raw(), "shared").release();
  // The one that got in takes the other along.
  EXPECT_TRUE(ready(one, kPlace) && ready(two, kPlace));
  EXPECT_EQ(one.get(), "ok");
  EXPECT_EQ(two.get(), "ok");
  EXPECT_EQ(raw().hgetall("shared"), (Fields{{ownerField(client, owner), "2"}}));
  expectNoQueue("shared");
}

TEST_P(FairLockFaces, ACallThatGivesUpLeavesThePlaceToAnotherOfItsOwner) {
  Client client = connectFair();
  rawHold("sharing", "foreign:1", 60s);
  const OwnerId owner = newOwner();
  auto stays = inThread([&] { return outcomeOf(lockOf(client, "sharing").lock(owner)); });
  ASSERT_EVENTUALLY(kLong, waiting("sharing", 1));
  auto behind = inThread([&] {
    const OwnerId other = newOwner();
    FaceLock lock = lockOf(client, "sharing");
    const std::string outcome = outcomeOf(lock.lock(other));
    return outcome == "ok" ? outcomeOf(lock.unlock(other)) : outcome;
  });
  ASSERT_EVENTUALLY(kLong, waiting("sharing", 2));
  const Names arrived = queue("sharing");
  EXPECT_EQ(answerOf(lockOf(client, "sharing").tryLock(owner, 100ms)), "false");
  const auto lease = [&] {
    return raw().run({"ZSCORE", leasesKey("sharing"), arrived[0]}).string();
  };
  EXPECT_EQ(queue("sharing"), arrived);
  const std::string before = lease();
  EXPECT_EVENTUALLY(kLong, lease() != before);
  EXPECT_EQ(queue("sharing"), arrived);
  ForeignClient(raw(), "sharing").release();
  EXPECT_EQ(stays.get(), "ok");
  EXPECT_FALSE(ready(behind, 0ms));
  EXPECT_EQ(outcomeOf(lockOf(client, "sharing").unlock(owner)), "ok");
  EXPECT_EQ(behind.get(), "ok");
  expectNoKeys();
}

// Leaving.

TEST_P(FairLockFaces, FL04_ATimedOutWaiterLeavesTheQueue) {
  Client client = connectFair();
  FaceLock holder = lockOf(client, "FL04");
  holder.lock().value();
  const std::string got = inThread([&] {
                            return answerOf(lockOf(client, "FL04").tryLock(currentOwner(), 200ms));
                          }).get();
  EXPECT_EQ(got, "false");
  EXPECT_EVENTUALLY(kPlace / 2, queue("FL04").empty());
  EXPECT_EQ(outcomeOf(holder.unlock()), "ok");
  EXPECT_EQ(inThread([&] { return answerOf(lockOf(client, "FL04").tryLock()); }).get(), "true");
  expectNoQueue("FL04");
}

TEST_P(FairLockFaces, FL05_TryLockWaitsForADeadOwner) {
  rawHold("FL05", "dead-client:1", 10s);
  Client client = connectFair();
  FaceLock lock = lockOf(client, "FL05");
  const Stopwatch watch;
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 300ms)), "false");
  EXPECT_GE(watch.elapsedMs(), 300ms);
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(100ms));
  EXPECT_EVENTUALLY(kPlace / 2, queue("FL05").empty());
  expectNoQueue("FL05");
}

TEST_P(FairLockFaces, AStoppedWaiterLeavesTheQueue) {
  Client client = connectFair();
  rawHold("stopped", "foreign:1", 60s);
  std::stop_source stop;
  auto call = inThread([&] {
    AcquireOptions options;
    options.stop = stop.get_token();
    return outcomeOf(
        runBy(GetParam(), client.getFairLock("stopped").lockAsync(std::move(options))));
  });
  ASSERT_EVENTUALLY(kLong, waiting("stopped", 1));
  stop.request_stop();
  EXPECT_EQ(call.get(), "cancelled");
  EXPECT_EVENTUALLY(kPlace / 2, queue("stopped").empty());
  expectNoQueue("stopped");
}

TEST_P(FairLockFaces, AFailedWaiterLeavesTheQueue) {
  Client client = connectFair();
  rawHold("failed", "foreign:1", 60s);
  auto call = inThread([&] { return outcomeOf(lockOf(client, "failed").lock()); });
  ASSERT_EVENTUALLY(kLong, waiting("failed", 1));
  raw().set("failed", "not a lock", 60s);
  EXPECT_EQ(call.get(), "wrongType");
  EXPECT_EVENTUALLY(kPlace / 2, queue("failed").empty());
  expectNoQueue("failed");
}

TEST_P(FairLockFaces, AClosedClientLeavesTheQueue) {
  rawHold("closed", "foreign:1", 60s);
  auto client = std::make_unique<Client>(connectFair());
  std::vector<std::future<std::string>> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(
        inThread([lock = lockOf(*client, "closed")]() mutable { return outcomeOf(lock.lock()); }));
  }
  ASSERT_EVENTUALLY(kLong, waiting("closed", 3));
  const Stopwatch watch;
  client->close(scaled(2s));
  EXPECT_LT(watch.elapsedMs(), scaled(1s));
  for (auto& call : calls) {
    EXPECT_EQ(call.get(), "closed");
  }
  EXPECT_EQ(queue("closed"), Names());
  expectNoQueue("closed");
}

TEST_F(FairLock, ClosingDoesNotWaitForLongWhenNobodyAnswers) {
  Client client = Client::connect(fair(proxied()));
  rawHold("cut", "foreign:1", 60s);
  auto call = inThread([&] { return outcomeOf([&] { client.getFairLock("cut").lock(); }); });
  ASSERT_EVENTUALLY(kLong, waiting("cut", 1));
  proxy().blackHole();
  const Stopwatch watch;
  client.close(300ms);
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(200ms));
  EXPECT_EQ(call.get(), "closed");
}

TEST_F(FairLock, XFAIR2_AWaiterInTheMiddleLeavesAndNobodyIsDelayed) {
  Client client = connectFair();
  Client other = connectFair();
  rawHold("middle", "foreign:1", 60s);
  Visitors visitors;
  std::stop_source stop;
  for (int i = 0; i < 5; ++i) {
    AcquireOptions options;
    if (i == 2 || i == 0) {
      options.stop = stop.get_token();
    }
    visitors.send((i % 2 == 0 ? client : other).getFairLock("middle"), i, options);
    ASSERT_EVENTUALLY(kLong, waiting("middle", static_cast<std::size_t>(i) + 1));
  }
  stop.request_stop();
  ASSERT_EVENTUALLY(kPlace / 2, waiting("middle", 3));
  const Stopwatch watch;
  ForeignClient(raw(), "middle").release();
  EXPECT_EQ(visitors.troubles(), (Names{"cancelled", "cancelled"}));
  EXPECT_LT(watch.elapsedMs(), scaled(kPlace / 3)) << "somebody waited for a poll";
  EXPECT_EQ(visitors.order(), (std::vector<int>{1, 3, 4}));
  expectNoKeys();
}

TEST_F(FairLock, ALeavingHeadWakesTheNextIfTheLockIsFree) {
  Client client = connectFair();
  Steps steps(raw(), "handed", kPlace);
  rawHold("handed", "foreign:1", 60s);
  // A head that does not react: it has a place and no client.
  ASSERT_TRUE(steps.acquire("lazy:1", 1s, Steps::Wait::begin));
  raw().run({"ZADD",
             deadlinesKey("handed"),
             std::to_string(raw().serverTimeUs() / 1000 + 600'000),
             "lazy:1"});
  Visitors visitors;
  visitors.send(client.getFairLock("handed"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("handed", 2));
  ForeignClient(raw(), "handed").release();
  EXPECT_EQ(steps.acquire(ownerField(client, newOwner()), 1s, Steps::Wait::none).value_or(0) > 0,
            true);
  EXPECT_EQ(visitors.order(), std::vector<int>());
  const Stopwatch watch;
  EXPECT_EQ(steps.withdraw("lazy:1"), 1);
  EXPECT_EQ(steps.withdraw("lazy:1"), 0);
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_LT(watch.elapsedMs(), scaled(kPlace / 3)) << "it was not told";
  expectNoKeys();
}

// Dead waiters.

TEST_F(FairLock, WhoRemovesADeadHeadWakesTheNext) {
  Client client = connectFair();
  rawEnrol("buried", "dead:1");
  rawEnrol("buried", "foreign:7");
  raw().run({"ZADD", deadlinesKey("buried"), "1", "dead:1"});
  RawSubscriber subscriber(server());
  subscriber.psubscribe("*");
  EXPECT_FALSE(client.getFairLock("buried").tryLock());
  EXPECT_EQ(queue("buried"), Names{"foreign:7"});
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages()[0],
            (RawSubscriber::Message{"*", channelOf("buried") + ":foreign:7", "0"}));
  EXPECT_FALSE(client.getFairLock("buried").tryLock());
  EXPECT_EQ(subscriber.count(), 1U);
}

TEST_F(FairLock, DeadWaitersFromBeforeTheClockWasSetBackCostOneLeaseTogether) {
  // As they stand there when the server's clock is set back by a minute.
  const std::string stale = std::to_string(raw().serverTimeUs() / 1000 + 60'000);
  for (const char* const dead : {"dead:1", "dead:2", "dead:3"}) {
    raw().run({"RPUSH", queueKey("back"), dead});
    raw().run({"ZADD", deadlinesKey("back"), stale, dead});
    raw().run({"ZADD", leasesKey("back"), stale, dead});
  }
  Client client = connectFair();
  const Stopwatch watch;
  EXPECT_TRUE(client.getFairLock("back").tryLock(30s));
  EXPECT_LT(watch.elapsedMs(), kPlace + scaled(500ms));
  expectNoQueue("back");
}

TEST_F(FairLock, PlacesThatOthersGiveForLongerAreLeftAlone) {
  Client client = connectFair();
  const std::int64_t now = raw().serverTimeUs() / 1000;
  raw().run({"RPUSH", queueKey("longer"), "other:1"});
  raw().run({"ZADD", deadlinesKey("longer"), std::to_string(now + 4500), "other:1"});
  raw().run({"ZADD", leasesKey("longer"), std::to_string(now + 4500), "other:1"});
  EXPECT_FALSE(client.getFairLock("longer").tryLock());
  EXPECT_EQ(raw().run({"ZSCORE", leasesKey("longer"), "other:1"}).string(),
            std::to_string(now + 4500));
  // Redisson's own are what Redisson says.
  rawEnrol("theirs", "foreign:7");
  const auto theirs = raw().run({"ZSCORE", deadlinesKey("theirs"), "foreign:7"}).string();
  EXPECT_FALSE(client.getFairLock("theirs").tryLock());
  EXPECT_EQ(raw().run({"ZSCORE", deadlinesKey("theirs"), "foreign:7"}).string(), theirs);
}

TEST_F(FairLock, TheNextIsThereWhenAShortLeaseOfTheOneBeforeItEnds) {
  // Nobody looks again by itself before that lease is over.
  Options settings = options();
  settings.fairWaiterLease = 60s;
  Client client = Client::connect(settings);
  RLock lock = client.getFairLock("short");
  rawHold("short", "foreign:1", 60s);
  auto first = lock.lockAsync({.lease = 500ms}, newOwner()).toFuture();
  ASSERT_EVENTUALLY(kLong, waiting("short", 1));
  auto second = lock.lockAsync({.lease = 10s}, newOwner()).toFuture();
  ASSERT_EVENTUALLY(kLong, waiting("short", 2));
  std::this_thread::sleep_for(50ms);
  ForeignClient(raw(), "short").release();
  ASSERT_TRUE(ready(first, kLong));
  const Stopwatch watch;
  ASSERT_TRUE(ready(second, kLong));
  EXPECT_LT(watch.elapsedMs(), 500ms + scaled(500ms));
}

TEST_F(FairLockSlow, XFAIR2_SeveralDeadWaitersCostOneLeaseTogether) {
  Client client = connectFair();
  Client other = connectFair();
  rawHold("dead", "foreign:1", 60s);
  Visitors visitors;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 10; ++i) {
    if (i == 0 || i == 1 || i == 4 || i == 7) {
      workers.push_back(fairWorker());
      workers.back()->tell("lock dead");
    } else {
      visitors.send((i % 2 == 0 ? client : other).getFairLock("dead"), i);
    }
    ASSERT_EVENTUALLY(kLong, waiting("dead", static_cast<std::size_t>(i) + 1));
  }
  for (auto& worker : workers) {
    worker->process().kill();
  }
  const Stopwatch watch;
  ForeignClient(raw(), "dead").release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_LT(watch.elapsedMs(), kPlace + scaled(500ms));
  EXPECT_EQ(visitors.order(), (std::vector<int>{2, 3, 5, 6, 8, 9}));
  EXPECT_FALSE(raw().exists("dead"));
  EXPECT_EQ(queue("dead"), Names());
  expectNoEternalKeys();
}

TEST_F(FairLockSlow, AFrozenWaiterLosesItsTurnAndComesBack) {
  Client client = connectFair();
  rawHold("frozen", "foreign:1", 60s);
  auto worker = fairWorker();
  worker->tell("lock frozen");
  ASSERT_EVENTUALLY(kLong, waiting("frozen", 1));
  Visitors visitors(1500ms);
  visitors.send(client.getFairLock("frozen"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("frozen", 2));
  worker->process().stop();
  ForeignClient(raw(), "frozen").release();
  ASSERT_EVENTUALLY(kLong, visitors.order().size() == 1);
  Visitors later;
  later.send(client.getFairLock("frozen"), 1);
  ASSERT_EVENTUALLY(kLong, waiting("frozen", 1));
  worker->process().cont();
  // It came before the one that waits now.
  EXPECT_EVENTUALLY(kLong,
                    waiting("frozen", 2) && queue("frozen")[0].starts_with(worker->clientId()));
  EXPECT_EQ(worker->answer(), "ok");
  EXPECT_EQ(later.order(), std::vector<int>());
  EXPECT_EQ(worker->ask("unlock frozen"), "ok");
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(later.troubles(), Names());
  expectNoKeys();
}

TEST_F(FairLockSlow, FL07_AutoExpireAfterTheOwnerWasKilled) {
  Client other = connectFair();
  auto worker = fairWorker();
  EXPECT_EQ(worker->ask("lock FL07"), "ok");
  std::this_thread::sleep_for(kWatchdog * 3 / 2);
  EXPECT_FALSE(other.getFairLock("FL07").tryLock());
  worker->process().kill();
  const Stopwatch watch;
  EXPECT_TRUE(other.getFairLock("FL07").tryLock(scaled(5s)));
  EXPECT_LT(watch.elapsedMs(), kWatchdog + scaled(300ms));
}

TEST_F(FairLockSlow, OLD04_HundredsOfStoppedWaitersBlockNobody) {
  auto crowd = std::make_unique<Client>(connectFair());
  rawHold("OLD04", "foreign:1", 60s);
  std::stop_source stop;
  Visitors visitors;
  for (int i = 0; i < 200; ++i) {
    AcquireOptions options;
    options.stop = stop.get_token();
    visitors.send(crowd->getFairLock("OLD04"), i, options);
  }
  ASSERT_EVENTUALLY(kLong, waiting("OLD04", 200));
  stop.request_stop();
  crowd.reset();
  EXPECT_EQ(visitors.troubles().size(), 200U);
  EXPECT_EVENTUALLY(kPlace, queue("OLD04").empty());
  ForeignClient(raw(), "OLD04").release();
  Client fresh = connectFair();
  const Stopwatch watch;
  EXPECT_TRUE(fresh.getFairLock("OLD04").tryLock(scaled(5s)));
  EXPECT_LT(watch.elapsedMs(), kPlace + scaled(1s));
}

// Hand-over.

TEST_P(FairLockFaces, XFAIR6_TheHeadTakesAnExpiredLockWithoutAMessage) {
  constexpr int kRounds = 25;
  Client client = connectFair();
  FaceLock lock = lockOf(client, "XFAIR6");
  int late = 0;
  std::chrono::milliseconds worst{0};
  for (int round = 0; round < kRounds; ++round) {
    rawHold("XFAIR6", "foreign:1", 60ms);
    const Stopwatch watch;
    const std::string got =
        round % 2 == 0 ? outcomeOf(lock.lock()) : answerOf(lock.tryLock(currentOwner(), kLong));
    worst = std::max(worst, watch.elapsedMs());
    late += watch.elapsedMs() > 60ms + kLate ? 1 : 0;
    ASSERT_EQ(got, round % 2 == 0 ? "ok" : "true");
    ASSERT_EQ(outcomeOf(lock.unlock()), "ok");
  }
  // The machine may stop for a moment; a poll would be far slower.
  EXPECT_LE(late, scaled(1ms).count() * kRounds / 10);
  EXPECT_LT(worst, kPlace / 3 + 60ms);
  expectNoKeys();
}

TEST_P(FairLockFaces, D01_XFAIR7_OnlyAnOwnerCanUnlockEvenIfNobodyHoldsIt) {
  Client client = connectFair();
  FaceLock lock = lockOf(client, "D01");
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  lock.lock(currentOwner(), 60ms).value();
  ASSERT_EVENTUALLY(kLong, !raw().exists("D01"));
  rawEnrol("D01", "foreign:7");
  RawSubscriber subscriber(server());
  subscriber.subscribe(channelOf("D01") + ":foreign:7");
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  rawHold("D01", "foreign:1", 60s);
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  EXPECT_EQ(raw().hgetall("D01"), (Fields{{"foreign:1", "1"}}));
  EXPECT_EQ(queue("D01"), Names{"foreign:7"});
}

TEST_F(FairLock, ASlowHeadDoesNotMakeTheOthersSpin) {
  constexpr int kWaiters = 5;
  Client client = connectFair();
  rawEnrol("slow", "foreign:7");
  Visitors visitors;
  for (int i = 0; i < kWaiters; ++i) {
    visitors.send(client.getFairLock("slow"), i);
    ASSERT_EVENTUALLY(kLong, waiting("slow", static_cast<std::size_t>(i) + 2));
  }
  std::this_thread::sleep_for(200ms);
  raw().resetStats();
  std::this_thread::sleep_for(kPlace);
  const std::int64_t calls = raw().commandCalls("evalsha");
  // Each refreshes its place three times in a lease.
  EXPECT_GE(calls, 2 * kWaiters);
  EXPECT_LE(calls, 4 * kWaiters);
  ForeignClient(raw(), "slow").leave("foreign:7");
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), upTo(kWaiters));
}

TEST_F(FairLock, AReleaseByForceWakesTheHead) {
  Client client = connectFair();
  rawHold("forced", "foreign:1", 60s);
  Visitors visitors;
  visitors.send(client.getFairLock("forced"), 0);
  const std::string channel = channelOf("forced") + ":";
  ASSERT_EVENTUALLY(kLong, waiting("forced", 1) && raw().numsub(channel + queue("forced")[0]) == 1);
  std::this_thread::sleep_for(50ms);
  const Stopwatch watch;
  EXPECT_TRUE(connectFair().getFairLock("forced").forceUnlock());
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_LT(watch.elapsedMs(), scaled(kPlace / 3));
}

// Times that do not drift.

TEST_F(FairLock, FL21_PlacesOfRefusedWaitersDoNotDrift) {
  Client client = connectFair();
  rawHold("FL21", "foreign:1", 60s);
  std::atomic<bool> end{false};
  std::vector<std::future<void>> threads;
  for (int i = 0; i < 10; ++i) {
    threads.push_back(inThread([&] {
      while (!end.load()) {
        static_cast<void>(answerOf([&] { return client.getFairLock("FL21").tryLock(60ms); }));
      }
    }));
  }
  const Deadline stop(700ms);
  EXPECT_LE(longestPlace("FL21", stop), kPlace.count());
  end = true;
  for (auto& thread : threads) {
    thread.get();
  }
  ASSERT_EVENTUALLY(kPlace, queue("FL21").empty());
  EXPECT_TRUE(client.getFairLock("FL21").forceUnlock());
  EXPECT_FALSE(client.getFairLock("FL21").isLocked());
}

TEST_F(FairLock, FL22_PlacesDoNotDriftWhenTheLockIsHandedOver) {
  Client client = connectFair();
  std::atomic<bool> end{false};
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 6; ++i) {
    threads.push_back(inThread([&] {
      RLock lock = client.getFairLock("FL22");
      return outcomeOf([&] {
        while (!end.load()) {
          if (lock.tryLock(kLong, 30s)) {
            std::this_thread::sleep_for(5ms);
            lock.unlock();
          }
        }
      });
    }));
  }
  const Deadline stop(700ms);
  EXPECT_LE(longestPlace("FL22", stop), kPlace.count());
  end = true;
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  expectNoKeys();
}

TEST_F(FairLockSlow, FL23_PlacesDoNotDriftWhenTheFirstWaiterDies) {
  Client client = connectFair();
  rawHold("FL23", "foreign:1", 60s);
  auto worker = fairWorker();
  worker->tell("lock FL23");
  ASSERT_EVENTUALLY(kLong, waiting("FL23", 1));
  worker->process().kill();
  Visitors visitors;
  for (int i = 0; i < 5; ++i) {
    visitors.send(client.getFairLock("FL23"), i);
  }
  const Deadline stop(kPlace * 2);
  EXPECT_LE(longestPlace("FL23", stop), kPlace.count());
  EXPECT_EQ(queue("FL23").size(), 5U) << "the dead one is still there";
  ForeignClient(raw(), "FL23").release();
  EXPECT_EQ(visitors.troubles(), Names());
}

TEST_F(FairLock, FL24_WhatRefusedOwnersAreToldNeverGrows) {
  using Wait = Steps::Wait;
  Steps steps(raw(), "FL24", 5s);
  EXPECT_FALSE(steps.acquire("101", 30s, Wait::begin));
  for (const std::string owner : {"102", "103", "104", "105"}) {
    const auto told = steps.acquire(owner, 30s, Wait::begin);
    ASSERT_TRUE(told);
    EXPECT_LE(*told, 30'000);
    EXPECT_GE(*told, 29'000);
  }
  EXPECT_EQ(queue("FL24"), (Names{"102", "103", "104", "105"}));
  EXPECT_EQ(steps.withdraw("103"), 1);
  for (const std::string owner : {"102", "104", "105"}) {
    const auto told = steps.acquire(owner, 30s, Wait::on);
    ASSERT_TRUE(told);
    EXPECT_LE(*told, 30'000);
    EXPECT_GE(*told, 29'000);
  }
  EXPECT_EQ(queue("FL24"), (Names{"102", "104", "105"}));
  EXPECT_EQ(steps.release("101"), Value::makeInteger(0));
  EXPECT_FALSE(steps.acquire("102", 30s, Wait::on));
  for (const std::string owner : {"104", "105"}) {
    const auto told = steps.acquire(owner, 30s, Wait::on);
    ASSERT_TRUE(told);
    EXPECT_LE(*told, 30'000);
    EXPECT_GE(*told, 29'700);
  }
}

TEST_F(FairLock, FL25_WhatIsToldFollowsTheHolderNotTheQueue) {
  using Wait = Steps::Wait;
  Steps steps(raw(), "FL25", 5s);
  EXPECT_FALSE(steps.acquire("101", 300s, Wait::begin));
  EXPECT_TRUE(steps.acquire("102", 300s, Wait::begin));
  const auto first = steps.acquire("103", 300s, Wait::begin);
  ASSERT_TRUE(first);
  EXPECT_LE(*first, 300'000);
  EXPECT_EQ(steps.release("101"), Value::makeInteger(0));
  // Free, and the turn of another: until that one counts as dead.
  const auto free = steps.acquire("103", 300s, Wait::on);
  ASSERT_TRUE(free);
  EXPECT_GT(*free, 0);
  EXPECT_LE(*free, 5'000);
  EXPECT_FALSE(steps.acquire("102", 300s, Wait::on));
  const auto late = steps.acquire("104", 300s, Wait::begin);
  ASSERT_TRUE(late);
  EXPECT_LE(*late, 300'000);
  const auto again = steps.acquire("103", 300s, Wait::on);
  ASSERT_TRUE(again);
  EXPECT_LE(*again, *late);
  EXPECT_LE(steps.acquire("104", 300s, Wait::on).value_or(-1), *late);
  EXPECT_EQ(queue("FL25"), (Names{"103", "104"}));
}

TEST_F(FairLock, FL26_OneAttemptNeverEntersTheQueue) {
  using Wait = Steps::Wait;
  Steps steps(raw(), "FL26", 100ms);
  const auto got = [&](const std::string& owner) {
    return !steps.acquire(owner, 500ms, Wait::none).has_value();
  };
  EXPECT_TRUE(got("101"));
  EXPECT_FALSE(got("102"));
  EXPECT_FALSE(got("103"));
  EXPECT_EQ(steps.release("101"), Value::makeInteger(0));
  EXPECT_TRUE(got("102"));
  EXPECT_FALSE(got("104"));
  EXPECT_FALSE(got("103"));
  EXPECT_FALSE(got("104"));
  expectNoQueue("FL26");
  ASSERT_EVENTUALLY(kLong, !raw().exists("FL26"));
  EXPECT_TRUE(got("104"));
}

TEST_F(FairLock, FL27_AbandonedPlacesLapse) {
  using Wait = Steps::Wait;
  Steps steps(raw(), "FL27", 100ms);
  EXPECT_FALSE(steps.acquire("101", 500ms, Wait::begin));
  EXPECT_TRUE(steps.acquire("102", 500ms, Wait::begin));
  EXPECT_TRUE(steps.acquire("103", 500ms, Wait::begin));
  const auto told = steps.acquire("104", 500ms, Wait::begin);
  ASSERT_TRUE(told);
  EXPECT_LE(*told, 500);
  ASSERT_EVENTUALLY(kLong, !raw().exists("FL27"));
  EXPECT_FALSE(steps.acquire("104", 500ms, Wait::on)) << "102 and 103 are dead";
  EXPECT_EQ(queue("FL27"), Names());
}

TEST_F(FairLock, FL20_TheHelperKeysAreMadeFromTheName) {
  Client client = connectFair();
  for (const std::string name : {"plain", "tag{x}", "{x}y"}) {
    const std::string inner = name.find('{') == std::string::npos ? "{" + name + "}" : name;
    rawHold(name, "foreign:1", 60s);
    Visitors visitors;
    visitors.send(client.getFairLock(name), 0);
    EXPECT_EVENTUALLY(kLong, raw().exists("redisson_lock_queue:" + inner));
    EXPECT_EQ(raw().keys(),
              (std::set<std::string>{name,
                                     "redisson_lock_queue:" + inner,
                                     "redisson_lock_timeout:" + inner,
                                     "rlock_lock_waiter_lease:" + inner,
                                     "rlock_lock_order:" + inner}));
    expectNoEternalKeys();
    raw().del(name);
    EXPECT_EQ(visitors.troubles(), Names());
    EXPECT_FALSE(client.getFairLock(name).isLocked());
    raw().flushAll();
  }
}

TEST_F(FairLockSlow, FL28_AServerThatDoesNotAnswerLeavesNoGhost) {
  Options settings = fair(options());
  settings.commandTimeout = 300ms;
  Client client = Client::connect(settings);
  rawHold("FL28", "foreign:1", 60s);
  Visitors visitors;
  std::stop_source stop;
  AcquireOptions options;
  options.stop = stop.get_token();
  visitors.send(client.getFairLock("FL28"), 0, options);
  ASSERT_EVENTUALLY(kLong, waiting("FL28", 1));
  const Stopwatch watch;
  auto call = inThread(
      [&] { return answerOf([&] { return client.getFairLock("FL28").tryLock(1500ms); }); });
  ASSERT_EVENTUALLY(kLong, waiting("FL28", 2));
  raw().clientPause(2500ms, "WRITE");
  const std::string answer = call.get();
  EXPECT_TRUE(answer == "timedOut" || answer == "connectionFailed" || answer == "false") << answer;
  EXPECT_LT(watch.elapsedMs(), 1500ms + scaled(150ms));
  raw().clientUnpause();
  stop.request_stop();
  EXPECT_EVENTUALLY(2 * kPlace, queue("FL28").empty());
  EXPECT_EQ(visitors.troubles(), Names{"cancelled"});
}

// The state on the server.

TEST_F(FairLock, V23_AcquireEnqueueReleaseStep) {
  Options settings = options();
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  const OwnerId a = newOwner();
  const OwnerId b = newOwner();
  const OwnerId d = newOwner();
  const std::string fieldA = ownerField(client, a);
  const std::string fieldB = ownerField(client, b);
  const std::string fieldD = ownerField(client, d);
  RLock lock = client.getFairLock("V23");
  RawSubscriber subscriber(server());
  subscriber.psubscribe("*");

  lock.lockAsync({}, a).wait().value();
  EXPECT_EQ(raw().hgetall("V23"), (Fields{{fieldA, "1"}}));
  EXPECT_EQ(raw().keys(), std::set<std::string>{"V23"});

  auto second = lock.lockAsync({}, b).toFuture();
  ASSERT_EVENTUALLY(kLong, waiting("V23", 1));
  auto third = lock.lockAsync({}, d).toFuture();
  ASSERT_EVENTUALLY(kLong, waiting("V23", 2));
  EXPECT_EQ(queue("V23"), (Names{fieldB, fieldD}));
  EXPECT_EQ(raw().type(queueKey("V23")), "list");
  EXPECT_EQ(raw().type(deadlinesKey("V23")), "zset");
  for (const std::string& field : {fieldB, fieldD}) {
    const std::string score = raw().run({"ZSCORE", deadlinesKey("V23"), field}).string();
    EXPECT_EQ(score.find_first_not_of("0123456789"), std::string::npos) << score;
    EXPECT_LE(std::stoll(score), raw().serverTimeUs() / 1000 + 4000);
    EXPECT_GT(std::stoll(score), raw().serverTimeUs() / 1000);
  }
  // Longer than any place, and not for ever.
  EXPECT_GT(raw().pttl(queueKey("V23")), 5'000);
  EXPECT_GT(raw().pttl(deadlinesKey("V23")), 5'000);
  EXPECT_EQ(raw().hgetall("V23"), (Fields{{fieldA, "1"}}));

  subscriber.clear();
  lock.unlockAsync(a).wait().value();
  second.get();
  EXPECT_EQ(raw().hgetall("V23"), (Fields{{fieldB, "1"}}));
  EXPECT_EQ(queue("V23"), Names{fieldD});
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages()[0],
            (RawSubscriber::Message{"*", channelOf("V23") + ":" + fieldB, "0"}));
  EXPECT_EQ(subscriber.count(), 1U);

  lock.unlockAsync(b).wait().value();
  third.get();
  EXPECT_EQ(raw().keys(), std::set<std::string>{"V23"});
  lock.unlockAsync(d).wait().value();
  expectNoKeys();
  ASSERT_TRUE(subscriber.waitFor(2, kLong));
  // What the last release had told would be ahead of this.
  raw().publish(channelOf("V23") + ":" + fieldD, "last");
  ASSERT_TRUE(subscriber.waitFor(3, kLong));
  EXPECT_EQ(subscriber.messages()[2].payload, "last") << "nobody waits, nobody is told";
  EXPECT_EQ(subscriber.messages()[1].channel, channelOf("V23") + ":" + fieldD);
}

TEST_F(FairLock, C6_NothingIsLeftBehind) {
  Options settings = fair(options());
  settings.subscriptionLinger = 50ms;
  Client client = Client::connect(settings);
  rawHold("residue", "foreign:1", 60s);
  std::vector<std::future<std::string>> calls;
  for (int i = 0; i < 5; ++i) {
    calls.push_back(inThread(
        [&] { return answerOf([&] { return client.getFairLock("residue").tryLock(100ms); }); }));
  }
  for (auto& call : calls) {
    EXPECT_NE(call.get(), "true");
  }
  EXPECT_EVENTUALLY(kLong, raw().pubsubChannels("redisson*").empty());
  ForeignClient(raw(), "residue").release();
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
  EXPECT_EVENTUALLY(kLong, client.stats().channels == 0 && client.stats().waiters == 0);
}

// Damage and restarts.

enum class Damage { queueLost, deadlinesLost, leasesLost, everythingLost, orderLost, scoresLost };

class FairLockDamage : public FairLockTest, public ::testing::WithParamInterface<Damage> {};

std::string damageName(const ::testing::TestParamInfo<Damage>& test) {
  constexpr std::array kNames{
      "queueLost", "deadlinesLost", "leasesLost", "everythingLost", "orderLost", "scoresLost"};
  return kNames[static_cast<std::size_t>(test.param)];
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         FairLockDamage,
                         ::testing::Values(Damage::queueLost,
                                           Damage::deadlinesLost,
                                           Damage::leasesLost,
                                           Damage::everythingLost,
                                           Damage::orderLost,
                                           Damage::scoresLost),
                         damageName);

TEST_P(FairLockDamage, XFAIR5_TheQueueHealsItself) {
  constexpr int kWaiters = 6;
  Client client = connectFair();
  Client other = connectFair();
  rawHold("XFAIR5", "foreign:1", 60s);
  Visitors visitors;
  for (int i = 0; i < kWaiters; ++i) {
    visitors.send((i % 2 == 0 ? client : other).getFairLock("XFAIR5"), i);
    ASSERT_EVENTUALLY(kLong, waiting("XFAIR5", static_cast<std::size_t>(i) + 1));
  }
  const Names before = queue("XFAIR5");
  switch (GetParam()) {
    case Damage::queueLost:
      raw().del(queueKey("XFAIR5"));
      break;
    case Damage::deadlinesLost:
      raw().del(deadlinesKey("XFAIR5"));
      break;
    case Damage::everythingLost:
      raw().run({"DEL",
                 queueKey("XFAIR5"),
                 deadlinesKey("XFAIR5"),
                 leasesKey("XFAIR5"),
                 orderKey("XFAIR5")});
      break;
    case Damage::leasesLost:
      raw().del(leasesKey("XFAIR5"));
      break;
    case Damage::orderLost:
      raw().del(orderKey("XFAIR5"));
      break;
    case Damage::scoresLost:
      raw().run({"ZREM", deadlinesKey("XFAIR5"), before[0], before[3]});
      break;
  }
  ASSERT_EVENTUALLY(kPlace, waiting("XFAIR5", kWaiters));
  std::this_thread::sleep_for(kPlace / 2);
  const bool ordered = GetParam() != Damage::everythingLost;
  if (ordered) {
    EXPECT_EQ(queue("XFAIR5"), before);
  }
  EXPECT_EQ(raw().run({"ZCARD", deadlinesKey("XFAIR5")}).integer(), kWaiters);
  ForeignClient(raw(), "XFAIR5").release();
  EXPECT_EQ(visitors.troubles(), Names());
  if (ordered) {
    EXPECT_EQ(visitors.order(), upTo(kWaiters));
  }
  expectNoKeys();
}

TEST_F(FairLockSlow, XFAIR5_AnEmptyRestartWithAFullQueue) {
  Client client = connectFair();
  rawHold("restart", "foreign:1", 60s);
  Visitors visitors;
  for (int i = 0; i < 6; ++i) {
    visitors.send(client.getFairLock("restart"), i);
  }
  ASSERT_EVENTUALLY(kLong, waiting("restart", 6));
  server().restart();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order().size(), 6U);
  reconnectRaw();
  expectNoKeys();
}

TEST_F(FairLock, W79_WhatTheDeadLeaveBehindIsBounded) {
  for (int i = 0; i < 150; ++i) {
    raw().run({"ZADD", orderKey("W79"), std::to_string(i + 1), "dead:" + std::to_string(i)});
    raw().run({"ZADD", leasesKey("W79"), std::to_string(i + 1), "dead:" + std::to_string(i)});
  }
  rawHold("W79", "foreign:1", 60s);
  Client client = connectFair();
  Visitors visitors;
  for (int i = 0; i < 3; ++i) {
    visitors.send(client.getFairLock("W79"), i);
    ASSERT_EVENTUALLY(kLong, waiting("W79", static_cast<std::size_t>(i) + 1));
  }
  EXPECT_EQ(raw().run({"ZCARD", orderKey("W79")}).integer(), 3);
  EXPECT_EQ(raw().run({"ZCARD", leasesKey("W79")}).integer(), 3);
  expectNoEternalKeys();
  ForeignClient(raw(), "W79").release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), upTo(3));
  expectNoKeys();
}

TEST_F(FairLock, W80_NobodyChangesAnothersTime) {
  Client client = connectFair();
  RLock lock = client.getFairLock("W80");
  lock.lock();
  Visitors visitors;
  visitors.send(client.getFairLock("W80"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("W80", 1));
  rawEnrol("W80", "foreign:7");
  const auto score = [&] {
    return raw().run({"ZSCORE", deadlinesKey("W80"), "foreign:7"}).string();
  };
  const std::string before = score();
  EXPECT_NE(answerOf([&] { return connectFair().getFairLock("W80").tryLock(100ms); }), "true");
  lock.unlock();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_FALSE(lock.tryLock());
  EXPECT_EQ(score(), before);
  EXPECT_EQ(queue("W80"), Names{"foreign:7"});
}

TEST_F(FairLock, W78_AnEntryWithoutATimeIsDead) {
  raw().run({"RPUSH", queueKey("W78"), "old:1", "old:2"});
  Client client = connectFair();
  EXPECT_TRUE(client.getFairLock("W78").tryLock());
  expectNoQueue("W78");
}

TEST_F(FairLock, OddTimesDoNoHarm) {
  Client client = connectFair();
  raw().run({"RPUSH", queueKey("odd"), "old:1"});
  raw().run({"ZADD", deadlinesKey("odd"), "inf", "old:1"});
  auto waiter =
      inThread([&] { return answerOf([&] { return client.getFairLock("odd").tryLock(500ms); }); });
  ASSERT_EVENTUALLY(kLong, waiting("odd", 2));
  EXPECT_GT(raw().pttl(queueKey("odd")), 0);
  EXPECT_NE(waiter.get(), "true");
  EXPECT_EQ(queue("odd"), Names{"old:1"});
  raw().run({"ZADD", deadlinesKey("odd"), "1.5", "old:1"});
  EXPECT_EQ(answerOf([&] { return client.getFairLock("odd").tryLock(kLong); }), "true");
}

TEST_F(FairLock, ADamagedQueueDoesNotKeepAHolderFromReleasing) {
  Client client = connectFair();
  RLock lock = client.getFairLock("damaged");
  lock.lock();
  raw().set(queueKey("damaged"), "not a list", 60s);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_FALSE(raw().exists("damaged"));
  EXPECT_TRUE(log().contains("could not be told"));
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "wrongType");
  EXPECT_FALSE(raw().exists("damaged"));
}

TEST_F(FairLock, DamagedTimesDoNotGetInTheWayOfAHolder) {
  Client client = connectFair();
  RLock lock = client.getFairLock("damaged");
  for (const std::string& key : {deadlinesKey("damaged"),
                                 leasesKey("damaged"),
                                 orderKey("damaged"),
                                 foreignWaitsKey("damaged")}) {
    SCOPED_TRACE(key);
    raw().set(key, "not a zset", 60s);
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_FALSE(raw().exists("damaged"));
    raw().flushAll();
  }
}

TEST_F(FairLock, ANewCallDoesNotInheritALapsedPlace) {
  Steps steps(raw(), "lapsed", 4s);
  Steps brief(raw(), "lapsed", 20ms);
  rawHold("lapsed", "foreign:1", 60s);
  steps.acquire("first", 20s, Steps::Wait::begin);
  brief.acquire("gone", 20s, Steps::Wait::begin);
  steps.acquire("third", 20s, Steps::Wait::begin);
  ASSERT_EVENTUALLY(kLong, placesLeft("lapsed")[0] < 0);
  steps.acquire("gone", 20s, Steps::Wait::begin);
  EXPECT_EQ(queue("lapsed"), (Names{"first", "third", "gone"}));
  // Who waits still has only been late.
  brief.acquire("third", 20s, Steps::Wait::on);
  ASSERT_EVENTUALLY(kLong, placesLeft("lapsed")[0] < 0);
  steps.acquire("third", 20s, Steps::Wait::on);
  EXPECT_EQ(queue("lapsed"), (Names{"first", "third", "gone"}));
}

// Company that plays by the older rules.

TEST_F(FairLock, Interop_AForeignWaiterIsServedInItsTurn) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "interop");
  RLock lock = client.getFairLock("interop");
  lock.lock();
  Visitors visitors;
  visitors.send(client.getFairLock("interop"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("interop", 1));
  ASSERT_FALSE(foreign.acquire("foreign:7", 20s));
  visitors.send(client.getFairLock("interop"), 1);
  ASSERT_EVENTUALLY(kLong, waiting("interop", 3));
  EXPECT_EQ(queue("interop")[1], "foreign:7");
  RawSubscriber subscriber(server());
  subscriber.subscribe(channelOf("interop") + ":foreign:7");
  lock.unlock();
  // The first of ours had it, and told the foreign one.
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages()[0].payload, "0");
  EXPECT_EQ(visitors.order(), std::vector<int>{0});
  std::this_thread::sleep_for(kPlace / 2);
  EXPECT_EQ(visitors.order(), std::vector<int>{0}) << "somebody passed the foreign one";
  EXPECT_TRUE(foreign.acquire("foreign:7", 20s));
  EXPECT_FALSE(client.getFairLock("interop").tryLock());
  foreign.release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), (std::vector<int>{0, 1}));
  expectNoKeys();
}

TEST_F(FairLock, Interop_PlacesOutliveWhatForeignWaitersTakeOffThem) {
  Client client = connectFair();
  Client other = connectFair();
  ForeignClient foreign(raw(), "mixed");
  rawHold("mixed", "foreign:0", 60s);
  Visitors visitors;
  std::size_t waiters = 0;
  for (int i = 0; i < 6; ++i) {
    ASSERT_FALSE(foreign.acquire("foreign:" + std::to_string(i + 1), 20s));
    visitors.send((i % 2 == 0 ? client : other).getFairLock("mixed"), i);
    waiters += 2;
    ASSERT_EVENTUALLY(kLong, waiting("mixed", waiters));
  }
  const Names arrived = queue("mixed");
  // Refreshing changes nothing of that.
  std::this_thread::sleep_for(kPlace);
  EXPECT_EQ(queue("mixed"), arrived);
  foreign.release();
  for (int i = 0; i < 6; ++i) {
    // Nobody has the time to refresh between these.
    ASSERT_EVENTUALLY(kLong, foreign.acquire("foreign:" + std::to_string(i + 1), 20s));
    const Names left = queue("mixed");
    EXPECT_EQ(left, Names(arrived.end() - static_cast<std::ptrdiff_t>(left.size()), arrived.end()));
    EXPECT_EQ(visitors.order(), upTo(i));
    if (!left.empty()) {
      // Whoever is next costs the others no more, if it dies, than the lease of its place.
      const std::string score = raw().run({"ZSCORE", deadlinesKey("mixed"), left[0]}).string();
      const std::int64_t now = raw().serverTimeUs() / 1000;
      EXPECT_GT(std::stoll(score), now);
      EXPECT_LE(std::stoll(score), now + kPlace / 1ms + 60);
    }
    foreign.release();
  }
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), upTo(6));
  expectNoKeys();
}

TEST_F(FairLock, Interop_PlacesOutliveForeignWaitersThatGiveUp) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "gives-up");
  rawHold("gives-up", "foreign:0", 60s);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  Visitors visitors;
  visitors.send(client.getFairLock("gives-up"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("gives-up", 3));
  const std::string mine = queue("gives-up")[2];
  // With its subscription it asks once more; the next time is a third of its lease away.
  const auto lease = [&] { return raw().run({"ZSCORE", leasesKey("gives-up"), mine}).string(); };
  const std::string before = lease();
  ASSERT_EVENTUALLY(kLong, lease() != before);
  foreign.leave("foreign:1");
  foreign.leave("foreign:2");
  // What comes next removes the dead from the head.
  ASSERT_FALSE(foreign.acquire("foreign:3", 20s));
  EXPECT_EQ(queue("gives-up"), (Names{mine, "foreign:3"}));
  foreign.release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_TRUE(foreign.acquire("foreign:3", 20s));
}

TEST_F(FairLock, Interop_PlacesOutliveForeignWaitersOfAnyPatience) {
  for (const std::chrono::milliseconds wait : {3'000ms, 40'000ms, 100'000ms, 900'000ms}) {
    const std::string name = "patience" + std::to_string(wait.count());
    SCOPED_TRACE(name);
    Client client = connectFair();
    ForeignClient foreign(raw(), name, wait);
    rawHold(name, "foreign:0", 60s);
    Visitors visitors;
    visitors.send(client.getFairLock(name), 0);
    ASSERT_EVENTUALLY(kLong, waiting(name, 1));
    ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
    // The first moves its time on, the foreign one does not.
    std::this_thread::sleep_for(kPlace * 3 / 2);
    visitors.send(client.getFairLock(name), 1);
    ASSERT_EVENTUALLY(kLong, waiting(name, 3));
    ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
    foreign.release();
    ASSERT_EVENTUALLY(kLong, foreign.acquire("foreign:1", 20s));
    EXPECT_GT(placesLeft(name)[0], 0);
    foreign.release();
    EXPECT_EQ(visitors.troubles(), Names());
    EXPECT_EQ(queue(name), Names{"foreign:2"});
    EXPECT_TRUE(foreign.acquire("foreign:2", 20s));
    raw().flushAll();
  }
}

TEST_F(FairLock, Interop_PlacesOutliveAForeignWaiterThatCameLongBefore) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "aged");
  rawHold("aged", "foreign:0", 60s);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  raw().run({"ZINCRBY", deadlinesKey("aged"), "-220000", "foreign:1"});
  Visitors visitors;
  visitors.send(client.getFairLock("aged"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("aged", 2));
  const std::string mine = queue("aged")[1];
  foreign.release();
  ASSERT_TRUE(foreign.acquire("foreign:1", 20s));
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  EXPECT_EQ(queue("aged"), (Names{mine, "foreign:2"}));
  foreign.release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_TRUE(foreign.acquire("foreign:2", 20s));
}

TEST_F(FairLock, Interop_PlacesOutliveForeignWaitersBehindOneThatLeft) {
  Steps ours(raw(), "gone", kLong);
  ForeignClient foreign(raw(), "gone");
  rawHold("gone", "foreign:0", 30s);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  EXPECT_EQ(ours.withdraw("ours:1"), 1);
  // Those left keep their places as long as they would without rlock.
  EXPECT_EQ(raw().pttl(queueKey("gone")), -1);
  EXPECT_EQ(raw().pttl(deadlinesKey("gone")), -1);
  ours.acquire("ours:2", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:3", 20s));
  foreign.release();
  for (const char* const owner : {"foreign:1", "foreign:2"}) {
    ASSERT_TRUE(foreign.acquire(owner, 20s));
    foreign.release();
  }
  EXPECT_EQ(queue("gone"), (Names{"ours:2", "foreign:3"}));
  EXPECT_FALSE(foreign.acquire("foreign:3", 20s));
}

TEST_F(FairLock, Interop_PlacesOutliveForeignWaitersBehindOneThatGotIn) {
  Steps ours(raw(), "in", kLong);
  ForeignClient foreign(raw(), "in", 600s);
  rawHold("in", "foreign:0", 30s);
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  foreign.release();
  EXPECT_EQ(ours.acquire("ours:1", 20s, Steps::Wait::on), std::nullopt);
  // Much later.
  raw().run({"ZINCRBY", deadlinesKey("in"), "-90000", "foreign:1"});
  ours.acquire("ours:2", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  ours.release("ours:1");
  ASSERT_TRUE(foreign.acquire("foreign:1", 20s));
  foreign.release();
  EXPECT_EQ(queue("in"), (Names{"ours:2", "foreign:2"}));
}

TEST_F(FairLock, Interop_AForeignWaiterKnownFromBeforeDoesNotHideANewOne) {
  Steps ours(raw(), "known", kLong);
  ForeignClient foreign(raw(), "known");
  rawHold("known", "foreign:0", 60s);
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  raw().run({"ZADD", foreignWaitsKey("known"), "300000", "foreign:2"});
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  ours.acquire("ours:1", 20s, Steps::Wait::on);
  // The first refreshes its place for a while, which moves it on from those behind.
  for (const char* const owner : {"foreign:1", "foreign:2"}) {
    raw().run({"ZINCRBY", deadlinesKey("known"), "-20000", owner});
  }
  ours.acquire("ours:1", 20s, Steps::Wait::on);
  ours.acquire("ours:2", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:3", 20s));
  foreign.release();
  EXPECT_EQ(ours.acquire("ours:1", 20s, Steps::Wait::on), std::nullopt);
  ours.release("ours:1");
  for (const char* const owner : {"foreign:1", "foreign:2"}) {
    ASSERT_TRUE(foreign.acquire(owner, 20s));
    foreign.release();
  }
  EXPECT_EQ(queue("known"), (Names{"ours:2", "foreign:3"}));
}

TEST_F(FairLock, Interop_WaitingTimesOfThoseWhoLeftAreForgotten) {
  Steps ours(raw(), "forgotten", kLong);
  ForeignClient patient(raw(), "forgotten", 3600s);
  ForeignClient usual(raw(), "forgotten");
  rawHold("forgotten", "foreign:0", 60s);
  ASSERT_FALSE(patient.acquire("foreign:1", 20s));
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  patient.leave("foreign:1");
  ours.acquire("ours:1", 20s, Steps::Wait::on);
  ASSERT_FALSE(usual.acquire("foreign:1", 20s));
  ours.acquire("ours:2", 20s, Steps::Wait::begin);
  const auto places = placesLeft("forgotten");
  EXPECT_LE(*std::max_element(places.begin(), places.end()), 300'000 + 2 * (kLong / 1ms));
}

TEST_F(FairLock, Interop_ADeadWaiterIsSkippedThoughItsTimeIsLong) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "dead");
  rawHold("dead", "foreign:0", 60s);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  std::unique_ptr<Worker> worker = fairWorker();
  worker->tell("lock dead");
  ASSERT_EVENTUALLY(kLong, waiting("dead", 2));
  const std::string first = queue("dead")[1];
  // With its subscription it asks once more; the next time is a third of its lease away.
  const auto lease = [&] { return raw().run({"ZSCORE", leasesKey("dead"), first}).string(); };
  const std::string before = lease();
  ASSERT_EVENTUALLY(kLong, lease() != before);
  Visitors visitors;
  visitors.send(client.getFairLock("dead"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("dead", 3));
  // What was allowed for the foreign one is not taken off when that one dies.
  raw().run({"LREM", queueKey("dead"), "0", "foreign:1"});
  raw().run({"ZREM", deadlinesKey("dead"), "foreign:1"});
  EXPECT_GT(placesLeft("dead")[0], 100'000);
  worker->process().kill();
  const Stopwatch watch;
  foreign.release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_LT(watch.elapsedMs(), 1000ms + kPlace);
  expectNoEternalKeys();
}

TEST_F(FairLock, Interop_EvictedWaitersComeBackBeforeThoseWhoCameLater) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "evicted");
  Client other = connectFair();
  ASSERT_TRUE(foreign.acquire("foreign:1", 20s));
  Visitors visitors;
  for (int i = 0; i < 3; ++i) {
    visitors.send((i == 1 ? other : client).getFairLock("evicted"), i);
    ASSERT_EVENTUALLY(kLong, waiting("evicted", static_cast<std::size_t>(i) + 1));
  }
  const Names ours = queue("evicted");
  // What an acquisition and an enrolment by the older rules do, before ours can refresh.
  for (const std::string& owner : ours) {
    raw().run({"ZINCRBY", deadlinesKey("evicted"), "-300000", owner});
  }
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  Names expected = ours;
  expected.emplace_back("foreign:2");
  EXPECT_EVENTUALLY(kPlace, queue("evicted") == expected);
  foreign.release();
  EXPECT_EVENTUALLY(kLong, visitors.order().size() == 3);
  EXPECT_EQ(visitors.order(), upTo(3));
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_TRUE(foreign.acquire("foreign:2", 20s));
}

TEST_F(FairLock, Interop_TurnsWithAForeignClientThatComesAgainAndAgain) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "turns");
  std::atomic<bool> end{false};
  ASSERT_TRUE(foreign.acquire("foreign:1", 20s));
  auto ours = inThread([&] {
    RLock lock = client.getFairLock("turns");
    return outcomeOf([&] {
      for (int i = 0; i < 5; ++i) {
        lock.lock();
        lock.unlock();
      }
      end = true;
    });
  });
  ASSERT_EVENTUALLY(kLong, waiting("turns", 1));
  // Two foreign threads pass it on and queue again at once.
  std::string holder = "foreign:1";
  std::string next = "foreign:2";
  const Deadline stop(kLong);
  bool held = true;
  while (!end.load() && !stop.expired()) {
    if (!held) {
      held = foreign.acquire(holder, 20s);
      std::this_thread::sleep_for(5ms);
      continue;
    }
    EXPECT_FALSE(foreign.acquire(next, 20s));
    std::this_thread::sleep_for(20ms);
    foreign.release();
    std::swap(holder, next);
    held = foreign.acquire(holder, 20s);
  }
  EXPECT_TRUE(end.load()) << "starved";
  raw().flushAll();
  EXPECT_EQ(ours.get(), "ok");
}

// Lost replies.

struct Loss {
  const char* name;
  TcpProxy::Action (*action)();
};

std::ostream& operator<<(std::ostream& out, const Loss& loss) {
  return out << loss.name;
}

constexpr Loss kLosses[] = {
    {"stallReply", [] { return TcpProxy::Action::stallReply(); }},
    {"swallowReplyAndCut", [] { return TcpProxy::Action::swallowReplyAndCut(); }},
    {"cutMidReply", [] { return TcpProxy::Action::cutMidReply(); }},
    {"cutMidRequest", [] { return TcpProxy::Action::cutMidRequest(); }},
    {"cutBeforeForward", [] { return TcpProxy::Action::cutBeforeForward(); }},
    {"stallRequest", [] { return TcpProxy::Action::stallRequest(); }},
};

using LossParams = std::tuple<LostReplyPolicy, Loss>;

class FairLockLostReply : public FairLockTest, public ::testing::WithParamInterface<LossParams> {
 protected:
  void SetUp() override {
    FairLockTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    Options settings = fair(proxied());
    settings.lostReplyPolicy = std::get<0>(GetParam());
    settings.commandTimeout = 250ms;
    settings.reconnectDelayMin = 5ms;
    settings.watchdogTimeout = 30s;
    client_.emplace(Client::connect(settings));
    RLock warm = client_->getFairLock("warm");
    warm.lock();
    static_cast<void>(inThread([&] { return client_->getFairLock("warm").tryLock(10ms); }).get());
    warm.unlock();
    warm.forceUnlock();
  }
  [[nodiscard]] Client& client() { return *client_; }
  TcpProxy::Rule breakOnce(const lua::Script& script) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    return proxy().addRule(running(script), std::get<1>(GetParam()).action(), once);
  }
  void deliverLate() {
    proxy().releaseStalled();
    std::this_thread::sleep_for(30ms);
  }
  [[nodiscard]] Fields heldOnce(OwnerId owner) { return {{ownerField(client(), owner), "1"}}; }

 private:
  std::optional<Client> client_;
};

INSTANTIATE_TEST_SUITE_P(Faults,
                         FairLockLostReply,
                         ::testing::Combine(::testing::Values(LostReplyPolicy::fence,
                                                              LostReplyPolicy::marker),
                                            ::testing::ValuesIn(kLosses)),
                         [](const ::testing::TestParamInfo<LossParams>& test) {
                           return std::string(rlock::toString(std::get<0>(test.param))) + "_" +
                                  std::get<1>(test.param).name;
                         });

TEST_P(FairLockLostReply, XAMB1_AFreeLockIsTakenOnce) {
  for (const Face face : kFaces) {
    const OwnerId owner = newOwner();
    FaceLock lock(face, client().getFairLock("free"));
    const auto fault = breakOnce(lua::fair_acquire);
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().hgetall("free"), heldOnce(owner));
    expectNoQueue("free");
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    EXPECT_FALSE(raw().exists("free"));
  }
}

TEST_P(FairLockLostReply, XAMB2_AWaiterKeepsItsPlaceAndGetsTheLockOnce) {
  rawHold("waiter", "foreign:1", 60s);
  const OwnerId owner = newOwner();
  const auto fault = breakOnce(lua::fair_acquire);
  auto call = inThread([&] {
    return answerOf(FaceLock(Face::blocking, client().getFairLock("waiter")).tryLock(owner, 20s));
  });
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  ASSERT_EVENTUALLY(kLong, waiting("waiter", 1));
  deliverLate();
  const auto again = breakOnce(lua::fair_acquire);
  ForeignClient(raw(), "waiter").release();
  EXPECT_EQ(call.get(), "true");
  EXPECT_EQ(again.hits(), 1U);
  deliverLate();
  EXPECT_EQ(raw().hgetall("waiter"), heldOnce(owner));
  expectNoQueue("waiter");
}

TEST_P(FairLockLostReply, XAMB3_ALostReleaseFreesItOnceAndWakesTheNext) {
  const OwnerId owner = newOwner();
  FaceLock lock(Face::blocking, client().getFairLock("release"));
  lock.lock(owner).value();
  lock.lock(owner).value();
  Client direct = connectFair();
  Visitors visitors;
  visitors.send(direct.getFairLock("release"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("release", 1));
  const auto inner = breakOnce(lua::fair_release);
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(inner.hits(), 1U);
  deliverLate();
  EXPECT_EQ(raw().hgetall("release"), heldOnce(owner));
  const auto last = breakOnce(lua::fair_release);
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(last.hits(), 1U);
  EXPECT_EQ(visitors.troubles(), Names());
  deliverLate();
  EXPECT_FALSE(raw().exists("release"));
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
}

TEST_P(FairLockLostReply, XAMB3_ALostReleaseStillTellsTheNext) {
  RLock lock = client().getFairLock("told");
  lock.lock();
  rawEnrol("told", "foreign:7");
  RawSubscriber subscriber(server());
  subscriber.subscribe(channelOf("told") + ":foreign:7");
  const auto fault = breakOnce(lua::fair_release);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_TRUE(subscriber.waitFor(1, kLong));
  deliverLate();
  EXPECT_EQ(subscriber.count(), 1U);
}

TEST_P(FairLockLostReply, ALostWithdrawalIsRepeatedOrLapses) {
  rawHold("withdraw", "foreign:1", 60s);
  const auto fault = breakOnce(lua::fair_withdraw);
  const Stopwatch watch;
  EXPECT_NE(answerOf([&] { return client().getFairLock("withdraw").tryLock(100ms); }), "true");
  EXPECT_LT(watch.elapsedMs(), 100ms + scaled(2 * kLate));
  EXPECT_TRUE(fault.waitForHits(1, kLong));
  EXPECT_EVENTUALLY(kPlace, queue("withdraw").empty());
  deliverLate();
  expectNoQueue("withdraw");
}

TEST_P(FairLockLostReply, AWaiterThatLeavesWhileItsRequestIsLostIsNotInTheQueue) {
  rawHold("leaver", "foreign:1", 60s);
  const auto fault = breakOnce(lua::fair_acquire);
  const std::string answer =
      answerOf([&] { return client().getFairLock("leaver").tryLock(100ms); });
  EXPECT_TRUE(answer == "timedOut" || answer == "connectionFailed" || answer == "false") << answer;
  EXPECT_TRUE(fault.waitForHits(1, kLong));
  deliverLate();
  EXPECT_EVENTUALLY(2 * kPlace, queue("leaver").empty());
  EXPECT_EQ(raw().hgetall("leaver"), (Fields{{"foreign:1", "1"}}));
}

TEST_P(FairLockLostReply, XAMB11_ForceUnlockDoesNotHitANewOwner) {
  rawHold("force", "foreign:1", 60s);
  const auto fault = breakOnce(lua::fair_force_release);
  TcpProxy::RuleOptions more;
  more.limit = 3;
  proxy().addRule(running(lua::fair_force_release), TcpProxy::Action::cutBeforeForward(), more);
  auto call = inThread(
      [&] { return answerOf([&] { return client().getFairLock("force").forceUnlock(); }); });
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  const bool executed = !raw().exists("force");
  if (executed) {
    rawHold("force", "newcomer:1", 60s);
  }
  const std::string answer = call.get();
  deliverLate();
  if (executed) {
    EXPECT_NE(answer, "false");
    EXPECT_EQ(raw().hgetall("force"), (Fields{{"newcomer:1", "1"}}));
  } else if (answer == "true") {
    EXPECT_FALSE(raw().exists("force"));
  }
  expectNoEternalKeys();
}

TEST_F(FairLock, ARequestWithATombstoneDoesNothingWhenItComesLate) {
  const RawRedis::Args keys{"late",
                            queueKey("late"),
                            deadlinesKey("late"),
                            leasesKey("late"),
                            orderKey("late"),
                            "rlock_lock_foreign_wait:{late}",
                            "rlock_request:{late}:1"};
  const RawRedis::Args fewer{keys[0], keys[1], keys[2], keys[3], keys[6]};
  const std::string channel = channelOf("late");
  raw().set(keys[6], "1", 60s);
  for (const std::string wait : {"0", "1", "2"}) {
    EXPECT_TRUE(raw()
                    .eval(lua::fair_acquire.body,
                          keys,
                          {"1000", "me:1", wait, "1000", "0", "PUBLISH", channel})
                    .error()
                    .starts_with("RLOCKSETTLED"));
  }
  EXPECT_EQ(raw().keys(), std::set<std::string>{keys[6]});
  rawHold("late", "me:1", 60s);
  EXPECT_TRUE(raw()
                  .eval(lua::fair_release.body, fewer, {"me:1", "0", "PUBLISH", "0", channel})
                  .error()
                  .starts_with("RLOCKSETTLED"));
  EXPECT_EQ(raw().hgetall("late"), (Fields{{"me:1", "1"}}));
  // And settling leaves one.
  raw().del(keys[6]);
  raw().eval(lua::fair_settle.body, fewer, {"me:1", "0", "0", "PUBLISH", "60000", channel});
  EXPECT_FALSE(raw().exists("late"));
  EXPECT_TRUE(raw().exists(keys[6]));
  expectNoEternalKeys();
}

TEST_F(FairLock, AutomaticUsesTheTombstoneWhereTheServerForbidsKilling) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"});
  raw().denyClient("weak", {"kill"});
  Options settings = fair(proxied());
  settings.username = "weak";
  settings.password = "pw";
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  RLock lock = client.getFairLock("weak");
  lock.lock();
  lock.unlock();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  for (const auto& action :
       {TcpProxy::Action::swallowReplyAndCut(), TcpProxy::Action::cutBeforeForward()}) {
    proxy().addRule(running(lua::fair_acquire), action, once);
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
    EXPECT_EQ(raw().hgetall("weak").begin()->second, "1");
    proxy().addRule(running(lua::fair_release), action, once);
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_FALSE(raw().exists("weak"));
  }
  expectNoEternalKeys();
}

TEST_F(FairLock, AServerThatRefusesToPublishStillReleases) {
  raw().run({"ACL", "SETUSER", "mute", "on", ">pw", "~*", "resetchannels", "+@all"});
  Options settings = fair(options());
  settings.username = "mute";
  settings.password = "pw";
  Client client = Client::connect(settings);
  RLock lock = client.getFairLock("mute");
  lock.lock();
  Visitors visitors;
  visitors.send(client.getFairLock("mute"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("mute", 1));
  const Stopwatch watch;
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  // Neither side may use channels: the waiter polls.
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_LT(watch.elapsedMs(), kPlace / 3 + scaled(200ms));
  expectNoKeys();
}

// ---- Whoever is next while the lock is held

class FairNext : public LockTest {};

// The safety poll is a minute here, so only the knowledge of the lease's end lets the next one in.
TEST_F(FairNext, AWaiterWhoseHeadGivesUpEntersWhenTheHoldersLeaseEnds) {
  Options rare = options();
  // Who refreshes its place also looks.
  rare.fairWaiterLease = 40s;
  Client holder = connect();
  Client head = Client::connect(rare);
  Client next = Client::connect(rare);
  const Stopwatch watch;
  holder.getFairLock("next").lockAsync({.lease = Duration(1500ms)}, newOwner()).get();
  auto gaveUp = inThread([&] { return head.getFairLock("next").tryLock(400ms); });
  ASSERT_EVENTUALLY(kLong, raw().run({"LLEN", "redisson_lock_queue:{next}"}).integer() == 1);
  auto entered = inThread([&] {
    next.getFairLock("next").lock();
    return watch.elapsedMs();
  });
  ASSERT_EVENTUALLY(kLong, raw().run({"LLEN", "redisson_lock_queue:{next}"}).integer() == 2);
  EXPECT_FALSE(gaveUp.get());
  ASSERT_TRUE(ready(entered, 1500ms + 1000ms));
  EXPECT_GE(entered.get(), 1500ms);
}

TEST_F(FairNext, NoChannelIsLeftByWaitersThatComeOnce) {
  Client client = connect();
  const Lease hold = client.getFairLock("once").acquire();
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(client.getFairLock("once").tryAcquire({.wait = Duration(5ms)}).has_value());
  }
  EXPECT_EVENTUALLY(kLong, client.stats().channels == 0);
  const auto channels = [&] {
    return raw().run({"PUBSUB", "CHANNELS", "redisson_lock__channel:{once}*"}).array().size();
  };
  EXPECT_EVENTUALLY(kLong, channels() == 0);
}

}  // namespace
}  // namespace rlock::test
