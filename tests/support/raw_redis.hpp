// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace rlock::test {

class RedisServer;

/// A RESP2 reply. Accessors of another kind throw std::runtime_error naming what the reply is.
class Value {
 public:
  enum class Kind { nil, integer, string, status, error, array };

  Value() = default;
  static Value makeInteger(std::int64_t number);
  static Value makeText(Kind kind, std::string text);
  static Value makeArray(std::vector<Value> elements);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool isNil() const { return kind_ == Kind::nil; }
  [[nodiscard]] bool isError() const { return kind_ == Kind::error; }

  [[nodiscard]] std::int64_t integer() const;
  /// Of a bulk string or a status.
  [[nodiscard]] const std::string& string() const;
  [[nodiscard]] const std::string& error() const;
  [[nodiscard]] const std::vector<Value>& array() const;
  /// An array of strings.
  [[nodiscard]] std::vector<std::string> strings() const;
  /// For messages, e.g. `(array) ["a", (integer) 1]`; unprintable bytes as \xHH.
  [[nodiscard]] std::string describe() const;

  friend bool operator==(const Value&, const Value&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Value& value);

 private:
  Kind kind_ = Kind::nil;
  std::int64_t integer_ = 0;
  std::string text_;
  std::vector<Value> elements_;
};

struct RawRedisOptions {
  std::string host = "127.0.0.1";  ///< an IPv4 literal
  std::uint16_t port = 0;
  std::string unixPath;  ///< when set, used instead of host and port
  std::string username;
  std::string password;
  std::string clientName;
  int database = 0;
  std::chrono::milliseconds timeout{5'000};  ///< for connecting and for each reply; scaled
  /// All masters of the cluster that `port` belongs to; empty: no cluster.
  std::vector<std::uint16_t> clusterPorts{};
};

/// Of a connection to a server, with its own password.
[[nodiscard]] RawRedisOptions rawOptionsFor(const RedisServer& server);

namespace detail {
class RespConnection;
class RawCluster;
}  // namespace detail

/// A plain blocking RESP2 client for assertions, independent of the library under test. Binary
/// safe; never raises SIGPIPE. Throws std::runtime_error when the connection fails or times out.
/// After a time-out the reply is still owed: a later receive() may get it. One thread at a time.
/// In a cluster a command goes to the master of its key; what is about servers (settings, users,
/// scripts, counters) goes to all, and what is published goes to sharded channels. send() and what
/// belongs to it stay with one master.
class RawRedis {
 public:
  using Args = std::vector<std::string>;

  /// Connects with the server's own password to its port, or to its Unix socket if it has no port.
  explicit RawRedis(const RedisServer& server);
  explicit RawRedis(std::uint16_t port);
  explicit RawRedis(const RawRedisOptions& options);
  RawRedis(RawRedis&&) noexcept;
  RawRedis& operator=(RawRedis&&) noexcept;
  ~RawRedis();

  /// Error replies are returned, not thrown.
  Value command(std::initializer_list<std::string_view> args);
  Value command(const Args& args);
  /// As command(), but an error reply is thrown as std::runtime_error.
  Value run(std::initializer_list<std::string_view> args);
  Value run(const Args& args);
  /// Writes a request without reading; each needs one receive(), in order.
  void send(const Args& args);
  Value receive();
  /// As receive(), but empty when no reply has come within `timeout` (scaled).
  std::optional<Value> tryReceive(std::chrono::milliseconds timeout);
  /// Everything read so far, complete replies or not.
  [[nodiscard]] std::uint64_t bytesReceived() const;
  /// Writes bytes as they are.
  void sendRaw(std::string_view bytes);

  bool ping();
  std::int64_t clientId();

  bool exists(std::string_view key);
  std::string type(std::string_view key);
  std::optional<std::string> get(std::string_view key);
  void set(std::string_view key,
           std::string_view value,
           std::optional<std::chrono::milliseconds> ttl = {});
  /// Returns how many keys there were.
  std::int64_t del(std::string_view key);
  /// -2: no such key, -1: no expiry.
  std::int64_t pttl(std::string_view key);
  std::map<std::string, std::string> hgetall(std::string_view key);
  std::optional<std::string> hget(std::string_view key, std::string_view field);
  /// By SCAN, so also right while others write. `pattern` is a glob.
  std::set<std::string> keys(std::string_view pattern = "*");
  std::int64_t dbsize();
  void flushAll();
  Value eval(std::string_view script, const Args& keys = {}, const Args& args = {});

