// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>

#include <fmt/format.h>

#include <algorithm>
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

/// Has the server close connections that were lost, so that nothing that was sent on them can still
/// be executed. A connection counts as dead for ever only when the server has said so. Where the
/// server is another process than the one it led to, it is dead for as long as the client stays
/// there: an address may lead back to the process before. One request for each, however many ask;
/// it is repeated, after a pause where it was refused, for as long as somebody keeps the session.
///
/// A Node asks it, by check(), before a call goes out of which a request was lost, and is told by
/// `changed` to ask again. Invariants: a session that is marked dead stays so; it is killed by its
/// id alone only if the server is known to be the same process, for another one gives the number
/// again; the current connection is not killed. Guarantee: for each session in doubt there is a
/// request under way, a timer for the next one, or no connection to ask on, after whose return up()
/// asks. Want of memory is a refusal that passes.
///
/// **Thread safety:** loop thread only.
class ConnectionKiller {
 public:
  using SessionPtr = std::shared_ptr<const net::ServerSession>;

  enum class State : std::uint8_t {
    dead,     ///< nothing of it can come any more, at the server that there is now
    asked,    ///< not known yet: `changed` will be called
    refused,  ///< the server does not close it, and says so at each try; refusal() tells why
  };

  /// @param changed  called when check() has another answer for some session
  /// @param denied   called when the server does not let us close connections, whatever its
  /// handshake said
  ConnectionKiller(std::shared_ptr<Env> env,
                   std::shared_ptr<net::CommandTransport> link,
                   std::shared_ptr<const Logger> log,
                   std::function<void()> changed,
                   std::function<void()> denied);
  ~ConnectionKiller();
  ConnectionKiller(const ConnectionKiller&) = delete;
  ConnectionKiller& operator=(const ConnectionKiller&) = delete;

  /// Says what is known of a lost connection; asks the server if nothing is.
  State check(const SessionPtr& lost);
  /// Why, if it was refused.
  [[nodiscard]] std::optional<Error> refusal(const SessionPtr& lost) const;
  /// Whether the connection leads to the server that a lost one led to.
  [[nodiscard]] bool leadsTo(const net::ServerSession& lost) const noexcept {
    return current_ && current_->sameServer(lost);
  }

  /// There is a connection again.
  void up(SessionPtr session);
  /// Asks for nothing any more.
  void close() noexcept;

 private:
  class Kill;
  struct Open {
    SessionPtr lost;
    bool asking = false;
    bool refused = false;  // for good, as it seems
    std::optional<Error> refusal{};
  };

  Open* find(const SessionPtr& lost) noexcept;
  void forget(SessionPtr lost) noexcept;
  State ask(Open& open);
  void answered(const SessionPtr& lost, net::Request& kill) noexcept;
  void judge(Open& open, net::Request& kill);
  void refuse(Open& open, Error error, bool passing);
  void later() noexcept;
  void askAgain();
  void askRefused();

  const std::shared_ptr<Env> env_;
  const std::shared_ptr<net::CommandTransport> link_;
  const std::shared_ptr<const Logger> log_;
  const std::function<void()> changed_;
  const std::function<void()> denied_;
  SessionPtr current_;
  std::vector<Open> open_;
  const std::unique_ptr<Timer> again_;
  DoublingPause pause_;
  // Kills that are on their way outlive this object and must not call it then.
  std::shared_ptr<ConnectionKiller*> self_;
};

inline constexpr std::chrono::milliseconds kFirstPause{20};
inline constexpr std::chrono::milliseconds kLongestPause{2000};

inline Error refusalOf(const net::ServerSession& lost, Errc errc, std::string_view text) {
  ErrorContext context;
  context.node = lost.node;
  context.serverMessage = text;
  return Error(errc, "a connection that was lost could not be closed on the server", context);
}

class ConnectionKiller::Kill final : public net::LoneRequest {
 public:
  Kill(std::weak_ptr<ConnectionKiller*> killer, SessionPtr lost)
      : LoneRequest(Purpose::upkeep), killer_(std::move(killer)), lost_(std::move(lost)) {}

 private:
  void completed() noexcept override {
    if (const auto killer = killer_.lock()) {
      // The last thing that this does, since it may be what a new kill for the session needs.
      (*killer)->answered(std::exchange(lost_, nullptr), *this);
    }
  }

  const std::weak_ptr<ConnectionKiller*> killer_;
  SessionPtr lost_;
};

inline ConnectionKiller::ConnectionKiller(std::shared_ptr<Env> env,
                                          std::shared_ptr<net::CommandTransport> link,
                                          std::shared_ptr<const Logger> log,
                                          std::function<void()> changed,
                                          std::function<void()> denied)
    : env_(std::move(env)),
      link_(std::move(link)),
      log_(std::move(log)),
      changed_(std::move(changed)),
      denied_(std::move(denied)),
      again_(env_->makeTimer([this] { askAgain(); })),
      pause_(kFirstPause, kLongestPause),
      self_(std::make_shared<ConnectionKiller*>(this)) {
  noMemory();
}

inline ConnectionKiller::~ConnectionKiller() = default;

inline void ConnectionKiller::close() noexcept {
  self_.reset();
  again_->disarm();
  open_.clear();
  current_.reset();
}

