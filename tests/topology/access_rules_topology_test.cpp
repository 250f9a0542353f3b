// SPDX-License-Identifier: Apache-2.0

// The access rules in docs/configuration.md with the words that docs/deployment.md adds for a
// cluster and for Sentinels: each kind is used under its line, and nothing was refused.

#include "topology/topology_harness.hpp"

#include <fstream>
#include <sstream>

namespace rlock::test {
namespace {

/// The words of a document from a prefix to the next backtick, after a sentence.
std::vector<std::string> wordsIn(const std::string& document,
                                 const std::string& sentence,
                                 const std::string& prefix) {
  std::ifstream file(std::string(RLOCK_TEST_SOURCE_DIR) + "/docs/" + document);
  bool found = false;
  for (std::string line; std::getline(file, line);) {
    found = found || line.find(sentence) != std::string::npos;
    const std::size_t at = line.find(prefix);
    if (!found || at == std::string::npos) {
      continue;
    }
    std::istringstream words(line.substr(at));
    std::vector<std::string> result;
    for (std::string word; words >> word;) {
      const bool last = word.find('`', 1) != std::string::npos;
      std::erase_if(word, [](char c) { return c == '`'; });
      if (last && word.back() == '.') {
        word.pop_back();
      }
      result.push_back(word);
      if (last) {
        break;
      }
    }
    return result;
  }
  ADD_FAILURE() << document << " does not say: " << sentence;
  return {};
}

struct KindRule {
  const char* name;
  const char* call;  ///< as the document begins the sentence
  std::function<void(Client& mine, Client& other)> use;
};

void useLock(RLock lock, RLock other, Client& mine, Client& others) {
  lock.lock();
  auto waiter = inThread([&] {
    return outcomeOf([&] {
      other.lock();
      other.unlock();
    });
  });
  EXPECT_EVENTUALLY(kLong, others.stats().waiters > 0);
  const auto renewals = mine.stats().renewals;
  EXPECT_EVENTUALLY(kLong, mine.stats().renewals > renewals);
  lock.unlock();
  EXPECT_EQ(waiter.get(), "ok");
  Lease labelled = lock.acquire({.label = "import"});
  EXPECT_TRUE(labelled.held());
  EXPECT_TRUE(other.isLocked());
  EXPECT_EQ(labelled.release(), ReleaseResult::released);
  lock.lock();
  EXPECT_TRUE(other.forceUnlock());
}

const std::vector<KindRule>& rules() {
  static const std::vector<KindRule> all{
      {"plain",
       "getLock()",
       [](Client& mine, Client& other) {
         useLock(mine.getLock("orders:17"), other.getLock("orders:17"), mine, other);
       }},
      {"fair",
       "getFairLock()",
       [](Client& mine, Client& other) {
         useLock(mine.getFairLock("orders:17"), other.getFairLock("orders:17"), mine, other);
       }},
      {"fenced",
       "getFencedLock()",
       [](Client& mine, Client& other) {
         useLock(mine.getFencedLock("orders:17"), other.getFencedLock("orders:17"), mine, other);
       }},
      {"readWrite",
       "getReadWriteLock()",
       [](Client& mine, Client& other) {
         useLock(mine.getReadWriteLock("orders:17").writeLock(),
                 other.getReadWriteLock("orders:17").writeLock(),
                 mine,
                 other);
         RLock reading = mine.getReadWriteLock("orders:17").readLock();
         reading.lock();
         EXPECT_FALSE(other.getReadWriteLock("orders:17").writeLock().tryLock());
         reading.unlock();
       }},
      {"simple",
       "getSimpleLock()",
       [](Client& mine, Client& other) {
         useLock(mine.getSimpleLock("orders:17"), other.getSimpleLock("orders:17"), mine, other);
       }},
      {"semaphore",
       "getSemaphore()",
       [](Client& mine, Client& other) {
         Semaphore semaphore = mine.getSemaphore("orders:17");
         EXPECT_TRUE(semaphore.trySetPermits(1, 60s));
         semaphore.acquire();
         auto waiter = inThread(
             [&] { return outcomeOf([&] { other.getSemaphore("orders:17").acquire(); }); });
         EXPECT_EVENTUALLY(kLong, other.stats().waiters > 0);
         semaphore.release();
         EXPECT_EQ(waiter.get(), "ok");
         EXPECT_TRUE(semaphore.remove());
       }},
      {"latch",
       "getCountDownLatch()",
       [](Client& mine, Client& other) {
         CountDownLatch latch = mine.getCountDownLatch("orders:17");
         EXPECT_TRUE(latch.trySetCount(1));
         auto waiter = inThread(
             [&] { return outcomeOf([&] { other.getCountDownLatch("orders:17").await(); }); });
         EXPECT_EVENTUALLY(kLong, other.stats().waiters > 0);
         latch.countDown();
         EXPECT_EQ(waiter.get(), "ok");
       }},
      {"permits",
       "getPermitExpirableSemaphore()",
       [](Client& mine, Client& other) {
         PermitExpirableSemaphore semaphore = mine.getPermitExpirableSemaphore("orders:17");
         EXPECT_TRUE(semaphore.trySetPermits(1));
         const std::string id = semaphore.acquire(60s);
         auto waiter = inThread([&] {
           return outcomeOf([&] {
             PermitExpirableSemaphore same = other.getPermitExpirableSemaphore("orders:17");
             same.release(same.acquire(60s));
           });
         });
         EXPECT_EVENTUALLY(kLong, other.stats().waiters > 0);
         semaphore.release(id);
         EXPECT_EQ(waiter.get(), "ok");
         EXPECT_TRUE(semaphore.remove());
       }},
  };
  return all;
}

class AccessRulesOf : public TopologyTest, public ::testing::WithParamInterface<Place> {
 protected:
  /// Servers and the connections to all of them that rules are set on.
  void start() {
    if (GetParam() == Place::cluster) {
      RedisClusterOptions options;
      options.replicasEach = 1;
      options.nodeTimeout = 60s;
      cluster_ = std::make_unique<RedisCluster>(options);
      for (std::size_t i = 0; i < options.masters; ++i) {
        masters_.push_back(cluster_->raw(i));
      }
      return;
    }
    RedisSentinelsOptions options;
    options.downAfter = 60s;
    sentinels_ = std::make_unique<RedisSentinels>(options);
    masters_.emplace_back(sentinels_->node(0));
    for (std::size_t i = 0; i < sentinels_->sentinels(); ++i) {
      guards_.emplace_back(sentinels_->sentinel(i).port());
    }
    RawRedis::Args rule{"ACL", "SETUSER", "watcher", "reset", "resetchannels", "on", ">w4tch"};
    for (const std::string& word : wordsIn("deployment.md", "At a Sentinel it needs", "`+auth")) {
      rule.push_back(word);
    }
    for (RawRedis& guard : guards_) {
      guard.run(rule);
    }
  }

