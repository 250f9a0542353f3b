// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/executor/ack_tickets.hpp>
#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/result.hpp>
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

/// Asks one server how far its replicas are, for the tickets that wait for it (AckTickets), over a
/// connection of its own: a server that waits for replicas answers nothing else on that connection
/// meanwhile, so that one hung replica would hold up all who share it.
///
/// One *round* is under way at a time: a command that stamps the connection with the server's
/// present replication offset, then the wait for that offset. Before Redis 7.2 every command
/// stamps. From then on, and in Valkey, only one that is replicated does, and a connection that has
/// written nothing is told at once that all replicas have all of it: there the round begins with a
/// write, of a key that lasts for a millisecond, if it has a ticket that no such write has followed
/// yet. A key whose slot is on its way to another server cannot be written: the key of another
/// ticket is as good, for the offset is the server's. For others the offset must stay: replicas
/// tell of their files once a second, each at a time of its own, and a later offset would be one
/// that not all of them have told of. A round covers all tickets that were there when it began, and
/// no others, whose writes may be newer. So the tickets that come during a round share the next
/// one, as the transactions of a write-ahead log share a sync to disk.
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
  using SessionPtr = std::shared_ptr<const net::ServerSession>;

  /// The longest that one round blocks the connection.
  static constexpr std::chrono::milliseconds kSlice{100};

  /// @param commandTimeout  how long the transport waits for a reply: rounds are shorter
  AckLane(std::shared_ptr<Env> env,
          const MakeLink& makeLink,
          std::chrono::milliseconds commandTimeout);
  AckLane(const AckLane&) = delete;
  AckLane& operator=(const AckLane&) = delete;
  ~AckLane() override { drop(); }

  /// The server that the tickets from here on belong to; those of another are over. Takes no
  /// memory.
  void setServer(SessionPtr server) noexcept;
  /// The ticket's done() may be called inside this call.
  /// @param ticket  left as it is if this throws std::bad_alloc
  void add(AckTicket&& ticket);
  /// As CommandTransport::authenticate(); the answer may come a slice later than from elsewhere.
  void authenticate(UniqueFunction<void(Result<void>)> done) {
    link_->authenticate(std::move(done));
  }
  /// Ends the connection for good, and the tickets that wait.
  void close() noexcept;

  /// Whether both lead to one server process, by its run id, or its address if that is not known.
  [[nodiscard]] static bool sameProcess(const net::ServerSession& one,
                                        const net::ServerSession& other) noexcept {
    return one.runId == other.runId && (!one.runId.empty() || one.address == other.address);
  }

 private:
  class Question;
  using Kind = SyncPolicy::Kind;
  /// The purpose of an answer.
  enum class Part : std::uint8_t {
    stamp,  ///< the connection has the present offset
    count,  ///< says how many replicas there are
    wait,   ///< says how many have it
  };

  void onUp(const std::shared_ptr<const net::ServerSession>& session) override;
  void onDown(const Error& error) override;

  template <class Action>
  void guarded(Action action) noexcept;
  void pump();
  [[nodiscard]] bool ready();
  void begin();
  bool ask(std::span<const std::string_view> argv, Part part, bool last = false);
  bool stamp(std::string_view key);
  void answered(Question& question);
  void stampAnswered(const Reply& reply);
  void judge(Reply& reply);
  void refused(std::string_view text);
  void countReplicas(const Reply& reply);
  [[nodiscard]] std::string shortfall(const AckTickets::Waiting& one) const;
  [[nodiscard]] std::string refusal(std::string_view text) const;
  /// Ends the tickets of the round alike.
  void resolveRound(bool met, std::string_view why);
  void expire();
  void arm();
  void drop() noexcept;

  const std::shared_ptr<Env> env_;
  const std::chrono::milliseconds slice_;
  const std::shared_ptr<net::CommandTransport> link_;
  std::unique_ptr<Timer> timer_;  // null: closed
  AckTickets tickets_;
  SessionPtr server_;      // the node's
  SessionPtr laneServer_;  // this connection's; null: there is none
  std::string downBecause_;
  bool writesToStamp_ = false;  // this server's connections are stamped by writes only
  bool opened_ = false;
  bool closed_ = false;

  // The round under way, or the last one.
  std::array<IntrusivePtr<Question>, 3> asked_;  // by their parts
  std::string roundError_;                       // why it is repeated; empty: it is not
  std::string mark_;                             // the key of its write, if it has one
  bool underWay_ = false;

  std::string countRefusal_;  // why they cannot be counted
  Clock::time_point pausedUntil_{};
};

