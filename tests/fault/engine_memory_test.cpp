// SPDX-License-Identifier: Apache-2.0

// Losses, renewals, handlers and callers that leave while an allocation fails.

#include "fault/each_allocation.hpp"
#include "fault/faults.hpp"
#include "net/loop.hpp"
#include "net/loop_env.hpp"
#include "unit/engine_fixture.hpp"
#include "unit/pending_commands.hpp"
#include <rlock/detail/engine/acquire_task.hpp>
#include <rlock/detail/engine/hold_keeper.hpp>
#include <rlock/detail/engine/query_task.hpp>
#include <rlock/detail/engine/read_parts.hpp>
#include <rlock/detail/executor/read_write_scripts.hpp>
#include <rlock/detail/executor/start_script.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace engine_memory_test {
namespace {

using namespace std::chrono_literals;
using test::eachAllocation;
using test::FailedAllocation;
using test::failing;

/// A client and its server, which the test answers for, on a clock of the test's.
class World : public PendingEngine {
 public:
  explicit World(const Options& options = Options::fromUri("redis://host"))
      : PendingEngine(options) {}

  IntrusivePtr<HoldHandle> take(std::uint64_t owner,
                                std::chrono::milliseconds lease,
                                bool watched) {
    HoldKeeper::GrantTerms terms = grantedNow(*engine);
    terms.lease = lease;
    terms.watched = watched;
    return takeHold(*engine, scripts_, owner, terms);
  }
  /// Takes read holds of one owner, one after the other.
  std::vector<IntrusivePtr<HoldHandle>> read(std::uint64_t owner, int holds) {
    std::vector<IntrusivePtr<HoldHandle>> handles;
    for (int before = 0; before < holds; ++before) {
      handles.push_back(takeHold(*engine, reads_, owner, grantedNow(*engine), before));
    }
    return handles;
  }
  void releaseRead(std::uint64_t owner, const HoldRelease& what) {
    const HoldGates::Gate gate = engine->gates().enter(reads_, OwnerId{owner}, waiter_);
    HoldKeeper::Released released;
    try {
      if (auto left = engine->holds().released(*gate.hold, what, released)) {
        engine->gates().afterLeaving(std::move(*left));
        return;
      }
    } catch (const std::bad_alloc&) {
      // The test does it once more.
    }
    engine->gates().leave(*gate.hold);
  }
  /// The loop goes on after a function that threw.
  void advance(std::chrono::milliseconds by) {
    const auto end = env->now() + by;
    while (env->now() < end) {
      try {
        env->advance(5ms);
        env->runPosted();
      } catch (const std::bad_alloc&) {
        continue;
      }
    }
  }
  [[nodiscard]] std::uint64_t renewalFailures() const {
    return engine->counters().renewalFailures.load();
  }

  /// As the end of an operation that began on the loop thread, or on another one.
  void deliver(UniqueFunction<void()> handler, bool onLoop) {
    env->setOnLoopThread(onLoop);
    engine->callbacks().deliver(std::move(handler));
    env->setOnLoopThread(true);
  }
  /// As a call that is refused before it begins.
  void reject(UniqueFunction<void()> handler) { engine->callbacks().reject(std::move(handler)); }

  /// Begins to acquire, with as much time as given. Returns the number of answers.
  std::shared_ptr<int> acquire(std::uint64_t owner, std::chrono::milliseconds wait) {
    AcquireParams params;
    params.owner = OwnerId{owner};
    params.wait = wait;
    auto answers = std::make_shared<int>(0);
    makeIntrusive<AcquireTask>(engine, scripts_, std::move(params))
        ->startInBackground(
            [answers](const Result<LockBackend::Acquired>& /*result*/) { ++*answers; });
    env->runPosted();
    return answers;
  }

  /// Begins a question.
  void begin(UniqueFunction<void(Result<bool>)> handler) {
    const auto compose = [](Call& call, std::string_view /*owner*/) {
      startScript(call, lua::counter_remove, "orders", "");
    };
    makeIntrusive<QueryTask<bool>>(
        engine, scripts_, OwnerId{1}, compose, [](const Reply& /*reply*/) { return true; })
        ->startInBackground(std::move(handler));
  }

  /// The answer to a change, and how often it came.
  struct Told {
    int times = 0;
    std::optional<Error> error{};
  };
  /// Begins a change that is numbered and goes on without its caller.
  std::shared_ptr<Told> change() {
    auto told = std::make_shared<Told>();
    const auto compose = [this](Call& call, std::string_view /*owner*/) {
      fillInChange(call);
      addsUp(call);
    };
    makeIntrusive<QueryTask<bool>>(
        engine, scripts_, OwnerId{1}, compose, [](const Reply& /*reply*/) { return true; })
        ->startInBackground([told](const Result<bool>& result) {
          ++told->times;
          if (!result.has_value()) {
            told->error = result.error();
          }
        });
    env->runPosted();
    return told;
  }

