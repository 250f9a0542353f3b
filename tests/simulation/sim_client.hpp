// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_core.hpp"
#include "simulation/sim_server.hpp"
#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/acquire_fsm.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/release_fsm.hpp>
#include <rlock/detail/engine/waiter_hub.hpp>
#include <rlock/detail/engine/watchdog.hpp>
#include <rlock/error.hpp>
#include <rlock/owner.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock::sim {

using detail::AcquireFsm;
using detail::Hold;
using detail::HoldHandle;
using detail::HoldLedger;
using detail::HoldPtr;
using detail::IntrusivePtr;
using detail::ReleaseFsm;
using detail::WaiterHub;
using detail::Watchdog;

/// Known mistakes that an interpreter of the state machines could make. Each must be found.
enum class Mutation : std::uint8_t {
  none,
  noFence,                    ///< settles without killing the lost connection first
  settleSkipped,              ///< takes a lost request for one that was not executed
  earlyGrantKept,             ///< does not give back what is granted after the caller has left
  lostHoldCounted,            ///< counts what was told lost when the same owner acquires again
  settleTimeIgnored,          ///< after a settle counts the lease from the lost request alone
  validFromReply,             ///< counts the lease from the reply, not from the request
  orphansForgotten,           ///< does not kill a lost connection once its settle was given up
  lossToldLate,               ///< serves the watchdog's timer too late
  retireSkipped,              ///< goes on renewing a hold while its release is under way
  noRecheckAfterResubscribe,  ///< takes a subscription for the one that was lost
  messageIgnored,             ///< hears messages only while nobody tries
  turnNotHandedOn,            ///< a waiter that leaves takes its turn with it
  gateSkipped,                ///< sends requests about one hold side by side
  deadlineIgnored,            ///< a caller whose request is under way waits for its answer
};

inline const char* toString(Mutation mutation) noexcept {
  switch (mutation) {
    case Mutation::none:
      return "none";
    case Mutation::noFence:
      return "noFence";
    case Mutation::settleSkipped:
      return "settleSkipped";
    case Mutation::earlyGrantKept:
      return "earlyGrantKept";
    case Mutation::lostHoldCounted:
      return "lostHoldCounted";
    case Mutation::settleTimeIgnored:
      return "settleTimeIgnored";
    case Mutation::validFromReply:
      return "validFromReply";
    case Mutation::orphansForgotten:
      return "orphansForgotten";
    case Mutation::lossToldLate:
      return "lossToldLate";
    case Mutation::retireSkipped:
      return "retireSkipped";
    case Mutation::noRecheckAfterResubscribe:
      return "noRecheckAfterResubscribe";
    case Mutation::messageIgnored:
      return "messageIgnored";
    case Mutation::turnNotHandedOn:
      return "turnNotHandedOn";
    case Mutation::gateSkipped:
      return "gateSkipped";
    case Mutation::deadlineIgnored:
      return "deadlineIgnored";
  }
  return "?";
}

struct ClientConfig {
  Time commandTimeout = milliseconds(100);
  Time connectTimeout = milliseconds(100);
  milliseconds watchdogTimeout{300};
  milliseconds safetyPoll{200};
  milliseconds linger{50};
  std::size_t batchSize = 3;
  Mutation mutation = Mutation::none;
};

/// What one acquisition asks for.
struct AcquireSpec {
  int lock = 0;
  OwnerId owner{};
  bool oneAttempt = false;
  std::optional<Time> wait{};
  std::optional<milliseconds> lease{};
  std::optional<milliseconds> maxHold{};
};

/// Paths that were really taken, so that a test can tell whether the schedules reach them.
struct Coverage {
  std::uint64_t granted = 0, refused = 0, failed = 0, released = 0, notOwner = 0, stillHeld = 0;
  std::uint64_t queuedUnasked = 0, gateWaits = 0;
  std::uint64_t unknownAcquires = 0, unknownReleases = 0, unknownSettles = 0, unknownRenewals = 0;
  std::uint64_t keptAfterSettle = 0, retriedAfterSettle = 0, undone = 0, earlyAnswers = 0;
  std::uint64_t tooMany = 0, vanished = 0, settlesGivenUp = 0;
  std::uint64_t renewals = 0, renewalRefusals = 0, lost = 0, gone = 0, lostByMaxHold = 0;
  std::uint64_t resubscribed = 0, deniedChannels = 0, turnsHandedOn = 0, polls = 0, messages = 0;
  std::uint64_t unsubscribed = 0, parkedCancelled = 0;
};

class SimClient;
class AcquireCourse;
class ReleaseCourse;

/// The application and the checks: hears what the interpreter does, at the instant it does it.
class ClientObserver {
 public:
  ClientObserver() = default;
  ClientObserver(const ClientObserver&) = delete;
  ClientObserver& operator=(const ClientObserver&) = delete;
  virtual ~ClientObserver() = default;

  /// The caller of an acquisition has its answer.
  virtual void acquireAnswered(SimClient& client, AcquireCourse& course) = 0;
  virtual void releaseAnswered(SimClient& client, ReleaseCourse& course) = 0;
  /// Nothing of a release is under way any more.
  virtual void releaseEnded(SimClient& client, ReleaseCourse& course) = 0;
  virtual void lossTold(SimClient& client, const Hold& hold, LossReason reason) = 0;
  /// A settle was given up, so a hold may be left on the server.
  virtual void settleGivenUp(SimClient& client, int lock, OwnerId owner) = 0;
  /// No request about the hold is under way.
  virtual void gateFree(SimClient& client, int lock, OwnerId owner) = 0;
  virtual void renewalSent(SimClient& client, const Hold& hold) = 0;
  virtual void broken(const std::string& rule, const std::string& what) = 0;
};

/// What all parts of one simulation share.
struct World {
  EventQueue& queue;
  Random& random;
  const Trace& trace;
  Network& network;
  ClientObserver& observer;
  Coverage& coverage;
};

