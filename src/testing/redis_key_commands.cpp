// SPDX-License-Identifier: Apache-2.0

// The commands on keys, strings, hashes and sets. Each checks its arguments before it changes
// anything, and a key whose value has become empty is gone, as in Redis.

#include "testing/redis_commands.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <system_error>
#include <utility>

namespace rlock::sim {

using detail::Reply;

namespace {

using std::string_view;

std::optional<std::int64_t> sumOf(std::int64_t left, std::int64_t right) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(left, right, &sum) ? std::nullopt : std::optional(sum);
}

// Keys.

Reply del(const CommandContext& context, RedisArgv argv) {
  std::int64_t count = 0;
  for (const string_view key : argv.subspan(1)) {
    count += context.keys.erase(key, context.nowMs) ? 1 : 0;
  }
  return replyInteger(count);
}

Reply exists(const CommandContext& context, RedisArgv argv) {
  std::int64_t count = 0;
  for (const string_view key : argv.subspan(1)) {
    count += context.keys.find(key, context.nowMs) != nullptr ? 1 : 0;
  }
  return replyInteger(count);
}

Reply type(const CommandContext& context, RedisArgv argv) {
  const RedisObject* const object = context.keys.find(argv[1], context.nowMs);
  return replyStatus(object == nullptr ? "none" : object->typeName());
}

Reply rename(const CommandContext& context, RedisArgv argv) {
  RedisObject* const object = context.keys.find(argv[1], context.nowMs);
  if (object == nullptr) {
    return replyError("ERR no such key");
  }
  if (argv[1] != argv[2]) {
    RedisObject moved = std::move(*object);
    context.keys.erase(argv[1], context.nowMs);
    RedisObject& target = context.keys.put(argv[2], std::move(moved.value));
    target.expiresAt = moved.expiresAt;
  }
  return replyStatus("OK");
}

Reply persist(const CommandContext& context, RedisArgv argv) {
  RedisObject* const object = context.keys.find(argv[1], context.nowMs);
  if (object == nullptr || !object->expiresAt) {
    return replyInteger(0);
  }
  object->expiresAt.reset();
  return replyInteger(1);
}

/// The moment that an argument names, in ms since the epoch; nothing where Redis calls it invalid.
std::optional<std::int64_t> momentOf(const CommandContext& context,
                                     std::int64_t number,
                                     bool seconds,
                                     bool absolute) {
  std::int64_t moment = number;
  if (seconds && __builtin_mul_overflow(number, 1000, &moment)) {
    return std::nullopt;
  }
  return absolute ? moment : sumOf(moment, context.nowMs);
}

Reply expireGeneric(const CommandContext& context, RedisArgv argv, bool seconds, bool absolute) {
  if (argv.size() > 3) {
    return replyError("ERR Unsupported option " + std::string(argv[3]));
  }
  const auto number = redisInteger(argv[2]);
  if (!number) {
    return replyError(kNotAnInteger);
  }
  const auto moment = momentOf(context, *number, seconds, absolute);
  if (!moment) {
    return replyError("ERR invalid expire time in '" + lowerCase(argv[0]) + "' command");
  }
  RedisObject* const object = context.keys.find(argv[1], context.nowMs);
  if (object == nullptr) {
    return replyInteger(0);
  }
  if (*moment <= context.nowMs) {
    context.keys.erase(argv[1], context.nowMs);
  } else {
    object->expiresAt = *moment;
  }
  return replyInteger(1);
}

Reply expire(const CommandContext& context, RedisArgv argv) {
  return expireGeneric(context, argv, true, false);
}
Reply pexpire(const CommandContext& context, RedisArgv argv) {
  return expireGeneric(context, argv, false, false);
}
Reply pexpireat(const CommandContext& context, RedisArgv argv) {
  return expireGeneric(context, argv, false, true);
}

/// -2 = no key, -1 = no expiry, otherwise what `tell` makes of the moment.
template <class Tell>
Reply expiryReply(const CommandContext& context, string_view key, Tell tell) {
  const RedisObject* const object = context.keys.find(key, context.nowMs);
  if (object == nullptr) {
    return replyInteger(-2);
  }
  return replyInteger(object->expiresAt ? tell(*object->expiresAt) : -1);
}

Reply pttl(const CommandContext& context, RedisArgv argv) {
  return expiryReply(context, argv[1], [&](std::int64_t at) { return at - context.nowMs; });
}
Reply ttl(const CommandContext& context, RedisArgv argv) {
  return expiryReply(
      context, argv[1], [&](std::int64_t at) { return (at - context.nowMs + 500) / 1000; });
}
Reply pexpiretime(const CommandContext& context, RedisArgv argv) {
  return expiryReply(context, argv[1], [](std::int64_t at) { return at; });
}

Reply keysMatching(const CommandContext& context, RedisArgv argv) {
  std::vector<Reply> found;
  for (const auto* const key : context.keys.all(context.nowMs)) {
    if (redisGlob(argv[1], key->first)) {
      found.push_back(replyString(key->first));
    }
  }
  return replyArray(std::move(found));
}

Reply dbsize(const CommandContext& context, RedisArgv /*argv*/) {
  return replyInteger(static_cast<std::int64_t>(context.keys.all(context.nowMs).size()));
}

/// The options of SCAN and HSCAN.
struct ScanOptions {
  std::uint64_t cursor = 0;
  std::size_t count = 10;
  std::optional<string_view> match;
  std::optional<Reply> error;
};
ScanOptions scanOptions(RedisArgv argv) {
  ScanOptions options;
  const string_view cursor = argv.front();
  const char* const end = cursor.data() + cursor.size();
  const auto parsed = std::from_chars(cursor.data(), end, options.cursor);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    options.error = replyError("ERR invalid cursor");
    return options;
  }
  for (std::size_t i = 1; i < argv.size(); i += 2) {
    const std::string name = lowerCase(argv[i]);
    if (i + 1 == argv.size() || (name != "count" && name != "match")) {
      options.error = replyError(kSyntaxError);
    } else if (name == "match") {
      options.match = argv[i + 1];
    } else if (const auto count = redisInteger(argv[i + 1]); !count) {
      options.error = replyError(kNotAnInteger);
    } else if (*count < 1) {
      options.error = replyError(kSyntaxError);
    } else {
      options.count = static_cast<std::size_t>(*count);
    }
    if (options.error) {
      return options;
    }
  }
  return options;
}

