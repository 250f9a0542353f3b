// SPDX-License-Identifier: Apache-2.0

// Approach: one address, from the socket to the end of the handshake, in stages. It is driven by
// one poll and one timer, and ends once, by finish() or cancel(). The server may close the
// connection right after it has said why, so replies are read before a failure is believed.

#include "net/approach.hpp"

#include <rlock/error.hpp>

#include <uv.h>

#include <array>
#include <cerrno>
#include <exception>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <utility>

namespace rlock::detail::net {

using SteadyClock = std::chrono::steady_clock;

namespace {

/// How long to wait for room in a Unix socket's queue of connections, which cannot be polled for.
constexpr std::chrono::milliseconds kQueueFullPause{10};

ConnectFailure systemFailure(int error) {
  return {Errc::connectionFailed, std::generic_category().message(error)};
}

ConnectFailure streamFailure(const Stream& stream, int error) {
  const StreamFailure* const why = stream.failure();
  return why != nullptr ? ConnectFailure{why->errc, why->text} : systemFailure(error);
}

}  // namespace

Approach::Approach(Loop& loop,
                   std::shared_ptr<const LinkSettings> settings,
                   Endpoint endpoint,
                   Address address,
                   bool probeKill)
    : loop_(loop),
      settings_(std::move(settings)),
      endpoint_(std::move(endpoint)),
      address_(std::move(address)),
      probeKill_(probeKill),
      timer_(loop, [this] { onTimer(); }) {}

std::optional<ConnectFailure> Approach::start(Handler handler) {
  std::optional<ConnectFailure> failure;
  try {
    failure = connect();
  } catch (const Error& error) {
    failure = ConnectFailure{error.errc(), error.message(), error.serverMessage()};
  } catch (const std::exception& error) {
    failure = ConnectFailure{Errc::connectionFailed, error.what()};
  }
  if (failure) {
    cancel();
  } else {
    handler_ = std::move(handler);
  }
  return failure;
}

void Approach::cancel() noexcept {
  stage_ = Stage::done;
  timer_.disarm();
  closeSocket();
  // Last: the handler may own what owns this.
  const Handler dropped = std::move(handler_);
}

std::string_view Approach::whatIsMissing() const noexcept {
  switch (stage_) {
    case Stage::queueFull:
      return "timed out, the server accepts no connections";
    case Stage::opening:
      return "connected, but timed out in the TLS handshake, as with a port that speaks no TLS; if "
             "it is one, write redis:// before its address";
    case Stage::handshake:
      return "connected, but timed out without an answer";
    default:
      return "timed out";
  }
}

/// An exception in a callback ends the approach: nobody would wake it again.
template <class F>
void Approach::guarded(F&& step) {
  const auto keep = shared_from_this();
  try {
    step();
  } catch (const Error& error) {
    if (stage_ == Stage::done) {
      throw;  // the handler's
    }
    fail({error.errc(), error.message(), error.serverMessage()});
  } catch (const std::exception& error) {
    if (stage_ == Stage::done) {
      throw;
    }
    fail({Errc::connectionFailed, error.what()});
  }
}

std::optional<ConnectFailure> Approach::connect() {
  fd_ = openSocket(address_.family());
  if (!fd_) {
    return systemFailure(errno);
  }
  const auto userTimeout = settings_->tcpUserTimeout.count() > 0
                               ? settings_->tcpUserTimeout
                               : settings_->heartbeatInterval + 2 * settings_->replyTimeout;
  configureSocket(fd_.get(), address_.family(), userTimeout);
  if (::connect(fd_.get(), address_.get(), address_.size) == 0) {
    return connected();
  }
  // A Unix socket does not say by polling when its server has room for another connection.
  if (errno == EAGAIN && address_.family() == AF_UNIX) {
    fd_.reset();
    stage_ = Stage::queueFull;
    timer_.armAt(SteadyClock::now() + kQueueFullPause);
    return std::nullopt;
  }
  // After a signal, too, connecting goes on in the background.
  if (errno != EINPROGRESS && errno != EINTR) {
    return systemFailure(errno);
  }
  stage_ = Stage::connecting;
  poll_.emplace(loop_, fd_.get());
  poll_->start(UV_WRITABLE, [weak = weak_from_this()](int, int) {
    if (const auto self = weak.lock()) {
      self->guarded([&] { self->onConnectable(); });
    }
  });
  return std::nullopt;
}

void Approach::onConnectable() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
    error = errno;
  }
  // The poll only says that connecting is over, not how.
  if (error != 0) {
    fail(systemFailure(error));
    return;
  }
  poll_.reset();
  if (auto failure = connected()) {
    fail(*std::move(failure));
  }
}

void Approach::onTimer() {
  guarded([this] {
    // Race: the timer may have expired before cancel() disarmed it.
    if (stage_ != Stage::queueFull) {
      return;
    }
    if (auto failure = connect()) {
      fail(*std::move(failure));
    }
  });
}

