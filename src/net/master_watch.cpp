// SPDX-License-Identifier: Apache-2.0
#include "net/master_watch.hpp"

#include "net/connection_source.hpp"
#include "net/sentinel_access.hpp"
#include <rlock/detail/base/no_memory.hpp>

#include <exception>
#include <optional>
#include <utility>

namespace rlock::detail::net {

namespace {

constexpr const char* kSwitchChannel = "+switch-master";

LinkSettings toSentinels(const std::shared_ptr<SentinelAccess>& access) {
  LinkSettings settings = access->settings;
  settings.sentinels = access;
  settings.mustKnowMaster = true;
  return settings;
}

}  // namespace

MasterWatch::MasterWatch(std::shared_ptr<Loop> loop, const LinkSettings& settings)
    : loop_(std::move(loop)),
      access_(settings.sentinels),
      log_(settings.log),
      pause_(settings.reconnectDelayMax),
      sentinel_(std::make_unique<PubSubLink>(
          loop_, toSentinels(access_), static_cast<PubSubEvents&>(*this))),
      connector_(*loop_, settings, true),
      again_(*loop_, [this] { search(); }) {}

MasterWatch::~MasterWatch() = default;

void MasterWatch::open() {
  // To subscribe again would only have the same Sentinel confirm it, and the master searched for.
  if (users_ == 0) {
    sentinel_->subscribe(kSwitchChannel);
  }
  ++users_;
}

void MasterWatch::close() noexcept {
  if (--users_ > 0) {
    return;
  }
  closed_ = true;
  sentinel_->close();
  connector_.cancel();
  again_.disarm();
}

void MasterWatch::tell(const ServerSession& master) {
  const auto keep = shared_from_this();
  for (std::size_t i = 0; i < followers_.size() && !closed_; ++i) {
    followers_[i](master);
  }
}

void MasterWatch::onSubscribed(const std::string& /*channel*/) {
  refused_ = false;
  // A Sentinel may have spoken while nobody listened, also since a search has begun. It does not
  // say so again, so that what was found just now must not answer for it.
  access_->list.doubt();
  // A search that is under way goes on, and another follows. Subscriptions that do not last would
  // otherwise keep it from ever reaching a master that is slow to answer.
  repeat_ = searching_;
  search();
}

void MasterWatch::onMessage(const std::string& /*channel*/, std::string_view payload) {
  if (!isAbout(payload, access_->settings.sentinelMaster)) {
    return;
  }
  // It is said once: what cannot be read, or what there is no memory to read, is a move all the
  // same, and the Sentinels are asked where to.
  std::optional<Endpoint> master;
  ifThereIsMemory([&] {
    master = switchedTo(payload);
    if (log_) {
      log_->write(LogLevel::info,
                  master ? "a Sentinel says that the master is " + toString(*master) + " now"
                         : "a Sentinel says that the master has moved, but not legibly where to");
    }
  });
  // The searches that are under way are judged by it from here on.
  access_->list.hint(std::move(master), std::chrono::steady_clock::now());
  searching_ = false;
  repeat_ = false;
  search();
}

void MasterWatch::onRefused(const std::string& /*channel*/, const Error& error) {
  const bool others = access_->list.refused();
  if (others) {
    sentinel_->leave();
  }
  const LogLevel level = std::exchange(refused_, true) ? LogLevel::debug : LogLevel::warning;
  if (log_) {
    log_->write(level,
                std::string("a Sentinel does not say when the master moves") +
                    (others ? ", trying another: " : ": ") + error.what());
  }
}

void MasterWatch::onDown(const Error& error) {
  if (log_) {
    log_->write(LogLevel::debug, std::string("no Sentinel is heard: ") + error.what());
  }
}

void MasterWatch::search() noexcept {
  if (closed_ || searching_) {
    return;
  }
  again_.disarm();
  try {
    connector_.start([this](Result<Established> result) {
      const auto keep = shared_from_this();
      searching_ = false;
      const bool repeat = std::exchange(repeat_, false);
      if (result.has_value()) {
        failing_ = false;
        tell(*result->session);
      } else {
        searchLater(result.error());
      }
      if (repeat) {
        // The one that has just ended may have found a master of before the move that was missed.
        access_->list.doubt();
        search();
      }
    });
    // Not before: a search that could not begin has no end.
    searching_ = true;
  } catch (const std::exception& error) {
    searchLater(attemptFailure(error));
  }
}

/// Nobody else would search: the Sentinel has said what it had to say, and a master that is cut off
/// from the Sentinels may keep its connections for as long as it lives.
void MasterWatch::searchLater(const Error& why) noexcept {
  again_.armAt(std::chrono::steady_clock::now() + pause_);
  const LogLevel level = std::exchange(failing_, true) ? LogLevel::debug : LogLevel::warning;
  if (log_) {
    ifThereIsMemory([&] {
      log_->write(level, std::string("looked for the master in vain, trying again: ") + why.what());
    });
  }
}

}  // namespace rlock::detail::net
