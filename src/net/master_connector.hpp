// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/connection_source.hpp"
#include "net/link_settings.hpp"
#include "net/loop.hpp"

#include <memory>

namespace rlock::detail::net {

/// One attempt to connect to the master that the Sentinels name. It performs what a MasterSearch
/// decides, with one Connector for each Sentinel that is asked and one for each address that is
/// tried; the first server that says in its handshake that it is the master is the connection.
///
/// **Thread safety:** loop thread only. May be destroyed in its own handler.
class MasterConnector final : public ConnectionSource {
 public:
  /// @param settings  `sentinels` is set; `endpoints` do not matter
  /// @param probeKill  whether to find out ServerSession::canKill
  MasterConnector(Loop& loop, LinkSettings settings, bool probeKill);
  ~MasterConnector() override;

  /// Errors: connectionFailed (no Sentinel, or no master, within connectTimeout), invalidArgument
  /// (no Sentinel knows the name, or one is none), and what a master or the Sentinels refuse for
  /// good: authenticationFailed, denied, protocolError, serverError.
  void start(Handler&& handler) override;
  void cancel() noexcept override;
  void preferOthers() noexcept override {}

 private:
  class Search;

  Loop& loop_;
  const std::shared_ptr<const LinkSettings> settings_;
  const bool probeKill_;
  std::shared_ptr<Search> search_;
};

}  // namespace rlock::detail::net
