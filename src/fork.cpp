// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/fork.hpp>

#include <atomic>
#include <pthread.h>

namespace rlock::detail {

namespace {

std::atomic<std::uint32_t> generation{0};

}  // namespace

std::uint32_t forkGeneration() noexcept {
  static const bool registered = [] {
    ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
    return true;
  }();
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

}  // namespace rlock::detail
