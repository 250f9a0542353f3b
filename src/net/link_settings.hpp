// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/stream.hpp"
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rlock::detail::net {

struct SentinelAccess;

/// The kind of server that has to be at the other end of a connection.
enum class Peer {
  server,    ///< a Redis server
  master,    ///< one that takes writes
  sentinel,  ///< a Sentinel, which is asked for the master
};

/// How often the loop reads from one connection before it lets its other work run.
inline constexpr int kReadsPerPass = 16;

/// The settings of a connection to one server. The endpoints are addresses of the same server,
/// tried in order. Defaults are those of Options: see linkSettings().
struct LinkSettings {
  std::vector<Endpoint> endpoints{};
  std::string username{};
  std::string password{};
  /// Gives those two anew for each connection. Empty: they stay.
  std::function<Credentials()> credentials{};
  std::string clientName{};
  int database = 0;
  /// The server must be a node of a cluster; else it must be none.
  bool cluster = false;
  /// Names, addresses and handshake of all endpoints together.
  std::chrono::milliseconds connectTimeout{};
  std::chrono::milliseconds reconnectDelayMin{};
  std::chrono::milliseconds reconnectDelayMax{};
  /// How long a request may go unanswered before the peer counts as dead.
  std::chrono::milliseconds replyTimeout{};
  std::chrono::milliseconds heartbeatInterval{};
  /// How long sent bytes may go unacknowledged; 0 = heartbeatInterval + 2 x replyTimeout.
  std::chrono::milliseconds tcpUserTimeout{};
  /// Keeps a subscriber connection without channels this long.
  std::chrono::milliseconds idleLinger{};
  /// Puts TLS over a connected socket, which it owns from the call on. Empty: plain.
  std::function<std::unique_ptr<Stream>(int fd, const Endpoint& endpoint)> wrap{};
  /// May be null.
  std::shared_ptr<const Logger> log{};
  Peer peer = Peer::server;
  /// The name by which Sentinels know the master.
  std::string sentinelMaster{};
  /// Of a Sentinel: one that does not know the master is of no use, for it never tells of it.
  bool mustKnowMaster = false;
  /// The Sentinels that know the endpoint; null: `endpoints` are the server's own.
  std::shared_ptr<SentinelAccess> sentinels{};
};

/// The user name and password for a connection that is made now.
/// @throws Error  connectionFailed: they cannot be had; authenticationFailed: they cannot be sent.
///                No message contains them, or what the application's function threw
Credentials currentCredentials(const LinkSettings& settings);

inline LinkSettings linkSettings(const Options& options) {
  LinkSettings settings;
  settings.endpoints = options.endpoints;
  settings.username = options.username;
  settings.password = options.password;
  settings.credentials = options.credentials;
  settings.clientName = options.clientName;
  settings.database = options.database;
  settings.cluster = options.topology == Topology::cluster;
  settings.connectTimeout = options.connectTimeout;
  settings.reconnectDelayMin = options.reconnectDelayMin;
  settings.reconnectDelayMax = options.reconnectDelayMax;
  settings.replyTimeout = options.commandTimeout;
  settings.heartbeatInterval = options.heartbeatInterval;
  settings.idleLinger = options.subscriptionLinger;
  return settings;
}

/// Of the connections to the Sentinels: their own credentials, and no database. `wrap` is theirs,
/// too.
inline LinkSettings sentinelSettings(const Options& options) {
  LinkSettings settings = linkSettings(options);
  settings.username = options.sentinelUsername;
  settings.password = options.sentinelPassword;
  settings.credentials = options.sentinelCredentials;
  settings.database = 0;
  settings.peer = Peer::sentinel;
  settings.sentinelMaster = options.sentinelMaster;
  settings.wrap = nullptr;
  return settings;
}

}  // namespace rlock::detail::net
