// SPDX-License-Identifier: Apache-2.0
#pragma once

// Operations with Asio's completion tokens, the same cases for standalone Asio and Boost.Asio. A
// source that includes this file names the suite (RLOCK_TEST_ASIO_SUITE), Asio's namespace (`net`)
// and the function (`use`), and says whether there are cancellation slots (RLOCK_TEST_ASIO_SLOTS).

#include "integration/lock_harness.hpp"

#include <array>
#include <exception>
#include <new>

namespace rlock::test {
namespace {

using Awaitable = net::awaitable<void>;
using Context = net::io_context;

class RLOCK_TEST_ASIO_SUITE : public LockTest {
 protected:
  /// Runs a coroutine on a context of its own until nothing is left to do there.
  static std::string run(Awaitable coroutine) {
    Context context;
    auto done = net::co_spawn(context, std::move(coroutine), net::use_future);
    context.run();
    return outcomeOf([&] { done.get(); });
  }
  /// Whether another client gets the lock within the time.
  bool becomesFree(const std::string& name) {
    Client other = connect();
    return other.getLock(name).tryLock(std::chrono::milliseconds(scaled(kLong)));
  }
  /// A client whose waiters have a message to wait for.
  void expectWaiting(const std::string& name) {
    ASSERT_EVENTUALLY(kLong,
                      raw().run({"PUBSUB", "NUMSUB", channelOf(name)}).array().at(1).integer() > 0);
  }
};
#define RLOCK_TEST_ASIO(name) TEST_F(RLOCK_TEST_ASIO_SUITE, name)

/// Expires when the handler that has it is destroyed.
using Sentinel = std::shared_ptr<int>;

/// Runs nothing, because its queue has no memory.
struct FullExecutor {
  Context* context;

  template <class Function>
  void execute(Function&& /*function*/) const {
    throw std::bad_alloc();
  }
  Context& query(net::execution::context_t /*property*/) const noexcept { return *context; }
  FullExecutor require(net::execution::blocking_t::never_t /*property*/) const noexcept {
    return *this;
  }
  friend bool operator==(const FullExecutor&, const FullExecutor&) noexcept = default;
};

/// Fails when two are inside at once. Atomic, so that this is no race of its own.
struct Section {
  std::atomic<int> inside{0};
  std::atomic<int> overlaps{0};
  std::atomic<int> passes{0};

