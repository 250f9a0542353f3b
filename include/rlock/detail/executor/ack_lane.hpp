// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/sync_policy.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// What became of a wait for acknowledgements.
struct Acks {
  bool met = false;
  int replicas = 0;  ///< how many had acknowledged, as far as is known
  std::string why;   ///< not met: in words
};

/// A write that has been answered and is to be acknowledged.
struct AckTicket {
  SyncPolicy policy;
  std::chrono::steady_clock::time_point since;  ///< the wait
  std::chrono::steady_clock::time_point until;
  UniqueFunction<void(Acks acks)> done;        ///< called once
  UniqueFunction<bool()> abandoned = nullptr;  ///< nobody waits any more; empty: somebody does
};

/// Asks one server how far its replicas are, over a connection of its own: a server that waits for
/// replicas answers nothing else on that connection meanwhile, so that one hung replica would hold
/// up all who share it.
///
/// One *round* is under way at a time: a command that stamps the connection with the server's
/// present replication offset, then the wait for that offset. A round covers all tickets that were
/// there when it began, and no others, whose writes may be newer. So the tickets that come during a
/// round share the next one, as the transactions of a write-ahead log share a sync to disk.
///
/// A round asks for as few replicas as the easiest of its tickets needs, and blocks the connection
/// for a *slice* of time at most: a ticket whose replicas hang delays another by no more than that.
/// Tickets of different forms take turns.
///
/// A ticket belongs to one server process. An acknowledgement by another says nothing about the
/// write, which that one may never have received.
///
/// **Thread safety:** loop thread only.
class AckLane final : private net::LinkEvents {
 public:
  using Clock = std::chrono::steady_clock;
  using MakeLink = std::function<std::shared_ptr<net::CommandTransport>(net::LinkEvents& events)>;

  /// The longest that one round blocks the connection.
  static constexpr std::chrono::milliseconds kSlice{100};

  /// @param commandTimeout  how long the transport waits for a reply: rounds are shorter
  AckLane(std::shared_ptr<Env> env,
          const MakeLink& makeLink,
          std::chrono::milliseconds commandTimeout);
  AckLane(const AckLane&) = delete;
  AckLane& operator=(const AckLane&) = delete;
  ~AckLane() override { drop(); }

  /// The server that the tickets from here on belong to; those of another are over.
  void setServer(std::string server);
  /// May be over before it returns.
  void add(AckTicket ticket);
  /// Ends the connection for good, and the tickets that wait.
  void close();

  /// Stands for one server process; for its address, when it does not tell more.
  [[nodiscard]] static std::string serverOf(const net::ServerSession& session) {
    return session.runId.empty() ? "at " + session.address : session.runId;
  }

 private:
  class Question;
  using Kind = SyncPolicy::Kind;

  struct Waiting {
    AckTicket ticket;
    std::uint64_t round = 0;  ///< the latest that covered it; 0: none yet
    int replicas = 0;
    int wanted = 0;  ///< by majority: known when the number of replicas is
  };

  void onUp(const std::shared_ptr<const net::ServerSession>& session) override;
  void onDown(const Error& error) override;

  template <class Action>
  void guarded(Action action) noexcept;
  void pump();
  [[nodiscard]] bool ready();
  void begin();
  bool ask(std::span<const std::string_view> argv, bool counts, bool last);
  void answered(Question& question);
  void judge(Reply& reply);
  void countReplicas(const Reply& reply);
  [[nodiscard]] int need(const Waiting& one) const;
  [[nodiscard]] std::string shortfall(const Waiting& one) const;
  [[nodiscard]] std::string refusal(std::string_view text) const;
  [[nodiscard]] bool covers(const Waiting& one) const {
    return one.round == round_ && one.ticket.policy.kind == form_;
  }
  /// Ends those tickets of which `judge` gives something else than nothing.
  template <class Judge>
  void settle(Judge judge);
  void expire();
  void arm();
  void drop() noexcept;

