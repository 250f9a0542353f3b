// SPDX-License-Identifier: Apache-2.0
#include "support/redis_cluster.hpp"

#include "support/eventually.hpp"
#include <rlock/detail/net/hash_slot.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace rlock::test {

namespace {

constexpr std::chrono::milliseconds kSetUp{30'000};

void waitUntil(const char* what, const std::function<bool()>& condition) {
  if (!eventually(kSetUp, condition)) {
    throw std::runtime_error(std::string("redis cluster: ") + what + " did not come in time");
  }
}

bool says(RawRedis& raw, std::string_view text) {
  const Value info = raw.command({"CLUSTER", "INFO"});
  return !info.isError() && info.string().find(text) != std::string::npos;
}

/// Of each node in a reply to CLUSTER NODES its id, epoch and slots; not what is on its way.
std::set<std::string> epochsAndSlots(const std::string& nodes) {
  constexpr std::size_t kEpoch = 6;
  constexpr std::size_t kFirstSlot = 8;
  std::set<std::string> result;
  std::istringstream lines(nodes);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string facts;
    std::string word;
    for (std::size_t i = 0; words >> word; ++i) {
      if ((i == 0 || i == kEpoch || i >= kFirstSlot) && word.front() != '[') {
        facts += word + ' ';
      }
    }
    result.insert(std::move(facts));
  }
  return result;
}

}  // namespace

bool clusterAvailable() {
  return RedisServer::available() && RedisServer::version().major >= 7;
}

RedisCluster::RedisCluster(Options options) : options_(std::move(options)) {
  const std::size_t count = options_.masters * (1 + options_.replicasEach);
  for (std::size_t i = 0; i < count; ++i) {
    const Node& node = makeNode(i % options_.masters);
    if (i < options_.masters) {
      const std::size_t slots = rlock::detail::net::kSlots;
      RawRedis(*node.server)
          .run({"CLUSTER",
                "ADDSLOTSRANGE",
                std::to_string(slots * i / options_.masters),
                std::to_string(slots * (i + 1) / options_.masters - 1)});
    }
  }
  for (const Node& node : nodes_) {
    meet(node);
  }
  waitForMeeting();
  for (std::size_t i = options_.masters; i < count; ++i) {
    replicate(i, nodes_[nodes_[i].master].id);
  }
  waitUntilOk();
  waitForReplicas();
}

RedisCluster::Node& RedisCluster::makeNode(std::size_t master) {
  const std::size_t number = nodes_.size();
  Node& node = nodes_.emplace_back();
  node.master = master;
  node.bus = std::make_unique<PortReservation>();
  RedisServerOptions server;
  server.extraArgs = {"--cluster-enabled",
                      "yes",
                      "--cluster-port",
                      std::to_string(node.bus->port()),
                      "--cluster-node-timeout",
                      std::to_string(options_.nodeTimeout.count()),
                      "--cluster-replica-validity-factor",
                      "0",
                      "--cluster-allow-replica-migration",
                      "no",
                      "--cluster-require-full-coverage",
                      "no",
                      "--repl-diskless-sync-delay",
                      "0"};
  const auto add = [&](const std::vector<std::string>& words) {
    server.extraArgs.insert(server.extraArgs.end(), words.begin(), words.end());
  };
  add(options_.extraArgs);
  if (options_.tls) {
    node.tls = std::make_unique<PortReservation>();
    add(options_.tls->arguments(node.tls->port()));
    add({"--tls-cluster", "yes"});
  }
  std::optional<PortReservation> reservation;
  if (options_.proxied) {
    // It announces the ports of its proxies, and so has to know them before it starts.
    reservation.emplace();
    server.port = reservation->port();
    node.proxy = std::make_unique<TcpProxy>(server.port);
    node.busProxy = std::make_unique<TcpProxy>(node.bus->port());
    add({"--cluster-announce-ip", "127.0.0.1"});
    add({"--cluster-announce-port", std::to_string(node.proxy->port())});
    add({"--cluster-announce-bus-port", std::to_string(node.busProxy->port())});
    add({"--bind-source-addr", sourceOf(number)});
  }
  node.server = std::make_unique<RedisServer>(server);
  RawRedis raw(*node.server);
  node.id = raw.run({"CLUSTER", "MYID"}).string();
  raw.run({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(number + 1)});
  return node;
}

