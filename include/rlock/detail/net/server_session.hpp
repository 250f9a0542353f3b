// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/capabilities.hpp>

#include <cstdint>
#include <string>

namespace rlock::detail::net {

/// A connection to a server, and the server, by the server's own account.
struct ServerSession {
  std::string node{};          ///< `host:port` or `unix:///path`, as configured
  std::string address{};       ///< the address connected to: `10.0.0.5:6379` or `unix:///path`
  std::uint64_t clientId = 0;  ///< the server's id of this connection; 0: unknown
  /// Ours as the server sees it, `ip:port`; empty: unknown, or it does not tell us from others.
  std::string clientAddress{};
  std::string runId{};          ///< another for each process of the server; empty: unknown
  bool canKill = false;         ///< CLIENT KILL with filters is allowed
  std::string serverVersion{};  ///< empty: unknown
  std::string role{};           ///< `master`, `replica`; empty: unknown
  /// The server has told this, too, where it was asked: without version and role.
  Capabilities found{};
  /// Nothing that was sent on it can still be executed: the server has closed it, or is another
  /// process. Set by the executor on the loop thread, once.
  mutable bool dead = false;

  /// Whether another connection can name this one to the server, and nobody else's.
  [[nodiscard]] bool identified() const noexcept {
    return clientId != 0 && (!runId.empty() || !clientAddress.empty());
  }
  /// Whether both lead to one process, as far as can be told: where the run id is not known, the
  /// address has to do.
  [[nodiscard]] bool sameServer(const ServerSession& other) const noexcept {
    return runId.empty() || other.runId.empty() ? node == other.node && address == other.address
                                                : runId == other.runId;
  }
  /// Whether it can be closed from another connection once it is lost.
  [[nodiscard]] bool canBeKilled() const noexcept { return canKill && identified(); }
};

}  // namespace rlock::detail::net
