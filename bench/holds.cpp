// SPDX-License-Identifier: Apache-2.0
#include "holds.hpp"

#include "measure.hpp"

#include <fmt/format.h>

#include <atomic>
#include <semaphore>
#include <stdexcept>

namespace rlock::bench {

std::size_t forEach(std::size_t from,
                    std::size_t to,
                    const std::function<Operation<void>(std::size_t)>& operation) {
  constexpr std::ptrdiff_t kAtATime = 512;
  std::counting_semaphore<kAtATime> room(kAtATime);
  std::atomic<std::size_t> failures{0};
  for (std::size_t i = from; i < to; ++i) {
    room.acquire();
    operation(i).start([&](const Result<void>& result) {
      failures += result ? 0 : 1;
      room.release();
    });
  }
  for (std::ptrdiff_t i = 0; i < kAtATime; ++i) {
    room.acquire();
  }
  return failures;
}

Holds::Holds(Client& client, std::size_t count, std::string_view prefix) {
  locks_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    // Names that all have the same length and fit no small string.
    locks_.push_back(client.getLock(fmt::format("{}:{:08}", prefix, i)));
  }
  const double before = residentBytes();
  const std::size_t failures =
      forEach(0, count, [&](std::size_t i) { return locks_[i].lockAsync({}, owner_); });
  if (failures > 0) {
    throw std::runtime_error(fmt::format("{} of {} locks were not obtained", failures, count));
  }
  bytesPerHold_ = (residentBytes() - before) / static_cast<double>(count);
}

Holds::~Holds() {
  // A hold that cannot be given back expires.
  forEach(0, locks_.size(), [&](std::size_t i) { return locks_[i].unlockAsync(owner_); });
}

}  // namespace rlock::bench
