// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/acquisition.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/owner_field.hpp>
#include <rlock/detail/engine/waiter.hpp>
#include <rlock/detail/engine/wakeup_queues.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// Where an acquisition waits, and on which terms: on the channel of its lock, or on one of its own
/// owner. Its place in the line of that channel is a Waiter, which QueuedTask is.
///
/// look() comes before the first request, so that no message between its answer and enter() is
/// missed.
///
/// **Thread safety:** The thread that drives the acquisition.
class WaitingPlace {
 public:
  WaitingPlace(const LockScripts& scripts, const OwnerField& owner)
      : ownChannel_(scripts.traits.channelPerOwner
                        ? std::make_unique<const std::string>(scripts.channelOf(owner.text()))
                        : nullptr) {}

  /// Looks how things stand on the channel. Returns whether others wait already.
  /// @param waiter  keeps what was seen
  bool look(LockEngine& engine, const LockScripts& scripts, Waiter& waiter) {
    const LockTraits& traits = scripts.traits;
    const WakeupMark mark = traits.opensOn.empty()
                                ? engine.waiting().mark(channel(scripts), traits.wakeupQueue)
                                : engine.waiting().expect(channel(scripts), traits.wakeupQueue);
    waiter.keepMark(mark);
    return mark.othersWait;
  }
  /// No request goes out before the first turn: what was seen by look() is of no use.
  static void standBehind(Waiter& waiter) noexcept { static_cast<void>(waiter.takeMark()); }

  /// Stands in the queue from here on: turns come on other threads.
  /// @param takesOver  the lock may come from the hands of its holder
  void enter(LockEngine& engine,
             const LockScripts& scripts,
             Waiter& waiter,
             Acquisition& acquisition,
             bool takesOver);

 private:
  [[nodiscard]] std::string_view channel(const LockScripts& scripts) const noexcept {
    return ownChannel_ ? std::string_view(*ownChannel_) : std::string_view(scripts.channel);
  }

  const std::unique_ptr<const std::string> ownChannel_;  // null: the lock's
};

inline void WaitingPlace::enter(LockEngine& engine,
                                const LockScripts& scripts,
                                Waiter& waiter,
                                Acquisition& acquisition,
                                bool takesOver) {
  const LockTraits& traits = scripts.traits;
  WaitTerms terms;
  terms.channel = channel(scripts);
  terms.rule = traits.wakeRule;
  terms.wakeupQueue = traits.wakeupQueue;
  terms.need = traits.need;
  terms.opensOn = traits.opensOn;
  terms.poll = scripts.pollAfter(acquisition.attempts());
  // Nobody but this owner can use a channel of its own.
  terms.lingers = !traits.channelPerOwner;
  if (takesOver) {
    terms.takesOver = scripts.name;
  }
  engine.waiting().queue(
      waiter, terms, waiter.takeMark(), acquisition.takeTried(), acquisition.remaining());
}

}  // namespace rlock::detail
