// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/deadline_heap.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/engine/channel_changes.hpp>
#include <rlock/detail/engine/polling_waiters.hpp>
#include <rlock/detail/engine/waiter.hpp>
#include <rlock/detail/engine/wakeup_queue.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The queues of waiters: for each channel the callers of this client in the order they came, in
/// one or two wake-up queues (WakeupQueue). Only the first of a wake-up queue tries; the others
/// sleep until they are first, or until the wake-up queue's WakeRule lets them try. Every message,
/// every confirmed subscription and every poll gives the first ones a turn; a turn that a waiter
/// cannot use goes to the next.
///
/// They do nothing themselves. The methods change the state and return the waiters whose turn it
/// is, each with a reference that the caller drops after turn(); subscriptions that are to begin or
/// end are collected for whoever owns the connection.
///
/// **Thread safety:** One thread at a time.
class WakeupQueues {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;
  using Turns = WaiterTurns;
  using Mark = WakeupMark;
  using Change = ChannelChanges::Change;

  static constexpr std::size_t kQueuesPerChannel = WakeupChannel::kQueues;

  /// @param countsAll  the server that counts the receivers of a message knows of all. One with
  ///                   replicas and one of a cluster know of their own only.
  WakeupQueues(std::chrono::milliseconds safetyPoll,
               std::chrono::milliseconds linger,
               bool countsAll = true) noexcept
      : shared_(safetyPoll, countsAll), linger_(linger) {}

  [[nodiscard]] Mark mark(std::string_view channel, std::uint8_t wakeupQueue = 0) const {
    const auto found = channels_.find(channel);
    return found == channels_.end() ? Mark{} : found->second->queues[wakeupQueue].mark();
  }
  /// A mark for one who waits for the message that opens (WaitTerms::opensOn): also has the
  /// subscription confirmed once more, so that messages from now on can be told from older ones.
  Mark expect(std::string_view channel, std::uint8_t wakeupQueue = 0) {
    Mark result = mark(channel, wakeupQueue);
    if (const auto found = channels_.find(channel); found != channels_.end()) {
      result.confirmation =
          changes_.confirmationFrom(found->second->name, found->second->confirmations);
    }
    return result;
  }

  /// Whether any channel exists and nobody waits alone: nobody needs a mark otherwise.
  [[nodiscard]] bool idle() const noexcept { return channels_.empty() && polling_.empty(); }

  /// The waiter goes to sleep: for the first time at the end of its wake-up queue, later at its
  /// place.
  /// @param mark       taken before its first try; empty when it was a turn, or it has not tried at
  /// all
  /// @param tried      it has tried since it was last asleep
  /// @param remaining  how long the holder has it at most; negative = without end or not known
  Turns queue(Waiter& waiter,
              const WaitTerms& terms,
              std::optional<Mark> mark,
              bool tried,
              std::chrono::milliseconds remaining,
              TimePoint now);

  /// The waiter leaves, with the lock or without. Returns who must try next.
  /// @param obtained  it has the lock, so trying is pointless in this generation, unless the
  /// wake-up queue's rule says otherwise
  /// @param lease     after which what it has ends without a message; zero: not known
  Turns leave(Waiter& waiter,
              bool obtained,
              TimePoint now,
              std::chrono::milliseconds lease = {}) noexcept;

  /// As WakeupQueue::takeSuccessor().
  Succession takeSuccessor(std::string_view channelName,
                           std::uint8_t wakeupQueue,
                           std::string_view lock,
                           const HandOverLimits& limits,
                           TimePoint now) noexcept {
    const auto found = channels_.find(channelName);
    return found == channels_.end()
               ? Succession{}
               : found->second->queues[wakeupQueue].takeSuccessor(lock, limits, now);
  }
  /// As WakeupQueue::releasedForAll().
  Turns releasedForAll(std::string_view channelName,
                       std::uint8_t wakeupQueue,
                       std::uint64_t pause,
                       std::optional<std::int64_t> receivers,
                       TimePoint now) noexcept {
    Turns turns;
    if (const auto found = channels_.find(channelName); found != channels_.end()) {
      found->second->queues[wakeupQueue].releasedForAll(pause, receivers, now, turns);
    }
    return turns;
  }

  /// A message came.
  Turns message(std::string_view channelName, std::string_view text, TimePoint now);
  /// The subscription is confirmed: what is published from here on will be heard, what was before
  /// may have been missed. Each confirmation that was asked for follows its request.
  Turns subscribed(std::string_view channelName);
  /// The channel cannot be subscribed for now; its waiters poll until a confirmation comes. Returns
  /// whether that is new.
  bool refused(std::string_view channelName) noexcept;
  /// Requests go to another server from here on. A waiter that tried after its subscription was
  /// confirmed there, but while requests still went to the old server, has looked at the wrong one.
  Turns serverReplaced();
  /// The connection for subscriptions is gone; each channel will be confirmed again.
  void disconnected() noexcept {
    for (const auto& [name, channel] : channels_) {
      channel->subscribed = false;
    }
  }

