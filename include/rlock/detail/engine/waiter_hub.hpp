// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/deadline_heap.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rlock::detail {

/// One caller that sleeps until it is its turn to try again.
class Waiter {
 public:
  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  virtual ~Waiter() = default;

  /// Try now. Called with no lock held, from any thread. A waiter that is leaving ignores it:
  /// leave() passes the turn on.
  virtual void turn() noexcept = 0;
  /// The client is closed: stop waiting. Called with no lock held, from any thread.
  virtual void shutDown() noexcept = 0;
  virtual void waiterAddRef() noexcept = 0;
  virtual void waiterDropRef() noexcept = 0;

 private:
  friend class WaiterHub;
  std::list<Waiter*>::iterator place_{};
  std::string_view channel_;
  bool queued_ = false;
  std::uint64_t seen_ = 0;  // the channel's news when its last try began
};

/// Who waits for what: for each channel the callers of this client in the order they came. Only the
/// first of them tries; the others sleep until they are first. Every message, every confirmed
/// subscription and every poll gives the first one a turn; a turn that it cannot use goes to the
/// next.
///
/// The hub does nothing itself. Its methods change the state and return the waiter whose turn it
/// is, with a reference that the caller drops after turn(); subscriptions that are to begin or end
/// are collected for whoever owns the connection.
///
/// **Thread safety:** One thread at a time.
class WaiterHub {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  WaiterHub(std::chrono::milliseconds safetyPoll, std::chrono::milliseconds linger) noexcept
      : safetyPoll_(safetyPoll), linger_(linger) {}

  /// A mark to take before a try: when the channel has had news since, queue() knows.
  struct Mark {
    std::uint64_t epoch = 0;
    bool othersWait = false;
  };
  [[nodiscard]] Mark mark(std::string_view channel) const {
    const auto found = channels_.find(channel);
    if (found == channels_.end()) {
      return {};
    }
    return {found->second->epoch, !found->second->waiters.empty()};
  }

  /// Whether any channel exists: nobody needs a mark otherwise.
  [[nodiscard]] bool idle() const noexcept { return channels_.empty(); }

  /// The waiter goes to sleep: for the first time at the end of the queue, later at its place.
  /// Returns it when it must try at once.
  /// @param mark       taken before its first try; empty when it was a turn, or it has not tried at
  /// all
  /// @param tried      it has tried since it was last asleep
  /// @param remaining  how long the holder has it at most; negative = without end or not known
  Waiter* queue(Waiter& waiter,
                std::string_view channelName,
                std::optional<Mark> mark,
                bool tried,
                std::chrono::milliseconds remaining,
                TimePoint now) {
    Channel& channel = open(channelName);
    if (!waiter.queued_) {
      waiter.waiterAddRef();
      waiter.place_ = channel.waiters.insert(channel.waiters.end(), &waiter);
      waiter.channel_ = channel.name;
      waiter.queued_ = true;
      ++waiting_;
      lingering_.remove(channel);
    }
    if (mark) {
      waiter.seen_ = mark->epoch;
    }
    if (channel.waiters.front() != &waiter) {
      return nullptr;
    }
    channel.trying = false;
    // Without a subscription there is no news to compare; its confirmation will bring a turn.
    if (!tried || (channel.subscribed && waiter.seen_ != channel.epoch)) {
      return give(channel);
    }
    Clock::duration sleep = safetyPoll_;
    if (remaining.count() >= 0) {
      // One more millisecond: the server drops an expired key when its clock has passed the end.
      sleep = std::min<Clock::duration>(sleep, remaining + std::chrono::milliseconds(1));
    }
    polls_.schedule(channel, now + sleep);
    return nullptr;
  }

  /// The waiter leaves, with the lock or without. Returns who must try next, or null.
  /// @param obtained  it has the lock, so trying is pointless until there is news
  Waiter* leave(Waiter& waiter, bool obtained, TimePoint now) noexcept {
    if (!waiter.queued_) {
      return nullptr;
    }
    Channel& channel = *channels_.find(waiter.channel_)->second;
    const bool first = channel.waiters.front() == &waiter;
    channel.waiters.erase(waiter.place_);
    waiter.queued_ = false;
    --waiting_;
    Waiter* next = nullptr;
    if (first) {
      const bool unused = std::exchange(channel.trying, false);
      if (channel.waiters.empty()) {
        polls_.remove(channel);
      } else if (unused && (!obtained || (channel.subscribed && waiter.seen_ != channel.epoch))) {
        // News that came during a successful try is about what happened after it: the lock may be
        // free again.
        next = give(channel);
      } else if (obtained) {
        polls_.schedule(channel, now + safetyPoll_);
      }
    }
    if (channel.waiters.empty()) {
      lingering_.schedule(channel, now + linger_);
    }
    waiter.waiterDropRef();
    return next;
  }

