// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/hand_over_chain.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace rlock::detail {
namespace {

using std::chrono::milliseconds;

HandOverChain::TimePoint at(int ms) {
  return HandOverChain::TimePoint(milliseconds(ms));
}

constexpr HandOverLimits kLimits{3, milliseconds(50)};

TEST(HandOverChain, EndsWithItsNumber) {
  HandOverChain chain;
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(chain.next(kLimits, at(0)));
    EXPECT_TRUE(chain.next(kLimits, at(0)));
    EXPECT_TRUE(chain.next(kLimits, at(0)));
    // Then one release is for everybody, and another chain may begin.
    EXPECT_FALSE(chain.next(kLimits, at(0)));
  }
}

TEST(HandOverChain, EndsWithItsTime) {
  HandOverChain chain;
  EXPECT_TRUE(chain.next(kLimits, at(100)));
  EXPECT_TRUE(chain.next(kLimits, at(149)));
  EXPECT_FALSE(chain.next(kLimits, at(150)));
  EXPECT_TRUE(chain.next(kLimits, at(151)));
  EXPECT_TRUE(chain.next(kLimits, at(200)));
  EXPECT_FALSE(chain.next(kLimits, at(201)));
}

/// A release for everybody in between begins it anew.
TEST(HandOverChain, BeginsAnewAfterARelease) {
  HandOverChain chain;
  EXPECT_TRUE(chain.next(kLimits, at(0)));
  EXPECT_TRUE(chain.next(kLimits, at(0)));
  chain.end();
  EXPECT_TRUE(chain.next(kLimits, at(90)));
  EXPECT_TRUE(chain.next(kLimits, at(90)));
  EXPECT_TRUE(chain.next(kLimits, at(139)));
  EXPECT_FALSE(chain.next(kLimits, at(139)));
}

TEST(HandOverChain, ZeroMeansNever) {
  HandOverChain chain;
  EXPECT_FALSE(chain.next({0, milliseconds(50)}, at(0)));
  EXPECT_FALSE(chain.next({3, milliseconds(0)}, at(0)));
  EXPECT_FALSE(chain.next({}, at(0)));
}

}  // namespace
}  // namespace rlock::detail
