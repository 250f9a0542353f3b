// SPDX-License-Identifier: Apache-2.0
// First come, first served: a fair lock is given to those who wait in the order in which they came.
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
    rlock::RLock counter = client.getFairLock("example:counter");
    counter.lock();

    std::vector<std::jthread> customers;
    for (int number = 1; number <= 3; ++number) {
      customers.emplace_back([counter, number]() mutable {
        try {
          counter.lock();
          std::cout << "customer " << number << " is served\n";
          counter.unlock();
        } catch (const rlock::Error& error) {
          std::cerr << error.what() << '\n';
        }
      });
      // Each is in line before the next comes.
      std::this_thread::sleep_for(100ms);
    }

    // Nobody jumps the queue, not even with a single attempt.
    counter.unlock();
    customers.clear();
    std::cout << "everybody was served\n";
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