/// The one connection for requests of a client, with the requests under way on it and those that
/// wait for it.
class CommandLink final : private Peer {
 public:
  struct Outcome {
    const Answer* answer = nullptr;  ///< null: executed, or not, or still to be
    TimePoint sentAt{};
    std::uint64_t connection = 0;
  };
  using Done = detail::UniqueFunction<void(const Outcome&)>;

  explicit CommandLink(SimClient& client) noexcept : client_(client) {}
  CommandLink(const CommandLink&) = delete;
  CommandLink& operator=(const CommandLink&) = delete;

  void connect();
  std::uint64_t submit(Request request, Done done);
  /// Takes back a request that was not sent yet.
  bool cancel(std::uint64_t id);
  void vanish();

  [[nodiscard]] const ConnectionPtr& connection() const noexcept { return connection_; }
  [[nodiscard]] bool up() const noexcept { return up_; }

 private:
  struct Entry {
    Request request;
    Done done;
    TimePoint sentAt{};
  };

  void arrived(const Answer& answer) override;
  void send(Entry entry);
  void lose();
  void watch();

  SimClient& client_;
  ConnectionPtr connection_;
  bool up_ = false;
  bool watching_ = false;
  std::uint64_t lastId_ = 0;
  std::uint64_t dials_ = 0;
  std::deque<Entry> sent_;
  std::deque<Entry> parked_;
};

/// The connection for subscriptions of a client.
class SubscriberLink final : private Peer {
 public:
  SubscriberLink(SimClient& client, int locks)
      : client_(client), channels_(static_cast<std::size_t>(locks)) {}
  SubscriberLink(const SubscriberLink&) = delete;
  SubscriberLink& operator=(const SubscriberLink&) = delete;

  void connect();
  void subscribe(int lock);
  void unsubscribe(int lock);
  void vanish();

  [[nodiscard]] const ConnectionPtr& connection() const noexcept { return connection_; }
  /// Everything that is wanted is confirmed.
  [[nodiscard]] bool settled() const noexcept {
    return up_ && std::all_of(channels_.begin(), channels_.end(), [](const Channel& c) {
             return !c.wanted || c.confirmed;
           });
  }

 private:
  struct Channel {
    bool wanted = false;
    bool confirmed = false;
    bool confirmedBefore = false;
    std::uint64_t command = 0;  ///< only the answer to the latest counts
  };

  void arrived(const Answer& answer) override;
  void command(int lock, Request::Kind kind);
  void lose();

  SimClient& client_;
  ConnectionPtr connection_;
  bool up_ = false;
  std::uint64_t dials_ = 0;
  std::uint64_t lastId_ = 0;
  std::vector<Channel> channels_;
};

/// What both kinds of course share: the gate, and the settling of lost requests.
class Course : public detail::GateWaiter {
 public:
  void gateClosed() noexcept override {}
  Course(SimClient& client, int lock, OwnerId owner);

  [[nodiscard]] int lock() const noexcept { return lock_; }
  [[nodiscard]] OwnerId owner() const noexcept { return owner_; }
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] int references() const noexcept { return references_; }
  [[nodiscard]] TimePoint deadline() const noexcept { return deadline_; }
  [[nodiscard]] const HoldPtr& hold() const noexcept { return hold_; }
  [[nodiscard]] virtual bool answered() const noexcept = 0;

 protected:
  /// True when the gate is this course's; otherwise gateOpened() will be called.
  bool enterGate();
  void leaveGate();
  /// Takes back a request that was not sent yet.
  bool backOut();
  void arm(TimePoint deadline);
  /// Brings the count on the server down to what wanted() says, and calls settled() or
  /// settleLost().
  void settle();
  /// Holds that this client counts on, the course's own request left out.
  [[nodiscard]] int known() const noexcept;
  /// The server has fewer holds than this client counts on.
  void vanishedUnless(bool enough);
  void giveUp();

  virtual void entered() = 0;
  virtual void expired() = 0;
  /// Holds that the server may count after the course, and those it must count unless some
  /// vanished.
  [[nodiscard]] virtual int wanted() const noexcept = 0;
  [[nodiscard]] virtual int least() const noexcept = 0;
  /// @param until  the server keeps what is held at least until then
  virtual void settled(int now, TimePoint until) = 0;
  virtual void settleLost() = 0;

  void gateOpened() noexcept override;
  void gateAddRef() noexcept override { ++references_; }
  void gateDropRef() noexcept override { --references_; }

  static Error late();

  SimClient& client_;
  const int lock_;
  const OwnerId owner_;
  const TimePoint begun_;
  TimePoint deadline_ = TimePoint::max();
  HoldPtr hold_;
  bool gate_ = false;
  bool ended_ = false;
  int references_ = 0;
  std::uint64_t request_ = 0;  ///< the attempt under way, not a settle
  std::vector<std::uint64_t> toKill_;

 private:
  std::uint64_t settleRequest_ = 0;
  std::vector<std::uint64_t> killRequests_;
  std::optional<TimePoint> giveUpAt_;
};

/// One acquisition: performs what AcquireFsm says.
class AcquireCourse final : public Course, public detail::Waiter {
 public:
  AcquireCourse(SimClient& client, const AcquireSpec& spec);

  void begin();
  void stop();

  [[nodiscard]] const AcquireSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] AcquireFsm::Result result() const noexcept { return fsm_.result(); }
  [[nodiscard]] bool answered() const noexcept override { return fsm_.answered(); }
  /// It waits for a holder to leave.
  [[nodiscard]] bool waits() const noexcept { return !spec_.oneAttempt && !answered(); }

 private:
  using Step = AcquireFsm::Step;

  void run(Step step);
  void attempt();
  void sleep();
  void answer();
  void end();
  void granted(int count);
  void book(int count);
  void noTurn();

  void entered() override;
  void expired() override;
  int wanted() const noexcept override;
  int least() const noexcept override;
  void settled(int now, TimePoint until) override;
  void settleLost() override;

  void turn() noexcept override;
  void shutDown() noexcept override {}
  void waiterAddRef() noexcept override { ++references_; }
  void waiterDropRef() noexcept override { --references_; }

  const AcquireSpec spec_;
  const milliseconds lease_;
  AcquireFsm fsm_;
  bool keep_ = false;
  bool tried_ = false;
  bool queuedBefore_ = false;
  bool hasTurn_ = false;
  WaiterHub::Mark mark_{};
  milliseconds remaining_{-1};
  TimePoint sentAt_{};
};