std::optional<ConnectFailure> Approach::connected() {
  // With nobody listening, the kernel may give this socket the very port it connects to.
  if (connectedToItself(fd_.get(), address_.family())) {
    return systemFailure(ECONNREFUSED);
  }
  std::unique_ptr<Stream> stream =
      settings_->wrap ? settings_->wrap(fd_.release(), endpoint_) : makePlainStream(std::move(fd_));
  if (!stream) {
    return ConnectFailure{Errc::connectionFailed, "no encrypted stream could be made"};
  }
  openStream(std::move(stream));
  return std::nullopt;
}

void Approach::openStream(std::unique_ptr<Stream> stream) {
  stage_ = Stage::opening;
  stream_ = std::move(stream);
  handshake_.emplace(settings_, probeKill_, toString(endpoint_), address_.text);

  poll_.emplace(loop_, stream_->descriptor());
  // Writable at once unless the connection is broken: the first write happens there.
  poll_->start(UV_READABLE | UV_WRITABLE, [weak = weak_from_this()](int status, int) {
    if (const auto self = weak.lock()) {
      self->guarded([&] { self->onReady(status); });
    }
  });
}

void Approach::onReady(int status) {
  if (stage_ == Stage::opening && !opened()) {
    if (status < 0) {
      fail({Errc::connectionFailed, "the connection failed in the TLS handshake"});
    }
    return;
  }
  // Also of a connection that has failed: the server may have said why before.
  if (!writeHandshake() || !readReplies()) {
    return;
  }
  if (status < 0) {
    fail({Errc::connectionFailed, "the connection failed during the handshake"});
    return;
  }
  const bool forRoom = !handshake_->unsent().empty() && !stream_->writeAwaitsInput();
  poll_->setEvents(forRoom ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

/// Returns false when the stream has to wait for the server, and for nothing else: the socket of a
/// new connection always has room.
bool Approach::opened() {
  switch (stream_->open()) {
    case Stream::Opening::needsInput:
      poll_->setEvents(UV_READABLE);
      return false;
    case Stream::Opening::needsRoom:
      poll_->setEvents(UV_WRITABLE);
      return false;
    case Stream::Opening::done:
      break;
  }
  stage_ = Stage::handshake;
  return true;
}

/// Returns false when the approach is over.
bool Approach::writeHandshake() {
  while (!handshake_->unsent().empty()) {
    const std::string_view bytes = handshake_->unsent();
    const ssize_t count = stream_->write(bytes.data(), bytes.size());
    if (count >= 0) {
      handshake_->sent(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (closedByPeer(errno)) {
      // The server may have said why before it closed.
      handshake_->sent(bytes.size());
    } else {
      fail(streamFailure(*stream_, errno));
      return false;
    }
  }
  return true;
}

/// Returns false when the approach is over.
bool Approach::readReplies() {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = stream_->read(buffer.data(), buffer.size(), false);
    if (count == 0 || (count < 0 && errno == ECONNRESET)) {
      fail({Errc::connectionFailed,
            settings_->wrap
                ? "the server closed the connection in the handshake"
                : "the server closed the connection in the handshake, as a port does that expects "
                  "TLS; if it is one, write rediss:// before its address"});
      return false;
    }
    if (count < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return true;
      }
      fail(streamFailure(*stream_, errno));
      return false;
    }
    if (auto failure = handshake_->received(buffer.data(), static_cast<std::size_t>(count))) {
      fail(*std::move(failure));
      return false;
    }
    // Nothing follows the last reply, so nothing of the next owner's can be in the buffer.
    if (handshake_->done()) {
      handshakeDone();
      return false;
    }
    if (!writeHandshake()) {
      return false;
    }
  }
}

void Approach::handshakeDone() {
  poll_.reset();
  // uv_poll_init made it non-blocking; whoever gets it decides per call.
  if (!setBlocking(stream_->descriptor(), true)) {
    fail(systemFailure(errno));
    return;
  }
  const auto session = std::make_shared<const ServerSession>(handshake_->session());
  finish(Established{std::move(stream_), session, handshake_->sentinelAnswer()});
}

void Approach::closeSocket() noexcept {
  poll_.reset();
  stream_.reset();
  if (fd_) {
    // A child process that has inherited it would go on connecting.
    ::shutdown(fd_.get(), SHUT_RDWR);
    fd_.reset();
  }
}

void Approach::fail(ConnectFailure failure) {
  finish(std::move(failure));
}

void Approach::finish(Outcome outcome) {
  // A failure within a callback may have ended it already.
  if (stage_ == Stage::done) {
    return;
  }
  // The handler may drop the last reference to this.
  const auto keep = shared_from_this();
  stage_ = Stage::done;
  timer_.disarm();
  closeSocket();
  Handler handler = std::move(handler_);
  if (handler) {
    handler(std::move(outcome));
  }
}

}  // namespace rlock::detail::net
