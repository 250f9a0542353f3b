// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/random_bits.hpp>
#include <rlock/detail/executor/ack_lane.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/connection_killer.hpp>
#include <rlock/detail/executor/live_nodes.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/parked_calls.hpp>
#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/detail/executor/script_texts.hpp>
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
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

class Node;

/// Who has the nodes, and knows which of them a call belongs to. All on the loop thread, but for
/// needsTombstone().
class NodeOwner {
 public:
  NodeOwner() = default;
  NodeOwner(const NodeOwner&) = delete;
  NodeOwner& operator=(const NodeOwner&) = delete;
  virtual ~NodeOwner() = default;

  /// The node has a connection.
  /// @param again  the server behind it may be another than before, or have lost its data
  /// @param replaced  the server is another process than that of the connection before
  virtual void nodeUp(Node& node, bool again, bool replaced) = 0;
  /// The node has none, or another attempt to connect failed. True: somebody was told why.
  virtual bool nodeDown(Node& node, const Error& error) = 0;
  /// Node::mustGuard() has another answer.
  virtual void guardChanged() noexcept = 0;
  /// Whether requests must carry a tombstone. Any thread.
  [[nodiscard]] virtual bool needsTombstone() const noexcept = 0;

  /// Sends a call once more that did not get through: to the node that has its key by now.
  virtual void resend(const IntrusivePtr<Call>& call) = 0;
  /// What became of a redirection.
  enum class Follow : std::uint8_t {
    no,     ///< it cannot be followed: the call fails with it
    done,   ///< the call is on its way to the other node
    later,  ///< nodes contradict each other: the call is sent again after a pause
  };
  /// The node answered that another has the call's key.
  virtual Follow redirect(Node& node, const IntrusivePtr<Call>& call) = 0;
  /// The node's answer says that what is known of the nodes is out of date.
  virtual void outOfDate(Node& node) = 0;
};

/// What the nodes of one client share.
struct NodeTerms {
  NodeTerms(std::shared_ptr<Env> world,
            const Options& options,
            std::shared_ptr<const Logger> logger,
            std::shared_ptr<LiveNodes> liveNodes)
      : env(std::move(world)),
        log(std::move(logger)),
        live(std::move(liveNodes)),
        policy(options.lostReplyPolicy),
        retryMin(options.retryDelayMin),
        retryMax(options.retryDelayMax),
        commandTimeout(options.commandTimeout) {}

  std::shared_ptr<Env> env;
  std::shared_ptr<const Logger> log;
  std::shared_ptr<LiveNodes> live;
  LostReplyPolicy policy;
  std::chrono::nanoseconds retryMin;
  std::chrono::nanoseconds retryMax;
  std::chrono::milliseconds commandTimeout;
  /// The command with which scripts announce something, where it is not PUBLISH.
  std::string_view publish{};
};

/// One server: the connection to it, the connections to it that were lost, the script texts that
/// are under way, and the calls that wait for it. Decides what a reply, an error or a broken
/// connection means for a call.
///
/// **Thread safety:** direct(), await(), startAhead(), takeError(), name() and the observers from
/// any thread; the rest on the loop thread.
class Node final : private net::LinkEvents {
 public:
  using Clock = std::chrono::steady_clock;
  using CallPtr = IntrusivePtr<Call>;
  using Mode = net::CommandTransport::Mode;
  using MakeLink = std::function<std::shared_ptr<net::CommandTransport>(net::LinkEvents& events)>;
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
  ~Node() override;

  /// Ends the connection for good. Calls that are under way or wait here go to the node that has
  /// their keys by now, or finish with `over`, which must stay.
  void close(const Error* over) noexcept;

  ///@{
  /// As in Dispatcher, for a call of this node.
  bool direct(Call& call, Mode mode) { return submit(call, mode); }
  Direct await(Call& call, Clock::time_point deadline);
  [[nodiscard]] Error takeError(Call& call) const;
  ///@}
  /// Sends ahead of what this thread sends after it; false: not now.
  bool sendAhead(Call& call);

