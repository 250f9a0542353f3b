// SPDX-License-Identifier: Apache-2.0
// The cases that once_more_test.sh runs to see them fail.
#include "support/host_report.hpp"

#include "integration/lock_harness.hpp"
#include "integration/read_write_harness.hpp"
#include "support/temp_dir.hpp"
#include "support/unprotected_counter.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

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

/// Two holders at once in what one lock protects.
TEST(HostReportSamples, DISABLED_AResourceHasTwoUsers) {
  Resource resource;
  std::atomic<bool> over{false};
  std::thread other([&] {
    resource.use(std::chrono::seconds(1));
    over = true;
  });
  // Whenever the other begins, this one comes in its midst.
  while (!over) {
    resource.use();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  other.join();
  EXPECT_EQ(resource.overlaps(), 0);
}

TEST(HostReportSamples, DISABLED_AReaderMeetsAWriter) {
  SharedResource resource;
  std::atomic<bool> over{false};
  std::thread reader([&] {
    resource.read(std::chrono::seconds(1));
    over = true;
  });
  while (!over) {
    resource.write();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  reader.join();
  EXPECT_EQ(resource.overlaps(), 0);
}

using HostReportSafety = SafetyTest;

TEST_F(HostReportSafety, DISABLED_AFixtureChecksSafety) {
  FAIL() << "held twice";
}

}  // namespace
}  // namespace rlock::test
