// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/fork.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <new>
#include <pthread.h>
#include <utility>

namespace rlock::detail {

namespace {

constinit std::atomic<std::uint32_t> generation{0};

struct Kept {
  std::shared_ptr<const void> object;
  Kept* next;
};
constinit std::atomic<Kept*> kept{nullptr};

// When the program is loaded, not at the first use: a child of a process that forks meanwhile would
// wait for ever for the thread that had begun.
[[maybe_unused]] const int kRegistered =
    ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint32_t forkGeneration() noexcept {
  return generation.load(std::memory_order_relaxed);
}

void keepForever(std::shared_ptr<const void> object) noexcept {
  auto* const node = new (std::nothrow) Kept{nullptr, kept.load(std::memory_order_relaxed)};
  if (node == nullptr) {
    // Only leak checkers lose sight of it.
    alignas(std::shared_ptr<const void>) std::array<std::byte, sizeof object> undestroyed;
    new (undestroyed.data()) std::shared_ptr(std::move(object));
    return;
  }
  node->object = std::move(object);
  while (!kept.compare_exchange_weak(
      node->next, node, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

}  // namespace rlock::detail
