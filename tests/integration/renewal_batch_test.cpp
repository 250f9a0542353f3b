// SPDX-License-Identifier: Apache-2.0

// Many holds renewed together: what one of them suffers, and what labels cost.

#include "integration/lock_harness.hpp"

namespace rlock::test {
namespace {

class RenewalBatch : public LockTest {
 protected:
  static std::vector<Lease> take(Client& client,
                                 const std::string& prefix,
                                 int count,
                                 const std::string& label = {}) {
    std::vector<std::future<Lease>> futures;
    for (int i = 0; i < count; ++i) {
      AcquireOptions wanted;
      wanted.label = label;
      auto operation = client.getLock(prefix + std::to_string(i)).acquireAsync(wanted, newOwner());
      futures.push_back(operation.toFuture());
    }
    std::vector<Lease> leases;
    for (auto& future : futures) {
      leases.push_back(future.get());
    }
    return leases;
  }
};

TEST_F(RenewalBatch, ARefusedKeyDoesNotTakeTheOthersWithIt) {
  RLOCK_DEFAULT_USER_ONLY("changes the rights of the default user");
  for (const std::string& label : {std::string(), std::string("job")}) {
    SCOPED_TRACE(label);
    Client client = connect(kWatchdog);
    std::vector<Lease> leases = take(client, "mine", 12, label);
    Lease refused = client.getLock("foreign").acquire({.label = label});
    raw().run({"ACL", "SETUSER", "default", "resetkeys", "~mine*", "~*{mine*", "~*rlock*"});
    EXPECT_EVENTUALLY(kLong, !refused.held());
    EXPECT_EQ(refused.lossReason(), LossReason::unreachable);
    std::this_thread::sleep_for(kWatchdog / 2);
    for (const Lease& lease : leases) {
      EXPECT_TRUE(lease.held());
    }
    raw().run({"ACL", "SETUSER", "default", "allkeys"});
    client.close(2s);
  }
}

TEST_F(RenewalBatch, LabelsAreNotedByTheBatch) {
  RLOCK_ONE_MASTER_ONLY("counts commands, which are one for each slot there");
  constexpr int kHolds = 400;
  Options settings = options();
  settings.watchdogTimeout = scaled(1500ms);
  Client client = Client::connect(settings);
  const std::vector<Lease> leases = take(client, "labelled", kHolds, "job");
  // The labels of new holds are noted one by one.
  ASSERT_EVENTUALLY(kLong, client.stats().renewals >= kHolds);
  const Stats before = client.stats();
  ASSERT_EVENTUALLY(kLong, client.stats().renewals >= before.renewals + 2 * kHolds);
  const Stats after = client.stats();
  EXPECT_LT(after.commands - before.commands, kHolds / 2U)
      << after.renewals - before.renewals << " renewals";
  const auto info = client.inspect("labelled7");
  ASSERT_TRUE(info);
  ASSERT_EQ(info->holders.size(), 1U);
  EXPECT_EQ(info->holders[0].label, "job");
}

TEST_F(RenewalBatch, ARefusedLabelDoesNotTakeTheOthersWithIt) {
  RLOCK_DEFAULT_USER_ONLY("changes the rights of the default user");
  constexpr std::size_t kOthers = 12;
  Client client = Client::connect(proxied());
  const std::vector<Lease> leases = take(client, "mine", kOthers, "job");
  const Lease refused = client.getLock("foreign").acquire({.label = "job"});
  const auto labels = [&] {
    std::set<std::string> keys = raw().keys();
    std::erase_if(keys, [](const std::string& key) { return !key.starts_with("rlock_label:"); });
    return keys;
  };
  ASSERT_EVENTUALLY(kLong, labels().size() == kOthers + 1);
  for (const std::string& key : labels()) {
    raw().del(key);
  }
  raw().run({"ACL", "SETUSER", "default", "resetkeys", "~mine*", "~foreign", "~*{mine*"});
  // Over a new connection all are renewed at once, and their labels are noted together.
  proxy().cutAll();
  EXPECT_EVENTUALLY(kLong, labels().size() == kOthers);
  EXPECT_EQ(labels().count("rlock_label:{foreign}"), 0U);
  raw().run({"ACL", "SETUSER", "default", "allkeys"});
  client.close(2s);
}

TEST_F(RenewalBatch, AnOutageIsNotLoggedOnceForEachHold) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  constexpr std::size_t kHolds = 300;
  Options settings = options(kWatchdog);
  settings.commandTimeout = 200ms;
  settings.logLevel = LogLevel::info;
  Client client = Client::connect(settings);
  std::vector<Lease> leases = take(client, "held", kHolds);
  log().clear();
  server().kill();
  ASSERT_EVENTUALLY(kLong, client.stats().lost == kHolds);
  leases.clear();
  EXPECT_EVENTUALLY(kLong, log().contains("more holds were lost: unreachable"));
  client.close(scaled(1s));
  std::size_t lost = log().count("lost its hold: unreachable");
  EXPECT_GE(lost, 1U);
  for (const CapturedLog::Line& line : log().lines()) {
    if (line.text.find("more holds were lost: unreachable") != std::string::npos) {
      lost += std::stoul(line.text);
    }
  }
  EXPECT_EQ(lost, kHolds) << "each is told or counted";
  EXPECT_LE(log().size(), 40U) << ::testing::PrintToString(log().lines());
}

}  // namespace
}  // namespace rlock::test
