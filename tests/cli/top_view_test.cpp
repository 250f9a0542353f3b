// SPDX-License-Identifier: Apache-2.0
#include "cli/top_view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rlock::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

LockInfo lockOf(const std::string& name, const std::string& owner, milliseconds left) {
  LockInfo info;
  info.name = name;
  info.kind = LockKind::lock;
  info.timeToLive = left;
  info.holders.push_back({owner, 1, true, "job (ana@web1, pid 1, since 2027-01-15T08:00:00Z)", {}});
  return info;
}

class TopView : public ::testing::Test {
 protected:
  std::vector<std::string> picture(const std::vector<LockInfo>& locks, int columns, int rows) {
    tracker_.update(locks, time_);
    return topPicture({"redis://h", "redis 7", std::chrono::microseconds(300), "08:00:52", ""},
                      locks,
                      tracker_,
                      std::chrono::sys_seconds(seconds(1'800'000'052)),
                      time_,
                      {columns, rows},
                      Style(ColorMode::never, 1));
  }

  TopTracker tracker_;
  std::chrono::steady_clock::time_point time_{seconds(1000)};
};

TEST_F(TopView, FitsEveryTerminal) {
  std::vector<LockInfo> locks;
  for (int i = 0; i < 60; ++i) {
    locks.push_back(lockOf("a:rather:long:name:of:a:lock:that:does:not:end:" + std::to_string(i),
                           "uuid:1",
                           milliseconds(20'000)));
  }
  for (const auto& [columns, rows] : std::vector<std::pair<int, int>>{
           {80, 24}, {200, 50}, {132, 100}, {72, 10}, {71, 24}, {40, 24}, {39, 24}, {20, 4}}) {
    const auto lines = picture(locks, columns, rows);
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(rows));
    for (const std::string& line : lines) {
      EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
    }
    if (rows < 60) {
      EXPECT_THAT(lines.back(), HasSubstr("more"));
    }
  }
}

/// Names of one service begin alike and differ at the end.
TEST_F(TopView, ANameThatIsCutKeepsItsEnd) {
  const std::string start = "shop:production:orders:by-customer:";
  std::vector<LockInfo> locks;
  for (const char* const end : {"1700", "1701"}) {
    locks.push_back(lockOf(start + end, "u:1", seconds(9)));
  }
  const auto small = picture(locks, 80, 24);
  EXPECT_THAT(small[3], StartsWith("shop:pr...er:1700 lock "));
  EXPECT_THAT(small[4], StartsWith("shop:pr...er:1701 lock "));
  const auto wide = picture(locks, 200, 50);
  EXPECT_THAT(wide[3], StartsWith(start + "1700 "));
}

TEST_F(TopView, AHolderThatIsCutKeepsItsEnd) {
  LockInfo info = lockOf("a", "6f1ed9a2-0b3c-4c57-9d52-3a4e7f60b1aa:17", seconds(9));
  EXPECT_THAT(picture({info}, 80, 24)[3], EndsWith("job (an... pid 1)"));
  info.holders.front().label.clear();
  EXPECT_THAT(picture({info}, 80, 24)[3], EndsWith("6f1ed9a...b1aa:17"));
  EXPECT_THAT(picture({info}, 200, 50)[3], HasSubstr(info.holders.front().owner));
}

/// Half of an escape sequence would be taken for something else.
TEST_F(TopView, ANameInUtf8IsCutBetweenItsBytes) {
  const std::string name = "stra\u00dfe:gr\u00f6\u00dfe:\u00e9t\u00e9";
  const std::string whole = "stra\\xc3\\x9fe:gr\\xc3\\xb6\\xc3\\x9fe:\\xc3\\xa9t\\xc3\\xa9";
  EXPECT_THAT(picture({lockOf(name, "u:1", seconds(9))}, 200, 50)[3], StartsWith(whole + " "));
  EXPECT_THAT(picture({lockOf(name, "u:1", seconds(9))}, 80, 24)[3],
              StartsWith("stra...t\\xc3\\xa9  lock "));
}

TEST_F(TopView, ABarIsTheTimeThatIsLeft) {
  EXPECT_THAT(picture({lockOf("a", "u:1", milliseconds(30'000))}, 80, 24)[3],
              HasSubstr("##########     30s     52s"));
  EXPECT_THAT(picture({lockOf("a", "u:1", milliseconds(15'000))}, 80, 24)[3],
              HasSubstr("#####.....     15s"));
  // Another holder has a bar of its own.
  EXPECT_THAT(picture({lockOf("a", "u:2", milliseconds(5'000))}, 80, 24)[3],
              HasSubstr("##########      5s"));
}

TEST_F(TopView, CountsHandOvers) {
  (void)picture({lockOf("a", "u:1", seconds(9))}, 80, 24);
  time_ += seconds(1);
  (void)picture({lockOf("a", "u:2", seconds(9))}, 80, 24);
  time_ += seconds(1);
  const auto lines = picture({lockOf("a", "u:3", seconds(9))}, 80, 24);
  EXPECT_THAT(lines[1], HasSubstr("1.0 hand-overs/s"));
  EXPECT_EQ(tracker_.of("a").changes, 2U);
}

TEST_F(TopView, NoEscapeSequenceOfAServerReachesTheTerminal) {
  const TopHeader header{
      "redis://h", "redis 7\033[2J", std::chrono::microseconds(300), "08:00:52", ""};
  const auto lines = topPicture(header,
                                {},
                                tracker_,
                                std::chrono::sys_seconds(seconds(1'800'000'052)),
                                time_,
                                {120, 24},
                                Style(ColorMode::never, 1));
  EXPECT_THAT(lines[0], HasSubstr("redis 7\\x1b[2J"));
}

TEST_F(TopView, ShowsHoldersAndWaiters) {
  LockInfo shared = lockOf("rw", "u:1", seconds(9));
  shared.holders.push_back({"u:2", 1, false, "", {}});
  shared.waiters = {"u:3", "u:4"};
  const auto lines = picture({shared}, 120, 24);
  EXPECT_THAT(lines[1], HasSubstr("1 names, 1 held, 2 waiting (fair locks only)"));
  EXPECT_THAT(lines[3], HasSubstr("2 holders: job (ana@web1, pid 1)"));
}

}  // namespace
}  // namespace rlock::cli
