// SPDX-License-Identifier: Apache-2.0
#pragma once

// The component rlock::prometheus, which needs prometheus-cpp; nothing else includes this header.

#include <rlock/client.hpp>
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/error.hpp>
#include <rlock/histogram.hpp>
#include <rlock/observer.hpp>
#include <rlock/stats.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <prometheus/client_metric.h>
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::prometheus {

/// The settings of a Collector.
struct CollectorOptions {
  /// How many names are shown for each order of Client::topNames(), which needs
  /// Options::topNames. The names are label values, so that this is what bounds them. 0: none, and
  /// no label has the name of a lock.
  std::size_t topNames = 0;
};

/// Counts events by kind of lock, reason and outcome, for a Collector; see Options::observer.
/// Several clients may share one. The number of counters is fixed.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class EventCounter final : public Observer {
 public:
  /// The values of the label `kind`.
  static constexpr std::array<std::string_view, 10> kKinds{"lock",
                                                           "fairLock",
                                                           "spinLock",
                                                           "fencedLock",
                                                           "readLock",
                                                           "writeLock",
                                                           "simpleLock",
                                                           "permitSemaphore",
                                                           "semaphore",
                                                           "latch"};
  /// How many reasons of a loss there are.
  static constexpr std::size_t kReasons = static_cast<std::size_t>(LossReason::clientClosed) + 1;

  ///@{
  /// As in Observer.
  void acquired(const AcquiredEvent& event) override { count(acquired_.at(kindOf(event))); }
  void waited(const WaitedEvent& event) override {
    count(waited_.at(kindOf(event)).at(static_cast<std::size_t>(event.outcome)));
  }
  void released(const ReleasedEvent& event) override { count(released_.at(kindOf(event))); }
  void lost(const LostEvent& event) override {
    count(lost_.at(kindOf(event)).at(static_cast<std::size_t>(event.reason)));
  }
  void renewedLate(const RenewedLateEvent& event) override {
    count(renewedLate_.at(kindOf(event)));
  }
  void settled(const SettledEvent& event) override {
    count(settled_.at(static_cast<std::size_t>(event.request))
              .at(static_cast<std::size_t>(event.outcome)));
  }
  void redirected(const RedirectedEvent& event) override {
    count(redirected_.at(event.moved ? 0 : 1));
  }
  ///@}

 private:
  friend class Collector;

  using Counter = std::atomic<std::uint64_t>;
  template <std::size_t Size>
  using Counters = std::array<Counter, Size>;

  static void count(Counter& counter) noexcept { counter.fetch_add(1, std::memory_order_relaxed); }
  /// A kind of a later version counts as a lock.
  static std::size_t kindOf(const LockEvent& event) noexcept {
    const auto* const found = std::find(kKinds.begin(), kKinds.end(), event.kind);
    return found == kKinds.end() ? 0 : static_cast<std::size_t>(found - kKinds.begin());
  }

  Counters<kKinds.size()> acquired_{}, released_{}, renewedLate_{};
  std::array<Counters<3>, kKinds.size()> waited_{};
  std::array<Counters<kReasons>, kKinds.size()> lost_{};
  std::array<Counters<4>, 2> settled_{};
  Counters<2> redirected_{};
};

