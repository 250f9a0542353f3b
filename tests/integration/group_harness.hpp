// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integration/lock_harness.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock::test {

/// Several servers, each behind a proxy, and one client for each. Where the servers are shared, the
/// members of a group differ by their names, and there is no proxy.
class GroupTest : public LockTest {
 protected:
  class Node {
   public:
    explicit Node(const RedisServerOptions& options) : servers_(options) {
      if (testTopology() == Topology::single || testTopology() == Topology::acl) {
        proxy_ = servers_.makeProxy();
      }
      reconnectRaw();
    }

    [[nodiscard]] RedisServer& server() { return servers_.server(); }
    [[nodiscard]] bool running() { return serversAreShared() || server().running(); }
    [[nodiscard]] TcpProxy& proxy() {
      if (!proxy_) {
        endForTopology("breaks the connections of one member");
      }
      return *proxy_;
    }
    [[nodiscard]] std::string uri() const {
      return proxy_ ? servers_.uriThrough(*proxy_) : servers_.uri();
    }
    void reconnectRaw() { raw = std::make_unique<RawRedis>(servers_.raw()); }

    std::unique_ptr<RawRedis> raw;
    std::unique_ptr<Client> client;

   private:
    TestServers servers_;
    std::unique_ptr<TcpProxy> proxy_;
  };

  /// Starts them; node(i) and its client are there afterwards.
  /// @param watchdog  of these clients and otherLocks(). The default is so long that what is gone
  ///                  was released, and has not expired.
  void startNodes(std::size_t count,
                  std::chrono::milliseconds watchdog = kLongWatchdog,
                  std::chrono::milliseconds commandTimeout = std::chrono::milliseconds(500)) {
    watchdog_ = watchdog;
    commandTimeout_ = commandTimeout;
    for (std::size_t i = 0; i < count; ++i) {
      nodes_.push_back(std::make_unique<Node>(serverOptions()));
      nodes_.back()->client = std::make_unique<Client>(Client::connect(alert(*nodes_.back())));
    }
  }

  [[nodiscard]] Node& node(std::size_t i) { return *nodes_[i]; }
  [[nodiscard]] std::size_t nodeCount() const { return nodes_.size(); }

  /// Through the proxy, with limits that notice a dead peer soon.
  [[nodiscard]] Options alert(Node& node) {
    Options options = tuned(node.uri(), watchdog_);
    options.commandTimeout = commandTimeout_;
    options.connectTimeout = 500ms;
    options.heartbeatInterval = 200ms;
    options.reconnectDelayMax = 100ms;
    options.logLevel = LogLevel::debug;
    return options;
  }

  /// The name of a member's lock on its server.
  [[nodiscard]] static std::string memberName(std::size_t i, const std::string& name) {
    return serversAreShared() && i > 0 ? name + "-" + std::to_string(i) : name;
  }
  /// One on every node.
  [[nodiscard]] std::vector<RLock> locks(const std::string& name) {
    std::vector<RLock> result;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      result.push_back(node(i).client->getLock(memberName(i, name)));
    }
    return result;
  }
  /// As other programs: a client of its own for each node.
  [[nodiscard]] std::vector<RLock> otherLocks(
      const std::string& name, std::optional<std::chrono::milliseconds> outageTimeout = {}) {
    std::vector<RLock> result;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      Options settings = alert(node(i));
      settings.outageTimeout = outageTimeout.value_or(settings.outageTimeout);
      others_.push_back(std::make_unique<Client>(Client::connect(settings)));
      result.push_back(others_.back()->getLock(memberName(i, name)));
    }
    return result;
  }

  void stopNode(std::size_t i) {
    node(i).server().kill();
    node(i).proxy().cutAll();
  }
  void restartNode(std::size_t i) {
    node(i).server().start();
    node(i).reconnectRaw();
  }

  [[nodiscard]] bool existsOn(std::size_t i, const std::string& name) {
    return node(i).raw->exists(memberName(i, name));
  }
  /// The hold there outlives the test unless it is released.
  void outlives(std::size_t i, const std::string& name) {
    node(i).raw->run({"PEXPIRE", memberName(i, name), "600000"});
  }
  [[nodiscard]] std::size_t countWith(const std::string& name) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < nodeCount(); ++i) {
      count += static_cast<std::size_t>(node(i).running() && existsOn(i, name));
    }
    return count;
  }

 private:
  std::chrono::milliseconds watchdog_ = kLongWatchdog;
  std::chrono::milliseconds commandTimeout_{500};
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Client>> others_;
};

/// The same by each of the four faces.
class GroupFaceTest : public GroupTest, public ::testing::WithParamInterface<Face> {
 protected:
  [[nodiscard]] static FaceLock by(RLock lock) { return {GetParam(), std::move(lock)}; }
};

}  // namespace rlock::test
