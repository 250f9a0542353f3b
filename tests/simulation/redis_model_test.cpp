// SPDX-License-Identifier: Apache-2.0
#include "testing/redis_model.hpp"

#include "testing/redis_commands.hpp"
#include "testing/redis_lua.hpp"
#include <rlock/detail/executor/lua_scripts.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace rlock::sim {
namespace {

using detail::Reply;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kStart = 1'700'000'000'000'000;

/// A reply as text, as redis-cli would show it.
std::string shown(const Reply& reply) {
  switch (reply.type) {
    case Reply::Type::nil:
      return "nil";
    case Reply::Type::integer:
      return std::to_string(reply.integer);
    case Reply::Type::status:
      return "+" + reply.text;
    case Reply::Type::string:
      return "'" + reply.text + "'";
    case Reply::Type::error:
      return "-" + reply.text;
    case Reply::Type::array:
      break;
  }
  std::string text = "[";
  for (const Reply& element : reply.elements) {
    text += (text.size() > 1 ? " " : "") + shown(element);
  }
  return text + "]";
}

class RedisModelTest : public ::testing::Test {
 protected:
  RedisModelTest() {
    model_.onMessage([this](RedisModel::ClientId to,
                            std::string_view channel,
                            std::string_view text) { messages_.emplace_back(to, channel, text); });
    model_.onKill([this](RedisModel::ClientId client) { killed_.push_back(client); });
  }

  std::string run(RedisModel::ClientId client, const std::vector<std::string_view>& argv) {
    return shown(model_.execute(client, argv));
  }
  /// A script without keys and arguments.
  std::string eval(std::string_view body) { return run(me_, {"EVAL", body, "0"}); }
  void pass(std::chrono::milliseconds time) { now_ += time.count() * 1000; }

