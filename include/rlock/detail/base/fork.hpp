// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace rlock::detail {

/// The number of fork() calls between the first process and this one. An object that remembers
/// another number belongs to a parent. The call costs one relaxed load.
RLOCK_EXPORT std::uint32_t forkGeneration() noexcept;

/// Keeps an object until the process ends, reachable for leak checkers. It is meant for objects
/// that a child cannot destroy: the parent's threads use them, and the child has no such threads.
///
/// **Thread safety:** Any thread.
RLOCK_EXPORT void keepForever(std::shared_ptr<const void> object) noexcept;

/// An object of which each process has its own. A child makes a new one and does not touch its
/// parent's, whose mutexes may be locked for ever by threads that only the parent has.
///
/// The object is never destroyed: threads may still use it after the static objects are gone.
///
/// **Thread safety:** get() from any thread.
template <class T>
class PerProcess {
 public:
  constexpr PerProcess() noexcept = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  /// @throws std::bad_alloc  at the first call of a process
  T& get();

 private:
  struct Node {
    Node(std::uint32_t of, Node* older) noexcept : generation(of), parents(older) {}

    const std::uint32_t generation;
    Node* const parents;  // keeps the parent's object reachable for leak checkers
    T value{};
  };

  std::atomic<Node*> current_{nullptr};
};

template <class T>
T& PerProcess<T>::get() {
  const std::uint32_t generation = forkGeneration();
  Node* known = current_.load(std::memory_order_acquire);
  while (known == nullptr || known->generation != generation) {
    auto made = std::make_unique<Node>(generation, known);
    if (current_.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
      return made.release()->value;
    }
  }
  return known->value;
}

}  // namespace rlock::detail
