// SPDX-License-Identifier: Apache-2.0

// Options::validate(), beyond the ranges that the table of option_settings.cpp has, and the names
// of enumerators. Pure functions of their arguments; no message contains the password.

#include "base/option_settings.hpp"
#include <rlock/error.hpp>
#include <rlock/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstddef>
#include <variant>

namespace rlock {

namespace detail {

namespace {

// The length of sun_path in sockaddr_un on Linux, without the final NUL.
constexpr std::size_t kMaxSocketPathLength = 107;
// RFC 1035 allows 253 characters; IPv6 zones are shorter.
constexpr std::size_t kMaxHostLength = 253;

}  // namespace

void refuseOption(std::string_view text) {
  throw Error(Errc::invalidArgument, text);
}

std::string inQuotes(std::string_view text) {
  return fmt::format("\"{}\"", escapeForDisplay(text));
}

bool isDigit(char c) {
  return c >= '0' && c <= '9';
}

bool isPrintableAscii(char c) {
  return c > ' ' && c < '\x7f';
}

bool isIpv6(std::string_view text) {
  const std::string address(text.substr(0, text.find('%')));
  const bool plainZone =
      !text.ends_with('%') && std::all_of(text.begin(), text.end(), isPrintableAscii);
  in6_addr parsed{};
  return plainZone && inet_pton(AF_INET6, address.c_str(), &parsed) == 1;
}

std::string_view hostProblem(std::string_view host) {
  if (host.empty()) {
    return "the host is empty";
  }
  if (host.size() > kMaxHostLength) {
    return "the host is longer than 253 characters";
  }
  if (host.find(':') != std::string_view::npos) {
    if (host.find("://") != std::string_view::npos) {
      return "a URI stands where the host belongs; write Options::fromUri(\"redis://host:6379\")";
    }
    return isIpv6(host) ? ""
                        : "the host contains ':' but is no IPv6 address (the port is a field of "
                          "its own)";
  }
  const bool plain = std::all_of(host.begin(), host.end(), [](char c) {
    return isDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
           c == '_';
  });
  return plain ? "" : "the host contains characters other than letters, digits, '.', '-' and '_'";
}

namespace {

/// The reason why `path` cannot name a Unix socket; empty if there is none.
std::string_view socketPathProblem(std::string_view path) {
  if (path.size() > kMaxSocketPathLength) {
    return "the socket path is longer than 107 bytes";
  }
  return path.find('\0') == std::string_view::npos ? "" : "the socket path contains a NUL byte";
}

/// @param tlsOption  which option encrypts the connections to it; empty: none does
void checkEndpoint(const Endpoint& endpoint, std::string_view tlsOption) {
  const bool local = !endpoint.path.empty();
  const std::string_view problem =
      local ? socketPathProblem(endpoint.path) : hostProblem(endpoint.host);
  if (!problem.empty()) {
    const std::string& text = local ? endpoint.path : endpoint.host;
    // The text before an '@' may be a password.
    refuseOption(fmt::format("option endpoints: {}: {}",
                             text.find('@') == std::string::npos ? inQuotes(text) : "an address",
                             problem));
  }
  if (!local && endpoint.port == 0) {
    refuseOption(fmt::format("option endpoints: the port of {} is 0; allowed: 1 to 65535",
                             inQuotes(endpoint.host)));
  }
  if (local && !tlsOption.empty()) {
    refuseOption(fmt::format(
        "option {} is true, but endpoint {} is a Unix socket", tlsOption, inQuotes(endpoint.path)));
  }
}

/// Options of TLS that would have no effect, or not the one that is meant.
void checkTls(const Options& options) {
  for (const Setting& setting : settings()) {
    const auto* const text = std::get_if<TextSetting>(&setting.kind);
    if (!options.tls && !options.sentinelTls && text != nullptr &&
        setting.name.starts_with("tls") && !(options.*text->member).empty()) {
      refuseOption(
          fmt::format("{} is set, but tls is false; write rediss:// for an encrypted "
                      "connection",
                      optionTitle(setting)));
    }
  }
  if (options.tlsCertFile.empty() && !options.tlsKeyFile.empty()) {
    refuseOption("option tlsKeyFile is set, but tlsCertFile is empty; a key needs its certificate");
  }
  if (options.tlsCertFile.empty() && !options.tlsKeyPassword.empty()) {
    refuseOption(
        "option tlsKeyPassword is set, but tlsCertFile is empty; there is no key that it is for");
  }
  if (!options.tlsServerName.empty()) {
    if (const auto problem = hostProblem(options.tlsServerName); !problem.empty()) {
      refuseOption(
          fmt::format("option tlsServerName: {}: {}", inQuotes(options.tlsServerName), problem));
    }
  }
}

void checkOrder(std::chrono::milliseconds low,
                std::chrono::milliseconds high,
                std::string_view lowName,
                std::string_view highName) {
  if (low > high) {
    refuseOption(fmt::format("option {} is {}, which is more than {}, {}",
                             lowName,
                             toString(Duration(low)),
                             highName,
                             toString(Duration(high))));
  }
}

}  // namespace

}  // namespace detail

std::string toString(const Endpoint& endpoint) {
  if (!endpoint.path.empty()) {
    return fmt::format("unix://{}", endpoint.path);
  }
  const bool brackets = endpoint.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(brackets ? "[{}]:{}" : "{}:{}"), endpoint.host, endpoint.port);
}

