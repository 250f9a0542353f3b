// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/client.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/export.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <memory>

namespace rlock::detail {

/// The environment and the connections that a client is built on.
struct ClientWorld {
  std::shared_ptr<Env> env;
  net::Transports transports;
  /// True when the loop has a thread of its own, so that its client can wait for it.
  bool ownsLoop = true;
};

/// The way every client is made, whatever its world: sockets for Client::connect(), and a server in
/// memory for TestServer.
/// @param options  valid
/// @throws Error  as Client::connect()
RLOCK_EXPORT Client connectIn(ClientWorld world,
                              const Options& options,
                              const std::shared_ptr<const Logger>& log);

}  // namespace rlock::detail
