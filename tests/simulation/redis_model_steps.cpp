// SPDX-License-Identifier: Apache-2.0
#include "simulation/redis_model_steps.hpp"

#include <rlock/detail/engine/query_task.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/counter_scripts.hpp>
#include <rlock/detail/executor/fair_lock_scripts.hpp>
#include <rlock/detail/executor/fenced_scripts.hpp>
#include <rlock/detail/executor/inspection_scripts.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/permit_scripts.hpp>
#include <rlock/detail/executor/read_write_scripts.hpp>
#include <rlock/detail/executor/simple_scripts.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

namespace rlock::sim {

namespace {

using namespace detail;
using std::chrono::milliseconds;

class ComposedCall final : public Call {
 public:
  ComposedCall() = default;

 private:
  void finished(Outcome /*outcome*/) noexcept override {}
};

/// The common part of all sequences: dice, owners, names, and how a call becomes a step.
class StepMaker : public ModelStepMaker {
 public:
  explicit StepMaker(std::uint64_t seed) : random_(seed) {}

  ModelStep next() final {
    // A lost reply makes a request come twice.
    if (!latest_.argv.empty() && chance(5)) {
      return latest_;
    }
    ModelStep step;
    if (chance(4)) {
      step.argv = obstacle();
    } else {
      step = composed();
    }
    step.outOfMemory = chance(4);
    return latest_ = std::move(step);
  }

 protected:
  /// Fills in a call, or makes a plain command.
  virtual void compose(Call& call) = 0;
  /// Keys that something else may be put in the way of.
  virtual std::vector<std::string> keys() = 0;

  bool chance(int percent) { return below(100) < percent; }
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint64_t>(limit)); }
  template <class Container>
  auto& pick(Container& container) {
    return container[static_cast<std::size_t>(below(static_cast<int>(container.size())))];
  }

  std::string_view owner() { return pick(owners_); }
  milliseconds lease() {
    static constexpr std::array<int, 8> kLeases{2, 5, 12, 30, 1'000, 30'000, 60'000, 86'400'000};
    return milliseconds(pick(kLeases));
  }
  std::string_view tombstone() {
    return chance(70) ? std::string_view() : std::string_view(pick(tombstones_));
  }
  static std::string nameOf(int index) { return index == 0 ? "lock" : "other{tag}"; }

 private:
  ModelStep composed() {
    const auto call = makeIntrusive<ComposedCall>();
    compose(*call);
    std::string script;
    for (const lua::Script* const known : lua::allScripts()) {
      if (call->argv().size() > 1 && call->argv()[1] == known->sha1) {
        script = known->name;
      }
    }
    if (chance(4)) {
      call->sendDespiteMemoryLimit();
    } else if (chance(4)) {
      call->sendText();
    }
    ModelStep step{{call->argv().begin(), call->argv().end()}, std::move(script)};
    for (std::string& argument : step.argv) {
      makeReproducible(argument, step.script.starts_with("permit_"));
    }
    return step;
  }

  /// Ids are random bits of the process. The ids of a sequence follow from its seed.
  void makeReproducible(std::string& argument, bool hasPermitIds) {
    constexpr std::size_t kRequestId = 32;
    if (hasPermitIds && argument.size() == kPermitIdSize) {
      argument = substitute(argument);
    } else if (argument.starts_with("rlock_request:") && argument.size() > kRequestId &&
               argument.find("tombstone") == std::string::npos) {
      const std::size_t at = argument.size() - kRequestId;
      argument.replace(at, kRequestId, permitIdToHex(substitute(argument.substr(at))));
    }
  }
  const std::string& substitute(const std::string& id) {
    const auto [found, isNew] = substitutes_.try_emplace(id);
    if (isNew) {
      for (std::size_t i = 0; i < kPermitIdSize; ++i) {
        found->second += static_cast<char>(below(256));
      }
      // Known by itself, too, when it is asked for again.
      substitutes_.emplace(found->second, found->second);
    }
    return found->second;
  }

  std::vector<std::string> obstacle() {
    const std::vector<std::string> all = keys();
    const std::string& key = pick(all);
    switch (below(9)) {
      case 0:
        return {"DEL", key};
      case 1:
        return {"PERSIST", key};
      case 2:
        return {"PEXPIRE", key, std::to_string(below(40))};
      case 3:
        return {"SET", key, chance(50) ? "text" : "5"};
      case 4:
        return {"HSET", key, std::string(owner()), chance(30) ? "x" : "1"};
      case 5:
        return {"RPUSH", key, std::string(owner())};
      case 6:
        return {"ZADD", key, "1.5", std::string(owner())};
      case 7:
        return {"RENAME", key, pick(all)};
      default:
        return {"FLUSHALL"};
    }
  }

  Random random_;
  ModelStep latest_;
  std::map<std::string, std::string> substitutes_;
  const std::array<std::string, 4> owners_{"0a1b2c3d-0000-4000-8000-000000000001:1",
                                           "0a1b2c3d-0000-4000-8000-000000000001:22",
                                           "0a1b2c3d-0000-4000-8000-000000000002:1",
                                           "0a1b2c3d-0000-4000-8000-000000000003:7"};
  const std::array<std::string, 3> tombstones_{"rlock_request:{lock}:tombstone1",
                                               "rlock_request:{lock}:tombstone2",
                                               "rlock_request:{lock}:tombstone3"};
};

/// Locks of one or several forms under the same names.
class LockSteps : public StepMaker {
 public:
  using Locks = std::vector<std::shared_ptr<const LockScripts>>;
  LockSteps(std::uint64_t seed, Locks locks) : StepMaker(seed), locks_(std::move(locks)) {}

