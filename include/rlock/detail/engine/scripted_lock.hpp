// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/engine/release_task.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/executor/reply_number.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// A lock of one node, of whatever kind its LockScripts are.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class ScriptedLock final : public LockMember {
 public:
  ScriptedLock(std::shared_ptr<LockEngine> engine,
               std::shared_ptr<const LockScripts> scripts,
               HandlerPlace place = HandlerPlace::application);

  [[nodiscard]] const std::string& name() const noexcept override { return object_.name(); }
  [[nodiscard]] Clock::time_point now() const noexcept override { return object_.engine().now(); }
  [[nodiscard]] LockPlace place() const override;
  [[nodiscard]] std::shared_ptr<LockMember> member() const override;

  Result<Acquired> acquire(AcquireParams params) override;
  void acquireAsync(AcquireParams params, Handler<Acquired> handler) override;
  Result<ReleaseOutcome> release(ReleaseTarget target) override;
  void releaseAsync(ReleaseTarget target, Handler<ReleaseOutcome> handler) override;
  void releaseQuietly(ReleaseTarget target) override;
  [[nodiscard]] bool refusesBlocking() const noexcept override;
  [[nodiscard]] bool keeps(OwnerId owner) const override;
  Result<bool> forceRelease() override;
  void forceReleaseAsync(Handler<bool> handler) override;
  Result<bool> isLocked() override;
  void isLockedAsync(Handler<bool> handler) override;
  Result<int> holdCount(OwnerId owner) override;
  void holdCountAsync(OwnerId owner, Handler<int> handler) override;
  Result<TimeToLive> timeToLive() override;
  void timeToLiveAsync(Handler<TimeToLive> handler) override;

  [[nodiscard]] LockLimits limits() const override;
  [[nodiscard]] const std::shared_ptr<Env>& env() const noexcept override {
    return object_.engine().env();
  }
  void callAt(Clock::time_point when, UniqueFunction<void()> function) override;
  void runHandler(UniqueFunction<void()> handler) override;

 private:
  using ParseBool = std::function<std::optional<bool>(const Reply&)>;

  static void composeIsLocked(Call& call, const LockScripts& scripts, std::string_view owner);
  static void composeHoldCount(Call& call, const LockScripts& scripts, std::string_view owner);
  static std::optional<int> parseHoldCount(const Reply& reply);
  static void composeTimeToLive(Call& call, const LockScripts& scripts, std::string_view owner);
  static std::optional<TimeToLive> parseTimeToLive(const Reply& reply);
  using ComposeForce = std::function<void(Call&, const LockScripts&, std::string_view owner)>;
  [[nodiscard]] ComposeForce composeForceRelease() const;
  /// Also tells the holders of this client.
  [[nodiscard]] ParseBool parseForceRelease() const;

  const ScriptedObject object_;
};

inline void ScriptedLock::composeIsLocked(Call& call,
                                          const LockScripts& scripts,
                                          std::string_view /*owner*/) {
  scripts.composeIsLocked(call);
}

inline void ScriptedLock::composeHoldCount(Call& call,
                                           const LockScripts& scripts,
                                           std::string_view owner) {
  scripts.composeHoldCount(call, owner);
}

inline std::optional<int> ScriptedLock::parseHoldCount(const Reply& reply) {
  const std::optional<std::int64_t> count = parseNumber(reply);
  return count ? std::optional(saturated(*count)) : std::nullopt;
}

inline void ScriptedLock::composeTimeToLive(Call& call,
                                            const LockScripts& scripts,
                                            std::string_view /*owner*/) {
  scripts.composeTimeToLive(call);
}

inline std::optional<LockBackend::TimeToLive> ScriptedLock::parseTimeToLive(const Reply& reply) {
  if (!reply.isInteger()) {
    return std::nullopt;
  }
  if (reply.integer == -2) {
    return TimeToLive();
  }
  return TimeToLive(reply.integer < 0 ? std::chrono::milliseconds::max()
                                      : std::chrono::milliseconds(reply.integer));
}

inline ScriptedLock::ComposeForce ScriptedLock::composeForceRelease() const {
  // It may be repeated for as long as the call may take.
  return [remember = kTombstoneLife + object_.engine().callTimeout()](
             Call& call, const LockScripts& scripts, std::string_view /*owner*/) {
    scripts.composeForceRelease(call, remember);
  };
}

