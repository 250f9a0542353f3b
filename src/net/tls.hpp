// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/stream.hpp"
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <functional>
#include <memory>

namespace rlock::detail::net {

/// Makes the streams of encrypted connections, for LinkSettings::wrap: it takes a connected
/// socket and the endpoint that it leads to, by whose host the server has to prove itself.
///
/// The files that the options name are read once, here. All streams share the sessions, so that a
/// client resumes those that it had with the same endpoint.
///
/// **Thread safety:** what it returns may be called from any thread.
///
/// @throws rlock::Error  invalidArgument: a file cannot be used, or this build has no TLS; the
///                       message names the option, and the file with the reason
std::function<std::unique_ptr<Stream>(int fd, const Endpoint& endpoint)> tlsStreams(
    const Options& options, std::shared_ptr<const Logger> log);

}  // namespace rlock::detail::net
