// SPDX-License-Identifier: Apache-2.0

// The commands on lists and sorted sets, whose elements have places. Places count from the end
// where they are negative, and a range beyond either end is cut, as in Redis.

#include "testing/redis_commands.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

namespace rlock::sim {

namespace {

using detail::Reply;
using std::string_view;

std::int64_t sizeOf(std::size_t size) {
  return static_cast<std::int64_t>(size);
}

/// A range of places as Redis counts them, from the end where negative.
struct Places {
  std::int64_t first;
  std::int64_t last;
  [[nodiscard]] bool empty() const noexcept { return first > last; }
};
std::optional<Places> placesOf(string_view first, string_view last) {
  const auto begin = redisInteger(first);
  const auto end = redisInteger(last);
  return begin && end ? std::optional(Places{*begin, *end}) : std::nullopt;
}
Places within(Places places, std::size_t size) {
  const std::int64_t length = sizeOf(size);
  places.first = std::max<std::int64_t>(places.first < 0 ? places.first + length : places.first, 0);
  places.last = std::min(places.last < 0 ? places.last + length : places.last, length - 1);
  return places;
}

// Lists.

Reply push(const CommandContext& context, RedisArgv argv, bool atEnd) {
  auto looked = lookFor<RedisList>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  if (looked.value == nullptr) {
    looked.value = &std::get<RedisList>(context.keys.put(argv[1], RedisList()).value);
  }
  for (const string_view element : argv.subspan(2)) {
    if (atEnd) {
      looked.value->emplace_back(element);
    } else {
      looked.value->emplace_front(element);
    }
  }
  return replyInteger(sizeOf(looked.value->size()));
}

Reply lpush(const CommandContext& context, RedisArgv argv) {
  return push(context, argv, false);
}
Reply rpush(const CommandContext& context, RedisArgv argv) {
  return push(context, argv, true);
}

Reply pop(const CommandContext& context, RedisArgv argv, bool atEnd) {
  if (argv.size() > 2) {
    return replyError(kSyntaxError);
  }
  const auto looked = lookFor<RedisList>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  if (looked.value == nullptr) {
    return replyNil();
  }
  RedisList& list = *looked.value;
  Reply reply = replyString(atEnd ? list.back() : list.front());
  if (atEnd) {
    list.pop_back();
  } else {
    list.pop_front();
  }
  if (list.empty()) {
    context.keys.erase(argv[1], context.nowMs);
  }
  return reply;
}

Reply lpop(const CommandContext& context, RedisArgv argv) {
  return pop(context, argv, false);
}
Reply rpop(const CommandContext& context, RedisArgv argv) {
  return pop(context, argv, true);
}

Reply llen(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<RedisList>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  return replyInteger(looked.value == nullptr ? 0 : sizeOf(looked.value->size()));
}

Reply lindex(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<RedisList>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  if (looked.value == nullptr) {
    return replyNil();
  }
  auto index = redisInteger(argv[2]);
  if (!index) {
    return replyError(kNotAnInteger);
  }
  const std::int64_t length = sizeOf(looked.value->size());
  *index += *index < 0 ? length : 0;
  if (*index < 0 || *index >= length) {
    return replyNil();
  }
  return replyString((*looked.value)[static_cast<std::size_t>(*index)]);
}

Reply lrange(const CommandContext& context, RedisArgv argv) {
  const auto range = placesOf(argv[2], argv[3]);
  if (!range) {
    return replyError(kNotAnInteger);
  }
  const auto looked = lookFor<RedisList>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  std::vector<Reply> elements;
  if (looked.value != nullptr) {
    const Places places = within(*range, looked.value->size());
    for (std::int64_t i = places.first; i <= places.last; ++i) {
      elements.push_back(replyString((*looked.value)[static_cast<std::size_t>(i)]));
    }
  }
  return replyArray(std::move(elements));
}

Reply lrem(const CommandContext& context, RedisArgv argv) {
  const auto count = redisInteger(argv[2]);
  if (!count) {
    return replyError(kNotAnInteger);
  }
  const auto looked = lookFor<RedisList>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  if (looked.value == nullptr) {
    return replyInteger(0);
  }
  RedisList& list = *looked.value;
  const bool fromEnd = *count < 0;
  const std::size_t most = *count == 0 ? list.size() : static_cast<std::size_t>(std::abs(*count));
  std::size_t removed = 0;
  RedisList kept;
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::string& element = list[fromEnd ? list.size() - 1 - i : i];
    if (removed < most && element == argv[3]) {
      ++removed;
    } else if (fromEnd) {
      kept.push_front(std::move(element));
    } else {
      kept.push_back(std::move(element));
    }
  }
  list = std::move(kept);
  if (list.empty()) {
    context.keys.erase(argv[1], context.nowMs);
  }
  return replyInteger(sizeOf(removed));
}

Reply linsert(const CommandContext& context, RedisArgv argv) {
  const std::string where = lowerCase(argv[2]);
  if (where != "before" && where != "after") {
    return replyError(kSyntaxError);
  }
  const auto looked = lookFor<RedisList>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  if (looked.value == nullptr) {
    return replyInteger(0);
  }
  RedisList& list = *looked.value;
  const auto pivot = std::find(list.begin(), list.end(), argv[3]);
  if (pivot == list.end()) {
    return replyInteger(-1);
  }
  list.emplace(where == "before" ? pivot : std::next(pivot), argv[4]);
  return replyInteger(sizeOf(list.size()));
}

// Sorted sets.

Reply zadd(const CommandContext& context, RedisArgv argv) {
  bool ifNew = false;
  bool ifThere = false;
  bool tellChanged = false;
  std::size_t first = 2;
  for (; first < argv.size(); ++first) {
    const std::string option = lowerCase(argv[first]);
    if (option == "nx") {
      ifNew = true;
    } else if (option == "xx") {
      ifThere = true;
    } else if (option == "ch") {
      tellChanged = true;
    } else {
      break;
    }
  }
  const RedisArgv pairs = argv.subspan(first);
  if (pairs.empty() || pairs.size() % 2 != 0) {
    return replyError(kSyntaxError);
  }
  if (ifNew && ifThere) {
    return replyError("ERR XX and NX options at the same time are not compatible");
  }
  std::vector<double> scores;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    const auto score = redisDouble(pairs[i]);
    if (!score) {
      return replyError("ERR value is not a valid float");
    }
    scores.push_back(*score);
  }
  auto looked = lookFor<RedisZset>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  if (looked.value == nullptr) {
    if (ifThere) {
      return replyInteger(0);
    }
    looked.value = &std::get<RedisZset>(context.keys.put(argv[1], RedisZset()).value);
  }
  std::int64_t count = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const string_view member = pairs[2 * i + 1];
    const auto before = looked.value->score(member);
    if (before ? ifNew : ifThere) {
      continue;
    }
    if (!before || (tellChanged && *before != scores[i])) {
      ++count;
    }
    looked.value->set(member, scores[i]);
  }
  return replyInteger(count);
}

