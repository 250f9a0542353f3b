// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/lease.hpp>

#include <utility>

namespace rlock {

namespace {

/// Returns whether the release goes on in the background. False: there was no memory to begin it.
bool beginRelease(detail::LockBackend& backend, const detail::ReleaseTarget& target) noexcept {
  try {
    backend.releaseQuietly(target);
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

Lease::Lease(std::shared_ptr<detail::LockBackend> backend,
             OwnerId owner,
             detail::Grant grant) noexcept
    : backend_(std::move(backend)),
      owner_(owner),
      hold_(std::move(grant.hold)),
      token_(grant.token),
      acknowledged_(grant.acknowledged) {}

Lease::Lease(Lease&& other) noexcept {
  swap(other);
}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    Lease old(std::move(*this));
    swap(other);
  }
  return *this;
}

Lease::~Lease() {
  releaseInBackground();
}

void Lease::swap(Lease& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(owner_, other.owner_);
  std::swap(hold_, other.hold_);
  std::swap(token_, other.token_);
  std::swap(acknowledged_, other.acknowledged_);
}

bool Lease::held() const noexcept {
  return hold_ && hold_->heldAt(backend_->now());
}

std::chrono::steady_clock::time_point Lease::validUntil() const noexcept {
  return hold_ ? hold_->validUntil() : std::chrono::steady_clock::time_point{};
}

std::stop_token Lease::lostToken() const noexcept {
  return hold_ ? hold_->lostToken() : std::stop_token{};
}

LossReason Lease::lossReason() const noexcept {
  return hold_ ? hold_->reason() : LossReason::none;
}

ReleaseResult Lease::release() noexcept {
  const auto backend = std::exchange(backend_, nullptr);
  const auto hold = std::exchange(hold_, nullptr);
  token_.reset();
  acknowledged_ = 0;
  if (!backend || !hold) {
    return ReleaseResult::lost;
  }
  try {
    const bool lostBefore = hold->reason() != LossReason::none;
    const detail::ReleaseTarget target{owner_, hold->incarnation()};
    if (backend->refusesBlocking()) {
      backend->releaseAsync(target, [](const Result<detail::ReleaseOutcome>&) {});
      return lostBefore ? ReleaseResult::lost : ReleaseResult::unknown;
    }
    const Result<detail::ReleaseOutcome> result = backend->release(target);
    if (lostBefore) {
      return ReleaseResult::lost;
    }
    if (result.has_value()) {
      return *result == detail::ReleaseOutcome::released ? ReleaseResult::released
                                                         : ReleaseResult::stillHeld;
    }
    switch (result.error().errc()) {
      case Errc::notOwner:
      case Errc::closed:
      case Errc::forked:
      case Errc::wrongType:
        return ReleaseResult::lost;
      default:
        return ReleaseResult::unknown;
    }
  } catch (...) {
    // There was no memory for the release. Somebody may wait for it, so it is tried once more.
    beginRelease(*backend, {owner_, hold->incarnation()});
    return ReleaseResult::unknown;
  }
}

void Lease::releaseInBackground() noexcept {
  const auto backend = std::exchange(backend_, nullptr);
  const auto hold = std::exchange(hold_, nullptr);
  if (!backend || !hold || hold->released()) {
    return;
  }
  const detail::ReleaseTarget target{owner_, hold->incarnation()};
  // Somebody may wait for it, so it is tried once more.
  if (!beginRelease(*backend, target)) {
    beginRelease(*backend, target);
  }
}

}  // namespace rlock
