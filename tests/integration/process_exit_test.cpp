// SPDX-License-Identifier: Apache-2.0

// Processes that end while clients, holds and threads are still there. Their exit codes tell what
// the destructors of static objects, and the threads that run beside them, met.

#include "integration/lock_harness.hpp"

#include <gmock/gmock.h>

namespace rlock::test {
namespace {

class ProcessExit : public LockTest {
 protected:
  /// The worker, at the point where it ends when it is told.
  [[nodiscard]] ChildProcess start(const std::string& way, const std::string& host = "127.0.0.1") {
    ChildProcessOptions settings;
    settings.mergeStandardError = true;
    ChildProcess worker(testProgram("rlock_exit_worker"),
                        {"redis://" + host + ":" + std::to_string(server().port()) +
                             "?watchdog-timeout=60s&close-timeout=1s&log-level=error",
                         way},
                        settings);
    worker.expectLineContaining("ready", kLong);
    return worker;
  }

  /// Lets the worker end, which must go well, and returns what it printed meanwhile.
  static std::string finish(ChildProcess& worker) {
    worker.send("end");
    std::string printed;
    while (auto line = worker.readLine(kLong)) {
      printed += *line + "\n";
    }
    EXPECT_EQ(worker.wait(kLong), ExitStatus()) << printed;
    return printed;
  }
};

TEST_F(ProcessExit, AStaticLeaseIsReleased) {
  ChildProcess worker = start("static-lease");
  ASSERT_TRUE(raw().exists("exit"));
  EXPECT_EQ(finish(worker), "");
  EXPECT_FALSE(raw().exists("exit"));
}

TEST_F(ProcessExit, AStaticGuardUnlocks) {
  ChildProcess worker = start("static-guard");
  ASSERT_TRUE(raw().exists("exit"));
  EXPECT_EQ(finish(worker), "");
  EXPECT_FALSE(raw().exists("exit"));
}

TEST_F(ProcessExit, AStaticObjectLocksInItsDestructor) {
  ChildProcess worker = start("static-owner");
  EXPECT_EQ(finish(worker), "unlocked\n");
  EXPECT_FALSE(raw().exists("exit"));
}

TEST_F(ProcessExit, AHoldOfTheMainThreadIsLeftToExpire) {
  ChildProcess worker = start("static-client");
  EXPECT_THAT(finish(worker), ::testing::HasSubstr("threadEnded"));
  EXPECT_TRUE(raw().exists("exit")) << "the work it protects may go on elsewhere";
}

TEST_F(ProcessExit, AThreadStillWaits) {
  rawHold("exit:taken", "foreign:1", 60s);
  ChildProcess worker = start("waiting-thread");
  EXPECT_EVENTUALLY(kLong, raw().numsub("redisson_lock__channel:{exit:taken}") == 1);
  finish(worker);
}

TEST_F(ProcessExit, TheClientIsNeverDestroyed) {
  ChildProcess worker = start("never-destroyed");
  finish(worker);
}

TEST_F(ProcessExit, ACallbackEndsTheProcess) {
  ChildProcess worker = start("on-the-loop");
  EXPECT_EQ(finish(worker), "");
}

TEST_F(ProcessExit, ANameIsNotResolvedYet) {
  ChildProcess worker = start("hanging-name");
  const Stopwatch watch;
  finish(worker);
  EXPECT_LT(watch.elapsedMs(), scaled(3s));
}

TEST_F(ProcessExit, ForkedChildrenExit) {
  ChildProcess worker = start("forked", "localhost");
  EXPECT_EQ(finish(worker), "0\n");
}

// With no server, errors are made all the time: by destructors, and by the loop beside them.
TEST_F(ProcessExit, TheServerIsAway) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  for (const char* way : {"static-client", "static-lease", "static-guard", "never-destroyed"}) {
    SCOPED_TRACE(way);
    ChildProcess worker = start(way);
    server().kill();
    finish(worker);
    server().start();
  }
}

}  // namespace
}  // namespace rlock::test
