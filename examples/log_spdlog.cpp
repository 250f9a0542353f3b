// SPDX-License-Identifier: Apache-2.0
// The log goes to spdlog, which has its own levels, formats and files.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <iostream>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <string_view>

namespace {

spdlog::level::level_enum levelOf(rlock::LogLevel level) {
  switch (level) {
    case rlock::LogLevel::trace:
      return spdlog::level::trace;
    case rlock::LogLevel::debug:
      return spdlog::level::debug;
    case rlock::LogLevel::info:
      return spdlog::level::info;
    case rlock::LogLevel::warning:
      return spdlog::level::warn;
    case rlock::LogLevel::error:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    // The sink has a mutex: the hook is called by several threads.
    const auto logger = spdlog::stdout_logger_mt("rlock");
    logger->set_level(spdlog::level::debug);
    rlock::Options options = rlock::Options::fromUri(serverUri(argc, argv));
    options.logLevel = rlock::LogLevel::debug;
    options.log = [logger](rlock::LogLevel level, std::string_view line) {
      // Not as a format: a name may have braces.
      logger->log(levelOf(level), "{}", line);
    };
    auto client = rlock::Client::connect(options);
    auto lock = client.getLock("example:{spdlog}");
    lock.lock();
    lock.unlock();
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
