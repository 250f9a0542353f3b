// SPDX-License-Identifier: Apache-2.0

// A reader's holds while an allocation fails.

#include "fault/faults.hpp"
#include <rlock/detail/engine/read_parts.hpp>
#include <rlock/detail/engine/watchdog.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace rlock::test {
namespace {

using namespace std::chrono_literals;
using detail::Hold;
using detail::HoldHandle;
using detail::HoldKind;
using detail::HoldPart;
using detail::HoldPtr;
using detail::makeIntrusive;
using detail::RareText;
using detail::ReadParts;
using detail::Watchdog;

constexpr std::uint64_t kParts = 4;
const std::string kLabel(100, 'x');

/// One owner's read holds, each with an object and a label.
HoldPtr makeHold(const std::shared_ptr<int>& lock, ReadParts::Clock::time_point validUntil) {
  HoldPtr hold = makeIntrusive<Hold>(lock, HoldKind::read, "name", OwnerId{7});
  for (std::uint64_t incarnation = 1; incarnation <= kParts; ++incarnation) {
    HoldPart& part = hold->parts.emplace_back();
    part.incarnation = incarnation;
    part.validUntil = validUntil;
    part.handle = makeIntrusive<HoldHandle>(incarnation);
    part.label = RareText(kLabel);
  }
  return hold;
}

/// Without memory nothing is dropped and nobody counts as told; with it all is as the server says.
TEST(ReadPartsMemory, PartsAreDroppedWholeOrNotAtAll) {
  const auto lock = std::make_shared<int>();
  const auto now = ReadParts::Clock::now();
  bool failed = true;
  for (long k = 1; failed; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    ASSERT_LT(k, 100);
    const HoldPtr hold = makeHold(lock, now + 10s);
    ReadParts::Losses losses;
    {
      const FailedAllocation failure(k, FailedAllocation::Of::thisThread);
      try {
        ReadParts(*hold).keep(2, now, losses);
      } catch (const std::bad_alloc&) {
        // Looked at below.
      }
      failed = FailedAllocation::happened();
    }
    ASSERT_EQ(hold->parts.size(), failed ? kParts : 2U);
    for (const HoldPart& part : hold->parts) {
      EXPECT_TRUE(part.handle) << part.incarnation;
      EXPECT_FALSE(part.lost) << part.incarnation;
      EXPECT_EQ(part.label.view(), kLabel) << part.incarnation;
    }
    EXPECT_EQ(losses.size(), failed ? 0U : 2U);
  }
}

TEST(ReadPartsMemory, AReleaseThatFindsNoneMayComeOnceMore) {
  const auto lock = std::make_shared<int>();
  const auto now = ReadParts::Clock::now();
  Watchdog watchdog(30s);
  bool failed = true;
  for (long k = 1; failed; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    ASSERT_LT(k, 100);
    const HoldPtr hold = makeHold(lock, now + 10s);
    const auto third = hold->parts[2].handle;
    ReadParts::Losses losses;
    const auto release = [&] {
      return ReadParts(*hold).released(
          {.incarnation = 2, .remain = 3, .over = {2}}, now, watchdog, losses);
    };
    int left = 0;
    {
      const FailedAllocation failure(k, FailedAllocation::Of::thisThread);
      try {
        left = release();
      } catch (const std::bad_alloc&) {
        // It comes once more below.
      }
      failed = FailedAllocation::happened();
    }
    if (failed) {
      EXPECT_EQ(hold->parts.size(), kParts);
      left = release();
    }
    EXPECT_EQ(left, 3);
    std::vector<std::uint64_t> incarnations;
    for (const HoldPart& part : hold->parts) {
      incarnations.push_back(part.incarnation);
    }
    EXPECT_EQ(incarnations, (std::vector<std::uint64_t>{1, 3, 4}));
    EXPECT_EQ(losses.size(), 1U);
    EXPECT_EQ(third->reason(), LossReason::refused);
  }
}

}  // namespace
}  // namespace rlock::test
