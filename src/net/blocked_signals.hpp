// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

namespace rlock::detail::net {

/// A thread that starts while it lives inherits a mask without signals, so that the application's
/// handlers run on threads of the application. Signals that a thread raises by its own fault stay
/// open: blocked, they would end the process without the application's crash handler.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

 private:
  sigset_t previous_;
};

}  // namespace rlock::detail::net
