// SPDX-License-Identifier: Apache-2.0
// The lock of the Redis documentation: one key, its owner as the value, an expiry. Shared with any
// program that uses SET with NX and PX, and deletes only what is its own.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    rlock::RLock lock = client.getSimpleLock("example:cron:nightly");
    if (auto lease = lock.tryAcquire({.lease = 10s})) {
      std::cout << "this machine runs the job\n";
      std::cout << "another one is told: " << (lock.tryAcquire() ? "go" : "somebody has it")
                << '\n';
      lease->release();
    } else {
      std::cout << "somebody else runs it\n";
    }
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
