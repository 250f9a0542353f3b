// SPDX-License-Identifier: Apache-2.0

// Objects of which there are many stay small, and the things that only a request needs are given
// back in between.

#include <rlock/detail/base/rare.hpp>
#include <rlock/detail/engine/acquire_task.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/owner_field.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {
namespace memory_test {
namespace {

#if defined(__GLIBCXX__) && defined(__x86_64__)
// bench/rlock_bench memory counts what they make together. A bound is lowered with what is reached,
// and raised only on purpose.
static_assert(sizeof(Hold) <= 280);
static_assert(sizeof(LockScripts) <= 104);
static_assert(sizeof(ScriptedLock) <= 48);
static_assert(sizeof(Waiter) <= 144);
static_assert(sizeof(AcquireTask) <= 960);
static_assert(sizeof(Call) <= 136);
#endif

class PlainCall final : public Call {
 public:
  PlainCall() = default;
  using Call::rest;

 private:
  void finished(Outcome /*outcome*/) noexcept override {}
};

constexpr lua::Script kScript{"script", "0123456789012345678901234567890123456789", "return 1"};

TEST(Memory, ACallThatRestsHasNoWordsAndIsComposedAnew) {
  const auto call = makeIntrusive<PlainCall>();
  EXPECT_TRUE(call->argv().empty());
  EXPECT_TRUE(call->key().empty());
  EXPECT_TRUE(call->idempotencyKey().empty());
  call->rest();
  for (int i = 0; i < 3; ++i) {
    call->setScript(kScript, 1);
    call->addArgument(call->store("key"));
    call->setSlot(7);
    EXPECT_EQ(call->key(), "key");
    EXPECT_EQ(call->slot(), 7);
    EXPECT_EQ(call->argv().size(), 4U);
    EXPECT_TRUE(call->reply().isNil());
    call->rest();
    EXPECT_TRUE(call->argv().empty());
    EXPECT_NE(call->slot(), 7);
  }
}

// An argument may be stored before the command is composed of it.
TEST(Memory, ACallWithoutWordsStoresATextForThem) {
  const auto call = makeIntrusive<PlainCall>();
  call->setCommand({"HGET", "name", call->store("field")});
  EXPECT_EQ(call->argv().back(), "field");
  call->rest();
  call->setCommand({"HGET", "name", call->store("another")});
  EXPECT_EQ(call->argv().back(), "another");
}

TEST(Memory, AnOwnersTextComesBackAfterARest) {
  const std::string client = "01234567-89ab-cdef-0123-456789abcdef";
  OwnerField field(client, OwnerId{42});
  EXPECT_EQ(field.text(), client + ":42");
  EXPECT_EQ(field.text().data(), field.text().data()) << "it stays";
  field.rest();
  EXPECT_EQ(field.text(), client + ":42");
  EXPECT_EQ(OwnerText(std::string(50, 'c'), OwnerId{1}).text(), std::string(50, 'c') + ":1");
}

TEST(Memory, ALockHasItsNameInItsChannel) {
  for (const std::string_view name :
       {"lock", "{tag}lock", "}", "a}b", "l", "redisson_lock__channel"}) {
    const LockScripts scripts(name);
    EXPECT_EQ(scripts.name, name);
    EXPECT_EQ(scripts.channel, lockChannel(name));
    EXPECT_GE(scripts.name.data(), scripts.channel.data());
    EXPECT_LE(scripts.name.data() + scripts.name.size(),
              scripts.channel.data() + scripts.channel.size());
    // A string of the standard library that grows has twice its first room at least.
    EXPECT_LE(scripts.channel.capacity(), std::max<std::size_t>(scripts.channel.size(), 30));
  }
}

TEST(Memory, ATitleIsAStringForWhoeverAsks) {
  LockScripts scripts("prefix:lock");
  EXPECT_EQ(scripts.title(), "prefix:lock");
  const std::string& text = scripts.titleString();
  EXPECT_EQ(text, "prefix:lock");
  EXPECT_EQ(&text, &scripts.titleString());
  EXPECT_EQ(scripts.title(), "prefix:lock");

  LockScripts other("prefix:lock");
  other.setTitle("lock");
  EXPECT_EQ(other.title(), "lock");
  EXPECT_EQ(other.titleString(), "lock");
  EXPECT_EQ(other.name, "prefix:lock");
}

TEST(Memory, RareThingsAreOneWordWhileTheyAreNotThere) {
  static_assert(sizeof(RareText) == sizeof(void*));
  static_assert(sizeof(RareVector<int>) == sizeof(void*));
  RareText text;
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(text.view(), "");
  text = RareText("label");
  EXPECT_EQ(text.view(), "label");
  EXPECT_EQ(std::string(text), "label");
  EXPECT_TRUE(RareText("").empty());

  RareVector<int> numbers;
  EXPECT_TRUE(numbers.empty());
  EXPECT_EQ(numbers.begin(), numbers.end());
  numbers.keepOnly({});
  numbers.emplace_back(1);
  numbers.emplace_back(2);
  numbers.emplace_back(3);
  EXPECT_EQ(numbers.back(), 3);
  EXPECT_EQ(std::vector<int>(numbers.begin(), numbers.end()), (std::vector<int>{1, 2, 3}));
  numbers.keepOnly({3});
  EXPECT_EQ(numbers.size(), 1U);
  EXPECT_EQ(numbers[0], 3);
}

}  // namespace
}  // namespace memory_test
}  // namespace rlock::detail
