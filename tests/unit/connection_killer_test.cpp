// SPDX-License-Identifier: Apache-2.0
#include "unit/manual_env.hpp"
#include <rlock/detail/executor/connection_killer.hpp>
#include <rlock/detail/net/pending_requests.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace connection_killer_test {
namespace {

using namespace std::chrono_literals;

using Clock = Env::Clock;
using State = ConnectionKiller::State;
using SessionPtr = ConnectionKiller::SessionPtr;
using Words = std::vector<std::string>;

/// Notes what is sent; the test answers.
class FakeLink final : public net::CommandTransport {
 public:
  void open() override {}
  void close() noexcept override {}
  bool submit(net::Request& request, std::span<const std::string_view> argv, Mode mode) override {
    if (!up_) {
      return false;
    }
    sent.emplace_back(argv.begin(), argv.end());
    pending_.append(request, 1, mode, Clock::now());
    pending_.offer(1);
    return true;
  }
  Awaited await(net::Request& /*request*/, Clock::time_point /*deadline*/) override {
    return Awaited::complete;
  }
  void distrust() noexcept override {}
  void abandon(Clock::time_point /*since*/, Errc /*errc*/, const char* /*what*/) noexcept override {
  }
  [[nodiscard]] bool up() const noexcept override { return up_; }
  [[nodiscard]] Totals totals() const noexcept override { return {}; }

  void setUp(bool up) noexcept { up_ = up; }
  void answer(Reply::Type type, std::string_view text, std::int64_t integer = 0) {
    Reply reply;
    reply.type = type;
    reply.text = text;
    reply.integer = integer;
    net::PendingRequests::Ended ended;
    pending_.take(std::move(reply), Clock::now(), ended);
    complete(ended);
  }
  /// The connection breaks.
  void lose() {
    up_ = false;
    loseRequests();
  }
  void loseRequests() {
    net::PendingRequests::Ended ended;
    pending_.fail(nullptr, ended);
    complete(ended);
  }

  std::vector<Words> sent;

 private:
  static void complete(net::PendingRequests::Ended& ended) {
    while (const auto request = ended.background.pop()) {
      net::PendingRequests::complete(*request);
    }
  }

  bool up_ = true;
  net::PendingRequests pending_{3000ms};
};

class ConnectionKillerTest : public testing::Test {
 protected:
  static SessionPtr session(std::uint64_t id,
                            const std::string& run = "run",
                            const std::string& address = "127.0.0.1:1") {
    auto made = std::make_shared<net::ServerSession>();
    made->node = "node";
    made->clientId = id;
    made->clientAddress = address;
    made->runId = run;
    made->canKill = true;
    return made;
  }
  void answer(std::int64_t killed) { link->answer(Reply::Type::integer, {}, killed); }
  void refuse(std::string_view text) { link->answer(Reply::Type::error, text); }

