// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/random_bits.hpp>
#include <rlock/detail/executor/ack_lane.hpp>
#include <rlock/detail/executor/asking.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/connection_history.hpp>
#include <rlock/detail/executor/connection_killer.hpp>
#include <rlock/detail/executor/live_nodes.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/lost_requests.hpp>
#include <rlock/detail/executor/node_acks.hpp>
#include <rlock/detail/executor/node_name.hpp>
#include <rlock/detail/executor/node_owner.hpp>
#include <rlock/detail/executor/parked_calls.hpp>
#include <rlock/detail/executor/read_only_back_off.hpp>
#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/detail/executor/reply_verdict.hpp>
#include <rlock/detail/executor/script_supply.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// One server: the connection to it, and the calls that were sent to it or wait for it. Says what a
/// reply, a refusal or a broken connection means for a call, and brings each call to its end.
///
/// A call comes two ways. The Dispatcher submits it on the caller's thread, which then awaits the
/// reply; what is simple is dealt with there. All else is done on the loop thread: the call goes
/// out by send(), its end comes to judge(), and what goes out once more is given to the NodeOwner
/// first, for another node may have its key by then. A call that may not go out yet is parked.
///
/// Invariants: a call is with one node at a time, and is there in one way: under way on the link,
/// parked, or in the hands of one of these functions. Nothing of a call goes out while a request of
/// it that was lost could still do harm (LostRequests). Nothing throws once a call was sent or
/// finished.
///
/// Guarantees: each call that judge() or send() was given is finished once, or is another node's.
///
/// **Thread safety:** submit(), await(), sendAhead(), takeError(), name() and the observers from
/// any thread; the rest on the loop thread.
class Node final : private net::LinkEvents {
 public:
  using Clock = std::chrono::steady_clock;
  using CallPtr = IntrusivePtr<Call>;
  using Mode = net::CommandTransport::Mode;
  using MakeLink = AckLane::MakeLink;
  enum class Direct : std::uint8_t {
    replied,      ///< Call::reply() is the answer, no error
    failed,       ///< a fatal error reply, in takeError()
    trouble,      ///< pass it to Dispatcher::resume()
    timedOut,     ///< the call goes on in the background and ends in finished()
    interrupted,  ///< likewise
  };

  /// @param makeLink  kept, for a second connection if acknowledgements are asked for
  /// @param name      for messages, until the connection says it better
  Node(const NodeTerms& terms, const MakeLink& makeLink, std::string name, NodeOwner& owner);

  /// Ends the connection for good. Calls that are under way or wait here go to the node that has
  /// their keys by now, or finish with `over`, which must stay.
  void close(const Error* over) noexcept;

  ///@{
  /// As in Dispatcher, where the first is called direct(), for a call of this node.
  bool submit(Call& call, Mode mode);
  Direct await(Call& call, Clock::time_point deadline);
  [[nodiscard]] Error takeError(Call& call) const;
  ///@}
  /// Sends the call at once if the connection is up, so that it precedes later requests of this
  /// thread. False: there is no connection.
  bool sendAhead(Call& call);

  void send(const CallPtr& call);
  /// The call goes to another node, and with it the text that it was to bring here.
  void leftBy(Call& call) noexcept { scripts_.answered(call); }
  void judge(const CallPtr& call);
  /// Sends the calls again that wait for a connection or a kill.
  void sendParked();
  /// Runs `step` for a call on the loop thread. If it throws std::bad_alloc the call finishes: its
  /// outcome is unknown if its request was lost, and an error otherwise. But one that goes on
  /// whatever the server says is sent again in a moment, until its time is over.
  template <class Step>
  static void guarded(const CallPtr& call, Step step) noexcept;
  static void finish(const CallPtr& call, Outcome outcome) noexcept;

