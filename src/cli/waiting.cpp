// SPDX-License-Identifier: Apache-2.0
#include "cli/waiting.hpp"

#include "cli/connection.hpp"
#include "cli/exit_codes.hpp"
#include "cli/holder_label.hpp"
#include "cli/progress.hpp"
#include "cli/settings.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <poll.h>

namespace rlock::cli {

namespace {

// Whether the result of a call that was asked to end is there in time. It may have a grant to give
// back; but a server that does not answer must not keep us, nor a user who asks a second time.
bool endsSoon(const Acquisition& acquisition, const SignalInbox& signals) {
  constexpr std::chrono::milliseconds kPatience(3000);
  const auto patience = acquisition.connected() ? kPatience : std::chrono::milliseconds(0);
  return signals.readableBeforeEnd(acquisition.descriptor(),
                                   std::chrono::steady_clock::now() + patience);
}

// An exception on the way to the lock. @returns the exit code
int reportFailure(const std::exception& error) {
  if (dynamic_cast<const SettingsError*>(&error) != nullptr) {
    complain(error.what());
    return number(ExitCode::configuration);
  }
  return reportError(error);
}

}  // namespace

std::string shownNames(const LockChoice& lock) {
  std::string text = fmt::format("lock \"{}\"", detail::escapeForDisplay(lock.name));
  for (const std::string& name : lock.also) {
    text += fmt::format(", \"{}\"", detail::escapeForDisplay(name));
  }
  return text;
}

std::string shownCommand(const CommandChoice& command) {
  return command.shell ? "sh" : command.argv.front();
}

std::string labelFor(const LockChoice& lock, const std::string& command) {
  if (lock.noLabel) {
    return {};
  }
  const std::string text =
      lock.label.empty() ? command.substr(command.find_last_of('/') + 1) : lock.label;
  return composeLabel(ownLabel(text));
}

WaitOutcome waitForLock(const Arguments& arguments,
                        const std::string& label,
                        const SignalInbox& signals) {
  Acquisition acquisition(arguments, label);
  Progress progress(arguments);
  for (;;) {
    pollfd watched[] = {{acquisition.descriptor(), POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
    ::poll(watched, 2, progress.untilNextTickMs());
    while (const auto signal = signals.next()) {
      if (SignalInbox::asksToEnd(signal->signal)) {
        progress.clear();
        acquisition.stop();
        if (!endsSoon(acquisition, signals)) {
          // A thread is in a call that cannot be ended: nothing is held, or it will expire.
          std::fflush(stderr);
          std::_Exit(numberOfSignal(signal->signal));
        }
        try {
          if (auto held = acquisition.result()) {
            held->lease.release();
          }
        } catch (const std::exception&) {
          // Cancelled, as asked.
        }
        return {std::nullopt, numberOfSignal(signal->signal)};
      }
      if (signal->signal == SIGTSTP) {
        progress.clear();
        signals.suspend(SignalInbox::Reach::process);
      }
    }
    if ((watched[0].revents & POLLIN) != 0) {
      break;
    }
    progress.tick(acquisition);
  }
  progress.clear();
  try {
    if (auto held = acquisition.result()) {
      return {std::move(held), 0};
    }
    if (arguments.verbose || arguments.lock.wait != Duration::zero()) {
      complain(shownNames(arguments.lock) + ": held by another, given up");
    }
    return {std::nullopt, arguments.lock.conflictCode};
  } catch (const std::exception& error) {
    return {std::nullopt, reportFailure(error)};
  }
}

}  // namespace rlock::cli
