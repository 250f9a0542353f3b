// SPDX-License-Identifier: Apache-2.0
// `rlock run`: exit status, signals, streams, and what is left when it is killed.
#include "cli/cli_harness.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

#include <array>
#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <sys/stat.h>

namespace rlock::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CliRun : public CliTest {};

TEST_F(CliRun, CR1_TheExitStatusIsTheCommands) {
  struct Row {
    std::string script;
    int code;
  };
  const std::array<Row, 6> rows{{{"exit 0", 0},
                                 {"exit 1", 1},
                                 {"exit 37", 37},
                                 {"kill -TERM $$", 128 + SIGTERM},
                                 {"kill -KILL $$", 128 + SIGKILL},
                                 {"ulimit -c 0; kill -SEGV $$", 128 + SIGSEGV}}};
  for (const Row& row : rows) {
    EXPECT_EQ(run({"run", "a", "sh", "-c", row.script}).code, row.code) << row.script;
    EXPECT_EQ(run({"run", "--shell", "a", row.script}).code, row.code) << row.script;
    EXPECT_EQ(run({"run", "a", "--", "sh", "-c", "sh -c '" + row.script + "'; exit $?"}).code,
              row.code)
        << "grandchild: " << row.script;
  }
  EXPECT_FALSE(redis().exists("a"));
}

TEST_F(CliRun, CR1_WhatCannotRunHasCodesOfItsOwn) {
  EXPECT_EQ(run({"run", "a", "/nonexistent/program"}).code, 127);
  EXPECT_EQ(run({"run", "a", "/etc/passwd"}).code, 126);
  EXPECT_EQ(run({"run", "a"}).code, 64);
  EXPECT_EQ(run({"run", "--lease", "soon", "a", "true"}).code, 64);
  EXPECT_EQ(run({"run", "--fair", "--read", "a", "true"}).code, 64);
  EXPECT_FALSE(redis().exists("a"));
  EXPECT_EQ(runCli("redis://127.0.0.1:1", {"run", "a", "true"}).code, 69);
  EXPECT_EQ(runCli("nonsense", {"run", "a", "true"}).code, 64);
  redis().set("text", "not a lock");
  EXPECT_EQ(run({"run", "text", "true"}).code, 76);
}

TEST_F(CliRun, CR1_WhatIsNotPermittedIsItsOwnCode) {
  redis().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-eval", "-evalsha"});
  const std::string place = "@127.0.0.1:" + std::to_string(server().port());
  EXPECT_EQ(runCli("redis://weak:wrong" + place, {"run", "a", "true"}).code, 77);
  EXPECT_EQ(runCli("redis://weak:wrong" + place, {"show", "a"}).code, 77);
  EXPECT_EQ(runCli("redis://weak:pw" + place, {"run", "a", "true"}).code, 77);
  EXPECT_FALSE(redis().exists("a"));
}

TEST_F(CliRun, CR1_TheTimeToWaitIncludesThatOfConnecting) {
  using std::chrono::milliseconds;
  occupy("a");
  TcpProxy proxy(server());
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto late = proxy.addRule(
      TcpProxy::command("HELLO"), TcpProxy::Action::delayReply(milliseconds(2000)), once);
  const Stopwatch watch;
  EXPECT_EQ(runCli(proxy.uri() + "?connect-timeout=60s", {"run", "--wait", "3s", "a", "true"}).code,
            75);
  EXPECT_EQ(late.hits(), 1U);
  EXPECT_GE(watch.elapsed(), milliseconds(3000));
  EXPECT_LT(watch.elapsed(), milliseconds(4900)) << "one after the other takes five seconds";
}

TEST_F(CliRun, CR1_ALockThatIsHeldIsItsOwnCode) {
  occupy("a");
  const CliOutcome once = run({"try", "a", "false"});
  EXPECT_EQ(once.code, 75);
  EXPECT_EQ(once.output, "") << "the code says it to a script that asked for one attempt";
  EXPECT_THAT(run({"try", "--verbose", "a", "false"}).output, HasSubstr("held by another"));
  EXPECT_EQ(run({"run", "-n", "a", "false"}).code, 75);
  EXPECT_EQ(run({"run", "--no-wait", "-E", "0", "a", "false"}).code, 0);
  const CliOutcome late = run({"run", "-w", "2s", "a", "false"});
  EXPECT_EQ(late.code, 75);
  EXPECT_THAT(late.output, HasSubstr("held by another"));
}

