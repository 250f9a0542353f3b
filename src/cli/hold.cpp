// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/connection.hpp"
#include "cli/duration_text.hpp"
#include "cli/exit_codes.hpp"
#include "cli/lock_text.hpp"
#include "cli/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <stop_token>
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
  std::fflush(stdout);
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
  const Event lost;
  const std::stop_callback told(held.lease.lostToken(), [&lost]() noexcept { lost.set(); });
  for (;;) {
    const bool isOthers = !arguments.noStdin && inputIsOthers();
    std::array<pollfd, 3> watched{{{signals.descriptor(), POLLIN, 0},
                                   {lost.descriptor(), POLLIN, 0},
                                   {arguments.noStdin || isOthers ? -1 : STDIN_FILENO, POLLIN, 0}}};
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
    if (!isLost && held.lease.release() != ReleaseResult::lost) {
      return 0;
    }
    complain(fmt::format(
        "lock \"{}\" was lost: {}",
        detail::escapeForDisplay(arguments.lock.name),
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
  for (;;) {
    const auto info = client.inspect(arguments.lock.name);
    if (isFree(info)) {
      return 0;
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
