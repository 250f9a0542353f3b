// SPDX-License-Identifier: Apache-2.0
#include "simulation/redis_model_steps.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "testing/redis_model.hpp"
#include <rlock/detail/executor/lua_scripts.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace rlock::sim {
namespace {

using detail::Reply;
using test::RawRedis;
using test::Value;
using Message = std::pair<std::string, std::string>;

constexpr std::string_view kMarkerChannel = "end of step";
constexpr int kStepsOfASequence = 120;

/// Tells all keys with type, expiry and content. Both servers run it.
constexpr std::string_view kDump = R"(
local keys = redis.call('keys', '*')
local all = {}
for i, key in ipairs(keys) do
  local kind = redis.call('type', key).ok
  local content
  if kind == 'string' then
    content = redis.call('get', key)
  elseif kind == 'hash' then
    content = redis.call('hgetall', key)
  elseif kind == 'list' then
    content = redis.call('lrange', key, 0, -1)
  else
    content = redis.call('zrange', key, 0, -1, 'withscores')
  end
  all[i] = {key, kind, string.format('%.0f', redis.call('pexpiretime', key)), content}
end
return all
)";

/// Commands that some users may not run. None is among those of kDump.
constexpr std::array<std::string_view, 10> kDenied{"publish",
                                                   "pexpire",
                                                   "persist",
                                                   "set",
                                                   "hkeys",
                                                   "zadd",
                                                   "decrby",
                                                   "zscore",
                                                   "incrby",
                                                   "lindex"};

Value valueOf(const Reply& reply) {
  switch (reply.type) {
    case Reply::Type::nil:
      return {};
    case Reply::Type::integer:
      return Value::makeInteger(reply.integer);
    case Reply::Type::string:
      return Value::makeText(Value::Kind::string, reply.text);
    case Reply::Type::status:
      return Value::makeText(Value::Kind::status, reply.text);
    case Reply::Type::error:
      return Value::makeText(Value::Kind::error, reply.text);
    case Reply::Type::array:
      break;
  }
  std::vector<Value> elements;
  for (const Reply& element : reply.elements) {
    elements.push_back(valueOf(element));
  }
  return Value::makeArray(std::move(elements));
}

/// By key: the servers tell them in orders of their own.
Value sorted(const Value& dump) {
  std::vector<Value> keys = dump.array();
  std::sort(keys.begin(), keys.end(), [](const Value& left, const Value& right) {
    return left.array()[0].string() < right.array()[0].string();
  });
  return Value::makeArray(std::move(keys));
}

std::string describe(const std::vector<Message>& messages) {
  std::string text;
  for (const auto& [channel, payload] : messages) {
    text += (text.empty() ? "" : ", ") + channel + ": " + payload;
  }
  return text.empty() ? "none" : text;
}

std::string describe(const Value& dump, std::string_view indent) {
  std::string text;
  for (const Value& key : dump.array()) {
    text += std::string(indent) + key.describe() + "\n";
  }
  return text;
}

/// The effect of a command: its reply, the data after it, and the messages.
struct Effect {
  Value reply;
  Value dump;
  std::vector<Message> messages;

  friend bool operator==(const Effect&, const Effect&) = default;
};

/// The real server, and how a command is executed there so that everything it does falls between
/// two readings of its clock.
class RealServer {
 public:
  RealServer() : control_(server_), subscriber_(server_) {
    subscriber_.run({"PSUBSCRIBE", "*"});
    control_.run({"SCRIPT", "LOAD", kDump});
    for (const detail::lua::Script* const script : detail::lua::allScripts()) {
      control_.run({"SCRIPT", "LOAD", script->body});
    }
    users_.emplace_back(server_);
    for (const std::string_view denied : kDenied) {
      const std::string user = "no-" + std::string(denied);
      control_.run({"ACL",
                    "SETUSER",
                    user,
                    "on",
                    ">secret",
                    "~*",
                    "&*",
                    "+@all",
                    "-" + std::string(denied)});
      test::RawRedisOptions options;
      options.port = server_.port();
      options.username = user;
      options.password = "secret";
      users_.emplace_back(options);
    }
  }

  [[nodiscard]] std::size_t users() const { return users_.size(); }

