// SPDX-License-Identifier: Apache-2.0
#include "support/unprotected_counter.hpp"

#include "support/child_process.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rlock::test {
namespace {

using std::chrono::microseconds;

void inParallel(int threads, const std::function<void(int)>& body) {
  std::latch start(threads);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      start.arrive_and_wait();
      body(i);
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
}

TEST(UnprotectedCounter, CountsUnderALock) {
  const TempDir dir;
  UnprotectedCounter counter(dir.file("counter"));
  EXPECT_EQ(counter.value(), 0);
  std::mutex mutex;
  inParallel(4, [&](int) {
    for (int n = 0; n < 50; ++n) {
      const std::lock_guard guard(mutex);
      counter.increment();
    }
  });
  EXPECT_EQ(counter.value(), 200);
  EXPECT_EQ(UnprotectedCounter(dir.file("counter")).increment(), 201);
}

TEST(UnprotectedCounter, LosesUpdatesWithoutALock) {
  const TempDir dir;
  UnprotectedCounter counter(dir.file("counter"));
  inParallel(4, [&](int) {
    for (int n = 0; n < 20; ++n) {
      counter.increment(microseconds(500));
    }
  });
  EXPECT_LT(counter.value(), 80);
}

TEST(OverlapDetector, AcceptsSectionsThatFollowEachOther) {
  const TempDir dir;
  OverlapDetector detector(dir.file("journal"));
  std::mutex mutex;
  inParallel(4, [&](int owner) {
    for (int n = 0; n < 25; ++n) {
      const std::lock_guard guard(mutex);
      detector.enter("owner " + std::to_string(owner));
      detector.leave("owner " + std::to_string(owner));
    }
  });
  const auto result = detector.verify();
  EXPECT_TRUE(result.ok()) << result.describe();
  EXPECT_EQ(result.sections, 100U);
  EXPECT_EQ(result.unfinished, 0U);
}

TEST(OverlapDetector, FindsOverlaps) {
  const TempDir dir;
  OverlapDetector detector(dir.file("journal"));
  OverlapDetector otherProcess(dir.file("journal"));
  detector.enter("a");
  otherProcess.enter("b");
  detector.leave("a");
  otherProcess.leave("b");
  const auto result = detector.verify();
  ASSERT_EQ(result.violations.size(), 1U) << result.describe();
  EXPECT_NE(result.violations[0].find("b enters while inside: a"), std::string::npos)
      << result.describe();
  EXPECT_TRUE(detector.verify(2).ok());
}

TEST(OverlapDetector, SharedSectionsOverlapOnlyEachOther) {
  const TempDir dir;
  OverlapDetector detector(dir.file("journal"));
  detector.enterShared("r1");
  detector.enterShared("r2");
  EXPECT_TRUE(detector.verify().ok());
  detector.enter("w");
  EXPECT_FALSE(detector.verify().ok());
  EXPECT_FALSE(detector.verify(10).ok());
  detector.leave("r1");
  detector.leave("r2");
  detector.enterShared("r1");
  EXPECT_EQ(detector.verify().violations.size(), 2U);
}

TEST(OverlapDetector, AbandonedSectionEndsWhenItsHolderWasKnownDead) {
  const TempDir dir;
  OverlapDetector detector(dir.file("journal"));
  detector.enter("dead");
  EXPECT_EQ(detector.verify().unfinished, 1U);
  detector.abandon("dead");
  detector.enter("next");
  detector.leave("next");
  detector.abandon("never entered");
  const auto result = detector.verify();
  EXPECT_TRUE(result.ok()) << result.describe();
  EXPECT_EQ(result.unfinished, 0U);

  detector.enter("alive");
  detector.enter("thief");
  detector.leave("thief");
  detector.abandon("alive");
  EXPECT_EQ(detector.verify().violations.size(), 1U);
}

TEST(OverlapDetector, FindsUnbalancedUse) {
  const TempDir dir;
  OverlapDetector detector(dir.file("journal"));
  detector.leave("a");
  EXPECT_FALSE(detector.verify().ok());
  OverlapDetector twice(dir.file("twice"));
  twice.enter("a");
  twice.enter("a");
  EXPECT_FALSE(twice.verify(5).ok());
}

TEST(OverlapDetector, SeesOtherProcesses) {
  const TempDir dir;
  OverlapDetector detector(dir.file("journal"));
  detector.enter("parent");
  ChildProcess child("sh", {"-c", "echo 'E child 1' >> \"$0\"", dir.file("journal")});
  ASSERT_TRUE(child.wait(std::chrono::milliseconds(10'000)));
  EXPECT_EQ(detector.verify().violations.size(), 1U);
}

}  // namespace
}  // namespace rlock::test
