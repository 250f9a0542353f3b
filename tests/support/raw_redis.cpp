// SPDX-License-Identifier: Apache-2.0
#include "support/raw_redis.hpp"

#include "support/eventually.hpp"
#include "support/redis_server.hpp"
#include "support/test_servers.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <ostream>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rlock::test {

namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error("raw redis: " + what + ": " + std::strerror(error));
}

const char* kindName(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::nil:
      return "nil";
    case Value::Kind::integer:
      return "integer";
    case Value::Kind::string:
      return "string";
    case Value::Kind::status:
      return "status";
    case Value::Kind::error:
      return "error";
    case Value::Kind::array:
      return "array";
  }
  return "?";
}

std::string printable(std::string_view text) {
  std::string shown = "\"";
  for (const char character : text) {
    if (character < ' ' || character > '~' || character == '"' || character == '\\') {
      char hex[5];
      std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned char>(character));
      shown += hex;
    } else {
      shown += character;
    }
  }
  return shown + "\"";
}

std::int64_t toNumber(std::string_view text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Value fromReply(const redisReply& reply) {
  const auto text = [&] { return std::string(reply.str, static_cast<std::size_t>(reply.len)); };
  switch (reply.type) {
    case REDIS_REPLY_INTEGER:
      return Value::makeInteger(reply.integer);
    case REDIS_REPLY_STRING:
      return Value::makeText(Value::Kind::string, text());
    case REDIS_REPLY_STATUS:
      return Value::makeText(Value::Kind::status, text());
    case REDIS_REPLY_ERROR:
      return Value::makeText(Value::Kind::error, text());
    case REDIS_REPLY_ARRAY: {
      std::vector<Value> elements;
      for (std::size_t i = 0; i < reply.elements; ++i) {
        elements.push_back(fromReply(*reply.element[i]));
      }
      return Value::makeArray(std::move(elements));
    }
    default:
      return {};
  }
}

RawRedisOptions optionsFor(std::uint16_t port) {
  RawRedisOptions options;
  options.port = port;
  return options;
}

std::string lowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

/// The fields of an answer to INFO.
std::map<std::string, std::string> fieldsOf(const std::string& info) {
  std::map<std::string, std::string> fields;
  std::istringstream text(info);
  std::string line;
  while (std::getline(text, line)) {
    if (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && line.front() != '#') {
      fields.emplace(line.substr(0, colon), line.substr(colon + 1));
    }
  }
  return fields;
}

}  // namespace

namespace detail {

/// A socket of our own with hiredis as codec: hiredis 0.14 writes without MSG_NOSIGNAL and has no
/// deadline for a whole reply. send() may run while another thread receives.
class RespConnection {
 public:
  using Args = std::vector<std::string>;

  explicit RespConnection(const RawRedisOptions& options) : timeout_(options.timeout) {
    open(options);
    handshake(options);
  }
  RespConnection(const RespConnection&) = delete;
  RespConnection& operator=(const RespConnection&) = delete;

  [[nodiscard]] int fd() const { return socket_.fd; }
  [[nodiscard]] std::uint64_t bytesReceived() const { return bytesReceived_; }

  void send(const Args& args) {
    std::string bytes = "*" + std::to_string(args.size()) + "\r\n";
    for (const std::string& arg : args) {
      bytes += "$" + std::to_string(arg.size()) + "\r\n" + arg + "\r\n";
    }
    sendBytes(bytes);
  }

  void sendBytes(std::string_view bytes) {
    const Deadline deadline(timeout_);
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {
        waitFor(POLLOUT, deadline, "sending");
      } else if (errno != EINTR) {
        fail("sending", errno);
      }
    }
  }

  Value receive() {
    if (auto value = tryReceive(timeout_)) {
      return *std::move(value);
    }
    fail("receiving", ETIMEDOUT);
  }

  std::optional<Value> tryReceive(std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    while (true) {
      if (auto value = parsed()) {
        return value;
      }
      if (!readAvailable() && !ready(POLLIN, deadline)) {
        return std::nullopt;
      }
    }
  }

