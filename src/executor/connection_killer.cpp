// SPDX-License-Identifier: Apache-2.0
#include "executor/connection_killer.hpp"

#include <rlock/detail/executor/reply_error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

namespace {

constexpr std::chrono::milliseconds kFirstPause{20};
constexpr std::chrono::milliseconds kLongestPause{2000};

Error refusalOf(const net::ServerSession& lost, Errc errc, std::string_view text) {
  ErrorContext context;
  context.node = lost.node;
  context.serverMessage = text;
  return Error(errc, "a connection that was lost could not be closed on the server", context);
}

}  // namespace

class ConnectionKiller::Kill final : public net::Request {
 public:
  Kill(std::weak_ptr<ConnectionKiller*> killer, SessionPtr lost)
      : Request(Purpose::upkeep), killer_(std::move(killer)), lost_(std::move(lost)) {}

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

ConnectionKiller::ConnectionKiller(std::shared_ptr<Env> env,
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
      pause_(kFirstPause),
      self_(std::make_shared<ConnectionKiller*>(this)) {}

ConnectionKiller::~ConnectionKiller() = default;

void ConnectionKiller::close() noexcept {
  self_.reset();
  again_->disarm();
  open_.clear();
  current_.reset();
}

ConnectionKiller::Open* ConnectionKiller::find(const SessionPtr& lost) noexcept {
  const auto at =
      std::find_if(open_.begin(), open_.end(), [&](const Open& open) { return open.lost == lost; });
  return at == open_.end() ? nullptr : &*at;
}

void ConnectionKiller::forget(SessionPtr lost) noexcept {
  std::erase_if(open_, [&](const Open& open) { return open.lost == lost; });
}

std::optional<Error> ConnectionKiller::refusal(const SessionPtr& lost) const {
  for (const Open& open : open_) {
    if (open.lost == lost) {
      return open.refusal;
    }
  }
  return std::nullopt;
}

ConnectionKiller::State ConnectionKiller::check(const SessionPtr& lost) {
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

ConnectionKiller::State ConnectionKiller::ask(Open& open) {
  const net::ServerSession& lost = *open.lost;
  if (!current_ || current_ == open.lost) {
    return State::asked;
  }
  const bool sameKnown = !lost.runId.empty() && !current_->runId.empty();
  if (sameKnown && lost.runId != current_->runId) {
    lost.dead = true;
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

void ConnectionKiller::answered(const SessionPtr& lost, net::Request& kill) {
  Open* const open = find(lost);
  if (open == nullptr) {
    return;
  }
  open->asking = false;
  if (kill.delivery() != net::Request::Delivery::replied) {
    if (link_->up()) {
      ask(*open);
    }
    return;
  }
  if (!kill.reply().isError()) {
    // One was closed, or there was none: both mean that it is gone.
    if (kill.reply().isInteger()) {
      lost->dead = true;
      forget(lost);
      pause_ = kFirstPause;
    } else {
      refuse(*open, refusalOf(*lost, Errc::protocolError, "unexpected reply"), false);
    }
    changed_();
    return;
  }
  const std::string& text = kill.reply().text;
  const ErrorClass known = classifyError(text);
  const bool passing = known.action == ErrorAction::retry;
  refuse(*open, refusalOf(*lost, known.errc, text), passing);
  if (!passing) {
    denied_();
  }
  changed_();
}

void ConnectionKiller::refuse(Open& open, Error error, bool passing) {
  if (!open.refusal) {
    log_->write(LogLevel::warning, error.what());
  }
  open.refusal = std::move(error);
  open.refused = !passing;
  if (!again_->armed()) {
    again_->armAt(env_->now() + pause_);
    pause_ = std::min(2 * pause_, kLongestPause);
  }
}

void ConnectionKiller::askAgain() {
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

void ConnectionKiller::up(SessionPtr session) {
  current_ = std::move(session);
  pause_ = kFirstPause;
  std::vector<SessionPtr> all;
  for (Open& open : open_) {
    // What an earlier connection was told says nothing about this one.
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
