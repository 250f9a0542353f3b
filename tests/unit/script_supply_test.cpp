// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/executor/script_supply.hpp>

#include <gtest/gtest.h>

namespace rlock::detail {
namespace script_supply_test {
namespace {

class PlainCall final : public Call {
 public:
  PlainCall() = default;

 private:
  void finished(detail::Outcome /*outcome*/) noexcept override {}
};

constexpr lua::Script kScript{"script", "0123456789012345678901234567890123456789", "return 1"};
constexpr lua::Script kOther{"other", "9876543210987654321098765432109876543210", "return 2"};

class ScriptSupplyTest : public ::testing::Test {
 protected:
  static IntrusivePtr<PlainCall> call(const lua::Script& script = kScript) {
    auto made = makeIntrusive<PlainCall>();
    made->setScript(script, 0);
    return made;
  }

  ScriptSupply scripts_;
};

TEST_F(ScriptSupplyTest, OneCallBringsTheTextAndTheOthersFollowByTheHash) {
  const auto first = call();
  const auto second = call();
  scripts_.supply(*first);
  scripts_.supply(*second);
  EXPECT_TRUE(first->sendsText());
  EXPECT_FALSE(second->sendsText());
  EXPECT_EQ(scripts_.loaded(), 1U);
}

TEST_F(ScriptSupplyTest, OneThatFollowedInVainBringsTheTextItself) {
  const auto first = call();
  const auto second = call();
  scripts_.supply(*first);
  scripts_.supply(*second);
  scripts_.supply(*second);
  EXPECT_TRUE(second->sendsText()) << "it would go round for ever";
  EXPECT_EQ(scripts_.loaded(), 2U);
}

TEST_F(ScriptSupplyTest, WhenATextHasArrivedOrIsLostTheNextMayBringIt) {
  const auto first = call();
  const auto second = call();
  const auto third = call();
  scripts_.supply(*first);
  scripts_.supply(*second);
  scripts_.answered(*second);
  scripts_.supply(*third);
  EXPECT_FALSE(third->sendsText()) << "the end of one that brings nothing says nothing";
  scripts_.answered(*first);
  const auto fourth = call();
  scripts_.supply(*fourth);
  EXPECT_TRUE(fourth->sendsText());
}

/// A call that brought a text may be composed anew, for another script, before it goes out.
TEST_F(ScriptSupplyTest, TheEndOfATextIsThatOfTheOneThatWasBrought) {
  const auto first = call();
  scripts_.supply(*first);
  const auto other = call(kOther);
  scripts_.supply(*other);
  first->setScript(kOther, 0);
  scripts_.answered(*first);
  const auto second = call();
  scripts_.supply(*second);
  EXPECT_TRUE(second->sendsText()) << "nobody else brings it";
  const auto third = call(kOther);
  scripts_.supply(*third);
  EXPECT_FALSE(third->sendsText()) << "its text is still under way";
}

TEST_F(ScriptSupplyTest, EachScriptHasItsOwnText) {
  const auto one = call();
  const auto other = call(kOther);
  scripts_.supply(*one);
  scripts_.supply(*other);
  EXPECT_TRUE(one->sendsText());
  EXPECT_TRUE(other->sendsText());
}

TEST_F(ScriptSupplyTest, TheFirstThatIsToBeAheadBringsTheTextUnasked) {
  const auto first = call();
  const auto second = call();
  scripts_.supplyAhead(*first);
  scripts_.supplyAhead(*second);
  EXPECT_TRUE(first->sendsText());
  EXPECT_FALSE(second->sendsText());
  EXPECT_EQ(scripts_.loaded(), 0U) << "nobody asked";
  scripts_.reconnected();
  const auto third = call();
  scripts_.supplyAhead(*third);
  EXPECT_TRUE(third->sendsText()) << "it may be another server";
}

TEST_F(ScriptSupplyTest, ACommandHasNoText) {
  const auto command = makeIntrusive<PlainCall>();
  command->setCommand({"PING"});
  scripts_.supplyAhead(*command);
  EXPECT_EQ(command->argv()[0], "PING");
}

}  // namespace
}  // namespace script_supply_test
}  // namespace rlock::detail