Reply scanReply(std::uint64_t cursor, std::vector<Reply> found) {
  return replyArray({replyString(std::to_string(cursor)), replyArray(std::move(found))});
}

// The cursor is the birth of the last key that was looked at, so what stays is found.
Reply scan(const CommandContext& context, RedisArgv argv) {
  ScanOptions options = scanOptions(argv.subspan(1));
  if (options.error) {
    return std::move(*options.error);
  }
  std::vector<Reply> found;
  std::size_t looked = 0;
  for (const auto* const key : context.keys.all(context.nowMs)) {
    if (key->second.birth <= options.cursor) {
      continue;
    }
    if (looked == options.count) {
      return scanReply(options.cursor, std::move(found));
    }
    ++looked;
    options.cursor = key->second.birth;
    if (!options.match || redisGlob(*options.match, key->first)) {
      found.push_back(replyString(key->first));
    }
  }
  return scanReply(0, std::move(found));
}

// Strings.

Reply get(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<std::string>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  return looked.value == nullptr ? replyNil() : replyString(*looked.value);
}

Reply strlenOf(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<std::string>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  return replyInteger(looked.value == nullptr ? 0
                                              : static_cast<std::int64_t>(looked.value->size()));
}

Reply set(const CommandContext& context, RedisArgv argv) {
  bool ifNew = false;
  bool ifThere = false;
  bool keepTtl = false;
  std::optional<std::int64_t> expiresAt;
  for (std::size_t i = 3; i < argv.size(); ++i) {
    const std::string option = lowerCase(argv[i]);
    if (option == "nx" && !ifThere) {
      ifNew = true;
    } else if (option == "xx" && !ifNew) {
      ifThere = true;
    } else if (option == "keepttl" && !expiresAt) {
      keepTtl = true;
    } else if ((option == "px" || option == "ex" || option == "pxat" || option == "exat") &&
               !keepTtl && !expiresAt && i + 1 < argv.size()) {
      const auto number = redisInteger(argv[++i]);
      if (!number) {
        return replyError(kNotAnInteger);
      }
      expiresAt = *number <= 0
                      ? std::nullopt
                      : momentOf(context, *number, option[0] == 'e', option.ends_with("at"));
      if (!expiresAt) {
        return replyError("ERR invalid expire time in 'set' command");
      }
    } else {
      return replyError(kSyntaxError);
    }
  }
  RedisObject* const object = context.keys.find(argv[1], context.nowMs);
  if ((ifNew && object != nullptr) || (ifThere && object == nullptr)) {
    return replyNil();
  }
  if (keepTtl && object != nullptr) {
    expiresAt = object->expiresAt;
  }
  context.keys.put(argv[1], std::string(argv[2])).expiresAt = expiresAt;
  return replyStatus("OK");
}

