// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_env.hpp"
#include "simulation/sim_world.hpp"
#include "testing/redis_model.hpp"
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/server_session.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::sim {

class Node;

/// One command on its way, or kept for later.
using Command = std::vector<std::string>;

/// How the network behaves when nothing is broken, and what is broken all the time.
struct NetworkConfig {
  Time delayMin{0};
  Time delayMax{0};
  int spikePercent = 0;  ///< of messages that take much longer
  Time spikeMax{0};
  /// A request that was sent on a connection that was cut may come so much later.
  Time lateMax = milliseconds(400);
  int blockedPerMille = 0;     ///< of writes that find no room in the socket
  int lostMessages = 0;        ///< of a hundred published messages
  bool killDenied = false;     ///< CLIENT KILL is not allowed
  bool killProbeLies = false;  ///< and the handshake does not find out
};

/// Counts of what has happened to the connections of a server.
struct NodeCounts {
  std::uint64_t cuts = 0;
  std::uint64_t cutsUnnoticed = 0;  ///< by the client
  std::uint64_t killed = 0;
  std::uint64_t killedWithRequests = 0;
  std::uint64_t arrivedLate = 0;  ///< requests of a client that had given the connection up
  std::uint64_t messagesLost = 0;
  std::uint64_t writesBlocked = 0;
};

/// The view of somebody who watches the server.
class ServerObserver {
 public:
  ServerObserver() = default;
  ServerObserver(const ServerObserver&) = delete;
  ServerObserver& operator=(const ServerObserver&) = delete;
  virtual ~ServerObserver() = default;

  virtual void executing(Node& node, const Command& command) = 0;
  virtual void executed(Node& node, const Command& command, const detail::Reply& reply) = 0;
  /// A connection of a process to the server breaks.
  virtual void connectionCut(Node& node, int process) = 0;
};

class Connection;

/// Answers for a server what is not about its data: the part of a node of a cluster.
class ClusterPart {
 public:
  ClusterPart() = default;
  ClusterPart(const ClusterPart&) = delete;
  ClusterPart& operator=(const ClusterPart&) = delete;
  virtual ~ClusterPart() = default;

  /// Nothing: the server executes the command.
  virtual std::optional<std::vector<detail::Reply>> answer(Node& node,
                                                           Connection& connection,
                                                           const Command& command) = 0;
  /// A script has published on a channel of all nodes.
  virtual void published(Node& node, std::string_view channel, std::string_view payload) = 0;
};

/// A connection of a process to a server: two streams of messages, each in its order. Either end
/// may think that it is gone while the other does not, and what was sent before may still arrive.
///
/// **Thread safety:** one thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// The functions by which the client's end hears, each as an event of its loop.
  struct Ears {
    std::function<void(detail::Reply)> reply{};
    std::function<void()> broken{};
  };

  Connection(Node& node, SimEnv& env, Ears ears, detail::net::ServerSession session)
      : node_(node), env_(env), ears_(std::move(ears)), session_(std::move(session)) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The client's end.
  void send(Command command);
  /// Nothing is heard of it any more. Messages that were sent may arrive late, up to some message.
  void close();

  /// Both ends have it, and nothing stands between them.
  [[nodiscard]] bool healthy() const noexcept {
    return clientOpen_ && serverOpen_ && !upCut_ && !downCut_;
  }
  [[nodiscard]] const detail::net::ServerSession& session() const noexcept { return session_; }
  [[nodiscard]] SimEnv& env() const noexcept { return env_; }

  // The server's end, in a cluster.
  /// The next command may be for a slot that is on its way here.
  bool asking = false;
  /// Subscribed here, as long as the slots are.
  std::set<std::string> shardChannels{};

 private:
  friend class Node;

  struct Upward {
    Time at;
    Command command;
  };
  struct Downward {
    Time at;
    detail::Reply reply;
  };

  void scheduleUp();
  void arrive();
  void scheduleDown();
  void hear();
  void answer(detail::Reply reply);
  /// So many of the messages on their way arrive, after an extra delay, and then the end of the
  /// stream.
  void endUp(std::size_t arriving, Time extra);
  void endDown(std::size_t arriving, bool noticed, Time extra);
  void serverGone();

  Node& node_;
  SimEnv& env_;
  Ears ears_;
  const detail::net::ServerSession session_;
  std::deque<Upward> up_;
  std::deque<Downward> down_;
  Time lastUp_{0};
  Time lastDown_{0};
  bool upScheduled_ = false;
  bool downScheduled_ = false;
  bool clientOpen_ = true;  ///< the client's end sends and listens
  bool serverOpen_ = true;  ///< the server has it
  bool upEnds_ = false;     ///< the server learns of its end behind what is on its way
  bool downEnds_ = false;   ///< the client learns of it likewise
  bool upCut_ = false;      ///< what is sent from here on goes nowhere
  bool cutOnSend_ = false;  ///< it is cut soon after the next command, whose reply is then lost
  bool downCut_ = false;    ///< likewise
};

