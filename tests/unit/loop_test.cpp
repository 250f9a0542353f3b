// SPDX-License-Identifier: Apache-2.0
#include "net/loop.hpp"

#include "net/loop_env.hpp"
#include "net/socket.hpp"
#include "support/eventually.hpp"
#include <rlock/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace rlock::detail::net {
namespace {

using rlock::test::eventually;
using rlock::test::scaled;
using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLong{10};

SteadyClock::time_point soon() {
  return SteadyClock::now() + scaled(kLong);
}

std::size_t openDescriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

struct SocketPair {
  SocketPair() {
    int fds[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
      throw std::runtime_error("socketpair");
    }
    near = UniqueFd(fds[0]);
    far = UniqueFd(fds[1]);
  }
  UniqueFd near;
  UniqueFd far;
};

/// An owned loop whose error reports are collected.
class OwnedLoopTest : public testing::Test {
 protected:
  OwnedLoopTest() : loop_(Loop::createOwned("rlock-test")) {
    loop_->setErrorHook([this](const char* text) {
      const std::lock_guard lock(mutex_);
      errors_.emplace_back(text);
    });
  }
  ~OwnedLoopTest() override {
    EXPECT_TRUE(loop_->stop(soon()));
    EXPECT_EQ(errors(), expectedErrors_);
  }

  /// Runs the function on the loop and waits for it.
  template <class F>
  auto run(F function) {
    std::packaged_task<decltype(function())()> task(std::move(function));
    auto future = task.get_future();
    loop_->post([task = std::move(task)]() mutable { task(); });
    if (future.wait_for(scaled(kLong)) != std::future_status::ready) {
      throw std::runtime_error("the loop does not run");
    }
    return future.get();
  }

  std::vector<std::string> errors() {
    const std::lock_guard lock(mutex_);
    return errors_;
  }

  std::mutex mutex_;
  std::vector<std::string> errors_;
  std::vector<std::string> expectedErrors_;
  std::shared_ptr<Loop> loop_;
};

TEST_F(OwnedLoopTest, RunsPostedFunctionsInOrderOnItsThread) {
  std::vector<int> order;
  std::atomic<bool> elsewhere{false};
  for (int i = 0; i < 1000; ++i) {
    loop_->post([&, i] {
      order.push_back(i);
      if (!loop_->onLoopThread()) {
        elsewhere = true;
      }
    });
  }
  run([] {});
  ASSERT_EQ(order.size(), 1000U);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  EXPECT_FALSE(elsewhere);
  EXPECT_FALSE(loop_->onLoopThread());
}

TEST_F(OwnedLoopTest, KeepsTheOrderOfEachOfEightThreads) {
  constexpr int kThreads = 8;
  constexpr int kEach = 5000;
  std::vector<std::vector<int>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        loop_->post([&seen, t, i] { seen[static_cast<std::size_t>(t)].push_back(i); });
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  run([] {});
  for (const std::vector<int>& numbers : seen) {
    ASSERT_EQ(numbers.size(), static_cast<std::size_t>(kEach));
    for (int i = 0; i < kEach; ++i) {
      ASSERT_EQ(numbers[static_cast<std::size_t>(i)], i);
    }
  }
}

TEST_F(OwnedLoopTest, NeverRunsAFunctionInsidePost) {
  const bool inside = run([this] {
    bool ran = false;
    auto shared = std::make_shared<bool*>(&ran);
    loop_->post([shared] {
      if (*shared != nullptr) {
        **shared = true;
      }
    });
    const bool result = ran;
    *shared = nullptr;
    return result;
  });
  EXPECT_FALSE(inside);
}

TEST_F(OwnedLoopTest, LetsOtherWorkInBetweenFunctionsThatPostThemselves) {
  std::atomic<bool> stop{false};
  std::function<void()> again = [&] {
    if (!stop) {
      loop_->post(again);
    }
  };
  loop_->post(again);
  std::promise<void> expired;
  std::optional<Timer> timer;
  run([&] {
    timer.emplace(*loop_, [&] { expired.set_value(); });
    timer->armAt(SteadyClock::now() + milliseconds(1));
  });
  EXPECT_EQ(expired.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  stop = true;
  run([&] { timer.reset(); });
  // One that did not see the end yet may have posted itself behind that.
  run([] {});
}

TEST_F(OwnedLoopTest, SurvivesExceptionsEverywhere) {
  expectedErrors_ = {"posted", "pass end", "timer", "poll", "exception of unknown type"};
  loop_->post([] { throw std::runtime_error("posted"); });
  run([this] { loop_->atPassEnd([] { throw std::runtime_error("pass end"); }); });
  ASSERT_TRUE(eventually(kLong, [&] { return errors().size() == 2; }));
  std::optional<Timer> timer;
  run([&] {
    timer.emplace(*loop_, [] { throw std::runtime_error("timer"); });
    timer->armAt(SteadyClock::now());
  });
  ASSERT_TRUE(eventually(kLong, [&] { return errors().size() == 3; }));
  SocketPair pair;
  std::optional<Poll> poll;
  run([&] {
    poll.emplace(*loop_, pair.near.get());
    poll->start(UV_WRITABLE, [&](int, int) {
      poll->stop();
      throw std::runtime_error("poll");
    });
  });
  ASSERT_TRUE(eventually(kLong, [&] { return errors().size() == 4; }));
  loop_->post([] { throw 7; });
  run([&] {
    timer.reset();
    poll.reset();
  });
}

TEST_F(OwnedLoopTest, NamesItsThreadAndBlocksSignals) {
  run([] {
    char name[16] = {};
    ASSERT_EQ(pthread_getname_np(pthread_self(), name, sizeof(name)), 0);
    EXPECT_STREQ(name, "rlock-test");
    sigset_t mask;
    ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &mask), 0);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGCHLD, SIGALRM}) {
      EXPECT_EQ(sigismember(&mask, signal), 1) << signal;
    }
    EXPECT_EQ(sigismember(&mask, SIGSEGV), 0);
  });
}

