// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/options.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/socket.h>

namespace rlock::detail::net {

/// Where a socket can connect to, and how messages name it.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  std::string text{};

  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
};

/// An Internet address of either version, with this port.
Address makeAddress(const sockaddr* address, std::size_t size, std::uint16_t port);

/// Empty when the host is a name and no address.
std::optional<Address> literalAddress(const Endpoint& endpoint);

/// Empty when the path does not fit into an address.
std::optional<Address> unixAddress(const Endpoint& endpoint);

/// A socket that tries a local port again and again may get just that port for its own end and then
/// be connected to itself.
bool connectedToItself(int fd, int family) noexcept;

}  // namespace rlock::detail::net
