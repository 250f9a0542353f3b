// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/deadline_heap.hpp>
#include <rlock/detail/base/lock_traits.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rlock::detail {

class Waiter;

/// The neighbours of a waiter in a WaiterChain.
struct WaiterLink {
  Waiter* before = nullptr;
  Waiter* after = nullptr;
};

/// One caller that sleeps until it is its turn to try again.
class Waiter {
 public:
  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  virtual ~Waiter() = default;

  /// Try now. Called with no lock held, from any thread, and never from within another turn of the
  /// same client. A waiter that is leaving ignores it: leave() passes the turn on.
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
  friend class WakeupQueues;
  friend class WaiterTurns;

  void* wakeupQueue_ = nullptr;  // WakeupQueues::WakeupQueue
  // In its wake-up queue, or among those that were told, or among those that poll.
  WaiterLink line_;
  WaiterLink fellows_;  // WakeRule::bestFit: those who need as much
  Waiter* nextTurn_ = nullptr;
  bool queued_ = false;
  bool alone_ = false;
  bool trying_ = false;  // it was given a turn and has not come back
  std::atomic<bool> happened_{false};
  int need_ = 1;
  std::uint64_t number_ = 0;    // in the order of arrival
  std::uint64_t seen_ = 0;      // the channel's generation when its last try began
  std::uint64_t openings_ = 0;  // the wake-up queue's last opening then
  std::uint64_t wave_ = 0;      // which the turn belongs to
  std::uint64_t round_ = 0;     // the confirmation from which on messages are meant for it
  std::chrono::steady_clock::time_point looksAt_{};  // when it is to look again if it is first
  DeadlineHook alarm_;                               // WakeRule::polling
};

/// Waiters one after the other. Putting in, taking out and moving on cost the same however many
/// there are, and nothing is allocated.
///
/// **Thread safety:** One thread at a time.
template <WaiterLink Waiter::*Link>
class WaiterChain {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  /// Null when empty.
  [[nodiscard]] Waiter* front() const noexcept { return first_; }
  [[nodiscard]] static Waiter* after(const Waiter& waiter) noexcept { return (waiter.*Link).after; }

  void pushBack(Waiter& waiter) noexcept {
    (waiter.*Link) = {last_, nullptr};
    (last_ == nullptr ? first_ : (last_->*Link).after) = &waiter;
    last_ = &waiter;
  }
  /// The waiter must be in this chain.
  void remove(Waiter& waiter) noexcept {
    const WaiterLink link = std::exchange(waiter.*Link, {});
    (link.before == nullptr ? first_ : (link.before->*Link).after) = link.after;
    (link.after == nullptr ? last_ : (link.after->*Link).before) = link.before;
  }

 private:
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
};

/// Waiters whose turn it is, each with a reference that the receiver drops after turn(). A waiter
/// is in one of these at most, and nothing is allocated.
///
/// **Thread safety:** One thread at a time.
class WaiterTurns {
 public:
  class Iterator {
   public:
    using value_type = Waiter*;
    using difference_type = std::ptrdiff_t;
    Iterator() noexcept = default;
    explicit Iterator(Waiter* waiter) noexcept : waiter_(waiter) {}
    Waiter* operator*() const noexcept { return waiter_; }
    Iterator& operator++() noexcept {
      waiter_ = waiter_->nextTurn_;
      return *this;
    }
    Iterator operator++(int) noexcept {
      const Iterator old = *this;
      ++*this;
      return old;
    }
    friend bool operator==(const Iterator&, const Iterator&) noexcept = default;

   private:
    Waiter* waiter_ = nullptr;
  };

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Null when empty.
  [[nodiscard]] Waiter* front() const noexcept { return first_; }
  [[nodiscard]] Iterator begin() const noexcept { return Iterator(first_); }
  [[nodiscard]] Iterator end() const noexcept { return Iterator(); }

