// SPDX-License-Identifier: Apache-2.0
#include "net/master_connector.hpp"

#include "net/connector.hpp"
#include "net/sentinel_access.hpp"
#include <rlock/detail/net/master_search.hpp>
#include <rlock/log.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail::net {

/// One start() of a MasterConnector.
///
/// Loop thread only; its callbacks are the handlers of its Connectors and its timer. A Connector is
/// destroyed before anything else is done about its outcome, so that none can report twice. The
/// handler is called once, as the last thing, or not at all after cancel().
class MasterConnector::Search : public std::enable_shared_from_this<Search> {
 public:
  Search(Loop& loop, std::shared_ptr<const LinkSettings> settings, bool probeKill)
      : loop_(loop),
        settings_(std::move(settings)),
        access_(settings_->sentinels),
        probeKill_(probeKill),
        startedAt_(Clock::now()),
        deadline_(startedAt_ + settings_->connectTimeout),
        decisions_(access_->list, access_->settings.sentinelMaster, startedAt_, deadline_),
        timer_(loop, [this] { goOn(); }) {}

  /// Before goOn().
  void onEnd(Handler&& handler) noexcept { handler_ = std::move(handler); }
  void goOn() noexcept;
  void cancel() noexcept;

 private:
  using Clock = MasterSearch::Clock;
  using Action = MasterSearch::Action;
  struct Attempt {
    Endpoint endpoint;
    std::unique_ptr<Connector> connector;
  };
  using Attempts = std::vector<Attempt>;
  using Outcome = void (Search::*)(const Endpoint&, Result<Established>);

  void perform();
  void connect(Attempts& attempts,
               const Endpoint& endpoint,
               const LinkSettings& to,
               bool probeKill,
               Outcome outcome);
  void asked(const Endpoint& sentinel, Result<Established> result);
  void verified(const Endpoint& candidate, Result<Established> result);
  void finish(Result<Established> result);
  void stop() noexcept;
  static void erase(Attempts& attempts, const Endpoint& endpoint) noexcept;

  Loop& loop_;
  const std::shared_ptr<const LinkSettings> settings_;
  const std::shared_ptr<SentinelAccess> access_;
  const bool probeKill_;
  Handler handler_;
  const Clock::time_point startedAt_;
  const Clock::time_point deadline_;
  MasterSearch decisions_;
  Timer timer_;
  bool done_ = false;
  Attempts asking_;
  Attempts verifying_;
};

/// An exception here would leave nobody to go on: the search ends with it.
void MasterConnector::Search::goOn() noexcept {
  const auto keep = shared_from_this();
  if (done_) {
    return;
  }
  try {
    perform();
  } catch (const std::exception& error) {
    finish(attemptFailure(error));
  }
}

void MasterConnector::Search::perform() {
  for (;;) {
    const Action action = decisions_.next(Clock::now());
    switch (action.kind) {
      case Action::Kind::ask:
        connect(asking_, action.endpoint, access_->settings, false, &Search::asked);
        break;
      case Action::Kind::verify:
        connect(verifying_, action.endpoint, *settings_, probeKill_, &Search::verified);
        break;
      case Action::Kind::drop:
        erase(verifying_, action.endpoint);
        break;
      case Action::Kind::wait:
        timer_.armAt(action.until);
        return;
      case Action::Kind::over: {
        ErrorContext context;
        context.elapsed =
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - startedAt_);
        finish(decisions_.failure().withContext(context));
        return;
      }
    }
  }
}

