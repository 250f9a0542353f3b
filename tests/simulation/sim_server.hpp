// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_core.hpp"
#include <rlock/detail/base/intrusive_ptr.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace rlock::sim {

/// One owner of one client; what a field of a lock's hash names.
struct Who {
  int client = -1;
  std::uint64_t owner = 0;

  friend bool operator==(const Who&, const Who&) = default;
};

/// Why a hold is no longer on the server.
enum class Cause : std::uint8_t { none, released, settled, expired, forced, dataLoss };

struct Request {
  enum class Kind : std::uint8_t {
    hello,
    acquire,
    release,
    renew,
    settle,
    kill,
    subscribe,
    unsubscribe
  };
  struct Renewal {
    int lock;
    std::uint64_t owner;
  };

  Kind kind = Kind::hello;
  std::uint64_t id = 0;  ///< comes back with the answer
  int lock = 0;
  std::uint64_t owner = 0;
  milliseconds lease{0};
  int target = 0;
  std::uint64_t victim = 0;
  std::vector<Renewal> renewals{};
};

struct Answer {
  enum class Kind : std::uint8_t {
    hello,
    granted,
    refused,
    released,
    notOwner,
    renewed,
    settled,
    killed,
    subscribed,
    unsubscribed,
    denied,
    error,  ///< not executed
    message,
    closed
  };

  Kind kind = Kind::hello;
  std::uint64_t id = 0;
  int lock = 0;
  int count = 0;
  milliseconds remaining{-1};
  std::uint64_t connection = 0;
  std::vector<bool> renewed{};
};

/// The client's end of a connection.
class Peer {
 public:
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  virtual ~Peer() = default;
  virtual void arrived(const Answer& answer) = 0;
};

struct Connection : detail::RefCounted<Connection> {
  Connection(int ofClient, Peer& end) noexcept : client(ofClient), peer(&end) {}

  const int client;
  Peer* peer;            ///< null: the client has closed it
  std::uint64_t id = 0;  ///< given by the server
  bool serverOpen = true;
  bool cut = false;  ///< what is sent now gets lost, though an end may not have noticed
  std::deque<Request> up;
  std::deque<Answer> down;
  Time lastUp{0};
  Time lastDown{0};
  Time lateUntil{0};  ///< what is still on its way up arrives then
};

using ConnectionPtr = detail::IntrusivePtr<Connection>;

struct NetworkConfig {
  int clients = 0;  ///< at most, with those that replace crashed ones
  int locks = 1;
  Time delayMin = microseconds(50);
  Time delayMax = microseconds(500);
  int spikePercent = 0;
  Time spikeMax{0};
  Time serverStart{0};
  int serverPpm = 0;
  int deniedLock = -1;               ///< its channel may not be subscribed
  int errorPercent = 0;              ///< requests that the server answers with an error
  Time lateMax = milliseconds(300);  ///< how late a broken connection's requests may arrive
};

/// Hears what happens to the locks on the server, at the instant it happens.
class ServerObserver {
 public:
  ServerObserver() = default;
  ServerObserver(const ServerObserver&) = delete;
  ServerObserver& operator=(const ServerObserver&) = delete;
  virtual ~ServerObserver() = default;
  /// An acquire, release or settle of `who` is executed.
  virtual void executing(const Request& request, Who who) = 0;
  virtual void counted(int lock, Who who, int count) = 0;
  virtual void vanished(int lock, Who who, Cause cause) = 0;
};

/// One Redis server and the network between it and all clients.
///
/// Each connection keeps its order; nothing else does. What a broken connection still had on its
/// way may arrive long after both the break and the next connection, unless the server was told to
/// kill it.
class Network {
 public:
  Network(const NetworkConfig& config,
          EventQueue& queue,
          Random& random,
          ServerObserver& observer,
          const Trace& trace)
      : config_(config),
        queue_(queue),
        random_(random),
        observer_(observer),
        trace_(trace),
        clock_(config.serverStart, config.serverPpm),
        keys_(static_cast<std::size_t>(config.locks)),
        subscribers_(static_cast<std::size_t>(config.locks)),
        blackUntil_(static_cast<std::size_t>(config.clients), Time(0)),
        pausedUntil_(static_cast<std::size_t>(config.clients), Time(0)) {}

