// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/net/hash_slot.hpp>
#include <rlock/sync_policy.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// How a wait for acknowledgements ended.
struct Acks {
  bool met = false;
  int replicas = 0;  ///< how many had acknowledged, as far as is known
  std::string why;   ///< not met: in words
};

/// Not met, also where there is no memory for the words.
inline Acks notMet(std::string_view why) noexcept {
  Acks acks;
  try {
    acks.why = why;
  } catch (const std::bad_alloc&) {
    acks.why = "no memory";  // short enough to need none
  }
  return acks;
}

/// A write that has been answered and is to be acknowledged.
struct AckTicket {
  SyncPolicy policy;
  std::chrono::steady_clock::time_point since;  ///< the wait
  std::chrono::steady_clock::time_point until;
  UniqueFunction<void(Acks acks)> done;        ///< called once
  UniqueFunction<bool()> abandoned = nullptr;  ///< nobody waits any more; empty: somebody does
  std::string markKey{};                       ///< a key that may be written, of the same slot
};

/// The tickets that wait for one server, and the rounds of questions that cover them.
///
/// A round asks about one form of policy; tickets of different forms take turns, and the one that
/// has waited longest for a round says which form is next. Invariants: a round covers all tickets
/// of its form that were there when it began, and none that came later, whose writes may be newer
/// than the question; it asks for as few replicas as the easiest of them needs; a ticket's `done`
/// is called once, after the ticket has gone from here, so that it may add another.
///
/// AckLane is its only caller: it asks the questions and reports the answers.
///
/// **Thread safety:** loop thread only. It reads no clock: time is a parameter.
class AckTickets {
 public:
  using Clock = std::chrono::steady_clock;
  using Kind = SyncPolicy::Kind;

  struct Waiting {
    AckTicket ticket;
    std::uint64_t round = 0;  ///< the latest that covered it; 0: none yet
    int replicas = 0;         ///< had acknowledged in that round
    int wanted = 0;           ///< by majority: known when the number of replicas is
    bool stamped = false;     ///< the connection has an offset that is not older than its write
    bool elsewhere = false;   ///< the server has sent a write of its slot to another node
  };

  /// @param ticket  left as it is if this throws std::bad_alloc
  void add(AckTicket&& ticket) {
    if (waiting_.size() == waiting_.capacity()) {
      waiting_.reserve(2 * waiting_.size() + 8);
    }
    waiting_.push_back({.ticket = std::move(ticket)});
  }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  /// When the first of them is over; time_point::max(): there is none.
  [[nodiscard]] Clock::time_point nextDue() const noexcept;

  ///@{
  /// How many replicas the server has: counted, or not known.
  void countedReplicas(int number) noexcept { connected_ = number; }
  void forgetReplicas() noexcept { connected_.reset(); }
  [[nodiscard]] const std::optional<int>& connected() const noexcept { return connected_; }
  ///@}
  /// How many replicas a ticket needs, as far as is known.
  [[nodiscard]] int need(const Waiting& one) const noexcept;

  /// The question of a round.
  struct Round {
    int wanted = kMostReplicas;  ///< replicas, for the easiest of its tickets
    Clock::duration longest{0};  ///< that one of its tickets waits
    /// Of the latest of its tickets whose slot is here, as far as is known.
    std::string_view markKey{};
  };
  /// Begins the next round. There are tickets.
  Round beginRound(Clock::time_point now);
  /// The form of the present round, or of the last one.
  [[nodiscard]] Kind form() const noexcept { return form_; }
  [[nodiscard]] bool covers(const Waiting& one) const noexcept {
    return one.round == round_ && one.ticket.policy.kind == form_;
  }
  ///@{
  /// Whether the connection has to be stamped for the present round, and that it is.
  [[nodiscard]] bool unstamped() const noexcept {
    return std::any_of(waiting_.begin(), waiting_.end(), [this](const Waiting& one) {
      return covers(one) && !one.stamped;
    });
  }
  void stamped() noexcept {
    for (Waiting& one : waiting_) {
      one.stamped = one.stamped || covers(one);
    }
  }
  /// It is another connection, or the stamp was refused.
  void forgetStamps() noexcept {
    for (Waiting& one : waiting_) {
      one.stamped = false;
    }
  }
  ///@}
  ///@{
  /// The answer to the write of a mark key: it was executed, or sent to another node. The offset is
  /// the server's, so that a write in any slot stamps for all tickets.
  void marked(std::string&& key) noexcept { goodMark_ = std::move(key); }
  void sentElsewhere(std::string_view key) noexcept;
  ///@}
  /// The answer of the round: ends the tickets for which it is enough.
  /// @param local  the write is in the server's own append-only file
  void acknowledged(int replicas, bool local);

