// SPDX-License-Identifier: Apache-2.0
#include "net/connector.hpp"

#include "net/codec.hpp"
#include "net/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <utility>

namespace rlock::detail::net {

using SteadyClock = std::chrono::steady_clock;

namespace {

/// How long to wait for room in a Unix socket's queue of connections, which cannot be polled for.
constexpr std::chrono::milliseconds kQueueFullPause{10};

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  std::string text;

  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
};

std::string systemMessage(int error) {
  return std::generic_category().message(error);
}

Address makeAddress(const sockaddr* address, std::size_t size, std::uint16_t port) {
  Address result;
  std::memcpy(&result.storage, address, std::min(size, sizeof(result.storage)));
  result.size = static_cast<socklen_t>(size);
  std::array<char, INET6_ADDRSTRLEN> name{};
  if (address->sa_family == AF_INET6) {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
    v6->sin6_port = htons(port);
    uv_ip6_name(v6, name.data(), name.size());
  } else {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
    v4->sin_port = htons(port);
    uv_ip4_name(v4, name.data(), name.size());
  }
  Endpoint endpoint;
  endpoint.host = name.data();
  endpoint.port = port;
  result.text = toString(endpoint);
  return result;
}

std::optional<Address> literalAddress(const Endpoint& endpoint) {
  sockaddr_in v4{};
  if (uv_ip4_addr(endpoint.host.c_str(), endpoint.port, &v4) == 0) {
    return makeAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4), endpoint.port);
  }
  sockaddr_in6 v6{};
  if (uv_ip6_addr(endpoint.host.c_str(), endpoint.port, &v6) == 0) {
    return makeAddress(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6), endpoint.port);
  }
  return std::nullopt;
}

/// Empty when the path does not fit into an address.
std::optional<Address> unixAddress(const Endpoint& endpoint) {
  sockaddr_un address{};
  if (endpoint.path.size() >= sizeof(address.sun_path) ||
      endpoint.path.find('\0') != std::string::npos) {
    return std::nullopt;
  }
  address.sun_family = AF_UNIX;
  endpoint.path.copy(address.sun_path, endpoint.path.size());
  Address result;
  std::memcpy(&result.storage, &address, sizeof(address));
  result.size = sizeof(address);
  result.text = toString(endpoint);
  return result;
}

/// A socket that tries a local port again and again may get just that port for its own end and then
/// be connected to itself.
bool connectedToItself(int fd, int family) noexcept {
  if (family != AF_INET && family != AF_INET6) {
    return false;
  }
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t ownSize = sizeof(own);
  socklen_t peerSize = sizeof(peer);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &ownSize) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peerSize) == 0 &&
         ownSize == peerSize && std::memcmp(&own, &peer, ownSize) == 0;
}

/// One printable line of bounded length. Servers repeat a rejected command's arguments; those are
/// cut off, since they may be a password or its beginning.
std::string quoteServer(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  text = text.substr(0, text.find(", with args beginning with"));
  text = text.substr(0, kLongest);
  std::string result(text);
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return result;
}

std::string_view firstWord(std::string_view text) {
  return text.substr(0, text.find(' '));
}

struct Failure {
  Errc errc = Errc::connectionFailed;
  std::string reason;
  std::string serverMessage{};
};

enum class Step { auth, select, setName, hello, clientInfo, clientId, probeKill, ping };

std::string_view commandName(Step step) noexcept {
  switch (step) {
    case Step::auth:
      return "AUTH";
    case Step::select:
      return "SELECT";
    case Step::setName:
      return "CLIENT SETNAME";
    case Step::hello:
      return "HELLO";
    case Step::clientInfo:
      return "CLIENT INFO";
    case Step::clientId:
      return "CLIENT ID";
    case Step::probeKill:
      return "CLIENT KILL";
    case Step::ping:
      return "PING";
  }
  return "a command";
}

/// Error replies that end the attempt, whatever they answer.
std::optional<Failure> classifyAnywhere(std::string_view text) {
  const std::string_view code = firstWord(text);
  if (code == "NOAUTH") {
    return Failure{Errc::authenticationFailed, "the server wants a password", quoteServer(text)};
  }
  if (code == "DENIED") {
    return Failure{Errc::denied, "the server accepts no connections from here", quoteServer(text)};
  }
  if (code == "LOADING" || code == "BUSY" || code == "MASTERDOWN" ||
      text.starts_with("ERR max number of clients")) {
    return Failure{Errc::connectionFailed, "the server is not ready", quoteServer(text)};
  }
  return std::nullopt;
}

