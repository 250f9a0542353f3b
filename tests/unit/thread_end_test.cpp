// SPDX-License-Identifier: Apache-2.0
#include "support/leak_check.hpp"
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/base/thread_owner.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace rlock::detail {
namespace {

/// Runs `body` in a child. Its exit code, or -1 when it hung or was killed.
template <class Body>
int inFork(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body());
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Listener final : public ThreadEndListener {
 public:
  void threadEnded(OwnerId owner) noexcept override {
    owner_ = owner.value;
    ++ends_;
  }
  [[nodiscard]] int ends() const { return ends_; }
  [[nodiscard]] std::uint64_t owner() const { return owner_; }

 private:
  std::atomic<std::uint64_t> owner_{0};
  std::atomic<int> ends_{0};
};

std::shared_ptr<Listener> newListener() {
  auto listener = std::make_shared<Listener>();
  addThreadEndListener(listener);
  return listener;
}

TEST(ThreadEndTest, OnlyTheEndOfAThreadThatHasAnOwnerIsTold) {
  const auto listener = newListener();
  std::thread([] {}).join();
  EXPECT_EQ(listener->ends(), 0);
  std::uint64_t owner = 0;
  std::thread([&] {
    static_cast<void>(currentOwner());
    static_cast<void>(currentOwner());
    owner = currentOwner().value;
  }).join();
  EXPECT_EQ(listener->ends(), 1);
  EXPECT_EQ(listener->owner(), owner);
}

/// A thread that has an owner and lives until it is told to end.
class OwnedThread {
 public:
  OwnedThread()
      : thread_([this] {
          owner_.set_value(currentOwner());
          end_.get_future().wait();
        }),
        owner(owner_.get_future().get()) {}
  OwnedThread(const OwnedThread&) = delete;
  OwnedThread& operator=(const OwnedThread&) = delete;
  ~OwnedThread() { end(); }

  void end() {
    if (thread_.joinable()) {
      end_.set_value();
      thread_.join();
    }
  }

 private:
  std::promise<OwnerId> owner_;
  std::promise<void> end_;
  std::thread thread_;

 public:
  const OwnerId owner;
};

// Every so many owners share a list.
TEST(ThreadEndTest, ThreadsOfOneListEndInAnyOrder) {
  constexpr std::uint64_t kLists = 256;
  std::vector<std::unique_ptr<OwnedThread>> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(std::make_unique<OwnedThread>());
    for (std::uint64_t between = 1; between < kLists; ++between) {
      static_cast<void>(newOwner());
    }
  }
  ASSERT_EQ((threads[3]->owner.value - threads[0]->owner.value) % (2 * kLists), 0U);
  for (const std::size_t ends : {2U, 1U, 3U, 0U}) {
    EXPECT_FALSE(threadHasEnded(threads[ends]->owner));
    threads[ends]->end();
    EXPECT_TRUE(threadHasEnded(threads[ends]->owner));
  }
}

std::atomic<int> endedForItself{-1};

/// Asks when the thread's own record of its end is gone.
struct AsksLast {
  ~AsksLast() { endedForItself = threadHasEnded(currentOwner()) ? 1 : 0; }
};

TEST(ThreadEndTest, AThreadLivesForItselfUntilItIsGone) {
  OwnerId owner{};
  std::thread([&] {
    thread_local const AsksLast last;
    static_cast<void>(&last);
    owner = currentOwner();
  }).join();
  EXPECT_EQ(endedForItself, 0);
  EXPECT_TRUE(threadHasEnded(owner)) << "for others";
}

TEST(ThreadEndTest, AListenerThatIsGoneIsNotTold) {
  const auto stays = newListener();
  newListener().reset();
  std::thread([] { static_cast<void>(currentOwner()); }).join();
  EXPECT_EQ(stays->ends(), 1);
}

/// Memory that says how much of it has not been given back.
class CountedMemory final : public std::pmr::memory_resource {
 public:
  [[nodiscard]] int blocks() const { return blocks_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    ++blocks_;
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    --blocks_;
    std::pmr::new_delete_resource()->deallocate(block, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::atomic<int> blocks_{0};
};

// A process that makes and closes clients again and again would walk a longer list at the end of
// each thread.
TEST(ThreadEndTest, AListenerThatIsGoneLeavesTheList) {
  CountedMemory memory;
  auto gone = std::allocate_shared<Listener>(std::pmr::polymorphic_allocator<Listener>(&memory));
  addThreadEndListener(gone);
  gone.reset();
  ASSERT_EQ(memory.blocks(), 1) << "the list knows it";
  const auto next = newListener();
  EXPECT_EQ(memory.blocks(), 0);
}

// The list is long and always in use, so that its mutex is held by somebody when the process forks.
TEST(ThreadEndTest, AChildEndsWhateverTheParentsThreadsWereAt) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a forked child cannot exit() under this sanitizer";
#elif defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a thread of the parent may have locked this sanitizer's allocator for good";
#endif
  std::vector<std::shared_ptr<Listener>> many(2000);
  std::generate(many.begin(), many.end(), &newListener);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads(2);
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      while (!stop) {
        std::thread([] { static_cast<void>(currentOwner()); }).join();
      }
    });
  }
  static_cast<void>(currentOwner());
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(5);
      std::exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (!WIFEXITED(status)) {
      ADD_FAILURE() << "a child hung or crashed";
      break;
    }
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(ThreadEndTest, TheEndOfAParentsThreadIsNoneInTheChild) {
  const auto listener = newListener();
  int code = 0;
  std::thread([&] {
    static_cast<void>(currentOwner());
    code = inFork([&] {
      const auto own = newListener();
      std::thread([] { static_cast<void>(currentOwner()); }).join();
      return listener->ends() == 0 && own->ends() == 1 ? 0 : 1;
    });
  }).join();
#if defined(__SANITIZE_THREAD__)
  if (code != 0) {
    GTEST_SKIP() << "a forked child cannot start threads under this sanitizer";
  }
#endif
  EXPECT_EQ(code, 0);
  EXPECT_EQ(listener->ends(), 1);
}

TEST(PerProcessTest, AChildHasAnObjectOfItsOwn) {
  struct Guarded {
    std::mutex mutex;
    int value = 0;
  };
  static constinit PerProcess<Guarded> mine;
  mine.get().value = 7;
  const std::lock_guard lock(mine.get().mutex);
  EXPECT_EQ(inFork([] {
              const std::lock_guard inner(mine.get().mutex);
              const int before = mine.get().value;
              mine.get().value = 8;
              return before;
            }),
            0);
  EXPECT_EQ(mine.get().value, 7);
}

}  // namespace
}  // namespace rlock::detail
