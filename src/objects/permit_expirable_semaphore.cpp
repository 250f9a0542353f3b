// SPDX-License-Identifier: Apache-2.0

// PermitExpirableSemaphore: a handle without state of its own around a PermitSemaphore.
// Acquisitions choose the ids of their permits before they ask, so that a lost reply can be
// reconciled; other changes carry an idempotency key. Every call is an Operation; the blocking
// calls run it on the calling thread.

#include "objects/moved_from.hpp"
#include "objects/operations.hpp"
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/permit_semaphore.hpp>
#include <rlock/permit_expirable_semaphore.hpp>

#include <utility>

namespace rlock {

namespace {

using detail::AcquireParams;
using detail::PermitSemaphore;
using Acquired = detail::LockBackend::Acquired;
using Acquisition = PermitSemaphore::Acquisition;
using Ids = PermitExpirableSemaphore::Ids;
using SemaphorePtr = std::shared_ptr<PermitSemaphore>;

AcquireParams params(Duration wait, std::optional<Duration> lease, std::stop_token stop = {}) {
  AcquireParams result;
  result.wait = wait;
  result.lease = lease;
  result.stop = std::move(stop);
  return result;
}

AcquireParams params(AcquireOptions options, Duration defaultWait) {
  AcquireParams result =
      params(options.wait.value_or(defaultWait), options.lease, std::move(options.stop));
  result.maxHold = options.maxHold;
  result.label = std::move(options.label);
  result.sync = options.sync;
  return result;
}

Error notInTime(const PermitSemaphore& semaphore) {
  ErrorContext context;
  context.key = semaphore.name();
  context.kind = "semaphore";
  return Error(Errc::timedOut, "no permit became free in the whole wait", std::move(context));
}

/// @param convert  `T(Grant)`, for permits that were obtained; called once at most, takes no memory
/// @param missed   `Result<T>()`, for permits that were not
/// @param undo     makes what OperationBody::undo() returns
template <class T, class Convert, class Missed, class Undo = detail::NothingToUndo>
Operation<T> acquisition(const SemaphorePtr& semaphore,
                         Acquisition what,
                         Convert convert,
                         Missed missed,
                         Undo undo = {}) {
  return detail::stoppable<T, Acquired>(
      std::move(what),
      [semaphore](Acquisition given) { return semaphore->acquire(std::move(given)); },
      [semaphore](Acquisition given, PermitSemaphore::Handler<Acquired> handler) {
        semaphore->acquireAsync(std::move(given), std::move(handler));
      },
      [convert = std::move(convert), missed](Result<Acquired> result) mutable -> Result<T> {
        if (!result.has_value()) {
          return result.error();
        }
        return *result ? Result<T>(convert(std::move(**result))) : missed();
      },
      std::move(undo));
}

// The scripts object of each acquisition carries the ids that were chosen for it, so that nothing
// has to be parsed from the reply. The functions that convert a grant have the ids as texts before
// anything is sent: without memory for them the permits would be taken and nobody's.

std::vector<std::string_view> viewsOf(std::span<const std::string> ids) {
  return {ids.begin(), ids.end()};
}

/// Gives back permits of which nobody was told.
auto undoOf(const SemaphorePtr& semaphore, const Acquisition& what) {
  return [semaphore, scripts = what.scripts]() -> detail::UniqueFunction<void()> {
    if (!scripts) {
      return {};
    }
    return [semaphore, release = semaphore->requests().tryRelease(viewsOf(scripts->ids()))] {
      // Without memory for the second try, either, their lease ends them.
      detail::ifThereIsMemorySoon(
          [&] { semaphore->start<int>(release, [](const Result<int>& /*result*/) {}); });
    };
  };
}

/// The id of an acquisition of one permit.
std::string idOf(const Acquisition& what) {
  return what.scripts->ids().front();
}

/// Waits without limit for one permit.
Operation<std::string> one(const SemaphorePtr& semaphore,
                           std::optional<Duration> lease,
                           std::stop_token stop = {}) {
  Acquisition what =
      semaphore->acquisition(1, false, params(Duration::max(), lease, std::move(stop)));
  std::string id = idOf(what);
  auto undo = undoOf(semaphore, what);
  return acquisition<std::string>(
      semaphore,
      std::move(what),
      [id = std::move(id)](const detail::Grant& /*grant*/) mutable { return std::move(id); },
      [semaphore]() -> Result<std::string> { return notInTime(*semaphore); },
      std::move(undo));
}

Operation<std::optional<std::string>> tryOne(const SemaphorePtr& semaphore,
                                             Duration wait,
                                             std::optional<Duration> lease,
                                             std::stop_token stop = {}) {
  Acquisition what = semaphore->acquisition(1, false, params(wait, lease, std::move(stop)));
  std::string id = idOf(what);
  auto undo = undoOf(semaphore, what);
  return acquisition<std::optional<std::string>>(
      semaphore,
      std::move(what),
      [id = std::move(id)](const detail::Grant& /*grant*/) mutable {
        return std::optional(std::move(id));
      },
      []() -> Result<std::optional<std::string>> { return std::optional<std::string>(); },
      std::move(undo));
}

Operation<Ids> many(const SemaphorePtr& semaphore,
                    int permits,
                    Duration wait,
                    std::optional<Duration> lease,
                    std::stop_token stop = {}) {
  Acquisition what = semaphore->acquisition(permits, false, params(wait, lease, std::move(stop)));
  // For no permits there is no request, and so there are no scripts.
  Ids ids = what.scripts ? what.scripts->ids() : Ids();
  auto undo = undoOf(semaphore, what);
  return acquisition<Ids>(
      semaphore,
      std::move(what),
      [ids = std::move(ids)](const detail::Grant& /*grant*/) mutable { return std::move(ids); },
      []() -> Result<Ids> { return Ids(); },
      std::move(undo));
}

/// A function that makes the permit of a grant. It is renewed and released as a Lease is: its
/// backend is the holder of this one id.
auto permitOf(const SemaphorePtr& semaphore, const Acquisition& what) {
  return [holder = semaphore->holder(what), owner = what.params.owner, id = idOf(what)](
             detail::Grant grant) mutable {
    return Permit(Lease(std::move(holder), owner, std::move(grant)), std::move(id));
  };
}

template <class T>
Operation<T> request(const SemaphorePtr& semaphore, const detail::PermitRequest<T>& what) {
  return detail::operation<T, T>([semaphore, what] { return semaphore->run(what); },
                                 [semaphore, what](PermitSemaphore::Handler<T> handler) {
                                   semaphore->start(what, std::move(handler));
                                 },
                                 detail::same<T>);
}

}  // namespace

PermitExpirableSemaphore::PermitExpirableSemaphore(
    std::shared_ptr<detail::PermitSemaphore> semaphore) noexcept
    : semaphore_(std::move(semaphore)) {}

// The blocking calls: get() runs the Operation on the calling thread and throws what it returns.
std::string PermitExpirableSemaphore::acquire() {
  return acquireAsync().get();
}

std::string PermitExpirableSemaphore::acquire(Duration lease) {
  return acquireAsync(lease).get();
}

std::string PermitExpirableSemaphore::acquire(std::stop_token stop, std::optional<Duration> lease) {
  return acquireAsync(std::move(stop), lease).get();
}

Ids PermitExpirableSemaphore::acquireMany(int permits, std::optional<Duration> lease) {
  return acquireManyAsync(permits, lease).get();
}

Ids PermitExpirableSemaphore::acquireMany(std::stop_token stop,
                                          int permits,
                                          std::optional<Duration> lease) {
  return acquireManyAsync(std::move(stop), permits, lease).get();
}

std::optional<std::string> PermitExpirableSemaphore::tryAcquire() {
  return tryAcquireAsync().get();
}

std::optional<std::string> PermitExpirableSemaphore::tryAcquire(Duration wait) {
  return tryAcquireAsync(wait).get();
}

std::optional<std::string> PermitExpirableSemaphore::tryAcquire(Duration wait, Duration lease) {
  return tryAcquireAsync(wait, lease).get();
}

std::optional<std::string> PermitExpirableSemaphore::tryAcquire(std::stop_token stop,
                                                                Duration wait,
                                                                std::optional<Duration> lease) {
  return tryAcquireAsync(std::move(stop), wait, lease).get();
}

Ids PermitExpirableSemaphore::tryAcquireMany(int permits,
                                             Duration wait,
                                             std::optional<Duration> lease) {
  return tryAcquireManyAsync(permits, wait, lease).get();
}

Ids PermitExpirableSemaphore::tryAcquireMany(std::stop_token stop,
                                             int permits,
                                             Duration wait,
                                             std::optional<Duration> lease) {
  return tryAcquireManyAsync(std::move(stop), permits, wait, lease).get();
}

void PermitExpirableSemaphore::release(std::string_view id) {
  releaseAsync(id).get();
}

void PermitExpirableSemaphore::release(std::span<const std::string> ids) {
  releaseAsync(ids).get();
}

bool PermitExpirableSemaphore::tryRelease(std::string_view id) {
  return tryReleaseAsync(id).get();
}

int PermitExpirableSemaphore::tryRelease(std::span<const std::string> ids) {
  return tryReleaseAsync(ids).get();
}

int PermitExpirableSemaphore::availablePermits() {
  return availablePermitsAsync().get();
}

int PermitExpirableSemaphore::getPermits() {
  return getPermitsAsync().get();
}

int PermitExpirableSemaphore::acquiredPermits() {
  return acquiredPermitsAsync().get();
}

bool PermitExpirableSemaphore::trySetPermits(int permits) {
  return trySetPermitsAsync(permits).get();
}

void PermitExpirableSemaphore::setPermits(int permits) {
  setPermitsAsync(permits).get();
}

void PermitExpirableSemaphore::addPermits(int delta) {
  addPermitsAsync(delta).get();
}

bool PermitExpirableSemaphore::remove() {
  return removeAsync().get();
}

bool PermitExpirableSemaphore::updateLeaseTime(std::string_view id, std::optional<Duration> lease) {
  return updateLeaseTimeAsync(id, lease).get();
}

PermitExpirableSemaphore::LeaseTime PermitExpirableSemaphore::getLeaseTime(std::string_view id) {
  return getLeaseTimeAsync(id).get();
}

Permit PermitExpirableSemaphore::hold(AcquireOptions options) {
  return holdAsync(std::move(options)).get();
}

std::optional<Permit> PermitExpirableSemaphore::tryHold(AcquireOptions options) {
  return tryHoldAsync(std::move(options)).get();
}

const std::string& PermitExpirableSemaphore::getName() const& {
  return detail::present(semaphore_)->name();
}

std::string PermitExpirableSemaphore::getName() const&& {
  return detail::present(semaphore_)->name();
}

// The Operations. A handle that was moved from gives one that fails.
Operation<std::string> PermitExpirableSemaphore::acquireAsync() {
  if (!semaphore_) {
    return detail::movedFrom<std::string>();
  }
  return one(semaphore_, {});
}

Operation<std::string> PermitExpirableSemaphore::acquireAsync(Duration lease) {
  if (!semaphore_) {
    return detail::movedFrom<std::string>();
  }
  return one(semaphore_, lease);
}

Operation<std::string> PermitExpirableSemaphore::acquireAsync(std::stop_token stop,
                                                              std::optional<Duration> lease) {
  if (!semaphore_) {
    return detail::movedFrom<std::string>();
  }
  return one(semaphore_, lease, std::move(stop));
}

Operation<Ids> PermitExpirableSemaphore::acquireManyAsync(int permits,
                                                          std::optional<Duration> lease) {
  if (!semaphore_) {
    return detail::movedFrom<Ids>();
  }
  return many(semaphore_, permits, Duration::max(), lease);
}

Operation<Ids> PermitExpirableSemaphore::acquireManyAsync(std::stop_token stop,
                                                          int permits,
                                                          std::optional<Duration> lease) {
  if (!semaphore_) {
    return detail::movedFrom<Ids>();
  }
  return many(semaphore_, permits, Duration::max(), lease, std::move(stop));
}

Operation<std::optional<std::string>> PermitExpirableSemaphore::tryAcquireAsync() {
  if (!semaphore_) {
    return detail::movedFrom<std::optional<std::string>>();
  }
  return tryOne(semaphore_, Duration::zero(), {});
}

Operation<std::optional<std::string>> PermitExpirableSemaphore::tryAcquireAsync(Duration wait) {
  if (!semaphore_) {
    return detail::movedFrom<std::optional<std::string>>();
  }
  return tryOne(semaphore_, wait, {});
}

Operation<std::optional<std::string>> PermitExpirableSemaphore::tryAcquireAsync(Duration wait,
                                                                                Duration lease) {
  if (!semaphore_) {
    return detail::movedFrom<std::optional<std::string>>();
  }
  return tryOne(semaphore_, wait, lease);
}

Operation<std::optional<std::string>> PermitExpirableSemaphore::tryAcquireAsync(
    std::stop_token stop, Duration wait, std::optional<Duration> lease) {
  if (!semaphore_) {
    return detail::movedFrom<std::optional<std::string>>();
  }
  return tryOne(semaphore_, wait, lease, std::move(stop));
}

Operation<Ids> PermitExpirableSemaphore::tryAcquireManyAsync(int permits,
                                                             Duration wait,
                                                             std::optional<Duration> lease) {
  if (!semaphore_) {
    return detail::movedFrom<Ids>();
  }
  return many(semaphore_, permits, wait, lease);
}

Operation<Ids> PermitExpirableSemaphore::tryAcquireManyAsync(std::stop_token stop,
                                                             int permits,
                                                             Duration wait,
                                                             std::optional<Duration> lease) {
  if (!semaphore_) {
    return detail::movedFrom<Ids>();
  }
  return many(semaphore_, permits, wait, lease, std::move(stop));
}

Operation<void> PermitExpirableSemaphore::releaseAsync(std::string_view id) {
  if (!semaphore_) {
    return detail::movedFrom<void>();
  }
  return request(semaphore_, semaphore_->requests().release({&id, 1}));
}

Operation<void> PermitExpirableSemaphore::releaseAsync(std::span<const std::string> ids) {
  if (!semaphore_) {
    return detail::movedFrom<void>();
  }
  return request(semaphore_, semaphore_->requests().release(viewsOf(ids)));
}

Operation<bool> PermitExpirableSemaphore::tryReleaseAsync(std::string_view id) {
  if (!semaphore_) {
    return detail::movedFrom<bool>();
  }
  const auto what = semaphore_->requests().tryRelease({&id, 1});
  // A release says how many permits it gave back; of one id that is 0 or 1.
  return detail::operation<bool, int>(
      [semaphore = semaphore_, what] { return semaphore->run(what); },
      [semaphore = semaphore_, what](PermitSemaphore::Handler<int> handler) {
        semaphore->start(what, std::move(handler));
      },
      [](const Result<int>& released) -> Result<bool> {
        if (!released.has_value()) {
          return released.error();
        }
        return *released == 1;
      });
}

Operation<int> PermitExpirableSemaphore::tryReleaseAsync(std::span<const std::string> ids) {
  if (!semaphore_) {
    return detail::movedFrom<int>();
  }
  return request(semaphore_, semaphore_->requests().tryRelease(viewsOf(ids)));
}

Operation<int> PermitExpirableSemaphore::availablePermitsAsync() {
  if (!semaphore_) {
    return detail::movedFrom<int>();
  }
  return request(semaphore_, semaphore_->requests().availablePermits());
}

Operation<int> PermitExpirableSemaphore::getPermitsAsync() {
  if (!semaphore_) {
    return detail::movedFrom<int>();
  }
  return request(semaphore_, semaphore_->requests().getPermits());
}

Operation<int> PermitExpirableSemaphore::acquiredPermitsAsync() {
  if (!semaphore_) {
    return detail::movedFrom<int>();
  }
  return request(semaphore_, semaphore_->requests().acquiredPermits());
}

Operation<bool> PermitExpirableSemaphore::trySetPermitsAsync(int permits) {
  if (!semaphore_) {
    return detail::movedFrom<bool>();
  }
  return request(semaphore_, semaphore_->requests().trySetPermits(permits));
}

Operation<void> PermitExpirableSemaphore::setPermitsAsync(int permits) {
  if (!semaphore_) {
    return detail::movedFrom<void>();
  }
  return request(semaphore_, semaphore_->requests().setPermits(permits));
}

Operation<void> PermitExpirableSemaphore::addPermitsAsync(int delta) {
  if (!semaphore_) {
    return detail::movedFrom<void>();
  }
  return request(semaphore_, semaphore_->requests().addPermits(delta));
}

Operation<bool> PermitExpirableSemaphore::removeAsync() {
  if (!semaphore_) {
    return detail::movedFrom<bool>();
  }
  return request(semaphore_, semaphore_->requests().remove());
}

Operation<bool> PermitExpirableSemaphore::updateLeaseTimeAsync(std::string_view id,
                                                               std::optional<Duration> lease) {
  if (!semaphore_) {
    return detail::movedFrom<bool>();
  }
  return request(semaphore_, semaphore_->requests().updateLeaseTime(id, lease));
}

Operation<PermitExpirableSemaphore::LeaseTime> PermitExpirableSemaphore::getLeaseTimeAsync(
    std::string_view id) {
  if (!semaphore_) {
    return detail::movedFrom<PermitExpirableSemaphore::LeaseTime>();
  }
  return request(semaphore_, semaphore_->requests().getLeaseTime(id));
}

Operation<Permit> PermitExpirableSemaphore::holdAsync(AcquireOptions options) {
  if (!semaphore_) {
    return detail::movedFrom<Permit>();
  }
  Acquisition what = semaphore_->acquisition(1, true, params(std::move(options), Duration::max()));
  auto permit = permitOf(semaphore_, what);
  return acquisition<Permit>(
      semaphore_, std::move(what), std::move(permit), [semaphore = semaphore_]() -> Result<Permit> {
        return notInTime(*semaphore);
      });
}

Operation<std::optional<Permit>> PermitExpirableSemaphore::tryHoldAsync(AcquireOptions options) {
  if (!semaphore_) {
    return detail::movedFrom<std::optional<Permit>>();
  }
  Acquisition what = semaphore_->acquisition(1, true, params(std::move(options), Duration::zero()));
  auto permit = permitOf(semaphore_, what);
  return acquisition<std::optional<Permit>>(
      semaphore_,
      std::move(what),
      [permit = std::move(permit)](detail::Grant grant) mutable {
        return std::optional(permit(std::move(grant)));
      },
      []() -> Result<std::optional<Permit>> { return std::optional<Permit>(); });
}

}  // namespace rlock