 private:
  const std::shared_ptr<const LockScripts> scripts_ = std::make_shared<const LockScripts>("orders");
  const std::shared_ptr<const LockScripts> reads_ =
      std::make_shared<const ReadLockScripts>("report");
  NoGateWaiter waiter_;
};

/// A loss is told and the watchdog goes on, whichever allocation fails.
TEST(EngineMemory, ALossIsToldAndTheOthersAreStillWatched) {
  eachAllocation([](long k) {
    World world;
    const auto kept = world.take(1, 30s, true);
    const auto lost = world.take(2, 10s, false);
    world.advance(9s);
    // The one is lost, and the renewal of the other is tried, without a connection.
    const bool failed = failing(k, [&] { world.advance(1500ms); });
    world.advance(1s);
    EXPECT_EQ(lost->reason(), LossReason::expired);
    EXPECT_TRUE(lost->lostToken().stop_requested());
    const std::uint64_t failures = world.renewalFailures();
    EXPECT_GT(failures, 0U);
    world.advance(5s);
    EXPECT_GT(world.renewalFailures(), failures) << "it is tried again and again";
    world.advance(15s);
    EXPECT_EQ(kept->reason(), LossReason::unreachable);
    EXPECT_TRUE(kept->lostToken().stop_requested());
    return failed;
  });
}

/// The losses that a release shows are told, whichever allocation fails while it is booked.
TEST(EngineMemory, TheLossesThatAReleaseShowsAreTold) {
  eachAllocation([](long k) {
    World world;
    world.connect();
    const auto handles = world.read(1, 3);
    const HoldRelease release{
        .incarnation = handles[0]->incarnation(), .remain = 2, .lost = true, .over = {1}};
    const bool failed = failing(k, [&] { world.releaseRead(1, release); });
    if (failed) {
      world.releaseRead(1, release);
    }
    world.advance(100ms);
    for (const auto& gone : {handles[0], handles[1]}) {
      EXPECT_EQ(gone->reason(), LossReason::refused);
      EXPECT_TRUE(gone->lostToken().stop_requested());
    }
    EXPECT_EQ(handles[2]->reason(), LossReason::none);
    return failed;
  });
}

/// The answer that all is gone comes while an allocation fails: the next one says it again.
TEST(EngineMemory, AnAnswerThatCannotBeBookedIsAskedForAgain) {
  eachAllocation([](long k) {
    World world;
    world.connect();
    const auto hold = world.take(1, 30s, true);
    world.advance(11s);
    EXPECT_EQ(world.server->underWay(), 1U);
    Reply gone = world.server->toEach(0);
    const bool failed = failing(k, [&] { world.server->answer(std::move(gone)); });
    world.advance(2s);
    if (world.server->underWay() > 0) {
      world.server->answer(world.server->toEach(0));
    }
    EXPECT_EQ(hold->reason(), LossReason::refused);
    EXPECT_TRUE(hold->lostToken().stop_requested());
    return failed;
  });
}

/// A thread ends while an allocation fails: what it held is not renewed any more.
TEST(EngineMemory, TheEndOfAThread) {
  eachAllocation([](long k) {
    World world;
    world.connect();
    const auto hold = world.take(1, 30s, true);
    const bool failed = failing(k, [&] { world.engine->threadEnded(OwnerId{1}); });
    EXPECT_EQ(hold->reason(), LossReason::threadEnded);
    world.advance(11s);
    EXPECT_EQ(world.server->underWay(), 0U) << "a renewal";
    return failed;
  });
}

/// A caller's time ends while its request is under way: the next request of its owner goes out when
/// that one is answered, and not before.
TEST(EngineMemory, ACallerThatLeavesKeepsTheOrderOfRequests) {
  eachAllocation([](long k) {
    World world;
    world.connect();
    const auto late = world.acquire(1, 100ms);
    EXPECT_EQ(world.server->underWay(), 1U);
    const bool failed = failing(k, [&] { world.advance(200ms); });
    world.advance(50ms);
    EXPECT_EQ(*late, 1);
    const auto next = world.acquire(1, 10s);
    EXPECT_EQ(world.server->underWay(), 1U) << "that of the first";
    EXPECT_EQ(*next, 0);
    return failed;
  });
}

/// A connection breaks under a request that takes a lock: once there is another, nothing is sent
/// before the one that broke is closed.
TEST(EngineMemory, WhatIsLostIsKilled) {
  eachAllocation([](long k) {
    World world;
    world.connect(true);
    const auto answers = world.acquire(1, 10s);
    EXPECT_EQ(world.server->underWay(), 1U);
    const bool failed = failing(k, [&] { world.server->drop(); });
    world.disconnect();
    world.advance(50ms);
    world.connect(true);
    world.advance(50ms);
    EXPECT_GE(world.server->underWay(), 1U);
    if (world.server->underWay() > 0) {
      EXPECT_EQ(world.server->oldest().front(), "CLIENT");
    }
    return failed;
  });
}

/// A handler of the application runs once, whichever allocation on its way fails.
TEST(EngineMemory, AHandlerRuns) {
  using Start = std::function<void(World&, UniqueFunction<void()>)>;
  const std::vector<std::pair<std::string, Start>> starts{
      {"delivered", [](World& world, auto handler) { world.deliver(std::move(handler), false); }},
      {"rejected", [](World& world, auto handler) { world.reject(std::move(handler)); }}};
  std::vector<std::function<void()>> submitted;
  Options executed = Options::fromUri("redis://host");
  executed.executor = [&](std::function<void()> task) {
    FailedAllocation::disarm();  // what the application does is its own affair
    submitted.push_back(std::move(task));
  };
  for (const Options& options : {Options::fromUri("redis://host"), executed}) {
    for (const auto& [what, start] : starts) {
      for (const bool full : {false, true}) {
        SCOPED_TRACE(what + (options.executor ? " by an executor" : "") +
                     (full ? " with a full loop" : ""));
        eachAllocation([&, &begin = start](long k) {
          World world(options);
          world.env->setFull(full);
          int runs = 0;
          UniqueFunction<void()> handler([&runs] { ++runs; });
          const bool failed = failing(k, [&] {
            begin(world, std::move(handler));
            world.env->runPosted();
          });
          world.env->setFull(false);
          for (const auto& task : std::exchange(submitted, {})) {
            task();
          }
          EXPECT_EQ(runs, 1);
          return failed;
        });
      }
    }
  }
}

/// A call that there is no memory to begin throws, and its handler is not called besides.
TEST(EngineMemory, ACallIsBegunOrNot) {
  for (const bool full : {false, true}) {
    SCOPED_TRACE(full ? "a full loop" : "a loop with room");
    eachAllocation([full](long k) {
      int runs = 0;
      bool thrown = false;
      bool failed = false;
      {
        World world;
        world.env->setFull(full);
        failed = failing(k, [&] {
          try {
            world.begin([&runs](const Result<bool>& /*result*/) { ++runs; });
          } catch (const std::bad_alloc&) {
            thrown = true;
          }
        });
        world.env->setFull(false);
      }
      EXPECT_EQ(runs, thrown ? 0 : 1);
      EXPECT_TRUE(!full || thrown);
      return failed;
    });
  }
}

/// The loop ends before it tells a refusal: it is told nevertheless.
TEST(EngineMemory, ARefusalThatTheLoopDrops) {
  eachAllocation([](long k) {
    World world;
    int runs = 0;
    const bool failed = failing(k, [&] { world.reject([&runs] { ++runs; }); });
    world.env->dropPosted();
    EXPECT_EQ(runs, 1);
    return failed;
  });
}

/// The loop ends before a call begins: it is answered nevertheless.
TEST(EngineMemory, ACallThatTheLoopDrops) {
  eachAllocation([](long k) {
    World world;
    std::optional<Errc> told;
    int runs = 0;
    world.begin([&](const Result<bool>& result) {
      ++runs;
      if (!result.has_value()) {
        told = result.error().errc();
      }
    });
    const bool failed = failing(k, [&] { world.env->dropPosted(); });
    world.env->dropPosted();
    EXPECT_EQ(runs, 1);
    EXPECT_TRUE(told == Errc::closed || (failed && told == Errc::overloaded));
    return failed;
  });
}

/// More operations end on another thread than the loop has a reserve for, while it is busy and one
/// allocation of each succeeds or none.
TEST(EngineMemory, MoreHandlersThanTheLoopHasAReserveFor) {
  constexpr std::size_t kHandlers = 300;
  for (const long k : {1L, 2L, 3L}) {
    SCOPED_TRACE("from allocation " + std::to_string(k) + " on");
    std::vector<int> runs(kHandlers);
    const auto env = std::make_shared<net::LoopEnv>(net::Loop::createOwned("rlock-test"));
    const auto engine = makeEngine(env, noServer());
    std::promise<void> begun;
    std::promise<void> over;
    std::promise<void> goOn;
    env->post([&begun, mayGoOn = goOn.get_future().share()] {
      begun.set_value();
      mayGoOn.wait();
    });
    begun.get_future().wait();
    for (int& count : runs) {
      UniqueFunction<void()> handler([&count] { ++count; });
      const FailedAllocation failure(k, FailedAllocation::Of::thisThread, 1000);
      engine->callbacks().deliver(std::move(handler));
    }
    env->post([&over] { over.set_value(); });
    goOn.set_value();
    over.get_future().wait();
    EXPECT_EQ(runs, std::vector<int>(kHandlers, 1));
    engine->markClosed();
    env->post([&engine] { engine->disconnect(); });
    env->stop(env->now() + 10s);
  }
}

/// A function whose time comes while an allocation fails runs, and so does one that comes after it.
TEST(EngineMemory, ACallAtItsTime) {
  eachAllocation([](long k) {
    World world;
    int first = 0;
    int second = 0;
    int later = 0;
    Callbacks& callbacks = world.engine->callbacks();
    callbacks.callAt(world.env->now() + 10ms, [&first] { ++first; });
    callbacks.callAt(world.env->now() + 10ms, [&second] { ++second; });
    world.env->runPosted();
    const bool failed = failing(k, [&] { world.advance(20ms); });
    callbacks.callAt(world.env->now() + 10ms, [&later] { ++later; });
    world.advance(50ms);
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 1);
    EXPECT_EQ(later, 1);
    return failed;
  });
}

