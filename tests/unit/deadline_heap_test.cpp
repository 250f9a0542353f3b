// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/deadline_heap.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace rlock::detail {
namespace {

using std::chrono::milliseconds;
using TimePoint = std::chrono::steady_clock::time_point;

struct Item {
  int name = 0;
  DeadlineHook hook;
  DeadlineHook otherHook;
};
using Heap = DeadlineHeap<Item, &Item::hook>;
using OtherHeap = DeadlineHeap<Item, &Item::otherHook>;

TimePoint at(std::int64_t ms) {
  return TimePoint(milliseconds(ms));
}

std::vector<int> drain(Heap& heap) {
  std::vector<int> order;
  while (!heap.empty()) {
    order.push_back(heap.top().name);
    heap.remove(heap.top());
  }
  return order;
}

TEST(DeadlineHeap, IsDueNeverWhenEmpty) {
  const Heap heap;
  EXPECT_TRUE(heap.empty());
  EXPECT_EQ(heap.size(), 0U);
  EXPECT_EQ(heap.nextDue(), TimePoint::max());
}

TEST(DeadlineHeap, GivesElementsInTheOrderOfTheirDeadlines) {
  std::vector<Item> items(6);
  Heap heap;
  const std::vector<int> due{50, 10, 40, 20, 60, 30};
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i].name = due[i];
    heap.schedule(items[i], at(due[i]));
  }
  EXPECT_EQ(heap.size(), 6U);
  EXPECT_EQ(heap.nextDue(), at(10));
  EXPECT_EQ(drain(heap), (std::vector<int>{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(heap.nextDue(), TimePoint::max());
}

TEST(DeadlineHeap, MovesAnElementThatIsScheduledAgain) {
  Item a{1, {}, {}};
  Item b{2, {}, {}};
  Item c{3, {}, {}};
  Heap heap;
  heap.schedule(a, at(10));
  heap.schedule(b, at(20));
  heap.schedule(c, at(30));

  heap.schedule(a, at(25));
  EXPECT_EQ(&heap.top(), &b);
  heap.schedule(c, at(5));
  EXPECT_EQ(&heap.top(), &c);
  heap.schedule(c, at(5));

  EXPECT_EQ(heap.size(), 3U);
  EXPECT_EQ(drain(heap), (std::vector<int>{3, 2, 1}));
}

TEST(DeadlineHeap, RemovesFromAnywhere) {
  std::vector<Item> items(7);
  Heap heap;
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i].name = static_cast<int>(i);
    heap.schedule(items[i], at(static_cast<std::int64_t>(10 * i)));
  }
  heap.remove(items[0]);
  heap.remove(items[3]);
  heap.remove(items[6]);
  EXPECT_FALSE(items[3].hook.linked());
  EXPECT_TRUE(items[4].hook.linked());
  heap.remove(items[3]);
  EXPECT_EQ(drain(heap), (std::vector<int>{1, 2, 4, 5}));
}

TEST(DeadlineHeap, RemovesTheOnlyElement) {
  Item item;
  Heap heap;
  heap.schedule(item, at(1));
  heap.remove(item);
  EXPECT_TRUE(heap.empty());
  EXPECT_FALSE(item.hook.linked());
}

TEST(DeadlineHeap, IgnoresTheRemovalOfAStranger) {
  Item inside;
  Item outside;
  Heap heap;
  heap.schedule(inside, at(1));
  heap.remove(outside);
  EXPECT_EQ(heap.size(), 1U);
}

TEST(DeadlineHeap, KeepsEqualDeadlinesApart) {
  std::vector<Item> items(5);
  Heap heap;
  for (Item& item : items) {
    heap.schedule(item, at(7));
  }
  for (std::size_t left = items.size(); left > 0; --left) {
    EXPECT_EQ(heap.size(), left);
    EXPECT_EQ(heap.nextDue(), at(7));
    heap.remove(heap.top());
  }
}

TEST(DeadlineHeap, GivesEqualDeadlinesInTheOrderTheyWereScheduled) {
  std::vector<Item> items(9);
  Heap heap;
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i].name = static_cast<int>(i);
    heap.schedule(items[i], at(7));
  }
  heap.schedule(items[2], at(7));
  heap.remove(items[5]);
  EXPECT_EQ(drain(heap), (std::vector<int>{0, 1, 3, 4, 6, 7, 8, 2}));
}