  /// Tells which replicas and files have the writes that this node has answered.
  [[nodiscard]] NodeAcks& acks() noexcept { return acks_; }
  /// The server has answered a request that was sent then, and refused the writes within it.
  void writesRefused(std::chrono::steady_clock::time_point sentAt) noexcept;
  /// True if CLIENT KILL is of no use here, so that requests need a tombstone: the options say so,
  /// the server denies it, or the connection cannot be told from others.
  [[nodiscard]] bool mustGuard() const noexcept {
    return mustGuard_.load(std::memory_order_relaxed);
  }
  /// For messages.
  [[nodiscard]] std::string name() const { return name_.get(); }
  /// The connection to it; open() begins it.
  [[nodiscard]] net::CommandTransport& link() const noexcept { return *link_; }
  /// The present connection, or the last one; null: there was none. Loop thread.
  [[nodiscard]] const std::shared_ptr<const net::ServerSession>& session() const noexcept {
    return untold_.session;
  }
  [[nodiscard]] std::uint64_t scriptsLoaded() const noexcept { return scripts_.loaded(); }

 private:
  void onUp(const std::shared_ptr<const net::ServerSession>& session) override;
  void onDown(const Error& error) override;
  void tellUp();

  /// False: the call cannot go out yet, and was parked or finished.
  bool passesKills(const CallPtr& call);
  Node* killerOf(const LostRequests::Lost& lost) noexcept;
  bool changeForm(Call& call, const ErrorClass& refusal);
  void judgeRefusal(const CallPtr& call);
  void waitForLink(const CallPtr& call);
  void retryLater(const CallPtr& call);
  bool waitForMemory(const CallPtr& call) noexcept;
  void composeAgain();
  static void sendAgain(const CallPtr& call);
  void timeIsUp(const CallPtr& call);
  static void fail(const CallPtr& call, Error error, bool answered = false);

  const NodeTerms& terms_;  // its owner's
  NodeOwner& owner_;
  Atomic<bool> mustGuard_;
  ScriptSupply scripts_;
  const std::shared_ptr<net::CommandTransport> link_;
  ConnectionKiller killer_;
  NodeName name_;

  // Loop thread only.
  ParkedCalls parked_;
  ConnectionHistory history_;
  // The connection, as it is told to others. It is told again if there was no memory to tell it.
  struct Untold {
    std::shared_ptr<const net::ServerSession> session{};
    bool again = false;
    bool replaced = false;
    bool owner = false;  // is to be told
  };
  Untold untold_;
  const std::unique_ptr<Timer> tellAgain_;
  const std::unique_ptr<Timer> memoryAgain_;
  ReadOnlyBackOff readOnly_;
  NodeAcks acks_;
  std::uint32_t random_;
  bool closed_ = false;
  const Error* over_ = nullptr;
};

/// The pause before others are told once more of a connection.
inline constexpr std::chrono::milliseconds kTellAgain{10};
/// The pause before calls are sent once more for which there was no memory.
inline constexpr std::chrono::milliseconds kMemoryPause{10};
/// How long a follow-up may wait for its turn on the loop.
inline constexpr std::chrono::milliseconds kFollowUpPatience{5};

template <class Step>
void Node::guarded(const CallPtr& call, Step step) noexcept {
  try {
    step();
  } catch (const std::bad_alloc&) {
    // Nothing throws once a call has been sent or finished, so it is neither.
    ParkedCalls::unpark(*call);
    Node* const node = call->room_->node;
    if (node != nullptr && node->waitForMemory(call)) {
      return;
    }
    // A loss that the call has begun with is known to its sender, and is not this request's.
    if (call->delivery() == net::Request::Delivery::lost && call->room_->maybeExecuted) {
      finish(call, {Outcome::Kind::unknown, std::nullopt});
    } else {
      finish(call, {Outcome::Kind::failed, noMemory(), false, call->room_->maybeExecuted});
    }
  }
}

inline void Call::outlastLost() noexcept {
  const auto last = room_->lost.lastThatTakes();
  if (persistent_ && last != LostRequests::TimePoint::min()) {
    // Ten seconds are added so that the call can still be sent after the last lost request has
    // become harmless.
    room_->sendBefore =
        std::max(room_->sendBefore, last + kTombstoneLife + std::chrono::seconds(10));
  }
}

inline void Call::completed() noexcept {
  if (Node* const node = room_ ? room_->node : nullptr; node != nullptr) {
    const Node::CallPtr self(this);
    Node::guarded(self, [&] { node->judge(self); });
  }
}