  // The client's side.

  ConnectionPtr open(int client, Peer& peer) {
    auto connection = detail::makeIntrusive<Connection>(client, peer);
    connections_.push_back(connection);
    send(*connection, Request{});
    return connection;
  }

  void send(Connection& connection, Request request) {
    if (connection.cut || !connection.serverOpen) {
      return;
    }
    connection.up.push_back(std::move(request));
    connection.lastUp = std::max(connection.lastUp, queue_.now() + delay());
    arriveUpAt(connection.lastUp, ConnectionPtr(&connection));
  }

  /// The client lets go of it; a part of what it has sent arrives all the same.
  void closeByClient(Connection& connection) {
    connection.peer = nullptr;
    connection.down.clear();
    breakUp(connection);
  }

  // Faults.

  /// Both ends find out later.
  void cut(Connection& connection) {
    if (connection.cut || connection.peer == nullptr) {
      return;
    }
    trace_(queue_.now(), "NET cut connection ", connection.id, " of client ", connection.client);
    connection.down.resize(random_.upTo(connection.down.size()));
    tellClosed(connection, random_.between(Time(0), Time(milliseconds(20))));
    breakUp(connection);
  }

  void blackHole(int client, Time duration) {
    auto& until = blackUntil_[static_cast<std::size_t>(client)];
    until = std::max(until, queue_.now() + duration);
  }
  void pause(int client, Time duration) {
    auto& until = pausedUntil_[static_cast<std::size_t>(client)];
    until = std::max(until, queue_.now() + duration);
  }
  void freeze(Time duration) { frozenUntil_ = std::max(frozenUntil_, queue_.now() + duration); }
  void slowDown(Time duration) { slowUntil_ = std::max(slowUntil_, queue_.now() + duration); }

  void restartEmpty(Time downtime) {
    trace_(queue_.now(), "SERVER restarts empty");
    downUntil_ = queue_.now() + downtime;
    for (std::size_t lock = 0; lock < keys_.size(); ++lock) {
      subscribers_[lock].clear();
      drop(static_cast<int>(lock), Cause::dataLoss);
    }
    for (const ConnectionPtr& connection : std::exchange(connections_, {})) {
      connection->serverOpen = false;
      connection->up.clear();
      if (connection->peer != nullptr && !connection->cut) {
        connection->down.resize(random_.upTo(connection->down.size()));
        tellClosed(*connection, delay());
      }
    }
    nextId_ = 1;
  }

  /// Somebody else frees the lock.
  void force(int lock) {
    if (frozenUntil_ > queue_.now() || downUntil_ > queue_.now()) {
      return;
    }
    purge(lock);
    if (!key(lock).exists) {
      return;
    }
    trace_(queue_.now(), "SERVER lock ", lock, " freed by force");
    drop(lock, Cause::forced);
    publish(lock);
  }

  // What an outside observer sees.

  [[nodiscard]] bool calm() const noexcept {
    const Time now = queue_.now();
    const auto over = [now](Time until) { return until <= now; };
    return over(frozenUntil_) && over(downUntil_) && over(slowUntil_) &&
           std::all_of(blackUntil_.begin(), blackUntil_.end(), over);
  }
  [[nodiscard]] Time pausedUntil(int client) const noexcept {
    return pausedUntil_[static_cast<std::size_t>(client)];
  }
  [[nodiscard]] bool anyCutUnnoticed() const noexcept {
    return std::any_of(connections_.begin(), connections_.end(), [](const ConnectionPtr& c) {
      return (c->cut || !c->serverOpen) && c->peer != nullptr;
    });
  }
  [[nodiscard]] bool held(int lock) const noexcept {
    const Key& it = keys_[static_cast<std::size_t>(lock)];
    return it.exists && clockMs() <= it.expireAt;
  }
  [[nodiscard]] std::size_t subscriptions() const noexcept {
    std::size_t count = 0;
    for (const auto& channel : subscribers_) {
      count += channel.size();
    }
    return count;
  }
  [[nodiscard]] std::uint64_t killed() const noexcept { return killed_; }
  [[nodiscard]] std::uint64_t killedWithRequests() const noexcept { return killedWithRequests_; }

