// SPDX-License-Identifier: Apache-2.0

// `rlock hold` and `rlock wait`, for scripts that do not run one command under the lock. main()
// calls one of the two, on the main thread, and ends with the exit code that it returns.
//
// holdCommand() takes the lock, says so on standard output, and sleeps until the input ends, a
// signal asks to end, or the lock is lost; the client's own threads renew the hold meanwhile.
// Unless it is lost, the hold is released, and the answer awaited, before the function returns. The
// input is read only to find its end, and not at all where it is /dev/null or the terminal of
// another job.
//
// waitCommand() takes nothing: it looks at the lock until it is free, with pauses of half a second
// at most. Another owner may have taken it by the time it returns.
#include "cli/commands.hpp"
#include "cli/connection.hpp"
#include "cli/duration_text.hpp"
#include "cli/exit_codes.hpp"
#include "cli/lock_text.hpp"
#include "cli/release.hpp"
#include "cli/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <poll.h>
#include <stop_token>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace rlock::cli {

namespace {

void printHeld(const Arguments& arguments, const Held& held) {
  if (arguments.json) {
    nlohmann::ordered_json line{{"name", arguments.lock.name}, {"owner", held.owner}};
    if (held.lease.token()) {
      line["token"] = *held.lease.token();
    }
    line["leaseMs"] = held.span.count();
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("held {} owner {}{}\n",
               detail::escapeForDisplay(arguments.lock.name),
               held.owner,
               held.lease.token() ? fmt::format(" token {}", *held.lease.token()) : "");
  }
  flushOutput();
}

// A shell without job control, a timer and a service manager give /dev/null to what they start.
// Were its end the end of the hold, nothing would be held at all. An input that our caller has
// closed stays one that has ended: main() has put /dev/null in its place, not to be read.
bool inputIsNull() {
  struct stat input {};
  struct stat null {};
  return (::fcntl(STDIN_FILENO, F_GETFL) & O_ACCMODE) != O_WRONLY &&
         ::fstat(STDIN_FILENO, &input) == 0 && ::stat("/dev/null", &null) == 0 &&
         S_ISCHR(input.st_mode) && input.st_rdev == null.st_rdev;
}

// A terminal whose foreground is another group: what is typed there is not for us.
bool inputIsOthers() {
  const pid_t foreground = ::tcgetpgrp(STDIN_FILENO);
  return foreground >= 0 && foreground != ::getpgrp();
}

// Reading a terminal from its background is an error then, and does not stop us.
void refuseToBeStoppedByInput() {
  sigset_t reading;
  sigemptyset(&reading);
  sigaddset(&reading, SIGTTIN);
  ::pthread_sigmask(SIG_BLOCK, &reading, nullptr);
}

// Whether there is no more input; what is read is of no interest.
bool inputEnded() {
  std::array<char, 4096> ignored{};
  const ssize_t got = ::read(STDIN_FILENO, ignored.data(), ignored.size());
  // Race: the shell may have taken the terminal since it was found readable.
  return got == 0 || (got < 0 && !(errno == EIO && inputIsOthers()));
}

bool isOutage(Errc errc) {
  return errc == Errc::connectionFailed || errc == Errc::timedOut;
}

}  // namespace

int holdCommand(const Arguments& arguments) {
  const SignalInbox signals;
  refuseToBeStoppedByInput();
  WaitOutcome outcome = waitForLock(arguments, labelFor(arguments.lock, "rlock hold"), signals);
  if (!outcome.held) {
    return outcome.code;
  }
  Held& held = *outcome.held;
  printHeld(arguments, held);
  const bool hasInput = !arguments.noStdin && !inputIsNull();
  const Event lost;
  const std::stop_callback told(held.lease.lostToken(), [&lost]() noexcept { lost.set(); });
  for (;;) {
    const bool isOthers = hasInput && inputIsOthers();
    std::array<pollfd, 3> watched{{{signals.descriptor(), POLLIN, 0},
                                   {lost.descriptor(), POLLIN, 0},
                                   {!hasInput || isOthers ? -1 : STDIN_FILENO, POLLIN, 0}}};
    // A shell does not say when it brings a job that runs to the foreground.
    ::poll(watched.data(), watched.size(), isOthers ? 1000 : -1);
    bool ends = watched[2].revents != 0 && inputEnded();
    while (const auto signal = signals.next()) {
      ends |= SignalInbox::asksToEnd(signal->signal);
      if (signal->signal == SIGTSTP) {
        signals.suspend(SignalInbox::Reach::process);
      }
    }
    const bool isLost = watched[1].revents != 0;
    if (!ends && !isLost) {
      continue;
    }
    // The release empties the lease, and has no reason for a loss that nobody has noticed before.
    const LossReason reason = held.lease.lossReason();
    const ReleaseResult result = isLost ? ReleaseResult::lost : release(held, signals, 0, 0);
    if (result == ReleaseResult::unknown) {
      tellThatReleaseIsUnknown(held);
    }
    if (result != ReleaseResult::lost) {
      return 0;
    }
    complain(fmt::format(
        "{} was lost: {}",
        shownNames(arguments.lock),
        reason == LossReason::none ? "it was gone before it was released" : toString(reason)));
    return number(ExitCode::lost);
  }
}

int waitCommand(const Arguments& arguments) {
  using std::chrono::milliseconds;
  Client client = connectClient(arguments);
  const auto deadline =
      arguments.lock.wait.value_or(Duration::max()).deadlineFrom(std::chrono::steady_clock::now());
  milliseconds pause(20);
  bool answered = false;
  for (;;) {
    try {
      const auto info = client.inspect(arguments.lock.name);
      if (isFree(info)) {
        return 0;
      }
      answered = true;
    } catch (const Error& error) {
      // An outage is a part of the wait, as of that for a lock, once the server has been there.
      if (!answered || !isOutage(error.errc())) {
        throw;
      }
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return arguments.lock.conflictCode;
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - now);
    std::this_thread::sleep_for(std::min(pause, left));
    pause = std::min(pause * 2, milliseconds(500));
  }
}

}  // namespace rlock::cli
