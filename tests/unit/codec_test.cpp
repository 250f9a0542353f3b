// SPDX-License-Identifier: Apache-2.0
#include "net/codec.hpp"

#include <rlock/detail/net/command_format.hpp>

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail::net {
namespace {

using Next = ReplyReader::Next;
using Type = Reply::Type;

std::string command(std::initializer_list<std::string_view> argv) {
  std::string out;
  appendCommand(out, std::span(argv.begin(), argv.size()));
  return out;
}

std::string bulk(std::string_view text) {
  return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
}

/// Every reply in `bytes`, fed in pieces of `piece` bytes.
std::vector<Reply> readAll(std::string_view bytes, std::size_t piece) {
  ReplyReader reader;
  std::vector<Reply> replies;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    reader.feed(part.data(), part.size());
    Reply reply;
    while (true) {
      const Next next = reader.next(reply);
      if (next == Next::needMore) {
        break;
      }
      if (next == Next::protocolError) {
        ADD_FAILURE() << reader.errorText();
        return replies;
      }
      replies.push_back(std::move(reply));
    }
  }
  EXPECT_TRUE(reader.betweenReplies());
  return replies;
}

Next readOnce(std::string_view bytes, std::string* error = nullptr) {
  ReplyReader reader;
  reader.feed(bytes.data(), bytes.size());
  Reply reply;
  const Next next = reader.next(reply);
  if (error != nullptr) {
    *error = reader.errorText();
  }
  return next;
}

TEST(AppendCommandTest, FormatsArguments) {
  EXPECT_EQ(command({"PING"}), "*1\r\n$4\r\nPING\r\n");
  EXPECT_EQ(command({"SET", "a", ""}), "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n");
}

TEST(AppendCommandTest, KeepsBinaryArguments) {
  using namespace std::string_view_literals;
  constexpr std::string_view kBinary = "a\0b\r\n%s{}\xff "sv;
  EXPECT_EQ(command({"GET", kBinary}), "*2\r\n$3\r\nGET\r\n" + bulk(kBinary));
}

TEST(AppendCommandTest, TakesEmptyViewWithoutData) {
  EXPECT_EQ(command({"ECHO", std::string_view()}), "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n");
}

TEST(AppendCommandTest, AppendsBehindWhatIsThere) {
  std::string out = command({"PING"});
  const std::string_view ping = "PING";
  appendCommand(out, std::span(&ping, 1));
  EXPECT_EQ(out, "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n");
}

TEST(AppendCommandTest, TakesManyAndLongArguments) {
  const std::string argument(65536, 'x');
  std::vector<std::string_view> argv(1000, argument);
  argv.front() = "DEL";
  std::string out;
  appendCommand(out, argv);
  std::string expected = "*1000\r\n$3\r\nDEL\r\n";
  for (int i = 1; i < 1000; ++i) {
    expected += bulk(argument);
  }
  EXPECT_EQ(out, expected);
}

TEST(ReplyReaderTest, ReadsEveryType) {
  const auto replies = readAll(
      "+OK\r\n:42\r\n:-7\r\n$5\r\nhello\r\n$-1\r\n*-1\r\n-ERR no\r\n*0\r\n$0\r\n\r\n", 1000);
  ASSERT_EQ(replies.size(), 9U);
  EXPECT_TRUE(replies[0].is("OK"));
  EXPECT_EQ(replies[0].type, Type::status);
  EXPECT_EQ(replies[1].integer, 42);
  EXPECT_EQ(replies[2].integer, -7);
  EXPECT_EQ(replies[3].type, Type::string);
  EXPECT_EQ(replies[3].text, "hello");
  EXPECT_TRUE(replies[4].isNil());
  EXPECT_TRUE(replies[5].isNil());
  EXPECT_TRUE(replies[6].isError());
  EXPECT_EQ(replies[6].text, "ERR no");
  EXPECT_TRUE(replies[7].isArray());
  EXPECT_TRUE(replies[7].elements.empty());
  EXPECT_EQ(replies[8].type, Type::string);
  EXPECT_TRUE(replies[8].text.empty());
}

class ReplyReaderSplitTest : public testing::TestWithParam<std::size_t> {};

TEST_P(ReplyReaderSplitTest, GivesTheSameRepliesHoweverTheBytesAreCut) {
  using namespace std::string_view_literals;
  const std::string large(65536, '\r');
  const std::string_view binary = "\0\r\n$3\r\n"sv;
  const std::string nested = "*5\r\n" + bulk("message") +
                             "*3\r\n:1\r\n$-1\r\n*2\r\n+a\r\n-ERR b\r\n" + bulk(binary) +
                             ":9223372036854775807\r\n*-1\r\n";
  const std::string bytes = nested + bulk(large) + "-NOSCRIPT x\r\n" + nested + "+PONG\r\n";

  const auto replies = readAll(bytes, GetParam());

  ASSERT_EQ(replies.size(), 5U);
  for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) {
    const Reply& reply = replies[i];
    ASSERT_EQ(reply.elements.size(), 5U);
    EXPECT_EQ(reply.elements[0].text, "message");
    ASSERT_EQ(reply.elements[1].elements.size(), 3U);
    EXPECT_EQ(reply.elements[1].elements[0].integer, 1);
    EXPECT_TRUE(reply.elements[1].elements[1].isNil());
    ASSERT_EQ(reply.elements[1].elements[2].elements.size(), 2U);
    EXPECT_EQ(reply.elements[1].elements[2].elements[0].type, Type::status);
    EXPECT_EQ(reply.elements[1].elements[2].elements[1].type, Type::error);
    EXPECT_EQ(reply.elements[2].text, binary);
    EXPECT_EQ(reply.elements[3].integer, INT64_MAX);
    EXPECT_TRUE(reply.elements[4].isNil());
  }
  EXPECT_EQ(replies[1].text, large);
  EXPECT_TRUE(replies[2].isError());
  EXPECT_TRUE(replies[4].is("PONG"));
}

