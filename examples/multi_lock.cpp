// SPDX-License-Identifier: Apache-2.0
// Several locks as one: all of them or none, in whatever order they are named.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <iostream>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    const rlock::RLock alice = client.getLock("example:account:alice");
    const rlock::RLock bob = client.getLock("example:account:bob");
    int balances[] = {100, 100};

    // Two transfers at once, in opposite directions: with two locks taken one by one they would
    // wait for each other.
    const auto transfer = [&](rlock::RLock both, int from, int to) {
      for (int i = 0; i < 100; ++i) {
        both.lock();
        balances[from] -= 1;
        balances[to] += 1;
        both.unlock();
      }
    };
    {
      std::jthread there(transfer, rlock::multiLock({alice, bob}), 0, 1);
      std::jthread back(transfer, rlock::multiLock({bob, alice}), 1, 0);
    }
    std::cout << "alice has " << balances[0] << ", bob has " << balances[1] << '\n';
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
