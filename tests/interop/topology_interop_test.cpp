// SPDX-License-Identifier: Apache-2.0

// Both sides where Sentinels or a cluster say which server has a name, and where that changes.

#include "interop/differential.hpp"
#include "interop/interop_harness.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rlock::test::interop {
namespace {

/// Who waits is woken by a message or, in these tests, not at all.
const Peer::Tuning kMessagesOnly{.watchdog = scaled(60'000ms), .safetyPoll = scaled(60'000ms)};
constexpr std::chrono::milliseconds kSoon{5'000};
constexpr std::chrono::milliseconds kLong{30'000};

/// What a holder has, and what somebody else then waits for.
struct Modes {
  std::string held;
  std::string wanted;
};

std::vector<Modes> modesOf(const std::string& kind) {
  if (kind == "read-write") {
    return {{"write", "read"}, {"read", "write"}};
  }
  return {{kind, kind}};
}

/// Everything under a name that both sides read: keys with types and contents, and the channels on
/// which somebody waits. Texts are replaced as told; expiries and scores are left out.
std::set<std::string> stateOf(RawRedis& raw,
                              const std::string& name,
                              const std::map<std::string, std::string>& replacements) {
  std::set<std::string> state;
  const auto add = [&](std::string text) {
    for (const auto& [from, to] : replacements) {
      replaceAll(text, from, to);
    }
    replaceAll(text, name, "NAME");
    state.insert(std::move(text));
  };
  const std::string pattern = "*" + name + "*";
  for (const std::string& key : raw.keys(pattern)) {
    if (isPrivateKey(key)) {
      continue;
    }
    const std::string type = raw.type(key);
    std::string text = type + " " + key + ":";
    if (type == "string") {
      text += " " + raw.get(key).value_or("?");
    }
    for (const auto& [field, value] :
         type == "hash" ? raw.hgetall(key) : std::map<std::string, std::string>()) {
      text.append(" ").append(field).append("=").append(value);
    }
    if (type == "list" || type == "zset") {
      for (const std::string& member :
           raw.run({type == "list" ? "LRANGE" : "ZRANGE", key, "0", "-1"}).strings()) {
        text += " " + member;
      }
    }
    add(std::move(text));
  }
  for (const std::string& channel : raw.pubsubChannels(pattern)) {
    add("channel " + channel);
  }
  return state;
}

bool hasWaiters(RawRedis& raw, const std::string& name) {
  return !raw.pubsubChannels("*" + name + "*").empty();
}

class TopologyTest : public SubjectTest {
 protected:
  void begin() {
    SubjectTest::begin(
        GetParam().servers == ServerForm::cluster ? "in a cluster" : "with Sentinels", GetParam());
  }
  /// A name that this one of the first masters has.
  std::string nameAt(std::size_t master, const std::string& prefix) {
    return GetParam().servers == ServerForm::cluster ? cluster().nameAt(master, prefix) : prefix;
  }

  std::set<std::string> stateHeldBy(Side holder, const Modes& modes) {
    const std::string name =
        nameAt(0, "held-by-" + std::string(toString(holder)) + "-" + modes.held);
    prepare(modes.held, name);
    Peer& holding = peer(holder);
    Peer& waiting = peer(other(holder));
    const std::map<std::string, std::string> owners{{holding.ownerField(1, 1), "holder"},
                                                    {waiting.ownerField(1, 2), "waiter"}};
    const Answer held = holding.finish(startAcquire(holding, 1, modes.held, name));
    EXPECT_TRUE(held.ok()) << held;
    const Call wait = startAcquire(waiting, 2, modes.wanted, name);
    EXPECT_EVENTUALLY(kLong, hasWaiters(raw(), name));
    auto state = stateOf(raw(), name, owners);
    EXPECT_FALSE(waiting.finished(wait));
    EXPECT_TRUE(release(holding, 1, modes.held, name, held).ok());
    const Answer entered = waiting.finish(wait);
    EXPECT_TRUE(entered.ok()) << entered;
    EXPECT_TRUE(release(waiting, 2, modes.wanted, name, entered).ok());
    return state;
  }

  /// The longest of some hand-offs.
  std::chrono::microseconds handOff(Side holder, const Modes& modes) {
    constexpr std::size_t kRounds = 8;
    const std::string name = nameAt(1, "handed-" + modes.held);
    prepare(modes.held, name);
    Peer& holding = peer(holder);
    Peer& waiting = peer(other(holder));
    Answer held;
    const auto times =
        handOffs(waiting,
                 {.hold =
                      [&] {
                        held = holding.finish(startAcquire(holding, 1, modes.held, name));
                        EXPECT_TRUE(held.ok()) << held;
                      },
                  .wait = [&] { return startAcquire(waiting, 1, modes.wanted, name); },
                  .release = [&] { return release(holding, 1, modes.held, name, held); },
                  .leave =
                      [&](const Answer& entered) {
                        EXPECT_TRUE(release(waiting, 1, modes.wanted, name, entered).ok());
                      }},
                 kRounds,
                 scaled(kSoon));
    return times.empty() ? std::chrono::microseconds::max() : times.back();
  }

  int changesInSections() {
    constexpr int kTimes = 60;
    const std::string name = nameAt(2, "guarded");
    std::vector<std::pair<Side, Call>> calls;
    int updates = 0;
    int owner = 0;
    for (const Modes& modes : modesOf(kind())) {
      prepare(modes.held, name);
      for (int i = 0; i < 2; ++i) {
        ++owner;
        for (const Side side : kSides) {
          calls.emplace_back(side, startSections(side, owner, modes.held, name, kTimes, 200us));
          updates += modes.held == "read" ? 0 : kTimes;
        }
      }
    }
    for (const auto& [side, call] : calls) {
      const Answer answer = peer(side).finish(call, 120s);
      EXPECT_EQ(answer.text(), std::to_string(kTimes)) << side << ": " << answer;
    }
    return checkSections(updates, static_cast<int>(calls.size()) * kTimes);
  }
};

TEST_P(TopologyTest, IO10_BothSidesExcludeAndWakeEachOther) {
  ASSERT_NO_FATAL_FAILURE(begin());
  if (IsSkipped()) {
    return;
  }
  openBoth(kMessagesOnly);
  std::chrono::microseconds longest{0};
  for (const Modes& modes : modesOf(kind())) {
    SCOPED_TRACE(modes.held);
    const auto heldByRedisson = stateHeldBy(Side::java, modes);
    EXPECT_FALSE(heldByRedisson.empty());
    EXPECT_EQ(stateHeldBy(Side::cpp, modes), heldByRedisson);
    for (const Side holder : kSides) {
      longest = std::max(longest, handOff(holder, modes));
    }
    ASSERT_FALSE(HasFailure());
  }
  const int changes = changesInSections();
  // Otherwise the two did not meet.
  EXPECT_GE(changes, 10);
  note("changed sides " + std::to_string(changes) + " times; woken within " + inMs(longest));
}

std::vector<Subject> inBoth(const std::vector<std::string>& kinds) {
  std::vector<Subject> subjects;
  for (const ServerForm form : {ServerForm::sentinel, ServerForm::cluster}) {
    for (const std::string& kind : kinds) {
      subjects.push_back(Subject{kind, kNewest, form});
    }
  }
  return subjects;
}

INSTANTIATE_TEST_SUITE_P(Interop,
                         TopologyTest,
                         ::testing::ValuesIn(inBoth({"plain", "fair", "read-write", "semaphore"})),
                         subjectName);
INSTANTIATE_TEST_SUITE_P(InteropOld,
                         TopologyTest,
                         ::testing::Values(Subject{"plain", kOld, ServerForm::sentinel}),
                         subjectName);

// ----------------------------------------------------------------------------------- failover

class FailoverTest : public TopologyTest {
 protected:
  /// Held by one side, waited for by the other; both by owners of their own.
  struct Object {
    Modes modes;
    Side holder;
    std::string name;
    int owner;
    Answer held{};
    Call wait{};
  };

  /// Ends the master of all the names, and returns the one that takes its place.
  RawRedis replaceMaster(const std::string& name) {
    const bool inCluster = GetParam().servers == ServerForm::cluster;
    RedisServer& master = inCluster ? cluster().node(0) : sentinels().node(0);
    {
      // WAIT counts what its own connection has seen.
      RawRedis last(master);
      last.run({"SET", "{" + name + "}:mark", "1", "PX", "1000"});
      EXPECT_GE(last.run({"WAIT", "1", "10000"}).integer(), 1);
    }
    master.kill();
    if (!inCluster) {
      return RawRedis(sentinels().node(sentinels().awaitMaster(0)));
    }
    std::size_t next = 0;
    EXPECT_EVENTUALLY(kLong, [&] {
      try {
        next = cluster().ownerOf(name, 1);
        return true;
      } catch (const std::runtime_error&) {
        return false;
      }
    }());
    return rawTo({1, 2, next});
  }

  std::string tryNow(Side side, int owner, const std::string& kind, const std::string& name) {
    const bool semaphore = kind == "semaphore";
    return peer(side)
        .ask(1,
             owner,
             semaphore ? "tryAcquire" : "tryLock",
             kind,
             name,
             semaphore ? std::vector<std::string>{"1", "0"} : std::vector<std::string>{"0", "-1"})
        .text();
  }
};

TEST_P(FailoverTest, IO10_HoldsAndWaitersOfBothSidesOutliveTheMaster) {
  ASSERT_NO_FATAL_FAILURE(
      SubjectTest::begin(std::string(toString(GetParam().servers)) + " failover", GetParam()));
  if (IsSkipped()) {
    return;
  }
  openBoth(kMessagesOnly);
  std::vector<Object> objects;
  for (const Side holder : kSides) {
    for (const std::string kind : {"plain", "fair", "read-write", "semaphore"}) {
      for (const Modes& modes : modesOf(kind)) {
        objects.push_back({modes,
                           holder,
                           nameAt(0, modes.held + "-of-" + toString(holder)),
                           static_cast<int>(objects.size()) + 1});
      }
    }
  }
  for (Object& each : objects) {
    prepare(each.modes.held, each.name);
    Peer& holding = peer(each.holder);
    each.held = holding.finish(startAcquire(holding, each.owner, each.modes.held, each.name));
    ASSERT_TRUE(each.held.ok()) << each.held;
    each.wait = startAcquire(peer(other(each.holder)), each.owner, each.modes.wanted, each.name);
  }
  for (const Object& each : objects) {
    ASSERT_EVENTUALLY(kLong, hasWaiters(raw(), each.name)) << each.name;
  }

  RawRedis master = replaceMaster(objects.front().name);
  for (const Object& each : objects) {
    // A release that its waiter is not yet there to hear of is found by rlock only.
    EXPECT_EVENTUALLY(kLong, hasWaiters(master, each.name)) << each.name;
  }
  std::chrono::microseconds longest{0};
  for (Object& each : objects) {
    SCOPED_TRACE(each.name);
    Peer& waiting = peer(other(each.holder));
    for (const Side side : kSides) {
      const std::string entered = tryNow(side, 99, each.modes.wanted, each.name);
      promised(entered == "false", std::string(toString(side)) + " enters: " + entered);
    }
    promised(!waiting.finished(each.wait), "the waiter entered while the lock was held");
    const Answer released =
        release(peer(each.holder), each.owner, each.modes.held, each.name, each.held);
    ASSERT_TRUE(released.ok()) << released;
    const Answer entered = waiting.finish(each.wait);
    ASSERT_TRUE(entered.ok()) << entered;
    const auto time =
        std::chrono::duration_cast<std::chrono::microseconds>(entered.end - released.begin);
    EXPECT_LT(time, scaled(kSoon));
    longest = std::max(longest, time);
    ASSERT_ANSWER(release(waiting, each.owner, each.modes.wanted, each.name, entered));
  }
  note("woken within " + inMs(longest));
}

const std::string kAll = "plain, fair, read-write, semaphore";

INSTANTIATE_TEST_SUITE_P(Interop,
                         FailoverTest,
                         ::testing::Values(Subject{kAll, kNewest, ServerForm::sentinel},
                                           Subject{kAll, kNewest, ServerForm::cluster}),
                         [](const auto& each) {
                           return std::string(toString(each.param.servers));
                         });

}  // namespace
}  // namespace rlock::test::interop
