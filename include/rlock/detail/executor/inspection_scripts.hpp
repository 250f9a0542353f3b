// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/inspection.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The requests of `Client::inspect()`, `Client::list()` and of labels, and what their replies
/// mean. They read what any client has written, and the keys are told from other programs' by their
/// form only, so each parse function takes any reply: what is not of the expected form is left out
/// or comes back as "nothing". A question never changes a lock; composeLabels() writes to private
/// keys beside it.
///
/// **Thread safety:** Functions without state, safe from any thread; a Call is one thread's.

/// Everything about one name. The name is copied into the call.
void composeInspect(Call& call, std::string_view name);
/// Nothing: not what the script returns. Empty: nothing stands there.
std::optional<std::optional<LockInfo>> parseInspect(std::string_view name, const Reply& reply);

/// One step of a walk through the names that match a glob pattern.
void composeScan(Call& call, std::string_view cursor, std::string_view pattern);
struct ScanStep {
  std::string cursor;  ///< "0": the walk is over
  std::vector<std::string> names;
};
/// Names that only belong to a lock of another name are left out.
std::optional<ScanStep> parseScan(const Reply& reply);

/// The label of one hold.
struct LabelNote {
  std::string name;
  std::string owner;
  std::string label;  ///< empty: take it away
  std::chrono::milliseconds atLeast;
};
/// @param notes  must stay until the call is finished, and so must `keys`
/// @param keys   filled in
void composeLabels(Call& call, std::span<const LabelNote> notes, std::vector<std::string>& keys);

inline constexpr int kMost = 1000;

template <class Number>
std::optional<Number> numberIn(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty()
             ? std::optional(number)
             : std::nullopt;
}

/// `uuid:number`, which every owner field begins with.
inline bool looksLikeOwner(std::string_view text) {
  constexpr std::size_t kUuid = 36;
  if (text.size() < kUuid + 2 || text[kUuid] != ':') {
    return false;
  }
  return std::all_of(text.begin(), text.begin() + kUuid, [](char c) {
    return c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

inline std::string toHex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4U];
    text += kDigits[value & 15U];
  }
  return text;
}

using Labels = std::map<std::string_view, std::string_view>;

/// Reads the fields of a hash as holders; false: these are no holders.
inline bool readHolders(const Reply::Elements& fields, const Labels& labels, LockInfo& info) {
  constexpr std::string_view kWriter = ":write";
  bool readWrite = false;
  for (std::size_t i = 0; i + 1 < fields.size(); i += 2) {
    std::string_view owner = fields[i].text;
    if (owner == "mode") {
      readWrite = true;
      continue;
    }
    const auto count = numberIn<int>(fields[i + 1].text);
    if (!count || !looksLikeOwner(owner)) {
      return false;
    }
    LockHolder holder;
    holder.holds = *count;
    if (owner.ends_with(kWriter)) {
      owner.remove_suffix(kWriter.size());
    } else {
      holder.exclusive = false;
    }
    holder.owner = owner;
    const auto label = labels.find(owner);
    holder.label = label == labels.end() ? std::string() : std::string(label->second);
    info.holders.push_back(std::move(holder));
  }
  if (readWrite) {
    info.kind = LockKind::readWriteLock;
    return true;
  }
  for (LockHolder& holder : info.holders) {
    holder.exclusive = true;
  }
  info.kind = info.token             ? LockKind::fencedLock
              : info.waiters.empty() ? LockKind::lock
                                     : LockKind::fairLock;
  return true;
}

inline void readPermits(const Reply::Elements& permits, std::int64_t now, LockInfo& info) {
  for (std::size_t i = 0; i + 1 < permits.size(); i += 2) {
    LockHolder holder;
    const std::string_view id = permits[i].text;
    holder.owner = id.size() == 16 ? toHex(id) : std::string(id);
    holder.exclusive = false;
    if (permits[i + 1].text != kNeverExpires) {
      const auto expiry = numberIn<std::int64_t>(permits[i + 1].text).value_or(now);
      if (expiry <= now) {
        continue;
      }
      holder.timeToLive = std::chrono::milliseconds(expiry - now);
    }
    info.holders.push_back(std::move(holder));
  }
}

inline void composeInspect(Call& call, std::string_view name) {
  call.setScript(lua::inspect, 5);
  call.addArgument(call.store(name));
  call.addArgument(call.store(prefixed("redisson_lock_queue", name)));
  call.addArgument(call.store(prefixed("redisson_lock_token", name)));
  call.addArgument(call.store(suffixed(name, "timeout")));
  call.addArgument(call.store(labelKey(name)));
  call.addNumber(kMost);
}

