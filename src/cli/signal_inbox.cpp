// SPDX-License-Identifier: Apache-2.0
#include "cli/signal_inbox.hpp"

#include <cerrno>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>

namespace rlock::cli {

namespace {

// Poll's limit for the time that is left: a minute at most, after which it is asked again.
int untilMs(std::chrono::steady_clock::time_point until) {
  using std::chrono::milliseconds;
  const auto now = std::chrono::steady_clock::now();
  if (now >= until) {
    return 0;
  }
  constexpr milliseconds kMost(60'000);
  return static_cast<int>(
      until - now >= kMost ? kMost.count() : std::chrono::ceil<milliseconds>(until - now).count());
}

}  // namespace

SignalInbox::SignalInbox() {
  // With an inherited SIG_IGN there would be nothing to wait for.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &originalChild_);
  ::sigaction(SIGPIPE, nullptr, &originalPipe_);

  sigset_t read;
  sigemptyset(&read);
  sigaddset(&read, SIGCHLD);
  for (const int signal :
       {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGWINCH}) {
    struct sigaction present {};
    ::sigaction(signal, nullptr, &present);
    if (present.sa_handler != SIG_IGN) {
      sigaddset(&read, signal);
    }
  }
  sigset_t blocked = read;
  // Giving the terminal to another group is a write of a background process.
  sigaddset(&blocked, SIGTTOU);
  // Nobody reads our messages any more: that must not end us while a command runs.
  sigaddset(&blocked, SIGPIPE);
  if (::pthread_sigmask(SIG_BLOCK, &blocked, &original_) != 0) {
    throw std::system_error(errno, std::generic_category(), "pthread_sigmask");
  }
  descriptor_ = Descriptor(::signalfd(-1, &read, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_) {
    throw std::system_error(errno, std::generic_category(), "signalfd");
  }
}

std::optional<SignalInbox::Arrival> SignalInbox::next() const noexcept {
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) {
    return std::nullopt;
  }
  return Arrival{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
}

bool SignalInbox::readableBeforeEnd(int descriptor,
                                    std::chrono::steady_clock::time_point until) const noexcept {
  for (;;) {
    pollfd watched[] = {{descriptor, POLLIN, 0}, {descriptor_.get(), POLLIN, 0}};
    ::poll(watched, 2, untilMs(until));
    if (watched[0].revents != 0) {
      return true;
    }
    while (const auto arrival = next()) {
      if (asksToEnd(arrival->signal)) {
        return false;
      }
      if (arrival->signal == SIGTSTP) {
        suspend(Reach::process);
      }
    }
    if (std::chrono::steady_clock::now() >= until) {
      return false;
    }
  }
}

void SignalInbox::raiseByDefault(int signal, Reach reach) noexcept {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  struct sigaction present {};
  ::sigaction(signal, &standard, &present);
  ::kill(reach == Reach::group ? 0 : ::getpid(), signal);
  // All other threads block it, so that it takes effect here and now.
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, &before);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::sigaction(signal, &present, nullptr);
}

bool SignalInbox::suspend(Reach reach) const noexcept {
  // A stop takes a pending SIGCONT away, so that one that is pending afterwards has ended it.
  raiseByDefault(SIGTSTP, reach);
  sigset_t pending;
  return ::sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

void SignalInbox::endGroupBy(int signal) const noexcept {
  // The command's memory may be of interest, ours is not.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  raiseByDefault(signal, Reach::group);
}

void SignalInbox::restoreInChild() const noexcept {
  ::sigaction(SIGCHLD, &originalChild_, nullptr);
  ::sigaction(SIGPIPE, &originalPipe_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &original_, nullptr);
}

}  // namespace rlock::cli
