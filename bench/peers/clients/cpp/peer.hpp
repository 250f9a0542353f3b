// SPDX-License-Identifier: Apache-2.0
// The measured C++ clients have this in common: a program that obeys the commands of measure.py on
// its standard input (see README.md). A client says how a lock is made; what is measured is here,
// so that it is the same for all of them.
#pragma once

#include "measure.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace rlock::bench::peers {

class Lock {
 public:
  virtual ~Lock() = default;
  virtual void lock() = 0;
  virtual void unlock() = 0;
};

/// One thread, or one chain of asynchronous operations.
struct alignas(64) Worker {
  std::atomic<std::uint64_t> done{0};
  Samples latencies;
};

/// A load that runs: whether it goes on, and its counts.
class Load {
 public:
  explicit Load(std::size_t workers) : workers_(workers) {}

  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_relaxed); }
  /// @param began  of the operation, by now()
  void count(std::size_t worker, std::int64_t began);

  /// Lets the workers warm up, then measures, and says when that begins and ends, so that the
  /// driver can read processor times while all threads still run.
  /// @param join  ends the workers' threads, or waits for the last operation of each chain
  /// @returns the operations, the seconds, and the latencies' 50th and 99th percentile
  std::string measure(double warmUp, double seconds, const std::function<void()>& join);

  [[nodiscard]] std::uint64_t total() const noexcept;

 private:
  std::vector<Worker> workers_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> measuring_{false};
};

/// The client does not have it.
struct NotOffered : std::runtime_error {
  NotOffered() : std::runtime_error("not offered") {}
};

/// A client of some library, connected.
class Client {
 public:
  virtual ~Client() = default;

  /// A lock for one thread, with a lease of 30 s or a watchdog.
  virtual std::unique_ptr<Lock> lock(const std::string& name) = 0;
  /// A lock that several threads or processes contend for.
  virtual std::unique_ptr<Lock> sharedLock(const std::string& /*name*/) { throw NotOffered(); }
  /// So many chains of asynchronous pairs, a lock each. Returns what waits for their ends.
  virtual std::function<void()> startChains(std::size_t /*chains*/, Load& /*load*/) {
    throw NotOffered();
  }
  /// Takes so many locks and keeps them.
  virtual void hold(std::size_t /*locks*/) { throw NotOffered(); }
  virtual void free() { throw NotOffered(); }
};

/// The program: `PORT` obeys commands, `PORT first-lock` takes one lock, says so and ends.
/// @param connect  makes the client of the server on that port
int serve(int argc,
          char** argv,
          const std::function<std::unique_ptr<Client>(std::uint16_t port)>& connect);

}  // namespace rlock::bench::peers
