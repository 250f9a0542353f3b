// SPDX-License-Identifier: Apache-2.0
#include "tls/tls_front.hpp"

#include <openssl/err.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <csignal>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace rlock::test {

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

bool sendAll(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::send(fd, data, size, MSG_NOSIGNAL);
    if (count <= 0) {
      return false;
    }
    data += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

TlsFront::TlsFront(std::uint16_t server, TlsFrontOptions options)
    : server_(server), options_(std::move(options)), context_(SSL_CTX_new(TLS_server_method())) {
  // OpenSSL writes to sockets without MSG_NOSIGNAL.
  std::signal(SIGPIPE, SIG_IGN);
  static const unsigned char kId[] = "front";
  const bool usable =
      SSL_CTX_use_certificate_chain_file(context_, options_.certificate.certificate.c_str()) == 1 &&
      SSL_CTX_use_PrivateKey_file(context_, options_.certificate.key.c_str(), SSL_FILETYPE_PEM) ==
          1 &&
      (!options_.namesSessions ||
       SSL_CTX_set_session_id_context(context_, kId, sizeof(kId)) == 1) &&
      (options_.highestVersion == 0 ||
       SSL_CTX_set_max_proto_version(context_, options_.highestVersion) == 1);
  if (!usable) {
    throw std::runtime_error("TlsFront: certificate");
  }
  if (options_.highestVersion != 0) {
    SSL_CTX_set_min_proto_version(context_, TLS1_VERSION);
    SSL_CTX_set_security_level(context_, 0);
  }
  if (!options_.clientCa.empty()) {
    SSL_CTX_load_verify_file(context_, options_.clientCa.c_str());
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (options_.receiveBuffer > 0) {
    ::setsockopt(
        listener_, SOL_SOCKET, SO_RCVBUF, &options_.receiveBuffer, sizeof(options_.receiveBuffer));
  }
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("TlsFront: listen");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept(); });
}

TlsFront::~TlsFront() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  cut();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  SSL_CTX_free(context_);
}

std::vector<std::string> TlsFront::names() const {
  const std::lock_guard lock(mutex_);
  return names_;
}

void TlsFront::askForCertificates() {
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
}

void TlsFront::cut() {
  const std::lock_guard lock(mutex_);
  for (const int fd : open_) {
    ::shutdown(fd, SHUT_RDWR);
  }
}

void TlsFront::accept() {
  while (!stopping_) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      continue;
    }
    ++accepted_;
    const std::lock_guard lock(mutex_);
    open_.push_back(fd);
    threads_.emplace_back([this, fd] { serve(fd); });
  }
}

void TlsFront::serve(int client) {
  const int one = 1;
  ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  bool cutInHandshake = false;
  if (options_.cutAfter > 0) {
    // Counted before TLS sees them, so that the handshake is cut, too.
    std::vector<char> bytes(options_.cutAfter);
    std::size_t seen = 0;
    ssize_t count = 1;
    while (count > 0 && seen < options_.cutAfter) {
      count = ::recv(client, bytes.data(), options_.cutAfter - seen, 0);
      seen += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    cutInHandshake = true;
  }
  SSL* const ssl = SSL_new(context_);
  SSL_set_fd(ssl, client);
  if (!cutInHandshake && SSL_accept(ssl) == 1) {
    ++established_;
    if (SSL_session_reused(ssl) == 1) {
      ++resumed_;
    }
    const char* const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    {
      const std::lock_guard lock(mutex_);
      names_.emplace_back(name == nullptr ? "" : name);
    }
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(server_);
    if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      ::setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      pump(ssl, client, server);
    }
    ::close(server);
  }
  ERR_clear_error();
  SSL_free(ssl);
  const std::lock_guard lock(mutex_);
  std::erase(open_, client);
  ::close(client);
}

void TlsFront::pump(SSL* ssl, int client, int server) {
  std::array<char, 16384> buffer;
  std::size_t sinceUpdate = 0;
  for (;;) {
    std::array<pollfd, 2> fds{pollfd{client, POLLIN, 0}, pollfd{server, POLLIN, 0}};
    if (SSL_pending(ssl) == 0 && ::poll(fds.data(), fds.size(), -1) < 0) {
      return;
    }
    if (SSL_pending(ssl) > 0 || (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      const int count = SSL_read(ssl, buffer.data(), static_cast<int>(buffer.size()));
      if (count <= 0) {
        if (SSL_get_error(ssl, count) == SSL_ERROR_ZERO_RETURN) {
          ++goodbyes_;
        }
        return;
      }
      if (!sendAll(server, buffer.data(), static_cast<std::size_t>(count))) {
        return;
      }
    }
    if ((fds[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      const ssize_t count = ::recv(server, buffer.data(), buffer.size(), 0);
      if (count <= 0) {
        return;
      }
      const auto size = static_cast<std::size_t>(count);
      for (std::size_t at = 0; at < size; at += options_.recordSize) {
        const std::size_t part = std::min(options_.recordSize, size - at);
        if (SSL_write(ssl, buffer.data() + at, static_cast<int>(part)) <= 0) {
          return;
        }
      }
      sinceUpdate += size;
      if (options_.updateKeysEvery > 0 && sinceUpdate >= options_.updateKeysEvery) {
        sinceUpdate = 0;
        SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
      }
    }
  }
}

}  // namespace rlock::test
