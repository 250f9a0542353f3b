// SPDX-License-Identifier: Apache-2.0
#include "simulation/sim_transport.hpp"

#include <rlock/detail/base/backoff.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
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
                                         Node& node,
                                         const Options& options,
                                         detail::net::LinkEvents& events,
                                         ClientObserver& observer)
    : env_(std::move(env)),
      node_(node),
      connectTimeout_(options.connectTimeout),
      heartbeatInterval_(options.heartbeatInterval),
      lastsAfter_(options.reconnectDelayMax),
      events_(events),
      observer_(observer),
      redial_(*env_, options, [this] { dial(); }),
      connectTimer_(env_->makeTimer([this] {
        dialling_.reset();
        redial_.start();
        tellDown(connectionError(node_, Errc::connectionFailed, "no connection in time"));
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
  dialling_ = std::make_shared<Dialling>();
  dialling_->done = [this](ConnectionPtr connection) { dialled(std::move(connection)); };
  connectTimer_->armAt(env_->now() + connectTimeout_);
  Connection::Ears ears;
  ears.reply = [this](detail::Reply reply) { heard(std::move(reply)); };
  ears.broken = [this] { fail(Errc::connectionFailed, "the server closed the connection"); };
  node_.dial(*env_, std::move(ears), dialling_);
}

void SimCommandTransport::dialled(ConnectionPtr connection) {
  // What called this is kept until it is over.
  const auto attempt = std::exchange(dialling_, nullptr);
  connectTimer_->disarm();
  if (!connection) {
    redial_.start();
    tellDown(connectionError(node_, Errc::connectionFailed, "connection refused"));
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
                      node_.index(),
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
  observer_.sent(*env_, node_, command);
  out_.push_back(std::move(command));
  pending_.append(request, 1, mode, env_->now());
  ++totals_.commands;
  if (!env_->onLoopThread()) {
    flush();
  } else if (!std::exchange(flushing_, true)) {
    env_->atPassEnd([self = shared_from_this()] {
      self->flushing_ = false;
      self->flush();
    });
  }
  watchStall();
  return true;
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
  const int blocked = node_.config().blockedPerMille;
  if (blocked > 0 && random.between(1, 1000) <= blocked) {
    blocked_ = true;
    node_.noteBlockedWrite();
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
                      node_.index(),
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
  const Error error = connectionError(node_, errc, what);
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
  struct Request {
    enum class Kind : std::uint8_t { subscribe, unsubscribe, ping };
    Kind kind;
    std::string channel;
  };

  Impl(std::shared_ptr<SimEnv> itsEnv,
       Node& itsNode,
       const Options& options,
       detail::net::PubSubEvents& itsEvents)
      : env(std::move(itsEnv)),
        node(itsNode),
        connectTimeout(options.connectTimeout),
        replyTimeout(options.commandTimeout),
        heartbeatInterval(options.heartbeatInterval),
        linger(options.subscriptionLinger),
        events(&itsEvents),
        redial(*env, options, [this] { dial(); }),
        connectTimer(env->makeTimer([this] {
          dialling.reset();
          missed("no connection in time");
        })),
        timer(env->makeTimer([this] { onTimer(); })) {}

  [[nodiscard]] std::size_t wanted() const noexcept {
    std::size_t count = 0;
    for (const auto& [name, channel] : channels) {
      count += channel.wanted ? 1 : 0;
    }
    return count;
  }

  void connect() {
    if (!closed && !connection && !dialling && !waiting && wanted() > 0) {
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
    lastProgress = env->now();
    timer->armAt(lastProgress + heartbeatInterval);
    flushSoon();
    events->onUp();
  }

  void lose(const std::string& what) {
    if (!connection) {
      return;
    }
    std::exchange(connection, nullptr)->close();
    env->world().trace("process ",
                       env->process().index(),
                       " loses its subscriptions at server ",
                       node.index(),
                       ": ",
                       what);
    timer->disarm();
    unanswered.clear();
    std::erase_if(channels, [](const auto& entry) { return !entry.second.wanted; });
    for (auto& [name, channel] : channels) {
      channel.state = State::none;
      channel.again = false;
    }
    env->post([self = shared_from_this(), what] {
      if (!self->closed) {
        self->missed(what);
      }
    });
  }

  void flushSoon() {
    if (std::exchange(flushing, true)) {
      return;
    }
    env->atPassEnd([self = shared_from_this()] {
      self->flushing = false;
      self->flush();
    });
  }

  void send(Request::Kind kind, const std::string& channel) {
    if (unanswered.empty()) {
      lastProgress = env->now();
      timer->armAt(lastProgress + replyTimeout);
    }
    unanswered.push_back({kind, channel});
    switch (kind) {
      case Request::Kind::subscribe:
        connection->send({"SUBSCRIBE", channel});
        return;
      case Request::Kind::unsubscribe:
        connection->send({"UNSUBSCRIBE", channel});
        return;
      case Request::Kind::ping:
        connection->send({"PING"});
        return;
    }
  }

  void flush() {
    if (!connection || closed) {
      return;
    }
    for (auto& [name, channel] : channels) {
      if (channel.state == State::subscribed && !channel.wanted) {
        channel.state = State::unsubscribing;
        send(Request::Kind::unsubscribe, name);
      } else if (channel.wanted && (channel.state == State::none ||
                                    (channel.state == State::subscribed && channel.again))) {
        channel.state = State::subscribing;
        channel.again = false;
        send(Request::Kind::subscribe, name);
      }
    }
    std::erase_if(channels, [](const auto& entry) {
      return !entry.second.wanted && entry.second.state == State::none;
    });
  }

  void heard(const detail::Reply& reply) {
    suspected = false;
    if (reply.isArray() && reply.elements.size() == 3 && reply.elements[0].is("message")) {
      const auto found = channels.find(reply.elements[1].text);
      if (found != channels.end() && found->second.wanted) {
        const std::string name = found->first;
        events->onMessage(name, reply.elements[2].text);
      }
      return;
    }
    if (unanswered.empty()) {
      lose("the server sent what is no reply");
      return;
    }
    const Request request = std::move(unanswered.front());
    unanswered.pop_front();
    lastProgress = env->now();
    timer->armAt(lastProgress + (unanswered.empty() ? heartbeatInterval : replyTimeout));
    redial.succeeded();
    const auto found = channels.find(request.channel);
    if (request.kind == Request::Kind::ping || found == channels.end()) {
      return;
    }
    Channel& channel = found->second;
    if (reply.isError()) {
      channel.state = request.kind == Request::Kind::subscribe ? State::none : State::subscribed;
      lose("the server refused a subscription: " + reply.text);
      return;
    }
    channel.state = request.kind == Request::Kind::subscribe ? State::subscribed : State::none;
    if (!channel.wanted || channel.again || channel.state == State::none) {
      flushSoon();
      return;
    }
    events->onSubscribed(request.channel);
  }

  void onTimer() {
    if (!connection) {
      return;
    }
    const auto now = env->now();
    if (!unanswered.empty()) {
      if (std::exchange(suspected, true)) {
        suspected = false;
        lose("no answer in time");
      } else {
        // This process may have been stopped, with the answer not read yet.
        timer->armAt(now + std::chrono::milliseconds(10));
      }
      return;
    }
    suspected = false;
    if (channels.empty() && now >= lastProgress + linger) {
      std::exchange(connection, nullptr)->close();
      return;
    }
    send(Request::Kind::ping, {});
  }

  const std::shared_ptr<SimEnv> env;
  Node& node;
  const std::chrono::milliseconds connectTimeout;
  const std::chrono::milliseconds replyTimeout;
  const std::chrono::milliseconds heartbeatInterval;
  const std::chrono::milliseconds linger;
  detail::net::PubSubEvents* events;
  Redial redial;
  const std::unique_ptr<detail::Timer> connectTimer;
  const std::unique_ptr<detail::Timer> timer;
  std::shared_ptr<Dialling> dialling;
  ConnectionPtr connection;
  std::map<std::string, Channel> channels;
  std::deque<Request> unanswered;
  TimePoint lastProgress{};
  bool waiting = false;
  bool flushing = false;
  bool suspected = false;
  bool closed = false;
};

SimSubscriptions::SimSubscriptions(std::shared_ptr<SimEnv> env,
                                   Node& node,
                                   const Options& options,
                                   detail::net::PubSubEvents& events)
    : impl_(std::make_shared<Impl>(std::move(env), node, options, events)) {}

SimSubscriptions::~SimSubscriptions() {
  close();
}

void SimSubscriptions::subscribe(std::string channel) {
  if (impl_->closed) {
    return;
  }
  Channel& wanted = impl_->channels[std::move(channel)];
  wanted.wanted = true;
  wanted.again = wanted.state == State::subscribing || wanted.state == State::subscribed;
  impl_->flushSoon();
  impl_->connect();
}

void SimSubscriptions::unsubscribe(const std::string& channel) {
  const auto found = impl_->channels.find(channel);
  if (found != impl_->channels.end()) {
    found->second.wanted = false;
    found->second.again = false;
    impl_->flushSoon();
  }
}

void SimSubscriptions::close() noexcept {
  if (std::exchange(impl_->closed, true)) {
    return;
  }
  impl_->redial.stop();
  impl_->connectTimer->disarm();
  impl_->timer->disarm();
  impl_->dialling.reset();
  impl_->channels.clear();
  if (impl_->connection) {
    std::exchange(impl_->connection, nullptr)->close();
  }
}

bool SimSubscriptions::healthy() const noexcept {
  if (impl_->closed || impl_->wanted() == 0) {
    return true;
  }
  if (!impl_->connection || !impl_->connection->healthy()) {
    return false;
  }
  for (const auto& [name, channel] : impl_->channels) {
    if (channel.wanted && channel.state != State::subscribed) {
      return false;
    }
  }
  return true;
}

std::size_t SimSubscriptions::channels() const noexcept {
  return impl_->wanted();
}

}  // namespace rlock::sim
