// SPDX-License-Identifier: Apache-2.0
#include "cli/top_view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rlock::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

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
  for (const auto& [columns, rows] :
       std::vector<std::pair<int, int>>{{80, 24}, {200, 50}, {132, 100}, {72, 10}}) {
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
  EXPECT_THAT(lines[1], HasSubstr("1 names, 1 held, 2 queued waiters"));
  EXPECT_THAT(lines[3], HasSubstr("2 holders: job (ana@web1, pid 1)"));
}

}  // namespace
}  // namespace rlock::cli
