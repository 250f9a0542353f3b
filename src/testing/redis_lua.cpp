// SPDX-License-Identifier: Apache-2.0
#include "testing/redis_lua.hpp"

#include "testing/redis_commands.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <lua.hpp>
#include <new>
#include <utility>

namespace rlock::sim {

using detail::Reply;

std::string sha1Hex(std::string_view bytes) {
  std::string padded(bytes);
  padded += '\x80';
  padded.resize((padded.size() + 8 + 63) / 64 * 64, '\0');
  const std::uint64_t bits = static_cast<std::uint64_t>(bytes.size()) * 8;
  for (std::size_t i = 0; i < 8; ++i) {
    padded[padded.size() - 1 - i] = static_cast<char>((bits >> (8 * i)) & 0xffU);
  }
  std::array<std::uint32_t, 5> state{
      0x67452301U, 0xefcdab89U, 0x98badcfeU, 0x10325476U, 0xc3d2e1f0U};
  for (std::size_t block = 0; block < padded.size(); block += 64) {
    std::array<std::uint32_t, 80> words{};
    for (std::size_t i = 0; i < 64; ++i) {
      words[i / 4] = words[i / 4] << 8U | static_cast<unsigned char>(padded[block + i]);
    }
    for (std::size_t i = 16; i < 80; ++i) {
      words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    }
    auto [a, b, c, d, e] = state;
    for (std::size_t i = 0; i < 80; ++i) {
      const auto [mixed, constant] = i < 20   ? std::pair((b & c) | (~b & d), 0x5a827999U)
                                     : i < 40 ? std::pair(b ^ c ^ d, 0x6ed9eba1U)
                                     : i < 60 ? std::pair((b & c) | (b & d) | (c & d), 0x8f1bbcdcU)
                                              : std::pair(b ^ c ^ d, 0xca62c1d6U);
      const std::uint32_t next = std::rotl(a, 5) + mixed + e + constant + words[i];
      e = std::exchange(d,
                        std::exchange(c, std::rotl(std::exchange(b, std::exchange(a, next)), 30)));
    }
    state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d, state[4] + e};
  }
  std::string text;
  for (const std::uint32_t word : state) {
    std::array<char, 9> digits{};
    std::snprintf(digits.data(), digits.size(), "%08x", word);
    text += digits.data();
  }
  return text;
}

namespace {

constexpr std::string_view kNoStack = "ERR reached lua stack limit";

void pushText(lua_State* lua, std::string_view text) {
  lua_pushlstring(lua, text.data(), text.size());
}

/// A table with one text.
void pushField(lua_State* lua, const char* name, std::string_view text) {
  lua_createtable(lua, 0, 2);
  pushText(lua, text);
  lua_setfield(lua, -2, name);
}

void pushError(lua_State* lua, std::string_view text) {
  pushField(lua, "err", text);
}

void pushReply(lua_State* lua, const Reply& reply) {
  if (lua_checkstack(lua, 3) == 0) {
    lua_pushboolean(lua, 0);
    return;
  }
  switch (reply.type) {
    case Reply::Type::nil:
      lua_pushboolean(lua, 0);
      break;
    case Reply::Type::integer:
      lua_pushnumber(lua, static_cast<lua_Number>(reply.integer));
      break;
    case Reply::Type::string:
      pushText(lua, reply.text);
      break;
    case Reply::Type::status:
      pushField(lua, "ok", reply.text);
      break;
    case Reply::Type::error:
      pushError(lua, reply.text);
      lua_pushboolean(lua, 1);
      lua_setfield(lua, -2, "ignore_error_stats_update");
      break;
    case Reply::Type::array:
      lua_createtable(lua, static_cast<int>(reply.elements.size()), 0);
      for (std::size_t i = 0; i < reply.elements.size(); ++i) {
        pushReply(lua, reply.elements[i]);
        lua_rawseti(lua, -2, static_cast<int>(i + 1));
      }
      break;
  }
}

/// As one line: an error or a status ends with the line.
std::string oneLine(std::string_view text) {
  const std::size_t last = text.find_last_not_of("\r\n");
  std::string line(text.substr(0, last == std::string_view::npos ? 0 : last + 1));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
  return line;
}

std::string_view textAt(lua_State* lua, int index) {
  std::size_t size = 0;
  const char* const text = lua_tolstring(lua, index, &size);
  return {text, text == nullptr ? 0 : size};
}

/// Pushes a field of the table on top of the stack, whatever its metatable says.
void pushRawField(lua_State* lua, const char* name) {
  lua_pushstring(lua, name);
  lua_rawget(lua, -2);
}

/// A number as an argument of a command.
std::string_view numberText(double number, std::array<char, 32>& buffer) {
  constexpr double kExact = 1e15;
  if (std::abs(number) < kExact && std::trunc(number) == number &&
      !(number == 0 && std::signbit(number))) {
    const auto written = std::to_chars(
        buffer.data(), buffer.data() + buffer.size(), static_cast<std::int64_t>(number));
    return {buffer.data(), written.ptr};
  }
  const int size = std::snprintf(buffer.data(), buffer.size(), "%.17g", number);
  return {buffer.data(), static_cast<std::size_t>(size)};
}

}  // namespace

