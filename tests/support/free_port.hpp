// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rlock::test {

/// A loopback TCP port that stays ours: it is bound but not listening, so connecting to it is
/// refused, nobody else can bind it exclusively, and a server started by this process with
/// SO_REUSEADDR (redis-server does) can still listen on it. Move-only.
///
/// The port lies outside the range that the kernel gives to outgoing connections: a client that
/// keeps reconnecting to a dead server on a port inside that range can end up connected to itself.
class PortReservation {
 public:
  /// Throws std::runtime_error when no port is free.
  PortReservation();
  /// Throws std::system_error when `port` is taken.
  explicit PortReservation(std::uint16_t port) : PortReservation(port, 1) {}
  /// The same at 127.0.0.`host`.
  PortReservation(std::uint16_t port, std::uint8_t host);
  PortReservation(PortReservation&& other) noexcept;
  PortReservation& operator=(PortReservation&& other) noexcept;
  PortReservation(const PortReservation&) = delete;
  PortReservation& operator=(const PortReservation&) = delete;
  ~PortReservation();

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Gives the bound socket to the caller, who may listen() on it and must close it.
  [[nodiscard]] int release() noexcept;

 private:
  int fd_ = -1;
  std::uint16_t port_ = 0;
};

/// A loopback TCP port that was free a moment ago, and that another process may have by now: for a
/// caller that cannot keep a PortReservation until the port is used.
[[nodiscard]] std::uint16_t freePort();

/// A loopback TCP port on which connect() neither succeeds nor fails, as with a host that drops
/// packets: the accept queue is full, so the kernel ignores further connection requests.
class SilentListener {
 public:
  SilentListener();
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;
  ~SilentListener();

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  int listener_ = -1;
  int filler_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace rlock::test
