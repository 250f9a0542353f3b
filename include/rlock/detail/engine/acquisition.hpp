// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/block_cache.hpp>
#include <rlock/detail/engine/acquisition_finding.hpp>
#include <rlock/detail/engine/acquisition_terms.hpp>
#include <rlock/detail/engine/call_step.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// The decisions of one acquisition: which request goes out next and with which terms, what a reply
/// means, what a failure means, and until when its doubts are worth reconciling.
///
/// AcquireTask asks it at each event, acts on the finding (leaves the gate, leaves the server's
/// queue), and then has an AcquisitionDecision tell the AcquireFsm, which says what comes next. So
/// it needs no clock, thread or mutex: points in time come in, nothing goes out.
///
/// Invariants: before() is the count of holds that this owner knew of when the request at hand was
/// composed, and stays the same until the gate is left, because the gate keeps others out; only
/// where all of them must go before a new one, it becomes none. A
/// tombstone belongs to one request with all its reconciliations. A hold that this client does not
/// know is dropped once at most: a server that goes on to report one must not keep the call for
/// ever.
///
/// **Thread safety:** One thread at a time, the one that drives: the caller's, then the loop's.
class Acquisition {
 public:
  using Clock = std::chrono::steady_clock;
  using Finding = AcquisitionFinding;

  /// The grant of the server.
  struct Obtained {
    int count = 0;
    std::optional<std::uint64_t> token{};
    /// How long what a reconciliation kept lasts. It may be left over from an earlier request, so
    /// that the time of this one says nothing.
    std::optional<std::chrono::milliseconds> remaining{};
    /// The same of the hold that was asked for, where each has a lease of its own.
    std::optional<std::chrono::milliseconds> lasts{};
  };

  /// @throws std::bad_alloc
  explicit Acquisition(const AcquisitionTerms& terms)
      : terms_(terms), atHand_(std::make_unique<AtHand>()) {}

  [[nodiscard]] const AcquisitionTerms& terms() const noexcept { return terms_; }

  // Requests.

  /// There is none, and none was lost: what only a request needs is given back.
  void rest() noexcept {
    atHand_.reset();
    enrols_ = false;
  }
  /// A new attempt.
  /// @throws std::bad_alloc
  /// @param before     holds that this owner has, as far as this client knows
  /// @param tombstone  empty: a lost request can be killed with its connection
  void beginAttempt(int before, std::string tombstone);
  [[nodiscard]] AcquireRequest attempt(std::string_view owner) const;
  /// The attempt is composed and about to be sent: what it obtains is good from here on.
  void sentAt(Clock::time_point now) noexcept {
    atHand_->sentAt = now;
    enrolled_ = enrolled_ || enrols_;
  }

  /// Begins to reconcile a lost or surplus request. Returns until when that may be sent.
  /// @param keep         one hold more than before may remain, for the caller waits for it
  /// @param callTimeout  how long any call may take
  Clock::time_point beginReconciling(bool keep,
                                     Clock::time_point now,
                                     std::chrono::milliseconds callTimeout,
                                     std::chrono::milliseconds outageTimeout);
  /// The reconciliation at hand once more, or for the first time.
  [[nodiscard]] ReconcileRequest reconciling(std::string_view owner);
  [[nodiscard]] bool keeps() const noexcept { return atHand_->keeps; }

  /// For a request that is harmless only with a tombstone, and has none.
  void setTombstone(std::string tombstone) { atHand_->tombstone = std::move(tombstone); }
  [[nodiscard]] bool hasTombstone() const noexcept {
    return atHand_ && !atHand_->tombstone.empty();
  }

  /// The harm that the request at hand would do if it were executed late.
  [[nodiscard]] Call::Late late() const noexcept {
    if (!terms_.needsGuard() || hasTombstone() || (reconciling_ && terms_.traits().ownIds)) {
      return Call::Late::harmless;
    }
    return reconciling_ ? Call::Late::takes : Call::Late::adds;
  }

  // Events.

  [[nodiscard]] Finding replied(const AcquireReply& reply, Clock::time_point now);
  /// The policy is met. The waiting took a while, so the grant may be too late by now.
  [[nodiscard]] Finding acknowledged(Clock::time_point now) const;
  /// @param answered  the caller has its answer already, or is to get none of it
  [[nodiscard]] Finding reconciled(const ReconcileReply& reply,
                                   bool answered,
                                   Clock::time_point now);
  /// Before replied() or reconciled(): the holds that are left of before(), as far as this client
  /// knows. None: they were lost while the request was under way.
  void heldStill(int count) noexcept { atHand_->heldStill = count; }
  /// The request at hand was not executed, for another reason than the caller's time.
  [[nodiscard]] Finding failed(Error error);
  /// There was a connection, but no time left to send on it.
  [[nodiscard]] Finding notSent(Error error);
  /// Executed, or not, or still to be.
  [[nodiscard]] Finding lost();
  /// Nothing was sent since the gate was asked for, and nothing will be.
  [[nodiscard]] Finding turnedAway(Error error) {
    reconciling_ = false;
    return failed(std::move(error));
  }

