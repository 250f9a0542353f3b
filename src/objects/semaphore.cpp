// SPDX-License-Identifier: Apache-2.0

// Semaphore: a handle without state of its own around a ScriptedSemaphore. Acquisitions run like
// those of a lock, each in the name of a new owner; the other calls are single requests with an
// idempotency key. Every call is an Operation; the blocking calls run it on the calling thread.

#include "objects/counter_operations.hpp"
#include "objects/moved_from.hpp"
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/engine/scripted_counter.hpp>
#include <rlock/semaphore.hpp>

#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <utility>

namespace rlock {

namespace {

using detail::asking;
using detail::Call;
using detail::known;
using detail::Reply;
using detail::same;
using detail::SemaphoreScripts;
using SemaphoreBackend = std::shared_ptr<const detail::ScriptedSemaphore>;
using Sum = SemaphoreScripts::Sum;

constexpr Duration kLongestLife = std::chrono::hours(24 * 365);

template <class T>
Operation<T> refuseNegative(const SemaphoreBackend& backend, int permits) {
  return detail::refused<T>(backend, fmt::format("{} permits are less than none", permits));
}

/// @param convert  `Result<T>(const Sum&)`; the sum after the addition, or the finding that there
/// is
///                 no semaphore
template <class T, class Convert>
Operation<T> addition(const SemaphoreBackend& backend,
                      int permits,
                      bool onlyIfExists,
                      Convert convert) {
  return asking<T, Sum>(
      backend,
      [scripts = backend->counter(), permits, onlyIfExists](Call& call) {
        scripts->composeAdd(call, permits, onlyIfExists);
      },
      SemaphoreScripts::parseSum,
      [backend, permits, convert](const Result<Sum>& sum) -> Result<T> {
        if (!sum.has_value()) {
          return sum.error();
        }
        if (sum->kind == Sum::Kind::outOfRange) {
          return backend->describe(
              Error(Errc::invalidArgument,
                    fmt::format("{} permits and {} more are outside the range of a 32-bit integer",
                                sum->permits,
                                permits)));
        }
        return convert(*sum);
      });
}

Result<void> added(const Sum& /*sum*/) {
  return {};
}

/// Gives back permits of which nobody was told. A semaphore that was removed is not made again.
void giveBack(const SemaphoreBackend& backend, int permits) noexcept {
  // Without memory for the second try, either, they are lost.
  detail::ifThereIsMemorySoon([&] {
    addition<void>(backend, permits, true, added).start([](const Result<void>& /*result*/) {});
  });
}

template <class T>
Operation<T> acquisition(const SemaphoreBackend& backend,
                         int permits,
                         Duration wait,
                         std::stop_token stop) {
  if (permits < 0) {
    return refuseNegative<T>(backend, permits);
  }
  if (permits == 0) {
    if constexpr (std::is_void_v<T>) {
      return known<T>(backend, Result<void>());
    } else {
      return known<T>(backend, true);
    }
  }
  return detail::waiting<T>(
      backend,
      [backend, permits]() -> std::shared_ptr<const detail::LockScripts> {
        return std::make_shared<detail::PermitAcquisition>(*backend->counter(), permits);
      },
      wait,
      std::move(stop),
      [backend, permits]() -> detail::UniqueFunction<void()> {
        return [backend, permits] { giveBack(backend, permits); };
      });
}

std::optional<int> parsePermits(const Reply& reply) {
  const auto number = detail::parseNumber(reply);
  if (!number || *number > std::numeric_limits<int>::max() ||
      *number < std::numeric_limits<int>::min()) {
    return std::nullopt;
  }
  return static_cast<int>(*number);
}

}  // namespace

Semaphore::Semaphore(std::shared_ptr<const detail::ScriptedSemaphore> backend) noexcept
    : backend_(std::move(backend)) {}

void Semaphore::acquire(int permits) {
  acquireAsync(permits).get();
}

void Semaphore::acquire(std::stop_token stop, int permits) {
  acquireAsync(std::move(stop), permits).get();
}

bool Semaphore::tryAcquire(int permits) {
  return tryAcquireAsync(permits).get();
}

bool Semaphore::tryAcquire(int permits, Duration wait) {
  return tryAcquireAsync(permits, wait).get();
}

bool Semaphore::tryAcquire(Duration wait) {
  return tryAcquireAsync(wait).get();
}

bool Semaphore::tryAcquire(std::stop_token stop, int permits, Duration wait) {
  return tryAcquireAsync(std::move(stop), permits, wait).get();
}

void Semaphore::release(int permits) {
  releaseAsync(permits).get();
}

bool Semaphore::releaseIfExists(int permits) {
  return releaseIfExistsAsync(permits).get();
}

int Semaphore::availablePermits() {
  return availablePermitsAsync().get();
}

int Semaphore::drainPermits() {
  return drainPermitsAsync().get();
}

void Semaphore::addPermits(int delta) {
  addPermitsAsync(delta).get();
}

bool Semaphore::trySetPermits(int permits, std::optional<Duration> ttl) {
  return trySetPermitsAsync(permits, ttl).get();
}

bool Semaphore::remove() {
  return removeAsync().get();
}

const std::string& Semaphore::getName() const& {
  return detail::present(backend_)->name();
}

std::string Semaphore::getName() const&& {
  return detail::present(backend_)->name();
}

Operation<void> Semaphore::acquireAsync(int permits) {
  if (!backend_) {
    return detail::movedFrom<void>();
  }
  return acquisition<void>(backend_, permits, Duration::max(), {});
}

Operation<void> Semaphore::acquireAsync(std::stop_token stop, int permits) {
  if (!backend_) {
    return detail::movedFrom<void>();
  }
  return acquisition<void>(backend_, permits, Duration::max(), std::move(stop));
}

Operation<bool> Semaphore::tryAcquireAsync(int permits) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return acquisition<bool>(backend_, permits, Duration::zero(), {});
}