  void pushBack(Waiter& waiter) noexcept {
    waiter.nextTurn_ = nullptr;
    (last_ == nullptr ? first_ : last_->nextTurn_) = &waiter;
    last_ = &waiter;
    ++size_;
  }
  /// Takes all of another.
  void append(WaiterTurns& other) noexcept {
    if (other.empty()) {
      return;
    }
    (last_ == nullptr ? first_ : last_->nextTurn_) = other.first_;
    last_ = other.last_;
    size_ += other.size_;
    other = WaiterTurns();
  }
  /// Takes the first out; null when empty.
  Waiter* popFront() noexcept {
    Waiter* const waiter = first_;
    if (waiter != nullptr) {
      first_ = std::exchange(waiter->nextTurn_, nullptr);
      last_ = first_ == nullptr ? nullptr : last_;
      --size_;
    }
    return waiter;
  }

 private:
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
  std::size_t size_ = 0;
};

/// Where a waiter waits and for what.
struct WaitTerms {
  std::string_view channel;
  WakeRule rule = WakeRule::fifo;  ///< the same for all waiters of one wake-up queue
  std::uint8_t wakeupQueue = 0;    ///< 0 or 1
  int need = 1;
  /// WakeRule::broadcast: the message that says that what all of them wait for has happened. It
  /// ends the wait of everybody who waited when it was sent, whatever has come since. A message may
  /// be older than the wait that it meets: it counts for those only whose subscription was
  /// confirmed after they had begun to wait; for the others it just begins a generation. Empty:
  /// none does.
  std::string_view opensOn{};
  /// It looks again after this long even if the client's safety poll is longer. Zero: after the
  /// safety poll.
  std::chrono::milliseconds poll{0};
  /// The channel is kept for a while after its last waiter, because others may need it soon.
  bool lingers = true;
};

/// The queues of waiters: for each channel the callers of this client in the order they came, in
/// one or two wake-up queues. Only the first of a wake-up queue tries; the others sleep until they
/// are first, or until the wake-up queue's WakeRule lets them try. Every message, every confirmed
/// subscription and every poll gives the first ones a turn; a turn that a waiter cannot use goes to
/// the next.
///
/// The wake-up queues does nothing itself. Its methods change the state and return the waiters
/// whose turn it is, each with a reference that the caller drops after turn(); subscriptions that
/// are to begin or end are collected for whoever owns the connection.
///
/// Waking n waiters costs O(n) in all. Where all get in together (WakeRule::broadcast), the first
/// that gets in opens the wake-up queue for the others, once for each turn that came from outside:
/// those who get in by that opening have nothing to tell the others. A waiter that tried while the
/// wake-up queue was opened, or came meanwhile, has missed it and tries once more.
///
/// Where waiters need different amounts (WakeRule::bestFit), smaller ones pass a first one that is
/// refused, so that nothing lies idle: after each refusal the next one tries that needs less than
/// whatever was refused. But when somebody has passed the first, time is divided into spans as long
/// as the safety poll: in the first one others pass, in the second nobody does, so that what
/// becomes free can add up, and so on in turns.
///
/// **Thread safety:** One thread at a time.
class WakeupQueues {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;
  using Turns = WaiterTurns;

  static constexpr std::size_t kQueuesPerChannel = 2;

  WakeupQueues(std::chrono::milliseconds safetyPoll, std::chrono::milliseconds linger) noexcept
      : safetyPoll_(safetyPoll), linger_(linger) {}

  /// A mark to take before a try: by it queue() sees whether a new generation has begun since.
  struct Mark {
    std::uint64_t generation = 0;
    bool othersWait = false;
    std::uint64_t confirmation = 0;  ///< as expect() says; 0: none was asked for
    std::uint64_t openings = 0;      ///< WakeRule::broadcast: the wake-up queue's last opening
  };
  [[nodiscard]] Mark mark(std::string_view channel, std::uint8_t wakeupQueue = 0) const {
    const auto found = channels_.find(channel);
    if (found == channels_.end()) {
      return {};
    }
    const WakeupQueue& at = found->second->wakeupQueues[wakeupQueue];
    return {found->second->generation, !at.line.empty(), 0, at.openings};
  }