  /// A message came.
  Waiter* message(std::string_view channelName) noexcept { return news(channelName, false); }

  /// The subscription is confirmed: what is published from here on will be heard, what was before
  /// may have been missed.
  Waiter* subscribed(std::string_view channelName) noexcept { return news(channelName, true); }

  /// The channel cannot be subscribed; its waiters poll.
  void refused(std::string_view channelName) noexcept {
    if (const auto found = channels_.find(channelName); found != channels_.end()) {
      found->second->subscribed = false;
      found->second->refused = true;
    }
  }

  /// The connection for subscriptions is gone; each channel will be confirmed again.
  void disconnected() noexcept {
    for (const auto& [name, channel] : channels_) {
      channel->subscribed = false;
    }
  }

  /// Whose poll is due; call it until it returns null.
  Waiter* poll(TimePoint now) noexcept {
    while (!polls_.empty() && polls_.nextDue() <= now) {
      Channel& channel = polls_.top();
      polls_.remove(channel);
      if (!channel.trying && !channel.waiters.empty()) {
        return give(channel);
      }
    }
    return nullptr;
  }

  /// Forgets channels that nobody has waited for lately.
  void expireLingering(TimePoint now) {
    while (!lingering_.empty() && lingering_.nextDue() <= now) {
      Channel& channel = lingering_.top();
      lingering_.remove(channel);
      polls_.remove(channel);
      if (!channel.refused) {
        changes_.push_back({channel.name, false});
      }
      channels_.erase(channels_.find(std::string_view(channel.name)));
    }
  }

  [[nodiscard]] TimePoint nextDue() const noexcept {
    return std::min(polls_.nextDue(), lingering_.nextDue());
  }

  /// One subscription that is to begin or to end.
  struct Change {
    std::string channel;
    bool subscribe;
  };
  /// What has become due since the last call, in order.
  std::vector<Change> takeChanges() noexcept { return std::exchange(changes_, {}); }
  [[nodiscard]] bool hasChanges() const noexcept { return !changes_.empty(); }

  /// Everybody who waits, for closing. Each entry carries a reference that the caller drops.
  [[nodiscard]] std::vector<Waiter*> all() const {
    std::vector<Waiter*> result;
    for (const auto& [name, channel] : channels_) {
      for (Waiter* waiter : channel->waiters) {
        waiter->waiterAddRef();
        result.push_back(waiter);
      }
    }
    return result;
  }

  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::size_t channels() const noexcept { return channels_.size(); }

 private:
  struct Channel {
    std::string name;
    std::list<Waiter*> waiters;
    std::uint64_t epoch = 1;  // counts the news
    bool subscribed = false;
    bool refused = false;
    bool trying = false;  // the first waiter was given a turn and has not come back
    DeadlineHook poll;
    DeadlineHook linger;
  };

  Channel& open(std::string_view name) {
    const auto found = channels_.find(name);
    if (found != channels_.end()) {
      return *found->second;
    }
    auto channel = std::make_unique<Channel>();
    channel->name = name;
    Channel& result = *channel;
    channels_.emplace(std::string_view(result.name), std::move(channel));
    changes_.push_back({result.name, true});
    return result;
  }

  // The waiter is told outside the lock and may leave before that: the caller of the hub gets a
  // reference with it and drops it after turn().
  Waiter* give(Channel& channel) noexcept {
    channel.trying = true;
    Waiter* first = channel.waiters.front();
    first->seen_ = channel.epoch;
    first->waiterAddRef();
    return first;
  }

  Waiter* news(std::string_view channelName, bool subscribed) noexcept {
    const auto found = channels_.find(channelName);
    if (found == channels_.end()) {
      return nullptr;
    }
    Channel& channel = *found->second;
    ++channel.epoch;
    if (subscribed) {
      channel.subscribed = true;
    }
    if (channel.trying || channel.waiters.empty()) {
      return nullptr;
    }
    return give(channel);
  }

  const std::chrono::milliseconds safetyPoll_;
  const std::chrono::milliseconds linger_;
  std::size_t waiting_ = 0;
  std::unordered_map<std::string_view, std::unique_ptr<Channel>> channels_;
  DeadlineHeap<Channel, &Channel::poll> polls_;
  DeadlineHeap<Channel, &Channel::linger> lingering_;
  std::vector<Change> changes_;
};

}  // namespace rlock::detail
