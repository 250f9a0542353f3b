// SPDX-License-Identifier: Apache-2.0
#include "net/connector.hpp"

#include "net/socket.hpp"
#include <rlock/log.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
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
  void onHandshake(int status);
  bool writeHandshake();
  bool readReplies();
  void handshakeDone();
  void giveUpAddress(ConnectFailure failure);
  void note(ConnectFailure failure);
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

  std::optional<Handshake> handshake_;

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

void Connector::Attempt::startHandshake(std::unique_ptr<Stream> stream) {
  stage_ = Stage::handshake;
  stream_ = std::move(stream);
  handshake_.emplace(settings_, probeKill_, toString(endpoint()), addresses_[addressIndex_].text);

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
  poll_->setEvents(handshake_->unsent().empty() ? UV_READABLE : UV_READABLE | UV_WRITABLE);
}

/// Returns false when the address has been given up.
bool Connector::Attempt::writeHandshake() {
  while (!handshake_->unsent().empty()) {
    const std::string_view bytes = handshake_->unsent();
    const ssize_t count = stream_->write(bytes.data(), bytes.size());
    if (count >= 0) {
      handshake_->sent(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      // The server may have said why before it closed.
      handshake_->sent(bytes.size());
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
    if (auto failure = handshake_->received(buffer.data(), static_cast<std::size_t>(count))) {
      giveUpAddress(*std::move(failure));
      return false;
    }
    if (handshake_->done()) {
      handshakeDone();
      return false;
    }
    if (!writeHandshake()) {
      return false;
    }
  }
}

void Connector::Attempt::handshakeDone() {
  poll_.reset();
  timer_.disarm();
  // uv_poll_init made it non-blocking; whoever gets it decides per call.
  if (!setBlocking(stream_->descriptor(), true)) {
    giveUpAddress({Errc::connectionFailed, systemMessage(errno)});
    return;
  }
  const auto session = std::make_shared<const ServerSession>(handshake_->session());
  log(LogLevel::info,
      "connected to " + session->node +
          (session->address == session->node ? "" : " (" + session->address + ")") +
          (session->serverVersion.empty() ? "" : ", server version " + session->serverVersion) +
          ", connection id " + std::to_string(session->clientId));
  finish(Established{std::move(stream_), session});
}

// --------------------------------------------------------------------------------------- outcome

void Connector::Attempt::closeSocket() noexcept {
  poll_.reset();
  stream_.reset();
  fd_.reset();
}

void Connector::Attempt::giveUpAddress(ConnectFailure failure) {
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

void Connector::Attempt::note(ConnectFailure failure) {
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

}  // namespace rlock::detail::net
