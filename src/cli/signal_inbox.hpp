// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/descriptor.hpp"

#include <array>
#include <csignal>
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
  /// The next one; empty when there is none.
  [[nodiscard]] std::optional<int> next() const noexcept;

  /// For a forked child before exec: mask and dispositions as this program found them. Safe after
  /// fork().
  void restoreInChild() const noexcept;

  /// Whether the signal asks this program to end.
  [[nodiscard]] static bool asksToEnd(int signal) noexcept {
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
  }

 private:
  sigset_t original_{};
  struct sigaction originalChild_ {};
  struct sigaction originalPipe_ {};
  Descriptor descriptor_;
};

}  // namespace rlock::cli