inline Node::Node(const NodeTerms& terms,
                  const MakeLink& makeLink,
                  std::string name,
                  NodeOwner& owner)
    : terms_(terms),
      owner_(owner),
      mustGuard_(terms.policy == LostReplyPolicy::marker),
      link_(makeLink(*this)),
      killer_(
          terms.env,
          link_,
          terms.log,
          [this] { parked_.each(Call::Wait::kill, sendAgain); },
          [this] {
            mustGuard_.store(true, std::memory_order_relaxed);
            owner_.guardChanged();
            link_->distrust();
          }),
      name_(terms.env, std::move(name)),
      parked_(terms.env,
              [this](const CallPtr& call) {
                if (call->room_->waitsFor == Call::Wait::pause) {
                  guarded(call, [&] { owner_.resend(call); });
                } else {
                  guarded(call, [&] { timeIsUp(call); });
                }
              }),
      tellAgain_(terms.env->makeTimer([this] { tellUp(); })),
      memoryAgain_(terms.env->makeTimer([this] { composeAgain(); })),
      readOnly_(terms.retryMin, terms.retryMax),
      acks_(terms.env, makeLink, terms.commandTimeout),
      random_(static_cast<std::uint32_t>(randomBits())) {
  noMemory();
}

inline void Node::close(const Error* over) noexcept {
  closed_ = true;
  over_ = over;
  tellAgain_->disarm();
  memoryAgain_->disarm();
  killer_.close();
  link_->close();
  terms_.live->down(*this);
  acks_.end();
  while (!parked_.empty()) {
    const CallPtr call = parked_.last();
    const bool incomplete = call->room_->waitsFor == Call::Wait::memory;
    ParkedCalls::unpark(*call);
    guarded(call, [&] {
      if (incomplete && over_ == nullptr) {
        // As in composeAgain(): it goes to another node.
        call->recompose(false);
      }
      send(call);
    });
  }
}

inline Node::Direct Node::await(Call& call, Clock::time_point deadline) {
  for (;;) {
    switch (link_->await(call, deadline)) {
      case net::CommandTransport::Awaited::timedOut:
        return Direct::timedOut;
      case net::CommandTransport::Awaited::interrupted:
        return Direct::interrupted;
      case net::CommandTransport::Awaited::complete:
        break;
    }
    scripts_.answered(call);
    if (call.delivery() != net::Request::Delivery::replied) {
      return Direct::trouble;
    }
    if (!call.reply().isError()) {
      return Direct::replied;
    }
    const ErrorClass refusal = classifyError(call.reply().text);
    if (!changeForm(call, refusal)) {
      return refusal.action == ErrorAction::fatal ? Direct::failed : Direct::trouble;
    }
    if (!submit(call, Mode::awaitedAtOnce)) {
      // Another may bring the text.
      scripts_.answered(call);
      call.unsent_ = true;
      return Direct::trouble;
    }
  }
}

inline Error Node::takeError(Call& call) const {
  const std::string& text = call.reply().text;
  return name_.describe(classifyError(text).errc, text);
}

inline bool Node::sendAhead(Call& call) {
  scripts_.supplyAhead(call);
  return !terms_.env->onLoopThread() && submit(call, Mode::background);
}

inline void Node::send(const CallPtr& call) {
  if (closed_ && over_) {
    fail(call, *over_);
    return;
  }
  if (closed_) {
    owner_.resend(call);
    return;
  }
  const auto now = terms_.env->now();
  if (now >= call->room_->sendBefore) {
    timeIsUp(call);
    return;
  }
  if (!link_->up()) {
    waitForLink(call);
    return;
  }
  if (!passesKills(call)) {
    return;
  }
  if (std::exchange(call->outdated_, false)) {
    call->recompose(false);
  }
  if (!call->aboutToSend(now)) {
    fail(call, Error(Errc::cancelled, "there is nothing left to ask for"));
    return;
  }
  if (call->late() != Call::Late::harmless && owner_.needsTombstone()) {
    call->recompose(true);
  }
  call->room_->lost.makeRoom();
  call->setSubmitTime(now);
  if (!submit(*call, Mode::background)) {
    waitForLink(call);
  } else if (call->room_->waitsFor == Call::Wait::memory) {
    // It has got its memory, and ends for another reason if it ends.
    call->room_->waitsFor = Call::Wait::pause;
  }
}