INSTANTIATE_TEST_SUITE_P(PieceSizes,
                         ReplyReaderSplitTest,
                         testing::Values(1, 2, 3, 7, 1000, 1 << 20));

TEST(ReplyReaderTest, DoesNotMixAnEarlierReplyIntoTheNext) {
  ReplyReader reader;
  const std::string_view bytes = "*2\r\n:1\r\n:2\r\n+OK\r\n:5\r\n";
  reader.feed(bytes.data(), bytes.size());
  Reply reply;
  ASSERT_EQ(reader.next(reply), Next::reply);
  ASSERT_EQ(reader.next(reply), Next::reply);
  EXPECT_TRUE(reply.elements.empty());
  EXPECT_TRUE(reply.is("OK"));
  ASSERT_EQ(reader.next(reply), Next::reply);
  EXPECT_TRUE(reply.text.empty());
  EXPECT_EQ(reply.integer, 5);
}

TEST(ReplyReaderTest, CanBeMovedInTheMiddleOfAReply) {
  ReplyReader first;
  const std::string_view begin = "*2\r\n:1\r\n$5\r\nhel";
  first.feed(begin.data(), begin.size());
  Reply reply;
  ASSERT_EQ(first.next(reply), Next::needMore);
  ReplyReader second = std::move(first);
  second.feed("lo\r\n", 4);
  ASSERT_EQ(second.next(reply), Next::reply);
  ASSERT_EQ(reply.elements.size(), 2U);
  EXPECT_EQ(reply.elements[1].text, "hello");
}

TEST(ReplyReaderTest, FreesAHalfReadReply) {
  ReplyReader reader;
  const std::string_view bytes = "*3\r\n$3\r\nabc\r\n*2\r\n:1\r\n";
  reader.feed(bytes.data(), bytes.size());
  Reply reply;
  EXPECT_EQ(reader.next(reply), Next::needMore);
}

