// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/deadline_heap.hpp>
#include <rlock/detail/lock_traits.hpp>

#include <algorithm>
#include <array>
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
  std::uint8_t lane_ = 0;
  bool queued_ = false;
  bool alone_ = false;
  bool trying_ = false;  // it was given a turn and has not come back
  int need_ = 1;
  std::uint64_t seen_ = 0;  // the channel's news when its last try began
  DeadlineHook alarm_;      // WakeRule::alone
};

/// Where a waiter waits and for what.
struct WaitTerms {
  std::string_view channel;
  WakeRule rule = WakeRule::one;  ///< the same for all waiters of one lane
  std::uint8_t lane = 0;          ///< 0 or 1
  int need = 1;
  /// It looks again after this long even if the hub's own safety poll is longer. Zero: the hub's.
  std::chrono::milliseconds poll{0};
};

/// Who waits for what: for each channel the callers of this client in the order they came, in one
/// or two lanes. Only the first of a lane tries; the others sleep until they are first, or until
/// the lane's WakeRule lets them try. Every message, every confirmed subscription and every poll
/// gives the first ones a turn; a turn that a waiter cannot use goes to the next.
///
/// The hub does nothing itself. Its methods change the state and return the waiters whose turn it
/// is, each with a reference that the caller drops after turn(); subscriptions that are to begin or
/// end are collected for whoever owns the connection.
///
/// Where waiters need different amounts (WakeRule::fitting), smaller ones pass a first one that is
/// refused, so that nothing lies idle; but from a safety poll after the first was passed, every
/// second such span of time is its own, so that what becomes free can add up.
///
/// **Thread safety:** One thread at a time.
class WaiterHub {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;
  using Turns = std::vector<Waiter*>;

  static constexpr std::size_t kLanes = 2;

  WaiterHub(std::chrono::milliseconds safetyPoll, std::chrono::milliseconds linger) noexcept
      : safetyPoll_(safetyPoll), linger_(linger) {}

  /// A mark to take before a try: when the channel has had news since, queue() knows.
  struct Mark {
    std::uint64_t epoch = 0;
    bool othersWait = false;
  };
  [[nodiscard]] Mark mark(std::string_view channel, std::uint8_t lane = 0) const {
    const auto found = channels_.find(channel);
    if (found == channels_.end()) {
      return {};
    }
    return {found->second->epoch, !found->second->lanes[lane].waiters.empty()};
  }

  /// Whether any channel exists and nobody waits alone: nobody needs a mark otherwise.
  [[nodiscard]] bool idle() const noexcept { return channels_.empty() && alone_.empty(); }

  /// The waiter goes to sleep: for the first time at the end of its lane, later at its place.
  /// @param mark       taken before its first try; empty when it was a turn, or it has not tried at
  /// all
  /// @param tried      it has tried since it was last asleep
  /// @param remaining  how long the holder has it at most; negative = without end or not known
  Turns queue(Waiter& waiter,
              const WaitTerms& terms,
              std::optional<Mark> mark,
              bool tried,
              std::chrono::milliseconds remaining,
              TimePoint now) {
    if (terms.rule == WakeRule::alone) {
      return queueAlone(waiter, terms, remaining, now);
    }
    Lane& lane = openLane(terms);
    const bool isNew = !waiter.queued_;
    if (isNew) {
      waiter.waiterAddRef();
      waiter.place_ = lane.waiters.insert(lane.waiters.end(), &waiter);
      waiter.channel_ = lane.channel->name;
      waiter.lane_ = terms.lane;
      waiter.need_ = terms.need;
      waiter.queued_ = true;
      ++waiting_;
      lingering_.remove(*lane.channel);
    }
    const bool hadTurn = std::exchange(waiter.trying_, false);
    if (mark) {
      waiter.seen_ = mark->epoch;
    }
    Turns turns;
    if (lane.waiters.front() != &waiter) {
      if (lane.rule == WakeRule::fitting) {
        if (hadTurn) {
          passOn(lane, std::next(waiter.place_), waiter.need_, turns);
        } else if (!tried && !somebodyTries(lane) && mayPass(lane, now)) {
          passOn(lane, waiter.place_, lane.waiters.front()->need_, turns);
        }
      }
      return turns;
    }
    // Without a subscription there is no news to compare; its confirmation will bring a turn.
    if (!tried || (lane.channel->subscribed && waiter.seen_ != lane.channel->epoch)) {
      give(lane, waiter, turns);
      return turns;
    }
    Clock::duration sleep = safetyPoll_;
    if (terms.poll.count() > 0) {
      sleep = std::min<Clock::duration>(sleep, terms.poll);
    }
    if (remaining.count() >= 0) {
      // One more millisecond: the server drops an expired key when its clock has passed the end.
      sleep = std::min<Clock::duration>(sleep, remaining + std::chrono::milliseconds(1));
    }
    polls_.schedule(lane, now + sleep);
    if (lane.rule == WakeRule::fitting && mayPass(lane, now)) {
      passOn(lane, std::next(waiter.place_), waiter.need_, turns);
    }
    return turns;
  }

