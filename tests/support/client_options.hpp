// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/captured_log.hpp"
#include "support/eventually.hpp"
#include <rlock/options.hpp>

#include <chrono>
#include <string_view>

namespace rlock::test {

/// For a client of a test: what it logs is captured, and it waits for replies for as much longer as
/// everything takes here. Times that the URI gives are kept.
[[nodiscard]] inline Options clientOptions(std::string_view uri, CapturedLog& log) {
  Options options = Options::fromUri(uri);
  const Options defaults;
  if (options.connectTimeout == defaults.connectTimeout) {
    options.connectTimeout = scaled(options.connectTimeout);
  }
  if (options.commandTimeout == defaults.commandTimeout) {
    options.commandTimeout = scaled(options.commandTimeout);
  }
  options.log = log.hook();
  options.logLevel = LogLevel::debug;
  return options;
}

}  // namespace rlock::test
