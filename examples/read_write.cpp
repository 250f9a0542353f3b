// SPDX-License-Identifier: Apache-2.0
// Many readers or one writer. A writer may go on as a reader without letting another writer in
// between.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <iostream>
#include <mutex>
#include <shared_mutex>
#include <thread>

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    rlock::ReadWriteLock lock = client.getReadWriteLock("example:prices");

    rlock::RLock writing = lock.writeLock();
    rlock::RLock reading = lock.readLock();
    writing.lock();
    std::cout << "new prices\n";
    reading.lock();  // a writer may read as well
    writing.unlock();
    std::cout << "checking them, with other readers\n";
    {
      std::jthread other([lock] {
        // The same by the standard's guards; one SharedMutex for each user.
        rlock::SharedMutex mutex(lock);
        const std::shared_lock guard(mutex);
        std::cout << "another reader at the same time\n";
      });
    }
    std::cout << "a reader becomes a writer: " << (writing.tryLock() ? "yes" : "no") << '\n';
    reading.unlock();
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