void RedisCluster::meet(const Node& node) {
  for (const Node& other : nodes_) {
    if (other.server->running()) {
      RawRedis(*other.server)
          .run({"CLUSTER",
                "MEET",
                "127.0.0.1",
                std::to_string(node.tls ? node.tls->port() : portOf(node)),
                std::to_string(node.busProxy ? node.busProxy->port() : node.bus->port())});
      return;
    }
  }
}

void RedisCluster::waitForMeeting() {
  std::size_t running = 0;
  for (const Node& node : nodes_) {
    running += node.server->running() ? 1U : 0U;
  }
  const std::string known = "cluster_known_nodes:" + std::to_string(running) + "\r";
  for (const Node& node : nodes_) {
    if (node.server->running()) {
      RawRedis raw(*node.server);
      waitUntil("the meeting of the nodes", [&] { return says(raw, known); });
    }
  }
}

void RedisCluster::replicate(std::size_t replica, const std::string& master) {
  RawRedis raw(*nodes_[replica].server);
  waitUntil("the replication", [&] {
    return !raw.command({"CLUSTER", "REPLICATE", master}).isError();
  });
}

void RedisCluster::waitForReplicas() {
  for (std::size_t i = options_.masters; i < nodes_.size(); ++i) {
    waitUntilLinked(i);
  }
}

void RedisCluster::waitUntilLinked(std::size_t replica) {
  RawRedis raw(*nodes_[replica].server);
  waitUntil("a replica", [&] { return raw.info("master_link_status") == "up"; });
}

std::uint16_t RedisCluster::portOf(const Node& node) const {
  return options_.proxied ? node.proxy->port() : node.server->port();
}

std::string RedisCluster::sourceOf(std::size_t node) {
  return "127.0.1." + std::to_string(node + 1);
}

bool RedisCluster::isMaster(std::size_t node) {
  return nodes_[node].server->running() && raw(node).info("role") == "master";
}

void RedisCluster::waitUntilOk() {
  for (const Node& node : nodes_) {
    if (node.server->running()) {
      RawRedis raw(*node.server);
      waitUntil("the cluster", [&] {
        return says(raw, "cluster_state:ok") && says(raw, "cluster_slots_ok:16384");
      });
    }
  }
}

std::string RedisCluster::uri(std::size_t count) const {
  std::string result = "redis+cluster://";
  for (std::size_t i = 0; i < std::min(count, nodes_.size()); ++i) {
    result += (i == 0 ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(portOf(nodes_[i]));
  }
  return result;
}

std::string RedisCluster::tlsUri() const {
  return "redis+cluster://127.0.0.1:" + std::to_string(nodes_.front().tls->port()) +
         "?tls=true&tls-ca-file=" + options_.tls->ca;
}

std::uint16_t RedisCluster::slotOf(std::string_view key) {
  return rlock::detail::net::hashSlot(key);
}

std::size_t RedisCluster::ownerOf(std::string_view key, std::size_t witness) {
  const auto slot = static_cast<std::int64_t>(slotOf(key));
  for (std::size_t asked = 0; asked < nodes_.size(); ++asked) {
    const RedisServer& server = *nodes_[(witness + asked) % nodes_.size()].server;
    if (!server.running()) {
      continue;
    }
    const Value map = RawRedis(server).run({"CLUSTER", "SLOTS"});
    for (const Value& range : map.array()) {
      const auto& parts = range.array();
      if (slot < parts[0].integer() || slot > parts[1].integer()) {
        continue;
      }
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].id == parts[2].array()[2].string() && nodes_[i].server->running()) {
          return i;
        }
      }
    }
  }
  throw std::runtime_error("no node that runs has the slot");
}

