// SPDX-License-Identifier: Apache-2.0
// Waiting for a limited time, and holding for a limited time.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    rlock::RLock lock = client.getLock("example:report");

    // Somebody else has it: a Lease is a hold of its own, even inside one process.
    rlock::Lease other = lock.acquire();

    // Not obtaining the lock is an answer, not an error.
    if (!lock.tryLock()) {
      std::cout << "somebody else is at it\n";
    }
    if (!lock.tryLock(200ms, 10s)) {
      std::cout << "and still was, 200 ms later\n";
    }

    other.release();

    // Waits for up to 2 s. The hold ends after 10 s at the latest: with a lease of its own a hold
    // is not renewed, so the work must fit.
    if (lock.tryLock(2s, 10s)) {
      std::cout << "held, for " << lock.remainTimeToLive().value().count() << " ms\n";
      lock.unlock();
    }
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
