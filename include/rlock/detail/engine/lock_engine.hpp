// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/thread_owner.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/callbacks.hpp>
#include <rlock/detail/engine/closing.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/force_listener.hpp>
#include <rlock/detail/engine/hold_book.hpp>
#include <rlock/detail/engine/hold_events.hpp>
#include <rlock/detail/engine/hold_gates.hpp>
#include <rlock/detail/engine/hold_keeper.hpp>
#include <rlock/detail/engine/hold_labels.hpp>
#include <rlock/detail/engine/loss_teller.hpp>
#include <rlock/detail/engine/outage_report.hpp>
#include <rlock/detail/engine/recent_losses.hpp>
#include <rlock/detail/engine/renewals.hpp>
#include <rlock/detail/engine/waiting_room.hpp>
#include <rlock/detail/executor/dispatcher.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>
#include <rlock/stats.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The work that the library does for all locks of one client, put together from its parts: the
/// waiting room, the gates and the keeper of the holds, what happens to them, renewals and losses,
/// callbacks, closing. The tasks of acquire_task.hpp and release_task.hpp are written on top of it.
///
/// The engine itself only passes on what comes from the dispatcher and from ending threads, and
/// opens and closes its parts in order. A part knows the EngineContext and the parts it tells
/// something, never the engine; they are declared in that order.
///
/// At most one mutex of the engine is held at a time, HoldBook::mutex or one that is private to a
/// part, and nothing of the application runs meanwhile.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
class LockEngine final : private DispatcherEvents, public ThreadEndListener, public EngineContext {
 public:
  LockEngine(std::string clientId,
             const Options& options,
             std::shared_ptr<const Logger> log,
             std::shared_ptr<Env> env,
             const net::Transports& transports);

  [[nodiscard]] WaitingRoom& waiting() noexcept { return waiting_; }
  [[nodiscard]] HoldGates& gates() noexcept { return gates_; }
  [[nodiscard]] HoldKeeper& holds() noexcept { return holds_; }
  [[nodiscard]] const HoldKeeper& holds() const noexcept { return holds_; }
  [[nodiscard]] HoldEvents& events() noexcept { return events_; }
  [[nodiscard]] Callbacks& callbacks() noexcept { return callbacks_; }
  [[nodiscard]] OutageReport& outages() noexcept { return outages_; }
  [[nodiscard]] const RecentLosses& recentLosses() noexcept { return losses_.recent(); }
  [[nodiscard]] Closing& closing() noexcept { return closing_; }

  [[nodiscard]] Stats stats() const;

  /// Starts connecting. `ready` runs on the loop when the first attempt is over. Loop thread.
  void open(UniqueFunction<void(Result<void>)> ready);

  /// From here on new calls fail with `closed`, and every hold is invalid.
  void markClosed() noexcept;
  /// Tells every waiter that the client is closed, where the loop is late with it. After
  /// markClosed().
  void endWaits() noexcept { waiting_.endWaits(); }
  /// Ends every waiting call and every hold's validity, gives back what is held, and calls `done`
  /// on the loop when the server has answered or `deadline` is reached. Loop thread.
  void shutDown(Clock::time_point deadline, UniqueFunction<void()> done);
  /// Ends the connections, and with them what is under way. Loop thread, after shutDown(); again
  /// has no effect.
  void disconnect() noexcept;

  void threadEnded(OwnerId owner) noexcept override { events_.threadEnded(owner); }

 private:
  void reconnected(bool replaced) override {
    renewals_.renewAll(replaced);
    if (replaced) {
      waiting_.serverReplaced();
    }
  }
  void channelConfirmed(const std::string& channel) override { waiting_.confirmed(channel); }
  void channelRefused(const std::string& channel, const Error& error) override;
  void channelMessage(const std::string& channel, std::string_view payload) override;
  void channelsLost() override { waiting_.disconnected(); }
  void channelLost(const std::string& channel) override { waiting_.disconnected(channel); }
  void connectionChanged(bool connected) override;
  void nodeReconnected(const std::string& node, bool replaced) override;
  void redirected(const Redirected& redirected) override;

  template <class Tell>
  void tellLater(Tell tell);
  /// Releases in the background what the server may still have of a lost hold. Defined with
  /// ReleaseTask, which is built on the engine.
  void giveBack(const std::shared_ptr<const LockScripts>& scripts, ReleaseTarget target);

  Callbacks callbacks_;
  OutageReport outages_;
  HoldBook book_;
  Closing closing_;
  HoldLabels labels_;
  LossTeller losses_;
  ForceListener listener_;
  Renewals renewals_;
  HoldGates gates_;
  HoldKeeper holds_;
  HoldEvents events_;
  WaitingRoom waiting_;
};

