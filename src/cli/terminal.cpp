// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <fcntl.h>
#include <sys/ioctl.h>

namespace rlock::cli {

TerminalLoan::TerminalLoan(Lending lending)
    : device_(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)), lending_(lending) {}

bool TerminalLoan::lendable() const noexcept {
  return lentTo(::getpgrp());
}

bool TerminalLoan::ours() const noexcept {
  return lending_ == Lending::always && lendable();
}

void TerminalLoan::lend(pid_t group) const noexcept {
  ::tcsetpgrp(device_.get(), group);
}

bool TerminalLoan::lentTo(pid_t group) const noexcept {
  // A group whose processes have ended keeps its number as long as the terminal is lent to it.
  return lending_ != Lending::never && exists() && ::tcgetpgrp(device_.get()) == group;
}

void TerminalLoan::takeBack(pid_t group) const noexcept {
  if (lentTo(group)) {
    lend(::getpgrp());
  }
}

Style::Style(ColorMode mode, int descriptor) : on_(mode == ColorMode::always) {
  if (mode == ColorMode::automatic) {
    const char* const refused = std::getenv("NO_COLOR");
    const char* const kind = std::getenv("TERM");
    on_ = (refused == nullptr || *refused == '\0') && ::isatty(descriptor) == 1 &&
          (kind == nullptr || std::string_view(kind) != "dumb");
  }
}

std::string Style::wrap(std::string_view code, std::string_view text) const {
  return on_ ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
}

TerminalSize terminalSize(int descriptor) {
  TerminalSize size;
  winsize window{};
  if (::ioctl(descriptor, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0) {
    size.columns = window.ws_col;
    size.rows = window.ws_row;
    return size;
  }
  const auto fromEnvironment = [](const char* name, int& value) {
    const char* const text = std::getenv(name);
    const long number = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
    if (number > 0 && number < 10'000) {
      value = static_cast<int>(number);
    }
  };
  fromEnvironment("COLUMNS", size.columns);
  fromEnvironment("LINES", size.rows);
  return size;
}

}  // namespace rlock::cli