using ConnectionPtr = std::shared_ptr<Connection>;

/// An attempt to connect, which its maker may give up by dropping it.
struct Dialling {
  std::function<void(ConnectionPtr)> done{};  ///< null: refused
};

/// A server, with its clock and its connections.
class Node {
 public:
  Node(World& world,
       int index,
       const NetworkConfig& config,
       ServerObserver& observer,
       DriftingClock wall);

  [[nodiscard]] World& world() const noexcept { return world_; }
  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] RedisModel& model() noexcept { return model_; }
  [[nodiscard]] const NetworkConfig& config() const noexcept { return config_; }
  /// Looks at the data, beside all connections.
  detail::Reply look(std::initializer_list<std::string_view> argv);
  /// When a key expires if nobody touches it; max(): never, or there is none.
  [[nodiscard]] Time expiryOf(std::string_view key);

  /// Starts connecting; `done` is called as an event of the loop, unless the attempt was dropped.
  void dial(SimEnv& env, Connection::Ears ears, const std::shared_ptr<Dialling>& attempt);

  /// It is a node of a cluster. Nothing else publishes to the nodes of others.
  void join(ClusterPart& cluster);
  /// Ends the subscriptions to sharded channels that the server has no more.
  void dropShardChannels(const std::function<bool(const std::string&)>& gone);
  /// When it does something again, by what is known now.
  [[nodiscard]] Time awake() const noexcept { return std::max(frozenUntil_, downUntil_); }

  // Faults to order.
  /// Neither end hears of the other for so long.
  void blackHole(int process, Time length);
  /// The server does nothing for so long.
  void freeze(Time length);
  void restart(bool keepData, Time down);
  /// One that is down stays so for at least so long.
  void stayDown(Time length) noexcept {
    if (downUntil_ > world_.now()) {
      downUntil_ = std::max(downUntil_, world_.now() + length);
    }
  }
  void flushScripts() { model_.flushScripts(); }
  /// A connection of the process is cut, at once or soon; `commands`: the one for commands. Returns
  /// whether there was such a one; otherwise the only one that there is was cut, if any.
  bool cut(int process, bool commands);
  /// The process is gone, and the system closes its connections.
  void processDied(int process);

  /// Whether requests of the process pass, and are executed.
  [[nodiscard]] bool reachable(int process) const;
  /// Whether anything of the above lasts.
  [[nodiscard]] bool calm() const;
  /// The server has connections whose clients are gone.
  [[nodiscard]] bool anyHalfOpen() const;
  [[nodiscard]] const NodeCounts& counts() const noexcept { return counts_; }
  /// A client found no room in the socket.
  void noteBlockedWrite() noexcept { ++counts_.writesBlocked; }
  /// When a connection was last cut.
  [[nodiscard]] Time lastCut() const noexcept { return lastCut_; }
  /// When the data was last lost.
  [[nodiscard]] Time emptiedAt() const noexcept { return emptiedAt_; }

 private:
  friend class Connection;

  [[nodiscard]] Time delay();
  /// When a message that is due now can pass; now: at once.
  [[nodiscard]] Time passage(const Connection& connection, bool intoServer) const;
  [[nodiscard]] Time pathOpen(int process) const;
  void execute(Connection& connection, const Command& command);
  std::int64_t publishedInShard(std::string_view channel, std::string_view payload);
  void published(RedisModel::ClientId subscriber,
                 std::string_view channel,
                 std::string_view payload);
  bool losesMessage(std::string_view channel);
  void drop(Connection& connection);
  void cut(Connection& connection);

  World& world_;
  const int index_;
  const std::string name_;
  const NetworkConfig& config_;
  ServerObserver& observer_;
  const DriftingClock wall_;
  RedisModel model_;
  ClusterPart* cluster_ = nullptr;
  RedisModel::ClientId watcher_ = 0;
  std::vector<ConnectionPtr> connections_;
  std::map<int, Time> holes_;
  Time frozenUntil_{0};
  Time downUntil_{0};
  Time emptiedAt_ = Time(-1);
  Time lastCut_{0};
  std::vector<RedisModel::ClientId> kills_;
  NodeCounts counts_;
  int ports_ = 1024;
};

}  // namespace rlock::sim
