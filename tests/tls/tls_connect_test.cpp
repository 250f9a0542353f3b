// SPDX-License-Identifier: Apache-2.0

// Connecting over TLS: the servers that are trusted, the ones that are not, and what is said of
// them.

#include "tls/tls_harness.hpp"

#include <gtest/gtest.h>
#include <openssl/pem.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rlock::test {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

struct Listener {
  Listener() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd, 8), 0);
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { ::close(fd); }

  int fd;
  std::uint16_t port = 0;
};

/// Answers whoever comes, before it is asked.
class TalkativeServer {
 public:
  TalkativeServer() : thread_([this] { run(); }) {}
  TalkativeServer(const TalkativeServer&) = delete;
  TalkativeServer& operator=(const TalkativeServer&) = delete;
  ~TalkativeServer() {
    ::shutdown(listener_.fd, SHUT_RDWR);
    thread_.join();
  }
  [[nodiscard]] std::uint16_t port() const { return listener_.port; }

 private:
  void run() const {
    int client = -1;
    while ((client = ::accept4(listener_.fd, nullptr, nullptr, SOCK_CLOEXEC)) >= 0) {
      constexpr std::string_view kAnswer = "-ERR what is that?\r\n";
      ::send(client, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
      std::array<char, 4096> buffer;
      while (::recv(client, buffer.data(), buffer.size(), 0) > 0) {
      }
      ::close(client);
    }
  }

  const Listener listener_;
  std::thread thread_;
};

/// Passes bytes to and from a port and closes after so many of the server's.
class CuttingRelay {
 public:
  CuttingRelay(std::uint16_t target, std::size_t bytes) : target_(target), left_(bytes) {
    thread_ = std::thread([this] { run(); });
  }
  CuttingRelay(const CuttingRelay&) = delete;
  CuttingRelay& operator=(const CuttingRelay&) = delete;
  ~CuttingRelay() {
    ::shutdown(listener_.fd, SHUT_RDWR);
    thread_.join();
  }
  [[nodiscard]] std::uint16_t port() const { return listener_.port; }

 private:
  void run() {
    int client = -1;
    while ((client = ::accept4(listener_.fd, nullptr, nullptr, SOCK_CLOEXEC)) >= 0) {
      const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = loopback(target_);
      ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
      std::size_t left = left_;
      std::array<char, 4096> buffer;
      for (bool open = true; open && left > 0;) {
        std::array<pollfd, 2> fds{pollfd{client, POLLIN, 0}, pollfd{server, POLLIN, 0}};
        ::poll(fds.data(), fds.size(), -1);
        if (fds[0].revents != 0) {
          const ssize_t count = ::recv(client, buffer.data(), buffer.size(), 0);
          open = count > 0 &&
                 ::send(server, buffer.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL) > 0;
        }
        if (open && fds[1].revents != 0) {
          const ssize_t count = ::recv(server, buffer.data(), std::min(left, buffer.size()), 0);
          open = count > 0 &&
                 ::send(client, buffer.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL) > 0;
          left -= count > 0 ? static_cast<std::size_t>(count) : 0;
        }
      }
      ::close(server);
      ::close(client);
    }
  }