std::string RedisCluster::nameAt(std::size_t node, std::string_view prefix) {
  for (int i = 0;; ++i) {
    const std::string name = std::string(prefix) + std::to_string(i);
    if (ownerOf(name) == node) {
      return name;
    }
  }
}

void RedisCluster::waitUntilAgreed() {
  const auto agree = [&] {
    std::optional<std::set<std::string>> first;
    for (const Node& node : nodes_) {
      if (!node.server->running()) {
        continue;
      }
      auto seen = epochsAndSlots(RawRedis(*node.server).run({"CLUSTER", "NODES"}).string());
      if (!first) {
        first = std::move(seen);
      } else if (*first != seen) {
        return false;
      }
    }
    return true;
  };
  waitUntil("an agreement", agree);
}

void RedisCluster::beginMigration(std::uint16_t slot, std::size_t from, std::size_t to) {
  waitUntilAgreed();
  const std::string number = std::to_string(slot);
  raw(to).run({"CLUSTER", "SETSLOT", number, "IMPORTING", nodes_[from].id});
  raw(from).run({"CLUSTER", "SETSLOT", number, "MIGRATING", nodes_[to].id});
}

void RedisCluster::moveKeys(std::uint16_t slot, std::size_t from, std::size_t to) {
  RawRedis source = raw(from);
  for (;;) {
    const std::vector<std::string> keys =
        source.run({"CLUSTER", "GETKEYSINSLOT", std::to_string(slot), "100"}).strings();
    if (keys.empty()) {
      return;
    }
    // With TLS the nodes speak it among themselves.
    const std::uint16_t port = options_.tls ? nodes_[to].tls->port() : node(to).port();
    RawRedis::Args words{"MIGRATE", "127.0.0.1", std::to_string(port), "", "0", "5000", "KEYS"};
    words.insert(words.end(), keys.begin(), keys.end());
    source.run(words);
  }
}

void RedisCluster::endMigration(std::uint16_t slot, std::size_t from, std::size_t to) {
  const std::string number = std::to_string(slot);
  raw(to).run({"CLUSTER", "SETSLOT", number, "NODE", nodes_[to].id});
  raw(from).run({"CLUSTER", "SETSLOT", number, "NODE", nodes_[to].id});
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (i != from && i != to && isMaster(i)) {
      raw(i).run({"CLUSTER", "SETSLOT", number, "NODE", nodes_[to].id});
    }
  }
}

void RedisCluster::migrate(std::uint16_t slot, std::size_t from, std::size_t to) {
  beginMigration(slot, from, to);
  moveKeys(slot, from, to);
  endMigration(slot, from, to);
}

std::vector<Value> RedisCluster::runAll(RawRedis& raw, std::span<const RawRedis::Args> commands) {
  // So many that their replies fit into a socket.
  constexpr std::size_t kAtOnce = 500;
  std::vector<Value> replies;
  for (std::size_t begin = 0; begin < commands.size(); begin += kAtOnce) {
    const auto some = commands.subspan(begin, std::min(kAtOnce, commands.size() - begin));
    for (const RawRedis::Args& command : some) {
      raw.send(command);
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      replies.push_back(raw.receive());
      if (replies.back().isError()) {
        throw std::runtime_error("redis cluster: " + replies.back().describe());
      }
    }
  }
  return replies;
}