/// One release: performs what ReleaseFsm says.
class ReleaseCourse final : public Course {
 public:
  ReleaseCourse(SimClient& client, int lock, OwnerId owner);

  void begin();

  [[nodiscard]] ReleaseFsm::Result result() const noexcept { return fsm_.result(); }
  [[nodiscard]] bool answered() const noexcept override { return fsm_.answered(); }
  /// Whether the hold it was for is gone, whatever the caller was told.
  [[nodiscard]] bool done() const noexcept { return done_; }
  /// The last hold's release was sent, and nothing may be renewed.
  [[nodiscard]] bool last() const noexcept { return last_; }

 private:
  using Step = ReleaseFsm::Step;

  void run(Step step);
  void attempt();
  void book(int remain);
  void notReleased();
  void end();

  void entered() override;
  void expired() override;
  int wanted() const noexcept override;
  int least() const noexcept override;
  void settled(int now, TimePoint until) override;
  void settleLost() override;

  ReleaseFsm fsm_;
  bool last_ = false;
  bool done_ = false;
};

/// One client: the engine's real state machines and a single-threaded interpreter for them.
class SimClient {
 public:
  SimClient(const World& world,
            const ClientConfig& config,
            int index,
            int locks,
            Time clockStart,
            int clockPpm);
  SimClient(const SimClient&) = delete;
  SimClient& operator=(const SimClient&) = delete;

  // The application's side.
  AcquireCourse& acquire(const AcquireSpec& spec);
  ReleaseCourse& release(int lock, OwnerId owner);
  /// Its process ends.
  void crash();

  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] bool dead() const noexcept { return dead_; }
  [[nodiscard]] TimePoint now() const noexcept {
    return TimePoint(clock_.read(world_.queue.now()));
  }
  [[nodiscard]] bool paused() const noexcept {
    return world_.network.pausedUntil(index_) > world_.queue.now();
  }
  [[nodiscard]] Time pausedUntil() const noexcept { return world_.network.pausedUntil(index_); }
  /// Both connections work and all subscriptions stand.
  [[nodiscard]] bool healthy() const noexcept { return commands_.up() && subscriber_.settled(); }
  [[nodiscard]] HoldPtr peek(int lock, OwnerId owner) const {
    return ledger_.peek(detail::HoldKind::lock, *names_[static_cast<std::size_t>(lock)], owner);
  }
  [[nodiscard]] const WaiterHub& hub() const noexcept { return hub_; }
  [[nodiscard]] const HoldLedger& ledger() const noexcept { return ledger_; }
  [[nodiscard]] const Watchdog& watchdog() const noexcept { return watchdog_; }
  [[nodiscard]] const std::vector<std::unique_ptr<AcquireCourse>>& acquires() const noexcept {
    return acquires_;
  }
  [[nodiscard]] const std::vector<std::unique_ptr<ReleaseCourse>>& releases() const noexcept {
    return releases_;
  }
  /// Lost connections on which requests may still run that nobody asks about any more.
  [[nodiscard]] const std::vector<std::uint64_t>& orphans() const noexcept { return orphans_; }
  [[nodiscard]] ConnectionPtr commandConnection() const { return commands_.connection(); }
  [[nodiscard]] ConnectionPtr subscriberConnection() const { return subscriber_.connection(); }
  [[nodiscard]] static int lockOf(const Hold& hold) { return std::stoi(std::string(hold.name)); }

 private:
  friend class Course;
  friend class AcquireCourse;
  friend class ReleaseCourse;
  friend class CommandLink;
  friend class SubscriberLink;

  using Done = detail::UniqueFunction<void()>;

  [[nodiscard]] bool mutated(Mutation mutation) const noexcept {
    return config_.mutation == mutation;
  }
  [[nodiscard]] const std::string& name(int lock) const noexcept {
    return *names_[static_cast<std::size_t>(lock)];
  }

  template <class... Parts>
  void trace(const Parts&... parts) const {
    world_.trace(world_.queue.now(), "client ", index_, " ", parts...);
  }

  /// Runs it when the client's clock shows `when`, a little late as timers are.
  void at(TimePoint when, Done action);
  /// Runs it a little later, as things do that are handed to another thread.
  void soon(Done action);
  void atTrue(Time when, Done action);

  void give(const WaiterHub::Turns& turns, bool handedOn = false);
  void give(detail::Waiter* waiter, bool handedOn);
  void message(int lock);
  void confirmed(int lock, bool again);
  void serveHub();
  void serveWatchdog();
  void armHub();
  void armWatchdog();
  void renew(std::vector<HoldPtr> holds);
  void renewed(const std::vector<HoldPtr>& holds, const CommandLink::Outcome& outcome);
  void killOrphans();
  void tellLoss(Hold& hold, LossReason reason);
  void vanished(Hold& hold);

  World world_;
  const ClientConfig config_;
  const int index_;
  const DriftingClock clock_;
  bool dead_ = false;
  std::vector<std::shared_ptr<const std::string>> names_;
  HoldLedger ledger_;
  Watchdog watchdog_;
  WaiterHub hub_;
  CommandLink commands_;
  SubscriberLink subscriber_;
  TimePoint hubArmed_ = TimePoint::max();
  TimePoint watchdogArmed_ = TimePoint::max();
  std::vector<std::uint64_t> orphans_;
  std::vector<int> turns_;  ///< by lock: waiters that were given a turn and have not come back
  std::vector<std::unique_ptr<AcquireCourse>> acquires_;
  std::vector<std::unique_ptr<ReleaseCourse>> releases_;
};

// ---- CommandLink

