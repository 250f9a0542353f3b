// SPDX-License-Identifier: Apache-2.0
// A holder that was paused for longer than its lease writes too late. The resource refuses it,
// because it has seen a younger fencing token. docs/fencing.md shows the same for SQL and Redis.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

using namespace std::chrono_literals;

namespace {

/// What is protected: it checks the token in the same step in which it writes.
class Resource {
 public:
  bool write(std::uint64_t token, std::string value) {
    const std::lock_guard guard(mutex_);
    if (token < youngest_) {
      return false;
    }
    youngest_ = token;
    value_ = std::move(value);
    return true;
  }
  std::string read() {
    const std::lock_guard guard(mutex_);
    return value_;
  }

 private:
  std::mutex mutex_;
  std::uint64_t youngest_ = 0;
  std::string value_;
};

void report(const char* who, std::uint64_t token, bool written) {
  std::cout << who << " with token " << token << (written ? " has written" : " was refused")
            << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    Resource resource;

    std::thread paused([&] {
      rlock::FencedLock lock = client.getFencedLock("example:ledger");
      const std::uint64_t token = lock.lockAndGetToken(100ms);
      std::this_thread::sleep_for(400ms);  // swapped out, stopped, moved to another machine
      report("the paused holder", token, resource.write(token, "an old value"));
    });
    std::thread next([&] {
      std::this_thread::sleep_for(50ms);
      rlock::FencedLock lock = client.getFencedLock("example:ledger");
      const std::uint64_t token = lock.lockAndGetToken();  // free when the lease is over
      report("the next holder", token, resource.write(token, "a new value"));
      lock.unlock();
    });
    paused.join();
    next.join();
    std::cout << "the resource holds " << resource.read() << '\n';
    return resource.read() == "a new value" ? 0 : 1;
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