  /// A complete reply from what has been read, if there is one.
  std::optional<Value> parsed() {
    void* raw = nullptr;
    if (redisReaderGetReply(reader_.get(), &raw) != REDIS_OK) {
      throw std::runtime_error(std::string("raw redis: protocol error: ") + reader_->errstr);
    }
    if (raw == nullptr) {
      return std::nullopt;
    }
    Value value = fromReply(*static_cast<redisReply*>(raw));
    freeReplyObject(raw);
    return value;
  }

  /// False when nothing can be read now.
  bool readAvailable() {
    char chunk[16 * 1024];
    const ssize_t n = ::recv(fd(), chunk, sizeof chunk, 0);
    if (n > 0) {
      redisReaderFeed(reader_.get(), chunk, static_cast<std::size_t>(n));
      bytesReceived_ += static_cast<std::uint64_t>(n);
      return true;
    }
    if (n == 0) {
      throw std::runtime_error("raw redis: the server has closed the connection");
    }
    if (errno != EAGAIN && errno != EINTR) {
      fail("receiving", errno);
    }
    return false;
  }

 private:
  void open(const RawRedisOptions& options) {
    sockaddr_un unixAddress{};
    sockaddr_in tcpAddress{};
    const sockaddr* address = nullptr;
    socklen_t length = 0;
    std::string name;
    if (!options.unixPath.empty()) {
      name = options.unixPath;
      unixAddress.sun_family = AF_UNIX;
      if (name.size() >= sizeof unixAddress.sun_path) {
        fail(name, ENAMETOOLONG);
      }
      std::copy(name.begin(), name.end(), unixAddress.sun_path);
      address = static_cast<const sockaddr*>(static_cast<const void*>(&unixAddress));
      length = sizeof unixAddress;
    } else {
      name = options.host + ":" + std::to_string(options.port);
      tcpAddress.sin_family = AF_INET;
      tcpAddress.sin_port = htons(options.port);
      if (::inet_pton(AF_INET, options.host.c_str(), &tcpAddress.sin_addr) != 1) {
        fail(name, EINVAL);
      }
      address = static_cast<const sockaddr*>(static_cast<const void*>(&tcpAddress));
      length = sizeof tcpAddress;
    }
    socket_.fd = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd() < 0) {
      fail("socket", errno);
    }
    if (::connect(fd(), address, length) != 0) {
      if (errno != EINPROGRESS) {
        fail("connecting to " + name, errno);
      }
      waitFor(POLLOUT, Deadline(timeout_), "connecting to " + name);
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) {
        fail("connecting to " + name, error);
      }
    }
    if (options.unixPath.empty()) {
      const int on = 1;
      ::setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
  }

  void handshake(const RawRedisOptions& options) {
    if (!options.password.empty()) {
      Args args{"AUTH"};
      if (!options.username.empty()) {
        args.push_back(options.username);
      }
      args.push_back(options.password);
      require(args);
    }
    if (options.database != 0) {
      require({"SELECT", std::to_string(options.database)});
    }
    if (!options.clientName.empty()) {
      require({"CLIENT", "SETNAME", options.clientName});
    }
  }

  void require(const Args& args) {
    send(args);
    const Value reply = receive();
    if (reply.isError()) {
      throw std::runtime_error("raw redis: " + args.front() + ": " + reply.error());
    }
  }

  void waitFor(short events, const Deadline& deadline, const std::string& what) {
    if (!ready(events, deadline)) {
      fail(what, ETIMEDOUT);
    }
  }

  bool ready(short events, const Deadline& deadline) {
    pollfd entry{fd(), events, 0};
    int count = 0;
    while (count <= 0) {
      const auto left = deadline.remaining();
      if (left.count() == 0) {
        return false;
      }
      count = ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
    }
    return true;
  }

  struct Socket {
    Socket() = default;
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() {
      if (fd >= 0) {
        ::close(fd);
      }
    }
    int fd = -1;
  };

  std::chrono::milliseconds timeout_;
  Socket socket_;
  std::uint64_t bytesReceived_ = 0;
  std::unique_ptr<redisReader, decltype(&redisReaderFree)> reader_{redisReaderCreate(),
                                                                   &redisReaderFree};
};

