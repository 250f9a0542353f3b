// SPDX-License-Identifier: Apache-2.0
#include "unit/dispatched.hpp"
#include "unit/engine_fixture.hpp"
#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/engine/permit_requests.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {
namespace permit_requests_test {
namespace {

using namespace std::chrono_literals;

Reply counts(std::int64_t available, std::int64_t acquired, std::int64_t exists) {
  Reply reply;
  reply.type = Reply::Type::array;
  for (const std::int64_t value : {available, acquired, exists}) {
    Reply& element = reply.elements.emplace_back();
    element.type = Reply::Type::integer;
    element.integer = value;
  }
  return reply;
}

class PermitRequestsTest : public EngineFixture {
 protected:
  /// The result that the caller is told when the server answers so.
  template <class T>
  static Result<T> told(const PermitRequest<T>& request, const Reply& reply) {
    const auto number = request.parse(reply);
    return number ? request.convert(*number) : Result<T>(Error(Errc::protocolError, "no number"));
  }
  template <class T>
  static bool refused(const PermitRequest<T>& request) {
    return request.refusal && request.refusal->errc() == Errc::invalidArgument;
  }

  const std::string id_ = std::string(32, 'a');
  const std::shared_ptr<const PermitScripts> permits_ =
      std::make_shared<const PermitScripts>("gates", nullptr);
  const PermitRequests requests_{engine_, permits_};
};

TEST_F(PermitRequestsTest, AllPermitsAreTheFreeAndTheTaken) {
  EXPECT_EQ(*told(requests_.availablePermits(), counts(3, 2, 1)), 3);
  EXPECT_EQ(*told(requests_.acquiredPermits(), counts(3, 2, 1)), 2);
  EXPECT_EQ(*told(requests_.getPermits(), counts(3, 2, 1)), 5);
  EXPECT_EQ(*told(requests_.getPermits(), counts(0, 2, 0)), 0) << "there is no such semaphore";
}

TEST_F(PermitRequestsTest, OnlyAChangeByANumberMayBeNegative) {
  EXPECT_TRUE(refused(requests_.trySetPermits(-1)));
  EXPECT_TRUE(refused(requests_.setPermits(-1)));
  EXPECT_FALSE(requests_.addPermits(-1).refusal);
}

TEST_F(PermitRequestsTest, AReleaseNamesDifferentPermitsByTheirIds) {
  const std::vector<std::string_view> none;
  const std::vector<std::string_view> wrong{"no id"};
  const std::vector<std::string_view> twice{id_, id_};
  const std::vector<std::string_view> good{id_};
  EXPECT_TRUE(refused(requests_.release(none)));
  EXPECT_TRUE(refused(requests_.release(wrong)));
  EXPECT_TRUE(refused(requests_.release(twice)));
  EXPECT_FALSE(requests_.release(good).refusal);
}

TEST_F(PermitRequestsTest, NoMoreThanTheMostAreReleasedAtOnce) {
  const std::vector<std::string_view> many(PermitRequests::kMost + 1, id_);
  EXPECT_TRUE(refused(requests_.tryRelease(many)));
}

TEST_F(PermitRequestsTest, WithoutAPermitOneCallThrowsAndTheOtherCounts) {
  const std::vector<std::string_view> ids{id_};
  EXPECT_EQ(requests_.release(ids).convert(0).error().errc(), Errc::notOwner);
  EXPECT_EQ(*requests_.tryRelease(ids).convert(0), 0);
}

TEST_F(PermitRequestsTest, ALeaseIsForEverWithoutAnExpiry) {
  const auto request = requests_.getLeaseTime(id_);
  EXPECT_EQ(**request.convert(1500), 1500ms);
  EXPECT_EQ(*request.convert(-1), std::nullopt);
  EXPECT_EQ(request.convert(-2).error().errc(), Errc::notOwner);
  EXPECT_TRUE(refused(requests_.getLeaseTime("no id")));
  EXPECT_TRUE(refused(requests_.updateLeaseTime(id_, Duration::zero())));
}

/// A permit that a client holds as an object for 60 s, and its requests for another lease.
class HeldPermit {
 public:
  explicit HeldPermit(const std::shared_ptr<LockEngine>& engine)
      : engine_(engine),
        semaphore_(std::make_shared<const PermitScripts>("gates", engine->idempotencyKeys())),
        permit_(std::make_shared<const PermitScripts>(*semaphore_, 1, HoldKind::permit, true)),
        requests_(engine, semaphore_) {
    const std::shared_ptr<const LockScripts> scripts = permit_;
    const HoldGates::Gate gate = engine->gates().enter(scripts, OwnerId{1}, waiter_);
    HoldKeeper::GrantTerms terms{};
    terms.sentAt = engine->now();
    terms.now = engine->now();
    terms.lease = 60s;
    terms.watched = false;
    terms.wantsHandle = true;
    handle_ = engine->holds().granted(*gate.hold, 0, 1, terms).handle;
    engine->gates().leave(*gate.hold);
  }

