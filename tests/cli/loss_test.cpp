// SPDX-License-Identifier: Apache-2.0
// A command under a lock that is lost: it is gone before another can begin, whoever is to blame.
#include "cli/cli_harness.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace rlock::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t countOf(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

// Writes the time, in ns, again and again; hard to end, but not left behind by a test.
constexpr const char* kStubborn =
    "trap '' TERM; echo ready; while [ -d ${LOG%/*} ]; do date +%s%N >>$LOG; sleep 0.02; done";

/// A pipe that nobody reads, for somebody's standard error.
class UnreadPipe {
 public:
  explicit UnreadPipe(std::string path) : path_(std::move(path)) {
    EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    end_ = ::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(end_, 0);
  }
  UnreadPipe(const UnreadPipe&) = delete;
  UnreadPipe& operator=(const UnreadPipe&) = delete;
  ~UnreadPipe() { close(); }

  [[nodiscard]] const std::string& path() const { return path_; }
  /// From now on a writer has to wait.
  void fill() const {
    const std::string page(4096, '.');
    while (::write(end_, page.data(), page.size()) > 0) {
    }
  }
  /// From now on a writer, also one that waits, is told that there is no reader.
  void close() {
    if (end_ >= 0) {
      ::close(std::exchange(end_, -1));
    }
  }

 private:
  std::string path_;
  int end_ = -1;
};

