// SPDX-License-Identifier: Apache-2.0
package rlock.interop;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** The verbs of every kind of object, in the calling thread. */
final class Objects {
  private static final TimeUnit MS = TimeUnit.MILLISECONDS;

  private final RedissonClient client;

  Objects(RedissonClient client) {
    this.client = client;
  }

  Object perform(Command command) throws Exception {
    switch (command.kind) {
      case "semaphore":
        return semaphore(client.getSemaphore(command.name), command);
      case "permits":
        return permits(client.getPermitExpirableSemaphore(command.name), command);
      case "latch":
        return latch(client.getCountDownLatch(command.name), command);
      default:
        return lock(lockOf(command.kind, command.name), command);
    }
  }

  private RLock lockOf(String kind, String name) throws Exception {
    switch (kind) {
      case "plain":
        return client.getLock(name);
      case "fair":
        return client.getFairLock(name);
      case "read":
        return client.getReadWriteLock(name).readLock();
      case "write":
        return client.getReadWriteLock(name).writeLock();
      case "spin":
        return (RLock) Reflection.call(client, "getSpinLock", name);
      case "fenced":
        return (RLock) Reflection.call(client, "getFencedLock", name);
      case "nonreentrant":
        return (RLock) Reflection.call(client, "getNonReentrantLock", name);
      case "nonreentrantfair":
        return (RLock) Reflection.call(client, "getNonReentrantFairLock", name);
      case "multi":
        return client.getMultiLock(members(name));
      case "red":
        return client.getRedLock(members(name));
      default:
        throw new UnsupportedOperationException("no kind " + kind);
    }
  }

  private RLock[] members(String names) {
    String[] each = names.split(",");
    RLock[] locks = new RLock[each.length];
    for (int i = 0; i < each.length; i++) {
      locks[i] = client.getLock(each[i]);
    }
    return locks;
  }

  private Object lock(RLock lock, Command command) throws Exception {
    switch (command.verb) {
      case "lock": {
        long lease = command.number();
        if (lease > 0) {
          lock.lock(lease, MS);
        } else {
          lock.lock();
        }
        return true;
      }
      case "tryLock": {
        long wait = command.number();
        long lease = command.number();
        return wait <= 0 && lease <= 0 ? lock.tryLock() : lock.tryLock(wait, lease, MS);
      }
      case "tryLockAsync": {
        long wait = command.number();
        return lock.tryLockAsync(wait, command.number(), MS).get();
      }
      case "unlock":
        lock.unlock();
        return true;
      case "forceUnlock":
        return lock.forceUnlock();
      case "holdCount":
        return lock.getHoldCount();
      case "isHeld":
        return lock.isHeldByCurrentThread();
      case "isLocked":
        return lock.isLocked();
      case "ttl":
        return lock.remainTimeToLive();
      case "lockToken":
        // Redisson's lockAndGetToken(lease) forgets the lease; the plain form is the same in both.
        return Reflection.call(lock, "lockAndGetToken");
      case "tryLockToken":
        return Reflection.call(lock, "tryLockAndGetToken", command.number(), command.number(), MS);
      case "token":
        return Reflection.call(lock, "getToken");
      case "hammer":
        return Hammer.lock(lock, command);
      default:
        throw unknown(command);
    }
  }

  private Object semaphore(RSemaphore semaphore, Command command) throws Exception {
    switch (command.verb) {
      case "acquire":
        semaphore.acquire(command.count());
        return true;
      case "tryAcquire":
        return semaphore.tryAcquire(command.count(), command.number(), MS);
      case "release":
        semaphore.release(command.count());
        return true;
      case "releaseIfExists":
        return Reflection.call(semaphore, "releaseIfExists", command.count());
      case "available":
        return semaphore.availablePermits();
      case "drain":
        return semaphore.drainPermits();
      case "add":
        semaphore.addPermits(command.count());
        return true;
      case "trySet":
        return semaphore.trySetPermits(command.count());
      case "remove":
        return semaphore.delete();
      case "hammer":
        return Hammer.semaphore(semaphore, command);
      case "churn":
        return Hammer.churn(semaphore, command);
      default:
        throw unknown(command);
    }
  }

  private Object permits(RPermitExpirableSemaphore permits, Command command) throws Exception {
    switch (command.verb) {
      case "acquire": {
        long lease = command.number();
        return lease > 0 ? permits.acquire(lease, MS) : permits.acquire();
      }
      case "tryAcquire":
        return permits.tryAcquire(command.number(), command.number(), MS);
      case "release":
        permits.release(command.text());
        return true;
      case "tryRelease":
        return permits.tryRelease(command.text());
      case "available":
        return permits.availablePermits();
      case "total":
        return Reflection.call(permits, "getPermits");
      case "acquired":
        return Reflection.call(permits, "acquiredPermits");
      case "trySet":
        return permits.trySetPermits(command.count());
      case "set":
        Reflection.call(permits, "setPermits", command.count());
        return true;
      case "add":
        permits.addPermits(command.count());
        return true;
      case "updateLease":
        return permits.updateLeaseTime(command.text(), command.number(), MS);
      case "leaseTime":
        return Reflection.call(permits, "getLeaseTime", command.text());
      case "remove":
        return permits.delete();
      case "hammer":
        return Hammer.permits(permits, command);
      case "churn":
        return Hammer.churn(permits, command);
      default:
        throw unknown(command);
    }
  }

  private Object latch(RCountDownLatch latch, Command command) throws Exception {
    switch (command.verb) {
      case "trySet":
        return latch.trySetCount(command.number());
      case "countDown":
        latch.countDown();
        return true;
      case "count":
        return latch.getCount();
      case "await": {
        long wait = command.number();
        if (wait < 0) {
          latch.await();
          return true;
        }
        return latch.await(wait, MS);
      }
      case "remove":
        return latch.delete();
      case "churn":
        return Hammer.churn(latch, command);
      default:
        throw unknown(command);
    }
  }

  private static UnsupportedOperationException unknown(Command command) {
    return new UnsupportedOperationException("no " + command.verb + " of kind " + command.kind);
  }
}
