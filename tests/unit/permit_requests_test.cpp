// SPDX-License-Identifier: Apache-2.0
#include "unit/engine_fixture.hpp"
#include <rlock/detail/engine/permit_requests.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
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

}  // namespace
}  // namespace permit_requests_test
}  // namespace rlock::detail
