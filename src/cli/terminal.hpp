// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/arguments.hpp"
#include "cli/descriptor.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace rlock::cli {

/// When a command gets the terminal.
enum class Lending : std::uint8_t {
  never,      ///< it is in our group, and has what we have
  onRequest,  ///< when it was stopped because it had used the terminal without having it
  always      ///< whenever our group is the foreground
};

/// The controlling terminal of this process. It is lent to the command's group while ours is the
/// foreground, and taken back from that group only: a shell that has put the job into the
/// background has the terminal itself.
class TerminalLoan {
 public:
  explicit TerminalLoan(Lending lending);

  /// Whether there is a terminal.
  [[nodiscard]] bool exists() const noexcept { return static_cast<bool>(device_); }
  /// Whether our group is the foreground, so that it can be lent to a command that asks for it.
  [[nodiscard]] bool lendable() const noexcept;
  /// The same for a command that is to have it without asking.
  [[nodiscard]] bool ours() const noexcept;
  /// Makes a group the foreground. Safe after fork().
  void lend(pid_t group) const noexcept;
  [[nodiscard]] bool lentTo(pid_t group) const noexcept;
  void takeBack(pid_t group) const noexcept;

 private:
  const Descriptor device_;
  const Lending lending_;
};

/// Escape sequences for colours, or nothing.
class Style {
 public:
  /// @param mode        automatic: on if `descriptor` is a terminal and NO_COLOR is not set
  Style(ColorMode mode, int descriptor);

  [[nodiscard]] bool on() const noexcept { return on_; }
  [[nodiscard]] std::string bold(std::string_view text) const { return wrap("1", text); }
  [[nodiscard]] std::string dim(std::string_view text) const { return wrap("2", text); }
  [[nodiscard]] std::string red(std::string_view text) const { return wrap("31", text); }
  [[nodiscard]] std::string green(std::string_view text) const { return wrap("32", text); }
  [[nodiscard]] std::string yellow(std::string_view text) const { return wrap("33", text); }

 private:
  [[nodiscard]] std::string wrap(std::string_view code, std::string_view text) const;

  bool on_;
};

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

/// Of the terminal that is open as `descriptor`; COLUMNS and LINES otherwise, else 80 x 24.
[[nodiscard]] TerminalSize terminalSize(int descriptor);

}  // namespace rlock::cli
