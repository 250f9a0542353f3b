// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/intrusive_table.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <set>

namespace rlock::detail {
namespace intrusive_table_test {
namespace {

struct Item {
  explicit Item(std::size_t number) : hash(number) {}
  std::size_t hash;
  TableHook<Item> hook;
};

struct HashOfItem {
  std::size_t operator()(const Item& item) const noexcept { return item.hash; }
};

using Table = IntrusiveTable<Item, &Item::hook, HashOfItem>;

std::set<const Item*> under(const Table& table, std::size_t hash) {
  std::set<const Item*> found;
  table.visit(hash, [&](const Item& item) {
    if (item.hash == hash) {
      found.insert(&item);
    }
  });
  return found;
}

TEST(IntrusiveTable, FindsWhatIsInsideAndNothingElse) {
  Table table;
  std::deque<Item> items;
  for (std::size_t i = 0; i < 1000; ++i) {
    table.insert(items.emplace_back(i));
  }
  EXPECT_EQ(table.size(), 1000U);
  for (std::size_t i = 0; i < 1000; i += 2) {
    table.remove(items[i]);
  }
  EXPECT_EQ(table.size(), 500U);
  for (std::size_t i = 0; i < 1000; ++i) {
    const Item* found = table.find(i, [i](const Item& item) { return item.hash == i; });
    EXPECT_EQ(found, i % 2 == 0 ? nullptr : &items[i]);
  }
}

TEST(IntrusiveTable, KeepsManyUnderOneHash) {
  Table table;
  std::deque<Item> items;
  for (std::size_t i = 0; i < 300; ++i) {
    table.insert(items.emplace_back(i % 3));
  }
  EXPECT_EQ(under(table, 1).size(), 100U);
  table.remove(items[1]);
  table.remove(items[298]);
  EXPECT_EQ(under(table, 1).size(), 98U);
  EXPECT_EQ(under(table, 0).size(), 100U);
  table.insert(items[1]);
  EXPECT_EQ(under(table, 1).size(), 99U);
}

TEST(IntrusiveTable, EveryElementMayLeaveWhileAllAreVisited) {
  Table table;
  std::deque<Item> items;
  for (std::size_t i = 0; i < 100; ++i) {
    table.insert(items.emplace_back(i / 4));
  }
  std::size_t visited = 0;
  table.visitAll([&](Item& item) {
    ++visited;
    table.remove(item);
  });
  EXPECT_EQ(visited, 100U);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_TRUE(under(table, 3).empty());
}

}  // namespace
}  // namespace intrusive_table_test
}  // namespace rlock::detail