  void enter() { overlaps += inside++ == 0 ? 0 : 1; }
  void leave() {
    --inside;
    ++passes;
  }
};

Awaitable holdForAWhile(RLock lock, std::string* seen) {
  {
    const Lease lease = co_await use(lock.acquireAsync());
    *seen = lease.held() ? "held" : "not held";
  }
  // The release of the lease is ahead of this question.
  *seen += co_await use(lock.isLockedAsync()) ? ", kept" : ", released";
}

RLOCK_TEST_ASIO(ACoroutineHoldsALockAsAnObject) {
  Client client = connect();
  std::string seen;
  EXPECT_EQ(run(holdForAWhile(client.getLock("a"), &seen)), "ok");
  EXPECT_EQ(seen, "held, released");
}

Awaitable passTwice(RLock lock, Section* section) {
  const OwnerId owner = newOwner();
  for (int i = 0; i < 2; ++i) {
    co_await use(lock.lockAsync(owner));
    section->enter();
    // Others run meanwhile.
    co_await net::post(co_await net::this_coro::executor, net::use_awaitable);
    section->leave();
    co_await use(lock.unlockAsync(owner));
  }
}

RLOCK_TEST_ASIO(ManyCoroutinesOfOneThreadExcludeEachOther) {
  Client client = connect();
  Context context;
  Section section;
  std::vector<std::future<void>> done;
  for (int i = 0; i < 50; ++i) {
    done.push_back(
        net::co_spawn(context, passTwice(client.getLock("a"), &section), net::use_future));
  }
  context.run();
  for (auto& each : done) {
    EXPECT_EQ(outcomeOf([&] { each.get(); }), "ok");
  }
  EXPECT_EQ(section.passes, 100);
  EXPECT_EQ(section.overlaps, 0);
  expectNoKeys();
}

RLOCK_TEST_ASIO(CoroutinesOfAPoolExcludeEachOther) {
  Client client = connect();
  Client another = connect();
  net::thread_pool pool(4);
  Section section;
  std::vector<std::future<void>> done;
  for (int i = 0; i < 40; ++i) {
    done.push_back(net::co_spawn(
        pool, passTwice((i % 2 == 0 ? client : another).getLock("a"), &section), net::use_future));
  }
  pool.join();
  for (auto& each : done) {
    EXPECT_EQ(outcomeOf([&] { each.get(); }), "ok");
  }
  EXPECT_EQ(section.passes, 80);
  EXPECT_EQ(section.overlaps, 0);
  expectNoKeys();
}

template <class Strand>
Awaitable staysOn(Strand strand, RLock lock, int* elsewhere) {
  for (int i = 0; i < 20; ++i) {
    const Lease lease = co_await use(lock.acquireAsync());
    *elsewhere += strand.running_in_this_thread() ? 0 : 1;
  }
}

RLOCK_TEST_ASIO(ACoroutineGoesOnOnItsStrand) {
  Client client = connect();
  net::thread_pool pool(3);
  auto strand = net::make_strand(pool);
  int elsewhere = 0;
  auto done =
      net::co_spawn(strand, staysOn(strand, client.getLock("a"), &elsewhere), net::use_future);
  EXPECT_EQ(outcomeOf([&] { done.get(); }), "ok");
  EXPECT_EQ(elsewhere, 0);
  pool.join();
}

RLOCK_TEST_ASIO(AHandlerRunsOnItsExecutorAndNeverInsideTheCall) {
  Client client = connect();
  net::thread_pool pool(2);
  auto strand = net::make_strand(pool);
  std::promise<bool> there;
  use(client.getLock("a").acquireAsync(),
      net::bind_executor(strand, [&](const std::exception_ptr& failure, const Lease& lease) {
        there.set_value(!failure && lease.held() && strand.running_in_this_thread());
      }));
  EXPECT_TRUE(there.get_future().get());
  pool.join();

  // On the context's own thread, where dispatching would run it at once.
  Context context;
  bool inside = true;
  bool wasInside = true;
  net::post(context, [&] {
    use(client.getLock("b").isLockedAsync(),
        net::bind_executor(context, [&](const std::exception_ptr&, bool) { wasInside = inside; }));
    inside = false;
  });
  context.run();
  EXPECT_FALSE(wasInside);
}

RLOCK_TEST_ASIO(AHandlerWithoutAnExecutorDoesNotRunOnTheLoopThread) {
  Client client = connect();
  std::promise<std::thread::id> loop;
  client.getLock("a").isLockedAsync().start(
      [&](const Result<bool>&) { loop.set_value(std::this_thread::get_id()); });
  std::promise<std::thread::id> there;
  use(client.getLock("a").isLockedAsync(),
      [&](const std::exception_ptr&, bool) { there.set_value(std::this_thread::get_id()); });
  EXPECT_NE(there.get_future().get(), loop.get_future().get());
}

RLOCK_TEST_ASIO(AContextHasWorkWhileACallWaits) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  Context context;
  bool told = false;
  use(client.getLock("a").acquireAsync(),
      net::bind_executor(context, [&](const std::exception_ptr& failure, const Lease& lease) {
        told = !failure && lease.held();
      }));
  context.run_for(100ms);
  EXPECT_FALSE(context.stopped());
  EXPECT_FALSE(told);
  expectWaiting("a");
  rawRelease("a");
  context.run();
  EXPECT_TRUE(told);
}

RLOCK_TEST_ASIO(AFutureIsAToken) {
  Client client = connect();
  std::future<Lease> future = use(client.getLock("a").acquireAsync(), net::use_future);
  EXPECT_TRUE(future.get().held());
  std::future<void> refused = use(client.getLock("a").unlockAsync(newOwner()), net::use_future);
  EXPECT_EQ(outcomeOf([&] { refused.get(); }), "notOwner");
}

Awaitable refusedCalls(RLock lock, std::string* seen) {
  AcquireOptions options;
  options.lease = 0s;
  options.wait = 1s;
  try {
    co_await use(lock.acquireAsync(options), net::use_awaitable);
  } catch (const Error& error) {
    *seen = std::string(rlock::toString(error.errc())) + " " + error.key();
  }
  Operation<bool> once = lock.isLockedAsync();
  co_await use(std::move(once));
  co_await use(std::move(once));  // NOLINT(bugprone-use-after-move): that is the subject
}

RLOCK_TEST_ASIO(AnErrorIsThrownAsItIs) {
  Client client = connect();
  std::string seen;
  EXPECT_EQ(run(refusedCalls(client.getLock("a"), &seen)), "invalidArgument");
  EXPECT_EQ(seen, "invalidArgument a");
}

Awaitable useAll(Client* client, int* done) {
  Semaphore semaphore = client->getSemaphore("s");
  *done += co_await use(semaphore.trySetPermitsAsync(1)) ? 1 : 0;
  co_await use(semaphore.acquireAsync());
  co_await use(semaphore.releaseAsync());
  PermitExpirableSemaphore permits = client->getPermitExpirableSemaphore("p");
  *done += co_await use(permits.trySetPermitsAsync(1)) ? 1 : 0;
  const std::string id = co_await use(permits.acquireAsync());
  co_await use(permits.releaseAsync(id));
  CountDownLatch latch = client->getCountDownLatch("l");
  *done += co_await use(latch.trySetCountAsync(1)) ? 1 : 0;
  co_await use(latch.countDownAsync());
  co_await use(latch.awaitAsync());
  const std::optional<Lease> lease = co_await use(client->getFairLock("f").tryAcquireAsync());
  *done += lease ? 1 : 0;
}

RLOCK_TEST_ASIO(EveryKindOfObjectCanBeAwaited) {
  Client client = connect();
  int done = 0;
  EXPECT_EQ(run(useAll(&client, &done)), "ok");
  EXPECT_EQ(done, 4);
}

Awaitable acquire(RLock lock, std::stop_token stop) {
  AcquireOptions options;
  options.stop = std::move(stop);
  const Lease lease = co_await use(lock.acquireAsync(std::move(options)));
}

RLOCK_TEST_ASIO(TheCallersStopTokenEndsACall) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  std::stop_source stop;
  auto outcome = inThread([&] { return run(acquire(client.getLock("a"), stop.get_token())); });
  expectWaiting("a");
  stop.request_stop();
  EXPECT_EQ(outcome.get(), "cancelled");
}

