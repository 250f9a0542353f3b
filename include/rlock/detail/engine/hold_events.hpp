// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/force_listener.hpp>
#include <rlock/detail/engine/hold_book.hpp>
#include <rlock/detail/engine/hold_loss.hpp>
#include <rlock/detail/engine/loss_teller.hpp>
#include <rlock/detail/engine/renewals.hpp>
#include <rlock/detail/executor/idempotency_key_pool.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/permit_scripts.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Books what happens to holds without their gate: another lease for a permit, a forced release by
/// this client, the end of a thread, and the end of the client.
///
/// Nobody who calls this knows whether a request about the hold is under way. So an event ends only
/// holds that were granted before it; a grant that may be of the time after is doubted
/// (Hold::doubtedAt) or asked for (ForceListener), and a grant that is booked later finds the
/// event's mark (HoldKeeper::granted()). A hold is lost once, whatever ends it first. Each event is
/// one step under the mutex of the HoldBook, and the holders are told after that, on the loop
/// thread.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
/// The caller holds no lock of the engine.
class HoldEvents {
 public:
  using Clock = std::chrono::steady_clock;

  HoldEvents(EngineContext& context,
             HoldBook& book,
             Renewals& renewals,
             ForceListener& listener,
             LossTeller& losses)
      : context_(context),
        book_(book),
        renewals_(renewals),
        listener_(listener),
        losses_(losses),
        begin_(context.env()->makeTask([this] { beginOnLoop(); })) {}

  /// A hold whose lease is about to become another one.
  struct LeaseChange {
    HoldPtr hold{};                  ///< null: the permit is not held as an object
    IdempotencyKeyPool::Loan key{};  ///< of a lost change, for this one; null: there is none
  };
  /// The permit with this id is about to get another lease; if it is held as an object, that one
  /// follows. `sentAt` is a moment before the request is sent. Exactly one of the two below comes
  /// after it.
  [[nodiscard]] LeaseChange changingLease(std::string_view semaphore,
                                          std::string_view id,
                                          Clock::time_point sentAt,
                                          std::chrono::milliseconds lease,
                                          bool watched);
  /// The answer.
  /// @param taken  there is such a permit
  void leaseChanged(Hold& hold,
                    Clock::time_point sentAt,
                    std::chrono::milliseconds lease,
                    bool taken);
  /// There is no answer, or it is an error.
  /// @param lost  as in Watchdog::leaseNotChanged()
  void leaseNotChanged(Hold& hold, const IdempotencyKeyPool::Loan& lost) noexcept;
  /// Permits of this semaphore were released by these ids, one after the other: those that are held
  /// as objects are lost.
  void releasedById(std::string_view semaphore, std::string_view ids);
  /// This client freed the lock by force, with a request sent at `sentAt`: its own holders are
  /// told.
  void forced(const LockScripts& scripts, Clock::time_point sentAt);
  /// A thread ended that may hold locks.
  void threadEnded(OwnerId owner) noexcept;

  // The end.

  /// The client was closed: every Lease shows it at once. Its stop token follows in loseAll().
  void invalidateAll() noexcept;
  /// Ends every hold of a closed client and tells the holders. Returns those to be given back. Loop
  /// thread.
  /// @throws std::bad_alloc  then nothing has changed
  std::vector<HoldPtr> loseAll();

 private:
  /// The timer is to be set earlier. It cannot fail, as in HoldKeeper.
  void wakeLoop() noexcept RLOCK_EXCLUDES(book_.mutex) { begin_->post(context_.sharing(*this)); }
  void beginOnLoop();
  /// The incarnation of a hold that was told lost, if the server may have it for longer than it was
  /// counted on.
  static std::optional<std::uint64_t> leftOver(const Hold& hold) noexcept;

  EngineContext& context_;
  HoldBook& book_;
  Renewals& renewals_;
  ForceListener& listener_;
  LossTeller& losses_;
  const std::unique_ptr<ReadyTask> begin_;
  /// Invalid for the application, to be signalled on the loop.
  std::vector<IntrusivePtr<HoldHandle>> invalidated_ RLOCK_GUARDED_BY(book_.mutex);
};

inline void HoldEvents::beginOnLoop() {
  if (!context_.closed()) {
    renewals_.begin();
  }
}

inline HoldEvents::LeaseChange HoldEvents::changingLease(std::string_view semaphore,
                                                         std::string_view id,
                                                         Clock::time_point sentAt,
                                                         std::chrono::milliseconds lease,
                                                         bool watched) {
  LeaseChange change;
  bool needsLoop = false;
  {
    const MutexLock lock(book_.mutex);
    const std::vector<HoldPtr> permits = book_.ledger.named(semaphore);
    const auto held = std::find_if(permits.begin(), permits.end(), [&](const HoldPtr& each) {
      return each->kind == HoldKind::permit && each->count > 0 &&
             static_cast<const PermitScripts&>(scriptsOf(*each)).isFor(id);
    });
    if (held != permits.end()) {
      change.key = book_.watchdog.changeLease(**held, sentAt, lease, watched);
      change.hold = *held;
      needsLoop = book_.needsTimer();
    }
  }
  if (needsLoop) {
    wakeLoop();
  }
  return change;
}

