// SPDX-License-Identifier: Apache-2.0

// Credentials that change while the client is connected, on each of the connections that it has.

#include "topology/topology_harness.hpp"

#include <mutex>

namespace rlock::test {
namespace {

class CredentialsOf : public TopologyTest, public ::testing::WithParamInterface<Place> {
 protected:
  void SetUp() override {
    TopologyTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    if (GetParam() == Place::sentinel) {
      RedisSentinelsOptions options;
      options.downAfter = 60s;
      sentinels_ = std::make_unique<RedisSentinels>(options);
    } else {
      RedisClusterOptions options;
      options.replicasEach = 1;
      options.nodeTimeout = 60s;
      cluster_ = std::make_unique<RedisCluster>(options);
    }
  }

  [[nodiscard]] std::size_t nodes() const {
    return cluster_ ? cluster_->size() : sentinels_->nodes();
  }
  [[nodiscard]] RawRedis raw(std::size_t node) {
    return RawRedis(cluster_ ? cluster_->node(node) : sentinels_->node(node));
  }
  /// One for each master.
  [[nodiscard]] std::vector<std::string> names() {
    if (!cluster_) {
      return {"name"};
    }
    return {cluster_->nameAt(0, "n:"), cluster_->nameAt(1, "n:"), cluster_->nameAt(2, "n:")};
  }
  void allow(const std::string& user) {
    for (std::size_t node = 0; node < nodes(); ++node) {
      raw(node).run(
          {"ACL", "SETUSER", user, "reset", "on", ">secret-of-" + user, "~*", "&*", "+@all"});
    }
  }
  void forbid(const std::string& user) {
    for (std::size_t node = 0; node < nodes(); ++node) {
      raw(node).run({"ACL", "DELUSER", user});
    }
  }
  [[nodiscard]] std::size_t connectionsOf(const std::string& user) {
    std::size_t count = 0;
    for (std::size_t node = 0; node < nodes(); ++node) {
      for (const auto& entry : raw(node).clientList()) {
        count += entry.at("user") == user ? 1U : 0U;
      }
    }
    return count;
  }
  [[nodiscard]] Options options() {
    Options options = tuned(cluster_ ? cluster_->uri(3) : sentinels_->uri());
    options.sync = SyncPolicy::replicas(1, 20s);
    options.logLevel = LogLevel::trace;
    options.credentials = [this] {
      const std::lock_guard guard(mutex_);
      return Credentials{user_, "secret-of-" + user_};
    };
    return options;
  }
  void becomes(const std::string& user) {
    const std::lock_guard guard(mutex_);
    user_ = user;
  }

 private:
  std::unique_ptr<RedisSentinels> sentinels_;
  std::unique_ptr<RedisCluster> cluster_;
  std::mutex mutex_;
  std::string user_ = "before";
};

INSTANTIATE_TEST_SUITE_P(Each,
                         CredentialsOf,
                         ::testing::Values(Place::sentinel, Place::cluster),
                         placeName);

TEST_P(CredentialsOf, EveryConnectionChangeWhileItIsUsed) {
  allow("before");
  allow("after");
  Client client = Client::connect(options());
  Client other = Client::connect(options());
  const std::vector<std::string> all = names();
  // Each master has a connection for commands, one that asks for acknowledgements, and one of a
  // waiter.
  std::vector<Lease> leases;
  for (const std::string& name : all) {
    leases.push_back(client.getLock(name).acquire());
    EXPECT_EQ(leases.back().acknowledged(), 1);
  }
  std::vector<std::future<std::string>> waiters;
  for (const std::string& name : all) {
    waiters.push_back(inThread([&other, name] {
      return outcomeOf([&] {
        RLock lock = other.getLock(name);
        lock.lock();
        lock.unlock();
      });
    }));
  }
  ASSERT_EVENTUALLY(kLong, other.stats().waiters == all.size());
  EXPECT_EVENTUALLY(kLong, connectionsOf("before") >= 4 * all.size());

  becomes("after");
  client.refreshCredentials();
  other.refreshCredentialsAsync().toFuture().get();
  EXPECT_EVENTUALLY(kLong, connectionsOf("before") == 0);
  EXPECT_EVENTUALLY(kLong, connectionsOf("after") >= 4 * all.size());
  // The server closes what is left of a user that goes.
  forbid("before");
  for (Lease& lease : leases) {
    EXPECT_EQ(lease.release(), ReleaseResult::released);
  }
  for (auto& waiter : waiters) {
    EXPECT_EQ(waiter.get(), "ok");
  }
  for (const std::string& name : all) {
    EXPECT_EQ(client.getLock(name).acquire().acknowledged(), 1);
  }
  EXPECT_EQ(client.stats().reconnects, 0U);
  EXPECT_EQ(other.stats().reconnects, 0U);
  EXPECT_FALSE(log().contains("secret"));
}

}  // namespace
}  // namespace rlock::test
