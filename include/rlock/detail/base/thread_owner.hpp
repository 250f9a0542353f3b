// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/owner.hpp>

#include <memory>

namespace rlock::detail {

/// A listener that hears when a thread that may hold something ends.
class ThreadEndListener {
 public:
  ThreadEndListener() = default;
  ThreadEndListener(const ThreadEndListener&) = delete;
  ThreadEndListener& operator=(const ThreadEndListener&) = delete;
  virtual ~ThreadEndListener() = default;
  /// Called on the thread that ends.
  virtual void threadEnded(OwnerId owner) noexcept = 0;
};

/// Registers a listener until its object is gone.
void addThreadEndListener(std::weak_ptr<ThreadEndListener> listener);

/// Whether the owner is the currentOwner() of a thread that has ended. True from the first
/// threadEnded() of that thread on; always false for an owner that stands for no thread.
[[nodiscard]] bool threadHasEnded(OwnerId owner) noexcept;

}  // namespace rlock::detail
