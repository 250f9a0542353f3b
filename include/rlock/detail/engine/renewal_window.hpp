// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/sync_policy.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Why a hold is named in a request.
enum class RenewalAim : std::uint8_t {
  renew,
  verify,  ///< only to learn whether it is there
};

/// The things that holds have in common if one request renews them.
struct RenewalGroup {
  ComposeRenewals form = nullptr;
  std::uint16_t slot = 0;
  RenewalAim aim = RenewalAim::renew;
  SyncPolicy sync{};

  friend bool operator<(const RenewalGroup& a, const RenewalGroup& b) noexcept {
    if (a.form != b.form) {
      return std::less<>()(a.form, b.form);
    }
    return std::tie(a.slot, a.aim, a.sync.kind, a.sync.count, a.sync.limit) <
           std::tie(b.slot, b.aim, b.sync.kind, b.sync.count, b.sync.limit);
  }
};

/// The holds that wait for their renewal by one node, and how many requests for them are under way
/// there. It makes batches of them, those first whose holds would be lost first, and has only so
/// many under way at once: the requests of the application must not stand behind all of them.
///
/// Over a new connection nobody knows which scripts the server has. So the first batch of each form
/// goes alone, and brings the text if that is missing, before the others follow.
///
/// **Thread safety:** One thread at a time.
class RenewalWindow {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// The batches that are under way at once.
  static constexpr std::size_t kAtOnce = 16;

  struct Batch {
    RenewalGroup group;
    std::vector<HoldPtr> holds;
    bool crowded = false;  ///< others are under way or wait at the same time
  };

  /// @param batchSize  how many holds are in a batch at most
  explicit RenewalWindow(std::size_t batchSize) noexcept : batchSize_(batchSize) {}

  /// A hold waits, to go with others of its group.
  /// @param lossAt  when it would be lost
  void push(const RenewalGroup& group, HoldPtr hold, TimePoint lossAt);
  /// Holds wait that are to go together, and by themselves.
  /// @param lossAt  of the first that would be lost
  void pushApart(const RenewalGroup& group, std::vector<HoldPtr> holds, TimePoint lossAt);
  /// The batch that goes out now, which has a place until ended(). It takes no memory.
  [[nodiscard]] std::optional<Batch> next() noexcept;
  enum class End : std::uint8_t {
    replied,     ///< the server has executed the script
    refused,     ///< or has not, perhaps because it is not ready
    unanswered,  ///< nobody knows what is on the other side
  };
  /// A batch is over, which in any case gives its place back.
  void ended(ComposeRenewals form, End how) noexcept;
  /// There is another connection, perhaps to a server without scripts.
  void reconnected() noexcept;
  /// Nothing goes out any more.
  void clear() noexcept { forms_.clear(); }
  /// Nothing waits or is under way.
  [[nodiscard]] bool idle() const noexcept { return underWay_ == 0 && !anyWaits(); }

 private:
  using Waiting = std::multimap<TimePoint, Batch>;

  struct Form {
    Waiting waiting{};  ///< by when the first hold of each would be lost
    /// The batch of each group that others join; end: none.
    std::map<RenewalGroup, Waiting::iterator> open{};
    std::size_t underWay = 0;
    bool known = false;  ///< the server has executed it over the present connection
  };

  [[nodiscard]] bool anyWaits() const noexcept;

  const std::size_t batchSize_;
  std::map<ComposeRenewals, Form, std::less<>> forms_;
  std::size_t underWay_ = 0;
};

inline void RenewalWindow::push(const RenewalGroup& group, HoldPtr hold, TimePoint lossAt) {
  Form& form = forms_[group.form];
  const auto open = form.open.try_emplace(group, form.waiting.end()).first;
  if (open->second != form.waiting.end()) {
    std::vector<HoldPtr>& holds = open->second->second.holds;
    holds.push_back(std::move(hold));
    if (lossAt < open->second->first) {
      // All of them go as early as this one needs. Moving an entry takes no memory.
      auto batch = form.waiting.extract(open->second);
      batch.key() = lossAt;
      open->second = form.waiting.insert(std::move(batch));
    }
    if (holds.size() >= batchSize_) {
      form.open.erase(open);
    }
    return;
  }
  std::vector<HoldPtr> holds;
  holds.push_back(std::move(hold));
  const auto added = form.waiting.emplace(lossAt, Batch{group, std::move(holds), false});
  if (batchSize_ > 1) {
    open->second = added;
  } else {
    form.open.erase(open);
  }
}

inline void RenewalWindow::pushApart(const RenewalGroup& group,
                                     std::vector<HoldPtr> holds,
                                     TimePoint lossAt) {
  forms_[group.form].waiting.emplace(lossAt, Batch{group, std::move(holds), false});
}

inline std::optional<RenewalWindow::Batch> RenewalWindow::next() noexcept {
  if (underWay_ >= kAtOnce) {
    return std::nullopt;
  }
  Form* chosen = nullptr;
  for (auto& [function, form] : forms_) {
    const bool mayGo = form.known || form.underWay == 0;
    if (mayGo && !form.waiting.empty() &&
        (chosen == nullptr || form.waiting.begin()->first < chosen->waiting.begin()->first)) {
      chosen = &form;
    }
  }
  if (chosen == nullptr) {
    return std::nullopt;
  }
  const auto first = chosen->waiting.begin();
  Batch batch = std::move(first->second);
  const auto open = chosen->open.find(batch.group);
  if (open != chosen->open.end() && open->second == first) {
    chosen->open.erase(open);
  }
  chosen->waiting.erase(first);
  batch.crowded = underWay_ > 0 || anyWaits();
  ++chosen->underWay;
  ++underWay_;
  return batch;
}

inline void RenewalWindow::ended(ComposeRenewals form, End how) noexcept {
  --underWay_;
  const auto found = forms_.find(form);
  if (found != forms_.end()) {
    --found->second.underWay;
    found->second.known = how == End::replied || (how == End::refused && found->second.known);
  }
}

inline void RenewalWindow::reconnected() noexcept {
  for (auto& [function, form] : forms_) {
    form.known = false;
  }
}

inline bool RenewalWindow::anyWaits() const noexcept {
  for (const auto& [function, form] : forms_) {
    if (!form.waiting.empty()) {
      return true;
    }
  }
  return false;
}

}  // namespace rlock::detail
