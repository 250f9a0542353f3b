// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_probe.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rlock::cli {

namespace {

Descriptor begun(int family, const sockaddr* address, socklen_t length) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket && ::connect(socket.get(), address, length) != 0 && errno != EINPROGRESS) {
    socket.close();
  }
  return socket;
}

bool isConnected(int socket, std::chrono::milliseconds patience) {
  pollfd watched{socket, POLLOUT, 0};
  int error = 0;
  socklen_t length = sizeof error;
  return ::poll(&watched, 1, static_cast<int>(patience.count())) > 0 &&
         ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

Descriptor connectedTo(const Endpoint& endpoint, std::chrono::milliseconds patience) {
  if (!endpoint.path.empty()) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (endpoint.path.size() >= sizeof address.sun_path) {
      return {};
    }
    std::memcpy(address.sun_path, endpoint.path.data(), endpoint.path.size());
    return begun(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found) !=
      0) {
    return {};
  }
  Descriptor result;
  for (const addrinfo* entry = found; entry != nullptr && !result; entry = entry->ai_next) {
    result = begun(entry->ai_family, entry->ai_addr, entry->ai_addrlen);
    if (result && !isConnected(result.get(), patience)) {
      result.close();
    }
  }
  ::freeaddrinfo(found);
  return result;
}

}  // namespace

Probe::Probe(const Endpoint& endpoint, std::chrono::milliseconds patience)
    : socket_(connectedTo(endpoint, patience)), patience_(patience) {}

bool Probe::waitFor(short events) const {
  pollfd watched{socket_.get(), events, 0};
  return socket_ && ::poll(&watched, 1, static_cast<int>(patience_.count())) > 0;
}

std::string Probe::ask(std::string_view line) {
  const std::string request = std::string(line) + "\r\n";
  if (!waitFor(POLLOUT) ||
      ::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0 || !waitFor(POLLIN)) {
    return {};
  }
  std::array<char, 16'384> buffer{};
  const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
  return got > 0 ? std::string(buffer.data(), static_cast<std::size_t>(got)) : std::string();
}

std::optional<std::string> Probe::askForText(std::string_view line) {
  std::string answer = ask(line);
  if (!answer.starts_with('$')) {
    return std::nullopt;
  }
  const std::size_t begin = answer.find("\r\n");
  const long length = std::strtol(answer.c_str() + 1, nullptr, 10);
  if (begin == std::string::npos || length < 0 || length > 1'000'000) {
    return std::nullopt;
  }
  const std::size_t end = begin + 2 + static_cast<std::size_t>(length);
  std::array<char, 16'384> buffer{};
  while (answer.size() < end + 2) {
    const ssize_t got =
        waitFor(POLLIN) ? ::recv(socket_.get(), buffer.data(), buffer.size(), 0) : 0;
    if (got <= 0) {
      return std::nullopt;
    }
    answer.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return answer.substr(begin + 2, static_cast<std::size_t>(length));
}

void Probe::authenticate(const Options& options) {
  if (options.username.empty() && options.password.empty()) {
    return;
  }
  const auto bulk = [](const std::string& text) {
    return fmt::format("${}\r\n{}\r\n", text.size(), text);
  };
  std::string request = fmt::format("*{}\r\n$4\r\nAUTH\r\n", options.username.empty() ? 2 : 3);
  if (!options.username.empty()) {
    request += bulk(options.username);
  }
  request += bulk(options.password);
  request.resize(request.size() - 2);  // ask() adds the end of the line
  (void)ask(request);
}

Peer lookAt(const Endpoint& endpoint) {
  Probe probe(endpoint, std::chrono::milliseconds(2000));
  if (!probe.connected()) {
    return Peer::nobody;
  }
  return peerOf(probe.ask("PING"));
}

}  // namespace rlock::cli
