// SPDX-License-Identifier: Apache-2.0
#include "simulation/sim_network.hpp"

#include <algorithm>
#include <utility>

namespace rlock::sim {

namespace {

using detail::Reply;

/// The epoch in which the servers live, so that times on them are as long as in reality.
constexpr std::int64_t kEpochUs = 1'700'000'000'000'000;

Reply text(std::string_view bytes) {
  Reply reply;
  reply.type = Reply::Type::string;
  reply.text = bytes;
  return reply;
}

}  // namespace

// The client's end.

void Connection::send(Command command) {
  if (!clientOpen_ || upCut_) {
    return;
  }
  lastUp_ = std::max(lastUp_, node_.world().now() + node_.delay());
  up_.push_back({lastUp_, std::move(command)});
  scheduleUp();
  if (std::exchange(cutOnSend_, false)) {
    const Time soon = node_.world().random().between(Time(0), 3 * node_.config_.delayMax);
    node_.world().after(soon, [self = shared_from_this()] {
      if (self->healthy()) {
        self->node_.cut(*self);
      }
    });
  }
}

void Connection::close() {
  if (!std::exchange(clientOpen_, false)) {
    return;
  }
  down_.clear();
  Random& random = node_.world().random();
  endUp(random.below(up_.size() + 1), random.between(Time(0), node_.config_.lateMax));
}

// The streams.

void Connection::scheduleUp() {
  if (upScheduled_ || (up_.empty() && !upEnds_)) {
    return;
  }
  upScheduled_ = true;
  node_.world().at(up_.empty() ? lastUp_ : up_.front().at, [self = shared_from_this()] {
    self->upScheduled_ = false;
    self->arrive();
    self->scheduleUp();
  });
}

void Connection::arrive() {
  if (!serverOpen_) {
    up_.clear();
    upEnds_ = false;
    return;
  }
  const Time open = node_.passage(*this, true);
  if (open > node_.world().now()) {
    lastUp_ = std::max(lastUp_, open);
    if (!up_.empty()) {
      up_.front().at = open;
    }
    return;
  }
  if (up_.empty()) {
    upEnds_ = false;
    node_.drop(*this);
    return;
  }
  const Command command = std::move(up_.front().command);
  up_.pop_front();
  node_.counts_.arrivedLate += std::uint64_t{clientOpen_ ? 0U : 1U};
  node_.execute(*this, command);
}

void Connection::endUp(std::size_t arriving, Time extra) {
  up_.resize(std::min(arriving, up_.size()));
  for (Upward& message : up_) {
    message.at += extra;
  }
  lastUp_ = std::max(lastUp_ + extra, node_.world().now());
  upEnds_ = true;
  upCut_ = true;
  scheduleUp();
}

void Connection::answer(Reply reply) {
  if (!clientOpen_ || downCut_) {
    return;
  }
  lastDown_ = std::max(lastDown_, node_.world().now() + node_.delay());
  down_.push_back({lastDown_, std::move(reply)});
  scheduleDown();
}

void Connection::scheduleDown() {
  if (downScheduled_ || (down_.empty() && !downEnds_)) {
    return;
  }
  downScheduled_ = true;
  node_.world().at(down_.empty() ? lastDown_ : down_.front().at, [self = shared_from_this()] {
    self->downScheduled_ = false;
    self->hear();
    self->scheduleDown();
  });
}

void Connection::hear() {
  if (!clientOpen_) {
    down_.clear();
    downEnds_ = false;
    return;
  }
  const Time open = node_.passage(*this, false);
  if (open > node_.world().now()) {
    lastDown_ = std::max(lastDown_, open);
    if (!down_.empty()) {
      down_.front().at = open;
    }
    return;
  }
  const auto self = shared_from_this();
  if (down_.empty()) {
    downEnds_ = false;
    env_.process().enter(env_, [self] {
      if (self->clientOpen_) {
        self->ears_.broken();
      }
    });
    return;
  }
  Reply reply = std::move(down_.front().reply);
  down_.pop_front();
  env_.process().enter(env_, [self, reply = std::move(reply)]() mutable {
    if (self->clientOpen_) {
      self->ears_.reply(std::move(reply));
    }
  });
}

void Connection::endDown(std::size_t arriving, bool noticed, Time extra) {
  down_.resize(std::min(arriving, down_.size()));
  downCut_ = true;
  if (!noticed) {
    // The client has to find out by itself.
    return;
  }
  lastDown_ = std::max(lastDown_, node_.world().now() + extra);
  downEnds_ = true;
  scheduleDown();
}

/// The server has closed it, and the client hears of that some time.
void Connection::serverGone() {
  serverOpen_ = false;
  up_.clear();
  upEnds_ = false;
  upCut_ = true;
  if (clientOpen_) {
    endDown(down_.size(), true, node_.delay());
  }
}

// The server.

Node::Node(World& world,
           int index,
           const NetworkConfig& config,
           ServerObserver& observer,
           DriftingClock wall)
    : world_(world),
      index_(index),
      name_("server" + std::to_string(index) + ":6379"),
      config_(config),
      observer_(observer),
      wall_(wall),
      model_(
          [this] {
            return kEpochUs +
                   std::chrono::duration_cast<microseconds>(wall_.read(world_.now())).count();
          },
          RedisModelOptions{{}, static_cast<std::uint64_t>(index) + 1}) {
  model_.onMessage([this](RedisModel::ClientId subscriber,
                          std::string_view channel,
                          std::string_view payload) { published(subscriber, channel, payload); });
  model_.onKill([this](RedisModel::ClientId client) { kills_.push_back(client); });
  if (config_.killDenied) {
    model_.denyCommandToAll("client|kill");
  }
}

Time Node::delay() {
  Random& random = world_.random();
  if (config_.spikePercent > 0 && random.chance(config_.spikePercent)) {
    return random.between(config_.delayMin, config_.spikeMax);
  }
  return random.between(config_.delayMin, config_.delayMax);
}

Reply Node::look(std::initializer_list<std::string_view> argv) {
  if (watcher_ == 0 || !model_.connected(watcher_)) {
    watcher_ = model_.connect("10.9.9.9:9");
  }
  return model_.execute(watcher_, std::span(argv.begin(), argv.size()));
}

Time Node::expiryOf(std::string_view key) {
  const Reply left = look({"PTTL", key});
  if (left.integer < 0) {
    return Time::max();
  }
  const auto reading = std::chrono::floor<milliseconds>(wall_.read(world_.now()));
  return wall_.when(reading + milliseconds(left.integer));
}

Time Node::pathOpen(int process) const {
  const auto hole = holes_.find(process);
  return hole == holes_.end() ? Time(0) : hole->second;
}

Time Node::passage(const Connection& connection, bool intoServer) const {
  const Time path = pathOpen(connection.env_.process().index());
  return intoServer ? std::max(path, frozenUntil_) : path;
}

void Node::dial(SimEnv& env, Connection::Ears ears, const std::shared_ptr<Dialling>& attempt) {
  // The handshake takes a few round trips; what matters is when the server has the connection.
  const Time there = std::max(world_.now(), pathOpen(env.process().index())) + 3 * delay();
  world_.at(there, [this, &env, ears = std::move(ears), weak = std::weak_ptr(attempt)]() mutable {
    if (weak.expired() || env.process().dead()) {
      return;
    }
    ConnectionPtr made;
    if (downUntil_ <= world_.now()) {
      detail::net::ServerSession session;
      session.node = name_;
      session.address = name_;
      session.clientAddress =
          "10.0.0." + std::to_string(env.process().index() + 1) + ":" + std::to_string(++ports_);
      session.clientId = model_.connect(session.clientAddress);
      session.runId = std::string(model_.runId());
      session.canKill = !config_.killDenied || config_.killProbeLies;
      session.serverVersion = "7.0.0";
      session.role = "master";
      made = std::make_shared<Connection>(*this, env, std::move(ears), std::move(session));
      connections_.push_back(made);
    }
    const Time back =
        std::max({world_.now(), pathOpen(env.process().index()), frozenUntil_}) + delay();
    world_.at(back, [&env, made, weak] {
      env.process().enter(env, [made, weak] {
        const auto self = weak.lock();
        if (self) {
          self->done(made);
        } else if (made) {
          made->close();
        }
      });
    });
  });
}

void Node::join(ClusterPart& cluster) {
  cluster_ = &cluster;
  model_.onPublish([this](std::string_view channel, std::string_view payload) {
    cluster_->published(*this, channel, payload);
  });
  model_.onShardPublish([this](std::string_view channel, std::string_view payload) {
    return publishedInShard(channel, payload);
  });
}

std::int64_t Node::publishedInShard(std::string_view channel, std::string_view payload) {
  std::int64_t heard = 0;
  const std::string name(channel);
  for (const ConnectionPtr& connection : connections_) {
    if (!connection->serverOpen_ || !connection->shardChannels.contains(name)) {
      continue;
    }
    ++heard;
    if (losesMessage(channel)) {
      continue;
    }
    Reply message;
    message.type = Reply::Type::array;
    message.elements = {text("smessage"), text(channel), text(payload)};
    connection->answer(std::move(message));
  }
  return heard;
}

void Node::dropShardChannels(const std::function<bool(const std::string&)>& gone) {
  for (const ConnectionPtr& connection : connections_) {
    std::erase_if(connection->shardChannels, [&](const std::string& channel) {
      if (!gone(channel)) {
        return false;
      }
      Reply message;
      message.type = Reply::Type::array;
      Reply left;
      left.type = Reply::Type::integer;
      message.elements = {text("sunsubscribe"), text(channel), left};
      connection->answer(std::move(message));
      return true;
    });
  }
}

void Node::execute(Connection& connection, const Command& command) {
  for (const std::string& argument : command) {
    world_.note(argument);
  }
  std::vector<std::string_view> argv(command.begin(), command.end());
  const auto client = connection.session_.clientId;
  observer_.executing(*this, command);
  if (auto replies =
          cluster_ != nullptr ? cluster_->answer(*this, connection, command) : std::nullopt) {
    observer_.executed(*this, command, replies->front());
    for (Reply& reply : *replies) {
      connection.answer(std::move(reply));
    }
    return;
  }
  if (command.front() == "SUBSCRIBE" || command.front() == "UNSUBSCRIBE") {
    const auto channels = std::span(argv).subspan(1);
    auto replies = command.front() == "SUBSCRIBE" ? model_.subscribe(client, channels)
                                                  : model_.unsubscribe(client, channels);
    for (Reply& reply : replies) {
      connection.answer(std::move(reply));
    }
    return;
  }
  Reply reply = model_.execute(client, argv);
  if (command.front() == "EVALSHA" && reply.isError()) {
    world_.trace("server ", index_, " does not execute: ", reply.text);
  }
  for (const RedisModel::ClientId killed : std::exchange(kills_, {})) {
    const auto found =
        std::find_if(connections_.begin(), connections_.end(), [&](const ConnectionPtr& other) {
          return other->serverOpen_ && other->session_.clientId == killed;
        });
    if (found != connections_.end()) {
      const ConnectionPtr gone = *found;
      ++counts_.killed;
      counts_.killedWithRequests += std::uint64_t{gone->up_.empty() ? 0U : 1U};
      world_.trace("server ", index_, " closes connection ", killed, " because it was told to");
      gone->serverGone();
      connections_.erase(found);
    }
  }
  observer_.executed(*this, command, reply);
  connection.answer(std::move(reply));
}

bool Node::losesMessage(std::string_view channel) {
  if (config_.lostMessages == 0 || !world_.random().chance(config_.lostMessages)) {
    return false;
  }
  world_.trace("server ", index_, " publishes on ", channel, ", in vain");
  ++counts_.messagesLost;
  return true;
}

void Node::published(RedisModel::ClientId subscriber,
                     std::string_view channel,
                     std::string_view payload) {
  if (losesMessage(channel)) {
    return;
  }
  for (const ConnectionPtr& connection : connections_) {
    if (connection->serverOpen_ && connection->session_.clientId == subscriber) {
      Reply message;
      message.type = Reply::Type::array;
      message.elements = {text("message"), text(channel), text(payload)};
      connection->answer(std::move(message));
    }
  }
}

/// The server learns that the other end is gone.
void Node::drop(Connection& connection) {
  connection.serverOpen_ = false;
  model_.disconnect(connection.session_.clientId);
  std::erase_if(connections_,
                [&](const ConnectionPtr& other) { return other.get() == &connection; });
}

// The faults.

void Node::blackHole(int process, Time length) {
  Time& until = holes_[process];
  until = std::max(until, world_.now() + length);
}

void Node::freeze(Time length) {
  frozenUntil_ = std::max(frozenUntil_, world_.now() + length);
}

void Node::restart(bool keepData, Time down) {
  world_.trace("server ", index_, " restarts ", keepData ? "with" : "without", " its data");
  if (!keepData) {
    emptiedAt_ = world_.now();
  }
  // One that is down does not come back sooner: a master that died would serve beside its
  // successor.
  downUntil_ = std::max(downUntil_, world_.now() + down);
  model_.restart(keepData);
  if (config_.killDenied) {
    model_.denyCommandToAll("client|kill");
  }
  watcher_ = 0;
  for (const ConnectionPtr& connection : std::exchange(connections_, {})) {
    connection->serverGone();
  }
}

bool Node::cut(int process, bool commands) {
  std::vector<ConnectionPtr> found;
  for (const ConnectionPtr& connection : connections_) {
    // The first of a process is the one for commands.
    if (connection->env_.process().index() == process && connection->healthy()) {
      found.push_back(connection);
    }
  }
  if (found.empty()) {
    return false;
  }
  const ConnectionPtr& connection = commands ? found.front() : found.back();
  if (world_.random().chance(60)) {
    connection->cutOnSend_ = true;
  } else {
    cut(*connection);
  }
  // The only one is that for commands.
  return commands || found.size() > 1;
}

void Node::cut(Connection& connection) {
  lastCut_ = world_.now();
  Random& random = world_.random();
  const std::size_t arriving = random.below(connection.up_.size() + 1);
  const std::size_t heard = random.below(connection.down_.size() + 1);
  const bool noticed = !random.oneIn(4);
  ++counts_.cuts;
  observer_.connectionCut(*this, connection.env_.process().index());
  counts_.cutsUnnoticed += std::uint64_t{noticed ? 0U : 1U};
  world_.trace("connection ",
               connection.session_.clientId,
               " of process ",
               connection.env_.process().index(),
               " to server ",
               index_,
               " is cut; ",
               arriving,
               " requests and ",
               heard,
               " replies arrive",
               noticed ? "" : ", and its client does not notice");
  connection.endUp(arriving, random.between(Time(0), config_.lateMax));
  connection.endDown(heard, noticed, random.someMs(0, 5));
}

void Node::processDied(int process) {
  for (const ConnectionPtr& connection : std::vector(connections_)) {
    if (connection->env_.process().index() == process && connection->clientOpen_) {
      connection->clientOpen_ = false;
      connection->down_.clear();
      Random& random = world_.random();
      connection->endUp(random.below(connection->up_.size() + 1),
                        random.between(Time(0), config_.lateMax));
    }
  }
}

bool Node::reachable(int process) const {
  return std::max({frozenUntil_, downUntil_, pathOpen(process)}) <= world_.now();
}

bool Node::calm() const {
  const Time now = world_.now();
  return frozenUntil_ <= now && downUntil_ <= now &&
         std::all_of(
             holes_.begin(), holes_.end(), [now](const auto& hole) { return hole.second <= now; });
}

bool Node::anyHalfOpen() const {
  return std::any_of(connections_.begin(), connections_.end(), [](const ConnectionPtr& each) {
    return !each->clientOpen_;
  });
}

}  // namespace rlock::sim
