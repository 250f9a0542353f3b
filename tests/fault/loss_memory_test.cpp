// SPDX-License-Identifier: Apache-2.0

// Losses and renewals while an allocation fails on the loop thread.

#include "fault/faults.hpp"
#include "unit/engine_fixture.hpp"
#include "unit/pending_commands.hpp"
#include <rlock/detail/engine/hold_keeper.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace loss_memory_test {
namespace {

using namespace std::chrono_literals;
using test::FailedAllocation;

/// A client and its server, which the test answers for, on a clock of the test's.
class World {
 public:
  explicit World(Options options = Options::fromUri("redis://host"))
      : options_(std::move(options)) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    // Requests and functions that are left refer to the engine: what waits for a connection is
    // sent, and lost.
    if (!connected_) {
      connect();
    }
    engine_->markClosed();
    engine_->disconnect();
    env_->runPosted();
    server_->drop();
    // And what is tried again after a while.
    for (int i = 0; i < 10; ++i) {
      env_->advance(1min);
      env_->runPosted();
    }
  }

  void connect() {
    connected_ = true;
    server_->connect(*events_);
  }
  IntrusivePtr<HoldHandle> take(std::uint64_t owner,
                                std::chrono::milliseconds lease,
                                bool watched) {
    const HoldGates::Gate gate = engine_->gates().enter(scripts_, OwnerId{owner}, waiter_);
    HoldKeeper::GrantTerms terms{};
    terms.sentAt = env_->now();
    terms.now = env_->now();
    terms.lease = lease;
    terms.watched = watched;
    terms.wantsHandle = true;
    const auto handle = engine_->holds().granted(*gate.hold, 0, 1, terms).handle;
    engine_->gates().leave(*gate.hold);
    return handle;
  }
  void endThread(std::uint64_t owner) { engine_->threadEnded(OwnerId{owner}); }
  /// The loop goes on after a function that threw.
  void advance(std::chrono::milliseconds by) {
    const auto end = env_->now() + by;
    while (env_->now() < end) {
      try {
        env_->advance(5ms);
        env_->runPosted();
      } catch (const std::bad_alloc&) {
        continue;
      }
    }
  }
  [[nodiscard]] PendingCommands& server() noexcept { return *server_; }
  [[nodiscard]] std::uint64_t renewalFailures() const {
    return engine_->counters().renewalFailures.load();
  }

  /// As the end of an operation that began on the loop thread, or on another one.
  void deliver(UniqueFunction<void()> handler, bool onLoop) {
    env_->setOnLoopThread(onLoop);
    engine_->callbacks().deliver(std::move(handler));
    env_->setOnLoopThread(true);
  }
  /// As a call that is refused before it begins.
  void reject(UniqueFunction<void()> handler) { engine_->callbacks().reject(std::move(handler)); }
  void runPosted() { env_->runPosted(); }

 private:
  const Options options_;
  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  const std::shared_ptr<PendingCommands> server_ = std::make_shared<PendingCommands>(*env_);
  net::LinkEvents* events_ = nullptr;
  bool connected_ = false;
  const std::shared_ptr<LockEngine> engine_ = std::make_shared<LockEngine>(
      "client",
      options_,
      std::make_shared<const Logger>([](LogLevel, std::string_view) {}, LogLevel::error),
      env_,
      net::Transports{[this](net::LinkEvents& events) {
                        if (events_ == nullptr) {
                          events_ = &events;
                        }
                        return server_;
                      },
                      [](net::PubSubEvents&) { return std::make_unique<NoSubscriptions>(); }});
  const std::shared_ptr<const LockScripts> scripts_ = std::make_shared<const LockScripts>("orders");
  NoGateWaiter waiter_;
};

/// Whichever allocation fails: a loss is told, and the watchdog goes on.
TEST(LossMemory, ALossIsToldAndTheOthersAreStillWatched) {
  bool failed = true;
  for (long k = 1; failed; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    ASSERT_LT(k, 500);
    World world;
    const auto kept = world.take(1, 30s, true);
    const auto lost = world.take(2, 10s, false);
    world.advance(9s);
    {
      const FailedAllocation failure(k, FailedAllocation::Of::thisThread);
      // The one is lost, and the renewal of the other is tried, without a connection.
      world.advance(1500ms);
      failed = FailedAllocation::happened();
    }
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
    if (::testing::Test::HasFailure()) {
      FailedAllocation::print();
      return;
    }
  }
}

/// The answer that all is gone comes while an allocation fails: the next one says it again.
TEST(LossMemory, AnAnswerThatCannotBeBookedIsAskedForAgain) {
  bool failed = true;
  for (long k = 1; failed; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    ASSERT_LT(k, 500);
    World world;
    world.connect();
    const auto hold = world.take(1, 30s, true);
    world.advance(11s);
    ASSERT_EQ(world.server().underWay(), 1U);
    Reply gone = world.server().toEach(0);
    {
      const FailedAllocation failure(k, FailedAllocation::Of::thisThread);
      world.server().answer(std::move(gone));
      failed = FailedAllocation::happened();
    }
    world.advance(2s);
    if (world.server().underWay() > 0) {
      world.server().answer(world.server().toEach(0));
    }
    EXPECT_EQ(hold->reason(), LossReason::refused);
    EXPECT_TRUE(hold->lostToken().stop_requested());
    if (::testing::Test::HasFailure()) {
      FailedAllocation::print();
      return;
    }
  }
}

/// A thread ends while an allocation fails: what it held is not renewed any more.
TEST(LossMemory, TheEndOfAThread) {
  bool failed = true;
  for (long k = 1; failed; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    ASSERT_LT(k, 500);
    World world;
    world.connect();
    const auto hold = world.take(1, 30s, true);
    {
      const FailedAllocation failure(k, FailedAllocation::Of::thisThread);
      world.endThread(1);
      failed = FailedAllocation::happened();
    }
    EXPECT_EQ(hold->reason(), LossReason::threadEnded);
    world.advance(11s);
    EXPECT_EQ(world.server().underWay(), 0U) << "a renewal";
    if (::testing::Test::HasFailure()) {
      FailedAllocation::print();
      return;
    }
  }
}

/// A handler of the application runs once, whichever allocation on its way fails.
TEST(LossMemory, AHandlerRuns) {
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
      bool failed = true;
      for (long k = 1; failed; ++k) {
        SCOPED_TRACE(what + (options.executor ? " by an executor" : "") + ", allocation " +
                     std::to_string(k));
        ASSERT_LT(k, 100);
        World world(options);
        int runs = 0;
        UniqueFunction<void()> handler([&runs] { ++runs; });
        {
          const FailedAllocation failure(k, FailedAllocation::Of::thisThread);
          start(world, std::move(handler));
          world.runPosted();
          failed = FailedAllocation::happened();
        }
        for (const auto& task : std::exchange(submitted, {})) {
          task();
        }
        EXPECT_EQ(runs, 1);
      }
    }
  }
}

}  // namespace
}  // namespace loss_memory_test
}  // namespace rlock::detail
