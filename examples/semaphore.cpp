// SPDX-License-Identifier: Apache-2.0
// At most three at a time, over all processes that use the name.
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
    rlock::Semaphore downloads = client.getSemaphore("example:downloads");

    // The first to come sets the number. The permits belong to nobody and stay until somebody
    // removes them; here they vanish by themselves.
    downloads.trySetPermits(3, 60s);

    std::vector<std::jthread> workers;
    for (int worker = 0; worker < 6; ++worker) {
      workers.emplace_back([&client] {
        rlock::Semaphore permits = client.getSemaphore("example:downloads");
        try {
          permits.acquire();
          std::this_thread::sleep_for(50ms);
          permits.release();
        } catch (const rlock::Error& error) {
          std::cerr << error.what() << '\n';
        }
      });
    }
    workers.clear();

    // Several at once, all or none, for at most a second.
    if (downloads.tryAcquire(2, 1s)) {
      std::cout << downloads.availablePermits() << " left\n";
      downloads.release(2);
    }
    downloads.remove();
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
