// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace rlock::test {

struct SpawnOptions {
  std::vector<std::string> argv;         ///< argv[0] is looked up in PATH unless it has a slash
  std::vector<std::string> environment;  ///< "NAME=value", added to or replacing the inherited ones
  std::string workingDirectory;          ///< empty: inherited
  int standardInput = -1;                ///< -1: /dev/null for input, inherited for the outputs
  int standardOutput = -1;
  int standardError = -1;
  bool closeInheritedDescriptors = true;  ///< everything above 2
};

/// Starts a process that the kernel kills (PR_SET_PDEATHSIG, SIGKILL) when this process ends in
/// whatever way, with default signal handlers and an empty signal mask. Safe from any thread: the
/// kernel sends that signal when the *thread* that forked ends, so one thread that lives as long as
/// the process forks for all.
///
/// @throws std::system_error when the program cannot be started
[[nodiscard]] pid_t spawnProcess(const SpawnOptions& options);

/// How a process ended.
struct ExitStatus {
  int code = 0;    ///< exit code, 0 when ended by a signal
  int signal = 0;  ///< 0: exited by itself

  [[nodiscard]] bool success() const { return code == 0 && signal == 0; }
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

/// Reaps a child of this process. Empty when it did not end within `timeout` (not scaled).
/// @throws std::system_error when `pid` is not a child of this process
[[nodiscard]] std::optional<ExitStatus> reapProcess(pid_t pid, std::chrono::milliseconds timeout);

/// SIGSTOPs a child and returns when it has stopped (or ended).
void stopProcess(pid_t pid);

/// True while a process with this id exists, also as a zombie.
[[nodiscard]] bool processExists(pid_t pid);

/// The path of the running program.
[[nodiscard]] std::string selfExecutable();

}  // namespace rlock::test