/// A function that is accepted runs at its time, and one that is not never does.
TEST(EngineMemory, ACallThatIsToCome) {
  eachAllocation([](long k) {
    World world;
    int runs = 0;
    int later = 0;
    Callbacks& callbacks = world.engine->callbacks();
    bool accepted = true;
    world.env->setFull(true);
    const bool failed = failing(k, [&] {
      try {
        callbacks.callAt(world.env->now() + 10ms, [&runs] { ++runs; });
      } catch (const std::bad_alloc&) {
        accepted = false;
      }
    });
    world.env->setFull(false);
    callbacks.callAt(world.env->now() + 10ms, [&later] { ++later; });
    world.advance(50ms);
    EXPECT_EQ(runs, accepted ? 1 : 0);
    EXPECT_EQ(later, 1);
    return failed;
  });
}

/// There is no connection when the caller's time ends: it is answered once, and a change that it
/// hears goes on is sent.
TEST(EngineMemory, AChangeThatGoesOn) {
  eachAllocation([](long k) {
    World world;
    const auto told = world.change();
    const bool failed = failing(k, [&] { world.advance(world.engine->callTimeout() + 100ms); });
    EXPECT_EQ(told->times, 1);
    if (!told->error) {
      ADD_FAILURE() << "no error";
      return false;
    }
    world.advance(1s);
    world.connect();
    world.advance(2s);
    EXPECT_EQ(told->times, 1);
    const bool goesOn = told->error->message().find("goes on") != std::string::npos;
    EXPECT_TRUE(goesOn || told->error->errc() == Errc::overloaded) << told->error->what();
    EXPECT_EQ(world.server->sent(), goesOn ? 1U : 0U) << told->error->what();
    return failed;
  });
}

