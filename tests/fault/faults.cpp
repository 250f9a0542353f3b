// SPDX-License-Identifier: Apache-2.0
#include "fault/faults.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <execinfo.h>
#include <functional>
#include <limits>
#include <malloc.h>
#include <new>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utility>

namespace rlock::test {
namespace {

constexpr long kDisarmed = std::numeric_limits<long>::min() / 2;
// Counted down by each allocation, which fails from 1 on until it is at `over`.
std::atomic<long> countdown{kDisarmed};
std::atomic<long> over{0};
std::atomic<int> mode{0};
std::atomic<bool> failed{false};
std::array<void*, 40> frames;
std::atomic<int> frameCount{0};
thread_local bool armedHere = false;

/// By its name: servers and helpers of the tests run in this process, too.
bool isLibraryThread() noexcept {
  std::array<char, 16> name{};
  return ::pthread_getname_np(::pthread_self(), name.data(), name.size()) == 0 &&
         std::strncmp(name.data(), "rlock", 5) == 0;
}

bool mustFail() noexcept {
  using Of = FailedAllocation::Of;
  const long end = over.load(std::memory_order_relaxed);
  if (countdown.load(std::memory_order_relaxed) <= end) {
    return false;
  }
  const auto of = static_cast<Of>(mode.load(std::memory_order_relaxed));
  if (armedHere ? of == Of::otherThreads : of == Of::thisThread || !isLibraryThread()) {
    return false;
  }
  const long left = countdown.fetch_sub(1, std::memory_order_relaxed);
  if (left > 1 || left <= end) {
    return false;
  }
  frameCount = backtrace(frames.data(), static_cast<int>(frames.size()));
  // The test may read the frames once it sees this.
  failed = true;
  return true;
}

void* allocate(std::size_t size) noexcept {
  return mustFail() ? nullptr : std::malloc(size == 0 ? 1 : size);
}

void* allocate(std::size_t size, std::align_val_t alignment) noexcept {
  const auto unit = static_cast<std::size_t>(alignment);
  return mustFail() ? nullptr : std::aligned_alloc(unit, (size + unit - 1) / unit * unit);
}

/// Overwritten first: what is used after it was freed looks like nothing that anybody put there.
void giveBack(void* memory) noexcept {
#if defined(__GLIBC__)
  if (memory != nullptr) {
    std::memset(memory, 0xA5, ::malloc_usable_size(memory));
    // Or the compiler, which knows that nobody may look, leaves it out.
    asm volatile("" : : "r"(memory) : "memory");
  }
#endif
  std::free(memory);
}

void* orThrow(void* memory) {
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

FailedAllocation::FailedAllocation(long k, Of threads, int times) noexcept {
  // Its first call allocates.
  std::array<void*, 1> unused{};
  backtrace(unused.data(), static_cast<int>(unused.size()));
  armedHere = true;
  failed = false;
  mode = static_cast<int>(threads);
  over = 1L - times;
  countdown = k;
}

FailedAllocation::~FailedAllocation() {
  disarm();
  armedHere = false;
}

void FailedAllocation::disarm() noexcept {
  countdown = kDisarmed;
}

bool FailedAllocation::happened() noexcept {
  return failed;
}

void FailedAllocation::print() noexcept {
  std::fflush(stderr);
  backtrace_symbols_fd(frames.data(), frameCount, STDERR_FILENO);
}

#if !defined(__SANITIZE_THREAD__)
namespace {

thread_local long unlockPause = 0;
thread_local long mutexesLeft = 0;
thread_local std::function<void()>* atMutex = nullptr;
std::atomic<int> epollOperation{0};
std::atomic<int> epollTimes{0};
std::atomic<bool> epollNested{false};

bool isEpoll(int fd) noexcept {
  std::array<char, 64> path;
  std::array<char, 64> target{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  return ::readlink(path.data(), target.data(), target.size() - 1) > 0 &&
         std::strstr(target.data(), "eventpoll") != nullptr;
}

template <class F>
F* next(const char* name) noexcept {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

void pauseAfterUnlocking(std::chrono::microseconds pause) noexcept {
  unlockPause = static_cast<long>(pause.count());
}

AtMutex::AtMutex(long k, std::function<void()> meanwhile) {
  atMutex = new std::function<void()>(std::move(meanwhile));
  mutexesLeft = k;
}

AtMutex::~AtMutex() {
  mutexesLeft = 0;
  delete std::exchange(atMutex, nullptr);
}

bool AtMutex::happened() noexcept {
  return mutexesLeft == 0;
}

void failEpollCtl(int operation, int times, bool onEpoll) noexcept {
  epollOperation = operation;
  epollNested = onEpoll;
  epollTimes = times;
}

int epollFailuresLeft() noexcept {
  return epollTimes;
}
#endif

}  // namespace rlock::test

// All of them: a sanitizer brings its own for those that are not replaced, and then complains that
// memory of its `new` is given back by this `delete`.
void* operator new(std::size_t size) {
  return rlock::test::orThrow(rlock::test::allocate(size));
}
void* operator new[](std::size_t size) {
  return rlock::test::orThrow(rlock::test::allocate(size));
}
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return rlock::test::allocate(size);
}
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return rlock::test::allocate(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return rlock::test::orThrow(rlock::test::allocate(size, alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return rlock::test::orThrow(rlock::test::allocate(size, alignment));
}
void* operator new(std::size_t size,
                   std::align_val_t alignment,
                   const std::nothrow_t& /*tag*/) noexcept {
  return rlock::test::allocate(size, alignment);
}
void* operator new[](std::size_t size,
                     std::align_val_t alignment,
                     const std::nothrow_t& /*tag*/) noexcept {
  return rlock::test::allocate(size, alignment);
}
void operator delete(void* memory) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete(void* memory,
                     std::align_val_t /*alignment*/,
                     const std::nothrow_t& /*tag*/) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete[](void* memory) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete[](void* memory, std::size_t /*size*/) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete[](void* memory, std::align_val_t /*alignment*/) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete[](void* memory,
                       std::size_t /*size*/,
                       std::align_val_t /*alignment*/) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete[](void* memory, const std::nothrow_t& /*tag*/) noexcept {
  rlock::test::giveBack(memory);
}
void operator delete[](void* memory,
                       std::align_val_t /*alignment*/,
                       const std::nothrow_t& /*tag*/) noexcept {
  rlock::test::giveBack(memory);
}

#if !defined(__SANITIZE_THREAD__)
extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto real = rlock::test::next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  if (rlock::test::mutexesLeft > 0 && --rlock::test::mutexesLeft == 0) {
    (*rlock::test::atMutex)();
  }
  return real(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static const auto real = rlock::test::next<int(pthread_mutex_t*)>("pthread_mutex_unlock");
  const int result = real(mutex);
  if (rlock::test::unlockPause > 0) {
    const timespec pause{rlock::test::unlockPause / 1'000'000,
                         rlock::test::unlockPause % 1'000'000 * 1000};
    ::nanosleep(&pause, nullptr);
  }
  return result;
}

int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  using namespace rlock::test;
  static const auto real = next<int(int, int, int, epoll_event*)>("epoll_ctl");
  if (epollTimes > 0 && operation == epollOperation && (!epollNested || isEpoll(fd)) &&
      epollTimes.fetch_sub(1) > 0) {
    errno = ENOSPC;
    return -1;
  }
  return real(epoll, operation, fd, event);
}

}  // extern "C"
#endif