 protected:
  void compose(Call& call) override {
    const LockScripts& lock = *pick(locks_);
    const int dice = below(100);
    if (dice < 38) {
      lock.composeAcquire(call,
                          {owner(), lease(), tombstone(), chance(60), chance(40), chance(50)});
    } else if (dice < 46 && lock.traits.handsOver) {
      // Without a next owner it says how many hear that the lock is free.
      const auto next = chance(25) ? std::string_view() : owner();
      lock.composeHandOver(
          call, {owner(), chance(60) ? milliseconds(0) : lease(), {}}, {next, lease()});
    } else if (dice < 60) {
      lock.composeRelease(call,
                          {owner(),
                           chance(60) ? milliseconds(0) : lease(),
                           tombstone(),
                           chance(60) ? 0 : 1 + below(3),
                           below(4)});
    } else if (dice < 70) {
      lock.composeReconcile(call,
                            {owner(),
                             below(3),
                             tombstone(),
                             1 + below(3),
                             static_cast<ReconcileRequest::Of>(below(3)),
                             below(4),
                             chance(50) ? 0 : 1 + below(3)});
    } else if (dice < 80) {
      renew(call, lock);
    } else if (dice < 83) {
      lock.composeForceRelease(call, kTombstoneLife);
    } else if (dice < 90 && lock.traits.queuesOnServer) {
      lock.composeWithdraw(call, owner());
    } else if (dice < 93) {
      question(call, lock);
    } else {
      aside(call, std::string(lock.name));
    }
  }

  std::vector<std::string> keys() override {
    const std::string name(pick(locks_)->name);
    std::vector<std::string> all{name,
                                 prefixed("redisson_lock_queue", name),
                                 prefixed("redisson_lock_timeout", name),
                                 prefixed("rlock_lock_waiter_lease", name),
                                 prefixed("rlock_lock_order", name),
                                 prefixed("rlock_lock_foreign_wait", name),
                                 prefixed("redisson_lock_token", name),
                                 prefixed("rlock_rw_intent", name),
                                 labelKey(name)};
    all.insert(all.end(), 3, name);
    for (int hold = 1; hold <= 3; ++hold) {
      all.push_back(braced(name) + ":" + std::string(owner()) +
                    ":rwlock_timeout:" + std::to_string(hold));
    }
    return all;
  }

  void renew(Call& call, const LockScripts& lock) {
    std::vector<RenewalRequest> renewals;
    for (int i = 1 + below(3); i > 0; --i) {
      // All of one form go into one request.
      const LockScripts& other = *pick(locks_);
      const bool same = other.renewals() == lock.renewals();
      renewals.push_back({same ? &other : &lock, owner(), lease()});
    }
    lock.renewals()(call, renewals);
  }

  virtual void question(Call& call, const LockScripts& lock) {
    switch (below(3)) {
      case 0:
        return lock.composeIsLocked(call);
      case 1:
        return lock.composeHoldCount(call, owner());
      default:
        return lock.composeTimeToLive(call);
    }
  }

  void aside(Call& call, const std::string& name) {
    if (chance(50)) {
      composeInspect(call, name);
      return;
    }
    notes_.clear();
    for (int i = 1 + below(2); i > 0; --i) {
      notes_.push_back(
          {nameOf(below(2)), std::string(owner()), chance(25) ? "" : "a label", lease()});
    }
    composeLabels(call, notes_, labelKeys_);
  }

  const Locks locks_;

