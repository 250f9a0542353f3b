// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/connection.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>
#include <string_view>
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

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto parsed = rlock::cli::parseArguments({argv + (argc > 0 ? 1 : 0), argv + argc});
    if (!parsed.arguments) {
      fmt::print("{}", parsed.ended.output);
      fmt::print(stderr, "{}", parsed.ended.error);
      return parsed.ended.code;
    }
    return carryOut(*parsed.arguments);
  } catch (const std::exception& error) {
    return rlock::cli::reportError(error);
  }
}
