// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/duration.hpp>
#include <rlock/options.hpp>

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <variant>

// The table of all options, their ranges, and the rules for hosts. Options::validate() and
// Options::fromUri() both use it.

namespace rlock::detail {

template <class Unit>
struct DurationSetting {
  Unit Options::*member;
  Duration low;
  Duration high;
  bool orZero = false;  ///< 0 has a meaning of its own

  [[nodiscard]] bool allows(Duration value) const {
    return (value >= low && value <= high) || (orZero && value == Duration::zero());
  }
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

/// Printable ASCII without spaces, which CLIENT SETNAME and Sentinel accept as a name.
struct LabelSetting {
  std::string Options::*member;
  std::string_view unit;
};

/// Any text, such as a path.
struct TextSetting {
  std::string Options::*member;
  std::string_view unit;
  std::string_view range;
  bool secret = false;  ///< never printed
};

/// A value that may be a secret: no message quotes it.
struct SecretSetting {
  std::string Options::*member;
  std::string_view range;
  std::string_view forbidden;
};

struct BoolSetting {
  bool Options::*member;
};

/// Options::sync, in two parameters: who, and how long.
struct SyncSetting {};
struct SyncLimitSetting {};

/// An option that a part of the URI sets which is not a parameter, or that no URI can set.
struct OtherSetting {
  std::string_view unit;
  std::string_view defaultValue;
  std::string_view range;
};

struct Setting {
  std::string_view name;
  std::string_view parameter;
  std::variant<DurationSetting<std::chrono::milliseconds>,
               DurationSetting<std::chrono::microseconds>,
               IntSetting,
               EnumSetting<LostReplyPolicy>,
               EnumSetting<LogLevel>,
               EnumSetting<ConnectMode>,
               LabelSetting,
               TextSetting,
               SecretSetting,
               BoolSetting,
               SyncSetting,
               SyncLimitSetting,
               OtherSetting>
      kind;
};

/// All options, in the order of the documents.
[[nodiscard]] std::span<const Setting> settings() noexcept;
/// Null when there is no such parameter.
[[nodiscard]] const Setting* findParameter(std::string_view parameter);

template <class Enum>
[[nodiscard]] std::string choices(Enum last) {
  std::string text;
  for (int value = 0; value <= static_cast<int>(last); ++value) {
    text.append(value == 0 ? "" : ", ").append(toString(static_cast<Enum>(value)));
  }
  return text;
}

///@{
/// The allowed values, as text for messages and documents.
[[nodiscard]] std::string rangeOf(const IntSetting& setting);
template <class Unit>
[[nodiscard]] std::string rangeOf(const DurationSetting<Unit>& setting) {
  return (setting.orZero ? "0ms, " : "") + toString(setting.low) + " to " + toString(setting.high);
}
template <class Enum>
[[nodiscard]] std::string rangeOf(const EnumSetting<Enum>& setting) {
  return choices(setting.last);
}
///@}

/// The option and its URI parameter, as messages begin.
[[nodiscard]] std::string optionTitle(const Setting& setting);
/// @throws Error  invalidArgument: the value is outside of the option's range
void checkRange(const Setting& setting, const Options& options);

/// Throws Errc::invalidArgument.
[[noreturn]] void refuseOption(std::string_view text);
/// The text in quotes, for messages.
[[nodiscard]] std::string inQuotes(std::string_view text);
[[nodiscard]] bool isDigit(char c);
/// It is no space, either.
[[nodiscard]] bool isPrintableAscii(char c);
[[nodiscard]] bool isIpv6(std::string_view text);
/// The reason why `host` must not be given to a resolver; empty if there is none.
[[nodiscard]] std::string_view hostProblem(std::string_view host);

}  // namespace rlock::detail