inline std::optional<std::optional<LockInfo>> parseInspect(std::string_view name,
                                                           const Reply& reply) {
  if (!reply.isArray() || reply.elements.size() != 8 || !reply.elements[1].isInteger() ||
      !reply.elements[6].isInteger()) {
    return std::nullopt;
  }
  const std::string_view type = reply.elements[0].text;
  const Reply::Elements& content = reply.elements[2].elements;
  LockInfo info;
  info.name = name;
  if (type != "none") {
    const std::int64_t pttl = reply.elements[1].integer;
    info.timeToLive = pttl < 0 ? std::chrono::milliseconds::max() : std::chrono::milliseconds(pttl);
  }
  for (const Reply& waiter : reply.elements[3].elements) {
    info.waiters.emplace_back(waiter.text);
  }
  info.token = numberIn<std::uint64_t>(reply.elements[4].text);
  const Reply::Elements& permits = reply.elements[5].elements;
  Labels labels;
  const Reply::Elements& noted = reply.elements[7].elements;
  for (std::size_t i = 0; i + 1 < noted.size(); i += 2) {
    labels.emplace(noted[i].text, noted[i + 1].text);
  }

  if (type == "none") {
    if (info.waiters.empty() && permits.empty()) {
      return std::optional<LockInfo>();
    }
    info.kind = permits.empty() ? LockKind::fairLock : LockKind::permitSemaphore;
    readPermits(permits, reply.elements[6].integer, info);
  } else if (type == "hash" && !content.empty()) {
    if (!readHolders(content, labels, info)) {
      info.holders.clear();
    }
  } else if (type == "string" && content.size() == 1) {
    const std::string_view value = content[0].text;
    if ((info.available = numberIn<std::int64_t>(value))) {
      info.kind = permits.empty() ? LockKind::counter : LockKind::permitSemaphore;
      readPermits(permits, reply.elements[6].integer, info);
    } else if (looksLikeOwner(value)) {
      info.kind = LockKind::simpleLock;
      LockHolder holder;
      holder.owner = value;
      const auto label = labels.find(value);
      holder.label = label == labels.end() ? std::string() : std::string(label->second);
      info.holders.push_back(std::move(holder));
    }
  }
  return std::optional(std::move(info));
}

inline void composeScan(Call& call, std::string_view cursor, std::string_view pattern) {
  call.setCommand({"SCAN", call.store(cursor), "MATCH", call.store(pattern), "COUNT", "500"});
}

/// Whether a key belongs to a lock of another name, and could be taken for a lock by its content.
inline bool standsBesideALock(std::string_view name) {
  constexpr std::array<std::string_view, 6> kOurs{"rlock_request:",
                                                  "rlock_label:",
                                                  "rlock_lock_waiter_lease:",
                                                  "rlock_lock_order:",
                                                  "rlock_lock_foreign_wait:",
                                                  "rlock_rw_intent:"};
  // Our keys have the name of the lock in braces.
  const bool ours = name.find('{') != std::string_view::npos &&
                    std::any_of(kOurs.begin(), kOurs.end(), [name](std::string_view prefix) {
                      return name.starts_with(prefix);
                    });
  return ours || name.starts_with("redisson_") ||
         name.find(":rwlock_timeout:") != std::string_view::npos;
}

inline std::optional<ScanStep> parseScan(const Reply& reply) {
  if (!reply.isArray() || reply.elements.size() != 2 || !reply.elements[1].isArray()) {
    return std::nullopt;
  }
  ScanStep step;
  step.cursor = reply.elements[0].text;
  for (const Reply& element : reply.elements[1].elements) {
    const std::string_view name = element.text;
    if (!standsBesideALock(name)) {
      step.names.emplace_back(name);
    }
  }
  return step;
}

inline void composeLabels(Call& call,
                          std::span<const LabelNote> notes,
                          std::vector<std::string>& keys) {
  call.setScript(lua::label, notes.size());
  keys.clear();
  keys.reserve(notes.size());
  for (const LabelNote& note : notes) {
    call.addArgument(keys.emplace_back(labelKey(note.name)));
  }
  for (const LabelNote& note : notes) {
    call.addArgument(note.owner);
    call.addArgument(note.label);
    call.addNumber(note.atLeast.count());
  }
  call.setRepeatable(true);
}

}  // namespace rlock::detail
