// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/executor/connection_history.hpp>
#include <rlock/detail/executor/read_only_back_off.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

namespace rlock::detail {
namespace connection_history_test {
namespace {

using namespace std::chrono_literals;

using TimePoint = ConnectionHistory::TimePoint;

ConnectionHistory::SessionPtr session(const std::string& runId,
                                      const std::string& role = "master") {
  auto made = std::make_shared<net::ServerSession>();
  made->node = "node";
  made->runId = runId;
  made->role = role;
  return made;
}

Error failure(Errc errc = Errc::connectionFailed) {
  return Error(errc, "cut");
}

TEST(ConnectionHistory, TheFirstConnectionIsNoOtherThanBefore) {
  ConnectionHistory history;
  const auto up = history.up(session("a"), TimePoint(1h));
  EXPECT_FALSE(up.again);
  EXPECT_FALSE(up.replaced);
}

TEST(ConnectionHistory, AfterAFailureTheServerMayHaveLostItsData) {
  ConnectionHistory history;
  EXPECT_TRUE(history.down(failure(), TimePoint(1h)));
  const auto up = history.up(session("a"), TimePoint(1h));
  EXPECT_TRUE(up.again);
  EXPECT_FALSE(up.replaced) << "there was none before";
  EXPECT_FALSE(history.error().has_value());
}

TEST(ConnectionHistory, AnotherProcessIsNoticed) {
  ConnectionHistory history;
  history.up(session("a"), TimePoint(1h));
  auto up = history.up(session("a"), TimePoint(1h));
  EXPECT_TRUE(up.again) << "also when nobody told of the end of the one before";
  EXPECT_FALSE(up.replaced);
  history.down(failure(), TimePoint(1h));
  up = history.up(session("b"), TimePoint(1h));
  EXPECT_TRUE(up.again);
  EXPECT_TRUE(up.replaced);
  up = history.up(session("b"), TimePoint(1h));
  EXPECT_FALSE(up.replaced) << "it is compared with the latest";
}

// As with rules that deny INFO.
TEST(ConnectionHistory, WithoutARunIdAnotherAddressIsAnotherServer) {
  const auto at = [](const std::string& address) {
    auto made = std::make_shared<net::ServerSession>();
    made->node = "server.test:6379";
    made->address = address;
    return made;
  };
  ConnectionHistory history;
  history.up(at("10.0.0.1:6379"), TimePoint(1h));
  EXPECT_FALSE(history.up(at("10.0.0.1:6379"), TimePoint(2h)).replaced);
  EXPECT_TRUE(history.up(at("10.0.0.2:6379"), TimePoint(3h)).replaced) << "the name has moved";
}

// Requests of other threads go out as soon as there is a connection, before the loop has told of
// it.
TEST(ConnectionHistory, WhatWasSubmittedSinceTheEndOfAConnectionWasNotSubmittedOnIt) {
  ConnectionHistory history;
  history.down(failure(), TimePoint(1h));
  history.up(session("a"), TimePoint(2h));
  EXPECT_EQ(history.since(), TimePoint::min()) << "there was none before";
  history.down(failure(), TimePoint(3h));
  history.down(failure(), TimePoint(4h));
  EXPECT_EQ(history.since(), TimePoint::min()) << "it is the last one still";
  history.up(session("a"), TimePoint(5h));
  EXPECT_EQ(history.since(), TimePoint(3h));
  history.up(session("a"), TimePoint(6h));
  EXPECT_EQ(history.since(), TimePoint(6h)) << "nobody told of the end of the one before";
}

TEST(ConnectionHistory, AForgottenAuthenticationEndsTheConnectionThatItWasForgottenOn) {
  ConnectionHistory history;
  history.up(session("a"), TimePoint(1h));
  history.authenticationForgotten(TimePoint(2h));
  EXPECT_TRUE(history.endedForgotten());
  history.down(failure(), TimePoint(3h));
  EXPECT_TRUE(history.endedForgotten()) << "that is its end";
  history.authenticationForgotten(TimePoint(2h));
  EXPECT_TRUE(history.endedForgotten()) << "the end may be told of before the answer";
  history.down(failure(), TimePoint(4h));
  EXPECT_FALSE(history.endedForgotten()) << "an attempt has failed since";
  history.authenticationForgotten(TimePoint(2h));
  EXPECT_FALSE(history.endedForgotten()) << "the answer was late";
  history.up(session("a"), TimePoint(5h));
  history.authenticationForgotten(TimePoint(2h));
  EXPECT_FALSE(history.endedForgotten()) << "on the connection before";
  history.authenticationForgotten(TimePoint(6h));
  EXPECT_TRUE(history.endedForgotten());
  history.up(session("a"), TimePoint(7h));
  EXPECT_FALSE(history.endedForgotten());
}

TEST(ConnectionHistory, OfAnOutageOnlyItsBeginningIsNewsAndWhatItTurnsInto) {
  ConnectionHistory history;
  EXPECT_TRUE(history.down(failure(), TimePoint(1h)));
  EXPECT_FALSE(history.down(failure(), TimePoint(1h)));
  EXPECT_TRUE(history.down(failure(Errc::authenticationFailed), TimePoint(1h)));
  EXPECT_FALSE(history.down(failure(Errc::authenticationFailed), TimePoint(1h)));
  history.up(session("a"), TimePoint(1h));
  EXPECT_TRUE(history.down(failure(Errc::authenticationFailed), TimePoint(1h)));
}

TEST(ConnectionHistory, AReplicaThatIsLeftAgainAndAgainIsToldOnce) {
  ConnectionHistory history;
  const TimePoint start(1h);
  EXPECT_TRUE(history.down(failure(Errc::readOnly), start));
  history.up(session("a", "replica"), TimePoint(1h));
  EXPECT_FALSE(history.down(failure(Errc::readOnly), start + 59s));
  history.up(session("a", "replica"), TimePoint(1h));
  EXPECT_FALSE(history.down(failure(Errc::readOnly), start + 118s)) << "each time holds it back";
  history.up(session("a", "replica"), TimePoint(1h));
  EXPECT_TRUE(history.down(failure(Errc::readOnly), start + 178s));
  history.up(session("b"), TimePoint(1h));
  EXPECT_TRUE(history.down(failure(Errc::readOnly), start + 179s)) << "there was a master";
}

TEST(ConnectionHistory, AFailureStaysUntilThereIsAConnection) {
  ConnectionHistory history;
  EXPECT_FALSE(history.error().has_value());
  EXPECT_FALSE(history.hopeless());
  ErrorContext context;
  context.elapsed = 5s;
  context.node = "node";
  history.down(Error(Errc::denied, "not for you", context), TimePoint(1h));
  ASSERT_TRUE(history.error().has_value());
  EXPECT_EQ(history.error()->errc(), Errc::denied);
  EXPECT_EQ(history.error()->context().node, "node");
  EXPECT_EQ(history.error()->context().elapsed, ErrorContext().elapsed)
      << "that was the time of one attempt";
  EXPECT_TRUE(history.hopeless());
  history.down(failure(), TimePoint(1h));
  EXPECT_FALSE(history.hopeless());
}

TEST(ReadOnlyBackOff, AServerIsLeftMoreAndMoreRarely) {
  ReadOnlyBackOff backOff(1s, 4s);
  TimePoint now(1h);
  EXPECT_TRUE(backOff.leaves(now));
  for (const auto pause : {1s, 2s, 4s, 4s}) {
    EXPECT_FALSE(backOff.leaves(now + pause - 1ns));
    now += pause;
    EXPECT_TRUE(backOff.leaves(now));
  }
}

TEST(ReadOnlyBackOff, CalmMakesItPromptAgain) {
  ReadOnlyBackOff backOff(1s, 4s);
  TimePoint now(1h);
  EXPECT_TRUE(backOff.leaves(now));
  now += 1s;
  EXPECT_TRUE(backOff.leaves(now));
  // The pause is 2 s by now: ten of them after its end there was calm.
  now += 2s + 20s;
  EXPECT_TRUE(backOff.leaves(now));
  EXPECT_FALSE(backOff.leaves(now + 3s)) << "that was not more than ten pauses: it grew";
  now += 4s + 40s + 1ns;
  EXPECT_TRUE(backOff.leaves(now));
  EXPECT_TRUE(backOff.leaves(now + 1s)) << "the first pause";
}

}  // namespace
}  // namespace connection_history_test
}  // namespace rlock::detail
