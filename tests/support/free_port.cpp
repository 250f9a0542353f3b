// SPDX-License-Identifier: Apache-2.0
#include "support/free_port.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <netinet/in.h>
#include <random>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace rlock::test {

namespace {

constexpr int kLowestPort = 10'000;

sockaddr_in loopback(std::uint16_t port, std::uint8_t host = 1) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  return address;
}

const sockaddr* generic(const sockaddr_in* address) {
  return static_cast<const sockaddr*>(static_cast<const void*>(address));
}

int tcpSocket(int extraFlags = 0) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | extraFlags, 0);
  if (fd < 0) {
    throw std::system_error(errno, std::generic_category(), "socket");
  }
  return fd;
}

void reuseAddress(int fd) {
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

/// -1 with errno when the port is taken. The bind is exclusive, so two processes never reserve the
/// same port; SO_REUSEADDR afterwards lets a server share it.
int bindExclusively(std::uint16_t port, std::uint8_t host = 1) {
  const int fd = tcpSocket();
  const sockaddr_in address = loopback(port, host);
  if (::bind(fd, generic(&address), sizeof address) != 0) {
    const int error = errno;
    ::close(fd);
    errno = error;
    return -1;
  }
  reuseAddress(fd);
  return fd;
}

int lowestEphemeralPort() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 0;
  return file >> low ? low : 32'768;
}

std::uint16_t boundPort(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getsockname(fd, static_cast<sockaddr*>(static_cast<void*>(&address)), &length);
  return ntohs(address.sin_port);
}

}  // namespace

PortReservation::PortReservation() {
  static const int high = lowestEphemeralPort() - 1;
  std::random_device random;
  for (int attempt = 0; attempt < 200; ++attempt) {
    int port = 0;
    if (high > kLowestPort) {
      port = std::uniform_int_distribution<int>(kLowestPort, high)(random);
    }
    fd_ = bindExclusively(static_cast<std::uint16_t>(port));
    if (fd_ >= 0) {
      port_ = boundPort(fd_);
      return;
    }
  }
  throw std::runtime_error("no free TCP port on the loopback interface");
}

PortReservation::PortReservation(std::uint16_t port, std::uint8_t host)
    : fd_(bindExclusively(port, host)), port_(port) {
  if (fd_ >= 0) {
    return;
  }
  // Connections of an earlier server in TIME_WAIT forbid an exclusive bind, but not a server.
  fd_ = tcpSocket();
  reuseAddress(fd_);
  const sockaddr_in address = loopback(port, host);
  if (::bind(fd_, generic(&address), sizeof address) != 0) {
    const int error = errno;
    ::close(fd_);
    throw std::system_error(error, std::generic_category(), "port " + std::to_string(port));
  }
}

PortReservation::PortReservation(PortReservation&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}

PortReservation& PortReservation::operator=(PortReservation&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) {
      ::close(fd_);
    }
    fd_ = std::exchange(other.fd_, -1);
    port_ = other.port_;
  }
  return *this;
}

PortReservation::~PortReservation() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

int PortReservation::release() noexcept {
  return std::exchange(fd_, -1);
}

std::uint16_t freePort() {
  return PortReservation().port();
}

SilentListener::SilentListener() {
  PortReservation reservation;
  port_ = reservation.port();
  listener_ = reservation.release();
  filler_ = -1;
  const sockaddr_in address = loopback(port_);
  // A queue of length 0 still takes one connection.
  if (::listen(listener_, 0) == 0) {
    filler_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  }
  if (filler_ < 0 || ::connect(filler_, generic(&address), sizeof address) != 0) {
    const int error = errno;
    ::close(listener_);
    if (filler_ >= 0) {
      ::close(filler_);
    }
    throw std::system_error(error, std::generic_category(), "silent listener");
  }
}

SilentListener::~SilentListener() {
  ::close(filler_);
  ::close(listener_);
}

}  // namespace rlock::test
