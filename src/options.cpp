// SPDX-License-Identifier: Apache-2.0
#include <rlock/duration.hpp>
#include <rlock/error.hpp>
#include <rlock/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>

namespace rlock {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t kMaxLabelLength = 256;
// RFC 1035 allows 253 characters; IPv6 zones are shorter.
constexpr std::size_t kMaxHostLength = 253;
// sun_path of sockaddr_un on Linux, less the final NUL.
constexpr std::size_t kMaxSocketPathLength = 107;
constexpr std::uint16_t kRedisPort = 6379;
constexpr std::uint16_t kSentinelPort = 26379;
constexpr int kMaxPort = 65535;

[[noreturn]] void refuse(std::string_view text) {
  throw Error(Errc::invalidArgument, text);
}

[[noreturn]] void refuseUri(std::string_view text) {
  refuse(fmt::format("invalid server URI: {}", text));
}

std::string quoted(std::string_view text) {
  return fmt::format("\"{}\"", detail::escapeForDisplay(text));
}

bool isDigit(char c) {
  return c >= '0' && c <= '9';
}

bool isControl(char c) {
  return (c >= '\0' && c < ' ') || c == '\x7f';
}

bool isPrintableAscii(char c) {
  return c > ' ' && c < '\x7f';
}

template <class Unit>
struct DurationSetting {
  Unit Options::*member;
  Duration low;
  Duration high;
  bool orZero = false;  ///< 0 has a meaning of its own
};

struct IntSetting {
  int Options::*member;
  std::string_view unit;
  int low;
  int high;
};

template <class Enum>
struct EnumSetting {
  Enum Options::*member;
  Enum last;
};

/// Printable ASCII without spaces: what CLIENT SETNAME and Sentinel accept as a name.
struct LabelSetting {
  std::string Options::*member;
  std::string_view unit;
};

struct BoolSetting {
  bool Options::*member;
};

/// Set by a part of the URI that is not a parameter, or not by a URI at all.
struct OtherSetting {
  std::string_view unit;
  std::string_view defaultValue;
  std::string_view range;
};

struct Setting {
  std::string_view name;
  std::string_view parameter;
  std::variant<DurationSetting<milliseconds>,
               DurationSetting<microseconds>,
               IntSetting,
               EnumSetting<LostReplyPolicy>,
               EnumSetting<LogLevel>,
               LabelSetting,
               BoolSetting,
               OtherSetting>
      kind;
};

using Milliseconds = DurationSetting<milliseconds>;
using Microseconds = DurationSetting<microseconds>;

constexpr hours kYear{365 * 24};

constexpr std::array kSettings{
    Setting{"endpoints", "(host list)", OtherSetting{"address", "", "1 or more"}},
    Setting{"username", "(user)", OtherSetting{"text", "", "no spaces, no NUL"}},
    Setting{"password", "(password)", OtherSetting{"text", "", "no NUL"}},
    Setting{"clientName", "client-name", LabelSetting{&Options::clientName, "text"}},
    Setting{"database",
            "db",
            IntSetting{&Options::database, "number", 0, std::numeric_limits<int>::max()}},
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
    Setting{"lostReplyPolicy",
            "lost-reply-policy",
            EnumSetting<LostReplyPolicy>{&Options::lostReplyPolicy, LostReplyPolicy::marker}},
    Setting{"logLevel", "log-level", EnumSetting<LogLevel>{&Options::logLevel, LogLevel::error}},
    Setting{"onLost", "(none)", OtherSetting{"function", "", "any"}},
    Setting{"topology", "(scheme)", OtherSetting{"choice", "single", "single, sentinel, cluster"}},
    Setting{"tls", "tls", BoolSetting{&Options::tls}},
    Setting{"sentinelMaster", "master", LabelSetting{&Options::sentinelMaster, "text"}},
};

const Setting* findParameter(std::string_view parameter) {
  const auto* const found =
      std::find_if(kSettings.begin(), kSettings.end(), [parameter](const Setting& setting) {
        return setting.parameter == parameter;
      });
  // The parentheses mark what is no parameter, and "(none)" is no name a URI could set.
  return found == kSettings.end() || parameter.starts_with('(') ? nullptr : found;
}

template <class Enum>
std::string choices(Enum last) {
  std::string text;
  for (int value = 0; value <= static_cast<int>(last); ++value) {
    text.append(value == 0 ? "" : ", ").append(toString(static_cast<Enum>(value)));
  }
  return text;
}

template <class Unit>
std::string rangeOf(const DurationSetting<Unit>& setting) {
  return fmt::format(
      "{}{} to {}", setting.orZero ? "0ms, " : "", toString(setting.low), toString(setting.high));
}
std::string rangeOf(const IntSetting& setting) {
  return fmt::format("{} to {}", setting.low, setting.high);
}
template <class Enum>
std::string rangeOf(const EnumSetting<Enum>& setting) {
  return choices(setting.last);
}
std::string rangeOf(const LabelSetting&) {
  return fmt::format("up to {} printable ASCII characters, no spaces", kMaxLabelLength);
}
std::string rangeOf(const BoolSetting&) {
  return "true, false";
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
std::string unitOf(const BoolSetting&) {
  return "switch";
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
std::string valueOf(const BoolSetting& setting, const Options& options) {
  return options.*setting.member ? "true" : "false";
}
std::string valueOf(const OtherSetting& setting, const Options&) {
  return std::string(setting.defaultValue);
}

template <class Unit>
bool inRange(const DurationSetting<Unit>& setting, const Options& options) {
  const Duration value(options.*setting.member);
  return (value >= setting.low && value <= setting.high) ||
         (setting.orZero && value == Duration::zero());
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
bool inRange(const BoolSetting&, const Options&) {
  return true;
}
bool inRange(const OtherSetting&, const Options&) {
  return true;
}

std::string displayed(const LabelSetting& setting, const Options& options) {
  return quoted(options.*setting.member);
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
          refuse(fmt::format(
              "{} is {}; allowed: {}", titleOf(setting), displayed(kind, options), rangeOf(kind)));
        }
      },
      setting.kind);
}

bool isIpv6(std::string_view text) {
  const std::string address(text.substr(0, text.find('%')));
  const bool plainZone =
      !text.ends_with('%') && std::all_of(text.begin(), text.end(), isPrintableAscii);
  in6_addr parsed{};
  return plainZone && inet_pton(AF_INET6, address.c_str(), &parsed) == 1;
}

/// Empty when `host` may be given to a resolver.
std::string_view hostProblem(std::string_view host) {
  if (host.empty()) {
    return "the host is empty";
  }
  if (host.size() > kMaxHostLength) {
    return "the host is longer than 253 characters";
  }
  if (host.find(':') != std::string_view::npos) {
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

/// Empty when `path` may name a Unix socket.
std::string_view socketPathProblem(std::string_view path) {
  if (path.size() > kMaxSocketPathLength) {
    return "the socket path is longer than 107 bytes";
  }
  return path.find('\0') == std::string_view::npos ? "" : "the socket path contains a NUL byte";
}

void checkEndpoint(const Endpoint& endpoint, bool tls) {
  const bool local = !endpoint.path.empty();
  const std::string_view problem =
      local ? socketPathProblem(endpoint.path) : hostProblem(endpoint.host);
  if (!problem.empty()) {
    refuse(fmt::format(
        "option endpoints: {}: {}", quoted(local ? endpoint.path : endpoint.host), problem));
  }
  if (!local && endpoint.port == 0) {
    refuse(fmt::format("option endpoints: the port of {} is 0; allowed: 1 to 65535",
                       quoted(endpoint.host)));
  }
  if (local && tls) {
    refuse(
        fmt::format("option tls is true, but endpoint {} is a Unix socket", quoted(endpoint.path)));
  }
}

void checkOrder(milliseconds low,
                milliseconds high,
                std::string_view lowName,
                std::string_view highName) {
  if (low > high) {
    refuse(fmt::format("option {} is {}, which is more than {}, {}",
                       lowName,
                       toString(Duration(low)),
                       highName,
                       toString(Duration(high))));
  }
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

/// @param part  what the text is, for the error; the text itself may be a password
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
      fmt::format("unknown scheme {}; known: redis, rediss, unix, redis+sentinel, redis+cluster",
                  quoted(text)));
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
    if (!isIpv6(endpoint.host)) {
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
    if (const std::string_view problem = hostProblem(endpoint.host); !problem.empty()) {
      refuseUri(problem);
    }
  }
  if (port) {
    int number = 0;
    if (!std::all_of(port->begin(), port->end(), isDigit) || port->empty()) {
      refuseUri(fmt::format("the port after host {} is not a number", quoted(endpoint.host)));
    }
    if (parseNumber(*port, number) != std::errc() || number < 1 || number > kMaxPort) {
      refuseUri(fmt::format("port {} of host {} is out of range; allowed: 1 to {}",
                            detail::escapeForDisplay(*port),
                            quoted(endpoint.host),
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
                          detail::escapeForDisplay(text),
                          std::numeric_limits<int>::max()));
  }
  if (error != std::errc()) {
    refuseUri(fmt::format("database {} is not a number", quoted(text)));
  }
  return number;
}

Duration parseDuration(std::string_view text, std::string_view parameter) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) {
    refuseUri(fmt::format("parameter {}: the number in {} is too large", parameter, quoted(text)));
  }
  if (error != std::errc()) {
    refuseUri(fmt::format(
        "parameter {}: {} is not a duration such as 500ms or 3s", parameter, quoted(text)));
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
    return in(seconds::period());
  }
  if (unit == "m") {
    return in(minutes::period());
  }
  if (unit == "h") {
    return in(hours::period());
  }
  if (unit == "d") {
    return in(std::ratio<86400>());
  }
  refuseUri(fmt::format(
      "parameter {}: {} is not a whole number and one of the units ns, us, ms, s, m, h, d",
      parameter,
      quoted(text)));
}

template <class Unit>
Unit roundUp(Duration duration) {
  if (duration.isInfinite()) {
    return Unit::max();
  }
  return std::chrono::ceil<Unit>(duration.nanoseconds());
}

struct Parameter {
  std::string_view name;
  std::string value;
};

template <class Unit>
void assign(const DurationSetting<Unit>& setting, const Parameter& parameter, Options& options) {
  options.*setting.member = roundUp<Unit>(parseDuration(parameter.value, parameter.name));
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
                          detail::escapeForDisplay(parameter.value),
                          rangeOf(setting)));
  }
  if (error != std::errc()) {
    refuseUri(
        fmt::format("parameter {}: {} is not a number", parameter.name, quoted(parameter.value)));
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
                        quoted(parameter.value),
                        rangeOf(setting)));
}
void assign(const LabelSetting& setting, const Parameter& parameter, Options& options) {
  options.*setting.member = parameter.value;
}
void assign(const BoolSetting& setting, const Parameter& parameter, Options& options) {
  if (parameter.value != "true" && parameter.value != "false") {
    refuseUri(fmt::format(
        "parameter {}: {} is not true or false", parameter.name, quoted(parameter.value)));
  }
  options.*setting.member = parameter.value == "true";
}
void assign(const OtherSetting&, const Parameter&, Options&) {}

