// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/name_ranking.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace rlock::detail {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> namesOf(const std::vector<TopName>& top) {
  std::vector<std::string> names;
  for (const TopName& each : top) {
    names.push_back(each.name);
  }
  return names;
}

TEST(NameRanking, OrdersBySumNumberOrLongest) {
  NameRanking time(NameRanking::By::time, 3);
  NameRanking count(NameRanking::By::count, 3);
  NameRanking longest(NameRanking::By::longest, 3);
  for (NameRanking* const each : {&time, &count, &longest}) {
    each->add("once", 6s);
    each->add("thrice", 1s);
    each->add("thrice", 1s);
    each->add("thrice", 1s);
    each->add("twice", 5s);
    each->add("twice", 5s);
  }
  EXPECT_EQ(namesOf(time.top(9)), (std::vector<std::string>{"twice", "once", "thrice"}));
  EXPECT_EQ(namesOf(count.top(9)), (std::vector<std::string>{"thrice", "twice", "once"}));
  EXPECT_EQ(namesOf(longest.top(9)), (std::vector<std::string>{"once", "twice", "thrice"}));
  EXPECT_EQ(time.top(1), (std::vector<TopName>{{"twice", 2, 10s}}));
  EXPECT_EQ(count.top(1), (std::vector<TopName>{{"thrice", 3, 3s}}));
  EXPECT_EQ(longest.top(2), (std::vector<TopName>{{"once", 0, 6s}, {"twice", 0, 5s}}));
  EXPECT_TRUE(time.top(0).empty());
}

TEST(NameRanking, IsBoundedAndKeepsWhatDeservesIt) {
  NameRanking ranking(NameRanking::By::count, 8);
  for (int i = 0; i < 5000; ++i) {
    ranking.add("heavy", 1ms);
    ranking.add("rare-" + std::to_string(i), 1ms);
  }
  const std::vector<TopName> top = ranking.top(100);
  EXPECT_EQ(top.size(), 8U);
  EXPECT_EQ(top.front(), (TopName{"heavy", 5000, 5s}));
  // A name does not show what it inherits from the place that it takes.
  EXPECT_EQ(top.at(1).count, 1U);
}

TEST(NameRanking, AHeavyNameThatComesLateIsListed) {
  NameRanking ranking(NameRanking::By::time, 4);
  for (int i = 0; i < 100; ++i) {
    ranking.add("early-" + std::to_string(i), 1s);
  }
  for (int i = 0; i < 60; ++i) {
    ranking.add("late", 1s);
    ranking.add("other-" + std::to_string(i), 1s);
  }
  EXPECT_EQ(ranking.top(1).at(0).name, "late");
}

TEST(NameRanking, TheLongestAreExact) {
  NameRanking ranking(NameRanking::By::longest, 3);
  for (int i = 1; i <= 1000; ++i) {
    const int mixed = i * 389 % 1000;
    ranking.add("n" + std::to_string(mixed), std::chrono::milliseconds(mixed));
    ranking.add("n" + std::to_string(mixed), 0ms);
  }
  EXPECT_EQ(ranking.top(9),
            (std::vector<TopName>{{"n999", 0, 999ms}, {"n998", 0, 998ms}, {"n997", 0, 997ms}}));
}

TEST(NameRanking, OffIsOff) {
  EXPECT_FALSE(NameRanking(NameRanking::By::time, 0).on());
  EXPECT_TRUE(NameRanking(NameRanking::By::time, 1).on());
}

}  // namespace
}  // namespace rlock::detail
