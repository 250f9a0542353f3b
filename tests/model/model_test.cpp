// SPDX-License-Identifier: Apache-2.0

// Random steps by several owners of two clients on every kind, against plain models in memory. A
// failing seed is printed with as few steps as were found to fail. RLOCK_MODEL_SEED sets the first
// seed, RLOCK_MODEL_STEPS the number of steps for each kind.

#include "model/model.hpp"

#include "integration/lock_harness.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

namespace rlock::test {
namespace {

constexpr std::chrono::milliseconds kShortLease{60};

std::uint64_t numberFrom(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Two clients of one server, three owners each.
struct World {
  explicit World(const Options& options)
      : clients{Client::connect(options), Client::connect(options)} {}

  [[nodiscard]] std::string freshName() { return "model:" + std::to_string(++names); }
  [[nodiscard]] OwnerId owner(const ModelStep& step) const {
    return owners[static_cast<std::size_t>(step.client)][static_cast<std::size_t>(step.owner)];
  }
  [[nodiscard]] Client& client(const ModelStep& step) {
    return clients[static_cast<std::size_t>(step.client)];
  }

  std::array<Client, 2> clients;
  std::array<std::array<OwnerId, 3>, 2> owners{
      {{newOwner(), newOwner(), newOwner()}, {newOwner(), newOwner(), newOwner()}}};
  int names = 0;
};

std::string who(const ModelStep& step) {
  return "owner " + std::to_string(step.owner) + " of client " + std::to_string(step.client);
}

int ownerNumber(const ModelStep& step) {
  return step.client * 3 + step.owner;
}

void letShortLeasesEnd() {
  std::this_thread::sleep_for(kShortLease + 8ms);
}

/// Where the machine stands still for as long as a short lease, its grant comes too late to be one.
bool lateGrant(const ModelWindow& window) {
  return window.to - window.from >= kShortLease - 1ms;
}

template <class T>
ModelOutcome outcomeOfValue(const Result<T>& result) {
  if (!result.has_value()) {
    return {outcomeOf(result), 0};
  }
  if constexpr (std::is_void_v<T>) {
    return {"ok", 0};
  } else if constexpr (std::is_same_v<T, bool>) {
    return {*result ? "true" : "false", 0};
  } else {
    return {"number", static_cast<std::int64_t>(*result)};
  }
}

std::optional<std::string> expectWord(const ModelOutcome& outcome, const std::string& word) {
  return outcome.word == word ? std::nullopt : std::optional("the model says " + word);
}

std::optional<std::string> expectNumber(const ModelOutcome& outcome, std::int64_t number) {
  return outcome.word == "number" && outcome.number == number
             ? std::nullopt
             : std::optional("the model says " + std::to_string(number));
}

// Locks with one holder.

class ExclusiveCase final : public ModelCase {
 public:
  using Get = std::function<RLock(Client&, const std::string&)>;

  ExclusiveCase(World& world, const Get& get, bool reentrant)
      : world_(world), name_(world.freshName()), reentrant_(reentrant) {
    for (Client& client : world.clients) {
      locks_.push_back(get(client, name_));
    }
  }
  ~ExclusiveCase() override { static_cast<void>(locks_[0].forceUnlock()); }

  enum Action { tryLock, tryLease, unlock, unlockAgain, count, isLocked, force, wait, kActions };

  [[nodiscard]] int actions() const override { return kActions; }

  [[nodiscard]] std::string describe(const ModelStep& step) const override {
    static constexpr std::array kNames{"tryLock",
                                       "tryLock with a short lease",
                                       "unlock",
                                       "unlock",
                                       "getHoldCount",
                                       "isLocked",
                                       "forceUnlock",
                                       "wait for short leases to end"};
    return who(step) + " " + kNames[static_cast<std::size_t>(actionOf(step))];
  }

  ModelOutcome perform(const ModelStep& step) override {
    RLock& lock = locks_[static_cast<std::size_t>(step.client)];
    const OwnerId owner = world_.owner(step);
    switch (actionOf(step)) {
      case tryLock:
        return outcomeOfValue(lock.tryLockAsync(AcquireOptions{}, owner).wait());
      case tryLease: {
        AcquireOptions options;
        options.lease = kShortLease;
        return outcomeOfValue(lock.tryLockAsync(options, owner).wait());
      }
      case unlock:
      case unlockAgain:
        return outcomeOfValue(lock.unlockAsync(owner).wait());
      case count:
        return outcomeOfValue(lock.getHoldCountAsync(owner).wait());
      case isLocked:
        return outcomeOfValue(lock.isLockedAsync().wait());
      case force:
        return outcomeOfValue(lock.forceUnlockAsync().wait());
      default:
        letShortLeasesEnd();
        return {"ok", 0};
    }
  }

  std::optional<std::string> judge(const ModelStep& step,
                                   const ModelOutcome& outcome,
                                   const ModelWindow& window) override {
    const int owner = ownerNumber(step);
    if (holder_ && end_.certainlyBefore(window)) {
      holder_.reset();
    }
    if (holder_ && !end_.certainlyAfter(window) && actionOf(step) != wait) {
      // It may be over or not: what happened says which.
      const bool mine = *holder_ == owner;
      bool over = false;
      switch (actionOf(step)) {
        case tryLock:
        case tryLease:
          over = mine ? false : outcome.word == "true";
          break;
        case count:
          over = mine && outcome.number == 0;
          break;
        case isLocked:
        case force:
          over = outcome.word == "false";
          break;
        default:
          over = mine && outcome.word == "notOwner";
          break;
      }
      if (mine && (actionOf(step) == tryLock || actionOf(step) == tryLease)) {
        // Either a second hold or a first: only the server knows. Give up on this one.
        const ModelOutcome released =
            outcomeOfValue(locks_[static_cast<std::size_t>(step.client)].forceUnlockAsync().wait());
        static_cast<void>(released);
        holder_.reset();
        return std::nullopt;
      }
      if (over) {
        holder_.reset();
      }
    }
    const bool mine = holder_ == owner;
    switch (actionOf(step)) {
      case tryLock:
      case tryLease: {
        if (mine && !reentrant_) {
          return expectWord(outcome, "reentry");
        }
        const bool granted = !holder_ || mine;
        if (granted && outcome.word == "false" && actionOf(step) == tryLease && lateGrant(window)) {
          static_cast<void>(
              locks_[static_cast<std::size_t>(step.client)].forceUnlockAsync().wait());
          holder_.reset();
          return std::nullopt;
        }
        if (granted) {
          const ModelEnd end =
              actionOf(step) == tryLease ? ModelEnd(window, kShortLease) : ModelEnd();
          end_ = mine ? ModelEnd::later(end_, end) : end;
          count_ = mine ? count_ + 1 : 1;
          holder_ = owner;
        }
        return expectWord(outcome, granted ? "true" : "false");
      }
      case unlock:
      case unlockAgain:
        if (mine && --count_ == 0) {
          holder_.reset();
        }
        return expectWord(outcome, mine ? "ok" : "notOwner");
      case count:
        return expectNumber(outcome, mine ? count_ : 0);
      case isLocked:
        return expectWord(outcome, holder_ ? "true" : "false");
      case force: {
        const bool held = holder_.has_value();
        holder_.reset();
        return expectWord(outcome, held ? "true" : "false");
      }
      default:
        return std::nullopt;
    }
  }

 private:
  // Waiting and force are rarer than the rest.
  [[nodiscard]] static Action actionOf(const ModelStep& step) {
    if ((step.action == wait && step.argument >= 100) ||
        (step.action == force && step.argument >= 300)) {
      return unlock;
    }
    return static_cast<Action>(step.action);
  }

  World& world_;
  const std::string name_;
  const bool reentrant_;
  std::vector<RLock> locks_;
  std::optional<int> holder_;
  int count_ = 0;
  ModelEnd end_;
};

// Read-write locks, kept by the watchdog.

class ReadWriteCase final : public ModelCase {
 public:
  explicit ReadWriteCase(World& world) : world_(world), name_(world.freshName()) {
    for (Client& client : world.clients) {
      locks_.push_back(client.getReadWriteLock(name_));
    }
  }
  ~ReadWriteCase() override {
    static_cast<void>(locks_[0].readLock().forceUnlock());
    static_cast<void>(locks_[0].writeLock().forceUnlock());
  }

  enum Action {
    tryRead,
    tryWrite,
    unlockRead,
    unlockWrite,
    countRead,
    countWrite,
    isReadLocked,
    isWriteLocked,
    forceRead,
    forceWrite,
    kActions
  };

  [[nodiscard]] int actions() const override { return kActions; }

  [[nodiscard]] std::string describe(const ModelStep& step) const override {
    static constexpr std::array kNames{"tries to read",
                                       "tries to write",
                                       "unlocks read",
                                       "unlocks write",
                                       "counts read holds",
                                       "counts write holds",
                                       "asks whether read-locked",
                                       "asks whether write-locked",
                                       "forces read",
                                       "forces write"};
    return who(step) + " " + kNames[static_cast<std::size_t>(actionOf(step))];
  }

  ModelOutcome perform(const ModelStep& step) override {
    ReadWriteLock& both = locks_[static_cast<std::size_t>(step.client)];
    RLock read = both.readLock();
    RLock write = both.writeLock();
    const OwnerId owner = world_.owner(step);
    switch (actionOf(step)) {
      case tryRead:
        return outcomeOfValue(read.tryLockAsync(AcquireOptions{}, owner).wait());
      case tryWrite:
        return outcomeOfValue(write.tryLockAsync(AcquireOptions{}, owner).wait());
      case unlockRead:
        return outcomeOfValue(read.unlockAsync(owner).wait());
      case unlockWrite:
        return outcomeOfValue(write.unlockAsync(owner).wait());
      case countRead:
        return outcomeOfValue(read.getHoldCountAsync(owner).wait());
      case countWrite:
        return outcomeOfValue(write.getHoldCountAsync(owner).wait());
      case isReadLocked:
        return outcomeOfValue(read.isLockedAsync().wait());
      case isWriteLocked:
        return outcomeOfValue(write.isLockedAsync().wait());
      case forceRead:
        return outcomeOfValue(read.forceUnlockAsync().wait());
      default:
        return outcomeOfValue(write.forceUnlockAsync().wait());
    }
  }

  std::optional<std::string> judge(const ModelStep& step,
                                   const ModelOutcome& outcome,
                                   const ModelWindow& /*window*/) override {
    const int owner = ownerNumber(step);
    const bool writing = writer_ == owner;
    const bool reading = readers_.contains(owner);
    switch (actionOf(step)) {
      case tryRead: {
        const bool granted = !writer_ || writing;
        if (granted) {
          ++readers_[owner];
        }
        return expectWord(outcome, granted ? "true" : "false");
      }
      case tryWrite: {
        const bool granted = writing || (!writer_ && readers_.empty());
        if (granted) {
          writer_ = owner;
          ++writes_;
        }
        return expectWord(outcome, granted ? "true" : "false");
      }
      case unlockRead:
        if (reading && --readers_[owner] == 0) {
          readers_.erase(owner);
        }
        return expectWord(outcome, reading ? "ok" : "notOwner");
      case unlockWrite:
        if (writing && --writes_ == 0) {
          writer_.reset();
        }
        return expectWord(outcome, writing ? "ok" : "notOwner");
      case countRead:
        return expectNumber(outcome, reading ? readers_[owner] : 0);
      case countWrite:
        return expectNumber(outcome, writing ? writes_ : 0);
      case isReadLocked:
        return expectWord(outcome, readers_.empty() ? "false" : "true");
      case isWriteLocked:
        return expectWord(outcome, writer_ ? "true" : "false");
      case forceRead: {
        const bool freed = !writer_ && !readers_.empty();
        if (freed) {
          readers_.clear();
        }
        return expectWord(outcome, freed ? "true" : "false");
      }
      default: {
        const bool freed = writer_.has_value();
        if (freed) {
          writer_.reset();
          writes_ = 0;
          readers_.clear();
        }
        return expectWord(outcome, freed ? "true" : "false");
      }
    }
  }

 private:
  [[nodiscard]] static Action actionOf(const ModelStep& step) {
    if (step.action >= forceRead && step.argument >= 300) {
      return step.action == forceRead ? unlockRead : unlockWrite;
    }
    return static_cast<Action>(step.action);
  }

  World& world_;
  const std::string name_;
  std::vector<ReadWriteLock> locks_;
  std::optional<int> writer_;
  int writes_ = 0;
  std::map<int, int> readers_;
};

// Fenced locks: what the exclusive case does not see.

class FencedCase final : public ModelCase {
 public:
  explicit FencedCase(World& world) : world_(world), name_(world.freshName()) {
    for (Client& client : world.clients) {
      locks_.push_back(client.getFencedLock(name_));
    }
  }
  ~FencedCase() override { static_cast<void>(locks_[0].forceUnlock()); }

  enum Action { acquire, unlock, token, force, kActions };

  [[nodiscard]] int actions() const override { return kActions; }
  [[nodiscard]] std::string describe(const ModelStep& step) const override {
    static constexpr std::array kNames{"acquires", "unlocks", "asks for its token", "forces"};
    return who(step) + " " + kNames[static_cast<std::size_t>(step.action)];
  }

  ModelOutcome perform(const ModelStep& step) override {
    FencedLock& lock = locks_[static_cast<std::size_t>(step.client)];
    const OwnerId owner = world_.owner(step);
    switch (step.action) {
      case acquire: {
        auto lease = lock.tryAcquireAsync(AcquireOptions{}, owner).wait();
        if (!lease.has_value() || !lease->has_value()) {
          return {lease.has_value() ? "false" : outcomeOf(lease), 0};
        }
        const auto given = static_cast<std::int64_t>((*lease)->token().value_or(0));
        leases_.push_back(std::move(**lease));
        owners_.push_back(ownerNumber(step));
        return {"number", given};
      }
      case unlock:
        for (std::size_t i = leases_.size(); i-- > 0;) {
          if (owners_[i] == ownerNumber(step)) {
            const bool held = leases_[i].release() != ReleaseResult::lost;
            leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(i));
            owners_.erase(owners_.begin() + static_cast<std::ptrdiff_t>(i));
            return {held ? "ok" : "lost", 0};
          }
        }
        return {"none", 0};
      case token:
        return outcomeOfValue(lock.getTokenAsync(owner).wait());
      default:
        return outcomeOfValue(lock.forceUnlockAsync().wait());
    }
  }

  std::optional<std::string> judge(const ModelStep& step,
                                   const ModelOutcome& outcome,
                                   const ModelWindow& /*window*/) override {
    const bool mine = holder_ == ownerNumber(step);
    switch (step.action) {
      case acquire:
        if (holder_ && !mine) {
          return expectWord(outcome, "false");
        }
        if (!mine) {
          ++counter_;
          holder_ = ownerNumber(step);
          count_ = 0;
        }
        ++count_;
        return expectNumber(outcome, counter_);
      case unlock:
        if (outcome.word == "none") {
          return std::nullopt;
        }
        if (mine && outcome.word == "ok" && --count_ == 0) {
          holder_.reset();
        }
        return mine || outcome.word == "lost" ? std::nullopt : std::optional("it holds nothing");
      case token:
        return mine ? expectNumber(outcome, counter_) : expectWord(outcome, "notOwner");
      default: {
        const bool held = holder_.has_value();
        holder_.reset();
        return expectWord(outcome, held ? "true" : "false");
      }
    }
  }

 private:
  World& world_;
  const std::string name_;
  std::vector<FencedLock> locks_;
  std::vector<Lease> leases_;
  std::vector<int> owners_;
  std::optional<int> holder_;
  int count_ = 0;
  std::int64_t counter_ = 0;
};

// Semaphores.

class SemaphoreCase final : public ModelCase {
 public:
  explicit SemaphoreCase(World& world) : name_(world.freshName()) {
    for (Client& client : world.clients) {
      semaphores_.push_back(client.getSemaphore(name_));
    }
  }
  ~SemaphoreCase() override { semaphores_[0].remove(); }