  /// The same for one channel.
  void disconnected(std::string_view channelName) noexcept {
    if (const auto found = channels_.find(channelName); found != channels_.end()) {
      found->second->subscribed = false;
    }
  }

  /// The waiters that are to look because their time has come.
  Turns poll(TimePoint now);
  /// Forgets channels that nobody has waited for lately.
  void expireLingering(TimePoint now);
  [[nodiscard]] TimePoint nextDue() const noexcept {
    return std::min({shared_.polls.nextDue(), polling_.nextDue(), lingering_.nextDue()});
  }

  /// The subscriptions that are to begin, or to be confirmed once more, or to end since the last
  /// call, in order.
  std::vector<Change> takeChanges() noexcept { return changes_.take(); }
  [[nodiscard]] bool hasChanges() const noexcept { return !changes_.empty(); }

  /// Somebody who waited, with a reference that the receiver drops.
  struct Dismissed {
    Waiter* waiter = nullptr;
    bool trying = false;  ///< it had its turn, and may come to the queue once more
  };
  /// For closing: somebody who waits, and waits no more, or nobody. Nobody gets a turn because of
  /// it.
  [[nodiscard]] Dismissed takeOne(TimePoint now) noexcept;
  ///@{
  /// Keeps one that takeOne() has given out and that is not told yet, with its reference. It must
  /// not be trying.
  void keepUntold(Waiter& waiter) noexcept { untold_.pushBack(waiter); }
  /// Null: there is none.
  [[nodiscard]] Waiter* takeUntold() noexcept {
    Waiter* const waiter = untold_.front();
    if (waiter != nullptr) {
      untold_.remove(*waiter);
    }
    return waiter;
  }
  ///@}
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::size_t channels() const noexcept { return channels_.size(); }

 private:
  WakeupQueue& enter(Waiter& waiter, const WaitTerms& terms, const std::optional<Mark>& mark);
  WakeupChannel& openChannel(const WaitTerms& terms);
  /// The reason for a new generation.
  enum class Cause { message, confirmation, replacement };
  void beginGeneration(std::string_view channelName, Cause cause, TimePoint now, Turns& turns);
  /// Nobody waits for it.
  void forget(WakeupChannel& channel) noexcept;

  WakeupQueue::Shared shared_;
  const std::chrono::milliseconds linger_;
  std::size_t waiting_ = 0;
  std::unordered_map<std::string_view, std::unique_ptr<WakeupChannel>> channels_;
  DeadlineHeap<WakeupChannel, &WakeupChannel::linger> lingering_;
  PollingWaiters polling_;
  ChannelChanges changes_;
  WaiterChain<&Waiter::line_> untold_;
};

inline WakeupQueues::Turns WakeupQueues::queue(Waiter& waiter,
                                               const WaitTerms& terms,
                                               std::optional<Mark> mark,
                                               bool tried,
                                               std::chrono::milliseconds remaining,
                                               TimePoint now) {
  Turns turns;
  if (terms.rule == WakeRule::polling) {
    Clock::duration sleep = terms.poll.count() > 0 ? terms.poll : shared_.safetyPoll;
    if (remaining.count() >= 0) {
      sleep = std::min<Clock::duration>(sleep, remaining + std::chrono::milliseconds(1));
    }
    if (polling_.queue(waiter, now + sleep)) {
      ++waiting_;
    }
    return turns;
  }
  const bool isNew = !waiter.queued_;
  WakeupQueue& queue = isNew ? enter(waiter, terms, mark) : *waiter.wakeupQueue_;
  queue.sleep(waiter, mark, {isNew, tried, terms.poll, remaining}, now, turns);
  return turns;
}

/// To the end of its wake-up queue. All that can fail comes first, so that a failure leaves nothing
/// behind and whoever leaves needs no memory.
inline WakeupQueue& WakeupQueues::enter(Waiter& waiter,
                                        const WaitTerms& terms,
                                        const std::optional<Mark>& mark) {
  WakeupChannel& channel = openChannel(terms);
  WakeupQueue& queue = channel.queues[terms.wakeupQueue];
  std::uint64_t round = 0;
  try {
    queue.setTerms(terms);
    queue.makeRoom(terms);
    if (!terms.opensOn.empty()) {
      round = mark && mark->confirmation != 0
                  ? mark->confirmation
                  : changes_.confirmationFrom(channel.name, channel.confirmations);
    }
  } catch (...) {
    if (channel.empty() && !channel.linger.linked()) {
      lingering_.schedule(channel, TimePoint::min());
    }
    throw;
  }
  lingering_.remove(channel);
  queue.enter(waiter, terms, round);
  ++waiting_;
  return queue;
}

