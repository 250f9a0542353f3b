// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/engine/acquire_fsm.hpp>
#include <rlock/detail/engine/acquisition_finding.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/owner_field.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/observer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// Tells of one acquisition: it counts, measures, calls the observer and writes to the log.
///
/// A lost reply begins a doubt, of which one event tells when the request is reconciled, or when it
/// is certain that it will not be.
///
/// **Thread safety:** The thread that drives the acquisition.
class AcquireReport {
 public:
  using Clock = std::chrono::steady_clock;

  /// The engine and the scripts must outlive it.
  AcquireReport(const std::shared_ptr<LockEngine>& engine,
                const std::shared_ptr<const LockScripts>& scripts,
                OwnerId owner) noexcept
      : engine_(*engine), scripts_(*scripts), owner_(owner) {}

  /// The reply was lost, and what that means is not known.
  void doubtful() noexcept;
  /// After each finding.
  void found(AcquisitionFinding::Kind kind,
             bool held,
             bool undone,
             const AcquisitionDecision& decision) noexcept;
  /// A hold that a lost request had obtained was taken back.
  void undone() noexcept { engine_.counters().undone.fetch_add(1, std::memory_order_relaxed); }
  /// A request that was to reconcile one whose reply was lost has failed.
  void notReconciled(const Error& error);
  /// The caller had what it waited for without a request of its own.
  void obtained() noexcept { engine_.counters().acquired.fetch_add(1, std::memory_order_relaxed); }

  /// The end of the call, as its caller sees it.
  struct End {
    AcquireFsm::Result result = AcquireFsm::Result::pending;
    bool contended = false;
    Clock::time_point began{};
    ///@{
    /// Of a grant that was not waited for.
    Clock::time_point answeredAt{};
    std::string_view owner{};  ///< as the server knows it; empty: it is to be composed
    ///@}
  };
  void ended(const End& end, const Grant& grant, std::string_view label) noexcept;

 private:
  void tell(const End& end,
            Clock::time_point now,
            const Grant& grant,
            std::string_view label) noexcept;

  static constexpr Clock::time_point kCertain = Clock::time_point::min();

  LockEngine& engine_;
  const LockScripts& scripts_;
  const OwnerId owner_;
  Clock::time_point doubtfulSince_ = kCertain;
};

inline void AcquireReport::doubtful() noexcept {
  engine_.counters().lostReplies.fetch_add(1, std::memory_order_relaxed);
  doubtfulSince_ = doubtfulSince_ != kCertain ? doubtfulSince_ : engine_.now();
}

inline void AcquireReport::found(AcquisitionFinding::Kind kind,
                                 bool held,
                                 bool undone,
                                 const AcquisitionDecision& decision) noexcept {
  using Kind = AcquisitionFinding::Kind;
  using Settled = SettledEvent::Outcome;
  if (doubtfulSince_ == kCertain) {
    return;
  }
  Settled outcome = Settled::notExecuted;
  if (kind == Kind::granted || kind == Kind::acknowledged) {
    outcome = Settled::executed;
  } else if (kind == Kind::resolved) {
    outcome = undone ? Settled::undone : held ? Settled::executed : Settled::notExecuted;
  } else if (kind == Kind::unresolved) {
    outcome = Settled::unknown;
  } else {
    return;
  }
  if (decision.leavesDoubt()) {
    return;
  }
  const auto since = std::exchange(doubtfulSince_, kCertain);
  if (engine_.telemetry().listens()) {
    const auto now = engine_.now();
    const OwnerText owner(engine_.clientId(), owner_);
    engine_.telemetry().tell(SettledEvent{Telemetry::about(scripts_, owner, now),
                                          SettledEvent::Request::acquire,
                                          outcome,
                                          now - since});
  }
}

inline void AcquireReport::notReconciled(const Error& error) {
  if (engine_.outages().tells(OutageLog::Event::reconciling)) {
    engine_.log().write(LogLevel::warning,
                        fmt::format("{} \"{}\": owner {}: a request whose reply was lost could "
                                    "not be reconciled: {}",
                                    scripts_.noun(),
                                    escapeForDisplay(scripts_.title()),
                                    OwnerText(engine_.clientId(), owner_).text(),
                                    error.what()));
  }
}

inline void AcquireReport::ended(const End& end,
                                 const Grant& grant,
                                 std::string_view label) noexcept {
  EngineContext::Counters& counters = engine_.counters();
  const bool granted = end.result == AcquireFsm::Result::granted;
  if (end.contended) {
    counters.contended.fetch_add(1, std::memory_order_relaxed);
  }
  if (end.result == AcquireFsm::Result::refused) {
    counters.refused.fetch_add(1, std::memory_order_relaxed);
  }
  if (!granted && !end.contended) {
    return;
  }
  // One that has waited may have been told without another reply.
  const auto now = end.contended ? engine_.now() : end.answeredAt;
  Telemetry& telemetry = engine_.telemetry();
  if (granted) {
    telemetry.durations().waits.add(now - end.began);
  }
  if (end.contended) {
    telemetry.noteContended(scripts_, now - end.began);
  }
  if (telemetry.listens()) {
    tell(end, now, grant, label);
  }
}

inline void AcquireReport::tell(const End& end,
                                Clock::time_point now,
                                const Grant& grant,
                                std::string_view label) noexcept {
  Telemetry& telemetry = engine_.telemetry();
  std::optional<OwnerText> composed;
  const std::string_view owner =
      end.owner.empty() ? composed.emplace(engine_.clientId(), owner_).text() : end.owner;
  const LockEvent about = Telemetry::about(scripts_, owner, now);
  const auto waited = now - end.began;
  const bool granted = end.result == AcquireFsm::Result::granted;
  if (end.contended) {
    telemetry.tell(WaitedEvent{about,
                               waited,
                               granted ? WaitedEvent::Outcome::acquired
                               : end.result == AcquireFsm::Result::refused
                                   ? WaitedEvent::Outcome::refused
                                   : WaitedEvent::Outcome::failed});
  }
  if (granted) {
    telemetry.tell(
        AcquiredEvent{about, std::max(grant.count, 1), waited, end.contended, grant.token, label});
  }
}

}  // namespace rlock::detail
