// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "testing/redis_commands.hpp"
#include "testing/redis_keyspace.hpp"
#include "testing/redis_lua.hpp"
#include "testing/redis_model.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rlock::sim {

/// Commands that the server performs itself.
enum class Own : std::uint8_t {
  auth,
  client,
  echo,
  eval,
  evalsha,
  flushall,
  flushdb,
  hello,
  info,
  ping,
  publish,
  script,
  select,
  spublish,
  subscribe,
  time,
  unsubscribe,
};

/// A command, and which of the server's own it is if it is not about keys.
struct CommandEntry {
  const RedisCommand* command;
  Own own;
};
/// In upper or lower case; null: there is none of that name.
const CommandEntry* findCommand(std::string_view name);

inline constexpr std::string_view kOutOfMemory =
    "OOM command not allowed when used memory > 'maxmemory'.";
inline constexpr std::string_view kReadOnly =
    "READONLY You can't write against a read only replica.";

/// The server behind a RedisModel: its connections, databases and scripts. A request passes
/// execute(), which refuses it or has it performed; what a script calls passes performInScript(),
/// which has rules of its own.
///
/// Invariants: a client is in `channels_` under exactly those channels that it lists itself; a
/// client that is gone is in neither. `caller_` and `nowUs_` belong to the request at hand.
///
/// Guarantees: one request is executed as a whole, as in Redis, so a request that is refused has
/// changed nothing. The hooks of the model are called from within a request and must not make
/// another.
///
/// **Thread safety:** One thread at a time: the simulation's, or whichever has the mutex of the
/// double's server.
class RedisModel::Impl {
 public:
  Impl(RedisModel& model, WallClock clock, RedisModelOptions options)
      : model_(model),
        clock_(std::move(clock)),
        options_(std::move(options)),
        lua_([this](Argv argv) { return performInScript(argv); }) {
    for (RedisKeyspace& keys : databases_) {
      keys.setPunctual(options_.punctual);
    }
    start();
  }

  ClientId connect(std::string address);
  void disconnect(ClientId id);

  [[nodiscard]] bool connected(ClientId id) const { return clients_.contains(id); }

  /// Everything that a request goes through. Several channels are confirmed one by one.
  std::vector<detail::Reply> execute(ClientId id, Argv argv);

  void flushScripts() { scripts_.clear(); }

  void restart(bool keepData);

  [[nodiscard]] std::string_view runId() const { return runId_; }
  [[nodiscard]] std::uint64_t commandCount() const { return commands_; }

  void deny(ClientId id, std::string name) { denied_[id].insert(std::move(name)); }
  void allow(ClientId id, std::string_view name);

  void forget(std::string_view key) { databases_[0].erase(key, clock_() / 1000); }
  void copy(const std::string& key, const RedisObject& object) {
    databases_[0].put(key, object.value).expiresAt = object.expiresAt;
  }

  bool eraseEverywhere(std::string_view key);

  [[nodiscard]] auto keys(std::size_t database = 0) const {
    return databases_[database].all(clock_() / 1000);
  }

  [[nodiscard]] std::size_t subscribers(std::string_view channel) const;

  /// Stands for every connection among those that are denied a command.
  static constexpr ClientId kEverybody = 0;

 private:
  struct Client {
    std::string address;
    std::string name;
    std::size_t database = 0;
    bool authenticated = true;
    std::set<std::string, std::less<>> channels;
  };
  void start();

  // Whether a command may run.

  static std::string fullName(const RedisCommand& command, Argv argv);
  [[nodiscard]] bool isDenied(ClientId id, const RedisCommand& command, Argv argv) const;
  std::optional<std::string> refuse(const Client& client, Argv argv) const;
  static std::optional<std::string> refuseForm(const RedisCommand& command, Argv argv);

  // Commands.

  detail::Reply perform(const CommandEntry& entry, Argv argv);

  Client& caller() { return clients_.at(caller_); }
  RedisKeyspace& database();
  detail::Reply auth(Argv credentials);
  detail::Reply hello(Argv argv);
  detail::Reply info(Argv argv) const;
  detail::Reply ping(Argv argv);
  detail::Reply select(std::string_view index);

  // Connections.

  static std::string describe(ClientId id, const Client& client);
  detail::Reply client(Argv argv);
  detail::Reply kill(Argv filters);

  // Messages.

  detail::Reply publish(std::string_view channel, std::string_view payload);
  detail::Reply publishInShard(std::string_view channel, std::string_view payload);
  void removeSubscriber(const std::string& channel, ClientId id);
  std::vector<detail::Reply> confirm(Client& client, Argv named, bool subscribing);

  // Scripts.

  const std::string& hashOf(std::string_view body);
  detail::Reply script(Argv argv);
  detail::Reply eval(Argv argv, bool asText);
  detail::Reply run(const std::string& sha1, Argv arguments, std::size_t keys);

  /// Executes a script's redis.call().
  detail::Reply performInScript(Argv argv);
  RedisModel& model_;
  const WallClock clock_;
  const RedisModelOptions options_;
  std::uint64_t runs_ = 0;
  std::string runId_;
  std::uint64_t commands_ = 0;
  std::array<RedisKeyspace, kDatabases> databases_;
  ClientId lastClient_ = 0;
  std::map<ClientId, Client> clients_;
  StringMap<std::set<ClientId>> channels_;
  std::map<ClientId, std::unordered_set<std::string>> denied_;

  // Of the command that is executed.
  ClientId caller_ = 0;
  std::int64_t nowUs_ = 0;
  bool scriptWrote_ = false;
  RedisLua lua_;
  std::unordered_set<std::string> scripts_;  // those that EVALSHA finds
  StringMap<std::string> hashes_;
};

}  // namespace rlock::sim
