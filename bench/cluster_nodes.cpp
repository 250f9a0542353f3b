// SPDX-License-Identifier: Apache-2.0
#include "cluster_nodes.hpp"

#include "measure.hpp"
#include <rlock/detail/net/hash_slot.hpp>

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace rlock::bench {

namespace {

constexpr std::size_t kSlots = rlock::detail::net::kSlots;

/// The first slot of a master; of the number of masters, the end of all slots.
constexpr std::size_t firstSlot(std::size_t master) {
  return kSlots * master / ClusterServers::kMasters;
}

bool works(Connection& node) {
  const ReplyPtr reply = node.command({"CLUSTER", "INFO"});
  const std::string_view info(reply->str, static_cast<std::size_t>(reply->len));
  const auto says = [info](const std::string& text) {
    return info.find(text + "\r\n") != std::string_view::npos;
  };
  return says("cluster_state:ok") && says(fmt::format("cluster_slots_ok:{}", kSlots)) &&
         says(fmt::format("cluster_known_nodes:{}", ClusterServers::kMasters));
}

}  // namespace

ClusterServers::ClusterServers(const std::string& program) {
  std::vector<Connection> connections;
  for (std::size_t i = 0; i < kMasters; ++i) {
    nodes_[i] = std::make_unique<OwnServer>(
        program, std::vector<std::string>{"--cluster-node-timeout", "60000"}, ServerKind::node);
    Connection& node = connections.emplace_back(Options::fromUri(nodes_[i]->uri()));
    node.command({"CLUSTER",
                  "ADDSLOTSRANGE",
                  std::to_string(firstSlot(i)),
                  std::to_string(firstSlot(i + 1) - 1)});
    node.command({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
    if (i > 0) {
      connections.front().command({"CLUSTER",
                                   "MEET",
                                   "127.0.0.1",
                                   std::to_string(nodes_[i]->port()),
                                   std::to_string(nodes_[i]->busPort())});
    }
  }
  for (Connection& node : connections) {
    waitUntil([&node] { return works(node); });
  }
}

std::string ClusterServers::uri() const {
  std::string result = "redis+cluster://";
  for (std::size_t i = 0; i < kMasters; ++i) {
    result += fmt::format("{}127.0.0.1:{}", i == 0 ? "" : ",", nodes_[i]->port());
  }
  return result;
}

std::vector<pid_t> ClusterServers::pids() const {
  std::vector<pid_t> result;
  for (const auto& node : nodes_) {
    result.push_back(node->pid());
  }
  return result;
}

std::size_t ClusterServers::masterOf(std::string_view key) {
  const std::size_t slot = rlock::detail::net::hashSlot(key);
  std::size_t master = 0;
  while (slot >= firstSlot(master + 1)) {
    ++master;
  }
  return master;
}

Frozen::Frozen(pid_t process) : process_(process) {
  if (::kill(process_, SIGSTOP) != 0) {
    throw std::system_error(errno, std::generic_category(), "SIGSTOP");
  }
}

Frozen::~Frozen() {
  ::kill(process_, SIGCONT);
}

}  // namespace rlock::bench
