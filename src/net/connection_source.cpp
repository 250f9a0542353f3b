// SPDX-License-Identifier: Apache-2.0
#include "net/connection_source.hpp"

#include "net/connector.hpp"
#include "net/master_connector.hpp"
#include "net/sentinel_access.hpp"
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/log.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace rlock::detail::net {

namespace {

/// Connects to whichever Sentinel answers first, which is the one that is listened to from then on.
/// Sentinels that have refused to be have their turn after the others.
class AnySentinel final : public ConnectionSource {
 public:
  AnySentinel(Loop& loop, LinkSettings settings) : loop_(loop), settings_(std::move(settings)) {}

  void start(Handler&& handler) override {
    // Others may be known by now.
    settings_.endpoints = settings_.sentinels->list.orderToListen();
    moves_ = settings_.sentinels->list.moves();
    connector_ = std::make_unique<Connector>(loop_, settings_, false);
    connector_->start([this](Result<Established> result) { ended(std::move(result)); });
    // Last, for all of that may throw.
    handler_ = std::move(handler);
  }
  void cancel() noexcept override {
    if (connector_) {
      connector_->cancel();
    }
    // Last: the handler may own what owns this.
    const Handler dropped = std::move(handler_);
  }
  void preferOthers() noexcept override {}

 private:
  void ended(Result<Established> result) {
    // The search that follows the subscription asks once more, so nothing is lost without memory.
    ifThereIsMemory([&] {
      if (result.has_value()) {
        listen(*result);
      }
    });
    // Last: it may destroy this.
    Handler handler = std::move(handler_);
    handler(std::move(result));
  }
  void listen(const Established& established);

  Loop& loop_;
  LinkSettings settings_;
  Handler handler_;
  std::unique_ptr<Connector> connector_;
  std::uint64_t moves_ = 0;  ///< that were heard of before the Sentinels were asked
};

void AnySentinel::listen(const Established& established) {
  const std::string& node = established.session->node;
  const auto at = std::find_if(
      settings_.endpoints.begin(), settings_.endpoints.end(), [&](const Endpoint& endpoint) {
        return toString(endpoint) == node;
      });
  if (at == settings_.endpoints.end()) {
    return;
  }
  const SentinelAnswer& answer = *established.sentinel;
  const bool moved =
      settings_.sentinels->list.listensTo(*at, answer, moves_, std::chrono::steady_clock::now());
  if (moved && settings_.log) {
    settings_.log->write(LogLevel::info,
                         "the Sentinel " + node + " says that the master is " +
                             toString(*answer.master) + " now, which was not heard");
  }
}

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