RLOCK_TEST_ASIO(AClientThatIsClosedEndsTheCall) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  RLock lock = client.getLock("a");
  auto outcome = inThread([&] { return run(acquire(lock, {})); });
  expectWaiting("a");
  client.close(1s);
  EXPECT_EQ(outcome.get(), "closed");
  EXPECT_EQ(run(acquire(lock, {})), "closed");
}

/// A call whose handler belongs to the context; its sentinel tells when the handler is destroyed.
template <class Executor>
std::weak_ptr<int> startAcquiring(RLock lock,
                                  const Executor& executor,
                                  AcquireOptions options = {}) {
  auto sentinel = std::make_shared<int>();
  use(lock.acquireAsync(std::move(options)),
      net::bind_executor(executor,
                         [sentinel](const std::exception_ptr&, const Lease&) { ++*sentinel; }));
  return sentinel;
}

RLOCK_TEST_ASIO(AContextThatIsDestroyedEndsTheCallsThatWait) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  auto context = std::make_unique<Context>();
  std::vector<std::weak_ptr<int>> handlers;
  handlers.push_back(startAcquiring(client.getLock("a"), context->get_executor()));
  handlers.push_back(startAcquiring(client.getLock("a"), net::make_strand(*context)));
  handlers.push_back(
      startAcquiring(client.getLock("a"), net::any_io_executor(context->get_executor())));
  expectWaiting("a");
  context.reset();
  for (const auto& handler : handlers) {
    EXPECT_TRUE(handler.expired());
  }
  rawRelease("a");
  EXPECT_TRUE(becomesFree("a"));
}

