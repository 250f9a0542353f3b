// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/fork.hpp>

#include <atomic>
#include <pthread.h>

namespace rlock::detail {

namespace {

constinit std::atomic<std::uint32_t> generation{0};

// When the program is loaded, not at the first use: a child of a process that forks meanwhile would
// wait for ever for the thread that had begun.
[[maybe_unused]] const int kRegistered =
    ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint32_t forkGeneration() noexcept {
  return generation.load(std::memory_order_relaxed);
}

}  // namespace rlock::detail