  void allow(const std::string& call, const std::vector<std::string>& more = {}) {
    RawRedis::Args rule = wordsIn("configuration.md", "`" + call, "ACL SETUSER ");
    if (GetParam() == Place::cluster) {
      for (const std::string& word : wordsIn("deployment.md", "### Rights", "`+cluster|")) {
        rule.push_back(word);
      }
    }
    rule.insert(rule.end(), more.begin(), more.end());
    for (RawRedis& master : masters_) {
      master.run(rule);
      master.run({"ACL", "LOG", "RESET"});
    }
    for (RawRedis& guard : guards_) {
      guard.run({"ACL", "LOG", "RESET"});
    }
  }

  [[nodiscard]] Options user() {
    const std::string uri = cluster_ ? cluster_->uri() : sentinels_->uri();
    Options options = tuned(uri, 3s);
    options.username = "orders";
    options.password = "s3cret";
    options.clientName = "orders-service";
    if (sentinels_) {
      options.sentinelUsername = "watcher";
      options.sentinelPassword = "w4tch";
    }
    return options;
  }

  void expectNothingWasRefused(const std::string& what) {
    for (std::vector<RawRedis>* each : {&masters_, &guards_}) {
      for (RawRedis& server : *each) {
        const Value refused = server.run({"ACL", "LOG"});
        EXPECT_TRUE(refused.array().empty()) << what << ": " << refused;
      }
    }
    EXPECT_FALSE(log().contains("NOPERM")) << what;
  }

  [[nodiscard]] std::vector<RawRedis>& masters() { return masters_; }

 private:
  std::unique_ptr<RedisCluster> cluster_;
  std::unique_ptr<RedisSentinels> sentinels_;
  std::vector<RawRedis> masters_;
  std::vector<RawRedis> guards_;
};

INSTANTIATE_TEST_SUITE_P(Places,
                         AccessRulesOf,
                         ::testing::Values(Place::sentinel, Place::cluster),
                         placeName);

TEST_P(AccessRulesOf, EachKind) {
  start();
  for (const KindRule& rule : rules()) {
    allow(rule.call);
    {
      Client mine = Client::connect(user());
      Client other = Client::connect(user());
      EXPECT_EQ(outcomeOf([&] { rule.use(mine, other); }), "ok") << rule.name;
    }
    expectNothingWasRefused(rule.name);
    for (RawRedis& master : masters()) {
      master.flushAll();
    }
  }
}

TEST_P(AccessRulesOf, AnAcknowledgedGrant) {
  start();
  allow("getLock()", {"+wait"});
  Options options = user();
  options.sync = SyncPolicy::replicas(1, 20s);
  {
    Client client = Client::connect(options);
    const Lease lease = client.getLock("orders:17").acquire();
    EXPECT_TRUE(lease.held());
    EXPECT_EQ(lease.acknowledged(), 1);
  }
  expectNothingWasRefused("+wait");
}

}  // namespace
}  // namespace rlock::test
