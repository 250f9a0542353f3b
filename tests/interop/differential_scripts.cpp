// SPDX-License-Identifier: Apache-2.0
#include "interop/differential_scripts.hpp"

namespace rlock::test::interop {

const std::vector<Difference>& differences() {
  static const std::vector<Difference> all = {
      {"reentry-never-shortens",
       "Re-entry keeps the longer of what is left and the new lease; Redisson sets the new lease, "
       "however short."},
      {"partial-unlock-keeps-lease",
       "A partial unlock leaves the lifetime of a hold with a lease alone; Redisson sets the "
       "lease of the lock object used, often the watchdog's."},
      {"holder-is-told",
       "A forced release also publishes on a channel of the holder's client that only rlock "
       "listens to."},
      {"spin-publishes",
       "Releases of a spin lock are published, so that waiters of a plain lock of that name wake."},
      {"nested-hold-keeps-token",
       "A nested hold of a fenced lock keeps the token of the first; Redisson draws another."},
      {"fair-places-are-short",
       "A fair waiter's place lasts for fairWaiterLease and is refreshed; Redisson adds up five "
       "minutes for each place."},
      {"fair-queue-ends",
       "The queue of a fair lock has an expiry while rlock waits in it, so that nothing stays "
       "behind."},
      {"fair-waiter-knows-the-lease",
       "An acquisition wakes the next waiter if that is Redisson's, so that it does not sleep "
       "until "
       "the lease before would have ended."},
      {"writers-say-that-they-wait",
       "A writer that gives up wakes the readers that it has held back."},
      {"refused-unlock-is-silent",
       "Unlocking a read-write lock that nobody holds publishes nothing."},
      {"write-reentry-not-additive",
       "Re-entry of a write hold keeps the longer lease; Redisson adds it to what is left."},
      {"downgrade-publishes",
       "A writer that goes on reading lets readers in at once, and the lock lasts as long as its "
       "read holds; Redisson publishes nothing and leaves the lifetime alone."},
      {"read-unlock-keeps-write",
       "Releasing a read hold inside a write hold does not shorten the write hold."},
      {"read-unlock-looks-no-further",
       "Releasing a read hold that is not the last to expire leaves the lock's lifetime alone, so "
       "that it costs the same beside any number of readers; Redisson looks at all of them."},
      {"readers-are-all-woken",
       "The end of the last read hold, where it is forced or a writer of rlock waits, is announced "
       "as one that readers, too, may use."},
      {"force-deletes-holds",
       "A forced release deletes the keys of the read holds; Redisson leaves them to expire."},
      {"multi-sorts-members",
       "A multi-lock takes its members in one order for all; Redisson in the order given, so that "
       "two may wait for each other."},
      {"red-unlock-needs-a-hold",
       "Unlocking a RedLock of which the owner holds no member fails; Redisson says nothing."},
      {"red-gives-minority-back",
       "A RedLock that waits gives back the few members that it got and tries again after a pause; "
       "Redisson keeps them while it waits for the next."},
      {"only-free-permits-are-announced",
       "A number of permits below 1 is not announced: Redisson's readers cannot take it."},
      {"permits-announce-what-is-free",
       "The number announced is that of the free permits, if there are any."},
      {"removed-latch-is-open", "A latch that is removed announces the zero that it now has."},
  };
  return all;
}

namespace {

Script plainScript() {
  return {"plain",
          {
              // One owner, one hold.
              "A isLocked plain x",
              "A ttl plain x",
              "A lock plain x 20000",
              "A isLocked plain x",
              "A isHeld plain x",
              "A holdCount plain x",
              "A ttl plain x",
              "B isLocked plain x",
              "B isHeld plain x",
              "B holdCount plain x",
              "B tryLock plain x 0 -1",
              "B tryLock plain x 0 3000",
              "B tryLock plain x 60 -1",
              "B unlock plain x",
              "A unlock plain x",
              "A unlock plain x",
              "A holdCount plain x",
              // Re-entry.
              "A lock plain x 20000",
              "A lock plain x 40000",
              "A holdCount plain x",
              "B tryLock plain x 0 -1",
              "A lock plain x 5000 ~ttl=reentry-never-shortens:x=40000",
              "A tryLock plain x 0 50000",
              "A unlock plain x ~ttl=partial-unlock-keeps-lease:x=50000",
              "B unlock plain x",
              "A unlock plain x",
              "A unlock plain x",
              "A holdCount plain x",
              "A unlock plain x",
              "A unlock plain x",
              // The watchdog's lease.
              "A lock plain x -1",
              "A lock plain x -1",
              "A unlock plain x",
              "A tryLock plain x 0 -1",
              "A unlock plain x",
              "A unlock plain x",
              "B tryLock plain x 0 -1",
              "B lock plain x 70000",
              "B unlock plain x ~ttl=partial-unlock-keeps-lease:x=70000",
              "B unlock plain x",
              // Force.
              "A forceUnlock plain x",
              "A lock plain x -1",
              "A lock plain x -1",
              "B forceUnlock plain x ~message=holder-is-told:+rlock_client:$A:x",
              "A isHeld plain x",
              "A unlock plain x",
              "B forceUnlock plain x",
              "A lock plain x 10000",
              "A forceUnlock plain x ~message=holder-is-told:+rlock_client:$A:x",
              // From hand to hand.
              "A lock plain x -1",
              "B& lock plain x 30000",
              "A> unlock plain x",
              "B. -",
              "A& tryLock plain x 20000 15000",
              "B> unlock plain x",
              "A. -",
              "A unlock plain x",
              // The lease ends.
              "A lock plain x 1500",
              "- pause 1600",
              "A isLocked plain x",
              "A unlock plain x",
              "B lock plain x 1500",
              "A& lock plain x -1",
              "A. -",
              "B unlock plain x",
              "A unlock plain x",
              // Names.
              "A lock plain a{tag}b 9000",
              "A lock plain {tag} 9000",
              "B forceUnlock plain {tag} ~message=holder-is-told:+rlock_client:$A:{tag}",
              "A unlock plain a{tag}b",
              "A lock plain größe:€ 9000",
              "A unlock plain größe:€",
          }};
}

Script spinScript() {
  return {"spin",
          {
              "A lock spin x 20000",
              "A holdCount spin x",
              "B tryLock spin x 0 -1",
              "B tryLock plain x 0 -1",
              "B tryLock spin x 40 -1",
              "A lock spin x 30000",
              "A isLocked spin x",
              "B unlock spin x",
              "A unlock spin x ~ttl=partial-unlock-keeps-lease:x=30000",
              "A unlock spin x ~message=spin-publishes:+redisson_lock__channel:{x}:0",
              "A unlock spin x",
              "A lock spin x -1",
              "B& lock spin x -1",
              "A> unlock spin x",
              "B. - ~message@A=spin-publishes:+redisson_lock__channel:{x}:0",
              "A tryLock plain x 0 -1",
              "B forceUnlock spin x ~message=spin-publishes:+redisson_lock__channel:{x}:0 "
              "~message=holder-is-told:+rlock_client:$B:x",
              "B unlock spin x",
              "A lock plain x 9000",
              "A tryLock spin x 0 9000",
              "A unlock plain x ~ttl=partial-unlock-keeps-lease:x=9000",
              "A unlock spin x ~message=spin-publishes:+redisson_lock__channel:{x}:0",
          }};
}

Script fencedScript() {
  return {"fenced",
          {
              "A lock fenced x 20000",
              "A holdCount fenced x",
              "B tryLock fenced x 0 -1",
              "B unlock fenced x",
              "A unlock fenced x",
              "A unlock fenced x",
              "A lockToken fenced x",
              "A token fenced x",
              "B tryLockToken fenced x 40 -1",
              "A unlock fenced x",
              "B tryLockToken fenced x 50 20000",
              "B token fenced x",
              "B ttl fenced x",
              "A tryLock fenced x 0 -1",
              "B unlock fenced x",
              "A lock fenced x -1",
              "B forceUnlock fenced x ~message=holder-is-told:+rlock_client:$A:x",
              "A unlock fenced x",
              "B lockToken fenced x",
              "A& lockToken fenced x",
              "B> unlock fenced x",
              "A. -",
              "A unlock fenced x",
              "A lock fenced x 1500",
              "- pause 1600",
              "A unlock fenced x",
              "B lockToken fenced x",
              "B lockToken fenced x ~answer=nested-hold-keeps-token:8 "
              "~content=nested-hold-keeps-token:redisson_lock_token:{x}=8",
              "B unlock fenced x",
              "B unlock fenced x",
              "A lockToken fenced x ~answer@B=nested-hold-keeps-token:9 "
              "~content@B=nested-hold-keeps-token:redisson_lock_token:{x}=9",
              "A unlock fenced x",
          }};
}

Script nonReentrantScript() {
  return {"nonreentrant",
          {
              "A lock nonreentrant x 20000",
              "A holdCount nonreentrant x",
              "A isHeld nonreentrant x",
              "A lock nonreentrant x 40000",
              "A tryLock nonreentrant x 0 -1",
              "A tryLock nonreentrant x 50 -1",
              "B tryLock nonreentrant x 0 -1",
              "B tryLock plain x 0 -1",
              "B unlock nonreentrant x",
              "A unlock nonreentrant x",
              "A unlock nonreentrant x",
              "B lock nonreentrant x -1",
              "A& lock nonreentrant x -1",
              "B> unlock nonreentrant x",
              "A. -",
              "B forceUnlock nonreentrant x ~message=holder-is-told:+rlock_client:$A:x",
              "A unlock nonreentrant x",
          }};
}

Script fairScript() {
  return {
      "fair",
      {
          // Nobody waits: as the plain lock.
          "A lock fair x 20000",
          "A lock fair x 40000",
          "A holdCount fair x",
          "B tryLock fair x 0 -1",
          "B isLocked fair x",
          "B unlock fair x",
          "A unlock fair x ~ttl=partial-unlock-keeps-lease:x=40000",
          "A unlock fair x",
          "A lock fair x -1",
          "A unlock fair x",
          "A tryLock fair x 0 15000",
          "A unlock fair x",
          // One waits and gives up.
          "A lock fair x 20000",
          "B tryLock fair x 300 -1",
          "B tryLock fair x 0 -1",
          // Two wait; the order is the server's.
          "B& lock fair x 25000 "
          "~ttl=fair-queue-ends:redisson_lock_queue:{x}=604000 "
          "~ttl=fair-queue-ends:redisson_lock_timeout:{x}=604000 "
          "~score=fair-places-are-short:redisson_lock_timeout:{x}:B=4000",
          "C& lock fair x 26000 "
          "~score@BC=fair-places-are-short:redisson_lock_timeout:{x}:C=4000 "
          "~score@Bc=fair-places-are-short:redisson_lock_timeout:{x}:C=:B+300000 "
          "~score@bC=fair-places-are-short:redisson_lock_timeout:{x}:C=304000 "
          "~ttl@bC=fair-queue-ends:redisson_lock_queue:{x}=redisson_lock_timeout:{x}:B+86400000 "
          "~ttl@bC=fair-queue-ends:redisson_lock_timeout:{x}=redisson_lock_timeout:{x}:B+86400000",
          "A> unlock fair x",
          "B. - ~score@bC=fair-places-are-short:redisson_lock_timeout:{x}:C=:C-300000 "
          "~message@Bc=fair-waiter-knows-the-lease:+redisson_lock__channel:{x}:C:0",
          "A tryLock fair x 0 -1",
          "B> unlock fair x",
          "C. -",
          "C unlock fair x",
          // Force.
          "A lock fair x -1",
          "B forceUnlock fair x ~message=holder-is-told:+rlock_client:$A:x",
          "B forceUnlock fair x",
          "A lock fair x -1",
          "B& lock fair x 30000 "
          "~ttl=fair-queue-ends:redisson_lock_queue:{x}=604000 "
          "~ttl=fair-queue-ends:redisson_lock_timeout:{x}=604000 "
          "~score=fair-places-are-short:redisson_lock_timeout:{x}:B=4000",
          "C> forceUnlock fair x",
          "B. - ~message@C=holder-is-told:+rlock_client:$A:x",
          "A unlock fair x",
          "B unlock fair x",
      }};
}

Script nonReentrantFairScript() {
  return {
      "nonreentrantfair",
      {
          "A lock nonreentrantfair x 20000",
          "A lock nonreentrantfair x 40000",
          "A tryLock nonreentrantfair x 0 -1",
          "A tryLock nonreentrantfair x 50 -1",
          "A holdCount nonreentrantfair x",
          "B tryLock nonreentrantfair x 0 -1",
          "B tryLock nonreentrantfair x 300 -1",
          "B unlock nonreentrantfair x",
          "B& lock nonreentrantfair x 25000 "
          "~ttl=fair-queue-ends:redisson_lock_queue:{x}=604000 "
          "~ttl=fair-queue-ends:redisson_lock_timeout:{x}=604000 "
          "~score=fair-places-are-short:redisson_lock_timeout:{x}:B=4000",
          "C& lock nonreentrantfair x 26000 "
          "~score@BC=fair-places-are-short:redisson_lock_timeout:{x}:C=4000 "
          "~score@Bc=fair-places-are-short:redisson_lock_timeout:{x}:C=:B+300000 "
          "~score@bC=fair-places-are-short:redisson_lock_timeout:{x}:C=304000 "
          "~ttl@bC=fair-queue-ends:redisson_lock_queue:{x}=redisson_lock_timeout:{x}:B+86400000 "
          "~ttl@bC=fair-queue-ends:redisson_lock_timeout:{x}=redisson_lock_timeout:{x}:B+86400000",
          "A> unlock nonreentrantfair x",
          "B. - ~score@bC=fair-places-are-short:redisson_lock_timeout:{x}:C=:C-300000 "
          "~message@Bc=fair-waiter-knows-the-lease:+redisson_lock__channel:{x}:C:0",
          "A tryLock nonreentrantfair x 0 -1",
          "B> unlock nonreentrantfair x",
          "C. -",
          "A forceUnlock nonreentrantfair x ~message=holder-is-told:+rlock_client:$C:x",
          "C unlock plain x",
          "B lock nonreentrantfair x -1",
          "B isHeld nonreentrantfair x",
          "B unlock nonreentrantfair x",
      }};
}

Script readWriteScript() {
  return {"read-write",
          {
              // Readers.
              "A isLocked read x",
              "A isLocked write x",
              "A lock read x 20000",
              "A isLocked read x",
              "A isLocked write x",
              "A holdCount read x",
              "B lock read x 30000",
              "B isHeld read x",
              "A lock read x 10000",
              "A holdCount read x",
              "C tryLock write x 0 -1",
              "C tryLock write x 40 -1 ~message=writers-say-that-they-wait:+redisson_rwlock:{x}:1",
              "C unlock read x",
              "C unlock write x",
              "A unlock read x",
              "B unlock read x",
              "A unlock read x",
              "A unlock read x ~message=refused-unlock-is-silent:-redisson_rwlock:{x}:0",
              "A tryLock read x 0 -1",
              "B tryLock read x 0 -1",
              "A unlock read x",
              "B unlock read x",
              // A writer.
              "A lock write x 20000",
              "A isLocked read x",
              "A isLocked write x",
              "A isHeld write x",
              "A holdCount write x",
              "B tryLock read x 0 -1",
              "B tryLock write x 0 -1",
              "B unlock write x",
              "A lock write x 30000 ~ttl=write-reentry-not-additive:x=30000",
              "A holdCount write x",
              "A unlock write x ~ttl=partial-unlock-keeps-lease:x=30000",
              "A unlock write x",
              "A unlock write x ~message=refused-unlock-is-silent:-redisson_rwlock:{x}:1",
              // A writer that reads as well, and goes on reading.
              "A lock write x 40000",
              "A lock read x 30000",
              "A isLocked read x",
              "A holdCount read x",
              "B tryLock read x 0 -1",
              "A unlock write x ~message=downgrade-publishes:+redisson_rwlock:{x}:1 "
              "~ttl=downgrade-publishes:x={x}:A:rwlock_timeout:1+0",
              "B tryLock read x 0 20000",
              "B unlock read x ~ttl@aB=read-unlock-looks-no-further:x=40000",
              "A unlock read x",
              // Readings inside a write hold.
              "A lock write x 40000",
              "A lock read x 5000",
              "A lock read x 50000",
              "A unlock read x ~ttl=read-unlock-keeps-write:x=50000",
              "A unlock read x",
              "A unlock write x",
              // Force.
              "A lock read x 20000",
              "B forceUnlock write x",
              "B forceUnlock read x ~message=readers-are-all-woken:+redisson_rwlock:{x}:1 "
              "~message=readers-are-all-woken:-redisson_rwlock:{x}:0 "
              "~message=holder-is-told:+rlock_client:$A:x "
              "~key=force-deletes-holds:-{x}:A:rwlock_timeout:1",
              "A unlock read x ~message=refused-unlock-is-silent:-redisson_rwlock:{x}:0",
              "A lock write x 20000",
              "B forceUnlock read x",
              "B forceUnlock write x ~message=holder-is-told:+rlock_client:$A:x",
              "A unlock write x ~message=refused-unlock-is-silent:-redisson_rwlock:{x}:1",
              // From hand to hand.
              "A lock write x -1",
              "B& lock read x 20000",
              "A> unlock write x",
              "B. -",
              "A& lock write x 15000",
              "B> unlock read x",
              "A. - ~message@AB=readers-are-all-woken:+redisson_rwlock:{x}:1 "
              "~message@AB=readers-are-all-woken:-redisson_rwlock:{x}:0",
              "A unlock write x",
              // Leases end.
              "A lock read x 1500",
              "B lock read x 20000",
              "- pause 1600",
              "B unlock read x",
              "B tryLock write x 0 10000",
              "B unlock write x",
              "A lock write x 1500",
              "- pause 1600",
              "A unlock write x ~message=refused-unlock-is-silent:-redisson_rwlock:{x}:1",
          }};
}

Script multiScript() {
  return {"multi",
          {
              "A lock multi x,y,z -1",
              "A isHeld multi x,y,z",
              "B tryLock multi x,y,z 0 -1",
              "B tryLock multi z,w 0 -1 ~message=multi-sorts-members:+redisson_lock__channel:{w}:0",
              "B isLocked plain w",
              "A unlock multi x,y,z",
              "A unlock multi x,y,z",
              "B tryLock multi x,y 3000 20000",
              "A tryLock multi y,z 100 20000",
              "B unlock multi x,y",
              "A lock plain y -1",
              "B& lock multi x,y -1",
              "A> unlock plain y",
              "B. -",
              "B lock plain x -1",
              "B unlock multi x,y",
              "B unlock plain x",
          }};
}

Script redScript() {
  return {
      "red",
      {
          "A lock red x,y,z -1",
          "A isHeld red x,y,z",
          "B tryLock red x,y,z 0 -1",
          "B tryLock red z,w,v 0 20000",
          "B unlock red z,w,v",
          "A unlock red x,y,z",
          "A unlock red x,y,z ~answer=red-unlock-needs-a-hold:notOwner",
          "B tryLock red x,y,z 1500 20000",
          "A tryLock red x,y,z 100 20000",
          "B unlock red x,y,z",
          // A majority is enough.
          "C lock plain y -1",
          "B tryLock red x,y,z 1500 20000",
          "A tryLock red x,y,z 0 20000",
          "B unlock red x,y,z",
          "C unlock plain y",
          // From hand to hand.
          "A lock plain x -1",
          "A lock plain y -1",
          "B& lock red x,y,z -1 ~message=red-gives-minority-back:++redisson_lock__channel:{z}:0 "
          "~key=red-gives-minority-back:?z",
          "A> unlock plain y",
          "B. - ~message=red-gives-minority-back:?redisson_lock__channel:{z}:0",
          "B unlock red x,y,z",
          "A unlock plain x",
      }};
}

Script semaphoreScript() {
  return {"semaphore",
          {
              "A available semaphore x",
              "A tryAcquire semaphore x 1 0",
              "A releaseIfExists semaphore x 1",
              "A drain semaphore x",
              "A trySet semaphore x 5",
              "B trySet semaphore x 7",
              "B available semaphore x",
              "A acquire semaphore x 2",
              "B acquire semaphore x 3",
              "A tryAcquire semaphore x 1 0",
              "A tryAcquire semaphore x 1 40",
              "B release semaphore x 2",
              "A tryAcquire semaphore x 3 0",
              "A tryAcquire semaphore x 2 0",
              "A release semaphore x 1",
              "A releaseIfExists semaphore x 2",
              "B drain semaphore x",
              "B drain semaphore x",
              "A add semaphore x 4",
              "B add semaphore x -2",
              "A available semaphore x",
              "A& acquire semaphore x 3",
              "B> release semaphore x 1",
              "A. -",
              "A tryAcquire semaphore x 0 0",
              "A add semaphore x -2 ~message=only-free-permits-are-announced:-redisson_sc:{x}:-2",
              "B tryAcquire semaphore x 1 0",
              "B release semaphore x 3",
              "A remove semaphore x",
              "A remove semaphore x",
              "B release semaphore x 2",
              "A available semaphore x",
          }};
}

Script permitsScript() {
  return {"permits",
          {
              "A available permits x",
              "A tryAcquire permits x 0 -1",
              "A trySet permits x 3",
              "B trySet permits x 5",
              "A available permits x",
              "A total permits x",
              "one=A acquire permits x -1",
              "two=B acquire permits x 20000",
              "three=A tryAcquire permits x 0 30000",
              "A tryAcquire permits x 0 -1",
              "A tryAcquire permits x 40 -1",
              "B acquired permits x",
              "B total permits x",
              "B available permits x",
              "B leaseTime permits x $one",
              "A leaseTime permits x $two",
              "A updateLease permits x $two 40000",
              "B release permits x $three",
              "B release permits x $three",
              "B tryRelease permits x $three",
              "A tryRelease permits x $two",
              "A updateLease permits x $two 1000",
              "A add permits x 2 ~message=permits-announce-what-is-free:+redisson_sc:{x}:4 "
              "~message=permits-announce-what-is-free:-redisson_sc:{x}:2",
              "B add permits x -1",
              "A total permits x",
              "A set permits x 6 ~message=permits-announce-what-is-free:+redisson_sc:{x}:5 "
              "~message=permits-announce-what-is-free:-redisson_sc:{x}:6",
              "B available permits x",
              "A set permits x 2 ~message=permits-announce-what-is-free:-redisson_sc:{x}:2",
              "B available permits x",
              "four=A tryAcquire permits x 0 1500",
              "- pause 1600",
              "A available permits x",
              "B release permits x $four",
              "five=B acquire permits x -1",
              "B release permits x $one",
              "A remove permits x",
              "A remove permits x",
          }};
}

Script latchScript() {
  return {"latch",
          {
              "A count latch x",
              "A await latch x 0",
              "A countDown latch x",
              "A trySet latch x 2",
              "B trySet latch x 3",
              "B count latch x",
              "B await latch x 40",
              "A& await latch x -1",
              "B countDown latch x",
              "B countDown latch x",
              "A. -",
              "A count latch x",
              "B countDown latch x",
              "A trySet latch x 1",
              "B& await latch x 20000",
              "A countDown latch x",
              "B. -",
              "A trySet latch x 4",
              "B remove latch x "
              "~message=removed-latch-is-open:+redisson_countdownlatch__channel__{x}:0 "
              "~message=removed-latch-is-open:-redisson_countdownlatch__channel__{x}:1",
              "B remove latch x",
              "A count latch x",
          }};
}

}  // namespace

const std::vector<Script>& scripts() {
  static const std::vector<Script> all = {plainScript(),
                                          spinScript(),
                                          fencedScript(),
                                          nonReentrantScript(),
                                          fairScript(),
                                          nonReentrantFairScript(),
                                          readWriteScript(),
                                          multiScript(),
                                          redScript(),
                                          semaphoreScript(),
                                          permitsScript(),
                                          latchScript()};
  return all;
}

}  // namespace rlock::test::interop
