// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "testing/redis_keyspace.hpp"
#include <rlock/detail/base/reply.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct lua_State;

namespace rlock::sim {

/// In lower-case hexadecimal, as SCRIPT LOAD answers it.
std::string sha1Hex(std::string_view bytes);

/// Executes scripts as Redis 7.0 does: Lua 5.1 with the functions of `redis`, the same conversions
/// in both directions, and errors in the same words. Each text is compiled once and kept.
///
/// **Thread safety:** One thread at a time.
class RedisLua {
 public:
  using Argv = std::span<const std::string_view>;
  /// Performs what redis.call() or redis.pcall() is asked for.
  using Perform = std::function<detail::Reply(Argv argv)>;

  explicit RedisLua(Perform perform);
  RedisLua(const RedisLua&) = delete;
  RedisLua& operator=(const RedisLua&) = delete;
  ~RedisLua();

  /// Compiles a text. Nothing: it is ready to run; else the error reply's text.
  std::optional<std::string> load(std::string_view sha1, std::string_view body);
  /// Runs what was loaded before.
  detail::Reply run(std::string_view sha1, Argv keys, Argv arguments);

 private:
  // Lua leaves a function of ours by longjmp when it raises an error, so nothing with a destructor
  // may be alive there: what needs one is a member.
  struct Functions;

  static RedisLua& self(lua_State* lua);
  /// Leaves the reply on the stack; returns whether it is an error.
  bool perform(lua_State* lua);
  bool collectArguments(lua_State* lua);
  void setGlobals();
  void setArray(const char* name, Argv values);
  detail::Reply convert();
  detail::Reply convertTable();
  detail::Reply convertFailure(std::string_view sha1);

  const Perform perform_;
  lua_State* const lua_;
  int environment_ = 0;  // place of the globals that scripts see in Lua's registry
  int addPosition_ = 0;  // and of what makes a table of each error
  StringMap<int> scripts_;
  std::string sha1_;
  std::vector<std::string_view> argv_;
  std::vector<std::array<char, 32>> numbers_;
  detail::Reply reply_;
};

}  // namespace rlock::sim
