// SPDX-License-Identifier: Apache-2.0
// Several locks at once: all requests are on their way before the first answer is awaited.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <future>
#include <iostream>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));

    // Without a limit on the wait, two programs that name the locks in different order could wait
    // for each other for ever.
    std::vector<std::future<rlock::Lease>> pending;
    for (const char* name : {"example:shelf:1", "example:shelf:2", "example:shelf:3"}) {
      pending.push_back(client.getLock(name).acquireAsync({.wait = 2s}).toFuture());
    }

    std::vector<rlock::Lease> leases;
    for (auto& lease : pending) {
      leases.push_back(lease.get());  // throws timedOut when the wait is over
    }
    std::cout << "held: " << leases.size() << " shelves\n";

    // The destructor gives a hold back without waiting; release() also tells how that went.
    for (auto& lease : leases) {
      if (lease.release() == rlock::ReleaseResult::released) {
        std::cout << "released\n";
      }
    }
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
