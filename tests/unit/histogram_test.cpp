// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/duration_counts.hpp>
#include <rlock/histogram.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace rlock::detail {
namespace {

using namespace std::chrono_literals;

TEST(Histogram, EveryDurationIsInTheRangeThatEndsWithItOrAfterIt) {
  EXPECT_EQ(Histogram::bucketOf(-1s), 0U);
  EXPECT_EQ(Histogram::bucketOf(0ns), 0U);
  EXPECT_EQ(Histogram::bucketOf(1us), 0U);
  EXPECT_EQ(Histogram::bucketOf(1025ns), 1U);
  for (std::size_t bucket = 0; bucket + 1 < Histogram::kBuckets; ++bucket) {
    const auto bound = Histogram::upperBound(bucket);
    EXPECT_EQ(Histogram::bucketOf(bound), bucket);
    EXPECT_EQ(Histogram::bucketOf(bound + 1ns), bucket + 1);
  }
  EXPECT_EQ(Histogram::upperBound(0), 1024ns);
  EXPECT_EQ(Histogram::upperBound(10), 1048576ns);
  EXPECT_EQ(Histogram::upperBound(Histogram::kBuckets - 1), std::chrono::nanoseconds::max());
  EXPECT_EQ(Histogram::bucketOf(std::chrono::nanoseconds::max()), Histogram::kBuckets - 1);
  EXPECT_EQ(Histogram::bucketOf(std::chrono::nanoseconds::min()), 0U);
}

TEST(Histogram, CountsSumsAndEstimates) {
  DurationCounts counts;
  EXPECT_EQ(counts.read(), Histogram());
  EXPECT_EQ(counts.read().mean(), 0ns);
  EXPECT_EQ(counts.read().quantile(0.5), 0ns);
  for (int i = 0; i < 90; ++i) {
    counts.add(100us);
  }
  for (int i = 0; i < 10; ++i) {
    counts.add(10ms);
  }
  counts.add(-5ms);
  const Histogram histogram = counts.read();
  EXPECT_EQ(histogram.count(), 101U);
  EXPECT_EQ(histogram.sum, 90 * 100us + 10 * 10ms);
  EXPECT_EQ(histogram.mean(), histogram.sum / 101);
  EXPECT_GT(histogram.quantile(0.5), 64us);
  EXPECT_LE(histogram.quantile(0.5), 132us);
  EXPECT_GT(histogram.quantile(0.99), 8192us);
  EXPECT_LE(histogram.quantile(0.99), 16778us);
  EXPECT_EQ(histogram.quantile(0), 1us * 0);
  EXPECT_EQ(histogram.quantile(1), histogram.quantile(2));
  EXPECT_EQ(histogram.quantile(-1), histogram.quantile(0));
}

TEST(Histogram, WhatIsBeyondTheLastRangeIsEstimatedAsItsBeginning) {
  DurationCounts counts;
  counts.add(std::chrono::hours(24));
  EXPECT_EQ(counts.read().quantile(0.5), Histogram::upperBound(Histogram::kBuckets - 2));
}

}  // namespace
}  // namespace rlock::detail