TEST(ReplyReaderTest, NeedsMoreWithoutBytes) {
  ReplyReader reader;
  Reply reply;
  EXPECT_EQ(reader.next(reply), Next::needMore);
  reader.feed("", 0);
  EXPECT_EQ(reader.next(reply), Next::needMore);
  EXPECT_STREQ(reader.errorText(), "");
}

class ReplyReaderMalformedTest : public testing::TestWithParam<std::string> {};

TEST_P(ReplyReaderMalformedTest, IsAProtocolErrorForGood) {
  ReplyReader reader;
  reader.feed(GetParam().data(), GetParam().size());
  Reply reply;
  ASSERT_EQ(reader.next(reply), Next::protocolError);
  EXPECT_STRNE(reader.errorText(), "");
  reader.feed("+OK\r\n", 5);
  EXPECT_EQ(reader.next(reply), Next::protocolError);
}

INSTANTIATE_TEST_SUITE_P(Bytes,
                         ReplyReaderMalformedTest,
                         testing::Values("HTTP/1.1 400 Bad Request\r\n",
                                         std::string("\0\0\0\0", 4),
                                         "\x16\x03\x01\x02",
                                         "$-2\r\n",
                                         "$abc\r\n",
                                         "*-2\r\n",
                                         "*x\r\n",
                                         "*1\r\nx\r\n",
                                         "$99999999999999999999\r\n"));

TEST(ReplyReaderTest, RefusesTooManyElements) {
  std::string error;
  EXPECT_EQ(readOnce("*" + std::to_string(ReplyReader::kMaxElements + 1) + "\r\n", &error),
            Next::protocolError);
  EXPECT_NE(error.find("elements"), std::string::npos) << error;
  EXPECT_EQ(readOnce("*2000000000\r\n"), Next::protocolError);
}

TEST(ReplyReaderTest, CountsTheElementsOfNestedArraysTogether) {
  constexpr std::size_t kThird = ReplyReader::kMaxElements / 3;
  std::string full = "*" + std::to_string(kThird) + "\r\n";
  for (std::size_t i = 0; i < kThird; ++i) {
    full += ":1\r\n";
  }
  EXPECT_EQ(readOnce("*2\r\n" + full + full), Next::reply);
  EXPECT_EQ(readOnce("*4\r\n" + full + full + full), Next::protocolError);
}

TEST(ReplyReaderTest, CountsElementsAnewForEachReply) {
  std::string array = "*" + std::to_string(ReplyReader::kMaxElements) + "\r\n";
  for (std::size_t i = 0; i < ReplyReader::kMaxElements; ++i) {
    array += ":1\r\n";
  }
  EXPECT_EQ(readAll(array + array, array.size()).size(), 2U);
}

TEST(ReplyReaderTest, RefusesADeclaredLengthBeyondTheLimitBeforeItCame) {
  std::string error;
  const std::string bytes =
      "$" + std::to_string(ReplyReader::kMaxPendingBytes + 1) + "\r\n" + std::string(64, 'x');
  EXPECT_EQ(readOnce(bytes, &error), Next::protocolError);
  EXPECT_NE(error.find("too long"), std::string::npos) << error;
}

TEST(ReplyReaderTest, RefusesALineWithoutEnd) {
  EXPECT_EQ(readOnce("+" + std::string(ReplyReader::kMaxLineBytes + 1, 'x')), Next::protocolError);
  EXPECT_EQ(readOnce(":" + std::string(100, '1')), Next::protocolError);
  EXPECT_EQ(readOnce("*" + std::string(100, '1')), Next::protocolError);
  EXPECT_EQ(readOnce("$" + std::string(100, '1')), Next::protocolError);
  EXPECT_EQ(readOnce("-" + std::string(1000, 'x')), Next::needMore);
}

TEST(ReplyReaderTest, RefusesArraysNestedWithoutEnd) {
  std::string bytes;
  for (int i = 0; i < 10000; ++i) {
    bytes += "*1\r\n";
  }
  EXPECT_EQ(readOnce(bytes), Next::protocolError);
}

}  // namespace
}  // namespace rlock::detail::net
