// SPDX-License-Identifier: Apache-2.0
#include "net/handshake.hpp"

#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/command_format.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

namespace rlock::detail::net {

namespace {

/// Servers repeat a rejected command's arguments; those are cut off, since they may be a password
/// or its beginning.
std::string_view withoutArguments(std::string_view text) noexcept {
  return text.substr(0, text.find(", with args beginning with"));
}

}  // namespace

std::string quoteServer(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  std::string result(withoutArguments(text).substr(0, kLongest));
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return result;
}

namespace {

std::string_view commandName(Handshake::Step step) noexcept {
  switch (step) {
    case Handshake::Step::auth:
      return "AUTH";
    case Handshake::Step::select:
      return "SELECT";
    case Handshake::Step::setName:
      return "CLIENT SETNAME";
    case Handshake::Step::hello:
      return "HELLO";
    case Handshake::Step::role:
      return "ROLE";
    case Handshake::Step::masterAddress:
    case Handshake::Step::otherSentinels:
      return "SENTINEL";
    case Handshake::Step::clientInfo:
      return "CLIENT INFO";
    case Handshake::Step::clientId:
      return "CLIENT ID";
    case Handshake::Step::serverInfo:
      return "INFO";
    case Handshake::Step::probeKill:
      return "CLIENT KILL";
    case Handshake::Step::commands:
      return "COMMAND INFO";
    case Handshake::Step::ping:
      return "PING";
  }
  return "a command";
}

/// Error replies that end the handshake, whichever command they answer.
std::optional<ConnectFailure> classifyAnywhere(std::string_view text) {
  const std::string_view code = firstWord(text);
  if (code == "NOAUTH") {
    return ConnectFailure{
        Errc::authenticationFailed,
        "the server wants a password; write it before the host, as in redis://:password@host",
        quoteServer(text)};
  }
  if (code == "DENIED") {
    return ConnectFailure{
        Errc::denied, "the server accepts no connections from here", quoteServer(text)};
  }
  if (code == "LOADING" || code == "BUSY" || code == "MASTERDOWN" ||
      text.starts_with("ERR max number of clients")) {
    return ConnectFailure{Errc::connectionFailed, "the server is not ready", quoteServer(text)};
  }
  return std::nullopt;
}

/// Explains that the server is of another kind than the options say. Empty: it is of the right
/// kind, or does not say.
/// @param node  its address, as it was configured
std::optional<ConnectFailure> classifyMode(std::string_view mode,
                                           bool cluster,
                                           const std::string& node) {
  if (mode == "sentinel") {
    return ConnectFailure{Errc::invalidArgument,
                          "this is a Sentinel, which keeps no locks; write redis+sentinel://" +
                              node + "/NAME, with the name that it has for the master"};
  }
  if (mode == "cluster" && !cluster) {
    return ConnectFailure{Errc::invalidArgument,
                          "this is a node of a cluster, which has only some of the keys; write "
                          "redis+cluster://" +
                              node};
  }
  if (mode == "standalone" && cluster) {
    return ConnectFailure{Errc::invalidArgument,
                          "this is no node of a cluster; write redis:// before its address"};
  }
  return std::nullopt;
}

/// The first byte of a TLS record: an alert, or a part of its handshake.
bool looksLikeTls(const char* data, std::size_t size) noexcept {
  return size > 0 && (data[0] == '\x15' || data[0] == '\x16');
}

bool needsNoPassword(std::string_view text) noexcept {
  return text.find("without any password") != std::string_view::npos ||
         text.find("no password is set") != std::string_view::npos;
}

ConnectFailure classifySelect(std::string_view text, int database) {
  const std::string number = std::to_string(database);
  if (firstWord(text) == "NOPERM") {
    return {Errc::denied, "the user may not select database " + number, quoteServer(text)};
  }
  if (text.find("DB index") != std::string_view::npos ||
      text.find("cluster mode") != std::string_view::npos) {
    return {Errc::invalidArgument, "the server has no database " + number, quoteServer(text)};
  }
  return {Errc::serverError, "the server refused to select database " + number, quoteServer(text)};
}

template <class T>
T parseNumber(std::string_view text) noexcept {
  T number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end ? number : T{0};
}

/// The value of the field `name` in a text.
/// @param ends  the characters that end a field
/// @param mark  stands between a name and its value
std::string_view fieldOf(std::string_view text,
                         std::string_view ends,
                         std::string_view name,
                         char mark) noexcept {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find_first_of(ends, begin), text.size());
    const std::string_view field = text.substr(begin, end - begin);
    if (field.size() > name.size() && field.starts_with(name) && field[name.size()] == mark) {
      return field.substr(name.size() + 1);
    }
    begin = end + 1;
  }
  return {};
}

