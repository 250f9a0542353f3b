// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/loop.hpp"
#include "net/stream.hpp"
#include <rlock/detail/unique_function.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/result.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace rlock::detail::net {

/// What a connection to one server needs. The endpoints are addresses of the same server, tried in
/// order.
struct LinkSettings {
  std::vector<Endpoint> endpoints{};
  std::string username{};
  std::string password{};
  std::string clientName{};
  int database = 0;
  /// Names, addresses and handshake of all endpoints together.
  std::chrono::milliseconds connectTimeout{3000};
  std::chrono::milliseconds reconnectDelayMin{20};
  std::chrono::milliseconds reconnectDelayMax{2000};
  /// How long a request may go unanswered before the peer counts as dead.
  std::chrono::milliseconds replyTimeout{3000};
  std::chrono::milliseconds heartbeatInterval{5000};
  /// How long sent bytes may go unacknowledged; 0 = heartbeatInterval + 2 x replyTimeout.
  std::chrono::milliseconds tcpUserTimeout{0};
  /// Keeps a subscriber connection without channels this long.
  std::chrono::milliseconds idleLinger{10000};
  /// Puts TLS over a connected socket, which it owns from the call on. Empty: plain.
  std::function<std::unique_ptr<Stream>(int fd, const Endpoint& endpoint)> wrap{};
  /// May be null.
  std::shared_ptr<const Logger> log{};
};

/// What a server said of itself and of one connection to it.
struct ServerSession {
  std::string node{};           ///< `host:port` or `unix:path`, as configured
  std::string address{};        ///< the address connected to: `10.0.0.5:6379` or `unix:path`
  std::uint64_t clientId = 0;   ///< the server's id of this connection; 0: unknown
  std::string clientAddress{};  ///< ours as the server sees it; empty: unknown
  bool canKill = false;         ///< CLIENT KILL with filters is allowed
  std::string serverVersion{};  ///< empty: unknown
  std::string role{};           ///< `master`, `replica`; empty: unknown
};

/// A connection that is ready for commands. The descriptor is in blocking mode.
struct Established {
  std::unique_ptr<Stream> stream;
  std::shared_ptr<const ServerSession> session;
};

/// One attempt to connect: endpoints in order, each address of each, then the handshake.
///
/// **Thread safety:** loop thread only. May be destroyed in its own handler.
///
/// Each address gets an equal share of the time that is left, so that one that drops packets does
/// not use up the others' chance.
class Connector {
 public:
  /// @param probeKill  whether to find out ServerSession::canKill
  Connector(Loop& loop, LinkSettings settings, bool probeKill);
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;
  /// Cancels.
  ~Connector();

  using Handler = UniqueFunction<void(Result<Established>)>;

  /// Calls the handler once, never inside start(), within connectTimeout. Cancels an earlier start.
  ///
  /// Errors: connectionFailed (not resolved, refused, timed out, cut off, server loading or full),
  /// authenticationFailed, denied, invalidArgument (no such database, unusable path),
  /// serverError, protocolError. When endpoints fail differently, the reason that no later attempt
  /// would cure is the one reported.
  void start(Handler handler);

  /// Drops the handler uncalled.
  void cancel() noexcept;

 private:
  class Attempt;

  Loop& loop_;
  std::shared_ptr<const LinkSettings> settings_;
  bool probeKill_;
  std::shared_ptr<Attempt> attempt_;
};

/// Connects again and again, with growing pauses while it does not work.
///
/// **Thread safety:** loop thread only. May be destroyed in its own handler.
class Dialer {
 public:
  Dialer(Loop& loop, LinkSettings settings, bool probeKill);

  /// One attempt: at once, or after the back-off pause when the last one was not followed by
  /// succeeded(). The pause doubles from reconnectDelayMin to reconnectDelayMax; a random part of
  /// its second half is left out.
  void dial(Connector::Handler handler);

  /// The connection of the last dial() has proved usable: the next dial() starts at once. An owner
  /// that never says so makes each reconnect wait longer.
  void succeeded() noexcept { failures_ = 0; }

  /// Drops the handler uncalled; the back-off is kept.
  void cancel() noexcept;

 private:
  std::chrono::steady_clock::duration pause();

  std::chrono::milliseconds delayMin_;
  std::chrono::milliseconds delayMax_;
  Connector connector_;
  Connector::Handler waiting_;
  Timer timer_;
  unsigned failures_ = 0;
  std::minstd_rand random_;
};

}  // namespace rlock::detail::net
