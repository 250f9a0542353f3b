// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/hold_book.hpp>
#include <rlock/detail/engine/hold_labels.hpp>
#include <rlock/detail/engine/loss_teller.hpp>
#include <rlock/detail/engine/outage_report.hpp>
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
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Renews what the watchdog says is due, and books the answers.
///
/// One timer serves all holds of a client: it is set to the watchdog's next deadline. The holds
/// that are due then go out in batches, each one request for many holds of one form and one slot. A
/// batch that the server refuses, perhaps for one of its keys, is split until the others are
/// renewed without it. Only so many batches are under way at once to one node; the others wait
/// here. What goes to another node does not wait for them.
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
        timer_(context.env()->makeTimer([this] { serve(); })) {}

  /// A hold is due earlier than all others. HoldBook::needsTimer() says when this is needed.
  void begin();
  void stop() noexcept { timer_->disarm(); }
  /// There is a connection again: what is on the other side may have forgotten every hold.
  /// @param replaced  it is another server: every hold is verified, the unwatched ones, too
  void renewAll(bool replaced);

 private:
  class Batch;

  enum class Aim {
    renew,
    verify,  ///< only to learn whether they are there
  };

  /// A renewal is not kept for later: by then its hold may be over. The watchdog comes again.
  static constexpr std::chrono::milliseconds kPatience{5};
  /// Renewals under way at once to one node. After a reconnection all holds are due together, and
  /// the requests of the application must not stand behind all of them.
  static constexpr int kAtOnce = 16;

  void serve() RLOCK_EXCLUDES(book_.mutex);
  void renew(std::vector<HoldPtr> holds, Aim aim) RLOCK_EXCLUDES(book_.mutex);
  /// The way to one node.
  struct Lane {
    net::RequestQueue waiting{};
    int underWay = 0;
    bool sending = false;
  };
  void sendWaiting(std::uintptr_t node);
  void dropOver(std::vector<HoldPtr>& holds) RLOCK_EXCLUDES(book_.mutex);
  bool split(const Batch& batch, const Outcome& outcome);
  void done(Batch& batch, const Outcome& outcome) RLOCK_EXCLUDES(book_.mutex);
  /// Which elements of an answer are booked.
  enum class Part : std::uint8_t { all, refusals, renewals };
  /// Books an answer, or that there is none, and tells what follows from it.
  /// @param failure  why nothing is renewed; empty: it is
  void conclude(Batch& batch, bool answered, Part part, std::string_view failure)
      RLOCK_EXCLUDES(book_.mutex);
  void askForAcks(Batch& batch);
  [[nodiscard]] static bool renewed(const Reply& answer) noexcept {
    return answer.isInteger() && answer.integer == 1;
  }
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
  [[nodiscard]] Booked book(
      Batch& batch, bool answered, Part part, bool renews, Clock::time_point now);
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
  std::map<std::uintptr_t, Lane> lanes_;
};

/// One request that renews several holds, or verifies them: that is a renewal of a millisecond,
/// which never shortens a lease.
class Renewals::Batch final : public Call {
 public:
  Batch(std::shared_ptr<Renewals> renewals,
        std::vector<HoldPtr> holds,
        std::uintptr_t node,
        Aim aim,
        const SyncPolicy& sync)
      : renewals_(std::move(renewals)),
        holds_(std::move(holds)),
        node_(node),
        aim_(aim),
        sync_(sync) {
    compose();
    setFollowsUp(true);
  }

  [[nodiscard]] const std::vector<HoldPtr>& holds() const noexcept { return holds_; }
  [[nodiscard]] Aim aim() const noexcept { return aim_; }
  [[nodiscard]] const SyncPolicy& sync() const noexcept { return sync_; }

