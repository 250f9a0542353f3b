// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/descriptor.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>

namespace rlock::cli {

/// The signals of this process as something to read: those that a command would get instead of us,
/// and SIGCHLD. They are blocked in every thread that is made later. A signal that was ignored when
/// this program began, as under nohup, stays ignored.
///
/// Made once, before there is a second thread.
class SignalInbox {
 public:
  /// @throws std::system_error
  SignalInbox();

  /// Readable when there is a signal.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  struct Arrival {
    int signal = 0;
    bool fromTerminal = false;  ///< by a key or a change of its size: sent to the whole foreground
  };
  /// The next one; empty when there is none.
  [[nodiscard]] std::optional<Arrival> next() const noexcept;

  /// Waits until the descriptor is readable, or until a signal asks this program to end. SIGTSTP
  /// suspends the wait; other signals are dropped.
  /// @param until  the end of the wait in any case; time_point::max(): none
  /// @returns whether the descriptor is readable
  bool readableBeforeEnd(int descriptor,
                         std::chrono::steady_clock::time_point until) const noexcept;

  /// The processes that a signal is meant for: this one, or all of its group.
  enum class Reach : std::uint8_t { process, group };
  /// Stops this process, or its group, as SIGTSTP does by default, until somebody continues it.
  /// Nothing happens where nobody could: in a group without a shell above it, and in a process that
  /// is the first of its system. One thread, the one that made this.
  /// @returns whether it was stopped; the SIGCONT is read next, then
  bool suspend(Reach reach) const noexcept;
  /// Ends this process and its group by a signal, as a key of the terminal does. Returns where the
  /// signal does not end it.
  void endGroupBy(int signal) const noexcept;

  /// For a forked child before exec: mask and dispositions as this program found them. Safe after
  /// fork().
  void restoreInChild() const noexcept;

  /// Whether the signal asks this program to end.
  [[nodiscard]] static bool asksToEnd(int signal) noexcept {
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
  }

 private:
  /// Sends it with its default effect, and lets it through.
  static void raiseByDefault(int signal, Reach reach) noexcept;

  sigset_t original_{};
  struct sigaction originalChild_ {};
  struct sigaction originalPipe_ {};
  Descriptor descriptor_;
};

}  // namespace rlock::cli
