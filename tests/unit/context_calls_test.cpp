// SPDX-License-Identifier: Apache-2.0
#include "support/eventually.hpp"
#include <rlock/detail/objects/context_calls.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace rlock::detail {
namespace {

class CountedCall final : public ContextCall {
 public:
  explicit CountedCall(int& ends) : ends_(ends) {}

 private:
  void end() noexcept override {
    ++ends_;
    delete this;
  }

  int& ends_;
};

TEST(ContextCallsTest, WhatWasNotTakenIsEnded) {
  int ends = 0;
  for (std::size_t taken = 0; taken < 3; ++taken) {
    ContextCalls calls;
    std::vector<CountedCall*> all;
    for (int i = 0; i < 3; ++i) {
      all.push_back(new CountedCall(ends));
      ASSERT_TRUE(calls.add(*all.back()));
    }
    {
      const ContextCalls::Taking taking(calls, all[taken]);
      EXPECT_TRUE(taking);
      const std::unique_ptr<CountedCall> mine(all[taken]);
    }
    ends = 0;
    calls.endAll();
    EXPECT_EQ(ends, 2);
    calls.endAll();
    EXPECT_EQ(ends, 2);
  }
}

TEST(ContextCallsTest, WhatWasEndedIsNotTaken) {
  ContextCalls calls;
  int ends = 0;
  auto* call = new CountedCall(ends);
  ASSERT_TRUE(calls.add(*call));
  calls.endAll();
  EXPECT_EQ(ends, 1);
  EXPECT_FALSE(ContextCalls::Taking(calls, call));
}

TEST(ContextCallsTest, NothingIsAddedAfterTheEnd) {
  ContextCalls calls;
  calls.endAll();
  int ends = 0;
  CountedCall call(ends);
  EXPECT_FALSE(calls.add(call));
}

TEST(ContextCallsTest, TheEndWaitsForWhatIsBeingDelivered) {
  ContextCalls calls;
  int ends = 0;
  CountedCall call(ends);
  ASSERT_TRUE(calls.add(call));
  std::optional<ContextCalls::Taking> taking(std::in_place, calls, &call);
  std::atomic<bool> ended{false};
  std::thread ending([&] {
    calls.endAll();
    ended = true;
  });
  // The end has begun when nothing can be added any more.
  bool lost = false;
  while (true) {
    auto probe = std::make_unique<CountedCall>(ends);
    if (!calls.add(*probe)) {
      break;
    }
    const ContextCalls::Taking out(calls, probe.get());
    if (!out) {
      // The end came between the two, so the probe is its to delete.
      static_cast<void>(probe.release());
      lost = true;
    }
    std::this_thread::yield();
  }
  EXPECT_FALSE(ended);
  taking.reset();
  ending.join();
  EXPECT_EQ(ends, lost ? 1 : 0);
}

/// The thread that delivers is the parent's, and never done in the child.
TEST(ContextCallsTest, TheEndInAForkedChildWaitsForNobody) {
  ContextCalls calls;
  int ends = 0;
  CountedCall call(ends);
  ASSERT_TRUE(calls.add(call));
  const ContextCalls::Taking taking(calls, &call);
  const pid_t child = ::fork();
  if (child == 0) {
    // It would wait for ever.
    ::alarm(10);
    calls.endAll();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace rlock::detail