Failure classifyAuth(std::string_view text) {
  if (text.find("without any password") != std::string_view::npos ||
      text.find("no password is set") != std::string_view::npos) {
    return {Errc::authenticationFailed,
            "a password was given, but the server has none for this user",
            quoteServer(text)};
  }
  return {Errc::authenticationFailed,
          "the server refused the user name or password",
          quoteServer(text)};
}

Failure classifySelect(std::string_view text, int database) {
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

/// The value of `name=value` in a line of CLIENT LIST.
std::string_view clientField(std::string_view line, std::string_view name) noexcept {
  std::size_t begin = 0;
  while (begin < line.size()) {
    const std::size_t end = std::min(line.find_first_of(" \r\n", begin), line.size());
    const std::string_view field = line.substr(begin, end - begin);
    if (field.size() > name.size() && field.starts_with(name) && field[name.size()] == '=') {
      return field.substr(name.size() + 1);
    }
    begin = end + 1;
  }
  return {};
}

}  // namespace

// --------------------------------------------------------------------------------------- Attempt

class Connector::Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(Loop& loop, std::shared_ptr<const LinkSettings> settings, bool probeKill, Handler handler)
      : loop_(loop),
        settings_(std::move(settings)),
        probeKill_(probeKill),
        handler_(std::move(handler)),
        startedAt_(SteadyClock::now()),
        deadline_(startedAt_ + settings_->connectTimeout),
        timer_(loop, [this] { onTimer(); }) {}

  void begin();
  void cancel() noexcept;

 private:
  enum class Stage { idle, resolving, connecting, queueFull, handshake, done };

  /// Lives until libuv gives it back, which may be long after the attempt.
  struct Resolution {
    uv_getaddrinfo_t request{};
    std::weak_ptr<Attempt> attempt;
  };
  struct FreeAddresses {
    void operator()(addrinfo* list) const noexcept { uv_freeaddrinfo(list); }
  };
  using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

  [[nodiscard]] const Endpoint& endpoint() const { return settings_->endpoints[endpointIndex_]; }
  [[nodiscard]] SteadyClock::time_point shareOf(std::size_t parts) const;
  void advance();
  bool prepareEndpoint();
  bool startResolving();
  static void onResolved(uv_getaddrinfo_t* request, int status, addrinfo* list) noexcept;
  void resolved(int status, const addrinfo* list);
  void abandonResolution() noexcept;
  bool startConnecting();
  void onConnectable();
  void onTimer();
  void connected();
  void startHandshake(std::unique_ptr<Stream> stream);
  void appendStep(Step step, std::initializer_list<std::string_view> argv);
  void onHandshake(int status);
  bool writeHandshake();
  bool readReplies();
  std::optional<Failure> acceptReply(Step step, const Reply& reply);
  std::optional<Failure> acceptError(Step step, const Reply& reply);
  void acceptHello(const Reply& reply);
  void acceptClientInfo(const Reply& reply);
  void handshakeDone();
  void giveUpAddress(Failure failure);
  void note(Failure failure);
  void closeSocket() noexcept;
  void finishFailed();
  void finish(Result<Established> result);
  void log(LogLevel level, const std::string& text) const {
    if (settings_->log) {
      settings_->log->write(level, text);
    }
  }

  Loop& loop_;
  const std::shared_ptr<const LinkSettings> settings_;
  const bool probeKill_;
  Handler handler_;
  const SteadyClock::time_point startedAt_;
  const SteadyClock::time_point deadline_;
  Timer timer_;
  Stage stage_ = Stage::idle;

  std::size_t endpointIndex_ = 0;
  bool endpointPrepared_ = false;
  std::vector<Address> addresses_;
  std::size_t addressIndex_ = 0;
  SteadyClock::time_point queueFullUntil_;
  Resolution* resolution_ = nullptr;

  UniqueFd fd_;
  std::unique_ptr<Stream> stream_;
  std::optional<Poll> poll_;

  std::vector<Step> steps_;
  std::size_t stepIndex_ = 0;
  std::string out_;
  std::size_t written_ = 0;
  std::optional<ReplyReader> reader_;
  ServerSession session_;

  std::vector<std::string> failures_;
  std::optional<Error> lasting_;
};

