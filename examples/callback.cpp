// SPDX-License-Identifier: Apache-2.0
// Handlers instead of waiting threads. They run on the client's loop thread (or Options::executor),
// so they must not block; and an owner is named, because no thread stands for one.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <functional>
#include <future>
#include <iostream>
#include <utility>

namespace {

using Done = std::function<void(rlock::Result<void>)>;

void withLock(rlock::RLock lock, std::function<void()> work, Done done) {
  const rlock::OwnerId owner = rlock::newOwner();
  lock.lockAsync({}, owner).start(
      [lock, owner, work = std::move(work), done = std::move(done)](auto locked) mutable {
        if (!locked) {
          done(locked);
          return;
        }
        work();
        lock.unlockAsync(owner).start(std::move(done));
      });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    std::promise<rlock::Result<void>> finished;

    withLock(
        client.getLock("example:inbox"),
        [] { std::cout << "held, sorting the inbox\n"; },
        [&finished](auto result) { finished.set_value(std::move(result)); });
    std::cout << "meanwhile this thread is free\n";

    finished.get_future().get().value();  // throws what went wrong
    std::cout << "unlocked\n";
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
