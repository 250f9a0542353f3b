// SPDX-License-Identifier: Apache-2.0
// `rlock hold` and `rlock wait`.
#include "cli/cli_harness.hpp"
#include "support/tcp_proxy.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <string>

namespace rlock::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class CliHold : public CliTest {};

TEST_F(CliHold, UntilTheEndOfInput) {
  ChildProcess holder = start({"hold", "a"});
  EXPECT_THAT(holder.expectLine(kSoon), StartsWith("held a owner "));
  EXPECT_TRUE(redis().exists("a"));
  holder.send("this is of no interest");
  EXPECT_EQ(run({"try", "a", "true"}).code, 75);
  EXPECT_EQ(finish(holder).code, 0);
  EXPECT_FALSE(redis().exists("a"));
}

TEST_F(CliHold, UntilASignal) {
  ChildProcess holder = start({"hold", "--no-stdin", "--json", "--fenced", "a"});
  EXPECT_THAT(holder.expectLine(kSoon), HasSubstr("\"token\":1"));
  holder.closeInput();
  EXPECT_EQ(run({"try", "a", "true"}).code, 75);
  holder.kill(SIGTERM);
  EXPECT_EQ(finish(holder).code, 0);
  EXPECT_FALSE(redis().exists("a"));
}

TEST_F(CliHold, ALossIsTold) {
  ChildProcess holder = start({"hold", "--lease", "6s", "a"});
  holder.expectLine(kSoon);
  redis().del("a");
  // The next renewal notices it, after a third of the lease.
  EXPECT_THAT(holder.expectLine(kLong), HasSubstr("was lost: refused"));
  EXPECT_EQ(finish(holder).code, 79);
}

TEST_F(CliHold, ALossThatWasNotNoticedIsTold) {
  // No renewal of this one comes while the test takes.
  ChildProcess holder = start({"hold", "--lease", "10m", "a"});
  holder.expectLine(kSoon);
  redis().del("a");
  const CliOutcome outcome = finish(holder);
  EXPECT_EQ(outcome.code, 79);
  EXPECT_THAT(outcome.output, HasSubstr("\"a\" was lost: it was gone"));
}

// The lock ends with its lease.
TEST_F(CliHold, AReleaseThatIsNotConfirmedIsTold) {
  TcpProxy proxy(server());
  ChildProcess holder = startCli(proxy.uri() + "?command-timeout=500ms&call-timeout=1s",
                                 {"hold", "--lease", "10m", "a"});
  holder.expectLine(kSoon);
  proxy.blackHole();
  holder.closeInput();
  const CliOutcome outcome = finish(holder);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("has not confirmed the release"));
}

TEST_F(CliHold, AnInputThatIsClosedHasEnded) {
  ChildProcess::Options options;
  options.environment = {"RLOCK_URI=" + server().uri()};
  options.mergeStandardError = true;
  ChildProcess holder("sh", {"-c", "exec \"$@\" <&-", "sh", cliProgram(), "hold", "a"}, options);
  const CliOutcome outcome = finish(holder);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.output, StartsWith("held a owner "));
}

/// As of a job of a script, of cron and of a service.
TEST_F(CliHold, AnInputThatWasNeverThereDoesNotEnd) {
  ChildProcess::Options options;
  options.environment = {"RLOCK_URI=" + server().uri()};
  options.mergeStandardError = true;
  ChildProcess holder(
      "sh", {"-c", "exec \"$@\" </dev/null", "sh", cliProgram(), "hold", "a"}, options);
  EXPECT_THAT(holder.expectLine(kSoon), StartsWith("held a owner "));
  EXPECT_FALSE(holder.wait(std::chrono::milliseconds(100)));
  EXPECT_EQ(run({"try", "a", "true"}).code, 75);
  holder.kill(SIGTERM);
  EXPECT_EQ(finish(holder).code, 0);
  EXPECT_FALSE(redis().exists("a"));
}

/// As of one for the lock itself.
TEST_F(CliHold, AWaitOutlastsAnOutage) {
  TcpProxy proxy(server());
  const auto asked = proxy.addRule(TcpProxy::script("a"), TcpProxy::Action::pass());
  occupy("a");
  const std::string uri = proxy.uri() + "?command-timeout=200ms";
  ChildProcess waiting = startCli(uri, {"wait", "a"});
  // The first question, which may have been asked twice because the server did not know the script,
  // was answered.
  ASSERT_TRUE(asked.waitForHits(3, kSoon));
  server().kill();
  // Several of its questions fail.
  EXPECT_FALSE(waiting.wait(std::chrono::seconds(2)));
  server().start();
  EXPECT_EQ(finish(waiting).code, 0);
  // Without any answer it says so.
  EXPECT_EQ(runCli("redis://127.0.0.1:1", {"wait", "a"}).code, 69);
}

TEST_F(CliHold, WaitingTakesNothing) {
  EXPECT_EQ(run({"wait", "a"}).code, 0);
  occupy("a");
  EXPECT_EQ(run({"wait", "--wait", "50ms", "a"}).code, 75);
  ChildProcess waiting = start({"wait", "a"});
  const auto connected = [&] {
    const auto clients = redis().clientList();
    return std::any_of(clients.begin(), clients.end(), [](const auto& client) {
      const auto name = client.find("name");
      return name != client.end() && name->second.starts_with("rlock-wait");
    });
  };
  ASSERT_EVENTUALLY(kSoon, connected());
  EXPECT_FALSE(waiting.wait(std::chrono::milliseconds(100)));
  redis().del("a");
  EXPECT_EQ(finish(waiting).code, 0);
  EXPECT_FALSE(redis().exists("a"));
}

TEST_F(CliHold, WaitingSeesEveryHold) {
  // More readers than are shown.
  RawRedis::Args readers{"HSET", "many", "mode", "read"};
  for (int i = 0; i < 1200; ++i) {
    readers.push_back("6f1ed9a2-0b3c-4c57-9d52-3a4e7f60b1aa:" + std::to_string(i));
    readers.emplace_back("1");
  }
  redis().run(readers);
  // A simple lock whose owner is another program.
  redis().set("other", "web1-4711");
  for (const char* name : {"many", "other"}) {
    EXPECT_EQ(run({"wait", "--wait", "50ms", name}).code, 75) << name;
  }
  // A count is not held by anybody.
  redis().set("count", "0");
  EXPECT_EQ(run({"wait", "--wait", "50ms", "count"}).code, 0);
}

}  // namespace
}  // namespace rlock::test
