// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/acquisition.hpp"
#include "cli/arguments.hpp"
#include "cli/signal_inbox.hpp"

#include <optional>
#include <string>

namespace rlock::cli {

/// Waits for the lock and tells of the wait. A signal that asks to end withdraws the wait.
/// @returns the hold, or else the exit code, after a message
struct WaitOutcome {
  std::optional<Held> held{};
  int code = 0;
};
[[nodiscard]] WaitOutcome waitForLock(const Arguments& arguments,
                                      const std::string& label,
                                      const SignalInbox& signals);

/// The name of the lock, or the names of all, for people.
[[nodiscard]] std::string shownNames(const LockChoice& lock);

/// The program of a command, as others may see it. Of a line for the shell that is only `sh`, since
/// any word of the line may be a secret.
[[nodiscard]] std::string shownCommand(const CommandChoice& command);

/// The label for a hold of this process: the user's words or else the command's name.
[[nodiscard]] std::string labelFor(const LockChoice& lock, const std::string& command);

}  // namespace rlock::cli
