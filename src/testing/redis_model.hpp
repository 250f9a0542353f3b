// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::sim {

struct RedisModelOptions {
  /// Of the default user; empty: none, so that AUTH is refused.
  std::string password{};
  /// Run ids follow from it. Servers of one simulation need different ones.
  std::uint64_t seed = 1;
  /// A key is gone as soon as its time is over. Redis keeps it for the rest of that millisecond,
  /// which a test whose time moves in steps would have to know of.
  bool punctual = false;
};

/// A Redis 7.0 server in memory, without a network: what a command answers, publishes and leaves
/// behind is what redis-server would. Scripts are executed, not imitated: any EVAL body runs in
/// Lua 5.1, as in the real server, and only the commands that it calls are written anew. Commands
/// that neither the library nor its tests send are unknown to it.
///
/// Time is what the clock given says, and stands still while a command runs. Nothing happens
/// unless a method is called: a key whose time is over is gone at the next look at it.
///
/// A hook is called while a command is executed. It may not call the model; it notes what happened
/// for the network, which delivers it later.
///
/// **Thread safety:** One thread at a time.
class RedisModel {
 public:
  using ClientId = std::uint64_t;
  using Argv = std::span<const std::string_view>;
  /// Microseconds since the epoch.
  using WallClock = std::function<std::int64_t()>;
  /// They are numbered from 0.
  static constexpr std::size_t kDatabases = 16;

  explicit RedisModel(WallClock wallMicroseconds, RedisModelOptions options = {});
  RedisModel(const RedisModel&) = delete;
  RedisModel& operator=(const RedisModel&) = delete;
  ~RedisModel();

  // Connections.

  /// A new connection: not subscribed, database 0, no name. Ids rise from 1 within one run.
  /// @param address  `ip:port` of the peer, as CLIENT INFO tells it and CLIENT KILL ADDR finds it;
  ///                 empty: one on 127.0.0.1 that follows from the id
  ClientId connect(std::string address = {});
  /// Ends a connection and its subscriptions. One that is not there any more: nothing happens.
  void disconnect(ClientId client);
  [[nodiscard]] bool connected(ClientId client) const;

  /// Executes one command. SUBSCRIBE and UNSUBSCRIBE must name one channel here; see subscribe().
  /// @param client  must be connected(); otherwise nothing is executed, and the reply is an error
  ///                that no server sends
  detail::Reply execute(ClientId client, Argv argv);
  /// SUBSCRIBE with any number of channels: one confirmation for each, or one error.
  std::vector<detail::Reply> subscribe(ClientId client, Argv channels);
  /// UNSUBSCRIBE; without channels: from all. One confirmation for each, one without a channel if
  /// there was none.
  std::vector<detail::Reply> unsubscribe(ClientId client, Argv channels);

  // Events that clients see.

  /// Called for each subscriber of a message, in the order of their ids, at the moment of PUBLISH.
  using MessageHook =
      std::function<void(ClientId subscriber, std::string_view channel, std::string_view payload)>;
  void onMessage(MessageHook hook) { messageHook_ = std::move(hook); }
  /// Called for each PUBLISH, also one that nobody hears.
  using PublishHook = std::function<void(std::string_view channel, std::string_view payload)>;
  void onPublish(PublishHook hook) { publishHook_ = std::move(hook); }
  /// Called for each SPUBLISH. Sharded channels are the caller's, like all that makes a cluster of
  /// servers: the hook returns how many connections hear the message.
  using ShardHook = std::function<std::int64_t(std::string_view channel, std::string_view payload)>;
  void onShardPublish(ShardHook hook) { shardHook_ = std::move(hook); }
  /// Called for each connection that CLIENT KILL has closed; it is not connected() any more. One
  /// that kills itself is closed before it gets its reply, which Redis still sends.
  using KillHook = std::function<void(ClientId client)>;
  void onKill(KillHook hook) { killHook_ = std::move(hook); }

  // The server's life.

  /// As SCRIPT FLUSH.
  void flushScripts();
  /// A new run id; all connections, subscriptions and scripts are gone, and client ids begin from 1
  /// again. No kill is reported: the caller knows. Without data the keys are gone, too.
  void restart(bool keepData);
  [[nodiscard]] std::string_view runId() const;

  // The data of a cluster, which move between its servers.

  /// The names of all keys of database 0, the oldest first.
  [[nodiscard]] std::vector<std::string> keys() const;
  /// As MIGRATE: a key of database 0 is at the other server from here on, with its expiry.
  void migrate(std::string_view key, RedisModel& to);
  /// As a full synchronization of a replica: it has the keys of its master, and no others.
  void replicate(const RedisModel& master);

  /// Removes a key from every database, as DEL does in one of them. Returns whether any had it.
  bool eraseEverywhere(std::string_view key);

  // Reasons to refuse commands.

  /// A user of this connection may not run a command, in scripts either: NOPERM. A subcommand is
  /// written as `client|kill`; with `script` alone all subcommands are denied. Names in lower case.
  void denyCommand(ClientId client, std::string name);
  void allowCommand(ClientId client, std::string_view name);
  /// As denyCommand(), for every connection, also those to come.
  void denyCommandToAll(std::string name);
  void allowCommandToAll(std::string_view name);
  /// The memory limit is exceeded: commands that could need more are refused with OOM, in a script
  /// only until its first write.
  void setOutOfMemory(bool outOfMemory) { outOfMemory_ = outOfMemory; }
  /// It is a read-only replica: writes are refused with READONLY.
  void setReadOnly(bool readOnly) { readOnly_ = readOnly; }
  [[nodiscard]] bool readOnly() const { return readOnly_; }
  /// It loads its data: nearly everything is refused with LOADING.
  void setLoading(bool loading) { loading_ = loading; }
  /// Looks at each command of a connection, not at those of scripts, before anything else. If it
  /// returns a text, that is answered as an error, and the command is not executed.
  using RefusalHook = std::function<std::optional<std::string>(ClientId client, Argv argv)>;
  void onCommand(RefusalHook hook) { refusalHook_ = std::move(hook); }

  // For assertions.

  /// One line for each key of a database, sorted by key:
  /// `KEY TYPE EXPIRY VALUE`, with the expiry in ms since the epoch or `-`. Values are written as
  /// JSON-like text with unprintable bytes as \xHH; hashes and lists in their order, zsets by
  /// score.
  [[nodiscard]] std::string dump(std::size_t database = 0) const;
  /// Keys of database 0 that have not expired.
  [[nodiscard]] std::size_t keyCount() const;
  /// How many connections are subscribed to a channel.
  [[nodiscard]] std::size_t subscribers(std::string_view channel) const;
  /// Commands executed so far, with those of scripts.
  [[nodiscard]] std::uint64_t commandCount() const;

 private:
  class Impl;

  MessageHook messageHook_;
  PublishHook publishHook_;
  ShardHook shardHook_;
  KillHook killHook_;
  RefusalHook refusalHook_;
  bool outOfMemory_ = false;
  bool readOnly_ = false;
  bool loading_ = false;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace rlock::sim
