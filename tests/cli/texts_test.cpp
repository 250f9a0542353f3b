// SPDX-License-Identifier: Apache-2.0
#include "cli/connection.hpp"
#include "cli/duration_text.hpp"
#include "cli/holder_label.hpp"
#include "cli/lock_text.hpp"
#include "cli/loss_plan.hpp"
#include "cli/progress.hpp"
#include "cli/waiting.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rlock::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(CliDuration, ReadsWhatPeopleWrite) {
  EXPECT_EQ(parseDuration("10"), Duration(seconds(10)));
  EXPECT_EQ(parseDuration("0"), Duration::zero());
  EXPECT_EQ(parseDuration("250ms"), Duration(milliseconds(250)));
  EXPECT_EQ(parseDuration("2.5s"), Duration(milliseconds(2500)));
  EXPECT_EQ(parseDuration("1h30m"), Duration(std::chrono::minutes(90)));
  EXPECT_EQ(parseDuration("2d"), Duration(std::chrono::hours(48)));
  EXPECT_EQ(parseDuration("forever"), Duration::max());
  for (const char* text : {"", "s", "-1s", "1x", "1s1", "1..5s", ".", "1 s", "1sm", "ten", "1e3"}) {
    EXPECT_FALSE(parseDuration(text)) << text;
  }
}

TEST(CliDuration, ShowsWhatPeopleRead) {
  EXPECT_EQ(showDuration(milliseconds(-5)), "0ms");
  EXPECT_EQ(showDuration(milliseconds(850)), "850ms");
  EXPECT_EQ(showDuration(milliseconds(2500)), "2.5s");
  EXPECT_EQ(showDuration(milliseconds(2000)), "2s");
  EXPECT_EQ(showDuration(seconds(187)), "3m07s");
  EXPECT_EQ(showDuration(seconds(7500)), "2h05m");
  EXPECT_EQ(showDuration(std::chrono::hours(99)), "4d03h");
}

