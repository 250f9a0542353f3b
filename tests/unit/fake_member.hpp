// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "unit/fake_env.hpp"
#include "unit/manual_env.hpp"
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/group/group_lock.hpp>
#include <rlock/duration.hpp>
#include <rlock/error.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>
#include <rlock/sync_policy.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

// Groups of members that answer in the test's thread.

namespace rlock::detail::group_test {

using Clock = std::chrono::steady_clock;

/// Work of the loop threads, done in the test's thread.
using Queue = std::deque<UniqueFunction<void()>>;

inline void runAll(Queue& queue) {
  while (!queue.empty()) {
    auto next = std::move(queue.front());
    queue.pop_front();
    next();
  }
}

/// Grants whatever it is asked for, unless it is told not to, and keeps account.
class FakeMember final : public LockMember {
 public:
  FakeMember(std::string name, Queue& queue)
      : FakeMember(std::move(name), queue, queue, std::make_shared<FakeEnv>()) {}
  /// @param later  for what is to be called at a point in time
  FakeMember(std::string name, Queue& queue, Queue& later, std::shared_ptr<Env> env)
      : env_(std::move(env)), name_(std::move(name)), queue_(queue), later_(later) {
    where.name = name_;
  }

  LockPlace where{"node", 0, "", HoldKind::lock, ""};
  LockLimits times{std::chrono::seconds(30),
                   std::chrono::seconds(1),
                   std::chrono::seconds(1),
                   std::chrono::seconds(1)};
  bool kept = false;
  /// Called before it answers a request.
  std::function<void()> onRequest;
  /// Its answer to requests instead of grants.
  std::optional<Result<Acquired>> instead;
  /// How long it was to wait, for each request.
  std::vector<Duration> waits;
  /// The policy of the latest request.
  std::optional<SyncPolicy> sync;
  /// Whether the latest request had been stopped when it came.
  bool cameStopped = false;
  /// Stops when the latest request is to be given up.
  std::stop_token stop;
  /// Called in the moment of a grant.
  std::function<void()> onGrant;
  IntrusivePtr<HoldHandle> last;
  std::vector<IntrusivePtr<HoldHandle>> grants;
  /// Its answer to a release, if it refuses.
  std::optional<Error> refusal;
  /// Where its answers to releases wait, if not with the others.
  Queue* releases = nullptr;
  /// So many releases, and so many in the background, that there is no memory to begin.
  int failingReleases = 0;
  int failingQuietReleases = 0;
  int granted = 0;
  int released = 0;
  int releasedQuietly = 0;
  int releasesThatMustGo = 0;

  void loseAll(LossReason reason) {
    for (const auto& hold : grants) {
      if (hold->markLost(reason)) {
        hold->signalLoss();
      }
    }
  }

  const std::string& name() const noexcept override { return name_; }
  LockPlace place() const override { return where; }

  void acquireAsync(AcquireParams params, Handler<Acquired> handler) override {
    waits.push_back(params.wait);
    sync = params.sync;
    cameStopped = params.stop.stop_requested();
    stop = params.stop;
    const Duration lease = params.lease.value_or(times.watchdogTimeout);
    queue_.push_back([this, lease, handler = std::move(handler)]() mutable {
      if (onRequest) {
        onRequest();
      }
      if (instead) {
        handler(*instead);
        return;
      }
      last = makeIntrusive<HoldHandle>(static_cast<std::uint64_t>(++granted));
      last->setValidUntil(now() + lease.nanoseconds());
      grants.push_back(last);
      if (onGrant) {
        onGrant();
      }
      handler(Acquired(Grant{last, {}, 1}));
    });
  }
  void releaseAsync(ReleaseTarget target, Handler<ReleaseOutcome> handler) override {
    failIfLeft(failingReleases);
    releasesThatMustGo += target.mustGo ? 1 : 0;
    Queue& queue = releases != nullptr ? *releases : queue_;
    queue.push_back([this, handler = std::move(handler)]() mutable {
      ++released;
      handler(refusal ? Result<ReleaseOutcome>(*refusal) : ReleaseOutcome::released);
    });
  }
  void releaseQuietly(ReleaseTarget /*target*/) override {
    failIfLeft(failingQuietReleases);
    ++releasedQuietly;
  }
  void callAt(Clock::time_point /*when*/, UniqueFunction<void()> function) override {
    later_.push_back(std::move(function));
  }
  void runHandler(UniqueFunction<void()> handler) override { queue_.push_back(std::move(handler)); }
  const std::shared_ptr<Env>& env() const noexcept override { return env_; }
  Clock::time_point now() const noexcept override { return env_->now(); }
  LockLimits limits() const override { return times; }
  bool refusesBlocking() const noexcept override { return false; }
  bool keeps(OwnerId /*owner*/) const override { return kept; }