inline void CommandLink::connect() {
  if (client_.dead_) {
    return;
  }
  connection_ = client_.world_.network.open(client_.index_, *this);
  const std::uint64_t dial = ++dials_;
  client_.at(client_.now() + client_.config_.connectTimeout, [this, dial] {
    if (!up_ && connection_ && dial == dials_) {
      lose();
    }
  });
}

inline std::uint64_t CommandLink::submit(Request request, Done done) {
  request.id = ++lastId_;
  Entry entry{std::move(request), std::move(done), TimePoint{}};
  if (up_) {
    send(std::move(entry));
  } else {
    parked_.push_back(std::move(entry));
  }
  return lastId_;
}

inline bool CommandLink::cancel(std::uint64_t id) {
  const auto found = std::find_if(
      parked_.begin(), parked_.end(), [id](const Entry& entry) { return entry.request.id == id; });
  if (found == parked_.end()) {
    return false;
  }
  parked_.erase(found);
  return true;
}

inline void CommandLink::vanish() {
  if (connection_) {
    client_.world_.network.closeByClient(*connection_);
    connection_.reset();
  }
  up_ = false;
}

inline void CommandLink::send(Entry entry) {
  entry.sentAt = client_.now();
  client_.world_.network.send(*connection_, entry.request);
  sent_.push_back(std::move(entry));
  if (!watching_) {
    watch();
  }
}

inline void CommandLink::watch() {
  watching_ = true;
  client_.at(sent_.front().sentAt + client_.config_.commandTimeout, [this] {
    watching_ = false;
    if (sent_.empty()) {
      return;
    }
    if (client_.now() >= sent_.front().sentAt + client_.config_.commandTimeout) {
      client_.trace("no answer in time");
      lose();
      return;
    }
    watch();
  });
}

inline void CommandLink::arrived(const Answer& answer) {
  if (answer.kind == Answer::Kind::closed) {
    lose();
    return;
  }
  if (answer.kind == Answer::Kind::hello) {
    up_ = true;
    client_.trace("connected, id ", answer.connection);
    client_.killOrphans();
    for (Entry& entry : std::exchange(parked_, {})) {
      send(std::move(entry));
    }
    return;
  }
  Entry entry = std::move(sent_.front());
  sent_.pop_front();
  if (entry.request.id != answer.id) {
    client_.world_.observer.broken("harness", "a reply for another request");
    return;
  }
  if (entry.done) {
    entry.done({&answer, entry.sentAt, connection_->id});
  }
}

inline void CommandLink::lose() {
  const std::uint64_t id = connection_ ? connection_->id : 0;
  client_.trace("lost connection ", id, " with ", sent_.size(), " requests");
  vanish();
  const Time pause = client_.world_.random.between(Time(milliseconds(1)), Time(milliseconds(20)));
  client_.at(client_.now() + pause, [this] { connect(); });
  for (Entry& entry : std::exchange(sent_, {})) {
    if (entry.done) {
      entry.done({nullptr, entry.sentAt, id});
    }
  }
}

// ---- SubscriberLink

inline void SubscriberLink::connect() {
  if (client_.dead_) {
    return;
  }
  connection_ = client_.world_.network.open(client_.index_, *this);
  const std::uint64_t dial = ++dials_;
  client_.at(client_.now() + client_.config_.connectTimeout, [this, dial] {
    if (!up_ && connection_ && dial == dials_) {
      lose();
    }
  });
}

inline void SubscriberLink::subscribe(int lock) {
  Channel& channel = channels_[static_cast<std::size_t>(lock)];
  channel.wanted = true;
  channel.confirmed = false;
  channel.confirmedBefore = false;
  if (up_) {
    command(lock, Request::Kind::subscribe);
  }
}

inline void SubscriberLink::unsubscribe(int lock) {
  channels_[static_cast<std::size_t>(lock)].wanted = false;
  if (up_) {
    command(lock, Request::Kind::unsubscribe);
  }
}

inline void SubscriberLink::vanish() {
  if (connection_) {
    client_.world_.network.closeByClient(*connection_);
    connection_.reset();
  }
  up_ = false;
}

inline void SubscriberLink::command(int lock, Request::Kind kind) {
  Request request;
  request.kind = kind;
  request.lock = lock;
  request.id = ++lastId_;
  channels_[static_cast<std::size_t>(lock)].command = lastId_;
  client_.world_.network.send(*connection_, request);
}

inline void SubscriberLink::arrived(const Answer& answer) {
  if (answer.kind == Answer::Kind::closed) {
    lose();
    return;
  }
  if (answer.kind == Answer::Kind::hello) {
    up_ = true;
    for (std::size_t lock = 0; lock < channels_.size(); ++lock) {
      if (channels_[lock].wanted) {
        command(static_cast<int>(lock), Request::Kind::subscribe);
      }
    }
    return;
  }
  Channel& channel = channels_[static_cast<std::size_t>(answer.lock)];
  if (!channel.wanted) {
    return;
  }
  if (answer.kind == Answer::Kind::message) {
    client_.message(answer.lock);
    return;
  }
  if (answer.id != channel.command) {
    return;
  }
  if (answer.kind == Answer::Kind::subscribed) {
    channel.confirmed = true;
    client_.confirmed(answer.lock, std::exchange(channel.confirmedBefore, true));
  } else if (answer.kind == Answer::Kind::denied) {
    channel.wanted = false;
    ++client_.world_.coverage.deniedChannels;
    client_.hub_.refused(client_.name(answer.lock));
  }
}

inline void SubscriberLink::lose() {
  client_.trace("lost its subscriber connection");
  vanish();
  for (Channel& channel : channels_) {
    channel.confirmed = false;
  }
  client_.hub_.disconnected();
  const Time pause = client_.world_.random.between(Time(milliseconds(1)), Time(milliseconds(20)));
  client_.at(client_.now() + pause, [this] { connect(); });
}

// ---- Course

inline Course::Course(SimClient& client, int lock, OwnerId owner)
    : client_(client), lock_(lock), owner_(owner), begun_(client.now()) {}

inline Error Course::late() {
  return Error(Errc::timedOut);
}

