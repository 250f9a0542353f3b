// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/stepped_call.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/dispatcher.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>

#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace rlock::detail {

/// A waiter's entry in the queue that a kind of lock has on the server. All waiters of one owner
/// share it, so that it is given up by the last of them, and a client that closes waits for that.
///
/// taken() is followed by gone() or withdraw(), once; whether there is an entry the Acquisition
/// knows.
///
/// **Thread safety:** the thread that drives the acquisition.
class ServerQueueEntry {
 public:
  /// The arguments must outlive it.
  ServerQueueEntry(const std::shared_ptr<LockEngine>& engine,
                   const std::shared_ptr<const LockScripts>& scripts,
                   const OwnerField& owner)
      : engine_(engine),
        scripts_(scripts),
        name_(scripts->traits.queuesOnServer ? scripts->channel + ':' + std::string(owner.text())
                                             : std::string()) {}

  /// A request is about to be sent that may take it.
  void taken() { engine_->closing().entryTaken(name_); }
  /// There is no entry, or none any more.
  void gone() noexcept {
    static_cast<void>(engine_->closing().entryAbandoned(name_));
    engine_->closing().entryLeft();
  }
  /// Gives it up. Without memory it lapses by itself, and nobody waits for it.
  void withdraw() noexcept;

 private:
  void sendWithdrawal();
  /// Not that of the call. Race: the caller may leave, and so withdraw, while the loop is still
  /// about to have the call rest in its queue, which changes the call's.
  [[nodiscard]] std::string owner() const { return name_.substr(scripts_->channel.size() + 1); }

  const std::shared_ptr<LockEngine>& engine_;
  const std::shared_ptr<const LockScripts>& scripts_;
  const std::string name_;  ///< channel and owner
};

/// Tells the server that a waiter gives up its entry in the server's queue.
class Withdrawal final : public Call {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param until  later than that the entry has lapsed by itself
  Withdrawal(std::shared_ptr<LockEngine> engine,
             std::shared_ptr<const LockScripts> scripts,
             std::string owner,
             Clock::time_point until)
      : engine_(std::move(engine)),
        scripts_(std::move(scripts)),
        owner_(std::move(owner)),
        until_(until) {
    scripts_->composeWithdraw(*this, owner_);
  }

 private:
  void finished(Outcome outcome) noexcept override {
    // A request that was sent on a caller's thread is not sent again when it is lost after the
    // caller left.
    if (outcome.kind != Outcome::Kind::replied && !std::exchange(again_, true)) {
      engine_->dispatcher().start(Dispatcher::CallPtr(this), until_);
      return;
    }
    engine_->closing().entryLeft();
  }

  const std::shared_ptr<LockEngine> engine_;
  const std::shared_ptr<const LockScripts> scripts_;
  const std::string owner_;
  const Clock::time_point until_;
  bool again_ = false;
};

inline void ServerQueueEntry::withdraw() noexcept {
  if (!engine_->closing().entryAbandoned(name_)) {
    // It is still needed by another call of this owner.
    engine_->closing().entryLeft();
    return;
  }
  try {
    sendWithdrawal();
  } catch (const std::bad_alloc&) {
    engine_->closing().entryLeft();
  }
}

/// If it throws the request is not under way.
inline void ServerQueueEntry::sendWithdrawal() {
  const auto until = engine_->now() + engine_->options().fairWaiterLease;
  auto call = makeIntrusive<Withdrawal>(engine_, scripts_, owner(), until);
  Dispatcher& dispatcher = engine_->dispatcher();
  if (dispatcher.onLoopThread() || !dispatcher.direct(*call)) {
    dispatcher.start(call, until);
    return;
  }
  // The caller may try again at once, and must not meet its own ghost.
  switch (dispatcher.await(*call, engine_->now() + kReplyGrace)) {
    case Dispatcher::Direct::replied:
    case Dispatcher::Direct::failed:
      engine_->closing().entryLeft();
      return;
    case Dispatcher::Direct::trouble:
      dispatcher.resume(call, until);
      return;
    case Dispatcher::Direct::timedOut:
    case Dispatcher::Direct::interrupted:
      return;
  }
}

}  // namespace rlock::detail
