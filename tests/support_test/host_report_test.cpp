// SPDX-License-Identifier: Apache-2.0
// The cases that once_more_test.sh runs to see them fail.
#include "support/host_report.hpp"

#include "support/temp_dir.hpp"
#include "support/unprotected_counter.hpp"

#include <gtest/gtest.h>

namespace rlock::test {
namespace {

TEST(HostReportSamples, DISABLED_ALimitIsBroken) {
  FAIL() << "a limit";
}

TEST(HostReportSamples, DISABLED_ALimitIsBrokenBesideOverlaps) {
  const TempDir dir;
  const OverlapDetector sections(dir.file("journal"));
  FAIL() << "a limit";
}

TEST(HostReportSamples, DISABLED_ACounterIsWrong) {
  const TempDir dir;
  UnprotectedCounter counter(dir.file("counter"));
  EXPECT_EQ(counter.increment(), 2);
}

}  // namespace
}  // namespace rlock::test
