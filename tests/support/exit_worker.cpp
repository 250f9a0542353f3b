// SPDX-License-Identifier: Apache-2.0

// A process that ends while clients and holds are still there, in the way that its second argument
// names. It works on the key `exit`; it prints `ready` and ends at the next line of input.
//
//   static-client     holds in the thread's name; the client is a static object
//   static-lease      a static Lease, released by its destructor
//   static-guard      a static std::unique_lock over a Mutex
//   static-owner      a destructor of a static object locks and unlocks in the thread's name
//   waiting-thread    as static-client, while a detached thread waits for `exit:taken`
//   never-destroyed   nobody destroys the client; its loop goes on until the process is gone
//   on-the-loop       std::exit() in a callback
//   hanging-name      a client that tried to connect to a name that is not resolved
//   forked            children that call std::exit(), after names were resolved; prints how many
//                     ended otherwise

#include "support/leak_check.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

using std::chrono::milliseconds;

constexpr const char* kKey = "exit";

// Runs after the destructors of all static objects that are made later, and gives threads that are
// still there time to trip over what is gone.
void linger() {
  std::this_thread::sleep_for(milliseconds(200));
}

rlock::Client& staticClient(const std::string& uri) {
  static rlock::Client client = rlock::Client::connect(uri);
  return client;
}

void untilTold() {
  std::cout << "ready" << std::endl;
  std::string line;
  std::getline(std::cin, line);
}

struct LocksWhenDestroyed {
  explicit LocksWhenDestroyed(rlock::RLock what) : lock(std::move(what)) {}
  LocksWhenDestroyed(const LocksWhenDestroyed&) = delete;
  LocksWhenDestroyed& operator=(const LocksWhenDestroyed&) = delete;
  ~LocksWhenDestroyed() {
    try {
      lock.lock();
      lock.unlock();
      std::cout << "unlocked" << std::endl;
    } catch (const std::exception& failure) {
      std::cout << failure.what() << std::endl;
    }
  }

  rlock::RLock lock;
};

int run(const std::string& uri, std::string_view way) {
  if (way == "static-client") {
    staticClient(uri).getLock(kKey).lock();
    untilTold();
  } else if (way == "static-lease") {
    static rlock::Lease lease = staticClient(uri).getLock(kKey).acquire();
    untilTold();
  } else if (way == "static-guard") {
    static rlock::Mutex mutex(staticClient(uri).getLock(kKey));
    static const std::unique_lock guard(mutex);
    untilTold();
  } else if (way == "static-owner") {
    static const LocksWhenDestroyed last(staticClient(uri).getLock(kKey));
    staticClient(uri).getLock("exit:before").lock();
    staticClient(uri).getLock("exit:before").unlock();
    untilTold();
  } else if (way == "waiting-thread") {
    staticClient(uri).getLock(kKey).lock();
    std::thread([lock = staticClient(uri).getLock("exit:taken")]() mutable {
      try {
        lock.lock();
      } catch (const rlock::Error&) {
      }
    }).detach();
    untilTold();
  } else if (way == "never-destroyed") {
    static auto* const client = new rlock::Client(rlock::Client::connect(uri));
    client->getLock(kKey).lock();
    untilTold();
  } else if (way == "on-the-loop") {
    rlock::RLock lock = staticClient(uri).getLock(kKey);
    lock.lockAsync().start([](const rlock::Result<void>&) {
      untilTold();
      std::exit(0);
    });
    std::promise<void>().get_future().wait();
  } else if (way == "hanging-name") {
    try {
      rlock::Client::connect("redis://redis.hangs.test?connect-timeout=100ms");
    } catch (const rlock::Error& failure) {
      std::cout << failure.what() << std::endl;
    }
    untilTold();
  } else if (way == "forked") {
    staticClient(uri).getLock(kKey).lock();
    staticClient(uri).getLock(kKey).unlock();
    untilTold();
    int failed = 0;
    for (int i = 0; i < 3; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(20);
        std::exit(0);
      }
      int status = 0;
      failed += ::waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
    }
    std::cout << failed << std::endl;
  } else {
    std::cerr << "rlock_exit_worker: no such way\n";
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: rlock_exit_worker URI WAY\n";
    return 2;
  }
  if (std::atexit(&linger) != 0) {
    return 2;
  }
  try {
    return run(argv[1], argv[2]);
  } catch (const std::exception& failure) {
    std::cerr << "rlock_exit_worker: " << failure.what() << "\n";
    return 1;
  }
}
