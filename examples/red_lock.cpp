// SPDX-License-Identifier: Apache-2.0
// A lock that outlives the loss of a minority of independent servers. Give it three or five URIs;
// with one, it shows the calls on three names of that server, which is no protection at all.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  try {
    std::vector<std::string> uris(argv + 1, argv + argc);
    if (uris.size() < 3) {
      uris.assign(3, serverUri(argc, argv));
    }
    const bool independent = argc > 3;

    std::vector<rlock::Client> clients;
    std::vector<rlock::RLock> members;
    for (const std::string& uri : uris) {
      clients.push_back(rlock::Client::connect(uri));
      const std::string name = "example:ledger";
      members.push_back(
          clients.back().getLock(independent ? name : name + ":" + std::to_string(members.size())));
    }
    rlock::RLock lock = rlock::redLock(members);

    // The hold is valid for the lease less the time it took to get and an allowance for clocks.
    if (auto lease = lock.tryAcquire({.wait = 2s, .lease = 10s})) {
      const auto left = lease->validUntil() - std::chrono::steady_clock::now();
      std::cout << "held by a majority of " << uris.size() << " for "
                << std::chrono::duration_cast<std::chrono::milliseconds>(left).count() << " ms\n";
      // The work. It stops when the hold is lost: lease->lostToken().
      lease->release();
    } else {
      std::cout << "somebody else holds it\n";
    }
  } catch (const rlock::Error& error) {
    // noQuorum: too few of the servers could be reached.
    std::cerr << error.what() << '\n';
    return 1;
  }
}
