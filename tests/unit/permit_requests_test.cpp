// SPDX-License-Identifier: Apache-2.0
#include "unit/dispatched.hpp"
#include "unit/engine_fixture.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/engine/permit_requests.hpp>

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
  /// What the caller is told when the server answers so.
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

/// A permit that is held as an object for 60 s.
class LeaseUpdateTest : public EngineFixture {
 protected:
  LeaseUpdateTest() {
    const std::shared_ptr<const LockScripts> scripts = permit_;
    const HoldGates::Gate gate = engine_->gates().enter(scripts, OwnerId{1}, waiter_);
    HoldKeeper::GrantTerms terms{};
    terms.sentAt = env_->now();
    terms.now = env_->now();
    terms.lease = 60s;
    terms.wantsHandle = true;
    handle_ = engine_->holds().granted(*gate.hold, 0, 1, terms).handle;
    engine_->gates().leave(*gate.hold);
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
  Update update(std::optional<Duration> lease) {
    Update result{requests_.updateLeaseTime(permit_->ids().front(), lease)};
    result.request.compose(*result.call, *semaphore_);
    return result;
  }
  [[nodiscard]] auto left() const { return handle_->validUntil() - env_->now(); }

  NoGateWaiter waiter_;
  const std::shared_ptr<const PermitScripts> semaphore_ =
      std::make_shared<const PermitScripts>("gates", engine_->idempotencyKeys());
  const std::shared_ptr<const PermitScripts> permit_ =
      std::make_shared<const PermitScripts>(*semaphore_, 1, HoldKind::permit, true);
  const PermitRequests requests_{engine_, semaphore_};
  IntrusivePtr<HoldHandle> handle_;
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
  const auto until = handle_->validUntil();
  late.request.unanswered(false);
  env_->advance(1ms);
  late.confirm();
  late.request.unanswered(false);
  EXPECT_EQ(handle_->validUntil(), until);
  update(60s).confirm();
  EXPECT_GT(left(), 50s);
}

}  // namespace
}  // namespace permit_requests_test
}  // namespace rlock::detail
