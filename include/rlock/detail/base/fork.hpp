// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace rlock::detail {

/// How many fork() calls lie between the first process and this one: an object that remembers
/// another number belongs to a parent. Costs one relaxed load.
RLOCK_EXPORT std::uint32_t forkGeneration() noexcept;

/// Never frees an object, and what it points to stays reachable for leak checkers. For what a child
/// cannot destroy, because its parent's threads use it, and the child has no such threads.
///
/// **Thread safety:** Any thread.
RLOCK_EXPORT void keepForever(std::shared_ptr<const void> object) noexcept;

/// An object of which each process has its own. A child begins with a new one and leaves its
/// parent's alone, whose mutexes may be locked for ever by threads that only the parent has.
///
/// It is never destroyed: threads may still use it after the static objects are gone.
///
/// **Thread safety:** get() from any thread.
template <class T>
class PerProcess {
 public:
  constexpr PerProcess() noexcept = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  /// @throws std::bad_alloc  at the first call of a process
  T& get() {
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

 private:
  struct Node {
    Node(std::uint32_t of, Node* older) noexcept : generation(of), parents(older) {}

    const std::uint32_t generation;
    Node* const parents;  // keeps it reachable, for leak checkers
    T value{};
  };

  std::atomic<Node*> current_{nullptr};
};

}  // namespace rlock::detail
