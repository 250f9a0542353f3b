// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/engine/validity.hpp>
#include <rlock/detail/group/group_lock.hpp>
#include <rlock/detail/group/group_release.hpp>
#include <rlock/detail/group/quorum.hpp>
#include <rlock/detail/group/quorum_acquire.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace rlock::detail {

/// A lock that is held when a majority of its members is; each member is on a node of its own.
/// Acquired by QuorumAcquire.
///
/// It tends each hold from the grant on (tend()): looks at it every third of its lease, and no
/// later than its loss is to be announced, which may become earlier when a member is lost or an
/// acquisition is released; and asks again for members that are missing. Invariants:
/// one look is planned for a hold at a time (GroupHold::planLook()), on the callback thread of the
/// first member's client; a member obtained later joins the hold or is given back, and lasts no
/// longer than the rest of the hold.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class RedLock final : public GroupLock {
 public:
  explicit RedLock(Members members);

  [[nodiscard]] AcquireParams forMember(const AcquireParams& params) const override;
  [[nodiscard]] GroupHold::Terms terms(const AcquireParams& params) const override;
  /// Announces its loss in time and asks for missing members.
  void tend(const IntrusivePtr<GroupHold>& hold) override;

 protected:
  [[nodiscard]] std::shared_ptr<GroupAcquire> makeAcquire(AcquireParams params,
                                                          GroupAcquire::Done done) override;

 private:
  void look(const IntrusivePtr<GroupHold>& hold);
  void repair(const IntrusivePtr<GroupHold>& hold, std::size_t member);
};

/// The longest time between two attempts to obtain a missing member.
inline constexpr std::chrono::seconds kLongestPeriod{10};

/// The members' maxHold ends a little later, so that the whole ends first and with its own reason.
inline Duration memberMaxHold(std::chrono::nanoseconds maxHold) {
  constexpr std::chrono::nanoseconds kLater = std::chrono::seconds(1);
  return std::clamp(
             maxHold, std::chrono::nanoseconds::zero(), std::chrono::nanoseconds::max() - kLater) +
         kLater;
}

inline RedLock::RedLock(Members members)
    : GroupLock("red", members, Quorum::majority(members.size())) {}

inline AcquireParams RedLock::forMember(const AcquireParams& params) const {
  AcquireParams result = params;
  if (params.maxHold && !params.maxHold->isInfinite()) {
    result.maxHold = memberMaxHold(params.maxHold->nanoseconds());
  }
  return result;
}

inline GroupHold::Terms RedLock::terms(const AcquireParams& params) const {
  const auto lease = leaseOf(*this, params);
  GroupHold::Terms terms;
  terms.owner = params.owner;
  terms.label = params.label;
  terms.sync = params.sync;
  if (params.lease) {
    terms.lease = lease;
  }
  auto longest = std::chrono::nanoseconds::max();
  if (params.maxHold) {
    terms.maxHoldUntil = params.maxHold->deadlineFrom(now());
    if (!params.maxHold->isInfinite()) {
      // No member counts for longer, so no clock can drift further apart meanwhile. With the drift
      // of a long lease nothing would be left of a short hold.
      longest = memberMaxHold(params.maxHold->nanoseconds()).nanoseconds();
    }
  }
  terms.margins.reserve(members().size());
  for (std::size_t i = 0; i < members().size(); ++i) {
    // Each member's own lease counts: nothing would be left of a short one with the drift of a long
    // one.
    const std::chrono::nanoseconds counted =
        params.lease ? lease : members()[i]->limits().watchdogTimeout;
    terms.margins.push_back(Quorum::drift(std::min(counted, longest)));
  }
  terms.notice = Validity::notice(lease);
  return terms;
}

inline std::shared_ptr<GroupAcquire> RedLock::makeAcquire(AcquireParams params,
                                                          GroupAcquire::Done done) {
  return std::make_shared<QuorumAcquire>(shared_from_this(), std::move(params), std::move(done));
}

inline void RedLock::tend(const IntrusivePtr<GroupHold>& hold) {
  const auto now = this->now();
  const GroupHold::Terms terms = hold->terms();
  const auto period = std::min<Clock::duration>(
      terms.lease.value_or(members().shortest(&LockLimits::watchdogTimeout)) / 3, kLongestPeriod);
  const auto when = std::min(now + std::max<Clock::duration>(period, std::chrono::milliseconds(1)),
                             hold->lossAt());
  if (!hold->planLook(when)) {
    return;
  }
  try {
    callAt(when, [weak = weak_from_this(), hold, when] {
      const auto self = weak.lock();
      // A call before its time means that all clients were closed, which ends the members' holds.
      if (self && self->now() >= when && hold->beginLook(when)) {
        static_cast<RedLock&>(*self).look(hold);
      }
    });
  } catch (const std::bad_alloc&) {
    hold->cancelLook(when);
    throw;
  }
}

inline void RedLock::look(const IntrusivePtr<GroupHold>& hold) {
  if (hold->released() || hold->reason() != LossReason::none || holds().endIfReturned(hold)) {
    return;
  }
  if (now() >= hold->lossAt()) {
    hold->runOut();
    return;
  }
  // A member that there is no memory to ask is asked at the next look, which must come.
  ifThereIsMemory([&] {
    for (const std::size_t member : hold->takeMissing()) {
      if (!ifThereIsMemory([&] { repair(hold, member); })) {
        hold->repaired(member);
      }
    }
  });
  ifThereIsMemorySoon([&] { tend(hold); });
}

inline void RedLock::repair(const IntrusivePtr<GroupHold>& hold, std::size_t member) {
  const GroupHold::Terms terms = hold->terms();
  const auto now = this->now();
  AcquireParams params;
  params.owner = terms.owner;
  params.label = terms.label;
  params.sync = terms.sync;
  params.stop = hold->repairs();
  params.wantsHandle = true;
  if (terms.lease) {
    // A repaired member must not last longer than the rest of the hold.
    const auto left = std::chrono::floor<std::chrono::milliseconds>(hold->validUntil() +
                                                                    terms.margins[member] - now);
    if (left <= std::chrono::milliseconds::zero()) {
      hold->repaired(member);
      return;
    }
    params.lease = Duration(left);
  }
  if (terms.maxHoldUntil != Clock::time_point::max()) {
    params.maxHold = memberMaxHold(terms.maxHoldUntil - now);
  }
  const auto& backend = members()[member];
  backend->acquireAsync(
      std::move(params),
      [hold, member, backend, owner = terms.owner](const Result<Acquired>& result) {
        if (!result.has_value() || !result->has_value()) {
          hold->repaired(member);
          return;
        }
        // Also without memory the member becomes a part of the hold, or is given back.
        bool joined = false;
        ifThereIsMemorySoon([&] { joined = hold->join(member, **result); });
        if (joined) {
          ifThereIsMemorySoon([&] { hold->listen(); });
        } else {
          ifThereIsMemorySoon([&] {
            backend->releaseQuietly({owner, (*result)->hold->incarnation()});
          });
        }
      });
}

}  // namespace rlock::detail
