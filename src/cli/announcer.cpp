// SPDX-License-Identifier: Apache-2.0
#include "cli/announcer.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <exception>
#include <fcntl.h>
#include <iterator>
#include <poll.h>
#include <string>
#include <system_error>
#include <unistd.h>

namespace rlock::cli {

namespace {

// The lines are shorter than what a pipe takes as a whole once it says that it takes something.
void writeAtOnce(int descriptor, const std::string& line) noexcept {
  pollfd watched{descriptor, POLLOUT, 0};
  if (::poll(&watched, 1, 0) == 1 && (watched.revents & POLLOUT) != 0 &&
      ::write(descriptor, line.data(), line.size()) < 0) {
    // Nobody reads it any more.
  }
}

}  // namespace

Announcer::Announcer(int events, bool loss) : events_(events) {
  if (events_ > STDERR_FILENO) {
    // A reader that waits for its end waits for us, and not for what the command leaves behind.
    ::fcntl(events_, F_SETFD, FD_CLOEXEC);
  }
  int ends[2] = {-1, -1};
  if (loss && ::pipe2(ends, O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe");
  }
  lossRead_ = Descriptor(ends[0]);
  lossWrite_ = Descriptor(ends[1]);
}

template <class... Values>
void Announcer::tell(const char* format, const Values&... values) noexcept {
  if (events_ <= 0) {
    return;
  }
  try {
    const auto now = std::chrono::floor<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    std::string line = fmt::format("{{\"timeMs\":{},\"event\":", now.count());
    fmt::format_to(std::back_inserter(line), fmt::runtime(format), values...);
    writeAtOnce(events_, line + "}\n");
  } catch (const std::exception&) {
    // There is no memory: the command comes first.
  }
}

void Announcer::held(const Held& held, std::chrono::milliseconds waited) noexcept {
  const auto token = held.lease.token();
  if (token) {
    tell(R"("held","owner":"{}","leaseMs":{},"waitedMs":{},"token":{})",
         held.owner,
         held.span.count(),
         waited.count(),
         *token);
  } else {
    tell(R"("held","owner":"{}","leaseMs":{},"waitedMs":{})",
         held.owner,
         held.span.count(),
         waited.count());
  }
}

void Announcer::started(pid_t process) noexcept {
  tell(R"("started","pid":{})", process);
}

void Announcer::ending() noexcept {
  lossWrite_.close();
  tell(R"("ending")");
}

void Announcer::lost(LossReason reason) noexcept {
  lossWrite_.close();
  tell(R"("lost","reason":"{}")", toString(reason));
}

void Announcer::ended(int code) noexcept {
  tell(R"("ended","code":{})", code);
}

void Announcer::released(ReleaseResult result) noexcept {
  const bool lost = result == ReleaseResult::lost;
  tell(R"("released","confirmed":{})", !lost && result != ReleaseResult::unknown);
}

void Announcer::exiting(int code, bool byCommand) noexcept {
  tell(R"("exit","code":{},"by":"{}")", code, byCommand ? "command" : "rlock");
}

bool takesEvents(int descriptor) noexcept {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

}  // namespace rlock::cli