  enum Action {
    trySet,
    acquire,
    release,
    releaseIfExists,
    add,
    drain,
    available,
    remove,
    kActions
  };

  [[nodiscard]] int actions() const override { return kActions; }
  [[nodiscard]] std::string describe(const ModelStep& step) const override {
    static constexpr std::array kNames{"trySetPermits",
                                       "tryAcquire",
                                       "release",
                                       "releaseIfExists",
                                       "addPermits",
                                       "drainPermits",
                                       "availablePermits",
                                       "remove"};
    return "client " + std::to_string(step.client) + " " +
           kNames[static_cast<std::size_t>(actionOf(step))] + " " + std::to_string(amount(step));
  }

  ModelOutcome perform(const ModelStep& step) override {
    Semaphore& semaphore = semaphores_[static_cast<std::size_t>(step.client)];
    switch (actionOf(step)) {
      case trySet:
        return outcomeOfValue(semaphore.trySetPermitsAsync(amount(step)).wait());
      case acquire:
        return outcomeOfValue(semaphore.tryAcquireAsync(amount(step)).wait());
      case release:
        return outcomeOfValue(semaphore.releaseAsync(amount(step)).wait());
      case releaseIfExists:
        return outcomeOfValue(semaphore.releaseIfExistsAsync(amount(step)).wait());
      case add:
        return outcomeOfValue(semaphore.addPermitsAsync(amount(step) - 3).wait());
      case drain:
        return outcomeOfValue(semaphore.drainPermitsAsync().wait());
      case available:
        return outcomeOfValue(semaphore.availablePermitsAsync().wait());
      default:
        return outcomeOfValue(semaphore.removeAsync().wait());
    }
  }

