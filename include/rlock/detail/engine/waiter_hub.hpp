// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/deadline_heap.hpp>
#include <rlock/detail/lock_traits.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
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

 protected:
  /// In a turn: the message came that ends the wait (WaitTerms::opensOn), so there is no need to
  /// try.
  [[nodiscard]] bool happened() const noexcept { return happened_.load(std::memory_order_acquire); }

 private:
  friend class WaiterHub;
  std::list<Waiter*>::iterator place_{};
  std::string_view channel_;
  std::uint8_t lane_ = 0;
  bool queued_ = false;
  bool alone_ = false;
  bool trying_ = false;  // it was given a turn and has not come back
  std::atomic<bool> happened_{false};
  int need_ = 1;
  std::uint64_t seen_ = 0;   // the channel's news when its last try began
  std::uint64_t round_ = 0;  // the confirmation from which on messages are meant for it
  DeadlineHook alarm_;       // WakeRule::alone
};

/// Where a waiter waits and for what.
struct WaitTerms {
  std::string_view channel;
  WakeRule rule = WakeRule::one;  ///< the same for all waiters of one lane
  std::uint8_t lane = 0;          ///< 0 or 1
  int need = 1;
  /// WakeRule::each: the message that says that what all of them wait for has happened. It ends the
  /// wait of everybody who waited when it was sent, whatever has come since. A message may be older
  /// than the wait that it meets: it counts for those only whose subscription was confirmed after
  /// they had begun to wait, and is news for the others. Empty: none does.
  std::string_view opensOn{};
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
/// refused, so that nothing lies idle: after each refusal the next one tries that needs less than
/// whatever was refused. But when somebody has passed the first, time is divided into spans as long
/// as the safety poll: in the first one others pass, in the second nobody does, so that what
/// becomes free can add up, and so on in turns.
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
    std::uint64_t confirmation = 0;  ///< as expect() says; 0: none was asked for
  };
  [[nodiscard]] Mark mark(std::string_view channel, std::uint8_t lane = 0) const {
    const auto found = channels_.find(channel);
    if (found == channels_.end()) {
      return {};
    }
    return {found->second->epoch, !found->second->lanes[lane].waiters.empty()};
  }

  /// A mark for one who waits for the message that opens (WaitTerms::opensOn): also has the
  /// subscription confirmed once more, so that messages from now on can be told from older ones.
  Mark expect(std::string_view channel, std::uint8_t lane = 0) {
    Mark result = mark(channel, lane);
    if (const auto found = channels_.find(channel); found != channels_.end()) {
      result.confirmation = confirmationFrom(*found->second);
    }
    return result;
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
      bool opened = false;
      if (!terms.opensOn.empty()) {
        waiter.round_ =
            mark && mark->confirmation != 0 ? mark->confirmation : confirmationFrom(*lane.channel);
        opened = lane.openedIn >= waiter.round_;
      }
      waiter.happened_.store(opened, std::memory_order_release);
      waiter.queued_ = true;
      ++waiting_;
      lingering_.remove(*lane.channel);
    }
    const bool hadTurn = std::exchange(waiter.trying_, false);
    if (mark) {
      waiter.seen_ = mark->epoch;
    }
    Turns turns;
    if (waiter.happened_.load(std::memory_order_relaxed)) {
      give(lane, waiter, turns);
      return turns;
    }
    // Without a subscription there is no news to compare; its confirmation will bring a turn.
    const bool outdated = lane.channel->subscribed && waiter.seen_ != lane.channel->epoch;
    if (lane.waiters.front() != &waiter) {
      if (lane.rule == WakeRule::fitting) {
        // News during its try gave the first one a turn, which could not be passed on to this one.
        if (tried && outdated) {
          give(lane, waiter, turns);
          return turns;
        }
        if (tried) {
          noteRefusal(lane, waiter);
        }
        if (hadTurn) {
          passOn(lane, std::next(waiter.place_), now, turns);
        } else if (!tried && !somebodyTries(lane)) {
          passOn(lane, waiter.place_, now, turns);
        }
      }
      return turns;
    }
    if (!tried || outdated) {
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
    if (lane.rule == WakeRule::fitting) {
      noteRefusal(lane, waiter);
      passOn(lane, std::next(waiter.place_), now, turns);
    }
    return turns;
  }

  /// The waiter leaves, with the lock or without. Returns who must try next.
  /// @param obtained  it has the lock, so trying is pointless until there is news, unless the
  /// lane's rule says otherwise
  /// @param lease     after which the end of what it has is no news; zero: not known
  Turns leave(Waiter& waiter,
              bool obtained,
              TimePoint now,
              std::chrono::milliseconds lease = {}) noexcept {
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
      lane.refused = kNothing;
      polls_.remove(lane);
    } else if (obtained && lane.rule == WakeRule::each) {
      for (Waiter* other : lane.waiters) {
        give(lane, *other, turns);
      }
    } else if (first && lane.rule == WakeRule::fitting) {
      // What was kept for it, or what it has left, may be enough for the next.
      give(lane, *lane.waiters.front(), turns);
    } else if (first) {
      const bool again = !obtained || (channel.subscribed && waiter.seen_ != channel.epoch);
      if (hadTurn && again) {
        // News that came during a successful try is about what happened after it: the lock may be
        // free again.
        give(lane, *lane.waiters.front(), turns);
      } else if (obtained) {
        const bool sooner = lease.count() > 0 && lease < safetyPoll_;
        polls_.schedule(lane, now + (sooner ? lease + std::chrono::milliseconds(1) : safetyPoll_));
      }
    } else if (hadTurn && lane.rule == WakeRule::fitting) {
      passOn(lane, next, now, turns);
    }
    if (channel.empty()) {
      lingering_.schedule(channel, now + linger_);
    }
    waiter.waiterDropRef();
    return turns;
  }

  /// A message came.
  Turns message(std::string_view channelName, std::string_view text = {}) {
    Turns turns;
    if (const auto found = channels_.find(channelName); found != channels_.end()) {
      for (Lane& lane : found->second->lanes) {
        if (lane.opensOn.empty() || lane.opensOn != text) {
          continue;
        }
        lane.openedIn = found->second->confirmed;
        for (Waiter* waiter : lane.waiters) {
          if (waiter->round_ <= lane.openedIn) {
            waiter->happened_.store(true, std::memory_order_release);
            give(lane, *waiter, turns);
          }
        }
      }
    }
    news(channelName, false, turns);
    return turns;
  }

  /// The subscription is confirmed: what is published from here on will be heard, what was before
  /// may have been missed. Each confirmation that was asked for follows its request.
  Turns subscribed(std::string_view channelName) {
    Turns turns;
    if (const auto found = channels_.find(channelName); found != channels_.end()) {
      Channel& channel = *found->second;
      // What has not gone out yet cannot be what was confirmed.
      if (channel.confirmed != channel.asked && channel.askedBefore != taken_) {
        channel.confirmed = channel.asked;
        if (std::exchange(channel.again, false)) {
          ask(channel);
        }
      }
    }
    news(channelName, true, turns);
    return turns;
  }

  /// The channel cannot be subscribed for now; its waiters poll until a confirmation comes. Returns
  /// whether that is new.
  bool refused(std::string_view channelName) noexcept {
    const auto found = channels_.find(channelName);
    if (found == channels_.end()) {
      return false;
    }
    found->second->subscribed = false;
    return !std::exchange(found->second->refused, true);
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
      changes_.push_back({channel.name, false});
      channels_.erase(channels_.find(std::string_view(channel.name)));
    }
  }

  [[nodiscard]] TimePoint nextDue() const noexcept {
    return std::min({polls_.nextDue(), alarms_.nextDue(), lingering_.nextDue()});
  }

  /// One subscription that is to begin, or to be confirmed once more, or to end.
  struct Change {
    std::string channel;
    bool subscribe;
  };
  /// What has become due since the last call, in order.
  std::vector<Change> takeChanges() noexcept {
    ++taken_;
    return std::exchange(changes_, {});
  }
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
  static constexpr int kNothing = std::numeric_limits<int>::max();

  struct Channel;
  struct Lane {
    Channel* channel = nullptr;
    WakeRule rule = WakeRule::one;
    std::list<Waiter*> waiters;
    DeadlineHook poll;
    // WakeRule::each.
    std::string opensOn;
    std::uint64_t openedIn = 0;  // the last confirmation before the last such message
    // WakeRule::fitting.
    int refused = kNothing;   // the least that was refused since the first waiter last tried
    bool passing = false;     // the present first waiter was passed
    TimePoint passedSince{};  // for the first time
  };
  struct Channel {
    std::string name;
    std::array<Lane, kLanes> lanes;
    std::uint64_t epoch = 1;  // counts the news
    bool subscribed = false;
    bool refused = false;  // and not confirmed since
    // Confirmations, numbered over all channels: at most one is under way.
    std::uint64_t asked = 0;
    std::uint64_t askedBefore = 0;  // which taking of the changes
    std::uint64_t confirmed = 0;
    bool again = false;  // somebody came while one was under way
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
      ask(*channel);
    }
    Lane& lane = channel->lanes[terms.lane];
    lane.rule = terms.rule;
    lane.opensOn = terms.opensOn;
    return lane;
  }

  void ask(Channel& channel) {
    channel.asked = ++asked_;
    channel.askedBefore = taken_;
    changes_.push_back({channel.name, true});
  }

  // The first confirmation of those whose requests go out from now on.
  std::uint64_t confirmationFrom(Channel& channel) {
    if (channel.askedBefore == taken_) {
      return channel.asked;
    }
    if (channel.confirmed == channel.asked) {
      ask(channel);
      return channel.asked;
    }
    channel.again = true;
    return channel.asked + 1;
  }

  // The waiter is told outside the lock and may leave before that: the caller of the hub gets a
  // reference with it and drops it after turn().
  static void give(Lane& lane, Waiter& waiter, Turns& turns) {
    if (std::exchange(waiter.trying_, true)) {
      return;
    }
    waiter.seen_ = lane.channel->epoch;
    if (lane.waiters.front() == &waiter) {
      lane.refused = kNothing;
    }
    waiter.waiterAddRef();
    turns.push_back(&waiter);
  }

  // Until there is news, whoever needs as much will be refused, too: others only take.
  static void noteRefusal(Lane& lane, const Waiter& waiter) noexcept {
    lane.refused = std::min(lane.refused, waiter.need_);
  }

  static bool somebodyTries(const Lane& lane) noexcept {
    return std::any_of(lane.waiters.begin(), lane.waiters.end(), [](const Waiter* waiter) {
      return waiter->trying_;
    });
  }

  // Gives the next waiter behind the first a turn that needs less than what was refused, unless the
  // present span of time is the first one's own.
  void passOn(Lane& lane, std::list<Waiter*>::iterator from, TimePoint now, Turns& turns) {
    if (lane.passing && (now - lane.passedSince) / safetyPoll_ % 2 != 0) {
      return;
    }
    for (auto it = from; it != lane.waiters.end(); ++it) {
      if ((*it)->need_ < lane.refused && !(*it)->trying_) {
        if (!std::exchange(lane.passing, true)) {
          lane.passedSince = now;
        }
        give(lane, **it, turns);
        return;
      }
    }
  }

  void news(std::string_view channelName, bool subscribed, Turns& turns) {
    const auto found = channels_.find(channelName);
    if (found == channels_.end()) {
      return;
    }
    Channel& channel = *found->second;
    ++channel.epoch;
    if (subscribed) {
      channel.subscribed = true;
      channel.refused = false;
    }
    for (Lane& lane : channel.lanes) {
      if (!lane.waiters.empty()) {
        give(lane, *lane.waiters.front(), turns);
      }
    }
  }

  const std::chrono::milliseconds safetyPoll_;
  const std::chrono::milliseconds linger_;
  std::size_t waiting_ = 0;
  std::uint64_t asked_ = 0;
  std::uint64_t taken_ = 0;  // how often the changes were
  std::unordered_map<std::string_view, std::unique_ptr<Channel>> channels_;
  std::list<Waiter*> alone_;
  DeadlineHeap<Lane, &Lane::poll> polls_;
  DeadlineHeap<Waiter, &Waiter::alarm_> alarms_;
  DeadlineHeap<Channel, &Channel::linger> lingering_;
  std::vector<Change> changes_;
};

}  // namespace rlock::detail