TEST_F(CliRun, CR2_SignalsEndAWaitAndNothingIsHeld) {
  occupy("a");
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    ChildProcess waiting = start({"run", "--fair", "a", "echo", "must not run"});
    // A fair waiter is in the queue of the server.
    ASSERT_EVENTUALLY(kSoon, redis().exists("redisson_lock_queue:{a}"));
    waiting.kill(signal);
    const CliOutcome outcome = finish(waiting);
    EXPECT_EQ(outcome.code, 128 + signal);
    EXPECT_EQ(outcome.output, "");
    EXPECT_FALSE(redis().exists("redisson_lock_queue:{a}"));
  }
}

TEST_F(CliRun, CR2_ASignalEndsAnAttemptToConnectAtOnce) {
  TcpProxy proxy(server());
  const auto asked = proxy.addRule(TcpProxy::command("HELLO"), TcpProxy::Action::stallRequest());
  ChildProcess connecting = startCli(proxy.uri() + "?connect-timeout=60s", {"run", "a", "true"});
  ASSERT_TRUE(asked.waitForHits(1, kSoon));
  const Stopwatch watch;
  connecting.kill(SIGTERM);
  EXPECT_EQ(finish(connecting).code, 128 + SIGTERM);
  // A server that has answered is given three seconds, in which a grant could be given back.
  EXPECT_LT(watch.elapsed(), scaled(std::chrono::milliseconds(2000)));
}

TEST_F(CliRun, CR2_ASecondSignalDoesNotWaitForTheServer) {
  TcpProxy proxy(server());
  const auto asked = proxy.addRule(TcpProxy::script("a"), TcpProxy::Action::stallReply());
  ChildProcess waiting = startCli(proxy.uri() + "?command-timeout=60s", {"run", "a", "true"});
  ASSERT_TRUE(asked.waitForHits(1, kSoon));
  const Stopwatch watch;
  waiting.kill(SIGTERM);
  ASSERT_EVENTUALLY(kSoon, !signalPending(waiting.pid(), SIGTERM));
  waiting.kill(SIGINT);
  EXPECT_EQ(finish(waiting).code, 128 + SIGTERM);
  // After one signal the server has three seconds.
  EXPECT_LT(watch.elapsed(), scaled(std::chrono::milliseconds(2000)));
}

TEST_F(CliRun, CR2_ASignalEndsAReleaseThatNobodyAnswers) {
  for (const bool hold : {false, true}) {
    TcpProxy proxy(server());
    std::vector<std::string> args{"hold", "--lease", "10m", hold ? "h" : "a"};
    if (!hold) {
      args.front() = "run";
      args.insert(args.end(), {"sh", "-c", "echo ready; read line; exit 3"});
    }
    ChildProcess job = startCli(proxy.uri() + "?command-timeout=60s&call-timeout=60s", args);
    job.expectLine(kSoon);
    const auto release =
        proxy.addRule(TcpProxy::script(args.at(3)), TcpProxy::Action::stallReply());
    const Stopwatch watch;
    job.send("");
    job.closeInput();
    ASSERT_TRUE(release.waitForHits(1, kSoon));
    job.kill(SIGTERM);
    const CliOutcome outcome = finish(job);
    EXPECT_EQ(outcome.code, hold ? 0 : 3) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("has not confirmed the release"));
    EXPECT_LT(watch.elapsed(), scaled(std::chrono::seconds(20)));
  }
}

TEST_F(CliRun, CR2_OtherSignalsDoNotEndAWait) {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT}) {
    occupy("a");
    ChildProcess waiting = start({"run", "a", "echo", "ran"});
    ASSERT_EVENTUALLY(kSoon, awaited("a"));
    waiting.kill(signal);
    ASSERT_EVENTUALLY(kSoon, !signalPending(waiting.pid(), signal));
    ASSERT_TRUE(waiting.running()) << signal;
    vacate("a");
    const CliOutcome outcome = finish(waiting);
    EXPECT_EQ(outcome.code, 0) << signal;
    EXPECT_EQ(outcome.output, "ran\n") << signal;
  }
}