  void send(const CallPtr& call);
  void judge(const CallPtr& call);
  /// Does one step for a call on the loop. A call that there is no memory for is over.
  template <class Step>
  static void guarded(const CallPtr& call, Step step) noexcept;
  /// Asks who has the write of a call that this node has answered.
  void acknowledge(const Call& call, AckTicket ticket);
  /// Nobody waits for acknowledgements any more: the client is being closed.
  void endAcks() {
    if (acks_) {
      acks_->close();
    }
  }
  /// Sends the calls again that wait for a connection or a kill.
  void sendParked();
  static void finish(const CallPtr& call, Outcome outcome) noexcept;
  /// A call that nobody waits for goes on until what was lost before it can do no harm.
  static void prolong(Call& call);

  /// Whether a request that is lost here cannot be kept from running late by killing.
  [[nodiscard]] bool mustGuard() const noexcept {
    return mustGuard_.load(std::memory_order_relaxed);
  }
  /// For messages.
  [[nodiscard]] std::string name() const;
  /// The connection to it; open() begins it.
  [[nodiscard]] net::CommandTransport& link() const noexcept { return *link_; }
  [[nodiscard]] std::uint64_t scriptsLoaded() const noexcept {
    return scriptsLoaded_.load(std::memory_order_relaxed);
  }

 private:
  void onUp(const std::shared_ptr<const net::ServerSession>& session) override;
  void onDown(const Error& error) override;

  class Asking;

  bool submit(Call& call, Mode mode);
  /// False: the call cannot go out yet, and was parked or finished.
  bool passesKills(const CallPtr& call);
  void supplyScript(Call& call);
  void noteAnswered(Call& call) noexcept;
  void waitForLink(const CallPtr& call);
  void retryLater(const CallPtr& call);
  static void sendAgain(const CallPtr& call);
  void timeIsUp(const CallPtr& call);
  static void fail(const CallPtr& call, Error error, bool answered = false);
  void leaveReadOnly(const Call& call);
  [[nodiscard]] Error describe(Errc errc, std::string_view text) const;

  const NodeTerms& terms_;  // its owner's
  NodeOwner& owner_;
  std::atomic<bool> mustGuard_;
  std::atomic<std::uint64_t> scriptsLoaded_{0};
  ScriptTexts texts_;
  TextsSentAhead ahead_;
  const std::shared_ptr<net::CommandTransport> link_;
  ConnectionKiller killer_;

  mutable AnnotatedMutex nameMutex_;
  std::string name_ RLOCK_GUARDED_BY(nameMutex_);

  // Loop thread only.
  ParkedCalls parked_;
  std::optional<Error> linkError_;
  std::uint32_t random_;
  Clock::time_point leaveReadOnlyFrom_{};
  std::chrono::nanoseconds readOnlyPause_{};
  Clock::time_point readOnlyToldUntil_{};
  bool beenUp_ = false;
  std::shared_ptr<const net::ServerSession> session_;  ///< the last connection
  bool closed_ = false;
  const MakeLink makeLink_;
  std::unique_ptr<AckLane> acks_;  // null until somebody asks
  std::string server_;             // AckLane::serverOf()
  /// What was submitted since then was answered by that server.
  Clock::time_point serverSince_ = Clock::time_point::min();
  const Error* over_ = nullptr;
};

/// How long a follow-up may wait for its turn on the loop.
inline constexpr std::chrono::milliseconds kFollowUpPatience{5};

/// Failures to connect that waiting does not cure.
inline bool isPermanent(Errc errc) noexcept {
  return errc == Errc::authenticationFailed || errc == Errc::denied ||
         errc == Errc::invalidArgument;
}

inline Error noMemoryError() {
  return Error(Errc::overloaded, "this process has no memory for the request");
}

