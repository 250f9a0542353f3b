// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/thread_owner.hpp>
#include <rlock/owner.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace rlock {

namespace {

struct Listeners {
  std::mutex mutex;
  std::vector<std::weak_ptr<detail::ThreadEndListener>> all;
};

// Never destroyed: threads may end after the static objects are gone.
Listeners& listeners() {
  static auto* const instance = new Listeners;
  return *instance;
}

class EndOfThread {
 public:
  EndOfThread() = default;
  EndOfThread(const EndOfThread&) = delete;
  EndOfThread& operator=(const EndOfThread&) = delete;
  ~EndOfThread() {
    std::vector<std::shared_ptr<detail::ThreadEndListener>> living;
    {
      Listeners& known = listeners();
      const std::lock_guard lock(known.mutex);
      for (const auto& weak : known.all) {
        if (auto listener = weak.lock()) {
          living.push_back(std::move(listener));
        }
      }
    }
    for (const auto& listener : living) {
      listener->threadEnded(currentOwner());
    }
  }
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
  Listeners& known = listeners();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.all, [](const auto& weak) { return weak.expired(); });
  known.all.push_back(std::move(listener));
}

void noteAcquireByThisThread() noexcept {
  // Its destructor is what it is there for.
  thread_local const EndOfThread atEnd;  // NOLINT(clang-diagnostic-exit-time-destructors)
}

}  // namespace detail
}  // namespace rlock