constexpr std::array<std::pair<int, const char*>, 9> kForwarded{{{SIGTERM, "TERM"},
                                                                 {SIGINT, "INT"},
                                                                 {SIGHUP, "HUP"},
                                                                 {SIGQUIT, "QUIT"},
                                                                 {SIGUSR1, "USR1"},
                                                                 {SIGUSR2, "USR2"},
                                                                 {SIGTSTP, "TSTP"},
                                                                 {SIGCONT, "CONT"},
                                                                 {SIGWINCH, "WINCH"}}};

TEST_F(CliRun, CR2_SignalsReachTheWholeGroupOfTheCommand) {
  for (const auto& [signal, name] : kForwarded) {
    // A program of the command's is told, too. A shell has those in its background ignore two of
    // them, and takes their input away. No other program runs, which the signal could stop.
    const std::string trap =
        std::string("trap 'echo $who got ") + name + "; exit 5' " + name + "; ";
    ChildProcess running =
        startCli(server().uri(),
                 {"run",
                  "a",
                  "sh",
                  "-c",
                  "exec 3<&0; who=inner env --default-signal=INT,QUIT sh -c \"$SCRIPT\" & "
                  "who=outer; eval \"$SCRIPT\""},
                 {"SCRIPT=" + trap + "echo $who ready; while ! read line <&3; do :; done"});
    running.expectLineContaining("ready", kSoon);
    running.expectLineContaining("ready", kSoon);
    running.kill(signal);
    const CliOutcome outcome = finish(running);
    EXPECT_EQ(outcome.code, 5) << name;
    EXPECT_THAT(outcome.output, HasSubstr(std::string("inner got ") + name));
    EXPECT_THAT(outcome.output, HasSubstr(std::string("outer got ") + name));
    EXPECT_FALSE(redis().exists("a"));
  }
}

TEST_F(CliRun, CR2_ACommandThatStopsKeepsTheLock) {
  ChildProcess running = start({"run", "a", "sh", "-c", "echo $$; exec cat"});
  const pid_t command = std::stoi(running.expectLine(kSoon));
  running.kill(SIGTSTP);
  ASSERT_EVENTUALLY(kSoon, processState(command) == 'T');
  EXPECT_TRUE(redis().exists("a"));
  running.cont();
  running.send("goes on");
  EXPECT_EQ(running.expectLine(kSoon), "goes on");
  EXPECT_EQ(finish(running).code, 0);
}

TEST_F(CliRun, CR2_ACommandThatIgnoresASignalKeepsTheLock) {
  for (const auto& [signal, name] : kForwarded) {
    // One that it does not ignore comes later, so that the other has been there when it is seen.
    const int marker = signal == SIGUSR1 ? SIGUSR2 : SIGUSR1;
    ChildProcess running = start({"run",
                                  "a",
                                  "sh",
                                  "-c",
                                  std::string("trap 'echo seen' USR1 USR2; trap '' ") + name +
                                      "; echo ready; while ! read line; do :; done; exit 3"});
    running.expectLine(kSoon);
    running.kill(signal);
    ASSERT_EVENTUALLY(kSoon, !signalPending(running.pid(), signal));
    // A shell that is just about to read sees a signal only after the next line or signal.
    std::optional<std::string> line;
    for (int attempt = 0; attempt < 20 && !line; ++attempt) {
      running.kill(marker);
      line = running.readLine(kSoon / 10);
    }
    EXPECT_EQ(line, "seen") << name;
    ASSERT_TRUE(running.running()) << name;
    EXPECT_TRUE(redis().exists("a"));
    // The command ends at once.
    running.send("");
    EXPECT_EQ(finish(running).code, 3) << name;
    EXPECT_FALSE(redis().exists("a"));
  }
}

TEST_F(CliRun, CR2_ASignalThatWasIgnoredStaysIgnored) {
  ChildProcess::Options options;
  options.environment = {"RLOCK_URI=" + server().uri()};
  options.mergeStandardError = true;
  ChildProcess running(
      "nohup", {cliProgram(), "run", "a", "sh", "-c", "echo $PPID; read line; exit 4"}, options);
  running.expectLine(kSoon);
  running.kill(SIGHUP);
  EXPECT_EQ(finish(running).code, 4);
}

