// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/unique_function.hpp>

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace {

/// A callable of chosen size that counts its live instances.
template <std::size_t Size, bool NothrowMove = true>
class Counting {
 public:
  explicit Counting(int& live) : live_(&live) { ++*live_; }
  Counting(const Counting& other) : live_(other.live_) { ++*live_; }
  // NOLINTNEXTLINE(performance-noexcept-move-constructor): a throwing move is one of the cases
  Counting(Counting&& other) noexcept(NothrowMove) : live_(other.live_) { ++*live_; }
  Counting& operator=(const Counting&) = delete;
  Counting& operator=(Counting&&) = delete;
  ~Counting() { --*live_; }

  int operator()() const { return *live_; }

 private:
  int* live_;
  std::array<char, Size - sizeof(int*)> padding_{};
};

TEST(UniqueFunction, CallsAndReturns) {
  UniqueFunction<int(int, int)> add = [](int a, int b) { return a + b; };
  EXPECT_TRUE(add);
  EXPECT_EQ(add(2, 3), 5);
}

TEST(UniqueFunction, EmptyOnesSaySoAndThrow) {
  UniqueFunction<void()> empty;
  EXPECT_FALSE(empty);
  EXPECT_TRUE(empty == nullptr);
  EXPECT_THROW(empty(), std::bad_function_call);
  const UniqueFunction<void()> null(nullptr);
  EXPECT_FALSE(null);
  void (*nowhere)() = nullptr;
  const UniqueFunction<void()> pointer(nowhere);
  EXPECT_FALSE(pointer);
  const UniqueFunction<void()> function{std::function<void()>()};
  EXPECT_FALSE(function);
}

TEST(UniqueFunction, OwnsMoveOnlyState) {
  auto number = std::make_unique<int>(4);
  UniqueFunction<int()> get = [owned = std::move(number)] { return *owned; };
  static_assert(!std::is_copy_constructible_v<UniqueFunction<int()>>);
  UniqueFunction<int()> moved = std::move(get);
  EXPECT_EQ(moved(), 4);
  // NOLINTBEGIN(bugprone-use-after-move, clang-analyzer-cplusplus.Move): empty is promised
  EXPECT_FALSE(get);
  EXPECT_THROW(get(), std::bad_function_call);
  // NOLINTEND(bugprone-use-after-move, clang-analyzer-cplusplus.Move)
}

TEST(UniqueFunction, PassesArgumentsThrough) {
  UniqueFunction<std::size_t(std::unique_ptr<std::string>, std::string&)> take =
      [](std::unique_ptr<std::string> a, std::string& b) {
        b += *a;
        return b.size();
      };
  std::string text = "ab";
  EXPECT_EQ(take(std::make_unique<std::string>("cd"), text), 4U);
  EXPECT_EQ(text, "abcd");
}

TEST(UniqueFunction, DropsResultsWhenVoid) {
  int calls = 0;
  UniqueFunction<void()> function = [&calls] { return ++calls; };
  function();
  EXPECT_EQ(calls, 1);
}

TEST(UniqueFunction, KeepsMutableState) {
  UniqueFunction<int()> count = [n = 0]() mutable { return ++n; };
  count();
  EXPECT_EQ(count(), 2);
}

TEST(UniqueFunction, LetsExceptionsThrough) {
  UniqueFunction<void()> fail = [] { throw std::runtime_error("x"); };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_TRUE(fail);
}

template <class Target>
class UniqueFunctionStorage : public testing::Test {};

using Targets = testing::Types<Counting<16>,
                               Counting<UniqueFunction<int()>::kCapacity>,
                               Counting<UniqueFunction<int()>::kCapacity + 8>,
                               Counting<400>,
                               Counting<16, false>>;
TYPED_TEST_SUITE(UniqueFunctionStorage, Targets);

TYPED_TEST(UniqueFunctionStorage, DestroysExactlyOnce) {
  int live = 0;
  {
    UniqueFunction<int()> first = TypeParam(live);
    EXPECT_EQ(live, 1);
    UniqueFunction<int()> second = std::move(first);
    EXPECT_EQ(live, 1);
    EXPECT_EQ(second(), 1);
    UniqueFunction<int()> third;
    third = std::move(second);
    EXPECT_EQ(live, 1);
    third = UniqueFunction<int()>(TypeParam(live));
    EXPECT_EQ(live, 1);
    UniqueFunction<int()>& alias = third;
    third = std::move(alias);
    EXPECT_EQ(third(), 1);
    third = nullptr;
    EXPECT_EQ(live, 0);
    first = TypeParam(live);
    EXPECT_EQ(live, 1);
  }
  EXPECT_EQ(live, 0);
}

TYPED_TEST(UniqueFunctionStorage, SurvivesReallocation) {
  int live = 0;
  {
    std::vector<UniqueFunction<int()>> functions;
    for (int i = 0; i < 100; ++i) {
      // NOLINTNEXTLINE(performance-inefficient-vector-operation): growing is the test
      functions.emplace_back(TypeParam(live));
    }
    EXPECT_EQ(functions.front()(), 100);
  }
  EXPECT_EQ(live, 0);
}

TEST(UniqueFunction, MovesWithoutThrowing) {
  static_assert(std::is_nothrow_move_constructible_v<UniqueFunction<void()>>);
  static_assert(std::is_nothrow_move_assignable_v<UniqueFunction<void()>>);
  static_assert(std::is_nothrow_default_constructible_v<UniqueFunction<void()>>);
  static_assert(UniqueFunction<void()>::kCapacity >= 48);
}

TEST(UniqueFunction, RefusesWhatCannotBeCalled) {
  static_assert(!std::is_constructible_v<UniqueFunction<void(int)>, void (*)(std::string)>);
  static_assert(!std::is_constructible_v<UniqueFunction<void()>, int>);
  static_assert(std::is_constructible_v<UniqueFunction<long()>, int (*)()>);
}

TEST(UniqueFunction, MayReplaceItselfWhileItIsDestroyed) {
  // The old target's destructor reaches the function again, as a completed operation does that
  // drops its own handler.
  UniqueFunction<void()> function;
  struct Reenter {
    explicit Reenter(UniqueFunction<void()>& target) : target_(&target) {}
    Reenter(Reenter&& other) noexcept : target_(std::exchange(other.target_, nullptr)) {}
    Reenter& operator=(Reenter&&) = delete;
    ~Reenter() {
      if (target_ != nullptr) {
        *target_ = [] {};
      }
    }
    void operator()() const {}

    UniqueFunction<void()>* target_;
  };
  function = Reenter(function);
  function = nullptr;
  EXPECT_TRUE(function);
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.Move): the destructor has filled it again
  EXPECT_NO_THROW(function());
}

TEST(UniqueFunction, CallsMembers) {
  UniqueFunction<std::size_t(const std::string&)> size = &std::string::size;
  EXPECT_EQ(size("abc"), 3U);
}

}  // namespace
}  // namespace rlock::detail
