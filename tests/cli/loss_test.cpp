// SPDX-License-Identifier: Apache-2.0
// A command under a lock that is lost: it is gone before another can begin, whoever is to blame.
#include "cli/cli_harness.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

#include <csignal>
#include <fstream>

namespace rlock::test {
namespace {

using ::testing::HasSubstr;

// Writes the time, in ns, again and again; hard to end.
constexpr const char* kStubborn =
    "trap '' TERM; echo ready; while :; do date +%s%N >>$LOG; sleep 0.02; done";

class CliLoss : public CliTest {
 protected:
  /// The command is killed 500 ms, a twentieth of it, before the end: a host that stands still for
  /// longer breaks what no program can keep.
  const std::chrono::milliseconds kLease = scaled(std::chrono::milliseconds(10'000));
  const std::string kLeaseText = std::to_string(kLease.count()) + "ms";

  ChildProcess startHolder(const std::string& uri) { return startHolder(uri, kLeaseText); }
  ChildProcess startHolder(const std::string& uri, const std::string& lease) {
    return startCli(uri,
                    {"run", "--lease", lease, "--kill-after", "100ms", "a", "sh", "-c", kStubborn},
                    {"LOG=" + log()});
  }
  /// Prints the time at which it has got the lock.
  ChildProcess startNext() {
    return startCli(server().uri(), {"run", "--wait", "60s", "a", "date", "+%s%N"});
  }
  std::string log() const { return directory_.file("log"); }
  std::int64_t lastSignOfLife() const {
    std::ifstream file(log());
    std::int64_t last = 0;
    for (std::int64_t time = 0; file >> time;) {
      last = time;
    }
    return last;
  }
  void expectGoneBefore(ChildProcess& next) {
    const CliOutcome outcome = finish(next);
    ASSERT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_GT(lastSignOfLife(), 0);
    EXPECT_LT(lastSignOfLife(), std::stoll(outcome.output));
  }
  /// For a lock that was taken away: the old command may run on for so long beside the new one.
  void expectGoneAfter(ChildProcess& next, std::chrono::milliseconds most) {
    const CliOutcome outcome = finish(next);
    ASSERT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_GT(lastSignOfLife(), 0);
    EXPECT_LT(std::chrono::nanoseconds(lastSignOfLife() - std::stoll(outcome.output)), most);
  }

 private:
  TempDir directory_;
};

TEST_F(CliLoss, CR4_ANetworkThatSwallowsEverything) {
  TcpProxy proxy(server());
  ChildProcess holder = startHolder(proxy.uri());
  holder.expectLineContaining("ready", kSoon);
  ChildProcess next = startNext();
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  proxy.blackHole();
  const CliOutcome outcome = finish(holder);
  EXPECT_EQ(outcome.code, 79);
  EXPECT_THAT(outcome.output, HasSubstr("told to end"));
  expectGoneBefore(next);
}

TEST_F(CliLoss, CR4_AServerThatIsFrozen) {
  ChildProcess holder = startHolder(server().uri());
  holder.expectLineContaining("ready", kSoon);
  ChildProcess next = startNext();
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  server().freeze();
  ASSERT_EVENTUALLY(kLong, !holder.running());
  server().thaw();
  EXPECT_EQ(finish(holder).code, 79);
  expectGoneBefore(next);
}

TEST_F(CliLoss, CR4_AWrapperThatIsFrozen) {
  ChildProcess holder = startHolder(server().uri());
  holder.expectLineContaining("ready", kSoon);
  ChildProcess next = startNext();
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  holder.stop();
  expectGoneBefore(next);
  holder.cont();
  EXPECT_EQ(finish(holder).code, 79);
}

TEST_F(CliLoss, CR4_AWrapperThatIsKilled) {
  ChildProcess holder = startHolder(server().uri());
  holder.expectLineContaining("ready", kSoon);
  ChildProcess next = startNext();
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  holder.kill(SIGKILL);
  expectGoneBefore(next);
}

TEST_F(CliLoss, CR4_ADeletedKeyIsNoticedAtTheNextRenewal) {
  ChildProcess holder = startHolder(server().uri());
  holder.expectLineContaining("ready", kSoon);
  ChildProcess next = startNext();
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  // The other command begins at once.
  vacate("a");
  const CliOutcome outcome = finish(holder);
  EXPECT_EQ(outcome.code, 79);
  EXPECT_THAT(outcome.output, HasSubstr("gone from the server"));
  // A third of the lease, --kill-after, and some time for a busy machine.
  expectGoneAfter(next, kLease / 3 + scaled(std::chrono::milliseconds(100 + 500)));
}

TEST_F(CliLoss, CR4_AForcedReleaseKillsAtOnce) {
  // No renewal of this one comes while the test takes.
  ChildProcess holder = startHolder(server().uri(), "10m");
  holder.expectLineContaining("ready", kSoon);
  ChildProcess next = startNext();
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  // A client listens for that from 100 ms after its first hold.
  ASSERT_EVENTUALLY(kSoon, redis().pubsubChannels("rlock_client:*").size() == 1);
  EXPECT_EQ(run({"unlock", "a"}).code, 64);
  EXPECT_TRUE(redis().exists("a"));
  const CliOutcome forced = run({"unlock", "--force", "a"});
  EXPECT_EQ(forced.code, 0);
  EXPECT_THAT(forced.output, HasSubstr("freed from sh ("));
  const CliOutcome outcome = finish(holder);
  EXPECT_EQ(outcome.code, 79);
  EXPECT_THAT(outcome.output, HasSubstr("by force"));
  // A round trip, and some time for a busy machine.
  expectGoneAfter(next, scaled(std::chrono::milliseconds(1000)));
  EXPECT_EQ(run({"unlock", "--force", "a"}).code, 1);
}

TEST_F(CliLoss, TheCommandMayCleanUpBeforeItIsKilled) {
  TcpProxy proxy(server());
  ChildProcess holder =
      startCli(proxy.uri(),
               {"run",
                "--lease",
                "3s",
                "a",
                "sh",
                "-c",
                "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.02; done"});
  holder.expectLineContaining("ready", kSoon);
  proxy.blackHole();
  const CliOutcome outcome = finish(holder);
  EXPECT_EQ(outcome.code, 79);
  EXPECT_THAT(outcome.output, HasSubstr("cleaned"));
}

TEST_F(CliLoss, ALockIsRenewedForAsLongAsTheCommandTakes) {
  const CliOutcome outcome = run({"run", "--lease", "4s", "a", "sh", "-c", "sleep 6; exit 9"});
  EXPECT_EQ(outcome.code, 9) << outcome.output;
}

TEST_F(CliLoss, TheLongestTimeEndsTheCommand) {
  const Stopwatch watch;
  const CliOutcome outcome = run({"run", "--max-hold", "600ms", "a", "sleep", "60"});
  EXPECT_EQ(outcome.code, 79);
  EXPECT_LT(watch.elapsed(), scaled(std::chrono::seconds(5)));
  EXPECT_FALSE(redis().exists("a"));
}

TEST_F(CliLoss, ALossThatWasNotNoticedIsTold) {
  ChildProcess holder = start({"run", "a", "sh", "-c", "echo ready; read line; exit 0"});
  holder.expectLine(kSoon);
  redis().del("a");
  holder.send("end");
  EXPECT_EQ(finish(holder).code, 79);
}

}  // namespace
}  // namespace rlock::test
