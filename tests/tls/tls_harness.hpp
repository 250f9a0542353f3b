// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integration/lock_harness.hpp"
#include "support/free_port.hpp"
#include "tls/certificates.hpp"
#include "tls/tls_front.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::test {

/// A redis-server with a port for TLS beside the plain one, and a certificate authority.
class TlsTest : public LockTest {
 protected:
  [[nodiscard]] TestCa& ca() { return ca_; }
  [[nodiscard]] std::uint16_t tlsPort() const { return tlsPort_.port(); }
  /// The one of redis-server.
  [[nodiscard]] const CertificateFiles& certificate() const { return certificate_; }

  /// Arguments for redis-server besides those for its certificate.
  virtual std::vector<std::string> tlsArguments() { return {"--tls-auth-clients", "no"}; }
  RedisServerOptions serverOptions() override {
    RedisServerOptions options;
    options.extraArgs = {"--tls-port",
                         std::to_string(tlsPort()),
                         "--tls-cert-file",
                         certificate_.certificate,
                         "--tls-key-file",
                         certificate_.key,
                         "--tls-ca-cert-file",
                         ca_.file()};
    for (const std::string& argument : tlsArguments()) {
      options.extraArgs.push_back(argument);
    }
    return options;
  }

  [[nodiscard]] std::string uriOf(std::uint16_t port,
                                  std::string_view more = "",
                                  std::string_view host = "127.0.0.1") const {
    return "rediss://" + std::string(host) + ":" + std::to_string(port) +
           "?tls-ca-file=" + ca_.file() + std::string(more);
  }
  [[nodiscard]] Client connectTo(const std::string& uri,
                                 std::chrono::milliseconds watchdog = kLongWatchdog) {
    return Client::connect(tuned(uri, watchdog));
  }
  [[nodiscard]] Client connectTls(std::chrono::milliseconds watchdog = kLongWatchdog) {
    return connectTo(uriOf(tlsPort()), watchdog);
  }

  /// Why connecting fails.
  [[nodiscard]] Error refusalOf(const std::string& uri) {
    try {
      const Client client = connectTo(uri);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "connected: " << uri;
    return Error(Errc::notOwner);
  }
  void expectRefused(const std::string& uri, Errc errc, const std::vector<std::string>& said) {
    const Error error = refusalOf(uri);
    EXPECT_EQ(error.errc(), errc) << error.what();
    for (const std::string& text : said) {
      EXPECT_NE(std::string_view(error.what()).find(text), std::string_view::npos)
          << "\"" << text << "\" is missing: " << error.what();
    }
  }
  /// Takes a lock and gives it back.
  static void use(Client& client, const std::string& name = "used") {
    RLock lock = client.getLock(name);
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  }

  [[nodiscard]] std::unique_ptr<TlsFront> front(TlsFrontOptions options = {}) {
    if (options.certificate.certificate.empty()) {
      options.certificate = ca_.issue();
    }
    return std::make_unique<TlsFront>(server().port(), std::move(options));
  }

 private:
  TestCa ca_;
  CertificateFiles certificate_ = ca_.issue();
  PortReservation tlsPort_;
};

}  // namespace rlock::test
