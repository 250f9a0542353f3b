// SPDX-License-Identifier: Apache-2.0
#include "testing/memory_server.hpp"

#include "testing/redis_commands.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace rlock::sim {

using detail::Reply;

namespace {

std::int64_t microsecondsSinceEpoch() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The server's wall clock: what the test's time adds to the moment at which it began.
RedisModel::WallClock wallClock(const std::shared_ptr<Timekeeper>& time) {
  const auto begun = std::chrono::microseconds(microsecondsSinceEpoch()) -
                     std::chrono::duration_cast<std::chrono::microseconds>(time->elapsed());
  return [time, begun] {
    return (begun + std::chrono::duration_cast<std::chrono::microseconds>(time->elapsed())).count();
  };
}

bool isScript(MemoryServer::Argv argv) {
  return !argv.empty() && lowerCase(argv[0]).starts_with("eval");
}

}  // namespace

MemoryServer::MemoryServer(std::shared_ptr<Timekeeper> time, std::string name)
    : time_(std::move(time)),
      name_(std::move(name)),
      model_(wallClock(time_), RedisModelOptions{{}, std::hash<std::string>()(name_), true}) {
  using ClientId = RedisModel::ClientId;
  model_.onMessage([this](ClientId subscriber, std::string_view channel, std::string_view payload) {
    noteMessage(subscriber, channel, payload);
  });
  model_.onKill([this](ClientId client) { noteKill(client); });
}

void MemoryServer::noteMessage(RedisModel::ClientId subscriber,
                               std::string_view channel,
                               std::string_view payload) {
  const auto found = find(subscriber);
  if (found == connections_.end() || happens(Fault::messageLost)) {
    return;
  }
  if (auto peer = found->second.peer.lock()) {
    news_.messages.push_back({std::move(peer), std::string(channel), std::string(payload)});
  }
}

void MemoryServer::noteKill(RedisModel::ClientId client) {
  if (const auto found = find(client); found != connections_.end()) {
    news_.broken.insert(connections_.extract(found));
  }
}

MemoryServer::Connections::iterator MemoryServer::find(RedisModel::ClientId client) noexcept {
  return std::find_if(connections_.begin(), connections_.end(), [client](const auto& each) {
    return each.second.client == client;
  });
}

std::optional<MemoryServer::Accepted> MemoryServer::connect(std::weak_ptr<MemoryPeer> peer,
                                                            int database) {
  const detail::MutexLock lock(mutex_);
  if (time_->now() < downUntil_) {
    return std::nullopt;
  }
  Accepted made{++lastNumber_, {}};
  made.session.node = name_;
  made.session.address = name_;
  made.session.clientAddress = "127.0.0.1:" + std::to_string(1024 + made.number % 60000);
  made.session.clientId = model_.connect(made.session.clientAddress);
  made.session.runId = std::string(model_.runId());
  made.session.canKill = true;
  made.session.serverVersion = "7.0.15";
  made.session.role = model_.readOnly() ? "replica" : "master";
  made.session.found = {.server = "redis",
                        .mode = "standalone",
                        .scripts = true,
                        .scriptLoad = true,
                        .info = true,
                        .clientKill = true,
                        .shardedPubSub = true};
  if (database != 0) {
    const std::string number = std::to_string(database);
    model_.execute(made.session.clientId, std::array<std::string_view, 2>{"SELECT", number});
  }
  connections_[made.number] = {std::move(peer), made.session.clientId};
  return made;
}

/// Its other end is not told: it finds out by itself, or knows.
void MemoryServer::forget(Connections::iterator connection) {
  if (connection != connections_.end()) {
    model_.disconnect(connection->second.client);
    connections_.erase(connection);
  }
}

void MemoryServer::disconnect(Number connection) noexcept {
  const detail::MutexLock lock(mutex_);
  forget(connections_.find(connection));
}