  // Knowledge.

  [[nodiscard]] bool reconciles() const noexcept { return reconciling_; }
  [[nodiscard]] int before() const noexcept { return before_; }
  [[nodiscard]] int attempts() const noexcept { return attempts_; }
  [[nodiscard]] Clock::time_point validFrom() const noexcept { return atHand_->sentAt; }
  [[nodiscard]] const Obtained& obtained() const noexcept { return atHand_->obtained; }
  /// How long the holder that was in the way has it, says the server; -1: not known.
  [[nodiscard]] std::chrono::milliseconds remaining() const noexcept { return remaining_; }
  /// Whether there was an attempt since this was last asked.
  [[nodiscard]] bool takeTried() noexcept { return std::exchange(tried_, false); }
  /// The attempt at hand would be the first to get an entry in the server's queue.
  [[nodiscard]] bool enrols() const noexcept { return enrols_; }
  /// Whether there may be an entry in the server's queue, which is the asker's to give up.
  [[nodiscard]] bool takeQueueEntry() noexcept { return std::exchange(enrolled_, false); }

 private:
  /// @param count   holds now
  /// @param before  holds before what is more than may stay was taken away
  Finding granted(std::int64_t count, std::int64_t before, Clock::time_point now);
  /// Once in the life of a call: what is on the server beyond this client's knowledge goes.
  [[nodiscard]] bool mayDrop() noexcept { return !std::exchange(dropped_, true); }

  const AcquisitionTerms terms_;

  // Of the request at hand.
  struct AtHand final : FromBlockCache<AtHand> {
    int heldStill = 0;
    bool keeps = false;
    bool lost = false;  // its reply was
    std::string tombstone{};
    std::int64_t reconciliations = 0;
    Clock::time_point sentAt{};
    Clock::time_point reconcileBefore =
        Clock::time_point::max();  // later the server has forgotten it
    Obtained obtained{};
  };
  std::unique_ptr<AtHand> atHand_;  // null while it rests
  int before_ = 0;
  bool reconciling_ = false;

  // Of the call.
  bool tried_ = false;
  bool enrolled_ = false;  // it may have an entry in the server's queue
  bool enrols_ = false;
  bool dropsAll_ =
      false;              // the next reconciliation leaves nothing of a hold unknown to this client
  bool dropped_ = false;  // that was done before
  int attempts_ = 0;
  std::chrono::milliseconds remaining_{-1};
};

inline void Acquisition::beginAttempt(int before, std::string tombstone) {
  if (!atHand_) {
    atHand_ = std::make_unique<AtHand>();
  }
  reconciling_ = false;
  before_ = before;
  atHand_->heldStill = before;
  atHand_->obtained.remaining.reset();
  atHand_->obtained.lasts.reset();
  tried_ = true;
  ++attempts_;
  atHand_->tombstone = std::move(tombstone);
  atHand_->reconciliations = 0;
  atHand_->lost = false;
  enrols_ = terms_.waits() && terms_.traits().queuesOnServer && !enrolled_;
}

inline AcquireRequest Acquisition::attempt(std::string_view owner) const {
  return {owner,
          terms_.lease(),
          atHand_->tombstone,
          terms_.waits(),
          enrolled_ && !enrols_,
          before_ > 0};
}

inline Acquisition::Clock::time_point Acquisition::beginReconciling(
    bool keep,
    Clock::time_point now,
    std::chrono::milliseconds callTimeout,
    std::chrono::milliseconds outageTimeout) {
  const bool limited = terms_.traits().reconcileWithin.count() > 0;
  if (!reconciling_ && limited) {
    // The server's knowledge lapses so long after the request, however late its loss was noticed.
    atHand_->reconcileBefore = atHand_->sentAt + terms_.traits().reconcileWithin;
  }
  reconciling_ = true;
  atHand_->keeps = keep && !std::exchange(dropsAll_, false);
  if (atHand_->keeps) {
    // A grant that was seen, with holds too many, is no doubt: its caller waits for the rest of the
    // answer as for a reply that is on its way.
    const auto grace = atHand_->lost ? Clock::duration::zero() : Clock::duration(kReplyGrace);
    return std::min(AcquisitionTerms::later(terms_.sendBefore(now, outageTimeout), grace),
                    atHand_->reconcileBefore);
  }
  // Once the lease is over there is nothing left to reconcile. A grant without a lease must not be
  // left behind.
  return limited || !terms_.expires() ? atHand_->reconcileBefore
                                      : now + terms_.lease() + callTimeout;
}

