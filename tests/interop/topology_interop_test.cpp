// SPDX-License-Identifier: Apache-2.0

// Both sides where Sentinels or a cluster say which server has a name, and where that changes.

#include "interop/differential.hpp"
#include "interop/interop_harness.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rlock::test::interop {
namespace {

/// A waiter is woken by a message or, in these tests, not at all.
const Peer::Tuning kMessagesOnly{.watchdog = scaled(60'000ms), .safetyPoll = scaled(60'000ms)};
constexpr std::chrono::milliseconds kSoon{5'000};
constexpr std::chrono::milliseconds kLong{30'000};

/// The mode of a holder, and the one that somebody else then waits for.
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

/// Whether the waiting owner sleeps until a message comes. rlock's is woken in any case.
bool sleeps(Peer& waiting, int owner) {
  constexpr int kSomebodyElse = 9;
  return waiting.side() == Side::cpp ||
         waiting.ask(1, kSomebodyElse, "asleep", "-", "-", {std::to_string(owner)}).value == "true";
}

class TopologyTest : public SubjectTest {
 protected:
  void begin() {
    const ServerForm form = GetParam().servers;
    SubjectTest::begin(form == ServerForm::sentinel  ? "with Sentinels"
                       : form == ServerForm::cluster ? "in a cluster"
                                                     : "in a cluster, classic channels",
                       GetParam());
  }
  [[nodiscard]] bool inCluster() const { return GetParam().servers != ServerForm::sentinel; }
  /// A name that this one of the first masters has.
  std::string nameAt(std::size_t master, const std::string& prefix) {
    return inCluster() ? cluster().nameAt(master, prefix) : prefix;
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
                  .wait =
                      [&] {
                        const Call wait = startAcquire(waiting, 1, modes.wanted, name);
                        // A message that lets all readers in wakes those of Redisson that sleep
                        // already, and no others.
                        EXPECT_EVENTUALLY(kLong, sleeps(waiting, 1));
                        return wait;
                      },
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
    constexpr int kWarmUp = 30;
    // rlock hands a lock over 16 times in a row: enough for a dozen such chains.
    constexpr int kTimes = 120;
    const std::string name = nameAt(2, "guarded");
    std::vector<std::pair<Side, Call>> calls;
    int updates = 0;
    int sections = 0;
    int owner = 0;
    const auto count = [&](const Modes& modes, int times) {
      sections += times;
      updates += modes.held == "read" ? 0 : times;
    };
    // A virtual machine that has only just started would come when rlock is through.
    for (const Modes& modes : modesOf(kind())) {
      prepare(modes.held, name);
      const Call warmUp = startSections(Side::java, ++owner, modes.held, name, kWarmUp, 200us);
      EXPECT_EQ(peer(Side::java).finish(warmUp, 120s).text(), std::to_string(kWarmUp));
      count(modes, kWarmUp);
    }
    for (const Modes& modes : modesOf(kind())) {
      for (int i = 0; i < 2; ++i) {
        ++owner;
        for (const Side side : kSides) {
          calls.emplace_back(side, startSections(side, owner, modes.held, name, kTimes, 200us));
          count(modes, kTimes);
        }
      }
    }
    for (const auto& [side, call] : calls) {
      const Answer answer = peer(side).finish(call, 120s);
      EXPECT_EQ(answer.text(), std::to_string(kTimes)) << side << ": " << answer;
    }
    return checkSections(updates, sections);
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
      SCOPED_TRACE(std::string(toString(holder)) + " releases");
      longest = std::max(longest, handOff(holder, modes));
    }
    ASSERT_FALSE(HasFailure());
  }
  const int changes = changesInSections();
  // Otherwise the two did not meet. A plain lock changes sides twice for each chain of hand-overs
  // at most, 30 times here, and less often where a virtual machine takes longer to ask than rlock
  // waits.
  EXPECT_GE(changes, 4);
  note("changed sides " + std::to_string(changes) + " times; woken within " + inMs(longest));
}

std::vector<Subject> with(const std::string& redisson,
                          const std::vector<std::string>& kinds,
                          const std::vector<ServerForm>& forms) {
  std::vector<Subject> result;
  for (const std::string& kind : kinds) {
    for (const ServerForm form : forms) {
      result.push_back(Subject{kind, redisson, form});
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Interop,
                         TopologyTest,
                         ::testing::ValuesIn(with(kNewest,
                                                  {"plain", "fair", "read-write", "semaphore"},
                                                  {ServerForm::sentinel, ServerForm::cluster})),
                         subjectName);
INSTANTIATE_TEST_SUITE_P(
    InteropOld,
    TopologyTest,
    ::testing::ValuesIn(with(kOld, {"plain"}, {ServerForm::sentinel, ServerForm::classicCluster})),
    subjectName);
INSTANTIATE_TEST_SUITE_P(InteropOldSlow,
                         TopologyTest,
                         ::testing::ValuesIn(with(kOld,
                                                  {"fair", "read-write", "semaphore"},
                                                  {ServerForm::sentinel,
                                                   ServerForm::classicCluster})),
                         subjectName);
INSTANTIATE_TEST_SUITE_P(
    InteropSlow,
    TopologyTest,
    ::testing::ValuesIn(with(kNewest, {"plain"}, {ServerForm::classicCluster})),
    subjectName);

/// Objects of all kinds in one slot. Each is held by one side and waited for by the other.
class ObjectsTest : public TopologyTest {
 protected:
  struct Object {
    Modes modes;
    Side holder;
    std::string name;
    int owner;  ///< on both sides, of nothing else
    Answer held{};
    Call wait{};
  };
  struct Entry {
    const Object* object;
    std::chrono::nanoseconds released;
    std::chrono::milliseconds limit;
  };

  [[nodiscard]] const std::vector<Object>& objects() const { return objects_; }

  void holdAll() {
    tag_ = "{" + nameAt(0, "tag") + "}";
    for (const Side holder : kSides) {
      for (const std::string kind : {"plain", "fair", "read-write", "semaphore"}) {
        for (const Modes& modes : modesOf(kind)) {
          objects_.push_back({modes,
                              holder,
                              tag_ + modes.held + "-of-" + toString(holder),
                              static_cast<int>(objects_.size()) + 1});
        }
      }
    }
    for (Object& each : objects_) {
      prepare(each.modes.held, each.name);
      Peer& holding = peer(each.holder);
      each.held = holding.finish(startAcquire(holding, each.owner, each.modes.held, each.name));
      ASSERT_TRUE(each.held.ok()) << each.held;
      each.wait = startAcquire(peer(other(each.holder)), each.owner, each.modes.wanted, each.name);
    }
    for (const Object& each : objects_) {
      ASSERT_EVENTUALLY(kLong, hasWaiters(raw(), each.name)) << each.name;
    }
  }

  /// Nobody enters what is held. Then it is released, and who waits gets in: soon, but Redisson, if
  /// it does not hear of the release, by the end of the lease that it has seen.
  /// @param listens  whether Redisson hears of the release of an object for which it waits
  void handOverAll(std::chrono::milliseconds lease,
                   const std::function<bool(const Object&)>& listens) {
    int heard = 0;
    int errors = 0;
    std::vector<Entry> entries;
    for (const Object& each : objects_) {
      SCOPED_TRACE(each.name);
      Peer& waiting = peer(other(each.holder));
      // Redisson may make a permit, see RedissonPermitTest: by a try, or while it waits and the
      // replica is gone.
      const bool semaphore = each.modes.wanted == "semaphore";
      const bool mayBeMade = semaphore && replicaGone_ && waiting.side() == Side::java;
      for (const Side side : kSides) {
        if (mayBeMade || (semaphore && side == Side::java)) {
          continue;
        }
        const std::string entered = tryNow(side, each.modes.wanted, each.name);
        promised(entered == "false", std::string(toString(side)) + " enters: " + entered);
      }
      bool waits = true;
      if (waiting.finished(each.wait)) {
        // A call of Redisson that meets the old master at the wrong moment may fail.
        const Answer early = waiting.finish(each.wait);
        promised(!early.ok() || mayBeMade, "the waiter entered what was held");
        EXPECT_EQ(waiting.side(), Side::java) << early;
        if (early.ok()) {
          ASSERT_ANSWER(release(waiting, each.owner, each.modes.wanted, each.name, early));
        }
        ++errors;
        waits = false;
      }
      const bool hears = waiting.side() == Side::cpp || (waits && listens(each));
      heard += hears && waiting.side() == Side::java ? 1 : 0;
      const Answer answer =
          release(peer(each.holder), each.owner, each.modes.held, each.name, each.held);
      EXPECT_TRUE(answer.ok()) << answer;
      if (waits && (hears || !sleepsOn(each.modes.wanted))) {
        // After a failover Redisson at first waits for the replica that is gone.
        const auto woken = waiting.side() == Side::java ? 3 * kSoon : kSoon;
        entries.push_back({&each, answer.end, hears ? woken : lease + kSoon});
      }
    }
    std::map<Side, std::chrono::nanoseconds> longest;
    for (const auto& [object, released, limit] : entries) {
      SCOPED_TRACE(object->name);
      Peer& waiting = peer(other(object->holder));
      Answer entered = waiting.finish(object->wait);
      if (!entered.ok() && waiting.side() == Side::java) {
        // The attempt that followed the release met a connection to the old master. A service asks
        // again.
        ++errors;
        entered = waiting.finish(
            startAcquire(waiting, object->owner, object->modes.wanted, object->name));
      }
      ASSERT_TRUE(entered.ok()) << entered;
      EXPECT_LT(entered.end - released, scaled(limit));
      auto& most = longest[waiting.side()];
      most = std::max(most, entered.end - released);
      ASSERT_ANSWER(release(waiting, object->owner, object->modes.wanted, object->name, entered));
    }
    const auto within = [&](Side side) {
      return inMs(std::chrono::duration_cast<std::chrono::microseconds>(longest[side]));
    };
    note("rlock enters within " + within(Side::cpp) + ", Redisson within " + within(Side::java) +
         "; it listens for " + std::to_string(heard) + " of " +
         std::to_string(objects_.size() / 2) +
         (errors > 0 ? ", " + std::to_string(errors) + " of its calls failed" : ""));
  }

  /// Whether there is a subscription for an object, or soon will be.
  static bool comesToListen(RawRedis& masters, const Object& object) {
    return eventually(5s, [&] { return hasWaiters(masters, object.name); });
  }

  [[nodiscard]] const std::string& tag() const { return tag_; }
  void noteReplicaGone() { replicaGone_ = true; }

 private:
  /// Redisson, if it hears of no release, until somebody on its own side releases: a semaphore has
  /// no lease, and a fair lock of the old version forgets that its holder renews.
  [[nodiscard]] bool sleepsOn(const std::string& kind) const {
    return kind == "semaphore" || (kind == "fair" && GetParam().redisson == kOld);
  }

  /// An attempt of Redisson may fail with an error of its own while it looks for the nodes that
  /// there are now, which says nothing about the object: it is made again.
  std::string tryNow(Side side, const std::string& kind, const std::string& name) {
    constexpr int kNobody = 99;
    const bool semaphore = kind == "semaphore";
    const auto attempt = [&] {
      return peer(side).ask(
          1,
          kNobody,
          semaphore ? "tryAcquire" : "tryLock",
          kind,
          name,
          semaphore ? std::vector<std::string>{"1", "0"} : std::vector<std::string>{"0", "-1"});
    };
    Answer answer = attempt();
    if (side == Side::java && !answer.ok()) {
      EXPECT_EVENTUALLY(kLong, (answer = attempt()).ok());
    }
    return answer.text();
  }

  std::vector<Object> objects_;
  std::string tag_;
  bool replicaGone_ = false;
};

const std::string kAll = "plain, fair, read-write, semaphore";

// ----------------------------------------------------------------------------------- failover

class FailoverTest : public ObjectsTest {
 protected:
  /// Ends the master that has all objects, and returns a connection to those that have them then.
  RawRedis replaceMaster() {
    RedisServer& master = inCluster() ? cluster().node(0) : sentinels().node(0);
    {
      // WAIT counts what its own connection has seen.
      RawRedis last(master);
      last.run({"SET", tag() + ":mark", "1", "PX", "1000"});
      EXPECT_GE(last.run({"WAIT", "1", "10000"}).integer(), 1);
    }
    master.kill();
    noteReplicaGone();
    if (!inCluster()) {
      return RawRedis(sentinels().node(sentinels().awaitMaster(0)));
    }
    std::size_t next = 0;
    EXPECT_EVENTUALLY(kLong, [&] {
      try {
        next = cluster().ownerOf(tag(), 1);
        return true;
      } catch (const std::runtime_error&) {
        return false;
      }
    }());
    return rawTo({1, 2, next});
  }
};

TEST_P(FailoverTest, IO10_HoldsAndWaitersOfBothSidesOutliveTheMaster) {
  ASSERT_NO_FATAL_FAILURE(
      SubjectTest::begin(inCluster() ? "cluster failover" : "Sentinel failover", GetParam()));
  if (IsSkipped()) {
    return;
  }
  // Redisson's waiters do not look before the replica has taken over.
  const Peer::Tuning tuning{.watchdog = scaled(45'000ms), .safetyPoll = scaled(60'000ms)};
  openBoth(tuning);
  ASSERT_NO_FATAL_FAILURE(holdAll());
  RawRedis masters = replaceMaster();
  for (const Object& each : objects()) {
    EXPECT_TRUE(each.holder == Side::cpp || comesToListen(masters, each)) << each.name;
  }
  handOverAll(tuning.watchdog,
              [&](const Object& object) { return comesToListen(masters, object); });
}

INSTANTIATE_TEST_SUITE_P(Interop,
                         FailoverTest,
                         ::testing::Values(Subject{kAll, kNewest, ServerForm::sentinel},
                                           Subject{kAll, kNewest, ServerForm::cluster},
                                           Subject{kAll, kOld, ServerForm::sentinel}),
                         subjectName);

// ------------------------------------------------------- releases that Redisson does not hear of

using SlotMoveTest = ObjectsTest;

TEST_P(SlotMoveTest, IO10_WaitersOfASlotThatMovesGetIn) {
  ASSERT_NO_FATAL_FAILURE(SubjectTest::begin("slot moves", GetParam()));
  if (IsSkipped()) {
    return;
  }
  constexpr Peer::Tuning tuning{.watchdog = 3'000ms, .safetyPoll = 60'000ms};
  openBoth(tuning);
  ASSERT_NO_FATAL_FAILURE(holdAll());
  cluster().migrate(RedisCluster::slotOf(tag()), 0, 1);
  for (const Object& each : objects()) {
    EXPECT_TRUE(each.holder == Side::cpp || comesToListen(raw(), each)) << each.name;
  }
  // Redisson does not subscribe to a sharded channel again.
  handOverAll(tuning.watchdog,
              [&](const Object& object) { return hasWaiters(raw(), object.name); });
}

INSTANTIATE_TEST_SUITE_P(Interop,
                         SlotMoveTest,
                         ::testing::Values(Subject{kAll, kNewest, ServerForm::cluster}),
                         subjectName);

using OldClusterTest = ObjectsTest;

TEST_P(OldClusterTest, IO10_WaitersOnOtherChannelsGetIn) {
  ASSERT_NO_FATAL_FAILURE(SubjectTest::begin("in a cluster, on other channels", GetParam()));
  if (IsSkipped()) {
    return;
  }
  constexpr Peer::Tuning tuning{.watchdog = 3'000ms, .safetyPoll = 500ms};
  openBoth(tuning);
  ASSERT_NO_FATAL_FAILURE(holdAll());
  handOverAll(tuning.watchdog, [](const Object&) { return false; });
}

INSTANTIATE_TEST_SUITE_P(Interop,
                         OldClusterTest,
                         ::testing::Values(Subject{kAll, kOld, ServerForm::cluster}),
                         subjectName);

// ------------------------------------------------------------- permits that Redisson makes up

class RedissonPermitTest : public TopologyTest {};

TEST_P(RedissonPermitTest, IO10_ARefusalThatNoReplicaHasMakesAPermit) {
  ASSERT_NO_FATAL_FAILURE(SubjectTest::begin("replica gone", GetParam()));
  if (IsSkipped()) {
    return;
  }
  Peer& java = peer(Side::java);
  Peer& cpp = peer(Side::cpp);
  std::map<bool, std::string> granted;
  for (const bool checks : {false, true}) {
    const int client = checks ? 2 : 1;
    const std::string name = "permits" + std::to_string(client);
    java.open(client, uri(), {.checkReplicas = checks});
    cpp.open(client, uri(), {});
    ASSERT_ANSWER(java.ask(client, 1, "trySet", kind(), name, {"1"}));
    ASSERT_ANSWER(cpp.ask(client, 1, "acquire", kind(), name, {"1"}));
  }
  sentinels().node(1).kill();
  ASSERT_EVENTUALLY(kLong, raw().info("connected_slaves") == "0");
  for (const bool checks : {false, true}) {
    const int client = checks ? 2 : 1;
    const std::string name = "permits" + std::to_string(client);
    promised(cpp.ask(client, 2, "tryAcquire", kind(), name, {"1", "0"}).text() == "false",
             "rlock enters");
    granted[checks] = java.ask(client, 2, "tryAcquire", kind(), name, {"1", "0"}).text();
  }
  EXPECT_EQ(granted[false], "false") << "with checkLockSyncedSlaves=false";
  note(granted[true] == "false" ? "Redisson is refused"
                                : "Redisson is granted what rlock holds, unless "
                                  "`checkLockSyncedSlaves` is false");
}

INSTANTIATE_TEST_SUITE_P(Interop,
                         RedissonPermitTest,
                         ::testing::Values(Subject{"semaphore", kNewest, ServerForm::sentinel}),
                         subjectName);

}  // namespace
}  // namespace rlock::test::interop
