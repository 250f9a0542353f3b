// SPDX-License-Identifier: Apache-2.0

// The component rlock::prometheus: what a scrape shows. That a real Prometheus takes it, and that
// the dashboard finds what it asks for, is tests/matrix/prometheus.sh.

#include "integration/observer_harness.hpp"
#include <rlock/prometheus.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <prometheus/text_serializer.h>
#include <regex>
#include <set>

namespace rlock::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Scrape : public LockTest {
 protected:
  [[nodiscard]] static std::string page(const prometheus::Collector& collector) {
    return ::prometheus::TextSerializer().Serialize(collector.Collect());
  }
};

TEST_F(Scrape, NumbersDurationsAndEventsOfAClient) {
  prometheus::Collector collector;
  EXPECT_EQ(page(collector), "") << "nobody is shown yet";
  Options settings = options();
  settings.observer = collector.observer();
  Client client = Client::connect(settings);
  collector.add(client, "orders \"east\"");
  RLock lock = client.getFairLock("hidden-name");
  lock.lock();
  lock.unlock();
  Lease lease = client.getLock("hidden-name-2").acquire({.lease = 100ms});
  ASSERT_EVENTUALLY(kLong, client.stats().lost == 1);
  Client other = Client::connect(options());
  RLock taken = other.getLock("taken");
  taken.lock();
  EXPECT_FALSE(client.getLock("taken").tryLock());
  ASSERT_EVENTUALLY(kLong,
                    page(collector).find("rlock_losses_by_reason_total") != std::string::npos);
  const std::string shown = page(collector);
  const std::string label = R"(client="orders \"east\"")";
  EXPECT_THAT(shown, HasSubstr("# TYPE rlock_acquisitions_total counter\n"));
  EXPECT_THAT(shown, HasSubstr("rlock_acquisitions_total{" + label + "} 2"));
  EXPECT_THAT(shown, HasSubstr("rlock_refused_total{" + label + "} 1"));
  EXPECT_THAT(shown, HasSubstr("rlock_waiters{" + label + "} 0"));
  EXPECT_THAT(shown, HasSubstr("# TYPE rlock_wait_seconds histogram\n"));
  EXPECT_THAT(shown, HasSubstr("rlock_wait_seconds_count{" + label + "} 2"));
  EXPECT_THAT(shown, HasSubstr("rlock_wait_seconds_bucket{" + label + ",le=\"+Inf\"} 2"));
  EXPECT_THAT(shown, HasSubstr("rlock_hold_seconds_count{" + label + "} 2"));
  EXPECT_THAT(shown, HasSubstr(R"(rlock_acquisitions_by_kind_total{kind="fairLock"} 1)"));
  EXPECT_THAT(shown, HasSubstr(R"(rlock_releases_by_kind_total{kind="fairLock"} 1)"));
  EXPECT_THAT(shown, HasSubstr(R"(rlock_losses_by_reason_total{kind="lock",reason="expired"} 1)"));
  EXPECT_THAT(shown, HasSubstr(R"(rlock_waits_total{kind="lock",outcome="refused"} 1)"));
  EXPECT_THAT(shown, Not(HasSubstr("hidden-name"))) << "names are no labels unless asked for";
  collector.remove(client);
  EXPECT_THAT(page(collector), Not(HasSubstr("client=")));
}

TEST_F(Scrape, NamesThatStandOutOnlyIfAskedForAndOnlySoMany) {
  prometheus::CollectorOptions shown;
  shown.topNames = 2;
  prometheus::Collector collector(shown);
  Options settings = options();
  settings.topNames = 10;
  Client client = Client::connect(settings);
  collector.add(client);
  // Each is held for all the time that the ones before it are.
  const auto lockOf = [&](int i) { return client.getLock("top-" + std::to_string(i)); };
  for (int i = 4; i >= 1; --i) {
    lockOf(i).lock();
  }
  for (int i = 1; i <= 4; ++i) {
    lockOf(i).unlock();
  }
  const std::string text = page(collector);
  EXPECT_THAT(text, HasSubstr(R"(rlock_top_hold_seconds{name="top-4"})"));
  EXPECT_THAT(text, HasSubstr(R"(rlock_top_hold_seconds{name="top-3"})"));
  EXPECT_THAT(text, Not(HasSubstr("top-2")));
  EXPECT_THAT(text, HasSubstr("\nrlock_holds 0\n")) << "without a label for a single client";
}

TEST_F(Scrape, ABucketHasAllShorterOnesInIt) {
  prometheus::Collector collector;
  Client client = connect();
  collector.add(client);
  RLock lock = client.getLock("buckets");
  for (int i = 0; i < 20; ++i) {
    lock.lock();
    lock.unlock();
  }
  for (const auto& family : collector.Collect()) {
    // A name says its unit, and counters that they are.
    EXPECT_TRUE(std::regex_match(family.name, std::regex("rlock_[a-z_]+")));
    EXPECT_FALSE(family.help.empty());
    EXPECT_EQ(family.type == ::prometheus::MetricType::Counter, family.name.ends_with("_total"));
    EXPECT_EQ(family.type == ::prometheus::MetricType::Histogram,
              family.name.ends_with("_seconds") && !family.name.starts_with("rlock_top"));
    if (family.type != ::prometheus::MetricType::Histogram) {
      continue;
    }
    const auto& histogram = family.metric.at(0).histogram;
    ASSERT_EQ(histogram.bucket.size(), Histogram::kBuckets - 1);
    for (std::size_t i = 1; i < histogram.bucket.size(); ++i) {
      EXPECT_GE(histogram.bucket[i].cumulative_count, histogram.bucket[i - 1].cumulative_count);
      EXPECT_GT(histogram.bucket[i].upper_bound, histogram.bucket[i - 1].upper_bound);
    }
    EXPECT_EQ(histogram.bucket.back().cumulative_count, histogram.sample_count);
  }
}

TEST_F(Scrape, TheDashboardAsksForMetricsThatThereAre) {
  std::ifstream file(std::string(RLOCK_TEST_SOURCE_DIR) + "/docs/grafana/rlock-dashboard.json");
  const std::string dashboard{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(dashboard.empty());
  prometheus::CollectorOptions all;
  all.topNames = 5;
  prometheus::Collector collector(all);
  Options settings = options();
  settings.observer = collector.observer();
  settings.topNames = 5;
  Client client = Client::connect(settings);
  collector.add(client, "one");
  Client other = Client::connect(options());
  RLock taken = other.getLock("dashboard");
  taken.lock();
  EXPECT_FALSE(client.getLock("dashboard").tryLock(300ms));
  Lease lease = client.getLock("lost").acquire({.lease = 50ms});
  ASSERT_EVENTUALLY(kLong,
                    page(collector).find("rlock_losses_by_reason_total") != std::string::npos);
  std::set<std::string> names;
  for (const auto& family : collector.Collect()) {
    names.insert(family.name);
  }
  std::size_t asked = 0;
  const std::regex metric("rlock_[a-z_]+");
  for (auto found = std::sregex_iterator(dashboard.begin(), dashboard.end(), metric);
       found != std::sregex_iterator();
       ++found) {
    std::string name = found->str();
    if (name.ends_with("_bucket")) {
      name.resize(name.size() - 7);
    }
    EXPECT_TRUE(names.contains(name)) << name;
    ++asked;
  }
  EXPECT_GT(asked, 10U);
}

}  // namespace
}  // namespace rlock::test