/// One command of a round.
class AckLane::Question final : public net::LoneRequest {
 public:
  Question(AckLane& lane, Part part, bool last) noexcept : lane_(&lane), part_(part), last_(last) {}

  [[nodiscard]] Part part() const noexcept { return part_; }
  [[nodiscard]] bool last() const noexcept { return last_; }
  /// Detaches the question from the lane: its answer is ignored.
  void forget() noexcept { lane_ = nullptr; }

 private:
  void completed() noexcept override {
    const IntrusivePtr<Question> self(this);
    if (lane_ != nullptr) {
      lane_->guarded([&] { lane_->answered(*this); });
    }
  }

  AckLane* lane_;
  const Part part_;
  const bool last_;  // the answer ends the round
};

/// Whether only commands that are replicated stamp a connection, so from Redis 7.2 on; also where
/// the version is not known.
inline bool stampsByWritesOnly(std::string_view version) noexcept {
  int major = 0;
  int minor = 0;
  const char* const end = version.data() + version.size();
  const auto [dot, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.' ||
      std::from_chars(dot + 1, end, minor).ec != std::errc()) {
    return true;
  }
  return major > 7 || (major == 7 && minor >= 2);
}

inline AckLane::AckLane(std::shared_ptr<Env> env,
                        const MakeLink& makeLink,
                        std::chrono::milliseconds commandTimeout)
    : env_(std::move(env)),
      slice_(std::clamp(commandTimeout / 2, std::chrono::milliseconds(1), kSlice)),
      link_(makeLink(*this)),
      timer_(env_->makeTimer([this] { guarded([this] { expire(); }); })) {}

/// Without memory a round is lost, and the tickets wait for the next or for their end. Whether the
/// connection is stamped is not known then: the command may not have been sent, or was refused.
template <class Action>
void AckLane::guarded(Action action) noexcept {
  try {
    action();
  } catch (const std::bad_alloc&) {
    drop();
    tickets_.forgetStamps();
    if (timer_) {
      timer_->armAt(env_->now() + slice_);
    }
  }
}

inline void AckLane::setServer(SessionPtr server) noexcept {
  drop();
  server_ = std::move(server);
  tickets_.endAll("the server was replaced");
}

inline void AckLane::add(AckTicket&& ticket) {
  if (closed_) {
    ticket.done(notMet("its connection was given up"));
    return;
  }
  tickets_.add(std::move(ticket));
  guarded([this] {
    pump();
    arm();
  });
}

inline void AckLane::close() noexcept {
  if (closed_) {
    return;
  }
  closed_ = true;
  drop();
  timer_.reset();
  link_->close();
  tickets_.endAll("its connection was given up");
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
    laneServer_ = session;
    writesToStamp_ = stampsByWritesOnly(session->serverVersion);
    tickets_.forgetStamps();
    tickets_.forgetReplicas();
    downBecause_.clear();
    pump();
  });
}

inline void AckLane::onDown(const Error& error) {
  guarded([&] {
    drop();
    laneServer_.reset();
    downBecause_ = error.what();
  });
}

// Rounds.

inline void AckLane::pump() {
  tickets_.resolve([this](AckTickets::Waiting& one) -> std::optional<Acks> {
    if (env_->now() >= one.ticket.until || (one.ticket.abandoned && one.ticket.abandoned())) {
      return Acks{false, one.replicas, shortfall(one)};
    }
    return std::nullopt;
  });
  if (!closed_ && !underWay_ && !tickets_.empty() && ready()) {
    begin();
  }
}

