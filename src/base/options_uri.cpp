// SPDX-License-Identifier: Apache-2.0

// Options::fromUri(): cuts a URI into scheme, credentials, endpoints, path and parameters, and
// assigns them by the table of settings. Pure functions of their arguments. Messages name the part
// of the URI and quote no text that may be a password or a piece of one.

#include "base/option_settings.hpp"
#include <rlock/duration.hpp>
#include <rlock/error.hpp>
#include <rlock/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <ratio>
#include <set>
#include <utility>
#include <variant>

namespace rlock {

namespace {

using detail::BoolSetting;
using detail::DurationSetting;
using detail::EnumSetting;
using detail::escapeForDisplay;
using detail::inQuotes;
using detail::IntSetting;
using detail::isDigit;
using detail::LabelSetting;
using detail::OtherSetting;
using detail::SecretSetting;
using detail::Setting;
using detail::SyncLimitSetting;
using detail::SyncSetting;
using detail::TextSetting;

constexpr std::uint16_t kRedisPort = 6379;
constexpr std::uint16_t kSentinelPort = 26379;
constexpr int kMaxPort = 65535;
constexpr std::string_view kWriteAddress = "write redis://host:6379";

[[noreturn]] void refuseUri(std::string_view text) {
  detail::refuseOption(fmt::format("invalid server URI: {}", text));
}

bool isControl(char c) {
  return (c >= '\0' && c < ' ') || c == '\x7f';
}

/// Like std::from_chars, but the whole of `text` must be a number without a plus sign.
template <class Int>
std::errc parseNumber(std::string_view text, Int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end != text.data() + text.size()) {
    return std::errc::invalid_argument;
  }
  return error;
}

int hexValue(char c) {
  if (isDigit(c)) {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// @param part  names the part of the URI in the error, since the text itself may be a password
std::string percentDecode(std::string_view text, std::string_view part) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result.push_back(text[i]);
      continue;
    }
    const int high = i + 2 < text.size() ? hexValue(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hexValue(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      refuseUri(fmt::format(
          "{} contains '%' without two hexadecimal digits after it (a plain '%' is written %25)",
          part));
    }
    const auto byte = static_cast<char>(high * 16 + low);
    if (byte == '\0') {
      refuseUri(fmt::format("{} contains a NUL byte (%00)", part));
    }
    result.push_back(byte);
    i += 2;
  }
  return result;
}

struct Scheme {
  std::string_view name;
  Topology topology = Topology::single;
  bool tls = false;
  bool local = false;
  std::uint16_t defaultPort = kRedisPort;
};

constexpr std::array<Scheme, 5> kSchemes{{
    {"redis"},
    {"rediss", Topology::single, true},
    {"unix", Topology::single, false, true},
    {"redis+sentinel", Topology::sentinel, false, false, kSentinelPort},
    {"redis+cluster", Topology::cluster},
}};

const Scheme& findScheme(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (const Scheme& scheme : kSchemes) {
    if (scheme.name == lower) {
      return scheme;
    }
  }
  refuseUri(
      fmt::format("unknown scheme {}; write redis://host:6379, rediss://host:6379 for TLS, "
                  "redis+sentinel://host:26379/mymaster, redis+cluster://host:6379 or "
                  "unix:///path/to/redis.sock",
                  inQuotes(text)));
}

Endpoint parseHostPort(std::string_view text, std::uint16_t defaultPort) {
  Endpoint endpoint;
  endpoint.port = defaultPort;
  std::optional<std::string_view> port;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) {
      refuseUri("the IPv6 address has no closing ']'");
    }
    endpoint.host = percentDecode(text.substr(1, close - 1), "the IPv6 address");
    if (!detail::isIpv6(endpoint.host)) {
      refuseUri("what stands in '[' and ']' is no IPv6 address");
    }
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && !rest.starts_with(':')) {
      refuseUri("after the ']' of an IPv6 address only ':' and a port may follow");
    }
    if (!rest.empty()) {
      port = rest.substr(1);
    }
  } else {
    if (std::count(text.begin(), text.end(), ':') > 1) {
      refuseUri("a host contains several ':' (an IPv6 address is written in brackets, as [::1])");
    }
    const std::size_t colon = text.find(':');
    endpoint.host = text.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = text.substr(colon + 1);
    }
    // The text is not quoted in these messages: in a URI with a forgotten '@' it is the password.
    if (const std::string_view problem = detail::hostProblem(endpoint.host); !problem.empty()) {
      refuseUri(fmt::format("{}; {}", problem, kWriteAddress));
    }
  }
  if (port) {
    int number = 0;
    if (!std::all_of(port->begin(), port->end(), isDigit) || port->empty()) {
      refuseUri(fmt::format(
          "the port after host {} is not a number; {}", inQuotes(endpoint.host), kWriteAddress));
    }
    if (parseNumber(*port, number) != std::errc() || number < 1 || number > kMaxPort) {
      // The number is not quoted: in a URI with a forgotten '@' it is the password.
      refuseUri(fmt::format("the port after host {} is out of range; allowed: 1 to {}",
                            inQuotes(endpoint.host),
                            kMaxPort));
    }
    endpoint.port = static_cast<std::uint16_t>(number);
  }
  return endpoint;
}