  /// A request for another lease, which is about to be sent.
  struct Update {
    PermitRequest<bool> request;
    IntrusivePtr<TakingCall> call = makeIntrusive<TakingCall>();

    [[nodiscard]] std::string key() const { return std::string(call->idempotencyKey()[0]); }
    [[nodiscard]] std::int64_t number() const {
      return std::stoll(std::string(call->idempotencyKey()[1]));
    }
    void confirm() const { request.parse(test::numberReply(1)); }
  };
  [[nodiscard]] Update update(std::optional<Duration> lease) const {
    Update result{requests_.updateLeaseTime(permit_->ids().front(), lease)};
    result.request.compose(*result.call, *semaphore_);
    return result;
  }

  [[nodiscard]] const HoldHandle& handle() const noexcept { return *handle_; }

 private:
  NoGateWaiter waiter_;
  const std::shared_ptr<LockEngine> engine_;
  const std::shared_ptr<const PermitScripts> semaphore_;
  const std::shared_ptr<const PermitScripts> permit_;
  const PermitRequests requests_;
  IntrusivePtr<HoldHandle> handle_;
};

class LeaseUpdateTest : public EngineFixture {
 protected:
  using Update = HeldPermit::Update;

  [[nodiscard]] Update update(std::optional<Duration> lease) const { return permit_.update(lease); }
  [[nodiscard]] auto left() const { return permit_.handle().validUntil() - env_->now(); }

  const HeldPermit permit_{engine_};
};

TEST_F(LeaseUpdateTest, TheNextOneCountsHoweverOneWithoutAnAnswerEnded) {
  for (const bool notDone : {true, false}) {
    SCOPED_TRACE(notDone);
    const Update failed = update(5s);
    failed.request.unanswered(notDone);
    EXPECT_LE(left(), 5s) << "it may have that lease only";
    const Update next = update(std::nullopt);
    EXPECT_LE(left(), 5s);
    next.confirm();
    EXPECT_GT(left(), 24h);
  }
}

TEST_F(LeaseUpdateTest, ARequestThatIsDroppedIsALostOne) {
  const std::string key = update(5s).key();
  const Update next = update(60s);
  EXPECT_EQ(next.key(), key);
  next.confirm();
  EXPECT_GT(left(), 50s);
}

// The server refuses what comes with a lower number than it has seen under the key.
TEST_F(LeaseUpdateTest, TheNextOneRulesOutALostOne) {
  const Update lost = update(5s);
  lost.request.unanswered(false);
  const Update failed = update(60s);
  EXPECT_EQ(failed.key(), lost.key());
  EXPECT_GT(failed.number(), lost.number());
  // The lost one is not ruled out yet.
  failed.request.unanswered(true);
  const Update next = update(60s);
  EXPECT_EQ(next.key(), lost.key());
  EXPECT_GT(next.number(), failed.number());
  next.confirm();
  EXPECT_NE(update(60s).key(), lost.key()) << "nothing is left to be ruled out";
}

TEST_F(LeaseUpdateTest, AnAnswerAfterTheCallerHasLeftDoesNotCount) {
  const Update late = update(5s);
  const auto until = permit_.handle().validUntil();
  late.request.unanswered(false);
  env_->advance(1ms);
  late.confirm();
  late.request.unanswered(false);
  EXPECT_EQ(permit_.handle().validUntil(), until);
  update(60s).confirm();
  EXPECT_GT(left(), 50s);
}

/// A permit of a client whose server the test answers for.
class Doubt {
 public:
  void pass(std::chrono::milliseconds time) {
    world_.env->runPosted();
    world_.env->advance(time);
    world_.env->runPosted();
  }
  void disconnect() { world_.disconnect(); }
  void connect() {
    world_.connect();
    world_.env->runPosted();
  }

