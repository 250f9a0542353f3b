// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/intrusive_ptr.hpp>

#include <gtest/gtest.h>

#include <thread>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace intrusive_ptr_test {
namespace {

class Node : public RefCounted<Node> {
 public:
  explicit Node(int& live, int value = 0) : live_(live), value_(value) { ++live_; }
  virtual ~Node() { --live_; }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int value() const { return value_; }

 private:
  int& live_;
  int value_;
};

class Leaf : public Node {
 public:
  using Node::Node;
};

TEST(IntrusivePtr, LastOneDeletes) {
  int live = 0;
  IntrusivePtr<Node> first = makeIntrusive<Node>(live, 3);
  EXPECT_EQ(live, 1);
  EXPECT_EQ(first->value(), 3);
  EXPECT_EQ((*first).useCount(), 1U);
  IntrusivePtr<Node> second = first;
  EXPECT_EQ(first->useCount(), 2U);
  first.reset();
  EXPECT_EQ(live, 1);
  EXPECT_FALSE(first);
  EXPECT_TRUE(first == nullptr);
  second = nullptr;
  EXPECT_EQ(live, 0);
}

TEST(IntrusivePtr, MovesWithoutCounting) {
  int live = 0;
  IntrusivePtr<Node> first = makeIntrusive<Node>(live);
  IntrusivePtr<Node> second = std::move(first);
  EXPECT_EQ(second->useCount(), 1U);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): empty after a move is promised
  IntrusivePtr<Node>& alias = second;
  second = std::move(alias);
  EXPECT_EQ(second->useCount(), 1U);
  second = alias;  // NOLINT(bugprone-use-after-move): a move to itself keeps the object
  EXPECT_EQ(second->useCount(), 1U);
}

TEST(IntrusivePtr, ARawPointerMayJoin) {
  int live = 0;
  const IntrusivePtr<Node> first = makeIntrusive<Node>(live);
  Node* const raw = first.get();
  const IntrusivePtr<Node> second(raw);
  EXPECT_EQ(raw->useCount(), 2U);
  EXPECT_EQ(first, second);
}

TEST(IntrusivePtr, ConvertsToBases) {
  int live = 0;
  {
    IntrusivePtr<Leaf> leaf = makeIntrusive<Leaf>(live);
    const IntrusivePtr<const Node> copied = leaf;
    EXPECT_EQ(leaf->useCount(), 2U);
    const IntrusivePtr<Node> moved = std::move(leaf);
    EXPECT_EQ(moved->useCount(), 2U);
    static_assert(!std::is_constructible_v<IntrusivePtr<Leaf>, IntrusivePtr<Node>>);
  }
  EXPECT_EQ(live, 0);
}

TEST(IntrusivePtr, PassesThroughCCallbacks) {
  int live = 0;
  IntrusivePtr<Node> first = makeIntrusive<Node>(live);
  void* const data = first.detach();
  EXPECT_FALSE(first);
  EXPECT_EQ(live, 1);
  {
    const auto back = IntrusivePtr<Node>::adopt(static_cast<Node*>(data));
    EXPECT_EQ(back->useCount(), 1U);
  }
  EXPECT_EQ(live, 0);
}

TEST(IntrusivePtr, IsAnOrderedHashableKey) {
  int live = 0;
  const auto a = makeIntrusive<Node>(live);
  const auto b = makeIntrusive<Node>(live);
  EXPECT_NE(a, b);
  EXPECT_TRUE((a < b) != (b < a));
  const std::unordered_set<IntrusivePtr<Node>> nodes{a, b, a};
  EXPECT_EQ(nodes.size(), 2U);
}

TEST(IntrusivePtr, CountsAcrossThreads) {
  int live = 0;
  {
    const IntrusivePtr<Node> shared = makeIntrusive<Node>(live);
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([copy = shared] {
        for (int round = 0; round < 10'000; ++round) {
          // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the copy is the test
          const IntrusivePtr<Node> local = copy;
          EXPECT_GE(local->useCount(), 2U);
        }
      });
    }
    threads.clear();
    EXPECT_EQ(shared->useCount(), 1U);
  }
  EXPECT_EQ(live, 0);
}

}  // namespace
}  // namespace intrusive_ptr_test
}  // namespace rlock::detail
