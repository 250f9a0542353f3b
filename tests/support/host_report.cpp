// SPDX-License-Identifier: Apache-2.0
#include "support/host_report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

// Says of each test case that failed whether the host stood still meanwhile, by what
// rlock_host_watch has written to the file RLOCK_TEST_HOST. tests/once_more.awk reads it.

namespace rlock::test {

namespace {

long long nowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The longest time since `begin` for which the host stood still, in ms; 0: it did not.
long long longestPause(const char* path, long long begin) {
  std::ifstream file(path);
  long long longest = 0;
  for (long long from = 0, to = 0; file >> from >> to;) {
    if (to >= begin) {
      longest = std::max(longest, to - from);
    }
  }
  return longest;
}

class HostReport : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& /*info*/) override {
    begin_ = nowMs();
    checksSafety = false;
  }

  void OnTestEnd(const testing::TestInfo& info) override {
    const char* const path = std::getenv("RLOCK_TEST_HOST");
    if (path == nullptr || !info.result()->Failed()) {
      return;
    }
    // After a pause the watch wakes at the same time as this.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (checksSafety) {
      std::puts("[   HOST   ] not asked: a check of safety");
    } else if (const long long paused = longestPause(path, begin_); paused > 0) {
      std::printf("[   HOST   ] stood still for %lld ms\n", paused);
    } else {
      std::puts("[   HOST   ] did not stand still");
    }
    std::fflush(stdout);
  }

  long long begin_ = 0;
};

const bool listening = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new HostReport);
  return true;
}();

}  // namespace

}  // namespace rlock::test
