// SPDX-License-Identifier: Apache-2.0
#include "net/socket_transports.hpp"

#include "net/command_link.hpp"
#include "net/link_settings.hpp"
#include "net/master_watch.hpp"
#include "net/pubsub_link.hpp"
#include "net/sentinel_access.hpp"
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
  std::shared_ptr<MasterWatch> watch;
  if (options.topology == Topology::sentinel) {
    LinkSettings toSentinels = sentinelSettings(options);
    if (options.sentinelTls) {
      toSentinels.wrap = options.tls ? settings.wrap : tlsStreams(options, settings.log);
    }
    toSentinels.log = settings.log;
    settings.peer = Peer::master;
    settings.sentinels = std::make_shared<SentinelAccess>(std::move(toSentinels));
    watch = std::make_shared<MasterWatch>(loop, settings);
  }
  Transports transports;
  transports.commands = [loop, settings, watch, spin = options.spin](LinkEvents& events) {
    return std::make_shared<CommandLink>(loop, settings, events, spin, watch);
  };
  transports.subscriptions = [loop, settings, watch](PubSubEvents& events) {
    return std::make_unique<PubSubLink>(loop, settings, events, watch);
  };
  transports.commandsTo = [loop, settings, spin = options.spin](const Endpoint& node,
                                                                LinkEvents& events) {
    LinkSettings there = settings;
    there.endpoints = {node};
    return std::make_shared<CommandLink>(loop, std::move(there), events, spin);
  };
  transports.subscriptionsTo = [loop, settings](
                                   const Endpoint& node, ChannelKind kind, PubSubEvents& events) {
    LinkSettings there = settings;
    there.endpoints = {node};
    return std::make_unique<PubSubLink>(loop, std::move(there), kind, events);
  };
  return transports;
}

}  // namespace rlock::detail::net