void parseUserInfo(std::string_view text, Options& options) {
  const std::size_t colon = text.find(':');
  options.username = percentDecode(text.substr(0, colon), "the user name");
  if (colon != std::string_view::npos) {
    options.password = percentDecode(text.substr(colon + 1), "the password");
  }
}

void parseSocketPath(std::string_view text, Options& options) {
  if (text.size() < 2) {
    refuseUri("the socket path is empty; write unix:///path/to/redis.sock");
  }
  Endpoint endpoint;
  endpoint.path = percentDecode(text, "the socket path");
  options.endpoints.push_back(std::move(endpoint));
}

int parseDatabase(std::string_view text) {
  int number = 0;
  const std::errc error = parseNumber(text, number);
  if (error == std::errc::result_out_of_range || (error == std::errc() && number < 0)) {
    refuseUri(fmt::format("database {} is out of range; allowed: 0 to {}",
                          escapeForDisplay(text),
                          std::numeric_limits<int>::max()));
  }
  if (error != std::errc()) {
    refuseUri(fmt::format("database {} is not a number; write one, as in redis://host:6379/0",
                          inQuotes(text)));
  }
  return number;
}

Duration parseDuration(std::string_view text, std::string_view parameter) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) {
    refuseUri(
        fmt::format("parameter {}: the number in {} is too large", parameter, inQuotes(text)));
  }
  if (error != std::errc()) {
    refuseUri(fmt::format(
        "parameter {}: {} is not a duration such as 500ms or 3s", parameter, inQuotes(text)));
  }
  const auto unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const auto in = [number]<class Period>(Period) {
    return Duration(std::chrono::duration<std::int64_t, Period>(number));
  };
  if (unit.empty() || unit == "ms") {
    return in(std::milli());
  }
  if (unit == "ns") {
    return in(std::nano());
  }
  if (unit == "us") {
    return in(std::micro());
  }
  if (unit == "s") {
    return in(std::chrono::seconds::period());
  }
  if (unit == "m") {
    return in(std::chrono::minutes::period());
  }
  if (unit == "h") {
    return in(std::chrono::hours::period());
  }
  if (unit == "d") {
    return in(std::ratio<86400>());
  }
  refuseUri(fmt::format(
      "parameter {}: {} is not a whole number and one of the units ns, us, ms, s, m, h, d",
      parameter,
      inQuotes(text)));
}

/// Away from zero: a wait is no shorter than asked for, and what is below zero is refused.
template <class Unit>
Unit roundUp(Duration duration) {
  if (duration.isInfinite()) {
    return Unit::max();
  }
  const std::chrono::nanoseconds exact = duration.nanoseconds();
  return exact.count() < 0 ? std::chrono::floor<Unit>(exact) : std::chrono::ceil<Unit>(exact);
}

struct Parameter {
  std::string_view name;
  std::string value;
};