inline bool Course::enterGate() {
  hold_ = client_.ledger_.find(client_.names_[static_cast<std::size_t>(lock_)],
                               detail::HoldKind::lock,
                               client_.name(lock_),
                               owner_);
  const bool skips = hold_->busy && client_.mutated(Mutation::gateSkipped);
  if (skips || HoldLedger::enter(*hold_, *this)) {
    gate_ = true;
    return true;
  }
  ++client_.world_.coverage.gateWaits;
  return false;
}

inline void Course::leaveGate() {
  if (!gate_) {
    return;
  }
  gate_ = false;
  const HoldPtr hold = std::exchange(hold_, nullptr);
  if (detail::GateWaiter* next = client_.ledger_.leave(*hold)) {
    client_.soon([next] {
      next->gateOpened();
      next->gateDropRef();
    });
    return;
  }
  client_.world_.observer.gateFree(client_, lock_, owner_);
}

inline bool Course::backOut() {
  if (request_ != 0 && client_.commands_.cancel(request_)) {
    ++client_.world_.coverage.parkedCancelled;
    request_ = 0;
    return true;
  }
  return false;
}

inline void Course::gateOpened() noexcept {
  gate_ = true;
  entered();
}

inline void Course::arm(TimePoint deadline) {
  deadline_ = deadline;
  client_.at(deadline, [this] {
    if (!ended_) {
      expired();
    }
  });
}

inline int Course::known() const noexcept {
  return hold_->lost && !client_.mutated(Mutation::lostHoldCounted) ? 0 : hold_->count;
}

inline void Course::vanishedUnless(bool enough) {
  if (!enough && known() > 0) {
    client_.vanished(*hold_);
  }
}

inline void Course::giveUp() {
  giveUpAt_.reset();
  for (const std::uint64_t kill : killRequests_) {
    client_.commands_.cancel(kill);
  }
  client_.orphans_.insert(client_.orphans_.end(), toKill_.begin(), toKill_.end());
  toKill_.clear();
  ++client_.world_.coverage.settlesGivenUp;
  client_.world_.observer.settleGivenUp(client_, lock_, owner_);
  settleLost();
}

inline void Course::settle() {
  if (!giveUpAt_) {
    // By then the hold is over anyway.
    const milliseconds longest = std::max(hold_->lease, client_.config_.watchdogTimeout);
    giveUpAt_ = client_.now() + longest + client_.config_.commandTimeout;
    client_.at(*giveUpAt_, [this] {
      if (giveUpAt_ && settleRequest_ != 0 && client_.commands_.cancel(settleRequest_)) {
        settleRequest_ = 0;
        giveUp();
      }
    });
  }
  killRequests_.clear();
  if (!client_.mutated(Mutation::noFence)) {
    for (const std::uint64_t victim : toKill_) {
      Request kill;
      kill.kind = Request::Kind::kill;
      kill.victim = victim;
      killRequests_.push_back(client_.commands_.submit(kill, nullptr));
    }
  }
  Request request;
  request.kind = Request::Kind::settle;
  request.lock = lock_;
  request.owner = owner_.value;
  request.target = wanted();
  const int target = request.target;
  const auto done = [this, target](const CommandLink::Outcome& outcome) {
    settleRequest_ = 0;
    if (outcome.answer == nullptr) {
      ++client_.world_.coverage.unknownSettles;
      toKill_.push_back(outcome.connection);
      if (client_.now() >= *giveUpAt_) {
        giveUp();
      } else {
        settle();
      }
      return;
    }
    toKill_.clear();
    const int now = outcome.answer->count;
    vanishedUnless(now >= least());
    if (now > wanted() && wanted() < target) {
      settle();
      return;
    }
    giveUpAt_.reset();
    settled(now, outcome.sentAt + outcome.answer->remaining);
  };
  settleRequest_ = client_.commands_.submit(request, done);
}

// ---- AcquireCourse

inline AcquireCourse::AcquireCourse(SimClient& client, const AcquireSpec& spec)
    : Course(client, spec.lock, spec.owner),
      spec_(spec),
      lease_(spec.lease.value_or(client.config_.watchdogTimeout)),
      fsm_(spec.oneAttempt) {}

inline void AcquireCourse::begin() {
  if (spec_.wait) {
    arm(begun_ + *spec_.wait);
  } else if (spec_.oneAttempt) {
    arm(begun_ + 2 * client_.config_.commandTimeout);
  }
  if (!client_.hub_.idle()) {
    mark_ = client_.hub_.mark(client_.name(lock_));
  }
  const HoldPtr hold = client_.peek(lock_, owner_);
  const bool holds = hold && hold->count > 0;
  const bool behind = mark_.othersWait && !holds;
  if (behind && !spec_.oneAttempt) {
    ++client_.world_.coverage.queuedUnasked;
  }
  run(fsm_.start(behind));
}

inline void AcquireCourse::stop() {
  if (ended_) {
    return;
  }
  client_.trace("owner ", owner_.value, " stops waiting for lock ", lock_);
  run(fsm_.stopped(Error(Errc::cancelled)));
}

inline void AcquireCourse::run(Step step) {
  switch (step) {
    case Step::none:
      return;
    case Step::attempt:
      attempt();
      return;
    case Step::queue:
      sleep();
      return;
    case Step::settleKeep:
      keep_ = true;
      if (client_.mutated(Mutation::settleSkipped)) {
        run(fsm_.settled(false));
        return;
      }
      settle();
      return;
    case Step::settleBack:
      ++client_.world_.coverage.undone;
      keep_ = false;
      if (client_.mutated(Mutation::settleSkipped) || client_.mutated(Mutation::earlyGrantKept)) {
        run(fsm_.settled(false));
        return;
      }
      settle();
      return;
    case Step::finish:
      answer();
      end();
      return;
    case Step::finishEarly:
      ++client_.world_.coverage.earlyAnswers;
      answer();
      if (backOut()) {
        run(fsm_.failed(late()));
      }
      return;
    case Step::finishAndSettleBack:
      answer();
      keep_ = false;
      settle();
      return;
    case Step::end:
      end();
      return;
  }
}

