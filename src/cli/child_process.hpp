// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/guardian.hpp"
#include "cli/signal_inbox.hpp"
#include "cli/terminal.hpp"

#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/types.h>
#include <vector>

namespace rlock::cli {

/// The descriptors that were open when this program began: the command inherits these and no other.
class InheritedDescriptors {
 public:
  /// Made before anything is opened.
  InheritedDescriptors();
  /// Has all others closed by exec. Before fork().
  void keepOthersFromChildren() const;

 private:
  std::set<int> open_;
};

/// A command that could not be started.
class CannotStart : public std::runtime_error {
 public:
  CannotStart(const std::string& text, int error) : std::runtime_error(text), error_(error) {}
  /// The errno of exec.
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  int error_;
};

struct ChildSettings {
  std::vector<std::string> argv{};
  /// "NAME=value", added to ours, or "NAME", taken away.
  std::vector<std::string> environment{};
  bool ownGroup = true;
  bool noInput = false;  ///< its standard input is /dev/null
  int descriptor = -1;   ///< one of ours that it inherits; -1: none
};

/// The command: in a process group of its own unless it is to stay in the foreground's. If this
/// process dies, the kernel sends it SIGTERM, and the guardian does the rest. A command that would
/// begin after the guardian's kill time does not begin, and looks as if it had ended with
/// ExitCode::lost. An object that goes
/// before its command has been reaped kills it first, with its group if it has one: whatever ended
/// the supervision, the lock is given back next.
///
/// One thread, the one that started it: the kernel takes the end of that for the end of the parent.
class ChildProcess {
 public:
  struct Change {
    bool stopped = false;  ///< by job control; otherwise it has ended
    int code = 0;          ///< how it ended, as a shell reports it
    int signal = 0;        ///< that ended or stopped it; 0: none
  };

  /// @throws CannotStart, std::system_error
  ChildProcess(const ChildSettings& settings,
               const SignalInbox& signals,
               const InheritedDescriptors& inherited,
               const TerminalLoan& terminal,
               Guardian& guardian);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  /// To the command, with its group if it has one.
  /// @returns false if the system forbids it, because the command has become another user's
  bool send(int signal) const noexcept;
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Its latest change since the last call; empty: there was none. A process that has ended is not
  /// reaped by this, so that its number stays its own.
  [[nodiscard]] std::optional<Change> change();
  /// Takes the terminal back from the process that has ended, and reaps it.
  void reap() noexcept;

 private:
  Guardian& guardian_;
  const TerminalLoan& terminal_;
  pid_t pid_ = -1;
  bool ownGroup_;
  bool reaped_ = false;
};

}  // namespace rlock::cli