  std::optional<std::string> judge(const ModelStep& step,
                                   const ModelOutcome& outcome,
                                   const ModelWindow& /*window*/) override {
    const int n = amount(step);
    const bool existed = permits_.has_value();
    const int now = permits_.value_or(0);
    switch (actionOf(step)) {
      case trySet:
        if (!existed) {
          permits_ = n;
        }
        return expectWord(outcome, existed ? "false" : "true");
      case acquire:
        if (now >= n) {
          permits_ = now - n;
        }
        return expectWord(outcome, now >= n ? "true" : "false");
      case release:
        permits_ = now + n;
        return expectWord(outcome, "ok");
      case releaseIfExists:
        if (existed) {
          permits_ = now + n;
        }
        return expectWord(outcome, existed ? "true" : "false");
      case add:
        // Adding nothing makes no semaphore.
        if (n != 3) {
          permits_ = now + n - 3;
        }
        return expectWord(outcome, "ok");
      case drain:
        if (existed) {
          permits_ = 0;
        }
        return expectNumber(outcome, now);
      case available:
        return expectNumber(outcome, now);
      default:
        permits_.reset();
        return expectWord(outcome, existed ? "true" : "false");
    }
  }

 private:
  [[nodiscard]] static int amount(const ModelStep& step) { return 1 + step.argument % 4; }
  [[nodiscard]] static Action actionOf(const ModelStep& step) {
    return step.action == remove && step.argument >= 200 ? acquire
                                                         : static_cast<Action>(step.action);
  }

