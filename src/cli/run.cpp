// SPDX-License-Identifier: Apache-2.0

// `rlock run` and `rlock try`: takes a lock, runs the command under it, and gives the lock back.
// main() calls runCommand() once, on the main thread, before there is any other.
//
// Here is the order of the parts, which each know only their own work: the Guardian is forked
// first, waitForLock() takes the lock, the ChildProcess is started, the Supervision watches over
// it, and the Announcer tells of each step. The exit status is the command's own if the command
// could be started and the lock lasted as long as was asked for. A hold that is known to be lost is
// not released here: the server may be away, and the client gives back in the background what is
// left of it.
#include "cli/announcer.hpp"
#include "cli/commands.hpp"
#include "cli/connection.hpp"
#include "cli/exit_codes.hpp"
#include "cli/release.hpp"
#include "cli/supervision.hpp"
#include "cli/waiting.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <stop_token>
#include <sys/stat.h>
#include <unistd.h>

namespace rlock::cli {

namespace {

// The variables by which the command knows of the lock. The deadline is that of the beginning: it
// moves on while this program renews the hold.
std::vector<std::string> environmentFor(const Arguments& arguments,
                                        const Held& held,
                                        int lossDescriptor) {
  using std::chrono::milliseconds;
  const auto left =
      std::chrono::floor<milliseconds>(held.lease.validUntil() - std::chrono::steady_clock::now());
  const auto deadline =
      std::chrono::floor<milliseconds>(std::chrono::system_clock::now().time_since_epoch() + left);
  std::vector<std::string> environment{
      "RLOCK_NAME=" + arguments.lock.name,
      "RLOCK_OWNER=" + held.owner,
      fmt::format("RLOCK_DEADLINE_MS={}", deadline.count()),
      fmt::format("RLOCK_LEASE_MS={}", held.span.count()),
  };
  // An outer lock's token would be taken for this one's.
  environment.push_back(held.lease.token() ? fmt::format("RLOCK_TOKEN={}", *held.lease.token())
                                           : "RLOCK_TOKEN=" + held.owner);
  // So would its pipe, although that lock is lost as well when it ends.
  environment.push_back(lossDescriptor >= 0 ? fmt::format("RLOCK_FD={}", lossDescriptor)
                                            : "RLOCK_FD");
  return environment;
}

// A pipeline's next command reads the terminal, too, from the group in which we are.
bool outputIsPipe() {
  struct stat status {};
  return ::fstat(STDOUT_FILENO, &status) == 0 && S_ISFIFO(status.st_mode);
}

Lending lendingTo(const ChildSettings& settings) {
  if (!settings.ownGroup) {
    return Lending::never;
  }
  const bool reads = !settings.noInput && ::isatty(STDIN_FILENO) == 1;
  return reads && !outputIsPipe() ? Lending::always : Lending::onRequest;
}

// Whether we are part of a command that runs under another lock. It takes two of the variables of
// environmentFor(): one alone may be another program's.
bool isUnderAnotherLock() {
  return std::getenv("RLOCK_OWNER") != nullptr && std::getenv("RLOCK_DEADLINE_MS") != nullptr;
}

// The command has ended, but the lock is to be kept until then. A signal that asks to end, and a
// loss, end that.
void keep(const Held& held,
          const SignalInbox& signals,
          std::chrono::steady_clock::time_point until) {
  const Event lost;
  const std::stop_callback told(held.lease.lostToken(), [&lost]() noexcept { lost.set(); });
  static_cast<void>(signals.readableBeforeEnd(lost.descriptor(), until));
}

// Whether the hold has lasted for its longest time. A --min-hold that is as long ends at the same
// moment, for which the reason may not be known yet.
bool isOverByMaxHold(const Lease& lease) {
  const LossReason reason = lease.lossReason();
  return reason == LossReason::maxHold ||
         (reason == LossReason::none && std::chrono::steady_clock::now() >= lease.validUntil());
}

int released(const Arguments& arguments,
             Held& held,
             const SignalInbox& signals,
             Announcer& announcer,
             int code,
             int key,
             bool kept) {
  const bool keptToTheEnd = kept && arguments.lock.maxHold && isOverByMaxHold(held.lease);
  announcer.releasing();
  const ReleaseResult result = release(held, signals, code, key);
  announcer.released(result);
  switch (result) {
    case ReleaseResult::lost:
      if (keptToTheEnd) {
        return code;
      }
      complain(kept ? "the lock was lost before --min-hold was over"
                    : "the lock was lost before the command had ended");
      return number(ExitCode::lost);
    case ReleaseResult::unknown:
      tellThatReleaseIsUnknown(held);
      return code;
    default:
      return code;
  }
}

/// How the program ends.
struct Ending {
  int code = 0;
  bool byCommand = false;  ///< the code is the command's own
  int key = 0;             ///< Supervision::endingKey()
};

// The lock was lost while it was kept. As with a loss under a command nobody waits for its release:
// the server may be away.
Ending keptUntilLost(const Arguments& arguments,
                     const Held& held,
                     Announcer& announcer,
                     const Ending& ending) {
  announcer.lost(held.lease.lossReason());
  if (arguments.lock.maxHold && isOverByMaxHold(held.lease)) {
    return ending;
  }
  complain("the lock was lost before --min-hold was over");
  return {number(ExitCode::lost), false, 0};
}

Ending runUnderLock(const Arguments& arguments,
                    Held& held,
                    const SignalInbox& signals,
                    const InheritedDescriptors& inherited,
                    Guardian& guardian,
                    Announcer& announcer) {
  const CommandChoice& choice = arguments.command;
  ChildSettings settings;
  settings.argv = choice.argv;
  if (choice.shell) {
    settings.argv = {"/bin/sh", "-c"};
    settings.argv.insert(settings.argv.end(), choice.argv.begin(), choice.argv.end());
  }
  settings.environment = environmentFor(arguments, held, announcer.lossDescriptor());
  settings.descriptor = announcer.lossDescriptor();
  settings.ownGroup = !choice.foreground;
  settings.noInput = arguments.noStdin;

  const auto keepUntil = choice.minHold.deadlineFrom(std::chrono::steady_clock::now());
  const TerminalLoan terminal(lendingTo(settings));
  guardian.setKillTime(planLoss(held.lease.validUntil(), held.span, choice.killAfter).killAt);
  Ending ending;
  bool lost = false;
  bool kept = false;
  try {
    ChildProcess child(settings, signals, inherited, terminal, guardian);
    announcer.started(child.pid());
    Supervision supervision(choice, held, child, signals, terminal, guardian, announcer);
    ending.code = supervision.run();
    ending.key = supervision.endingKey();
    lost = supervision.ended();
    ending.byCommand = !lost;
    kept = !supervision.askedToEnd() && std::chrono::steady_clock::now() < keepUntil;
  } catch (const CannotStart& error) {
    complain(error.what());
    ending.code = number(error.error() == ENOENT ? ExitCode::notFound : ExitCode::cannotExecute);
  }
  if (lost) {
    // A rest of it is given back in the background, if there is one: the server may be away.
    return ending;
  }
  if (kept) {
    // Nothing is left to be killed, so that the guardian need not look.
    guardian.setKillTime(std::chrono::steady_clock::time_point::max());
    keep(held, signals, keepUntil);
    if (held.lease.lostToken().stop_requested()) {
      return keptUntilLost(arguments, held, announcer, ending);
    }
  }
  const int code = released(arguments, held, signals, announcer, ending.code, ending.key, kept);
  return code == ending.code ? ending : Ending{code, false};
}

}  // namespace

int runCommand(const Arguments& arguments) {
  const CommandChoice& choice = arguments.command;
  if (choice.events > 0 && !takesEvents(choice.events)) {
    complain(fmt::format("--events: descriptor {} is not open for writing", choice.events));
    return number(ExitCode::usage);
  }
  // In this order: what is open belongs to our caller; the guardian is forked from a process with
  // one thread, and must not inherit the pipe of the announcer.
  const InheritedDescriptors inherited;
  const SignalInbox signals;
  // The outer lock may be another's as soon as its rlock has killed us, for which it has given the
  // command the time that it gives.
  Guardian guardian(isUnderAnotherLock() ? std::chrono::milliseconds(0) : choice.killAfter);
  Announcer announcer(choice.events, choice.lossDescriptor);
  Ending ending;
  {
    const auto began = std::chrono::steady_clock::now();
    WaitOutcome outcome =
        waitForLock(arguments, labelFor(arguments.lock, shownCommand(choice)), signals);
    if (outcome.held) {
      announcer.held(
          *outcome.held,
          std::chrono::floor<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began));
      ending = runUnderLock(arguments, *outcome.held, signals, inherited, guardian, announcer);
    } else {
      ending.code = outcome.code;
    }
  }
  announcer.exiting(ending.code, ending.byCommand);
  if (ending.key != 0) {
    signals.endGroupBy(ending.key);
  }
  return ending.code;
}

}  // namespace rlock::cli
