// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/group/group_hold.hpp>
#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <utility>

namespace rlock::detail {

class GroupLock;

/// One acquisition of a lock that consists of others. GroupLock makes and starts it on the calling
/// thread; after that the loop threads of the members' clients drive it, and so does a thread that
/// requests a stop. Its handler is called exactly once, on any thread: where there is no memory to
/// go on with, the acquisition fails, and what it has obtained is given back.
///
/// **Thread safety:** Safe to call concurrently from any thread. The application's and the members'
/// code is called with no lock held.
class GroupAcquire : public std::enable_shared_from_this<GroupAcquire> {
 public:
  using Clock = std::chrono::steady_clock;
  using Acquired = LockBackend::Acquired;
  using Done = UniqueFunction<void(Result<Acquired>)>;

  GroupAcquire(std::shared_ptr<GroupLock> group, AcquireParams params, Done done);
  GroupAcquire(const GroupAcquire&) = delete;
  GroupAcquire& operator=(const GroupAcquire&) = delete;
  virtual ~GroupAcquire() = default;

  void start();
  /// The point in time at which the caller stops waiting in any case; expire() is due then.
  [[nodiscard]] Clock::time_point limit() const noexcept { return limit_; }
  void expire() noexcept {
    guarded([this] { expired(); });
  }
  /// Arranges that expire() is called at limit() if that is near. An acquisition whose limit is far
  /// ends by itself, because each of its steps has a limit.
  void armLimit() noexcept;

 protected:
  virtual void begin() = 0;
  /// The caller wants to be told as soon as what was obtained has been given back.
  virtual void stopped() = 0;
  virtual void expired() = 0;
  /// Ends it: no event changes anything from here on. Takes what was obtained, a grant for each
  /// member or for the first of them.
  virtual MemberGrants abandon() noexcept = 0;

  /// Does something for the acquisition, which fails if there is no memory for that.
  template <class Action>
  void guarded(Action action) noexcept {
    try {
      action();
    } catch (const std::bad_alloc&) {
      giveUp(0, nullptr);
    }
  }
  /// The same, because a member has answered.
  template <class Action>
  void guarded(std::size_t member, const Result<Acquired>& result, Action action) noexcept {
    try {
      action();
    } catch (const std::bad_alloc&) {
      giveUp(member, result.has_value() && result->has_value() ? &**result : nullptr);
    }
  }
  /// Ends it for the caller, who is told within kMemberGrace.
  void stop();
  /// A member's grant is given back in the background.
  void releaseQuietly(std::size_t member, const Grant& grant) noexcept;
  /// A member's grant is given back, and then `done` is called.
  template <class OnEnd>
  void giveBack(std::size_t member, const Grant& grant, const OnEnd& done);

  [[nodiscard]] AcquireParams memberParams(std::size_t member, std::stop_token stop) const;
  [[nodiscard]] GroupHold::Terms terms() const;
  [[nodiscard]] bool oneAttempt() const noexcept { return !params_.wait.isPositive(); }
  [[nodiscard]] bool endless() const noexcept { return deadline_ == Clock::time_point::max(); }
  void conclude(Result<Acquired> result);
  [[nodiscard]] static Acquired acquired(const IntrusivePtr<GroupHold>& hold);
  /// True when the hold that a member granted was lost at once because the owner's thread has
  /// ended. Another attempt would have the same outcome.
  [[nodiscard]] static bool ownerEnded(const Result<Acquired>& result) noexcept;
  [[nodiscard]] static Error stopError();
  [[nodiscard]] static Error lateError();

  const std::shared_ptr<GroupLock> group_;
  const AcquireParams params_;
  const Clock::time_point began_;
  const Clock::time_point deadline_;
  const Clock::time_point limit_;
  AnnotatedMutex mutex_;
  bool over_ RLOCK_GUARDED_BY(mutex_) = false;  ///< since abandon()

 private:
  /// @param grant  the member's, which may not be among those that were noted; null: there is none
  void giveUp(std::size_t member, const Grant* grant) noexcept;
  void expireAt(Clock::time_point when);
  Done takeDone(bool granted);

  Done done_ RLOCK_GUARDED_BY(mutex_);
  bool granted_ RLOCK_GUARDED_BY(mutex_) = false;  // the caller has the hold
  std::optional<StopListener> stopListener_;
  Atomic<bool> armed_{false};
};

}  // namespace rlock::detail