  // Not asked.
  Result<Acquired> acquire(AcquireParams /*params*/) override { return none(); }
  Result<ReleaseOutcome> release(ReleaseTarget /*target*/) override { return none(); }
  Result<bool> forceRelease() override { return none(); }
  void forceReleaseAsync(Handler<bool> /*handler*/) override {}
  Result<bool> isLocked() override { return none(); }
  void isLockedAsync(Handler<bool> /*handler*/) override {}
  Result<int> holdCount(OwnerId /*owner*/) override { return none(); }
  void holdCountAsync(OwnerId /*owner*/, Handler<int> /*handler*/) override {}
  Result<TimeToLive> timeToLive() override { return none(); }
  void timeToLiveAsync(Handler<TimeToLive> /*handler*/) override {}

 private:
  static Error none() { return Error(Errc::serverError, "not asked"); }
  static void failIfLeft(int& failures) {
    if (failures > 0) {
      --failures;
      throw std::bad_alloc();
    }
  }

  const std::shared_ptr<Env> env_;
  const std::string name_;
  Queue& queue_;
  Queue& later_;
};

using Answer = Result<LockBackend::Acquired>;

inline Answer refused() {
  return LockBackend::Acquired();
}
inline Answer away() {
  return Error(Errc::connectionFailed, "away");
}
inline Answer stopped() {
  return Error(Errc::cancelled, "stopped");
}

/// Three members on a clock that the test sets.
template <class Lock>
struct MembersInTime {
  Queue queue;
  Queue later;
  std::shared_ptr<ManualEnv> env = std::make_shared<ManualEnv>();
  std::vector<std::shared_ptr<FakeMember>> list;
  std::shared_ptr<Lock> lock;
  const OwnerId owner = newOwner();
  std::optional<Answer> answer;
  std::optional<Result<ReleaseOutcome>> released;

  MembersInTime() {
    for (const char* name : {"a", "b", "c"}) {
      list.push_back(std::make_shared<FakeMember>(name, queue, later, env));
    }
    lock = std::make_shared<Lock>(GroupLock::Members(list.begin(), list.end()));
  }

  /// Goes as far as that is possible at once.
  void acquire(AcquireParams params = {}) {
    params.owner = owner;
    params.wantsHandle = true;
    lock->acquireAsync(std::move(params), [this](Answer result) { answer = std::move(result); });
    runAll(queue);
  }
  /// As acquire(), of one of the acquisitions.
  void release() {
    released.reset();
    lock->releaseAsync({owner, 0},
                       [this](Result<ReleaseOutcome> result) { released = std::move(result); });
    runAll(queue);
  }
  /// Time passes, and what was planned happens. A call before its time is passed on to the next
  /// member, and lost by the last one.
  void pass(Clock::duration time) {
    env->advance(time);
    Queue due = std::exchange(later, {});
    runAll(due);
    runAll(queue);
  }
  /// More time than between two attempts.
  void goOn() { pass(std::chrono::milliseconds(400)); }
  /// A call without a time limit begins in an outage, which lasts.
  void expectAnOutageToEndACallWith(Errc error, std::optional<Duration> lease) {
    AcquireParams params;
    params.wait = Duration::max();
    params.lease = lease;
    acquire(std::move(params));
    for (int i = 0; i < 2; ++i) {
      goOn();
      EXPECT_FALSE(answer) << i;
    }
    goOn();
    ASSERT_TRUE(answer);
    ASSERT_FALSE(answer->has_value());
    EXPECT_EQ(answer->error().errc(), error);
  }
  /// The error of the latest release; empty: it has no answer, or it went well.
  std::optional<Errc> releaseError() const {
    return released && !released->has_value() ? std::optional(released->error().errc())
                                              : std::nullopt;
  }
  /// Null: there is no hold.
  IntrusivePtr<HoldHandle> hold() const {
    return answer && answer->has_value() && **answer ? (**answer)->hold : nullptr;
  }
};

}  // namespace rlock::detail::group_test
