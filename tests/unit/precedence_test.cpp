// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/precedence.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace rlock::detail {
namespace precedence_test {
namespace {

using namespace std::chrono_literals;
using Answer = Precedence::Answer;

// The name that the queue's tests have is taken by their fixture.
struct PrecedenceOfOthers : ::testing::Test {
  Precedence precedence;
  Precedence::TimePoint now{1h};

  /// A pause in which other clients heard the release, until just before its end.
  void pause() {
    const std::uint64_t number = precedence.begin(now);
    ASSERT_NE(number, 0U);
    EXPECT_EQ(precedence.answered(number, true, true), Answer::pause);
    EXPECT_EQ(precedence.message(), Answer::nothing) << "that of this client's own release";
  }
  /// The same, and nobody takes the lock.
  void unusedPause() {
    pause();
    precedence.tries();
    precedence.granted(now);
  }
  /// The shortest time after which there is a pause again.
  std::chrono::milliseconds without() {
    for (auto time = 0ms;; time += 1ms) {
      if (precedence.begin(now + time) != 0) {
        precedence.end();
        return time;
      }
    }
  }
};

TEST_F(PrecedenceOfOthers, AfterAPauseThatNobodyUsedThereIsNoneForATimeThatDoubles) {
  for (auto expected = Precedence::kShortest; expected < Precedence::kLongest; expected *= 2) {
    unusedPause();
    EXPECT_EQ(precedence.begin(now + expected - 1ms), 0U);
    EXPECT_EQ(without(), expected);
    now += expected;
  }
  for (int i = 0; i < 2; ++i) {
    unusedPause();
    EXPECT_EQ(without(), Precedence::kLongest);
    now += Precedence::kLongest;
  }
}

TEST_F(PrecedenceOfOthers, APauseThatAnotherUsedMakesTheTimeShortAgain) {
  unusedPause();
  now += Precedence::kShortest;
  unusedPause();
  now += 2 * Precedence::kShortest;
  pause();
  EXPECT_EQ(precedence.message(), Answer::turn) << "that of the client that has had the lock";
  unusedPause();
  EXPECT_EQ(without(), Precedence::kShortest);
}

TEST_F(PrecedenceOfOthers, SoDoesOneAfterWhichTheFirstWaiterIsRefused) {
  unusedPause();
  now += Precedence::kShortest;
  pause();
  precedence.tries();
  precedence.refused();
  precedence.granted(now);
  EXPECT_EQ(without(), 0ms) << "the grant belongs to no pause";
  unusedPause();
  EXPECT_EQ(without(), Precedence::kShortest);
}

TEST_F(PrecedenceOfOthers, ARefusalOutsideOfAPauseSaysNothing) {
  unusedPause();
  now += Precedence::kShortest;
  precedence.refused();
  unusedPause();
  EXPECT_EQ(without(), 2 * Precedence::kShortest);
}

TEST_F(PrecedenceOfOthers, AGrantIsOfOnePauseOnly) {
  unusedPause();
  now += Precedence::kShortest;
  precedence.granted(now);
  EXPECT_EQ(without(), 0ms);
}

TEST_F(PrecedenceOfOthers, AnAnswerOfTheLastReleaseIsNotThatOfTheNext) {
  const std::uint64_t last = precedence.begin(now);
  const std::uint64_t next = precedence.begin(now);
  EXPECT_NE(last, next);
  EXPECT_EQ(precedence.answered(last, true, true), Answer::nothing);
  EXPECT_EQ(precedence.answered(next, true, true), Answer::pause);
  EXPECT_EQ(precedence.answered(next, true, true), Answer::nothing) << "it is answered";
}

TEST_F(PrecedenceOfOthers, AnAnswerThatComesWhenNobodyIsLeftSaysNothing) {
  const std::uint64_t number = precedence.begin(now);
  precedence.end();
  EXPECT_EQ(precedence.answered(number, false, false), Answer::nothing);
  EXPECT_EQ(precedence.message(), Answer::turn);
}

TEST_F(PrecedenceOfOthers, ATimeWithoutPausesEndsTheOneThatIsUnderWay) {
  unusedPause();
  const std::uint64_t number = precedence.begin(now + Precedence::kShortest);
  EXPECT_EQ(precedence.begin(now), 0U);
  EXPECT_EQ(precedence.answered(number, true, true), Answer::nothing);
}

TEST_F(PrecedenceOfOthers, TheMessageMayComeBeforeTheAnswer) {
  const std::uint64_t number = precedence.begin(now);
  EXPECT_EQ(precedence.message(), Answer::pause);
  EXPECT_EQ(precedence.answered(number, true, true), Answer::nothing) << "the pause has begun";
  EXPECT_EQ(precedence.message(), Answer::turn);
}

TEST_F(PrecedenceOfOthers, MessagesAreCountedAnewInEachPause) {
  pause();
  precedence.tries();
  precedence.refused();
  const std::uint64_t number = precedence.begin(now);
  EXPECT_EQ(precedence.message(), Answer::pause) << "the first of this pause";
  EXPECT_EQ(precedence.answered(number, true, true), Answer::nothing);
}

TEST_F(PrecedenceOfOthers, WhereNobodyHearsTheReleaseTheFirstWaiterTriesAtOnce) {
  EXPECT_EQ(precedence.answered(precedence.begin(now), false, false), Answer::turn);
  EXPECT_EQ(precedence.answered(precedence.begin(now), true, false), Answer::nothing)
      << "its message is on the way";
  EXPECT_EQ(precedence.message(), Answer::turn);
}

TEST_F(PrecedenceOfOthers, AMessageThatCameBeforeTheAnswerIsTheOnlyOne) {
  const std::uint64_t number = precedence.begin(now);
  EXPECT_EQ(precedence.message(), Answer::pause);
  EXPECT_EQ(precedence.answered(number, true, false), Answer::turn);
}

}  // namespace
}  // namespace precedence_test
}  // namespace rlock::detail