RLOCK_TEST_ASIO(AContextThatIsDestroyedStopsWhatWouldBeHeldForNobody) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  auto context = std::make_unique<Context>();
  use(client.getLock("a").lockAsync(newOwner()),
      net::bind_executor(*context, [](const std::exception_ptr&) {}));
  expectWaiting("a");
  context.reset();
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 0);
  rawRelease("a");
  EXPECT_TRUE(becomesFree("a"));
}

Awaitable acquireThenNothing(RLock lock, Sentinel /*sentinel*/) {
  const Lease lease = co_await use(lock.acquireAsync());
}

RLOCK_TEST_ASIO(ACoroutineIsDestroyedWithItsContext) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  auto sentinel = std::make_shared<int>();
  const std::weak_ptr<int> frame = sentinel;
  auto context = std::make_unique<Context>();
  net::co_spawn(
      *context, acquireThenNothing(client.getLock("a"), std::move(sentinel)), net::detached);
  context->poll();
  expectWaiting("a");
  context.reset();
  EXPECT_TRUE(frame.expired());
  rawRelease("a");
  EXPECT_TRUE(becomesFree("a"));
}

RLOCK_TEST_ASIO(AResultThatNobodyTakesIsReleased) {
  Client client = connect();
  auto context = std::make_unique<Context>();
  const std::weak_ptr<int> handler = startAcquiring(client.getLock("a"), context->get_executor());
  ASSERT_EVENTUALLY(kLong, raw().exists("a"));
  // The same loop thread has delivered the result when it answers this.
  EXPECT_TRUE(client.getLock("a").isLockedAsync().toFuture().get());
  context->stop();
  EXPECT_TRUE(raw().exists("a"));
  context.reset();
  EXPECT_TRUE(handler.expired());
  EXPECT_TRUE(becomesFree("a"));
}

RLOCK_TEST_ASIO(AContextMayEndWhileAResultComes) {
  Client client = connect();
  for (int i = 0; i < 200; ++i) {
    const std::string name = "a" + std::to_string(i);
    auto context = std::make_unique<Context>();
    const std::weak_ptr<int> handler =
        startAcquiring(client.getLock(name), context->get_executor());
    for (int step = i % 20; step > 0; --step) {
      std::this_thread::sleep_for(20us);
    }
    context.reset();
    ASSERT_TRUE(handler.expired());
  }
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
}

RLOCK_TEST_ASIO(AHandlerThatIsDestroyedMayBeginAnotherCall) {
  struct Begins {
    Context* context;
    RLock lock;
    ~Begins() { startAcquiring(lock, context->get_executor()); }
  };
  Client client = connect();
  rawHold("a", "other:1", 60s);
  auto context = std::make_unique<Context>();
  auto begins = std::make_shared<Begins>(context.get(), client.getLock("a"));
  use(client.getLock("a").acquireAsync(),
      net::bind_executor(*context,
                         [begins = std::move(begins)](const std::exception_ptr&, const Lease&) {}));
  context.reset();
  rawRelease("a");
  EXPECT_TRUE(becomesFree("a"));
}

/// Counts what is allocated, and notes who does it elsewhere than on the one thread it allows.
struct Counts {
  std::thread::id thread = std::this_thread::get_id();
  std::atomic<int> now{0};
  std::atomic<int> total{0};
  std::atomic<int> elsewhere{0};
};

template <class T>
struct CountingAllocator {
  using value_type = T;
  Counts* counts;

  explicit CountingAllocator(Counts* all) : counts(all) {}
  template <class U>
  // NOLINTNEXTLINE(google-explicit-constructor): an allocator's conversion
  CountingAllocator(const CountingAllocator<U>& other) : counts(other.counts) {}
  T* allocate(std::size_t size) {
    note();
    ++counts->now;
    ++counts->total;
    return std::allocator<T>().allocate(size);
  }
  void deallocate(T* memory, std::size_t size) {
    note();
    --counts->now;
    std::allocator<T>().deallocate(memory, size);
  }
  void note() { counts->elsewhere += std::this_thread::get_id() == counts->thread ? 0 : 1; }
  template <class U>
  bool operator==(const CountingAllocator<U>& other) const {
    return counts == other.counts;
  }
};