/// The value of `name=value` in a line of CLIENT LIST.
std::string_view clientField(std::string_view line, std::string_view name) noexcept {
  return fieldOf(line, " \r\n", name, '=');
}

/// The value of `name:value` in the lines of INFO.
std::string_view infoField(std::string_view lines, std::string_view name) noexcept {
  return fieldOf(lines, "\r\n", name, ':');
}

/// True for `ip:port`, which identifies one connection. The path of a Unix socket, which may hold
/// blanks and look like anything, is the same for all its connections.
bool isPeerAddress(std::string_view text) noexcept {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || parseNumber<std::uint16_t>(text.substr(colon + 1)) == 0) {
    return false;
  }
  const std::string_view host = text.substr(0, colon);
  if (host.find_first_not_of("0123456789.") == std::string_view::npos) {
    return std::count(host.begin(), host.end(), '.') == 3;
  }
  const std::string_view number = host.substr(0, host.find('%'));
  return number.find_first_not_of("0123456789abcdefABCDEF:.[]") == std::string_view::npos &&
         std::count(number.begin(), number.end(), ':') >= 2;
}

/// The commands whose presence the server is asked for, and where the answer goes.
struct AskedCommand {
  std::string_view name;
  std::optional<bool> Capabilities::*found;
};
constexpr std::array kAskedCommands{
    AskedCommand{"evalsha", &Capabilities::scripts},
    AskedCommand{"eval", &Capabilities::scripts},
    AskedCommand{"script", &Capabilities::scriptLoad},
    AskedCommand{"wait", &Capabilities::wait},
    AskedCommand{"waitaof", &Capabilities::waitAof},
    AskedCommand{"spublish", &Capabilities::shardedPubSub},
    AskedCommand{"ssubscribe", &Capabilities::shardedPubSub},
};

}  // namespace

ConnectFailure classifyAuth(std::string_view text, const Credentials& credentials) {
  const std::string& password = credentials.password;
  // Of a password that is cut, or has control characters, the quotation would have a piece.
  const bool repeated =
      !password.empty() && withoutArguments(text).find(password) != std::string_view::npos;
  std::string message = repeated ? std::string() : quoteServer(text);
  const char* why = "the server refused the user name or password";
  if (needsNoPassword(text)) {
    why = "a password was given, but the server has none for this user; leave it out";
  } else if (password.empty()) {
    why =
        "the server refused the user name, which was given without a password; a password "
        "without a user name has a ':' before it, as in redis://:password@host";
  }
  return {Errc::authenticationFailed, why, std::move(message)};
}

Credentials currentCredentials(const LinkSettings& settings) {
  if (!settings.credentials) {
    return {settings.username, settings.password};
  }
  const std::string function =
      settings.peer == Peer::sentinel ? "Options::sentinelCredentials" : "Options::credentials";
  Credentials credentials;
  try {
    credentials = settings.credentials();
  } catch (...) {
    // Its text may contain a secret.
    throw Error(Errc::connectionFailed, function + " threw an exception");
  }
  if (credentials.username.find_first_of(std::string_view(" \0", 2)) != std::string::npos ||
      credentials.password.find('\0') != std::string::npos) {
    throw Error(Errc::authenticationFailed,
                function +
                    " gave a user name with a space or NUL byte, or a password with a NUL byte, "
                    "which no server allows");
  }
  return credentials;
}

