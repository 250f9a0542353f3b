// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/lock_backend.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <stop_token>
#include <vector>

namespace rlock::detail {

using StopListener = std::stop_callback<std::function<void()>>;
/// The grants of the members, in the order of the members; an entry without a hold is a member that
/// was not obtained.
using MemberGrants = std::vector<Grant>;

/// All that one owner holds of one member through a group, and who listens for its loss.
///
/// Invariants: there is one handle for each acquisition that went through the group, newest last;
/// several may be of one incarnation. There are never more of the latest incarnation than the
/// server has counted: the owner may have given holds back outside the group, and the group must
/// release neither those nor holds that were taken outside it. A handle leaves by takeSurplus(),
/// once, or because its hold has ended by itself.
///
/// GroupHold has one for each member, is its only caller, and holds its mutex meanwhile. A listener
/// is made and destroyed by GroupHold with no mutex held, because its callback takes that mutex; so
/// listeners are handed in and out of here.
///
/// **Thread safety:** One thread at a time.
class MemberHold {
 public:
  using Clock = std::chrono::steady_clock;
  using Handle = IntrusivePtr<HoldHandle>;

  struct Listening {
    Handle to;
    std::list<StopListener> listener;  ///< empty: still to be made
  };
  using Listeners = std::list<Listening>;

  /// Takes the memory for one add().
  /// @throws std::bad_alloc  nothing has changed
  void makeRoom();
  /// Books one more hold. Lost holds are dropped, because they have ended by themselves. There is
  /// room.
  void add(const Grant& grant) noexcept;
  /// Takes out all but `count` holds and adds the incarnations that are to be released. Holds that
  /// are lost go first, and of the others the newest. Returns whether one of them is alive.
  /// @param incarnations  has room for count()
  bool takeSurplus(int count, std::vector<std::uint64_t>& incarnations) noexcept;

  /// How many of the holds their owner has given back by other ways: by the member itself, or by
  /// another group.
  /// @param coming  a hold that was granted and is not booked yet; null: there is none
  [[nodiscard]] int returned(const HoldHandle* coming) const noexcept;
  /// Drops so many of these, or all that there are.
  void dropReturned(int count, const HoldHandle* coming) noexcept;

  /// How many acquisitions are booked.
  [[nodiscard]] int count() const noexcept { return static_cast<int>(held_.size()); }
  /// Whether any hold is neither lost nor released.
  [[nodiscard]] bool alive() const noexcept;
  /// Why it is lost; `none` while any hold is alive. It may have been lost and taken again, so the
  /// latest hold decides.
  [[nodiscard]] LossReason reason() const noexcept;
  [[nodiscard]] bool heldAt(Clock::time_point now) const noexcept;
  /// The end of the longest validity; time_point::min(): nothing is alive.
  [[nodiscard]] Clock::time_point validUntil() const noexcept;

  /// True: it is not held, may be obtained anew, and nobody tries yet. repaired() ends the attempt.
  [[nodiscard]] bool beginRepair(Clock::time_point now) noexcept;
  void repaired() noexcept { repairing_ = false; }

  /// A hold for whose loss nobody listens yet; null: there is none. Moves the listeners of holds
  /// that are no longer booked to `old`.
  [[nodiscard]] Handle unheard(Listeners& old);
  /// Takes the listener for a hold that unheard() has named, unless it has one by now.
  void hear(const Handle& hold, std::list<StopListener>& listener) noexcept;

 private:
  [[nodiscard]] static bool alive(const HoldHandle& handle) noexcept {
    return handle.reason() == LossReason::none && !handle.released();
  }
  /// Calls `visit(end, missing)` for the holds of each incarnation that are not lost and more than
  /// their owner has, with where they end, the newest first.
  template <class Visit>
  void visitReturned(const HoldHandle* coming, Visit visit) const noexcept;