  const std::uint16_t target_;
  const std::size_t left_;
  const Listener listener_;
  std::thread thread_;
};

class TlsConnect : public TlsTest {};

TEST_F(TlsConnect, AServerThatProvesItsNameOrAddress) {
  const auto front = this->front();
  for (const char* host : {"localhost", "127.0.0.1"}) {
    Client client = connectTo(uriOf(front->port(), "", host));
    use(client);
  }
  // The name is told to the server, an address is not.
  EXPECT_EQ(front->names(), (std::vector<std::string>{"localhost", ""}));
  Client client = connectTls();
  use(client);
}

TEST_F(TlsConnect, ANameOfItsOwnToProve) {
  const auto front = this->front({.certificate = ca().issue({.names = "DNS:redis.internal"})});
  Client client = connectTo(uriOf(front->port(), "&tls-server-name=redis.internal"));
  use(client);
  EXPECT_EQ(front->names(), (std::vector<std::string>{"redis.internal"}));
  const auto wild = this->front({.certificate = ca().issue({.names = "DNS:*.redis.internal"})});
  Client other = connectTo(uriOf(wild->port(), "&tls-server-name=a.redis.internal"));
  use(other);
  expectRefused(uriOf(wild->port(), "&tls-server-name=b.a.redis.internal"),
                Errc::authenticationFailed,
                {"not for \"b.a.redis.internal\", but for *.redis.internal"});
}

TEST_F(TlsConnect, APartOfANameMatchesNoCertificate) {
  const auto front = this->front({.certificate = ca().issue({.names = "DNS:a*.redis.internal"})});
  expectRefused(uriOf(front->port(), "&tls-server-name=ab.redis.internal"),
                Errc::authenticationFailed,
                {"not for \"ab.redis.internal\", but for a*.redis.internal"});
}

TEST_F(TlsConnect, TheDotThatMakesANameCompleteIsNotProved) {
  const auto front = this->front({.certificate = ca().issue({.names = "DNS:redis.internal"})});
  Client client = connectTo(uriOf(front->port(), "&tls-server-name=redis.internal."));
  use(client);
  EXPECT_EQ(front->names(), (std::vector<std::string>{"redis.internal"}));
}

TEST_F(TlsConnect, AServerWhoseCertificateNamesOnlyItsSubject) {
  const auto front =
      this->front({.certificate = ca().issue({.commonName = "localhost", .names = ""})});
  Client client = connectTo(uriOf(front->port(), "", "localhost"));
  use(client);
  expectRefused(uriOf(front->port()), Errc::authenticationFailed, {"\"127.0.0.1\""});
}

TEST_F(TlsConnect, AWrongCertificateNeverConnects) {
  struct Case {
    CertificateSpec spec;
    const char* host;
    std::vector<std::string> said;
  };
  const TestCa other("another CA");
  const std::vector<Case> cases{
      {{.names = "DNS:other.example,IP:10.9.8.7"},
       "localhost",
       {"it is not for \"localhost\", but for other.example, 10.9.8.7", "CN=server"}},
      {{.names = "DNS:localhost"}, "127.0.0.1", {"it is not for \"127.0.0.1\", but for localhost"}},
      {{.names = "IP:127.0.0.2"}, "127.0.0.1", {"it is not for \"127.0.0.1\", but for 127.0.0.2"}},
      // A name that looks like an address is none.
      {{.names = "DNS:127.0.0.1"}, "127.0.0.1", {"it is not for \"127.0.0.1\""}},
      {{.commonName = "localhost", .names = "DNS:other.example"}, "localhost", {"it is not for"}},
      {{.from = std::chrono::hours(-48), .until = std::chrono::hours(-24)},
       "127.0.0.1",
       {"it has expired", "valid from"}},
      {{.from = std::chrono::hours(24), .until = std::chrono::hours(48)},
       "127.0.0.1",
       {"it is not yet valid"}},
      {{.commonName = "by itself", .selfSigned = true},
       "127.0.0.1",
       {"it is self-signed", "tlsCaFile " + ca().file(), "CN=by itself"}},
      {{.commonName = "evil\n[error] \x1b[31m", .names = "DNS:x"}, "127.0.0.1", {"not for"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.said.front());
    const auto front = this->front({.certificate = ca().issue(each.spec)});
    std::vector<std::string> said = each.said;
    said.emplace_back("the server's certificate is not accepted");
    said.push_back(std::string(each.host) + ":" + std::to_string(front->port()));
    const Error error = refusalOf(uriOf(front->port(), "", each.host));
    EXPECT_EQ(error.errc(), Errc::authenticationFailed) << error.what();
    for (const std::string& text : said) {
      EXPECT_NE(std::string_view(error.what()).find(text), std::string_view::npos)
          << text << " is missing: " << error.what();
    }
    EXPECT_EQ(std::string_view(error.what()).find_first_of("\n\x1b"), std::string_view::npos);
    // The server has not got so far as to hear a password.
    EXPECT_EQ(front->established(), 0);
  }
}

TEST_F(TlsConnect, AnIssuerThatNobodyTrusts) {
  TestCa other("another CA");
  const auto front = this->front({.certificate = other.issue()});
  expectRefused(uriOf(front->port()),
                Errc::authenticationFailed,
                {"its issuer is not among those that are trusted", ca().file(), "CN=another CA"});
  // Nor does the system trust it.
  ::unsetenv("SSL_CERT_FILE");
  expectRefused("rediss://127.0.0.1:" + std::to_string(front->port()),
                Errc::authenticationFailed,
                {"those of this system"});
  // Which it does once it is told to.
  ::setenv("SSL_CERT_FILE", other.file().c_str(), 1);
  Client client = connectTo("rediss://127.0.0.1:" + std::to_string(front->port()));
  use(client);
  ::unsetenv("SSL_CERT_FILE");
}

TEST_F(TlsConnect, WhatATrustedFileContainsIsTrustedAsItStands) {
  const CertificateFiles own = ca().issue({.commonName = "by itself", .selfSigned = true});
  const CertificateFiles issued = ca().issue();
  for (const CertificateFiles& files : {own, issued}) {
    const auto front = this->front({.certificate = files});
    Client client = connectTo("rediss://127.0.0.1:" + std::to_string(front->port()) +
                              "?tls-ca-file=" + files.certificate);
    use(client);
  }
}

TEST_F(TlsConnect, ADirectoryOfTrustedFiles) {
  const TempDir directory("rlock-ca");
  const auto front = this->front();
  const std::string uri = "rediss://127.0.0.1:" + std::to_string(front->port()) +
                          "?tls-ca-path=" + directory.path().string();
  expectRefused(uri, Errc::authenticationFailed, {"openssl rehash", directory.path().string()});
  std::FILE* const file = std::fopen(ca().file().c_str(), "re");
  ASSERT_NE(file, nullptr);
  X509* const certificate = PEM_read_X509(file, nullptr, nullptr, nullptr);
  std::fclose(file);
  char name[16];
  std::snprintf(name, sizeof(name), "%08lx.0", X509_subject_name_hash(certificate));
  X509_free(certificate);
  std::filesystem::copy_file(ca().file(), directory.path() / name);
  Client client = connectTo(uri);
  use(client);
}

TEST_F(TlsConnect, RevokedByAnotherAuthority) {
  // The server changes to a certificate that this client has no reason to trust.
  Options settings = tuned(uriOf(tlsPort()));
  settings.callTimeout = 2s;
  Client client = Client::connect(settings);
  use(client);
  TestCa other("another CA");
  const CertificateFiles changed = other.issue();
  raw().run({"CONFIG",
             "SET",
             "tls-cert-file",
             changed.certificate,
             "tls-key-file",
             changed.key,
             "tls-ca-cert-file",
             other.file()});
  raw().command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  EXPECT_EVENTUALLY(kLong, log().contains("another CA"));
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(client.getLock("l").tryLock()); }),
            "authenticationFailed");
  // The authority's file changes: what it listed before counts no more for a new client.
  const auto front = this->front();
  {
    Client before = connectTo(uriOf(front->port()));
    use(before);
  }
  std::filesystem::copy_file(
      other.file(), ca().file(), std::filesystem::copy_options::overwrite_existing);
  expectRefused(uriOf(front->port()), Errc::authenticationFailed, {"its issuer is not among"});
  Client after = connectTls();
  use(after);
}

