// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/engine/lock_questions.hpp>
#include <rlock/detail/engine/release_task.hpp>
#include <rlock/detail/engine/scripted_object.hpp>

#include <memory>
#include <string>
#include <utility>

namespace rlock::detail {

/// A lock of one node, of whatever kind its LockScripts are: the LockBackend that an RLock asks,
/// and a member of a GroupLock.
///
/// It has no state of its own. It passes each call on: acquiring and releasing to a task
/// (AcquireTask, ReleaseTask), questions to the server (LockQuestions), and the rest to the engine.
/// Blocking calls are made on the caller's thread; handlers run where `place` says.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class ScriptedLock final : public LockMember {
 public:
  ScriptedLock(std::shared_ptr<LockEngine> engine,
               std::shared_ptr<const LockScripts> scripts,
               HandlerPlace place = HandlerPlace::application);

  [[nodiscard]] const std::string& name() const override { return object_.name(); }
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
  template <class T>
  Result<T> ask(OwnerId owner, LockQuestion<T> question) const {
    return object_.ask<T>(owner, std::move(question.compose), std::move(question.parse));
  }
  template <class T>
  void askAsync(OwnerId owner, Handler<T> handler, LockQuestion<T> question) const {
    object_.askAsync<T>(
        owner, std::move(handler), std::move(question.compose), std::move(question.parse));
  }
  [[nodiscard]] LockQuestion<bool> forcing() const {
    return LockQuestions::forceRelease(object_.enginePtr(), object_.scripts());
  }

  const ScriptedObject object_;
};

inline ScriptedLock::ScriptedLock(std::shared_ptr<LockEngine> engine,
                                  std::shared_ptr<const LockScripts> scripts,
                                  HandlerPlace place)
    : object_(std::move(engine), std::move(scripts), place) {}

inline std::shared_ptr<LockMember> ScriptedLock::member() const {
  return std::make_shared<ScriptedLock>(object_.enginePtr(), object_.scripts(), HandlerPlace::loop);
}

inline LockPlace ScriptedLock::place() const {
  const std::string onServer(object_.scripts()->name);
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
  return ask({}, forcing());
}

inline void ScriptedLock::forceReleaseAsync(Handler<bool> handler) {
  askAsync({}, std::move(handler), forcing());
}

inline Result<bool> ScriptedLock::isLocked() {
  return ask({}, LockQuestions::isLocked());
}

inline void ScriptedLock::isLockedAsync(Handler<bool> handler) {
  askAsync({}, std::move(handler), LockQuestions::isLocked());
}

inline Result<int> ScriptedLock::holdCount(OwnerId owner) {
  return ask(owner, LockQuestions::holdCount());
}

inline void ScriptedLock::holdCountAsync(OwnerId owner, Handler<int> handler) {
  askAsync(owner, std::move(handler), LockQuestions::holdCount());
}

inline Result<LockBackend::TimeToLive> ScriptedLock::timeToLive() {
  return ask({}, LockQuestions::timeToLive());
}

inline void ScriptedLock::timeToLiveAsync(Handler<TimeToLive> handler) {
  askAsync({}, std::move(handler), LockQuestions::timeToLive());
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
