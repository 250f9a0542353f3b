// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/executor/call.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <malloc.h>
#include <string>
#include <string_view>

namespace rlock::detail {
namespace {

class PlainCall final : public Call {
 public:
  PlainCall() = default;

 private:
  void finished(Outcome /*outcome*/) noexcept override {}
};

constexpr lua::Script kScript{"script", "0123456789012345678901234567890123456789", "return 1"};

TEST(Call, ComposingAgainLeavesNothingOfTheLastTimeInMemory) {
  const auto call = makeIntrusive<PlainCall>();
  const std::string longName(10'000, 'n');
  const auto compose = [&] {
    call->setScript(kScript, 1);
    call->addArgument(call->store(longName));
  };
  compose();
  const std::size_t before = ::mallinfo2().uordblks;
  for (int i = 0; i < 1000; ++i) {
    compose();
  }
  EXPECT_LT(::mallinfo2().uordblks, before + 1'000'000);
  EXPECT_EQ(call->argv().back(), longName);
}

TEST(Call, ComposingAgainForgetsHowTheLastOneWasSent) {
  const auto call = makeIntrusive<PlainCall>();
  call->setScript(kScript, 0);
  call->setFreesMemory(true);
  call->setLate(Call::Late::takes);
  ASSERT_TRUE(call->sendDespiteMemoryLimit());
  EXPECT_FALSE(call->sendDespiteMemoryLimit()) << "once is enough";
  EXPECT_EQ(call->argv()[0], "EVAL");
  EXPECT_TRUE(call->argv()[1].ends_with(kScript.body));
  EXPECT_FALSE(call->argv()[1].starts_with("#!")) << "servers before Redis 7 cannot read that";
  call->setScript(kScript, 0);
  EXPECT_EQ(call->argv()[0], "EVALSHA");
  EXPECT_FALSE(call->sendsText());
  EXPECT_EQ(call->late(), Call::Late::harmless);
  call->setFreesMemory(true);
  EXPECT_TRUE(call->sendDespiteMemoryLimit());
}

TEST(Call, ARequestThatIsLostTwiceIsMarkedOnce) {
  const auto call = makeIntrusive<PlainCall>();
  call->setScript(kScript, 1);
  call->addIdempotencyKey("key", 12, std::chrono::milliseconds(900));
  ASSERT_EQ(call->idempotencyKey().size(), 3U);
  EXPECT_EQ(call->idempotencyKey()[1], "12");
  call->setAgain();
  call->setAgain();
  EXPECT_EQ(call->idempotencyKey()[0], "key");
  EXPECT_EQ(call->idempotencyKey()[1], "12!");
  EXPECT_EQ(call->idempotencyKey()[2], "900");
}

TEST(Call, ComposingAgainForgetsWhichWordsWereTheServersMatter) {
  const auto call = makeIntrusive<PlainCall>();
  call->setScript(kScript, 1);
  call->addIdempotencyKey("key", 12, std::chrono::milliseconds(900));
  call->addPublish();
  EXPECT_TRUE(call->publishes());
  call->setScript(kScript, 2);
  for (const char* const word : {"one", "two", "three", "four", "five"}) {
    call->addArgument(word);
  }
  EXPECT_TRUE(call->idempotencyKey().empty());
  EXPECT_FALSE(call->publishes());
  call->setPublish("SPUBLISH");
  EXPECT_EQ(call->argv().size(), 8U);
  for (const std::string_view word : call->argv()) {
    EXPECT_NE(word, "SPUBLISH");
  }
}

TEST(Call, TheHashIsSentToAnotherServerFirst) {
  const auto call = makeIntrusive<PlainCall>();
  call->setScript(kScript, 0);
  call->setFreesMemory(true);
  ASSERT_TRUE(call->sendDespiteMemoryLimit());
  call->sendHash();
  EXPECT_EQ(call->argv()[0], "EVALSHA");
  EXPECT_EQ(call->argv()[1], kScript.sha1);
  EXPECT_TRUE(call->sendDespiteMemoryLimit()) << "it may be short of memory, too";
}

}  // namespace
}  // namespace rlock::detail
