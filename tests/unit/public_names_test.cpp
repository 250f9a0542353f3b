// SPDX-License-Identifier: Apache-2.0

// Programs are written against these names: that they compile is the test. Nothing here is run.

#include <rlock/rlock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <iterator>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock {
namespace {

using namespace std::chrono_literals;
using Milliseconds = std::optional<std::chrono::milliseconds>;

/// Takes a value of exactly this type.
template <class T>
void is(T /*value*/) {}

Client connected(uv_loop_t* loop) {
  Options options = Options::fromUri("redis://localhost");
  options.endpoints = {Endpoint{}};
  options.username = "user";
  options.password = "password";
  options.clientName = "name";
  options.database = 1;
  options.connectTimeout = options.commandTimeout = options.watchdogTimeout = 1s;
  options.safetyPoll = options.fairWaiterLease = options.outageTimeout = 1s;
  options.watchdogBatchSize = 100;
  options.sync = SyncPolicy::majority(1s);
  is<std::string>(toString(SyncPolicy::none()));
  options.log = [](LogLevel, std::string_view) {};
  options.executor = Executor{};
  options.loop = loop;
  options.credentials = [] { return Credentials{"user", "password"}; };
  options.sentinelCredentials = options.credentials;
  options.connect = ConnectMode::lazy;
  options.namePrefix = "app:";
  options.nameMapper = [](std::string_view name) { return std::string(name); };
  options.onStateChange = [](ConnectionState) {};
  is<Client>(Client::connect("redis://localhost"));
  return Client::connect(options);
}

void locks(Client& client, std::stop_token stop) {
  is<std::string>(client.id());
  is<Stats>(client.stats());
  is<bool>(client.connected());
  is<std::chrono::nanoseconds>(client.ping());
  is<Operation<std::chrono::nanoseconds>>(client.pingAsync());
  is<Capabilities>(client.capabilities());
  client.refreshCredentials();
  is<Operation<void>>(client.refreshCredentialsAsync());
  client.close(1s);
  std::vector<RLock> all{client.getLock("a"),
                         client.getFairLock("a"),
                         client.getSpinLock("a"),
                         client.getSpinLock("a", BackOff::exponential(1ms, 128ms, 2)),
                         client.getSpinLock("a", BackOff::constant(64ms)),
                         client.getNonReentrantLock("a"),
                         client.getNonReentrantFairLock("a"),
                         client.getSimpleLock("a"),
                         client.getReadWriteLock("a").readLock(),
                         client.getReadWriteLock("a").writeLock()};
  is<RLock>(multiLock(all));
  is<RLock>(redLock(all));
  RLock lock = all[0];
  lock.lock();
  lock.lock(1s);
  lock.lockInterruptibly(stop);
  lock.lockInterruptibly(stop, 1s);
  is<bool>(lock.tryLock());
  is<bool>(lock.tryLock(1s));
  is<bool>(lock.tryLock(1s, 1s));
  is<bool>(lock.tryLock(stop, 1s));
  is<bool>(lock.tryLock(stop, 1s, 1s));
  lock.unlock();
  is<bool>(lock.forceUnlock());
  is<bool>(lock.isLocked());
  is<bool>(lock.isHeldByCurrentThread());
  is<bool>(lock.isHeldBy(newOwner()));
  is<int>(lock.getHoldCount());
  is<Milliseconds>(lock.remainTimeToLive());
  is<std::string>(lock.getName());
  is<Operation<void>>(lock.lockAsync({}, newOwner()));
  is<Operation<bool>>(lock.tryLockAsync({.wait = 1s, .lease = 1s}, currentOwner()));
  is<Operation<void>>(lock.unlockAsync());
  lock.lockAsync().get();
  is<bool>(lock.isLockedAsync().wait().has_value());
  is<std::future<int>>(lock.getHoldCountAsync().toFuture());
  lock.unlockAsync(newOwner()).start([](Result<void> result) { is<bool>(result.has_value()); });

  Lease lease = lock.acquire({.lease = 1s,
                              .maxHold = 2s,
                              .stop = stop,
                              .label = "label",
                              .sync = SyncPolicy::replicas(1)});
  is<std::optional<Lease>>(lock.tryAcquire());
  is<bool>(lease.held());
  is<std::chrono::steady_clock::time_point>(lease.validUntil());
  is<std::stop_token>(lease.lostToken());
  is<LossReason>(lease.lossReason());
  is<std::optional<std::uint64_t>>(lease.token());
  is<int>(lease.acknowledged());
  is<ReleaseResult>(lease.release());

  Mutex mutex(lock);
  SharedMutex shared(client.getReadWriteLock("a"));
  const std::scoped_lock both(mutex, shared);
  const std::shared_lock reading(shared);
}

void fenced(Client& client) {
  FencedLock lock = client.getFencedLock("a");
  is<std::uint64_t>(lock.lockAndGetToken());
  is<std::uint64_t>(lock.lockAndGetToken(1s));
  is<std::optional<std::uint64_t>>(lock.tryLockAndGetToken());
  is<std::optional<std::uint64_t>>(lock.tryLockAndGetToken(1s));
  is<std::optional<std::uint64_t>>(lock.tryLockAndGetToken(1s, 1s));
  is<std::uint64_t>(lock.getToken());
  is<Operation<std::uint64_t>>(lock.getTokenAsync());
  is<RLock>(lock);
}

void semaphores(Client& client, std::stop_token stop) {
  Semaphore semaphore = client.getSemaphore("a");
  semaphore.acquire();
  semaphore.acquire(2);
  semaphore.acquire(stop);
  semaphore.acquire(stop, 2);
  is<bool>(semaphore.tryAcquire());
  is<bool>(semaphore.tryAcquire(2));
  is<bool>(semaphore.tryAcquire(2, 1s));
  semaphore.release();
  semaphore.release(2);
  is<bool>(semaphore.releaseIfExists());
  is<int>(semaphore.availablePermits());
  is<int>(semaphore.drainPermits());
  semaphore.addPermits(-1);
  is<bool>(semaphore.trySetPermits(1));
  is<bool>(semaphore.trySetPermits(1, 1s));
  is<bool>(semaphore.remove());
  is<Operation<int>>(semaphore.drainPermitsAsync());

  PermitExpirableSemaphore permits = client.getPermitExpirableSemaphore("a");
  const std::string id = permits.acquire();
  is<std::string>(permits.acquire(1s));
  const std::vector<std::string> ids = permits.acquireMany(2);
  is<std::vector<std::string>>(permits.acquireMany(2, 1s));
  is<std::optional<std::string>>(permits.tryAcquire());
  is<std::optional<std::string>>(permits.tryAcquire(1s));
  is<std::optional<std::string>>(permits.tryAcquire(1s, 1s));
  is<std::vector<std::string>>(permits.tryAcquireMany(2));
  is<std::vector<std::string>>(permits.tryAcquireMany(2, 1s, 1s));
  permits.release(id);
  permits.release(std::span<const std::string>(ids));
  is<bool>(permits.tryRelease(id));
  is<int>(permits.tryRelease(std::span<const std::string>(ids)));
  is<int>(permits.availablePermits());
  is<int>(permits.getPermits());
  is<int>(permits.acquiredPermits());
  is<bool>(permits.trySetPermits(1));
  permits.setPermits(1);
  permits.addPermits(-1);
  is<bool>(permits.remove());
  is<bool>(permits.updateLeaseTime(id, 1s));
  is<bool>(permits.updateLeaseTime(id, {}));
  is<Milliseconds>(permits.getLeaseTime(id));
  Permit permit = permits.hold();
  is<std::optional<Permit>>(permits.tryHold({.wait = 1s}));
  is<std::string>(permit.id());
  Lease& lease = permit;
  is<bool>(lease.held());
}

void latches(Client& client, std::stop_token stop) {
  CountDownLatch latch = client.getCountDownLatch("a");
  latch.await();
  is<bool>(latch.await(1s));
  is<bool>(latch.await(stop, 1s));
  latch.countDown();
  is<std::int64_t>(latch.getCount());
  is<bool>(latch.trySetCount(3));
  is<bool>(latch.remove());
  is<Operation<bool>>(latch.awaitAsync(1s));
}

void inspection(Client& client) {
  is<std::optional<LockInfo>>(client.inspect("a"));
  is<std::vector<LockInfo>>(client.list("*"));
}

TEST(PublicNames, Compile) {
  EXPECT_NE(&connected, nullptr);
  EXPECT_NE(&locks, nullptr);
  EXPECT_NE(&fenced, nullptr);
  EXPECT_NE(&semaphores, nullptr);
  EXPECT_NE(&latches, nullptr);
  EXPECT_NE(&inspection, nullptr);
  constexpr Errc kAll[] = {Errc::notOwner,
                           Errc::reentry,
                           Errc::timedOut,
                           Errc::cancelled,
                           Errc::closed,
                           Errc::connectionFailed,
                           Errc::denied,
                           Errc::wrongType,
                           Errc::authenticationFailed,
                           Errc::outOfMemory,
                           Errc::readOnly,
                           Errc::notSynced,
                           Errc::noQuorum,
                           Errc::invalidArgument,
                           Errc::wouldDeadlock,
                           Errc::forked,
                           Errc::serverError,
                           Errc::protocolError,
                           Errc::overloaded};
  EXPECT_EQ(std::size(kAll), 19U);
}

}  // namespace
}  // namespace rlock
