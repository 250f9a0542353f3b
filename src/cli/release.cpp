// SPDX-License-Identifier: Apache-2.0
#include "cli/release.hpp"

#include "cli/connection.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace rlock::cli {

namespace {

// Whether the answer comes before nobody wants to wait for it any more.
bool answered(const Event& done, const SignalInbox& signals) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience(1);
  // The first signal may be the one that has ended the command, too, and be older than the release.
  return signals.readableBeforeEnd(done.descriptor(), Clock::time_point::max()) ||
         signals.readableBeforeEnd(done.descriptor(), Clock::now() + kPatience);
}

}  // namespace

ReleaseResult release(Held& held, const SignalInbox& signals, int code) {
  const Event done;
  ReleaseResult result = ReleaseResult::unknown;
  std::thread call([&]() noexcept {
    result = held.lease.release();
    done.set();
  });
  if (!answered(done, signals)) {
    // The call cannot be ended.
    tellThatReleaseIsUnknown(held);
    std::fflush(stderr);
    std::_Exit(code);
  }
  call.join();
  return result;
}

void tellThatReleaseIsUnknown(const Held& held) {
  complain(
      fmt::format("the server has not confirmed the release; the lock is free in {} ms at most",
                  held.span.count()));
}

}  // namespace rlock::cli