HolderLabel example() {
  return {"night shift", "ana", "web1", 4711, std::chrono::sys_seconds(seconds(1'800'000'000))};
}

TEST(CliLabel, ReadsWhatItWrites) {
  EXPECT_EQ(composeLabel(example()),
            "night shift (ana@web1, pid 4711, since 2027-01-15T08:00:00Z)");
  EXPECT_EQ(parseLabel(composeLabel(example())), example());
  HolderLabel odd = example();
  odd.text = "a (b) c (";
  EXPECT_EQ(parseLabel(composeLabel(odd)), odd);
  odd.user = "ana@corp.example";
  EXPECT_EQ(parseLabel(composeLabel(odd)), odd);
}

TEST(CliLabel, FitsIntoALabel) {
  HolderLabel longest = example();
  longest.text = std::string(500, 'x');
  longest.host = std::string(300, 'h');
  EXPECT_EQ(composeLabel(longest).size(), 256U);
  longest.text.clear();
  for (int i = 0; i < 200; ++i) {
    longest.text += "\xC3\xA4";
  }
  longest.host = "h";
  const std::string cut = composeLabel(longest);
  EXPECT_LE(cut.size(), 256U);
  // No half of a character.
  EXPECT_NE(cut[cut.find(" (") - 1], '\xC3');
}

TEST(CliLabel, OthersAreTextOnly) {
  for (const char* label : {"worker 7",
                            "worker (7)",
                            "",
                            "x (a@b, pid 1, since yesterday)",
                            "x (a@b)",
                            "x (a, pid 1, since 2027-01-15T08:00:00Z)",
                            "x (@b, pid 1, since 2027-01-15T08:00:00Z)",
                            "x (a@, pid 1, since 2027-01-15T08:00:00Z)",
                            "("}) {
    EXPECT_EQ(parseLabel(label).text, label);
    EXPECT_FALSE(parseLabel(label).since);
  }
}

TEST(CliLabel, IsTheUsersOrTheCommandsOrNone) {
  LockChoice lock;
  EXPECT_EQ(parseLabel(labelFor(lock, "/usr/bin/backup.sh")).text, "backup.sh");
  lock.label = "night shift";
  EXPECT_EQ(parseLabel(labelFor(lock, "backup.sh")).text, "night shift");
  // The label may be that of the configuration file.
  lock.noLabel = true;
  EXPECT_EQ(labelFor(lock, "backup.sh"), "");
}

TEST(CliLabel, HasNothingOfALineForTheShell) {
  CommandChoice command;
  command.argv = {"/usr/bin/backup.sh", "--full"};
  EXPECT_EQ(shownCommand(command), "/usr/bin/backup.sh");
  command.shell = true;
  for (const char* line : {"PGPASSWORD=hunter2 pg_dump db >out", "rsync -a /src/ /dst/"}) {
    command.argv = {line};
    EXPECT_EQ(parseLabel(labelFor(LockChoice(), shownCommand(command))).text, "sh") << line;
  }
}

TEST(CliLossPlan, TheKillIsBeforeTheEnd) {
  const auto end = std::chrono::steady_clock::time_point(std::chrono::hours(1));
  const LossPlan usual = planLoss(end, seconds(30), seconds(5));
  EXPECT_EQ(end - usual.killAt, milliseconds(500));
  EXPECT_EQ(usual.killAt - usual.terminateAt, seconds(5));
  // A late renewal, at two thirds of the validity, must not end the command.
  for (const milliseconds span : {milliseconds(100), milliseconds(900), milliseconds(30'000)}) {
    const LossPlan plan = planLoss(end, span, std::chrono::hours(1));
    EXPECT_LT(end - plan.terminateAt, span / 2) << span.count();
    EXPECT_LT(plan.killAt, end);
  }
  const LossPlan atOnce = planLoss(end, seconds(30), milliseconds(0));
  EXPECT_EQ(atOnce.killAt, atOnce.terminateAt);
}

LockInfo heldLock() {
  LockInfo info;
  info.name = "a";
  info.kind = LockKind::fairLock;
  info.timeToLive = milliseconds(25'000);
  info.holders.push_back({"uuid:1", 1, true, composeLabel(example()), {}});
  info.waiters = {"uuid:2", "uuid:3"};
  return info;
}

TEST(CliTexts, WhoeverWaitsReadsForWhom) {
  const auto now = *example().since + seconds(52);
  EXPECT_EQ(
      waitingLine("a", heldLock(), seconds(12), Duration(seconds(60)), now),
      "waiting 12s for \"a\" (at most 1m00s): held by night shift (ana@web1, pid 4711) for 52s, "
      "25s left unless renewed");
  EXPECT_EQ(waitingLine("a", {}, seconds(2), {}, now), "waiting 2s for \"a\"");
  LockInfo unlabelled = heldLock();
  unlabelled.holders[0].label.clear();
  EXPECT_THAT(waitingLine("a", unlabelled, seconds(2), {}, now), HasSubstr("held by owner uuid:1"));
}

TEST(CliTexts, SeveralLocksAreNamedTogether) {
  LockChoice lock;
  lock.name = "a";
  EXPECT_EQ(shownNames(lock), "lock \"a\"");
  lock.also = {"b", "odd\033[2Jname"};
  EXPECT_EQ(shownNames(lock), "lock \"a\", \"b\", \"odd\\x1b[2Jname\"");
}

TEST(CliTexts, ALockInFull) {
  const std::string text =
      describeLock(heldLock(), *example().since + seconds(52), Style(ColorMode::never, 1));
  EXPECT_THAT(text, HasSubstr("a  fair lock\n"));
  EXPECT_THAT(text, HasSubstr("25s unless renewed"));
  EXPECT_THAT(text, HasSubstr("night shift (ana@web1, pid 4711), for 52s"));
  EXPECT_THAT(text, HasSubstr("2 in the queue"));
}

TEST(CliTexts, ATextThatIsTooLongLosesItsMiddle) {
  EXPECT_EQ(abridged("orders:17", 9), "orders:17");
  EXPECT_EQ(abridged("orders:17", 8), "ord...17");
  EXPECT_EQ(abridged("orders:17", 4), "o...");
  EXPECT_EQ(abridged("orders:17", 2), "..");
  EXPECT_EQ(abridged("orders:17", 0), "");
  // Escape sequences stay whole.
  EXPECT_EQ(abridged("a\\x01b\\\\c\\x02", 8), "a...\\x02");
  EXPECT_EQ(abridged("\\n\\n\\n\\n", 7), "\\n...\\n");
}

TEST(CliTexts, TheTableTellsLongNamesApart) {
  std::vector<LockInfo> locks{heldLock(), heldLock()};
  locks[0].name = std::string(70, 'x') + ":1";
  locks[1].name = std::string(70, 'x') + ":2";
  const std::string table = tableOfLocks(locks, *example().since, Style(ColorMode::never, 1));
  EXPECT_THAT(table, HasSubstr("x:1  "));
  EXPECT_THAT(table, HasSubstr("x:2  "));
}

TEST(CliTexts, NoEscapeSequenceOfOthersReachesTheTerminal) {
  LockInfo hostile = heldLock();
  hostile.name = "a\033[2Jb";
  hostile.holders[0].label = "\033]0;title\a";
  hostile.holders[0].owner = "\033[5m:1";
  LockInfo unlabelled = hostile;
  unlabelled.holders[0].label.clear();
  const Style plain(ColorMode::never, 1);
  const auto now = *example().since;
  for (const std::string& text : {describeLock(hostile, now, plain),
                                  tableOfLocks({hostile}, now, plain),
                                  waitingLine(hostile.name, hostile, seconds(1), {}, now),
                                  describeLock(unlabelled, now, plain),
                                  tableOfLocks({unlabelled}, now, plain),
                                  waitingLine(hostile.name, unlabelled, seconds(1), {}, now)}) {
    EXPECT_EQ(text.find('\033'), std::string::npos) << text;
    EXPECT_EQ(text.find('\a'), std::string::npos) << text;
  }
}

TEST(CliTexts, Json) {
  const std::string json = jsonOfLock(heldLock());
  EXPECT_THAT(json, HasSubstr("\"host\": \"web1\""));
  EXPECT_THAT(json, HasSubstr("\"ttlMs\": 25000"));
  LockInfo binary = heldLock();
  binary.name = "\xFF\xFE";
  EXPECT_THAT(jsonOfLocks({binary}), HasSubstr("\"name\""));
}

TEST(CliTexts, UrisHaveNoSecrets) {
  EXPECT_EQ(uriWithoutSecrets("redis://u:p@h:1/2?x=y"), "redis://h:1/2");
  EXPECT_EQ(uriWithoutSecrets("redis://h"), "redis://h");
  EXPECT_EQ(uriWithoutSecrets("unix:///run/a@b.sock"), "unix:///run/a@b.sock");
  EXPECT_EQ(uriWithoutSecrets("redis://u:p%40@h1,h2"), "redis://h1,h2");
}

}  // namespace
}  // namespace rlock::cli