Operation<bool> Semaphore::tryAcquireAsync(int permits, Duration wait) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return acquisition<bool>(backend_, permits, wait, {});
}

Operation<bool> Semaphore::tryAcquireAsync(Duration wait) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return acquisition<bool>(backend_, 1, wait, {});
}

Operation<bool> Semaphore::tryAcquireAsync(std::stop_token stop, int permits, Duration wait) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return acquisition<bool>(backend_, permits, wait, std::move(stop));
}

Operation<void> Semaphore::releaseAsync(int permits) {
  if (!backend_) {
    return detail::movedFrom<void>();
  }
  if (permits < 0) {
    return refuseNegative<void>(backend_, permits);
  }
  return addPermitsAsync(permits);
}

Operation<bool> Semaphore::releaseIfExistsAsync(int permits) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  if (permits < 0) {
    return refuseNegative<bool>(backend_, permits);
  }
  if (permits == 0) {
    return known<bool>(backend_, false);
  }
  return addition<bool>(backend_, permits, true, [](const Sum& sum) -> Result<bool> {
    return sum.kind == Sum::Kind::added;
  });
}

Operation<int> Semaphore::availablePermitsAsync() {
  if (!backend_) {
    return detail::movedFrom<int>();
  }
  return asking<int, int>(
      backend_,
      [scripts = backend_->counter()](Call& call) { scripts->composeGet(call); },
      parsePermits,
      same<int>);
}

Operation<int> Semaphore::drainPermitsAsync() {
  if (!backend_) {
    return detail::movedFrom<int>();
  }
  return asking<int, int>(
      backend_,
      [scripts = backend_->counter()](Call& call) { scripts->composeDrain(call); },
      parsePermits,
      same<int>);
}

Operation<void> Semaphore::addPermitsAsync(int delta) {
  if (!backend_) {
    return detail::movedFrom<void>();
  }
  if (delta == 0) {
    return known<void>(backend_, Result<void>());
  }
  return addition<void>(backend_, delta, false, added);
}

Operation<bool> Semaphore::trySetPermitsAsync(int permits, std::optional<Duration> ttl) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  if (permits < 0) {
    return refuseNegative<bool>(backend_, permits);
  }
  if (ttl && (!ttl->isPositive() || *ttl > kLongestLife)) {
    return detail::refused<bool>(
        backend_, fmt::format("a lifetime of {} is not between 1ns and 365d", toString(*ttl)));
  }
  const auto life = ttl ? ttl->ceilMilliseconds() : std::chrono::milliseconds::zero();
  return detail::settingOnce(backend_, permits, life);
}

Operation<bool> Semaphore::removeAsync() {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return detail::removing(backend_);
}

}  // namespace rlock
