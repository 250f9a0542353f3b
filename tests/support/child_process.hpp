// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/spawn.hpp"

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace rlock::test {

struct ChildProcessOptions {
  std::vector<std::string> environment;  ///< "NAME=value", added to or replacing the inherited ones
  std::string workingDirectory;          ///< empty: inherited
  bool mergeStandardError = false;       ///< true: read together with the output; false: inherited
  bool closeInheritedDescriptors = true;  ///< false: the child gets what is not close-on-exec
};

/// A child process driven by lines over its standard input and output. It is killed when this
/// process ends in whatever way, and by the destructor, unless that runs in a forked child. Nothing
/// reads its output but the read methods, so a child that writes more than a pipe holds (64 KiB)
/// waits until it is read. One thread at a time, except kill(), stop(), cont() and pid().
class ChildProcess {
 public:
  using Options = ChildProcessOptions;

  /// @param executable  looked up in PATH unless it contains a slash; see also selfExecutable()
  /// @throws std::system_error when it cannot be started
  explicit ChildProcess(const std::string& executable,
                        const std::vector<std::string>& args = {},
                        const Options& options = Options());
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool running();

  /// Writes the line and a line end. Throws std::runtime_error when the child's input is closed.
  void send(std::string_view line);
  void closeInput();

  /// The next line without its end; empty optional after `deadline` (scaled) or at the end of
  /// output.
  [[nodiscard]] std::optional<std::string> readLine(std::chrono::milliseconds deadline);
  /// The next line; throws std::runtime_error, with what was read so far, instead of empty.
  std::string expectLine(std::chrono::milliseconds deadline);
  /// Reads on until a line contains `substring` and returns that line; throws as expectLine().
  std::string expectLineContaining(std::string_view substring, std::chrono::milliseconds deadline);
  /// Every line read so far.
  [[nodiscard]] const std::vector<std::string>& linesRead() const { return linesRead_; }

  void kill(int signal = SIGKILL);
  /// SIGSTOP; returns when the process has stopped.
  void stop();
  /// SIGCONT.
  void cont();
  /// How it ended; empty when it still runs after `deadline` (scaled).
  [[nodiscard]] std::optional<ExitStatus> wait(std::chrono::milliseconds deadline);

 private:
  void finish() noexcept;

  pid_t pid_ = -1;
  pid_t owner_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::optional<ExitStatus> status_;
  std::string buffer_;
  std::vector<std::string> linesRead_;
};

}  // namespace rlock::test