void MasterConnector::Search::connect(Attempts& attempts,
                                      const Endpoint& endpoint,
                                      const LinkSettings& to,
                                      bool probeKill,
                                      Outcome outcome) {
  LinkSettings settings = to;
  settings.endpoints = {endpoint};
  settings.sentinels = nullptr;
  // It reports in time for the error of the whole to say what was missing.
  settings.connectTimeout =
      std::max(std::chrono::floor<std::chrono::milliseconds>(deadline_ - Clock::now()) -
                   std::chrono::milliseconds(5),
               std::chrono::milliseconds(1));
  Attempt& attempt = attempts.emplace_back(
      Attempt{endpoint, std::make_unique<Connector>(loop_, std::move(settings), probeKill)});
  attempt.connector->start(
      [weak = weak_from_this(), endpoint, outcome](Result<Established> result) {
        if (const auto self = weak.lock(); self && !self->done_) {
          try {
            ((*self).*outcome)(endpoint, std::move(result));
          } catch (const std::exception& error) {
            self->finish(attemptFailure(error));
          }
        }
      });
}

void MasterConnector::Search::asked(const Endpoint& sentinel, Result<Established> result) {
  // First, so that this Connector cannot report once more while the decisions go on.
  erase(asking_, sentinel);
  const auto now = Clock::now();
  if (result.has_value()) {
    const SentinelAnswer& answer = *result->sentinel;
    if (settings_->log && settings_->log->enabled(LogLevel::debug)) {
      settings_->log->write(LogLevel::debug,
                            "Sentinel " + toString(sentinel) + " says that the master is " +
                                (answer.master ? toString(*answer.master) : "unknown to it"));
    }
    decisions_.answered(sentinel, answer, now);
  } else {
    decisions_.failed(sentinel, result.error(), now);
  }
  goOn();
}

void MasterConnector::Search::verified(const Endpoint& candidate, Result<Established> result) {
  erase(verifying_, candidate);
  const auto now = Clock::now();
  std::optional<Error> why;
  if (result.has_value()) {
    why = decisions_.objection(candidate, now);
  } else {
    why = result.error();
  }
  if (!why) {
    // The connection itself has said that it leads to a master; the Sentinels may be late.
    access_->list.found(candidate, now);
    finish(std::move(result));
    return;
  }
  if (result.has_value() && settings_->log && settings_->log->enabled(LogLevel::debug)) {
    settings_->log->write(
        LogLevel::debug,
        toString(candidate) + " says that it is the master, but " + why->message());
  }
  decisions_.refuted(candidate, *why, now);
  goOn();
}

void MasterConnector::Search::erase(Attempts& attempts, const Endpoint& endpoint) noexcept {
  std::erase_if(attempts, [&](const Attempt& each) { return each.endpoint == endpoint; });
}

void MasterConnector::Search::stop() noexcept {
  timer_.disarm();
  asking_.clear();
  verifying_.clear();
}

void MasterConnector::Search::cancel() noexcept {
  done_ = true;
  stop();
  // Last: the handler may own what owns this search.
  const Handler dropped = std::move(handler_);
}

void MasterConnector::Search::finish(Result<Established> result) {
  if (done_) {
    return;
  }
  // The handler may drop the connector and with it the last reference to this.
  const auto keep = shared_from_this();
  done_ = true;
  stop();
  Handler handler = std::move(handler_);
  if (handler) {
    handler(std::move(result));
  }
}

MasterConnector::MasterConnector(Loop& loop, LinkSettings settings, bool probeKill)
    : loop_(loop),
      settings_(std::make_shared<const LinkSettings>(std::move(settings))),
      probeKill_(probeKill) {}

MasterConnector::~MasterConnector() {
  cancel();
}

void MasterConnector::start(Handler&& handler) {
  cancel();
  auto search = std::make_shared<Search>(loop_, settings_, probeKill_);
  // Not at once: the handler must not run before start() has returned.
  loop_.post([weak = std::weak_ptr<Search>(search)] {
    if (const auto self = weak.lock()) {
      self->goOn();
    }
  });
  // Last, for all of that may throw.
  search->onEnd(std::move(handler));
  search_ = std::move(search);
}

void MasterConnector::cancel() noexcept {
  if (const auto search = std::move(search_)) {
    search->cancel();
  }
}

}  // namespace rlock::detail::net
