// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/hold_book.hpp>
#include <rlock/detail/engine/hold_labels.hpp>
#include <rlock/detail/engine/loss_teller.hpp>
#include <rlock/detail/engine/outage_report.hpp>
#include <rlock/detail/engine/renewal_spread.hpp>
#include <rlock/detail/engine/renewal_window.hpp>
#include <rlock/detail/engine/validity.hpp>
#include <rlock/detail/executor/ack_lane.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/inspection_scripts.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/log.hpp>
#include <rlock/sync_policy.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Renews what the watchdog says is due, and books the answers.
///
/// One timer serves all holds of a client: it is set to the watchdog's next deadline. The holds
/// that are due then go out in batches, each one request for many holds of one form and one slot. A
/// batch that the server refuses, perhaps for one of its keys, is split until the others are
/// renewed without it. Each node has a RenewalWindow: only so many batches are under way to it at
/// once, and what goes to another node does not wait for them.
///
/// After a reconnection all holds are due together. The watchdog gives them out in parts, so that
/// neither the loop nor the mutex is taken for long, and a batch is composed when it goes out.
/// Holds that were renewed in a crowd are renewed a little early next time, each batch by another
/// time (RenewalSpread), so that the crowd disperses.
///
/// A batch whose holds have a SyncPolicy is booked when that is met; only what it says of holds
/// that are gone is booked at once. Holds of different policies go in different batches.
///
/// A renewal is never what makes a hold valid for longer than the server keeps it: validity counts
/// from when the request was submitted, and an answer is booked only as long as the hold still
/// waits for it (Hold::renewing). A hold that was lost or is being released in the time that a
/// batch waits for its turn, a connection or a script's text is taken out of it before it is sent:
/// what was told to be lost must not live on.
///
/// **Thread safety:** loop thread only. The books are touched under the mutex of the HoldBook.
class Renewals {
 public:
  using Clock = std::chrono::steady_clock;

  Renewals(EngineContext& context,
           HoldBook& book,
           LossTeller& losses,
           HoldLabels& labels,
           OutageReport& outages)
      : context_(context),
        book_(book),
        losses_(losses),
        labels_(labels),
        outages_(outages),
        timer_(context.env()->makeTimer([this] { serve(); })),
        spread_(std::chrono::nanoseconds(context.options().watchdogTimeout) / 3) {}

  /// A hold is due earlier than all others. HoldBook::needsTimer() says when this is needed.
  void begin();
  void stop() noexcept;
  /// There is a connection again: what is on the other side may have forgotten every hold.
  /// @param replaced  it is another server: every hold is verified, the unwatched ones, too
  void renewAll(bool replaced);

 private:
  class Batch;

  /// A renewal is not kept for later: by then its hold may be over. The watchdog comes again.
  static constexpr std::chrono::milliseconds kPatience{5};
  /// At most so many due holds are taken from the watchdog in one pass of the loop, so that timers
  /// and replies have their turn in between. It is a little more than the RenewalWindows of a small
  /// cluster take together.
  static constexpr std::size_t kTakenAtOnce = 4096;

  void serve() RLOCK_EXCLUDES(book_.mutex);
  void take(const std::vector<HoldPtr>& holds, RenewalAim aim) RLOCK_EXCLUDES(book_.mutex);
  /// The batches that wait for one node.
  struct NodeRenewals {
    explicit NodeRenewals(std::size_t batchSize) noexcept : window(batchSize) {}

