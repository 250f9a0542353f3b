// SPDX-License-Identifier: Apache-2.0
#include "cli/release.hpp"

#include "cli/connection.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>

namespace rlock::cli {

namespace {

// Whether the answer comes before nobody wants to wait for it any more.
bool answered(const Event& done, const SignalInbox& signals) {
  using std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience(1);
  // The first signal may be the one that has ended the command, too, and be older than the release.
  return signals.readableBeforeEnd(done.descriptor(), steady_clock::time_point::max()) ||
         signals.readableBeforeEnd(done.descriptor(), steady_clock::now() + kPatience);
}

}  // namespace

ReleaseResult release(Held& held, const SignalInbox& signals, int code, int key) {
  const Event done;
  ReleaseResult result = ReleaseResult::unknown;
  std::thread call;
  try {
    call = std::thread([&]() noexcept {
      result = held.lease.release();
      done.set();
    });
  } catch (const std::system_error&) {
    // The processes that the command has left behind may be all that there may be.
    return held.lease.release();
  }
  if (!answered(done, signals)) {
    // The call cannot be ended.
    tellThatReleaseIsUnknown(held);
    std::fflush(stderr);
    if (key != 0) {
      signals.endGroupBy(key);
    }
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
