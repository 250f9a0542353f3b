// SPDX-License-Identifier: Apache-2.0

// The component rlock::prometheus: what a scrape shows. That a real Prometheus takes it, and that
// the dashboard finds what it asks for, is tests/matrix/prometheus.sh.

#include "integration/observer_harness.hpp"
#include <rlock/prometheus.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <prometheus/text_serializer.h>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Families = std::vector<::prometheus::MetricFamily>;

[[nodiscard]] std::string page(const prometheus::Collector& collector) {
  return ::prometheus::TextSerializer().Serialize(collector.Collect());
}

class Scrape : public LockTest {};

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

// For one value of a label that is no UTF-8 Prometheus refuses the whole page.
TEST_F(Scrape, NamesThatAreNoTextAreShownEscapedAndAllOthersAsTheyAre) {
  using namespace std::string_literals;
  prometheus::CollectorOptions shown;
  shown.topNames = 20;
  prometheus::Collector collector(shown);
  Options settings = options();
  settings.topNames = 20;
  Client client = Client::connect(settings);
  collector.add(client);
  const std::string longName(130, 'x');
  const std::string letters = "stra\xc3\x9f"s + "e:\xe2\x82\xac:\xf0\x9f\x94\x92"s;
  // Each name, and what the page shows, in which a backslash is written twice.
  const std::vector<std::pair<std::string, std::string>> names{
      {"id:\xff\0:1"s, R"(id:\\xff\\x00:1)"},
      {"rest:\x80"s, R"(rest:\\x80)"},
      {"cut:\xe2\x82"s, R"(cut:\\xe2\\x82)"},
      {"mixed:\xe2\x82z"s, R"(mixed:\\xe2\\x82z)"},
      {"twoForOne:\xc0\xaf"s, R"(twoForOne:\\xc0\\xaf)"},
      {"threeForTwo:\xe0\x9f\xbf"s, R"(threeForTwo:\\xe0\\x9f\\xbf)"},
      {"fourForThree:\xf0\x8f\xbf\xbf"s, R"(fourForThree:\\xf0\\x8f\\xbf\\xbf)"},
      {"half:\xed\xa0\x80"s, R"(half:\\xed\\xa0\\x80)"},
      {"beyond:\xf4\x90\x80\x80"s, R"(beyond:\\xf4\\x90\\x80\\x80)"},
      {"bell:\x07"s, R"(bell:\\x07)"},
      {"delete:\x7f"s, R"(delete:\\x7f)"},
      {longName + "\xfe"s, longName + R"(\\xfe)"},
      {longName + "\xff"s, longName + R"(\\xff)"},
      {letters, letters}};
  for (const auto& entry : names) {
    RLock lock = client.getLock(entry.first);
    lock.lock();
    lock.unlock();
  }
  const std::string text = page(collector);
  for (const auto& entry : names) {
    EXPECT_THAT(text, HasSubstr("rlock_top_hold_seconds{name=\"" + entry.second + "\"} "));
  }
  EXPECT_THAT(text, HasSubstr("\nrlock_holds 0\n")) << "what has no name is there as always";
}

TEST_F(Scrape, NamesThatStandOutHaveTheirTimesInSecondsAndTheirNumberOfCalls) {
  prometheus::CollectorOptions shown;
  shown.topNames = 5;
  prometheus::Collector collector(shown);
  Options settings = options();
  settings.topNames = 5;
  Client client = Client::connect(settings);
  collector.add(client);
  Client other = connect();
  RLock taken = other.getLock("taken");
  taken.lock();
  RLock held = client.getLock("held");
  held.lock();
  EXPECT_FALSE(client.getLock("taken").tryLock(100ms));
  EXPECT_FALSE(client.getLock("taken").tryLock(100ms));
  held.unlock();
  // -1 says that the name is not shown.
  const auto valueOf = [&](std::string_view order, std::string_view name) {
    for (const auto& family : collector.Collect()) {
      for (const auto& metric : family.metric) {
        if (family.name == order && metric.label.at(0).value == name) {
          return metric.gauge.value;
        }
      }
    }
    return -1.0;
  };
  EXPECT_EVENTUALLY(kLong, valueOf("rlock_top_contended", "taken") == 2);
  for (const auto& [order, name] : {std::pair("rlock_top_wait_seconds", "taken"),
                                    std::pair("rlock_top_hold_seconds", "held")}) {
    const double time = valueOf(order, name);
    EXPECT_GE(time, 0.15) << order;
    EXPECT_LT(time, 20) << order;
  }
}