/// There is a connection to the right server, and no reason to wait.
inline bool AckLane::ready() {
  if (!opened_) {
    // Without memory the next ticket, or the next look, opens it.
    link_->open();
    opened_ = true;
  }
  if (!link_->up() || !laneServer_) {
    return false;
  }
  if (!server_ || !sameProcess(*laneServer_, *server_)) {
    // The lane's connection and the node's lead to different servers, e.g. during a failover. The
    // lane makes another one; the pause before it keeps that from being a hot loop.
    laneServer_.reset();
    link_->abandon(env_->now(), Errc::connectionFailed, "it leads to another server");
    return false;
  }
  return env_->now() >= pausedUntil_;
}

inline void AckLane::begin() {
  const AckTickets::Round round = tickets_.beginRound(env_->now());
  // 0 would be for ever.
  const auto slice = std::clamp<std::chrono::milliseconds>(
      std::chrono::ceil<std::chrono::milliseconds>(round.longest),
      std::chrono::milliseconds(1),
      slice_);
  const std::string count = std::to_string(round.wanted);
  const std::string limit = std::to_string(slice.count());
  underWay_ = true;
  roundError_.clear();
  bool sent = false;
  if (tickets_.form() == Kind::majority) {
    const bool known = tickets_.connected().has_value();
    sent = (!known || !writesToStamp_ || stamp(round.markKey)) &&  // INFO stamps, too
           ask(std::array<std::string_view, 2>{"INFO", "replication"}, Part::count, !known) &&
           (!known || ask(std::array<std::string_view, 3>{"WAIT", count, limit}, Part::wait, true));
  } else {
    sent = stamp(round.markKey);
    if (sent && tickets_.form() == Kind::replicas) {
      sent = ask(std::array<std::string_view, 3>{"WAIT", count, limit}, Part::wait, true);
    } else if (sent) {
      const bool local = tickets_.form() == Kind::localAof;
      sent = ask(
          std::array<std::string_view, 4>{
              "WAITAOF", local ? "1" : "0", local ? std::string_view("0") : count, limit},
          Part::wait,
          true);
    }
  }
  if (!sent) {
    // There is another one soon.
    drop();
  }
}

inline bool AckLane::stamp(std::string_view key) {
  if (!writesToStamp_) {
    return ask(std::array<std::string_view, 1>{"PING"}, Part::stamp);
  }
  if (!tickets_.unstamped()) {
    return true;
  }
  tickets_.stamped();
  mark_ = key;
  return ask(std::array<std::string_view, 5>{"SET", mark_, "", "PX", "1"}, Part::stamp);
}

inline bool AckLane::ask(std::span<const std::string_view> argv, Part part, bool last) {
  IntrusivePtr<Question>& place = asked_[static_cast<std::size_t>(part)];
  place = makeIntrusive<Question>(*this, part, last);
  return link_->submit(*place, argv, net::CommandTransport::Mode::background);
}

inline void AckLane::answered(Question& question) {
  const bool replied = question.delivery() == net::Request::Delivery::replied;
  if (replied && question.part() == Part::count) {
    countReplicas(question.reply());
  }
  if (replied && question.part() == Part::stamp) {
    stampAnswered(question.reply());
  }
  if (!question.last()) {
    return;
  }
  drop();
  if (!replied) {
    // The connection is gone, and the tickets wait for another.
    return;
  }
  if (!roundError_.empty()) {
    // The answers after it are about an older offset, or about none.
    tickets_.forgetStamps();
    if (classifyError(roundError_).action == ErrorAction::redirect) {
      tickets_.sentElsewhere(mark_);
    }
    refused(roundError_);
  } else if (tickets_.form() == Kind::majority && !tickets_.connected()) {
    resolveRound(false, countRefusal_);
  } else if (question.part() == Part::wait) {
    judge(question.reply());
  } else if (*tickets_.connected() < 1) {
    // The server has no replicas, so a majority of none is reached without asking.
    resolveRound(true, {});
  }
  pump();
  if (!closed_) {
    arm();
  }
}