Reply increase(const CommandContext& context, string_view key, std::int64_t change) {
  const auto looked = lookFor<std::string>(context, key);
  if (looked.isOther()) {
    return replyWrongType();
  }
  const auto before =
      looked.value == nullptr ? std::optional<std::int64_t>(0) : redisInteger(*looked.value);
  if (!before) {
    return replyError(kNotAnInteger);
  }
  const auto after = sumOf(*before, change);
  if (!after) {
    return replyError("ERR increment or decrement would overflow");
  }
  if (looked.value != nullptr) {
    *looked.value = std::to_string(*after);
  } else {
    context.keys.put(key, std::to_string(*after));
  }
  return replyInteger(*after);
}

Reply incr(const CommandContext& context, RedisArgv argv) {
  return increase(context, argv[1], 1);
}
Reply decr(const CommandContext& context, RedisArgv argv) {
  return increase(context, argv[1], -1);
}
Reply incrby(const CommandContext& context, RedisArgv argv) {
  const auto change = redisInteger(argv[2]);
  return change ? increase(context, argv[1], *change) : replyError(kNotAnInteger);
}
Reply decrby(const CommandContext& context, RedisArgv argv) {
  const auto change = redisInteger(argv[2]);
  if (!change) {
    return replyError(kNotAnInteger);
  }
  if (*change == std::numeric_limits<std::int64_t>::min()) {
    return replyError("ERR decrement would overflow");
  }
  return increase(context, argv[1], -*change);
}

// Hashes.

Reply hset(const CommandContext& context, RedisArgv argv) {
  if (argv.size() % 2 != 0) {
    return replyArity("hset");
  }
  auto looked = lookFor<RedisHash>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  if (looked.value == nullptr) {
    looked.value = &std::get<RedisHash>(context.keys.put(argv[1], RedisHash()).value);
  }
  std::int64_t added = 0;
  for (std::size_t i = 2; i < argv.size(); i += 2) {
    added += looked.value->set(argv[i], argv[i + 1]) ? 1 : 0;
  }
  return replyInteger(added);
}

Reply hincrby(const CommandContext& context, RedisArgv argv) {
  const auto change = redisInteger(argv[3]);
  if (!change) {
    return replyError(kNotAnInteger);
  }
  auto looked = lookFor<RedisHash>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  const std::string* const value = looked.value == nullptr ? nullptr : looked.value->find(argv[2]);
  const auto before = value == nullptr ? std::optional<std::int64_t>(0) : redisInteger(*value);
  if (!before) {
    return replyError("ERR hash value is not an integer");
  }
  const auto after = sumOf(*before, *change);
  if (!after) {
    return replyError("ERR increment or decrement would overflow");
  }
  if (looked.value == nullptr) {
    looked.value = &std::get<RedisHash>(context.keys.put(argv[1], RedisHash()).value);
  }
  looked.value->set(argv[2], std::to_string(*after));
  return replyInteger(*after);
}

Reply hdel(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<RedisHash>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  std::int64_t removed = 0;
  if (looked.value != nullptr) {
    for (const string_view field : argv.subspan(2)) {
      removed += looked.value->erase(field) ? 1 : 0;
    }
    if (looked.value->entries().empty()) {
      context.keys.erase(argv[1], context.nowMs);
    }
  }
  return replyInteger(removed);
}

Reply fieldReply(const RedisHash* hash, string_view field) {
  const std::string* const value = hash == nullptr ? nullptr : hash->find(field);
  return value == nullptr ? replyNil() : replyString(*value);
}

Reply hget(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<RedisHash>(context, argv[1]);
  return looked.isOther() ? replyWrongType() : fieldReply(looked.value, argv[2]);
}

