// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/hold_loss.hpp>
#include <rlock/detail/engine/watchdog.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The outcome of a release.
struct HoldRelease {
  std::uint64_t incarnation = 0;  ///< ReleaseTarget::incarnation
  int remain = 0;                 ///< 0: nothing is held any more
  /// The server knew of no hold where there should have been one; the hold as a whole is lost only
  /// if none remains.
  bool lost = false;
  PartIndexes over{};  ///< ReleaseReply::over
};

/// The parts of one owner's read hold: several holds of one lock with a lease each, in the order in
/// which the server has them. Works on Hold::parts, which the watchdog counts with, too.
///
/// Invariant: the server counts as many, in this order, also those that are over. A release takes
/// the same one away on both sides, so that no reply is needed to know which are left. When all are
/// over the server counts none; where it counts fewer otherwise, a failover has lost the latest.
///
/// **Thread safety:** One thread at a time, together with the HoldLedger.
class ReadParts {
 public:
  using Clock = std::chrono::steady_clock;
  using Losses = std::vector<HoldLoss>;

  explicit ReadParts(Hold& hold) noexcept : hold_(hold), parts_(hold.parts) {}

  /// The part with this incarnation; null: it is over, and its owner was told.
  [[nodiscard]] HoldPart* find(std::uint64_t incarnation) const noexcept {
    HoldPart* const found = std::find_if(parts_.begin(), parts_.end(), [&](const HoldPart& part) {
      return part.incarnation == incarnation;
    });
    return found == parts_.end() ? nullptr : found;
  }
  /// Counted from 1, as the server does.
  [[nodiscard]] int indexOf(const HoldPart& part) const noexcept {
    return static_cast<int>(&part - parts_.data()) + 1;
  }

  /// How many are not lost.
  [[nodiscard]] int wanted() const noexcept {
    return static_cast<int>(std::count_if(
        parts_.begin(), parts_.end(), [](const HoldPart& each) { return !each.lost; }));
  }
  /// Whether the latest hold has the watchdog's lease once that with this index is released; 0: the
  /// latest is.
  [[nodiscard]] bool leavesWatched(int index) const noexcept {
    const std::size_t size = parts_.size();
    const bool latest = index == 0 || static_cast<std::size_t>(index) == size;
    const std::size_t left = latest ? size - 1 : size;
    return left > 0 && parts_[left - 1].watched && !parts_[left - 1].lost;
  }

  /// Drops what the server does not count any more, the latest. A part that somebody watches, or
  /// that should not be over yet, is a loss.
  /// @throws std::bad_alloc  then nothing has changed
  void keep(int count, Clock::time_point now, Losses& losses) {
    keep(count, nullptr, nullptr, now, losses);
  }

  /// The latest hold that was not given back yet is over already: giving it back must not take the
  /// one before it, which whoever took it still counts on. Returns whether there was one, and
  /// forgets it.
  [[nodiscard]] bool takeForfeited() noexcept {
    if (parts_.empty() || parts_.back().forfeited == 0) {
      return false;
    }
    --parts_.back().forfeited;
    return true;
  }

  /// One part was released. Returns how many are left.
  /// @throws std::bad_alloc  then all are there still, and the same call may come once more
  int released(const HoldRelease& release,
               Clock::time_point now,
               Watchdog& watchdog,
               Losses& losses);
  /// The server counts no more than `count`. Returns that, too.
  int counted(int count, Clock::time_point now, Watchdog& watchdog, Losses& losses) {
    keep(count, now, losses);
    return dropped(watchdog);
  }

 private:
  [[nodiscard]] std::vector<bool> keptAt(const HoldPart* gone, int count) const;
  /// @param gone      does not stay, whatever the count is
  /// @param returned  given back by its owner
  void keep(int count,
            const HoldPart* gone,
            const HoldPart* returned,
            Clock::time_point now,
            Losses& losses);
  void endAt(const PartIndexes& over, const HoldPart* gone, Clock::time_point now, Losses& losses);
  int dropped(Watchdog& watchdog);