std::string_view toString(ConnectMode mode) noexcept {
  switch (mode) {
    case ConnectMode::eager:
      return "eager";
    case ConnectMode::lazy:
      return "lazy";
  }
  return "unknown";
}

std::string_view toString(ConnectionState state) noexcept {
  switch (state) {
    case ConnectionState::disconnected:
      return "disconnected";
    case ConnectionState::connected:
      return "connected";
  }
  return "unknown";
}

std::string_view toString(Topology topology) noexcept {
  switch (topology) {
    case Topology::single:
      return "single";
    case Topology::sentinel:
      return "sentinel";
    case Topology::cluster:
      return "cluster";
  }
  return "unknown";
}

std::string_view toString(LostReplyPolicy policy) noexcept {
  switch (policy) {
    case LostReplyPolicy::automatic:
      return "automatic";
    case LostReplyPolicy::fence:
      return "fence";
    case LostReplyPolicy::marker:
      return "marker";
  }
  return "unknown";
}

std::string_view toString(LossReason reason) noexcept {
  switch (reason) {
    case LossReason::none:
      return "none";
    case LossReason::expired:
      return "expired";
    case LossReason::refused:
      return "refused";
    case LossReason::forced:
      return "forced";
    case LossReason::unreachable:
      return "unreachable";
    case LossReason::failover:
      return "failover";
    case LossReason::maxHold:
      return "maxHold";
    case LossReason::threadEnded:
      return "threadEnded";
    case LossReason::clientClosed:
      return "clientClosed";
  }
  return "unknown";
}

void Options::validate() const {
  if (endpoints.empty()) {
    detail::refuseOption(
        "option endpoints is empty; at least one address is needed, as "
        "Options::fromUri(\"redis://host:6379\") gives");
  }
  const bool sentinels = topology == Topology::sentinel;
  const std::string_view tlsOption = !(sentinels ? sentinelTls : tls) ? ""
                                     : sentinels                      ? "sentinelTls"
                                                                      : "tls";
  for (const Endpoint& endpoint : endpoints) {
    detail::checkEndpoint(endpoint, tlsOption);
  }
  // The messages quote neither of the two: a password may have been put into the wrong field.
  if (username.find('\0') != std::string::npos || username.find(' ') != std::string::npos) {
    detail::refuseOption("option username contains a space or NUL byte, which no server allows");
  }
  if (password.find('\0') != std::string::npos) {
    detail::refuseOption("option password contains a NUL byte");
  }
  if (credentials && (!username.empty() || !password.empty())) {
    detail::refuseOption(
        "option credentials is set, and so is username or password; give only one of them");
  }
  if (sentinelCredentials && (!sentinelUsername.empty() || !sentinelPassword.empty())) {
    detail::refuseOption(
        "option sentinelCredentials is set, and so is sentinelUsername or sentinelPassword; give "
        "only one of them");
  }
  if (nameMapper && !namePrefix.empty()) {
    detail::refuseOption(
        fmt::format("option nameMapper is set, and so is namePrefix (URI parameter name-prefix), "
                    "{}; give only one of them",
                    detail::inQuotes(namePrefix)));
  }
  for (const detail::Setting& setting : detail::settings()) {
    detail::checkRange(setting, *this);
  }
  detail::checkTls(*this);
  detail::checkOrder(
      reconnectDelayMin, reconnectDelayMax, "reconnectDelayMin", "reconnectDelayMax");
  detail::checkOrder(retryDelayMin, retryDelayMax, "retryDelayMin", "retryDelayMax");
  const auto kind = static_cast<int>(topology);
  if (kind < 0 || kind > static_cast<int>(Topology::cluster)) {
    detail::refuseOption(fmt::format("option topology is {}; allowed: {}",
                                     toString(topology),
                                     detail::choices(Topology::cluster)));
  }
  if (topology == Topology::cluster && database != 0) {
    detail::refuseOption(
        fmt::format("option database is {}; a cluster has database 0 only", database));
  }
  if (topology == Topology::sentinel && sentinelMaster.empty()) {
    detail::refuseOption(
        "option sentinelMaster is empty; Sentinels need the master's name, as in "
        "redis+sentinel://host:26379/mymaster");
  }
  if (topology != Topology::sentinel && !sentinelMaster.empty()) {
    detail::refuseOption(
        fmt::format("option sentinelMaster (URI parameter master) is {}, but the topology is {}",
                    detail::inQuotes(sentinelMaster),
                    toString(topology)));
  }
  if (topology != Topology::sentinel && (!sentinelUsername.empty() || !sentinelPassword.empty() ||
                                         sentinelCredentials || sentinelTls)) {
    detail::refuseOption(
        fmt::format("option sentinelUsername, sentinelPassword, sentinelCredentials or sentinelTls "
                    "is given, but the topology is {}",
                    toString(topology)));
  }
}

}  // namespace rlock