struct CountingHandler {
  using allocator_type = CountingAllocator<void>;
  using executor_type = Context::executor_type;
  Counts* counts;
  Context* context;
  int* heldThen;

  [[nodiscard]] allocator_type get_allocator() const { return allocator_type(counts); }
  [[nodiscard]] executor_type get_executor() const { return context->get_executor(); }
  void operator()(const std::exception_ptr& failure, bool) const {
    EXPECT_FALSE(failure);
    *heldThen = counts->now;
  }
};

RLOCK_TEST_ASIO(AHandlersAllocatorIsUsedOnItsExecutorOnly) {
  Client client = connect();
  Context context;
  Counts counts;
  int heldThen = -1;
  use(client.getLock("a").isLockedAsync(), CountingHandler{&counts, &context, &heldThen});
  EXPECT_GT(counts.total, 0);
  context.run();
  EXPECT_EQ(heldThen, 0);
  EXPECT_EQ(counts.now, 0);
  EXPECT_EQ(counts.elsewhere, 0);
}

/// A handler that is the owner of its memory: the counts are where it gives back.
struct OwningHandler {
  using allocator_type = CountingAllocator<void>;
  using executor_type = Context::executor_type;
  std::shared_ptr<Counts> counts;
  Context* context;

  [[nodiscard]] allocator_type get_allocator() const { return allocator_type(counts.get()); }
  [[nodiscard]] executor_type get_executor() const { return context->get_executor(); }
  void operator()(const std::exception_ptr&, const Lease&) const { FAIL() << "it was called"; }
};

RLOCK_TEST_ASIO(AHandlerThatIsDestroyedMayOwnItsMemory) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  for (const bool comesFirst : {false, true}) {
    int leftThen = -1;
    auto context = std::make_unique<Context>();
    // Once the handler is gone, nothing of the call may be left in its memory.
    std::shared_ptr<Counts> counts(new Counts, [&](Counts* all) {
      leftThen = all->now;
      delete all;
    });
    use(client.getLock(comesFirst ? "b" : "a").acquireAsync(),
        OwningHandler{std::move(counts), context.get()});
    if (comesFirst) {
      EXPECT_EVENTUALLY(kLong, client.getLock("b").isLocked());
      client.ping();
    }
    context.reset();
    EXPECT_EQ(leftThen, 0) << (comesFirst ? "its result had come" : "it waited");
  }
}

#ifdef RLOCK_TEST_ASIO_SLOTS

/// A handler that takes any result and says how the call ended.
auto outcomeTo(Context& context, std::string* outcome, net::cancellation_signal& signal) {
  return net::bind_cancellation_slot(
      signal.slot(),
      net::bind_executor(context.get_executor(),
                         [outcome](const std::exception_ptr& failure, const auto&...) {
                           *outcome = outcomeOf([&] {
                             if (failure) {
                               std::rethrow_exception(failure);
                             }
                           });
                         }));
}

RLOCK_TEST_ASIO(EachTypeOfCancellationEndsACall) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  for (const auto type : {net::cancellation_type::terminal,
                          net::cancellation_type::partial,
                          net::cancellation_type::total}) {
    Context context;
    net::cancellation_signal signal;
    std::string outcome;
    use(client.getLock("a").lockAsync(newOwner()), outcomeTo(context, &outcome, signal));
    expectWaiting("a");
    signal.emit(type);
    context.run();
    EXPECT_EQ(outcome, "cancelled");
    signal.emit(type);  // too late: nothing is there to be cancelled
  }
  EXPECT_EQ(Error(Errc::cancelled).code(), std::errc::operation_canceled);
  rawRelease("a");
  EXPECT_TRUE(becomesFree("a"));
}

