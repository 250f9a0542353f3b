// SPDX-License-Identifier: Apache-2.0

// The cost of one uncontended pair of lock and unlock to this process, counted and not timed, so
// that the figures do not depend on what else the machine does. hot_path.sh counts the instructions
// besides.
//
// The functions that are counted are replaced by ones that count and call the original: whatever
// calls them is counted, the library, the standard library, hiredis and libuv.

#include "server.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>
#include <uv.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <exception>
#include <future>
#include <memory>
#include <pthread.h>
#include <string>
#include <string_view>
#include <vector>

extern "C" {
// glibc's own names of what this program replaces.
void* __libc_malloc(std::size_t size);                     // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t count, std::size_t size);  // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* old, std::size_t size);         // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t align, std::size_t n);   // NOLINT(bugprone-reserved-identifier)
}

namespace {

struct Counters {
  std::uint64_t allocations = 0;
  std::uint64_t allocatedBytes = 0;
  std::uint64_t mutexLocks = 0;
  std::uint64_t clockReads = 0;
  std::uint64_t loopWakeUps = 0;
};

/// Of all threads, and of the one that counts for itself.
std::atomic<std::uint64_t> allocations{0};
std::atomic<std::uint64_t> allocatedBytes{0};
std::atomic<std::uint64_t> mutexLocks{0};
std::atomic<std::uint64_t> clockReads{0};
std::atomic<std::uint64_t> loopWakeUps{0};
constinit thread_local std::uint64_t allocationsHere = 0;

void count(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) noexcept {
  counter.fetch_add(by, std::memory_order_relaxed);
}

void countAllocation(std::size_t size) noexcept {
  count(allocations);
  count(allocatedBytes, size);
  ++allocationsHere;
}

Counters now() noexcept {
  return {allocations, allocatedBytes, mutexLocks, clockReads, loopWakeUps};
}

/// The function that a replacement stands before.
template <class Function>
Function* original(std::atomic<Function*>& found, const char* name) noexcept {
  Function* function = found.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
    found.store(function, std::memory_order_relaxed);
  }
  return function;
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) noexcept {
  countAllocation(size);
  return __libc_malloc(size);
}

void* calloc(std::size_t number, std::size_t size) noexcept {
  countAllocation(number * size);
  return __libc_calloc(number, size);
}

void* realloc(void* old, std::size_t size) noexcept {
  countAllocation(size);
  return __libc_realloc(old, size);
}

void* aligned_alloc(std::size_t align, std::size_t size) noexcept {
  countAllocation(size);
  return __libc_memalign(align, size);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static std::atomic<int (*)(pthread_mutex_t*)> found{nullptr};
  count(mutexLocks);
  return original(found, "pthread_mutex_lock")(mutex);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static std::atomic<int (*)(clockid_t, timespec*)> found{nullptr};
  count(clockReads);
  return original(found, "clock_gettime")(clock, time);
}

int uv_async_send(uv_async_t* handle) {
  static std::atomic<int (*)(uv_async_t*)> found{nullptr};
  count(loopWakeUps);
  return original(found, "uv_async_send")(handle);
}

}  // extern "C"

namespace {

/// Pairs on the calling thread.
class Blocking {
 public:
  explicit Blocking(rlock::Client& client) : lock_(client.getLock("bench:hot-path")) {}

  void run(int pairs) {
    for (int i = 0; i < pairs; ++i) {
      lock_.lock();
      lock_.unlock();
    }
  }

 private:
  rlock::RLock lock_;
};

/// Pairs in chains that their handlers continue on the loop thread.
class Asynchronous {
 public:
  Asynchronous(rlock::Client& client, int inFlight) {
    for (int i = 0; i < inFlight; ++i) {
      chains_.push_back(
          std::make_unique<Chain>(*this, client.getLock(fmt::format("bench:hot-path:{}", i))));
    }
  }

  void run(int pairs) {
    left_ = pairs;
    running_ = static_cast<int>(chains_.size());
    over_ = std::promise<void>();
    for (const auto& chain : chains_) {
      chain->next();
    }
    over_.get_future().get();
  }

 private:
  struct Chain {
    Chain(Asynchronous& all, rlock::RLock mine) : chains(all), lock(std::move(mine)) {}

    void next() {
      if (chains.left_.fetch_sub(1, std::memory_order_relaxed) <= 0) {
        if (chains.running_.fetch_sub(1) == 1) {
          chains.over_.set_value();
        }
        return;
      }
      lock.lockAsync({}, owner).start([this](const rlock::Result<void>& locked) {
        locked.value();
        lock.unlockAsync(owner).start([this](const rlock::Result<void>& unlocked) {
          unlocked.value();
          next();
        });
      });
    }

    Asynchronous& chains;
    rlock::RLock lock;
    const rlock::OwnerId owner = rlock::newOwner();
  };

  std::vector<std::unique_ptr<Chain>> chains_;
  std::atomic<int> left_{0};
  std::atomic<int> running_{0};
  std::promise<void> over_;
};

template <class Load>
void measure(Load& load, int pairs) {
  // Until buffers have their size, scripts are loaded and pools are filled.
  constexpr int kWarmUp = 500;
  load.run(kWarmUp);
  const Counters before = now();
  const std::uint64_t hereBefore = allocationsHere;
  load.run(pairs);
  const std::uint64_t here = allocationsHere - hereBefore;
  const Counters after = now();
  const auto show = [pairs](const char* name, std::uint64_t from, std::uint64_t to) {
    fmt::print("{} {:.2f}\n", name, static_cast<double>(to - from) / pairs);
  };
  show("allocations", before.allocations, after.allocations);
  show("allocations_of_caller", 0, here);
  show("allocated_bytes", before.allocatedBytes, after.allocatedBytes);
  show("mutex_locks", before.mutexLocks, after.mutexLocks);
  show("clock_reads", before.clockReads, after.clockReads);
  show("loop_wake_ups", before.loopWakeUps, after.loopWakeUps);
}

int run(const std::string& mode, int pairs) {
  const rlock::bench::OwnServer server("redis-server");
  rlock::Options options = rlock::Options::fromUri(server.uri());
  // How often a thread polls depends on the machine.
  options.spin = std::chrono::microseconds(0);
  if (mode == "observed") {
    // It does nothing: what is counted is the library's part.
    struct Idle final : rlock::Observer {};
    options.observer = std::make_shared<Idle>();
  }
  rlock::Client client = rlock::Client::connect(options);
  if (mode == "blocking" || mode == "observed") {
    Blocking load(client);
    measure(load, pairs);
    return 0;
  }
  if (mode == "async") {
    constexpr int kInFlight = 16;
    Asynchronous load(client, kInFlight);
    measure(load, pairs);
    return 0;
  }
  return 2;
}

}  // namespace

int main(int count, char** words) {
  try {
    const int status = count == 3 ? run(words[1], std::atoi(words[2])) : 2;  // NOLINT(cert-err34-c)
    if (status == 2) {
      fmt::print(stderr, "usage: {} blocking|async|observed PAIRS\n", words[0]);
    }
    return status;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