  /// The waiter leaves, with the lock or without. Returns who must try next.
  /// @param obtained  it has the lock, so trying is pointless until there is news, unless the
  /// lane's rule says otherwise
  Turns leave(Waiter& waiter, bool obtained, TimePoint now) noexcept {
    Turns turns;
    if (!waiter.queued_) {
      return turns;
    }
    waiter.queued_ = false;
    --waiting_;
    const bool hadTurn = std::exchange(waiter.trying_, false);
    if (std::exchange(waiter.alone_, false)) {
      alarms_.remove(waiter);
      alone_.erase(waiter.place_);
      waiter.waiterDropRef();
      return turns;
    }
    Channel& channel = *channels_.find(waiter.channel_)->second;
    Lane& lane = channel.lanes[waiter.lane_];
    const bool first = lane.waiters.front() == &waiter;
    const auto next = lane.waiters.erase(waiter.place_);
    if (first) {
      lane.passing = false;
    }
    if (lane.waiters.empty()) {
      polls_.remove(lane);
    } else if (obtained && lane.rule == WakeRule::each) {
      for (Waiter* other : lane.waiters) {
        give(lane, *other, turns);
      }
    } else if (first) {
      const bool again = !obtained || lane.rule == WakeRule::fitting ||
                         (channel.subscribed && waiter.seen_ != channel.epoch);
      if (hadTurn && again) {
        // News that came during a successful try is about what happened after it: the lock may be
        // free again.
        give(lane, *lane.waiters.front(), turns);
      } else if (obtained) {
        polls_.schedule(lane, now + safetyPoll_);
      }
    } else if (hadTurn && lane.rule == WakeRule::fitting) {
      passOn(lane, next, lane.refusedNeed, turns);
    }
    if (channel.empty()) {
      lingering_.schedule(channel, now + linger_);
    }
    waiter.waiterDropRef();
    return turns;
  }

  /// A message came.
  Turns message(std::string_view channelName) { return news(channelName, false); }

  /// The subscription is confirmed: what is published from here on will be heard, what was before
  /// may have been missed.
  Turns subscribed(std::string_view channelName) { return news(channelName, true); }

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

  /// Who is to look because its time has come.
  Turns poll(TimePoint now) {
    Turns turns;
    while (!polls_.empty() && polls_.nextDue() <= now) {
      Lane& lane = polls_.top();
      polls_.remove(lane);
      if (!lane.waiters.empty()) {
        give(lane, *lane.waiters.front(), turns);
      }
    }
    while (!alarms_.empty() && alarms_.nextDue() <= now) {
      Waiter& waiter = alarms_.top();
      alarms_.remove(waiter);
      waiter.trying_ = true;
      waiter.waiterAddRef();
      turns.push_back(&waiter);
    }
    return turns;
  }

  /// Forgets channels that nobody has waited for lately.
  void expireLingering(TimePoint now) {
    while (!lingering_.empty() && lingering_.nextDue() <= now) {
      Channel& channel = lingering_.top();
      lingering_.remove(channel);
      if (!channel.refused) {
        changes_.push_back({channel.name, false});
      }
      channels_.erase(channels_.find(std::string_view(channel.name)));
    }
  }

  [[nodiscard]] TimePoint nextDue() const noexcept {
    return std::min({polls_.nextDue(), alarms_.nextDue(), lingering_.nextDue()});
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
    std::vector<Waiter*> result(alone_.begin(), alone_.end());
    for (const auto& [name, channel] : channels_) {
      for (const Lane& lane : channel->lanes) {
        result.insert(result.end(), lane.waiters.begin(), lane.waiters.end());
      }
    }
    for (Waiter* waiter : result) {
      waiter->waiterAddRef();
    }
    return result;
  }

  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::size_t channels() const noexcept { return channels_.size(); }

