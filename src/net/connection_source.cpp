// SPDX-License-Identifier: Apache-2.0
#include "net/connection_source.hpp"

#include "net/connector.hpp"
#include "net/master_connector.hpp"
#include "net/sentinel_access.hpp"

#include <utility>

namespace rlock::detail::net {

namespace {

/// Connects to whichever Sentinel answers first.
class AnySentinel final : public ConnectionSource {
 public:
  AnySentinel(Loop& loop, LinkSettings settings) : loop_(loop), settings_(std::move(settings)) {}

  void start(Handler&& handler) override {
    // Others may be known by now.
    settings_.endpoints = settings_.sentinels->list.order();
    connector_ = std::make_unique<Connector>(loop_, settings_, false);
    connector_->start(std::move(handler));
  }
  void cancel() noexcept override {
    if (connector_) {
      connector_->cancel();
    }
  }
  void preferOthers() noexcept override {}

 private:
  Loop& loop_;
  LinkSettings settings_;
  std::unique_ptr<Connector> connector_;
};

}  // namespace

std::unique_ptr<ConnectionSource> connectionSource(Loop& loop,
                                                   LinkSettings settings,
                                                   bool probeKill) {
  if (!settings.sentinels) {
    return std::make_unique<Connector>(loop, std::move(settings), probeKill);
  }
  if (settings.peer == Peer::sentinel) {
    return std::make_unique<AnySentinel>(loop, std::move(settings));
  }
  return std::make_unique<MasterConnector>(loop, std::move(settings), probeKill);
}

}  // namespace rlock::detail::net