inline void AckLane::stampAnswered(const Reply& reply) {
  if (reply.isError()) {
    roundError_ = reply.text;
  } else if (writesToStamp_) {
    tickets_.marked(std::move(mark_));
  }
}

/// The answer of the command that waited.
inline void AckLane::judge(Reply& reply) {
  if (reply.isError()) {
    refused(reply.text);
    return;
  }
  const bool file = tickets_.form() == Kind::localAof || tickets_.form() == Kind::remoteAof;
  const bool asExpected = file ? reply.isArray() && reply.elements.size() == 2 &&
                                     reply.elements[0].isInteger() && reply.elements[1].isInteger()
                               : reply.isInteger();
  if (!asExpected) {
    resolveRound(false, "the server's answer makes no sense");
    return;
  }
  const int replicas = static_cast<int>(file ? reply.elements[1].integer : reply.integer);
  const bool local = file && reply.elements[0].integer > 0;
  tickets_.acknowledged(replicas, local);
}

inline void AckLane::refused(std::string_view text) {
  const ErrorAction action = classifyError(text).action;
  if (action == ErrorAction::retry || action == ErrorAction::redirect) {
    // Only some tickets are of a slot that is moving or has moved away: the next round has the key
    // of another, or these are over.
    pausedUntil_ = env_->now() + slice_;
    return;
  }
  resolveRound(false, refusal(text));
}

inline void AckLane::resolveRound(bool met, std::string_view why) {
  tickets_.resolve([&](const AckTickets::Waiting& one) -> std::optional<Acks> {
    return tickets_.covers(one) ? std::optional(Acks{met, 0, std::string(why)}) : std::nullopt;
  });
}

inline void AckLane::countReplicas(const Reply& reply) {
  constexpr std::string_view kField = "connected_slaves:";
  tickets_.forgetReplicas();
  if (reply.isError()) {
    if (classifyError(reply.text).action == ErrorAction::retry) {
      roundError_ = reply.text;
    } else {
      countRefusal_ = refusal(reply.text);
    }
    return;
  }
  const std::size_t at = reply.text.find(kField);
  int number = 0;
  const char* const end = reply.text.data() + reply.text.size();
  if (at != std::string::npos &&
      std::from_chars(reply.text.data() + at + kField.size(), end, number).ec == std::errc() &&
      number >= 0) {
    tickets_.countedReplicas(number);
  } else {
    countRefusal_ = "the server does not say how many replicas it has";
  }
}

// The end of tickets.

inline void AckLane::expire() {
  pump();
  if (!closed_) {
    arm();
  }
}

inline void AckLane::arm() {
  auto due = tickets_.nextDue();
  if (due != Clock::time_point::max() && pausedUntil_ > env_->now()) {
    due = std::min(due, pausedUntil_);
  }
  timer_->armAt(due);
}

inline std::string AckLane::shortfall(const AckTickets::Waiting& one) const {
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
                       std::max(one.wanted, tickets_.need(one)),
                       limit.count());
  }
  if (!laneServer_) {
    text += "; no connection to ask on";
    text += downBecause_.empty() ? std::string() : ": " + downBecause_;
  }
  return text;
}

/// An error reply in words.
inline std::string AckLane::refusal(std::string_view text) const {
  const bool unknown = text.find("unknown command") != std::string_view::npos;
  if (unknown && (tickets_.form() == Kind::localAof || tickets_.form() == Kind::remoteAof)) {
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
        "the user may not ask for acknowledgements: it needs WAIT, PING or SET, with a majority "
        "INFO, with an append-only file WAITAOF (\"{}\")",
        text);
  }
  return fmt::format("the server cannot follow this policy (\"{}\")", text);
}

}  // namespace rlock::detail
