// SPDX-License-Identifier: Apache-2.0
// The program's view of the locks on a server.
#include "cli/cli_harness.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace rlock::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CliView : public CliTest {};

TEST_F(CliView, OneLock) {
  EXPECT_EQ(run({"show", "a"}).code, 1);
  ChildProcess holder =
      start({"run", "--label", "night shift", "a", "sh", "-c", "echo ready; read line"});
  holder.expectLine(kSoon);
  // The label is written in the background, after the grant.
  ASSERT_EVENTUALLY(kSoon, run({"show", "a"}).output.find("night shift") != std::string::npos);
  const CliOutcome shown = run({"show", "a"});
  EXPECT_EQ(shown.code, 0);
  EXPECT_THAT(shown.output, HasSubstr("held by     night shift ("));
  EXPECT_THAT(shown.output, Not(HasSubstr("\033")));
  EXPECT_THAT(run({"show", "--color", "always", "a"}).output, HasSubstr("\033[1ma\033[0m"));
  const std::string json = run({"show", "--json", "a"}).output;
  EXPECT_THAT(json, HasSubstr("\"text\": \"night shift\""));
  EXPECT_THAT(json, HasSubstr("\"kind\": \"lock\""));
  (void)finish(holder);
}

TEST_F(CliView, ALineForTheShellIsShownToNobody) {
  ChildProcess holder = start({"run", "-c", "a", "SECRET=hunter2; echo ready; read line"});
  holder.expectLine(kSoon);
  ASSERT_EVENTUALLY(kSoon,
                    run({"show", "--json", "a"}).output.find("\"host\"") != std::string::npos);
  const std::string json = run({"show", "--json", "a"}).output;
  EXPECT_THAT(json, HasSubstr("\"text\": \"sh\""));
  EXPECT_THAT(json, Not(HasSubstr("hunter2")));
  (void)finish(holder);
}

TEST_F(CliView, SeveralLocks) {
  occupy("b:1");
  occupy("b:2");
  redis().set("other", "no lock");
  EXPECT_EQ(run({"list", "--names", "b:*"}).output, "b:1\nb:2\n");
  EXPECT_THAT(run({"list"}).output, HasSubstr("6f1ed9a2-0b3c-4c57-9d52-3a4e7f60b1aa:1"));
  EXPECT_THAT(run({"list", "--json", "c:*"}).output, HasSubstr("[]"));
  const std::string top = run({"top", "--frames", "1"}).output;
  EXPECT_THAT(top, HasSubstr("2 held"));
  EXPECT_THAT(top, HasSubstr("b:2"));
}

TEST_F(CliView, EveryKindCanBeFreedByForce) {
  for (const std::string kind : {"", "--fair", "--fenced", "--read", "--write", "--semaphore"}) {
    const std::string name = "n" + kind;
    std::vector<std::string> args{"hold"};
    if (!kind.empty()) {
      args.push_back(kind);
    }
    if (kind == "--semaphore") {
      args.emplace_back("1");
    }
    args.push_back(name);
    ChildProcess holder = start(args);
    holder.expectLine(kSoon);
    EXPECT_EQ(run({"unlock", "--force", name}).code, 0) << kind;
    args.front() = "run";
    args.insert(args.begin() + 1, "--no-wait");
    args.emplace_back("true");
    EXPECT_EQ(run(args).code, 0) << kind;
    holder.kill(SIGKILL);
  }
}

TEST_F(CliView, EveryPermitIsFreedByForce) {
  const std::vector<std::string> hold{"hold", "--no-wait", "--semaphore", "2", "s"};
  ChildProcess first = start(hold);
  ChildProcess second = start(hold);
  first.expectLine(kSoon);
  second.expectLine(kSoon);
  EXPECT_EQ(run({"unlock", "--force", "s"}).code, 0);
  ChildProcess third = start(hold);
  EXPECT_THAT(third.expectLine(kSoon), HasSubstr("held s"));
  EXPECT_EQ(run({"try", "--semaphore", "2", "s", "true"}).code, 0);
  first.kill(SIGKILL);
  second.kill(SIGKILL);
  EXPECT_EQ(finish(third).code, 0);
}