 private:
  std::vector<LabelNote> notes_;
  std::vector<std::string> labelKeys_;
};

class FencedSteps final : public LockSteps {
 public:
  using LockSteps::LockSteps;

 private:
  void question(Call& call, const LockScripts& lock) override {
    if (chance(70)) {
      static_cast<const FencedScripts&>(lock).composeToken(call, owner());
    } else {
      LockSteps::question(call, lock);
    }
  }
};

/// Beside the owners of rlock there are waiters of Redisson, who leave no lease on their places.
class FairSteps final : public LockSteps {
 public:
  using LockSteps::LockSteps;

 private:
  void compose(Call& call) override {
    if (!chance(6)) {
      LockSteps::compose(call);
      return;
    }
    const LockScripts& lock = *pick(locks_);
    static constexpr std::string_view kEnrol =
        "local now = redis.call('time')\n"
        "if redis.call('zscore', KEYS[2], ARGV[1]) then return 0 end\n"
        "redis.call('rpush', KEYS[1], ARGV[1])\n"
        "return redis.call('zadd', KEYS[2], now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[2], "
        "ARGV[1])";
    call.setCommand({"EVAL",
                     kEnrol,
                     "2",
                     call.store(prefixed("redisson_lock_queue", lock.name)),
                     call.store(prefixed("redisson_lock_timeout", lock.name)),
                     owner(),
                     chance(50) ? "300000" : "10"});
  }
};

/// Requests that carry the number of a marker, and may be asked for again.
class NumberedSteps : public StepMaker {
 public:
  explicit NumberedSteps(std::uint64_t seed)
      : StepMaker(seed),
        markers_(std::make_shared<IdempotencyKeyPool>(chance(70) ? kIdempotencyKeyLife
                                                                 : milliseconds(8))) {}

 protected:
  /// Composes, and now and then takes up an earlier request again.
  void compose(Call& call) final {
    if (!earlier_.empty() && chance(8)) {
      again(call);
      return;
    }
    change(call);
    if (!call.idempotencyKey().empty()) {
      earlier_.emplace_back(call.argv().begin(), call.argv().end());
      const auto marker = call.idempotencyKey();
      idempotencyKeyAt_.push_back(static_cast<std::size_t>(marker.data() - call.argv().data()));
      if (earlier_.size() > 6) {
        earlier_.pop_front();
        idempotencyKeyAt_.pop_front();
      }
    }
  }
  virtual void change(Call& call) = 0;

  const std::shared_ptr<IdempotencyKeyPool> markers_;

 private:
  void again(Call& call) {
    const auto index = static_cast<std::size_t>(below(static_cast<int>(earlier_.size())));
    const std::vector<std::string>& argv = earlier_[index];
    const std::size_t marker = idempotencyKeyAt_[index];
    const lua::Script* script = &lua::change_again;
    for (const lua::Script* const known : lua::allScripts()) {
      if (argv[1] == known->sha1) {
        script = known;
      }
    }
    const auto change = makeIntrusive<ComposedCall>();
    change->setScript(*script, marker - 2);
    for (std::size_t i = 3; i < marker; ++i) {
      change->addArgument(argv[i]);
    }
    change->addIdempotencyKey(
        argv[marker], std::stoull(argv[marker + 1]), milliseconds(std::stoll(argv[marker + 2])));
    for (std::size_t i = marker + 3; i < argv.size(); ++i) {
      change->addArgument(argv[i]);
    }
    if (chance(50)) {
      const ChangeAgain prepared(*change, [](const ChangeAgain&, const Outcome&) {});
      copy(call, prepared);
      return;
    }
    change->setAgain();
    copy(call, *change);
  }

  /// As if `call` had been composed so.
  static void copy(Call& call, const Call& from) {
    const auto argv = from.argv();
    for (const lua::Script* const known : lua::allScripts()) {
      if (argv[1] == known->sha1) {
        call.setScript(*known, std::stoul(std::string(argv[2])));
      }
    }
    for (const std::string_view argument : argv.subspan(3)) {
      call.addArgument(call.store(argument));
    }
  }

  std::deque<std::vector<std::string>> earlier_;
  std::deque<std::size_t> idempotencyKeyAt_;
};

class SemaphoreSteps final : public NumberedSteps {
 public:
  explicit SemaphoreSteps(std::uint64_t seed)
      : NumberedSteps(seed), semaphore_("semaphore", markers_) {}