Handshake::Handshake(std::shared_ptr<const LinkSettings> settings,
                     bool probeKill,
                     std::string node,
                     std::string address)
    : settings_(std::move(settings)), credentials_(currentCredentials(*settings_)) {
  session_.node = std::move(node);
  session_.address = std::move(address);

  if (!credentials_.username.empty()) {
    append(Step::auth, {"AUTH", credentials_.username, credentials_.password});
  } else if (!credentials_.password.empty()) {
    append(Step::auth, {"AUTH", credentials_.password});
  }
  // Says the version, the mode and the role; the protocol stays the one a new connection has. It
  // comes before the commands that a server of another kind refuses, so that the error says which
  // kind it is.
  append(Step::hello, {"HELLO", "2"});
  if (settings_->peer == Peer::sentinel) {
    askSentinel();
    return;
  }
  if (settings_->database != 0) {
    append(Step::select, {"SELECT", std::to_string(settings_->database)});
  }
  if (!settings_->clientName.empty()) {
    append(Step::setName, {"CLIENT", "SETNAME", settings_->clientName});
  }
  append(Step::clientInfo, {"CLIENT", "INFO"});
  if (probeKill) {
    append(Step::serverInfo, {"INFO", "server"});
    // Matches nobody: it only shows whether the command is allowed.
    const std::string nobody = std::to_string(std::numeric_limits<std::int64_t>::max());
    append(Step::probeKill,
           {"CLIENT", "KILL", "ID", nobody, "ADDR", "0.0.0.0:0", "TYPE", "normal"});
    steps_.push_back(Step::commands);
    std::vector<std::string_view> words{"COMMAND", "INFO"};
    for (const AskedCommand& asked : kAskedCommands) {
      words.push_back(asked.name);
    }
    appendCommand(out_, words);
  }
  append(Step::ping, {"PING"});
}