/// What a call ends with that there is no memory for; made in time.
inline const Error& noMemory() {
  // Never destroyed: a client may outlive what ends at the process' exit.
  static const Error& made = *new Error(noMemoryError());
  return made;
}

template <class Step>
void Node::guarded(const CallPtr& call, Step step) noexcept {
  try {
    step();
  } catch (const std::bad_alloc&) {
    // Nothing throws once a call has been sent or finished, so it is neither.
    ParkedCalls::unpark(*call);
    if (call->delivery() == net::Request::Delivery::lost) {
      finish(call, {Outcome::Kind::unknown, std::nullopt});
    } else {
      finish(call, {Outcome::Kind::failed, noMemory(), false, call->maybeExecuted_});
    }
  }
}

inline void Call::completed() noexcept {
  if (Node* const node = node_; node != nullptr) {
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
      name_(std::move(name)),
      parked_(terms.env,
              [this](const CallPtr& call) {
                if (call->waitsFor_ == Call::Wait::pause) {
                  guarded(call, [&] { owner_.resend(call); });
                } else {
                  guarded(call, [&] { timeIsUp(call); });
                }
              }),
      random_(static_cast<std::uint32_t>(randomBits())),
      makeLink_(makeLink) {
  noMemory();
}

inline Node::~Node() = default;

inline void Node::close(const Error* over) noexcept {
  closed_ = true;
  over_ = over;
  killer_.close();
  link_->close();
  terms_.live->down(*this);
  endAcks();
  while (!parked_.empty()) {
    const CallPtr call = parked_.last();
    ParkedCalls::unpark(*call);
    guarded(call, [&] { send(call); });
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
    noteAnswered(call);
    if (call.delivery() != net::Request::Delivery::replied) {
      return Direct::trouble;
    }
    if (!call.reply().isError()) {
      return Direct::replied;
    }
    const ErrorClass known = classifyError(call.reply().text);
    if (known.errc == Errc::outOfMemory && call.sendDespiteMemoryLimit()) {
      if (!submit(call, Mode::awaitedAtOnce)) {
        call.unsent_ = true;
        return Direct::trouble;
      }
      continue;
    }
    if (known.action == ErrorAction::fatal) {
      return Direct::failed;
    }
    if (known.action != ErrorAction::reload || call.sendsText()) {
      return Direct::trouble;
    }
    supplyScript(call);
    if (!submit(call, Mode::awaitedAtOnce)) {
      call.unsent_ = true;
      return Direct::trouble;
    }
  }
}

inline Error Node::takeError(Call& call) const {
  const std::string& text = call.reply().text;
  return describe(classifyError(text).errc, text);
}

inline bool Node::sendAhead(Call& call) {
  // A server that does not know the script would ask for its text, and by the time that comes the
  // call would not be ahead any more.
  if (call.script_ != nullptr && ahead_.first(*call.script_)) {
    call.sendText();
  }
  return !terms_.env->onLoopThread() && submit(call, Mode::background);
}

inline void Node::acknowledge(const Call& call, AckTicket ticket) {
  if (call.submittedAt() < serverSince_) {
    ticket.done({false, 0, "the server was replaced"});
    return;
  }
  try {
    if (!acks_) {
      acks_ = std::make_unique<AckLane>(terms_.env, makeLink_, terms_.commandTimeout);
      acks_->setServer(server_);
      if (closed_) {
        acks_->close();
      }
    }
    ticket.markKey = ackMarkKey(call.key());
    acks_->add(std::move(ticket));
  } catch (const std::bad_alloc&) {
    ticket.done({false, 0, "this process has no memory to ask for it"});
  }
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
  if (now >= call->sendBefore_) {
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
  if (!call->aboutToSend()) {
    fail(call, Error(Errc::cancelled, "there is nothing left to ask for"));
    return;
  }
  if (call->late() != Call::Late::harmless && owner_.needsTombstone()) {
    call->recompose(true);
  }
  call->setSubmitTime(now);
  if (!submit(*call, Mode::background)) {
    waitForLink(call);
  }
}

/// Lets the node execute the next command although the slot is not its own yet. The answer has
/// nothing to say.
class Node::Asking final : public net::Request {
 public:
  Asking() noexcept : Request(Purpose::upkeep) {}

 private:
  void completed() noexcept override {}
};

inline bool Node::submit(Call& call, Mode mode) {
  if (!terms_.publish.empty()) {
    call.setPublish(terms_.publish);
  }
  if (!call.asking_) {
    return link_->submit(call, call.argv(), mode);
  }
  constexpr std::array<std::string_view, 1> kAsking{"ASKING"};
  const auto asking = makeIntrusive<Asking>();
  const std::array<net::CommandTransport::Part, 2> group{{{*asking, kAsking}, {call, call.argv()}}};
  return link_->submitGroup(group);
}

inline bool Node::passesKills(const CallPtr& call) {
  if (call->stragglers_.empty()) {
    return true;
  }
  const auto now = terms_.env->now();
  std::erase_if(call->stragglers_, [now](const Call::Straggler& straggler) {
    return straggler.session->dead || now - straggler.lostAt >= kTombstoneLife;
  });
  Node* asked = nullptr;
  for (const Call::Straggler& straggler : call->stragglers_) {
    ConnectionKiller& killer = straggler.node->killer_;
    if (straggler.node != this && !straggler.node->link_->up()) {
      // It has the key no more: it would answer a late request with a redirection, or execute it on
      // a copy that is discarded when it joins the others again.
      continue;
    }
    const ConnectionKiller::State state = killer.check(straggler.session);
    if (state == ConnectionKiller::State::refused && !call->persistent_) {
      fail(call, *killer.refusal(straggler.session));
      return false;
    }
    if (state != ConnectionKiller::State::dead) {
      asked = straggler.node;
    }
  }
  if (asked != nullptr) {
    // There it is sent again when that node has answered.
    asked->parked_.park(call, call->sendBefore_, Call::Wait::kill);
    return false;
  }
  call->stragglers_.clear();
  return true;
}

/// A call that nobody waits for goes on until what was lost before it can do no harm.
inline void Node::prolong(Call& call) {
  if (!call.persistent_) {
    return;
  }
  for (const Call::Straggler& straggler : call.stragglers_) {
    if (straggler.late == Call::Late::takes) {
      // A little more: it is to be sent after that.
      call.sendBefore_ =
          std::max(call.sendBefore_, straggler.lostAt + kTombstoneLife + std::chrono::seconds(10));
    }
  }
}

inline void Node::timeIsUp(const CallPtr& call) {
  const bool parkedForLink = call->waitsFor_ == Call::Wait::link;
  if (call->waitsFor_ == Call::Wait::kill) {
    for (const Call::Straggler& straggler : call->stragglers_) {
      if (auto why = straggler.node->killer_.refusal(straggler.session)) {
        fail(call, std::move(*why));
        return;
      }
    }
  }
  if (const auto& known = parkedForLink ? linkError_ : call->lastError_) {
    fail(call, *known, !parkedForLink);
    return;
  }
  const bool noTimeLeft = link_->up() && call->waitsFor_ == Call::Wait::pause;
  const std::string_view why =
      noTimeLeft ? "there was no time left to send it" : "there was no connection in time";
  finish(call,
         {Outcome::Kind::failed,
          describe(Errc::connectionFailed, why),
          noTimeLeft && !call->maybeExecuted_,
          call->maybeExecuted_});
}

inline void Node::fail(const CallPtr& call, Error error, bool answered) {
  finish(call, {Outcome::Kind::failed, std::move(error), false, call->maybeExecuted_, answered});
}

/// The server does not know the script: the call goes out again, with the text unless that is on
/// its way already.
inline void Node::supplyScript(Call& call) {
  const bool mine = texts_.claim(call.script_);
  if (!mine && !std::exchange(call.behindText_, true)) {
    return;
  }
  call.bringsText_ = mine;
  scriptsLoaded_.fetch_add(1, std::memory_order_relaxed);
  call.sendText();
}

/// Answered, or lost: in both cases the text is not under way any more.
inline void Node::noteAnswered(Call& call) noexcept {
  if (std::exchange(call.bringsText_, false)) {
    texts_.arrived(call.script_);
  }
}

inline void Node::judge(const CallPtr& call) {
  if (call->delivery() != net::Request::Delivery::pending) {
    noteAnswered(*call);
  }
  switch (call->delivery()) {
    case net::Request::Delivery::pending:
      return;
    case net::Request::Delivery::unsent:
      call->lastError_.reset();
      owner_.resend(call);
      return;
    case net::Request::Delivery::lost:
      call->lastError_.reset();
      if (call->late() != Call::Late::harmless) {
        call->stragglers_.push_back(
            {call->session(), call->late(), terms_.env->now(), this, call->nodeKept_});
        prolong(*call);
      }
      if (!call->repeatable()) {
        finish(call, {Outcome::Kind::unknown, std::nullopt});
        return;
      }
      call->maybeExecuted_ = true;
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
  const std::string& text = call->reply().text;
  const ErrorClass known = classifyError(text);
  if (known.action == ErrorAction::reload && !call->sendsText()) {
    supplyScript(*call);
    if (call->followsUp_) {
      call->sendBefore_ = std::max(call->sendBefore_, terms_.env->now() + kFollowUpPatience);
    }
    send(call);
    return;
  }
  if (known.errc == Errc::outOfMemory && call->sendDespiteMemoryLimit()) {
    send(call);
    return;
  }
  call->lastError_ = describe(known.errc, text);
  if (known.action == ErrorAction::redirect) {
    const NodeOwner::Follow follow = owner_.redirect(*this, call);
    if (follow == NodeOwner::Follow::later) {
      retryLater(call);
    }
    if (follow != NodeOwner::Follow::no) {
      return;
    }
  }
  if (known.errc == Errc::readOnly || known.errc == Errc::connectionFailed) {
    owner_.outOfDate(*this);
  }
  if (known.errc == Errc::readOnly) {
    leaveReadOnly(*call);
  }
  const bool passing =
      known.action == ErrorAction::retry ||
      (call->persistent_ && known.errc != Errc::wrongType && known.errc != Errc::invalidArgument);
  if (passing && !closed_) {
    retryLater(call);
    return;
  }
  fail(call, *call->lastError_, true);
}

/// The master has become a replica, and whatever led to it may lead to the new one by now.
inline void Node::leaveReadOnly(const Call& call) {
  const auto now = terms_.env->now();
  if (now < leaveReadOnlyFrom_) {
    return;
  }
  // It may also be read-only for good: then connecting again and again is of no use.
  constexpr int kCalm = 10;
  const bool calm = now - leaveReadOnlyFrom_ > kCalm * readOnlyPause_;
  readOnlyPause_ = calm ? terms_.retryMin : std::min(2 * readOnlyPause_, terms_.retryMax);
  leaveReadOnlyFrom_ = now + readOnlyPause_;
  link_->abandon(call.submittedAt(), Errc::readOnly, "the server takes no writes any more");
}

inline void Node::waitForLink(const CallPtr& call) {
  if (linkError_ && isPermanent(linkError_->errc()) && !call->persistent_) {
    fail(call, *linkError_);
    return;
  }
  parked_.park(call, call->sendBefore_, Call::Wait::link);
}

inline void Node::retryLater(const CallPtr& call) {
  random_ = random_ * 1664525U + 1013904223U;
  const auto pause =
      backoffPause(terms_.retryMin, terms_.retryMax, call->attempts_++, random_ >> 8U);
  const auto now = terms_.env->now();
  if (call->sendBefore_ - pause <= now) {
    fail(call, *call->lastError_, true);
    return;
  }
  parked_.park(call, now + pause, Call::Wait::pause);
}

/// One of several, unless another of them took it along.
inline void Node::sendAgain(const CallPtr& call) {
  Node* const node = call->node_;
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
  if (Node* const node = std::exchange(call->node_, nullptr); node != nullptr) {
    node->noteAnswered(*call);
    call->answeredBy_ = node;
  }
  call->finished(std::move(outcome));
}

inline Error Node::describe(Errc errc, std::string_view text) const {
  ErrorContext context;
  context.node = name();
  if (errc == Errc::closed || errc == Errc::connectionFailed) {
    return Error(errc, text, std::move(context));
  }
  context.serverMessage = text;
  return Error(errc, {}, std::move(context));
}

inline std::string Node::name() const {
  // In a child another thread of the parent may have the mutex for ever.
  if (terms_.env->abandoned()) {
    return {};
  }
  const MutexLock lock(nameMutex_);
  return name_;
}

inline void Node::onUp(const std::shared_ptr<const net::ServerSession>& session) {
  ahead_.forget();
  {
    const MutexLock lock(nameMutex_);
    name_ = session->node;
  }
  // A server without a name of its own may be another after each reconnection.
  std::string server = AckLane::serverOf(*session);
  if (server != server_ || session->runId.empty()) {
    if (beenUp_) {
      serverSince_ = terms_.env->now();
    }
    server_ = std::move(server);
    if (acks_) {
      acks_->setServer(server_);
    }
  }
  const bool canKill = session->canBeKilled();
  mustGuard_.store(terms_.policy == LostReplyPolicy::marker || !canKill, std::memory_order_relaxed);
  owner_.guardChanged();
  if (session->role == "master") {
    readOnlyToldUntil_ = {};
  }
  const bool again = linkError_.has_value() || beenUp_;
  const bool replaced = session_ && !session->sameServer(*session_);
  beenUp_ = true;
  session_ = session;
  linkError_.reset();
  terms_.log->write(
      LogLevel::info,
      fmt::format("connected to {} as client {}{}",
                  session->node,
                  session->clientId,
                  replaced ? ", another process than before: holds are verified" : ""));
  killer_.up(session);
  terms_.live->up(*this, *session);
  sendParked();
  owner_.nodeUp(*this, again, replaced);
}

inline void Node::onDown(const Error& error) {
  terms_.live->down(*this);
  // Of an outage only its beginning is news, and what it turns into.
  bool known = linkError_ && linkError_->errc() == error.errc();
  if (error.errc() == Errc::readOnly) {
    // A replica is left and connected to again and again: that is no news until a master is found.
    constexpr std::chrono::minutes kToldFor{1};
    const auto now = terms_.env->now();
    known = known || now < readOnlyToldUntil_;
    readOnlyToldUntil_ = now + kToldFor;
  }
  // Its time is that of one attempt to connect; the calls that it ends have times of their own.
  ErrorContext context = error.context();
  context.elapsed = ErrorContext().elapsed;
  linkError_.emplace(error.errc(), error.message(), std::move(context));
  if (!owner_.nodeDown(*this, error)) {
    terms_.log->write(known ? LogLevel::debug : LogLevel::warning,
                      fmt::format("no connection, trying again: {}", error.what()));
  }
  if (!isPermanent(error.errc())) {
    return;
  }
  for (const Call::Wait wait : {Call::Wait::link, Call::Wait::kill}) {
    parked_.each(wait, [this](const CallPtr& call) {
      if (!call->persistent_ && ParkedCalls::unpark(*call)) {
        fail(call, *linkError_);
      }
    });
  }
}

}  // namespace rlock::detail