/// The functions that scripts can call, in the form of Lua: arguments and results are on its stack.
///
/// Lua calls them while RedisLua::run() executes a script, on its thread. An error of Lua's, which
/// may be want of memory at any push, leaves them by longjmp: nothing with a destructor is alive
/// there, and what needs one is a member of the RedisLua. Functions that need it find it by self(),
/// as their first upvalue, and are registered with it; unknownGlobal(), readOnlyGlobals() and
/// addPosition() have no upvalue. A command that fails becomes a table with the words of Redis,
/// which call() raises and protectedCall() returns.
///
/// **Thread safety:** as RedisLua.
struct RedisLua::Functions {
  static int call(lua_State* lua) {
    if (self(lua).perform(lua)) {
      return lua_error(lua);
    }
    return 1;
  }

  static int protectedCall(lua_State* lua) {
    self(lua).perform(lua);
    return 1;
  }

  /// pcall() of Lua, which in Redis gives the text of an error reply, not its table.
  static int catchErrors(lua_State* lua) {
    luaL_checkany(lua, 1);
    const bool failed = lua_pcall(lua, lua_gettop(lua) - 1, LUA_MULTRET, 0) != 0;
    if (failed && lua_istable(lua, -1)) {
      lua_getfield(lua, -1, "err");
      if (lua_isstring(lua, -1) != 0) {
        lua_replace(lua, -2);
      } else {
        lua_pop(lua, 1);
      }
    }
    lua_pushboolean(lua, failed ? 0 : 1);
    lua_insert(lua, 1);
    return lua_gettop(lua);
  }

  static int errorReply(lua_State* lua) {
    if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING) {
      pushError(lua, "ERR wrong number or type of arguments");
      return 1;
    }
    std::string_view text = textAt(lua, 1);
    text.remove_prefix(text.starts_with('-') ? 1 : 0);
    while (text.ends_with('\n') || text.ends_with('\r')) {
      text.remove_suffix(1);
    }
    // A text of one word has no code.
    lua_pushstring(lua, text.find(' ') == std::string_view::npos ? "ERR " : "");
    pushText(lua, text);
    lua_concat(lua, 2);
    pushError(lua, textAt(lua, -1));
    return 1;
  }

  static int statusReply(lua_State* lua) {
    if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING) {
      pushError(lua, "ERR wrong number or type of arguments");
      return 1;
    }
    pushField(lua, "ok", textAt(lua, 1));
    return 1;
  }

  static int sha1(lua_State* lua) {
    if (lua_gettop(lua) != 1) {
      lua_pushstring(lua, "wrong number of arguments");
      return lua_error(lua);
    }
    const std::string_view text = textAt(lua, 1);
    pushText(lua, self(lua).sha1_ = sha1Hex(text));
    return 1;
  }

  static int nothing(lua_State* /*lua*/) { return 0; }

  static int agree(lua_State* lua) {
    lua_pushboolean(lua, 1);
    return 1;
  }

  static int unknownGlobal(lua_State* lua) {
    return luaL_error(
        lua, "Script attempted to access nonexistent global variable '%s'", lua_tostring(lua, 2));
  }

  static int readOnlyGlobals(lua_State* lua) {
    return luaL_error(lua, "Attempt to modify a readonly table");
  }

  /// Makes a table of each error that ends a script, with the place where it was raised.
  static int addPosition(lua_State* lua) {
    if (!lua_istable(lua, 1)) {
      lua_pushstring(lua, "ERR ");
      if (lua_isstring(lua, 1) != 0) {
        lua_pushvalue(lua, 1);
      } else {
        lua_pushstring(lua, luaL_typename(lua, 1));
      }
      lua_concat(lua, 2);
      pushError(lua, textAt(lua, -1));
    }
    lua_Debug where{};
    int level = 1;
    bool found = lua_getstack(lua, level, &where) != 0 && lua_getinfo(lua, "Sl", &where) != 0;
    if (found && std::strcmp(where.what, "C") == 0) {
      ++level;
      found = lua_getstack(lua, level, &where) != 0 && lua_getinfo(lua, "Sl", &where) != 0;
    }
    if (found) {
      lua_pushstring(lua, where.source);
      lua_setfield(lua, -2, "source");
      lua_pushinteger(lua, where.currentline);
      lua_setfield(lua, -2, "line");
    }
    return 1;
  }
};