/// Connections to the masters of a cluster.
class RawCluster {
 public:
  explicit RawCluster(RawRedisOptions options) : options_(std::move(options)) {}

  RespConnection& at(std::uint16_t port) {
    auto& connection = connections_[port];
    if (!connection) {
      RawRedisOptions options = options_;
      options.port = port;
      connection = std::make_unique<RespConnection>(options);
    }
    return *connection;
  }
  [[nodiscard]] const std::vector<std::uint16_t>& ports() const { return options_.clusterPorts; }
  [[nodiscard]] std::uint16_t home() const { return options_.port; }

  /// The port that a reply sends to; 0: none.
  static std::uint16_t movedTo(const Value& reply) {
    if (!reply.isError() || reply.error().rfind("MOVED ", 0) != 0) {
      return 0;
    }
    return static_cast<std::uint16_t>(
        toNumber(std::string_view(reply.error()).substr(reply.error().rfind(':') + 1)));
  }
  /// Whether a command is about servers and not about a key.
  static bool aboutServers(const std::vector<std::string>& args) {
    const std::string name = lowerCase(args.front());
    const std::string word = args.size() > 1 ? lowerCase(args[1]) : "";
    return name == "config" || name == "acl" || name == "script" || name == "flushall" ||
           (name == "client" && (word == "pause" || word == "unpause" || word == "kill"));
  }

 private:
  const RawRedisOptions options_;
  std::map<std::uint16_t, std::unique_ptr<RespConnection>> connections_;
};

}  // namespace detail

Value Value::makeInteger(std::int64_t number) {
  Value value;
  value.kind_ = Kind::integer;
  value.integer_ = number;
  return value;
}

Value Value::makeText(Kind kind, std::string text) {
  Value value;
  value.kind_ = kind;
  value.text_ = std::move(text);
  return value;
}

Value Value::makeArray(std::vector<Value> elements) {
  Value value;
  value.kind_ = Kind::array;
  value.elements_ = std::move(elements);
  return value;
}

std::int64_t Value::integer() const {
  if (kind_ != Kind::integer) {
    throw std::runtime_error("expected an integer reply, got " + describe());
  }
  return integer_;
}

const std::string& Value::string() const {
  if (kind_ != Kind::string && kind_ != Kind::status) {
    throw std::runtime_error("expected a string reply, got " + describe());
  }
  return text_;
}

const std::string& Value::error() const {
  if (kind_ != Kind::error) {
    throw std::runtime_error("expected an error reply, got " + describe());
  }
  return text_;
}

const std::vector<Value>& Value::array() const {
  if (kind_ != Kind::array) {
    throw std::runtime_error("expected an array reply, got " + describe());
  }
  return elements_;
}

std::vector<std::string> Value::strings() const {
  std::vector<std::string> result;
  for (const Value& element : array()) {
    result.push_back(element.string());
  }
  return result;
}

std::string Value::describe() const {
  switch (kind_) {
    case Kind::nil:
      return "(nil)";
    case Kind::integer:
      return "(integer) " + std::to_string(integer_);
    case Kind::array: {
      std::string text = "(array) [";
      for (std::size_t i = 0; i < elements_.size(); ++i) {
        text += (i == 0 ? "" : ", ") + elements_[i].describe();
      }
      return text + "]";
    }
    case Kind::string:
      return printable(text_);
    case Kind::status:
    case Kind::error:
      break;
  }
  return std::string("(") + kindName(kind_) + ") " + printable(text_);
}

std::ostream& operator<<(std::ostream& out, const Value& value) {
  return out << value.describe();
}

RawRedisOptions rawOptionsFor(const RedisServer& server) {
  RawRedisOptions options;
  options.port = server.port();
  options.unixPath = options.port == 0 ? server.socketPath() : "";
  options.password = server.options().password;
  return options;
}