/// The reply is lost, before or after the caller's time: it is not told that nothing has happened,
/// and the change goes on.
TEST(EngineMemory, AChangeWhoseReplyIsLost) {
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late ? "its caller has left" : "its caller waits");
    eachAllocation([late](long k) {
      World world;
      world.connect();
      const auto told = world.change();
      EXPECT_EQ(world.server->underWay(), 1U);
      if (late) {
        world.advance(world.engine->callTimeout() + 100ms);
        EXPECT_EQ(told->times, 1);
      }
      const bool failed = failing(k, [&] {
        try {
          world.disconnect();
        } catch (const std::bad_alloc&) {
          // The loop goes on.
        }
        world.advance(100ms);
      });
      world.connect();
      world.advance(2s);
      EXPECT_EQ(world.server->sent(), 2U) << "it is prepared for being asked for again";
      world.advance(world.engine->callTimeout());
      EXPECT_EQ(told->times, 1);
      if (told->error) {
        EXPECT_NE(told->error->errc(), Errc::closed);
        const std::string what = told->error->message();
        EXPECT_TRUE(what.find("goes on") != std::string::npos ||
                    what.find("not known") != std::string::npos)
            << what;
      }
      return failed;
    });
  }
}

/// A pause is over while an allocation fails: the change is sent nevertheless.
TEST(EngineMemory, AChangeAfterItsPause) {
  eachAllocation([](long k) {
    World world;
    world.connect();
    const auto told = world.change();
    world.advance(world.engine->callTimeout() + 100ms);
    EXPECT_EQ(told->times, 1) << "it goes on";
    world.server->refuse("ERR not now");
    EXPECT_EQ(world.server->underWay(), 0U);
    const bool failed = failing(k, [&] { world.advance(1500ms); });
    world.advance(2s);
    EXPECT_EQ(world.server->underWay(), 1U);
    EXPECT_EQ(told->times, 1);
    return failed;
  });
}

}  // namespace
}  // namespace engine_memory_test
}  // namespace rlock::detail