  const std::string name_;
  std::vector<Semaphore> semaphores_;
  std::optional<int> permits_;
};

// Permits that expire.

class PermitCase final : public ModelCase {
 public:
  explicit PermitCase(World& world) : name_(world.freshName()) {
    for (Client& client : world.clients) {
      semaphores_.push_back(client.getPermitExpirableSemaphore(name_));
    }
    semaphores_[0].trySetPermits(kTotal);
  }
  ~PermitCase() override { semaphores_[0].remove(); }

  enum Action { acquire, acquireLease, release, releaseOld, counts, extend, wait, kActions };

  [[nodiscard]] int actions() const override { return kActions; }
  [[nodiscard]] std::string describe(const ModelStep& step) const override {
    static constexpr std::array kNames{"acquires for ever",
                                       "acquires with a short lease",
                                       "releases",
                                       "releases a permit that is gone",
                                       "counts",
                                       "makes a permit last for ever",
                                       "waits for short leases to end"};
    return "client " + std::to_string(step.client) + " " +
           kNames[static_cast<std::size_t>(actionOf(step))];
  }

  ModelOutcome perform(const ModelStep& step) override {
    PermitExpirableSemaphore& semaphore = semaphores_[static_cast<std::size_t>(step.client)];
    switch (actionOf(step)) {
      case acquire:
      case acquireLease: {
        std::optional<std::string> id =
            actionOf(step) == acquire
                ? semaphore.tryAcquire()
                : semaphore.tryAcquire(Duration::zero(), Duration(kShortLease));
        taken_ = id.value_or("");
        return {id ? "true" : "false", 0};
      }
      case release:
        return {held_.empty() ? "none"
                              : answerOf([&] { return semaphore.tryRelease(chosen(step).id); }),
                0};
      case releaseOld:
        return {gone_.empty() ? "none" : answerOf([&] { return semaphore.tryRelease(gone_); }), 0};
      case counts: {
        int free = 0;
        int used = 0;
        do {
          // A short lease may end between the questions.
          free = semaphore.availablePermits();
          used = semaphore.acquiredPermits();
        } while (free != semaphore.availablePermits());
        return {free + used == semaphore.getPermits() ? "number" : "inconsistent", free};
      }
      case extend:
        return {held_.empty() ? "none" : answerOf([&] {
                  return semaphore.updateLeaseTime(chosen(step).id, {});
                }),
                0};
      default:
        letShortLeasesEnd();
        return {"ok", 0};
    }
  }

