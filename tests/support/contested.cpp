// SPDX-License-Identifier: Apache-2.0
#include "support/contested.hpp"

#include "support/eventually.hpp"
#include "support/host_report.hpp"
#include "support/threads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace rlock::test {

namespace {

using Hold = ContestedKind::Hold;
using Names = ContestedKind::Names;
using Leave = std::function<void()>;

Hold leased(std::shared_ptr<Lease> lease) {
  Hold hold;
  hold.held = [lease] { return lease->held(); };
  hold.giveBack = [lease] { return lease->release() == ReleaseResult::released; };
  hold.lease = std::move(lease);
  return hold;
}

Hold holdOf(RLock lock, AcquireOptions options = {}) {
  return leased(std::make_shared<Lease>(lock.acquire(std::move(options))));
}

Leave enter(RLock lock) {
  lock.lock();
  return [lock]() mutable { lock.unlock(); };
}

std::vector<RLock> locksOf(Client& client, const Names& names) {
  std::vector<RLock> locks;
  for (const std::string& name : names) {
    locks.push_back(client.getLock(name));
  }
  return locks;
}

constexpr std::chrono::seconds kLongLease{300};

constexpr ContestedKind kKinds[] = {
    {"plain",
     1,
     true,
     true,
     [](Client& client, const Names& names) { return holdOf(client.getLock(names[0])); },
     [](Client& client, const Names& names) { return enter(client.getLock(names[0])); }},
    {"leased",
     1,
     false,
     true,
     [](Client& client, const Names& names) {
       return holdOf(client.getLock(names[0]), {.lease = kLongLease});
     },
     [](Client& client, const Names& names) { return enter(client.getLock(names[0])); }},
    {"fair",
     1,
     true,
     true,
     [](Client& client, const Names& names) { return holdOf(client.getFairLock(names[0])); },
     [](Client& client, const Names& names) { return enter(client.getFairLock(names[0])); }},
    {"nonReentrant",
     1,
     true,
     true,
     [](Client& client, const Names& names) {
       return holdOf(client.getNonReentrantLock(names[0]));
     },
     [](Client& client, const Names& names) {
       return enter(client.getNonReentrantLock(names[0]));
     }},
    {"nonReentrantFair",
     1,
     true,
     true,
     [](Client& client, const Names& names) {
       return holdOf(client.getNonReentrantFairLock(names[0]));
     },
     [](Client& client, const Names& names) {
       return enter(client.getNonReentrantFairLock(names[0]));
     }},
    {"fenced",
     1,
     true,
     true,
     [](Client& client, const Names& names) { return holdOf(client.getFencedLock(names[0])); },
     [](Client& client, const Names& names) { return enter(client.getFencedLock(names[0])); }},
    {"simple",
     1,
     true,
     true,
     [](Client& client, const Names& names) { return holdOf(client.getSimpleLock(names[0])); },
     [](Client& client, const Names& names) { return enter(client.getSimpleLock(names[0])); }},
    {"spin",
     1,
     true,
     true,
     [](Client& client, const Names& names) { return holdOf(client.getSpinLock(names[0])); },
     [](Client& client, const Names& names) { return enter(client.getSpinLock(names[0])); }},
    {"write",
     1,
     true,
     true,
     [](Client& client, const Names& names) {
       return holdOf(client.getReadWriteLock(names[0]).writeLock());
     },
     [](Client& client, const Names& names) {
       return enter(client.getReadWriteLock(names[0]).readLock());
     }},
    {"read",
     1,
     true,
     true,
     [](Client& client, const Names& names) {
       return holdOf(client.getReadWriteLock(names[0]).readLock());
     },
     [](Client& client, const Names& names) {
       return enter(client.getReadWriteLock(names[0]).writeLock());
     }},
    {"semaphore",
     1,
     false,
     true,
     [](Client& client, const Names& names) {
       Semaphore semaphore = client.getSemaphore(names[0]);
       (void)semaphore.trySetPermits(1);
       semaphore.acquire();
       return Hold{nullptr,
                   [semaphore]() mutable { return semaphore.availablePermits() == 0; },
                   [semaphore]() mutable {
                     semaphore.release();
                     return true;
                   }};
     },
     [](Client& client, const Names& names) -> Leave {
       Semaphore semaphore = client.getSemaphore(names[0]);
       semaphore.acquire();
       return [semaphore]() mutable { semaphore.release(); };
     }},
    {"permits",
     1,
     true,
     true,
     [](Client& client, const Names& names) {
       PermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(names[0]);
       (void)semaphore.trySetPermits(1);
       return leased(std::make_shared<Permit>(semaphore.hold()));
     },
     [](Client& client, const Names& names) -> Leave {
       PermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(names[0]);
       const std::string id = semaphore.acquire();
       return [semaphore, id]() mutable { semaphore.release(id); };
     }},
    {"latch",
     1,
     false,
     true,
     [](Client& client, const Names& names) {
       CountDownLatch latch = client.getCountDownLatch(names[0]);
       (void)latch.trySetCount(1);
       return Hold{nullptr,
                   [latch]() mutable { return latch.getCount() == 1; },
                   [latch]() mutable {
                     latch.countDown();
                     return true;
                   }};
     },
     [](Client& client, const Names& names) -> Leave {
       client.getCountDownLatch(names[0]).await();
       return [] {};
     }},
    {"multi",
     2,
     true,
     true,
     [](Client& client, const Names& names) { return holdOf(multiLock(locksOf(client, names))); },
     [](Client& client, const Names& names) { return enter(multiLock(locksOf(client, names))); }},
    {"red",
     3,
     true,
     false,
     [](Client& client, const Names& names) { return holdOf(redLock(locksOf(client, names))); },
     [](Client& client, const Names& names) { return enter(redLock(locksOf(client, names))); }},
};

}  // namespace

