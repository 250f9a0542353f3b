// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/acquisition.hpp"
#include "cli/announcer.hpp"
#include "cli/arguments.hpp"
#include "cli/child_process.hpp"
#include "cli/guardian.hpp"
#include "cli/loss_plan.hpp"
#include "cli/signal_inbox.hpp"
#include "cli/terminal.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace rlock::cli {

/// Watches over a command that runs under a lock: passes signals on, follows it into and out of
/// stops, and ends it in time when the lock is about to be lost.
///
/// One thread, the one that started the command.
class Supervision {
 public:
  Supervision(const CommandChoice& choice,
              const Held& held,
              ChildProcess& child,
              const SignalInbox& signals,
              const TerminalLoan& terminal,
              Guardian& guardian,
              Announcer& announcer);

  /// Blocks until the command has ended; it is reaped then, and so is what it left in its group if
  /// it had to be ended.
  /// @returns its exit code, or ExitCode::lost when it was ended because of the lock
  int run();
  /// Whether the command had to be ended.
  [[nodiscard]] bool ended() const noexcept { return killAt_.has_value(); }
  /// Whether somebody has asked the command to end, by a signal or a key.
  [[nodiscard]] bool askedToEnd() const noexcept { return askedToEnd_ || endingKey_ != 0; }
  /// The key of the terminal, SIGINT or SIGQUIT, that has ended the command; 0: none did.
  [[nodiscard]] int endingKey() const noexcept { return endingKey_; }

 private:
  using Clock = std::chrono::steady_clock;

  void look();
  void watchGuardian();
  void forward();
  void passOn(int signal);
  void beginEnding();
  [[nodiscard]] bool kill();
  void tellThatItRunsOn(const std::string& why);
  void followStop(int signal);
  void noteEndingKey(const ChildProcess::Change& change);
  [[nodiscard]] int untilNextLookMs() const;
  [[nodiscard]] std::string lossText() const;

  const CommandChoice& choice_;
  const Held& held_;
  ChildProcess& child_;
  const SignalInbox& signals_;
  const TerminalLoan& terminal_;
  Guardian& guardian_;
  Announcer& announcer_;
  Event lost_;
  LossPlan plan_;
  std::optional<Clock::time_point> killAt_;  // the command was told to end
  bool killed_ = false;
  bool askedToEnd_ = false;  // by a signal that we have got
  bool stranded_ = false;    // it was left stopped, for nobody can give it the terminal
  // Each of these messages is given once.
  bool saidThatSignalsFail_ = false;
  bool saidThatItRunsOn_ = false;
  bool saidThatItIsUnguarded_ = false;
  int endingKey_ = 0;
};

}  // namespace rlock::cli
