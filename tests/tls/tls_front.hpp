// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tls/certificates.hpp"

#include <openssl/ssl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rlock::test {

struct TlsFrontOptions {
  CertificateFiles certificate{};
  /// The certificates of clients that are demanded; empty: none is.
  std::string clientCa{};
  /// Plain bytes in a record to the client.
  std::size_t recordSize = 16384;
  /// Bytes of the client's after which a connection is closed, handshake included; 0: never.
  std::size_t cutAfter = 0;
  /// Asks for new keys, and for the client's, after so many bytes to the client; 0: never.
  std::size_t updateKeysEvery = 0;
  int receiveBuffer = 0;      ///< of its sockets to clients; 0: the kernel's own
  int highestVersion = 0;     ///< TLS1_2_VERSION and so on; 0: what OpenSSL has
  bool namesSessions = true;  ///< sessions belong to it by name, as OpenSSL wants it of servers
};

/// Speaks TLS with clients and passes their bytes on to a plain server on loopback, with the
/// peculiarities of other servers. Each connection has a thread of its own.
class TlsFront {
 public:
  TlsFront(std::uint16_t server, TlsFrontOptions options);
  TlsFront(const TlsFront&) = delete;
  TlsFront& operator=(const TlsFront&) = delete;
  ~TlsFront();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] int accepted() const noexcept { return accepted_; }
  [[nodiscard]] int established() const noexcept { return established_; }
  /// Connections whose client resumed a session.
  [[nodiscard]] int resumed() const noexcept { return resumed_; }
  /// Connections that the client has ended as TLS demands it.
  [[nodiscard]] int goodbyes() const noexcept { return goodbyes_; }
  /// The names that clients have asked for, in their order; empty: none.
  [[nodiscard]] std::vector<std::string> names() const;
  /// From now on clients are asked for certificates, and need none. Without a name for sessions
  /// those of before are refused then, with an alert that ends the handshake.
  void askForCertificates();
  /// Closes all connections.
  void cut();

 private:
  void accept();
  void serve(int client);
  void pump(SSL* ssl, int client, int server);

  const std::uint16_t server_;
  const TlsFrontOptions options_;
  SSL_CTX* context_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> accepted_{0};
  std::atomic<int> established_{0};
  std::atomic<int> resumed_{0};
  std::atomic<int> goodbyes_{0};
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
  std::list<int> open_;
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace rlock::test