 private:
  struct Key {
    bool exists = false;
    Who who{};
    int count = 0;
    std::int64_t expireAt = 0;
    Time purgeAt = Time::max();
  };

  [[nodiscard]] Key& key(int lock) noexcept { return keys_[static_cast<std::size_t>(lock)]; }
  [[nodiscard]] std::int64_t clockMs() const noexcept {
    return std::chrono::floor<milliseconds>(clock_.read(queue_.now())).count();
  }

  Time delay() noexcept {
    Time result = random_.between(config_.delayMin, config_.delayMax);
    if (queue_.now() < slowUntil_) {
      result *= 20;
    }
    if (random_.chance(config_.spikePercent)) {
      result += random_.between(Time(0), config_.spikeMax);
    }
    return result;
  }

  // Transport.

  void arriveUpAt(Time when, ConnectionPtr connection) {
    queue_.at(when, [this, connection = std::move(connection)] { arriveUp(connection); });
  }

  void arriveUp(const ConnectionPtr& connection) {
    if (connection->up.empty()) {
      return;
    }
    const Time until = std::max({blackUntil_[static_cast<std::size_t>(connection->client)],
                                 connection->lateUntil,
                                 frozenUntil_});
    if (queue_.now() < until) {
      arriveUpAt(until + delay(), connection);
      return;
    }
    const Request request = std::move(connection->up.front());
    connection->up.pop_front();
    execute(connection, request);
  }

  void answer(Connection& connection, Answer answer) {
    if (connection.cut || connection.peer == nullptr) {
      return;
    }
    connection.down.push_back(std::move(answer));
    connection.lastDown = std::max(connection.lastDown, queue_.now() + delay());
    arriveDownAt(connection.lastDown, ConnectionPtr(&connection));
  }

  void tellClosed(Connection& connection, Time delay) {
    Answer closed;
    closed.kind = Answer::Kind::closed;
    connection.down.push_back(closed);
    connection.lastDown = std::max(connection.lastDown, queue_.now() + delay);
    arriveDownAt(connection.lastDown, ConnectionPtr(&connection));
  }

  void arriveDownAt(Time when, ConnectionPtr connection) {
    queue_.at(when, [this, connection = std::move(connection)] { arriveDown(connection); });
  }

  void arriveDown(const ConnectionPtr& connection) {
    if (connection->peer == nullptr || connection->down.empty()) {
      return;
    }
    const auto client = static_cast<std::size_t>(connection->client);
    const Time until = std::max(blackUntil_[client], pausedUntil_[client]);
    if (queue_.now() < until) {
      arriveDownAt(until + random_.between(Time(0), Time(microseconds(50))), connection);
      return;
    }
    const Answer answer = std::move(connection->down.front());
    connection->down.pop_front();
    connection->peer->arrived(answer);
  }

  void breakUp(Connection& connection) {
    if (connection.cut) {
      return;
    }
    connection.cut = true;
    if (random_.chance(50)) {
      connection.up.resize(random_.upTo(connection.up.size()));
    }
    const Time late = random_.chance(50) ? Time(0) : random_.between(Time(0), config_.lateMax);
    connection.lateUntil = queue_.now() + late;
    queue_.at(
        connection.lateUntil + random_.between(Time(milliseconds(1)), Time(milliseconds(400))),
        [this, kept = ConnectionPtr(&connection)] { closeOnServer(*kept); });
  }

  void closeOnServer(Connection& connection) {
    connection.serverOpen = false;
    connection.up.clear();
    for (auto& channel : subscribers_) {
      std::erase_if(channel, [&](const ConnectionPtr& c) { return c.get() == &connection; });
    }
    std::erase_if(connections_, [&](const ConnectionPtr& c) { return c.get() == &connection; });
  }