  std::int64_t now_ = kStart;
  RedisModel model_{[this] { return now_; }};
  const RedisModel::ClientId me_ = model_.connect();
  std::vector<std::tuple<RedisModel::ClientId, std::string, std::string>> messages_;
  std::vector<RedisModel::ClientId> killed_;
};

TEST_F(RedisModelTest, KeysEndAfterTheirLastMillisecond) {
  EXPECT_EQ(run(me_, {"SET", "k", "v", "PX", "50"}), "+OK");
  EXPECT_EQ(run(me_, {"PTTL", "k"}), "50");
  pass(std::chrono::milliseconds(50));
  EXPECT_EQ(run(me_, {"PTTL", "k"}), "0");
  EXPECT_EQ(run(me_, {"GET", "k"}), "'v'");
  pass(std::chrono::milliseconds(1));
  EXPECT_EQ(run(me_, {"GET", "k"}), "nil");
  EXPECT_EQ(run(me_, {"PTTL", "k"}), "-2");
  EXPECT_EQ(run(me_, {"SET", "k", "v", "PX", "0"}), "-ERR invalid expire time in 'set' command");
  EXPECT_EQ(run(me_, {"PEXPIRE", "k", "9223372036854775807"}),
            "-ERR invalid expire time in 'pexpire' command");
}

TEST_F(RedisModelTest, ADumpHasEachKeyOnALineOfItsOwn) {
  run(me_, {"RPUSH", "list", "a", "b\n"});
  run(me_, {"HSET", "hash", "f", "1", "e", "2"});
  run(me_, {"ZADD", "zset", "2", "two", "1.5", "one"});
  run(me_, {"SET", "a key", "v", "PX", "10"});
  EXPECT_EQ(model_.dump(),
            "\"a key\" string 1700000000010 \"v\"\n"
            "\"hash\" hash - {\"f\": \"1\", \"e\": \"2\"}\n"
            "\"list\" list - [\"a\", \"b\\x0a\"]\n"
            "\"zset\" zset - {\"one\": 1.5, \"two\": 2}\n");
  pass(std::chrono::milliseconds(11));
  EXPECT_EQ(model_.keyCount(), 3U);
}

TEST_F(RedisModelTest, ARestartBeginsANewRun) {
  const std::string before(model_.runId());
  EXPECT_EQ(before.size(), 40U);
  const auto other = model_.connect();
  EXPECT_EQ(other, 2U);
  run(me_, {"SET", "k", "v"});
  const std::string sha1 =
      model_.execute(me_, std::vector<std::string_view>{"SCRIPT", "LOAD", "return 1"}).text;
  EXPECT_EQ(run(me_, {"EVALSHA", sha1, "0"}), "1");
  model_.subscribe(other, std::vector<std::string_view>{"channel"});
  EXPECT_EQ(model_.subscribers("channel"), 1U);
  model_.denyCommand(me_, "get");

  model_.restart(true);
  EXPECT_NE(model_.runId(), before);
  EXPECT_FALSE(model_.connected(me_));
  EXPECT_EQ(model_.subscribers("channel"), 0U);
  EXPECT_THAT(run(me_, {"PING"}), StartsWith("-CLOSED"));
  EXPECT_EQ(model_.connect(), 1U);
  EXPECT_EQ(run(1, {"GET", "k"}), "'v'");
  EXPECT_THAT(run(1, {"EVALSHA", sha1, "0"}), StartsWith("-NOSCRIPT"));

  model_.restart(false);
  EXPECT_EQ(model_.connect(), 1U);
  EXPECT_EQ(run(1, {"GET", "k"}), "nil");
  RedisModel twin([this] { return now_; }, {.password = {}, .seed = 2});
  EXPECT_NE(twin.runId(), before);
}

TEST_F(RedisModelTest, AFlushedScriptIsFoundAgainByItsText) {
  EXPECT_EQ(eval("return 7"), "7");
  const std::string sha1 = sha1Hex("return 7");
  EXPECT_EQ(run(me_, {"EVALSHA", sha1, "0"}), "7");
  model_.flushScripts();
  EXPECT_EQ(run(me_, {"EVALSHA", sha1, "0"}), "-NOSCRIPT No matching script. Please use EVAL.");
  EXPECT_EQ(run(me_, {"SCRIPT", "EXISTS", sha1}), "[0]");
  EXPECT_EQ(eval("return 7"), "7");
  EXPECT_EQ(run(me_, {"EVALSHA", sha1, "0"}), "7");
}

TEST_F(RedisModelTest, MessagesGoToThoseWhoAreSubscribed) {
  const auto first = model_.connect();
  const auto second = model_.connect();
  const auto confirmed = model_.subscribe(first, std::vector<std::string_view>{"a", "b"});
  ASSERT_EQ(confirmed.size(), 2U);
  EXPECT_EQ(shown(confirmed[1]), "['subscribe' 'b' 2]");
  EXPECT_EQ(run(second, {"subscribe", "a"}), "['subscribe' 'a' 1]");
  EXPECT_EQ(run(me_, {"PUBLISH", "a", "1"}), "2");
  EXPECT_EQ(run(me_, {"PUBLISH", "c", "1"}), "0");
  EXPECT_EQ(eval("return redis.call('publish', 'b', 7)"), "1");
  EXPECT_THAT(
      messages_,
      ElementsAre(
          std::tuple(first, "a", "1"), std::tuple(second, "a", "1"), std::tuple(first, "b", "7")));

  EXPECT_EQ(run(first, {"PING"}), "['pong' '']");
  EXPECT_EQ(run(first, {"GET", "a"}),
            "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / "
            "RESET are allowed in this context");
  EXPECT_EQ(run(first, {"UNSUBSCRIBE", "a"}), "['unsubscribe' 'a' 1]");
  EXPECT_EQ(run(me_, {"PUBLISH", "a", "2"}), "1");
  model_.disconnect(second);
  EXPECT_EQ(run(me_, {"PUBLISH", "a", "3"}), "0");
  EXPECT_EQ(model_.unsubscribe(first, {}).size(), 1U);
  EXPECT_EQ(shown(model_.unsubscribe(first, {}).front()), "['unsubscribe' nil 0]");
  EXPECT_EQ(run(first, {"PING"}), "+PONG");
}

TEST_F(RedisModelTest, AClientIsKilledByIdAndAddress) {
  const auto other = model_.connect("10.0.0.7:1234");
  EXPECT_THAT(run(other, {"CLIENT", "INFO"}), HasSubstr("id=2 addr=10.0.0.7:1234 "));
  const std::string id = std::to_string(other);
  EXPECT_EQ(run(me_, {"CLIENT", "KILL", "ID", id, "ADDR", "10.0.0.7:1"}), "0");
  EXPECT_TRUE(model_.connected(other));
  EXPECT_EQ(run(me_, {"CLIENT", "KILL", "ID", id, "ADDR", "10.0.0.7:1234"}), "1");
  EXPECT_FALSE(model_.connected(other));
  EXPECT_EQ(run(me_, {"CLIENT", "KILL", "ID", id}), "0");
  EXPECT_THAT(killed_, ElementsAre(other));
  // The handshake asks this to learn whether it may kill connections.
  const std::string nobody = std::to_string(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(run(me_, {"CLIENT", "KILL", "ID", nobody, "ADDR", "0.0.0.0:0", "TYPE", "normal"}), "0");
  EXPECT_EQ(run(me_, {"CLIENT", "KILL", "ID", "0"}), "-ERR client-id should be greater than 0");
  // Nobody kills itself by accident, and a subscriber is another type.
  EXPECT_EQ(run(me_, {"CLIENT", "KILL", "TYPE", "normal"}), "0");
  const auto subscriber = model_.connect();
  model_.subscribe(subscriber, std::vector<std::string_view>{"a"});
  EXPECT_EQ(run(me_, {"CLIENT", "KILL", "TYPE", "pubsub"}), "1");
  EXPECT_EQ(model_.subscribers("a"), 0U);
}

TEST_F(RedisModelTest, ADeniedCommandIsRefusedInScriptsToo) {
  const auto other = model_.connect();
  model_.denyCommand(me_, "set");
  model_.denyCommand(me_, "client|kill");
  EXPECT_EQ(run(me_, {"SET", "k", "v"}),
            "-NOPERM this user has no permissions to run the 'set' command");
  EXPECT_EQ(run(me_, {"CLIENT", "KILL", "ID", "5"}),
            "-NOPERM this user has no permissions to run the 'client|kill' command");
  EXPECT_EQ(run(me_, {"CLIENT", "ID"}), "1");
  EXPECT_THAT(eval("return redis.call('set', 'k', 'v')"),
              StartsWith("-ERR The user executing the script can't run this command or subcommand "
                         "script: "));
  EXPECT_EQ(run(other, {"SET", "k", "v"}), "+OK");
  model_.allowCommand(me_, "set");
  EXPECT_EQ(run(me_, {"SET", "k", "w"}), "+OK");
  model_.denyCommandToAll("publish");
  EXPECT_THAT(run(other, {"PUBLISH", "a", "b"}), StartsWith("-NOPERM"));
  model_.allowCommandToAll("publish");
  EXPECT_EQ(run(other, {"PUBLISH", "a", "b"}), "0");
}

TEST_F(RedisModelTest, AtTheMemoryLimitAScriptsFirstWriteDecides) {
  run(me_, {"SET", "k", "v"});
  model_.setOutOfMemory(true);
  EXPECT_EQ(run(me_, {"SET", "k", "w"}),
            "-OOM command not allowed when used memory > 'maxmemory'.");
  EXPECT_EQ(run(me_, {"GET", "k"}), "'v'");
  EXPECT_THAT(eval("return redis.call('set', 'k', 'w')"), StartsWith("-OOM command not allowed"));
  EXPECT_EQ(eval("redis.pcall('pexpire', 'k', '') return redis.call('set', 'k', 'w')"), "+OK");
  EXPECT_EQ(eval("redis.call('del', 'none') return redis.call('incr', 'n')"), "1");
  EXPECT_EQ(run(me_, {"DEL", "k"}), "1");
  model_.setOutOfMemory(false);
  EXPECT_EQ(run(me_, {"SET", "k", "w"}), "+OK");
}

TEST_F(RedisModelTest, AReplicaAndAServerThatLoadsRefuse) {
  model_.setReadOnly(true);
  EXPECT_EQ(run(me_, {"SET", "k", "v"}), "-READONLY You can't write against a read only replica.");
  EXPECT_THAT(eval("return redis.call('del', 'k')"), StartsWith("-READONLY You can't write"));
  EXPECT_EQ(eval("return redis.call('exists', 'k')"), "0");
  model_.setReadOnly(false);
  model_.setLoading(true);
  EXPECT_EQ(run(me_, {"GET", "k"}), "-LOADING Redis is loading the dataset in memory");
  EXPECT_THAT(eval("return 1"), StartsWith("-LOADING"));
  EXPECT_THAT(run(me_, {"HELLO", "2"}), HasSubstr("'mode' 'standalone'"));
  model_.setLoading(false);
  model_.onCommand([](RedisModel::ClientId client, RedisModel::Argv argv) {
    return argv[0] == "GET" ? std::optional("BUSY for " + std::to_string(client)) : std::nullopt;
  });
  EXPECT_EQ(run(me_, {"GET", "k"}), "-BUSY for 1");
  EXPECT_EQ(eval("return redis.call('get', 'k')"), "nil");
}

TEST_F(RedisModelTest, APasswordIsAskedFor) {
  EXPECT_THAT(run(me_, {"AUTH", "x"}), StartsWith("-ERR AUTH <password> called without any"));
  RedisModel guarded([this] { return now_; }, {.password = "secret", .seed = 1});
  const auto client = guarded.connect();
  const auto ask = [&](const std::vector<std::string_view>& argv) {
    return shown(guarded.execute(client, argv));
  };
  EXPECT_EQ(ask({"GET", "k"}), "-NOAUTH Authentication required.");
  EXPECT_THAT(ask({"HELLO", "2"}), StartsWith("-NOAUTH HELLO must be called"));
  EXPECT_THAT(ask({"AUTH", "wrong"}), StartsWith("-WRONGPASS"));
  EXPECT_EQ(ask({"AUTH", "default", "secret"}), "+OK");
  EXPECT_EQ(ask({"GET", "k"}), "nil");
}

TEST_F(RedisModelTest, EachConnectionHasADatabase) {
  const auto other = model_.connect();
  EXPECT_EQ(run(me_, {"SELECT", "3"}), "+OK");
  EXPECT_EQ(run(me_, {"SET", "k", "v"}), "+OK");
  EXPECT_EQ(run(other, {"GET", "k"}), "nil");
  EXPECT_EQ(eval("return redis.call('get', 'k')"), "'v'");
  EXPECT_EQ(run(me_, {"SELECT", "16"}), "-ERR DB index is out of range");
}

TEST_F(RedisModelTest, AWalkFindsEveryKeyThatStays) {
  for (int i = 0; i < 25; ++i) {
    run(me_, {"SET", "k" + std::to_string(i), "v"});
  }
  std::vector<std::string> found;
  std::string cursor = "0";
  do {
    const Reply step = model_.execute(
        me_, std::vector<std::string_view>{"SCAN", cursor, "MATCH", "k*[0-4]", "COUNT", "7"});
    cursor = step.elements[0].text;
    for (const Reply& key : step.elements[1].elements) {
      found.push_back(key.text);
      run(me_, {"DEL", key.text});
    }
    run(me_, {"SET", "new" + cursor, "v"});
  } while (cursor != "0");
  EXPECT_EQ(found.size(), 15U);
}

TEST_F(RedisModelTest, AScriptWalksThroughALargeHashByPages) {
  for (int i = 0; i < 600; ++i) {
    run(me_, {"HSET", "h", "f" + std::to_string(i), "1"});
  }
  EXPECT_EQ(eval("local cursor, pages, sum = '0', 0, 0\n"
                 "repeat\n"
                 "  local page = redis.call('hscan', 'h', cursor, 'count', 20)\n"
                 "  cursor, pages = page[1], pages + 1\n"
                 "  for i = 2, #page[2], 2 do sum = sum + page[2][i] end\n"
                 "until cursor == '0'\n"
                 "return {pages, sum}"),
            "[30 600]");
  run(me_, {"HSET", "small", "a", "1", "b", "2"});
  EXPECT_EQ(run(me_, {"HSCAN", "small", "0", "COUNT", "1"}), "['0' ['a' '1' 'b' '2']]");
}

TEST_F(RedisModelTest, ErrorsOfScriptsHaveTheWordsOfRedis) {
  const auto where = [](std::string_view body) {
    return " script: " + sha1Hex(body) + ", on @user_script:1.";
  };
  // Observed on redis-server 7.0.15.
  const std::vector<std::pair<std::string_view, std::string>> known{
      {"return redis.call('foo')", "ERR Unknown Redis command called from script"},
      {"return redis.call('get')", "ERR Wrong number of args calling Redis command from script"},
      {"return redis.call()", "ERR Please specify at least one argument for this redis lib call"},
      {"return redis.call('get', {})",
       "ERR Lua redis lib command arguments must be strings or integers"},
      {"return redis.call('subscribe', 'a')", "ERR This Redis command is not allowed from script"},
      {"return x", "ERR user_script:1: Script attempted to access nonexistent global variable 'x'"},
      {"x = 1", "ERR user_script:1: Attempt to modify a readonly table"},
      {"return error('x')", "ERR user_script:1: x"},
      {"return error({err='x y'})", "x y"},
      {"error()", "ERR nil"},
  };
  for (const auto& [body, text] : known) {
    EXPECT_EQ(eval(body), "-" + text + where(body));
  }
  EXPECT_EQ(eval("retrn"),
            "-ERR Error compiling script (new function): user_script:1: '=' expected near '<eof>'");
  EXPECT_EQ(eval("return redis.error_reply('foo')"), "-ERR foo");
  EXPECT_EQ(eval("return redis.error_reply('-foo x')"), "-foo x");
  EXPECT_EQ(eval("return {err='foo'}"), "-foo");
  EXPECT_EQ(eval("return redis.status_reply('foo')"), "+foo");
}

TEST_F(RedisModelTest, ValuesAreConvertedAsRedisDoes) {
  EXPECT_EQ(eval("return {1, 2.9, false, -4.7, 'a', true}"), "[1 2 nil -4 'a' 1]");
  EXPECT_EQ(eval("return {1, 2, nil, 4}"), "[1 2]");
  EXPECT_EQ(eval("return 1e30"), "-9223372036854775808");
  EXPECT_EQ(eval("return redis.call('set', 'n', 1e14 + 0.5) and redis.call('get', 'n')"),
            "'100000000000000.5'");
  EXPECT_EQ(eval("redis.call('set', 'n', 1e17) return redis.call('get', 'n')"), "'1e+17'");
  EXPECT_EQ(eval("redis.call('set', 'n', 12345678901234567) return redis.call('get', 'n')"),
            "'12345678901234568'");
  EXPECT_EQ(eval("redis.call('set', 'n', -0.1) return redis.call('get', 'n')"),
            "'-0.10000000000000001'");
  EXPECT_EQ(eval("redis.call('zadd', 'z', 0.1, 'a') return redis.call('zscore', 'z', 'a')"),
            "'0.10000000000000001'");
  // In Redis, pcall() of Lua gives the text of an error reply, and redis.pcall() its table.
  EXPECT_EQ(eval("local done, failure = pcall(redis.call, 'hget', 'z', 'a')\n"
                 "return {tostring(done), failure, type(redis.pcall('hget', 'z', 'a'))}"),
            "['false' 'WRONGTYPE Operation against a key holding the wrong kind of value' "
            "'table']");
  EXPECT_EQ(eval("return redis.call('exists', 'none') == 0 and redis.call('get', 'none')"), "nil");
}

TEST_F(RedisModelTest, EveryScriptOfTheLibraryCompiles) {
  for (const detail::lua::Script* const script : detail::lua::allScripts()) {
    EXPECT_EQ(sha1Hex(script->body), script->sha1);
    EXPECT_EQ(run(me_, {"SCRIPT", "LOAD", script->body}), "'" + std::string(script->sha1) + "'");
  }
}

}  // namespace
}  // namespace rlock::sim
