// SPDX-License-Identifier: Apache-2.0

// The cost of scripts to the server when many hold or wait: counted in the commands that they run.

#include "integration/lock_harness.hpp"

#include <algorithm>
#include <sstream>

namespace rlock::test {
namespace {

class ScriptCost : public LockTest {
 protected:
  using Args = std::vector<std::string>;

  Value eval(const lua::Script& script, const Args& keys, const Args& args) {
    return raw().eval(script.body, keys, args);
  }
  /// How many commands a script ran.
  long commandsOf(const lua::Script& script, const Args& keys, const Args& args) {
    raw().run({"CONFIG", "RESETSTAT"});
    const Value value = eval(script, keys, args);
    EXPECT_FALSE(value.isError()) << value;
    std::istringstream lines(raw().run({"INFO", "commandstats"}).string());
    long calls = 0;
    for (std::string line; std::getline(lines, line);) {
      const auto at = line.find(":calls=");
      if (line.starts_with("cmdstat_") && !line.starts_with("cmdstat_eval") &&
          !line.starts_with("cmdstat_config") && at != std::string::npos) {
        calls += std::stol(line.substr(at + 7));
      }
    }
    return calls;
  }

  static std::string owner(int number) { return "client:" + std::to_string(number); }

  // One reader each.
  static Args readKeys(int reader) {
    return {"rw", "{rw}:" + owner(reader) + ":rwlock_timeout", "intent"};
  }
  void read(int reader, const char* lease = "30000") {
    eval(lua::rw_read_acquire, readKeys(reader), {lease, owner(reader), owner(reader) + ":write"});
  }
  long costOfReadRelease(int reader) {
    return commandsOf(lua::rw_read_release,
                      readKeys(reader),
                      {owner(reader), "{rw}", "PUBLISH", "channel", "0", "0", "1"});
  }

  // One waiter each.
  static Args fairKeys() { return {"fair", "queue", "deadlines", "leases", "order", "waits"}; }
  static Args fairArgs(int waiter, const char* how) {
    return {"30000", owner(waiter), how, "60000", "0", "PUBLISH", "channel"};
  }
};

TEST_F(ScriptCost, XSCL6_ReleasingAReadHoldDoesNotGrowWithTheReaders) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  std::map<int, long> most;
  for (const int readers : {10, 3000}) {
    raw().flushAll();
    for (int i = 0; i < readers; ++i) {
      read(i);
    }
    for (const int reader : {0, readers - 1, readers / 2, readers - 2, 1}) {
      most[readers] = std::max(most[readers], costOfReadRelease(reader));
    }
  }
  EXPECT_LT(most[3000], most[10] + 30);
}

TEST_F(ScriptCost, AReadLockLastsAsLongAsTheLongestThatIsLeft) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  read(0, "60000");
  read(1, "9000");
  read(2, "20000");
  costOfReadRelease(0);
  EXPECT_LE(raw().pttl("rw"), 20'000);
  EXPECT_GT(raw().pttl("rw"), 15'000);
  costOfReadRelease(1);
  EXPECT_LE(raw().pttl("rw"), 20'000);
  EXPECT_GT(raw().pttl("rw"), 15'000);
  costOfReadRelease(2);
  EXPECT_FALSE(raw().exists("rw"));
  // Among many to a second, and never less than anybody has.
  raw().flushAll();
  for (int i = 0; i < 150; ++i) {
    read(i, std::to_string(20'000 + 200 * i).c_str());
  }
  for (int i = 149; i > 0; --i) {
    costOfReadRelease(i);
    // Both run down meanwhile: in this order no pause between the questions matters.
    const auto before = raw().pttl("rw");
    const auto longest = raw().pttl(readKeys(i - 1)[1] + ":1");
    EXPECT_GE(before + 2, longest);
    EXPECT_LE(raw().pttl("rw"), longest + 1100);
  }
  costOfReadRelease(0);
  EXPECT_FALSE(raw().exists("rw"));
}

TEST_F(ScriptCost, DeadReadersDoNotKeepALockWhoseLastReaderLeaves) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  for (int i = 0; i < 200; ++i) {
    read(i, "40");
  }
  read(500);
  std::this_thread::sleep_for(60ms);
  costOfReadRelease(500);
  EXPECT_FALSE(raw().exists("rw"));
}

TEST_F(ScriptCost, XSCL6_AFairHandOverDoesNotGrowWithTheWaiters) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  std::map<int, long> cost;
  for (const int waiters : {10, 2000}) {
    raw().flushAll();
    eval(lua::fair_acquire, fairKeys(), fairArgs(-1, "0"));
    for (int i = 0; i < waiters; ++i) {
      eval(lua::fair_acquire, fairKeys(), fairArgs(i, "1"));
    }
    const Args keys = fairKeys();
    cost[waiters] = commandsOf(lua::fair_release,
                               {keys[0], keys[1], keys[2], keys[3]},
                               {owner(-1), "0", "PUBLISH", "0", "channel"});
    cost[waiters] += commandsOf(lua::fair_acquire, fairKeys(), fairArgs(0, "2"));
    EXPECT_EQ(raw().hget("fair", owner(0)), "1");
    // One that looks again keeps its place.
    cost[waiters] += commandsOf(lua::fair_acquire, fairKeys(), fairArgs(waiters / 2, "2"));
  }
  EXPECT_EQ(cost[2000], cost[10]);
}

}  // namespace
}  // namespace rlock::test