inline LockEngine::LockEngine(std::string clientId,
                              const Options& options,
                              std::shared_ptr<const Logger> log,
                              std::shared_ptr<Env> env,
                              const net::Transports& transports)
    : EngineContext(std::move(clientId),
                    options,
                    std::move(log),
                    std::move(env),
                    transports,
                    static_cast<DispatcherEvents&>(*this)),
      callbacks_(*this),
      outages_(*this, callbacks_),
      book_(options.watchdogTimeout),
      closing_(*this, book_),
      labels_(*this, closing_),
      losses_(*this,
              callbacks_,
              outages_,
              book_,
              labels_,
              [this](const std::shared_ptr<const LockScripts>& scripts, ReleaseTarget target) {
                giveBack(scripts, target);
              }),
      listener_(*this, book_, losses_),
      renewals_(*this, book_, losses_, labels_, outages_),
      gates_(*this, book_, listener_, closing_),
      holds_(*this, book_, gates_, renewals_, listener_, losses_, labels_, closing_),
      events_(*this, book_, renewals_, listener_, losses_),
      waiting_(*this) {}

inline void LockEngine::open(UniqueFunction<void(Result<void>)> ready) {
  addThreadEndListener(sharing(*this));
  dispatcher().open(std::move(ready));
}

inline void LockEngine::channelRefused(const std::string& channel, const Error& error) {
  if (channel == listener_.channel()) {
    listener_.refused(error);
  } else {
    waiting_.refused(channel, error);
  }
}

inline void LockEngine::channelMessage(const std::string& channel, std::string_view payload) {
  if (channel == listener_.channel()) {
    listener_.heard(payload);
  } else {
    waiting_.message(channel, payload);
  }
}

/// Not inside the event: whoever waits for the connection comes first.
inline void LockEngine::connectionChanged(bool connected) {
  if (!options().onStateChange || closed()) {
    return;
  }
  const auto state = connected ? ConnectionState::connected : ConnectionState::disconnected;
  try {
    dispatcher().post([self = sharing(*this), state] {
      self->callbacks_.deliver([self, state] { self->options().onStateChange(state); });
    });
  } catch (const std::bad_alloc&) {
    log().write(LogLevel::error, "no memory to tell onStateChange");
  }
}

inline void LockEngine::nodeReconnected(const std::string& node, bool replaced) {
  tellLater([this, node, replaced](Clock::time_point at) {
    telemetry().tell(ReconnectedEvent{node, replaced, at});
  });
}

inline void LockEngine::redirected(const Redirected& redirected) {
  tellLater([this, redirected](Clock::time_point at) {
    telemetry().tell(
        RedirectedEvent{redirected.from, redirected.to, redirected.slot, redirected.moved, at});
  });
}

/// Not inside the event, where the router is in the middle of something.
template <class Tell>
void LockEngine::tellLater(Tell tell) {
  if (!telemetry().listens() || closed()) {
    return;
  }
  try {
    dispatcher().post([self = sharing(*this), tell = std::move(tell), at = now()] { tell(at); });
  } catch (const std::bad_alloc&) {
    log().write(LogLevel::error, "no memory to tell the observer");
  }
}

inline Stats LockEngine::stats() const {
  const auto read = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  Stats stats;
  stats.acquired = read(counters().acquired);
  stats.contended = read(counters().contended);
  stats.refused = read(counters().refused);
  stats.released = read(counters().released);
  stats.renewals = read(counters().renewals);
  stats.renewalFailures = read(counters().renewalFailures);
  stats.lost = read(counters().lost);
  stats.lostReplies = read(counters().lostReplies);
  stats.undone = read(counters().undone);
  stats.messages = read(counters().messages);
  stats.wakeUps = read(counters().wakeUps);
  stats.safetyPolls = read(counters().safetyPolls);
  stats.handlerFailures = read(counters().handlerFailures);
  const Dispatcher::Counters sent = dispatcher().counters();
  stats.commands = sent.commands;
  stats.reconnects = sent.reconnects;
  stats.scriptsLoaded = sent.scriptsLoaded;
  stats.holds = holds_.size();
  const WaitingRoom::Size waiting = waiting_.size();
  stats.waiters = waiting.waiters;
  stats.channels = waiting.channels;
  const Telemetry::Durations& durations = telemetry().durations();
  stats.waits = durations.waits.read();
  stats.holdTimes = durations.holdTimes.read();
  stats.renewalLags = durations.renewalLags.read();
  stats.roundTrips = durations.roundTrips.read();
  return stats;
}

inline void LockEngine::markClosed() noexcept {
  if (setClosed()) {
    events_.invalidateAll();
  }
}

inline void LockEngine::shutDown(Clock::time_point deadline, UniqueFunction<void()> done) {
  markClosed();
  renewals_.stop();
  listener_.stop();
  callbacks_.close();
  waiting_.close();
  gates_.dismissAll();
  // A grant that waits for acknowledgements is given back at once.
  dispatcher().endAcks();
  std::vector<HoldPtr> held;
  try {
    held = events_.loseAll();
  } catch (const std::bad_alloc&) {
    // It ends with its leases.
  }
  closing_.begin(held, deadline, std::move(done));
}

inline void LockEngine::disconnect() noexcept {
  outages_.finish();
  closing_.stop();
  // Without memory there was no shutDown().
  callbacks_.close();
  waiting_.close();
  dispatcher().close();
  // A request that came to a gate since shutDown() would wait for ever, and so would one to which
  // a gate was passed if the loop does not come to it.
  gates_.dismissAll();
  gates_.tellOpened();
}

}  // namespace rlock::detail
