// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/hold_book.hpp>
#include <rlock/detail/engine/hold_loss.hpp>
#include <rlock/detail/engine/loss_teller.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// A hold that may be over, as it was when the doubt arose.
struct HoldDoubt {
  HoldPtr hold;
  std::chrono::steady_clock::time_point grantedAt;
  int repeats = 3;  ///< how often it is asked about again because something went on meanwhile
};

/// Hears that other clients free locks by force, and asks the server about holds that may be over.
///
/// A client that holds something subscribes to a channel of its own: one for all of its locks, so
/// that it costs nothing per lock. The subscription begins a moment after the first hold, so that
/// short holds do not pay for it, and lingers after the last. A message only raises a doubt, for it
/// may be older than the hold: a hold is lost when the server says that it is gone, and nothing
/// about the hold has gone on meanwhile. Without the subscription the next renewal finds out.
///
/// **Thread safety:** check() from any thread with no lock held; the rest on the loop thread.
class ForceListener {
 public:
  using Clock = std::chrono::steady_clock;

  ForceListener(EngineContext& context, HoldBook& book, LossTeller& losses)
      : context_(context),
        book_(book),
        losses_(losses),
        channel_(clientChannel(context.clientId())),
        timer_(context.env()->makeTimer([this] { serve(); })) {}

  /// This client's own channel.
  [[nodiscard]] const std::string& channel() const noexcept { return channel_; }
  /// Something is held. HoldBook::listening says when this is needed.
  void begin();
  void stop() noexcept { timer_->disarm(); }
  /// A message on the channel: this lock was freed by force.
  void heard(std::string_view name);
  void refused(const Error& error);

  /// Asks the server about each.
  void check(std::vector<HoldDoubt> doubts) noexcept RLOCK_EXCLUDES(book_.mutex);
  void check(HoldDoubt doubt) noexcept RLOCK_EXCLUDES(book_.mutex);

 private:
  class HoldCheck;

  /// Holds shorter than this need not hear that they were ended by force.
  static constexpr std::chrono::milliseconds kListenAfter{100};

  void serve();
  void isGone(HoldDoubt doubt) RLOCK_EXCLUDES(book_.mutex);

  EngineContext& context_;
  HoldBook& book_;
  LossTeller& losses_;
  const std::string channel_;
  const std::unique_ptr<Timer> timer_;
  bool subscribed_ = false;
  std::uint64_t acquiredBefore_ = 0;
  Clock::time_point heldLast_{};
};

/// Asks whether one hold is still there, by a renewal of a millisecond: it never shortens a lease,
/// and is answered by 0 where there is nothing to renew.
class ForceListener::HoldCheck final : public Call {
 public:
  HoldCheck(std::shared_ptr<ForceListener> listener, std::string owner, HoldDoubt doubt)
      : listener_(std::move(listener)), owner_(std::move(owner)), doubt_(std::move(doubt)) {
    const LockScripts& scripts = scriptsOf(*doubt_.hold);
    const RenewalRequest request{&scripts, owner_, std::chrono::milliseconds(1)};
    scripts.renewals()(*this, std::span(&request, 1));
    setRepeatable(true);
  }

 private:
  void finished(Outcome outcome) noexcept override {
    if (outcome.kind == Outcome::Kind::replied && reply().isArray() &&
        reply().elements.size() == 1 && reply().elements[0].isInteger() &&
        reply().elements[0].integer == 0) {
      try {
        listener_->isGone(doubt_);
      } catch (const std::bad_alloc&) {
        // The next renewal finds out.
      }
    }
  }

  const std::shared_ptr<ForceListener> listener_;
  const std::string owner_;
  const HoldDoubt doubt_;
};

inline void ForceListener::begin() {
  if (!timer_->armed()) {
    acquiredBefore_ = context_.counters().acquired.load(std::memory_order_relaxed);
    timer_->armAt(context_.now() + kListenAfter);
  }
}

inline void ForceListener::serve() {
  if (context_.closed()) {
    return;
  }
  const std::uint64_t acquired = context_.counters().acquired.load(std::memory_order_relaxed);
  const Clock::duration linger = context_.options().subscriptionLinger;
  const auto now = context_.now();
  bool wanted = acquired != std::exchange(acquiredBefore_, acquired);
  {
    const MutexLock lock(book_.mutex);
    if (wanted || book_.watchdog.size() > 0) {
      heldLast_ = now;
    }
    wanted = heldLast_ == now || (subscribed_ && now - heldLast_ < linger);
    book_.listening = wanted;
  }
  if (wanted) {
    // Looking four times as often as needed keeps the end of the linger within a quarter of it.
    timer_->armAt(std::max(std::min(now + linger / 4, heldLast_ + linger), now + kListenAfter));
  }
  if (wanted == subscribed_) {
    return;
  }
  // Where there is no memory for it, the next call of this function tries again.
  const bool done = ifThereIsMemorySoon([&] {
    if (wanted) {
      context_.dispatcher().subscribe(channel_, Dispatcher::Reach::everywhere);
    } else {
      context_.dispatcher().unsubscribe(channel_);
    }
  });
  subscribed_ = done ? wanted : subscribed_;
}

inline void ForceListener::refused(const Error& error) {
  context_.log().write(
      LogLevel::debug,
      std::string("forced releases by other clients are noticed at the next renewal: ") +
          error.what());
}

inline void ForceListener::heard(std::string_view name) {
  std::vector<HoldDoubt> doubts;
  {
    const MutexLock lock(book_.mutex);
    for (const HoldPtr& hold : book_.ledger.named(name)) {
      if (hold->busy) {
        // A grant may be on its way that was made before the lock was freed: it is checked, too,
        // when it is booked.
        hold->doubtedAt = context_.now();
      }
      if (hold->count > 0 && !hold->lost) {
        doubts.push_back({hold, hold->grantedAt});
      }
    }
  }
  check(std::move(doubts));
}

inline void ForceListener::check(HoldDoubt doubt) noexcept {
  try {
    std::string owner = context_.ownerField(doubt.hold->owner);
    context_.dispatcher().start(
        makeIntrusive<HoldCheck>(context_.sharing(*this), std::move(owner), std::move(doubt)),
        context_.now() + context_.callTimeout());
  } catch (const std::bad_alloc&) {
    // The books stay right, and the next renewal finds out, or the end of the lease.
  }
}

inline void ForceListener::check(std::vector<HoldDoubt> doubts) noexcept {
  for (HoldDoubt& doubt : doubts) {
    check(std::move(doubt));
  }
}

inline void ForceListener::isGone(HoldDoubt doubt) {
  Hold& hold = *doubt.hold;
  bool unsure = false;
  std::vector<HoldLoss> lost;
  {
    const MutexLock lock(book_.mutex);
    if (hold.count == 0 || hold.lost) {
      return;
    }
    if (hold.busy) {
      // A request under way may have been executed before the hold was ended, or after. Once it has
      // left the gate the question is asked again.
      hold.doubtedAt = context_.now();
      return;
    }
    // The question was not about a grant that was booked since: a thread that waits for its own
    // reply may book it before the loop comes to an earlier one.
    unsure = hold.grantedAt != doubt.grantedAt;
    if (!unsure) {
      book_.end(hold, LossReason::forced, lost);
    }
    doubt.grantedAt = hold.grantedAt;
  }
  if (!unsure) {
    losses_.announce(lost);
  } else if (doubt.repeats-- > 0) {
    check(std::move(doubt));
  }
}

}  // namespace rlock::detail