void Connector::Attempt::begin() {
  if (stage_ == Stage::done) {
    return;
  }
  advance();
}

void Connector::Attempt::cancel() noexcept {
  stage_ = Stage::done;
  timer_.disarm();
  abandonResolution();
  closeSocket();
  // Last: the handler may own what owns this attempt.
  const Handler dropped = std::move(handler_);
}

/// An equal part of the time that is left.
SteadyClock::time_point Connector::Attempt::shareOf(std::size_t parts) const {
  const auto now = SteadyClock::now();
  const auto left = std::max(deadline_ - now, SteadyClock::duration::zero());
  return parts <= 1 ? deadline_ : now + left / static_cast<SteadyClock::duration::rep>(parts);
}

/// Starts whatever comes next, until something has to be waited for.
void Connector::Attempt::advance() {
  const std::size_t endpointCount = settings_->endpoints.size();
  while (endpointIndex_ < endpointCount) {
    if (SteadyClock::now() >= deadline_ && !failures_.empty()) {
      break;
    }
    if (!endpointPrepared_) {
      addresses_.clear();
      addressIndex_ = 0;
      endpointPrepared_ = true;
      if (prepareEndpoint()) {
        return;
      }
    }
    while (addressIndex_ < addresses_.size()) {
      if (startConnecting()) {
        return;
      }
    }
    ++endpointIndex_;
    endpointPrepared_ = false;
  }
  finishFailed();
}

/// Returns true when the addresses come later.
bool Connector::Attempt::prepareEndpoint() {
  if (!endpoint().path.empty()) {
    if (auto address = unixAddress(endpoint())) {
      addresses_.push_back(*std::move(address));
    } else {
      note({Errc::invalidArgument, "the path of a Unix socket has at most 107 bytes"});
    }
    return false;
  }
  // Needs no resolver, which may be busy or without a network.
  if (auto address = literalAddress(endpoint())) {
    addresses_.push_back(*std::move(address));
    return false;
  }
  return startResolving();
}

// ------------------------------------------------------------------------------------- resolving

bool Connector::Attempt::startResolving() {
  auto resolution = std::make_unique<Resolution>();
  resolution->request.data = resolution.get();
  resolution->attempt = weak_from_this();
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const int status = uv_getaddrinfo(loop_.raw(),
                                    &resolution->request,
                                    &Attempt::onResolved,
                                    endpoint().host.c_str(),
                                    nullptr,
                                    &hints);
  if (status != 0) {
    note({Errc::connectionFailed, std::string("name resolution failed: ") + uv_strerror(status)});
    return false;
  }
  resolution_ = resolution.release();
  stage_ = Stage::resolving;
  timer_.armAt(shareOf(settings_->endpoints.size() - endpointIndex_));
  return true;
}

void Connector::Attempt::onResolved(uv_getaddrinfo_t* request,
                                    int status,
                                    addrinfo* list) noexcept {
  const std::unique_ptr<Resolution> resolution(static_cast<Resolution*>(request->data));
  AddressList addresses(list);
  const std::shared_ptr<Attempt> attempt = resolution->attempt.lock();
  if (!attempt || attempt->resolution_ != resolution.get()) {
    return;
  }
  attempt->resolution_ = nullptr;
  try {
    // Through the loop, which catches what goes wrong and knows its thread.
    attempt->loop_.post([weak = resolution->attempt, status, addresses = std::move(addresses)] {
      const auto self = weak.lock();
      if (self && self->stage_ == Stage::resolving && self->resolution_ == nullptr) {
        self->resolved(status, addresses.get());
      }
    });
  } catch (const std::bad_alloc&) {
    // The attempt's timer goes on without the answer.
  }
}

void Connector::Attempt::resolved(int status, const addrinfo* list) {
  timer_.disarm();
  stage_ = Stage::idle;
  if (status != 0) {
    note({Errc::connectionFailed, std::string("name resolution failed: ") + uv_strerror(status)});
  }
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) {
      continue;
    }
    Address address = makeAddress(info->ai_addr, info->ai_addrlen, endpoint().port);
    const auto same = [&](const Address& other) { return other.text == address.text; };
    if (std::none_of(addresses_.begin(), addresses_.end(), same)) {
      addresses_.push_back(std::move(address));
    }
  }
  advance();
}

