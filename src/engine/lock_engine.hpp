// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/delayed_calls.hpp"
#include "engine/outage_log.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/thread_owner.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/waiter_hub.hpp>
#include <rlock/detail/engine/watchdog.hpp>
#include <rlock/detail/executor/dispatcher.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/marker_pool.hpp>
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
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rlock::detail {

struct LabelNote;

/// Where a handler runs.
enum class HandlerPlace : std::uint8_t {
  application,  ///< on Options::executor if there is one
  loop          ///< on the loop thread: part of the library's own work
};

/// What the library does for all locks of one client together: it keeps the ledger of holds, renews
/// them, announces losses, and wakes waiters. The tasks of acquire_task.hpp and release_task.hpp
/// are written on top of it.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
/// Locks are taken one at a time; nothing of the application runs under one.
class LockEngine final : public std::enable_shared_from_this<LockEngine>,
                         public ThreadEndListener,
                         private DispatcherEvents {
 public:
  using Clock = std::chrono::steady_clock;

  /// Numbers behind Stats; relaxed, they order nothing.
  struct Counters {
    std::atomic<std::uint64_t> acquired{0}, contended{0}, refused{0}, released{0}, renewals{0},
        renewalFailures{0}, lost{0}, lostReplies{0}, undone{0}, messages{0}, wakeUps{0},
        safetyPolls{0}, handlerFailures{0};
  };

  LockEngine(std::string clientId,
             const Options& options,
             std::shared_ptr<const Logger> log,
             std::shared_ptr<Env> env,
             const net::Transports& transports);
  ~LockEngine() override;

  /// Starts connecting. `ready` runs on the loop when the first attempt is over. Loop thread.
  void open(UniqueFunction<void(Result<void>)> ready);

  /// Ends every waiting call and every hold's validity, gives back what is held, and calls `done`
  /// on the loop when the server has answered or `deadline` is reached. Loop thread.
  void shutDown(Clock::time_point deadline, UniqueFunction<void()> done);
  /// Ends the connections, and with them what is under way. Loop thread, after shutDown(); again
  /// has no effect.
  void disconnect() noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  /// From here on new calls fail with `closed`, and every hold is invalid.
  void markClosed() noexcept;

  [[nodiscard]] const std::string& clientId() const noexcept { return clientId_; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const std::shared_ptr<Env>& env() const noexcept { return env_; }
  [[nodiscard]] Clock::time_point now() const noexcept { return env_->now(); }
  [[nodiscard]] Dispatcher& dispatcher() noexcept { return *dispatcher_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] const std::shared_ptr<MarkerPool>& markers() const noexcept { return markers_; }
  [[nodiscard]] const Logger& log() const noexcept { return *log_; }
  /// Whether the caller is to write about this, or it is only counted.
  [[nodiscard]] bool tells(OutageLog::Event event, std::size_t times = 1) noexcept;
  [[nodiscard]] std::string ownerField(OwnerId owner) const;
  [[nodiscard]] Stats stats() const;

  /// How long a call without a time limit of its own may take.
  [[nodiscard]] std::chrono::milliseconds callTimeout() const noexcept;
  /// Why no call can be made now, or nothing. `blocking` calls are refused on the loop thread.
  [[nodiscard]] std::optional<Error> refuse(bool blocking) const;
  ///@{
  /// Counts the operations under way.
  void operationBegins() noexcept { operations_.fetch_add(1, std::memory_order_relaxed); }
  void operationEnds() noexcept { operations_.fetch_sub(1, std::memory_order_relaxed); }
  ///@}
  /// Why one that is counted already must not go on, or nothing.
  [[nodiscard]] std::optional<Error> tooMany() const;

  // Holds.
  struct Gate {
    HoldPtr hold;
    bool entered = false;
    int count = 0;  ///< countOf() when it was entered
  };
  Gate enter(const std::shared_ptr<const LockScripts>& scripts, OwnerId owner, GateWaiter& waiter);
  /// The hold whose gate was passed to a waiter.
  [[nodiscard]] HoldPtr entry(const std::shared_ptr<const LockScripts>& scripts, OwnerId owner);
  /// How often a hold that is not lost is held.
  [[nodiscard]] int countOf(const Hold& hold) const;
  void leave(Hold& hold);
  bool withdraw(Hold& hold, GateWaiter& waiter) noexcept;
  /// Whether this owner holds the lock, on whichever side, as far as this client knows.
  [[nodiscard]] bool holds(std::string_view name, OwnerId owner) const;
  /// Another owner that holds what these scripts are for, as far as this client knows.
  [[nodiscard]] std::optional<OwnerId> anotherHolder(const LockScripts& scripts,
                                                     OwnerId owner) const;
  /// Whether this owner has a hold that shuts out everybody else who wants the lock by these
  /// scripts, renewed until it is released.
  [[nodiscard]] bool keeps(const LockScripts& scripts, OwnerId owner) const;

  struct GrantTerms {
    Clock::time_point sentAt;
    std::chrono::milliseconds lease;
    bool watched = true;
    std::optional<std::chrono::nanoseconds> maxHold;
    bool wantsHandle = false;
    int afresh = 0;  ///< AcquireParams::afresh
    std::string_view label;
    HoldPlaces kept{};  ///< AcquireReply::kept
  };
  /// Books a grant, and returns the handle if one is wanted. The gate must be held.
  /// @param before  holds before the request
  /// @param count   holds now, says the server
  IntrusivePtr<HoldHandle> granted(Hold& hold, int before, int count, const GrantTerms& terms);
  /// What a release is to do.
  struct ReleasePlan {
    bool nothing = false;  ///< what it is about is over: nothing may be sent
    bool all = false;   ///< the hold is lost: what is left of it goes, however often it was taken
    bool lost = false;  ///< what it is about is lost, so that nobody is told that it is released
    int before = 0;     ///< holds before the request
    int place = 0;      ///< ReleaseRequest::place
    std::chrono::milliseconds restore{0};  ///< the lease to restore if holds remain; zero: leave it
  };
  /// A release is about to be sent: the last hold is not renewed from here on. The gate must be
  /// held.
  /// @param line  ReleaseTarget::line
  ReleasePlan releasing(Hold& hold, std::uint64_t line);
  /// As releasing() would find that there is nothing to release, whatever is under way.
  [[nodiscard]] bool isOver(const LockScripts& scripts, OwnerId owner, std::uint64_t line) const;
  /// A release was not executed after all.
  void notReleased(Hold& hold);
  /// What a release came to.
  struct Release {
    std::uint64_t line = 0;  ///< ReleaseTarget::line
    int remain = 0;          ///< 0: nothing is held any more
    /// The server knew of no hold where there should have been one; the hold as a whole is lost
    /// only if none remains.
    bool lost = false;
    HoldPlaces places{};  ///< ReleaseReply::kept
  };
  void released(Hold& hold, const Release& release);
  /// The holds that remain last so long by the server's clock, as a request sent at `sentAt` says.
  void limit(Hold& hold, Clock::time_point sentAt, std::chrono::milliseconds remaining);
  /// Whether a hold was valid at some time in the past.
  [[nodiscard]] bool wasValidAt(const Hold& hold, Clock::time_point when) const;
  /// When a hold is over at the latest unless renewed.
  [[nodiscard]] Clock::time_point endOf(const Hold& hold) const;
  /// The permit with this id is about to get another lease; if it is held as an object, that one
  /// follows. Null: it is not. `sentAt` is a moment before the request is sent.
  [[nodiscard]] HoldPtr changingLease(std::string_view semaphore,
                                      std::string_view id,
                                      Clock::time_point sentAt,
                                      std::chrono::milliseconds lease,
                                      bool watched);
  /// The answer.
  /// @param taken  there is such a permit
  void leaseChanged(Hold& hold,
                    Clock::time_point sentAt,
                    std::chrono::milliseconds lease,
                    bool taken);
  /// This client freed the lock by force, with a request sent at `sentAt`: its own holders are
  /// told.
  void forced(const LockScripts& scripts, Clock::time_point sentAt);
  /// A thread ended that may hold locks.
  void threadEnded(OwnerId owner) noexcept override;

  // Waiters.
  [[nodiscard]] WaiterHub::Mark mark(std::string_view channel, std::uint8_t lane) const;
  [[nodiscard]] WaiterHub::Mark expect(std::string_view channel, std::uint8_t lane);
  void queue(Waiter& waiter,
             const WaitTerms& terms,
             std::optional<WaiterHub::Mark> mark,
             bool tried,
             std::chrono::milliseconds remaining);
  void leaveQueue(Waiter& waiter, bool obtained, std::chrono::milliseconds lease) noexcept;
  /// A request is under way that gives something back which nobody else can give back. Closing
  /// waits for its end.
  void deliveryBegan() noexcept { deliveries_.fetch_add(1, std::memory_order_relaxed); }
  void deliveryEnded() noexcept;

  /// A waiter may have a place in a queue on the server from here on. Closing waits for it to
  /// leave.
  /// @param place  names the owner's place in the queue, which all waiters of the owner share
  void placeTaken(const std::string& place);
  /// The waiter needs it no more; returns whether no other waiter does. placeLeft() follows.
  bool placeAbandoned(const std::string& place) noexcept;
  /// It has left, or cannot.
  void placeLeft() noexcept;

  /// Runs application code on the callback thread; what it throws is logged and counted.
  void deliver(UniqueFunction<void()> function,
               HandlerPlace place = HandlerPlace::application) noexcept
      RLOCK_EXCLUDES(holdsMutex_, hubMutex_, placesMutex_);
  /// As deliver(), for a call that is refused before it begins: works without a loop, too.
  void reject(UniqueFunction<void()> function,
              HandlerPlace place = HandlerPlace::application) noexcept;
  /// Calls `function` exactly once on the loop thread: at `when`, or when the client is closed; on
  /// any thread where there is no loop any more.
  void callAt(Clock::time_point when, UniqueFunction<void()> function);

  /// Fills in what an error does not know yet.
  [[nodiscard]] Error describe(Error error,
                               const LockScripts& scripts,
                               OwnerId owner,
                               Clock::time_point since) const;

 private:
  static const LockScripts& scriptsOf(const Hold& hold) noexcept {
    return *static_cast<const LockScripts*>(hold.keepAlive.get());
  }
  static bool mayObtain(const Hold& hold) noexcept;

  struct Handout;
  class PassedTurns;
  class RenewalBatch;
  class ClosingRelease;
  class HoldCheck;
  class LabelCall;
  /// A hold that may be over, as it was when the doubt arose.
  struct Doubt {
    HoldPtr hold;
    Clock::time_point grantedAt;
    int repeats = 3;  ///< when something goes on meanwhile
  };

  void reconnected() override;
  void channelConfirmed(const std::string& channel) override;
  void channelRefused(const std::string& channel, const Error& error) override;
  void channelMessage(const std::string& channel, std::string_view payload) override;
  void channelsLost() override;

  void dismissFromGates() noexcept RLOCK_EXCLUDES(holdsMutex_, hubMutex_);
  void giveTurns(WaiterHub::Turns turns) noexcept RLOCK_EXCLUDES(holdsMutex_, hubMutex_);
  void passToLoop(WaiterHub::Turns& turns) noexcept;
  [[nodiscard]] bool hubNeedsLoop() noexcept RLOCK_REQUIRES(hubMutex_);
  void wakeHub() noexcept RLOCK_EXCLUDES(holdsMutex_, hubMutex_);
  void serveHub();
  void serveWatchdog();
  [[nodiscard]] bool watchdogNeedsLoop() RLOCK_REQUIRES(holdsMutex_);
  void wakeWatchdog();
  [[nodiscard]] bool needsToListen() RLOCK_REQUIRES(holdsMutex_);
  void serveListening();
  void heardOfForce(std::string_view name);
  void check(std::vector<Doubt> holds);
  void holdIsGone(Doubt doubt);
  void closingReleaseDone();
  void releaseToClose(const std::vector<HoldPtr>& holds);
  void noteLabel(const Hold& hold, const std::string& label, std::chrono::milliseconds atLeast);
  void noteLabels(std::vector<LabelNote> notes);
  void endClosing(bool inTime) RLOCK_EXCLUDES(holdsMutex_, hubMutex_);
  void renew(std::vector<HoldPtr> holds);
  void startRenewal(IntrusivePtr<RenewalBatch> batch);
  bool splitRenewal(const RenewalBatch& batch, const Outcome& outcome);
  void sendRenewal(IntrusivePtr<RenewalBatch> batch);
  void renewalEnded();
  void serveRenewals();
  void renewalDone(RenewalBatch& batch, Outcome outcome);
  void announce(std::vector<Watchdog::Lost> lost) RLOCK_EXCLUDES(holdsMutex_, hubMutex_);
  void announceOnLoop(std::vector<Watchdog::Lost> lost);
  void tellLost(const Watchdog::Lost& lost) RLOCK_EXCLUDES(holdsMutex_, hubMutex_);
  /// Gives back what the server may still have of a lost hold.
  void giveBack(const Watchdog::Lost& lost);
  static std::vector<HoldPart>::iterator partOf(Hold& hold, std::uint64_t line);
  /// holdsMutex_ is held, by which all of a Hold is guarded.
  void keepParts(Hold& hold,
                 const HoldPlaces& places,
                 int count,
                 std::vector<Watchdog::Lost>& losses);
  int partReleased(Hold& hold, const Release& release, std::vector<Watchdog::Lost>& losses)
      RLOCK_REQUIRES(holdsMutex_);
  void runGuarded(UniqueFunction<void()>& function) noexcept
      RLOCK_EXCLUDES(holdsMutex_, hubMutex_, placesMutex_);
  void serveCalls();
  void summariseOutage(Clock::time_point when);

  const std::string clientId_;
  const std::string clientChannel_;
  const Options options_;
  const std::shared_ptr<const Logger> log_;
  const std::uint32_t forkGeneration_;
  std::atomic<bool> closed_{false};
  std::atomic<int> operations_{0};
  Counters counters_;
  const std::shared_ptr<Env> env_;
  const std::shared_ptr<Dispatcher> dispatcher_;
  const std::shared_ptr<MarkerPool> markers_;

  mutable AnnotatedMutex holdsMutex_;
  HoldLedger ledger_ RLOCK_GUARDED_BY(holdsMutex_);
  std::uint64_t lines_ RLOCK_GUARDED_BY(holdsMutex_) = 0;
  /// Requests under way that may obtain something.
  std::size_t unsettled_ RLOCK_GUARDED_BY(holdsMutex_) = 0;
  /// Granted while closing, to be given back.
  std::vector<HoldPtr> late_ RLOCK_GUARDED_BY(holdsMutex_);
  /// To be signalled.
  std::vector<IntrusivePtr<HoldHandle>> invalidated_ RLOCK_GUARDED_BY(holdsMutex_);
  Watchdog watchdog_ RLOCK_GUARDED_BY(holdsMutex_);
  Clock::time_point watchdogArmed_ RLOCK_GUARDED_BY(holdsMutex_) = Clock::time_point::max();
  /// To clientChannel_, or about to.
  bool listening_ RLOCK_GUARDED_BY(holdsMutex_) = false;

  mutable AnnotatedMutex hubMutex_;
  WaiterHub hub_ RLOCK_GUARDED_BY(hubMutex_);
  Clock::time_point hubArmed_ RLOCK_GUARDED_BY(hubMutex_) = Clock::time_point::max();
  bool hubChangesPosted_ RLOCK_GUARDED_BY(hubMutex_) = false;
  std::atomic<bool> hubIdle_{true};
  OutageLog outage_;
  std::atomic<std::size_t> deliveries_{0};
  std::atomic<std::size_t> places_{0};
  AnnotatedMutex placesMutex_;
  std::unordered_map<std::string, std::size_t> placeSharers_ RLOCK_GUARDED_BY(placesMutex_);

  // Loop thread only.
  net::RequestQueue renewals_;  // that wait for their turn
  int renewalsUnderWay_ = 0;
  bool servingRenewals_ = false;
  const std::unique_ptr<Timer> watchdogTimer_;
  const std::unique_ptr<Timer> hubTimer_;
  const std::unique_ptr<Timer> listenTimer_;
  bool subscribedToSelf_ = false;
  std::uint64_t acquiredBefore_ = 0;
  Clock::time_point heldLast_{};
  DelayedCalls delayed_;  // its methods say which threads may call them
  std::unique_ptr<Timer> closeTimer_;
  Clock::time_point closeBy_{};
  std::size_t closingReleases_ = 0;
  UniqueFunction<void()> closingDone_;
};

}  // namespace rlock::detail
