// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/error.hpp>
#include <rlock/options.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// The application's names and the server's, by Options::namePrefix or Options::nameMapper. The
/// server's is the one that every key and channel is made of.
///
/// **Thread safety:** Immutable, safe from any thread.
class NameMap {
 public:
  static constexpr std::size_t kLongest = std::size_t{64} << 10;

  /// @param options  must stay
  explicit NameMap(const Options& options) noexcept : options_(options) {}

  /// @throws Error  invalidArgument: one of the two names is not between 1 and kLongest bytes long,
  ///                or the mapper threw
  [[nodiscard]] std::string toServer(std::string_view name) const;
  /// The application's name for one of the server's; that itself where only a mapper could tell.
  [[nodiscard]] std::string toApplication(std::string_view serverName) const;
  /// A glob pattern for the server's names, made of one for the application's, as far as possible.
  [[nodiscard]] std::string patternToServer(std::string_view pattern) const;

 private:
  static void check(std::string_view name, std::string_view measured, std::string_view what);

  const Options& options_;
};

inline void NameMap::check(std::string_view name,
                           std::string_view measured,
                           std::string_view what) {
  if (!measured.empty() && measured.size() <= kLongest) {
    return;
  }
  ErrorContext context;
  context.key = name;
  throw Error(
      Errc::invalidArgument,
      fmt::format(
          "{} of {} bytes is not between 1 and {} bytes long", what, measured.size(), kLongest),
      std::move(context));
}

inline std::string NameMap::toServer(std::string_view name) const {
  check(name, name, "a name");
  if (!options_.nameMapper) {
    std::string mapped = options_.namePrefix;
    mapped += name;
    check(name, mapped, "with namePrefix, a name");
    return mapped;
  }
  std::string mapped;
  try {
    mapped = options_.nameMapper(name);
  } catch (const std::exception& failure) {
    ErrorContext context;
    context.key = name;
    throw Error(Errc::invalidArgument,
                std::string("nameMapper threw: ") + failure.what(),
                std::move(context));
  } catch (...) {
    ErrorContext context;
    context.key = name;
    throw Error(Errc::invalidArgument, "nameMapper threw", std::move(context));
  }
  check(name, mapped, "what nameMapper returned, a name");
  return mapped;
}

inline std::string NameMap::toApplication(std::string_view serverName) const {
  if (!options_.nameMapper && serverName.starts_with(options_.namePrefix)) {
    serverName.remove_prefix(options_.namePrefix.size());
  }
  return std::string(serverName);
}

inline std::string NameMap::patternToServer(std::string_view pattern) const {
  std::string result;
  for (const char c : options_.namePrefix) {
    if (std::string_view("*?[]\\").find(c) != std::string_view::npos) {
      result += '\\';
    }
    result += c;
  }
  result += pattern;
  return result;
}

}  // namespace rlock::detail