/// Shows the numbers of clients to Prometheus: register it with an Exposer. It reads
/// Client::stats() at each scrape and keeps nothing itself. `docs/observability.md` lists the
/// metrics.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class Collector final : public ::prometheus::Collectable {
 public:
  /// @param options  what is shown
  explicit Collector(CollectorOptions options = {})
      : options_(options), events_(std::make_shared<EventCounter>()) {}

  /// For Options::observer of the clients, if events by kind, reason and outcome are wanted, too.
  [[nodiscard]] std::shared_ptr<EventCounter> observer() const { return events_; }

  /// Shows this client from here on. It must stay where it is, neither moved nor destroyed, until
  /// remove() has returned.
  /// @param client  whose numbers are shown
  /// @param label   the value of the label `client`, another for each client that is shown; empty
  ///                for a single client, which then has no such label
  void add(const Client& client, std::string label = {}) {
    const detail::MutexLock lock(mutex_);
    clients_.push_back({&client, std::move(label)});
  }
  /// Blocks while a scrape goes on. Without effect for a client that is not shown.
  void remove(const Client& client) {
    const detail::MutexLock lock(mutex_);
    std::erase_if(clients_, [&](const Shown& shown) { return shown.client == &client; });
  }

  /// The numbers as they are now. Called by the Exposer.
  [[nodiscard]] std::vector<::prometheus::MetricFamily> Collect() const override;

 private:
  using Families = std::vector<::prometheus::MetricFamily>;
  using Metric = ::prometheus::ClientMetric;
  using Labels = std::vector<Metric::Label>;

  struct Shown {
    const Client* client;
    std::string label;
  };
  struct Sample {
    Labels labels;
    Stats stats;
    std::array<std::vector<TopName>, 3> top{};
  };
  struct Number {
    const char* name;
    const char* help;
    std::uint64_t Stats::*member;
  };
  struct Durations {
    const char* name;
    const char* help;
    Histogram Stats::*member;
  };

  static constexpr std::array<Number, 16> kCounters{
      {{"rlock_acquisitions_total", "Acquisitions that succeeded.", &Stats::acquired},
       {"rlock_contended_total", "Acquisitions that found the lock taken.", &Stats::contended},
       {"rlock_refused_total",
        "Calls whose time was over without what they asked for.",
        &Stats::refused},
       {"rlock_releases_total", "Releases that the server confirmed.", &Stats::released},
       {"rlock_renewals_total", "Holds renewed by the watchdog, each time.", &Stats::renewals},
       {"rlock_renewal_failures_total", "Renewals without an answer.", &Stats::renewalFailures},
       {"rlock_losses_total", "Holds that ended before their release.", &Stats::lost},
       {"rlock_reconnects_total", "Connections made again.", &Stats::reconnects},
       {"rlock_lost_replies_total", "Requests with a lost reply.", &Stats::lostReplies},
       {"rlock_undone_total", "Acquisitions given back, their caller had left.", &Stats::undone},
       {"rlock_commands_total",
        "Commands sent, without handshakes and subscriptions.",
        &Stats::commands},
       {"rlock_scripts_loaded_total", "Scripts sent in full.", &Stats::scriptsLoaded},
       {"rlock_messages_total", "Pub/sub messages received.", &Stats::messages},
       {"rlock_wake_ups_total", "Waiters woken by a message.", &Stats::wakeUps},
       {"rlock_safety_polls_total", "Waiters woken by the safety poll.", &Stats::safetyPolls},
       {"rlock_handler_failures_total",
        "Exceptions out of the application's callbacks.",
        &Stats::handlerFailures}}};
  static constexpr std::array<Number, 3> kGauges{
      {{"rlock_holds", "Holds that the client keeps.", &Stats::holds},
       {"rlock_waiters", "Calls waiting for a lock.", &Stats::waiters},
       {"rlock_channels", "Channels subscribed.", &Stats::channels}}};
  static constexpr std::array<Durations, 4> kHistograms{
      {{"rlock_wait_seconds", "From the call until it had the lock.", &Stats::waits},
       {"rlock_hold_seconds", "From the first hold to the last release.", &Stats::holdTimes},
       {"rlock_renewal_lag_seconds", "From when a renewal was due.", &Stats::renewalLags},
       {"rlock_round_trip_seconds", "From request to reply.", &Stats::roundTrips}}};
  struct Order {
    const char* name;
    const char* help;
    TopBy by;
  };
  static constexpr std::array<Order, 3> kOrders{
      {{"rlock_top_wait_seconds", "Waits of the names waited for longest.", TopBy::waited},
       {"rlock_top_contended", "Waiting calls of the names waited for most.", TopBy::contended},
       {"rlock_top_hold_seconds", "Longest holds of the names held longest.", TopBy::held}}};

  static double seconds(std::chrono::nanoseconds duration) {
    return std::chrono::duration<double>(duration).count();
  }
  static ::prometheus::MetricFamily& family(Families& families,
                                            const char* name,
                                            const char* help,
                                            ::prometheus::MetricType type) {
    return families.emplace_back(::prometheus::MetricFamily{name, help, type, {}});
  }
  static Metric counter(Labels labels, std::uint64_t value) {
    Metric metric;
    metric.label = std::move(labels);
    metric.counter.value = static_cast<double>(value);
    return metric;
  }
  static Metric gauge(Labels labels, double value) {
    Metric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    return metric;
  }
  static Metric histogram(Labels labels, const Histogram& from);
  /// Whether it is valid UTF-8 without control bytes.
  static bool isText(std::string_view bytes) noexcept;
  /// A name as a label: a value that is no text would make Prometheus refuse the whole page. In
  /// full length, so that two names stay two, unless one spells the escaped bytes of the other.
  static std::string labelOf(const std::string& name) {
    return isText(name) ? name
                        : detail::escapeForDisplay(name, std::numeric_limits<std::size_t>::max());
  }
  [[nodiscard]] std::vector<Sample> samples() const;
  void addTop(Families& families, const std::vector<Sample>& all) const;
  void addEvents(Families& families) const;

  const CollectorOptions options_;
  const std::shared_ptr<EventCounter> events_;
  mutable detail::AnnotatedMutex mutex_;
  std::vector<Shown> clients_ RLOCK_GUARDED_BY(mutex_);
};