inline WakeupChannel& WakeupQueues::openChannel(const WaitTerms& terms) {
  const auto found = channels_.find(terms.channel);
  if (found != channels_.end()) {
    return *found->second;
  }
  auto made = std::make_unique<WakeupChannel>(shared_);
  WakeupChannel& channel = *made;
  channel.name = terms.channel;
  channel.lingers = terms.lingers;
  channels_.reserve(channels_.size() + 1);
  changes_.subscribe(channel.name, channel.confirmations);
  try {
    channels_.emplace(std::string_view(channel.name), std::move(made));
  } catch (...) {
    changes_.takeBack();
    throw;
  }
  return channel;
}

inline WakeupQueues::Turns WakeupQueues::leave(Waiter& waiter,
                                               bool obtained,
                                               TimePoint now,
                                               std::chrono::milliseconds lease) noexcept {
  Turns turns;
  if (!waiter.queued_) {
    return turns;
  }
  waiter.queued_ = false;
  --waiting_;
  if (waiter.alone_) {
    polling_.leave(waiter);
    return turns;
  }
  WakeupQueue& queue = *waiter.wakeupQueue_;
  queue.leave(waiter, obtained, lease, now, turns);
  WakeupChannel& channel = queue.channel();
  if (channel.empty()) {
    lingering_.schedule(channel, channel.lingers ? now + linger_ : now);
  }
  waiter.waiterDropRef();
  return turns;
}

// Events.

inline WakeupQueues::Turns WakeupQueues::message(std::string_view channelName,
                                                 std::string_view text,
                                                 TimePoint now) {
  Turns turns;
  if (const auto found = channels_.find(channelName); found != channels_.end()) {
    for (WakeupQueue& queue : found->second->queues) {
      queue.heard(text, turns);
    }
  }
  beginGeneration(channelName, Cause::message, now, turns);
  return turns;
}

inline WakeupQueues::Turns WakeupQueues::subscribed(std::string_view channelName) {
  Turns turns;
  if (const auto found = channels_.find(channelName); found != channels_.end()) {
    changes_.confirmed(found->second->name, found->second->confirmations);
  }
  beginGeneration(channelName, Cause::confirmation, {}, turns);
  return turns;
}

inline WakeupQueues::Turns WakeupQueues::serverReplaced() {
  Turns turns;
  for (const auto& [name, channel] : channels_) {
    beginGeneration(name, Cause::replacement, {}, turns);
  }
  return turns;
}

/// Something may have changed on the server: the first of each wake-up queue looks.
inline void WakeupQueues::beginGeneration(std::string_view channelName,
                                          Cause cause,
                                          TimePoint now,
                                          Turns& turns) {
  const auto found = channels_.find(channelName);
  if (found == channels_.end()) {
    return;
  }
  WakeupChannel& channel = *found->second;
  ++channel.generation;
  if (cause == Cause::confirmation) {
    channel.subscribed = true;
    channel.refused = false;
  }
  for (WakeupQueue& queue : channel.queues) {
    if (cause == Cause::message) {
      queue.lookAfterMessage(now, turns);
    } else {
      queue.lookAgain(turns);
    }
  }
}

inline bool WakeupQueues::refused(std::string_view channelName) noexcept {
  const auto found = channels_.find(channelName);
  if (found == channels_.end()) {
    return false;
  }
  found->second->subscribed = false;
  return !std::exchange(found->second->refused, true);
}

// Time.

inline WakeupQueues::Turns WakeupQueues::poll(TimePoint now) {
  Turns turns;
  while (!shared_.polls.empty() && shared_.polls.nextDue() <= now) {
    WakeupQueue& queue = shared_.polls.top();
    queue.stopPolling();
    queue.lookAgain(turns);
  }
  polling_.poll(now, turns);
  return turns;
}

inline void WakeupQueues::expireLingering(TimePoint now) {
  while (!lingering_.empty() && lingering_.nextDue() <= now) {
    WakeupChannel& channel = lingering_.top();
    changes_.unsubscribe(channel.name);
    forget(channel);
  }
}

inline void WakeupQueues::forget(WakeupChannel& channel) noexcept {
  for (WakeupQueue& queue : channel.queues) {
    // Waiters that were told of an opening have left the line without anybody looking at when it
    // was to be polled.
    queue.stopPolling();
  }
  lingering_.remove(channel);
  channels_.erase(channels_.find(std::string_view(channel.name)));
}

inline WakeupQueues::Dismissed WakeupQueues::takeOne(TimePoint now) noexcept {
  Waiter* waiter = polling_.front();
  while (waiter == nullptr && !channels_.empty()) {
    WakeupChannel& channel = *channels_.begin()->second;
    for (WakeupQueue& queue : channel.queues) {
      waiter = waiter == nullptr ? queue.front() : waiter;
    }
    if (waiter == nullptr) {
      forget(channel);
    }
  }
  if (waiter == nullptr) {
    return {};
  }
  const Dismissed dismissed{waiter, waiter->trying_};
  waiter->waiterAddRef();
  Turns turns = leave(*waiter, false, now);
  while (Waiter* const next = turns.popFront()) {
    next->waiterDropRef();
  }
  return dismissed;
}

}  // namespace rlock::detail