  struct Timed {
    Effect effect;
    std::int64_t beginUs = 0;
    std::int64_t endUs = 0;
  };
  /// @param user  0 may run everything, the others all but one of kDenied
  Timed execute(const ModelStep& step, std::size_t user) {
    if (step.outOfMemory) {
      control_.run({"CONFIG", "SET", "maxmemory", "1"});
    }
    RawRedis& connection = users_[user];
    connection.send({"TIME"});
    connection.send(step.argv);
    connection.send({"EVAL", std::string(kDump), "0"});
    connection.send({"TIME"});
    Timed result;
    result.beginUs = microseconds(connection.receive());
    result.effect.reply = connection.receive();
    result.effect.dump = sorted(connection.receive());
    result.endUs = microseconds(connection.receive());
    if (step.outOfMemory) {
      control_.run({"CONFIG", "SET", "maxmemory", "0"});
    }
    result.effect.messages = messages();
    return result;
  }

  void clear() { control_.run({"FLUSHALL"}); }

 private:
  static std::int64_t microseconds(const Value& time) {
    return std::stoll(time.array()[0].string()) * 1'000'000 + std::stoll(time.array()[1].string());
  }

  std::vector<Message> messages() {
    control_.run({"PUBLISH", kMarkerChannel, "x"});
    std::vector<Message> result;
    for (;;) {
      const Value message = subscriber_.receive();
      const auto& parts = message.array();
      if (parts[2].string() == kMarkerChannel) {
        return result;
      }
      result.emplace_back(parts[2].string(), parts[3].string());
    }
  }

  test::RedisServer server_;
  RawRedis control_;
  RawRedis subscriber_;
  std::vector<RawRedis> users_;
};

class SimulatedServer {
 public:
  SimulatedServer() : model_([this] { return nowUs_; }) {
    model_.onPublish([this](std::string_view channel, std::string_view payload) {
      messages_.emplace_back(channel, payload);
    });
    listener_ = model_.connect();
    run(users_.emplace_back(model_.connect()), {"SCRIPT", "LOAD", kDump});
    for (const detail::lua::Script* const script : detail::lua::allScripts()) {
      run(users_.front(), {"SCRIPT", "LOAD", script->body});
    }
    for (const std::string_view denied : kDenied) {
      model_.denyCommand(users_.emplace_back(model_.connect()), std::string(denied));
    }
  }

  Effect execute(const ModelStep& step, std::size_t user, std::int64_t nowUs) {
    nowUs_ = nowUs;
    messages_.clear();
    model_.setOutOfMemory(step.outOfMemory);
    // The real server has one client that hears everything, which a script may count.
    for (const std::string& argument : step.argv) {
      if (argument.starts_with("redisson_")) {
        const std::string_view channel = argument;
        static_cast<void>(model_.subscribe(listener_, {&channel, 1}));
      }
    }
    Effect effect;
    std::vector<std::string_view> argv(step.argv.begin(), step.argv.end());
    if (!brokenScript_.empty() && step.script == brokenScript_ && argv[0] == "EVALSHA") {
      argv[0] = "EVAL";
      argv[1] = brokenBody_;
    }
    effect.reply = run(users_[user], argv);
    model_.setOutOfMemory(false);
    effect.messages = std::exchange(messages_, {});
    effect.dump = sorted(run(users_.front(), {"EVAL", kDump, "0"}));
    return effect;
  }

  /// Runs another text instead of a script from now on. Returns whether the script has what is to
  /// be replaced.
  bool breakScript(const detail::lua::Script& script, std::string_view from, std::string_view to) {
    brokenScript_ = script.name;
    brokenBody_ = script.body;
    const std::size_t at = brokenBody_.find(from);
    if (at == std::string::npos) {
      return false;
    }
    brokenBody_.replace(at, from.size(), to);
    return true;
  }

