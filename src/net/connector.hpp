// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/approach.hpp"
#include "net/connection_source.hpp"
#include "net/link_settings.hpp"
#include "net/loop.hpp"
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/result.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace rlock::detail::net {

/// One attempt to connect: endpoints in order, each address of each, then the handshake.
///
/// **Thread safety:** loop thread only. May be destroyed in its own handler.
///
/// The endpoint and address that worked last come first. Each has a head start of a quarter of a
/// second, less when there is no time for that; then the next is tried beside it, and the first
/// whose handshake is complete is the connection. So one that drops packets, or a name that is not
/// resolved, delays by its head start only. A replica is the connection only where no other address
/// leads to a master within half of the time that is left.
class Connector final : public ConnectionSource {
 public:
  /// @param probeKill  whether to find out ServerSession::canKill
  Connector(Loop& loop, LinkSettings settings, bool probeKill);
  ~Connector() override;

  /// Calls the handler once, never inside start(), within connectTimeout. Cancels an earlier start.
  ///
  /// Errors: connectionFailed (not resolved, refused, timed out, cut off, server loading or full),
  /// authenticationFailed, denied, invalidArgument (no such database, unusable path),
  /// serverError, protocolError. When endpoints fail differently, the reason that no later attempt
  /// would cure is the one reported.
  void start(Handler&& handler) override;

  /// Drops the handler uncalled.
  void cancel() noexcept override;

  /// The endpoint that worked last comes last in the next start(): its server is not the one that
  /// is wanted.
  void preferOthers() noexcept override { favourite_->preferred = false; }

 private:
  class Attempt;
  /// The endpoint that worked last.
  struct Favourite {
    std::size_t endpoint = 0;
    std::string address{};
    bool preferred = true;
    /// Replicas that were warned of since a master was found last.
    std::vector<std::string> replicas{};
  };

  Loop& loop_;
  std::shared_ptr<const LinkSettings> settings_;
  std::shared_ptr<Favourite> favourite_;
  bool probeKill_;
  std::shared_ptr<Attempt> attempt_;
};

}  // namespace rlock::detail::net
