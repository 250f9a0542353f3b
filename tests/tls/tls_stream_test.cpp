// SPDX-License-Identifier: Apache-2.0

// TLS byte by byte: one end is the product's stream, the other OpenSSL in the hands of the test.

#include "net/tls_stream.hpp"

#include "net/tls_context.hpp"
#include "tls/certificates.hpp"
#include <rlock/options.hpp>

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace rlock::test {
namespace {

using ::rlock::detail::net::closedByPeer;
using ::rlock::detail::net::Stream;
using ::rlock::detail::net::TlsContext;
using ::rlock::detail::net::TlsHandle;
using ::rlock::detail::net::TlsSessions;
using ::rlock::detail::net::TlsStream;
using ::rlock::detail::net::UniqueFd;

/// A server whose records go out when the test says so.
class RecordServer {
 public:
  RecordServer(int fd, const CertificateFiles& certificate)
      : fd_(fd), context_(SSL_CTX_new(TLS_server_method())) {
    SSL_CTX_use_certificate_chain_file(context_, certificate.certificate.c_str());
    SSL_CTX_use_PrivateKey_file(context_, certificate.key.c_str(), SSL_FILETYPE_PEM);
  }
  RecordServer(const RecordServer&) = delete;
  RecordServer& operator=(const RecordServer&) = delete;
  ~RecordServer() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    ::close(fd_);
  }

  [[nodiscard]] SSL_CTX* context() const { return context_; }
  /// After the context was set up.
  void begin() {
    ssl_ = SSL_new(context_);
    SSL_set_bio(ssl_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(ssl_);
  }
  /// Goes on with the handshake. True: it is done.
  bool proceed() {
    receive();
    return SSL_do_handshake(ssl_) == 1;
  }
  void say(std::string_view text) { SSL_write(ssl_, text.data(), static_cast<int>(text.size())); }
  [[nodiscard]] std::string hear() {
    receive();
    std::array<char, 256> text;
    const int count = SSL_read(ssl_, text.data(), text.size());
    return {text.data(), static_cast<std::size_t>(count > 0 ? count : 0)};
  }
  /// Sends what there is, or the first bytes of it.
  std::size_t send(std::size_t most = SIZE_MAX) {
    std::size_t sent = 0;
    std::array<char, 4096> bytes;
    while (sent < most) {
      const int count = BIO_read(
          SSL_get_wbio(ssl_), bytes.data(), static_cast<int>(std::min(bytes.size(), most - sent)));
      if (count <= 0) {
        break;
      }
      EXPECT_EQ(::send(fd_, bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL), count);
      sent += static_cast<std::size_t>(count);
    }
    return sent;
  }

 private:
  void receive() {
    std::array<char, 16384> bytes;
    const ssize_t count = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) {
      BIO_write(SSL_get_rbio(ssl_), bytes.data(), static_cast<int>(count));
    }
  }

  const int fd_;
  SSL_CTX* const context_;
  SSL* ssl_ = nullptr;
};

class TlsStreamTest : public ::testing::Test {
 protected:
  TlsStreamTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    server_ = std::make_unique<RecordServer>(ends[1], ca_.issue());
    client_ = UniqueFd(ends[0]);
    options_.tlsCaFile = ca_.file();
  }

  /// The client's end, whose handshake has not begun.
  void begin() {
    server_->begin();
    stream_ = std::make_unique<TlsStream>(std::move(client_),
                                          std::make_shared<TlsContext>(options_, nullptr),
                                          Endpoint{"127.0.0.1", 6379, {}});
  }
  [[nodiscard]] std::string read() {
    std::array<char, 256> text;
    const ssize_t count = stream_->read(text.data(), text.size(), false);
    return {text.data(), static_cast<std::size_t>(count > 0 ? count : 0)};
  }

  TestCa ca_;
  Options options_;
  UniqueFd client_;
  std::unique_ptr<RecordServer> server_;
  std::unique_ptr<TlsStream> stream_;
};

