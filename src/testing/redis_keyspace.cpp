// SPDX-License-Identifier: Apache-2.0
#include "testing/redis_keyspace.hpp"

#include <algorithm>
#include <array>

namespace rlock::sim {

namespace {

// The defaults of hash-max-listpack-entries and hash-max-listpack-value.
constexpr std::size_t kListpackEntries = 512;
constexpr std::size_t kListpackValue = 64;

/// Redis keeps a key to the end of the millisecond in which its time is over.
bool isOver(const RedisObject& object, std::int64_t nowMs, bool punctual) {
  return object.expiresAt && nowMs + (punctual ? 1 : 0) > *object.expiresAt;
}

}  // namespace

const std::string* RedisHash::find(std::string_view field) const noexcept {
  for (const Entry& entry : entries_) {
    if (entry.first == field) {
      return &entry.second;
    }
  }
  return nullptr;
}

bool RedisHash::set(std::string_view field, std::string_view value) {
  isTable_ = isTable_ || field.size() > kListpackValue || value.size() > kListpackValue;
  for (Entry& entry : entries_) {
    if (entry.first == field) {
      entry.second = value;
      return false;
    }
  }
  entries_.emplace_back(field, value);
  isTable_ = isTable_ || entries_.size() > kListpackEntries;
  return true;
}

bool RedisHash::erase(std::string_view field) {
  return std::erase_if(entries_, [&](const Entry& entry) { return entry.first == field; }) > 0;
}

std::optional<double> RedisZset::score(std::string_view member) const {
  const auto found = scores_.find(member);
  return found == scores_.end() ? std::nullopt : std::optional(found->second);
}

bool RedisZset::set(std::string_view member, double score) {
  const auto found = scores_.find(member);
  if (found == scores_.end()) {
    scores_.emplace(member, score);
    entries_.emplace(score, member);
    return true;
  }
  entries_.erase({found->second, found->first});
  entries_.emplace(score, member);
  found->second = score;
  return false;
}

bool RedisZset::erase(std::string_view member) {
  const auto found = scores_.find(member);
  if (found == scores_.end()) {
    return false;
  }
  entries_.erase({found->second, found->first});
  scores_.erase(found);
  return true;
}

std::string_view RedisObject::typeName() const noexcept {
  constexpr std::array<std::string_view, 4> kNames{"string", "hash", "list", "zset"};
  return kNames[value.index()];
}

RedisObject* RedisKeyspace::find(std::string_view key, std::int64_t nowMs) {
  const auto found = keys_.find(key);
  if (found == keys_.end()) {
    return nullptr;
  }
  if (isOver(found->second, nowMs, punctual_)) {
    keys_.erase(found);
    return nullptr;
  }
  return &found->second;
}

RedisObject& RedisKeyspace::put(std::string_view key, decltype(RedisObject::value) value) {
  auto found = keys_.find(key);
  if (found == keys_.end()) {
    found = keys_.emplace(key, RedisObject{}).first;
    found->second.birth = ++births_;
  }
  found->second.value = std::move(value);
  found->second.expiresAt.reset();
  return found->second;
}

bool RedisKeyspace::erase(std::string_view key, std::int64_t nowMs) {
  if (find(key, nowMs) == nullptr) {
    return false;
  }
  keys_.erase(keys_.find(key));
  return true;
}

std::vector<const RedisKeyspace::Map::value_type*> RedisKeyspace::all(std::int64_t nowMs) const {
  std::vector<const Map::value_type*> result;
  result.reserve(keys_.size());
  for (const auto& key : keys_) {
    if (!isOver(key.second, nowMs, punctual_)) {
      result.push_back(&key);
    }
  }
  std::sort(result.begin(), result.end(), [](const auto* left, const auto* right) {
    return left->second.birth < right->second.birth;
  });
  return result;
}

}  // namespace rlock::sim