std::span<const ContestedKind> contestedKinds() {
  return kKinds;
}

Contested::Contested(const ContestedKind& kind, ContestedKind::Names names, Client& holder)
    : kind_(kind), names_(std::move(names)), hold_(kind.hold(holder, names_)) {
  goIn();
  if (hold_.lease) {
    whenLost_.emplace(hold_.lease->lostToken(), [this] { holderLeaves(); });
  }
}

Contested::~Contested() {
  whenLost_.reset();
  if (other_.valid()) {
    other_.wait();
  }
}

void Contested::goIn() {
  overlaps_ += inside_.fetch_add(1) != 0 ? 1 : 0;
}

void Contested::goOut() {
  inside_.fetch_sub(1);
}

void Contested::holderLeaves() {
  if (holderInside_.exchange(false)) {
    goOut();
  }
}

void Contested::contend(Client& other) {
  other_ = startThread<std::string>([this, &other]() -> std::string {
    try {
      const Leave leave = kind_.enter(other, names_);
      goIn();
      entered_ = true;
      // Anybody else who is inside gets here while this one is.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      goOut();
      leave();
      return "ok";
    } catch (const Error& error) {
      return std::string(rlock::toString(error.errc())) + ": " + error.what();
    }
  });
}

bool Contested::giveBack() {
  holderLeaves();
  return hold_.giveBack();
}

int Contested::overlaps() const {
  if (overlaps_ != 0) {
    noteSafetyCheck();
  }
  return overlaps_;
}

std::string Contested::outcome() {
  return other_.get();
}

std::vector<std::unique_ptr<Contested>> contestedObjects(
    Client& holder,
    const std::function<std::string(const std::string& kind, std::size_t member)>& nameOf) {
  std::vector<std::unique_ptr<Contested>> objects;
  for (const ContestedKind& kind : kKinds) {
    Names names;
    for (std::size_t member = 0; member < kind.members; ++member) {
      names.push_back(nameOf(kind.name, member));
    }
    objects.push_back(std::make_unique<Contested>(kind, std::move(names), holder));
  }
  return objects;
}

bool contendAll(const std::vector<std::unique_ptr<Contested>>& objects, Client& other) {
  std::size_t counted = other.stats().waiters;
  for (const auto& object : objects) {
    object->contend(other);
    counted += object->kind().counted ? 1U : 0U;
  }
  return eventually(std::chrono::seconds(30), [&] { return other.stats().waiters >= counted; });
}

void expectToHandOn(Contested& object) {
  EXPECT_FALSE(object.entered());
  EXPECT_TRUE(object.giveBack());
  const Stopwatch watch;
  EXPECT_EVENTUALLY(std::chrono::seconds(15), object.entered());
  EXPECT_LE(watch.elapsedMs(), scaled(std::chrono::milliseconds(2000)));
}

void expectToEndWell(const std::vector<std::unique_ptr<Contested>>& objects) {
  for (const auto& object : objects) {
    EXPECT_EQ(object->outcome(), "ok") << object->kind().name;
    EXPECT_EQ(object->overlaps(), 0) << object->kind().name;
  }
}

}  // namespace rlock::test