inline void AcquireCourse::attempt() {
  tried_ = true;
  if (gate_ || enterGate()) {
    entered();
  }
}

inline void AcquireCourse::entered() {
  if (fsm_.answered()) {
    run(fsm_.failed(late()));
    return;
  }
  Request request;
  request.kind = Request::Kind::acquire;
  request.lock = lock_;
  request.owner = owner_.value;
  request.lease = lease_;
  request_ = client_.commands_.submit(request, [this](const CommandLink::Outcome& outcome) {
    request_ = 0;
    if (outcome.answer == nullptr) {
      ++client_.world_.coverage.unknownAcquires;
      toKill_.push_back(outcome.connection);
      sentAt_ = outcome.sentAt;
      run(fsm_.unknown());
    } else if (outcome.answer->kind == Answer::Kind::granted) {
      sentAt_ = client_.mutated(Mutation::validFromReply) ? client_.now() : outcome.sentAt;
      granted(outcome.answer->count);
    } else if (outcome.answer->kind == Answer::Kind::error) {
      run(fsm_.failed(Error(Errc::outOfMemory)));
    } else {
      remaining_ = outcome.answer->remaining;
      // Somebody else has it, so what this owner had is gone.
      vanishedUnless(false);
      run(fsm_.refused());
    }
  });
}

inline void AcquireCourse::granted(int count) {
  vanishedUnless(count > known());
  const bool tooMany = count > known() + 1;
  if (tooMany) {
    ++client_.world_.coverage.tooMany;
  } else if (!fsm_.answered()) {
    book(count);
  }
  run(fsm_.granted(tooMany));
}

inline void AcquireCourse::book(int count) {
  Hold& hold = *hold_;
  hold.count = count;
  const TimePoint maxHoldUntil = spec_.maxHold ? sentAt_ + *spec_.maxHold : TimePoint::max();
  client_.watchdog_.granted(hold, sentAt_, lease_, !spec_.lease, maxHoldUntil);
  if (!hold.handle) {
    hold.handle = detail::makeIntrusive<HoldHandle>();
    hold.handle->setValidUntil(std::min(hold.validUntil, hold.maxHoldUntil));
  }
  client_.armWatchdog();
}

inline void AcquireCourse::sleep() {
  noTurn();
  leaveGate();
  std::optional<WaiterHub::Mark> mark;
  if (!queuedBefore_ && tried_) {
    mark = mark_;
  }
  queuedBefore_ = true;
  detail::WaitTerms terms;
  terms.channel = client_.name(lock_);
  const WaiterHub::Turns turns =
      client_.hub_.queue(*this, terms, mark, tried_, remaining_, client_.now());
  client_.serveHub();
  client_.give(turns);
}

inline void AcquireCourse::turn() noexcept {
  if (ended_) {
    return;
  }
  const Step step = fsm_.turn();
  if (step == Step::attempt) {
    hasTurn_ = true;
    if (++client_.turns_[static_cast<std::size_t>(lock_)] > 1) {
      client_.world_.observer.broken("one contender", "two waiters of one client try at once");
    }
  }
  run(step);
}

inline void AcquireCourse::noTurn() {
  if (std::exchange(hasTurn_, false)) {
    --client_.turns_[static_cast<std::size_t>(lock_)];
  }
}

inline void AcquireCourse::expired() {
  if (client_.mutated(Mutation::deadlineIgnored) && !fsm_.queued()) {
    return;
  }
  run(fsm_.expired(late()));
}

inline int AcquireCourse::wanted() const noexcept {
  return known() + (keep_ ? 1 : 0);
}
inline int AcquireCourse::least() const noexcept {
  return known();
}

inline void AcquireCourse::settled(int now, TimePoint until) {
  const bool held = now > known();
  if (keep_ && held && !fsm_.answered()) {
    ++client_.world_.coverage.keptAfterSettle;
    // What is held may be what was left of a lost hold, and its end nearer than the request's.
    if (!client_.mutated(Mutation::settleTimeIgnored)) {
      sentAt_ = std::min(sentAt_, until - lease_);
    }
    book(now);
  } else if (keep_ && !held && !fsm_.answered()) {
    ++client_.world_.coverage.retriedAfterSettle;
  }
  run(fsm_.settled(held));
}

inline void AcquireCourse::settleLost() {
  run(fsm_.settleFailed(late()));
}

inline void AcquireCourse::answer() {
  const bool obtained = fsm_.result() == AcquireFsm::Result::granted;
  client_.trace("owner ",
                owner_.value,
                " is told about lock ",
                lock_,
                ": ",
                obtained                                       ? "granted"
                : fsm_.result() == AcquireFsm::Result::refused ? "refused"
                                                               : "failed");
  client_.world_.observer.acquireAnswered(client_, *this);
  noTurn();
  const WaiterHub::Turns turns = client_.hub_.leave(*this, obtained, client_.now());
  client_.serveHub();
  client_.give(turns, true);
}

inline void AcquireCourse::end() {
  ended_ = true;
  leaveGate();
}

// ---- ReleaseCourse

inline ReleaseCourse::ReleaseCourse(SimClient& client, int lock, OwnerId owner)
    : Course(client, lock, owner) {}

inline void ReleaseCourse::begin() {
  arm(begun_ + 2 * client_.config_.commandTimeout);
  run(fsm_.start());
}

inline void ReleaseCourse::run(Step step) {
  switch (step) {
    case Step::none:
    case Step::queue:
    case Step::settleKeep:
      return;
    case Step::attempt:
      attempt();
      return;
    case Step::settleBack:
      if (client_.mutated(Mutation::settleSkipped)) {
        settled(wanted(), TimePoint::max());
        return;
      }
      settle();
      return;
    case Step::finish:
      client_.world_.observer.releaseAnswered(client_, *this);
      end();
      return;
    case Step::finishEarly:
      // Nobody waits for the answer, but the hold must still go.
      ++client_.world_.coverage.earlyAnswers;
      client_.world_.observer.releaseAnswered(client_, *this);
      return;
    case Step::finishAndSettleBack:
      client_.world_.observer.releaseAnswered(client_, *this);
      settle();
      return;
    case Step::end:
      end();
      return;
  }
}

