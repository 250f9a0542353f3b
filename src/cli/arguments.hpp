// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/exit_codes.hpp"
#include <rlock/duration.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace rlock::cli {

enum class ColorMode { automatic, always, never };

/// A lock, its kind, and how to take it.
struct LockChoice {
  std::string name{};
  bool fair = false;
  bool read = false;
  bool write = false;
  bool fenced = false;
  int semaphore = 0;                ///< permits in all; 0: no semaphore
  std::vector<std::string> also{};  ///< names of further locks of the kind; empty: no multi-lock
  std::vector<std::string> red{};   ///< URIs of independent servers; empty: no RedLock
  std::optional<Duration> wait{};   ///< empty: for ever
  std::optional<Duration> lease{};  ///< empty: what the URI says
  std::optional<Duration> maxHold{};
  std::string label{};  ///< empty: the command's name
  bool noLabel = false;
  int conflictCode = number(ExitCode::notAcquired);
};

/// The command that is run under a lock.
struct CommandChoice {
  std::vector<std::string> argv{};
  std::chrono::milliseconds killAfter{5000};
  Duration minHold{};  ///< the lock is kept for so long, also when the command has ended
  bool shell = false;
  bool foreground = false;
  bool lossDescriptor = false;
  int events = 0;  ///< the descriptor for events; 0: none
};

/// A command line, read and checked.
struct Arguments {
  std::string subcommand{};
  std::string uri{};
  bool verbose = false;
  bool json = false;
  ColorMode color = ColorMode::automatic;

  LockChoice lock{};        ///< run, try, hold; the name also for show, wait, unlock, doctor
  CommandChoice command{};  ///< run, try
  std::string pattern = "*";
  bool namesOnly = false;  ///< list
  bool force = false;      ///< unlock
  bool noStdin = false;    ///< run, try, hold
  std::chrono::milliseconds interval{1000};
  int frames = 0;  ///< top: pictures until it ends; 0: no end
  int threads = 4;
  std::chrono::milliseconds duration{3000};
  std::string shell{};  ///< completion
};

/// A command line that is not to be carried out: a request for help, or a mistake.
struct Ended {
  int code = 0;
  std::string output{};  ///< for standard output
  std::string error{};   ///< for standard error
};

struct ParsedArguments {
  std::optional<Arguments> arguments{};
  Ended ended{};  ///< when there are no arguments
};

/// Reads the command line, the environment (RLOCK_URI, RLOCK_CONFIG) and the configuration file,
/// each before the next. The options of `run` and `try` end at the first operand, the lock's name:
/// what follows belongs to the command.
/// @param args  without the program's name
[[nodiscard]] ParsedArguments parseArguments(const std::vector<std::string>& args);

/// One option of the command line, for completions and the manual.
struct OptionEntry {
  std::vector<std::string> names{};  ///< with dashes
  std::string argument{};            ///< empty: none
  std::string description{};
};

struct SubcommandEntry {
  std::string name{};
  std::string synopsis{};
  std::string description{};
  std::string details{};
  std::vector<OptionEntry> options{};
  bool takesLockName = false;
};

/// All subcommands, in the order of the help.
[[nodiscard]] std::vector<SubcommandEntry> subcommandTable();
/// The options that every subcommand has.
[[nodiscard]] std::vector<OptionEntry> commonOptionTable();

}  // namespace rlock::cli