inline void HoldEvents::leaseChanged(Hold& hold,
                                     Clock::time_point sentAt,
                                     std::chrono::milliseconds lease,
                                     bool taken) {
  bool needsLoop = false;
  std::vector<HoldLoss> lost;
  std::optional<std::uint64_t> left;
  {
    const MutexLock lock(book_.mutex);
    if (taken) {
      book_.watchdog.leaseChanged(hold, sentAt, lease);
      left = leftOver(hold);
    } else if (hold.count > 0 && !hold.lost) {
      book_.end(hold, goneReason(hold), lost);
    }
    needsLoop = book_.needsTimer();
  }
  if (needsLoop) {
    wakeLoop();
  }
  losses_.announceOnLoop(std::move(lost));
  if (left) {
    losses_.giveBackOnLoop(HoldPtr(&hold), *left);
  }
}

inline void HoldEvents::leaseNotChanged(Hold& hold, const IdempotencyKeyPool::Loan& lost) noexcept {
  std::optional<std::uint64_t> left;
  {
    const MutexLock lock(book_.mutex);
    Watchdog::leaseNotChanged(hold, lost);
    left = leftOver(hold);
  }
  if (left) {
    // Without memory for it, the hold's own release gives it back.
    ifThereIsMemory([&] { losses_.giveBackOnLoop(HoldPtr(&hold), *left); });
  }
}

inline std::optional<std::uint64_t> HoldEvents::leftOver(const Hold& hold) noexcept {
  const bool left = hold.lost && hold.count > 0 && hold.doubtfulLease().count() > 0;
  return left ? std::optional(hold.incarnation) : std::nullopt;
}

inline void HoldEvents::releasedById(std::string_view semaphore, std::string_view ids) {
  std::unordered_set<std::string_view> released;
  for (; !ids.empty(); ids.remove_prefix(kPermitIdSize)) {
    released.insert(ids.substr(0, kPermitIdSize));
  }
  std::vector<HoldLoss> lost;
  {
    const MutexLock lock(book_.mutex);
    for (const HoldPtr& hold : book_.ledger.named(semaphore)) {
      if (hold->kind == HoldKind::permit && hold->count > 0 && !hold->beingReleased() &&
          released.contains(static_cast<const PermitScripts&>(scriptsOf(*hold)).bytes())) {
        book_.end(*hold, LossReason::refused, lost);
      }
    }
  }
  losses_.announceOnLoop(std::move(lost));
}

inline void HoldEvents::forced(const LockScripts& scripts, Clock::time_point sentAt) {
  std::vector<HoldLoss> lost;
  std::vector<HoldDoubt> unsure;
  {
    const MutexLock lock(book_.mutex);
    for (const HoldPtr& hold : book_.ledger.named(scripts.name)) {
      if (!scripts.forceReleaseEnds(hold->kind)) {
        continue;
      }
      if (hold->busy) {
        // A grant that is on its way may have been made before the lock was freed.
        hold->doubtedAt = context_.now();
      }
      if (hold->count == 0 || hold->beingReleased()) {
        // The release may have been executed before; its answer says whether the hold was there.
        continue;
      }
      if (hold->grantedAt >= sentAt) {
        // It may be of the time after, when the lock was free for it.
        unsure.push_back({hold, hold->grantedAt});
      } else {
        book_.end(*hold, LossReason::forced, lost);
      }
    }
  }
  losses_.announceOnLoop(std::move(lost));
  listener_.check(std::move(unsure));
}

inline void HoldEvents::threadEnded(OwnerId owner) noexcept {
  // A closing client gives back what it holds, also that of a thread which ends because of it.
  if (!context_.inItsProcess() || context_.closed()) {
    return;
  }
  std::vector<HoldLoss> lost;
  {
    const MutexLock lock(book_.mutex);
    Watchdog* const watchdog = &book_.watchdog;
    book_.ledger.visitOwnedBy(owner, [&](Hold& hold) {
      // Of one that the watchdog does not have the release is under way.
      if (hold.count == 0 || hold.lost || !hold.hook.linked()) {
        return;
      }
      // It must not be renewed for ever, even if nobody can be told.
      loseAllOfAnyway(hold, LossReason::threadEnded, lost);
      // Left to expire: the work it protects may go on elsewhere.
      hold.leftToExpire = true;
      watchdog->linger(hold);
    });
  }
  try {
    losses_.announceOnLoop(std::move(lost));
  } catch (const std::bad_alloc&) {
    // The handles show it.
  }
}

// The end.

inline void HoldEvents::invalidateAll() noexcept {
  // Not left to the loop, which may be in a callback of the application.
  try {
    const MutexLock lock(book_.mutex);
    const std::vector<HoldPtr> all = book_.ledger.all();
    std::size_t handles = 0;
    for (const HoldPtr& hold : all) {
      handles += std::max<std::size_t>(1, hold->parts.size());
    }
    // Before the first is marked: nobody would signal one that is marked and not noted.
    invalidated_.reserve(handles);
    for (const HoldPtr& hold : all) {
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

inline std::vector<HoldPtr> HoldEvents::loseAll() {
  std::vector<HoldLoss> lost;
  std::vector<HoldPtr> held;
  std::vector<IntrusivePtr<HoldHandle>> invalidated;
  {
    const MutexLock lock(book_.mutex);
    const std::vector<HoldPtr> all = book_.ledger.all();
    held.reserve(all.size());
    invalidated.swap(invalidated_);
    for (const HoldPtr& hold : all) {
      if (hold->count == 0) {
        continue;
      }
      book_.watchdog.retire(*hold);
      if (hold->leftToExpire) {
        hold->count = 0;
        continue;
      }
      held.push_back(hold);
      loseAllOfAnyway(*hold, LossReason::clientClosed, lost);
      hold->count = 0;
    }
  }
  // The tokens of all holds first: each announcement may run the application's code.
  for (const auto& handle : invalidated) {
    handle->signalLoss();
  }
  losses_.announce(lost);
  return held;
}

}  // namespace rlock::detail
