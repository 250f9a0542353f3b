// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/temp_dir.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace rlock::test {

/// Files in PEM.
struct CertificateFiles {
  std::string certificate;
  std::string key;
};

struct CertificateSpec {
  std::string commonName = "server";
  /// As in `subjectAltName` of OpenSSL's configuration; empty: none.
  std::string names = "DNS:localhost,IP:127.0.0.1";
  /// When it begins and ends to be valid, from now.
  std::chrono::seconds from = std::chrono::hours(-24);
  std::chrono::seconds until = std::chrono::hours(24);
  bool selfSigned = false;
  /// Encrypts the key.
  std::string keyPassword{};
};

/// A certificate authority of a test's own. Its files live as long as it does.
class TestCa {
 public:
  explicit TestCa(std::string name = "rlock test CA");
  TestCa(const TestCa&) = delete;
  TestCa& operator=(const TestCa&) = delete;
  ~TestCa();

  /// Its own certificate.
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const TempDir& directory() const { return directory_; }
  [[nodiscard]] CertificateFiles issue(const CertificateSpec& spec = {});

 private:
  struct Impl;

  TempDir directory_{"rlock-tls"};
  std::string file_;
  int issued_ = 0;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rlock::test
