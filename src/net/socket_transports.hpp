// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/loop.hpp"
#include <rlock/detail/net/transport.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <memory>

namespace rlock::detail::net {

/// The connections of a client over sockets, driven by `loop`. `options` and `log` are copied.
/// @throws rlock::Error  invalidArgument: a file of the options for TLS cannot be used
Transports socketTransports(std::shared_ptr<Loop> loop,
                            const Options& options,
                            std::shared_ptr<const Logger> log);

}  // namespace rlock::detail::net