    RenewalWindow window;
    bool sending = false;
  };
  [[nodiscard]] NodeRenewals& renewalsTo(std::uintptr_t node);
  void push(const HoldPtr& hold, RenewalAim aim) RLOCK_EXCLUDES(book_.mutex);
  void sendWaiting();
  void sendWaiting(std::uintptr_t node);
  void over(std::uintptr_t node, ComposeRenewals form, RenewalWindow::End how);
  /// There was no memory to send them, or to book the answer: they are tried again as after a
  /// failure.
  void notSent(std::span<const HoldPtr> holds) noexcept RLOCK_EXCLUDES(book_.mutex);
  void dropOver(std::vector<HoldPtr>& holds) RLOCK_EXCLUDES(book_.mutex);
  void setLeases(std::vector<RenewalRequest>& requests,
                 std::span<const HoldPtr> holds,
                 RenewalAim aim) RLOCK_EXCLUDES(book_.mutex);
  bool split(const Batch& batch, const Outcome& outcome);
  void done(Batch& batch, const Outcome& outcome) RLOCK_EXCLUDES(book_.mutex);
  /// Which elements of an answer are booked.
  enum class Part : std::uint8_t { all, refusals, renewals };
  struct LateRenewal {
    HoldPtr hold;
    std::chrono::nanoseconds lag;
    std::chrono::nanoseconds left;
  };
  /// The consequences of the answers to a batch.
  struct Booked {
    LossTeller::Losses lost;
    std::vector<LabelNote> labelled;
    std::vector<LateRenewal> late;
    std::string refusal;  ///< of one hold, in the server's words
    Clock::time_point due{};
  };
  /// Books an answer, or that there is none, and tells what follows from it.
  /// @param failure  why the batch was not renewed; empty if it was
  void conclude(Batch& batch, bool answered, Part part, std::string_view failure)
      RLOCK_EXCLUDES(book_.mutex);
  void tell(const Batch& batch,
            Part part,
            std::string_view failure,
            Booked& booked,
            Clock::time_point now);
  void askForAcks(Batch& batch);
  [[nodiscard]] static bool renewed(const Reply& answer) noexcept {
    return answer.isInteger() && answer.integer == 1;
  }
  [[nodiscard]] static bool refusedAsReadOnly(const Reply& answer) noexcept {
    return !answer.text.empty() && classifyError(answer.text).errc == Errc::readOnly;
  }
  void book(
      Batch& batch, bool answered, Part part, bool renews, Clock::time_point now, Booked& booked)
      RLOCK_EXCLUDES(book_.mutex);
  void bookOne(Hold& hold,
               const Reply* reply,
               const Batch& batch,
               Clock::time_point now,
               Booked& to) RLOCK_REQUIRES(book_.mutex);

  void noteLag(Hold& hold, Clock::time_point now, Booked& to) RLOCK_REQUIRES(book_.mutex);
  void tellLate(const std::vector<LateRenewal>& late, Clock::time_point now);

  EngineContext& context_;
  HoldBook& book_;
  LossTeller& losses_;
  HoldLabels& labels_;
  OutageReport& outages_;
  const std::unique_ptr<Timer> timer_;
  std::map<std::uintptr_t, NodeRenewals> nodes_;
  RenewalSpread spread_;
};

/// One request that renews several holds, or verifies them. To verify a hold is to renew it for the
/// rest of its validity: the script never shortens a lease, so that mostly only the answer matters.
class Renewals::Batch final : public Call {
 public:
  /// @param waiting  the batch moves its holds out of it
  /// @param early    how much earlier than necessary the next renewal of these holds is scheduled
  Batch(std::shared_ptr<Renewals> renewals,
        RenewalWindow::Batch& waiting,
        std::uintptr_t node,
        Clock::duration early) noexcept
      : renewals_(std::move(renewals)),
        holds_(std::move(waiting.holds)),
        group_(waiting.group),
        node_(node),
        early_(early) {
    setFollowsUp(true);
  }

  void compose();

  [[nodiscard]] const std::vector<HoldPtr>& holds() const noexcept { return holds_; }
  [[nodiscard]] const RenewalGroup& group() const noexcept { return group_; }
  [[nodiscard]] std::uintptr_t node() const noexcept { return node_; }
  [[nodiscard]] RenewalAim aim() const noexcept { return group_.aim; }
  [[nodiscard]] const SyncPolicy& sync() const noexcept { return group_.sync; }
  [[nodiscard]] Clock::duration early() const noexcept { return early_; }

 private:
  bool aboutToSend(Clock::time_point /*now*/) override;