TEST_F(CliRun, CR3_AKilledWrapperLeavesNoCommandBehind) {
  constexpr int kWrappers = 20;
  std::vector<ChildProcess> wrappers;
  std::vector<pid_t> commands;
  for (int i = 0; i < kWrappers; ++i) {
    // Every other one ignores SIGTERM, and has a child that does.
    const std::string script =
        i % 2 == 0 ? "echo $$; exec sleep 60" : "trap '' TERM; sleep 60 & echo $$; echo $!; wait";
    wrappers.push_back(
        start({"run", "--kill-after", "200ms", "a" + std::to_string(i), "sh", "-c", script}));
  }
  for (int i = 0; i < kWrappers; ++i) {
    auto& wrapper = wrappers[static_cast<std::size_t>(i)];
    for (int lines = i % 2; lines >= 0; --lines) {
      commands.push_back(std::stoi(wrapper.expectLine(kLong)));
    }
  }
  for (ChildProcess& wrapper : wrappers) {
    wrapper.kill(SIGKILL);
  }
  for (const pid_t command : commands) {
    EXPECT_EVENTUALLY(std::chrono::milliseconds(1000), !alive(command));
  }
}

TEST_F(CliRun, CR5_StreamsAreTheCommands) {
  ChildProcess running = start({"run", "a", "cat"});
  running.send("one");
  EXPECT_EQ(running.expectLine(kSoon), "one");
  running.send("two");
  EXPECT_EQ(finish(running).output, "one\ntwo\n");
}

TEST_F(CliRun, CR5_ACommandThatIsToReadNothingLeavesTheInputToOthers) {
  // The loop's next line would be the command's.
  const std::string script = "while read line; do " + cliProgram() +
                             " run --no-stdin a sh -c 'cat; echo after $0' $line; done; "
                             "exec <&-; " +
                             cliProgram() + " run --no-stdin a cat";
  ChildProcess::Options options;
  options.environment = {"RLOCK_URI=" + server().uri()};
  options.mergeStandardError = true;
  ChildProcess shell("sh", {"-c", script}, options);
  shell.send("one");
  shell.send("two");
  const CliOutcome outcome = finish(shell);
  EXPECT_EQ(outcome.output, "after one\nafter two\n");
  EXPECT_EQ(outcome.code, 0) << "an input that was closed is empty as well";
}

TEST_F(CliRun, CR5_NoDescriptorOfOursIsInherited) {
  // One that the caller has opened is passed on, as a shell would.
  const TempDir directory;
  const std::string script = "exec 7>" + directory.file("seven") + "; " + cliProgram() +
                             " run a ls /proc/self/fd; " + cliProgram() +
                             " run a sh -c 'echo seven >&7'";
  ChildProcess::Options options;
  options.environment = {"RLOCK_URI=" + server().uri()};
  options.mergeStandardError = true;
  ChildProcess shell("bash", {"-c", script}, options);
  const std::string output = finish(shell).output;
  // ls has opened the folder as 3.
  EXPECT_EQ(output, "0\n1\n2\n3\n7\n");
  std::ifstream file(directory.file("seven"));
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "seven");
}

