// SPDX-License-Identifier: Apache-2.0
#include "engine/plain_lock.hpp"

#include "engine/acquire_task.hpp"
#include "engine/query_task.hpp"
#include "engine/release_task.hpp"
#include <rlock/duration.hpp>

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

namespace rlock::detail {

namespace {

constexpr Duration kLongestLease = std::chrono::hours(24 * 365);

/// What is wrong with the arguments, or nothing.
std::optional<Error> check(const AcquireParams& params) {
  if (!params.wait.valid()) {
    return Error(Errc::invalidArgument, "the wait is not a number");
  }
  if (params.lease && (!params.lease->isPositive() || *params.lease > kLongestLease)) {
    return Error(Errc::invalidArgument,
                 fmt::format("a lease of {} is not between 1ns and 365d", toString(*params.lease)));
  }
  if (params.maxHold && !params.maxHold->isPositive()) {
    return Error(Errc::invalidArgument,
                 fmt::format("a longest hold of {} is not above 0", toString(*params.maxHold)));
  }
  return std::nullopt;
}

IntrusivePtr<QueryTask<bool>> makeIsLocked(const std::shared_ptr<LockEngine>& engine,
                                           const std::shared_ptr<const LockKeys>& keys) {
  return makeIntrusive<QueryTask<bool>>(
      engine,
      keys,
      OwnerId{},
      [&](Call& call, std::string_view) {
        call.setCommand({"EXISTS", keys->name});
      },
      [](const Reply& reply) -> std::optional<bool> {
        return reply.isInteger() ? std::optional(reply.integer > 0) : std::nullopt;
      });
}

IntrusivePtr<QueryTask<int>> makeHoldCount(const std::shared_ptr<LockEngine>& engine,
                                           const std::shared_ptr<const LockKeys>& keys,
                                           OwnerId owner) {
  return makeIntrusive<QueryTask<int>>(
      engine,
      keys,
      owner,
      [&](Call& call, std::string_view field) {
        call.setCommand({"HGET", keys->name, field});
      },
      [](const Reply& reply) -> std::optional<int> {
        if (reply.isNil()) {
          return 0;
        }
        int count = 0;
        const auto [end, error] =
            std::from_chars(reply.text.data(), reply.text.data() + reply.text.size(), count);
        if (error != std::errc() || end != reply.text.data() + reply.text.size()) {
          return std::nullopt;
        }
        return count;
      });
}

IntrusivePtr<QueryTask<LockBackend::TimeToLive>> makeTimeToLive(
    const std::shared_ptr<LockEngine>& engine, const std::shared_ptr<const LockKeys>& keys) {
  using TimeToLive = LockBackend::TimeToLive;
  return makeIntrusive<QueryTask<TimeToLive>>(
      engine,
      keys,
      OwnerId{},
      [&](Call& call, std::string_view) {
        call.setCommand({"PTTL", keys->name});
      },
      [](const Reply& reply) -> std::optional<TimeToLive> {
        if (!reply.isInteger()) {
          return std::nullopt;
        }
        if (reply.integer == -2) {
          return TimeToLive();
        }
        return TimeToLive(reply.integer < 0 ? std::chrono::milliseconds::max()
                                            : std::chrono::milliseconds(reply.integer));
      });
}

IntrusivePtr<QueryTask<bool>> makeForceRelease(const std::shared_ptr<LockEngine>& engine,
                                               const std::shared_ptr<const LockKeys>& keys) {
  return makeIntrusive<QueryTask<bool>>(
      engine,
      keys,
      OwnerId{},
      [&](Call& call, std::string_view) { composeForceRelease(call, *keys); },
      [engine, keys](const Reply& reply) -> std::optional<bool> {
        if (!reply.isInteger()) {
          return std::nullopt;
        }
        engine->forced(keys->name);
        return reply.integer > 0;
      });
}

}  // namespace

PlainLock::PlainLock(std::shared_ptr<LockEngine> engine, std::string_view name)
    : engine_(std::move(engine)), keys_(std::make_shared<LockKeys>(name)) {}

template <class T, class Make>
Result<T> PlainLock::runTask(OwnerId owner, Make make) {
  if (auto why = engine_->refuse(true)) {
    return engine_->describe(std::move(*why), *keys_, owner, LockEngine::Clock::now());
  }
  return make()->run();
}

template <class T>
void PlainLock::reject(OwnerId owner, const Error& why, Handler<T> handler) {
  engine_->reject(
      [handler = std::move(handler),
       error = engine_->describe(why, *keys_, owner, LockEngine::Clock::now())]() mutable {
        handler(Result<T>(std::move(error)));
      });
}

template <class T, class Make>
void PlainLock::startTask(OwnerId owner, Handler<T> handler, Make make) {
  if (const auto why = engine_->refuse(false)) {
    reject<T>(owner, *why, std::move(handler));
    return;
  }
  make()->startInBackground(std::move(handler));
}

Result<LockBackend::Acquired> PlainLock::acquire(AcquireParams params) {
  if (auto why = check(params)) {
    return engine_->describe(std::move(*why), *keys_, params.owner, LockEngine::Clock::now());
  }
  const OwnerId owner = params.owner;
  return runTask<Acquired>(
      owner, [&] { return makeIntrusive<AcquireTask>(engine_, keys_, std::move(params)); });
}

void PlainLock::acquireAsync(AcquireParams params, Handler<Acquired> handler) {
  const OwnerId owner = params.owner;
  if (const auto why = check(params)) {
    reject<Acquired>(owner, *why, std::move(handler));
    return;
  }
  startTask<Acquired>(owner, std::move(handler), [&] {
    return makeIntrusive<AcquireTask>(engine_, keys_, std::move(params));
  });
}

Result<ReleaseOutcome> PlainLock::release(OwnerId owner) {
  return runTask<ReleaseOutcome>(owner,
                                 [&] { return makeIntrusive<ReleaseTask>(engine_, keys_, owner); });
}

void PlainLock::releaseAsync(OwnerId owner, Handler<ReleaseOutcome> handler) {
  startTask<ReleaseOutcome>(
      owner, std::move(handler), [&] { return makeIntrusive<ReleaseTask>(engine_, keys_, owner); });
}

void PlainLock::releaseQuietly(OwnerId owner) {
  if (engine_->refuse(false)) {
    return;
  }
  makeIntrusive<ReleaseTask>(engine_, keys_, owner)
      ->startInBackground([engine = engine_](const Result<ReleaseOutcome>& result) {
        if (!result.has_value()) {
          engine->log().write(
              LogLevel::warning,
              std::string("a release in the background failed: ") + result.error().what());
        }
      });
}

bool PlainLock::refusesBlocking() const noexcept {
  return engine_->executor().onLoopThread();
}

Result<bool> PlainLock::forceRelease() {
  return runTask<bool>({}, [&] { return makeForceRelease(engine_, keys_); });
}

void PlainLock::forceReleaseAsync(Handler<bool> handler) {
  startTask<bool>({}, std::move(handler), [&] { return makeForceRelease(engine_, keys_); });
}

Result<bool> PlainLock::isLocked() {
  return runTask<bool>({}, [&] { return makeIsLocked(engine_, keys_); });
}

void PlainLock::isLockedAsync(Handler<bool> handler) {
  startTask<bool>({}, std::move(handler), [&] { return makeIsLocked(engine_, keys_); });
}

Result<int> PlainLock::holdCount(OwnerId owner) {
  return runTask<int>(owner, [&] { return makeHoldCount(engine_, keys_, owner); });
}

void PlainLock::holdCountAsync(OwnerId owner, Handler<int> handler) {
  startTask<int>(owner, std::move(handler), [&] { return makeHoldCount(engine_, keys_, owner); });
}

Result<LockBackend::TimeToLive> PlainLock::timeToLive() {
  return runTask<TimeToLive>({}, [&] { return makeTimeToLive(engine_, keys_); });
}

void PlainLock::timeToLiveAsync(Handler<TimeToLive> handler) {
  startTask<TimeToLive>({}, std::move(handler), [&] { return makeTimeToLive(engine_, keys_); });
}

}  // namespace rlock::detail