  void finished(Outcome outcome) noexcept override;

  const std::shared_ptr<Renewals> renewals_;
  std::vector<HoldPtr> holds_;
  const RenewalGroup group_;
  const std::uintptr_t node_;
  const Clock::duration early_;
  std::vector<std::string> owners_;
};

inline void Renewals::Batch::compose() {
  const EngineContext& context = renewals_->context_;
  owners_.clear();
  owners_.reserve(holds_.size());
  std::vector<RenewalRequest> requests;
  requests.reserve(holds_.size());
  for (const HoldPtr& hold : holds_) {
    requests.push_back({&scriptsOf(*hold),
                        owners_.emplace_back(context.ownerField(hold->owner)),
                        std::chrono::milliseconds(1)});
  }
  renewals_->setLeases(requests, holds_, group_.aim);
  group_.form(*this, requests);
}

inline bool Renewals::Batch::aboutToSend(Clock::time_point /*now*/) {
  const std::size_t before = holds_.size();
  renewals_->dropOver(holds_);
  if (!holds_.empty() && holds_.size() < before) {
    const bool text = sendsText();
    compose();
    if (text) {
      sendText();
    }
  }
  return !holds_.empty();
}

inline void Renewals::Batch::finished(Outcome outcome) noexcept {
  if (outcome.kind == Outcome::Kind::replied) {
    renewals_->context_.telemetry().durations().roundTrips.add(answeredAt() - submittedAt());
  }
  const auto how = outcome.kind == Outcome::Kind::replied ? RenewalWindow::End::replied
                   : outcome.answered                     ? RenewalWindow::End::refused
                                                          : RenewalWindow::End::unanswered;
  try {
    if (!holds_.empty()) {
      renewals_->done(*this, outcome);
    }
  } catch (const std::bad_alloc&) {
    renewals_->notSent(holds_);
  }
  renewals_->over(node_, group_.form, how);
}

inline void Renewals::begin() {
  Clock::time_point due{};
  {
    const MutexLock lock(book_.mutex);
    due = book_.armed;
  }
  timer_->armAt(due);
}

inline void Renewals::stop() noexcept {
  timer_->disarm();
  for (auto& [node, renewals] : nodes_) {
    renewals.window.clear();
  }
}

inline void Renewals::renewAll(bool replaced) {
  if (context_.closed()) {
    return;
  }
  {
    const MutexLock lock(book_.mutex);
    book_.watchdog.renewAll(context_.now(), replaced);
  }
  for (auto& [node, renewals] : nodes_) {
    renewals.window.reconnected();
  }
  serve();
}

inline void Renewals::serve() {
  if (context_.closed()) {
    return;
  }
  Watchdog::Work work;
  Clock::time_point due{};
  {
    const MutexLock lock(book_.mutex);
    work = book_.watchdog.collect(context_.now(), kTakenAtOnce);
    for (const HoldPtr& hold : work.gone) {
      hold->count = 0;
      book_.ledger.forgetIfUnused(*hold);
    }
    due = book_.arm();
  }
  timer_->armAt(due);
  losses_.announce(work.lost);
  take(work.renew, RenewalAim::renew);
  take(work.verify, RenewalAim::verify);
}

inline void Renewals::take(const std::vector<HoldPtr>& holds, RenewalAim aim) {
  if (holds.empty()) {
    return;
  }
  for (const HoldPtr& hold : holds) {
    push(hold, aim);
  }
  sendWaiting();
}

inline Renewals::NodeRenewals& Renewals::renewalsTo(std::uintptr_t node) {
  const auto batchSize = static_cast<std::size_t>(context_.options().watchdogBatchSize);
  return nodes_.try_emplace(node, batchSize).first->second;
}

