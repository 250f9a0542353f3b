// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace rlock::sim {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
};
template <class Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

/// Fields in the order in which they were added, which is how Redis keeps a small hash. A large one
/// it keeps in no order that anybody could tell; here the order stays, and HSCAN goes by pages.
class RedisHash {
 public:
  using Entry = std::pair<std::string, std::string>;

  [[nodiscard]] const std::string* find(std::string_view field) const noexcept;
  /// Returns whether the field is new.
  bool set(std::string_view field, std::string_view value);
  bool erase(std::string_view field);
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  /// Redis keeps it as a table by now, because it was large once.
  [[nodiscard]] bool isTable() const noexcept { return isTable_; }

 private:
  std::vector<Entry> entries_;
  bool isTable_ = false;
};

using RedisList = std::deque<std::string>;

/// Members by score, and by name within one score.
class RedisZset {
 public:
  using Entry = std::pair<double, std::string>;

  [[nodiscard]] std::optional<double> score(std::string_view member) const;
  /// Returns whether the member is new.
  bool set(std::string_view member, double score);
  bool erase(std::string_view member);
  [[nodiscard]] const std::set<Entry>& entries() const noexcept { return entries_; }

 private:
  std::set<Entry> entries_;
  StringMap<double> scores_;
};

struct RedisObject {
  std::variant<std::string, RedisHash, RedisList, RedisZset> value;
  /// The last millisecond since the epoch at which the key is there.
  std::optional<std::int64_t> expiresAt;
  /// Rises with each new key, so that SCAN can go on where it was.
  std::uint64_t birth = 0;

  /// As TYPE names it.
  [[nodiscard]] std::string_view typeName() const noexcept;
};

/// The keys of one database. Keys whose time is over are removed when somebody looks for them.
///
/// **Thread safety:** One thread at a time.
class RedisKeyspace {
 public:
  using Map = StringMap<RedisObject>;

  /// Nothing if there is no such key at that time.
  RedisObject* find(std::string_view key, std::int64_t nowMs);
  /// See RedisModelOptions::punctual.
  void setPunctual(bool punctual) noexcept { punctual_ = punctual; }
  /// Replaces what stands there, expiry and all.
  RedisObject& put(std::string_view key, decltype(RedisObject::value) value);
  /// Returns whether there was one.
  bool erase(std::string_view key, std::int64_t nowMs);
  void clear() noexcept { keys_.clear(); }
  /// All keys that are there at that time, by birth.
  std::vector<const Map::value_type*> all(std::int64_t nowMs) const;

 private:
  Map keys_;
  std::uint64_t births_ = 0;
  bool punctual_ = false;
};

}  // namespace rlock::sim
