// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/fork.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Names of private keys in which a script remembers what it answered to its latest request: the
/// request's number and the answer, `number:answer`. A request that comes twice finds its own
/// number there and does nothing but answer again; one that comes after a later one finds a higher
/// number and does nothing at all. So a name can be used again and again, and no request leaves a
/// key of its own behind: there are as many as requests were under way together, for each object.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class IdempotencyKeyPool : public std::enable_shared_from_this<IdempotencyKeyPool> {
 public:
  struct Key {
    std::string id;
    std::uint64_t number = 0;  ///< of the latest request; the borrower counts on
  };
  /// One borrower at a time; comes back by itself when the last copy is gone.
  using Loan = std::shared_ptr<Key>;

  /// @param life  how long a script remembers
  explicit IdempotencyKeyPool(std::chrono::milliseconds life) noexcept : life_(life) {}

  [[nodiscard]] std::chrono::milliseconds life() const noexcept { return life_; }

  /// @param makeId  makes a name that nobody else has
  template <class MakeId>
  Loan borrow(MakeId makeId);

 private:
  void giveBack(Key key) noexcept;

  const std::chrono::milliseconds life_;
  const std::uint32_t forkGeneration_ = forkGeneration();
  AnnotatedMutex mutex_;
  std::vector<Key> free_ RLOCK_GUARDED_BY(mutex_);
};

template <class MakeId>
IdempotencyKeyPool::Loan IdempotencyKeyPool::borrow(MakeId makeId) {
  Key key;
  // A child's requests are all refused, and another thread of the parent may have the mutex.
  if (forkGeneration() == forkGeneration_) {
    const MutexLock lock(mutex_);
    // The one that was used last: the fewer differ, the fewer keys there are.
    if (!free_.empty()) {
      key = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (key.id.empty()) {
    key.id = makeId();
  }
  return {new Key(std::move(key)), [pool = weak_from_this()](Key* lent) {
            const std::unique_ptr<Key> owned(lent);
            if (const auto home = pool.lock()) {
              home->giveBack(std::move(*owned));
            }
          }};
}

inline void IdempotencyKeyPool::giveBack(Key key) noexcept {
  if (forkGeneration() != forkGeneration_) {
    return;
  }
  try {
    const MutexLock lock(mutex_);
    free_.push_back(std::move(key));
  } catch (const std::bad_alloc&) {
    // Its key expires.
  }
}

}  // namespace rlock::detail