inline ConnectionKiller::Open* ConnectionKiller::find(const SessionPtr& lost) noexcept {
  const auto at =
      std::find_if(open_.begin(), open_.end(), [&](const Open& open) { return open.lost == lost; });
  return at == open_.end() ? nullptr : &*at;
}

inline void ConnectionKiller::forget(SessionPtr lost) noexcept {
  std::erase_if(open_, [&](const Open& open) { return open.lost == lost; });
}

inline std::optional<Error> ConnectionKiller::refusal(const SessionPtr& lost) const {
  for (const Open& open : open_) {
    if (open.lost == lost) {
      return open.refusal;
    }
  }
  return std::nullopt;
}

inline ConnectionKiller::State ConnectionKiller::check(const SessionPtr& lost) {
  if (lost->dead) {
    return State::dead;
  }
  Open* open = find(lost);
  if (open == nullptr) {
    open_.push_back({lost});
    open = &open_.back();
  } else if (open->asking || open->refusal) {
    return open->refused ? State::refused : State::asked;
  }
  return ask(*open);
}

inline ConnectionKiller::State ConnectionKiller::ask(Open& open) {
  const net::ServerSession& lost = *open.lost;
  if (!current_ || current_ == open.lost) {
    return State::asked;
  }
  const bool sameKnown = !lost.runId.empty() && !current_->runId.empty();
  if (sameKnown && lost.runId != current_->runId) {
    forget(open.lost);
    return State::dead;
  }
  // Within one process of the server an id means one connection for ever. Where nobody knows which
  // process it is, the address keeps an id that was given anew from hitting somebody else.
  if (lost.clientId == 0 || (!sameKnown && lost.clientAddress.empty())) {
    refuse(open,
           refusalOf(lost, Errc::denied, "the server does not say which connection it was"),
           false);
    return State::refused;
  }
  const std::string id = std::to_string(lost.clientId);
  std::vector<std::string_view> argv{"CLIENT", "KILL", "ID", id};
  if (!sameKnown) {
    argv.insert(argv.end(), {"ADDR", lost.clientAddress});
  }
  const auto kill = makeIntrusive<Kill>(self_, open.lost);
  // Without a connection the next one brings it.
  open.asking = link_->submit(*kill, argv, net::CommandTransport::Mode::background);
  return State::asked;
}

inline void ConnectionKiller::answered(const SessionPtr& lost, net::Request& kill) noexcept {
  Open* const open = find(lost);
  if (open == nullptr) {
    return;
  }
  open->asking = false;
  try {
    judge(*open, kill);
  } catch (const std::bad_alloc&) {
    if (Open* const left = find(lost)) {
      left->refusal = noMemory();
      left->refused = false;
      later();
    }
  }
}

inline void ConnectionKiller::judge(Open& open, net::Request& kill) {
  const SessionPtr lost = open.lost;
  if (kill.delivery() != net::Request::Delivery::replied) {
    if (link_->up() && ask(open) == State::dead) {
      changed_();
    }
    return;
  }
  if (!kill.reply().isError()) {
    // One was closed, or there was none: both mean that it is gone.
    if (kill.reply().isInteger()) {
      lost->dead = true;
      forget(lost);
      pause_.reset();
    } else {
      refuse(open, refusalOf(*lost, Errc::protocolError, "unexpected reply"), false);
      denied_();
    }
    changed_();
    return;
  }
  const std::string& text = kill.reply().text;
  const ErrorClass known = classifyError(text);
  const bool passing = known.action == ErrorAction::retry;
  refuse(open, refusalOf(*lost, known.errc, text), passing);
  if (!passing) {
    denied_();
  }
  changed_();
}

inline void ConnectionKiller::refuse(Open& open, Error error, bool passing) {
  if (!open.refusal) {
    log_->write(LogLevel::warning, error.what());
  }
  open.refusal = std::move(error);
  open.refused = !passing;
  later();
}

inline void ConnectionKiller::later() noexcept {
  if (!again_->armed()) {
    again_->armAt(env_->now() + pause_.next());
  }
}

inline void ConnectionKiller::askAgain() {
  try {
    askRefused();
  } catch (const std::bad_alloc&) {
    // The timer is used up, and nothing else would ask those that are left.
    later();
  }
}

inline void ConnectionKiller::askRefused() {
  // Nobody but this list keeps what nobody waits for any more.
  std::erase_if(open_, [](const Open& open) { return !open.asking && open.lost.use_count() == 1; });
  std::vector<SessionPtr> all;
  for (const Open& open : open_) {
    if (!open.asking && open.refusal) {
      all.push_back(open.lost);
    }
  }
  bool dead = false;
  for (const SessionPtr& lost : all) {
    if (Open* const open = find(lost)) {
      dead = ask(*open) == State::dead || dead;
    }
  }
  // Also without news: what was given up long enough ago counts as gone.
  if (dead || !all.empty()) {
    changed_();
  }
}

inline void ConnectionKiller::up(SessionPtr session) {
  current_ = std::move(session);
  pause_.reset();
  std::vector<SessionPtr> all;
  for (Open& open : open_) {
    // An answer to an earlier connection says nothing about this one.
    open.refusal.reset();
    open.refused = false;
    if (!open.asking) {
      all.push_back(open.lost);
    }
  }
  for (const SessionPtr& lost : all) {
    if (Open* const open = find(lost)) {
      ask(*open);
    }
  }
}

}  // namespace rlock::detail