Reply zincrby(const CommandContext& context, RedisArgv argv) {
  const auto change = redisDouble(argv[2]);
  if (!change) {
    return replyError("ERR value is not a valid float");
  }
  auto looked = lookFor<RedisZset>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  const double after =
      (looked.value == nullptr ? 0 : looked.value->score(argv[3]).value_or(0)) + *change;
  if (std::isnan(after)) {
    return replyError("ERR resulting score is not a number (NaN)");
  }
  if (looked.value == nullptr) {
    looked.value = &std::get<RedisZset>(context.keys.put(argv[1], RedisZset()).value);
  }
  looked.value->set(argv[3], after);
  return replyString(redisDoubleText(after));
}

Reply zscore(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<RedisZset>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  const auto score =
      looked.value == nullptr ? std::optional<double>() : looked.value->score(argv[2]);
  return score ? replyString(redisDoubleText(*score)) : replyNil();
}

Reply zcard(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<RedisZset>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  return replyInteger(looked.value == nullptr ? 0 : sizeOf(looked.value->entries().size()));
}

/// Removes members, and the key with the last of them. Returns how many were there.
template <class Members>
std::int64_t removeMembers(const CommandContext& context,
                           string_view key,
                           RedisZset& zset,
                           const Members& members) {
  std::int64_t removed = 0;
  for (const auto& member : members) {
    removed += zset.erase(member) ? 1 : 0;
  }
  if (zset.entries().empty()) {
    context.keys.erase(key, context.nowMs);
  }
  return removed;
}

Reply zrem(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<RedisZset>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  return replyInteger(looked.value == nullptr
                          ? 0
                          : removeMembers(context, argv[1], *looked.value, argv.subspan(2)));
}

void append(std::vector<Reply>& reply, const RedisZset::Entry& entry, bool scores) {
  reply.push_back(replyString(entry.second));
  if (scores) {
    reply.push_back(replyString(redisDoubleText(entry.first)));
  }
}

Reply rangeByPlace(const CommandContext& context, RedisArgv argv, bool reversed) {
  const bool scores = argv.size() == 5 && lowerCase(argv[4]) == "withscores";
  if (argv.size() > 4 && !scores) {
    return replyError(kSyntaxError);
  }
  const auto range = placesOf(argv[2], argv[3]);
  if (!range) {
    return replyError(kNotAnInteger);
  }
  const auto looked = lookFor<RedisZset>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  std::vector<Reply> found;
  if (looked.value == nullptr) {
    return replyArray();
  }
  const auto& entries = looked.value->entries();
  const Places places = within(*range, entries.size());
  const std::int64_t count = places.empty() ? 0 : places.last - places.first + 1;
  if (count > 0 && reversed) {
    auto entry = std::next(entries.rbegin(), places.first);
    for (std::int64_t i = 0; i < count; ++i, ++entry) {
      append(found, *entry, scores);
    }
  } else if (count > 0) {
    auto entry = std::next(entries.begin(), places.first);
    for (std::int64_t i = 0; i < count; ++i, ++entry) {
      append(found, *entry, scores);
    }
  }
  return replyArray(std::move(found));
}

