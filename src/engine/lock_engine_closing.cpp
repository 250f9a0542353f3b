// SPDX-License-Identifier: Apache-2.0

// How LockEngine ends: it dismisses calls, gives holds back, and waits for what is under way.

#include "engine/lock_engine.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace rlock::detail {

/// Gives back one hold of a client that is being closed.
class LockEngine::ClosingRelease final : public Call {
 public:
  ClosingRelease(std::shared_ptr<LockEngine> engine, const HoldPtr& hold)
      : engine_(std::move(engine)), hold_(hold), owner_(engine_->ownerField(hold->owner)) {
    scriptsOf(*hold_).composeSettle(*this, {owner_, 0, {}});
  }

 private:
  void finished(Outcome /*outcome*/) noexcept override { engine_->closingReleaseDone(); }

  const std::shared_ptr<LockEngine> engine_;
  const HoldPtr hold_;
  const std::string owner_;
};

void LockEngine::markClosed() noexcept {
  if (closed_.exchange(true)) {
    return;
  }
  // Here, because the loop may be in a callback of the application.
  try {
    const MutexLock lock(holdsMutex_);
    invalidated_.reserve(ledger_.size());
    for (const HoldPtr& hold : ledger_.all()) {
      if (hold->handle && hold->handle->markLost(LossReason::clientClosed)) {
        invalidated_.push_back(hold->handle);
      }
      for (const HoldPart& part : hold->parts) {
        if (part.handle && part.handle->markLost(LossReason::clientClosed)) {
          invalidated_.push_back(part.handle);
        }
      }
    }
  } catch (const std::bad_alloc&) {
    // The loop does it.
  }
}

void LockEngine::shutDown(Clock::time_point deadline, UniqueFunction<void()> done) {
  markClosed();
  watchdogTimer_->disarm();
  hubTimer_->disarm();
  listenTimer_->disarm();
  delayed_.close();
  serveCalls();
  std::vector<Waiter*> waiters;
  {
    const MutexLock lock(hubMutex_);
    waiters = hub_.all();
  }
  for (Waiter* waiter : waiters) {
    waiter->shutDown();
    waiter->waiterDropRef();
  }
  dismissFromGates();
  std::vector<Watchdog::Lost> lost;
  std::vector<HoldPtr> held;
  std::vector<IntrusivePtr<HoldHandle>> invalidated;
  {
    const MutexLock lock(holdsMutex_);
    invalidated.swap(invalidated_);
    for (const HoldPtr& hold : ledger_.all()) {
      if (hold->count == 0) {
        continue;
      }
      watchdog_.retire(*hold);
      if (hold->leftToExpire) {
        hold->count = 0;
        continue;
      }
      held.push_back(hold);
      Watchdog::loseAll(*hold, LossReason::clientClosed, lost);
      hold->count = 0;
    }
  }
  announce(std::move(lost));
  for (const auto& handle : invalidated) {
    handle->signalLoss();
  }
  closingDone_ = std::move(done);
  closingReleases_ = 1;
  closeTimer_ = env_->makeTimer([this] { endClosing(false); });
  closeTimer_->armAt(deadline);
  closeBy_ = deadline;
  releaseToClose(held);
  closingReleaseDone();
}

/// The gates are passed on only as long as there is a loop to do it.
void LockEngine::dismissFromGates() noexcept {
  GateWaiter* dismissed = nullptr;
  {
    const MutexLock lock(holdsMutex_);
    dismissed = ledger_.dismissAll();
  }
  while (dismissed != nullptr) {
    GateWaiter* const waiter = std::exchange(dismissed, HoldLedger::next(*dismissed));
    waiter->gateClosed();
    waiter->gateDropRef();
  }
}

void LockEngine::releaseToClose(const std::vector<HoldPtr>& holds) {
  for (const HoldPtr& hold : holds) {
    ++closingReleases_;
    // Later there is nothing left to release.
    dispatcher_->start(makeIntrusive<ClosingRelease>(shared_from_this(), hold),
                       std::min(closeBy_, endOf(*hold) + callTimeout()));
  }
}

void LockEngine::closingReleaseDone() {
  --closingReleases_;
  endClosing(true);
}

void LockEngine::deliveryEnded() noexcept {
  if (deliveries_.fetch_sub(1) == 1 && closed()) {
    dispatcher_->post([self = shared_from_this()] { self->endClosing(true); });
  }
}

void LockEngine::placeTaken(const std::string& place) {
  const MutexLock lock(placesMutex_);
  ++placeSharers_[place];
  places_.fetch_add(1, std::memory_order_relaxed);
}

bool LockEngine::placeAbandoned(const std::string& place) noexcept {
  const MutexLock lock(placesMutex_);
  const auto sharers = placeSharers_.find(place);
  if (sharers != placeSharers_.end() && --sharers->second > 0) {
    return false;
  }
  if (sharers != placeSharers_.end()) {
    placeSharers_.erase(sharers);
  }
  return true;
}

void LockEngine::placeLeft() noexcept {
  if (places_.fetch_sub(1) == 1 && closed()) {
    dispatcher_->post([self = shared_from_this()] { self->endClosing(true); });
  }
}

/// @param inTime  only if everything is given back
void LockEngine::endClosing(bool inTime) {
  if (!closingDone_) {
    return;
  }
  if (inTime) {
    std::vector<HoldPtr> late;
    {
      const MutexLock lock(holdsMutex_);
      late.swap(late_);
    }
    releaseToClose(late);
    const MutexLock lock(holdsMutex_);
    // Requests under way give back what they obtain when they see that the client is closed.
    if (closingReleases_ > 0 || places_.load() > 0 || unsettled_ > 0 || !late_.empty() ||
        deliveries_.load() > 0) {
      return;
    }
  }
  closeTimer_->disarm();
  std::exchange(closingDone_, nullptr)();
}

void LockEngine::disconnect() noexcept {
  try {
    outage_.summarise(*log_, now());
  } catch (const std::bad_alloc&) {
    // Nobody learns the number.
  }
  closeTimer_.reset();
  dispatcher_->close();
  // Whoever came since.
  dismissFromGates();
}

}  // namespace rlock::detail
