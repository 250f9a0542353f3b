// SPDX-License-Identifier: Apache-2.0
// Waiting until several others have done their part, wherever they run.
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
    rlock::CountDownLatch ready = client.getCountDownLatch("example:ready");

    constexpr int kWorkers = 3;
    ready.trySetCount(kWorkers);

    std::vector<std::jthread> workers;
    for (int worker = 0; worker < kWorkers; ++worker) {
      workers.emplace_back([&client, worker] {
        try {
          std::this_thread::sleep_for(20ms * (worker + 1));
          client.getCountDownLatch("example:ready").countDown();
        } catch (const rlock::Error& error) {
          std::cerr << error.what() << '\n';
        }
      });
    }

    // false would mean: still closed after 10 s.
    if (ready.await(10s)) {
      std::cout << "all are ready\n";
    }
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