  // The server.

  void execute(const ConnectionPtr& from, const Request& request) {
    if (!from->serverOpen) {
      return;
    }
    const Who who{from->client, request.owner};
    Answer reply;
    reply.id = request.id;
    reply.lock = request.lock;
    const bool mayFail =
        request.kind == Request::Kind::acquire || request.kind == Request::Kind::release;
    if (mayFail && random_.chance(config_.errorPercent)) {
      reply.kind = Answer::Kind::error;
      answer(*from, std::move(reply));
      return;
    }
    switch (request.kind) {
      case Request::Kind::hello:
        if (queue_.now() < downUntil_) {
          from->serverOpen = false;
          tellClosed(*from, delay());
          return;
        }
        reply.kind = Answer::Kind::hello;
        reply.connection = from->id = nextId_++;
        break;
      case Request::Kind::acquire:
        observer_.executing(request, who);
        acquire(request, who, reply);
        break;
      case Request::Kind::release:
        observer_.executing(request, who);
        release(request, who, reply);
        break;
      case Request::Kind::settle:
        observer_.executing(request, who);
        settle(request, who, reply);
        break;
      case Request::Kind::renew:
        reply.kind = Answer::Kind::renewed;
        for (const Request::Renewal& one : request.renewals) {
          reply.renewed.push_back(renew(one.lock, Who{from->client, one.owner}, request.lease));
        }
        break;
      case Request::Kind::kill:
        reply.kind = Answer::Kind::killed;
        kill(request.victim, *from);
        break;
      case Request::Kind::subscribe:
        if (request.lock == config_.deniedLock) {
          reply.kind = Answer::Kind::denied;
          break;
        }
        reply.kind = Answer::Kind::subscribed;
        if (auto& channel = subscribers_[static_cast<std::size_t>(request.lock)];
            std::find(channel.begin(), channel.end(), from) == channel.end()) {
          channel.push_back(from);
        }
        break;
      case Request::Kind::unsubscribe:
        reply.kind = Answer::Kind::unsubscribed;
        std::erase(subscribers_[static_cast<std::size_t>(request.lock)], from);
        break;
    }
    answer(*from, std::move(reply));
  }

  void acquire(const Request& request, Who who, Answer& reply) {
    purge(request.lock);
    Key& it = key(request.lock);
    if (it.exists && it.who != who) {
      reply.kind = Answer::Kind::refused;
      reply.remaining = milliseconds(it.expireAt - clockMs());
      trace_(queue_.now(),
             "SERVER lock ",
             request.lock,
             " refused to ",
             who.client,
             ":",
             who.owner,
             ", ",
             reply.remaining.count(),
             " ms remain");
      return;
    }
    it.exists = true;
    it.who = who;
    ++it.count;
    extend(request.lock, request.lease, it.count == 1);
    reply.kind = Answer::Kind::granted;
    reply.count = it.count;
    trace_(queue_.now(),
           "SERVER lock ",
           request.lock,
           " granted to ",
           who.client,
           ":",
           who.owner,
           ", count ",
           it.count);
    observer_.counted(request.lock, who, it.count);
  }

  void release(const Request& request, Who who, Answer& reply) {
    purge(request.lock);
    Key& it = key(request.lock);
    if (!it.exists || it.who != who) {
      reply.kind = Answer::Kind::notOwner;
      return;
    }
    reply.kind = Answer::Kind::released;
    reply.count = --it.count;
    trace_(queue_.now(),
           "SERVER lock ",
           request.lock,
           " released by ",
           who.client,
           ":",
           who.owner,
           ", count ",
           it.count);
    if (it.count > 0) {
      extend(request.lock, request.lease, false);
      observer_.counted(request.lock, who, it.count);
      return;
    }
    drop(request.lock, Cause::released);
    publish(request.lock);
  }