  std::optional<std::string> judge(const ModelStep& step,
                                   const ModelOutcome& outcome,
                                   const ModelWindow& window) override {
    Held* const picked = held_.empty() ? nullptr : &chosen(step);
    const std::string pickedId = picked == nullptr ? "" : picked->id;
    std::size_t unsure = 0;
    for (std::size_t i = held_.size(); i-- > 0;) {
      if (held_[i].end.certainlyBefore(window)) {
        gone_ = held_[i].id;
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (!held_[i].end.certainlyAfter(window)) {
        ++unsure;
      }
    }
    const auto least = static_cast<std::int64_t>(kTotal) - static_cast<std::int64_t>(held_.size());
    const auto most = least + static_cast<std::int64_t>(unsure);
    const auto it = std::find_if(
        held_.begin(), held_.end(), [&](const Held& held) { return held.id == pickedId; });
    const bool sure = it != held_.end() && it->end.certainlyAfter(window);
    switch (actionOf(step)) {
      case acquire:
      case acquireLease:
        if (outcome.word == "true") {
          held_.push_back(
              {taken_, actionOf(step) == acquire ? ModelEnd() : ModelEnd(window, kShortLease)});
          // One that was unsure may have made room.
          if (least == 0 && most > 0) {
            dropUnsure(window);
          }
          return most > 0 ? std::nullopt : std::optional("all permits are taken");
        }
        if (actionOf(step) == acquireLease && lateGrant(window)) {
          return std::nullopt;
        }
        return least > 0 ? std::optional("a permit is free") : std::nullopt;
      case release:
        if (outcome.word == "none") {
          return std::nullopt;
        }
        if (it != held_.end()) {
          gone_ = pickedId;
          held_.erase(it);
        }
        return sure && outcome.word != "true" ? std::optional("it is held") : std::nullopt;
      case releaseOld:
        return outcome.word == "true" ? std::optional("it was gone") : std::nullopt;
      case counts:
        return outcome.word == "number" && outcome.number >= least && outcome.number <= most
                   ? std::nullopt
                   : std::optional("the model says " + std::to_string(least) + " to " +
                                   std::to_string(most));
      case extend:
        if (outcome.word == "none") {
          return std::nullopt;
        }
        if (it != held_.end()) {
          if (outcome.word == "true") {
            it->end = ModelEnd();
          } else {
            gone_ = pickedId;
            held_.erase(it);
          }
        } else if (outcome.word == "true") {
          return "it was gone";
        }
        return sure && outcome.word != "true" ? std::optional("it is held") : std::nullopt;
      default:
        return std::nullopt;
    }
  }

 private:
  static constexpr int kTotal = 4;
  struct Held {
    std::string id;
    ModelEnd end;
  };
  [[nodiscard]] Held& chosen(const ModelStep& step) {
    return held_[static_cast<std::size_t>(step.argument) % held_.size()];
  }
  void dropUnsure(const ModelWindow& window) {
    const auto it = std::find_if(held_.begin(), held_.end(), [&](const Held& held) {
      return !held.end.certainlyAfter(window);
    });
    if (it != held_.end()) {
      gone_ = it->id;
      held_.erase(it);
    }
  }
  [[nodiscard]] static Action actionOf(const ModelStep& step) {
    return step.action == wait && step.argument >= 150 ? acquireLease
                                                       : static_cast<Action>(step.action);
  }

  const std::string name_;
  std::vector<PermitExpirableSemaphore> semaphores_;
  std::vector<Held> held_;
  std::string taken_;
  std::string gone_;
};

// Latches.

class LatchCase final : public ModelCase {
 public:
  explicit LatchCase(World& world) : name_(world.freshName()) {
    for (Client& client : world.clients) {
      latches_.push_back(client.getCountDownLatch(name_));
    }
  }
  ~LatchCase() override { latches_[0].remove(); }