RawRedis::RawRedis(const RedisServer& server) : RawRedis(rawOptionsFor(server)) {}
RawRedis::RawRedis(std::uint16_t port) : RawRedis(optionsFor(port)) {}
RawRedis::RawRedis(const RawRedisOptions& options)
    : connection_(std::make_unique<detail::RespConnection>(options)),
      cluster_(options.clusterPorts.empty() ? nullptr
                                            : std::make_unique<detail::RawCluster>(options)) {}
RawRedis::RawRedis(RawRedis&&) noexcept = default;
RawRedis& RawRedis::operator=(RawRedis&&) noexcept = default;
RawRedis::~RawRedis() = default;

void RawRedis::send(const Args& args) {
  connection_->send(args);
}
Value RawRedis::receive() {
  return connection_->receive();
}
std::optional<Value> RawRedis::tryReceive(std::chrono::milliseconds timeout) {
  return connection_->tryReceive(timeout);
}
std::uint64_t RawRedis::bytesReceived() const {
  return connection_->bytesReceived();
}
void RawRedis::sendRaw(std::string_view bytes) {
  connection_->sendBytes(bytes);
}

Value RawRedis::exchange(const Args& args) {
  send(args);
  return receive();
}

std::vector<Value> RawRedis::fromAll(const Args& args) {
  if (!cluster_) {
    return {exchange(args)};
  }
  std::vector<Value> replies;
  for (const std::uint16_t port : cluster_->ports()) {
    cluster_->at(port).send(args);
    replies.push_back(cluster_->at(port).receive());
  }
  return replies;
}

Value RawRedis::command(const Args& args) {
  if (!cluster_) {
    return exchange(args);
  }
  if (detail::RawCluster::aboutServers(args)) {
    const std::vector<Value> replies = fromAll(args);
    for (const Value& reply : replies) {
      if (reply.isError()) {
        return reply;
      }
    }
    if (replies.front().kind() != Value::Kind::integer) {
      return replies.front();
    }
    std::int64_t sum = 0;
    for (const Value& reply : replies) {
      sum += reply.integer();
    }
    return Value::makeInteger(sum);
  }
  Value reply = exchange(args);
  if (const std::uint16_t port = detail::RawCluster::movedTo(reply); port != 0) {
    cluster_->at(port).send(args);
    return cluster_->at(port).receive();
  }
  return reply;
}

std::uint16_t RawRedis::portOf(std::string_view key) {
  const Value reply = exchange({"EXISTS", std::string(key)});
  const std::uint16_t port = detail::RawCluster::movedTo(reply);
  return port != 0 ? port : cluster_ ? cluster_->home() : std::uint16_t{0};
}

Value RawRedis::command(std::initializer_list<std::string_view> args) {
  return command(Args(args.begin(), args.end()));
}

Value RawRedis::run(const Args& args) {
  Value reply = command(args);
  if (reply.isError()) {
    throw std::runtime_error(args.front() + ": " + reply.error());
  }
  return reply;
}

Value RawRedis::run(std::initializer_list<std::string_view> args) {
  return run(Args(args.begin(), args.end()));
}

bool RawRedis::ping() {
  return run({"PING"}).string() == "PONG";
}
std::int64_t RawRedis::clientId() {
  return run({"CLIENT", "ID"}).integer();
}

bool RawRedis::exists(std::string_view key) {
  return run({"EXISTS", key}).integer() != 0;
}
std::string RawRedis::type(std::string_view key) {
  return run({"TYPE", key}).string();
}

std::optional<std::string> RawRedis::get(std::string_view key) {
  const Value reply = run({"GET", key});
  return reply.isNil() ? std::nullopt : std::optional(reply.string());
}

void RawRedis::set(std::string_view key,
                   std::string_view value,
                   std::optional<std::chrono::milliseconds> ttl) {
  if (ttl) {
    run({"SET", key, value, "PX", std::to_string(ttl->count())});
  } else {
    run({"SET", key, value});
  }
}

std::int64_t RawRedis::del(std::string_view key) {
  return run({"DEL", key}).integer();
}
std::int64_t RawRedis::pttl(std::string_view key) {
  return run({"PTTL", key}).integer();
}

