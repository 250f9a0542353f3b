// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/lock_engine.hpp"
#include <rlock/detail/lock_backend.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace rlock::detail {

/// The re-entrant lock on one key, in the form Redisson gives it.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class PlainLock final : public LockBackend {
 public:
  PlainLock(std::shared_ptr<LockEngine> engine, std::string_view name);

  [[nodiscard]] const std::string& name() const noexcept override { return keys_->name; }

  Result<Acquired> acquire(AcquireParams params) override;
  void acquireAsync(AcquireParams params, Handler<Acquired> handler) override;
  Result<ReleaseOutcome> release(OwnerId owner) override;
  void releaseAsync(OwnerId owner, Handler<ReleaseOutcome> handler) override;
  void releaseQuietly(OwnerId owner) override;
  [[nodiscard]] bool refusesBlocking() const noexcept override;
  Result<bool> forceRelease() override;
  void forceReleaseAsync(Handler<bool> handler) override;
  Result<bool> isLocked() override;
  void isLockedAsync(Handler<bool> handler) override;
  Result<int> holdCount(OwnerId owner) override;
  void holdCountAsync(OwnerId owner, Handler<int> handler) override;
  Result<TimeToLive> timeToLive() override;
  void timeToLiveAsync(Handler<TimeToLive> handler) override;

 private:
  template <class T, class Make>
  Result<T> runTask(OwnerId owner, Make make);
  template <class T, class Make>
  void startTask(OwnerId owner, Handler<T> handler, Make make);
  template <class T>
  void reject(OwnerId owner, const Error& why, Handler<T> handler);

  const std::shared_ptr<LockEngine> engine_;
  const std::shared_ptr<const LockKeys> keys_;
};

}  // namespace rlock::detail
