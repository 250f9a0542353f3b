// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/best_fit_order.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <set>

namespace rlock::detail {
namespace best_fit_order_test {
namespace {

using namespace std::chrono_literals;

class FakeWaiter final : public Waiter {
 public:
  void turn() noexcept override {}
  bool shutDown() noexcept override { return true; }
  void waiterAddRef() noexcept override {}
  void waiterDropRef() noexcept override {}
};

/// The first waiter needs ten, and stands before the others in the queue.
class BestFitOrderTest : public testing::Test {
 protected:
  BestFitOrderTest() {
    add(first_, 10);
    order_.firstTries();
    order_.refused(first_);
  }
  void add(Waiter& waiter, int need) {
    order_.makeRoom(need);
    order_.add(waiter, need);
  }
  Waiter* pass() {
    return order_.pass(
        now_, kSpan, [this](const Waiter& waiter) { return trying_.contains(&waiter); });
  }

  static constexpr std::chrono::milliseconds kSpan{1000};

  BestFitOrder order_;
  BestFitOrder::TimePoint now_ = BestFitOrder::TimePoint(1h);
  std::set<const Waiter*> trying_;
  FakeWaiter first_;
  FakeWaiter a_;
  FakeWaiter b_;
};

TEST_F(BestFitOrderTest, NobodyPassesWhoNeedsAsMuchAsWasRefused) {
  EXPECT_EQ(pass(), nullptr);
  add(a_, 10);
  EXPECT_EQ(pass(), nullptr);
  add(b_, 9);
  EXPECT_EQ(pass(), &b_);
}

TEST_F(BestFitOrderTest, OfThoseThatMayTheOneThatCameFirst) {
  add(a_, 9);
  add(b_, 1);
  EXPECT_EQ(pass(), &a_);
  trying_.insert(&a_);
  EXPECT_EQ(pass(), &b_) << "the one before it has a turn already";
}

TEST_F(BestFitOrderTest, ARefusalBarsEverybodyWhoNeedsAsMuch) {
  add(a_, 3);
  add(b_, 2);
  order_.refused(a_);
  EXPECT_EQ(pass(), &b_);
  order_.refused(b_);
  EXPECT_EQ(pass(), nullptr);
  order_.firstTries();
  order_.refused(first_);
  EXPECT_EQ(pass(), &a_) << "the first has tried since, so more may be free";
}

TEST_F(BestFitOrderTest, EverySecondSpanIsTheFirstOnes) {
  add(a_, 1);
  EXPECT_EQ(pass(), &a_);
  now_ += kSpan - 1ms;
  EXPECT_EQ(pass(), &a_);
  now_ += 1ms;
  EXPECT_EQ(pass(), nullptr) << "the second span";
  now_ += kSpan;
  EXPECT_EQ(pass(), &a_) << "the third";
}

TEST_F(BestFitOrderTest, SpansBeginAnewForTheNextFirst) {
  add(a_, 1);
  EXPECT_EQ(pass(), &a_);
  now_ += kSpan;
  EXPECT_EQ(pass(), nullptr);
  order_.remove(first_);
  order_.firstHasLeft();
  EXPECT_EQ(pass(), &a_);
}

TEST_F(BestFitOrderTest, AWaiterThatLeftPassesNobody) {
  add(a_, 1);
  add(b_, 1);
  order_.remove(a_);
  EXPECT_EQ(pass(), &b_);
  order_.remove(b_);
  EXPECT_EQ(pass(), nullptr);
}

}  // namespace
}  // namespace best_fit_order_test
}  // namespace rlock::detail
