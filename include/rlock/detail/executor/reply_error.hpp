// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/error.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace rlock::detail {

/// The reaction to an error reply. The server has not executed the command in any of these cases.
enum class ErrorAction : std::uint8_t {
  fatal,     ///< tell the caller
  retry,     ///< a passing state of the server: the same command may work in a moment
  reload,    ///< the server does not know the script: send its text
  redirect,  ///< another node has the key
};

struct ErrorClass {
  std::string_view word;
  ErrorAction action;
  Errc errc;
};

/// The one table of error replies, by their first word.
inline constexpr std::array<ErrorClass, 19> kErrorClasses{{
    {"NOSCRIPT", ErrorAction::reload, Errc::serverError},
    {"MOVED", ErrorAction::redirect, Errc::serverError},
    {"ASK", ErrorAction::redirect, Errc::serverError},
    {"TRYAGAIN", ErrorAction::retry, Errc::serverError},
    {"CLUSTERDOWN", ErrorAction::retry, Errc::connectionFailed},
    {"LOADING", ErrorAction::retry, Errc::connectionFailed},
    {"BUSY", ErrorAction::retry, Errc::serverError},
    {"MASTERDOWN", ErrorAction::retry, Errc::connectionFailed},
    {"READONLY", ErrorAction::retry, Errc::readOnly},
    {"NOREPLICAS", ErrorAction::retry, Errc::notSynced},
    {"MISCONF", ErrorAction::fatal, Errc::serverError},
    // The transport gives such a connection up, and authenticates the next one.
    {"NOAUTH", ErrorAction::retry, Errc::authenticationFailed},
    {"WRONGPASS", ErrorAction::fatal, Errc::authenticationFailed},
    {"NOPERM", ErrorAction::fatal, Errc::denied},
    {"WRONGTYPE", ErrorAction::fatal, Errc::wrongType},
    {"OOM", ErrorAction::fatal, Errc::outOfMemory},
    {"CROSSSLOT", ErrorAction::fatal, Errc::invalidArgument},
    {"NON_REENTRANT_REACQUIRE", ErrorAction::fatal, Errc::reentry},
    {"RLOCKUPGRADE", ErrorAction::fatal, Errc::wouldDeadlock},
}};

/// Classifies the text of an error reply. Older servers wrap what a script raised into an ERR of
/// their own, or begin what it returned with its line ("@user_script: 30: ..."), so words are
/// looked for inside such texts; a script that its user may not run in full is reported without a
/// code of its own.
inline ErrorClass classifyError(std::string_view text) noexcept {
  const std::string_view first = text.substr(0, text.find(' '));
  for (const ErrorClass& known : kErrorClasses) {
    if (first == known.word) {
      return known;
    }
  }
  const bool fromScript = text.find("script") != std::string_view::npos;
  if ((first == "ERR" && fromScript) || first == "@user_script:") {
    // Redis 6 to 7.2; Redis 7.4, 8 and Valkey.
    if (text.find("executing the script can't") != std::string_view::npos ||
        text.find("ACL failure in script") != std::string_view::npos) {
      return {first, ErrorAction::fatal, Errc::denied};
    }
    for (const ErrorClass& known : kErrorClasses) {
      const auto at = text.find(known.word);
      // A whole word: "-OOM command", ": WRONGTYPE Operation".
      if (at != std::string_view::npos && at > 0 && (text[at - 1] == ' ' || text[at - 1] == '-') &&
          text.substr(at + known.word.size(), 1) == " ") {
        return known;
      }
    }
  }
  return {first, ErrorAction::fatal, Errc::serverError};
}

/// Whether a failure that the server reports of a whole request may concern one key of many.
inline bool mayConcernOneKey(Errc errc) noexcept {
  switch (errc) {
    case Errc::denied:
    case Errc::wrongType:
    case Errc::invalidArgument:
    case Errc::serverError:
      return true;
    default:
      return false;
  }
}

}  // namespace rlock::detail
