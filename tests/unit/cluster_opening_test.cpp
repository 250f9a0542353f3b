// SPDX-License-Identifier: Apache-2.0
#include "unit/manual_env.hpp"
#include <rlock/detail/executor/cluster_opening.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace rlock::detail {
namespace cluster_opening_test {
namespace {

using namespace std::chrono_literals;

class ClusterOpeningTest : public testing::Test {
 protected:
  ClusterOpeningTest() {
    opening_.begin([this](const Result<void>& result) {
      told_.emplace_back(result.has_value() ? "ready" : result.error().message());
    });
  }

  using Told = std::vector<std::string>;

  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  Told told_;
  ClusterOpening opening_{env_, 3s};
  const Error slotless_{Errc::connectionFailed, "no slots"};
  const Error refused_{Errc::authenticationFailed, "wrong password"};
};

TEST_F(ClusterOpeningTest, OneAddressThatIsOfNoUseIsNotTheEnd) {
  EXPECT_FALSE(opening_.failed(slotless_, false));
  opening_.succeeded();
  EXPECT_EQ(told_, Told{"ready"});
  EXPECT_FALSE(env_->armed());
  EXPECT_FALSE(opening_.failed(slotless_, true)) << "it was told once";
  opening_.succeeded();
  EXPECT_EQ(told_.size(), 1U);
}

TEST_F(ClusterOpeningTest, AnErrorOfAllIsToldAtOnce) {
  EXPECT_TRUE(opening_.failed(refused_, true));
  EXPECT_EQ(told_, Told{"wrong password"});
  EXPECT_FALSE(env_->armed());
}

TEST_F(ClusterOpeningTest, AnErrorThatLastsIsTheReason) {
  EXPECT_FALSE(opening_.failed(refused_, false));
  EXPECT_TRUE(opening_.failed(slotless_, true));
  EXPECT_EQ(told_, Told{"wrong password"});
}

TEST_F(ClusterOpeningTest, TheReasonIsToldWhenTheTimeIsOver) {
  EXPECT_FALSE(opening_.failed(slotless_, false));
  EXPECT_EQ(env_->expire(), 3s);
  EXPECT_EQ(told_, Told{"no slots"});
}

TEST_F(ClusterOpeningTest, TheFirstReasonAfterThatIsNotKept) {
  env_->advance(3s);
  EXPECT_TRUE(told_.empty()) << "the attempt says itself why it has failed";
  EXPECT_TRUE(opening_.failed(slotless_, false));
  EXPECT_EQ(told_, Told{"no slots"});
}

TEST_F(ClusterOpeningTest, NothingIsToldAfterTheEnd) {
  EXPECT_FALSE(opening_.failed(slotless_, false));
  opening_.close();
  env_->advance(1h);
  EXPECT_TRUE(told_.empty());
}

}  // namespace
}  // namespace cluster_opening_test
}  // namespace rlock::detail
