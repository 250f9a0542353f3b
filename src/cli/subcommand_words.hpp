// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

namespace rlock::cli {

/// The words by which the help, the manual and the completions describe a subcommand.
struct SubcommandWords {
  std::string_view name;
  std::string_view synopsis;
  std::string_view description;
  std::string_view details;
  bool takesLockName;  ///< NAME is the first operand
};

/// In the order of the help. NAME is first among the operands wherever it is one.
inline constexpr std::array<SubcommandWords, 12> kSubcommands{{
    {"run",
     "rlock run [OPTIONS] NAME [--] COMMAND [ARGUMENT...]",
     "Run a command while holding a lock",
     "Options end at NAME: what follows is the command's, with or without \"--\" before it. The\n"
     "command has this program's standard streams, terminal and exit status; signals are passed\n"
     "on to it. Should the lock be about to be lost, the command gets SIGTERM, and SIGKILL\n"
     "before another can have the lock.\n\n"
     "Examples:\n"
     "  rlock run nightly-backup -- backup.sh --full\n"
     "  rlock run --wait 10s --max-hold 1h report make-report > report.txt\n"
     "  rlock run --no-wait cron:cleanup cleanup || [ $? = 75 ]\n"
     "  rlock run --semaphore 3 encoders ffmpeg -i in.mkv out.mp4",
     true},
    {"try",
     "rlock try [OPTIONS] NAME [--] COMMAND [ARGUMENT...]",
     "Run a command if the lock is free now",
     "The same as \"rlock run --no-wait\": ends with 75 when another owner holds the lock.",
     true},
    {"hold",
     "rlock hold [OPTIONS] NAME",
     "Hold a lock until a signal or the end of input",
     "Prints one line when the lock is held, and releases it on SIGINT, SIGTERM, SIGHUP or when\n"
     "standard input ends.\n\n"
     "Example, a lock around several steps of a shell script:\n"
     "  coproc rlock hold deploy; read -r line <&${COPROC[0]}\n"
     "  step-one; step-two\n"
     "  kill $COPROC_PID; wait $COPROC_PID",
     true},
    {"wait",
     "rlock wait [OPTIONS] NAME",
     "Wait until a lock is free, without taking it",
     "It may be taken again by the time that this program has ended.",
     true},
    {"show",
     "rlock show [OPTIONS] NAME",
     "Show who holds a lock",
     "Ends with 1 when nothing is there.",
     true},
    {"list",
     "rlock list [OPTIONS] [PATTERN]",
     "List locks",
     "PATTERN is as for Redis' SCAN: *, ?, [abc]. The whole database is walked, in small steps.\n"
     "WAIT is the number of waiters, of fair locks only: the server has no list of others.",
     false},
    {"top",
     "rlock top [OPTIONS] [PATTERN]",
     "Watch locks, their holders and waiters",
     "The bar is the time that is left unless the hold is renewed. WAIT is the number of waiters,\n"
     "of fair locks only: the server has no list of others. TURNS is how often a lock was seen to\n"
     "change hands. A name that is too long loses its middle. Press q to end.",
     false},
    {"unlock",
     "rlock unlock --force [OPTIONS] NAME",
     "Free a lock, whoever holds it",
     "The holder is not stopped. A client of rlock hears of the loss of a lock within a round\n"
     "trip, and of a permit, as other clients do, at its next renewal. Until then two may\n"
     "believe that they hold it.",
     true},
    {"doctor",
     "rlock doctor [OPTIONS] [NAME]",
     "Check that a server can be used for locks, and what is in the way",
     "Connects, asks the server about itself and takes locks of each kind, under names that\n"
     "begin with NAME (\"rlock-doctor\"): give one that your access rules allow. Ends with 1 when\n"
     "something would not work.",
     true},
    {"bench",
     "rlock bench [OPTIONS]",
     "Measure lock and unlock",
     "Every thread takes and releases a lock of its own, under names that begin with\n"
     "\"rlock-bench\".",
     false},
    {"completion",
     "rlock completion bash|zsh|fish",
     "Print a completion script for a shell",
     "Example: rlock completion bash > ~/.local/share/bash-completion/completions/rlock",
     false},
    {"man", "rlock man", "Print the manual page, in roff", "Example: rlock man | man -l -", false},
}};

/// The end of the help of each subcommand.
inline constexpr std::string_view kSubcommandFooter =
    "\n\nAll subcommands have --uri, --config, --verbose and --color: see \"rlock --help\".";

/// The end of the help of the whole program.
inline constexpr std::string_view kFooter =
    "The server is named by --uri, or by RLOCK_URI, or by \"uri = ...\" in the configuration file\n"
    "(~/.config/rlock/config), and is redis://127.0.0.1:6379 otherwise.\n\n"
    "\"rlock SUBCOMMAND --help\" says more. Lengths of time are such as 500ms, 10s, 1h30m.\n\n"
    "Exit status: that of the command; 64 usage, 69 no server, 75 lock not obtained, 76 server\n"
    "unsuitable, 77 not permitted, 78 configuration, 79 lock lost, 126 or 127 command not run.";

}  // namespace rlock::cli
