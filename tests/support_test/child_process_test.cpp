// SPDX-License-Identifier: Apache-2.0
#include "support/child_process.hpp"

#include "support/eventually.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace rlock::test {
namespace {

using std::chrono::milliseconds;
constexpr auto kPatience = milliseconds(10'000);

char stateOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string word;
  char state = '?';
  file >> word >> word >> state;
  return state;
}

ChildProcess shell(const std::string& script, const ChildProcess::Options& options = {}) {
  return ChildProcess("sh", {"-c", script}, options);
}

TEST(ChildProcess, ExchangesLines) {
  ChildProcess child("cat");
  child.send("one");
  child.send("two words");
  EXPECT_EQ(child.expectLine(kPatience), "one");
  EXPECT_EQ(child.expectLineContaining("words", kPatience), "two words");
  EXPECT_TRUE(child.running());
  child.closeInput();
  EXPECT_EQ(child.wait(kPatience), (ExitStatus{0, 0}));
  EXPECT_FALSE(child.running());
  EXPECT_EQ(child.readLine(kPatience), std::nullopt);
  EXPECT_EQ(child.linesRead(), (std::vector<std::string>{"one", "two words"}));
}

TEST(ChildProcess, ReportsExitCodes) {
  ChildProcess child = shell("printf 'no line end'; exit 7");
  EXPECT_EQ(child.expectLine(kPatience), "no line end");
  EXPECT_EQ(child.wait(kPatience), (ExitStatus{7, 0}));
  EXPECT_EQ(child.wait(milliseconds(0)), (ExitStatus{7, 0}));
}

TEST(ChildProcess, ExpectLineThrowsOnSilenceAndAtTheEnd) {
  ChildProcess silent("cat");
  EXPECT_EQ(silent.readLine(milliseconds(10)), std::nullopt);
  EXPECT_THROW(silent.expectLine(milliseconds(10)), std::runtime_error);
  ChildProcess ending = shell("echo hello");
  try {
    ending.expectLineContaining("world", kPatience);
    FAIL() << "expected an exception";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("hello"), std::string::npos);
  }
}

TEST(ChildProcess, IsKilledAndReaped) {
  ChildProcess child("cat");
  child.kill();
  EXPECT_EQ(child.wait(kPatience), (ExitStatus{0, SIGKILL}));
  EXPECT_THROW(
      {
        for (int i = 0; i < 1'000; ++i) {
          child.send("anybody there?");
        }
      },
      std::runtime_error);

  pid_t pid = -1;
  {
    const ChildProcess other("cat");
    pid = other.pid();
    EXPECT_TRUE(processExists(pid));
  }
  EXPECT_FALSE(processExists(pid));
}

TEST(ChildProcess, StopsAndContinues) {
  ChildProcess child("cat");
  child.stop();
  EXPECT_EQ(stateOf(child.pid()), 'T');
  child.send("later");
  EXPECT_EQ(child.readLine(milliseconds(30)), std::nullopt);
  EXPECT_EQ(child.wait(milliseconds(0)), std::nullopt);
  child.cont();
  EXPECT_EQ(child.expectLine(kPatience), "later");
}

TEST(ChildProcess, StoppedChildIsKilledByTheDestructor) {
  pid_t pid = -1;
  {
    ChildProcess child("cat");
    child.stop();
    pid = child.pid();
  }
  EXPECT_FALSE(processExists(pid));
}

TEST(ChildProcess, PassesEnvironmentDirectoryAndErrors) {
  ChildProcess::Options options;
  options.environment = {"RLOCK_SUPPORT_TEST=some value", "HOME=/nowhere"};
  options.workingDirectory = "/";
  options.mergeStandardError = true;
  ChildProcess child = shell("echo \"$RLOCK_SUPPORT_TEST $HOME\"; pwd; echo oops >&2", options);
  EXPECT_EQ(child.expectLine(kPatience), "some value /nowhere");
  EXPECT_EQ(child.expectLine(kPatience), "/");
  EXPECT_EQ(child.expectLine(kPatience), "oops");
}

TEST(ChildProcess, InheritsDescriptorsOnlyWhenAsked) {
  const int fd = ::open("/dev/null", O_RDONLY);
  ASSERT_GT(fd, 2);
  const std::string script =
      "if [ -e /proc/self/fd/" + std::to_string(fd) + " ]; then echo open; else echo closed; fi";
  ChildProcess::Options inheriting;
  inheriting.closeInheritedDescriptors = false;
  EXPECT_EQ(shell(script).expectLine(kPatience), "closed");
  EXPECT_EQ(shell(script, inheriting).expectLine(kPatience), "open");
  ::close(fd);
}

TEST(ChildProcess, ThrowsWhenTheProgramIsMissing) {
  EXPECT_THROW(ChildProcess("/nowhere/at-all"), std::system_error);
  ChildProcess::Options options;
  options.workingDirectory = "/nowhere/at-all";
  EXPECT_THROW(ChildProcess("cat", {}, options), std::system_error);
}

TEST(ChildProcess, Moves) {
  ChildProcess first("cat");
  const pid_t pid = first.pid();
  ChildProcess second = std::move(first);
  EXPECT_EQ(second.pid(), pid);
  second = ChildProcess("cat");
  EXPECT_FALSE(processExists(pid));
  second.send("moved");
  EXPECT_EQ(second.expectLine(kPatience), "moved");
}

TEST(ChildProcess, SurvivesTheThreadThatStartedIt) {
  std::optional<ChildProcess> child;
  std::thread starter([&] { child.emplace("cat"); });
  starter.join();
  child->send("still here");
  EXPECT_EQ(child->expectLine(kPatience), "still here");
  // The signal for the parent's death would have come with the thread's.
  EXPECT_EQ(child->wait(milliseconds(30)), std::nullopt);
}

TEST(ChildProcess, StartsManyFromManyThreads) {
  std::vector<std::thread> starters;
  std::atomic<int> good = 0;
  for (int i = 0; i < 8; ++i) {
    starters.emplace_back([&] {
      ChildProcess child = shell("echo up");
      good += child.expectLine(kPatience) == "up" ? 1 : 0;
    });
  }
  for (std::thread& starter : starters) {
    starter.join();
  }
  EXPECT_EQ(good, 8);
}

TEST(SpawnProcess, ChildStartsWithDefaultSignals) {
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto ignored = std::signal(SIGPIPE, SIG_IGN);
  ChildProcess child("cat");
  ChildProcess status("grep", {"-E", "^Sig(Ign|Blk)", "/proc/self/status"});
  std::signal(SIGPIPE, ignored);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  child.kill(SIGTERM);
  EXPECT_EQ(child.wait(kPatience), (ExitStatus{0, SIGTERM}));
  for (const char* name : {"SigBlk:", "SigIgn:"}) {
    const std::string line = status.expectLine(kPatience);
    EXPECT_EQ(line.rfind(name, 0), 0U) << line;
    EXPECT_EQ(line.find_first_not_of("0 \t", 7), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace rlock::test