  std::vector<Handle> held_;
  int seen_ = 0;  // the highest count that the server has told of the latest incarnation
  bool repairing_ = false;
  Listeners spare_;  // the place of the next in listening_
  /// Declared last, so destroyed first: a listener may be running.
  Listeners listening_;
};

inline void MemberHold::makeRoom() {
  held_.reserve(held_.size() + 1);
  if (spare_.empty()) {
    spare_.emplace_back();
  }
}

inline void MemberHold::add(const Grant& grant) noexcept {
  std::erase_if(held_, [](const Handle& handle) { return !alive(*handle); });
  const bool same = !held_.empty() && held_.back()->incarnation() == grant.hold->incarnation();
  // Race: between the server's count and this booking another call of the owner may have been
  // booked with a higher count.
  seen_ = same ? std::max(seen_, grant.count) : grant.count;
  held_.push_back(grant.hold);
  while (same && held_.size() > static_cast<std::size_t>(std::max(seen_, 1))) {
    held_.erase(held_.begin());
  }
  const bool listening = std::any_of(listening_.begin(),
                                     listening_.end(),
                                     [&](const Listening& each) { return each.to == grant.hold; });
  if (!listening) {
    spare_.front().to = grant.hold;
    listening_.splice(listening_.end(), spare_, spare_.begin());
  }
}

inline bool MemberHold::takeSurplus(int count, std::vector<std::uint64_t>& incarnations) noexcept {
  bool anyAlive = false;
  while (held_.size() > static_cast<std::size_t>(count)) {
    // Read holds end each by itself, so an older one may be lost alone. The acquisitions that
    // remain keep what is left.
    const auto lost = std::find_if(
        held_.rbegin(), held_.rend(), [](const Handle& handle) { return !alive(*handle); });
    anyAlive = anyAlive || lost == held_.rend();
    const auto out = std::prev(lost == held_.rend() ? held_.end() : lost.base());
    seen_ -= (*out)->incarnation() == held_.back()->incarnation() ? 1 : 0;
    incarnations.push_back((*out)->incarnation());
    held_.erase(out);
  }
  return anyAlive;
}

template <class Visit>
void MemberHold::visitReturned(const HoldHandle* coming, Visit visit) const noexcept {
  for (std::size_t end = held_.size(); end > 0;) {
    const HoldHandle& handle = *held_[end - 1];
    std::size_t begin = end;
    while (begin > 0 && held_[begin - 1]->incarnation() == handle.incarnation()) {
      --begin;
    }
    const bool grows = coming != nullptr && coming->incarnation() == handle.incarnation();
    const auto booked = static_cast<int>(end - begin);
    const int missing = std::min(booked, booked + (grows ? 1 : 0) - handle.count());
    if (missing > 0 && handle.reason() == LossReason::none) {
      visit(end, missing);
    }
    end = begin;
  }
}

inline int MemberHold::returned(const HoldHandle* coming) const noexcept {
  int sum = 0;
  visitReturned(coming, [&](std::size_t /*end*/, int missing) { sum += missing; });
  return sum;
}

inline void MemberHold::dropReturned(int count, const HoldHandle* coming) noexcept {
  visitReturned(coming, [&](std::size_t end, int missing) {
    const int dropped = std::min(missing, count);
    count -= dropped;
    seen_ -= held_[end - 1]->incarnation() == held_.back()->incarnation() ? dropped : 0;
    const auto last = held_.begin() + static_cast<std::ptrdiff_t>(end);
    held_.erase(last - dropped, last);
  });
}

inline bool MemberHold::alive() const noexcept {
  return std::any_of(
      held_.begin(), held_.end(), [](const Handle& handle) { return alive(*handle); });
}

inline LossReason MemberHold::reason() const noexcept {
  return held_.empty() || alive() ? LossReason::none : held_.back()->reason();
}

inline bool MemberHold::heldAt(Clock::time_point now) const noexcept {
  return std::any_of(
      held_.begin(), held_.end(), [&](const Handle& handle) { return handle->heldAt(now); });
}

inline MemberHold::Clock::time_point MemberHold::validUntil() const noexcept {
  auto until = Clock::time_point::min();
  for (const Handle& handle : held_) {
    if (alive(*handle)) {
      until = std::max(until, handle->validUntil());
    }
  }
  return until;
}

inline bool MemberHold::beginRepair(Clock::time_point now) noexcept {
  if (repairing_ || heldAt(now)) {
    return false;
  }
  // A member that somebody ended on purpose (release, force, close) stays ended.
  const LossReason reason = held_.empty() ? LossReason::unreachable : held_.back()->reason();
  repairing_ = reason == LossReason::expired || reason == LossReason::refused ||
               reason == LossReason::unreachable || reason == LossReason::maxHold ||
               reason == LossReason::failover;
  return repairing_;
}

inline MemberHold::Handle MemberHold::unheard(Listeners& old) {
  Handle handle;
  for (auto it = listening_.begin(); it != listening_.end();) {
    const auto each = it++;
    if (std::find(held_.begin(), held_.end(), each->to) == held_.end()) {
      old.splice(old.end(), listening_, each);
    } else if (each->listener.empty() && !handle) {
      handle = each->to;
    }
  }
  return handle;
}

inline void MemberHold::hear(const Handle& hold, std::list<StopListener>& listener) noexcept {
  for (Listening& each : listening_) {
    if (each.to == hold && each.listener.empty()) {
      each.listener.swap(listener);
    }
  }
}

}  // namespace rlock::detail
