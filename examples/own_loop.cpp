// SPDX-License-Identifier: Apache-2.0
// For programs that have a libuv loop: the client starts no thread of its own, and every handler
// runs on that loop. Blocking calls are refused there, so everything is asynchronous.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <uv.h>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  uv_loop_t loop;
  uv_loop_init(&loop);
  int status = 1;
  try {
    rlock::Options options = rlock::Options::fromUri(serverUri(argc, argv));
    options.loop = &loop;
    auto client = rlock::Client::connect(options);  // does its work when the loop runs
    rlock::RLock lock = client.getLock("example:loop");
    const rlock::OwnerId owner = rlock::newOwner();

    lock.lockAsync({.wait = 2s}, owner).start([&](rlock::Result<void> locked) {
      if (!locked) {
        std::cerr << locked.error().what() << '\n';
        client.close(0ms);
        return;
      }
      std::cout << "held, on the program's own loop\n";
      lock.unlockAsync(owner).start([&](rlock::Result<void> unlocked) {
        if (unlocked) {
          std::cout << "unlocked\n";
          status = 0;
        } else {
          std::cerr << unlocked.error().what() << '\n';
        }
        client.close(1s);  // does not wait here; its handles go when it is done
      });
    });

    uv_run(&loop, UV_RUN_DEFAULT);  // ends when nothing is left on the loop
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
  }
  if (uv_loop_close(&loop) != 0) {
    std::cerr << "something is left on the loop\n";
    status = 1;
  }
  return status;
}