 private:
  void change(Call& call) override {
    const int dice = below(100);
    if (acquisitions_.empty() || dice < 10) {
      acquisitions_.push_back(std::make_shared<PermitAcquisition>(semaphore_, 1 + below(3)));
      if (acquisitions_.size() > 4) {
        acquisitions_.erase(acquisitions_.begin());
      }
    }
    if (dice < 40) {
      pick(acquisitions_)->composeAcquire(call, {owner(), lease(), {}});
    } else if (dice < 60) {
      ReconcileRequest request{.owner = owner(), .target = below(2), .tombstone = {}};
      pick(acquisitions_)->composeReconcile(call, request);
    } else if (dice < 75) {
      const std::int64_t permits = chance(10) ? 2'147'483'647 : below(9) - 3;
      semaphore_.composeAdd(call, permits, chance(40));
    } else if (dice < 87) {
      semaphore_.composeTrySet(call, below(7) - 1, chance(60) ? milliseconds(0) : lease());
    } else if (dice < 91) {
      semaphore_.composeRemove(call);
    } else if (dice < 96) {
      semaphore_.composeDrain(call);
    } else {
      semaphore_.composeGet(call);
    }
  }
  std::vector<std::string> keys() override { return {std::string(semaphore_.name)}; }

  const SemaphoreScripts semaphore_;
  std::vector<std::shared_ptr<const PermitAcquisition>> acquisitions_;
};

class LatchSteps final : public NumberedSteps {
 public:
  explicit LatchSteps(std::uint64_t seed) : NumberedSteps(seed), latch_("latch", markers_) {}

 private:
  void change(Call& call) override {
    const int dice = below(100);
    if (dice < 30) {
      latch_.composeTrySet(call, below(4), chance(60) ? milliseconds(0) : lease());
    } else if (dice < 65) {
      latch_.composeCountDown(call);
    } else if (dice < 85) {
      latch_.composeAcquire(call, {owner(), lease(), {}});
    } else if (dice < 93) {
      latch_.composeRemove(call);
    } else {
      latch_.composeGet(call);
    }
  }
  std::vector<std::string> keys() override { return {std::string(latch_.name)}; }

  const LatchScripts latch_;
};

class PermitSteps final : public NumberedSteps {
 public:
  explicit PermitSteps(std::uint64_t seed) : NumberedSteps(seed), semaphore_("permits", markers_) {}

 private:
  void change(Call& call) override {
    const int dice = below(100);
    if (acquisitions_.empty() || dice < 20) {
      const bool kept = chance(60);
      acquisitions_.push_back(
          std::make_shared<PermitScripts>(semaphore_,
                                          kept ? 1 : 1 + below(3),
                                          kept ? HoldKind::permit : HoldKind::none,
                                          kept || chance(80)));
      if (acquisitions_.size() > 6) {
        acquisitions_.erase(acquisitions_.begin());
      }
    }
    const PermitScripts& acquisition = *pick(acquisitions_);
    const auto bytes = [](const PermitScripts& of) {
      std::string all;
      for (const std::string& id : of.ids()) {
        all += permitIdFromHex(id).value_or("");
      }
      return all;
    };
    if (dice < 32) {
      acquisition.composeAcquire(call, {owner(), lease(), tombstone()});
    } else if (dice < 40) {
      acquisition.composeRelease(call, {owner(), milliseconds(0), {}});
    } else if (dice < 48) {
      acquisition.composeReconcile(call, {owner(), below(2), tombstone()});
    } else if (dice < 56) {
      std::vector<RenewalRequest> renewals;
      for (const auto& other : acquisitions_) {
        if (other->traits.holdKind == HoldKind::permit && chance(60)) {
          renewals.push_back({other.get(), owner(), lease()});
        }
      }
      semaphore_.renewals()(call, renewals);
    } else if (dice < 72) {
      static constexpr std::array<PermitScripts::Change, 3> kChanges{
          PermitScripts::Change::init, PermitScripts::Change::total, PermitScripts::Change::add};
      semaphore_.composeChange(call, pick(kChanges), chance(8) ? 2'147'483'647 : below(10) - 2);
    } else if (dice < 80) {
      given_ = bytes(acquisition) + (chance(20) ? bytes(*acquisitions_.front()) : "");
      semaphore_.composeGiveBack(call, given_);
    } else if (dice < 84) {
      semaphore_.composeCount(call);
    } else if (dice < 88) {
      semaphore_.composeGetLease(call, bytes(acquisition).substr(0, kPermitIdSize));
    } else if (dice < 93) {
      semaphore_.composeUpdateLease(call,
                                    bytes(acquisition).substr(0, kPermitIdSize),
                                    chance(30) ? milliseconds(0) : lease());
    } else if (dice < 95) {
      semaphore_.composeForceRelease(call, kTombstoneLife);
    } else {
      question(call);
    }
  }
  void question(Call& call) {
    switch (below(4)) {
      case 0:
        return semaphore_.composeIsLocked(call);
      case 1:
        return semaphore_.composeHoldCount(call, owner());
      case 2:
        return semaphore_.composeTimeToLive(call);
      default:
        return composeInspect(call, semaphore_.name);
    }
  }
  std::vector<std::string> keys() override {
    return {std::string(semaphore_.name), suffixed(semaphore_.name, "timeout")};
  }

  const PermitScripts semaphore_;
  std::vector<std::shared_ptr<const PermitScripts>> acquisitions_;
  std::string given_;
};

/// The script that programs with a fenced resource run, which the library only brings along.
class WriteSteps final : public StepMaker {
 public:
  using StepMaker::StepMaker;

