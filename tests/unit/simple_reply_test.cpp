// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/simple_reply.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rlock::detail::net {
namespace {

TEST(SimpleReply, ReadsAnInteger) {
  Reply reply;
  EXPECT_EQ(SimpleReply::read(":0\r\n", reply), 4U);
  EXPECT_TRUE(reply.isInteger());
  EXPECT_EQ(reply.integer, 0);
  EXPECT_EQ(SimpleReply::read(":-9223372036854775808\r\n:1\r\n", reply), 23U);
  EXPECT_EQ(reply.integer, INT64_MIN);
}

TEST(SimpleReply, ReadsNil) {
  Reply reply;
  reply.type = Reply::Type::string;
  reply.text = "before";
  EXPECT_EQ(SimpleReply::read("$-1\r\n:1\r\n", reply), 5U);
  EXPECT_TRUE(reply.isNil());
  EXPECT_TRUE(reply.text.empty());
}

TEST(SimpleReply, ReadsAnArrayOfOneInteger) {
  Reply reply;
  EXPECT_EQ(SimpleReply::read("*1\r\n:12\r\n", reply), 9U);
  ASSERT_TRUE(reply.isArray());
  ASSERT_EQ(reply.elements.size(), 1U);
  EXPECT_TRUE(reply.elements[0].isInteger());
  EXPECT_EQ(reply.elements[0].integer, 12);
  EXPECT_EQ(SimpleReply::read(":3\r\n", reply), 4U);
  EXPECT_TRUE(reply.isInteger());
  EXPECT_TRUE(reply.elements.empty());
}

TEST(SimpleReply, LeavesEverythingElseAlone) {
  for (const std::string_view bytes : {"",
                                       ":",
                                       ":1",
                                       ":1\r",
                                       ":1\n",
                                       ":1\rx",
                                       ":\r\n",
                                       ":+1\r\n",
                                       ":1 \r\n",
                                       ":9223372036854775808\r\n",
                                       "$-1\r",
                                       "$1\r\na\r\n",
                                       "$-2\r\n",
                                       "*-1\r\n",
                                       "*1\r\n",
                                       "*1\r\n:1\r",
                                       "*1\r\n$-1\r\n",
                                       "*2\r\n:1\r\n:2\r\n",
                                       "+OK\r\n",
                                       "-ERR\r\n",
                                       "_\r\n"}) {
    Reply reply;
    reply.type = Reply::Type::status;
    reply.text = "untouched";
    EXPECT_EQ(SimpleReply::read(bytes, reply), 0U) << bytes;
    EXPECT_TRUE(reply.is("untouched")) << bytes;
  }
}

}  // namespace
}  // namespace rlock::detail::net
