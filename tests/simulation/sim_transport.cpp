// SPDX-License-Identifier: Apache-2.0
#include "simulation/sim_transport.hpp"

#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/net/subscription_book.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <utility>

namespace rlock::sim {

using detail::net::PendingRequests;

namespace {

Error connectionError(const Node& node, Errc errc, const std::string& what) {
  ErrorContext context;
  context.node = node.name();
  return Error(errc, what, std::move(context));
}

}  // namespace

// When to dial.

Redial::Redial(SimEnv& env, const Options& options, World::Action dial)
    : env_(env),
      min_(options.reconnectDelayMin),
      max_(options.reconnectDelayMax),
      dial_(std::move(dial)),
      timer_(env.makeTimer([this] { dial_(); })) {}

void Redial::start() {
  const auto random = static_cast<std::uint32_t>(env_.world().random().next());
  const auto pause = failures_ == 0 ? std::chrono::nanoseconds(0)
                                    : detail::backoffPause(min_, max_, failures_ - 1, random);
  failures_ = std::min(failures_ + 1, 30);
  timer_->armAt(env_.now() + pause);
}

// Commands.

/// A heartbeat: its reply only has to come.
class SimCommandTransport::Ping final : public detail::net::LoneRequest {
 public:
  Ping() noexcept : LoneRequest(Purpose::upkeep) {}