Reply zrange(const CommandContext& context, RedisArgv argv) {
  return rangeByPlace(context, argv, false);
}
Reply zrevrange(const CommandContext& context, RedisArgv argv) {
  return rangeByPlace(context, argv, true);
}

/// An end of a range of scores; `(` before it leaves the score itself out.
struct ScoreLimit {
  double score;
  bool exclusive;
};
std::optional<ScoreLimit> scoreLimit(string_view text) {
  const bool exclusive = text.starts_with('(');
  const auto score = redisDouble(text.substr(exclusive ? 1 : 0));
  return score ? std::optional(ScoreLimit{*score, exclusive}) : std::nullopt;
}
bool isWithin(double score, const ScoreLimit& least, const ScoreLimit& most) {
  return (least.exclusive ? score > least.score : score >= least.score) &&
         (most.exclusive ? score < most.score : score <= most.score);
}

Reply zrangebyscore(const CommandContext& context, RedisArgv argv) {
  const auto least = scoreLimit(argv[2]);
  const auto most = scoreLimit(argv[3]);
  const bool scores = argv.size() == 5 && lowerCase(argv[4]) == "withscores";
  if (argv.size() > 4 && !scores) {
    return replyError(kSyntaxError);
  }
  if (!least || !most) {
    return replyError("ERR min or max is not a float");
  }
  const auto looked = lookFor<RedisZset>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  std::vector<Reply> found;
  if (looked.value != nullptr) {
    for (const auto& entry : looked.value->entries()) {
      if (isWithin(entry.first, *least, *most)) {
        append(found, entry, scores);
      }
    }
  }
  return replyArray(std::move(found));
}

Reply zremrangebyscore(const CommandContext& context, RedisArgv argv) {
  const auto least = scoreLimit(argv[2]);
  const auto most = scoreLimit(argv[3]);
  if (!least || !most) {
    return replyError("ERR min or max is not a float");
  }
  const auto looked = lookFor<RedisZset>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  if (looked.value == nullptr) {
    return replyInteger(0);
  }
  std::vector<std::string> members;
  for (const auto& entry : looked.value->entries()) {
    if (isWithin(entry.first, *least, *most)) {
      members.push_back(entry.second);
    }
  }
  return replyInteger(removeMembers(context, argv[1], *looked.value, members));
}

Reply zremrangebyrank(const CommandContext& context, RedisArgv argv) {
  const auto range = placesOf(argv[2], argv[3]);
  if (!range) {
    return replyError(kNotAnInteger);
  }
  const auto looked = lookFor<RedisZset>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  if (looked.value == nullptr) {
    return replyInteger(0);
  }
  const auto& entries = looked.value->entries();
  const Places places = within(*range, entries.size());
  std::vector<std::string> members;
  if (!places.empty()) {
    auto entry = std::next(entries.begin(), places.first);
    for (std::int64_t i = places.first; i <= places.last; ++i, ++entry) {
      members.push_back(entry->second);
    }
  }
  return replyInteger(removeMembers(context, argv[1], *looked.value, members));
}

constexpr auto kOrderedCommands = std::to_array<RedisCommand>({
    {"lpush", -3, kGrows, lpush},
    {"rpush", -3, kGrows, rpush},
    {"linsert", 5, kGrows, linsert},
    {"lpop", -2, kWrite, lpop},
    {"rpop", -2, kWrite, rpop},
    {"lrem", 4, kWrite, lrem},
    {"llen", 2, 0, llen},
    {"lindex", 3, 0, lindex},
    {"lrange", 4, 0, lrange},
    {"zadd", -4, kGrows, zadd},
    {"zincrby", 4, kGrows, zincrby},
    {"zrem", -3, kWrite, zrem},
    {"zremrangebyscore", 4, kWrite, zremrangebyscore},
    {"zremrangebyrank", 4, kWrite, zremrangebyrank},
    {"zscore", 3, 0, zscore},
    {"zcard", 2, 0, zcard},
    {"zrange", -4, 0, zrange},
    {"zrevrange", -4, 0, zrevrange},
    {"zrangebyscore", -4, 0, zrangebyscore},
});

}  // namespace

std::span<const RedisCommand> orderedCommands() {
  return kOrderedCommands;
}

}  // namespace rlock::sim
