// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/connection.hpp"
#include "cli/exit_codes.hpp"
#include "cli/lock_text.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <unistd.h>

namespace rlock::cli {

namespace {

/// Every key that matches is looked at, and a server may have millions.
constexpr std::chrono::minutes kLongestWalk{1};

std::chrono::sys_seconds timeOfDay() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

}  // namespace

int showCommand(const Arguments& arguments) {
  Client client = connectClient(arguments);
  const auto info = client.inspect(arguments.lock.name);
  if (arguments.json) {
    fmt::print("{}\n", info ? jsonOfLock(*info) : "null");
  } else if (info) {
    fmt::print("{}", describeLock(*info, timeOfDay(), Style(arguments.color, STDOUT_FILENO)));
  } else {
    fmt::print("{}  free\n", detail::escapeForDisplay(arguments.lock.name));
  }
  return number(info ? ExitCode::success : ExitCode::failure);
}

int listCommand(const Arguments& arguments) {
  Options options = clientOptions(arguments, arguments.uri);
  if (options.callTimeout == std::chrono::milliseconds::zero()) {
    options.callTimeout = kLongestWalk;
  }
  Client client = Client::connect(options);
  // It asks about many names at once.
  const auto locks = client.listAsync(arguments.pattern).toFuture().get();
  if (arguments.json) {
    fmt::print("{}\n", jsonOfLocks(locks));
  } else if (arguments.namesOnly) {
    // Others chose the names; what reads them from a pipe needs them as they are.
    const bool terminal = ::isatty(STDOUT_FILENO) == 1;
    for (const LockInfo& info : locks) {
      fmt::print("{}\n",
                 terminal ? detail::escapeForDisplay(info.name, std::string::npos) : info.name);
    }
  } else if (locks.empty()) {
    complain("no locks");
  } else {
    fmt::print("{}", tableOfLocks(locks, timeOfDay(), Style(arguments.color, STDOUT_FILENO)));
  }
  return 0;
}

}  // namespace rlock::cli