TEST_F(OwnedLoopTest, RunsPassEndFunctionsOnceAfterTheBatch) {
  std::vector<std::string> order;
  std::promise<void> done;
  loop_->post([&] {
    loop_->atPassEnd([&] { order.emplace_back("end 1"); });
    loop_->atPassEnd([&] {
      order.emplace_back("end 2");
      loop_->atPassEnd([&] {
        order.emplace_back("nested");
        done.set_value();
      });
    });
    order.emplace_back("first");
    loop_->post([&] { order.emplace_back("later"); });
  });
  ASSERT_EQ(done.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  run([] {});
  ASSERT_EQ(order.size(), 5U);
  EXPECT_EQ(order[0], "first");
  EXPECT_EQ(order[1], "end 1");
  EXPECT_EQ(order[2], "end 2");
}

// ----------------------------------------------------------------------------------------- timers

TEST_F(OwnedLoopTest, ExpiresTimersInOrderAndNeverEarly) {
  struct Shot {
    int id;
    SteadyClock::time_point due;
    SteadyClock::time_point at;
  };
  std::vector<Shot> shots;
  std::vector<std::unique_ptr<Timer>> timers;
  std::promise<void> done;
  const std::vector<int> delays = {30, 5, 20, 5, 0, 12, 5, 1, 20, -3};
  run([&] {
    const auto base = SteadyClock::now();
    for (std::size_t i = 0; i < delays.size(); ++i) {
      const auto due = base + milliseconds(delays[i]) + std::chrono::microseconds(137);
      timers.push_back(std::make_unique<Timer>(*loop_, [&, i, due] {
        shots.push_back({static_cast<int>(i), due, SteadyClock::now()});
        if (shots.size() == delays.size()) {
          done.set_value();
        }
      }));
      timers.back()->armAt(due);
      EXPECT_TRUE(timers.back()->armed());
      EXPECT_EQ(timers.back()->due(), due);
    }
  });
  ASSERT_EQ(done.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  run([&] { timers.clear(); });
  std::vector<int> ids;
  for (const Shot& shot : shots) {
    ids.push_back(shot.id);
    EXPECT_GE(shot.at, shot.due);
  }
  EXPECT_EQ(ids, (std::vector<int>{9, 4, 7, 1, 3, 6, 5, 2, 8, 0}));
}

TEST_F(OwnedLoopTest, ExpiresTimersWithinAFewMilliseconds) {
  std::vector<SteadyClock::duration> late;
  std::vector<SteadyClock::duration> asleep;  // how late the host wakes a thread that only sleeps
  for (int i = 0; i < 20; ++i) {
    std::promise<SteadyClock::duration> expired;
    std::optional<Timer> timer;
    run([&] {
      const auto due = SteadyClock::now() + std::chrono::microseconds(2300 + 150 * i);
      timer.emplace(*loop_, [&, due] { expired.set_value(SteadyClock::now() - due); });
      timer->armAt(due);
    });
    late.push_back(expired.get_future().get());
    run([&] { timer.reset(); });
    const auto due = SteadyClock::now() + std::chrono::microseconds(2300 + 150 * i);
    std::this_thread::sleep_until(due);
    asleep.push_back(SteadyClock::now() - due);
  }
  std::sort(late.begin(), late.end());
  std::sort(asleep.begin(), asleep.end());
  EXPECT_GE(late.front(), SteadyClock::duration::zero());
  // The loop costs little beside what the host does to every thread.
  EXPECT_LT(late[late.size() / 2], 2 * asleep[asleep.size() / 2] + scaled(milliseconds(5)));
}

TEST_F(OwnedLoopTest, LetsATimerRearmDisarmAndDestroyItself) {
  int shots = 0;
  std::promise<void> done;
  std::unique_ptr<Timer> timer;
  std::unique_ptr<Timer> other;
  run([&] {
    const auto base = SteadyClock::now();
    other = std::make_unique<Timer>(*loop_, [] { ADD_FAILURE() << "disarmed in time"; });
    other->armAt(base + milliseconds(1));
    timer = std::make_unique<Timer>(*loop_, [&] {
      EXPECT_FALSE(timer->armed());
      EXPECT_EQ(timer->due(), SteadyClock::time_point::max());
      if (other) {
        other->disarm();
      }
      other.reset();
      if (++shots < 5) {
        timer->armAt(SteadyClock::now());
        return;
      }
      timer.reset();
      done.set_value();
    });
    timer->armAt(base);
    while (SteadyClock::now() < other->due()) {
      std::this_thread::yield();
    }
  });
  ASSERT_EQ(done.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  EXPECT_EQ(shots, 5);
}

TEST_F(OwnedLoopTest, IsNotStarvedByATimerThatIsAlwaysOverdue) {
  std::atomic<bool> expired{false};
  std::unique_ptr<Timer> greedy;
  std::unique_ptr<Timer> other;
  run([&] {
    greedy =
        std::make_unique<Timer>(*loop_, [&] { greedy->armAt(SteadyClock::time_point::min()); });
    other = std::make_unique<Timer>(*loop_, [&] { expired = true; });
    greedy->armAt(SteadyClock::now() - seconds(1));
    other->armAt(SteadyClock::now() + milliseconds(2));
  });
  EXPECT_EVENTUALLY(kLong, expired);
  run([] {});
  run([&] {
    greedy.reset();
    other.reset();
  });
}

TEST_F(OwnedLoopTest, NeverExpiresATimerArmedForNever) {
  run([this] {
    Timer timer(*loop_, [] { ADD_FAILURE(); });
    timer.armAt(SteadyClock::time_point::max());
    EXPECT_FALSE(timer.armed());
    timer.armAt(SteadyClock::now());
    timer.armAt(SteadyClock::time_point::max());
    EXPECT_FALSE(timer.armed());
    timer.armAt(SteadyClock::now() + std::chrono::hours(24 * 365 * 200));
    EXPECT_TRUE(timer.armed());
  });
}

TEST_F(OwnedLoopTest, KeepsThousandsOfTimersInOrder) {
  constexpr int kTimers = 5000;
  std::vector<std::unique_ptr<Timer>> timers;
  SteadyClock::time_point last = SteadyClock::time_point::min();
  std::size_t shots = 0;
  bool ordered = true;
  std::promise<void> done;
  run([&] {
    const auto base = SteadyClock::now();
    unsigned state = 12345;
    for (int i = 0; i < kTimers; ++i) {
      timers.push_back(nullptr);
    }
    for (auto& slot : timers) {
      state = state * 1664525U + 1013904223U;
      const auto due = base + std::chrono::microseconds(state % 50000U);
      slot = std::make_unique<Timer>(*loop_, [&, due] {
        ordered = ordered && due >= last;
        last = due;
        if (++shots == kTimers / 2) {
          done.set_value();
        }
      });
      slot->armAt(due);
    }
    for (std::size_t i = 0; i < timers.size(); i += 2) {
      timers[i]->disarm();
    }
  });
  ASSERT_EQ(done.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  run([&] { timers.clear(); });
  EXPECT_TRUE(ordered);
  EXPECT_EQ(shots, static_cast<std::size_t>(kTimers / 2));
}

// ------------------------------------------------------------------------------------------ polls

TEST_F(OwnedLoopTest, WatchesADescriptor) {
  SocketPair pair;
  std::promise<int> readable;
  std::optional<Poll> poll;
  run([&] {
    poll.emplace(*loop_, pair.near.get());
    poll->start(UV_READABLE, [&](int status, int events) {
      EXPECT_EQ(status, 0);
      poll->stop();
      readable.set_value(events);
    });
    EXPECT_TRUE(poll->active());
  });
  ASSERT_EQ(::write(pair.far.get(), "x", 1), 1);
  auto future = readable.get_future();
  ASSERT_EQ(future.wait_for(scaled(kLong)), std::future_status::ready);
  EXPECT_EQ(future.get(), UV_READABLE);
  run([&] { poll.reset(); });
}

TEST_F(OwnedLoopTest, LetsAPollRestartAndDestroyItselfInItsCallback) {
  SocketPair pair;
  std::vector<std::string> calls;
  std::promise<void> done;
  std::unique_ptr<Poll> poll;
  run([&] {
    poll = std::make_unique<Poll>(*loop_, pair.near.get());
    poll->start(UV_WRITABLE, [&, token = std::make_shared<std::string>("first")](int, int) {
      poll->start(UV_WRITABLE, [&](int, int) {
        calls.emplace_back("second");
        poll->stop();
        poll->start(UV_WRITABLE, [&, owned = std::make_shared<int>(3)](int, int) {
          calls.emplace_back("third");
          poll.reset();
          EXPECT_EQ(*owned, 3);
          done.set_value();
        });
      });
      calls.push_back(*token);
    });
  });
  ASSERT_EQ(done.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  EXPECT_EQ(calls, (std::vector<std::string>{"first", "second", "third"}));
}

TEST_F(OwnedLoopTest, DoesNotTouchADescriptorAfterStop) {
  std::promise<void> readable;
  run([&] {
    auto first = std::make_unique<SocketPair>();
    const int number = first->near.get();
    auto stopped = std::make_shared<Poll>(*loop_, number);
    stopped->start(UV_READABLE, [](int, int) { ADD_FAILURE(); });
    stopped->stop();
    first.reset();

    auto second = std::make_shared<SocketPair>();
    const int reused = second->near.get() == number ? second->near.get() : second->far.get();
    ASSERT_EQ(reused, number) << "the test needs the kernel to give the lowest number";
    const int other = second->near.get() == number ? second->far.get() : second->near.get();
    auto poll = std::make_shared<Poll>(*loop_, reused);
    poll->start(UV_READABLE, [&, poll, second](int, int) {
      poll->stop();
      loop_->post([poll] {});
      readable.set_value();
    });
    // By now the new registration has reached the kernel.
    loop_->post([this, stopped, other]() mutable {
      loop_->post([stopped = std::move(stopped), other]() mutable {
        stopped.reset();
        EXPECT_EQ(::write(other, "x", 1), 1);
      });
    });
  });
  EXPECT_EQ(readable.get_future().wait_for(scaled(kLong)), std::future_status::ready);
}

TEST_F(OwnedLoopTest, RefusesWhatCannotBeWatched) {
  run([this] {
    const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    Poll poll(*loop_, file.get());
    EXPECT_THROW(poll.start(UV_READABLE, [](int, int) {}), Error);
    EXPECT_FALSE(poll.active());
  });
}

// ------------------------------------------------------------------------------------------- stop

TEST(LoopStopTest, RunsWhatIsQueuedUntilItsEndAndDestroysTheRestUnrun) {
  auto loop = Loop::createOwned("rlock-test");
  std::promise<void> entered;
  std::promise<void> leave;
  std::atomic<int> ran{0};
  std::atomic<int> elsewhere{0};
  loop->post([&] {
    entered.set_value();
    leave.get_future().wait();
  });
  entered.get_future().wait();
  for (int i = 0; i < 100; ++i) {
    loop->post([&] { ++ran; });
  }
  EXPECT_FALSE(loop->stop(SteadyClock::now()));
  // The loop is late. A thread that hands work on to it must not be left to clean up itself.
  loop->post([&] {
    elsewhere += loop->onLoopThread() ? 0 : 1;
    ++ran;
  });
  leave.set_value();
  EXPECT_TRUE(loop->stop(soon()));
  EXPECT_EQ(ran, 101);
  EXPECT_EQ(elsewhere, 0);
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = token;
  loop->post([token = std::move(token)] { ADD_FAILURE() << "posted after the end"; });
  EXPECT_TRUE(watch.expired());
}

/// A function that is refused is destroyed on the thread that queued it, at any time of the end.
TEST(LoopStopTest, RefusesNothingAsLongAsItHasTimers) {
  for (int round = 0; round < 200; ++round) {
    const auto loop = Loop::createOwned("rlock-test");
    std::promise<std::vector<std::unique_ptr<Timer>>> made;
    loop->post([&] {
      std::vector<std::unique_ptr<Timer>> timers;
      for (int i = 0; i < 100; ++i) {
        timers.push_back(std::make_unique<Timer>(*loop, [] {}));
        timers.back()->armAt(SteadyClock::now() + std::chrono::hours(1));
      }
      made.set_value(std::move(timers));
    });
    auto timers = made.get_future().get();
    std::thread stopper([&] { EXPECT_TRUE(loop->stop(soon())); });
    for (auto& timer : timers) {
      loop->post([timer = std::move(timer)] {});
    }
    stopper.join();
  }
}

TEST(LoopStopTest, RunsWhatTheLastFunctionsQueue) {
  const auto loop = Loop::createOwned("last");
  std::promise<void> entered;
  std::promise<void> stopping;
  std::vector<int> ran;
  loop->post([&] {
    entered.set_value();
    stopping.get_future().wait();
    loop->post([&] {
      ran.push_back(1);
      loop->atPassEnd([&] {
        ran.push_back(2);
        loop->post([&] { ran.push_back(3); });
      });
    });
  });
  entered.get_future().wait();
  EXPECT_FALSE(loop->stop(SteadyClock::now()));
  stopping.set_value();
  EXPECT_TRUE(loop->stop(soon()));
  EXPECT_EQ(ran, (std::vector{1, 2, 3}));
}

TEST(LoopStopTest, IsNotKeptByAFunctionThatQueuesItselfForEver) {
  const auto loop = Loop::createOwned("last");
  auto again = std::make_shared<std::function<void()>>();
  *again = [&loop, again = std::weak_ptr(again)] {
    if (const auto self = again.lock()) {
      loop->post([self] { (*self)(); });
    }
  };
  loop->post([again] { (*again)(); });
  EXPECT_TRUE(loop->stop(soon()));
}

TEST(LoopStopTest, EndsWhenStoppedOnItsOwnThread) {
  auto loop = Loop::createOwned("rlock-test");
  std::promise<bool> stopped;
  loop->post([&] { stopped.set_value(loop->stop(soon())); });
  EXPECT_TRUE(stopped.get_future().get());
  EXPECT_TRUE(loop->stop(soon()));
}

TEST(LoopStopTest, CanBeDestroyedOnItsOwnThread) {
  auto loop = Loop::createOwned("rlock-test");
  std::promise<void> last;
  Loop& reference = *loop;
  // The last function of the queue, so nothing of ours is left behind it.
  reference.post([loop = std::move(loop), &last]() mutable {
    loop.reset();
    last.set_value();
  });
  EXPECT_EQ(last.get_future().wait_for(scaled(kLong)), std::future_status::ready);
}

TEST(LoopStopTest, MayBeStoppedByManyAtOnce) {
  auto loop = Loop::createOwned("rlock-test");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(loop->stop(soon())); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(LoopStopTest, GivesUpAtTheDeadlineAndFinishesLater) {
  auto loop = Loop::createOwned("rlock-test");
  std::promise<void> entered;
  std::promise<void> leave;
  auto ended = std::make_shared<std::promise<void>>();
  auto endedFuture = ended->get_future();
  loop->post([&entered, future = leave.get_future()] {
    entered.set_value();
    future.wait();
  });
  loop->post([ended] { ended->set_value(); });
  entered.get_future().wait();
  const rlock::test::Stopwatch watch;
  EXPECT_FALSE(loop->stop(SteadyClock::now() + milliseconds(20)));
  EXPECT_LT(watch.elapsedMs(), scaled(milliseconds(500)));
  EXPECT_GE(watch.elapsedMs(), milliseconds(20));
  std::thread destroyer([loop = std::move(loop)]() mutable { loop.reset(); });
  leave.set_value();
  EXPECT_EQ(endedFuture.wait_for(scaled(kLong)), std::future_status::ready);
  destroyer.join();
}

/// Something with a timer, which notes how it ends.
struct Timed {
  struct End {
    std::atomic<bool> onLoopThread{false};
    std::atomic<bool> armed{true};
  };

  Timed(Loop& itsLoop, End& itsEnd) : timer(itsLoop, [] {}), loop(itsLoop), end(itsEnd) {
    timer.armAt(SteadyClock::now() + std::chrono::hours(1));
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() {
    end.onLoopThread = loop.onLoopThread();
    end.armed = timer.armed();
  }

  Timer timer;
  Loop& loop;
  End& end;
};

/// The thread that waited for the end may have given up, and lets go of the object while the loop
/// goes on.
TEST(LoopStopTest, KeepsWhatHasTimersUntilTheyAreDisarmed) {
  const auto loop = Loop::createOwned("rlock-test");
  std::promise<std::shared_ptr<Timed>> entered;
  std::promise<void> leave;
  Timed::End end;
  loop->post([&, future = leave.get_future()] {
    entered.set_value(std::make_shared<Timed>(*loop, end));
    future.wait();
  });
  std::shared_ptr<Timed> timed = entered.get_future().get();
  const std::weak_ptr<Timed> kept = timed;
  LoopEnv(loop).keepToTheEnd(timed);
  EXPECT_FALSE(loop->stop(SteadyClock::now()));
  timed.reset();
  EXPECT_FALSE(kept.expired());
  leave.set_value();
  EXPECT_TRUE(eventually(scaled(kLong), [&] { return kept.expired(); }));
  EXPECT_TRUE(loop->stop(soon()));
  EXPECT_TRUE(end.onLoopThread);
  EXPECT_FALSE(end.armed);
}

TEST(LoopStopTest, KeepsNothingAfterItsEnd) {
  const auto loop = Loop::createOwned("rlock-test");
  EXPECT_TRUE(loop->stop(soon()));
  auto late = std::make_shared<int>(1);
  loop->keepToTheEnd(late);
  EXPECT_EQ(late.use_count(), 1);
}

TEST(LoopStopTest, LeavesNoDescriptorBehind) {
  Loop::createOwned("warm-up")->stop(soon());
  const std::size_t before = openDescriptors();
  for (int i = 0; i < 20; ++i) {
    auto loop = Loop::createOwned("rlock-test");
    std::atomic<int> errors{0};
    loop->setErrorHook([&](const char* text) {
      ++errors;
      ADD_FAILURE() << text;
    });
    SocketPair pair;
    auto poll = std::make_unique<Poll>(*loop, pair.near.get());
    auto timer = std::make_unique<Timer>(*loop, [] {});
    loop->post([&] {
      poll->start(UV_READABLE, [](int, int) {});
      timer->armAt(SteadyClock::now() + std::chrono::hours(1));
    });
    EXPECT_TRUE(loop->stop(soon()));
    EXPECT_FALSE(poll->active());
    EXPECT_FALSE(timer->armed());
    timer->armAt(SteadyClock::now());
    poll->start(UV_READABLE, [](int, int) {});
    EXPECT_EQ(errors, 0);
  }
  EXPECT_TRUE(eventually(kLong, [&] { return openDescriptors() <= before; }));
}

// -------------------------------------------------------------------------------------- adopt,
// fork

class AdoptedLoopTest : public testing::Test {
 protected:
  AdoptedLoopTest() {
    EXPECT_EQ(uv_loop_init(&uv_), 0);
    loop_ = Loop::adopt(&uv_);
  }
  ~AdoptedLoopTest() override {
    loop_.reset();
    EXPECT_EQ(uv_loop_close(&uv_), 0);
  }

  uv_loop_t uv_{};
  std::shared_ptr<Loop> loop_;
};

TEST_F(AdoptedLoopTest, RunsOnTheCallersThread) {
  std::vector<int> order;
  EXPECT_FALSE(loop_->onLoopThread());
  EXPECT_EQ(loop_->raw(), &uv_);
  Timer timer(*loop_, [&] {
    order.push_back(3);
    EXPECT_TRUE(loop_->stop(soon()));
  });
  loop_->post([&] {
    order.push_back(1);
    EXPECT_TRUE(loop_->onLoopThread());
    loop_->atPassEnd([&] {
      order.push_back(2);
      timer.armAt(SteadyClock::now() + milliseconds(3));
    });
  });
  EXPECT_EQ(uv_run(&uv_, UV_RUN_DEFAULT), 0);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_TRUE(loop_->onLoopThread());
}

TEST_F(AdoptedLoopTest, LeavesTheCallersHandlesAlone) {
  uv_timer_t own;
  uv_timer_init(&uv_, &own);
  int shots = 0;
  own.data = &shots;
  uv_timer_start(
      &own,
      [](uv_timer_t* timer) {
        if (++*static_cast<int*>(timer->data) == 3) {
          uv_close(reinterpret_cast<uv_handle_t*>(timer), nullptr);
        }
      },
      1,
      1);
  loop_->post([&] { loop_->stop(soon()); });
  EXPECT_EQ(uv_run(&uv_, UV_RUN_DEFAULT), 0);
  EXPECT_EQ(shots, 3);
}

TEST_F(AdoptedLoopTest, WaitsForTheLoopWhenStoppedFromElsewhere) {
  std::thread runner([this] { uv_run(&uv_, UV_RUN_DEFAULT); });
  std::promise<void> ran;
  loop_->post([&] { ran.set_value(); });
  ran.get_future().wait();
  EXPECT_FALSE(loop_->onLoopThread());
  EXPECT_TRUE(loop_->stop(soon()));
  runner.join();
}

TEST_F(AdoptedLoopTest, DoesNotWaitForALoopThatNobodyRuns) {
  bool ran = false;
  loop_->post([&] { ran = true; });
  const rlock::test::Stopwatch watch;
  EXPECT_FALSE(loop_->stop(soon()));
  EXPECT_LT(watch.elapsedMs(), scaled(milliseconds(500)));
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> refused = token;
  loop_->post([token = std::move(token)] { ADD_FAILURE() << "queued for nobody"; });
  EXPECT_TRUE(refused.expired());
  loop_.reset();
  EXPECT_EQ(uv_run(&uv_, UV_RUN_DEFAULT), 0);
  EXPECT_TRUE(ran);
}

TEST_F(AdoptedLoopTest, MayBeAdoptedAgainAndAgain) {
  for (int i = 0; i < 3; ++i) {
    auto another = Loop::adopt(&uv_);
    bool stopped = false;
    another->post([&] { stopped = another->stop(soon()); });
    while (!stopped) {
      uv_run(&uv_, UV_RUN_ONCE);
    }
  }
  loop_->post([this] { loop_->stop(soon()); });
  EXPECT_EQ(uv_run(&uv_, UV_RUN_DEFAULT), 0);
}

// A forked child cannot exit under this sanitizer.
#if !defined(__SANITIZE_THREAD__)
/// libuv aborts where a descriptor that it watches is closed.
TEST_F(AdoptedLoopTest, AChildMayRunItOn) {
  SocketPair pair;
  SocketPair another;
  int shots = 0;
  Poll readable(*loop_, pair.near.get());
  readable.start(UV_READABLE, [&](int, int) { ++shots; });
  Poll writable(*loop_, another.near.get());
  writable.start(UV_WRITABLE, [&](int, int) { ++shots; });
  uv_run(&uv_, UV_RUN_NOWAIT);
  const int before = shots;
  EXPECT_GT(before, 0);
  loop_->post([&] { ++shots; });
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(20);
    if (uv_loop_fork(&uv_) != 0) {
      ::_exit(2);
    }
    uv_timer_t end;
    uv_timer_init(&uv_, &end);
    uv_timer_start(
        &end, [](uv_timer_t* timer) { uv_stop(timer->loop); }, 20, 0);
    // A client of the child's own may have it.
    const auto own = Loop::adopt(&uv_);
    bool ran = false;
    own->post([&] { ran = true; });
    uv_run(&uv_, UV_RUN_DEFAULT);
    ::_exit(shots == before && ran ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // The parent's goes on.
  EXPECT_TRUE(eventually(kLong, [&] {
    uv_run(&uv_, UV_RUN_NOWAIT);
    return shots > before + 1;
  }));
  readable.stop();
  writable.stop();
  loop_->post([this] { loop_->stop(soon()); });
  EXPECT_EQ(uv_run(&uv_, UV_RUN_DEFAULT), 0);
}
#endif

TEST(LoopForkTest, TheChildForgetsTheLoop) {
  auto loop = Loop::createOwned("rlock-test");
  auto timer = std::make_unique<Timer>(*loop, [] {});
  SocketPair pair;
  auto poll = std::make_unique<Poll>(*loop, pair.near.get());
  std::promise<void> readable;
  std::promise<void> armed;
  loop->post([&] {
    timer->armAt(SteadyClock::now() + std::chrono::hours(1));
    poll->start(UV_READABLE, [&](int, int) {
      poll->stop();
      readable.set_value();
    });
    armed.set_value();
  });
  armed.get_future().wait();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    loop->abandonInChild();
    bool fine = loop->abandoned();
    loop->post([] { ::_exit(2); });
    fine = loop->stop(SteadyClock::now() + std::chrono::hours(1)) && fine;
    timer.reset();
    poll.reset();
    loop.reset();
    ::_exit(fine ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // Nothing that the child did has reached the parent's loop.
  ASSERT_EQ(::write(pair.far.get(), "x", 1), 1);
  EXPECT_EQ(readable.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  EXPECT_TRUE(loop->stop(soon()));
}

TEST(LoopForkTest, AChildForkedInACallbackEndsWithIt) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a forked child cannot exit() under this sanitizer";
#endif
  const auto loop = Loop::createOwned("rlock-test");
  std::promise<pid_t> forked;
  std::atomic<int> later{0};
  loop->post([&] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      return;
    }
    forked.set_value(child);
  });
  loop->post([&] { ++later; });
  const pid_t child = forked.get_future().get();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  std::promise<void> alive;
  loop->post([&] { alive.set_value(); });
  EXPECT_EQ(alive.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  EXPECT_EQ(later, 1);
  EXPECT_TRUE(loop->stop(soon()));
}

}  // namespace
}  // namespace rlock::detail::net