inline bool Node::submit(Call& call, Mode mode) {
  if (!terms_.publish.empty()) {
    call.setPublish(terms_.publish);
  }
  if (!call.room_->asking) {
    return link_->submit(call, call.argv(), mode);
  }
  const auto asking =
      makeIntrusive<Asking>([this, self = CallPtr(&call)](const std::string& refusal) {
        ifThereIsMemory(
            [&] { self->room_->lastError = name_.describe(classifyError(refusal).errc, refusal); });
      });
  const std::array<net::CommandTransport::Part, 2> group{
      {{*asking, Asking::kArgv}, {call, call.argv()}}};
  return link_->submitGroup(group);
}

inline bool Node::passesKills(const CallPtr& call) {
  LostRequests& requests = call->room_->lost;
  if (requests.empty()) {
    return true;
  }
  requests.expire(terms_.env->now(), kTombstoneLife);
  Node* waitsAt = nullptr;  // of the last one that is not dead, as LostRequests::killed()
  const auto kills = requests.killed(call->persistent_, [&](const LostRequests::Lost& lost) {
    Node* const killer = killerOf(lost);
    const auto state =
        killer != nullptr ? killer->killer_.check(lost.session) : ConnectionKiller::State::dead;
    waitsAt = state == ConnectionKiller::State::dead ? waitsAt : killer;
    return state;
  });
  switch (kills.state) {
    case ConnectionKiller::State::refused:
      fail(call, *waitsAt->killer_.refusal(kills.by->session));
      return false;
    case ConnectionKiller::State::asked:
      // The call is parked at the node that must kill the connection, and goes on when that node
      // has answered.
      waitsAt->parked_.park(call, call->room_->sendBefore, Call::Wait::kill);
      return false;
    case ConnectionKiller::State::dead:
      break;
  }
  // Lost requests that do no harm here stay: the call may be redirected to where they do.
  requests.expire(terms_.env->now(), kTombstoneLife);
  return true;
}

/// The node that must have the connection closed before a call goes out here; null: none.
inline Node* Node::killerOf(const LostRequests::Lost& lost) noexcept {
  if (lost.node == this || lost.node->link_->up()) {
    return lost.node;
  }
  // The other node has the key no more: it would answer a late request with a redirection, or
  // execute it on a copy that is discarded when it joins the others again. Unless it is this one by
  // another address.
  return killer_.leadsTo(*lost.session) ? this : nullptr;
}

inline void Node::timeIsUp(const CallPtr& call) {
  // The connection was given up for that refusal: that there is none is no reason of its own,
  // unless there has been another one since, or an attempt that failed.
  const bool forgotten = history_.endedForgotten() && call->room_->lastError &&
                         call->room_->lastError->errc() == Errc::authenticationFailed;
  if (call->room_->waitsFor == Call::Wait::memory) {
    fail(call, noMemory());
    return;
  }
  const bool parkedForLink = call->room_->waitsFor == Call::Wait::link && !forgotten;
  if (call->room_->waitsFor == Call::Wait::kill) {
    if (auto why = call->room_->lost.refusal([this](const LostRequests::Lost& lost) {
          auto known = lost.node->killer_.refusal(lost.session);
          return known ? known : killer_.refusal(lost.session);
        })) {
      fail(call, std::move(*why));
      return;
    }
  }
  if (const auto& known = parkedForLink ? history_.error() : call->room_->lastError) {
    fail(call, *known, !parkedForLink);
    return;
  }
  const bool noTimeLeft = link_->up() && call->room_->waitsFor == Call::Wait::pause;
  const std::string_view why =
      noTimeLeft ? "there was no time left to send it" : "there was no connection in time";
  finish(call,
         {Outcome::Kind::failed,
          name_.describe(Errc::connectionFailed, why),
          noTimeLeft && !call->room_->maybeExecuted,
          call->room_->maybeExecuted});
}

inline void Node::fail(const CallPtr& call, Error error, bool answered) {
  finish(call,
         {Outcome::Kind::failed, std::move(error), false, call->room_->maybeExecuted, answered});
}

/// The call goes out again here, at once, in the other form that this refusal asks for. False: the
/// refusal asks for no other form, or the call has none.
inline bool Node::changeForm(Call& call, const ErrorClass& refusal) {
  if (refusal.errc == Errc::outOfMemory && call.sendDespiteMemoryLimit()) {
    return true;
  }
  if (refusal.action != ErrorAction::reload || call.sendsText()) {
    return false;
  }
  scripts_.supply(call);
  return true;
}

