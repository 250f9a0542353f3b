// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/connection.hpp"
#include "cli/exit_codes.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace {

using Command = int (*)(const rlock::cli::Arguments&);

constexpr std::array<std::pair<std::string_view, Command>, 12> kCommands{{
    {"run", rlock::cli::runCommand},
    {"try", rlock::cli::runCommand},
    {"hold", rlock::cli::holdCommand},
    {"wait", rlock::cli::waitCommand},
    {"show", rlock::cli::showCommand},
    {"list", rlock::cli::listCommand},
    {"top", rlock::cli::topCommand},
    {"unlock", rlock::cli::unlockCommand},
    {"doctor", rlock::cli::doctorCommand},
    {"bench", rlock::cli::benchCommand},
    {"completion", rlock::cli::completionCommand},
    {"man", rlock::cli::manCommand},
}};

int carryOut(const rlock::cli::Arguments& arguments) {
  for (const auto& [name, command] : kCommands) {
    if (name == arguments.subcommand) {
      return command(arguments);
    }
  }
  return rlock::cli::number(rlock::cli::ExitCode::usage);
}

// A stream that our caller has closed would give its number to a connection or to the signals,
// which would then be read and written as that stream. /dev/null takes the number instead, opened
// the wrong way round, so that reading and writing fail as before; a command does not inherit it.
void occupyClosedStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) {
      static_cast<void>(
          ::open("/dev/null", (stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC));
    }
  }
}

// An answer that could not be written must not look like success.
int flushed(int code) {
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code == 0) {
    rlock::cli::complain("standard output cannot be written");
    return rlock::cli::number(rlock::cli::ExitCode::internal);
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  occupyClosedStreams();
  try {
    const auto parsed = rlock::cli::parseArguments({argv + (argc > 0 ? 1 : 0), argv + argc});
    if (!parsed.arguments) {
      fmt::print("{}", parsed.ended.output);
      rlock::cli::writeError(parsed.ended.error);
      return flushed(parsed.ended.code);
    }
    return flushed(carryOut(*parsed.arguments));
  } catch (const std::exception& error) {
    return rlock::cli::reportError(error);
  }
}
