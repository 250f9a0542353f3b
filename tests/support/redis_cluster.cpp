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
    Node& node = nodes_.emplace_back();
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
    server.extraArgs.insert(
        server.extraArgs.end(), options_.extraArgs.begin(), options_.extraArgs.end());
    if (options_.tls) {
      node.tls = std::make_unique<PortReservation>();
      const std::vector<std::string> words = options_.tls->arguments(node.tls->port());
      server.extraArgs.insert(server.extraArgs.end(), words.begin(), words.end());
      server.extraArgs.insert(server.extraArgs.end(), {"--tls-cluster", "yes"});
    }
    node.server = std::make_unique<RedisServer>(server);
    RawRedis raw(*node.server);
    node.id = raw.run({"CLUSTER", "MYID"}).string();
    raw.run({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
    if (i < options_.masters) {
      const std::size_t slots = rlock::detail::net::kSlots;
      raw.run({"CLUSTER",
               "ADDSLOTSRANGE",
               std::to_string(slots * i / options_.masters),
               std::to_string(slots * (i + 1) / options_.masters - 1)});
    }
  }
  RawRedis first(*nodes_.front().server);
  for (const Node& node : nodes_) {
    first.run({"CLUSTER",
               "MEET",
               "127.0.0.1",
               std::to_string(node.tls ? node.tls->port() : node.server->port()),
               std::to_string(node.bus->port())});
  }
  const std::string known = "cluster_known_nodes:" + std::to_string(count) + "\r";
  for (std::size_t i = 0; i < count; ++i) {
    RawRedis raw(*nodes_[i].server);
    waitUntil("the meeting of the nodes", [&] { return says(raw, known); });
    if (i >= options_.masters) {
      const std::string& master = nodes_[i % options_.masters].id;
      waitUntil("the replication", [&] {
        return !raw.command({"CLUSTER", "REPLICATE", master}).isError();
      });
    }
  }
  waitUntilOk();
  waitForReplicas();
}

void RedisCluster::waitForReplicas() {
  for (std::size_t i = options_.masters; i < nodes_.size(); ++i) {
    RawRedis raw(*nodes_[i].server);
    waitUntil("a replica", [&] { return raw.info("master_link_status") == "up"; });
  }
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
    result += (i == 0 ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(nodes_[i].server->port());
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
  for (std::size_t i = 0; i < options_.masters; ++i) {
    if (i != from && i != to && node(i).running()) {
      raw(i).run({"CLUSTER", "SETSLOT", number, "NODE", nodes_[to].id});
    }
  }
}

void RedisCluster::migrate(std::uint16_t slot, std::size_t from, std::size_t to) {
  beginMigration(slot, from, to);
  moveKeys(slot, from, to);
  endMigration(slot, from, to);
}

}  // namespace rlock::test