  /// Ends those tickets of which `judge` gives something else than nothing.
  /// @param judge  `std::optional<Acks>(Waiting&)`
  /// @throws std::bad_alloc after it has ended those for which there was memory
  template <class Judge>
  void resolve(Judge judge);
  /// Ends all of them, also without memory.
  void endAll(std::string_view why) noexcept;

 private:
  static void tell(AckTicket& ticket, Acks acks) noexcept;

  std::vector<Waiting> waiting_;
  std::uint64_t round_ = 0;
  Kind form_ = Kind::none;
  std::optional<int> connected_;  // replicas, at the last look
  std::string goodMark_;          // the latest mark key that could be written; empty: none
};

inline AckTickets::Clock::time_point AckTickets::nextDue() const noexcept {
  auto due = Clock::time_point::max();
  for (const Waiting& one : waiting_) {
    due = std::min(due, one.ticket.until);
  }
  return due;
}

inline int AckTickets::need(const Waiting& one) const noexcept {
  switch (one.ticket.policy.kind) {
    case Kind::majority:
      return (connected_.value_or(0) + 1) / 2;
    case Kind::localAof:
      return 0;
    case Kind::none:
    case Kind::replicas:
    case Kind::remoteAof:
      break;
  }
  return one.ticket.policy.count;
}

inline AckTickets::Round AckTickets::beginRound(Clock::time_point now) {
  ++round_;
  const auto eldest =
      std::min_element(waiting_.begin(), waiting_.end(), [](const Waiting& a, const Waiting& b) {
        return a.round < b.round;
      });
  form_ = eldest->ticket.policy.kind;
  Round round;
  const Waiting* mark = &*eldest;
  for (Waiting& one : waiting_) {
    if (one.ticket.policy.kind == form_) {
      one.round = round_;
      round.wanted = std::min(round.wanted, need(one));
      round.longest = std::max(round.longest, one.ticket.until - now);
      mark = one.elsewhere && !mark->elsewhere ? mark : &one;
    }
  }
  // One that could be written before is in a slot that may still be here.
  const bool another = mark->elsewhere && !goodMark_.empty();
  round.markKey = another ? goodMark_ : mark->ticket.markKey;
  return round;
}

inline void AckTickets::sentElsewhere(std::string_view key) noexcept {
  const std::uint16_t slot = net::hashSlot(key);
  for (Waiting& one : waiting_) {
    one.elsewhere = one.elsewhere || net::hashSlot(one.ticket.markKey) == slot;
  }
  if (net::hashSlot(goodMark_) == slot) {
    goodMark_.clear();
  }
}

inline void AckTickets::acknowledged(int replicas, bool local) {
  resolve([&](Waiting& one) -> std::optional<Acks> {
    if (!covers(one)) {
      return std::nullopt;
    }
    one.replicas = replicas;
    one.wanted = need(one);
    const bool met = form_ == Kind::localAof ? local : replicas >= one.wanted;
    return met ? std::optional(Acks{true, replicas, {}}) : std::nullopt;
  });
}

template <class Judge>
void AckTickets::resolve(Judge judge) {
  std::vector<std::pair<AckTicket, Acks>> over;
  bool noMemory = false;
  try {
    for (Waiting& one : waiting_) {
      if (std::optional<Acks> acks = judge(one)) {
        // Room for all at once: no ticket may get lost on the way.
        if (over.empty()) {
          over.reserve(waiting_.size());
        }
        over.emplace_back(std::move(one.ticket), std::move(*acks));
      }
    }
  } catch (const std::bad_alloc&) {
    noMemory = true;
  }
  if (!over.empty()) {
    std::erase_if(waiting_, [](const Waiting& one) { return !one.ticket.done; });
  }
  for (auto& [ticket, acks] : over) {
    tell(ticket, std::move(acks));
  }
  if (noMemory) {
    throw std::bad_alloc();
  }
}

inline void AckTickets::endAll(std::string_view why) noexcept {
  std::vector<Waiting> over;
  over.swap(waiting_);
  for (Waiting& one : over) {
    tell(one.ticket, notMet(why));
  }
}

inline void AckTickets::tell(AckTicket& ticket, Acks acks) noexcept {
  try {
    ticket.done(std::move(acks));
  } catch (const std::bad_alloc&) {
    // It was told; the others are yet to be.
  }
}

}  // namespace rlock::detail