  void settle(const Request& request, Who who, Answer& reply) {
    purge(request.lock);
    Key& it = key(request.lock);
    reply.kind = Answer::Kind::settled;
    const int before = it.exists && it.who == who ? it.count : 0;
    reply.count = std::min(before, request.target);
    trace_(queue_.now(),
           "SERVER lock ",
           request.lock,
           " settled for ",
           who.client,
           ":",
           who.owner,
           ", count ",
           before,
           " -> ",
           reply.count);
    if (reply.count > 0) {
      reply.remaining = milliseconds(it.expireAt - clockMs());
    }
    if (reply.count == before) {
      return;
    }
    it.count = reply.count;
    if (it.count > 0) {
      observer_.counted(request.lock, who, it.count);
      return;
    }
    drop(request.lock, Cause::settled);
    publish(request.lock);
  }

  bool renew(int lock, Who who, milliseconds lease) {
    purge(lock);
    Key& it = key(lock);
    if (!it.exists || it.who != who) {
      return false;
    }
    extend(lock, lease, false);
    return true;
  }

  void kill(std::uint64_t victim, const Connection& by) {
    const auto found =
        std::find_if(connections_.begin(), connections_.end(), [&](const ConnectionPtr& c) {
          return c->id == victim && c.get() != &by;
        });
    if (found == connections_.end()) {
      return;
    }
    const ConnectionPtr connection = *found;
    trace_(queue_.now(), "SERVER kills connection ", victim, " of client ", connection->client);
    ++killed_;
    killedWithRequests_ += connection->up.empty() ? 0U : 1U;
    closeOnServer(*connection);
    if (connection->peer != nullptr && !connection->cut) {
      tellClosed(*connection, delay());
    }
  }

  void publish(int lock) {
    for (const ConnectionPtr& connection : subscribers_[static_cast<std::size_t>(lock)]) {
      Answer message;
      message.kind = Answer::Kind::message;
      message.lock = lock;
      answer(*connection, message);
    }
  }

  void extend(int lock, milliseconds lease, bool always) {
    Key& it = key(lock);
    const std::int64_t until = clockMs() + lease.count();
    if (!always && until <= it.expireAt) {
      return;
    }
    it.expireAt = until;
    schedulePurge(lock);
  }

  // The key is still there in the millisecond that its expiry names.
  void schedulePurge(int lock) {
    Key& it = key(lock);
    const Time when = clock_.when(milliseconds(it.expireAt + 1));
    if (when < it.purgeAt) {
      it.purgeAt = when;
      queue_.at(when, [this, lock] {
        Key& due = key(lock);
        if (due.purgeAt > queue_.now()) {
          return;
        }
        due.purgeAt = Time::max();
        purge(lock);
        if (due.exists) {
          schedulePurge(lock);
        }
      });
    }
  }

  void purge(int lock) {
    const Key& it = key(lock);
    if (it.exists && clockMs() > it.expireAt) {
      trace_(
          queue_.now(), "SERVER lock ", lock, " of ", it.who.client, ":", it.who.owner, " expired");
      drop(lock, Cause::expired);
    }
  }

  void drop(int lock, Cause cause) {
    Key& it = key(lock);
    if (!it.exists) {
      return;
    }
    const Who who = it.who;
    it.exists = false;
    it.count = 0;
    observer_.vanished(lock, who, cause);
  }

  const NetworkConfig config_;
  EventQueue& queue_;
  Random& random_;
  ServerObserver& observer_;
  const Trace& trace_;
  const DriftingClock clock_;

  std::vector<Key> keys_;
  std::vector<std::vector<ConnectionPtr>> subscribers_;
  std::vector<ConnectionPtr> connections_;
  std::uint64_t nextId_ = 1;
  std::uint64_t killed_ = 0;
  std::uint64_t killedWithRequests_ = 0;

  std::vector<Time> blackUntil_;
  std::vector<Time> pausedUntil_;
  Time frozenUntil_{0};
  Time downUntil_{0};
  Time slowUntil_{0};
};

}  // namespace rlock::sim
