// SPDX-License-Identifier: Apache-2.0
// A lock that its owner cannot take twice: a section that is entered again by mistake is an error
// at once, and not a second hold that somebody forgets to give back.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <iostream>

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    rlock::RLock lock = client.getNonReentrantLock("example:report");
    lock.lock();
    try {
      lock.lock();
    } catch (const rlock::Error& error) {
      if (error.errc() != rlock::Errc::reentry) {
        throw;
      }
      std::cout << "entered twice: " << error.what() << '\n';
    }
    lock.unlock();
    std::cout << "one unlock was enough: " << (lock.isLocked() ? "no" : "yes") << '\n';
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