MemoryServer::Fate MemoryServer::execute(Number connection, Argv argv, Reply& reply) {
  News news;
  auto fate = Fate::answered;
  {
    const detail::MutexLock lock(mutex_);
    const auto found = connections_.find(connection);
    if (found == connections_.end()) {
      return Fate::lost;
    }
    if (isScript(argv) && happens(Fault::requestLost)) {
      forget(found);
      return Fate::lost;
    }
    reply = model_.execute(found->second.client, argv);
    // A server that only asks for the text has executed nothing: the fault is for the script.
    if (isScript(argv) && !reply.text.starts_with("NOSCRIPT") && happens(Fault::replyLost)) {
      forget(connections_.find(connection));
      fate = Fate::lost;
    }
    news = std::exchange(news_, {});
  }
  tell(news);
  return fate;
}

void MemoryServer::tell(const News& news) {
  for (const Message& message : news.messages) {
    message.to->heard(message.channel, message.payload);
  }
  for (const auto& [number, connection] : news.broken) {
    if (const auto peer = connection.peer.lock()) {
      peer->broken(number);
    }
  }
  for (const auto& [number, connection] : news.thawed) {
    if (const auto peer = connection.peer.lock()) {
      peer->thawed();
    }
  }
}

MemoryServer::TimePoint MemoryServer::frozenUntil() const {
  const detail::MutexLock lock(mutex_);
  return frozenUntil_;
}

// A look from outside.

bool MemoryServer::lose(std::initializer_list<std::string_view> keys) {
  const detail::MutexLock lock(mutex_);
  bool lost = false;
  for (const std::string_view key : keys) {
    lost = model_.eraseEverywhere(key) || lost;
  }
  return lost;
}

std::string MemoryServer::dump() const {
  const detail::MutexLock lock(mutex_);
  std::string text = model_.dump();
  for (std::size_t database = 1; database < RedisModel::kDatabases; ++database) {
    if (const std::string keys = model_.dump(database); !keys.empty()) {
      text += "database " + std::to_string(database) + ":\n" + keys;
    }
  }
  return text;
}

std::uint64_t MemoryServer::commandCount() const {
  const detail::MutexLock lock(mutex_);
  return model_.commandCount();
}

std::size_t MemoryServer::connectionCount() const {
  const detail::MutexLock lock(mutex_);
  return connections_.size();
}

// Faults to order.

void MemoryServer::order(Fault fault, int times) {
  const detail::MutexLock lock(mutex_);
  faults_[fault] = times;
}

bool MemoryServer::happens(Fault fault) noexcept {
  const auto found = faults_.find(fault);
  if (found == faults_.end() || found->second <= 0) {
    return false;
  }
  --found->second;
  return true;
}

void MemoryServer::down(TimePoint until) {
  News news;
  {
    const detail::MutexLock lock(mutex_);
    downUntil_ = until;
    if (until <= time_->now()) {
      return;
    }
    news.broken = std::exchange(connections_, {});
    for (const auto& [number, connection] : news.broken) {
      model_.disconnect(connection.client);
    }
  }
  tell(news);
}

void MemoryServer::freeze(TimePoint until) {
  News news;
  {
    const detail::MutexLock lock(mutex_);
    if (until < std::exchange(frozenUntil_, until)) {
      news.thawed = connections_;
    }
  }
  tell(news);
}

void MemoryServer::restart(bool keepData) {
  News news;
  {
    const detail::MutexLock lock(mutex_);
    news.broken = std::exchange(connections_, {});
    frozenUntil_ = TimePoint::min();
    model_.restart(keepData);
  }
  tell(news);
}

void MemoryServer::setOutOfMemory(bool outOfMemory) {
  const detail::MutexLock lock(mutex_);
  model_.setOutOfMemory(outOfMemory);
}

void MemoryServer::setReadOnly(bool readOnly) {
  const detail::MutexLock lock(mutex_);
  model_.setReadOnly(readOnly);
}

}  // namespace rlock::sim