std::map<std::string, std::string> RawRedis::hgetall(std::string_view key) {
  const std::vector<std::string> flat = run({"HGETALL", key}).strings();
  std::map<std::string, std::string> result;
  for (std::size_t i = 0; i + 1 < flat.size(); i += 2) {
    result.emplace(flat[i], flat[i + 1]);
  }
  return result;
}

std::optional<std::string> RawRedis::hget(std::string_view key, std::string_view field) {
  const Value reply = run({"HGET", key, field});
  return reply.isNil() ? std::nullopt : std::optional(reply.string());
}

std::set<std::string> RawRedis::keys(std::string_view pattern) {
  std::set<std::string> found;
  const auto scan = [&](detail::RespConnection& connection) {
    std::string cursor = "0";
    do {
      connection.send({"SCAN", cursor, "MATCH", std::string(pattern), "COUNT", "1000"});
      const Value reply = connection.receive();
      cursor = reply.array().at(0).string();
      for (std::string& key : reply.array().at(1).strings()) {
        found.insert(std::move(key));
      }
    } while (cursor != "0");
  };
  if (!cluster_) {
    scan(*connection_);
    return found;
  }
  for (const std::uint16_t port : cluster_->ports()) {
    scan(cluster_->at(port));
  }
  return found;
}

std::int64_t RawRedis::dbsize() {
  std::int64_t sum = 0;
  for (const Value& reply : fromAll({"DBSIZE"})) {
    sum += reply.integer();
  }
  return sum;
}
void RawRedis::flushAll() {
  run({"FLUSHALL"});
}

Value RawRedis::eval(std::string_view script, const Args& keys, const Args& args) {
  Args all{"EVAL", std::string(script), std::to_string(keys.size())};
  all.insert(all.end(), keys.begin(), keys.end());
  all.insert(all.end(), args.begin(), args.end());
  return command(all);
}

std::string RawRedis::publishing() const {
  return cluster_ ? "SPUBLISH" : "PUBLISH";
}

std::int64_t RawRedis::publish(std::string_view channel, std::string_view payload) {
  return run({publishing(), channel, payload}).integer();
}

std::set<std::string> RawRedis::pubsubChannels(std::string_view pattern) {
  std::set<std::string> names;
  for (const char* const kind : {"CHANNELS", "SHARDCHANNELS"}) {
    if (cluster_ || kind == std::string_view("CHANNELS")) {
      for (const Value& reply : fromAll({"PUBSUB", kind, std::string(pattern)})) {
        for (std::string& name : reply.strings()) {
          names.insert(std::move(name));
        }
      }
    }
  }
  return names;
}

std::int64_t RawRedis::numsub(std::string_view channel) {
  std::int64_t sum = 0;
  for (const char* const kind : {"NUMSUB", "SHARDNUMSUB"}) {
    if (cluster_ || kind == std::string_view("NUMSUB")) {
      for (const Value& reply : fromAll({"PUBSUB", kind, std::string(channel)})) {
        sum += reply.array().at(1).integer();
      }
    }
  }
  return sum;
}

std::int64_t RawRedis::numpat() {
  return run({"PUBSUB", "NUMPAT"}).integer();
}

std::vector<std::map<std::string, std::string>> RawRedis::clientList() {
  std::vector<std::map<std::string, std::string>> clients;
  std::string all;
  for (const Value& reply : fromAll({"CLIENT", "LIST"})) {
    all += reply.string();
  }
  std::istringstream text(all);
  std::string line;
  while (std::getline(text, line)) {
    std::map<std::string, std::string> client;
    std::istringstream words(line);
    std::string word;
    while (words >> word) {
      const std::size_t equals = word.find('=');
      if (equals != std::string::npos) {
        client.emplace(word.substr(0, equals), word.substr(equals + 1));
      }
    }
    if (!client.empty()) {
      clients.push_back(std::move(client));
    }
  }
  return clients;
}

std::map<std::string, std::string> RawRedis::infoSection(std::string_view section) {
  return fieldsOf(run({"INFO", section}).string());
}