inline ::prometheus::ClientMetric Collector::histogram(Labels labels, const Histogram& from) {
  Metric metric;
  metric.label = std::move(labels);
  std::uint64_t below = 0;
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
    below += from.counts[bucket];
    // A duration beyond the last bound is in the bucket +Inf, which the text format adds.
    if (bucket + 1 < Histogram::kBuckets) {
      metric.histogram.bucket.push_back({below, seconds(Histogram::upperBound(bucket))});
    }
  }
  metric.histogram.sample_count = below;
  metric.histogram.sample_sum = seconds(from.sum);
  return metric;
}

inline bool Collector::isText(std::string_view bytes) noexcept {
  int left = 0;  // bytes of the character that are still to come
  // The range of the next of them.
  int low = 0x80;
  int high = 0xbf;
  for (const char c : bytes) {
    const int byte = static_cast<unsigned char>(c);
    if (left > 0) {
      if (byte < low || byte > high) {
        return false;
      }
      --left;
      low = 0x80;
      high = 0xbf;
    } else if (byte >= 0xc2 && byte <= 0xdf) {
      left = 1;
    } else if (byte >= 0xe0 && byte <= 0xef) {
      // Neither longer than needed nor half of a pair of UTF-16.
      left = 2;
      low = byte == 0xe0 ? 0xa0 : low;
      high = byte == 0xed ? 0x9f : high;
    } else if (byte >= 0xf0 && byte <= 0xf4) {
      // Neither longer than needed nor beyond the last character.
      left = 3;
      low = byte == 0xf0 ? 0x90 : low;
      high = byte == 0xf4 ? 0x8f : high;
    } else if (byte < 0x20 || byte >= 0x7f) {
      return false;
    }
  }
  return left == 0;
}

inline std::vector<Collector::Sample> Collector::samples() const {
  const detail::MutexLock lock(mutex_);
  std::vector<Sample> all;
  all.reserve(clients_.size());
  for (const Shown& shown : clients_) {
    Sample& sample = all.emplace_back();
    if (!shown.label.empty()) {
      sample.labels.push_back({"client", shown.label});
    }
    sample.stats = shown.client->stats();
    for (std::size_t i = 0; options_.topNames > 0 && i < kOrders.size(); ++i) {
      sample.top.at(i) = shown.client->topNames(kOrders.at(i).by, options_.topNames);
    }
  }
  return all;
}

inline std::vector<::prometheus::MetricFamily> Collector::Collect() const {
  using Type = ::prometheus::MetricType;
  const std::vector<Sample> all = samples();
  Families families;
  for (const Number& number : kCounters) {
    auto& to = family(families, number.name, number.help, Type::Counter);
    for (const Sample& sample : all) {
      to.metric.push_back(counter(sample.labels, sample.stats.*number.member));
    }
  }
  for (const Number& number : kGauges) {
    auto& to = family(families, number.name, number.help, Type::Gauge);
    for (const Sample& sample : all) {
      to.metric.push_back(gauge(sample.labels, static_cast<double>(sample.stats.*number.member)));
    }
  }
  for (const Durations& durations : kHistograms) {
    auto& to = family(families, durations.name, durations.help, Type::Histogram);
    for (const Sample& sample : all) {
      to.metric.push_back(histogram(sample.labels, sample.stats.*durations.member));
    }
  }
  addTop(families, all);
  addEvents(families);
  std::erase_if(families, [](const auto& each) { return each.metric.empty(); });
  return families;
}

