// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/handshake.hpp"
#include "net/link_settings.hpp"
#include "net/loop.hpp"
#include "net/stream.hpp"
#include <rlock/detail/unique_function.hpp>
#include <rlock/result.hpp>

#include <memory>

namespace rlock::detail::net {

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

}  // namespace rlock::detail::net