std::map<std::string, std::int64_t> RawRedis::commandStats() {
  constexpr std::string_view kPrefix = "cmdstat_";
  constexpr std::string_view kCalls = "calls=";
  std::map<std::string, std::int64_t> calls;
  for (const Value& reply : fromAll({"INFO", "commandstats"})) {
    for (const auto& [name, fields] : fieldsOf(reply.string())) {
      if (name.rfind(kPrefix, 0) == 0 && fields.rfind(kCalls, 0) == 0) {
        const std::int64_t number = toNumber(std::string_view(fields).substr(kCalls.size()));
        if (number > 0) {
          calls[name.substr(kPrefix.size())] += number;
        }
      }
    }
  }
  return calls;
}
std::int64_t RawRedis::commandCalls(std::string_view name) {
  const auto calls = commandStats();
  const auto found = calls.find(lowerCase(name));
  return found == calls.end() ? 0 : found->second;
}

void RawRedis::denyClient(std::string_view user,
                          std::initializer_list<std::string_view> subcommands) {
  Args args{"ACL", "SETUSER", std::string(user), "-client"};
  for (const std::string_view each : {"id", "info", "kill", "list", "setname"}) {
    if (std::find(subcommands.begin(), subcommands.end(), each) == subcommands.end()) {
      args.push_back("+client|" + std::string(each));
    }
  }
  run(args);
}

void RawRedis::resetStats() {
  run({"CONFIG", "RESETSTAT"});
}

std::int64_t RawRedis::clientKillType(std::string_view type) {
  return run({"CLIENT", "KILL", "TYPE", type, "SKIPME", "yes"}).integer();
}

std::int64_t RawRedis::clientKillId(std::int64_t id) {
  return run({"CLIENT", "KILL", "ID", std::to_string(id)}).integer();
}

void RawRedis::clientPause(std::chrono::milliseconds duration, std::string_view mode) {
  run({"CLIENT", "PAUSE", std::to_string(duration.count()), mode});
}

void RawRedis::clientUnpause() {
  run({"CLIENT", "UNPAUSE"});
}

std::optional<std::string> RawRedis::info(std::string_view field) {
  const auto fields = infoSection("everything");
  const auto found = fields.find(std::string(field));
  return found == fields.end() ? std::nullopt : std::optional(found->second);
}

std::string RawRedis::configGet(std::string_view name) {
  return run({"CONFIG", "GET", name}).array().at(1).string();
}

void RawRedis::configSet(std::string_view name, std::string_view value) {
  run({"CONFIG", "SET", name, value});
}

std::int64_t RawRedis::serverTimeUs() {
  const std::vector<std::string> parts = run({"TIME"}).strings();
  return toNumber(parts.at(0)) * 1'000'000 + toNumber(parts.at(1));
}

std::ostream& operator<<(std::ostream& out, const RawSubscriber::Message& message) {
  if (!message.pattern.empty()) {
    out << message.pattern << " -> ";
  }
  return out << message.channel << ": " << printable(message.payload);
}

struct RawSubscriber::State {
  explicit State(const RawRedisOptions& options)
      : timeout(options.timeout),
        connection(options),
        wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { ::close(wake); }

  void take(const Value& reply) {
    const std::vector<Value>& parts = reply.array();
    const std::string& kind = parts.at(0).string();
    const std::lock_guard guard(mutex);
    if (kind == "message" || kind == "smessage") {
      messages.push_back({"", parts.at(1).string(), parts.at(2).string()});
    } else if (kind == "pmessage" && parts.at(2).string() == "__sentinel__:hello") {
      // Sentinels talk to one another through the master.
    } else if (kind == "pmessage") {
      messages.push_back({parts.at(1).string(), parts.at(2).string(), parts.at(3).string()});
    } else {
      ++confirmed[{kind, parts.at(1).string()}];
    }
    changed.notify_all();
  }

  const std::chrono::milliseconds timeout;
  detail::RespConnection connection;
  const int wake;
  std::atomic<bool> stop = false;
  std::mutex sending;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<Message> messages;
  std::map<std::pair<std::string, std::string>, int> confirmed;
  std::string error;
  std::thread thread;
};