  const std::shared_ptr<Env> env_;
  const std::chrono::milliseconds slice_;
  const std::shared_ptr<net::CommandTransport> link_;
  std::unique_ptr<Timer> timer_;  // null: closed
  std::vector<Waiting> waiting_;
  std::string server_;      // the node's
  std::string laneServer_;  // this connection's; empty: there is none
  std::string downBecause_;
  bool opened_ = false;
  bool closed_ = false;

  // The round under way, or the last one.
  std::uint64_t round_ = 0;
  Kind form_ = Kind::none;
  std::array<IntrusivePtr<Question>, 2> asked_;
  bool underWay_ = false;

  std::optional<int> connected_;  // replicas, at the last look
  std::string countRefusal_;      // why they cannot be counted
  Clock::time_point pausedUntil_{};
};

/// One command of a round.
class AckLane::Question final : public net::Request {
 public:
  Question(AckLane& lane, bool counts, bool last) noexcept
      : lane_(&lane), counts_(counts), last_(last) {}

  [[nodiscard]] bool counts() const noexcept { return counts_; }
  [[nodiscard]] bool last() const noexcept { return last_; }
  /// Nobody asks any more.
  void forget() noexcept { lane_ = nullptr; }

 private:
  void completed() noexcept override {
    const IntrusivePtr<Question> self(this);
    if (lane_ != nullptr) {
      lane_->guarded([&] { lane_->answered(*this); });
    }
  }

  AckLane* lane_;
  const bool counts_;  // the answer says how many replicas there are
  const bool last_;    // the answer ends the round
};

inline AckLane::AckLane(std::shared_ptr<Env> env,
                        const MakeLink& makeLink,
                        std::chrono::milliseconds commandTimeout)
    : env_(std::move(env)),
      slice_(std::clamp(commandTimeout / 2, std::chrono::milliseconds(1), kSlice)),
      link_(makeLink(*this)),
      timer_(env_->makeTimer([this] { guarded([this] { expire(); }); })) {}

/// Without memory a round is lost, and the tickets wait for the next or for their end.
template <class Action>
void AckLane::guarded(Action action) noexcept {
  try {
    action();
  } catch (const std::bad_alloc&) {
    drop();
    if (timer_) {
      timer_->armAt(env_->now() + slice_);
    }
  }
}

inline void AckLane::setServer(std::string server) {
  guarded([&] {
    drop();
    server_ = std::move(server);
    settle([](const Waiting&) { return std::optional(Acks{false, 0, "the server was replaced"}); });
  });
}

inline void AckLane::add(AckTicket ticket) {
  if (closed_) {
    ticket.done({false, 0, "its connection was given up"});
    return;
  }
  if (waiting_.size() == waiting_.capacity()) {
    waiting_.reserve(2 * waiting_.size() + 8);
  }
  waiting_.push_back({.ticket = std::move(ticket)});
  guarded([this] {
    pump();
    arm();
  });
}

inline void AckLane::close() {
  if (closed_) {
    return;
  }
  closed_ = true;
  drop();
  timer_.reset();
  link_->close();
  guarded([this] {
    settle([](const Waiting&) {
      return std::optional(Acks{false, 0, "its connection was given up"});
    });
  });
}

inline void AckLane::drop() noexcept {
  underWay_ = false;
  for (IntrusivePtr<Question>& question : asked_) {
    if (question) {
      question->forget();
      question = nullptr;
    }
  }
}

// The connection.

inline void AckLane::onUp(const std::shared_ptr<const net::ServerSession>& session) {
  guarded([&] {
    drop();
    laneServer_ = serverOf(*session);
    connected_.reset();
    downBecause_.clear();
    pump();
  });
}

inline void AckLane::onDown(const Error& error) {
  guarded([&] {
    drop();
    laneServer_.clear();
    downBecause_ = error.what();
  });
}

// Rounds.

inline void AckLane::pump() {
  settle([this](Waiting& one) -> std::optional<Acks> {
    if (env_->now() >= one.ticket.until || (one.ticket.abandoned && one.ticket.abandoned())) {
      return Acks{false, one.replicas, shortfall(one)};
    }
    return std::nullopt;
  });
  if (!closed_ && !underWay_ && !waiting_.empty() && ready()) {
    begin();
  }
}