  /// PUBLISH, or in a cluster SPUBLISH.
  [[nodiscard]] std::string publishing() const;
  std::int64_t publish(std::string_view channel, std::string_view payload);
  std::set<std::string> pubsubChannels(std::string_view pattern = "*");
  /// Subscribers of exactly this channel.
  std::int64_t numsub(std::string_view channel);
  /// Patterns subscribed to by anybody.
  std::int64_t numpat();

  /// One map per connection: "id", "name", "sub", "cmd", "age", ... as CLIENT LIST names them.
  std::vector<std::map<std::string, std::string>> clientList();
  /// Calls by lower-case command name ("get", "client|list") since the last resetStats(),
  /// including the calls of scripts.
  std::map<std::string, std::int64_t> commandStats();
  std::int64_t commandCalls(std::string_view name);
  void resetStats();

  /// Takes subcommands of CLIENT away from a user that may use all commands. Redis 6 cannot take
  /// away a subcommand, only give.
  void denyClient(std::string_view user, std::initializer_list<std::string_view> subcommands);
  /// "normal", "pubsub", ... (never this connection); returns how many were killed.
  std::int64_t clientKillType(std::string_view type);
  std::int64_t clientKillId(std::int64_t id);
  /// CLIENT PAUSE; `mode` is "WRITE" or "ALL".
  void clientPause(std::chrono::milliseconds duration, std::string_view mode = "ALL");
  void clientUnpause();
  /// One INFO field, e.g. info("connected_clients").
  std::optional<std::string> info(std::string_view field);
  std::map<std::string, std::string> infoSection(std::string_view section);
  std::string configGet(std::string_view name);
  void configSet(std::string_view name, std::string_view value);
  /// Microseconds since the epoch by the server's clock.
  std::int64_t serverTimeUs();
  /// The port of the master that has a key.
  std::uint16_t portOf(std::string_view key);

 private:
  Value exchange(const Args& args);
  /// The replies of all masters.
  std::vector<Value> fromAll(const Args& args);

  std::unique_ptr<detail::RespConnection> connection_;
  std::unique_ptr<detail::RawCluster> cluster_;  // the other masters; none: no cluster
};

/// A subscriber whose messages a background thread collects. Safe from any thread. A broken
/// connection shows in error(), and every wait then returns false at once. In a cluster it has
/// sharded channels of one master, whose first decides which.
class RawSubscriber {
 public:
  struct Message {
    std::string pattern;  ///< empty for a plain subscription
    std::string channel;
    std::string payload;

    friend bool operator==(const Message&, const Message&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Message& message);
  };

  explicit RawSubscriber(const RedisServer& server);
  explicit RawSubscriber(const RawRedisOptions& options);
  RawSubscriber(const RawSubscriber&) = delete;
  RawSubscriber& operator=(const RawSubscriber&) = delete;
  ~RawSubscriber();

  /// Return when the server has confirmed; throw std::runtime_error when it does not in time.
  void subscribe(std::string_view channel);
  void psubscribe(std::string_view pattern);
  void unsubscribe(std::string_view channel);

  [[nodiscard]] std::vector<Message> messages() const;
  /// How many, with all that were published before this call; something must be subscribed to.
  [[nodiscard]] std::size_t count() const;
  /// Forgets the messages, with all that were published before this call.
  void clear();
  /// True as soon as at least `n` messages are collected; false after `deadline` (scaled).
  [[nodiscard]] bool waitFor(std::size_t n, std::chrono::milliseconds deadline) const;
  /// Empty while the connection works.
  [[nodiscard]] std::string error() const;

 private:
  struct State;
  void start(const RawRedisOptions& options);
  void request(std::string_view verb, std::string_view name) const;
  void request(std::string_view verb, std::string_view name, std::string_view answer) const;
  void catchUp() const;
  void collect();

  std::unique_ptr<State> state_;
  std::optional<RawRedisOptions> cluster_;
  pid_t owner_;
};

}  // namespace rlock::test