Reply hmget(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<RedisHash>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  std::vector<Reply> values;
  for (const string_view field : argv.subspan(2)) {
    values.push_back(fieldReply(looked.value, field));
  }
  return replyArray(std::move(values));
}

Reply hexists(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<RedisHash>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  return replyInteger(looked.value != nullptr && looked.value->find(argv[2]) != nullptr ? 1 : 0);
}

Reply hlen(const CommandContext& context, RedisArgv argv) {
  const auto looked = lookFor<RedisHash>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  return replyInteger(
      looked.value == nullptr ? 0 : static_cast<std::int64_t>(looked.value->entries().size()));
}

Reply hashContent(const CommandContext& context, string_view key, bool values) {
  const auto looked = lookFor<RedisHash>(context, key);
  if (looked.isOther()) {
    return replyWrongType();
  }
  std::vector<Reply> content;
  if (looked.value != nullptr) {
    for (const auto& [field, value] : looked.value->entries()) {
      content.push_back(replyString(field));
      if (values) {
        content.push_back(replyString(value));
      }
    }
  }
  return replyArray(std::move(content));
}

Reply hkeys(const CommandContext& context, RedisArgv argv) {
  return hashContent(context, argv[1], false);
}
Reply hgetall(const CommandContext& context, RedisArgv argv) {
  return hashContent(context, argv[1], true);
}

// A small hash comes in one piece, whatever the count. The cursor of a large one is a position.
Reply hscan(const CommandContext& context, RedisArgv argv) {
  ScanOptions options = scanOptions(argv.subspan(2));
  if (options.error) {
    return std::move(*options.error);
  }
  const auto looked = lookFor<RedisHash>(context, argv[1]);
  if (looked.isOther()) {
    return replyWrongType();
  }
  std::vector<Reply> found;
  if (looked.value == nullptr) {
    return scanReply(0, std::move(found));
  }
  const auto& entries = looked.value->entries();
  const std::size_t begin =
      looked.value->isTable() ? std::min<std::size_t>(options.cursor, entries.size()) : 0;
  const std::size_t end = looked.value->isTable()
                              ? begin + std::min(options.count, entries.size() - begin)
                              : entries.size();
  for (std::size_t i = begin; i < end; ++i) {
    if (!options.match || redisGlob(*options.match, entries[i].first)) {
      found.push_back(replyString(entries[i].first));
      found.push_back(replyString(entries[i].second));
    }
  }
  return scanReply(end == entries.size() ? 0 : end, std::move(found));
}

constexpr auto kKeyCommands = std::to_array<RedisCommand>({
    {"del", -2, kWrite, del},
    {"unlink", -2, kWrite, del},
    {"exists", -2, 0, exists},
    {"type", 2, 0, type},
    {"rename", 3, kWrite, rename},
    {"persist", 2, kWrite, persist},
    {"expire", -3, kWrite, expire},
    {"pexpire", -3, kWrite, pexpire},
    {"pexpireat", -3, kWrite, pexpireat},
    {"ttl", 2, 0, ttl},
    {"pttl", 2, 0, pttl},
    {"pexpiretime", 2, 0, pexpiretime},
    {"keys", 2, 0, keysMatching},
    {"dbsize", 1, 0, dbsize},
    {"scan", -2, 0, scan},
    {"get", 2, 0, get},
    {"strlen", 2, 0, strlenOf},
    {"set", -3, kGrows, set},
    {"incr", 2, kGrows, incr},
    {"decr", 2, kGrows, decr},
    {"incrby", 3, kGrows, incrby},
    {"decrby", 3, kGrows, decrby},
    {"hset", -4, kGrows, hset},
    {"hincrby", 4, kGrows, hincrby},
    {"hdel", -3, kWrite, hdel},
    {"hget", 3, 0, hget},
    {"hmget", -3, 0, hmget},
    {"hexists", 3, 0, hexists},
    {"hlen", 2, 0, hlen},
    {"hkeys", 2, 0, hkeys},
    {"hgetall", 2, 0, hgetall},
    {"hscan", -3, 0, hscan},
});

}  // namespace

std::span<const RedisCommand> keyCommands() {
  return kKeyCommands;
}

}  // namespace rlock::sim