TEST_F(CliRun, CR5_TheCommandKnowsItsLock) {
  const CliOutcome plain =
      run({"run", "--lease", "20s", "a", "sh", "-c", "env | grep ^RLOCK_; date +%s%3N"});
  EXPECT_THAT(plain.output, HasSubstr("RLOCK_NAME=a\n"));
  EXPECT_THAT(plain.output, HasSubstr("RLOCK_OWNER="));
  EXPECT_THAT(plain.output, HasSubstr("RLOCK_LEASE_MS=20000\n"));
  const std::size_t at = plain.output.find("RLOCK_DEADLINE_MS=");
  ASSERT_NE(at, std::string::npos);
  const std::int64_t deadline = std::stoll(plain.output.substr(at + 18));
  const std::int64_t now =
      std::stoll(plain.output.substr(plain.output.rfind('\n', plain.output.size() - 2) + 1));
  EXPECT_LT(deadline - now, 20'000);
  EXPECT_GT(deadline - now, 10'000);

  const CliOutcome first = run({"run", "--fenced", "f", "sh", "-c", "echo $RLOCK_TOKEN"});
  const CliOutcome second = run({"run", "--fenced", "f", "sh", "-c", "echo $RLOCK_TOKEN"});
  EXPECT_EQ(first.output, "1\n");
  EXPECT_EQ(second.output, "2\n");
}

TEST_F(CliRun, CR5_TheCommandKnowsItsOwner) {
  // Of a plain lock the token is the owner, and of a permit both are its id, as others see them.
  const std::string script = "echo $RLOCK_OWNER; echo $RLOCK_TOKEN; read line; exit 0";
  ChildProcess plain = start({"run", "a", "sh", "-c", script});
  const std::string owner = plain.expectLine(kSoon);
  EXPECT_EQ(plain.expectLine(kSoon), owner);
  EXPECT_TRUE(redis().hget("a", owner)) << owner;
  ChildProcess permitted = start({"run", "--semaphore", "2", "s", "sh", "-c", script});
  const std::string id = permitted.expectLine(kSoon);
  EXPECT_EQ(permitted.expectLine(kSoon), id);
  EXPECT_FALSE(id.empty());
  EXPECT_THAT(run({"show", "--json", "s"}).output, HasSubstr("\"" + id + "\""));
  plain.send("");
  permitted.send("");
  EXPECT_EQ(finish(plain).code, 0);
  EXPECT_EQ(finish(permitted).code, 0);
}

TEST_F(CliRun, CR5_TheInnerLockIsTheOneThatTheCommandKnows) {
  const CliOutcome nested =
      run({"run",
           "--fenced",
           "outer",
           "--",
           cliProgram(),
           "run",
           "inner",
           "sh",
           "-c",
           "echo $RLOCK_NAME; [ $RLOCK_TOKEN = $RLOCK_OWNER ] && echo own token; "
           "tr '\\0' '\\n' </proc/$$/environ | grep -c ^RLOCK_TOKEN="});
  EXPECT_EQ(nested.code, 0);
  EXPECT_EQ(nested.output, "inner\nown token\n1\n");
}

// Another host's clock may come to the same minute when the job has long ended.
TEST_F(CliRun, CR8_AShortCommandKeepsTheLockForAWhile) {
  using std::chrono::milliseconds;
  const Stopwatch watch;
  ChildProcess kept = start({"run", "--min-hold", "3s", "a", "sh", "-c", "echo $$; exit 5"});
  const pid_t command = std::stoi(kept.expectLine(kSoon));
  ASSERT_EVENTUALLY(kSoon, processState(command) == 0);
  EXPECT_EQ(run({"try", "a", "true"}).code, 75);
  EXPECT_EQ(finish(kept).code, 5);
  EXPECT_GE(watch.elapsed(), milliseconds(3000));
  EXPECT_FALSE(redis().exists("a"));
  // The time of the command counts.
  const Stopwatch longer;
  EXPECT_EQ(run({"run", "--min-hold", "1s", "a", "sleep", "1.2"}).code, 0);
  EXPECT_LT(longer.elapsed(), scaled(milliseconds(2100)));
  // A command that has not begun keeps nothing.
  const Stopwatch never;
  EXPECT_EQ(run({"run", "--min-hold", "1h", "a", "/nonexistent/program"}).code, 127);
  EXPECT_LT(never.elapsed(), scaled(kLong));
}

TEST_F(CliRun, CR8_ASignalEndsTheTimeForWhichALockIsKept) {
  for (const bool during : {true, false}) {
    ChildProcess kept = start(
        {"run",
         "--min-hold",
         "1h",
         "a",
         "sh",
         "-c",
         during ? "trap 'exit 5' TERM; echo $$; while :; do sleep 0.02; done" : "echo $$; exit 5"});
    const pid_t command = std::stoi(kept.expectLine(kSoon));
    if (!during) {
      ASSERT_EVENTUALLY(kSoon, processState(command) == 0);
    }
    kept.kill(SIGTERM);
    EXPECT_EQ(finish(kept).code, 5) << during;
    EXPECT_FALSE(redis().exists("a"));
  }
}

TEST_F(CliRun, CR8_ALossOfAKeptLockIsTold) {
  ChildProcess kept =
      start({"run",
             "--min-hold",
             "1h",
             "--events",
             "1",
             "--loss-fd",
             "--lease",
             "3s",
             "a",
             "bash",
             "-c",
             "setsid bash -c 'read line <&'$RLOCK_FD'; echo seen $?' & echo $$; exit 5"});
  std::string line;
  do {
    line = kept.expectLine(kSoon);
  } while (line.find_first_not_of("0123456789") != std::string::npos);
  ASSERT_EVENTUALLY(kSoon, processState(std::stoi(line)) == 0);
  redis().del("a");
  const CliOutcome outcome = finish(kept);
  EXPECT_EQ(outcome.code, 79);
  EXPECT_THAT(outcome.output, HasSubstr("lost before --min-hold was over"));
  EXPECT_THAT(outcome.output, HasSubstr("\"event\":\"lost\",\"reason\":\""));
  EXPECT_THAT(outcome.output, Not(HasSubstr("\"event\":\"released\"")));
}

TEST_F(CliRun, CR8_ALockMayBeKeptForItsLongestTime) {
  EXPECT_EQ(run({"run", "--min-hold", "1s", "--max-hold", "1s", "a", "sh", "-c", "exit 5"}).code,
            5);
}

TEST_F(CliRun, CR9_EventsTellWhoseExitStatusItIs) {
  const TempDir directory;
  const auto events = [&](const std::string& command) {
    ChildProcess::Options options;
    options.environment = {"RLOCK_URI=" + server().uri()};
    const std::string file = directory.file("events");
    ChildProcess shell(
        "sh", {"-c", "exec 7>" + file + "; " + cliProgram() + " " + command}, options);
    (void)finish(shell);
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const std::string own = events("run --events 7 --fenced f sh -c 'exit 75'");
  EXPECT_THAT(own, HasSubstr("\"event\":\"held\",\"owner\":\""));
  EXPECT_THAT(own, HasSubstr("\"token\":1}\n"));
  EXPECT_THAT(own, HasSubstr("\"event\":\"started\",\"pid\":"));
  EXPECT_THAT(own, HasSubstr("\"event\":\"ended\",\"code\":75}\n"));
  EXPECT_THAT(own, HasSubstr("\"event\":\"released\",\"confirmed\":true}\n"));
  EXPECT_THAT(own, HasSubstr("\"event\":\"exit\",\"code\":75,\"by\":\"command\"}\n"));
  occupy("a");
  const std::string refused = events("try --events 7 a true");
  EXPECT_THAT(refused, HasSubstr("\"event\":\"exit\",\"code\":75,\"by\":\"rlock\"}\n"));
  EXPECT_THAT(refused, Not(HasSubstr("held")));
  // The command does not have it.
  EXPECT_THAT(events("run --events 7 b sh -c 'echo command >&7'"), Not(HasSubstr("command\n")));
  const std::string over = events("run --events 7 --max-hold 600ms b sleep 60");
  EXPECT_THAT(over, HasSubstr("\"event\":\"ending\"}\n"));
  EXPECT_THAT(over, HasSubstr("\"event\":\"exit\",\"code\":79,\"by\":\"rlock\"}\n"));
  // A descriptor that is not open, and one that is for reading only.
  EXPECT_EQ(run({"run", "--events", "9", "b", "true"}).code, 64);
  EXPECT_EQ(runCli(server().uri(), {"run", "--events", "1", "b", "true"}).code, 0);
}

TEST_F(CliRun, CR9_EventsThatNobodyReadsDelayNothing) {
  const TempDir directory;
  const std::string pipe = directory.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  // It is filled before the program begins.
  const std::string script = "exec 7<>" + pipe +
                             "; timeout 0.5 sh -c 'while :; do echo; done >&7';" + cliProgram() +
                             " run --events 7 a sh -c 'exit 4'";
  ChildProcess::Options options;
  options.environment = {"RLOCK_URI=" + server().uri()};
  ChildProcess shell("bash", {"-c", script}, options);
  EXPECT_EQ(finish(shell).code, 4);
}

TEST_F(CliRun, CR6_OptionsAfterTheNameAreTheCommands) {
  EXPECT_EQ(run({"run", "a", "printf", "[%s]", "-n", "--wait", "--", "-h"}).output,
            "[-n][--wait][--][-h]\n");
  EXPECT_EQ(run({"run", "--wait", "5s", "a", "--", "printf", "[%s]", "--uri", "x"}).output,
            "[--uri][x]\n");
  EXPECT_EQ(run({"run", "--", "a", "printf", "[%s]", "--help"}).output, "[--help]\n");
}

TEST_F(CliRun, CR7_AHundredShellsAddUp) {
  const TempDir directory;
  const std::string file = directory.file("f");
  std::ofstream(file) << "0\n";
  // As many at a time as a crowd needs; a hundred processes at once would only wait for the
  // processor.
  const std::string script = "seq 100 | xargs -P 12 -I{} " + cliProgram() +
                             " run --no-label c sh -c 'expr 1 + $(cat " + file + ") > " + file +
                             "'";
  ChildProcess::Options options;
  options.environment = {"RLOCK_URI=" + server().uri()};
  options.mergeStandardError = true;
  ChildProcess shell("sh", {"-c", script}, options);
  EXPECT_EQ(finish(shell).code, 0);
  std::ifstream result(file);
  int sum = 0;
  result >> sum;
  EXPECT_EQ(sum, 100);
}

TEST_F(CliRun, KindsExcludeAsTheyShould) {
  ChildProcess reader = start({"run", "--read", "rw", "sh", "-c", "echo ready; read line"});
  reader.expectLine(kSoon);
  EXPECT_EQ(run({"try", "--read", "rw", "true"}).code, 0);
  EXPECT_EQ(run({"try", "--write", "rw", "true"}).code, 75);
  EXPECT_EQ(finish(reader).code, 1);
  EXPECT_EQ(run({"try", "--write", "rw", "true"}).code, 0);

  ChildProcess one = start({"run", "--semaphore", "2", "s", "sh", "-c", "echo ready; read line"});
  one.expectLine(kSoon);
  ChildProcess two = start({"run", "--semaphore", "2", "s", "sh", "-c", "echo ready; read line"});
  two.expectLine(kSoon);
  EXPECT_EQ(run({"try", "--semaphore", "2", "s", "true"}).code, 75);
  EXPECT_EQ(run({"try", "--semaphore", "3", "s", "true"}).code, 78);
  EXPECT_EQ(finish(one).code, 1);
  EXPECT_EQ(run({"try", "--semaphore", "2", "s", "true"}).code, 0);
  EXPECT_EQ(finish(two).code, 1);
}

TEST_F(CliRun, SeveralLocksAreHeldTogetherOrNotAtAll) {
  ChildProcess holder = start(
      {"run", "--also", "b", "--also", "c", "a", "sh", "-c", "echo ready; read line; exit 6"});
  holder.expectLine(kSoon);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(run({"try", name, "true"}).code, 75) << name;
  }
  const CliOutcome other = run({"run", "--wait", "1s", "--also", "b", "d", "true"});
  EXPECT_EQ(other.code, 75);
  EXPECT_THAT(other.output, HasSubstr("lock \"d\", \"b\": held by another"));
  EXPECT_FALSE(redis().exists("d"));
  EXPECT_EQ(finish(holder).code, 6);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_FALSE(redis().exists(name)) << name;
  }
  EXPECT_EQ(run({"run", "--also", "a", "a", "true"}).code, 64);
  // One that is lost is the end of all.
  ChildProcess loser =
      start({"run", "--lease", "3s", "--also", "b", "a", "sh", "-c", "echo ready; exec sleep 60"});
  loser.expectLine(kSoon);
  redis().del("b");
  EXPECT_EQ(finish(loser).code, 79);
  EXPECT_EVENTUALLY(kSoon, !redis().exists("a"));
}

TEST_F(CliRun, ARedLockOutlivesAMinorityOfItsServers) {
  RedisServer second;
  const std::string uris = server().uri() + "," + second.uri() + ",redis://127.0.0.1:1";
  ChildProcess holder =
      start({"run", "--red", uris, "r", "sh", "-c", "echo ready; read line; exit 6"});
  holder.expectLine(kSoon);
  EXPECT_TRUE(redis().exists("r"));
  EXPECT_EQ(run({"try", "--red", uris, "r", "true"}).code, 75);
  EXPECT_EQ(finish(holder).code, 6);
  EXPECT_EQ(
      run({"try", "--red", "redis://127.0.0.1:1,redis://127.0.0.1:2," + second.uri(), "r", "true"})
          .code,
      69);
}

}  // namespace
}  // namespace rlock::test