inline void Renewals::push(const HoldPtr& hold, RenewalAim aim) {
  RenewalGroup group{scriptsOf(*hold).renewals(), 0, aim, {}};
  Clock::time_point lossAt{};
  {
    const MutexLock lock(book_.mutex);
    group.sync = hold->sync();
    lossAt = Validity::lossAt(*hold);
  }
  try {
    const Dispatcher::Place place = context_.dispatcher().placeOf(hold->name);
    group.slot = place.slot;
    RenewalWindow& window = renewalsTo(place.node).window;
    if (hold->renewedAlone) {
      window.pushApart(group, {hold}, lossAt);
    } else {
      window.push(group, hold, lossAt);
    }
  } catch (const std::bad_alloc&) {
    notSent({&hold, 1});
  }
}

inline void Renewals::sendWaiting() {
  // sendWaiting(node) may erase entries, so the next one is looked up anew.
  for (auto next = nodes_.begin(); next != nodes_.end();) {
    const std::uintptr_t node = next->first;
    sendWaiting(node);
    next = nodes_.upper_bound(node);
  }
}

inline void Renewals::sendWaiting(std::uintptr_t node) {
  const auto found = nodes_.find(node);
  // A batch that fails at once ends inside the loop below, which then goes on with the next.
  if (found == nodes_.end() || std::exchange(found->second.sending, true)) {
    return;
  }
  NodeRenewals& renewals = found->second;
  while (auto next = context_.closed() ? std::nullopt : renewals.window.next()) {
    IntrusivePtr<Batch> batch;
    try {
      batch =
          makeIntrusive<Batch>(context_.sharing(*this),
                               *next,
                               node,
                               next->crowded ? spread_.next() : RenewalSpread::Duration::zero());
      batch->compose();
    } catch (const std::bad_alloc&) {
      renewals.window.ended(next->group.form, RenewalWindow::End::unanswered);
      notSent(batch ? batch->holds() : next->holds);
      continue;
    }
    context_.dispatcher().start(std::move(batch), context_.now() + kPatience);
  }
  renewals.sending = false;
  if (node != 0 && renewals.window.idle()) {
    // An idle entry is dropped: its node may have left the cluster.
    nodes_.erase(node);
  }
}

inline void Renewals::over(std::uintptr_t node, ComposeRenewals form, RenewalWindow::End how) {
  const auto renewals = nodes_.find(node);
  if (renewals != nodes_.end()) {
    renewals->second.window.ended(form, how);
    sendWaiting(node);
  }
}

inline void Renewals::notSent(std::span<const HoldPtr> holds) noexcept {
  const auto now = context_.now();
  Clock::time_point due{};
  {
    const MutexLock lock(book_.mutex);
    for (const HoldPtr& hold : holds) {
      if (hold->renewing) {
        context_.counters().renewalFailures.fetch_add(1, std::memory_order_relaxed);
        book_.watchdog.renewalFailed(*hold, now);
      }
    }
    due = book_.arm();
  }
  if (!context_.closed()) {
    timer_->armAt(due);
  }
}

/// Leaves out the holds whose renewal is pointless by now: they were lost or released since it was
/// due.
inline void Renewals::dropOver(std::vector<HoldPtr>& holds) {
  const MutexLock lock(book_.mutex);
  std::erase_if(holds, [](const HoldPtr& hold) { return !hold->renewing || hold->lost; });
}

/// A server that took over may have an older expiry of a hold than its holder counts with: from a
/// snapshot, or from a replica that was behind. So a suspect hold is renewed for as long as it is
/// valid, and the answer that it is there says that it lasts as well.
inline void Renewals::setLeases(std::vector<RenewalRequest>& requests,
                                std::span<const HoldPtr> holds,
                                RenewalAim aim) {
  const auto now = context_.now();
  const MutexLock lock(book_.mutex);
  for (std::size_t i = 0; i < holds.size(); ++i) {
    const Hold& hold = *holds[i];
    if (aim == RenewalAim::renew) {
      requests[i].lease = context_.options().watchdogTimeout;
    }
    if (hold.suspect) {
      requests[i].lease = std::max(requests[i].lease, Validity::leftOf(hold, now));
    }
  }
}

