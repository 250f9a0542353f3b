// SPDX-License-Identifier: Apache-2.0
#include "holds.hpp"

#include "measure.hpp"

#include <fmt/format.h>

#include <atomic>
#include <semaphore>
#include <stdexcept>

namespace rlock::bench {

Holds::Holds(Client& client, std::size_t count, std::string_view prefix) {
  locks_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    // Names that all have the same length and fit no small string.
    locks_.push_back(client.getLock(fmt::format("{}:{:08}", prefix, i)));
  }
  const double before = residentBytes();
  const std::size_t failures =
      forEach([owner = owner_](RLock& lock) { return lock.lockAsync({}, owner); });
  if (failures > 0) {
    throw std::runtime_error(fmt::format("{} of {} locks were not obtained", failures, count));
  }
  bytesPerHold_ = (residentBytes() - before) / static_cast<double>(count);
}

Holds::~Holds() {
  // What is not given back expires.
  forEach([owner = owner_](RLock& lock) { return lock.unlockAsync(owner); });
}

std::size_t Holds::forEach(const std::function<Operation<void>(RLock&)>& operation) {
  constexpr std::ptrdiff_t kAtATime = 512;
  std::counting_semaphore<kAtATime> room(kAtATime);
  std::atomic<std::size_t> failures{0};
  for (RLock& lock : locks_) {
    room.acquire();
    operation(lock).start([&](const Result<void>& result) {
      if (!result) {
        ++failures;
      }
      room.release();
    });
  }
  for (std::ptrdiff_t i = 0; i < kAtATime; ++i) {
    room.acquire();
  }
  return failures;
}

}  // namespace rlock::bench
