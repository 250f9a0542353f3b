// SPDX-License-Identifier: Apache-2.0
// A unit test without a server and without a framework.
#include <rlock/testing.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>

int main() {
  using namespace std::chrono_literals;
  rlock::TestServer server;
  rlock::Client client = server.connect();
  const rlock::Lease mine = client.getLock("mine").acquire();
  const rlock::Lease theirs = server.otherHolds("theirs", 10s);
  if (client.getLock("theirs").tryLock(5s) || !client.getLock("theirs").tryLock(10s)) {
    std::fputs("the lock of another client was obtained at the wrong time\n", stderr);
    return EXIT_FAILURE;
  }
  server.clock().advance(1h);
  if (!mine.held()) {
    std::fputs("the hold was not renewed\n", stderr);
    return EXIT_FAILURE;
  }
  std::puts("rlock::testing works");
  return EXIT_SUCCESS;
}
