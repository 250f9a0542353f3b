// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/repetition.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <ostream>
#include <string>

namespace rlock::detail {

inline void PrintTo(Repetition::Next next, std::ostream* out) {
  static constexpr const char* kNames[]{"over", "repeat", "prepare", "giveUp"};
  *out << kNames[static_cast<int>(next)];
}

namespace repetition_test {
namespace {

using namespace std::chrono_literals;

using Clock = Repetition::Clock;
using Next = Repetition::Next;

constexpr Clock::time_point kStart = Clock::time_point() + 1h;
constexpr Clock::time_point kDeadline = kStart + 1s;

Repetition question() {
  return {false, false, kDeadline};
}
Repetition change() {
  return {true, false, kDeadline};
}
Repetition delivery() {
  return {true, true, kDeadline};
}

bool saysUncertain(const Repetition::Verdict& verdict) {
  return verdict.answer && verdict.answer->message().find("not known") != std::string::npos;
}

TEST(Repetition, QuestionFailsWithoutADoubt) {
  for (const Errc errc : {Errc::timedOut, Errc::connectionFailed, Errc::denied}) {
    const auto verdict = question().failed(Error(errc), false, kStart);
    ASSERT_TRUE(verdict.answer);
    EXPECT_EQ(verdict.answer->errc(), errc);
    EXPECT_FALSE(saysUncertain(verdict));
    EXPECT_EQ(verdict.next, Next::over);
    EXPECT_EQ(verdict.nextIfLeft, Next::over);
  }
}

TEST(Repetition, ChangeWithoutAnAnswerMayHaveHappened) {
  for (const Errc errc : {Errc::timedOut, Errc::connectionFailed, Errc::closed}) {
    EXPECT_TRUE(saysUncertain(change().failed(Error(errc), false, kStart)));
  }
  EXPECT_FALSE(saysUncertain(change().failed(Error(Errc::denied), false, kStart)));
}

TEST(Repetition, ChangeWhoseReplyWasLostMayHaveHappenedWhateverComesNext) {
  Repetition c = change();
  c.lost();
  EXPECT_TRUE(saysUncertain(c.failed(Error(Errc::denied), false, kStart)));
}

TEST(Repetition, TimeIsUp) {
  EXPECT_EQ(question().late(false).errc(), Errc::timedOut);
  EXPECT_EQ(question().late(false).message().find("not known"), std::string::npos);
  EXPECT_NE(change().late(false).message().find("not known"), std::string::npos);
  EXPECT_NE(delivery().late(false).message().find("goes on"), std::string::npos);
  EXPECT_EQ(question().late(true).errc(), Errc::closed);
  EXPECT_NE(delivery().late(true).message().find("not known"), std::string::npos);
}

TEST(Repetition, CertainFailureIsTheCallersToRepeatWhileThereIsOne) {
  const auto verdict = delivery().failed(Error(Errc::outOfMemory), false, kStart);
  ASSERT_TRUE(verdict.answer);
  EXPECT_FALSE(saysUncertain(verdict));
  EXPECT_EQ(verdict.next, Next::over);
  EXPECT_EQ(verdict.nextIfLeft, Next::repeat);
}

TEST(Repetition, DeliveryGoesOnPastItsDeadline) {
  const auto verdict = delivery().failed(Error(Errc::connectionFailed), false, kDeadline);
  ASSERT_TRUE(verdict.answer);
  EXPECT_NE(verdict.answer->message().find("goes on"), std::string::npos);
  EXPECT_EQ(verdict.next, Next::repeat);
  EXPECT_EQ(verdict.nextIfLeft, Next::repeat);
}

TEST(Repetition, LostDeliveryIsRepeatedBeforeTheCallerHearsAnything) {
  Repetition c = delivery();
  c.lost();
  const auto verdict = c.failed(Error(Errc::readOnly), false, kStart);
  EXPECT_FALSE(verdict.answer);
  EXPECT_EQ(verdict.next, Next::repeat);
}

TEST(Repetition, LapsedKeyMeansThatTheServerLostItsData) {
  const auto verdict = delivery().failed(Error(Errc::serverError), true, kStart);
  EXPECT_FALSE(verdict.answer);
  EXPECT_EQ(verdict.next, Next::prepare);
  EXPECT_EQ(verdict.nextIfLeft, Next::prepare);
}

TEST(Repetition, FailureThatStaysIsToldOrGivenUp) {
  auto verdict = delivery().failed(Error(Errc::wrongType), false, kStart);
  ASSERT_TRUE(verdict.answer);
  EXPECT_FALSE(saysUncertain(verdict));
  EXPECT_EQ(verdict.next, Next::over);
  EXPECT_EQ(verdict.nextIfLeft, Next::giveUp) << "nobody is there who could deal with it";
  Repetition c = delivery();
  c.lost();
  EXPECT_TRUE(saysUncertain(c.failed(Error(Errc::wrongType), false, kStart)));
  verdict = delivery().failed(Error(Errc::closed), false, kStart);
  EXPECT_EQ(verdict.next, Next::giveUp) << "the log says what became of it";
}

TEST(Repetition, PreparationIsTriedAgainWhileTheKeyIsCertainToLast) {
  const Repetition c = delivery();
  EXPECT_EQ(c.notPrepared(Errc::connectionFailed, kStart, kStart + 1ns), Next::prepare);
  EXPECT_EQ(c.notPrepared(Errc::connectionFailed, kStart, kStart), Next::giveUp);
  EXPECT_EQ(c.notPrepared(Errc::wrongType, kStart, kStart + 1ns), Next::giveUp);
}

TEST(Repetition, SendsUntilTheDeadlineAndThenForAsLongAsItTakes) {
  EXPECT_EQ(delivery().sendBefore(kStart), kDeadline);
  EXPECT_EQ(delivery().sendBefore(kDeadline), kDeadline + 1h);
}

TEST(Repetition, ClosingLeavesOneTry) {
  Repetition c = delivery();
  EXPECT_TRUE(c.takeLastTry());
  EXPECT_FALSE(c.takeLastTry());
}

}  // namespace
}  // namespace repetition_test
}  // namespace rlock::detail