RedisLua::RedisLua(Perform perform) : perform_(std::move(perform)), lua_(luaL_newstate()) {
  if (lua_ == nullptr) {
    throw std::bad_alloc();
  }
  setGlobals();
}

RedisLua::~RedisLua() {
  lua_close(lua_);
}

RedisLua& RedisLua::self(lua_State* lua) {
  return *static_cast<RedisLua*>(lua_touserdata(lua, lua_upvalueindex(1)));
}

void RedisLua::setGlobals() {
  const auto open = [this](lua_CFunction library, const char* name) {
    lua_pushcfunction(lua_, library);
    lua_pushstring(lua_, name);
    lua_call(lua_, 1, 0);
  };
  open(luaopen_base, "");
  open(luaopen_table, LUA_TABLIBNAME);
  open(luaopen_string, LUA_STRLIBNAME);
  open(luaopen_math, LUA_MATHLIBNAME);
  for (const char* const hidden : {"print", "loadfile", "dofile", "collectgarbage"}) {
    lua_pushnil(lua_);
    lua_setglobal(lua_, hidden);
  }
  const auto pushFunction = [this](lua_CFunction function) {
    lua_pushlightuserdata(lua_, this);
    lua_pushcclosure(lua_, function, 1);
  };
  pushFunction(Functions::catchErrors);
  lua_setglobal(lua_, "pcall");

  lua_newtable(lua_);
  const std::pair<const char*, lua_CFunction> functions[] = {
      {"call", Functions::call},
      {"pcall", Functions::protectedCall},
      {"error_reply", Functions::errorReply},
      {"status_reply", Functions::statusReply},
      {"sha1hex", Functions::sha1},
      {"log", Functions::nothing},
      {"set_repl", Functions::nothing},
      {"replicate_commands", Functions::agree},
  };
  for (const auto& [name, function] : functions) {
    pushFunction(function);
    lua_setfield(lua_, -2, name);
  }
  const std::pair<const char*, int> numbers[] = {
      {"LOG_DEBUG", 0},
      {"LOG_VERBOSE", 1},
      {"LOG_NOTICE", 2},
      {"LOG_WARNING", 3},
      {"REPL_NONE", 0},
      {"REPL_AOF", 1},
      {"REPL_SLAVE", 2},
      {"REPL_REPLICA", 2},
      {"REPL_ALL", 3},
      {"REDIS_VERSION_NUM", 0x0007000f},
  };
  for (const auto& [name, number] : numbers) {
    lua_pushinteger(lua_, number);
    lua_setfield(lua_, -2, name);
  }
  lua_pushstring(lua_, "7.0.15");
  lua_setfield(lua_, -2, "REDIS_VERSION");
  lua_setglobal(lua_, "redis");

  // Scripts see an empty table before the globals, so that each assignment is noticed.
  lua_newtable(lua_);
  lua_newtable(lua_);
  lua_pushvalue(lua_, LUA_GLOBALSINDEX);
  lua_setfield(lua_, -2, "__index");
  lua_pushcfunction(lua_, Functions::readOnlyGlobals);
  lua_setfield(lua_, -2, "__newindex");
  lua_setmetatable(lua_, -2);
  lua_pushvalue(lua_, -1);
  lua_setglobal(lua_, "_G");
  environment_ = luaL_ref(lua_, LUA_REGISTRYINDEX);

  lua_pushvalue(lua_, LUA_GLOBALSINDEX);
  lua_newtable(lua_);
  lua_pushcfunction(lua_, Functions::unknownGlobal);
  lua_setfield(lua_, -2, "__index");
  lua_setmetatable(lua_, -2);
  lua_pop(lua_, 1);

  lua_pushcfunction(lua_, Functions::addPosition);
  addPosition_ = luaL_ref(lua_, LUA_REGISTRYINDEX);
}

std::optional<std::string> RedisLua::load(std::string_view sha1, std::string_view body) {
  if (scripts_.contains(sha1)) {
    return std::nullopt;
  }
  if (luaL_loadbuffer(lua_, body.data(), body.size(), "@user_script") != 0) {
    std::string text =
        oneLine("ERR Error compiling script (new function): " + std::string(textAt(lua_, -1)));
    lua_settop(lua_, 0);
    return text;
  }
  lua_rawgeti(lua_, LUA_REGISTRYINDEX, environment_);
  lua_setfenv(lua_, -2);
  scripts_.emplace(sha1, luaL_ref(lua_, LUA_REGISTRYINDEX));
  return std::nullopt;
}

