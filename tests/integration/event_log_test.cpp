// SPDX-License-Identifier: Apache-2.0

// The history of a lock from the log alone: the lines of level debug that begin with "event=", read
// as docs/observability.md says.

#include "integration/observer_harness.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>

namespace rlock::test {
namespace {

using Fields = std::map<std::string, std::string>;

/// Reads `key=value key="value"`. Nothing for another line.
std::optional<Fields> parse(std::string_view line) {
  if (!line.starts_with("event=")) {
    return std::nullopt;
  }
  Fields fields;
  while (!line.empty()) {
    const std::size_t equals = line.find('=');
    const std::string key(line.substr(0, equals));
    line.remove_prefix(equals + 1);
    std::string value;
    if (line.starts_with('"')) {
      line.remove_prefix(1);
      while (!line.starts_with('"')) {
        const bool escaped = line.starts_with('\\');
        value += line.substr(0, escaped ? 2 : 1);
        line.remove_prefix(escaped ? 2 : 1);
      }
      line.remove_prefix(1);
    } else {
      value = std::string(line.substr(0, line.find(' ')));
      line.remove_prefix(value.size());
    }
    if (!fields.emplace(key, value).second) {
      throw std::runtime_error("twice in a line: " + key);
    }
    line.remove_prefix(line.empty() ? 0 : 1);
  }
  return fields;
}

class EventLog : public ObserverTest {
 protected:
  /// The events in the order in which they happened.
  [[nodiscard]] std::vector<Fields> events() {
    std::vector<Fields> result;
    for (const CapturedLog::Line& line : log().lines()) {
      if (auto fields = parse(line.text)) {
        EXPECT_EQ(line.level, static_cast<int>(LogLevel::debug));
        result.push_back(std::move(*fields));
      }
    }
    std::stable_sort(result.begin(), result.end(), [](const Fields& a, const Fields& b) {
      return std::stoll(a.at("at_us")) < std::stoll(b.at("at_us"));
    });
    return result;
  }
};

TEST_F(EventLog, EveryLineIsExactlyThis) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("say \"hi\"\n");
  Lease lease = lock.acquire({.label = "night run"});
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  const std::vector<Fields> told = events();
  ASSERT_EQ(told.size(), 2U);
  Fields acquired = told.at(0);
  for (const char* const number : {"at_us", "waited_us"}) {
    EXPECT_GT(std::stoll(acquired.at(number)), 0);
    acquired.erase(number);
  }
  const std::string owner = acquired.at("owner");
  EXPECT_TRUE(owner.starts_with(client.id() + ":"));
  EXPECT_EQ(acquired,
            (Fields{{"event", "acquired"},
                    {"kind", "fencedLock"},
                    {"name", R"(say \"hi\"\n)"},
                    {"owner", owner},
                    {"count", "1"},
                    {"contended", "0"},
                    {"token", "1"},
                    {"label", "night run"}}));
  Fields released = told.at(1);
  released.erase("at_us");
  released.erase("held_us");
  EXPECT_EQ(released,
            (Fields{{"event", "released"},
                    {"kind", "fencedLock"},
                    {"name", R"(say \"hi\"\n)"},
                    {"owner", owner},
                    {"remaining", "0"}}));
}

TEST_F(EventLog, SaysWhoHeldALockWhenAmongThreadsOfTwoClients) {
  Client one = connect();
  Client two = connect();
  std::vector<std::future<int>> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(inThread([&, i] {
      RLock lock = (i % 2 == 0 ? one : two).getLock("shared");
      for (int turn = 0; turn < 25; ++turn) {
        lock.lock();
        std::this_thread::yield();
        lock.unlock();
      }
      return 0;
    }));
  }
  for (auto& thread : threads) {
    thread.get();
  }
  // A hold that ends by itself is in the history, too.
  Lease lease = one.getLock("shared").acquire({.lease = 100ms});
  ASSERT_TRUE(log().waitFor("event=lost", kLong));
  std::string holder;
  int grants = 0;
  std::string last;
  for (const Fields& event : events()) {
    const std::string& what = event.at("event");
    if (what == "acquired") {
      EXPECT_EQ(holder, "") << "held by two";
      holder = event.at("owner");
      ++grants;
    } else if (what == "released" || what == "lost") {
      EXPECT_EQ(holder, event.at("owner"));
      holder.clear();
    }
    last = what;
  }
  EXPECT_EQ(grants, 101);
  EXPECT_EQ(last, "lost");
  EXPECT_EQ(events().back().at("reason"), "expired");
  EXPECT_GE(log().count("event=waited"), 1U);
}

TEST_F(EventLog, NothingIsWrittenAboveDebug) {
  Options settings = options();
  settings.logLevel = LogLevel::info;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("quiet");
  lock.lock();
  lock.unlock();
  EXPECT_FALSE(log().contains("event="));
}

}  // namespace
}  // namespace rlock::test