/// The numbers of one client, as a scrape must show them.
void expectShown(const Families& families, const Stats& stats) {
  const std::map<std::string, std::uint64_t> numbers{
      {"rlock_acquisitions_total", stats.acquired},
      {"rlock_contended_total", stats.contended},
      {"rlock_refused_total", stats.refused},
      {"rlock_releases_total", stats.released},
      {"rlock_renewals_total", stats.renewals},
      {"rlock_renewal_failures_total", stats.renewalFailures},
      {"rlock_losses_total", stats.lost},
      {"rlock_reconnects_total", stats.reconnects},
      {"rlock_lost_replies_total", stats.lostReplies},
      {"rlock_undone_total", stats.undone},
      {"rlock_commands_total", stats.commands},
      {"rlock_scripts_loaded_total", stats.scriptsLoaded},
      {"rlock_messages_total", stats.messages},
      {"rlock_wake_ups_total", stats.wakeUps},
      {"rlock_safety_polls_total", stats.safetyPolls},
      {"rlock_handler_failures_total", stats.handlerFailures},
      {"rlock_holds", stats.holds},
      {"rlock_waiters", stats.waiters},
      {"rlock_channels", stats.channels}};
  const std::map<std::string, Histogram> durations{{"rlock_wait_seconds", stats.waits},
                                                   {"rlock_hold_seconds", stats.holdTimes},
                                                   {"rlock_renewal_lag_seconds", stats.renewalLags},
                                                   {"rlock_round_trip_seconds", stats.roundTrips}};
  std::map<std::string, std::uint64_t> shown;
  std::set<std::string> histograms;
  for (const auto& family : families) {
    ASSERT_EQ(family.metric.size(), 1U) << family.name;
    const auto& metric = family.metric[0];
    if (family.type == ::prometheus::MetricType::Histogram) {
      ASSERT_TRUE(durations.contains(family.name)) << family.name;
      const Histogram& expected = durations.at(family.name);
      EXPECT_EQ(metric.histogram.sample_count, expected.count()) << family.name;
      EXPECT_DOUBLE_EQ(metric.histogram.sample_sum,
                       std::chrono::duration<double>(expected.sum).count())
          << family.name;
      EXPECT_GT(metric.histogram.sample_sum, 0) << family.name;
      histograms.insert(family.name);
    } else {
      const bool counts = family.type == ::prometheus::MetricType::Counter;
      shown[family.name] =
          static_cast<std::uint64_t>(counts ? metric.counter.value : metric.gauge.value);
    }
  }
  EXPECT_EQ(shown, numbers);
  EXPECT_EQ(histograms.size(), durations.size());
}

TEST_F(Scrape, EachNumberIsTheOneThatItsNameSays) {
  prometheus::Collector collector;
  Options settings = proxied(2s);
  settings.safetyPoll = 50ms;
  settings.onLost = [](const LostHold& hold) {
    if (hold.name != "lost-0") {
      throw std::runtime_error("told");
    }
  };
  Client client = Client::connect(settings);
  collector.add(client);
  Client other = connect();
  // The calls below make most of the numbers differ, so that one in the place of another shows.
  RLock plain = client.getLock("plain");
  plain.lock();
  plain.unlock();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::swallowReplyAndCut(), once);
  plain.lock();
  plain.unlock();
  proxy().cutAll();
  ASSERT_EVENTUALLY(kLong, client.stats().reconnects >= 2);
  std::vector<Lease> leases;
  for (int i = 0; i < 4; ++i) {
    leases.push_back(client.getLock("lost-" + std::to_string(i)).acquire({.lease = 100ms}));
  }
  ASSERT_EVENTUALLY(kLong, client.stats().handlerFailures >= 3);
  RLock taken = other.getLock("taken");
  taken.lock();
  for (int i = 0; i < 7; ++i) {
    EXPECT_FALSE(client.getLock("taken").tryLock());
  }
  RLock woken = other.getLock("woken");
  woken.lock();
  auto waiter = client.getLock("woken").lockAsync({}, newOwner()).toFuture();
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("woken")) == 1);
  woken.unlock();
  ASSERT_TRUE(ready(waiter, kLong));
  std::vector<std::future<void>> waiters;
  for (int i = 0; i < 5; ++i) {
    waiters.push_back(client.getLock("taken").lockAsync({}, newOwner()).toFuture());
  }
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 5);
  ASSERT_EVENTUALLY(kLong, client.stats().renewals > 0);
  ASSERT_EVENTUALLY(kLong, client.stats().safetyPolls > client.stats().wakeUps + 5);
  // Nothing has changed beside the scrape if the numbers are the same before and after it.
  Stats stats;
  Families families;
  ASSERT_TRUE(eventually(kLong, [&] {
    stats = client.stats();
    families = collector.Collect();
    return client.stats() == stats;
  }));
  EXPECT_GT(stats.lostReplies, stats.undone);
  expectShown(families, stats);
}

