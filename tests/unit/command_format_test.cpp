// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/net/command_format.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail::net {
namespace {

std::string format(const std::vector<std::string_view>& argv) {
  std::string out;
  const std::size_t size = CommandFormat::append(out, argv);
  EXPECT_EQ(size, out.size());
  return out;
}

TEST(CommandFormat, WritesSizesAndBytes) {
  EXPECT_EQ(format({"PING"}), "*1\r\n$4\r\nPING\r\n");
  EXPECT_EQ(format({"SET", "", "0123456789"}),
            "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$10\r\n0123456789\r\n");
  EXPECT_EQ(format({}), "*0\r\n");
}

TEST(CommandFormat, WritesSizesOfAllLengths) {
  for (const std::size_t size : {1U, 9U, 10U, 99U, 100U, 999U, 1000U, 70'000U}) {
    const std::string word(size, 'x');
    EXPECT_EQ(format({word}), "*1\r\n$" + std::to_string(size) + "\r\n" + word + "\r\n");
  }
  const std::vector<std::string_view> many(123, "a");
  std::string expected = "*123\r\n";
  for (int i = 0; i < 123; ++i) {
    expected += "$1\r\na\r\n";
  }
  EXPECT_EQ(format(many), expected);
}

TEST(CommandFormat, TakesAnyBytes) {
  EXPECT_EQ(format({std::string_view("\r\n\0$", 4)}), std::string("*1\r\n$4\r\n\r\n\0$\r\n", 14));
}

TEST(CommandFormat, AppendsBehindWhatIsThere) {
  std::string out = "*1\r\n";
  const std::vector<std::string_view> argv{"PING"};
  appendCommand(out, argv);
  EXPECT_EQ(out, "*1\r\n*1\r\n$4\r\nPING\r\n");
}

}  // namespace
}  // namespace rlock::detail::net
