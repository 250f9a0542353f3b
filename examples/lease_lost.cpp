// SPDX-License-Identifier: Apache-2.0
// A hold can be lost: by force, or because Redis was unreachable for too long. The Lease tells, and
// its stop token ends the work.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <condition_variable>
#include <future>
#include <iostream>
#include <mutex>
#include <stop_token>

using namespace std::chrono_literals;

namespace {

/// Works step by step until the token is stopped or `steps` are done.
int work(const std::stop_token& lost, int steps) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  int done = 0;
  while (done < steps && !lost.stop_requested()) {
    wake.wait_for(lock, lost, 50ms, [] { return false; });  // a step; a stop cuts it short
    ++done;
  }
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    rlock::Options options = rlock::Options::fromUri(serverUri(argc, argv));
    options.watchdogTimeout = 900ms;  // renewed, and so checked, every 300 ms
    auto client = rlock::Client::connect(options);
    auto operatorsClient = rlock::Client::connect(options);

    rlock::Lease lease = client.getLock("example:export").acquire();
    auto worker = std::async(std::launch::async, work, lease.lostToken(), 40);
    std::cout << "working under the lock\n";

    operatorsClient.getLock("example:export").forceUnlock();
    std::cout << "an operator has taken the lock away\n";

    const int steps = worker.get();
    std::cout << "the work ended after " << steps << " of 40 steps, because the hold was "
              << rlock::toString(lease.lossReason()) << '\n';
    if (lease.release() == rlock::ReleaseResult::lost) {
      std::cout << "there was nothing left to release\n";
    }
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
