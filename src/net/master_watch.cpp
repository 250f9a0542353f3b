// SPDX-License-Identifier: Apache-2.0
#include "net/master_watch.hpp"

#include "net/sentinel_access.hpp"
#include <rlock/log.hpp>

#include <chrono>
#include <exception>
#include <utility>

namespace rlock::detail::net {

namespace {

constexpr const char* kSwitchChannel = "+switch-master";

LinkSettings toSentinels(const std::shared_ptr<SentinelAccess>& access) {
  LinkSettings settings = access->settings;
  settings.sentinels = access;
  return settings;
}

}  // namespace

MasterWatch::MasterWatch(std::shared_ptr<Loop> loop, const LinkSettings& settings)
    : loop_(std::move(loop)),
      access_(settings.sentinels),
      log_(settings.log),
      sentinel_(std::make_unique<PubSubLink>(
          loop_, toSentinels(access_), static_cast<PubSubEvents&>(*this))),
      connector_(*loop_, settings, true) {}

MasterWatch::~MasterWatch() = default;

void MasterWatch::open() {
  sentinel_->subscribe(kSwitchChannel);
}

void MasterWatch::close() noexcept {
  closed_ = true;
  sentinel_->close();
  connector_.cancel();
}

void MasterWatch::tell(const ServerSession& master) {
  const auto keep = shared_from_this();
  for (std::size_t i = 0; i < followers_.size() && !closed_; ++i) {
    followers_[i](master);
  }
}

void MasterWatch::onSubscribed(const std::string& /*channel*/) {
  // A Sentinel may have spoken while nobody listened.
  search();
}

void MasterWatch::onMessage(const std::string& /*channel*/, std::string_view payload) {
  if (auto master = switchedTo(payload, access_->settings.sentinelMaster)) {
    if (log_) {
      log_->write(LogLevel::info,
                  "a Sentinel says that the master is " + toString(*master) + " now");
    }
    access_->list.hint(*std::move(master), std::chrono::steady_clock::now());
    searching_ = false;
    search();
  }
}

void MasterWatch::onRefused(const std::string& /*channel*/, const Error& error) {
  if (log_) {
    log_->write(LogLevel::warning,
                std::string("a Sentinel does not say when the master moves: ") + error.what());
  }
}

void MasterWatch::onDown(const Error& error) {
  if (log_) {
    log_->write(LogLevel::debug, std::string("no Sentinel is heard: ") + error.what());
  }
}

void MasterWatch::search() {
  if (closed_ || searching_) {
    return;
  }
  connector_.start([this](Result<Established> result) {
    const auto keep = shared_from_this();
    searching_ = false;
    if (result.has_value()) {
      tell(*result->session);
    }
  });
  // Not before: a search that could not begin has no end.
  searching_ = true;
}

}  // namespace rlock::detail::net