  enum Action { trySet, countDown, getCount, await, remove, kActions };

  [[nodiscard]] int actions() const override { return kActions; }
  [[nodiscard]] std::string describe(const ModelStep& step) const override {
    static constexpr std::array kNames{
        "trySetCount", "countDown", "getCount", "awaits no time", "remove"};
    return "client " + std::to_string(step.client) + " " +
           kNames[static_cast<std::size_t>(actionOf(step))] + " " + std::to_string(amount(step));
  }

  ModelOutcome perform(const ModelStep& step) override {
    CountDownLatch& latch = latches_[static_cast<std::size_t>(step.client)];
    switch (actionOf(step)) {
      case trySet:
        return outcomeOfValue(latch.trySetCountAsync(amount(step)).wait());
      case countDown:
        return outcomeOfValue(latch.countDownAsync().wait());
      case getCount:
        return outcomeOfValue(latch.getCountAsync().wait());
      case await:
        return {answerOf([&] { return latch.await(Duration::zero()); }), 0};
      default:
        return outcomeOfValue(latch.removeAsync().wait());
    }
  }

  std::optional<std::string> judge(const ModelStep& step,
                                   const ModelOutcome& outcome,
                                   const ModelWindow& /*window*/) override {
    switch (actionOf(step)) {
      case trySet: {
        const bool set = count_ == 0;
        if (set) {
          count_ = amount(step);
        }
        return expectWord(outcome, set ? "true" : "false");
      }
      case countDown:
        count_ = std::max(0, count_ - 1);
        return expectWord(outcome, "ok");
      case getCount:
        return expectNumber(outcome, count_);
      case await:
        return expectWord(outcome, count_ == 0 ? "true" : "false");
      default: {
        const bool existed = count_ > 0;
        count_ = 0;
        return expectWord(outcome, existed ? "true" : "false");
      }
    }
  }