/// The server refused a batch, perhaps for one of its keys: the others are renewed without it.
inline bool Renewals::split(const Batch& batch, const Outcome& outcome) {
  if (outcome.kind != Outcome::Kind::failed || !mayConcernOneKey(outcome.error->errc()) ||
      context_.closed()) {
    return false;
  }
  try {
    std::vector<HoldPtr> due;
    auto lossAt = Clock::time_point::max();
    {
      const MutexLock lock(book_.mutex);
      for (const HoldPtr& hold : batch.holds()) {
        // A hold that was released or lost while the batch was under way needs no renewal.
        if (hold->renewing) {
          hold->renewedAlone = batch.holds().size() == 1;
          due.push_back(hold);
          lossAt = std::min(lossAt, Validity::lossAt(*hold));
        }
      }
    }
    if (due.size() < 2) {
      return false;
    }
    const auto half = due.begin() + static_cast<std::ptrdiff_t>(due.size() / 2);
    RenewalWindow& window = renewalsTo(batch.node()).window;
    window.pushApart(batch.group(), {half, due.end()}, lossAt);
    due.erase(half, due.end());
    window.pushApart(batch.group(), std::move(due), lossAt);
    return true;
  } catch (const std::bad_alloc&) {
    // Without memory the batch counts as one that cannot be split. The half that is in the window
    // already is renewed nevertheless.
    return false;
  }
}

inline void Renewals::done(Batch& batch, const Outcome& outcome) {
  if (split(batch, outcome)) {
    return;
  }
  const bool answered = outcome.kind == Outcome::Kind::replied && batch.reply().isArray() &&
                        batch.reply().elements.size() == batch.holds().size();
  if (answered && std::any_of(batch.reply().elements.begin(),
                              batch.reply().elements.end(),
                              &Renewals::refusedAsReadOnly)) {
    // A client that only renews has no other call that would notice it. A renewal that has nothing
    // to write, because the key lasts longer than the lease, does not notice it either. It needs
    // not: the first one that has to write comes when most of a lease is left, as for other holds.
    Dispatcher::writesRefused(batch);
  }
  if (answered && batch.sync().any() && batch.aim() != RenewalAim::verify) {
    conclude(batch, true, Part::refusals, {});
    askForAcks(batch);
    return;
  }
  conclude(batch,
           answered,
           Part::all,
           answered        ? std::string_view()
           : outcome.error ? std::string_view(outcome.error->what())
                           : "the reply was lost");
}

inline void Renewals::askForAcks(Batch& batch) {
  const Reply::Elements& answers = batch.reply().elements;
  if (std::none_of(answers.begin(), answers.end(), &Renewals::renewed)) {
    return;
  }
  AckTicket ticket;
  ticket.policy = batch.sync();
  ticket.since = context_.now();
  ticket.until = ticket.since + batch.sync().limit;
  ticket.done = [this, self = IntrusivePtr<Batch>(&batch)](const Acks& acks) {
    // Without a conclusion the holds would never be renewed again, so that there are words short
    // enough to need no memory.
    std::string failure = acks.met ? "" : "no memory";
    if (!acks.met) {
      ifThereIsMemory([&] { failure = "not acknowledged as their SyncPolicy asks: " + acks.why; });
    }
    conclude(*self, true, Part::renewals, failure);
  };
  Dispatcher::acknowledge(batch, std::move(ticket));
}

inline void Renewals::conclude(Batch& batch, bool answered, Part part, std::string_view failure) {
  const auto now = context_.now();
  Booked booked;
  try {
    book(batch, answered, part, failure.empty(), now, booked);
    if (!context_.closed()) {
      timer_->armAt(booked.due);
    }
  } catch (const std::bad_alloc&) {
    // Out of memory while booking: the losses that were booked until then are announced below.
    notSent(batch.holds());
  }
  losses_.announce(booked.lost);
  try {
    tell(batch, part, failure, booked, now);
  } catch (const std::bad_alloc&) {
    // Out of memory while telling: the holds are booked correctly, only log lines and events are
    // missing.
  }
}

