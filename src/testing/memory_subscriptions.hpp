// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "testing/memory_server.hpp"
#include "testing/memory_transport.hpp"
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/options.hpp>

#include <memory>
#include <set>
#include <string>

namespace rlock::sim {

/// PubSubLink to a server in memory: keeps the wanted channels subscribed over a connection of its
/// own.
///
/// **Thread safety:** loop thread only.
class MemorySubscriptions final : public detail::net::SubscriptionTransport {
 public:
  MemorySubscriptions(std::shared_ptr<detail::Env> env,
                      std::shared_ptr<MemoryServer> server,
                      const Options& options,
                      detail::net::PubSubEvents& events);
  ~MemorySubscriptions() override;

  void subscribe(std::string channel) override;
  void unsubscribe(const std::string& channel) override;
  void close() noexcept override;

 private:
  class Line;
  const std::shared_ptr<Line> line_;
};

}  // namespace rlock::sim