inline void ReleaseCourse::attempt() {
  if (enterGate()) {
    entered();
  }
}

inline void ReleaseCourse::entered() {
  last_ = hold_->count <= 1;
  if (last_ && !client_.mutated(Mutation::retireSkipped)) {
    client_.watchdog_.retire(*hold_);
  }
  Request request;
  request.kind = Request::Kind::release;
  request.lock = lock_;
  request.owner = owner_.value;
  request.lease = hold_->watched ? client_.config_.watchdogTimeout : milliseconds(0);
  const auto done = [this](const CommandLink::Outcome& outcome) {
    request_ = 0;
    if (outcome.answer == nullptr) {
      ++client_.world_.coverage.unknownReleases;
      toKill_.push_back(outcome.connection);
      run(fsm_.unknown());
      return;
    }
    if (outcome.answer->kind == Answer::Kind::error) {
      notReleased();
      run(fsm_.failed(Error(Errc::outOfMemory)));
      return;
    }
    if (outcome.answer->kind == Answer::Kind::notOwner) {
      vanishedUnless(false);
      book(0);
      run(fsm_.notOwner());
      return;
    }
    const int remain = outcome.answer->count;
    vanishedUnless(remain >= wanted());
    const bool knew = known() > 0;
    const int expected = wanted();
    const bool tooMany = remain > expected;
    if (tooMany) {
      ++client_.world_.coverage.tooMany;
    } else {
      book(remain);
    }
    run(fsm_.released(knew, expected, tooMany));
  };
  request_ = client_.commands_.submit(request, done);
  client_.at(client_.now() + 2 * client_.config_.commandTimeout, [this] {
    if (backOut()) {
      run(fsm_.failedForGood(Error(Errc::connectionFailed)));
    }
  });
}

inline int ReleaseCourse::wanted() const noexcept {
  return std::max(known() - 1, 0);
}
inline int ReleaseCourse::least() const noexcept {
  return wanted();
}

inline void ReleaseCourse::settled(int now, TimePoint /*until*/) {
  auto outcome = ReleaseFsm::Result::notOwner;
  if (known() > 0 && now == wanted()) {
    outcome = now > 0 ? ReleaseFsm::Result::stillHeld : ReleaseFsm::Result::released;
  }
  book(now);
  run(fsm_.settled(outcome));
}

inline void ReleaseCourse::settleLost() {
  if (known() > 0) {
    client_.watchdog_.retire(*hold_);
    client_.tellLoss(*hold_, LossReason::unreachable);
  }
  book(0);
  run(fsm_.settleFailed(late()));
}

/// What is left after the release, as the server says.
inline void ReleaseCourse::book(int remain) {
  done_ = true;
  Hold& hold = *hold_;
  hold.count = remain;
  if (remain > 0) {
    client_.watchdog_.resume(hold);
  } else {
    client_.watchdog_.retire(hold);
    if (hold.handle) {
      hold.handle->setReleased();
      hold.handle.reset();
    }
  }
  client_.armWatchdog();
}

inline void ReleaseCourse::notReleased() {
  Hold& hold = *hold_;
  if (hold.count == 1) {
    // Its owner wants to be rid of it: let it run out.
    hold.watched = false;
  }
  client_.watchdog_.resume(hold);
  client_.armWatchdog();
}

inline void ReleaseCourse::expired() {
  run(fsm_.expired(late()));
}

inline void ReleaseCourse::end() {
  ended_ = true;
  client_.world_.observer.releaseEnded(client_, *this);
  leaveGate();
}

// ---- SimClient

inline SimClient::SimClient(const World& world,
                            const ClientConfig& config,
                            int index,
                            int locks,
                            Time clockStart,
                            int clockPpm)
    : world_(world),
      config_(config),
      index_(index),
      clock_(clockStart, clockPpm),
      watchdog_(config.watchdogTimeout),
      hub_(config.safetyPoll, config.linger),
      commands_(*this),
      subscriber_(*this, locks),
      turns_(static_cast<std::size_t>(locks)) {
  for (int lock = 0; lock < locks; ++lock) {
    names_.push_back(std::make_shared<const std::string>(std::to_string(lock)));
  }
  commands_.connect();
  subscriber_.connect();
}

inline AcquireCourse& SimClient::acquire(const AcquireSpec& spec) {
  acquires_.push_back(std::make_unique<AcquireCourse>(*this, spec));
  return *acquires_.back();
}

inline ReleaseCourse& SimClient::release(int lock, OwnerId owner) {
  releases_.push_back(std::make_unique<ReleaseCourse>(*this, lock, owner));
  return *releases_.back();
}

inline void SimClient::crash() {
  trace("crashes");
  dead_ = true;
  commands_.vanish();
  subscriber_.vanish();
}

inline void SimClient::atTrue(Time when, Done action) {
  world_.queue.at(when, [this, action = std::move(action)]() mutable {
    if (dead_) {
      return;
    }
    if (paused()) {
      atTrue(pausedUntil(), std::move(action));
      return;
    }
    action();
  });
}

inline void SimClient::at(TimePoint when, Done action) {
  const Time late = world_.random.between(Time(0), Time(microseconds(900)));
  atTrue(clock_.when(when.time_since_epoch()) + late, std::move(action));
}

inline void SimClient::soon(Done action) {
  atTrue(world_.queue.now() + world_.random.between(Time(0), Time(microseconds(200))),
         std::move(action));
}

inline void SimClient::give(const WaiterHub::Turns& turns, bool handedOn) {
  for (detail::Waiter* waiter : turns) {
    give(waiter, handedOn);
  }
}

