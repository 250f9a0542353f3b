// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/free_port.hpp"
#include "support/redis_server.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_dir.hpp"
#include "support/tls_files.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace rlock::test {

struct RedisSentinelsOptions {
  int replicas = 1;
  int sentinels = 3;
  std::string masterName = "mymaster";
  std::string password;          ///< of the default user of the servers; empty: none
  std::string sentinelPassword;  ///< of that of the Sentinels; empty: none
  bool persistence = false;      ///< as RedisServerOptions::persistence
  /// Each server has a proxy, and everybody but itself knows it by the address of that.
  bool proxied = false;
  std::optional<TlsFiles> tls{};  ///< each Sentinel has a port with TLS, too
  std::chrono::milliseconds downAfter{500};
  std::chrono::milliseconds failoverTimeout{3000};
};

/// One Sentinel: a redis-server started as such, with a folder of its own. It keeps its port and
/// what it has learnt over kill() and start(). One thread at a time. Ended by its process id in the
/// destructor.
class RedisSentinel {
 public:
  /// @param config  lines, without port and folder
  RedisSentinel(PortReservation port, std::string config, std::string password);
  RedisSentinel(const RedisSentinel&) = delete;
  RedisSentinel& operator=(const RedisSentinel&) = delete;
  ~RedisSentinel();

  [[nodiscard]] std::uint16_t port() const { return port_.port(); }
  /// SIGKILL; returns when the process is gone.
  void kill();
  /// Throws std::runtime_error when it does not answer in time.
  void start();
  /// SIGSTOP and SIGCONT.
  void freeze();
  void thaw();
  [[nodiscard]] bool running() const { return pid_ > 0; }
  [[nodiscard]] std::string log() const;

 private:
  PortReservation port_;
  const std::string password_;
  TempDir directory_;
  pid_t pid_ = -1;
  pid_t owner_;
};

/// A master, its replicas, and Sentinels with a quorum of more than half of them, on loopback
/// ports. The Sentinels know one another from the beginning and look more often than they usually
/// do, so that a failover takes two to three seconds. Not thread-safe.
class RedisSentinels {
 public:
  using Options = RedisSentinelsOptions;

  /// Returns when the replicas are in sync and every Sentinel knows all the others.
  RedisSentinels();
  explicit RedisSentinels(Options options);

  /// The first one is the master at the beginning.
  [[nodiscard]] std::size_t nodes() const { return nodes_.size(); }
  [[nodiscard]] RedisServer& node(std::size_t index) { return *nodes_.at(index); }
  /// With Options::proxied.
  [[nodiscard]] TcpProxy& proxy(std::size_t index) { return *proxies_.at(index); }
  /// By which the Sentinels know a node, `127.0.0.1:port`.
  [[nodiscard]] std::string address(std::size_t index) const;
  [[nodiscard]] std::size_t sentinels() const { return sentinels_.size(); }
  [[nodiscard]] RedisSentinel& sentinel(std::size_t index) { return *sentinels_.at(index); }
  /// `redis+sentinel://[:password@]127.0.0.1:port,.../master`, with the Sentinels' password.
  [[nodiscard]] std::string uri() const;
  /// The same with the Sentinels' ports for TLS.
  [[nodiscard]] std::string tlsUri() const;

  /// Has the Sentinels move the master to a replica; returns which it is when that is done.
  std::size_t failover();
  /// Waits until a majority of the Sentinels names a node that is a master, and not `before`.
  /// Throws std::runtime_error when that takes too long.
  std::size_t awaitMaster(std::optional<std::size_t> before = {});
  /// Waits until all nodes but the master are replicas in sync with it, and all Sentinels know
  /// that.
  void awaitSettled();
  /// The output of the Sentinels, for messages.
  [[nodiscard]] std::string log() const;

 private:
  [[nodiscard]] std::uint16_t portOf(std::size_t index) const;
  [[nodiscard]] std::optional<std::size_t> masterNow();
  [[nodiscard]] bool settled();
  void makeNodes();
  void makeSentinels();

  const Options options_;
  std::vector<std::unique_ptr<RedisServer>> nodes_;
  std::vector<std::unique_ptr<TcpProxy>> proxies_;
  std::vector<std::unique_ptr<RedisSentinel>> sentinels_;
  std::vector<std::unique_ptr<PortReservation>> tlsPorts_;
};

}  // namespace rlock::test
