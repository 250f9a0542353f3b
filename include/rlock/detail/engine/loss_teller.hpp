// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/engine/callbacks.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/hold_book.hpp>
#include <rlock/detail/engine/hold_labels.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/hold_loss.hpp>
#include <rlock/detail/engine/outage_report.hpp>
#include <rlock/detail/engine/recent_losses.hpp>
#include <rlock/detail/engine/validity.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Announces losses that were decided under the mutex of the holds: to the holder's stop token, to
/// the log, to Options::onLost. Then it gives back what the server may still have.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
/// The caller holds no lock of the engine: the application's own code runs.
class LossTeller {
 public:
  using Losses = std::vector<HoldLoss>;
  using GiveBack = std::function<void(const std::shared_ptr<const LockScripts>&, ReleaseTarget)>;

  /// @param giveBack  releases a hold in the background
  LossTeller(EngineContext& context,
             Callbacks& callbacks,
             OutageReport& outages,
             HoldBook& book,
             HoldLabels& labels,
             GiveBack giveBack) noexcept
      : context_(context),
        callbacks_(callbacks),
        outages_(outages),
        book_(book),
        labels_(labels),
        giveBack_(std::move(giveBack)) {}

  /// Loop thread.
  void announce(const Losses& losses);
  void announceOnLoop(Losses losses);
  /// Gives back a hold that was told lost before, because the server may have it for longer since.
  void giveBackOnLoop(HoldPtr hold, std::uint64_t incarnation);

  [[nodiscard]] RecentLosses& recent() noexcept { return recent_; }

 private:
  void tell(const HoldLoss& lost);
  void write(const HoldLoss& lost);
  void tellObserver(const HoldLoss& lost);
  void giveBack(const HoldLoss& lost);
  void giveBack(const Hold& hold, std::uint64_t incarnation);
  void takeLabelAway(const HoldLoss& lost) noexcept;

  EngineContext& context_;
  Callbacks& callbacks_;
  OutageReport& outages_;
  HoldBook& book_;
  HoldLabels& labels_;
  const GiveBack giveBack_;
  RecentLosses recent_;
};

inline void LossTeller::announce(const Losses& losses) {
  for (const HoldLoss& lost : losses) {
    tell(lost);
    ifThereIsMemory([&] { giveBack(lost); });
    takeLabelAway(lost);
  }
}

inline void LossTeller::announceOnLoop(Losses losses) {
  if (!losses.empty()) {
    context_.dispatcher().post(
        [self = context_.sharing(*this), losses = std::move(losses)] { self->announce(losses); });
  }
}

inline void LossTeller::giveBackOnLoop(HoldPtr hold, std::uint64_t incarnation) {
  context_.dispatcher().post([self = context_.sharing(*this), hold = std::move(hold), incarnation] {
    ifThereIsMemory([&] { self->giveBack(*hold, incarnation); });
  });
}

inline void LossTeller::giveBack(const HoldLoss& lost) {
  // Where the server has said so, there is nothing left; a lease that ran out is over in a moment,
  // unless the server may have another one; and what a thread has left is left to expire.
  if (lost.reason == LossReason::maxHold || lost.reason == LossReason::unreachable ||
      (lost.reason == LossReason::expired && lost.mayLast)) {
    giveBack(*lost.hold, lost.incarnation);
  }
}

inline void LossTeller::giveBack(const Hold& hold, std::uint64_t incarnation) {
  if (!context_.refuse(false)) {
    giveBack_(std::static_pointer_cast<const LockScripts>(hold.keepAlive),
              {hold.owner, incarnation});
  }
}

/// The labels of one lock last as long as the longest of them, which others lengthen.
inline void LossTeller::takeLabelAway(const HoldLoss& lost) noexcept {
  // A release in the background takes it away itself, and the rest of an ended thread keeps it.
  if (lost.label.empty() || lost.reason == LossReason::maxHold ||
      lost.reason == LossReason::unreachable || lost.reason == LossReason::threadEnded) {
    return;
  }
  {
    const MutexLock lock(book_.mutex);
    if (lost.hold->count > 0 && !lost.hold->lost) {
      // It is that of what the owner has taken since, or of its other read holds.
      return;
    }
  }
  labels_.note(*lost.hold, {}, std::chrono::milliseconds::zero());
}

/// If there is no memory for one consequence of a loss, the others follow nevertheless.
inline void LossTeller::tell(const HoldLoss& lost) {
  const Hold& hold = *lost.hold;
  context_.counters().lost.fetch_add(1, std::memory_order_relaxed);
  ifThereIsMemory([&] {
    recent_.note(
        hold,
        {lost.reason,
         lost.lease,
         lost.reason == LossReason::expired ? lost.validUntil + Validity::allowance(lost.lease)
                                            : context_.now()});
  });
  if (lost.handle) {
    lost.handle->signalLoss();
  }
  ifThereIsMemory([&] { write(lost); });
  ifThereIsMemory([&] { tellObserver(lost); });
  const auto& onLost = context_.options().onLost;
  if (onLost) {
    ifThereIsMemory([&] {
      callbacks_.deliver([self = context_.sharing(*this),
                          told = LostHold{std::string(scriptsOf(hold).title()),
                                          context_.ownerField(hold.owner),
                                          lost.reason}] { self->context_.options().onLost(told); });
    });
  }
}

inline void LossTeller::tellObserver(const HoldLoss& lost) {
  const auto now = context_.now();
  const auto held = now - lost.heldSince;
  const LockScripts& scripts = scriptsOf(*lost.hold);
  context_.telemetry().noteHold(scripts, held);
  if (context_.telemetry().listens()) {
    context_.telemetry().tell(
        LostEvent{Telemetry::about(scripts, context_.ownerField(lost.hold->owner), now),
                  lost.reason,
                  held,
                  lost.label});
  }
}

inline void LossTeller::write(const HoldLoss& lost) {
  const Hold& hold = *lost.hold;
  const LogLevel level = lost.reason == LossReason::clientClosed ? LogLevel::info
                         : lost.reason == LossReason::expired    ? LogLevel::warning
                                                                 : LogLevel::error;
  if (lost.reason != LossReason::unreachable || outages_.tells(OutageLog::Event::loss)) {
    context_.log().write(level,
                         fmt::format("lock \"{}\": owner {}{}{} lost its hold: {}",
                                     escapeForDisplay(scriptsOf(hold).title()),
                                     context_.ownerField(hold.owner),
                                     lost.label.empty() ? "" : ", ",
                                     escapeForDisplay(lost.label),
                                     toString(lost.reason)));
  }
}

}  // namespace rlock::detail
