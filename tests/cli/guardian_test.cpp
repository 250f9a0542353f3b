// SPDX-License-Identifier: Apache-2.0
// A command that nobody supervises any more is ended by its guardian, or with the object that
// started it.
#include "cli/guardian.hpp"

#include "cli/child_process.hpp"
#include "cli/exit_codes.hpp"
#include "support/eventually.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <sys/types.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace rlock::cli {
namespace {

/// Whether there is such a process, and it has not ended.
bool runs(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) {
    return false;
  }
  const std::size_t state = line.rfind(") ");
  return state != std::string::npos && line[state + 2] != 'Z' && line[state + 2] != 'X';
}

TEST(CliGuardian, KillsInTimeWhatBeganWhileItSlept) {
  Guardian guardian(std::chrono::milliseconds(0));
  // It has nothing to do, and sleeps for long.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const pid_t command = ::fork();
  if (command == 0) {
    for (;;) {
      ::pause();
    }
  }
  ASSERT_GT(command, 0);
  guardian.setKillTime(std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
  guardian.setTarget(command);
  const auto killed = [&] { return ::waitpid(command, nullptr, WNOHANG) == command; };
  const bool inTime = test::eventually(std::chrono::milliseconds(600), killed);
  EXPECT_TRUE(inTime);
  guardian.setTarget(0);
  if (!inTime) {
    ::kill(command, SIGKILL);
    ::waitpid(command, nullptr, 0);
  }
}

TEST(CliGuardian, OneThatWasKilledIsMissedAndReaped) {
  Guardian guardian(std::chrono::milliseconds(0));
  EXPECT_FALSE(guardian.hasEnded());
  const pid_t process = guardian.pid();
  ASSERT_EQ(::kill(process, SIGKILL), 0);
  EXPECT_TRUE(
      test::eventually(std::chrono::milliseconds(5'000), [&] { return guardian.hasEnded(); }));
  EXPECT_TRUE(guardian.hasEnded());
  // A reaped process leaves nothing behind, not even a zombie.
  EXPECT_EQ(::kill(process, 0), -1);
  // Nobody reads that any more.
  guardian.setKillTime(std::chrono::steady_clock::now());
}

/// As after a grant that a stopped process finds when it goes on.
TEST(CliGuardian, ACommandWhoseTimeIsOverDoesNotBegin) {
  const test::TempDir directory;
  const InheritedDescriptors inherited;
  const SignalInbox signals;
  const TerminalLoan terminal(Lending::never);
  for (const bool late : {true, false}) {
    Guardian guardian(std::chrono::milliseconds(0));
    // The guardian itself must not be quicker than the command.
    ASSERT_EQ(::kill(guardian.pid(), SIGSTOP), 0);
    const auto now = std::chrono::steady_clock::now();
    guardian.setKillTime(late ? now : now + std::chrono::minutes(1));
    const std::string file = directory.file(late ? "late" : "in-time");
    ChildSettings settings;
    settings.argv = {"sh", "-c", ": >" + file};
    ChildProcess command(settings, signals, inherited, terminal, guardian);
    std::optional<ChildProcess::Change> change;
    EXPECT_TRUE(test::eventually(std::chrono::milliseconds(5'000), [&] {
      change = command.change();
      return change.has_value();
    }));
    EXPECT_EQ(change.value_or(ChildProcess::Change{}).code, late ? number(ExitCode::lost) : 0);
    EXPECT_EQ(std::filesystem::exists(file), !late);
    guardian.setTarget(0);
    command.reap();
    ASSERT_EQ(::kill(guardian.pid(), SIGCONT), 0);
  }
  // For the tests after this one.
  signals.restoreInChild();
}

TEST(CliGuardian, ACommandThatIsLeftIsKilledWithItsGroup) {
  const test::TempDir directory;
  const std::string ready = directory.file("ready");
  const InheritedDescriptors inherited;
  const SignalInbox signals;
  pid_t leader = 0;
  pid_t helper = 0;
  {
    Guardian guardian(std::chrono::milliseconds(0));
    ChildSettings settings;
    settings.argv = {"sh",
                     "-c",
                     "trap '' TERM; sleep 60 & echo $! >" + ready + ".new; mv " + ready + ".new " +
                         ready + "; wait"};
    const TerminalLoan terminal(Lending::never);
    const ChildProcess command(settings, signals, inherited, terminal, guardian);
    leader = command.pid();
    EXPECT_TRUE(test::eventually(std::chrono::milliseconds(5'000), [&] {
      return static_cast<bool>(std::ifstream(ready) >> helper);
    }));
  }
  EXPECT_FALSE(runs(leader));
  EXPECT_GT(helper, 0);
  EXPECT_TRUE(test::eventually(std::chrono::milliseconds(1'000), [&] { return !runs(helper); }));
  // For the tests after this one.
  signals.restoreInChild();
}

}  // namespace
}  // namespace rlock::cli