inline ScriptedLock::ParseBool ScriptedLock::parseForceRelease() const {
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

inline ScriptedLock::ScriptedLock(std::shared_ptr<LockEngine> engine,
                                  std::shared_ptr<const LockScripts> scripts,
                                  HandlerPlace place)
    : object_(std::move(engine), std::move(scripts), place) {}

inline std::shared_ptr<LockMember> ScriptedLock::member() const {
  return std::make_shared<ScriptedLock>(object_.enginePtr(), object_.scripts(), HandlerPlace::loop);
}

inline LockPlace ScriptedLock::place() const {
  const std::string& onServer = object_.scripts()->name;
  return {object_.engine().dispatcher().node(onServer),
          object_.engine().options().database,
          onServer,
          object_.scripts()->traits.holdKind,
          object_.engine().clientId()};
}

inline Result<LockBackend::Acquired> ScriptedLock::acquire(AcquireParams params) {
  return object_.acquire(object_.scripts(), std::move(params));
}

inline void ScriptedLock::acquireAsync(AcquireParams params, Handler<Acquired> handler) {
  object_.acquireAsync(object_.scripts(), std::move(params), std::move(handler));
}

inline Result<ReleaseOutcome> ScriptedLock::release(ReleaseTarget target) {
  return object_.runTask<ReleaseOutcome>(target.owner, [&] {
    return makeIntrusive<ReleaseTask>(object_.enginePtr(), object_.scripts(), target);
  });
}

inline void ScriptedLock::releaseAsync(ReleaseTarget target, Handler<ReleaseOutcome> handler) {
  object_.startTask<ReleaseOutcome>(target.owner, std::move(handler), [&] {
    return makeIntrusive<ReleaseTask>(object_.enginePtr(), object_.scripts(), target);
  });
}

inline void ScriptedLock::releaseQuietly(ReleaseTarget target) {
  if (!object_.engine().refuse(false)) {
    ReleaseTask::releaseQuietly(object_.enginePtr(), object_.scripts(), target);
  }
}

inline bool ScriptedLock::refusesBlocking() const noexcept {
  return object_.engine().dispatcher().onLoopThread();
}

inline bool ScriptedLock::keeps(OwnerId owner) const {
  const LockEngine& engine = object_.engine();
  return !engine.refuse(false) && engine.holds().keeps(*object_.scripts(), owner);
}

inline Result<bool> ScriptedLock::forceRelease() {
  return object_.ask<bool>({}, composeForceRelease(), parseForceRelease());
}

inline void ScriptedLock::forceReleaseAsync(Handler<bool> handler) {
  object_.askAsync<bool>({}, std::move(handler), composeForceRelease(), parseForceRelease());
}

inline Result<bool> ScriptedLock::isLocked() {
  return object_.ask<bool>({}, composeIsLocked, parseYesNo);
}

inline void ScriptedLock::isLockedAsync(Handler<bool> handler) {
  object_.askAsync<bool>({}, std::move(handler), composeIsLocked, parseYesNo);
}

inline Result<int> ScriptedLock::holdCount(OwnerId owner) {
  return object_.ask<int>(owner, composeHoldCount, parseHoldCount);
}

inline void ScriptedLock::holdCountAsync(OwnerId owner, Handler<int> handler) {
  object_.askAsync<int>(owner, std::move(handler), composeHoldCount, parseHoldCount);
}

inline Result<LockBackend::TimeToLive> ScriptedLock::timeToLive() {
  return object_.ask<TimeToLive>({}, composeTimeToLive, parseTimeToLive);
}

inline void ScriptedLock::timeToLiveAsync(Handler<TimeToLive> handler) {
  object_.askAsync<TimeToLive>({}, std::move(handler), composeTimeToLive, parseTimeToLive);
}

inline LockLimits ScriptedLock::limits() const {
  const LockEngine& engine = object_.engine();
  const Options& options = engine.options();
  return {
      options.watchdogTimeout, options.commandTimeout, engine.callTimeout(), options.outageTimeout};
}

inline void ScriptedLock::callAt(Clock::time_point when, UniqueFunction<void()> function) {
  object_.engine().callbacks().callAt(when, std::move(function));
}

inline void ScriptedLock::runHandler(UniqueFunction<void()> handler) {
  object_.engine().callbacks().reject(std::move(handler));
}

/// Here, because the task is built on the engine.
inline void LockEngine::giveBack(const std::shared_ptr<const LockScripts>& scripts,
                                 ReleaseTarget target) {
  ReleaseTask::releaseQuietly(sharing(*this), scripts, target);
}

}  // namespace rlock::detail
