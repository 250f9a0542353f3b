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

/// Several servers, each behind a proxy, and one client for each.
class GroupTest : public LockTest {
 protected:
  struct Node {
    explicit Node(const RedisServerOptions& options)
        : server(options), raw(std::make_unique<RawRedis>(server)), proxy(server) {}

    RedisServer server;
    std::unique_ptr<RawRedis> raw;
    TcpProxy proxy;
    std::unique_ptr<Client> client;
  };

  /// Starts them; node(i) and its client are there afterwards.
  /// @param watchdog  of these clients and otherLocks(). The default is so long that what is gone
  ///                  was released, and has not expired.
  void startNodes(std::size_t count, std::chrono::milliseconds watchdog = kLongWatchdog) {
    watchdog_ = watchdog;
    for (std::size_t i = 0; i < count; ++i) {
      nodes_.push_back(std::make_unique<Node>(serverOptions()));
      nodes_.back()->client = std::make_unique<Client>(Client::connect(alert(*nodes_.back())));
    }
  }

  [[nodiscard]] Node& node(std::size_t i) { return *nodes_[i]; }
  [[nodiscard]] std::size_t nodeCount() const { return nodes_.size(); }

  /// Through the proxy, with limits that notice a dead peer soon.
  [[nodiscard]] Options alert(Node& node) {
    Options options = tuned(node.proxy.uri(), watchdog_);
    options.commandTimeout = 500ms;
    options.connectTimeout = 500ms;
    options.heartbeatInterval = 200ms;
    options.reconnectDelayMax = 100ms;
    options.logLevel = LogLevel::debug;
    return options;
  }

  /// The same name on every node.
  [[nodiscard]] std::vector<RLock> locks(const std::string& name) {
    std::vector<RLock> result;
    for (const auto& each : nodes_) {
      result.push_back(each->client->getLock(name));
    }
    return result;
  }
  /// As other programs: a client of its own for each node.
  [[nodiscard]] std::vector<RLock> otherLocks(
      const std::string& name, std::optional<std::chrono::milliseconds> outageTimeout = {}) {
    std::vector<RLock> result;
    for (const auto& each : nodes_) {
      Options settings = alert(*each);
      settings.outageTimeout = outageTimeout.value_or(settings.outageTimeout);
      others_.push_back(std::make_unique<Client>(Client::connect(settings)));
      result.push_back(others_.back()->getLock(name));
    }
    return result;
  }

  void stopNode(std::size_t i) {
    node(i).server.kill();
    node(i).proxy.cutAll();
  }
  void restartNode(std::size_t i) {
    node(i).server.start();
    node(i).raw = std::make_unique<RawRedis>(node(i).server);
  }

  [[nodiscard]] bool existsOn(std::size_t i, const std::string& name) {
    return node(i).raw->exists(name);
  }
  /// What is held there outlives the test unless it is released.
  void outlives(std::size_t i, const std::string& name) {
    node(i).raw->run({"PEXPIRE", name, "600000"});
  }
  [[nodiscard]] std::size_t countWith(const std::string& name) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < nodeCount(); ++i) {
      count += static_cast<std::size_t>(node(i).server.running() && existsOn(i, name));
    }
    return count;
  }

 private:
  std::chrono::milliseconds watchdog_ = kLongWatchdog;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Client>> others_;
};

/// The same by each of the four faces.
class GroupFaceTest : public GroupTest, public ::testing::WithParamInterface<Face> {
 protected:
  [[nodiscard]] static FaceLock by(RLock lock) { return {GetParam(), std::move(lock)}; }
};

}  // namespace rlock::test
