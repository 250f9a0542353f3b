// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/error.hpp>

namespace rlock::cli {

/// The ways in which the program itself ends. The exit code of a command that it runs is passed on,
/// so these are numbers that commands rarely use (the names are those of sysexits.h where it has
/// one).
enum class ExitCode : int {
  success = 0,
  failure = 1,         ///< the answer is no: `show`, `unlock` of a free name, `doctor` with a fault
  usage = 64,          ///< the command line is wrong
  unreachable = 69,    ///< no server could be reached
  internal = 70,       ///< the system refused something, such as a new process
  notAcquired = 75,    ///< another owner held the lock all the time
  protocol = 76,       ///< the server cannot do what is needed, or is none
  denied = 77,         ///< password or access rules
  configuration = 78,  ///< configuration file, or settings that do not fit those on the server
  lost = 79,           ///< the lock was lost, or its time was over, before the command had ended
  cannotExecute = 126,
  notFound = 127,
};

[[nodiscard]] constexpr int number(ExitCode code) noexcept {
  return static_cast<int>(code);
}

/// The exit code that stands for a process that was ended by a signal.
[[nodiscard]] constexpr int numberOfSignal(int signal) noexcept {
  return 128 + signal;
}

/// The code for a call that failed.
[[nodiscard]] constexpr ExitCode exitCodeOf(Errc errc) noexcept {
  switch (errc) {
    case Errc::timedOut:
    case Errc::connectionFailed:
    case Errc::noQuorum:
      return ExitCode::unreachable;
    case Errc::authenticationFailed:
    case Errc::denied:
      return ExitCode::denied;
    case Errc::invalidArgument:
      return ExitCode::usage;
    case Errc::notOwner:
      return ExitCode::lost;
    case Errc::wrongType:
    case Errc::outOfMemory:
    case Errc::readOnly:
    case Errc::notSynced:
    case Errc::serverError:
    case Errc::protocolError:
      return ExitCode::protocol;
    default:
      return ExitCode::internal;
  }
}

}  // namespace rlock::cli