void Connector::Attempt::abandonResolution() noexcept {
  if (resolution_ != nullptr) {
    // A lookup that already runs cannot be stopped; its answer then finds nobody.
    static_cast<void>(uv_cancel(reinterpret_cast<uv_req_t*>(&resolution_->request)));
    resolution_ = nullptr;
  }
}

// ------------------------------------------------------------------------------------ connecting

/// Returns true when the outcome comes later.
bool Connector::Attempt::startConnecting() {
  const Address& address = addresses_[addressIndex_];
  const std::size_t parts =
      (addresses_.size() - addressIndex_) + (settings_->endpoints.size() - endpointIndex_ - 1);
  fd_ = openSocket(address.family());
  if (!fd_) {
    note({Errc::connectionFailed, systemMessage(errno)});
    ++addressIndex_;
    return false;
  }
  const auto userTimeout = settings_->tcpUserTimeout.count() > 0
                               ? settings_->tcpUserTimeout
                               : settings_->heartbeatInterval + 2 * settings_->replyTimeout;
  configureSocket(fd_.get(), address.family(), userTimeout);
  const auto shareEnd = shareOf(parts);
  if (::connect(fd_.get(), address.get(), address.size) == 0) {
    timer_.armAt(shareEnd);
    connected();
    return true;
  }
  if (errno == EAGAIN && address.family() == AF_UNIX) {
    fd_.reset();
    if (stage_ != Stage::queueFull) {
      stage_ = Stage::queueFull;
      queueFullUntil_ = shareEnd;
    }
    timer_.armAt(std::min(queueFullUntil_, SteadyClock::now() + kQueueFullPause));
    return true;
  }
  if (errno == EINPROGRESS || errno == EINTR) {
    stage_ = Stage::connecting;
    timer_.armAt(shareEnd);
    poll_.emplace(loop_, fd_.get());
    poll_->start(UV_WRITABLE, [this, self = weak_from_this()](int, int) {
      if (const auto keep = self.lock()) {
        onConnectable();
      }
    });
    return true;
  }
  note({Errc::connectionFailed, systemMessage(errno)});
  fd_.reset();
  ++addressIndex_;
  return false;
}

void Connector::Attempt::onConnectable() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
    error = errno;
  }
  if (error != 0) {
    giveUpAddress({Errc::connectionFailed, systemMessage(error)});
    return;
  }
  poll_.reset();
  connected();
}

void Connector::Attempt::onTimer() {
  const auto keep = shared_from_this();
  switch (stage_) {
    case Stage::resolving:
      abandonResolution();
      stage_ = Stage::idle;
      note({Errc::connectionFailed, "name resolution timed out"});
      advance();
      break;
    case Stage::queueFull:
      if (SteadyClock::now() >= queueFullUntil_) {
        giveUpAddress({Errc::connectionFailed, "timed out, the server accepts no connections"});
      } else {
        advance();
      }
      break;
    case Stage::connecting:
      giveUpAddress({Errc::connectionFailed, "timed out"});
      break;
    case Stage::handshake:
      giveUpAddress({Errc::connectionFailed, "connected, but timed out without an answer"});
      break;
    case Stage::idle:
    case Stage::done:
      break;
  }
}

void Connector::Attempt::connected() {
  if (connectedToItself(fd_.get(), addresses_[addressIndex_].family())) {
    giveUpAddress({Errc::connectionFailed, systemMessage(ECONNREFUSED)});
    return;
  }
  std::unique_ptr<Stream> stream;
  try {
    stream = settings_->wrap ? settings_->wrap(fd_.release(), endpoint())
                             : makePlainStream(std::move(fd_));
  } catch (const Error& error) {
    giveUpAddress({error.errc(), error.message(), error.serverMessage()});
    return;
  } catch (const std::exception& error) {
    giveUpAddress({Errc::connectionFailed, error.what()});
    return;
  }
  if (!stream) {
    giveUpAddress({Errc::connectionFailed, "no encrypted stream could be made"});
    return;
  }
  startHandshake(std::move(stream));
}

// ------------------------------------------------------------------------------------- handshake

void Connector::Attempt::appendStep(Step step, std::initializer_list<std::string_view> argv) {
  steps_.push_back(step);
  appendCommand(out_, std::span(argv.begin(), argv.size()));
}

