// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/fork.hpp>
#include <rlock/detail/thread_owner.hpp>
#include <rlock/owner.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace rlock {

namespace {

using ThreadEndListeners = std::vector<std::weak_ptr<detail::ThreadEndListener>>;

/// Replaced, never changed, so that the end of a thread needs no memory to look at it.
struct Listeners {
  std::mutex mutex;
  std::shared_ptr<const ThreadEndListeners> all;
};

constinit detail::PerProcess<Listeners> listeners;

class EndOfThread {
 public:
  EndOfThread() = default;
  EndOfThread(const EndOfThread&) = delete;
  EndOfThread& operator=(const EndOfThread&) = delete;
  ~EndOfThread() {
    // What the thread did in the parent is no end of anything here.
    if (detail::forkGeneration() != generation_) {
      return;
    }
    std::shared_ptr<const ThreadEndListeners> all;
    try {
      Listeners& known = listeners.get();
      const std::lock_guard lock(known.mutex);
      all = known.all;
    } catch (...) {
      // No memory for the first list: there is nobody in it.
    }
    if (!all) {
      return;
    }
    for (const auto& weak : *all) {
      if (const auto listener = weak.lock()) {
        listener->threadEnded(currentOwner());
      }
    }
  }

  void acquires() noexcept { generation_ = detail::forkGeneration(); }

 private:
  std::uint32_t generation_ = 0;
};

}  // namespace

OwnerId newOwner() noexcept {
  static std::atomic<std::uint64_t> counter{0};
  return OwnerId{counter.fetch_add(1, std::memory_order_relaxed) + 1};
}

OwnerId currentOwner() noexcept {
  // Trivially destructible: destructors of static objects ask when the thread's objects are gone.
  thread_local const OwnerId owner = newOwner();
  return owner;
}

namespace detail {

void addThreadEndListener(std::weak_ptr<ThreadEndListener> listener) {
  Listeners& known = listeners.get();
  const std::lock_guard lock(known.mutex);
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

void noteAcquireByThisThread() noexcept {
  // Its destructor is what it is there for.
  thread_local EndOfThread atEnd;  // NOLINT(clang-diagnostic-exit-time-destructors)
  atEnd.acquires();
}

}  // namespace detail
}  // namespace rlock