std::string knownParameters() {
  std::string text;
  for (const Setting& setting : kSettings) {
    if (!setting.parameter.starts_with('(')) {
      text.append(text.empty() ? "" : ", ").append(setting.parameter);
    }
  }
  return text;
}

void parseQuery(std::string_view query,
                const Scheme& scheme,
                bool databaseInPath,
                Options& options) {
  std::set<std::string_view> seen;
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view item = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);

    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const Setting* setting = findParameter(name);
    if (setting == nullptr) {
      refuseUri(fmt::format("unknown parameter {}; known: {}", quoted(name), knownParameters()));
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
    if (name == "tls" && scheme.tls && !options.tls) {
      refuseUri("the scheme rediss means TLS, but parameter tls is false");
    }
  }
}

void checkCharacters(std::string_view uri) {
  for (std::size_t i = 0; i < uri.size(); ++i) {
    if (isControl(uri[i]) || uri[i] == ' ') {
      refuseUri(fmt::format(
          "a space or control character at position {} (it must be percent-encoded)", i + 1));
    }
    if (uri[i] == '#') {
      refuseUri(fmt::format("'#' at position {} (it must be written %23)", i + 1));
    }
  }
}

}  // namespace

std::string toString(const Endpoint& endpoint) {
  if (!endpoint.path.empty()) {
    return fmt::format("unix://{}", endpoint.path);
  }
  const bool brackets = endpoint.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(brackets ? "[{}]:{}" : "{}:{}"), endpoint.host, endpoint.port);
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

  // Before anything after the authority is quoted in a message: it may be half of a password.
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
    if (path.size() > 1) {
      databaseInPath = true;
      options.database = parseDatabase(path.substr(1));
    }
  }
  parseQuery(query, scheme, databaseInPath, options);
  options.validate();
  return options;
}