 private:
  void completed() noexcept override {}
};

SimCommandTransport::SimCommandTransport(std::shared_ptr<SimEnv> env,
                                         std::function<Node&()> where,
                                         const Options& options,
                                         detail::net::LinkEvents& events,
                                         ClientObserver& observer)
    : env_(std::move(env)),
      where_(std::move(where)),
      node_(&where_()),
      connectTimeout_(options.connectTimeout),
      heartbeatInterval_(options.heartbeatInterval),
      lastsAfter_(options.reconnectDelayMax),
      events_(events),
      observer_(observer),
      redial_(*env_, options, [this] { dial(); }),
      connectTimer_(env_->makeTimer([this] {
        dialling_.reset();
        redial_.start();
        tellDown(connectionError(*node_, Errc::connectionFailed, "no connection in time"));
      })),
      heartbeat_(env_->makeTimer([this] { heartbeat(); })),
      stall_(env_->makeTimer([this] { checkStall(); })),
      roomTimer_(env_->makeTimer([this] {
        blocked_ = false;
        flush();
      })),
      pending_(options.commandTimeout) {}

SimCommandTransport::~SimCommandTransport() {
  if (connection_) {
    connection_->close();
  }
}

void SimCommandTransport::open() {
  redial_.start();
}

void SimCommandTransport::dial() {
  node_ = &where_();
  dialling_ = std::make_shared<Dialling>();
  dialling_->done = [this](ConnectionPtr connection) { dialled(std::move(connection)); };
  connectTimer_->armAt(env_->now() + connectTimeout_);
  Connection::Ears ears;
  ears.reply = [this](detail::Reply reply) { heard(std::move(reply)); };
  ears.broken = [this] { fail(Errc::connectionFailed, "the server closed the connection"); };
  node_->dial(*env_, std::move(ears), dialling_);
}

void SimCommandTransport::dialled(ConnectionPtr connection) {
  // The attempt that called this is kept until the call is over.
  const auto attempt = std::exchange(dialling_, nullptr);
  connectTimer_->disarm();
  if (!connection) {
    redial_.start();
    tellDown(connectionError(*node_, Errc::connectionFailed, "connection refused"));
    return;
  }
  connection_ = std::move(connection);
  session_ = std::make_shared<const detail::net::ServerSession>(connection_->session());
  upSince_ = env_->now();
  pending_.begin(session_->canBeKilled(), upSince_);
  answeredAtHeartbeat_ = 0;
  ++totals_.connections;
  env_->world().trace("process ",
                      env_->process().index(),
                      " is connected to server ",
                      node_->index(),
                      " as ",
                      session_->clientId);
  heartbeat_->armAt(upSince_ + heartbeatInterval_);
  events_.onUp(session_);
}

void SimCommandTransport::tellDown(Error error) {
  events_.onDown(error);
}

void SimCommandTransport::close() noexcept {
  redial_.stop();
  connectTimer_->disarm();
  heartbeat_->disarm();
  stall_->disarm();
  dialling_.reset();
  closed_ = true;
  fail(Errc::closed, "the client was closed");
}

bool SimCommandTransport::submit(detail::net::Request& request,
                                 std::span<const std::string_view> argv,
                                 Mode mode) {
  if (mode != Mode::background) {
    std::fprintf(stderr, "the simulation has one thread, which cannot await a reply\n");
    std::abort();
  }
  if (!connection_ || !pending_.accepts(request)) {
    return false;
  }
  Command command(argv.begin(), argv.end());
  observer_.sent(*env_, *node_, command);
  out_.push_back(std::move(command));
  pending_.append(request, 1, mode, env_->now());
  ++totals_.commands;
  flushSoon();
  return true;
}

bool SimCommandTransport::submitGroup(std::span<const Part> group) {
  const auto accepted = [this](const Part& part) { return pending_.accepts(part.request); };
  if (!connection_ || !std::all_of(group.begin(), group.end(), accepted)) {
    return false;
  }
  for (const Part& part : group) {
    submit(part.request, part.argv, Mode::background);
  }
  return true;
}

void SimCommandTransport::flushSoon() {
  if (!env_->onLoopThread()) {
    flush();
  } else if (!std::exchange(flushing_, true)) {
    env_->atPassEnd([self = shared_from_this()] {
      self->flushing_ = false;
      self->flush();
    });
  }
  watchStall();
}

SimCommandTransport::Awaited SimCommandTransport::await(detail::net::Request& /*request*/,
                                                        Clock::time_point /*deadline*/) {
  std::fprintf(stderr, "the simulation has one thread, which cannot await a reply\n");
  std::abort();
}

void SimCommandTransport::flush() {
  if (!connection_ || blocked_ || out_.empty()) {
    return;
  }
  Random& random = env_->world().random();
  const int blocked = node_->config().blockedPerMille;
  if (blocked > 0 && random.between(1, 1000) <= blocked) {
    blocked_ = true;
    node_->noteBlockedWrite();
    roomTimer_->armAt(env_->now() + random.someMs(0, 20));
    return;
  }
  for (Command& command : std::exchange(out_, {})) {
    pending_.offer(1);
    connection_->send(std::move(command));
  }
}

void SimCommandTransport::heard(detail::Reply reply) {
  PendingRequests::Ended ended;
  if (!pending_.take(std::move(reply), env_->now(), ended)) {
    fail(Errc::protocolError, "the server sent what is no reply to a request");
    return;
  }
  completed_.append(ended.background);
  const auto self = shared_from_this();
  runCompleted();
}

void SimCommandTransport::runCompleted() {
  while (const auto request = completed_.pop()) {
    PendingRequests::complete(*request);
  }
}

void SimCommandTransport::abandon(Clock::time_point since, Errc errc, const char* what) noexcept {
  if (connection_ && since >= upSince_) {
    fail(errc, what);
  }
}

void SimCommandTransport::fail(Errc errc, const std::string& what) {
  if (!connection_) {
    return;
  }
  const ConnectionPtr gone = std::exchange(connection_, nullptr);
  env_->world().trace("process ",
                      env_->process().index(),
                      " gives up connection ",
                      session_->clientId,
                      " to server ",
                      node_->index(),
                      ": ",
                      what);
  gone->close();
  heartbeat_->disarm();
  stall_->disarm();
  roomTimer_->disarm();
  blocked_ = false;
  out_.clear();
  PendingRequests::Ended ended;
  pending_.fail(session_, ended);
  completed_.append(ended.background);
  const Error error = connectionError(*node_, errc, what);
  env_->post([self = shared_from_this(), error] {
    if (!self->closed_) {
      if (self->pending_.useful() || self->env_->now() - self->upSince_ > self->lastsAfter_) {
        self->redial_.succeeded();
      }
      self->redial_.start();
      self->tellDown(error);
    }
    self->runCompleted();
  });
}

void SimCommandTransport::heartbeat() {
  if (!connection_) {
    return;
  }
  heartbeat_->armAt(env_->now() + heartbeatInterval_);
  if (pending_.answered() == std::exchange(answeredAtHeartbeat_, pending_.answered())) {
    constexpr std::array<std::string_view, 1> kPing{"PING"};
    const auto ping = detail::makeIntrusive<Ping>();
    submit(*ping, kPing, Mode::background);
  }
}

void SimCommandTransport::watchStall() {
  if (connection_ && !pending_.empty() && !stall_->armed()) {
    stall_->armAt(pending_.stallDue());
  }
}

void SimCommandTransport::checkStall() {
  if (!connection_ || pending_.empty()) {
    return;
  }
  const auto next = pending_.judgeStall(env_->now());
  if (next == Clock::time_point::max()) {
    fail(Errc::timedOut, "no reply in time");
  } else {
    stall_->armAt(next);
  }
}

// Subscriptions.

struct SimSubscriptions::Impl : std::enable_shared_from_this<Impl> {
  using Kind = detail::net::SubscriptionBook::Meaning::Kind;

