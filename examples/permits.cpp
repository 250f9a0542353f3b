// SPDX-License-Identifier: Apache-2.0
// At most three workers at a time, in however many processes, and none of them blocks the others
// for ever by dying.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    auto slots = client.getPermitExpirableSemaphore("example:slots");
    // The first one to come decides how many there are.
    slots.trySetPermits(3);

    // A permit as an object: renewed while this process lives. The end of the scope would give it
    // back, too, in the background.
    std::vector<std::jthread> workers;
    for (int number = 0; number < 6; ++number) {
      workers.emplace_back([&slots, number] {
        try {
          rlock::Permit permit = slots.hold();
          std::cout << "worker " + std::to_string(number) + " is at it\n";
          std::this_thread::sleep_for(50ms);
          if (permit.release() != rlock::ReleaseResult::released) {
            std::cout << "worker " + std::to_string(number) + " went on without a permit\n";
          }
        } catch (const rlock::Error& error) {
          std::cerr << error.what() << '\n';
        }
      });
    }
    workers.clear();

    // A permit as an id: it can be handed to another process, which then gives it back.
    const std::string id = slots.acquire(10s);
    std::cout << "permit " << id << " lasts " << slots.getLeaseTime(id).value().count() << " ms\n";
    slots.release(id);

    std::cout << slots.availablePermits() << " of " << slots.getPermits() << " are free\n";
    slots.remove();
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