 private:
  [[nodiscard]] static int amount(const ModelStep& step) { return 1 + step.argument % 3; }
  [[nodiscard]] static Action actionOf(const ModelStep& step) {
    return step.action == remove && step.argument >= 200 ? countDown
                                                         : static_cast<Action>(step.action);
  }

  const std::string name_;
  std::vector<CountDownLatch> latches_;
  int count_ = 0;
};

class Model : public SafetyTest {
 protected:
  void SetUp() override {
    LockTest::SetUp();
    Options settings = options();
    settings.watchdogTimeout = 30s;
    world_ = std::make_unique<World>(settings);
  }
  World& world() { return *world_; }

  static void check(const MakeModelCase& make) {
    const std::uint64_t seed = numberFrom("RLOCK_MODEL_SEED", std::random_device{}());
    const auto steps = static_cast<std::size_t>(numberFrom("RLOCK_MODEL_STEPS", 1500));
    const std::string failure = checkModel(make, seed, steps);
    EXPECT_TRUE(failure.empty()) << "RLOCK_MODEL_SEED=" << seed << "\n" << failure;
  }
  void checkExclusive(const ExclusiveCase::Get& get, bool reentrant) {
    check([&] { return std::make_unique<ExclusiveCase>(world(), get, reentrant); });
  }