/// As a server does that refuses the client when it learns from where it comes.
TEST_F(TlsStreamTest, BytesThatCameWithTheEndOfTheHandshakeAreRead) {
  SSL_CTX_set_max_proto_version(server_->context(), TLS1_2_VERSION);
  begin();
  EXPECT_EQ(stream_->open(), Stream::Opening::needsInput);
  EXPECT_FALSE(server_->proceed());
  server_->send();
  EXPECT_EQ(stream_->open(), Stream::Opening::needsInput);
  ASSERT_TRUE(server_->proceed());
  server_->say("-DENIED\r\n");
  server_->send();
  ASSERT_EQ(stream_->open(), Stream::Opening::done);
  EXPECT_TRUE(stream_->hasBufferedInput());
  EXPECT_EQ(read(), "-DENIED\r\n");
  EXPECT_EQ(read(), "");
  EXPECT_FALSE(stream_->hasBufferedInput());
}

/// The session ticket has the client's certificate in it and comes in several records.
TEST_F(TlsStreamTest, AWriteWaitsForTheRestOfATicket) {
  std::string names = "DNS:client";
  for (int i = 0; i < 100; ++i) {
    names += ",DNS:a-rather-long-name-" + std::to_string(i) + ".example.org";
  }
  const CertificateFiles own = ca_.issue({.commonName = "client", .names = names});
  options_.tlsCertFile = own.certificate;
  options_.tlsKeyFile = own.key;
  SSL_CTX_set_max_send_fragment(server_->context(), 512);
  SSL_CTX_set_verify(server_->context(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_load_verify_file(server_->context(), ca_.file().c_str());
  SSL_CTX_set_session_id_context(
      server_->context(), reinterpret_cast<const unsigned char*>("test"), 4);
  begin();
  EXPECT_EQ(stream_->open(), Stream::Opening::needsInput);
  EXPECT_FALSE(server_->proceed());
  server_->send();
  ASSERT_EQ(stream_->open(), Stream::Opening::done);
  ASSERT_TRUE(server_->proceed());
  ASSERT_EQ(server_->send(700), 700U);
  EXPECT_EQ(read(), "");
  EXPECT_EQ(stream_->write("PING", 4), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(stream_->failure(), nullptr);
  EXPECT_TRUE(stream_->writeAwaitsInput());
  EXPECT_GT(server_->send(), 0U);
  EXPECT_EQ(read(), "");
  EXPECT_FALSE(stream_->writeAwaitsInput());
  EXPECT_EQ(stream_->write("PING", 4), 4);
  EXPECT_EQ(server_->hear(), "PING");
}

/// With TLS 1.3 the client is through with its handshake when the server looks at its certificate.
TEST_F(TlsStreamTest, AServerThatHasClosedIsStillHeard) {
  SSL_CTX_set_verify(
      server_->context(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  begin();
  EXPECT_EQ(stream_->open(), Stream::Opening::needsInput);
  EXPECT_FALSE(server_->proceed());
  server_->send();
  ASSERT_EQ(stream_->open(), Stream::Opening::done);
  EXPECT_FALSE(server_->proceed());
  EXPECT_GT(server_->send(), 0U) << "the alert";
  server_.reset();
  EXPECT_EQ(stream_->write("PING", 4), -1);
  EXPECT_TRUE(closedByPeer(errno)) << errno;
  EXPECT_EQ(read(), "");
  EXPECT_EQ(errno, EPROTO);
  ASSERT_NE(stream_->failure(), nullptr);
  EXPECT_NE(stream_->failure()->text.find("certificate required"), std::string::npos)
      << stream_->failure()->text;
  EXPECT_EQ(stream_->write("PING", 4), -1);
}

/// Nodes that come and go have new addresses each time.
TEST(TlsSessions, AreKeptOfSoManyServersOnly) {
  TlsSessions sessions;
  for (std::size_t i = 0; i < 3 * TlsSessions::kMost; ++i) {
    sessions.keep("server " + std::to_string(i), TlsHandle<SSL_SESSION>(SSL_SESSION_new()));
  }
  EXPECT_EQ(sessions.size(), TlsSessions::kMost);
}

}  // namespace
}  // namespace rlock::test