inline void Collector::addTop(Families& families, const std::vector<Sample>& all) const {
  for (std::size_t i = 0; i < kOrders.size(); ++i) {
    const Order& order = kOrders.at(i);
    auto& to = family(families, order.name, order.help, ::prometheus::MetricType::Gauge);
    for (const Sample& sample : all) {
      for (const TopName& top : sample.top.at(i)) {
        Labels labels = sample.labels;
        labels.push_back({"name", labelOf(top.name)});
        to.metric.push_back(gauge(
            std::move(labels),
            order.by == TopBy::contended ? static_cast<double>(top.count) : seconds(top.time)));
      }
    }
  }
}

/// Only what has happened: most kinds and reasons never occur in one program.
inline void Collector::addEvents(Families& families) const {
  const auto add =
      [](::prometheus::MetricFamily& to, const EventCounter::Counter& from, Labels labels) {
        if (const std::uint64_t value = from.load(std::memory_order_relaxed); value > 0) {
          to.metric.push_back(counter(std::move(labels), value));
        }
      };
  using Type = ::prometheus::MetricType;
  families.reserve(families.size() + 7);
  auto& acquired = family(families,
                          "rlock_acquisitions_by_kind_total",
                          "Calls that got what they asked for.",
                          Type::Counter);
  for (std::size_t kind = 0; kind < EventCounter::kKinds.size(); ++kind) {
    add(acquired,
        events_->acquired_.at(kind),
        {{"kind", std::string(EventCounter::kKinds.at(kind))}});
  }
  auto& waited =
      family(families, "rlock_waits_total", "Calls that found the lock taken.", Type::Counter);
  for (std::size_t kind = 0; kind < EventCounter::kKinds.size(); ++kind) {
    for (std::size_t i = 0; i < events_->waited_.at(kind).size(); ++i) {
      add(waited,
          events_->waited_.at(kind).at(i),
          {{"kind", std::string(EventCounter::kKinds.at(kind))},
           {"outcome", std::string(toString(static_cast<WaitedEvent::Outcome>(i)))}});
    }
  }
  auto& released = family(families,
                          "rlock_releases_by_kind_total",
                          "Releases that the server confirmed.",
                          Type::Counter);
  for (std::size_t kind = 0; kind < EventCounter::kKinds.size(); ++kind) {
    add(released,
        events_->released_.at(kind),
        {{"kind", std::string(EventCounter::kKinds.at(kind))}});
  }
  auto& lost = family(families,
                      "rlock_losses_by_reason_total",
                      "Holds that ended before their release.",
                      Type::Counter);
  for (std::size_t kind = 0; kind < EventCounter::kKinds.size(); ++kind) {
    for (std::size_t i = 0; i < EventCounter::kReasons; ++i) {
      add(lost,
          events_->lost_.at(kind).at(i),
          {{"kind", std::string(EventCounter::kKinds.at(kind))},
           {"reason", std::string(toString(static_cast<LossReason>(i)))}});
    }
  }
  auto& late = family(families,
                      "rlock_late_renewals_total",
                      "Renewals confirmed when more than half of the lease was over.",
                      Type::Counter);
  for (std::size_t kind = 0; kind < EventCounter::kKinds.size(); ++kind) {
    add(late,
        events_->renewedLate_.at(kind),
        {{"kind", std::string(EventCounter::kKinds.at(kind))}});
  }
  auto& settled = family(families,
                         "rlock_settled_requests_total",
                         "Requests with a lost reply, by what became of them.",
                         Type::Counter);
  for (std::size_t request = 0; request < events_->settled_.size(); ++request) {
    for (std::size_t i = 0; i < events_->settled_.at(request).size(); ++i) {
      add(settled,
          events_->settled_.at(request).at(i),
          {{"request", std::string(toString(static_cast<SettledEvent::Request>(request)))},
           {"outcome", std::string(toString(static_cast<SettledEvent::Outcome>(i)))}});
    }
  }
  auto& redirected =
      family(families, "rlock_redirections_total", "Requests sent to another node.", Type::Counter);
  add(redirected, events_->redirected_.at(0), {{"by", "moved"}});
  add(redirected, events_->redirected_.at(1), {{"by", "ask"}});
}

}  // namespace rlock::prometheus
