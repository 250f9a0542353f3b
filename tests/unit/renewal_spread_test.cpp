// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/renewal_spread.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace rlock::detail {
namespace renewal_spread_test {
namespace {

using std::chrono::milliseconds;

TEST(RenewalSpread, IsATenthOfThePeriodAtMost) {
  constexpr milliseconds kPeriod{10'000};
  RenewalSpread spread(kPeriod);
  for (int i = 0; i < 10'000; ++i) {
    const RenewalSpread::Duration early = spread.next();
    EXPECT_GE(early, RenewalSpread::Duration::zero());
    EXPECT_LT(early, kPeriod / 10);
  }
}

TEST(RenewalSpread, SpreadsAnyNumberEvenly) {
  constexpr milliseconds kPeriod{10'000};
  constexpr std::size_t kParts = 10;
  for (const std::size_t count : {20U, 100U, 1000U, 10'000U}) {
    RenewalSpread spread(kPeriod);
    std::array<std::size_t, kParts> counts{};
    for (std::size_t i = 0; i < count; ++i) {
      ++counts.at(static_cast<std::size_t>(spread.next() * kParts / (kPeriod / 10)));
    }
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    // The steps are a thousandth of the whole.
    EXPECT_LE(*most - *least, 3U + count / 500) << count;
  }
}

TEST(RenewalSpread, TheShortestLeaseIsSpread) {
  constexpr std::chrono::nanoseconds kPeriod = milliseconds(100) / 3;
  RenewalSpread spread(kPeriod);
  auto most = RenewalSpread::Duration::zero();
  for (int i = 0; i < 1000; ++i) {
    most = std::max(most, spread.next());
  }
  EXPECT_GT(most, kPeriod / 11);
  EXPECT_LT(most, kPeriod / 10);
}

}  // namespace
}  // namespace renewal_spread_test
}  // namespace rlock::detail