TEST(DeadlineHeap, GivesAllOutOnceWithTheirDeadlines) {
  std::vector<Item> items(100);
  Heap heap;
  heap.takeAll([](Item& /*item*/, TimePoint /*due*/) { ADD_FAILURE(); });
  std::mt19937 random(3);  // NOLINT: the same numbers every time
  std::map<const Item*, TimePoint> expected;
  const auto schedule = [&](Item& item) {
    heap.schedule(item, at(static_cast<std::int64_t>(random() % 10)));
    expected[&item] = item.hook.due();
  };
  for (Item& item : items) {
    schedule(item);
  }
  // Removals are what gives the heap more than two levels.
  for (std::size_t i = 0; i < 30; ++i) {
    expected.erase(&heap.top());
    heap.remove(heap.top());
    std::map<const Item*, TimePoint> all;
    std::vector<Item*> taken;
    heap.takeAll([&](Item& item, TimePoint due) {
      EXPECT_FALSE(item.hook.linked());
      EXPECT_TRUE(all.emplace(&item, due).second);
      taken.push_back(&item);
    });
    EXPECT_EQ(all, expected);
    EXPECT_TRUE(heap.empty());
    EXPECT_EQ(heap.size(), 0U);
    for (Item* const item : taken) {
      schedule(*item);
    }
  }
}

TEST(DeadlineHeap, WhatIsGivenOutMayBePutInAtOnce) {
  std::vector<Item> items(50);
  Heap heap;
  Heap other;
  for (std::size_t i = 0; i < items.size(); ++i) {
    heap.schedule(items[i], at(static_cast<std::int64_t>(i)));
  }
  heap.remove(items[0]);
  std::size_t visits = 0;
  heap.takeAll([&](Item& item, TimePoint due) {
    ++visits;
    (visits % 2 == 0 ? heap : other).schedule(item, due);
  });
  EXPECT_EQ(visits, 49U);
  EXPECT_EQ(heap.size() + other.size(), 49U);
  heap.swap(other);
  for (Heap* const each : {&heap, &other}) {
    for (TimePoint before = at(0); !each->empty(); each->remove(each->top())) {
      EXPECT_LE(before, each->nextDue());
      before = each->nextDue();
    }
  }
}

TEST(DeadlineHeap, OneElementMayBeInSeveralHeaps) {
  Item a;
  Item b;
  Heap heap;
  OtherHeap other;
  heap.schedule(a, at(1));
  heap.schedule(b, at(2));
  other.schedule(a, at(9));
  other.schedule(b, at(8));
  EXPECT_EQ(&heap.top(), &a);
  EXPECT_EQ(&other.top(), &b);
  heap.remove(a);
  EXPECT_TRUE(a.otherHook.linked());
  EXPECT_EQ(other.size(), 2U);
}

TEST(DeadlineHeap, AgreesWithASlowListUnderRandomUse) {
  constexpr std::size_t kItems = 200;
  std::vector<Item> items(kItems);
  Heap heap;
  std::mt19937 random(7);  // NOLINT: the same numbers every time
  std::vector<std::int64_t> due(kItems, -1);
  const auto expectedNext = [&] {
    std::int64_t next = -1;
    for (const std::int64_t one : due) {
      next = one >= 0 && (next < 0 || one < next) ? one : next;
    }
    return next < 0 ? TimePoint::max() : at(next);
  };
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t which = random() % kItems;
    if (random() % 3 == 0) {
      heap.remove(items[which]);
      due[which] = -1;
    } else {
      due[which] = static_cast<std::int64_t>(random() % 1000);
      heap.schedule(items[which], at(due[which]));
    }
    ASSERT_EQ(heap.nextDue(), expectedNext()) << "step " << step;
  }
  TimePoint last = TimePoint::min();
  while (!heap.empty()) {
    EXPECT_LE(last, heap.nextDue());
    last = heap.nextDue();
    heap.remove(heap.top());
  }
}

TEST(DeadlineHeap, HoldsManyInOrder) {
  constexpr std::size_t kItems = 100'000;
  std::vector<Item> items(kItems);
  Heap heap;
  for (std::size_t i = 0; i < kItems; ++i) {
    heap.schedule(items[i], at(static_cast<std::int64_t>(i)));
  }
  for (std::size_t i = 0; i < kItems; ++i) {
    ASSERT_EQ(&heap.top(), &items[i]);
    heap.remove(items[i]);
  }
}

}  // namespace
}  // namespace rlock::detail