void RedisLua::setArray(const char* name, Argv values) {
  lua_createtable(lua_, static_cast<int>(values.size()), 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    pushText(lua_, values[i]);
    lua_rawseti(lua_, -2, static_cast<int>(i + 1));
  }
  lua_setglobal(lua_, name);
}

Reply RedisLua::run(std::string_view sha1, Argv keys, Argv arguments) {
  setArray("KEYS", keys);
  setArray("ARGV", arguments);
  lua_rawgeti(lua_, LUA_REGISTRYINDEX, addPosition_);
  lua_rawgeti(lua_, LUA_REGISTRYINDEX, scripts_.find(sha1)->second);
  const bool failed = lua_pcall(lua_, 0, 1, -2) != 0;
  Reply reply = failed ? convertFailure(sha1) : convert();
  lua_settop(lua_, 0);
  return reply;
}

bool RedisLua::collectArguments(lua_State* lua) {
  const int count = lua_gettop(lua);
  argv_.clear();
  numbers_.resize(static_cast<std::size_t>(count));
  for (int i = 1; i <= count; ++i) {
    if (lua_type(lua, i) == LUA_TNUMBER) {
      argv_.push_back(numberText(lua_tonumber(lua, i), numbers_[static_cast<std::size_t>(i - 1)]));
    } else if (lua_type(lua, i) == LUA_TSTRING) {
      argv_.push_back(textAt(lua, i));
    } else {
      return false;
    }
  }
  return true;
}

bool RedisLua::perform(lua_State* lua) {
  if (lua_gettop(lua) == 0) {
    pushError(lua, "ERR Please specify at least one argument for this redis lib call");
    return true;
  }
  if (!collectArguments(lua)) {
    pushError(lua, "ERR Lua redis lib command arguments must be strings or integers");
    return true;
  }
  try {
    reply_ = perform_(argv_);
  } catch (const std::bad_alloc&) {
    reply_ = Reply();
    reply_.type = Reply::Type::error;
  }
  pushReply(lua, reply_);
  return reply_.isError();
}

// Converts what is on top of the stack, and takes it off.
Reply RedisLua::convert() {
  Reply reply;
  switch (lua_type(lua_, -1)) {
    case LUA_TSTRING:
      reply = replyString(textAt(lua_, -1));
      break;
    case LUA_TNUMBER: {
      constexpr double kLimit = 9223372036854775808.0;
      const double number = lua_tonumber(lua_, -1);
      const bool fits = number >= -kLimit && number < kLimit;
      reply = replyInteger(fits ? static_cast<std::int64_t>(number) : INT64_MIN);
      break;
    }
    case LUA_TBOOLEAN:
      if (lua_toboolean(lua_, -1) != 0) {
        reply = replyInteger(1);
      }
      break;
    case LUA_TTABLE:
      reply = convertTable();
      break;
    default:
      break;
  }
  lua_pop(lua_, 1);
  return reply;
}

Reply RedisLua::convertTable() {
  if (lua_checkstack(lua_, 4) == 0) {
    return replyError(kNoStack);
  }
  pushRawField(lua_, "err");
  if (lua_type(lua_, -1) == LUA_TSTRING) {
    Reply reply = replyError(oneLine(textAt(lua_, -1)));
    lua_pop(lua_, 1);
    return reply;
  }
  lua_pop(lua_, 1);
  pushRawField(lua_, "ok");
  if (lua_type(lua_, -1) == LUA_TSTRING) {
    Reply reply = replyStatus(oneLine(textAt(lua_, -1)));
    lua_pop(lua_, 1);
    return reply;
  }
  lua_pop(lua_, 1);
  Reply reply = replyArray();
  for (int i = 1;; ++i) {
    lua_rawgeti(lua_, -1, i);
    if (lua_isnil(lua_, -1)) {
      lua_pop(lua_, 1);
      return reply;
    }
    reply.elements.push_back(convert());
  }
}

Reply RedisLua::convertFailure(std::string_view sha1) {
  if (!lua_istable(lua_, -1)) {
    return replyError(oneLine("ERR Error running script " + std::string(sha1) + ", " +
                              std::string(textAt(lua_, -1).substr(0, 100))));
  }
  const auto field = [this](const char* name) {
    pushRawField(lua_, name);
    std::string text(textAt(lua_, -1));
    lua_pop(lua_, 1);
    return text;
  };
  std::string text = field("err");
  const std::string source = field("source");
  const std::string line = field("line");
  if (!source.empty() && !line.empty()) {
    text += " script: " + std::string(sha1) + ", on " + source + ":" + line + ".";
  }
  return replyError(oneLine(text));
}

}  // namespace rlock::sim