  Impl(std::shared_ptr<SimEnv> itsEnv,
       Node& itsNode,
       const Options& options,
       detail::net::PubSubEvents& itsEvents,
       detail::net::ChannelKind kind)
      : env(std::move(itsEnv)),
        node(itsNode),
        connectTimeout(options.connectTimeout),
        events(&itsEvents),
        book({.replyTimeout = options.commandTimeout,
              .heartbeatInterval = options.heartbeatInterval,
              .idleLinger = options.subscriptionLinger,
              .retryDelayMin = options.reconnectDelayMin,
              .retryDelayMax = options.reconnectDelayMax},
             kind),
        redial(*env, options, [this] { dial(); }),
        connectTimer(env->makeTimer([this] {
          dialling.reset();
          missed("no connection in time");
        })),
        timer(env->makeTimer([this] { onTimer(); })) {}

  void connect() {
    if (!closed && !connection && !dialling && !waiting && book.wanted() > 0) {
      waiting = true;
      redial.start();
    }
  }

  void dial() {
    waiting = false;
    dialling = std::make_shared<Dialling>();
    dialling->done = [this](ConnectionPtr made) { dialled(std::move(made)); };
    connectTimer->armAt(env->now() + connectTimeout);
    Connection::Ears ears;
    ears.reply = [weak = weak_from_this()](const detail::Reply& reply) {
      if (const auto self = weak.lock()) {
        self->heard(reply);
      }
    };
    ears.broken = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->lose("the server closed the connection");
      }
    };
    node.dial(*env, std::move(ears), dialling);
  }

  void missed(const std::string& what) {
    const Error error = connectionError(node, Errc::connectionFailed, what);
    connect();
    events->onDown(error);
  }

  void dialled(ConnectionPtr made) {
    const auto attempt = std::exchange(dialling, nullptr);
    connectTimer->disarm();
    if (!made) {
      missed("connection refused");
      return;
    }
    connection = std::move(made);
    book.begin(env->now());
    flushSoon();
    armTimer();
    events->onUp();
  }

  void lose(const std::string& what) {
    if (!connection) {
      return;
    }
    env->world().trace("process ",
                       env->process().index(),
                       " loses its subscriptions at server ",
                       node.index(),
                       ": ",
                       what);
    drop();
    env->post([self = shared_from_this(), what] {
      if (!self->closed) {
        self->missed(what);
      }
    });
  }

  void drop() {
    if (connection) {
      std::exchange(connection, nullptr)->close();
    }
    timer->disarm();
    book.end();
    confirmed.clear();
    suspected = false;
  }

  void flushSoon() {
    if (!book.due() || std::exchange(flushing, true)) {
      return;
    }
    env->atPassEnd([self = shared_from_this()] {
      self->flushing = false;
      self->book.sendDue(self->env->now(),
                         [&](const std::vector<std::string_view>& words) { self->send(words); });
      self->armTimer();
    });
  }

  void send(const std::vector<std::string_view>& words) {
    connection->send(Command(words.begin(), words.end()));
  }

  void heard(const detail::Reply& reply) {
    suspected = false;
    const auto meaning = book.take(reply, env->now());
    if (meaning.answered) {
      redial.succeeded();
    }
    flushSoon();
    armTimer();
    // The event may give the channel up, and the name with it.
    const std::string name = meaning.channel == nullptr ? std::string() : *meaning.channel;
    switch (meaning.kind) {
      case Kind::nothing:
        return;
      case Kind::message:
        events->onMessage(name, reply.elements[2].text);
        return;
      case Kind::subscribed:
        confirmed.insert(name);
        events->onSubscribed(name);
        return;
      case Kind::moved:
        confirmed.erase(name);
        events->onMoved(name);
        return;
      case Kind::refused:
        confirmed.erase(name);
        events->onRefused(name, connectionError(node, meaning.errc, reply.text));
        return;
      case Kind::broken:
        lose("the server said " + reply.text);
        return;
    }
  }

  void armTimer() {
    if (connection && (!timer->armed() || book.nextDue() < timerDue)) {
      timerDue = book.nextDue();
      timer->armAt(timerDue);
    }
  }

  void onTimer() {
    if (!connection) {
      return;
    }
    const auto now = env->now();
    if (book.silent(now)) {
      if (std::exchange(suspected, true)) {
        lose("no answer in time");
      } else {
        // This process may have been stopped, with the answer not read yet.
        timerDue = now + std::chrono::milliseconds(10);
        timer->armAt(timerDue);
      }
      return;
    }
    suspected = false;
    book.retry(now);
    flushSoon();
    if (book.idle(now)) {
      drop();
      return;
    }
    if (book.pingDue(now)) {
      book.sendPing(now, [this](const std::vector<std::string_view>& words) { send(words); });
    }
    armTimer();
  }

  [[nodiscard]] bool healthy() const noexcept {
    return closed || book.wanted() == 0 ||
           (connection && connection->healthy() && confirmed.size() == book.wanted());
  }

  const std::shared_ptr<SimEnv> env;
  Node& node;
  const std::chrono::milliseconds connectTimeout;
  detail::net::PubSubEvents* events;
  detail::net::SubscriptionBook book;
  Redial redial;
  const std::unique_ptr<detail::Timer> connectTimer;
  const std::unique_ptr<detail::Timer> timer;
  TimePoint timerDue{};
  std::shared_ptr<Dialling> dialling;
  ConnectionPtr connection;
  std::set<std::string> confirmed;  ///< of those that are wanted
  bool waiting = false;
  bool flushing = false;
  bool suspected = false;
  bool closed = false;
};

