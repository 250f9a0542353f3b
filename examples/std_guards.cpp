// SPDX-License-Identifier: Apache-2.0
// The rest of the standard's guards and threads: std::unique_lock with a time limit,
// std::shared_lock, std::condition_variable_any over a distributed lock, and std::jthread, whose
// stop token ends every wait. std::scoped_lock is in std_mutex.cpp.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iostream>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// Jobs that are done one at a time among all processes, in this one by whichever thread is free.
class Jobs {
 public:
  explicit Jobs(rlock::RLock lock) : mutex_(std::move(lock)) {}

  void add(int job) {
    {
      const std::lock_guard guard(mutex_);
      jobs_.push_back(job);
    }
    added_.notify_one();
  }

  /// Returns when the token is stopped. While it waits the lock is free, for other processes, too.
  /// A notification reaches the threads of this process only.
  void workOff(const std::stop_token& stop) {
    std::unique_lock guard(mutex_);
    while (added_.wait(guard, stop, [this] { return !jobs_.empty(); })) {
      jobs_.pop_front();
      ++done_;
    }
  }

  [[nodiscard]] int done() const { return done_; }

 private:
  rlock::Mutex mutex_;
  std::condition_variable_any added_;
  std::deque<int> jobs_;  // guarded by mutex_
  std::atomic<int> done_{0};
};

bool conditionVariable(rlock::Client& client) {
  Jobs jobs(client.getLock("example:jobs"));
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < 2; ++i) {
      workers.emplace_back([&jobs](const std::stop_token& stop) { jobs.workOff(stop); });
    }
    for (int job = 0; job < 10; ++job) {
      jobs.add(job);
    }
    while (jobs.done() < 10) {
      std::this_thread::sleep_for(1ms);
    }
  }  // the destructor of a jthread stops it: nobody waits for a job that never comes
  std::cout << "10 jobs, " << jobs.done() << " done\n";
  return jobs.done() == 10;
}

bool timeLimit(rlock::Client& client) {
  const rlock::Lease elsewhere = client.getLock("example:report").acquire();
  rlock::Mutex mutex(client.getLock("example:report"));
  std::unique_lock guard(mutex, std::defer_lock);
  const bool held = guard.try_lock_for(50ms);
  std::cout << "the report is " << (held ? "ours" : "being made elsewhere") << '\n';
  return !held;
}

bool readers(rlock::Client& client) {
  rlock::ReadWriteLock lock = client.getReadWriteLock("example:tariffs");
  rlock::SharedMutex reader(lock);
  rlock::SharedMutex another(lock);
  const std::shared_lock first(reader);
  const std::shared_lock second(another, std::try_to_lock);
  rlock::SharedMutex writer(lock);
  const std::unique_lock exclusive(writer, std::try_to_lock);
  std::cout << "two readers: " << second.owns_lock()
            << ", a writer beside them: " << exclusive.owns_lock() << '\n';
  return second.owns_lock() && !exclusive.owns_lock();
}

bool stopToken(rlock::Client& client) {
  const rlock::Lease elsewhere = client.getLock("example:leader").acquire();
  std::atomic<bool> stopped{false};
  std::jthread candidate([&](const std::stop_token& stop) {
    try {
      const rlock::Lease lease = client.getLock("example:leader").acquire({.stop = stop});
      std::cout << "the leader\n";
    } catch (const rlock::Error& error) {
      stopped = error.errc() == rlock::Errc::cancelled;
    }
  });
  candidate.request_stop();
  candidate.join();
  std::cout << "the candidate " << (stopped ? "has given up" : "did not notice") << '\n';
  return stopped;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    bool good = conditionVariable(client);
    good = timeLimit(client) && good;
    good = readers(client) && good;
    good = stopToken(client) && good;
    return good ? 0 : 1;
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
