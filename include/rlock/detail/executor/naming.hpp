// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/net/hash_slot.hpp>

#include <string>
#include <string_view>

namespace rlock::detail {

/// The score of a permit that never expires: what Redisson writes and compares with.
inline constexpr std::string_view kNeverExpires = "922337203685477";

/// `{name}`, or `name` when it has a brace of its own: the form that keeps what is derived from a
/// name in the name's slot, and the one Redisson uses.
inline std::string braced(std::string_view name) {
  if (name.find('{') != std::string_view::npos) {
    return std::string(name);
  }
  std::string result;
  result.reserve(name.size() + 2);
  result += '{';
  result += name;
  result += '}';
  return result;
}

/// `prefix:{name}`, with the name braced().
inline std::string prefixed(std::string_view prefix, std::string_view name) {
  // Of just the size: every lock keeps one.
  std::string result;
  const bool hasBrace = name.find('{') != std::string_view::npos;
  result.reserve(prefix.size() + 1 + name.size() + (hasBrace ? 0 : 2));
  result += prefix;
  result += hasBrace ? ":" : ":{";
  result += name;
  result += hasBrace ? "" : "}";
  return result;
}

/// `{name}:suffix`, with the name braced().
inline std::string suffixed(std::string_view name, std::string_view suffix) {
  std::string result = braced(name);
  result += ':';
  result += suffix;
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

/// The key of the labels that holders give their holds.
inline std::string labelKey(std::string_view name) {
  return prefixed("rlock_label", name);
}

/// The channel on which permits are announced.
inline std::string semaphoreChannel(std::string_view name) {
  return prefixed("redisson_sc", name);
}

/// The channel on which a latch is announced. Always in braces, whatever the name has: so does
/// Redisson.
inline std::string latchChannel(std::string_view name) {
  std::string result = "redisson_countdownlatch__channel__{";
  result += name;
  result += '}';
  return result;
}

/// The fencing counter of a lock.
inline std::string fencingKey(std::string_view name) {
  return prefixed("redisson_lock_token", name);
}

/// The key whose writing stamps a connection with the server's present replication offset. Its
/// prefix is one that every user has who may take locks.
inline std::string ackMarkKey(std::string_view name) {
  return prefixed("rlock_request", name) + ":acks";
}

/// The channel on which this library's own clients hear of the release of a simple lock.
inline std::string simpleChannel(std::string_view name) {
  return prefixed("rlock_simple", name);
}

/// Whether a cluster has all that is derived from a name in the name's slot. It does for every name
/// without braces, and for those whose first brace opens a tag that is not empty.
inline bool staysInSlot(std::string_view name) {
  return net::hashSlot(labelKey(name)) == net::hashSlot(name);
}

/// The same for a latch, whose channel is named in a way of its own.
inline bool latchStaysInSlot(std::string_view name) {
  return staysInSlot(name) && net::hashSlot(latchChannel(name)) == net::hashSlot(name);
}

/// A private key of one request, in the slot of the name.
inline std::string requestKey(std::string_view name, std::string_view requestId) {
  std::string result = prefixed("rlock_request", name);
  result += ':';
  result += requestId;
  return result;
}

}  // namespace rlock::detail
