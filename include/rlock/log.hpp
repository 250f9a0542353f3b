// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>

#include <functional>
#include <string_view>

namespace rlock {

/// How much a log line matters, from the least on.
enum class LogLevel {
  trace,    ///< nothing more than debug
  debug,    ///< every change of state
  info,     ///< connections made
  warning,  ///< something failed that the library will try to repair
  error,    ///< a loss: a hold was lost, or a release must wait for expiry
};

/// The enumerator's name; "unknown" for any other number.
RLOCK_EXPORT std::string_view toString(LogLevel level) noexcept;

/// Receives every log line that is not below `Options::logLevel`: one line of text without a line
/// end. It is called from any thread, by several at once, and must not block or call back into the
/// library. An exception that it throws is swallowed. Credentials never appear in a line.
using LogHook = std::function<void(LogLevel, std::string_view)>;

namespace detail {

/// Hands log lines to the user's hook, or to stderr.
///
/// **Thread safety:** Immutable, safe from any thread.
class RLOCK_EXPORT Logger {
 public:
  /// @param hook  empty = lines of at least `warning` go to stderr as `rlock: warning: text`
  /// @param min   lines below this level are dropped
  explicit Logger(LogHook hook = {}, LogLevel min = LogLevel::info);

  /// Whether lines of this level are written; ask before formatting an expensive line.
  bool enabled(LogLevel level) const noexcept { return level >= min_; }

  /// Writes a line. Never throws, whatever the hook does.
  void write(LogLevel level, std::string_view text) const noexcept;

 private:
  LogHook hook_;
  LogLevel min_;
};

}  // namespace detail
}  // namespace rlock
