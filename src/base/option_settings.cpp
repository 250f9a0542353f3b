// SPDX-License-Identifier: Apache-2.0

// The table of all options, from which ranges, defaults and messages follow and with which
// docs/configuration.md must agree.

#include "base/option_settings.hpp"

#include <rlock/error.hpp>
#include <rlock/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <span>
#include <variant>

namespace rlock::detail {

namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t kMaxLabelLength = 256;

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
    Setting{"sentinelCredentials", "(none)", OtherSetting{"function", "", "any"}},
    Setting{"sentinelTls", "sentinel-tls", BoolSetting{&Options::sentinelTls}},
    Setting{"sync", "sync", SyncSetting{}},
    Setting{"sync.limit", "sync-timeout", SyncLimitSetting{}},
};

}  // namespace

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

}  // namespace

std::string optionTitle(const Setting& setting) {
  if (setting.parameter.starts_with('(')) {
    return fmt::format("option {}", setting.name);
  }
  return fmt::format("option {} (URI parameter {})", setting.name, setting.parameter);
}

void checkRange(const Setting& setting, const Options& options) {
  std::visit(
      [&](const auto& kind) {
        if (!inRange(kind, options)) {
          refuseOption(fmt::format("{} is {}; allowed: {}",
                                   optionTitle(setting),
                                   displayed(kind, options),
                                   rangeOf(kind)));
        }
      },
      setting.kind);
}

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

}  // namespace rlock::detail