RLOCK_TEST_ASIO(ASlotEndsTheCallsOfAllObjects) {
  Client client = connect();
  ASSERT_TRUE(client.getSemaphore("s").trySetPermits(1));
  client.getSemaphore("s").acquire();
  ASSERT_TRUE(client.getPermitExpirableSemaphore("p").trySetPermits(1));
  const std::string id = client.getPermitExpirableSemaphore("p").acquire();
  ASSERT_TRUE(client.getCountDownLatch("l").trySetCount(1));
  rawHold("a", "other:1", 60s);
  Context context;
  std::array<net::cancellation_signal, 6> signals;
  std::array<std::string, 6> outcomes;
  const auto token = [&](std::size_t i) {
    return outcomeTo(context, &outcomes.at(i), signals.at(i));
  };
  use(client.getSemaphore("s").acquireAsync(), token(0));
  use(client.getPermitExpirableSemaphore("p").acquireAsync(), token(1));
  use(client.getCountDownLatch("l").awaitAsync(), token(2));
  use(client.getFairLock("f").acquireAsync(), token(3));
  use(multiLock({client.getLock("a"), client.getLock("b")}).acquireAsync(), token(4));
  use(client.getLock("a").tryLockAsync({.wait = 60s}, newOwner()), token(5));
  expectWaiting("a");
  for (auto& signal : signals) {
    signal.emit(net::cancellation_type::terminal);
  }
  context.run();
  for (const std::size_t i : {0U, 1U, 2U, 4U, 5U}) {
    EXPECT_EQ(outcomes.at(i), "cancelled") << i;
  }
  // This one was free: it may have been obtained before.
  EXPECT_FALSE(outcomes[3].empty());
}

RLOCK_TEST_ASIO(AConnectedSlotLeavesTheCallersStopTokenInForce) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  Context context;
  net::cancellation_signal signal;
  std::string outcome;
  std::stop_source stop;
  AcquireOptions options;
  options.stop = stop.get_token();
  use(client.getLock("a").acquireAsync(std::move(options)), outcomeTo(context, &outcome, signal));
  expectWaiting("a");
  stop.request_stop();
  context.run();
  EXPECT_EQ(outcome, "cancelled");
}

RLOCK_TEST_ASIO(ASlotThatIsClearedOrGoneHarmsNothing) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  Context context;
  std::string cleared;
  std::string gone;
  net::cancellation_signal signal;
  use(client.getLock("a").acquireAsync(), outcomeTo(context, &cleared, signal));
  {
    net::cancellation_signal early;
    use(client.getLock("a").acquireAsync(), outcomeTo(context, &gone, early));
  }
  expectWaiting("a");
  signal.slot().clear();
  signal.emit(net::cancellation_type::all);
  rawRelease("a");
  context.run();
  EXPECT_EQ(cleared, "ok");
  EXPECT_EQ(gone, "ok");
}

RLOCK_TEST_ASIO(AReleaseIsNotCancelled) {
  Client client = connect();
  const OwnerId owner = newOwner();
  client.getLock("a").lockAsync({}, owner).get();
  Context context;
  net::cancellation_signal signal;
  std::string outcome;
  use(client.getLock("a").unlockAsync(owner), outcomeTo(context, &outcome, signal));
  signal.emit(net::cancellation_type::terminal);
  context.run();
  EXPECT_EQ(outcome, "ok");
  expectNoKeys();
}

RLOCK_TEST_ASIO(ACancellationMayMeetTheGrant) {
  Client client = connect();
  std::map<std::string, int> outcomes;
  for (int i = 0; i < 200; ++i) {
    RLock lock = client.getLock("a");
    const OwnerId holder = newOwner();
    lock.lockAsync({}, holder).get();
    Context context;
    net::cancellation_signal signal;
    std::string outcome;
    use(lock.acquireAsync(), outcomeTo(context, &outcome, signal));
    // At the same time, from two threads.
    auto released = lock.unlockAsync(holder).toFuture();
    for (int step = i % 20; step > 0; --step) {
      std::this_thread::sleep_for(20us);
    }
    signal.emit(net::cancellation_type::terminal);
    context.run();
    released.get();
    ++outcomes[outcome];
    ASSERT_TRUE(outcome == "ok" || outcome == "cancelled") << outcome;
  }
  EXPECT_EVENTUALLY(kLong, !raw().exists("a"));
  EXPECT_TRUE(becomesFree("a"));
}