inline void SimClient::give(detail::Waiter* waiter, bool handedOn) {
  if (waiter == nullptr) {
    return;
  }
  if (handedOn) {
    ++world_.coverage.turnsHandedOn;
    if (mutated(Mutation::turnNotHandedOn)) {
      waiter->waiterDropRef();
      return;
    }
  }
  soon([waiter] {
    waiter->turn();
    waiter->waiterDropRef();
  });
}

inline void SimClient::message(int lock) {
  ++world_.coverage.messages;
  trace("hears about lock ", lock);
  if (mutated(Mutation::messageIgnored) && turns_[static_cast<std::size_t>(lock)] > 0) {
    return;
  }
  give(hub_.message(name(lock)));
}

inline void SimClient::confirmed(int lock, bool again) {
  trace("is subscribed to lock ", lock, again ? " again" : "");
  if (again) {
    ++world_.coverage.resubscribed;
    if (mutated(Mutation::noRecheckAfterResubscribe)) {
      return;
    }
  }
  give(hub_.subscribed(name(lock)));
}

inline void SimClient::serveHub() {
  const TimePoint now = this->now();
  const WaiterHub::Turns turns = hub_.poll(now);
  world_.coverage.polls += turns.size();
  give(turns);
  hub_.expireLingering(now);
  for (const WaiterHub::Change& change : hub_.takeChanges()) {
    const int lock = std::stoi(change.channel);
    if (change.subscribe) {
      subscriber_.subscribe(lock);
    } else {
      ++world_.coverage.unsubscribed;
      subscriber_.unsubscribe(lock);
    }
  }
  armHub();
}

inline void SimClient::armHub() {
  const TimePoint due = hub_.nextDue();
  if (due >= hubArmed_) {
    return;
  }
  hubArmed_ = due;
  at(due, [this, due] {
    if (hubArmed_ == due) {
      hubArmed_ = TimePoint::max();
      serveHub();
    }
  });
}

inline void SimClient::armWatchdog() {
  const TimePoint due = watchdog_.nextDue();
  if (due >= watchdogArmed_) {
    return;
  }
  watchdogArmed_ = due;
  const TimePoint served =
      mutated(Mutation::lossToldLate) ? due + 2 * Watchdog::notice(config_.watchdogTimeout) : due;
  at(served, [this, due] {
    if (watchdogArmed_ == due) {
      watchdogArmed_ = TimePoint::max();
      serveWatchdog();
    }
  });
}

inline void SimClient::serveWatchdog() {
  Watchdog::Work work = watchdog_.collect(now());
  for (const HoldPtr& hold : work.gone) {
    ++world_.coverage.gone;
    hold->count = 0;
    ledger_.forgetIfUnused(*hold);
  }
  for (const Watchdog::Lost& lost : work.lost) {
    tellLoss(*lost.hold, lost.reason);
  }
  renew(std::move(work.renew));
  armWatchdog();
}

inline void SimClient::renew(std::vector<HoldPtr> holds) {
  for (std::size_t first = 0; first < holds.size(); first += config_.batchSize) {
    const std::size_t last = std::min(first + config_.batchSize, holds.size());
    std::vector<HoldPtr> batch(holds.begin() + static_cast<std::ptrdiff_t>(first),
                               holds.begin() + static_cast<std::ptrdiff_t>(last));
    if (!commands_.up()) {
      for (const HoldPtr& hold : batch) {
        watchdog_.renewalFailed(*hold, now());
      }
      continue;
    }
    Request request;
    request.kind = Request::Kind::renew;
    request.lease = config_.watchdogTimeout;
    for (const HoldPtr& hold : batch) {
      world_.observer.renewalSent(*this, *hold);
      request.renewals.push_back({lockOf(*hold), hold->owner.value});
    }
    commands_.submit(std::move(request),
                     [this, batch = std::move(batch)](const CommandLink::Outcome& outcome) {
                       renewed(batch, outcome);
                     });
  }
}

inline void SimClient::renewed(const std::vector<HoldPtr>& holds,
                               const CommandLink::Outcome& outcome) {
  world_.coverage.unknownRenewals += outcome.answer == nullptr ? 1U : 0U;
  for (std::size_t i = 0; i < holds.size(); ++i) {
    Hold& hold = *holds[i];
    if (!hold.renewing) {
      continue;
    }
    if (outcome.answer == nullptr) {
      watchdog_.renewalFailed(hold, now());
    } else if (outcome.answer->renewed[i]) {
      ++world_.coverage.renewals;
      watchdog_.renewed(hold, mutated(Mutation::validFromReply) ? now() : outcome.sentAt);
    } else {
      ++world_.coverage.renewalRefusals;
      vanished(hold);
      ledger_.forgetIfUnused(hold);
    }
  }
  armWatchdog();
}

/// A request that nobody settles any more must not run into what its owner does next.
inline void SimClient::killOrphans() {
  if (mutated(Mutation::noFence) || mutated(Mutation::orphansForgotten)) {
    return;
  }
  for (const std::uint64_t orphan : orphans_) {
    Request kill;
    kill.kind = Request::Kind::kill;
    kill.victim = orphan;
    commands_.submit(kill, [this, orphan](const CommandLink::Outcome& outcome) {
      if (outcome.answer != nullptr) {
        std::erase(orphans_, orphan);
      }
    });
  }
}

inline void SimClient::tellLoss(Hold& hold, LossReason reason) {
  trace(
      "owner ", hold.owner.value, " is told that it lost lock ", hold.name, ": ", toString(reason));
  ++world_.coverage.lost;
  world_.coverage.lostByMaxHold += reason == LossReason::maxHold ? 1U : 0U;
  hold.lost = true;
  if (hold.handle) {
    hold.handle->markLost(reason);
    hold.handle->signalLoss();
    hold.handle.reset();
  }
  world_.observer.lossTold(*this, hold, reason);
}

/// The server does not know the hold, so nothing of it is left.
inline void SimClient::vanished(Hold& hold) {
  ++world_.coverage.vanished;
  watchdog_.retire(hold);
  hold.count = 0;
  if (!hold.lost) {
    tellLoss(hold, LossReason::refused);
  }
}

}  // namespace rlock::sim
