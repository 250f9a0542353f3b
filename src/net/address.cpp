// SPDX-License-Identifier: Apache-2.0
#include "net/address.hpp"

#include <uv.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <netinet/in.h>
#include <sys/un.h>

namespace rlock::detail::net {

Address makeAddress(const sockaddr* address, std::size_t size, std::uint16_t port) {
  Address result;
  std::memcpy(&result.storage, address, std::min(size, sizeof(result.storage)));
  result.size = static_cast<socklen_t>(size);
  std::array<char, INET6_ADDRSTRLEN> name{};
  if (address->sa_family == AF_INET6) {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
    v6->sin6_port = htons(port);
    uv_ip6_name(v6, name.data(), name.size());
  } else {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
    v4->sin_port = htons(port);
    uv_ip4_name(v4, name.data(), name.size());
  }
  Endpoint endpoint;
  endpoint.host = name.data();
  endpoint.port = port;
  result.text = toString(endpoint);
  return result;
}

std::optional<Address> literalAddress(const Endpoint& endpoint) {
  sockaddr_in v4{};
  if (uv_ip4_addr(endpoint.host.c_str(), endpoint.port, &v4) == 0) {
    return makeAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4), endpoint.port);
  }
  sockaddr_in6 v6{};
  if (uv_ip6_addr(endpoint.host.c_str(), endpoint.port, &v6) == 0) {
    return makeAddress(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6), endpoint.port);
  }
  return std::nullopt;
}

std::optional<Address> unixAddress(const Endpoint& endpoint) {
  sockaddr_un address{};
  if (endpoint.path.size() >= sizeof(address.sun_path) ||
      endpoint.path.find('\0') != std::string::npos) {
    return std::nullopt;
  }
  address.sun_family = AF_UNIX;
  endpoint.path.copy(address.sun_path, endpoint.path.size());
  Address result;
  std::memcpy(&result.storage, &address, sizeof(address));
  result.size = sizeof(address);
  result.text = toString(endpoint);
  return result;
}

bool connectedToItself(int fd, int family) noexcept {
  if (family != AF_INET && family != AF_INET6) {
    return false;
  }
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t ownSize = sizeof(own);
  socklen_t peerSize = sizeof(peer);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &ownSize) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peerSize) == 0 &&
         ownSize == peerSize && std::memcmp(&own, &peer, ownSize) == 0;
}

}  // namespace rlock::detail::net