TEST_F(TlsConnect, APortWithoutTls) {
  // Redis waits for more of what is no command to it.
  expectRefused(uriOf(server().port(), "&connect-timeout=1s"),
                Errc::connectionFailed,
                {"TLS handshake", "write redis:// before its address"});
  const TalkativeServer talkative;
  expectRefused(uriOf(talkative.port()),
                Errc::protocolError,
                {"speaks no TLS", "write redis:// before its address"});
}

TEST_F(TlsConnect, APlainClientIsToldOfAPortForTls) {
  const Error error = refusalOf("redis://127.0.0.1:" + std::to_string(tlsPort()));
  EXPECT_NE(std::string_view(error.what()).find("write rediss:// before its address"),
            std::string_view::npos)
      << error.what();
}

TEST_F(TlsConnect, VersionsBefore12AreNotSpoken) {
  const auto old = front({.highestVersion = TLS1_1_VERSION});
  expectRefused(uriOf(old->port()), Errc::protocolError, {"no version of TLS in common", "1.2"});
  const auto elder = front({.highestVersion = TLS1_2_VERSION});
  Client client = connectTo(uriOf(elder->port()));
  use(client);
  EXPECT_TRUE(log().contains("TLSv1.2"));
}

TEST_F(TlsConnect, CutInTheHandshake) {
  for (const std::size_t bytes : {1U, 100U}) {
    const auto front = this->front({.cutAfter = bytes});
    expectRefused(uriOf(front->port()),
                  Errc::connectionFailed,
                  {"closed the connection in the TLS handshake"});
  }
  for (const std::size_t bytes : {1U, 5U, 6U, 60U, 127U, 300U, 600U}) {
    const CuttingRelay relay(tlsPort(), bytes);
    expectRefused(uriOf(relay.port()),
                  Errc::connectionFailed,
                  {"closed the connection in the TLS handshake"});
  }
}