  [[nodiscard]] HeldPermit::Update update(std::optional<Duration> lease) const {
    return permit_.update(lease);
  }
  /// Nobody knows which of the two the server has last.
  void updateByTwoAtATime() const {
    const HeldPermit::Update brief = update(10s);
    const HeldPermit::Update permanent = update(std::nullopt);
    brief.confirm();
    permanent.confirm();
  }

  [[nodiscard]] LossReason lost() const { return permit_.handle().reason(); }
  [[nodiscard]] bool sentNothing() const { return world_.server->sent() == 0; }
  /// A request is under way that gives the permit back by its id.
  [[nodiscard]] bool givenBack() const {
    return world_.server->underWay() > 0 &&
           world_.server->oldest()[1] == lua::permit_reconcile.sha1;
  }

 private:
  struct World : PendingEngine {
    World() : PendingEngine(Options::fromUri("redis://host")) {
      connect();
      env->runPosted();
    }
  };

  World world_;
  const HeldPermit permit_{world_.engine};
};

TEST(LeaseInDoubt, OneThatIsKnownEndsByItself) {
  Doubt doubt;
  doubt.update(10s).confirm();
  doubt.pass(10s);
  EXPECT_EQ(doubt.lost(), LossReason::expired);
  EXPECT_TRUE(doubt.sentNothing());
}

// Nobody would give it back any more.
TEST(LeaseInDoubt, OneWithoutAnExpiryIsNotLostInThisLife) {
  Doubt doubt;
  doubt.update(std::nullopt).confirm();
  doubt.pass(24h * 366);
  doubt.pass(24h * 365 * 80);
  EXPECT_EQ(doubt.lost(), LossReason::none);
  // The allowance for it does not overflow, either.
  doubt.update(10s).request.unanswered(false);
  doubt.pass(10s);
  EXPECT_EQ(doubt.lost(), LossReason::expired);
  EXPECT_TRUE(doubt.givenBack());
}

TEST(LeaseInDoubt, WhatMayOutlastTheHoldIsGivenBack) {
  Doubt doubt;
  doubt.updateByTwoAtATime();
  doubt.pass(10s);
  EXPECT_EQ(doubt.lost(), LossReason::expired);
  EXPECT_TRUE(doubt.givenBack());
}

TEST(LeaseInDoubt, TheLongerLeaseBeforeARefusedOneIsGivenBack) {
  Doubt doubt;
  doubt.update(5s).request.unanswered(true);
  doubt.pass(5s);
  EXPECT_EQ(doubt.lost(), LossReason::expired);
  EXPECT_TRUE(doubt.givenBack());
}

TEST(LeaseInDoubt, WhatALeaseAfterTheLossMayHaveLeftIsGivenBack) {
  for (const bool answered : {true, false}) {
    SCOPED_TRACE(answered);
    Doubt doubt;
    doubt.update(5s).confirm();
    doubt.pass(4950ms);
    EXPECT_EQ(doubt.lost(), LossReason::expired);
    {
      const HeldPermit::Update late = doubt.update(1h);
      doubt.pass(1s);
      EXPECT_TRUE(doubt.sentNothing());
      if (answered) {
        late.confirm();
      }
    }
    doubt.pass(1ms);
    EXPECT_TRUE(doubt.givenBack());
  }
}

// The hold's own validity is over long before the server would drop the permit.
TEST(LeaseInDoubt, ItIsGivenBackHoweverLongTheOutage) {
  Doubt doubt;
  doubt.updateByTwoAtATime();
  doubt.disconnect();
  for (int minute = 0; minute < 60; ++minute) {
    doubt.pass(1min);
  }
  EXPECT_EQ(doubt.lost(), LossReason::expired);
  doubt.connect();
  EXPECT_TRUE(doubt.givenBack());
}

}  // namespace
}  // namespace permit_requests_test
}  // namespace rlock::detail
