// SPDX-License-Identifier: Apache-2.0
// The plain form: lock, work, unlock. The lock is re-entrant and belongs to the calling thread.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <iostream>

namespace {

void bookOrder(rlock::RLock& lock) {
  lock.lock();  // the caller holds it already, so this only counts
  std::cout << "booking, with " << lock.getHoldCount() << " holds\n";
  lock.unlock();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));  // one per process
    rlock::RLock lock = client.getLock("example:orders");

    lock.lock();  // waits as long as it takes; then the watchdog keeps the hold alive
    try {
      std::cout << "held, for " << lock.remainTimeToLive().value().count()
                << " ms unless renewed\n";
      bookOrder(lock);
    } catch (...) {
      lock.unlock();
      throw;
    }
    lock.unlock();
    std::cout << "unlocked\n";
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