TEST_F(TlsConnect, SessionsAreResumed) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    SCOPED_TRACE(version == TLS1_2_VERSION ? "TLS 1.2" : "TLS 1.3");
    const auto front = this->front({.highestVersion = version});
    Client client = connectTo(uriOf(front->port()));
    use(client);
    EXPECT_EQ(front->resumed(), 0);
    for (int round = 1; round <= 3; ++round) {
      front->cut();
      ASSERT_EVENTUALLY(kLong, front->established() >= round + 1);
      use(client);
      // A connection that the client gave up, because the machine stood still in its handshake, has
      // used its session up.
      const int givenUp = front->accepted() - (round + 1);
      EXPECT_GE(front->resumed(), round - givenUp);
    }
    EXPECT_GT(front->resumed(), 0);
  }
  EXPECT_TRUE(log().contains("resumed session"));
  // And with Redis.
  log().clear();
  Client client = connectTls();
  use(client);
  EXPECT_TRUE(log().contains("new session"));
  raw().command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  EXPECT_TRUE(log().waitFor("resumed session", kLong));
  use(client);
}

TEST_F(TlsConnect, ASessionThatIsRefusedIsNotOfferedAgain) {
  const auto front = this->front({.highestVersion = TLS1_2_VERSION, .namesSessions = false});
  Client client = connectTo(uriOf(front->port()));
  use(client);
  // The connection for messages comes a moment after that for commands.
  ASSERT_EVENTUALLY(kLong, front->accepted() == front->established());
  const int established = front->established();
  const int accepted = front->accepted();
  front->askForCertificates();
  front->cut();
  // One with the session of before was refused, and one without it was not.
  ASSERT_EVENTUALLY(kLong,
                    front->established() > established &&
                        front->accepted() - accepted > front->established() - established);
  use(client);
}

TEST_F(TlsConnect, ASessionEndsWithTheCertificateThatBeganIt) {
  const auto valid = std::chrono::duration_cast<std::chrono::seconds>(scaled(4s));
  const auto front = this->front({.certificate = ca().issue({.until = valid})});
  // Certificates count in whole seconds.
  const auto expired = std::chrono::system_clock::now() + valid + 1s;
  Options settings = tuned(uriOf(front->port()));
  settings.callTimeout = 2s;
  Client client = Client::connect(settings);
  use(client);
  ASSERT_EVENTUALLY(kLong, std::chrono::system_clock::now() > expired);
  front->cut();
  EXPECT_EVENTUALLY(kLong, log().contains("it has expired") || front->resumed() > 0);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(client.getLock("l").tryLock()); }),
            "authenticationFailed");
  EXPECT_EQ(front->resumed(), 0);
  EXPECT_EQ(front->established(), 1);
}

TEST_F(TlsConnect, AnOrderlyEndIsSaid) {
  const auto front = this->front();
  {
    Client client = connectTo(uriOf(front->port()));
    use(client);
  }
  EXPECT_EVENTUALLY(kLong, front->goodbyes() == 1);
}

