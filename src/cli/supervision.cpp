// SPDX-License-Identifier: Apache-2.0
#include "cli/supervision.hpp"

#include "cli/connection.hpp"
#include "cli/exit_codes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <poll.h>
#include <stop_token>

namespace rlock::cli {

using std::chrono::milliseconds;

Supervision::Supervision(const CommandChoice& choice,
                         const Held& held,
                         ChildProcess& child,
                         const SignalInbox& signals,
                         const TerminalLoan& terminal,
                         Guardian& guardian,
                         Announcer& announcer)
    : choice_(choice),
      held_(held),
      child_(child),
      signals_(signals),
      terminal_(terminal),
      guardian_(guardian),
      announcer_(announcer) {}

int Supervision::run() {
  const std::stop_callback told(held_.lease.lostToken(), [this]() noexcept { lost_.set(); });
  for (;;) {
    look();
    watchGuardian();
    pollfd watched[] = {{signals_.descriptor(), POLLIN, 0},
                        {killed_ ? -1 : lost_.descriptor(), POLLIN, 0}};
    ::poll(watched, 2, untilNextLookMs());
    forward();
    const auto change = child_.change();
    if (!change) {
      continue;
    }
    if (change->stopped) {
      followStop(change->signal);
      continue;
    }
    if (killAt_) {
      // Processes that the command has started may have outlived it.
      child_.send(SIGKILL);
    }
    guardian_.setTarget(0);
    noteEndingKey(*change);
    child_.reap();
    announcer_.ended(change->code);
    return killAt_ ? number(ExitCode::lost) : change->code;
  }
}

// Renewals move the plan on; the guardian has to know.
void Supervision::look() {
  const auto now = Clock::now();
  plan_ = planLoss(held_.lease.validUntil(), held_.span, choice_.killAfter);
  if (held_.lease.lostToken().stop_requested()) {
    if (!killed_) {
      // Another owner may have the lock already. The words come last: standard error may be a pipe
      // that is full.
      const bool told = killAt_.has_value();
      killAt_ = now;
      const bool reached = kill();
      announcer_.lost(held_.lease.lossReason());
      if (!reached) {
        tellThatItRunsOn(lossText());
      } else if (!told) {
        complain(lossText() + "; the command is killed");
      }
    }
    return;
  }
  guardian_.setKillTime(killAt_ ? std::min(*killAt_, plan_.killAt) : plan_.killAt);
  if (!killAt_ && now >= plan_.terminateAt) {
    beginEnding();
  }
  if (killAt_ && !killed_ && now >= *killAt_ && !kill()) {
    tellThatItRunsOn("the lock's time is over");
  }
}

// A new one cannot be forked beside the threads that there are by now.
void Supervision::watchGuardian() {
  if (!saidThatItIsUnguarded_ && guardian_.hasEnded()) {
    // There is nobody to end the command while we wait for a reader.
    saidThatItIsUnguarded_ = complainWithoutWaiting(
        "the guardian was killed; if rlock is killed or stopped now, the command runs on without "
        "the lock");
  }
}

void Supervision::forward() {
  while (const auto arrival = signals_.next()) {
    switch (arrival->signal) {
      case SIGCHLD:
        break;
      case SIGCONT:
        // The shell has put us into the foreground again, or the background.
        if (terminal_.ours()) {
          terminal_.lend(child_.pid());
        }
        child_.send(SIGCONT);
        break;
      default:
        askedToEnd_ = askedToEnd_ || SignalInbox::asksToEnd(arrival->signal);
        // A command in our own group has got the terminal's signals already.
        if (!choice_.foreground || !arrival->fromTerminal) {
          passOn(arrival->signal);
        }
    }
  }
}

void Supervision::passOn(int signal) {
  const bool reached = child_.send(signal);
  if (!SignalInbox::asksToEnd(signal)) {
    return;
  }
  if (stranded_) {
    // Nobody else continues it, so that it would never see the signal.
    child_.send(SIGCONT);
  }
  if (!reached && !saidThatSignalsFail_) {
    saidThatSignalsFail_ = complainWithoutWaiting(
        "the command belongs to another user, and does not get the signal that rlock got");
  }
}

// A shell script in whose foreground the command ran has not seen the key, and would go on.
void Supervision::noteEndingKey(const ChildProcess::Change& change) {
  const bool key = change.signal == SIGINT || change.signal == SIGQUIT;
  if (key && terminal_.lentTo(child_.pid()) && !askedToEnd_ && !killAt_) {
    endingKey_ = change.signal;
  }
}

void Supervision::beginEnding() {
  killAt_ = plan_.killAt;
  const bool reached = child_.send(SIGTERM);
  // A stopped process sees the signal when it continues.
  child_.send(SIGCONT);
  announcer_.ending();
  // After the signals, for the words may have to wait until somebody reads standard error.
  if (reached) {
    complain("the lock's time is nearly over; the command is told to end");
  } else {
    tellThatItRunsOn("the lock's time is nearly over");
  }
}

bool Supervision::kill() {
  killed_ = true;
  return child_.send(SIGKILL);
}

// Nothing protects what the command does from now on.
void Supervision::tellThatItRunsOn(const std::string& why) {
  if (!saidThatItRunsOn_) {
    saidThatItRunsOn_ = true;
    saidThatSignalsFail_ = true;
    complain(why +
             "; the command belongs to another user, cannot be signalled, and runs on without it");
  }
}

// Job control: the user's shell has to see that the job has stopped. We stop like the command, and
// nothing renews the hold meanwhile; the guardian ends the command when the hold does.
void Supervision::followStop(int signal) {
  if (!terminal_.exists() || killAt_) {
    return;
  }
  const bool wantsTerminal = signal == SIGTTIN || signal == SIGTTOU;
  if (wantsTerminal && terminal_.lendable()) {
    // The command asks for a password, say, beside its redirected streams; or the shell has put a
    // job that runs into the foreground, which it does without a word.
    terminal_.lend(child_.pid());
    child_.send(SIGCONT);
    return;
  }
  // A key of the terminal would have stopped all of our group, such as the script that we are in,
  // and so would the terminal if the command were in it.
  const bool lent = terminal_.lentTo(child_.pid());
  const bool all = lent || wantsTerminal;
  terminal_.takeBack(child_.pid());
  if (signals_.suspend(all ? SignalInbox::Reach::group : SignalInbox::Reach::process)) {
    return;
  }
  // There is nobody who could continue us.
  if (wantsTerminal && !lent) {
    // It would be stopped again at once, and again.
    stranded_ = true;
    complainWithoutWaiting(
        "the command is stopped: it wants the terminal, which others have, and there is no shell "
        "that could give it");
    return;
  }
  if (lent) {
    terminal_.lend(child_.pid());
  }
  child_.send(SIGCONT);
}

int Supervision::untilNextLookMs() const {
  const auto now = Clock::now();
  // Often enough that the guardian knows of each renewal well before the old end.
  auto next =
      now + std::max<milliseconds>(std::min<milliseconds>(held_.span / 10, milliseconds(2000)),
                                   milliseconds(5));
  if (!killed_) {
    next = std::min(next, killAt_.value_or(plan_.terminateAt));
  }
  const auto left = std::chrono::ceil<milliseconds>(next - now);
  return static_cast<int>(std::max<milliseconds::rep>(0, left.count()));
}

std::string Supervision::lossText() const {
  const LossReason reason = held_.lease.lossReason();
  switch (reason) {
    case LossReason::forced:
      return "the lock was taken away by force";
    case LossReason::refused:
      return "the lock is gone from the server";
    case LossReason::failover:
      return "the server was replaced by one that does not know the lock";
    case LossReason::maxHold:
      return "the longest time for holding the lock is over";
    case LossReason::unreachable:
      return "the lock could not be renewed in time";
    default:
      return fmt::format("the lock was lost ({})", toString(reason));
  }
}

}  // namespace rlock::cli