inline void Node::judge(const CallPtr& call) {
  if (call->delivery() != net::Request::Delivery::pending) {
    scripts_.answered(*call);
  }
  switch (call->delivery()) {
    case net::Request::Delivery::pending:
      return;
    case net::Request::Delivery::unsent:
      call->room_->lastError.reset();
      owner_.resend(call);
      return;
    case net::Request::Delivery::lost:
      call->room_->lastError.reset();
      if (call->late() != Call::Late::harmless) {
        call->room_->lost.add(
            {call->session(), call->late(), terms_.env->now(), this, call->room_->nodeKept});
        call->outlastLost();
      }
      if (!call->repeatable()) {
        finish(call, {Outcome::Kind::unknown, std::nullopt});
        return;
      }
      call->room_->maybeExecuted = true;
      call->recompose(false);
      owner_.resend(call);
      return;
    case net::Request::Delivery::replied:
      break;
  }
  if (!call->reply().isError()) {
    finish(call, {Outcome::Kind::replied, std::nullopt});
    return;
  }
  judgeRefusal(call);
}

inline void Node::judgeRefusal(const CallPtr& call) {
  // Of a command whose ASKING was refused that is the reason: it would go round between two nodes.
  const auto& asked = call->room_->lastError;
  const std::string text =
      call->room_->asking && asked ? std::string(asked->serverMessage()) : call->reply().text;
  const ErrorClass refusal = classifyError(text);
  const bool goesOn =
      refusal.action == ErrorAction::reload || refusal.action == ErrorAction::redirect;
  if (goesOn && call->followsUp_) {
    call->room_->sendBefore =
        std::max(call->room_->sendBefore, terms_.env->now() + kFollowUpPatience);
  }
  if (changeForm(*call, refusal)) {
    send(call);
    return;
  }
  call->room_->lastError = name_.describe(refusal.errc, text);
  if (refusal.errc == Errc::authenticationFailed) {
    history_.authenticationForgotten(call->submittedAt());
  }
  const ReplyVerdict verdict = verdictOn(refusal, call->persistent_);
  if (verdict.redirect) {
    const NodeOwner::Follow follow = owner_.redirect(*this, call);
    if (follow == NodeOwner::Follow::later) {
      retryLater(call);
    }
    if (follow != NodeOwner::Follow::no) {
      return;
    }
  }
  if (verdict.outOfDate) {
    owner_.outOfDate(*this);
  }
  if (verdict.leave) {
    writesRefused(call->submittedAt());
  }
  if (verdict.retry && closed_ && over_ == nullptr) {
    // Race: the map that dropped this node came before the judgement. Another has the key.
    owner_.resend(call);
    return;
  }
  if (verdict.retry && !closed_) {
    retryLater(call);
    return;
  }
  fail(call, *call->room_->lastError, true);
}

inline void Node::writesRefused(std::chrono::steady_clock::time_point sentAt) noexcept {
  if (!closed_ && readOnly_.leaves(terms_.env->now())) {
    link_->abandon(sentAt, Errc::readOnly, "the server takes no writes any more");
  }
}

inline void Node::waitForLink(const CallPtr& call) {
  if (history_.hopeless() && !call->persistent_) {
    fail(call, *history_.error());
    return;
  }
  parked_.park(call, call->room_->sendBefore, Call::Wait::link);
}

inline void Node::retryLater(const CallPtr& call) {
  random_ = random_ * 1664525U + 1013904223U;
  const auto pause =
      backoffPause(terms_.retryMin, terms_.retryMax, call->room_->attempts++, random_ >> 8U);
  const auto now = terms_.env->now();
  const auto sendBefore = call->room_->sendBefore;
  // It may be the first of all points in time, from which nothing can be taken away.
  if (sendBefore <= now || sendBefore - now <= pause) {
    fail(call, *call->room_->lastError, true);
    return;
  }
  parked_.park(call, now + pause, Call::Wait::pause);
}