/// There is a connection to the right server, and no reason to wait.
inline bool AckLane::ready() {
  if (!std::exchange(opened_, true)) {
    link_->open();
  }
  if (!link_->up() || laneServer_.empty()) {
    return false;
  }
  if (laneServer_ != server_) {
    // One of the two connections leads to where the other does not lead any more. Another one is
    // made; the pause keeps it from being a hot loop.
    laneServer_.clear();
    link_->abandon(env_->now(), Errc::connectionFailed, "it leads to another server");
    return false;
  }
  return env_->now() >= pausedUntil_;
}

inline void AckLane::begin() {
  ++round_;
  // The one that has waited longest for a round says of which form it is.
  form_ =
      std::min_element(waiting_.begin(), waiting_.end(), [](const Waiting& a, const Waiting& b) {
        return a.round < b.round;
      })->ticket.policy.kind;
  const auto now = env_->now();
  int wanted = kMostReplicas;
  Clock::duration longest{0};
  for (Waiting& one : waiting_) {
    if (one.ticket.policy.kind == form_) {
      one.round = round_;
      wanted = std::min(wanted, need(one));
      longest = std::max(longest, one.ticket.until - now);
    }
  }
  // 0 would be for ever.
  const auto slice = std::clamp<std::chrono::milliseconds>(
      std::chrono::ceil<std::chrono::milliseconds>(longest), std::chrono::milliseconds(1), slice_);
  const std::string count = std::to_string(wanted);
  const std::string limit = std::to_string(slice.count());
  underWay_ = true;
  // Whatever comes first stamps the connection with the offset of the newest write.
  bool sent = false;
  if (form_ == Kind::majority) {
    const bool known = connected_.has_value();
    sent = ask(std::array<std::string_view, 2>{"INFO", "replication"}, true, !known) &&
           (!known || ask(std::array<std::string_view, 3>{"WAIT", count, limit}, false, true));
  } else {
    sent = ask(std::array<std::string_view, 1>{"PING"}, false, false);
    if (sent && form_ == Kind::replicas) {
      sent = ask(std::array<std::string_view, 3>{"WAIT", count, limit}, false, true);
    } else if (sent) {
      const bool local = form_ == Kind::localAof;
      sent = ask(
          std::array<std::string_view, 4>{
              "WAITAOF", local ? "1" : "0", local ? std::string_view("0") : count, limit},
          false,
          true);
    }
  }
  if (!sent) {
    // There is another one soon.
    drop();
  }
}

inline bool AckLane::ask(std::span<const std::string_view> argv, bool counts, bool last) {
  IntrusivePtr<Question>& place = asked_[last ? 1 : 0];
  place = makeIntrusive<Question>(*this, counts, last);
  return link_->submit(*place, argv, net::CommandTransport::Mode::background);
}

inline void AckLane::answered(Question& question) {
  const bool replied = question.delivery() == net::Request::Delivery::replied;
  if (replied && question.counts()) {
    countReplicas(question.reply());
  }
  if (!question.last()) {
    return;
  }
  drop();
  if (!replied) {
    // The connection is gone, and the tickets wait for another.
    return;
  }
  if (form_ == Kind::majority && !connected_) {
    settle([this](const Waiting& one) -> std::optional<Acks> {
      return covers(one) ? std::optional(Acks{false, 0, countRefusal_}) : std::nullopt;
    });
  } else if (!question.counts()) {
    judge(question.reply());
  } else if (*connected_ < 1) {
    // Nobody to ask.
    settle([this](const Waiting& one) -> std::optional<Acks> {
      return covers(one) ? std::optional(Acks{true, 0, {}}) : std::nullopt;
    });
  }
  pump();
  if (!closed_) {
    arm();
  }
}