inline ReconcileRequest Acquisition::reconciling(std::string_view owner) {
  return {owner,
          before_ + (atHand_->keeps ? 1 : 0),
          atHand_->tombstone,
          ++atHand_->reconciliations,
          atHand_->keeps ? ReconcileRequest::Of::acquisition : ReconcileRequest::Of::unwanted,
          before_};
}

inline Acquisition::Finding Acquisition::replied(const AcquireReply& reply, Clock::time_point now) {
  enrols_ = false;
  if (!reply.granted) {
    remaining_ = reply.remaining;
    // The server lets an owner in that holds the lock, so that nothing is left of its holds.
    return {.kind = Finding::Kind::refused, .left = before_ > 0 ? std::optional(0) : std::nullopt};
  }
  atHand_->obtained.token = reply.token;
  return granted(reply.count, reply.count, now);
}

inline Acquisition::Finding Acquisition::granted(std::int64_t count,
                                                 std::int64_t before,
                                                 Clock::time_point now) {
  Finding finding;
  finding.leavesQueueEntry = true;
  if (terms_.tooLate(atHand_->sentAt, now)) {
    // A rest of the lease on the server counts as nothing: the next attempt finds it and
    // reconciles.
    remaining_ = std::chrono::milliseconds::zero();
    finding.kind = Finding::Kind::tooLate;
    return finding;
  }
  if (!terms_.traits().changesState) {
    finding.kind = Finding::Kind::happened;
    return finding;
  }
  finding.count = static_cast<int>(count);
  atHand_->obtained.count = finding.count;
  finding.tooMany = count > before_ + 1;
  // A hold that was lost, before the request or while it was under way, is still there, and its
  // token with it: a hold that is taken anew has a token of its own, so the old one goes first.
  if (before > 1 && atHand_->heldStill == 0 && atHand_->obtained.token && mayDrop()) {
    dropsAll_ = true;
    before_ = 0;
    finding.kind = Finding::Kind::leftover;
    return finding;
  }
  finding.kind = Finding::Kind::granted;
  return finding;
}

inline Acquisition::Finding Acquisition::acknowledged(Clock::time_point now) const {
  if (terms_.tooLate(atHand_->sentAt, now)) {
    return {.kind = Finding::Kind::tooLate};
  }
  return {.kind = Finding::Kind::acknowledged, .count = atHand_->obtained.count};
}

inline Acquisition::Finding Acquisition::reconciled(const ReconcileReply& reply,
                                                    bool answered,
                                                    Clock::time_point now) {
  const bool taken = reply.taken ? reply.taken->count() > 0 : reply.now > before_;
  const bool held = taken && !terms_.tooLate(atHand_->sentAt, now);
  if (held && !answered) {
    atHand_->obtained.token = reply.token;
    atHand_->obtained.remaining = reply.remaining;
    atHand_->obtained.lasts = reply.taken;
    return granted(reply.now, reply.before, now);
  }
  return {.kind = Finding::Kind::resolved,
          .held = held,
          .undone = reply.before > reply.now,
          .left = static_cast<int>(std::min<std::int64_t>(reply.now - (taken ? 1 : 0), before_)),
          .lasts = reply.now > 0 ? reply.remaining : std::nullopt};
}

inline Acquisition::Finding Acquisition::failed(Error error) {
  if (reconciling_) {
    return {.kind = Finding::Kind::unresolved,
            .error = doubtful(error,
                              "whether it was obtained is not known; if it was, it is given back")};
  }
  // The server has a hold that came too late or counts as lost: away with it.
  if (error.errc() == Errc::reentry && before_ == 0 && mayDrop()) {
    dropsAll_ = true;
    return {.kind = Finding::Kind::leftover};
  }
  // A caller that does not wait cannot wait for itself: it is just refused.
  if (error.errc() == Errc::wouldDeadlock && terms_.triesOnce()) {
    return {.kind = Finding::Kind::refused};
  }
  return {.kind = Finding::Kind::failed, .error = std::move(error)};
}

inline Acquisition::Finding Acquisition::notSent(Error error) {
  if (reconciling_ || terms_.endless() || !terms_.waits()) {
    return failed(std::move(error));
  }
  // The wait is over, as it would be if it had ended between two attempts.
  return {.kind = Finding::Kind::notSent,
          .leavesQueueEntry = std::exchange(enrols_, false),
          .error = Error(Errc::timedOut, "there was no time left to ask the server")};
}

inline Acquisition::Finding Acquisition::lost() {
  if (!terms_.traits().changesState) {
    // Nothing was left behind, whether it was executed or not.
    return failed(Error(Errc::connectionFailed, "no node answered"));
  }
  enrols_ = false;
  atHand_->lost = true;
  return {.kind = Finding::Kind::lost};
}

}  // namespace rlock::detail
