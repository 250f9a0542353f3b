// SPDX-License-Identifier: Apache-2.0
#include "testing/memory_transport.hpp"

#include <rlock/detail/base/backoff.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <thread>
#include <utility>

namespace rlock::sim {

using detail::net::PendingRequests;
using detail::net::RequestWord;

// When to dial.

MemoryRedial::MemoryRedial(detail::Env& env,
                           const Options& options,
                           detail::UniqueFunction<void()> dial)
    : env_(env),
      min_(options.reconnectDelayMin),
      max_(options.reconnectDelayMax),
      timer_(env.makeTimer(std::move(dial))) {}

void MemoryRedial::start(std::chrono::steady_clock::time_point latest) {
  // Without a random part, so that a test finds the same times whenever it runs.
  const auto pause = failures_ == 0 ? std::chrono::nanoseconds(0)
                                    : detail::exponentialPause(min_, max_, failures_ - 1);
  failures_ = std::min(failures_ + 1, 30);
  timer_->armAt(std::min(env_.now() + pause, latest));
}

// The connection.

MemoryTransport::MemoryTransport(std::shared_ptr<detail::Env> env,
                                 std::shared_ptr<MemoryServer> server,
                                 const Options& options,
                                 detail::net::LinkEvents& events)
    : env_(std::move(env)),
      server_(std::move(server)),
      database_(options.database),
      lastsAfter_(options.reconnectDelayMax),
      events_(events),
      redial_(*env_, options, [this] { dial(); }),
      look_(env_->makeTimer([this] { look(); })),
      pending_(options.commandTimeout) {}

MemoryTransport::~MemoryTransport() {
  if (up_) {
    server_->disconnect(connection_);
  }
}

Error MemoryTransport::problem(Errc errc, const char* what) const {
  ErrorContext context;
  context.node = server_->name();
  return Error(errc, what, std::move(context));
}

void MemoryTransport::dial() {
  if (closed_ || up_) {
    return;
  }
  if (const auto until = server_->frozenUntil(); until > env_->now()) {
    redial_.start(until);
    return;
  }
  auto made = server_->connect(weak_from_this(), database_);
  if (!made) {
    redial_.start();
    events_.onDown(problem(Errc::connectionFailed, "connection refused"));
    return;
  }
  const auto session = std::make_shared<const detail::net::ServerSession>(std::move(made->session));
  {
    const detail::MutexLock lock(mutex_);
    session_ = session;
    connection_ = made->number;
    upSince_ = env_->now();
    pending_.begin(session->canBeKilled(), upSince_);
    ++connections_;
    up_ = true;
  }
  events_.onUp(session);
}

void MemoryTransport::close() noexcept {
  Ended ended;
  {
    const detail::MutexLock lock(mutex_);
    closed_ = true;
    waiting_.clear();
    if (up_.exchange(false)) {
      server_->disconnect(connection_);
    }
    pending_.fail(session_, ended);
  }
  redial_.stop();
  look_->disarm();
  tell(ended);
}

/// On the loop: the server may have closed it while another connection's mutex is held.
void MemoryTransport::broken(Number connection) {
  env_->post([self = shared_from_this(), connection] {
    Ended ended;
    {
      const detail::MutexLock lock(self->mutex_);
      if (!self->up_ || self->connection_ != connection) {
        return;
      }
      self->breakLocked(self->problem(Errc::connectionFailed, "the server closed the connection"),
                        ended);
    }
    self->tell(ended);
  });
}

void MemoryTransport::thawed() {
  env_->post([self = shared_from_this()] { self->look(); });
}

void MemoryTransport::abandon(Clock::time_point since, Errc errc, const char* what) noexcept {
  Ended ended;
  {
    const detail::MutexLock lock(mutex_);
    if (!up_ || since < upSince_) {
      return;
    }
    breakLocked(problem(errc, what), ended);
  }
  tell(ended);
}

void MemoryTransport::distrust() noexcept {
  const detail::MutexLock lock(mutex_);
  pending_.distrust();
}

/// Requests that wait for a frozen server go with the connection.
void MemoryTransport::breakLocked(Error why, Ended& ended) {
  up_ = false;
  server_->disconnect(connection_);
  waiting_.clear();
  const bool useful = pending_.useful() || env_->now() - upSince_ > lastsAfter_;
  pending_.fail(session_, ended);
  env_->post([self = shared_from_this(), why = std::move(why), useful] {
    if (useful) {
      self->redial_.succeeded();
    }
    self->again(why);
  });
}

void MemoryTransport::again(const Error& error) {
  if (closed_) {
    return;
  }
  redial_.start();
  events_.onDown(error);
}

// Requests.

bool MemoryTransport::submit(detail::net::Request& request,
                             std::span<const std::string_view> argv,
                             Mode mode) {
  if (mode != Mode::background) {
    server_->time().noteCaller();
  }
  Ended ended;
  bool frozenNow = false;
  {
    const detail::MutexLock lock(mutex_);
    if (!up_ || !pending_.accepts(request)) {
      return false;
    }
    frozenNow = frozen();
    if (frozenNow) {
      waiting_.emplace_back(argv.begin(), argv.end());
    }
    ++commands_;
    pending_.append(request, 1, mode, env_->now());
    pending_.offer(1);
    if (!frozenNow) {
      executeWaitingLocked(ended);
      executeLocked(argv, ended);
    }
  }
  if (frozenNow) {
    env_->post([self = shared_from_this()] { self->watch(); });
  }
  tell(ended);
  return true;
}

void MemoryTransport::executeLocked(std::span<const std::string_view> argv, Ended& ended) {
  if (!up_) {
    return;
  }
  detail::Reply reply;
  if (server_->execute(connection_, argv, reply) == MemoryServer::Fate::answered) {
    pending_.take(std::move(reply), env_->now(), ended);
  } else {
    breakLocked(problem(Errc::connectionFailed, "the server closed the connection"), ended);
  }
}

void MemoryTransport::executeWaitingLocked(Ended& ended) {
  while (!waiting_.empty()) {
    const Command command = std::move(waiting_.front());
    waiting_.pop_front();
    const std::vector<std::string_view> argv(command.begin(), command.end());
    executeLocked(argv, ended);
  }
}

/// Looks again when the server answers, or has been silent for too long.
void MemoryTransport::watch() {
  const detail::MutexLock lock(mutex_);
  if (up_ && !pending_.empty()) {
    look_->armAt(std::min(server_->frozenUntil(), pending_.stallDue()));
  }
}

void MemoryTransport::look() {
  Ended ended;
  {
    const detail::MutexLock lock(mutex_);
    if (!up_ || pending_.empty()) {
      return;
    }
    if (!frozen()) {
      executeWaitingLocked(ended);
    } else if (const auto next = pending_.judgeStall(env_->now());
               next == Clock::time_point::max()) {
      breakLocked(problem(Errc::timedOut, "no reply in time"), ended);
    } else {
      look_->armAt(std::min(server_->frozenUntil(), next));
    }
  }
  tell(ended);
}

MemoryTransport::Awaited MemoryTransport::await(detail::net::Request& request,
                                                Clock::time_point deadline) {
  using Next = RequestWord::Next;
  for (;;) {
    std::uint32_t word = 0;
    const Next next = RequestWord::next(request, word);
    if (next == Next::done) {
      return Awaited::complete;
    }
    const bool interrupted = next == Next::interrupt;
    if (interrupted || env_->now() >= deadline) {
      const detail::MutexLock lock(mutex_);
      if (pending_.leave(request)) {
        return interrupted ? Awaited::interrupted : Awaited::timedOut;
      }
      // It has ended, and is just being told so.
      std::this_thread::yield();
      continue;
    }
    env_->sleep(RequestWord::word(request), word, deadline);
  }
}

void MemoryTransport::tell(Ended& ended) noexcept {
  while (const auto request = ended.awaited.pop()) {
    if (RequestWord::finish(*request)) {
      env_->wakeOne(&RequestWord::word(*request));
    }
  }
  while (auto request = ended.background.pop()) {
    if (closed_) {
      PendingRequests::complete(*request);
    } else {
      env_->post([request] { PendingRequests::complete(*request); });
    }
  }
}

}  // namespace rlock::sim