/// The answer of the command that waited.
inline void AckLane::judge(Reply& reply) {
  if (reply.isError()) {
    if (classifyError(reply.text).action == ErrorAction::retry) {
      pausedUntil_ = env_->now() + slice_;
      return;
    }
    settle([&](const Waiting& one) -> std::optional<Acks> {
      return covers(one) ? std::optional(Acks{false, 0, refusal(reply.text)}) : std::nullopt;
    });
    return;
  }
  const bool file = form_ == Kind::localAof || form_ == Kind::remoteAof;
  const bool asExpected = file ? reply.isArray() && reply.elements.size() == 2 &&
                                     reply.elements[0].isInteger() && reply.elements[1].isInteger()
                               : reply.isInteger();
  if (!asExpected) {
    settle([this](const Waiting& one) -> std::optional<Acks> {
      return covers(one) ? std::optional(Acks{false, 0, "the server's answer makes no sense"})
                         : std::nullopt;
    });
    return;
  }
  const int replicas = static_cast<int>(file ? reply.elements[1].integer : reply.integer);
  const bool local = file && reply.elements[0].integer > 0;
  settle([&](Waiting& one) -> std::optional<Acks> {
    if (!covers(one)) {
      return std::nullopt;
    }
    one.replicas = replicas;
    one.wanted = need(one);
    const bool met = form_ == Kind::localAof ? local : replicas >= one.wanted;
    return met ? std::optional(Acks{true, replicas, {}}) : std::nullopt;
  });
}

inline void AckLane::countReplicas(const Reply& reply) {
  constexpr std::string_view kField = "connected_slaves:";
  connected_.reset();
  if (reply.isError()) {
    countRefusal_ = refusal(reply.text);
    return;
  }
  const std::size_t at = reply.text.find(kField);
  int number = 0;
  const char* const end = reply.text.data() + reply.text.size();
  if (at != std::string::npos &&
      std::from_chars(reply.text.data() + at + kField.size(), end, number).ec == std::errc() &&
      number >= 0) {
    connected_ = number;
  } else {
    countRefusal_ = "the server does not say how many replicas it has";
  }
}

/// How many replicas a ticket needs, as far as is known.
inline int AckLane::need(const Waiting& one) const {
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

// The end of a ticket.

template <class Judge>
void AckLane::settle(Judge judge) {
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
    ticket.done(std::move(acks));
  }
  if (noMemory) {
    throw std::bad_alloc();
  }
}

inline void AckLane::expire() {
  pump();
  if (!closed_) {
    arm();
  }
}

inline void AckLane::arm() {
  auto due = Clock::time_point::max();
  for (const Waiting& one : waiting_) {
    due = std::min(due, one.ticket.until);
  }
  if (due != Clock::time_point::max() && pausedUntil_ > env_->now()) {
    due = std::min(due, pausedUntil_);
  }
  timer_->armAt(due);
}

inline std::string AckLane::shortfall(const Waiting& one) const {
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(one.ticket.until - one.ticket.since);
  std::string text;
  const SyncPolicy& policy = one.ticket.policy;
  if (policy.kind == Kind::localAof) {
    text = fmt::format("not in the server's append-only file within {} ms", limit.count());
  } else if (policy.kind == Kind::majority && one.round == 0) {
    text = fmt::format("no answer about replicas within {} ms", limit.count());
  } else {
    text = fmt::format("{} of {} replicas within {} ms",
                       one.replicas,
                       policy.kind == Kind::majority ? std::max(one.wanted, need(one)) : need(one),
                       limit.count());
  }
  if (laneServer_.empty()) {
    text += "; no connection to ask on";
    text += downBecause_.empty() ? std::string() : ": " + downBecause_;
  }
  return text;
}

/// An error reply in words.
inline std::string AckLane::refusal(std::string_view text) const {
  const bool unknown = text.find("unknown command") != std::string_view::npos;
  if (unknown && (form_ == Kind::localAof || form_ == Kind::remoteAof)) {
    return fmt::format(
        "the server cannot say what is in an append-only file: it does not know WAITAOF, which "
        "came with Redis 7.2 (\"{}\")",
        text);
  }
  if (unknown) {
    return fmt::format("the server cannot wait for replicas: it does not know WAIT (\"{}\")", text);
  }
  if (classifyError(text).errc == Errc::denied) {
    return fmt::format(
        "the user may not ask for acknowledgements: it needs PING and WAIT, with a majority INFO, "
        "with an append-only file WAITAOF (\"{}\")",
        text);
  }
  return fmt::format("the server cannot follow this policy (\"{}\")", text);
}

}  // namespace rlock::detail