  /// A mark for one who waits for the message that opens (WaitTerms::opensOn): also has the
  /// subscription confirmed once more, so that messages from now on can be told from older ones.
  Mark expect(std::string_view channel, std::uint8_t wakeupQueue = 0) {
    Mark result = mark(channel, wakeupQueue);
    if (const auto found = channels_.find(channel); found != channels_.end()) {
      result.confirmation = confirmationFrom(*found->second);
    }
    return result;
  }

  /// Whether any channel exists and nobody waits alone: nobody needs a mark otherwise.
  [[nodiscard]] bool idle() const noexcept { return channels_.empty() && alone_.empty(); }

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
              TimePoint now) {
    if (terms.rule == WakeRule::polling) {
      return queueAlone(waiter, terms, remaining, now);
    }
    Turns turns;
    const bool isNew = !waiter.queued_;
    WakeupQueue& wakeupQueue = isNew ? enter(waiter, terms, mark) : wakeupQueueOf(waiter);
    const bool hadTurn = endTurn(wakeupQueue, waiter);
    if (mark) {
      waiter.seen_ = mark->generation;
    }
    if (isNew) {
      waiter.openings_ = mark ? mark->openings : wakeupQueue.openings;
    }
    if (isNew && !terms.opensOn.empty() && wakeupQueue.openedIn >= waiter.round_) {
      tell(wakeupQueue, waiter, turns);
      return turns;
    }
    if (waiter.happened_.load(std::memory_order_relaxed)) {
      give(wakeupQueue, waiter, turns);
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
    waiter.looksAt_ = now + sleep;
    // Without a subscription generations say nothing; its confirmation will bring a turn.
    const bool outdated = isOutdated(waiter, *wakeupQueue.channel);
    const bool missedOpening = wakeupQueue.rule == WakeRule::broadcast && tried &&
                               waiter.openings_ != wakeupQueue.openings;
    if (wakeupQueue.line.front() != &waiter) {
      if (missedOpening) {
        give(wakeupQueue, waiter, wakeupQueue.openedWave, turns);
      } else if (wakeupQueue.rule == WakeRule::bestFit) {
        queueFitting(wakeupQueue, waiter, tried, outdated, hadTurn, now, turns);
      }
      return turns;
    }
    if (!tried || outdated || missedOpening) {
      give(wakeupQueue, waiter, turns);
      return turns;
    }
    polls_.schedule(wakeupQueue, waiter.looksAt_);
    if (wakeupQueue.rule == WakeRule::bestFit) {
      noteRefusal(wakeupQueue, waiter);
      passOn(wakeupQueue, now, turns);
    }
    return turns;
  }

  /// The waiter leaves, with the lock or without. Returns who must try next.
  /// @param obtained  it has the lock, so trying is pointless in this generation, unless the
  /// wake-up queue's rule says otherwise
  /// @param lease     after which what it has ends without a message; zero: not known
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
    if (std::exchange(waiter.alone_, false)) {
      waiter.trying_ = false;
      alarms_.remove(waiter);
      alone_.remove(waiter);
      waiter.waiterDropRef();
      return turns;
    }
    WakeupQueue& wakeupQueue = wakeupQueueOf(waiter);
    Channel& channel = *wakeupQueue.channel;
    const bool hadTurn = endTurn(wakeupQueue, waiter);
    if (waiter.happened_.load(std::memory_order_relaxed)) {
      wakeupQueue.told.remove(waiter);
    } else {
      const bool first = wakeupQueue.line.front() == &waiter;
      removeFromLine(wakeupQueue, waiter);
      if (first) {
        wakeupQueue.passing = false;
      }
      if (wakeupQueue.line.empty()) {
        wakeupQueue.refused = kNothing;
        polls_.remove(wakeupQueue);
      } else {
        handOn(wakeupQueue, waiter, {first, obtained, hadTurn}, lease, now, turns);
      }
    }
    if (channel.empty()) {
      lingering_.schedule(channel, channel.lingers ? now + linger_ : now);
    }
    waiter.waiterDropRef();
    return turns;
  }

  /// A message came.
  Turns message(std::string_view channelName, std::string_view text = {}) {
    Turns turns;
    if (const auto found = channels_.find(channelName); found != channels_.end()) {
      for (WakeupQueue& wakeupQueue : found->second->wakeupQueues) {
        if (wakeupQueue.opensOn.empty() || wakeupQueue.opensOn != text) {
          continue;
        }
        wakeupQueue.openedIn = found->second->confirmed;
        // They leave the line, so that no later message meets them again.
        Waiter* next = nullptr;
        for (Waiter* waiter = wakeupQueue.line.front(); waiter != nullptr; waiter = next) {
          next = Line::after(*waiter);
          if (waiter->round_ <= wakeupQueue.openedIn) {
            tell(wakeupQueue, *waiter, turns);
          }
        }
      }
    }
    beginGeneration(channelName, false, turns);
    return turns;
  }

  /// The subscription is confirmed: what is published from here on will be heard, what was before
  /// may have been missed. Each confirmation that was asked for follows its request.
  Turns subscribed(std::string_view channelName) {
    Turns turns;
    if (const auto found = channels_.find(channelName); found != channels_.end()) {
      Channel& channel = *found->second;
      // A request that has not gone out yet cannot be the one that was confirmed.
      if (channel.confirmed != channel.asked && channel.askedBefore != taken_) {
        channel.confirmed = channel.asked;
        if (channel.again) {
          ask(channel);
          channel.again = false;
        }
      }
    }
    beginGeneration(channelName, true, turns);
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

  /// The same for one channel.
  void disconnected(std::string_view channelName) noexcept {
    if (const auto found = channels_.find(channelName); found != channels_.end()) {
      found->second->subscribed = false;
    }
  }

  /// The waiters that are to look because their time has come.
  Turns poll(TimePoint now) {
    Turns turns;
    while (!polls_.empty() && polls_.nextDue() <= now) {
      WakeupQueue& wakeupQueue = polls_.top();
      polls_.remove(wakeupQueue);
      if (!wakeupQueue.line.empty()) {
        give(wakeupQueue, *wakeupQueue.line.front(), turns);
      }
    }
    while (!alarms_.empty() && alarms_.nextDue() <= now) {
      Waiter& waiter = alarms_.top();
      alarms_.remove(waiter);
      waiter.trying_ = true;
      waiter.waiterAddRef();
      turns.pushBack(waiter);
    }
    return turns;
  }

  /// Forgets channels that nobody has waited for lately.
  void expireLingering(TimePoint now) {
    while (!lingering_.empty() && lingering_.nextDue() <= now) {
      Channel& channel = lingering_.top();
      changes_.push_back({channel.name, false});
      for (WakeupQueue& wakeupQueue : channel.wakeupQueues) {
        // Waiters that were told of an opening have left the line without anybody looking at when
        // it was to be polled.
        polls_.remove(wakeupQueue);
      }
      lingering_.remove(channel);
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
  /// The changes that have become due since the last call, in order.
  std::vector<Change> takeChanges() noexcept {
    ++taken_;
    return std::exchange(changes_, {});
  }
  [[nodiscard]] bool hasChanges() const noexcept { return !changes_.empty(); }

  /// Everybody who waits, for closing. Each entry carries a reference that the caller drops.
  [[nodiscard]] std::vector<Waiter*> all() const {
    std::vector<Waiter*> result;
    result.reserve(waiting_);
    const auto add = [&result](const Line& line) {
      for (Waiter* waiter = line.front(); waiter != nullptr; waiter = Line::after(*waiter)) {
        result.push_back(waiter);
      }
    };
    add(alone_);
    for (const auto& [name, channel] : channels_) {
      for (const WakeupQueue& wakeupQueue : channel->wakeupQueues) {
        add(wakeupQueue.line);
        add(wakeupQueue.told);
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

  using Line = WaiterChain<&Waiter::line_>;
  using Fellows = WaiterChain<&Waiter::fellows_>;

  struct Channel;
  struct WakeupQueue {
    Channel* channel = nullptr;
    WakeRule rule = WakeRule::fifo;
    Line line;
    DeadlineHook poll;
    std::size_t trying = 0;  // how many have a turn
    // WakeRule::broadcast. A turn that comes from outside begins a wave.
    std::uint64_t wave = 0;
    std::uint64_t openedWave = 0;  // the last in which somebody got in
    std::uint64_t openings = 0;    // counts those waves, over all wake-up queues
    std::string opensOn;
    std::uint64_t openedIn = 0;  // the last confirmation before the last such message
    Line told;                   // for whom it has happened
    // WakeRule::bestFit.
    std::map<int, Fellows> needs;  // the line once more, by what they need
    int refused = kNothing;        // the least that was refused since the first waiter last tried
    bool passing = false;          // the present first waiter was passed
    TimePoint passedSince{};       // for the first time
  };
  struct Channel {
    std::string name;
    std::array<WakeupQueue, kQueuesPerChannel> wakeupQueues;
    std::uint64_t generation = 1;  // a message or a confirmation begins the next
    bool lingers = true;
    bool subscribed = false;
    bool refused = false;  // and not confirmed since
    // Confirmations, numbered over all channels: at most one is under way.
    std::uint64_t asked = 0;
    std::uint64_t askedBefore = 0;  // which taking of the changes
    std::uint64_t confirmed = 0;
    bool again = false;  // somebody came while one was under way
    DeadlineHook linger;

    [[nodiscard]] bool empty() const noexcept {
      return std::all_of(
          wakeupQueues.begin(), wakeupQueues.end(), [](const WakeupQueue& wakeupQueue) {
            return wakeupQueue.line.empty() && wakeupQueue.told.empty();
          });
    }
  };

  static WakeupQueue& wakeupQueueOf(const Waiter& waiter) noexcept {
    return *static_cast<WakeupQueue*>(waiter.wakeupQueue_);
  }

  Turns queueAlone(Waiter& waiter,
                   const WaitTerms& terms,
                   std::chrono::milliseconds remaining,
                   TimePoint now) {
    if (!waiter.queued_) {
      waiter.waiterAddRef();
      alone_.pushBack(waiter);
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

  // To the end of its wake-up queue. All that can fail comes first, so that a failure leaves
  // nothing behind and whoever leaves needs no memory.
  WakeupQueue& enter(Waiter& waiter, const WaitTerms& terms, const std::optional<Mark>& mark) {
    WakeupQueue& wakeupQueue = openQueue(terms);
    Channel& channel = *wakeupQueue.channel;
    std::uint64_t round = 0;
    try {
      if (terms.rule == WakeRule::bestFit) {
        wakeupQueue.needs.try_emplace(terms.need);
      }
      if (!terms.opensOn.empty()) {
        round = mark && mark->confirmation != 0 ? mark->confirmation : confirmationFrom(channel);
      }
    } catch (...) {
      if (channel.empty() && !channel.linger.linked()) {
        lingering_.schedule(channel, TimePoint::min());
      }
      throw;
    }
    lingering_.remove(channel);
    waiter.waiterAddRef();
    waiter.wakeupQueue_ = &wakeupQueue;
    waiter.need_ = terms.need;
    waiter.number_ = ++arrivals_;
    waiter.round_ = round;
    waiter.trying_ = false;
    waiter.happened_.store(false, std::memory_order_release);
    waiter.queued_ = true;
    ++waiting_;
    wakeupQueue.line.pushBack(waiter);
    if (wakeupQueue.rule == WakeRule::bestFit) {
      wakeupQueue.needs.find(terms.need)->second.pushBack(waiter);
    }
    return wakeupQueue;
  }

  static void removeFromLine(WakeupQueue& wakeupQueue, Waiter& waiter) noexcept {
    wakeupQueue.line.remove(waiter);
    if (wakeupQueue.rule != WakeRule::bestFit) {
      return;
    }
    const auto found = wakeupQueue.needs.find(waiter.need_);
    found->second.remove(waiter);
    if (found->second.empty()) {
      wakeupQueue.needs.erase(found);
    }
  }

  WakeupQueue& openQueue(const WaitTerms& terms) {
    const auto found = channels_.find(terms.channel);
    Channel* channel = nullptr;
    if (found != channels_.end()) {
      channel = found->second.get();
      WakeupQueue& wakeupQueue = channel->wakeupQueues[terms.wakeupQueue];
      wakeupQueue.opensOn = terms.opensOn;
      wakeupQueue.rule = terms.rule;
      return wakeupQueue;
    }
    auto made = std::make_unique<Channel>();
    channel = made.get();
    channel->name = terms.channel;
    channel->lingers = terms.lingers;
    for (WakeupQueue& wakeupQueue : channel->wakeupQueues) {
      wakeupQueue.channel = channel;
    }
    WakeupQueue& wakeupQueue = channel->wakeupQueues[terms.wakeupQueue];
    wakeupQueue.opensOn = terms.opensOn;
    wakeupQueue.rule = terms.rule;
    channels_.reserve(channels_.size() + 1);
    ask(*channel);
    try {
      channels_.emplace(std::string_view(channel->name), std::move(made));
    } catch (...) {
      changes_.pop_back();
      throw;
    }
    return wakeupQueue;
  }

  void ask(Channel& channel) {
    changes_.push_back({channel.name, true});
    channel.asked = ++asked_;
    channel.askedBefore = taken_;
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

  [[nodiscard]] static bool isOutdated(const Waiter& waiter, const Channel& channel) noexcept {
    return channel.subscribed && waiter.seen_ != channel.generation;
  }

  // A turn that comes from outside, or is handed on.
  static void give(WakeupQueue& wakeupQueue, Waiter& waiter, Turns& turns) noexcept {
    if (!waiter.trying_) {
      give(wakeupQueue, waiter, ++wakeupQueue.wave, turns);
    }
  }

  // The waiter is told outside the lock and may leave before that: the caller of the wake-up queues
  // gets a reference with it and drops it after turn().
  static void give(WakeupQueue& wakeupQueue,
                   Waiter& waiter,
                   std::uint64_t wave,
                   Turns& turns) noexcept {
    if (std::exchange(waiter.trying_, true)) {
      return;
    }
    ++wakeupQueue.trying;
    waiter.seen_ = wakeupQueue.channel->generation;
    waiter.openings_ = wakeupQueue.openings;
    waiter.wave_ = wave;
    if (wakeupQueue.line.front() == &waiter) {
      wakeupQueue.refused = kNothing;
    }
    waiter.waiterAddRef();
    turns.pushBack(waiter);
  }

  // Returns whether it had one.
  static bool endTurn(WakeupQueue& wakeupQueue, Waiter& waiter) noexcept {
    const bool had = std::exchange(waiter.trying_, false);
    wakeupQueue.trying -= had ? 1 : 0;
    return had;
  }

  // The event that the waiter waits for has happened.
  static void tell(WakeupQueue& wakeupQueue, Waiter& waiter, Turns& turns) noexcept {
    removeFromLine(wakeupQueue, waiter);
    wakeupQueue.told.pushBack(waiter);
    waiter.happened_.store(true, std::memory_order_release);
    give(wakeupQueue, waiter, turns);
  }

  struct Parting {
    bool first;
    bool obtained;
    bool hadTurn;
  };

  // Gives a turn to whoever must try now that `left` is gone. The line is not empty.
  void handOn(WakeupQueue& wakeupQueue,
              const Waiter& left,
              Parting parting,
              std::chrono::milliseconds lease,
              TimePoint now,
              Turns& turns) noexcept {
    Waiter& next = *wakeupQueue.line.front();
    if (wakeupQueue.rule == WakeRule::bestFit) {
      if (parting.first) {
        // The permits kept for it, or those it has left over, may be enough for the next.
        give(wakeupQueue, next, turns);
      } else if (parting.hadTurn) {
        passOn(wakeupQueue, now, turns);
      }
      return;
    }
    if (wakeupQueue.rule == WakeRule::broadcast && parting.obtained) {
      if (left.wave_ > wakeupQueue.openedWave) {
        open(wakeupQueue, left.wave_, turns);
      }
      // A new generation and the end of a lease are for the first only.
      if (isOutdated(next, *wakeupQueue.channel)) {
        give(wakeupQueue, next, turns);
      } else if (!next.trying_) {
        polls_.schedule(wakeupQueue, std::max(now, next.looksAt_));
      }
      return;
    }
    if (!parting.first) {
      return;
    }
    if (parting.hadTurn && (!parting.obtained || isOutdated(left, *wakeupQueue.channel))) {
      // A generation that began during a successful try is about what happened after it: the lock
      // may be free again.
      give(wakeupQueue, next, turns);
    } else if (parting.obtained) {
      const bool sooner = lease.count() > 0 && lease < safetyPoll_;
      polls_.schedule(wakeupQueue,
                      now + (sooner ? lease + std::chrono::milliseconds(1) : safetyPoll_));
    }
  }

  // Somebody got in, so everybody can.
  void open(WakeupQueue& wakeupQueue, std::uint64_t wave, Turns& turns) noexcept {
    wakeupQueue.openedWave = wave;
    wakeupQueue.openings = ++openings_;
    for (Waiter* waiter = wakeupQueue.line.front(); waiter != nullptr;
         waiter = Line::after(*waiter)) {
      give(wakeupQueue, *waiter, wave, turns);
    }
  }

  // Not first, and back from a try or new.
  void queueFitting(WakeupQueue& wakeupQueue,
                    Waiter& waiter,
                    bool tried,
                    bool outdated,
                    bool hadTurn,
                    TimePoint now,
                    Turns& turns) noexcept {
    if (tried && outdated) {
      // A generation that began during its try gave the first one a turn, which could not be passed
      // on to this one.
      give(wakeupQueue, waiter, turns);
      return;
    }
    if (tried) {
      noteRefusal(wakeupQueue, waiter);
    }
    if (hadTurn || (!tried && wakeupQueue.trying == 0)) {
      passOn(wakeupQueue, now, turns);
    }
  }

  // Within one generation a waiter that needs as much will be refused, too: others only take.
  static void noteRefusal(WakeupQueue& wakeupQueue, const Waiter& waiter) noexcept {
    wakeupQueue.refused = std::min(wakeupQueue.refused, waiter.need_);
  }

  // Gives the next waiter behind the first a turn that needs less than what was refused, unless the
  // present span of time is the first one's own.
  void passOn(WakeupQueue& wakeupQueue, TimePoint now, Turns& turns) noexcept {
    if (wakeupQueue.passing && (now - wakeupQueue.passedSince) / safetyPoll_ % 2 != 0) {
      return;
    }
    Waiter* next = nullptr;
    for (const auto& [need, fellows] : wakeupQueue.needs) {
      if (need >= wakeupQueue.refused) {
        break;
      }
      Waiter* asleep = fellows.front();
      while (asleep != nullptr && asleep->trying_) {
        asleep = Fellows::after(*asleep);
      }
      if (asleep != nullptr && (next == nullptr || asleep->number_ < next->number_)) {
        next = asleep;
      }
    }
    if (next == nullptr) {
      return;
    }
    if (!std::exchange(wakeupQueue.passing, true)) {
      wakeupQueue.passedSince = now;
    }
    give(wakeupQueue, *next, turns);
  }

  // Something may have changed on the server: the first of each wake-up queue looks.
  void beginGeneration(std::string_view channelName, bool subscribed, Turns& turns) {
    const auto found = channels_.find(channelName);
    if (found == channels_.end()) {
      return;
    }
    Channel& channel = *found->second;
    ++channel.generation;
    if (subscribed) {
      channel.subscribed = true;
      channel.refused = false;
    }
    for (WakeupQueue& wakeupQueue : channel.wakeupQueues) {
      if (!wakeupQueue.line.empty()) {
        give(wakeupQueue, *wakeupQueue.line.front(), turns);
      }
    }
  }

  const std::chrono::milliseconds safetyPoll_;
  const std::chrono::milliseconds linger_;
  std::size_t waiting_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t openings_ = 0;
  std::uint64_t asked_ = 0;
  std::uint64_t taken_ = 0;  // how often the changes were
  std::unordered_map<std::string_view, std::unique_ptr<Channel>> channels_;
  Line alone_;
  DeadlineHeap<WakeupQueue, &WakeupQueue::poll> polls_;
  DeadlineHeap<Waiter, &Waiter::alarm_> alarms_;
  DeadlineHeap<Channel, &Channel::linger> lingering_;
  std::vector<Change> changes_;
};

}  // namespace rlock::detail
