// SPDX-License-Identifier: Apache-2.0
#include "engine/scripted_lock.hpp"

#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/engine/release_task.hpp>
#include <rlock/detail/executor/reply_number.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

void ScriptedLock::composeIsLocked(Call& call,
                                   const LockScripts& scripts,
                                   std::string_view /*owner*/) {
  scripts.composeIsLocked(call);
}

void ScriptedLock::composeHoldCount(Call& call,
                                    const LockScripts& scripts,
                                    std::string_view owner) {
  scripts.composeHoldCount(call, owner);
}

std::optional<int> ScriptedLock::parseHoldCount(const Reply& reply) {
  const std::optional<std::int64_t> count = parseNumber(reply);
  return count ? std::optional(saturated(*count)) : std::nullopt;
}

void ScriptedLock::composeTimeToLive(Call& call,
                                     const LockScripts& scripts,
                                     std::string_view /*owner*/) {
  scripts.composeTimeToLive(call);
}

std::optional<LockBackend::TimeToLive> ScriptedLock::parseTimeToLive(const Reply& reply) {
  if (!reply.isInteger()) {
    return std::nullopt;
  }
  if (reply.integer == -2) {
    return TimeToLive();
  }
  return TimeToLive(reply.integer < 0 ? std::chrono::milliseconds::max()
                                      : std::chrono::milliseconds(reply.integer));
}

void ScriptedLock::composeForceRelease(Call& call,
                                       const LockScripts& scripts,
                                       std::string_view /*owner*/) {
  scripts.composeForceRelease(call);
}

ScriptedLock::ParseBool ScriptedLock::parseForceRelease() const {
  return [engine = object_.enginePtr(),
          scripts = object_.scripts(),
          sentAt = object_.engine().now()](const Reply& reply) -> std::optional<bool> {
    const std::optional<bool> freed = parseYesNo(reply);
    if (freed.value_or(false)) {
      engine->holds().forced(*scripts, sentAt);
    }
    return freed;
  };
}

ScriptedLock::ScriptedLock(std::shared_ptr<LockEngine> engine,
                           std::shared_ptr<const LockScripts> scripts,
                           HandlerPlace place)
    : object_(std::move(engine), std::move(scripts), place) {}

std::shared_ptr<LockMember> ScriptedLock::member() const {
  return std::make_shared<ScriptedLock>(object_.enginePtr(), object_.scripts(), HandlerPlace::loop);
}

LockPlace ScriptedLock::place() const {
  return {object_.engine().dispatcher().node(),
          object_.engine().options().database,
          object_.name(),
          object_.scripts()->traits.holdKind,
          object_.engine().clientId()};
}

Result<LockBackend::Acquired> ScriptedLock::acquire(AcquireParams params) {
  return object_.acquire(object_.scripts(), std::move(params));
}

void ScriptedLock::acquireAsync(AcquireParams params, Handler<Acquired> handler) {
  object_.acquireAsync(object_.scripts(), std::move(params), std::move(handler));
}

Result<ReleaseOutcome> ScriptedLock::release(ReleaseTarget target) {
  return object_.runTask<ReleaseOutcome>(target.owner, [&] {
    return makeIntrusive<ReleaseTask>(object_.enginePtr(), object_.scripts(), target);
  });
}

void ScriptedLock::releaseAsync(ReleaseTarget target, Handler<ReleaseOutcome> handler) {
  object_.startTask<ReleaseOutcome>(target.owner, std::move(handler), [&] {
    return makeIntrusive<ReleaseTask>(object_.enginePtr(), object_.scripts(), target);
  });
}

void ScriptedLock::releaseQuietly(ReleaseTarget target) {
  if (!object_.engine().refuse(false)) {
    ReleaseTask::releaseQuietly(object_.enginePtr(), object_.scripts(), target);
  }
}

bool ScriptedLock::refusesBlocking() const noexcept {
  return object_.engine().dispatcher().onLoopThread();
}

bool ScriptedLock::keeps(OwnerId owner) const {
  const LockEngine& engine = object_.engine();
  return !engine.refuse(false) && engine.holds().keeps(*object_.scripts(), owner);
}

Result<bool> ScriptedLock::forceRelease() {
  return object_.ask<bool>({}, composeForceRelease, parseForceRelease());
}

void ScriptedLock::forceReleaseAsync(Handler<bool> handler) {
  object_.askAsync<bool>({}, std::move(handler), composeForceRelease, parseForceRelease());
}

Result<bool> ScriptedLock::isLocked() {
  return object_.ask<bool>({}, composeIsLocked, parseYesNo);
}

void ScriptedLock::isLockedAsync(Handler<bool> handler) {
  object_.askAsync<bool>({}, std::move(handler), composeIsLocked, parseYesNo);
}

Result<int> ScriptedLock::holdCount(OwnerId owner) {
  return object_.ask<int>(owner, composeHoldCount, parseHoldCount);
}

void ScriptedLock::holdCountAsync(OwnerId owner, Handler<int> handler) {
  object_.askAsync<int>(owner, std::move(handler), composeHoldCount, parseHoldCount);
}

Result<LockBackend::TimeToLive> ScriptedLock::timeToLive() {
  return object_.ask<TimeToLive>({}, composeTimeToLive, parseTimeToLive);
}

void ScriptedLock::timeToLiveAsync(Handler<TimeToLive> handler) {
  object_.askAsync<TimeToLive>({}, std::move(handler), composeTimeToLive, parseTimeToLive);
}

LockLimits ScriptedLock::limits() const {
  const LockEngine& engine = object_.engine();
  const Options& options = engine.options();
  return {
      options.watchdogTimeout, options.commandTimeout, engine.callTimeout(), options.outageTimeout};
}

void ScriptedLock::callAt(Clock::time_point when, UniqueFunction<void()> function) {
  object_.engine().callbacks().callAt(when, std::move(function));
}

void ScriptedLock::runHandler(UniqueFunction<void()> handler) {
  object_.engine().callbacks().reject(std::move(handler));
}

/// Here, because the task is built on the engine.
void LockEngine::giveBack(const std::shared_ptr<const LockScripts>& scripts, ReleaseTarget target) {
  ReleaseTask::releaseQuietly(sharing(*this), scripts, target);
}

}  // namespace rlock::detail