void Handshake::askSentinel() {
  sentinel_ = std::make_shared<SentinelAnswer>();
  if (!settings_->clientName.empty()) {
    append(Step::setName, {"CLIENT", "SETNAME", settings_->clientName});
  }
  append(Step::masterAddress, {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", settings_->sentinelMaster});
  append(Step::otherSentinels, {"SENTINEL", "SENTINELS", settings_->sentinelMaster});
  append(Step::ping, {"PING"});
}

void Handshake::append(Step step, std::initializer_list<std::string_view> argv) {
  steps_.push_back(step);
  appendCommand(out_, std::span(argv.begin(), argv.size()));
}

std::optional<ConnectFailure> Handshake::received(const char* data, std::size_t size) {
  if (stepIndex_ == 0 && reader_.betweenReplies() && looksLikeTls(data, size)) {
    return ConnectFailure{Errc::protocolError,
                          "this port expects TLS; write rediss:// before its address"};
  }
  reader_.feed(data, size);
  Reply reply;
  while (!done()) {
    const ReplyReader::Next next = reader_.next(reply);
    if (next == ReplyReader::Next::needMore) {
      return std::nullopt;
    }
    if (next == ReplyReader::Next::protocolError) {
      return ConnectFailure{Errc::protocolError,
                            std::string("not a Redis server: ") + reader_.errorText()};
    }
    const Step step = steps_[stepIndex_];
    if (auto failure = acceptReply(step, reply)) {
      return failure;
    }
    if (refusedPassword_ && step != Step::auth) {
      return refusedPassword_;
    }
    ++stepIndex_;
  }
  if (!reader_.betweenReplies()) {
    return ConnectFailure{Errc::protocolError,
                          "the server sent more replies than it was asked for"};
  }
  if (settings_->peer == Peer::sentinel) {
    return std::nullopt;
  }
  if (steps_.back() == Step::ping) {
    askWhatIsMissing();
  }
  return std::nullopt;
}

void Handshake::askWhatIsMissing() {
  if (withoutHello_ && std::find(steps_.begin(), steps_.end(), Step::serverInfo) == steps_.end()) {
    append(Step::serverInfo, {"INFO", "server"});
  }
  if (session_.role.empty() && (withoutHello_ || settings_->peer == Peer::master)) {
    append(Step::role, {"ROLE"});
  }
  if (session_.clientId == 0) {
    // Neither HELLO nor CLIENT INFO has told it: the server is older than Redis 6, or its rules
    // deny them.
    append(Step::clientId, {"CLIENT", "ID"});
  }
}

std::optional<ConnectFailure> Handshake::acceptReply(Step step, const Reply& reply) {
  if (reply.isError()) {
    return acceptError(step, reply);
  }
  switch (step) {
    case Step::auth:
    case Step::select:
    case Step::setName:
      if (!reply.is("OK")) {
        return ConnectFailure{
            Errc::protocolError,
            "not a Redis server: unexpected reply to " + std::string(commandName(step))};
      }
      break;
    case Step::hello:
      return acceptHello(reply);
    case Step::role:
      if (reply.isArray() && !reply.elements.empty()) {
        session_.role = reply.elements.front().text;
      }
      return judgeRole();
    case Step::masterAddress:
      sentinel_->master = masterOf(reply);
      if (!sentinel_->master && settings_->mustKnowMaster) {
        return ConnectFailure{Errc::connectionFailed, "it knows no master of that name"};
      }
      break;
    case Step::otherSentinels:
      readSentinels(reply, *sentinel_);
      break;
    case Step::clientInfo:
      acceptClientInfo(reply);
      break;
    case Step::clientId:
      if (reply.isInteger() && reply.integer > 0) {
        session_.clientId = static_cast<std::uint64_t>(reply.integer);
      }
      break;
    case Step::serverInfo:
      return acceptServerInfo(reply);
    case Step::probeKill:
      session_.canKill = reply.isInteger();
      session_.found.clientKill = session_.canKill;
      break;
    case Step::commands:
      acceptCommands(reply);
      break;
    case Step::ping:
      if (!reply.is("PONG")) {
        return ConnectFailure{Errc::protocolError, "not a Redis server: unexpected reply to PING"};
      }
      break;
  }
  return std::nullopt;
}

std::optional<ConnectFailure> Handshake::judgeRole() const {
  if (settings_->peer != Peer::master || session_.role == "master") {
    return std::nullopt;
  }
  if (session_.role.empty()) {
    return ConnectFailure{Errc::denied, "the server does not say whether it is the master"};
  }
  return ConnectFailure{Errc::readOnly, "it is a " + session_.role + ", not the master"};
}

std::optional<ConnectFailure> Handshake::refusedBySentinel(Step step, const Reply& reply) const {
  const std::string_view code = firstWord(reply.text);
  if (code == "NOAUTH") {
    return ConnectFailure{Errc::authenticationFailed,
                          settings_->credentials
                              ? "the Sentinel wants a password of its own, and "
                                "sentinelCredentials gave none"
                              : "the Sentinel wants a password of its own; give it as "
                                "sentinelPassword (URI parameter sentinel-password)",
                          quoteServer(reply.text)};
  }
  if (code == "WRONGPASS" || (step == Step::auth && !needsNoPassword(reply.text))) {
    return ConnectFailure{Errc::authenticationFailed,
                          settings_->credentials
                              ? "the Sentinel refused what sentinelCredentials gave"
                              : "the Sentinel refused sentinelUsername or sentinelPassword"};
  }
  if (step == Step::masterAddress && code == "NOPERM") {
    return ConnectFailure{
        Errc::denied, "the user may not ask the Sentinel for the master", quoteServer(reply.text)};
  }
  if (step == Step::masterAddress && code == "ERR") {
    return ConnectFailure{Errc::invalidArgument,
                          "this is no Sentinel; write the addresses of Sentinels, or redis:// "
                          "before that of a server",
                          quoteServer(reply.text)};
  }
  if (step == Step::masterAddress) {
    // Such as IDONTKNOW, of one that has not looked yet: it knows no more, but the name is right.
    return ConnectFailure{Errc::connectionFailed,
                          "the Sentinel does not say where the master is",
                          quoteServer(reply.text)};
  }
  return std::nullopt;
}

std::optional<ConnectFailure> Handshake::acceptError(Step step, const Reply& reply) {
  const bool sentinel = settings_->peer == Peer::sentinel;
  // A server that is full or protected says so in place of whatever reply comes first. A password
  // that is wanted has another name at a Sentinel.
  if (!sentinel || firstWord(reply.text) != "NOAUTH") {
    if (auto failure = classifyAnywhere(reply.text)) {
      return failure;
    }
  }
  if (sentinel) {
    if (auto failure = refusedBySentinel(step, reply)) {
      return failure;
    }
  }
  if (step == Step::auth) {
    ConnectFailure failure = classifyAuth(reply.text, credentials_);
    if (needsNoPassword(reply.text)) {
      // It may be a Sentinel, which seldom has one and says with the next reply what it is.
      refusedPassword_ = std::move(failure);
      return std::nullopt;
    }
    return failure;
  }
  if (step == Step::role && settings_->peer == Peer::master) {
    return judgeRole();
  }
  if (step == Step::hello) {
    withoutHello_ = true;
  }
  if (step == Step::select) {
    return classifySelect(reply.text, settings_->database);
  }
  if (step == Step::serverInfo) {
    session_.found.info = false;
  } else if (step == Step::probeKill) {
    session_.found.clientKill = false;
  }
  if (settings_->log && settings_->log->enabled(LogLevel::debug)) {
    settings_->log->write(LogLevel::debug,
                          session_.node + " does not allow " + std::string(commandName(step)) +
                              ": " + quoteServer(reply.text));
  }
  return std::nullopt;
}

std::optional<ConnectFailure> Handshake::acceptHello(const Reply& reply) {
  std::optional<ConnectFailure> failure;
  for (std::size_t i = 0; i + 1 < reply.elements.size(); i += 2) {
    const std::string& name = reply.elements[i].text;
    const Reply& value = reply.elements[i + 1];
    if (name == "version") {
      session_.serverVersion = value.text;
    } else if (name == "server") {
      session_.found.server = value.text;
    } else if (name == "role") {
      session_.role = value.text;
    } else if (name == "mode") {
      session_.found.mode = value.text;
      failure = settings_->peer == Peer::sentinel
                    ? std::nullopt
                    : classifyMode(value.text, settings_->cluster, session_.node);
    } else if (name == "id" && value.isInteger() && value.integer > 0) {
      session_.clientId = static_cast<std::uint64_t>(value.integer);
    }
  }
  return failure || session_.role.empty() ? failure : judgeRole();
}

std::optional<ConnectFailure> Handshake::acceptServerInfo(const Reply& reply) {
  session_.runId = infoField(reply.text, "run_id");
  Capabilities& found = session_.found;
  found.info = !reply.text.empty();
  if (const auto name = infoField(reply.text, "server_name"); !name.empty()) {
    found.server = name;
  }
  // Valkey gives the version of the Redis that it is like, and its own.
  if (const auto version = infoField(reply.text, "valkey_version"); !version.empty()) {
    session_.serverVersion = version;
  } else if (session_.serverVersion.empty()) {
    session_.serverVersion = infoField(reply.text, "redis_version");
  }
  auto mode = infoField(reply.text, "redis_mode");
  if (mode.empty()) {
    mode = infoField(reply.text, "server_mode");  // Valkey's name for it, from 8.1 on
  }
  if (found.mode.empty()) {
    found.mode = mode;
  }
  return classifyMode(mode, settings_->cluster, session_.node);
}

void Handshake::acceptCommands(const Reply& reply) {
  if (!reply.isArray() || reply.elements.size() != kAskedCommands.size()) {
    return;
  }
  for (std::size_t i = 0; i < kAskedCommands.size(); ++i) {
    const bool known = !reply.elements[i].isNil();
    std::optional<bool>& found = session_.found.*kAskedCommands[i].found;
    found = found.value_or(true) && known;
  }
}

void Handshake::acceptClientInfo(const Reply& reply) {
  if (const auto id = parseNumber<std::uint64_t>(clientField(reply.text, "id")); id != 0) {
    session_.clientId = id;
  }
  if (const auto address = clientField(reply.text, "addr");
      isPeerAddress(address) && !session_.address.starts_with("unix:")) {
    session_.clientAddress = address;
  }
}

}  // namespace rlock::detail::net