void Connector::Attempt::startHandshake(std::unique_ptr<Stream> stream) {
  stage_ = Stage::handshake;
  stream_ = std::move(stream);
  reader_.emplace();
  steps_.clear();
  stepIndex_ = 0;
  out_.clear();
  written_ = 0;
  session_ = {};
  session_.node = toString(endpoint());
  session_.address = addresses_[addressIndex_].text;

  const LinkSettings& settings = *settings_;
  if (!settings.username.empty()) {
    appendStep(Step::auth, {"AUTH", settings.username, settings.password});
  } else if (!settings.password.empty()) {
    appendStep(Step::auth, {"AUTH", settings.password});
  }
  if (settings.database != 0) {
    appendStep(Step::select, {"SELECT", std::to_string(settings.database)});
  }
  if (!settings.clientName.empty()) {
    appendStep(Step::setName, {"CLIENT", "SETNAME", settings.clientName});
  }
  // Says the version and the role; the protocol stays the one a new connection has.
  appendStep(Step::hello, {"HELLO", "2"});
  appendStep(Step::clientInfo, {"CLIENT", "INFO"});
  if (probeKill_) {
    // Matches nobody: it only shows whether the command is allowed.
    const std::string nobody = std::to_string(std::numeric_limits<std::int64_t>::max());
    appendStep(Step::probeKill,
               {"CLIENT", "KILL", "ID", nobody, "ADDR", "0.0.0.0:0", "TYPE", "normal"});
  }
  appendStep(Step::ping, {"PING"});

  poll_.emplace(loop_, stream_->descriptor());
  // Writable at once unless the connection is broken: the first write happens there.
  poll_->start(UV_READABLE | UV_WRITABLE, [this, self = weak_from_this()](int status, int) {
    if (const auto keep = self.lock()) {
      onHandshake(status);
    }
  });
}

void Connector::Attempt::onHandshake(int status) {
  if (!writeHandshake() || !readReplies()) {
    return;
  }
  if (status < 0) {
    giveUpAddress({Errc::connectionFailed, "the connection failed during the handshake"});
    return;
  }
  poll_->setEvents(written_ < out_.size() ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

/// Returns false when the address has been given up.
bool Connector::Attempt::writeHandshake() {
  while (written_ < out_.size()) {
    const ssize_t count = stream_->write(out_.data() + written_, out_.size() - written_);
    if (count >= 0) {
      written_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      // The server may have said why before it closed.
      written_ = out_.size();
    } else {
      giveUpAddress({Errc::connectionFailed, systemMessage(errno)});
      return false;
    }
  }
  return true;
}

/// Returns false when the attempt has moved on.
bool Connector::Attempt::readReplies() {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = stream_->read(buffer.data(), buffer.size(), false);
    if (count == 0) {
      giveUpAddress({Errc::connectionFailed, "the server closed the connection in the handshake"});
      return false;
    }
    if (count < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return true;
      }
      giveUpAddress({Errc::connectionFailed, systemMessage(errno)});
      return false;
    }
    reader_->feed(buffer.data(), static_cast<std::size_t>(count));
    Reply reply;
    while (stepIndex_ < steps_.size()) {
      const ReplyReader::Next next = reader_->next(reply);
      if (next == ReplyReader::Next::needMore) {
        break;
      }
      if (next == ReplyReader::Next::protocolError) {
        giveUpAddress(
            {Errc::protocolError, std::string("not a Redis server: ") + reader_->errorText()});
        return false;
      }
      if (auto failure = acceptReply(steps_[stepIndex_], reply)) {
        giveUpAddress(*std::move(failure));
        return false;
      }
      ++stepIndex_;
    }
    if (stepIndex_ < steps_.size()) {
      continue;
    }
    if (reader_->pendingBytes() > 0) {
      giveUpAddress({Errc::protocolError, "the server sent more replies than it was asked for"});
      return false;
    }
    if (session_.clientId == 0 && steps_.back() != Step::clientId) {
      // Servers older than 6.2 know neither of the other ways.
      out_.clear();
      written_ = 0;
      appendStep(Step::clientId, {"CLIENT", "ID"});
      if (!writeHandshake()) {
        return false;
      }
      continue;
    }
    handshakeDone();
    return false;
  }
}