RawSubscriber::RawSubscriber(const RedisServer& server) : RawSubscriber(rawOptionsFor(server)) {}

RawSubscriber::RawSubscriber(const RawRedisOptions& options) : owner_(::getpid()) {
  if (options.clusterPorts.empty()) {
    start(options);
  } else {
    cluster_ = options;
  }
}

void RawSubscriber::start(const RawRedisOptions& options) {
  state_ = std::make_unique<State>(options);
  state_->thread = std::thread([this] { collect(); });
}

RawSubscriber::~RawSubscriber() {
  if (owner_ != ::getpid()) {
    // Its thread does not exist here and cannot be joined.
    (void)state_.release();
    return;
  }
  if (!state_) {
    return;
  }
  state_->stop = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(state_->wake, &one, sizeof one);
  state_->thread.join();
}

void RawSubscriber::collect() {
  State& state = *state_;
  try {
    while (!state.stop) {
      while (auto reply = state.connection.parsed()) {
        state.take(*reply);
      }
      if (!state.connection.readAvailable()) {
        pollfd entries[2] = {{state.connection.fd(), POLLIN, 0}, {state.wake, POLLIN, 0}};
        ::poll(entries, 2, -1);
      }
    }
  } catch (const std::exception& problem) {
    const std::lock_guard guard(state.mutex);
    state.error = problem.what();
    state.changed.notify_all();
  }
}

void RawSubscriber::request(std::string_view verb, std::string_view name) const {
  request(verb, name, lowerCase(verb));
}

void RawSubscriber::request(std::string_view verb,
                            std::string_view name,
                            std::string_view answer) const {
  State& state = *state_;
  const std::lock_guard sending(state.sending);
  const std::pair<std::string, std::string> key{std::string(answer), std::string(name)};
  int before = 0;
  {
    const std::lock_guard guard(state.mutex);
    before = state.confirmed[key];
  }
  state.connection.send({std::string(verb), std::string(name)});
  std::unique_lock guard(state.mutex);
  state.changed.wait_until(guard, Deadline(state.timeout).at(), [&] {
    return !state.error.empty() || state.confirmed[key] > before;
  });
  if (state.confirmed[key] <= before) {
    throw std::runtime_error(
        std::string(verb) + " not confirmed: " + (state.error.empty() ? "timed out" : state.error));
  }
}

void RawSubscriber::subscribe(std::string_view channel) {
  if (!cluster_) {
    request("SUBSCRIBE", channel);
    return;
  }
  if (!state_) {
    RawRedisOptions options = *cluster_;
    options.port = RawRedis(*cluster_).portOf(channel);
    start(options);
  }
  request("SSUBSCRIBE", channel);
}
void RawSubscriber::psubscribe(std::string_view pattern) {
  if (cluster_) {
    endForTopology("hears all channels by a pattern, which is for classic ones");
  }
  request("PSUBSCRIBE", pattern);
}
void RawSubscriber::unsubscribe(std::string_view channel) {
  request(cluster_ ? "SUNSUBSCRIBE" : "UNSUBSCRIBE", channel);
}

/// The answer comes behind every message that the server had sent.
void RawSubscriber::catchUp() const {
  request("PING", "caught up", "pong");
}

std::vector<RawSubscriber::Message> RawSubscriber::messages() const {
  const std::lock_guard guard(state_->mutex);
  return state_->messages;
}

std::size_t RawSubscriber::count() const {
  catchUp();
  const std::lock_guard guard(state_->mutex);
  return state_->messages.size();
}

void RawSubscriber::clear() {
  catchUp();
  const std::lock_guard guard(state_->mutex);
  state_->messages.clear();
}

bool RawSubscriber::waitFor(std::size_t n, std::chrono::milliseconds deadline) const {
  std::unique_lock guard(state_->mutex);
  state_->changed.wait_until(guard, Deadline(deadline).at(), [&] {
    return state_->messages.size() >= n || !state_->error.empty();
  });
  return state_->messages.size() >= n;
}

std::string RawSubscriber::error() const {
  const std::lock_guard guard(state_->mutex);
  return state_->error;
}

}  // namespace rlock::test
