// SPDX-License-Identifier: Apache-2.0

// Options: the table of all options (kSettings), from which ranges, defaults and messages follow
// and with which docs/configuration.md must agree, and validate(). Pure functions of their
// arguments; no message contains the password.

#include "base/option_settings.hpp"
#include <rlock/error.hpp>
#include <rlock/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <span>
#include <variant>

namespace rlock {

namespace detail {

namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t kMaxLabelLength = 256;
// The length of sun_path in sockaddr_un on Linux, without the final NUL.
constexpr std::size_t kMaxSocketPathLength = 107;
// RFC 1035 allows 253 characters; IPv6 zones are shorter.
constexpr std::size_t kMaxHostLength = 253;

using Milliseconds = DurationSetting<milliseconds>;
using Microseconds = DurationSetting<microseconds>;

constexpr hours kYear{365 * 24};

constexpr std::string_view kNoNameCharacters("\0 ", 2);
constexpr std::string_view kNoPasswordCharacters("\0", 1);

constexpr std::array kSettings{
    Setting{"endpoints", "(host list)", OtherSetting{"address", "", "1 or more"}},
    Setting{"username", "(user)", OtherSetting{"text", "", "no spaces, no NUL"}},
    Setting{"password", "(password)", OtherSetting{"text", "", "no NUL"}},
    Setting{"credentials", "(none)", OtherSetting{"function", "", "any"}},
    Setting{"clientName", "client-name", LabelSetting{&Options::clientName, "text"}},
    Setting{"database",
            "db",
            IntSetting{&Options::database, "number", 0, std::numeric_limits<int>::max()}},
    Setting{"namePrefix", "name-prefix", LabelSetting{&Options::namePrefix, "text"}},
    Setting{"nameMapper", "(none)", OtherSetting{"function", "", "any"}},
    Setting{"connect", "connect", EnumSetting<ConnectMode>{&Options::connect, ConnectMode::lazy}},
    Setting{"connectTimeout",
            "connect-timeout",
            Milliseconds{&Options::connectTimeout, milliseconds(1), hours(1)}},
    Setting{"commandTimeout",
            "command-timeout",
            Milliseconds{&Options::commandTimeout, milliseconds(1), hours(1)}},
    Setting{"watchdogTimeout",
            "watchdog-timeout",
            Milliseconds{&Options::watchdogTimeout, milliseconds(100), kYear}},
    Setting{"safetyPoll",
            "safety-poll",
            Milliseconds{&Options::safetyPoll, milliseconds(10), hours(1)}},
    Setting{"handOverLimit",
            "hand-over-limit",
            IntSetting{&Options::handOverLimit, "hand-overs", 0, 10000}},
    Setting{"handOverTime",
            "hand-over-time",
            Milliseconds{&Options::handOverTime, milliseconds(0), hours(1)}},
    Setting{"fairWaiterLease",
            "fair-waiter-lease",
            Milliseconds{&Options::fairWaiterLease, seconds(1), minutes(5)}},
    Setting{"outageTimeout",
            "outage-timeout",
            Milliseconds{&Options::outageTimeout, milliseconds(1), kYear}},
    Setting{"watchdogBatchSize",
            "watchdog-batch-size",
            IntSetting{&Options::watchdogBatchSize, "holds", 1, 1000}},
    Setting{"log", "(none)", OtherSetting{"function", "", "any"}},
    Setting{"executor", "(none)", OtherSetting{"function", "", "any"}},
    Setting{"loop", "(none)", OtherSetting{"pointer", "null", "any"}},
    Setting{"heartbeatInterval",
            "heartbeat-interval",
            Milliseconds{&Options::heartbeatInterval, milliseconds(10), hours(1)}},
    Setting{"reconnectDelayMin",
            "reconnect-delay-min",
            Milliseconds{&Options::reconnectDelayMin, milliseconds(1), hours(1)}},
    Setting{"reconnectDelayMax",
            "reconnect-delay-max",
            Milliseconds{&Options::reconnectDelayMax, milliseconds(1), hours(1)}},
    Setting{"retryDelayMin",
            "retry-delay-min",
            Milliseconds{&Options::retryDelayMin, milliseconds(1), hours(1)}},
    Setting{"retryDelayMax",
            "retry-delay-max",
            Milliseconds{&Options::retryDelayMax, milliseconds(1), hours(1)}},
    Setting{"callTimeout",
            "call-timeout",
            Milliseconds{&Options::callTimeout, milliseconds(0), hours(1)}},
    Setting{"closeTimeout",
            "close-timeout",
            Milliseconds{&Options::closeTimeout, milliseconds(0), hours(1)}},
    Setting{"subscriptionLinger",
            "subscription-linger",
            Milliseconds{&Options::subscriptionLinger, milliseconds(0), hours(1)}},
    Setting{"fencingTokenRetention",
            "fencing-token-retention",
            Milliseconds{&Options::fencingTokenRetention, seconds(1), kYear, true}},
    Setting{"spin", "spin", Microseconds{&Options::spin, microseconds(0), milliseconds(10)}},
    Setting{"maxOperations",
            "max-operations",
            IntSetting{&Options::maxOperations, "operations", 1, 10'000'000}},
    Setting{"lostReplyPolicy",
            "lost-reply-policy",
            EnumSetting<LostReplyPolicy>{&Options::lostReplyPolicy, LostReplyPolicy::marker}},
    Setting{"logLevel", "log-level", EnumSetting<LogLevel>{&Options::logLevel, LogLevel::error}},
    Setting{"onLost", "(none)", OtherSetting{"function", "", "any"}},
    Setting{"onStateChange", "(none)", OtherSetting{"function", "", "any"}},
    Setting{"observer", "(none)", OtherSetting{"pointer", "null", "any"}},
    Setting{"topNames", "top-names", IntSetting{&Options::topNames, "names", 0, 1000}},
    Setting{"topology", "(scheme)", OtherSetting{"choice", "single", "single, sentinel, cluster"}},
    Setting{"tls", "tls", BoolSetting{&Options::tls}},
    Setting{"tlsCaFile", "tls-ca-file", TextSetting{&Options::tlsCaFile, "path", "no NUL"}},
    Setting{"tlsCaPath", "tls-ca-path", TextSetting{&Options::tlsCaPath, "path", "no NUL"}},
    Setting{"tlsCertFile", "tls-cert-file", TextSetting{&Options::tlsCertFile, "path", "no NUL"}},
    Setting{"tlsKeyFile", "tls-key-file", TextSetting{&Options::tlsKeyFile, "path", "no NUL"}},
    Setting{"tlsKeyPassword",
            "tls-key-password",
            TextSetting{&Options::tlsKeyPassword, "text", "no NUL", true}},
    Setting{"tlsServerName",
            "tls-server-name",
            TextSetting{&Options::tlsServerName, "text", "a host name or an IP address"}},
    Setting{"sentinelMaster", "master", LabelSetting{&Options::sentinelMaster, "text"}},
    Setting{"sentinelUsername",
            "sentinel-username",
            SecretSetting{&Options::sentinelUsername, "no spaces, no NUL", kNoNameCharacters}},
    Setting{"sentinelPassword",
            "sentinel-password",
            SecretSetting{&Options::sentinelPassword, "no NUL", kNoPasswordCharacters}},
    Setting{"sentinelTls", "sentinel-tls", BoolSetting{&Options::sentinelTls}},
    Setting{"sync", "sync", SyncSetting{}},
    Setting{"sync.limit", "sync-timeout", SyncLimitSetting{}},
};

bool isPrintableAscii(char c) {
  return c > ' ' && c < '\x7f';
}

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

std::span<const Setting> settings() noexcept {
  return kSettings;
}

const Setting* findParameter(std::string_view parameter) {
  const auto* const found =
      std::find_if(kSettings.begin(), kSettings.end(), [parameter](const Setting& setting) {
        return setting.parameter == parameter;
      });
  // Names in parentheses are no parameters but parts of the URI, or "(none)"; a URI cannot set
  // them.
  return found == kSettings.end() || parameter.starts_with('(') ? nullptr : found;
}

std::string rangeOf(const IntSetting& setting) {
  return fmt::format("{} to {}", setting.low, setting.high);
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

std::string rangeOf(const LabelSetting&) {
  return fmt::format("up to {} printable ASCII characters, no spaces", kMaxLabelLength);
}
std::string rangeOf(const TextSetting& setting) {
  return std::string(setting.range);
}
std::string rangeOf(const SecretSetting& setting) {
  return std::string(setting.range);
}
std::string rangeOf(const BoolSetting&) {
  return "true, false";
}
std::string rangeOf(const SyncSetting&) {
  return fmt::format("none, 1 to {}, majority, local-aof, remote-aof, remote-aof:N", kMostReplicas);
}
std::string rangeOf(const SyncLimitSetting&) {
  return "1ms to 1h";
}
std::string rangeOf(const OtherSetting& setting) {
  return std::string(setting.range);
}

std::string unitOf(const Milliseconds&) {
  return "ms";
}
std::string unitOf(const Microseconds&) {
  return "us";
}
std::string unitOf(const IntSetting& setting) {
  return std::string(setting.unit);
}
template <class Enum>
std::string unitOf(const EnumSetting<Enum>&) {
  return "choice";
}
std::string unitOf(const LabelSetting& setting) {
  return std::string(setting.unit);
}
std::string unitOf(const TextSetting& setting) {
  return std::string(setting.unit);
}
std::string unitOf(const SecretSetting&) {
  return "text";
}
std::string unitOf(const BoolSetting&) {
  return "switch";
}
std::string unitOf(const SyncSetting&) {
  return "choice";
}
std::string unitOf(const SyncLimitSetting&) {
  return "ms";
}
std::string unitOf(const OtherSetting& setting) {
  return std::string(setting.unit);
}

template <class Unit>
std::string valueOf(const DurationSetting<Unit>& setting, const Options& options) {
  return toString(Duration(options.*setting.member));
}
std::string valueOf(const IntSetting& setting, const Options& options) {
  return std::to_string(options.*setting.member);
}
template <class Enum>
std::string valueOf(const EnumSetting<Enum>& setting, const Options& options) {
  return std::string(toString(options.*setting.member));
}
std::string valueOf(const LabelSetting& setting, const Options& options) {
  return options.*setting.member;
}
std::string valueOf(const TextSetting& setting, const Options& options) {
  return options.*setting.member;
}
std::string valueOf(const SecretSetting&, const Options&) {
  return {};
}
std::string valueOf(const BoolSetting& setting, const Options& options) {
  return options.*setting.member ? "true" : "false";
}
std::string valueOf(const SyncSetting&, const Options& options) {
  return toString(options.sync);
}
std::string valueOf(const SyncLimitSetting&, const Options& options) {
  return toString(Duration(options.sync.limit));
}
std::string valueOf(const OtherSetting& setting, const Options&) {
  return std::string(setting.defaultValue);
}

template <class Unit>
bool inRange(const DurationSetting<Unit>& setting, const Options& options) {
  return setting.allows(Duration(options.*setting.member));
}
bool inRange(const IntSetting& setting, const Options& options) {
  return options.*setting.member >= setting.low && options.*setting.member <= setting.high;
}
template <class Enum>
bool inRange(const EnumSetting<Enum>& setting, const Options& options) {
  const auto value = static_cast<int>(options.*setting.member);
  return value >= 0 && value <= static_cast<int>(setting.last);
}
bool inRange(const LabelSetting& setting, const Options& options) {
  const std::string& text = options.*setting.member;
  return text.size() <= kMaxLabelLength && std::all_of(text.begin(), text.end(), isPrintableAscii);
}
bool inRange(const TextSetting& setting, const Options& options) {
  return (options.*setting.member).find('\0') == std::string::npos;
}
bool inRange(const SecretSetting& setting, const Options& options) {
  return (options.*setting.member).find_first_of(setting.forbidden) == std::string::npos;
}
bool inRange(const BoolSetting&, const Options&) {
  return true;
}
bool inRange(const SyncSetting&, const Options& options) {
  SyncPolicy who = options.sync;
  who.limit = SyncPolicy().limit;
  return syncProblem(who).empty();
}
bool inRange(const SyncLimitSetting&, const Options& options) {
  return syncProblem(SyncPolicy::majority(options.sync.limit)).empty();
}
bool inRange(const OtherSetting&, const Options&) {
  return true;
}

std::string displayed(const SecretSetting&, const Options&) {
  return "not allowed as it is";
}
std::string displayed(const LabelSetting& setting, const Options& options) {
  return inQuotes(options.*setting.member);
}
std::string displayed(const TextSetting& setting, const Options& options) {
  return setting.secret ? "not shown" : inQuotes(options.*setting.member);
}
template <class Kind>
std::string displayed(const Kind& setting, const Options& options) {
  return valueOf(setting, options);
}

std::string titleOf(const Setting& setting) {
  if (setting.parameter.starts_with('(')) {
    return fmt::format("option {}", setting.name);
  }
  return fmt::format("option {} (URI parameter {})", setting.name, setting.parameter);
}

void checkRange(const Setting& setting, const Options& options) {
  std::visit(
      [&](const auto& kind) {
        if (!inRange(kind, options)) {
          refuseOption(fmt::format(
              "{} is {}; allowed: {}", titleOf(setting), displayed(kind, options), rangeOf(kind)));
        }
      },
      setting.kind);
}

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
  for (const Setting& setting : kSettings) {
    const auto* const text = std::get_if<TextSetting>(&setting.kind);
    if (!options.tls && !options.sentinelTls && text != nullptr &&
        setting.name.starts_with("tls") && !(options.*text->member).empty()) {
      refuseOption(
          fmt::format("{} is set, but tls is false; write rediss:// for an encrypted "
                      "connection",
                      titleOf(setting)));
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

void checkOrder(milliseconds low,
                milliseconds high,
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

std::vector<OptionRow> optionRows() {
  const Options defaults;
  std::vector<OptionRow> rows;
  for (const Setting& setting : kSettings) {
    std::visit(
        [&](const auto& kind) {
          rows.push_back({std::string(setting.name),
                          std::string(setting.parameter),
                          unitOf(kind),
                          valueOf(kind, defaults),
                          rangeOf(kind)});
        },
        setting.kind);
  }
  return rows;
}

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
  if (topology != Topology::sentinel &&
      (!sentinelUsername.empty() || !sentinelPassword.empty() || sentinelTls)) {
    detail::refuseOption(fmt::format(
        "option sentinelUsername, sentinelPassword or sentinelTls is given, but the topology is {}",
        toString(topology)));
  }
}

}  // namespace rlock