// The counter is told of each event itself, and once more often than of the one before.
TEST(ScrapeOfEvents, EachCountsUnderItsLabels) {
  const prometheus::Collector collector;
  const auto counter = collector.observer();
  std::set<std::string> expected;
  int times = 0;
  const auto tell = [&](const std::string& metric, auto event) {
    ++times;
    for (int i = 0; i < times; ++i) {
      event();
    }
    expected.insert(metric + " " + std::to_string(times));
  };
  for (const std::string_view kind : prometheus::EventCounter::kKinds) {
    const std::string label = "{kind=\"" + std::string(kind) + "\"";
    AcquiredEvent acquired;
    acquired.kind = kind;
    tell("rlock_acquisitions_by_kind_total" + label + "}", [&] { counter->acquired(acquired); });
    ReleasedEvent released;
    released.kind = kind;
    tell("rlock_releases_by_kind_total" + label + "}", [&] { counter->released(released); });
    RenewedLateEvent late;
    late.kind = kind;
    tell("rlock_late_renewals_total" + label + "}", [&] { counter->renewedLate(late); });
    using Outcome = WaitedEvent::Outcome;
    for (const Outcome outcome : {Outcome::acquired, Outcome::refused, Outcome::failed}) {
      WaitedEvent waited;
      waited.kind = kind;
      waited.outcome = outcome;
      const std::string name(rlock::toString(outcome));
      tell("rlock_waits_total" + label + ",outcome=\"" + name + "\"}",
           [&] { counter->waited(waited); });
    }
    for (std::size_t i = 1; i < prometheus::EventCounter::kReasons; ++i) {
      LostEvent lost;
      lost.kind = kind;
      lost.reason = static_cast<LossReason>(i);
      const std::string name(rlock::toString(lost.reason));
      tell("rlock_losses_by_reason_total" + label + ",reason=\"" + name + "\"}",
           [&] { counter->lost(lost); });
    }
  }
  using Request = SettledEvent::Request;
  using Effect = SettledEvent::Outcome;
  for (const auto& [request, asked] :
       {std::pair(Request::acquire, "acquire"), std::pair(Request::release, "release")}) {
    for (const auto& [effect, name] : {std::pair(Effect::executed, "executed"),
                                       std::pair(Effect::undone, "undone"),
                                       std::pair(Effect::notExecuted, "notExecuted"),
                                       std::pair(Effect::unknown, "unknown")}) {
      SettledEvent settled;
      settled.request = request;
      settled.outcome = effect;
      tell(std::string("rlock_settled_requests_total{request=\"") + asked + "\",outcome=\"" + name +
               "\"}",
           [&] { counter->settled(settled); });
    }
  }
  for (const auto& [moved, by] : {std::pair(true, "moved"), std::pair(false, "ask")}) {
    RedirectedEvent redirected;
    redirected.moved = moved;
    tell(std::string("rlock_redirections_total{by=\"") + by + "\"}",
         [&] { counter->redirected(redirected); });
  }
  std::set<std::string> shown;
  std::istringstream text(page(collector));
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with('#')) {
      shown.insert(line);
    }
  }
  EXPECT_EQ(shown, expected);
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
    EXPECT_DOUBLE_EQ(histogram.bucket.front().upper_bound, 1.024e-6);
    EXPECT_DOUBLE_EQ(histogram.bucket.back().upper_bound, 8796.093022208);
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