 private:
  void compose(Call& call) override {
    static constexpr std::array<std::string_view, 8> kTokens{
        "1", "2", "9", "10", "9007199254740993", "9007199254740992", "007", "-1"};
    call.setScript(lua::fenced_write, 2);
    call.addArgument("resource");
    call.addArgument("resource:token");
    call.addArgument(pick(kTokens));
    call.addNumber(below(100));
  }
  std::vector<std::string> keys() override { return {"resource", "resource:token"}; }
};

template <class Scripts, class... Arguments>
LockSteps::Locks bothNames(Arguments... arguments) {
  return {std::make_shared<Scripts>("lock", arguments...),
          std::make_shared<Scripts>("other{tag}", arguments...)};
}

LockSteps::Locks joined(LockSteps::Locks locks, const LockSteps::Locks& more) {
  locks.insert(locks.end(), more.begin(), more.end());
  return locks;
}

struct Kind {
  std::string_view name;
  std::function<std::unique_ptr<ModelStepMaker>(std::uint64_t seed)> make;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"plain",
       [](std::uint64_t seed) {
         return std::make_unique<LockSteps>(
             seed,
             joined(bothNames<LockScripts>(LockTraits{.handsOver = true}),
                    bothNames<LockScripts>(LockTraits{.reentrant = false})));
       }},
      {"fenced",
       [](std::uint64_t seed) {
         return std::make_unique<FencedSteps>(seed,
                                              joined(bothNames<FencedScripts>(milliseconds(0)),
                                                     bothNames<FencedScripts>(milliseconds(15))));
       }},
      {"fair",
       [](std::uint64_t seed) {
         return std::make_unique<FairSteps>(
             seed,
             LockSteps::Locks{
                 std::make_shared<FairLockScripts>("lock", milliseconds(10), true),
                 std::make_shared<FairLockScripts>("lock", milliseconds(5'000), true),
                 std::make_shared<FairLockScripts>("lock", milliseconds(5'000), false)});
       }},
      {"read-write",
       [](std::uint64_t seed) {
         return std::make_unique<LockSteps>(seed,
                                            joined({std::make_shared<ReadLockScripts>("lock")},
                                                   {std::make_shared<WriteLockScripts>("lock"),
                                                    std::make_shared<ReadLockScripts>("lock")}));
       }},
      {"simple",
       [](std::uint64_t seed) {
         return std::make_unique<LockSteps>(seed, bothNames<SimpleScripts>());
       }},
      {"semaphore", [](std::uint64_t seed) { return std::make_unique<SemaphoreSteps>(seed); }},
      {"latch", [](std::uint64_t seed) { return std::make_unique<LatchSteps>(seed); }},
      {"permits", [](std::uint64_t seed) { return std::make_unique<PermitSteps>(seed); }},
      {"fenced write", [](std::uint64_t seed) { return std::make_unique<WriteSteps>(seed); }},
      // Locks of different forms under one name, as when programs do not agree.
      {"mixed",
       [](std::uint64_t seed) {
         return std::make_unique<LockSteps>(
             seed,
             LockSteps::Locks{std::make_shared<LockScripts>("lock"),
                              std::make_shared<FairLockScripts>("lock", milliseconds(10), true),
                              std::make_shared<ReadLockScripts>("lock"),
                              std::make_shared<WriteLockScripts>("lock"),
                              std::make_shared<FencedScripts>("lock", milliseconds(15)),
                              std::make_shared<SimpleScripts>("lock")});
       }},
  };
  return all;
}

}  // namespace

std::size_t stepMakerCount() {
  return kinds().size();
}

std::string_view stepMakerName(std::size_t kind) {
  return kinds()[kind].name;
}

std::unique_ptr<ModelStepMaker> makeStepMaker(std::size_t kind, std::uint64_t seed) {
  return kinds()[kind].make(seed);
}

}  // namespace rlock::sim
