// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integration/lock_harness.hpp"

#include <algorithm>

namespace rlock::test {

using Names = std::vector<std::string>;
using Fields = std::map<std::string, std::string>;

/// A client of the older rules, as its scripts do it: it subtracts its waiting time from
/// everybody's when it acquires, and never refreshes its place.
class ForeignClient {
 public:
  /// @param wait  its waiting time
  ForeignClient(RawRedis& redis, std::string name, std::chrono::milliseconds wait = 300s);

  /// True: held. False: enrolled.
  bool acquire(const std::string& owner, std::chrono::milliseconds lease);
  void release();
  /// Gives its place up, and shortens the times of those behind.
  void leave(const std::string& owner);

 private:
  [[nodiscard]] RawRedis::Args keys() const;
  [[nodiscard]] std::string now();

  RawRedis& redis_;
  const std::string name_;
  const std::string wait_;
};

/// Locks by scripts alone, for the steps that the client cannot be held between.
class Steps {
 public:
  Steps(RawRedis& redis, std::string name, std::chrono::milliseconds place);

  enum class Wait { none, begin, on };

  /// Empty: held. Else the time told.
  std::optional<std::int64_t> acquire(const std::string& owner,
                                      std::chrono::milliseconds lease,
                                      Wait wait);
  Value release(const std::string& owner);
  std::int64_t withdraw(const std::string& owner);

 private:
  [[nodiscard]] std::string channel() const;
  [[nodiscard]] RawRedis::Args keys(std::size_t count) const;

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

  void send(RLock lock, int number, AcquireOptions options = {});
  /// All outcomes but "ok", and what became of the resource.
  [[nodiscard]] Names troubles();
  [[nodiscard]] std::vector<int> order();

 private:
  const std::chrono::milliseconds hold_;
  std::stop_source stop_;
  Resource resource_;
  std::mutex mutex_;
  std::vector<int> order_;
  std::vector<std::future<std::string>> threads_;
};

/// 0, 1, ... count - 1.
[[nodiscard]] std::vector<int> upTo(int count);

/// A server and fair locks on it, whose queue is looked into by raw commands.
class FairLockTest : public LockTest {
 protected:
  /// How long a place lasts. It is refreshed every third of that, so none lapses on a host that
  /// stands still for a moment.
  static constexpr std::chrono::milliseconds kPlace{2000};
  /// A place whose owner looks again by itself after 20 s: who gets the lock sooner was told, or
  /// knows when the holder's lease ends.
  static constexpr std::chrono::milliseconds kRarePlace{60'000};

  [[nodiscard]] static Options fair(Options options, std::chrono::milliseconds place = kPlace) {
    options.fairWaiterLease = place;
    return options;
  }
  [[nodiscard]] Client connectFair(std::chrono::milliseconds place = kPlace) {
    return Client::connect(fair(options(), place));
  }

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
  /// The longest of them seen until a deadline; there must be one.
  [[nodiscard]] std::int64_t longestPlace(const std::string& name, const Deadline& until) {
    std::int64_t longest = 0;
    while (!until.expired()) {
      for (const std::int64_t left : placesLeft(name)) {
        longest = std::max(longest, left);
      }
    }
    EXPECT_GT(longest, 0) << "nobody waits";
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
  [[nodiscard]] std::unique_ptr<Worker> fairWorker(
      std::chrono::milliseconds watchdog = kLongWatchdog) {
    auto worker = std::make_unique<Worker>(
        uri("watchdog-timeout=" + std::to_string(watchdog.count()) +
            "ms&fair-waiter-lease=" + std::to_string(kPlace.count()) + "ms"));
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

}  // namespace rlock::test