SimSubscriptions::SimSubscriptions(std::shared_ptr<SimEnv> env,
                                   Node& node,
                                   const Options& options,
                                   detail::net::PubSubEvents& events,
                                   detail::net::ChannelKind kind)
    : impl_(std::make_shared<Impl>(std::move(env), node, options, events, kind)) {}

SimSubscriptions::~SimSubscriptions() {
  close();
}

void SimSubscriptions::subscribe(std::string channel) {
  if (impl_->closed) {
    return;
  }
  impl_->confirmed.erase(channel);
  impl_->book.subscribe(std::move(channel));
  impl_->flushSoon();
  impl_->connect();
}

void SimSubscriptions::unsubscribe(const std::string& channel) {
  impl_->confirmed.erase(channel);
  impl_->book.unsubscribe(channel, impl_->env->now());
  impl_->flushSoon();
}

void SimSubscriptions::close() noexcept {
  if (std::exchange(impl_->closed, true)) {
    return;
  }
  impl_->redial.stop();
  impl_->connectTimer->disarm();
  impl_->dialling.reset();
  impl_->drop();
  impl_->book.clear();
}

std::function<bool()> SimSubscriptions::health() const {
  return [weak = std::weak_ptr(impl_)] {
    const auto impl = weak.lock();
    return !impl || impl->healthy();
  };
}

bool SimSubscriptions::healthy() const noexcept {
  return impl_->healthy();
}

}  // namespace rlock::sim
