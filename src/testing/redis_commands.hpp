// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "testing/redis_keyspace.hpp"
#include <rlock/detail/base/reply.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::sim {

using RedisArgv = std::span<const std::string_view>;

// Replies.
detail::Reply replyNil();
detail::Reply replyInteger(std::int64_t number);
detail::Reply replyString(std::string_view text);
detail::Reply replyStatus(std::string_view text);
detail::Reply replyError(std::string_view text);
detail::Reply replyArray(std::vector<detail::Reply> elements = {});
detail::Reply replyWrongType();
/// A command was given too few or too many arguments.
detail::Reply replyArity(std::string_view name);

inline constexpr std::string_view kSyntaxError = "ERR syntax error";
inline constexpr std::string_view kNotAnInteger = "ERR value is not an integer or out of range";

// Numbers, as Redis reads and writes them.
/// Nothing unless it is written exactly as Redis would write it.
std::optional<std::int64_t> redisInteger(std::string_view text);
std::optional<double> redisDouble(std::string_view text);
/// With 17 digits; `inf` and `-inf`.
std::string redisDoubleText(double number);
/// Whether a text matches a glob pattern of SCAN.
bool redisGlob(std::string_view pattern, std::string_view text);
std::string lowerCase(std::string_view text);

/// The state that a command reads and changes.
struct CommandContext {
  RedisKeyspace& keys;
  std::int64_t nowMs;  ///< since the epoch
};

struct RedisCommand {
  enum Flag : std::uint8_t {
    kWrite = 1,
    kDenyOom = 2,
    kNoScript = 4,
    kLoading = 8,
    kNoAuth = 16,
    kSubscribed = 32,  ///< also while the connection is subscribed
  };
  using Handler = detail::Reply (*)(const CommandContext&, RedisArgv argv);

  std::string_view name;
  int arity;  ///< with the name; negative: at least so many
  unsigned flags;
  Handler handler;  ///< null: the server performs it itself, because it is not about keys

  [[nodiscard]] bool accepts(std::size_t arguments) const noexcept {
    const auto count = static_cast<int>(arguments);
    return arity >= 0 ? count == arity : count >= -arity;
  }
};

/// The flags of most commands: of one that writes, and of one that may need more memory, too.
inline constexpr unsigned kWrite = RedisCommand::kWrite;
inline constexpr unsigned kGrows = RedisCommand::kWrite | RedisCommand::kDenyOom;

/// The commands on keys of any type, on strings and on hashes.
std::span<const RedisCommand> keyCommands();
/// The commands on lists and sorted sets.
std::span<const RedisCommand> orderedCommands();

/// The result of a look at a key: nothing, an object of the type asked for, or one of another.
template <class Type>
struct Looked {
  RedisObject* object = nullptr;
  Type* value = nullptr;
  [[nodiscard]] bool isOther() const noexcept { return object != nullptr && value == nullptr; }
};
template <class Type>
Looked<Type> lookFor(const CommandContext& context, std::string_view key) {
  Looked<Type> looked;
  looked.object = context.keys.find(key, context.nowMs);
  if (looked.object != nullptr) {
    looked.value = std::get_if<Type>(&looked.object->value);
  }
  return looked;
}

}  // namespace rlock::sim
