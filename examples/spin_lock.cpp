// SPDX-License-Identifier: Apache-2.0
// Waiting without subscriptions: a spin lock asks again and again, with growing pauses. For locks
// that are held for a moment, and for servers where clients may not subscribe.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <iostream>
#include <thread>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    const auto pauses = rlock::BackOff::exponential(1ms, 16ms, 2);
    rlock::RLock lock = client.getSpinLock("example:sequence", pauses);
    lock.lock();
    std::jthread other([lock]() mutable {
      try {
        if (lock.tryLock(2s)) {
          std::cout << "the other thread has it now\n";
          lock.unlock();
        }
      } catch (const rlock::Error& error) {
        std::cerr << error.what() << '\n';
      }
    });
    std::this_thread::sleep_for(50ms);
    lock.unlock();
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