template <class Unit>
void assign(const DurationSetting<Unit>& setting, const Parameter& parameter, Options& options) {
  options.*setting.member = roundUp<Unit>(parseDuration(parameter.value, parameter.name));
  // The user may have meant seconds.
  if (isDigit(parameter.value.back()) && !setting.allows(Duration(options.*setting.member)) &&
      setting.allows(parseDuration(parameter.value + "s", parameter.name))) {
    refuseUri(fmt::format(
        "parameter {0}: {1} without a unit is {1}ms; allowed: {2}; write a unit, as in {1}s",
        parameter.name,
        parameter.value,
        rangeOf(setting)));
  }
}
void assign(const IntSetting& setting, const Parameter& parameter, Options& options) {
  if (parameter.name == "db") {
    options.database = parseDatabase(parameter.value);
    return;
  }
  int number = 0;
  const std::errc error = parseNumber(parameter.value, number);
  if (error == std::errc::result_out_of_range) {
    refuseUri(fmt::format("parameter {}: {} is out of range; allowed: {}",
                          parameter.name,
                          escapeForDisplay(parameter.value),
                          rangeOf(setting)));
  }
  if (error != std::errc()) {
    refuseUri(
        fmt::format("parameter {}: {} is not a number", parameter.name, inQuotes(parameter.value)));
  }
  options.*setting.member = number;
}
template <class Enum>
void assign(const EnumSetting<Enum>& setting, const Parameter& parameter, Options& options) {
  for (int value = 0; value <= static_cast<int>(setting.last); ++value) {
    if (toString(static_cast<Enum>(value)) == parameter.value) {
      options.*setting.member = static_cast<Enum>(value);
      return;
    }
  }
  refuseUri(fmt::format("parameter {}: {} is not one of {}",
                        parameter.name,
                        inQuotes(parameter.value),
                        rangeOf(setting)));
}
void assign(const LabelSetting& setting, const Parameter& parameter, Options& options) {
  options.*setting.member = parameter.value;
}
void assign(const TextSetting& setting, const Parameter& parameter, Options& options) {
  options.*setting.member = parameter.value;
}
void assign(const SecretSetting& setting, const Parameter& parameter, Options& options) {
  options.*setting.member = parameter.value;
}
void assign(const BoolSetting& setting, const Parameter& parameter, Options& options) {
  if (parameter.value != "true" && parameter.value != "false") {
    refuseUri(fmt::format(
        "parameter {}: {} is not true or false", parameter.name, inQuotes(parameter.value)));
  }
  options.*setting.member = parameter.value == "true";
}
void assign(const SyncSetting&, const Parameter& parameter, Options& options) {
  using Kind = SyncPolicy::Kind;
  constexpr std::string_view kRemote = "remote-aof";
  std::string_view value = parameter.value;
  SyncPolicy& sync = options.sync;
  sync.count = 1;
  if (value == "none") {
    sync.kind = Kind::none;
  } else if (value == "majority") {
    sync.kind = Kind::majority;
  } else if (value == "local-aof") {
    sync.kind = Kind::localAof;
  } else if (value == kRemote) {
    sync.kind = Kind::remoteAof;
  } else {
    sync.kind = Kind::replicas;
    if (value.starts_with("remote-aof:")) {
      sync.kind = Kind::remoteAof;
      value.remove_prefix(kRemote.size() + 1);
    }
    if (parseNumber(value, sync.count) != std::errc()) {
      refuseUri(fmt::format(
          "parameter {}: {} is not none, a number of replicas, majority, local-aof, remote-aof or "
          "remote-aof:N",
          parameter.name,
          inQuotes(parameter.value)));
    }
  }
}
void assign(const SyncLimitSetting&, const Parameter& parameter, Options& options) {
  options.sync.limit =
      roundUp<std::chrono::milliseconds>(parseDuration(parameter.value, parameter.name));
}
void assign(const OtherSetting&, const Parameter&, Options&) {}

/// `/master`, `/master/database`, or, where a parameter has named the master, `/database`.
void parseMasterPath(std::string_view path, Options& options) {
  if (path.empty()) {
    return;
  }
  if (!options.sentinelMaster.empty()) {
    options.database = parseDatabase(path);
    return;
  }
  const std::size_t slash = std::min(path.find('/'), path.size());
  options.sentinelMaster = percentDecode(path.substr(0, slash), "the master's name");
  if (slash + 1 < path.size()) {
    options.database = parseDatabase(path.substr(slash + 1));
  }
}

/// Whether the path of a URI names a database beside other things.
bool namesDatabase(const Scheme& scheme, std::string_view path, std::string_view query) {
  if (scheme.topology != Topology::sentinel) {
    return path.size() > 1;
  }
  const bool masterInQuery =
      query.starts_with("master=") || query.find("&master=") != std::string_view::npos;
  const std::size_t slash = path.find('/', 1);
  return masterInQuery ? path.size() > 1
                       : slash != std::string_view::npos && slash + 1 < path.size();
}

std::string knownParameters() {
  std::string text;
  for (const Setting& setting : detail::settings()) {
    if (!setting.parameter.starts_with('(')) {
      text.append(text.empty() ? "" : ", ").append(setting.parameter);
    }
  }
  return text;
}

/// Whether no message may quote the value.
bool isSecret(const Setting& setting) {
  const auto* const text = std::get_if<TextSetting>(&setting.kind);
  return std::holds_alternative<SecretSetting>(setting.kind) || (text != nullptr && text->secret);
}