std::optional<Failure> Connector::Attempt::acceptReply(Step step, const Reply& reply) {
  if (reply.isError()) {
    return acceptError(step, reply);
  }
  switch (step) {
    case Step::auth:
    case Step::select:
    case Step::setName:
      if (!reply.is("OK")) {
        return Failure{Errc::protocolError,
                       "not a Redis server: unexpected reply to " + std::string(commandName(step))};
      }
      break;
    case Step::hello:
      acceptHello(reply);
      break;
    case Step::clientInfo:
      acceptClientInfo(reply);
      break;
    case Step::clientId:
      if (reply.isInteger() && reply.integer > 0) {
        session_.clientId = static_cast<std::uint64_t>(reply.integer);
      }
      break;
    case Step::probeKill:
      session_.canKill = reply.isInteger();
      break;
    case Step::ping:
      if (!reply.is("PONG")) {
        return Failure{Errc::protocolError, "not a Redis server: unexpected reply to PING"};
      }
      break;
  }
  return std::nullopt;
}

std::optional<Failure> Connector::Attempt::acceptError(Step step, const Reply& reply) {
  if (auto failure = classifyAnywhere(reply.text)) {
    return failure;
  }
  if (step == Step::auth) {
    Failure failure = classifyAuth(reply.text);
    if (failure.serverMessage.find(settings_->password) != std::string::npos) {
      failure.serverMessage.clear();
    }
    return failure;
  }
  if (step == Step::select) {
    return classifySelect(reply.text, settings_->database);
  }
  if (settings_->log && settings_->log->enabled(LogLevel::debug)) {
    log(LogLevel::debug,
        session_.node + " does not allow " + std::string(commandName(step)) + ": " +
            quoteServer(reply.text));
  }
  return std::nullopt;
}

void Connector::Attempt::acceptHello(const Reply& reply) {
  for (std::size_t i = 0; i + 1 < reply.elements.size(); i += 2) {
    const std::string& name = reply.elements[i].text;
    const Reply& value = reply.elements[i + 1];
    if (name == "version") {
      session_.serverVersion = value.text;
    } else if (name == "role") {
      session_.role = value.text;
    } else if (name == "id" && value.isInteger() && value.integer > 0) {
      session_.clientId = static_cast<std::uint64_t>(value.integer);
    }
  }
}

void Connector::Attempt::acceptClientInfo(const Reply& reply) {
  if (const auto id = parseNumber<std::uint64_t>(clientField(reply.text, "id")); id != 0) {
    session_.clientId = id;
  }
  session_.clientAddress = clientField(reply.text, "addr");
}

void Connector::Attempt::handshakeDone() {
  poll_.reset();
  timer_.disarm();
  // uv_poll_init made it non-blocking; whoever gets it decides per call.
  if (!setBlocking(stream_->descriptor(), true)) {
    giveUpAddress({Errc::connectionFailed, systemMessage(errno)});
    return;
  }
  log(LogLevel::info,
      "connected to " + session_.node +
          (session_.address == session_.node ? "" : " (" + session_.address + ")") +
          (session_.serverVersion.empty() ? "" : ", server version " + session_.serverVersion) +
          ", connection id " + std::to_string(session_.clientId));
  finish(
      Established{std::move(stream_), std::make_shared<const ServerSession>(std::move(session_))});
}

// --------------------------------------------------------------------------------------- outcome

void Connector::Attempt::closeSocket() noexcept {
  poll_.reset();
  stream_.reset();
  fd_.reset();
}

void Connector::Attempt::giveUpAddress(Failure failure) {
  const auto keep = shared_from_this();
  timer_.disarm();
  closeSocket();
  stage_ = Stage::idle;
  const bool serverAnswered = failure.errc != Errc::connectionFailed;
  note(std::move(failure));
  // The endpoint's other addresses lead to the same server, which would answer the same.
  addressIndex_ = serverAnswered ? addresses_.size() : addressIndex_ + 1;
  advance();
}