inline void Renewals::tell(const Batch& batch,
                           Part part,
                           std::string_view failure,
                           Booked& booked,
                           Clock::time_point now) {
  if (!booked.labelled.empty()) {
    labels_.note(std::move(booked.labelled));
  }
  if (failure.empty() && booked.refusal.empty()) {
    if (part != Part::refusals) {
      outages_.over(now);
    }
  } else if (outages_.tells(OutageLog::Event::renewal, batch.holds().size())) {
    context_.log().write(LogLevel::warning,
                         fmt::format("{} holds not renewed, trying again: {}",
                                     batch.holds().size(),
                                     failure.empty() ? std::string_view(booked.refusal) : failure));
  }
  tellLate(booked.late, now);
}

inline void Renewals::book(
    Batch& batch, bool answered, Part part, bool renews, Clock::time_point now, Booked& booked) {
  const MutexLock lock(book_.mutex);
  for (std::size_t i = 0; i < batch.holds().size(); ++i) {
    Hold& hold = *batch.holds()[i];
    const Reply* const reply = answered ? &batch.reply().elements[i] : nullptr;
    if (part != Part::all && renewed(*reply) != (part == Part::renewals)) {
      continue;
    }
    // The hold may have been released while its renewal was under way, and taken again: then the
    // answer is not about what is held now.
    if (hold.renewing) {
      bookOne(hold, renews ? reply : nullptr, batch, now, booked);
    }
  }
  booked.due = book_.arm();
}

inline void Renewals::bookOne(
    Hold& hold, const Reply* reply, const Batch& batch, Clock::time_point now, Booked& to) {
  EngineContext::Counters& counters = context_.counters();
  if (reply == nullptr || !reply->isInteger()) {
    counters.renewalFailures.fetch_add(1, std::memory_order_relaxed);
    book_.watchdog.renewalFailed(hold, now);
    if (reply != nullptr) {
      to.refusal = reply->text;
    }
  } else if (reply->integer == 1 && batch.aim() == RenewalAim::verify) {
    book_.watchdog.verified(hold, batch.submittedAt());
    hold.renewedAlone = false;
  } else if (reply->integer == 1) {
    counters.renewals.fetch_add(1, std::memory_order_relaxed);
    noteLag(hold, now, to);
    book_.watchdog.renewed(hold, batch.submittedAt(), now, batch.early());
    hold.renewedAlone = false;
    if (!hold.label.empty()) {
      to.labelled.push_back({std::string(hold.name),
                             context_.ownerField(hold.owner),
                             hold.label,
                             context_.options().watchdogTimeout});
    }
  } else if (hold.grantedAt > batch.submittedAt()) {
    // Race: the lock was taken anew while the loop was late with this answer, which is about the
    // hold before, and the next renewal is under way already.
    book_.watchdog.renewalFailed(hold, now);
  } else {
    book_.end(hold, goneReason(hold), to.lost);
  }
}

inline void Renewals::noteLag(Hold& hold, Clock::time_point now, Booked& to) {
  const auto lag = std::max<std::chrono::nanoseconds>(now - book_.watchdog.dueOf(hold), {});
  context_.telemetry().durations().renewalLags.add(lag);
  // A renewal is due after a third of the lease. It counts as late when half as much again, a sixth
  // of the lease, has passed since.
  if (lag >= std::chrono::nanoseconds(book_.watchdog.timeout()) / 6 &&
      context_.telemetry().listens()) {
    const auto left = std::max<std::chrono::nanoseconds>(hold.validUntil - now, {});
    to.late.push_back({HoldPtr(&hold), lag, left});
  }
}

inline void Renewals::tellLate(const std::vector<LateRenewal>& late, Clock::time_point now) {
  for (const LateRenewal& each : late) {
    context_.telemetry().tell(RenewedLateEvent{
        Telemetry::about(scriptsOf(*each.hold), context_.ownerField(each.hold->owner), now),
        each.lag,
        each.left});
  }
}

}  // namespace rlock::detail
