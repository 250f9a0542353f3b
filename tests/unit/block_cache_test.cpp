// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/block_cache.hpp>
#include <rlock/detail/base/late_mutex.hpp>

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstddef>
#include <set>
#include <thread>
#include <vector>

namespace rlock::detail {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

TEST(BlockCache, GivesBackWhatTheThreadDropped) {
  using Cache = BlockCache<1000>;
  void* const first = Cache::take();
  void* const second = Cache::take();
  EXPECT_NE(first, second);
  Cache::give(first);
  Cache::give(second);
  if (kKeeps) {
    EXPECT_EQ(Cache::take(), second);
    EXPECT_EQ(Cache::take(), first);
    Cache::give(first);
    Cache::give(second);
  }
}

TEST(BlockCache, KeepsAFewAndBelongsToAThread) {
  using Cache = BlockCache<1001>;
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 2 * Cache::kMost; ++i) {
    blocks.push_back(Cache::take());
  }
  EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.end()).size(), blocks.size());
  // On a thread that ends: what it has kept is freed with it, which the leak checker looks at.
  std::thread([&] {
    for (void* const block : blocks) {
      Cache::give(block);
    }
  }).join();
}

struct Small final : FromBlockCache<Small> {
  explicit Small(int number) : value(number) {
    if (number < 0) {
      throw number;
    }
  }
  int value;
};

TEST(BlockCache, ServesNewAndDelete) {
  const Small* const one = new Small(1);
  const void* const place = one;
  delete one;
  EXPECT_THROW(static_cast<void>(new Small(-1)), int);
  const Small* const two = new Small(2);
  if (kKeeps) {
    EXPECT_EQ(static_cast<const void*>(two), place);
  }
  EXPECT_EQ(two->value, 2);
  delete two;
}

TEST(BlockAllocator, ServesVectors) {
  std::vector<std::array<char, 72>, BlockAllocator<std::array<char, 72>>> elements(1);
  elements.resize(3);
  EXPECT_EQ(elements.size(), 3U);
}

TEST(LateMutex, ExcludesOnceItIsShared) {
  LateMutex mutex;
  int count = 0;
  {
    const MutexLock lock(mutex);
    ++count;
  }
  mutex.share();
  std::barrier both(2);
  const auto add = [&] {
    both.arrive_and_wait();
    for (int i = 0; i < 1'000; ++i) {
      const MutexLock lock(mutex);
      const int seen = count;
      std::this_thread::yield();
      count = seen + 1;
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(count, 2'001);
}

}  // namespace
}  // namespace rlock::detail
