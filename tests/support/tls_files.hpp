// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rlock::test {

/// Files in PEM, for servers that have a port with TLS beside the plain one.
struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string ca;

  /// Words of the command line of redis-server.
  [[nodiscard]] std::vector<std::string> arguments(std::uint16_t port) const {
    return {"--tls-port",
            std::to_string(port),
            "--tls-cert-file",
            certificate,
            "--tls-key-file",
            key,
            "--tls-ca-cert-file",
            ca,
            "--tls-auth-clients",
            "no"};
  }
};

}  // namespace rlock::test