  /// Takes over what stands in the other server.
  void adopt(const Value& dump) {
    // Before all of these end: one that is in its last millisecond is still there.
    nowUs_ = 1;
    run(users_.front(), {"FLUSHALL"});
    for (const Value& entry : dump.array()) {
      const std::string& key = entry.array()[0].string();
      const std::string& type = entry.array()[1].string();
      const std::string& expiry = entry.array()[2].string();
      const Value& content = entry.array()[3];
      std::vector<std::string> parts;
      if (type == "string") {
        parts = {content.string()};
      } else {
        parts = content.strings();
      }
      if (type == "zset") {
        for (std::size_t i = 0; i + 1 < parts.size(); i += 2) {
          std::swap(parts[i], parts[i + 1]);
        }
      }
      std::vector<std::string_view> argv{type == "string" ? "SET"
                                         : type == "hash" ? "HSET"
                                         : type == "list" ? "RPUSH"
                                                          : "ZADD",
                                         key};
      argv.insert(argv.end(), parts.begin(), parts.end());
      run(users_.front(), argv);
      if (expiry != "-1") {
        run(users_.front(), {"PEXPIREAT", key, expiry});
      }
    }
  }

 private:
  Value run(RedisModel::ClientId client, const std::vector<std::string_view>& argv) {
    return valueOf(model_.execute(client, argv));
  }

  std::int64_t nowUs_ = 1;
  RedisModel model_;
  RedisModel::ClientId listener_{};
  std::vector<RedisModel::ClientId> users_;
  std::vector<Message> messages_;
  std::string brokenScript_;
  std::string brokenBody_;
};

std::optional<std::uint64_t> numberFrom(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') {
    return std::nullopt;
  }
  return std::strtoull(text, nullptr, 10);
}

std::string describe(const ModelStep& step, std::size_t user) {
  std::string text = step.script.empty() ? "" : step.script + ": ";
  text += user == 0 ? "" : "(without " + std::string(kDenied[user - 1]) + ") ";
  text += step.outOfMemory ? "(out of memory) " : "";
  for (std::size_t i = 0; i < step.argv.size(); ++i) {
    const bool isBody = i == 1 && step.argv[0] == "EVAL";
    text += (isBody ? "..." : Value::makeText(Value::Kind::string, step.argv[i]).describe()) + " ";
  }
  return text;
}

class RedisModelDifferential : public ::testing::Test {
 protected:
  void SetUp() override {
    RLOCK_REQUIRE_REDIS_SERVER();
    const auto version = test::RedisServer::version();
    if (version.major != 7 || version.minor != 0) {
      GTEST_SKIP() << "the model is a Redis 7.0, and this server's errors have other words";
    }
    real_ = std::make_unique<RealServer>();
    simulated_ = std::make_unique<SimulatedServer>();
  }

  /// One sequence from empty servers. Returns the first difference.
  std::optional<std::string> runSequence(std::size_t kind, std::uint64_t seed) {
    real_->clear();
    Value before = Value::makeArray({});
    simulated_->adopt(before);
    const auto steps = makeStepMaker(kind, seed);
    Random random(seed + 1);
    std::deque<std::string> history;
    for (int number = 0; number < kStepsOfASequence; ++number) {
      if (random() % 8 == 0) {
        // Leases of some milliseconds end meanwhile.
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
      }
      const ModelStep step = steps->next();
      const std::size_t user = random() % 10 == 0 ? random() % real_->users() : 0;
      history.push_back(describe(step, user));
      if (history.size() > 12) {
        history.pop_front();
      }
      const RealServer::Timed real = real_->execute(step, user);
      if (real.beginUs / 1000 != real.endUs / 1000) {
        // Which millisecond the server saw is not known, so there is nothing to compare.
        simulated_->adopt(real.effect.dump);
        before = real.effect.dump;
        ++undecided_;
        continue;
      }
      const Effect simulated = simulated_->execute(step, user, real.endUs);
      ++compared_;
      ++comparedCalls_[step.script];
      if (real.effect == simulated) {
        before = real.effect.dump;
        continue;
      }
      std::ostringstream text;
      text << stepMakerName(kind) << ", seed " << seed << ", step " << number << " at "
           << real.endUs / 1000 << " ms\n";
      for (const std::string& line : history) {
        text << "  " << line << "\n";
      }
      text << "reply\n  real:      " << real.effect.reply.describe()
           << "\n  simulated: " << simulated.reply.describe()
           << "\nmessages\n  real:      " << describe(real.effect.messages)
           << "\n  simulated: " << describe(simulated.messages) << "\nkeys before\n"
           << describe(before, "  ") << "keys of the real server\n"
           << describe(real.effect.dump, "  ") << "keys of the simulated server\n"
           << describe(simulated.dump, "  ") << "replay: RLOCK_REDIS_MODEL_SEED=" << seed << " "
           << ::testing::internal::GetArgvs()[0]
           << " --gtest_filter=RedisModelDifferential.EveryScriptDoesTheSameOnBothServers";
      return text.str();
    }
    return std::nullopt;
  }

