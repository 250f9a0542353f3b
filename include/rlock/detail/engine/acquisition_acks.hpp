// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/acquisition_terms.hpp>
#include <rlock/detail/executor/ack_lane.hpp>
#include <rlock/error.hpp>
#include <rlock/sync_policy.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace rlock::detail {

/// The acknowledgements of one acquisition: what its SyncPolicy asks for, in which words it is told
/// that they did not come, and for how long its caller waits then until the grant is undone.
///
/// AcquireTask asks for them when the server has granted, and keeps the gate closed meanwhile: the
/// count of holds before the request is what a grant that is undone goes back to.
///
/// **Thread safety:** The policy is constant. The timer belongs to the loop thread, so an
/// acquisition that has set it ends there.
class AcquisitionAcks {
 public:
  using Clock = std::chrono::steady_clock;

  explicit AcquisitionAcks(const SyncPolicy& policy) noexcept : policy_(policy) {}

  /// Whether a grant is one only when others have acknowledged it.
  [[nodiscard]] bool wanted() const noexcept { return policy_.any(); }
  [[nodiscard]] const SyncPolicy& policy() const noexcept { return policy_; }

  /// A ticket from now on, without its functions.
  /// @param deadline  of the caller
  [[nodiscard]] AckTicket ticket(Clock::time_point now, Clock::time_point deadline) const;
  /// They did not come.
  [[nodiscard]] Error notMet(const Acks& acks) const;

  /// The grant is being undone: its caller waits for that until `until` at most.
  /// @param leave  called then, unless ended() is called before
  void limitUndoing(Env& env, Clock::time_point until, UniqueFunction<void()> leave);
  /// The acquisition is over.
  void ended() noexcept {
    if (undoTimer_) {
      undoTimer_.reset();
    }
  }

 private:
  const SyncPolicy policy_;
  std::unique_ptr<Timer> undoTimer_;  // null: nothing is being undone
};

inline AckTicket AcquisitionAcks::ticket(Clock::time_point now, Clock::time_point deadline) const {
  AckTicket ticket;
  ticket.policy = policy_;
  ticket.since = now;
  ticket.until = std::min(deadline, AcquisitionTerms::later(now, policy_.limit));
  return ticket;
}

inline Error AcquisitionAcks::notMet(const Acks& acks) const {
  return Error(Errc::notSynced,
               fmt::format("it was granted, not acknowledged as its SyncPolicy ({}) asks, and is "
                           "undone: {}",
                           toString(policy_),
                           acks.why));
}

inline void AcquisitionAcks::limitUndoing(Env& env,
                                          Clock::time_point until,
                                          UniqueFunction<void()> leave) {
  undoTimer_ = env.makeTimer(std::move(leave));
  undoTimer_->armAt(until);
}

}  // namespace rlock::detail