TEST_F(TlsConnect, AChildSaysNothing) {
  const auto front = this->front();
  auto client = std::make_unique<Client>(connectTo(uriOf(front->port())));
  use(*client);
  const pid_t child = ::fork();
  if (child == 0) {
    client.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  use(*client);
  EXPECT_EQ(front->accepted(), 1);
  EXPECT_EQ(front->goodbyes(), 0);
}

class TlsClientCertificate : public TlsTest {
 protected:
  std::vector<std::string> tlsArguments() override { return {"--tls-auth-clients", "yes"}; }
};

TEST_F(TlsClientCertificate, IsShownToAServerThatWantsOne) {
  const CertificateFiles own = ca().issue({.commonName = "client", .names = ""});
  Client client =
      connectTo(uriOf(tlsPort(), "&tls-cert-file=" + own.certificate + "&tls-key-file=" + own.key));
  use(client);
  // Both in one file.
  const std::string both = ca().directory().file("both.pem");
  std::ofstream(both) << std::ifstream(own.certificate).rdbuf() << std::ifstream(own.key).rdbuf();
  Client other = connectTo(uriOf(tlsPort(), "&tls-cert-file=" + both));
  use(other);
  const CertificateFiles secret = ca().issue({.names = "", .keyPassword = "Tr0ub4dor"});
  Client third =
      connectTo(uriOf(tlsPort(),
                      "&tls-cert-file=" + secret.certificate + "&tls-key-file=" + secret.key +
                          "&tls-key-password=Tr0ub4dor"));
  use(third);
}

TEST_F(TlsClientCertificate, IsMissedOrRefused) {
  TestCa other("another CA");
  const CertificateFiles foreign = other.issue();
  const std::string shown =
      "&tls-cert-file=" + foreign.certificate + "&tls-key-file=" + foreign.key;
  for (const int version : {0, TLS1_2_VERSION}) {
    const auto front = this->front({.clientCa = ca().file(), .highestVersion = version});
    const Error missing = refusalOf(uriOf(front->port()));
    EXPECT_NE(std::string_view(missing.what()).find("tlsCertFile"), std::string_view::npos)
        << missing.what();
    expectRefused(uriOf(front->port(), shown),
                  Errc::authenticationFailed,
                  {"does not accept the client's certificate"});
  }
  expectRefused(
      uriOf(tlsPort()), Errc::authenticationFailed, {"wants a certificate", "tlsCertFile"});
  expectRefused(uriOf(tlsPort(), shown),
                Errc::authenticationFailed,
                {"does not accept the client's certificate"});
}

TEST_F(TlsClientCertificate, FilesThatCannotBeUsedAreNamed) {
  const CertificateFiles own = ca().issue({.names = "", .keyPassword = "Tr0ub4dor"});
  const CertificateFiles other = ca().issue();
  const std::string nonsense = ca().directory().file("nonsense.pem");
  std::ofstream(nonsense) << "-----BEGIN NOTHING-----\n";
  const std::string directory = ca().directory().path().string();
  const std::string base = "rediss://127.0.0.1:" + std::to_string(tlsPort());
  struct Case {
    std::string query;
    std::vector<std::string> said;
  };
  for (const Case& each : std::vector<Case>{
           {"tls-ca-file=/no/such.pem", {"tlsCaFile", "/no/such.pem", "No such file"}},
           {"tls-ca-file=" + nonsense, {"tlsCaFile", nonsense}},
           {"tls-ca-file=" + directory, {"tlsCaFile", directory, "a directory"}},
           {"tls-ca-path=" + nonsense, {"tlsCaPath", nonsense, "not a directory"}},
           {"tls-cert-file=/no/such.pem", {"tlsCertFile", "No such file"}},
           {"tls-cert-file=" + nonsense, {"tlsCertFile", nonsense}},
           {"tls-cert-file=" + own.certificate, {"tlsCertFile", "private key"}},
           {"tls-cert-file=" + own.certificate + "&tls-key-file=/no/such.pem",
            {"tlsKeyFile", "No such file"}},
           {"tls-cert-file=" + own.certificate + "&tls-key-file=" + other.key,
            {"tlsKeyFile", other.key, "private key"}},
           {"tls-cert-file=" + own.certificate + "&tls-key-file=" + own.key,
            {"tlsKeyFile", own.key, "tlsKeyPassword"}},
           {"tls-cert-file=" + own.certificate + "&tls-key-file=" + own.key +
                "&tls-key-password=hunter2",
            {"tlsKeyFile", own.key, "tlsKeyPassword"}},
       }) {
    SCOPED_TRACE(each.query);
    expectRefused(base + "?" + each.query, Errc::invalidArgument, each.said);
    EXPECT_EQ(std::string_view(refusalOf(base + "?" + each.query).what()).find("hunter2"),
              std::string_view::npos);
  }
}

TEST_F(TlsClientCertificate, ItsPasswordIsNeverPrinted) {
  const CertificateFiles own = ca().issue({.names = "", .keyPassword = "Tr0ub4dor"});
  const std::string shown = "&tls-cert-file=" + own.certificate + "&tls-key-file=" + own.key +
                            "&tls-key-password=Tr0ub4dor";
  Options settings = tuned(uriOf(tlsPort(), shown));
  settings.logLevel = LogLevel::trace;
  Client client = Client::connect(settings);
  use(client);
  raw().command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  EXPECT_TRUE(log().waitFor("resumed session", kLong));
  std::string said;
  for (const std::string& uri : {uriOf(tlsPort(), shown + "&db=99"),
                                 uriOf(tlsPort(), shown + "&tls-key-password=Tr0ub4dor"),
                                 uriOf(tlsPort(), shown + "&tls=false"),
                                 uriOf(tlsPort(), shown + "%", "localhost"),
                                 uriOf(tlsPort(), shown + "&tls-server-name=%20")}) {
    said += refusalOf(uri).what();
  }
  EXPECT_EQ(said.find("Tr0ub4dor"), std::string::npos) << said;
  EXPECT_FALSE(log().contains("Tr0ub4dor"));
}

}  // namespace
}  // namespace rlock::test
