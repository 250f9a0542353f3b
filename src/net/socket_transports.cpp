// SPDX-License-Identifier: Apache-2.0
#include "net/socket_transports.hpp"

#include "net/command_link.hpp"
#include "net/link_settings.hpp"
#include "net/pubsub_link.hpp"
#include "net/tls.hpp"

#include <utility>

namespace rlock::detail::net {

Transports socketTransports(std::shared_ptr<Loop> loop,
                            const Options& options,
                            std::shared_ptr<const Logger> log) {
  LinkSettings settings = linkSettings(options);
  if (options.tls) {
    settings.wrap = tlsStreams(options, log);
  }
  settings.log = std::move(log);
  Transports transports;
  transports.commands = [loop, settings, spin = options.spin](LinkEvents& events) {
    return std::make_shared<CommandLink>(loop, settings, events, spin);
  };
  transports.subscriptions = [loop, settings](PubSubEvents& events) {
    return std::make_unique<PubSubLink>(loop, settings, events);
  };
  transports.commandsTo = [loop, settings, spin = options.spin](const Endpoint& node,
                                                                LinkEvents& events) {
    LinkSettings there = settings;
    there.endpoints = {node};
    return std::make_shared<CommandLink>(loop, std::move(there), events, spin);
  };
  return transports;
}

}  // namespace rlock::detail::net