 private:
  struct Channel;
  struct Lane {
    Channel* channel = nullptr;
    WakeRule rule = WakeRule::one;
    std::list<Waiter*> waiters;
    DeadlineHook poll;
    // WakeRule::fitting.
    int refusedNeed = 0;      // the least that was refused since the first waiter last tried
    bool passing = false;     // the present first waiter was passed
    TimePoint passedSince{};  // for the first time
  };
  struct Channel {
    std::string name;
    std::array<Lane, kLanes> lanes;
    std::uint64_t epoch = 1;  // counts the news
    bool subscribed = false;
    bool refused = false;
    DeadlineHook linger;

    [[nodiscard]] bool empty() const noexcept {
      return lanes[0].waiters.empty() && lanes[1].waiters.empty();
    }
  };

  Turns queueAlone(Waiter& waiter,
                   const WaitTerms& terms,
                   std::chrono::milliseconds remaining,
                   TimePoint now) {
    if (!waiter.queued_) {
      waiter.waiterAddRef();
      waiter.place_ = alone_.insert(alone_.end(), &waiter);
      waiter.queued_ = true;
      waiter.alone_ = true;
      ++waiting_;
    }
    waiter.trying_ = false;
    Clock::duration sleep = terms.poll.count() > 0 ? terms.poll : safetyPoll_;
    if (remaining.count() >= 0) {
      sleep = std::min<Clock::duration>(sleep, remaining + std::chrono::milliseconds(1));
    }
    alarms_.schedule(waiter, now + sleep);
    return {};
  }

  Lane& openLane(const WaitTerms& terms) {
    const auto found = channels_.find(terms.channel);
    Channel* channel = nullptr;
    if (found != channels_.end()) {
      channel = found->second.get();
    } else {
      auto made = std::make_unique<Channel>();
      made->name = terms.channel;
      channel = made.get();
      for (Lane& lane : channel->lanes) {
        lane.channel = channel;
      }
      channels_.emplace(std::string_view(channel->name), std::move(made));
      changes_.push_back({channel->name, true});
    }
    Lane& lane = channel->lanes[terms.lane];
    lane.rule = terms.rule;
    return lane;
  }

  // The waiter is told outside the lock and may leave before that: the caller of the hub gets a
  // reference with it and drops it after turn().
  static void give(Lane& lane, Waiter& waiter, Turns& turns) {
    if (std::exchange(waiter.trying_, true)) {
      return;
    }
    waiter.seen_ = lane.channel->epoch;
    waiter.waiterAddRef();
    turns.push_back(&waiter);
  }

  static bool somebodyTries(const Lane& lane) noexcept {
    return std::any_of(lane.waiters.begin(), lane.waiters.end(), [](const Waiter* waiter) {
      return waiter->trying_;
    });
  }

  // Whether others may pass the first waiter now.
  bool mayPass(Lane& lane, TimePoint now) noexcept {
    if (!std::exchange(lane.passing, true)) {
      lane.passedSince = now;
    }
    return (now - lane.passedSince) / safetyPoll_ % 2 == 0;
  }

  // Gives the next waiter a turn that needs less than what was refused.
  static void passOn(Lane& lane, std::list<Waiter*>::iterator from, int refused, Turns& turns) {
    lane.refusedNeed = refused;
    for (auto it = from; it != lane.waiters.end(); ++it) {
      if ((*it)->need_ < refused && !(*it)->trying_) {
        give(lane, **it, turns);
        return;
      }
    }
  }

  Turns news(std::string_view channelName, bool subscribed) {
    Turns turns;
    const auto found = channels_.find(channelName);
    if (found == channels_.end()) {
      return turns;
    }
    Channel& channel = *found->second;
    ++channel.epoch;
    if (subscribed) {
      channel.subscribed = true;
    }
    for (Lane& lane : channel.lanes) {
      if (!lane.waiters.empty()) {
        give(lane, *lane.waiters.front(), turns);
      }
    }
    return turns;
  }

  const std::chrono::milliseconds safetyPoll_;
  const std::chrono::milliseconds linger_;
  std::size_t waiting_ = 0;
  std::unordered_map<std::string_view, std::unique_ptr<Channel>> channels_;
  std::list<Waiter*> alone_;
  DeadlineHeap<Lane, &Lane::poll> polls_;
  DeadlineHeap<Waiter, &Waiter::alarm_> alarms_;
  DeadlineHeap<Channel, &Channel::linger> lingering_;
  std::vector<Change> changes_;
};

}  // namespace rlock::detail