void Connector::Attempt::note(Failure failure) {
  const std::string node = toString(endpoint());
  std::string where = node;
  if (addressIndex_ < addresses_.size() && addresses_[addressIndex_].text != node) {
    where += " (" + addresses_[addressIndex_].text + ")";
  }
  if (failure.errc != Errc::connectionFailed && !lasting_) {
    ErrorContext context;
    context.node = where;
    context.serverMessage = failure.serverMessage;
    lasting_.emplace(failure.errc, failure.reason, std::move(context));
  }
  std::string line = where + ": " + failure.reason;
  if (!failure.serverMessage.empty()) {
    line += " (" + failure.serverMessage + ")";
  }
  if (settings_->log && settings_->log->enabled(LogLevel::debug)) {
    log(LogLevel::debug, "cannot connect to " + line);
  }
  failures_.push_back(std::move(line));
}

void Connector::Attempt::finishFailed() {
  ErrorContext context;
  context.elapsed =
      std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - startedAt_);
  if (lasting_) {
    finish(lasting_->withContext(context));
    return;
  }
  if (settings_->endpoints.empty()) {
    finish(Error(Errc::invalidArgument, "no endpoint to connect to"));
    return;
  }
  if (settings_->endpoints.size() == 1) {
    context.node = toString(settings_->endpoints.front());
  }
  constexpr std::size_t kListed = 8;
  std::string text = "cannot connect to ";
  for (std::size_t i = 0; i < std::min(failures_.size(), kListed); ++i) {
    text += (i == 0 ? "" : "; ") + failures_[i];
  }
  if (failures_.size() > kListed) {
    text += "; and " + std::to_string(failures_.size() - kListed) + " more addresses";
  }
  finish(Error(Errc::connectionFailed, text, std::move(context)));
}

void Connector::Attempt::finish(Result<Established> result) {
  const auto keep = shared_from_this();
  stage_ = Stage::done;
  timer_.disarm();
  closeSocket();
  Handler handler = std::move(handler_);
  if (handler) {
    handler(std::move(result));
  }
}

// ------------------------------------------------------------------------------------- Connector

Connector::Connector(Loop& loop, LinkSettings settings, bool probeKill)
    : loop_(loop),
      settings_(std::make_shared<const LinkSettings>(std::move(settings))),
      probeKill_(probeKill) {}

Connector::~Connector() {
  cancel();
}

void Connector::start(Handler handler) {
  cancel();
  attempt_ = std::make_shared<Attempt>(loop_, settings_, probeKill_, std::move(handler));
  loop_.post([weak = std::weak_ptr<Attempt>(attempt_)] {
    if (const auto attempt = weak.lock()) {
      attempt->begin();
    }
  });
}

void Connector::cancel() noexcept {
  if (const auto attempt = std::move(attempt_)) {
    attempt->cancel();
  }
}

// ---------------------------------------------------------------------------------------- Dialer

Dialer::Dialer(Loop& loop, LinkSettings settings, bool probeKill)
    : delayMin_(settings.reconnectDelayMin),
      delayMax_(settings.reconnectDelayMax),
      connector_(loop, std::move(settings), probeKill),
      timer_(loop, [this] { connector_.start(std::move(waiting_)); }),
      // Clients that lost the same server at the same moment must not come back in step.
      random_(static_cast<std::minstd_rand::result_type>(
          static_cast<std::uint64_t>(SteadyClock::now().time_since_epoch().count()) ^
          (reinterpret_cast<std::uintptr_t>(this) >> 4U))) {}

void Dialer::dial(Connector::Handler handler) {
  cancel();
  const auto delay = pause();
  constexpr unsigned kEnough = 32;
  failures_ = std::min(failures_ + 1, kEnough);
  if (delay <= SteadyClock::duration::zero()) {
    connector_.start(std::move(handler));
    return;
  }
  waiting_ = std::move(handler);
  timer_.armAt(SteadyClock::now() + delay);
}

void Dialer::cancel() noexcept {
  timer_.disarm();
  connector_.cancel();
  waiting_ = nullptr;
}

SteadyClock::duration Dialer::pause() {
  if (failures_ == 0) {
    return SteadyClock::duration::zero();
  }
  using Milliseconds = std::chrono::duration<double, std::milli>;
  Milliseconds whole = delayMin_;
  for (unsigned i = 1; i < failures_ && whole < delayMax_; ++i) {
    whole *= 2;
  }
  whole = std::min<Milliseconds>(whole, delayMax_);
  std::uniform_real_distribution<double> part(0.5, 1.0);
  return std::chrono::duration_cast<SteadyClock::duration>(whole * part(random_));
}

}  // namespace rlock::detail::net
