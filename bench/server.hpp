// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/options.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

struct redisContext;
struct redisReply;

namespace rlock::bench {

enum class ServerKind {
  alone,
  node,  ///< of a cluster, with another port for the other nodes; it needs Redis 7.0
};

/// A redis-server for this benchmark alone, on a loopback port and without persistence, and on
/// another port with TLS if there is an openssl command to make a certificate with. The kernel ends
/// it with this process.
class OwnServer {
 public:
  explicit OwnServer(const std::string& program);
  /// As those of the other modes, without a port for TLS.
  /// @param settings  more words of the command line
  OwnServer(const std::string& program,
            std::vector<std::string> settings,
            ServerKind kind = ServerKind::alone);
  OwnServer(const OwnServer&) = delete;
  OwnServer& operator=(const OwnServer&) = delete;
  ~OwnServer();

  [[nodiscard]] std::string uri() const;
  /// Empty without TLS.
  [[nodiscard]] std::string tlsUri() const;
  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Of a node: where the other nodes connect to.
  [[nodiscard]] std::uint16_t busPort() const { return secondPort_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  void makeDirectory();
  void makeCertificate();
  void startSomewhere(const std::string& program);
  bool start(const std::string& program, std::uint16_t port, std::uint16_t secondPort);
  void endProcess();
  void end();

  std::filesystem::path directory_;
  std::vector<std::string> settings_;
  ServerKind kind_ = ServerKind::alone;
  std::uint16_t port_ = 0;
  std::uint16_t secondPort_ = 0;  ///< with TLS, or for the other nodes
  bool hasCertificate_ = false;
  pid_t pid_ = -1;
};

struct ReplyDeleter {
  void operator()(redisReply* reply) const noexcept;
};
using ReplyPtr = std::unique_ptr<redisReply, ReplyDeleter>;

/// A blocking hiredis connection: what a service without rlock would use. Errors are exceptions.
class Connection {
 public:
  explicit Connection(const Options& options);

  ReplyPtr command(const std::vector<std::string_view>& words);
  /// Writes a command at once and reads its reply together with the next command's.
  void sendOnly(const std::vector<std::string_view>& words);
  /// Waits for what the server sends on its own account.
  ReplyPtr receive();

  std::string loadScript(std::string_view text);
  /// One field of INFO; empty when there is none.
  std::string info(std::string_view section, std::string_view field);
  [[nodiscard]] int descriptor() const;

 private:
  struct Deleter {
    void operator()(redisContext* context) const noexcept;
  };

  void append(const std::vector<std::string_view>& words);
  ReplyPtr next();

  std::unique_ptr<redisContext, Deleter> context_;
  int owed_ = 0;
};

}  // namespace rlock::bench