Awaitable raceWithTimer(RLock lock, std::chrono::milliseconds limit, std::size_t* first) {
  using namespace net::experimental::awaitable_operators;
  net::steady_timer timer(co_await net::this_coro::executor, limit);
  const auto winner = co_await (use(lock.acquireAsync()) || timer.async_wait(net::use_awaitable));
  *first = winner.index();
}

RLOCK_TEST_ASIO(ATimerThatIsFirstCancelsTheAcquisition) {
  Client client = connect();
  rawHold("a", "other:1", 60s);
  std::size_t first = 9;
  EXPECT_EQ(run(raceWithTimer(client.getLock("a"), 50ms, &first)), "ok");
  EXPECT_EQ(first, 1U);
  rawRelease("a");
  EXPECT_TRUE(becomesFree("a"));
  EXPECT_EQ(run(raceWithTimer(client.getLock("b"), std::chrono::milliseconds(60s), &first)), "ok");
  EXPECT_EQ(first, 0U);
}

#if __has_include(<asio/experimental/deferred.hpp>) || defined(BOOST_ASIO_VERSION)
RLOCK_TEST_ASIO(ADeferredCallIsMadeWhenItIsCalled) {
  Client client = connect();
  auto acquiring = use(client.getLock("a").acquireAsync(), net::experimental::deferred);
  EXPECT_FALSE(raw().exists("a"));
  std::future<Lease> future = std::move(acquiring)(net::use_future);
  EXPECT_TRUE(future.get().held());
}
#endif

#endif  // RLOCK_TEST_ASIO_SLOTS

/// Nobody would know of it, and its client would renew it for ever.
RLOCK_TEST_ASIO(AHoldWhoseHandlerTheExecutorRefusesIsGivenBack) {
  Client client = connect();
  Context context;
  const auto startAll = [&](const auto& handler) {
    use(client.getLock("locked").lockAsync(newOwner()), handler());
    use(client.getLock("tried").tryLockAsync({}, newOwner()), handler());
    use(client.getFencedLock("fenced").lockAndGetTokenAsync({}, newOwner()), handler());
    use(client.getLock("leased").acquireAsync(), handler());
  };
  std::atomic<int> called{0};
  Sentinel sentinel = std::make_shared<int>();
  const std::weak_ptr<int> handlers = sentinel;
  startAll([&] {
    return net::bind_executor(FullExecutor{&context},
                              [sentinel, &called](const auto&...) { ++called; });
  });
  sentinel = nullptr;
  ASSERT_EVENTUALLY(kLong, handlers.expired());
  for (const char* const name : {"locked", "tried", "fenced", "leased"}) {
    EXPECT_TRUE(becomesFree(name)) << name;
  }
  EXPECT_EQ(called, 0);
  EXPECT_EQ(client.stats().handlerFailures, 4U);
}

/// Permits without a lease would be gone for ever.
RLOCK_TEST_ASIO(PermitsWhoseHandlerTheExecutorRefusesAreGivenBack) {
  Client client = connect();
  Semaphore counted = client.getSemaphore("counted");
  ASSERT_TRUE(counted.trySetPermits(5));
  PermitExpirableSemaphore named = client.getPermitExpirableSemaphore("named");
  ASSERT_TRUE(named.trySetPermits(5));
  Context context;
  Sentinel sentinel = std::make_shared<int>();
  const std::weak_ptr<int> handlers = sentinel;
  const auto handler = [&] {
    return net::bind_executor(FullExecutor{&context}, [sentinel](const auto&...) {});
  };
  use(counted.acquireAsync(2), handler());
  use(counted.tryAcquireAsync(1), handler());
  use(counted.tryAcquireAsync(9), handler());
  use(named.acquireAsync(), handler());
  use(named.tryAcquireAsync(), handler());
  use(named.tryAcquireManyAsync(2), handler());
  use(named.tryAcquireManyAsync(9), handler());
  sentinel = nullptr;
  ASSERT_EVENTUALLY(kLong, handlers.expired());
  // Which waits for what is given back.
  client.close(kLong);
  Client other = connect();
  EXPECT_EQ(other.getSemaphore("counted").availablePermits(), 5);
  EXPECT_EQ(other.getPermitExpirableSemaphore("named").availablePermits(), 5);
}

}  // namespace
}  // namespace rlock::test
