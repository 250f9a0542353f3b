// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <list>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace rlock::test {

/// A server on loopback that answers the handshake of a link as Redis does, and everything else as
/// the test says. Each connection has a thread of its own.
class FakeServer {
 public:
  using Argv = std::vector<std::string>;

  class Peer {
   public:
    explicit Peer(int fd) noexcept : fd_(fd) {}
    [[nodiscard]] int fd() const noexcept { return fd_; }
    /// False when the other side is gone.
    bool send(std::string_view bytes) const {
      while (!bytes.empty()) {
        const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) {
          return false;
        }
        bytes.remove_prefix(static_cast<std::size_t>(sent));
      }
      return true;
    }
    /// Closing this connection resets it, from here on.
    void resetOnClose() const {
      const linger dropped{1, 0};
      ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &dropped, sizeof(dropped));
    }

   private:
    int fd_;
  };

  /// Answers one command that is not part of the handshake; false closes the connection. Runs on
  /// the connection's thread.
  using Handler = std::function<bool(Peer&, const Argv&)>;

  explicit FakeServer(Handler handler, int receiveBuffer = 0)
      : handler_(std::move(handler)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (receiveBuffer > 0) {
      ::setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, sizeof(receiveBuffer));
    }
    if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener_, 64) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::system_error(errno, std::generic_category(), "FakeServer");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept(); });
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;
  ~FakeServer() {
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    ::close(listener_);
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : open_) {
        ::shutdown(fd, SHUT_RDWR);
      }
    }
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] std::size_t accepted() const noexcept { return accepted_; }
  [[nodiscard]] bool stopping() const noexcept { return stopping_; }
  /// Whether it answers a PING as a server does, from here on.
  void setPongs(bool pongs) noexcept { pongs_ = pongs; }

 private:
  void accept() {
    while (!stopping_) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) {
        continue;
      }
      const std::lock_guard lock(mutex_);
      const std::size_t id = ++accepted_;
      open_.push_back(fd);
      threads_.emplace_back([this, fd, id] { serve(fd, id); });
    }
  }

  void serve(int fd, std::size_t id) {
    // As Redis: no answer waits until the one before it is acknowledged.
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    Peer peer(fd);
    std::string input;
    std::array<char, 65536> buffer;
    for (bool open = true; open;) {
      const ssize_t count = ::recv(fd, buffer.data(), buffer.size(), 0);
      if (count <= 0) {
        break;
      }
      input.append(buffer.data(), static_cast<std::size_t>(count));
      Argv argv;
      while (open && cut(input, argv)) {
        open = answer(peer, id, argv);
      }
    }
    {
      const std::lock_guard lock(mutex_);
      open_.remove(fd);
    }
    ::close(fd);
  }

  bool answer(Peer& peer, std::size_t id, const Argv& argv) {
    if (argv[0] == "PING") {
      return peer.send(pongs_ ? "+PONG\r\n" : "+OK\r\n");
    }
    if (argv[0] == "HELLO") {
      return peer.send("*4\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$2\r\nid\r\n:" + std::to_string(id) +
                       "\r\n");
    }
    if (argv[0] == "CLIENT" && argv[1] == "INFO") {
      const std::string info = "id=" + std::to_string(id) + " addr=127.0.0.1:50000 ";
      return peer.send("$" + std::to_string(info.size()) + "\r\n" + info + "\r\n");
    }
    if (argv[0] == "INFO") {
      return peer.send("$7\r\nnothing\r\n");
    }
    if (argv[0] == "COMMAND") {
      return peer.send("*0\r\n");
    }
    if (argv[0] == "CLIENT") {
      return peer.send(":0\r\n");
    }
    return handler_(peer, argv);
  }

  /// Takes one whole command off the input.
  static bool cut(std::string& input, Argv& argv) {
    std::size_t at = 0;
    const auto number = [&](char mark) -> long {
      const std::size_t end = input.find("\r\n", at);
      if (end == std::string::npos || input[at] != mark) {
        return -1;
      }
      const long value = std::strtol(input.c_str() + at + 1, nullptr, 10);
      at = end + 2;
      return value;
    };
    argv.clear();
    const long count = input.empty() ? -1 : number('*');
    for (long i = 0; i < count; ++i) {
      const long length = at < input.size() ? number('$') : -1;
      if (length < 0 || input.size() < at + static_cast<std::size_t>(length) + 2) {
        return false;
      }
      argv.push_back(input.substr(at, static_cast<std::size_t>(length)));
      at += static_cast<std::size_t>(length) + 2;
    }
    if (count <= 0) {
      return false;
    }
    input.erase(0, at);
    return true;
  }

  Handler handler_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> pongs_{true};
  std::atomic<std::size_t> accepted_{0};
  std::mutex mutex_;
  std::list<int> open_;  // protected by mutex_
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace rlock::test
