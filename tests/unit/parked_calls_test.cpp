// SPDX-License-Identifier: Apache-2.0
#include "unit/fake_env.hpp"
#include <rlock/detail/executor/parked_calls.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rlock::detail {
namespace {

using std::chrono_literals::operator""h;

class NamedCall final : public Call {
 public:
  explicit NamedCall(char name) : name_(name) { setCommand({"PING"}); }
  [[nodiscard]] char name() const noexcept { return name_; }

 private:
  void finished(Outcome /*outcome*/) noexcept override {}

  const char name_;
};

class ParkedCallsTest : public ::testing::Test {
 protected:
  IntrusivePtr<Call> park(char name, ParkedCalls::Wait wait = ParkedCalls::Wait::link) {
    IntrusivePtr<Call> call = makeIntrusive<NamedCall>(name);
    parked_->park(call, FakeEnv::Clock::time_point(1h), wait);
    return call;
  }
  /// The calls that a walk visits, in order; `visit` is what is done to each.
  std::string walk(ParkedCalls::Wait wait,
                   const std::function<void(const IntrusivePtr<Call>&)>& visit) {
    std::string names;
    parked_->each(wait, [&](const IntrusivePtr<Call>& call) {
      names += static_cast<const NamedCall&>(*call).name();
      visit(call);
    });
    return names;
  }

  std::unique_ptr<ParkedCalls> parked_ = std::make_unique<ParkedCalls>(
      std::make_shared<FakeEnv>(), [](const IntrusivePtr<Call>& /*call*/) {});
};

TEST_F(ParkedCallsTest, AreVisitedInTheOrderInWhichTheyWereParked) {
  park('a');
  park('b', ParkedCalls::Wait::kill);
  park('c');
  park('d');
  EXPECT_EQ(walk(ParkedCalls::Wait::link, [](const auto& /*call*/) {}), "acd");
  EXPECT_EQ(walk(ParkedCalls::Wait::kill, [](const auto& call) { ParkedCalls::unpark(*call); }),
            "b");
  EXPECT_EQ(walk(ParkedCalls::Wait::kill, [](const auto& /*call*/) {}), "");
  EXPECT_EQ(walk(ParkedCalls::Wait::link, [](const auto& call) { ParkedCalls::unpark(*call); }),
            "acd");
  EXPECT_TRUE(parked_->empty());
}

TEST_F(ParkedCallsTest, AVisitParksItsCallAgainAndIsNotMadeTwice) {
  park('a');
  park('b');
  EXPECT_EQ(walk(ParkedCalls::Wait::link,
                 [this](const auto& call) {
                   ParkedCalls::unpark(*call);
                   parked_->park(call, FakeEnv::Clock::time_point(1h), ParkedCalls::Wait::link);
                 }),
            "ab");
  EXPECT_FALSE(parked_->empty());
}

TEST_F(ParkedCallsTest, AVisitTakesOthersAlong) {
  park('a');
  const auto next = park('b');
  const auto last = park('c');
  const auto first = park('d');
  EXPECT_EQ(walk(ParkedCalls::Wait::link,
                 [&](const auto& call) {
                   if (call == first) {
                     return;
                   }
                   ParkedCalls::unpark(*next);
                   ParkedCalls::unpark(*last);
                 }),
            "ad");
}

TEST_F(ParkedCallsTest, AVisitWalksItself) {
  park('a');
  park('b');
  park('c');
  std::string inner;
  EXPECT_EQ(walk(ParkedCalls::Wait::link,
                 [&](const auto& /*call*/) {
                   inner += walk(ParkedCalls::Wait::link,
                                 [](const auto& call) { ParkedCalls::unpark(*call); });
                 }),
            "a");
  EXPECT_EQ(inner, "abc");
}

TEST_F(ParkedCallsTest, ThoseThatAreLeftAreLetGo) {
  const auto call = park('a');
  parked_.reset();
  EXPECT_FALSE(ParkedCalls::unpark(*call));
}

}  // namespace
}  // namespace rlock::detail
