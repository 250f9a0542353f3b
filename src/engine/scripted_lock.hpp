// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/scripted_object.hpp"
#include <rlock/detail/base/lock_backend.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
  static void composeForceRelease(Call& call, const LockScripts& scripts, std::string_view owner);
  /// Also tells the holders of this client.
  [[nodiscard]] ParseBool parseForceRelease() const;

  const ScriptedObject object_;
};

}  // namespace rlock::detail