void Options::validate() const {
  if (endpoints.empty()) {
    refuse("option endpoints is empty; at least one address is needed");
  }
  for (const Endpoint& endpoint : endpoints) {
    checkEndpoint(endpoint, tls);
  }
  // Neither of the two is quoted: a password may have been put into the wrong field.
  if (username.find('\0') != std::string::npos || username.find(' ') != std::string::npos) {
    refuse("option username contains a space or NUL byte, which no server allows");
  }
  if (password.find('\0') != std::string::npos) {
    refuse("option password contains a NUL byte");
  }
  for (const Setting& setting : kSettings) {
    checkRange(setting, *this);
  }
  checkOrder(reconnectDelayMin, reconnectDelayMax, "reconnectDelayMin", "reconnectDelayMax");
  checkOrder(retryDelayMin, retryDelayMax, "retryDelayMin", "retryDelayMax");
  const auto kind = static_cast<int>(topology);
  if (kind < 0 || kind > static_cast<int>(Topology::cluster)) {
    refuse(fmt::format(
        "option topology is {}; allowed: {}", toString(topology), choices(Topology::cluster)));
  }
  if (topology == Topology::cluster && database != 0) {
    refuse(fmt::format("option database is {}; a cluster has database 0 only", database));
  }
  if (topology == Topology::sentinel && sentinelMaster.empty()) {
    refuse(
        "option sentinelMaster (URI parameter master) is empty; Sentinels need the master's name");
  }
  if (topology != Topology::sentinel && !sentinelMaster.empty()) {
    refuse(fmt::format("option sentinelMaster (URI parameter master) is {}, but the topology is {}",
                       quoted(sentinelMaster),
                       toString(topology)));
  }
}

namespace detail {

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
}  // namespace rlock