  Hold& hold_;
  RareVector<HoldPart>& parts_;
};

inline std::vector<bool> ReadParts::keptAt(const HoldPart* gone, int count) const {
  std::vector<bool> kept(parts_.size());
  int left = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    kept[i] = &parts_[i] != gone && left < count;
    left += kept[i] ? 1 : 0;
  }
  return kept;
}

inline void ReadParts::keep(int count,
                            const HoldPart* gone,
                            const HoldPart* returned,
                            Clock::time_point now,
                            Losses& losses) {
  if (gone == nullptr && count >= static_cast<int>(parts_.size())) {
    return;
  }
  const std::vector<bool> kept = keptAt(gone, count);
  // All that can fail comes first.
  Losses found;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const HoldPart& part = parts_[i];
    const bool over = now >= part.validUntil;
    if (!kept[i] && !part.lost && (part.handle || !over)) {
      found.push_back(lossOf(hold_, part, over ? LossReason::expired : goneReason(hold_)));
    }
  }
  losses.reserve(losses.size() + found.size());
  std::vector<HoldPart> left;
  left.reserve(kept.size());
  for (HoldLoss& loss : found) {
    losses.push_back(std::move(loss));
    losses.back().mark();
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    HoldPart& part = parts_[i];
    if (kept[i]) {
      left.push_back(std::move(part));
    } else if (!left.empty()) {
      left.back().forfeited += part.forfeited + (part.handle || &part == returned ? 0 : 1);
    }
  }
  parts_.keepOnly(std::move(left));
}

inline int ReadParts::released(const HoldRelease& release,
                               Clock::time_point now,
                               Watchdog& watchdog,
                               Losses& losses) {
  HoldPart* const part =
      release.incarnation == 0 && !parts_.empty() ? &parts_.back() : find(release.incarnation);
  if (part != nullptr) {
    const bool over = now >= part->validUntil;
    if (part->lost) {
      // Its holder was told when it was lost.
    } else if (!release.lost) {
      if (part->handle) {
        part->handle->setReleased();
      }
    } else if (part->handle || !over || release.remain == 0) {
      lose(hold_, *part, over ? LossReason::expired : goneReason(hold_), losses);
    }
    part->lost = true;
  }
  const std::size_t left = parts_.size() - (part != nullptr ? 1 : 0);
  if (static_cast<std::size_t>(release.remain) == left) {
    endAt(release.over, part, now, losses);
  }
  // By its number a hold without an object is released by the library only, after its loss: its
  // owner has not given it back yet.
  const bool forfeits = part != nullptr && release.incarnation != 0 && !part->handle;
  keep(release.remain, part, forfeits ? nullptr : part, now, losses);
  return dropped(watchdog);
}

/// Some that remain are over on the server. They keep their places until they are given back, but
/// their owner is told now.
inline void ReadParts::endAt(const PartIndexes& over,
                             const HoldPart* gone,
                             Clock::time_point now,
                             Losses& losses) {
  for (const int index : over) {
    const bool before = gone == nullptr || index < indexOf(*gone);
    const auto at = static_cast<std::size_t>(before ? index - 1 : index);
    if (at >= parts_.size() || parts_[at].lost) {
      continue;
    }
    HoldPart& part = parts_[at];
    const bool expired = now >= part.validUntil;
    if (part.handle || !expired) {
      lose(hold_, part, expired ? LossReason::expired : goneReason(hold_), losses);
    }
  }
}

inline int ReadParts::dropped(Watchdog& watchdog) {
  watchdog.partsEnded(hold_);
  const bool left =
      std::any_of(parts_.begin(), parts_.end(), [](const HoldPart& each) { return !each.lost; });
  hold_.lost = hold_.lost || (!left && !parts_.empty());
  return static_cast<int>(parts_.size());
}

}  // namespace rlock::detail