class CliLoss : public CliTest {
 protected:
  /// The command is killed 500 ms, a twentieth of it, before the end: a host that stands still for
  /// longer breaks what no program can keep.
  const std::chrono::milliseconds kLease = scaled(std::chrono::milliseconds(10'000));
  const std::string kLeaseText = std::to_string(kLease.count()) + "ms";

  ChildProcess startHolder(const std::string& uri) { return startHolder(uri, kLeaseText); }
  ChildProcess startHolder(const std::string& uri,
                           const std::string& lease,
                           const std::string& killAfter = "100ms") {
    return startCli(
        uri,
        {"run", "--lease", lease, "--kill-after", killAfter, "a", "sh", "-c", kStubborn},
        {"LOG=" + log()});
  }
  /// The same command under `b`, which is long and gives much time, within the lock `a`.
  ChildProcess startNested(const std::string& option, const std::string& value) {
    return startCli(server().uri(),
                    {"run",
                     option,
                     value,
                     "--kill-after",
                     "100ms",
                     "a",
                     cliProgram(),
                     "run",
                     "--lease",
                     "10m",
                     "--kill-after",
                     "1h",
                     "b",
                     "sh",
                     "-c",
                     kStubborn},
                    {"LOG=" + log()});
  }
  /// Its standard error goes to what the shell's redirection names.
  ChildProcess startRedirected(const std::string& target, const std::vector<std::string>& args) {
    std::vector<std::string> all{"-c", "exec \"$@\" 2>" + target, "sh", cliProgram()};
    all.insert(all.end(), args.begin(), args.end());
    ChildProcess::Options options;
    options.environment = {"RLOCK_URI=" + server().uri(),
                           "XDG_CONFIG_HOME=/nonexistent",
                           "RLOCK_CONFIG=",
                           "LOG=" + log()};
    return ChildProcess("sh", all, options);
  }
  /// Prints the time at which it has got the lock, and keeps it for a while, in which a command
  /// that has outlived its own lock would write on. Its lease is long: one of an attempt that was
  /// on its way while the server stood still may be nearly over when it is granted.
  ChildProcess startNext() {
    return startCli(
        server().uri(),
        {"run", "--wait", "60s", "--lease", "10m", "a", "sh", "-c", "date +%s%N; sleep 0.3"});
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

// A hold counts from its request, so that it is nearly over when the reply comes late.
TEST_F(CliLoss, CR4_ACommandBeginsWithTimeToSpare) {
  TcpProxy proxy(server());
  TcpProxy::RuleOptions once;
  once.limit = 1;
  once.ignoreErrorReplies = true;
  const auto late = proxy.addRule(
      TcpProxy::script("a"), TcpProxy::Action::delayReply(std::chrono::seconds(2)), once);
  ChildProcess holder =
      startCli(proxy.uri(), {"run", "--lease", "3s", "a", "sh", "-c", "sleep 0.3; echo done"});
  const CliOutcome outcome = finish(holder);
  EXPECT_EQ(late.hits(), 1U);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("done"));
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
  // The end of the hold comes first.
  ChildProcess holder = startHolder(server().uri(), kLeaseText, "1h");
  holder.expectLineContaining("ready", kSoon);
  ChildProcess next = startNext();
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  holder.kill(SIGKILL);
  expectGoneBefore(next);
}

TEST_F(CliLoss, CR4_AnInnerCommandIsGoneWithTheTimeOfTheOuterLock) {
  ChildProcess holder = startNested("--max-hold", kLeaseText);
  holder.expectLineContaining("ready", kSoon);
  ChildProcess next = startNext();
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  expectGoneBefore(next);
  EXPECT_EQ(finish(holder).code, 79);
}

TEST_F(CliLoss, CR4_AnInnerCommandIsGoneWithTheOuterWrapper) {
  ChildProcess holder = startNested("--lease", kLeaseText);
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

TEST_F(CliLoss, CR4_WordsThatCannotBeWrittenDoNotFreeTheCommand) {
  UnreadPipe pipe(log() + ".pipe");
  for (const std::string& target : {std::string("/dev/full"), std::string("&-"), pipe.path()}) {
    SCOPED_TRACE(target);
    ASSERT_EVENTUALLY(kSoon, redis().pubsubChannels("rlock_client:*").empty());
    ChildProcess holder =
        startRedirected(target, {"run", "--lease", "10m", "a", "sh", "-c", kStubborn});
    holder.expectLineContaining("ready", kSoon);
    if (target == pipe.path()) {
      pipe.close();
    }
    ChildProcess next = startNext();
    ASSERT_EVENTUALLY(kSoon, awaited("a"));
    ASSERT_EVENTUALLY(kSoon, redis().pubsubChannels("rlock_client:*").size() == 1);
    EXPECT_EQ(run({"unlock", "--force", "a"}).code, 0);
    EXPECT_EQ(finish(holder).code, 79);
    expectGoneAfter(next, scaled(std::chrono::milliseconds(1000)));
  }
}

TEST_F(CliLoss, WordsThatHaveToWaitDelayNoSignal) {
  UnreadPipe pipe(log() + ".pipe");
  // A shell tells of the program that the signal has ended, which here would have to wait, too.
  ChildProcess ending =
      startRedirected(pipe.path(),
                      {"run",
                       "--max-hold",
                       "3s",
                       "a",
                       "sh",
                       "-c",
                       "exec 2>/dev/null; trap 'echo told; exit 0' TERM; echo ready; "
                       "while :; do sleep 0.02; done"});
  ChildProcess forced = startRedirected(
      pipe.path(), {"run", "--lease", "10m", "b", "sh", "-c", "echo $$; exec sleep 60"});
  ending.expectLineContaining("ready", kSoon);
  const pid_t command = std::stoi(forced.expectLine(kSoon));
  pipe.fill();
  ASSERT_EVENTUALLY(kSoon, redis().pubsubChannels("rlock_client:*").size() == 2);
  EXPECT_EQ(run({"unlock", "--force", "b"}).code, 0);
  EXPECT_EVENTUALLY(kSoon, !alive(command));
  EXPECT_EQ(ending.expectLine(kSoon), "told");
  pipe.close();
  EXPECT_EQ(finish(forced).code, 79);
  EXPECT_EQ(finish(ending).code, 79);
}

// The loop, which renews the hold, has much to say about its connection.
TEST_F(CliLoss, WarningsThatNobodyReadsDelayNoRenewal) {
  UnreadPipe pipe(log() + ".pipe");
  ChildProcess holder = startRedirected(
      pipe.path(),
      {"run", "-v", "--lease", kLeaseText, "a", "sh", "-c", "exec 2>/dev/null; echo ready; cat"});
  holder.expectLineContaining("ready", kSoon);
  pipe.fill();
  EXPECT_GT(redis().run({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}).integer(), 0);
  // It may have been renewed at once, with the new connection.
  const auto shorter = kLease - std::chrono::milliseconds(1000);
  redis().run({"PEXPIRE", "a", std::to_string(shorter.count())});
  EXPECT_EVENTUALLY(kLease, redis().pttl("a") > shorter.count());
  EXPECT_EQ(finish(holder).code, 0);
}

TEST_F(CliLoss, WhatTheCommandHasStartedGoesWithIt) {
  // The command ends when it is told to, and its helper does not.
  ChildProcess holder = start({"run",
                               "--max-hold",
                               "3s",
                               "a",
                               "sh",
                               "-c",
                               "trap '' TERM; sleep 60 & echo $!; trap 'exit 0' TERM; wait"});
  const pid_t helper = std::stoi(holder.expectLine(kSoon));
  EXPECT_EQ(finish(holder).code, 79);
  EXPECT_EVENTUALLY(std::chrono::milliseconds(1000), !alive(helper));
}

TEST_F(CliLoss, AGraceMayBeForEver) {
  ChildProcess holder = start({"run",
                               "--lease",
                               "1m",
                               "--kill-after",
                               "forever",
                               "a",
                               "sh",
                               "-c",
                               "trap 'sleep 0.3; echo cleaned; exit 0' TERM; echo ready; "
                               "while :; do sleep 0.02; done"});
  holder.expectLineContaining("ready", kSoon);
  holder.kill(SIGKILL);
  holder.expectLineContaining("cleaned", kSoon);
}

// Only a lock around this one leaves the command no time, and tells of itself by more than that.
TEST_F(CliLoss, AVariableOfAnotherProgramTakesNoGraceAway) {
  ChildProcess holder = startCli(server().uri(),
                                 {"run",
                                  "--lease",
                                  "1m",
                                  "a",
                                  "sh",
                                  "-c",
                                  "trap 'sleep 0.3; echo cleaned; exit 0' TERM; echo ready; "
                                  "while :; do sleep 0.02; done"},
                                 {"RLOCK_OWNER=ana"});
  holder.expectLineContaining("ready", kSoon);
  holder.kill(SIGKILL);
  holder.expectLineContaining("cleaned", kSoon);
}

// As with sudo, but without a file that has its owner's rights: here it is the program that lacks
// the right to signal others, and the command gives root's rights up.
TEST_F(CliLoss, ACommandOfAnotherUserIsSaidToRunOn) {
  const std::vector<std::string> withoutRight{"--bounding-set", "-kill", "--inh-caps", "-kill"};
  const std::vector<std::string> asNobody{"setpriv", "--reuid", "65534", "--clear-groups"};
  const auto joined = [](std::initializer_list<std::vector<std::string>> parts) {
    std::vector<std::string> all;
    for (const auto& part : parts) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can start a command of another user";
  }
  ChildProcess::Options options;
  options.environment = {
      "RLOCK_URI=" + server().uri(), "XDG_CONFIG_HOME=/nonexistent", "RLOCK_CONFIG="};
  options.mergeStandardError = true;
  ChildProcess trial("sh",
                     joined({{"-c", "\"$@\" 2>&1 && echo possible", "sh", "setpriv"},
                             withoutRight,
                             asNobody,
                             {"true"}}),
                     options);
  const CliOutcome tried = finish(trial);
  if (tried.output != "possible\n") {
    GTEST_SKIP() << "setpriv: " << tried.output;
  }
  ChildProcess holder("setpriv",
                      joined({withoutRight,
                              {cliProgram(), "run", "--lease", "10m", "a"},
                              asNobody,
                              {"sh", "-c", "echo $$; exec sleep 60"}}),
                      options);
  const pid_t command = std::stoi(holder.expectLine(kSoon));
  // A client listens for a forced release from 100 ms after its first hold.
  ASSERT_EVENTUALLY(kSoon, redis().pubsubChannels("rlock_client:*").size() == 1);
  holder.kill(SIGTERM);
  holder.expectLineContaining("does not get the signal", kSoon);
  EXPECT_EQ(run({"unlock", "--force", "a"}).code, 0);
  holder.expectLineContaining("by force; the command belongs to another user", kSoon);
  holder.kill(SIGTERM);
  ASSERT_EVENTUALLY(kSoon, !signalPending(holder.pid(), SIGTERM));
  EXPECT_TRUE(alive(command));
  ASSERT_EQ(::kill(command, SIGKILL), 0);
  const CliOutcome outcome = finish(holder);
  EXPECT_EQ(outcome.code, 79);
  EXPECT_THAT(outcome.output, Not(HasSubstr("is killed")));
  EXPECT_EQ(countOf(outcome.output, "runs on without it"), 1U) << outcome.output;
  EXPECT_EQ(countOf(outcome.output, "does not get the signal"), 1U) << outcome.output;
}

TEST_F(CliLoss, AGuardianThatWasKilledIsMissedOnce) {
  ChildProcess holder = start({"run", "a", "sh", "-c", "echo $$; read line; exit 4"});
  const pid_t command = std::stoi(holder.expectLine(kSoon));
  std::vector<pid_t> others = childrenOf(holder.pid());
  std::erase(others, command);
  ASSERT_EQ(others.size(), 1U);
  const pid_t guardian = others.front();
  const auto name = [&] {
    std::ifstream file("/proc/" + std::to_string(guardian) + "/comm");
    std::string text;
    std::getline(file, text);
    return text;
  };
  // It bears the program's name until it has given itself its own, which `pkill rlock` does not
  // find.
  EXPECT_EVENTUALLY(kSoon, name().find("guardian") != std::string::npos);
  EXPECT_THAT(name(), Not(HasSubstr("rlock")));
  ASSERT_EQ(::kill(guardian, SIGKILL), 0);
  holder.expectLineContaining("the guardian was killed", kSoon);
  EXPECT_EQ(processState(guardian), '\0');
  // The next look would say it again.
  holder.kill(SIGWINCH);
  ASSERT_EVENTUALLY(kSoon, !signalPending(holder.pid(), SIGWINCH));
  EXPECT_TRUE(redis().exists("a"));
  holder.send("");
  const CliOutcome outcome = finish(holder);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(countOf(outcome.output, "guardian"), 1U) << outcome.output;
}

/// The kernel tells it, for nobody else is left who could.
TEST_F(CliLoss, ACommandHearsOfTheEndOfItsWrapperAlsoWithoutAGuardian) {
  ChildProcess holder = start({"run", "a", "sh", "-c", "echo $$; exec sleep 60"});
  const pid_t command = std::stoi(holder.expectLine(kSoon));
  std::vector<pid_t> others = childrenOf(holder.pid());
  std::erase(others, command);
  ASSERT_EQ(others.size(), 1U);
  ASSERT_EQ(::kill(others.front(), SIGKILL), 0);
  holder.expectLineContaining("the guardian was killed", kSoon);
  holder.kill(SIGKILL);
  EXPECT_EVENTUALLY(kSoon, !alive(command));
}

// Also by what the command has left behind, and by what no signal reaches.
TEST_F(CliLoss, CR10_ADescriptorOfTheCommandEndsWithTheLock) {
  const std::string script =
      "setsid bash -c 'read line <&'$RLOCK_FD'; echo seen $?' & echo ready; exec cat";
  enum class End { command, forced, wrapper };
  for (const End end : {End::command, End::forced, End::wrapper}) {
    ASSERT_EVENTUALLY(kSoon, redis().pubsubChannels("rlock_client:*").empty());
    ChildProcess holder = start({"run", "--loss-fd", "--lease", "10m", "a", "bash", "-c", script});
    holder.expectLineContaining("ready", kSoon);
    ASSERT_EVENTUALLY(kSoon, redis().pubsubChannels("rlock_client:*").size() == 1);
    holder.send("still held");
    EXPECT_EQ(holder.expectLine(kSoon), "still held") << "it has not ended before";
    if (end == End::command) {
      holder.closeInput();
    } else if (end == End::forced) {
      EXPECT_EQ(run({"unlock", "--force", "a"}).code, 0);
    } else {
      holder.kill(SIGKILL);
    }
    holder.expectLineContaining("seen 1", kSoon);
    (void)finish(holder);
    redis().del("a");
  }
  // It comes before the kill.
  ChildProcess late = start({"run",
                             "--loss-fd",
                             "--max-hold",
                             "3s",
                             "a",
                             "bash",
                             "-c",
                             "trap '' TERM; read line <&$RLOCK_FD; echo seen $?; sleep 60"});
  late.expectLineContaining("seen 1", kSoon);
  EXPECT_EQ(finish(late).code, 79);
  // The pipe of a lock around it is not its own.
  EXPECT_EQ(run({"run", "--loss-fd", "a", cliProgram(), "run", "b", "sh", "-c", "echo .$RLOCK_FD."})
                .output,
            "..\n");
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
  // SIGTERM comes before the end by a third of it and some.
  EXPECT_GE(watch.elapsed(), std::chrono::milliseconds(350));
  EXPECT_LT(watch.elapsed(), scaled(std::chrono::seconds(5)));
  EXPECT_FALSE(redis().exists("a"));
}

TEST_F(CliLoss, ALongestTimeBelowTheLeaseLeavesTheCommandItsTime) {
  const CliOutcome outcome =
      run({"run", "--max-hold", "5s", "a", "sh", "-c", "echo $RLOCK_LEASE_MS; sleep 0.3; exit 9"});
  EXPECT_EQ(outcome.code, 9);
  EXPECT_EQ(outcome.output, "5000\n");
}

TEST_F(CliLoss, ALossThatWasNotNoticedIsTold) {
  ChildProcess holder = start({"run", "a", "sh", "-c", "echo ready; read line; exit 0"});
  holder.expectLine(kSoon);
  redis().del("a");
  holder.send("end");
  EXPECT_EQ(finish(holder).code, 79);
}

// The command has done its work, and the lock ends with its lease.
TEST_F(CliLoss, AReleaseThatIsNotConfirmedLeavesTheStatusOfTheCommand) {
  TcpProxy proxy(server());
  ChildProcess job =
      startCli(proxy.uri() + "?command-timeout=1s&call-timeout=2s",
               {"run", "--lease", kLeaseText, "a", "sh", "-c", "echo ready; read line; exit 3"},
               {});
  job.expectLineContaining("ready", kSoon);
  proxy.blackHole();
  const CliOutcome outcome = finish(job);
  EXPECT_EQ(outcome.code, 3) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("has not confirmed the release"));
}

}  // namespace
}  // namespace rlock::test