/// False: the call is not one that goes on, or its time is over.
inline bool Node::waitForMemory(const CallPtr& call) noexcept {
  const auto now = terms_.env->now();
  if (!call->persistent_ || closed_ || now >= call->room_->sendBefore) {
    return false;
  }
  parked_.parkWithoutMemory(call);
  if (!memoryAgain_->armed()) {
    memoryAgain_->armAt(now + kMemoryPause);
  }
  return true;
}

inline void Node::composeAgain() {
  parked_.each(Call::Wait::memory, [this](const CallPtr& call) {
    ParkedCalls::unpark(*call);
    guarded(call, [&] {
      // There may have been no memory for the rest of its words.
      call->recompose(false);
      owner_.resend(call);
    });
  });
}

/// Called for each of several parked calls. One that an earlier call of this function has unparked
/// already is skipped.
inline void Node::sendAgain(const CallPtr& call) {
  Node* const node = call->room_->node;
  if (ParkedCalls::unpark(*call)) {
    guarded(call, [&] { node->owner_.resend(call); });
  }
}

inline void Node::sendParked() {
  // In this order: what waited for the connection may have to wait for a kill now.
  parked_.each(Call::Wait::kill, sendAgain);
  parked_.each(Call::Wait::link, sendAgain);
}

inline void Node::finish(const CallPtr& call, Outcome outcome) noexcept {
  if (Node* const node = std::exchange(call->room_->node, nullptr); node != nullptr) {
    node->scripts_.answered(*call);
    call->room_->answeredBy = node;
  }
  call->finished(std::move(outcome));
}

inline void Node::onUp(const std::shared_ptr<const net::ServerSession>& session) {
  scripts_.reconnected();
  const ConnectionHistory::Up up = history_.up(session, terms_.env->now());
  acks_.connected(session, history_.since());
  const bool canKill = session->canBeKilled();
  mustGuard_.store(terms_.policy == LostReplyPolicy::marker || !canKill, std::memory_order_relaxed);
  owner_.guardChanged();
  untold_ = {session, up.again, up.replaced || (untold_.owner && untold_.replaced), true};
  ifThereIsMemory([&] { name_.set(session->node); });
  ifThereIsMemory([&] {
    terms_.log->write(
        LogLevel::info,
        fmt::format("connected to {} as client {}{}",
                    session->node,
                    session->clientId,
                    up.replaced ? ", another process than before: holds are verified" : ""));
  });
  // A kill that is not asked for now is asked for by the calls that are sent again.
  ifThereIsMemory([&] { killer_.up(session); });
  sendParked();
  tellUp();
}

inline void Node::tellUp() {
  // The end of a call that was sent just now may have ended the client.
  if (closed_) {
    return;
  }
  const bool live = ifThereIsMemory([&] { terms_.live->up(*this, *untold_.session); });
  const bool told = !untold_.owner || ifThereIsMemory([&] {
    owner_.nodeUp(*this, untold_.again, untold_.replaced);
    untold_.owner = false;
  });
  if (!closed_ && (!live || !told)) {
    tellAgain_->armAt(terms_.env->now() + kTellAgain);
  }
}

inline void Node::onDown(const Error& error) {
  tellAgain_->disarm();
  terms_.live->down(*this);
  bool news = true;
  ifThereIsMemorySoon([&] { news = history_.down(error, terms_.env->now()); });
  // Without memory to tell others, the calls that wait here are ended nevertheless.
  bool told = false;
  ifThereIsMemory([&] { told = owner_.nodeDown(*this, error); });
  if (!told) {
    ifThereIsMemory([&] {
      terms_.log->write(news ? LogLevel::warning : LogLevel::debug,
                        fmt::format("no connection, trying again: {}", error.what()));
    });
  }
  // Another node's call waits for a kill that it needs no more, see killerOf().
  parked_.each(Call::Wait::kill, [this](const CallPtr& call) {
    if (call->room_->node != this) {
      sendAgain(call);
    }
  });
  if (!isPermanent(error.errc())) {
    return;
  }
  for (const Call::Wait wait : {Call::Wait::link, Call::Wait::kill}) {
    parked_.each(wait, [&](const CallPtr& call) {
      if (!call->persistent_ && ParkedCalls::unpark(*call)) {
        fail(call, history_.error().value_or(error));
      }
    });
  }
}

}  // namespace rlock::detail
