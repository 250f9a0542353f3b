// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace rlock::detail {

/// `prefix:{name}`, or `prefix:name` when the name has a brace of its own: the form that keeps what
/// is derived from a name in the name's slot, and the one Redisson uses.
inline std::string prefixed(std::string_view prefix, std::string_view name) {
  std::string result;
  result.reserve(prefix.size() + name.size() + 3);
  result += prefix;
  result += ':';
  const bool tagged = name.find('{') != std::string_view::npos;
  if (!tagged) {
    result += '{';
  }
  result += name;
  if (!tagged) {
    result += '}';
  }
  return result;
}

/// The channel on which the release of a lock is announced.
inline std::string lockChannel(std::string_view name) {
  return prefixed("redisson_lock__channel", name);
}

/// The channel on which a client hears what others did to its holds.
inline std::string clientChannel(std::string_view clientId) {
  return "rlock_client:" + std::string(clientId);
}

/// `{name}:suffix`, or `name:suffix` when the name has a brace of its own.
inline std::string suffixed(std::string_view name, std::string_view suffix) {
  const bool tagged = name.find('{') != std::string_view::npos;
  std::string result;
  result.reserve(name.size() + suffix.size() + 3);
  if (!tagged) {
    result += '{';
  }
  result += name;
  if (!tagged) {
    result += '}';
  }
  result += ':';
  result += suffix;
  return result;
}

/// What holders say about their holds.
inline std::string labelKey(std::string_view name) {
  return prefixed("rlock_label", name);
}

/// A private key of one request, in the slot of the name.
inline std::string requestKey(std::string_view name, std::string_view requestId) {
  std::string result = prefixed("rlock_request", name);
  result += ':';
  result += requestId;
  return result;
}

}  // namespace rlock::detail