  std::unique_ptr<RealServer> real_;
  std::unique_ptr<SimulatedServer> simulated_;
  std::uint64_t compared_ = 0;
  std::uint64_t undecided_ = 0;
  std::map<std::string, int> comparedCalls_;
};

// RLOCK_REDIS_MODEL_SEED=n runs the sequences of that seed alone; RLOCK_REDIS_MODEL_SECONDS=n goes
// on for so long. The comparison is exact, times too: both servers execute a step within the same
// millisecond, or it does not count.
TEST_F(RedisModelDifferential, EveryScriptDoesTheSameOnBothServers) {
  if (const auto seed = numberFrom("RLOCK_REDIS_MODEL_SEED")) {
    for (std::size_t kind = 0; kind < stepMakerCount(); ++kind) {
      if (const auto difference = runSequence(kind, *seed)) {
        ADD_FAILURE() << *difference;
      }
    }
    return;
  }
  using Clock = std::chrono::steady_clock;
  const auto end =
      Clock::now() + std::chrono::seconds(numberFrom("RLOCK_REDIS_MODEL_SECONDS").value_or(8));
  constexpr std::uint64_t kLeastSeeds = 3;
  // Other seeds each time: what a run does not reach, another does.
  const auto first = static_cast<std::uint64_t>(
      std::chrono::system_clock::now().time_since_epoch().count() / 1000 % 1'000'000'000);
  for (std::uint64_t seed = first; Clock::now() < end || seed < first + kLeastSeeds; ++seed) {
    for (std::size_t kind = 0; kind < stepMakerCount(); ++kind) {
      if (const auto difference = runSequence(kind, seed)) {
        FAIL() << *difference;
      }
    }
  }
  for (const detail::lua::Script* const script : detail::lua::allScripts()) {
    EXPECT_GE(comparedCalls_[std::string(script->name)], 3)
        << script->name << ": no sequence of redis_model_steps.cpp calls it";
  }
  RecordProperty("compared", std::to_string(compared_));
  RecordProperty("undecided", std::to_string(undecided_));
  std::printf("%llu steps compared, %llu undecided\n",
              static_cast<unsigned long long>(compared_),
              static_cast<unsigned long long>(undecided_));
}

struct ScriptBreak {
  const detail::lua::Script* script;
  std::string_view kind;  ///< of the sequences that call it
  std::string_view from;
  std::string_view to;
};

// A script that is not what the real server runs is noticed, whichever kind of effect it has.
TEST_F(RedisModelDifferential, ASmallChangeOfAScriptIsNoticed) {
  namespace lua = detail::lua;
  const std::vector<ScriptBreak> breaks{
      // A reply, a message, an expiry, a score, a condition at the memory limit.
      {&lua::lock_reconcile, "plain", "return {before, left,", "return {left, left,"},
      {&lua::lock_release, "plain", "redis.pcall(publish, channel, message)", "{}"},
      {&lua::lock_hand_over,
       "plain",
       "'pexpire', KEYS[1], ARGV[7]",
       "'pexpire', KEYS[1], ARGV[7] + 1"},
      {&lua::lock_renew,
       "plain",
       "redis.pcall('pexpire', key, lease)",
       "redis.pcall('pexpire', key, lease + 1)"},
      {&lua::fair_acquire,
       "fair",
       "number(now + ARGV[4]), owner",
       "number(now + ARGV[4] + 1), owner"},
      {&lua::permit_update_lease, "permits", "redis.call('zremrangebyrank', KEYS[2], 1, 0)", ""},
  };
  for (const ScriptBreak& change : breaks) {
    ASSERT_TRUE(simulated_->breakScript(*change.script, change.from, change.to))
        << change.script->name;
    std::size_t kind = 0;
    while (stepMakerName(kind) != change.kind) {
      ++kind;
    }
    bool found = false;
    for (std::uint64_t seed = 1; seed <= 400 && !found; ++seed) {
      found = runSequence(kind, seed).has_value();
    }
    EXPECT_TRUE(found) << change.script->name << " with " << change.to;
  }
}

}  // namespace
}  // namespace rlock::sim