 private:
  void compose() {
    const EngineContext& context = renewals_->context_;
    const auto lease =
        aim_ == Aim::renew ? context.options().watchdogTimeout : std::chrono::milliseconds(1);
    owners_.clear();
    owners_.reserve(holds_.size());
    std::vector<RenewalRequest> requests;
    requests.reserve(holds_.size());
    for (const HoldPtr& hold : holds_) {
      requests.push_back(
          {&scriptsOf(*hold), owners_.emplace_back(context.ownerField(hold->owner)), lease});
    }
    scriptsOf(*holds_.front()).renewals()(*this, requests);
  }

  bool aboutToSend() override {
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

  void finished(Outcome outcome) noexcept override {
    if (outcome.kind == Outcome::Kind::replied) {
      renewals_->context_.telemetry().durations().roundTrips.add(answeredAt() - submittedAt());
    }
    if (!holds_.empty()) {
      renewals_->done(*this, outcome);
    }
    --renewals_->lanes_[node_].underWay;
    renewals_->sendWaiting(node_);
  }

  const std::shared_ptr<Renewals> renewals_;
  std::vector<HoldPtr> holds_;
  const std::uintptr_t node_;
  const Aim aim_;
  const SyncPolicy sync_;
  std::vector<std::string> owners_;
};

inline void Renewals::begin() {
  Clock::time_point due{};
  {
    const MutexLock lock(book_.mutex);
    due = book_.armed;
  }
  timer_->armAt(due);
}

inline void Renewals::renewAll(bool replaced) {
  if (context_.closed()) {
    return;
  }
  {
    const MutexLock lock(book_.mutex);
    book_.watchdog.renewAll(context_.now(), replaced);
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
    work = book_.watchdog.collect(context_.now());
    for (const HoldPtr& hold : work.gone) {
      hold->count = 0;
      book_.ledger.forgetIfUnused(*hold);
    }
    due = book_.arm();
  }
  timer_->armAt(due);
  losses_.announce(work.lost);
  renew(std::move(work.renew), Aim::renew);
  renew(std::move(work.verify), Aim::verify);
}

inline void Renewals::renew(std::vector<HoldPtr> holds, Aim aim) {
  const auto batchSize = static_cast<std::size_t>(context_.options().watchdogBatchSize);
  struct Due {
    Dispatcher::Place place;
    ComposeRenewals form;
    HoldPtr hold;
    SyncPolicy sync;
  };
  std::vector<Due> due;
  due.reserve(holds.size());
  for (HoldPtr& hold : holds) {
    const ComposeRenewals form = scriptsOf(*hold).renewals();
    due.push_back({context_.dispatcher().placeOf(hold->name), form, std::move(hold), {}});
  }
  {
    const MutexLock lock(book_.mutex);
    for (Due& one : due) {
      one.sync = one.hold->sync();
    }
  }
  // Holds of different forms, slots and policies need different requests; each keeps its order.
  const auto together = [](const Due& a, const Due& b) {
    return a.form == b.form && a.place == b.place && a.sync == b.sync;
  };
  std::stable_sort(due.begin(), due.end(), [](const Due& a, const Due& b) {
    if (a.place != b.place) {
      return a.place < b.place;
    }
    return a.form != b.form ? std::less<>()(a.form, b.form)
                            : std::tie(a.sync.kind, a.sync.count, a.sync.limit) <
                                  std::tie(b.sync.kind, b.sync.count, b.sync.limit);
  });
  for (std::size_t first = 0, last = 0; first < due.size(); first = last) {
    std::vector<HoldPtr> batch;
    while (last < due.size() && last - first < batchSize && together(due[first], due[last]) &&
           (last == first || !(due[last].hold->renewedAlone || batch.front()->renewedAlone))) {
      batch.push_back(std::move(due[last++].hold));
    }
    const std::uintptr_t node = due[first].place.node;
    lanes_[node].waiting.push(makeIntrusive<Batch>(
        context_.sharing(*this), std::move(batch), node, aim, due[first].sync));
    sendWaiting(node);
  }
}

inline void Renewals::sendWaiting(std::uintptr_t node) {
  Lane& lane = lanes_[node];
  // A batch that fails at once ends inside this loop, which then goes on with the next.
  if (std::exchange(lane.sending, true)) {
    return;
  }
  while (lane.underWay < kAtOnce && !lane.waiting.empty()) {
    const auto next = lane.waiting.pop();
    if (!context_.closed()) {
      ++lane.underWay;
      context_.dispatcher().start(IntrusivePtr<Call>(static_cast<Batch*>(next.get())),
                                  context_.now() + kPatience);
    }
  }
  lane.sending = false;
  if (node != 0 && lane.underWay == 0 && lane.waiting.empty()) {
    // Nodes come and go.
    lanes_.erase(node);
  }
}

/// Whose renewal is pointless by now: they were lost or released since it was due.
inline void Renewals::dropOver(std::vector<HoldPtr>& holds) {
  const MutexLock lock(book_.mutex);
  std::erase_if(holds, [](const HoldPtr& hold) { return !hold->renewing || hold->lost; });
}

/// The server refused a batch, perhaps for one of its keys: the others are renewed without it.
inline bool Renewals::split(const Batch& batch, const Outcome& outcome) {
  if (outcome.kind != Outcome::Kind::failed || !mayConcernOneKey(outcome.error->errc()) ||
      context_.closed()) {
    return false;
  }
  std::vector<HoldPtr> due;
  {
    const MutexLock lock(book_.mutex);
    for (const HoldPtr& hold : batch.holds()) {
      // A hold that was released or lost while the batch was under way needs no renewal.
      if (hold->renewing) {
        hold->renewedAlone = batch.holds().size() == 1;
        due.push_back(hold);
      }
    }
  }
  if (due.size() < 2) {
    return false;
  }
  const auto half = due.begin() + static_cast<std::ptrdiff_t>(due.size() / 2);
  renew({half, due.end()}, batch.aim());
  renew({due.begin(), half}, batch.aim());
  return true;
}

inline void Renewals::done(Batch& batch, const Outcome& outcome) {
  if (split(batch, outcome)) {
    return;
  }
  const bool answered = outcome.kind == Outcome::Kind::replied && batch.reply().isArray() &&
                        batch.reply().elements.size() == batch.holds().size();
  if (answered && batch.sync().any() && batch.aim() != Aim::verify) {
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
    conclude(*self,
             true,
             Part::renewals,
             acks.met ? std::string() : "not acknowledged as their SyncPolicy asks: " + acks.why);
  };
  Dispatcher::acknowledge(batch, std::move(ticket));
}

inline void Renewals::conclude(Batch& batch, bool answered, Part part, std::string_view failure) {
  const auto now = context_.now();
  Booked booked = book(batch, answered, part, failure.empty(), now);
  if (!context_.closed()) {
    timer_->armAt(booked.due);
  }
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
  losses_.announce(booked.lost);
  tellLate(booked.late, now);
}

inline Renewals::Booked Renewals::book(
    Batch& batch, bool answered, Part part, bool renews, Clock::time_point now) {
  Booked booked;
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
  return booked;
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
  } else if (reply->integer == 1 && batch.aim() == Aim::verify) {
    book_.watchdog.verified(hold, batch.submittedAt());
    hold.renewedAlone = false;
  } else if (reply->integer == 1) {
    counters.renewals.fetch_add(1, std::memory_order_relaxed);
    noteLag(hold, now, to);
    book_.watchdog.renewed(hold, batch.submittedAt(), now);
    hold.renewedAlone = false;
    if (!hold.label.empty()) {
      to.labelled.push_back({std::string(hold.name),
                             context_.ownerField(hold.owner),
                             hold.label,
                             context_.options().watchdogTimeout});
    }
  } else {
    book_.end(hold, goneReason(hold), to.lost);
  }
}

inline void Renewals::noteLag(Hold& hold, Clock::time_point now, Booked& to) {
  const auto lag = std::max<std::chrono::nanoseconds>(now - book_.watchdog.dueOf(hold), {});
  context_.telemetry().durations().renewalLags.add(lag);
  // It is due when a third of the lease is over, so this is half of it.
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