void RedisCluster::migrate(std::span<const std::uint16_t> slots, std::size_t from, std::size_t to) {
  waitUntilAgreed();
  const auto tell = [&](std::size_t node, const RawRedis::Args& begin, const RawRedis::Args& end) {
    std::vector<RawRedis::Args> commands;
    commands.reserve(slots.size());
    for (const std::uint16_t slot : slots) {
      RawRedis::Args& words = commands.emplace_back(begin);
      words.push_back(std::to_string(slot));
      words.insert(words.end(), end.begin(), end.end());
    }
    RawRedis connection = raw(node);
    return runAll(connection, commands);
  };
  const RawRedis::Args set{"CLUSTER", "SETSLOT"};
  tell(to, set, {"IMPORTING", nodes_[from].id});
  tell(from, set, {"MIGRATING", nodes_[to].id});
  const std::vector<Value> counts = tell(from, {"CLUSTER", "COUNTKEYSINSLOT"}, {});
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (counts[i].integer() > 0) {
      moveKeys(slots[i], from, to);
    }
  }
  const RawRedis::Args owner{"NODE", nodes_[to].id};
  tell(to, set, owner);
  tell(from, set, owner);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (i != from && i != to && isMaster(i)) {
      tell(i, set, owner);
    }
  }
}

std::vector<std::uint16_t> RedisCluster::slotsOf(std::size_t node) {
  std::vector<std::uint16_t> slots;
  const Value map = raw(node).run({"CLUSTER", "SLOTS"});
  for (const Value& range : map.array()) {
    const auto& parts = range.array();
    if (parts[2].array()[2].string() == nodes_[node].id) {
      for (std::int64_t slot = parts[0].integer(); slot <= parts[1].integer(); ++slot) {
        slots.push_back(static_cast<std::uint16_t>(slot));
      }
    }
  }
  return slots;
}

std::size_t RedisCluster::addMaster() {
  const std::size_t number = nodes_.size();
  meet(makeNode(number));
  waitForMeeting();
  waitUntilOk();
  return number;
}

void RedisCluster::removeMaster(std::size_t master, std::size_t to) {
  migrate(slotsOf(master), master, to);
  waitUntilAgreed();
  for (std::size_t gone = 0; gone < nodes_.size(); ++gone) {
    if (nodes_[gone].master != master || !nodes_[gone].server->running()) {
      continue;
    }
    nodes_[gone].server->stop();
    for (const Node& node : nodes_) {
      if (node.server->running() && node.master != master) {
        RawRedis(*node.server).run({"CLUSTER", "FORGET", nodes_[gone].id});
      }
    }
  }
  waitForMeeting();
  waitUntilOk();
}

void RedisCluster::failover(std::size_t replica) {
  RawRedis connection = raw(replica);
  const Deadline deadline(kSetUp);
  // It may be refused, or be given up, while the nodes do not know enough of each other.
  while (!deadline.expired()) {
    (void)connection.command({"CLUSTER", "FAILOVER"});
    if (eventually(std::chrono::seconds(6), [&] { return connection.info("role") == "master"; })) {
      return;
    }
  }
  throw std::runtime_error("redis cluster: a failover did not come in time");
}

void RedisCluster::restartEveryNode() {
  for (std::size_t replica = options_.masters; replica < nodes_.size(); ++replica) {
    const std::size_t master = nodes_[replica].master;
    node(replica).restart();
    waitUntilLinked(replica);
    waitUntilAgreed();
    failover(replica);
    waitUntilAgreed();
    waitUntilLinked(master);
    node(master).restart();
    waitUntilLinked(master);
  }
  waitUntilOk();
}

void RedisCluster::cutOff(std::size_t node) {
  const std::string source = sourceOf(node);
  const auto isIt = [source](const TcpProxy::ConnectionInfo& info) { return info.peer == source; };
  const auto isOther = [](const TcpProxy::ConnectionInfo& info) {
    return info.peer.rfind("127.0.1.", 0) == 0;
  };
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (TcpProxy* proxy : {nodes_[i].proxy.get(), nodes_[i].busProxy.get()}) {
      if (i == node) {
        proxy->blackHole(TcpProxy::Direction::both, isOther);
      } else {
        proxy->blackHole(TcpProxy::Direction::both, isIt);
      }
    }
  }
}

void RedisCluster::endCutOff() {
  for (const Node& node : nodes_) {
    node.proxy->endBlackHole();
    node.busProxy->endBlackHole();
  }
}

}  // namespace rlock::test