void parseQuery(std::string_view query,
                const Scheme& scheme,
                bool databaseInPath,
                Options& options) {
  std::set<std::string_view> seen;
  std::string_view secret;  // the last parameter that has one
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view item = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);

    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const Setting* setting = detail::findParameter(name);
    if (setting == nullptr) {
      const bool credentials = name == "password" || name == "user" || name == "username";
      if (!secret.empty() && !credentials) {
        // The name is not quoted: after a '&' that was not encoded it is a part of the secret.
        refuseUri(
            fmt::format("a parameter after {} is unknown; in a value '&' is written %26; known: {}",
                        secret,
                        knownParameters()));
      }
      refuseUri(fmt::format("unknown parameter {}; {}known: {}",
                            inQuotes(name),
                            credentials ? "user name and password stand before the host, as in "
                                          "redis://name:password@host:6379; "
                                        : "",
                            knownParameters()));
    }
    if (equals == std::string_view::npos) {
      refuseUri(fmt::format("parameter {} has no value; write {}=...", name, name));
    }
    if (!seen.insert(name).second) {
      refuseUri(fmt::format("parameter {} is given twice", name));
    }
    if (name == "db" && databaseInPath) {
      refuseUri("the database is given twice, in the path and as parameter db");
    }
    const Parameter parameter{
        name,
        percentDecode(item.substr(equals + 1), fmt::format("the value of parameter {}", name))};
    std::visit([&](const auto& kind) { assign(kind, parameter, options); }, setting->kind);
    if (isSecret(*setting)) {
      secret = name;
    }
    if (name == "tls" && scheme.tls && !options.tls) {
      refuseUri("the scheme rediss means TLS, but parameter tls is false");
    }
  }
}

void checkCharacters(std::string_view uri) {
  for (std::size_t i = 0; i < uri.size(); ++i) {
    if (isControl(uri[i]) || uri[i] == ' ') {
      refuseUri(fmt::format(
          "a space or control character at position {}; take it out, or write it as % and two "
          "hexadecimal digits (a space is %20)",
          i + 1));
    }
    if (uri[i] == '#') {
      refuseUri(fmt::format("'#' at position {} (it must be written %23)", i + 1));
    }
  }
}

}  // namespace

Options Options::fromUri(std::string_view uri) {
  checkCharacters(uri);
  const std::size_t schemeEnd = uri.find("://");
  if (schemeEnd == std::string_view::npos) {
    refuseUri("it has no scheme; write redis://host:6379 or unix:///path/to/redis.sock");
  }
  const Scheme& scheme = findScheme(uri.substr(0, schemeEnd));
  Options options;
  options.topology = scheme.topology;
  options.tls = scheme.tls;

  const std::string_view rest = uri.substr(schemeEnd + 3);
  const std::size_t authorityEnd = std::min(rest.find_first_of("/?"), rest.size());
  std::string_view authority = rest.substr(0, authorityEnd);
  const std::size_t queryStart = std::min(rest.find('?'), rest.size());
  const std::string_view path = rest.substr(authorityEnd, queryStart - authorityEnd);
  const std::string_view query = rest.substr(std::min(queryStart + 1, rest.size()));

  // This check comes before any message quotes text after the authority, which may be half of a
  // password.
  if (!scheme.local && rest.substr(authorityEnd).find('@') != std::string_view::npos) {
    refuseUri(
        "'@' after the host part; in a password '/' is written %2F and '?' %3F, and elsewhere '@' "
        "is written %40");
  }
  const std::size_t at = authority.rfind('@');
  if (at != std::string_view::npos) {
    parseUserInfo(authority.substr(0, at), options);
    authority = authority.substr(at + 1);
  }

  bool databaseInPath = false;
  if (scheme.local) {
    if (!authority.empty()) {
      refuseUri("a unix URI has no host; write unix:///path/to/redis.sock with three slashes");
    }
    parseSocketPath(path, options);
  } else {
    for (bool more = true; more;) {
      const std::size_t comma = authority.find(',');
      options.endpoints.push_back(parseHostPort(authority.substr(0, comma), scheme.defaultPort));
      more = comma != std::string_view::npos;
      authority = more ? authority.substr(comma + 1) : std::string_view();
    }
    databaseInPath = namesDatabase(scheme, path, query);
    if (databaseInPath && scheme.topology != Topology::sentinel) {
      options.database = parseDatabase(path.substr(1));
    }
  }
  parseQuery(query, scheme, databaseInPath, options);
  if (scheme.topology == Topology::sentinel) {
    parseMasterPath(path.substr(std::min<std::size_t>(1, path.size())), options);
  }
  options.validate();
  return options;
}

}  // namespace rlock
