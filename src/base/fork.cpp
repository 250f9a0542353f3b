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

// Race: a fork() on another thread during the initialisation at a first use would leave a child
// that waits for ever for the thread that had begun it. So the handler is registered when the
// program is loaded.
[[maybe_unused]] const int kRegistered =
    ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint32_t forkGeneration() noexcept {
  return generation.load(std::memory_order_relaxed);
}

void keepForever(std::shared_ptr<const void> object) noexcept {
  auto* const node = new (std::nothrow) Kept{nullptr, kept.load(std::memory_order_relaxed)};
  if (node == nullptr) {
    // Without memory for the list the object is kept all the same; only leak checkers cannot see
    // it.
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
