// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/owner.hpp>

#include <memory>

namespace rlock::detail {

/// Wants to know when a thread that may hold something ends.
class ThreadEndListener {
 public:
  ThreadEndListener() = default;
  ThreadEndListener(const ThreadEndListener&) = delete;
  ThreadEndListener& operator=(const ThreadEndListener&) = delete;
  virtual ~ThreadEndListener() = default;
  /// Called on the thread that ends.
  virtual void threadEnded(OwnerId owner) noexcept = 0;
};

/// Listens until the object is gone.
void addThreadEndListener(std::weak_ptr<ThreadEndListener> listener);

/// Whether the owner is currentOwner() of a thread that has ended. From that thread's listeners'
/// first threadEnded() on; for no other owner.
[[nodiscard]] bool threadHasEnded(OwnerId owner) noexcept;

}  // namespace rlock::detail
