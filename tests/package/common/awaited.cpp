// SPDX-License-Identifier: Apache-2.0
// The header for standalone Asio and, in awaited_by_boost.cpp, the one for Boost.Asio: each is the
// first that is included, and one program has both.
#include <rlock/asio.hpp>
#include <rlock/rlock.hpp>

#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

bool awaitedByBoost(rlock::RLock lock);

int main() {
  auto client = rlock::Client::connect("redis://127.0.0.1:6379");
  rlock::RLock lock = client.getLock("awaited");
  return rlock::useAsio(lock.isLockedAsync(), asio::use_future).get() || awaitedByBoost(lock);
}