TEST_F(CliView, MorePermitsThanAreShownAreFreedByForce) {
  redis().set("s", "0");
  RawRedis::Args permits{"ZADD", "{s}:timeout"};
  for (int i = 0; i < 1200; ++i) {
    permits.emplace_back("92233720368547758");
    permits.push_back("permit of " + std::to_string(100'000 + i));
  }
  redis().run(permits);
  EXPECT_EQ(run({"unlock", "--force", "s"}).code, 0);
  EXPECT_EQ(redis().get("s"), "1200");
}

TEST_F(CliView, MoreReadersThanAreShownAreFreedByForce) {
  RawRedis::Args readers{"HSET", "many", "mode", "read"};
  for (int i = 0; i < 1200; ++i) {
    readers.push_back("6f1ed9a2-0b3c-4c57-9d52-3a4e7f60b1aa:" + std::to_string(i));
    readers.emplace_back("1");
  }
  redis().run(readers);
  EXPECT_EQ(run({"list", "--names"}).output, "many\n");
  EXPECT_EQ(run({"unlock", "--force", "many"}).code, 0);
  EXPECT_FALSE(redis().exists("many"));
}

TEST_F(CliView, WhatIsNoLockIsNotFreedByForce) {
  redis().set("text", "no lock");
  const CliOutcome outcome = run({"unlock", "--force", "text"});
  EXPECT_EQ(outcome.code, 76);
  EXPECT_THAT(outcome.output, HasSubstr("no lock that somebody holds"));
  EXPECT_TRUE(redis().exists("text"));
}

TEST_F(CliView, AnIntervalMayBeForEver) {
  occupy("a");
  ChildProcess top = start({"top", "--interval", "forever", "--frames", "3"});
  top.expectLineContaining("1 held", kSoon);
  EXPECT_FALSE(top.wait(std::chrono::milliseconds(300)));
  // A window of another size is drawn anew.
  top.kill(SIGWINCH);
  top.expectLineContaining("1 held", kSoon);
  top.kill(SIGTERM);
  EXPECT_EQ(finish(top).code, 0);
}

TEST_F(CliView, AnAnswerThatCannotBeWrittenIsNoSuccess) {
  occupy("a");
  ChildProcess::Options options;
  options.environment = {"RLOCK_URI=" + server().uri()};
  options.mergeStandardError = true;
  for (const std::string command : {"show a", "top --frames 1", "hold b"}) {
    for (const std::string target : {"/dev/full", "&-"}) {
      SCOPED_TRACE(command + " >" + target);
      ChildProcess shown(
          "sh", {"-c", "exec \"$0\" " + command + " >" + target, cliProgram()}, options);
      const CliOutcome outcome = finish(shown);
      EXPECT_EQ(outcome.code, 70);
      EXPECT_THAT(outcome.output, HasSubstr("rlock: "));
    }
  }
  EXPECT_FALSE(redis().exists("b"));
}

TEST_F(CliView, PicturesEndWithTheirReader) {
  occupy("a");
  ChildProcess::Options options;
  options.environment = {"RLOCK_URI=" + server().uri()};
  options.mergeStandardError = true;
  ChildProcess top("sh", {"-c", "\"$0\" top --interval 100ms | head -n 1", cliProgram()}, options);
  EXPECT_EQ(finish(top).code, 0);
}

/// On the other side of a slow network, where one name after the other would take a minute.
TEST_F(CliView, ManyNames) {
  RawRedis::Args texts{"MSET"};
  for (int i = 0; i < 1500; ++i) {
    texts.push_back("text" + std::to_string(i));
    texts.emplace_back("no lock");
  }
  redis().run(texts);
  occupy("a");
  TcpProxy proxy(server());
  proxy.setDelay(TcpProxy::Direction::toClient, std::chrono::milliseconds(40));
  for (const std::string limit : {"call-timeout=10s", "command-timeout=400ms"}) {
    const CliOutcome outcome = runCli(proxy.uri() + "?" + limit, {"list", "--names"});
    EXPECT_EQ(outcome.code, 0) << limit;
    EXPECT_EQ(outcome.output, "a\n") << limit;
  }
}

TEST_F(CliView, TheServerIsNamedByOptionEnvironmentOrFile) {
  const TempDir directory;
  const std::string path = directory.file("config");
  std::ofstream(path) << "# ours\nuri = " << server().uri() << "\nwait = 2s\n";
  occupy("a");
  const auto coded =
      [&](const std::string& uri, std::vector<std::string> args, const std::string& config) {
        ChildProcess::Options options;
        options.environment = {"RLOCK_URI=" + uri, "RLOCK_CONFIG=" + config};
        options.mergeStandardError = true;
        ChildProcess process(cliProgram(), args, options);
        return finish(process).code;
      };
  EXPECT_EQ(coded("", {"show", "a"}, path), 0);
  EXPECT_EQ(coded("", {"run", "a", "true"}, path), 75);
  EXPECT_EQ(coded("redis://127.0.0.1:1", {"show", "a"}, path), 69);
  EXPECT_EQ(coded("redis://127.0.0.1:1", {"show", "--uri", server().uri(), "a"}, path), 0);
  EXPECT_EQ(coded("", {"show", "a"}, directory.file("missing")), 78);
  std::ofstream(path) << "url = x\n";
  EXPECT_EQ(coded("", {"show", "a"}, path), 78);
}

// Its server would be replaced by the default one, where others do not look.
TEST_F(CliView, AFileThatCannotBeReadIsNotTakenForNone) {
  const TempDir directory;
  const auto code = [&](const std::string& config, const std::string& home) {
    ChildProcess::Options options;
    options.environment = {"RLOCK_URI=", "RLOCK_CONFIG=" + config, "XDG_CONFIG_HOME=" + home};
    options.mergeStandardError = true;
    ChildProcess process(cliProgram(), {"show", "--uri", server().uri(), "a"}, options);
    return finish(process).code;
  };
  EXPECT_EQ(code("", directory.path()), 1) << "there is none, and nobody holds the lock";
  EXPECT_EQ(code(directory.path(), ""), 78);
  std::filesystem::create_directories(directory.file("rlock/config"));
  EXPECT_EQ(code("", directory.path()), 78);
}

TEST_F(CliView, Benchmark) {
  const CliOutcome outcome = run({"bench", "--json", "--duration", "100ms", "--threads", "2"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("\"pairsPerSecond\":"));
  EXPECT_EQ(redis().dbsize(), 0);
}

TEST_F(CliView, TheNumbersOfABenchmarkFitTogether) {
  const std::string output =
      run({"bench", "--json", "--duration", "300ms", "--threads", "1"}).output;
  const auto number = [&](const std::string& key) {
    const std::string quoted = '"' + key + "\":";
    const std::size_t at = output.find(quoted);
    EXPECT_NE(at, std::string::npos) << key;
    return at == std::string::npos ? 0.0 : std::stod(output.substr(at + quoted.size()));
  };
  const double seconds = number("seconds");
  const double pairs = number("pairs");
  EXPECT_EQ(number("threads"), 1);
  EXPECT_GE(seconds, 0.3);
  EXPECT_GE(pairs, 1);
  EXPECT_NEAR(number("pairsPerSecond") * seconds, pairs, 0.5);
  // A pair is two questions to a server, which take longer than a microsecond.
  EXPECT_GE(number("medianUs"), 1);
  EXPECT_LE(number("medianUs"), number("p99Us"));
  EXPECT_LE(number("p99Us"), number("maxUs"));
  EXPECT_LE(number("maxUs"), seconds * 1e6);
}

}  // namespace
}  // namespace rlock::test
