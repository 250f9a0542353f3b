// SPDX-License-Identifier: Apache-2.0

// Owners, and the ends of threads. Each thread that asks for its owner is registered once, by
// introduceThisThread() on that thread; EndOfThread takes it out when the thread ends and then
// tells the listeners, on the ending thread. Invariants: an owner number is never used twice in a
// process; a thread is in livingThreads exactly from its first currentOwner() in this process until
// its end; no listener is called with a mutex held. Nothing here is destroyed, because threads may
// end after static objects.

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/base/thread_owner.hpp>
#include <rlock/owner.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace rlock {

namespace {

using ThreadEndListeners = std::vector<std::weak_ptr<detail::ThreadEndListener>>;

/// The listeners. The list is replaced and never changed, so that a thread that ends can keep and
/// walk it without allocating memory.
struct Listeners {
  detail::AnnotatedMutex mutex;
  std::shared_ptr<const ThreadEndListeners> all RLOCK_GUARDED_BY(mutex);
};

constinit detail::PerProcess<Listeners> listeners;

/// A thread that has an owner. The object is in the thread's own storage.
struct LivingThread {
  std::uint64_t owner = 0;
  std::uint32_t generation = 0;  // forkGeneration() where it is registered, plus 1; 0: nowhere
  bool ended = false;
  LivingThread* next = nullptr;
  LivingThread** link = nullptr;
};

/// The threads that have asked for their owner and have not ended.
///
/// add() and remove() are called by the thread itself, has() by threads that book a hold of
/// another's owner. Invariants: a thread's node is in its own storage, so it is taken out before
/// that ends; the list never allocates, so that a thread can always end. Guarantee: an owner that
/// others have been told of is found until its thread ends, and not after that.
struct LivingThreads {
  static constexpr std::size_t kBuckets = 256;

  detail::AnnotatedMutex mutex;
  std::array<LivingThread*, kBuckets> buckets RLOCK_GUARDED_BY(mutex){};

  [[nodiscard]] LivingThread*& bucketOf(std::uint64_t owner) noexcept RLOCK_REQUIRES(mutex) {
    return buckets[owner / 2 % kBuckets];
  }
  void add(LivingThread& thread) noexcept {
    const detail::MutexLock lock(mutex);
    LivingThread*& first = bucketOf(thread.owner);
    thread.next = first;
    thread.link = &first;
    if (first != nullptr) {
      first->link = &thread.next;
    }
    first = &thread;
  }
  void remove(LivingThread& thread) noexcept {
    const detail::MutexLock lock(mutex);
    *thread.link = thread.next;
    if (thread.next != nullptr) {
      thread.next->link = thread.link;
    }
  }
  [[nodiscard]] bool has(std::uint64_t owner) noexcept {
    const detail::MutexLock lock(mutex);
    for (const LivingThread* thread = bucketOf(owner); thread != nullptr; thread = thread->next) {
      if (thread->owner == owner) {
        return true;
      }
    }
    return false;
  }
};

constinit detail::PerProcess<LivingThreads> livingThreads;

// Trivially destructible: destructors of static objects ask for the owner when the objects of the
// main thread are gone already.
constinit thread_local LivingThread thisThread;

/// Its destructor runs when the thread ends.
class EndOfThread {
 public:
  EndOfThread() = default;
  EndOfThread(const EndOfThread&) = delete;
  EndOfThread& operator=(const EndOfThread&) = delete;
  ~EndOfThread() {
    thisThread.ended = true;
    // A thread that was registered in the parent only, before fork(), has nothing to end here.
    if (thisThread.generation != detail::forkGeneration() + 1) {
      return;
    }
    std::shared_ptr<const ThreadEndListeners> all;
    try {
      livingThreads.get().remove(thisThread);
      Listeners& known = listeners.get();
      const detail::MutexLock lock(known.mutex);
      all = known.all;
    } catch (...) {
      // There is no memory for the first list of this process, so no listener is in it.
    }
    if (!all) {
      return;
    }
    for (const auto& weak : *all) {
      if (const auto listener = weak.lock()) {
        listener->threadEnded(OwnerId{thisThread.owner});
      }
    }
  }
};

// The owners of threads have even numbers, so that other owners need not be looked up.

std::uint64_t nextNumber() noexcept {
  static std::atomic<std::uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// Registers the calling thread: a new one, or the one whose copy lives on in a forked child.
void introduceThisThread(std::uint32_t generation) noexcept {
  if (thisThread.owner == 0) {
    thisThread.owner = 2 * nextNumber();
  }
  if (thisThread.ended) {
    return;
  }
  try {
    LivingThreads& living = livingThreads.get();
    // This object exists for its destructor.
    thread_local const EndOfThread atEnd;  // NOLINT(clang-diagnostic-exit-time-destructors)
    living.add(thisThread);
    thisThread.generation = generation + 1;
  } catch (...) {
    // There is no memory for the first list of this process: the next call tries again.
  }
}

}  // namespace

OwnerId newOwner() noexcept {
  return OwnerId{2 * nextNumber() + 1};
}

OwnerId currentOwner() noexcept {
  const std::uint32_t generation = detail::forkGeneration();
  if (thisThread.generation != generation + 1) {
    introduceThisThread(generation);
  }
  return OwnerId{thisThread.owner};
}

namespace detail {

void addThreadEndListener(std::weak_ptr<ThreadEndListener> listener) {
  Listeners& known = listeners.get();
  const MutexLock lock(known.mutex);
  auto all = std::make_shared<ThreadEndListeners>();
  if (known.all) {
    std::copy_if(
        known.all->begin(), known.all->end(), std::back_inserter(*all), [](const auto& weak) {
          return !weak.expired();
        });
  }
  all->push_back(std::move(listener));
  known.all = std::move(all);
}

bool threadHasEnded(OwnerId owner) noexcept {
  // Race: a thread may ask for itself while it ends, when it is no longer registered. It still
  // lives.
  if (owner.value % 2 != 0 || owner.value == 0 || owner == currentOwner()) {
    return false;
  }
  try {
    return !livingThreads.get().has(owner.value);
  } catch (...) {
    return false;
  }
}

}  // namespace detail
}  // namespace rlock
