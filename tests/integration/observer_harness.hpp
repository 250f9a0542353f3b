// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integration/lock_harness.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace rlock::test {

/// One event as it was told, all kinds alike.
struct Told {
  std::string event;  ///< the function's name
  std::string name{};
  std::string owner{};
  std::string kind{};
  std::string detail{};  ///< reason, outcome, node
  std::string label{};
  int count = 0;
  bool contended = false;
  std::optional<std::uint64_t> token{};
  std::chrono::nanoseconds time{0};  ///< waited, held, lag, took
  std::chrono::nanoseconds left{0};
  Clock::time_point at{};
  std::thread::id thread = std::this_thread::get_id();
};

/// Keeps all events, and calls a function at each.
class Recorder : public Observer {
 public:
  using Then = std::function<void(const Told&)>;

  explicit Recorder(Then then = {}) : then_(std::move(then)) {}

  void acquired(const AcquiredEvent& event) override {
    Told told = about("acquired", event);
    told.count = event.count;
    told.contended = event.contended;
    told.token = event.token;
    told.time = event.waited;
    told.label = event.label;
    add(std::move(told));
  }
  void waited(const WaitedEvent& event) override {
    Told told = about("waited", event);
    told.detail = rlock::toString(event.outcome);
    told.time = event.waited;
    add(std::move(told));
  }
  void released(const ReleasedEvent& event) override {
    Told told = about("released", event);
    told.count = event.remaining;
    told.time = event.held;
    add(std::move(told));
  }
  void lost(const LostEvent& event) override {
    Told told = about("lost", event);
    told.detail = rlock::toString(event.reason);
    told.time = event.held;
    told.label = event.label;
    add(std::move(told));
  }
  void renewedLate(const RenewedLateEvent& event) override {
    Told told = about("renewedLate", event);
    told.time = event.lag;
    told.left = event.left;
    add(std::move(told));
  }
  void settled(const SettledEvent& event) override {
    Told told = about("settled", event);
    told.detail = std::string(rlock::toString(event.request)) + " " +
                  std::string(rlock::toString(event.outcome));
    told.time = event.took;
    add(std::move(told));
  }
  void reconnected(const ReconnectedEvent& event) override {
    Told told{.event = "reconnected", .at = event.at};
    told.detail = event.node;
    told.count = event.replaced ? 1 : 0;
    add(std::move(told));
  }
  void redirected(const RedirectedEvent& event) override {
    Told told{.event = "redirected", .at = event.at};
    told.detail = std::string(event.from) + " " + std::string(event.to) + " " +
                  (event.moved ? "moved" : "ask");
    told.count = event.slot;
    add(std::move(told));
  }

  /// All of one sort, or all.
  [[nodiscard]] std::vector<Told> all(std::string_view event = {}) const {
    const std::lock_guard guard(mutex_);
    std::vector<Told> result;
    for (const Told& told : told_) {
      if (event.empty() || told.event == event) {
        result.push_back(told);
      }
    }
    return result;
  }
  [[nodiscard]] std::size_t count(std::string_view event) const { return all(event).size(); }

 private:
  static Told about(const char* event, const LockEvent& lock) {
    return {.event = event,
            .name = std::string(lock.name),
            .owner = std::string(lock.owner),
            .kind = std::string(lock.kind),
            .at = lock.at};
  }
  void add(Told told) {
    {
      const std::lock_guard guard(mutex_);
      told_.push_back(told);
    }
    if (then_) {
      then_(told);
    }
  }

  const Then then_;
  mutable std::mutex mutex_;
  std::vector<Told> told_;
};

/// Clients with a Recorder.
class ObserverTest : public LockTest {
 protected:
  [[nodiscard]] Options observed(const std::shared_ptr<Recorder>& recorder,
                                 std::chrono::milliseconds watchdog = kLongWatchdog) {
    Options settings = options(watchdog);
    settings.observer = recorder;
    return settings;
  }
  [[nodiscard]] Options observedThroughProxy(const std::shared_ptr<Recorder>& recorder,
                                             std::chrono::milliseconds watchdog = kLongWatchdog) {
    Options settings = proxied(watchdog);
    settings.observer = recorder;
    return settings;
  }
};

}  // namespace rlock::test