 private:
  std::unique_ptr<World> world_;
};

TEST_F(Model, PlainLock) {
  checkExclusive([](Client& c, const std::string& name) { return c.getLock(name); }, true);
}
TEST_F(Model, FairLock) {
  checkExclusive([](Client& c, const std::string& name) { return c.getFairLock(name); }, true);
}
TEST_F(Model, SpinLock) {
  checkExclusive([](Client& c, const std::string& name) { return c.getSpinLock(name); }, true);
}
TEST_F(Model, FencedLock) {
  checkExclusive([](Client& c, const std::string& name) -> RLock { return c.getFencedLock(name); },
                 true);
}
TEST_F(Model, NonReentrantLock) {
  checkExclusive([](Client& c, const std::string& name) { return c.getNonReentrantLock(name); },
                 false);
}
TEST_F(Model, NonReentrantFairLock) {
  checkExclusive([](Client& c, const std::string& name) { return c.getNonReentrantFairLock(name); },
                 false);
}
TEST_F(Model, SimpleLock) {
  checkExclusive([](Client& c, const std::string& name) { return c.getSimpleLock(name); }, false);
}
TEST_F(Model, MultiLock) {
  checkExclusive(
      [](Client& c, const std::string& name) {
        return multiLock({c.getLock(name + ":a"), c.getLock(name + ":b")});
      },
      true);
}
TEST_F(Model, ReadWriteLock) {
  check([this] { return std::make_unique<ReadWriteCase>(world()); });
}
TEST_F(Model, FencingTokens) {
  check([this] { return std::make_unique<FencedCase>(world()); });
}
TEST_F(Model, Semaphore) {
  check([this] { return std::make_unique<SemaphoreCase>(world()); });
}
TEST_F(Model, PermitExpirableSemaphore) {
  check([this] { return std::make_unique<PermitCase>(world()); });
}
TEST_F(Model, CountDownLatch) {
  check([this] { return std::make_unique<LatchCase>(world()); });
}

// The check itself: a model that is wrong is found out, and with few steps.
TEST_F(Model, FindsAWrongModelAndShrinksIt) {
  const std::string failure = checkModel(
      [this] {
        return std::make_unique<ExclusiveCase>(
            world(), [](Client& c, const std::string& name) { return c.getLock(name); }, false);
      },
      1,
      500);
  ASSERT_NE(failure.find("reentry"), std::string::npos) << failure;
  EXPECT_LE(std::count(failure.begin(), failure.end(), '\n'), 8) << failure;
}

}  // namespace
}  // namespace rlock::test
