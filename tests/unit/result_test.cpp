// SPDX-License-Identifier: Apache-2.0
#include <rlock/result.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rlock {
namespace {

template <class F>
Errc errcOf(F&& call) {
  try {
    std::forward<F>(call)();
  } catch (const Error& error) {
    return error.errc();
  }
  return static_cast<Errc>(0);
}

TEST(Result, HoldsAValue) {
  const Result<int> result = 5;
  EXPECT_TRUE(result.has_value());
  EXPECT_TRUE(static_cast<bool>(result));
  EXPECT_EQ(result.value(), 5);
  EXPECT_EQ(*result, 5);
  EXPECT_EQ(result.value_or(7), 5);
}

TEST(Result, HoldsAnError) {
  const Result<int> result = Error(Errc::denied, "no", {.key = "k"});
  EXPECT_FALSE(result.has_value());
  EXPECT_FALSE(result);
  EXPECT_EQ(result.error().errc(), Errc::denied);
  EXPECT_EQ(result.error().key(), "k");
  EXPECT_EQ(result.value_or(7), 7);
}

TEST(Result, ValueThrowsTheWholeError) {
  const Result<std::string> result = Error(Errc::timedOut, "late", {.key = "k", .node = "n:1"});
  try {
    static_cast<void>(result.value());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::timedOut);
    EXPECT_EQ(error.node(), "n:1");
    EXPECT_STREQ(error.what(), result.error().what());
  }
}

TEST(Result, ComesFromABareErrc) {
  const Result<bool> result = Errc::closed;
  EXPECT_FALSE(result.has_value());
  EXPECT_STREQ(result.error().what(), "the client is closed");
}

TEST(Result, FalseIsAValue) {
  const Result<bool> result = false;
  EXPECT_TRUE(result.has_value());
  EXPECT_FALSE(result.value());
}

TEST(Result, ValueThrowsInEveryCategory) {
  Result<int> result = Errc::closed;
  EXPECT_EQ(errcOf([&] { static_cast<void>(result.value()); }), Errc::closed);
  EXPECT_EQ(errcOf([&] { static_cast<void>(std::as_const(result).value()); }), Errc::closed);
  EXPECT_EQ(errcOf([&] { static_cast<void>(std::move(result).value()); }), Errc::closed);
}

TEST(Result, MovesMoveOnlyValuesOut) {
  using Pointer = std::unique_ptr<int>;
  static_assert(!std::is_copy_constructible_v<Result<Pointer>>);
  static_assert(std::is_nothrow_move_constructible_v<Result<Pointer>>);
  Result<Pointer> result = std::make_unique<int>(9);
  EXPECT_EQ(**result, 9);
  Result<Pointer> second = std::move(result);
  const Pointer taken = std::move(second).value();
  ASSERT_TRUE(taken);
  EXPECT_EQ(*taken, 9);
  Result<Pointer> failed = Errc::closed;
  EXPECT_EQ(*std::move(failed).value_or(std::make_unique<int>(3)), 3);
}

TEST(Result, ConvertsWhatTheValueConvertsFrom) {
  const Result<std::string> text = "abc";
  EXPECT_EQ(text->size(), 3U);
  const Result<std::optional<int>> empty = std::nullopt;
  EXPECT_TRUE(empty.has_value());
  EXPECT_FALSE(empty->has_value());
  const Result<std::optional<int>> full = 4;
  EXPECT_EQ(**full, 4);
  using Numbers = std::vector<int>;
  static_assert(!std::is_convertible_v<int, Result<Numbers>>, "the vector's size is no value");
  static_assert(std::is_constructible_v<Result<Numbers>, int>);
  static_assert(!std::is_constructible_v<Result<bool>, Result<int>>);
}

TEST(Result, AssignsBothWays) {
  Result<std::string> result = "a";
  result = Errc::closed;
  EXPECT_FALSE(result);
  result = std::string("b");
  EXPECT_EQ(result.value(), "b");
  result.value() += "c";
  EXPECT_EQ(*result, "bc");
  const Result<std::string> copy = result;
  EXPECT_EQ(*copy, *result);
}

TEST(Result, VoidIsSuccessOrAnError) {
  Result<void> result;
  EXPECT_TRUE(result.has_value());
  EXPECT_NO_THROW(result.value());
  result = Errc::notOwner;
  EXPECT_FALSE(result);
  EXPECT_EQ(result.error().errc(), Errc::notOwner);
  EXPECT_EQ(errcOf([&] { result.value(); }), Errc::notOwner);
  const Result<void> other = Error(Errc::denied, "no");
  EXPECT_EQ(other.error().message(), "no");
  result = other;
  EXPECT_EQ(result.error().errc(), Errc::denied);
  result = {};
  EXPECT_TRUE(result);
}

TEST(Result, ErrorOfATemporaryDoesNotDangle) {
  const auto fail = [] { return Result<int>(Error(Errc::denied, "no", {.key = "k"})); };
  const Error& error = fail().error();
  EXPECT_EQ(error.key(), "k");
}

}  // namespace
}  // namespace rlock
