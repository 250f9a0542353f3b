// SPDX-License-Identifier: Apache-2.0
#include "cli/guardian.hpp"

#include <rlock/duration.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>

namespace rlock::cli {

namespace {

static_assert(std::atomic<pid_t>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

constexpr std::int64_t kPerMilli = 1'000'000;

// The words to the guardian.
constexpr char kBye = 'q';
constexpr char kLook = 'l';

std::int64_t nowNs() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

// Poll's limit for a moment that may be far; a minute at most, after which it is asked again.
int untilMs(std::int64_t at) {
  const std::int64_t now = nowNs();
  if (at <= now) {
    return 0;
  }
  return static_cast<int>(std::min<std::int64_t>((at - now) / kPerMilli + 1, 60'000));
}

// The standard streams belong to others, who wait for their end; so do inherited descriptors.
void closeAllBut(int kept) {
  DIR* const listing = ::opendir("/proc/self/fd");
  if (listing != nullptr) {
    const int own = ::dirfd(listing);
    while (const dirent* const entry = ::readdir(listing)) {
      char* end = nullptr;
      const long number = std::strtol(entry->d_name, &end, 10);
      if (*end == '\0' && number != own && number != kept) {
        ::close(static_cast<int>(number));
      }
    }
    ::closedir(listing);
  }
  const int null = ::open("/dev/null", O_RDWR);
  for (int standard = 0; standard <= 2 && null >= 0; ++standard) {
    if (standard != null && standard != kept) {
      ::dup2(null, standard);
    }
  }
}

void endTarget(const Guardian::Shared& shared) {
  const pid_t target = shared.target.load();
  if (target == 0) {
    return;
  }
  ::kill(target, SIGTERM);
  ::kill(target, SIGCONT);
  const std::int64_t now = nowNs();
  // The grace may be for ever.
  const std::int64_t grace = std::min(shared.grace, INT64_MAX - now);
  const std::int64_t until = std::min(now + grace, shared.killAt.load());
  while (nowNs() < until && ::kill(target, 0) == 0) {
    ::poll(nullptr, 0, 10);
  }
  ::kill(target, SIGKILL);
}

// For how long there is nothing to do.
int napMs(const Guardian::Shared& shared, bool killed) {
  constexpr int kLongMs = 60'000;
  // A command that is late names itself after it should have been gone.
  constexpr int kShortMs = 10;
  const int left = untilMs(shared.killAt.load());
  return killed ? kLongMs : left > 0 ? left : kShortMs;
}

[[noreturn]] void guard(int life, const Guardian::Shared& shared) {
  bool killed = false;
  for (;;) {
    pollfd watched{life, POLLIN, 0};
    const int ready = ::poll(&watched, 1, napMs(shared, killed));
    if (ready > 0) {
      char word = 0;
      const ssize_t got = ::read(life, &word, 1);
      if (got == 0) {
        endTarget(shared);
      }
      if (got == 0 || (got > 0 && word == kBye)) {
        ::_exit(0);
      }
    }
    const pid_t target = shared.target.load();
    if (!killed && target != 0 && nowNs() >= shared.killAt.load()) {
      ::kill(target, SIGKILL);
      killed = true;
    }
  }
}

}  // namespace

Guardian::Guardian(std::chrono::milliseconds grace) {
  void* const page =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ends[2] = {-1, -1};
  if (page == MAP_FAILED || ::pipe2(ends, O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot prepare the guardian");
  }
  Descriptor read(ends[0]);
  life_ = Descriptor(ends[1]);
  shared_ = new (page) Shared();
  shared_->grace = Duration(grace).nanoseconds().count();
  pid_ = ::fork();
  if (pid_ < 0) {
    throw std::system_error(errno, std::generic_category(), "fork");
  }
  if (pid_ == 0) {
    life_.close();
    ::setsid();
    // The name has no "rlock" in it, so that `pkill rlock` leaves the guardian to its work.
    ::prctl(PR_SET_NAME, "lock-guardian");
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    closeAllBut(read.get());
    guard(read.get(), *shared_);
  }
}

Guardian::~Guardian() {
  shared_->target.store(0);
  tell(kBye);
  life_.close();
  if (pid_ > 0) {
    ::waitpid(pid_, nullptr, 0);
  }
  ::munmap(shared_, sizeof(Shared));
}

void Guardian::setKillTime(std::chrono::steady_clock::time_point at) noexcept {
  const std::int64_t killAt = at.time_since_epoch().count();
  if (killAt < shared_->killAt.exchange(killAt)) {
    // It sleeps until the time that it knows.
    tell(kLook);
  }
}

void Guardian::setTarget(pid_t target) noexcept {
  shared_->target.store(target);
}

bool Guardian::killTimeHasCome() const noexcept {
  return nowNs() >= shared_->killAt.load();
}

bool Guardian::hasEnded() noexcept {
  if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) != 0) {
    pid_ = -1;
  }
  return pid_ < 0;
}

void Guardian::tell(char word) const noexcept {
  if (pid_ > 0 && ::write(life_.get(), &word, 1) < 0) {
    // It has ended already.
  }
}

}  // namespace rlock::cli
