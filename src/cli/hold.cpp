// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/connection.hpp"
#include "cli/duration_text.hpp"
#include "cli/exit_codes.hpp"
#include "cli/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

// Whether there is no more input; what is read is of no interest.
bool inputEnded() {
  std::array<char, 4096> ignored{};
  return ::read(STDIN_FILENO, ignored.data(), ignored.size()) <= 0;
}

}  // namespace

int holdCommand(const Arguments& arguments) {
  const SignalInbox signals;
  WaitOutcome outcome = waitForLock(arguments, labelFor(arguments.lock, "rlock hold"), signals);
  if (!outcome.held) {
    return outcome.code;
  }
  Held& held = *outcome.held;
  printHeld(arguments, held);
  const Event lost;
  const std::stop_callback told(held.lease.lostToken(), [&lost]() noexcept { lost.set(); });
  for (;;) {
    std::array<pollfd, 3> watched{{{signals.descriptor(), POLLIN, 0},
                                   {lost.descriptor(), POLLIN, 0},
                                   {arguments.noStdin ? -1 : STDIN_FILENO, POLLIN, 0}}};
    ::poll(watched.data(), watched.size(), -1);
    bool ends = watched[2].revents != 0 && inputEnded();
    while (const auto signal = signals.next()) {
      ends |= SignalInbox::asksToEnd(*signal);
      if (*signal == SIGTSTP) {
        ::raise(SIGSTOP);
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
    if (!info || info->holders.empty()) {
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