  int changes = 0;
  int denials = 0;
  std::vector<std::string> warnings;
  std::shared_ptr<ManualEnv> env = std::make_shared<ManualEnv>();
  std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
  ConnectionKiller killer{
      env,
      link,
      std::make_shared<const Logger>(
          [this](LogLevel, std::string_view text) { warnings.emplace_back(text); },
          LogLevel::warning),
      [this] { ++changes; },
      [this] { ++denials; }};
};

TEST_F(ConnectionKillerTest, IsDeadOnlyWhenTheServerHasSaidSo) {
  killer.up(session(2));
  const SessionPtr lost = session(1);
  EXPECT_EQ(killer.check(lost), State::asked);
  EXPECT_EQ(link->sent, (std::vector<Words>{{"CLIENT", "KILL", "ID", "1"}}));
  EXPECT_EQ(killer.check(lost), State::asked) << "one request, however many ask";
  EXPECT_EQ(link->sent.size(), 1U);
  EXPECT_EQ(changes, 0);
  answer(1);
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(killer.check(lost), State::dead);
}

TEST_F(ConnectionKillerTest, OneThatIsNotThereIsDeadToo) {
  killer.up(session(2));
  const SessionPtr lost = session(1);
  killer.check(lost);
  answer(0);
  EXPECT_EQ(killer.check(lost), State::dead);
}

TEST_F(ConnectionKillerTest, AnotherProcessOfTheServerHasNothingOfIt) {
  killer.up(session(2, "another run"));
  EXPECT_EQ(killer.check(session(1)), State::dead);
  EXPECT_TRUE(link->sent.empty());
}

// An id may have been given anew, to somebody else's connection.
TEST_F(ConnectionKillerTest, WithoutTheProcessesNameTheAddressMustFitAsWell) {
  killer.up(session(2, ""));
  killer.check(session(1, "run", "10.0.0.7:99"));
  EXPECT_EQ(link->sent, (std::vector<Words>{{"CLIENT", "KILL", "ID", "1", "ADDR", "10.0.0.7:99"}}));
}

// The process that it led to may be the present one.
TEST_F(ConnectionKillerTest, ALostConnectionToAProcessWithoutANameIsNotDeadElsewhere) {
  killer.up(session(2));
  EXPECT_EQ(killer.check(session(1, "", "10.0.0.7:99")), State::asked);
  EXPECT_EQ(link->sent, (std::vector<Words>{{"CLIENT", "KILL", "ID", "1", "ADDR", "10.0.0.7:99"}}));
}

TEST_F(ConnectionKillerTest, WhatCannotBeNamedIsRefused) {
  killer.up(session(2, ""));
  EXPECT_EQ(killer.check(session(1, "run", "")), State::refused);
  EXPECT_EQ(killer.check(session(0, "run")), State::refused);
  EXPECT_TRUE(link->sent.empty());
}

TEST_F(ConnectionKillerTest, NeverAsksForTheConnectionThatItAsksOn) {
  const SessionPtr current = session(1);
  killer.up(current);
  EXPECT_EQ(killer.check(current), State::asked);
  EXPECT_TRUE(link->sent.empty());
  // The connection that comes after it asks.
  killer.up(session(2));
  EXPECT_EQ(link->sent, (std::vector<Words>{{"CLIENT", "KILL", "ID", "1"}}));
}

TEST_F(ConnectionKillerTest, WaitsForAConnection) {
  link->setUp(false);
  const SessionPtr lost = session(1);
  EXPECT_EQ(killer.check(lost), State::asked);
  link->setUp(true);
  killer.up(session(2));
  EXPECT_EQ(link->sent.size(), 1U);
  // It breaks under the request, and the next one asks again.
  link->lose();
  EXPECT_EQ(killer.check(lost), State::asked);
  link->setUp(true);
  killer.up(session(3));
  EXPECT_EQ(link->sent.size(), 2U);
  answer(1);
  EXPECT_EQ(killer.check(lost), State::dead);
}

TEST_F(ConnectionKillerTest, ARefusalIsAskedAgainMoreAndMoreRarely) {
  killer.up(session(2));
  const SessionPtr lost = session(1);
  killer.check(lost);
  refuse("NOPERM no");
  EXPECT_EQ(killer.check(lost), State::refused);
  ASSERT_TRUE(killer.refusal(lost));
  EXPECT_EQ(killer.refusal(lost)->errc(), Errc::denied);
  EXPECT_EQ(denials, 1);
  EXPECT_EQ(changes, 1);
  for (const auto pause : {20ms, 40ms, 80ms}) {
    ASSERT_TRUE(env->armed());
    EXPECT_EQ(env->expire(), pause);
    refuse("NOPERM no");
  }
  EXPECT_EQ(warnings.size(), 1U) << "one warning for all";
  env->expire();
  answer(1);
  EXPECT_EQ(killer.check(lost), State::dead);
}

TEST_F(ConnectionKillerTest, ABusyServerIsNoRefusal) {
  killer.up(session(2));
  const SessionPtr lost = session(1);
  killer.check(lost);
  refuse("LOADING wait");
  EXPECT_EQ(killer.check(lost), State::asked);
  EXPECT_EQ(denials, 0);
}

// Each answer has those who wait check once more, which must not be a hot loop.
TEST_F(ConnectionKillerTest, ABusyServerIsAskedAgainAfterAPauseOnly) {
  killer.up(session(2));
  const SessionPtr lost = session(1);
  killer.check(lost);
  refuse("LOADING wait");
  EXPECT_EQ(killer.check(lost), State::asked);
  EXPECT_EQ(link->sent.size(), 1U);
  EXPECT_EQ(env->expire(), 20ms);
  EXPECT_EQ(link->sent.size(), 2U);
}

TEST_F(ConnectionKillerTest, AfterASuccessPausesAreShortAgain) {
  killer.up(session(9));
  const SessionPtr first = session(1);
  killer.check(first);
  refuse("NOPERM no");
  env->expire();
  refuse("NOPERM no");
  env->expire();
  answer(1);
  const SessionPtr second = session(2);
  killer.check(second);
  refuse("NOPERM no");
  EXPECT_EQ(env->expire(), 20ms);
}

TEST_F(ConnectionKillerTest, OverAnotherConnectionPausesAreShortAgain) {
  killer.up(session(2));
  const SessionPtr lost = session(1);
  killer.check(lost);
  refuse("NOPERM no");
  for (int i = 0; i < 3; ++i) {
    env->expire();
    refuse("NOPERM no");
  }
  killer.up(session(3));
  refuse("NOPERM no");
  EXPECT_EQ(env->expire(), 160ms) << "the timer from before";
  refuse("NOPERM no");
  EXPECT_EQ(env->expire(), 20ms);
}

TEST_F(ConnectionKillerTest, ARefusalSaysNothingAboutTheNextConnection) {
  killer.up(session(2));
  const SessionPtr lost = session(1);
  killer.check(lost);
  refuse("NOPERM no");
  killer.up(session(3));
  EXPECT_EQ(killer.check(lost), State::asked);
  EXPECT_FALSE(killer.refusal(lost));
}

TEST_F(ConnectionKillerTest, ForgetsWhatNobodyWaitsForAnyMore) {
  killer.up(session(2));
  SessionPtr lost = session(1);
  killer.check(lost);
  refuse("NOPERM no");
  const std::weak_ptr<const net::ServerSession> kept = lost;
  lost.reset();
  EXPECT_FALSE(kept.expired());
  env->expire();
  EXPECT_TRUE(kept.expired());
  EXPECT_EQ(link->sent.size(), 1U);
}

TEST_F(ConnectionKillerTest, AnAnswerAfterTheEndIsNobodys) {
  killer.up(session(2));
  killer.check(session(1));
  killer.close();
  answer(1);
  EXPECT_EQ(changes, 0);
}

TEST_F(ConnectionKillerTest, WhatAnotherProcessHasNothingOfIsToldWhenTheKillIsOver) {
  killer.up(session(2));
  const SessionPtr lost = session(1);
  EXPECT_EQ(killer.check(lost), State::asked);
  // The other process is there before the end of the kill is told.
  killer.up(session(3, "another run"));
  link->loseRequests();
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(killer.check(lost), State::dead);
}

// An address may lead to a replica for a moment, and back to where the lost request still is.
TEST_F(ConnectionKillerTest, OneThatIsDeadElsewhereIsKilledWhereItCameFrom) {
  const SessionPtr lost = session(1);
  killer.up(session(2, "another run"));
  EXPECT_EQ(killer.check(lost), State::dead);
  killer.up(session(3));
  EXPECT_EQ(killer.check(lost), State::asked);
  EXPECT_EQ(link->sent, (std::vector<Words>{{"CLIENT", "KILL", "ID", "1"}}));
  answer(1);
  EXPECT_EQ(killer.check(lost), State::dead);
}

TEST_F(ConnectionKillerTest, AnAnswerThatIsNoneIsARefusal) {
  killer.up(session(2));
  const SessionPtr lost = session(1);
  killer.check(lost);
  link->answer(Reply::Type::status, "OK");
  EXPECT_EQ(denials, 1);
  EXPECT_EQ(killer.check(lost), State::refused);
}

}  // namespace
}  // namespace connection_killer_test
}  // namespace rlock::detail
