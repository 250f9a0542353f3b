// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/net/output_queue.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace rlock::detail::net {
namespace output_queue_test {
namespace {

class OutputQueueTest : public ::testing::Test {
 protected:
  /// Takes the role of the writer, and what there is to write.
  std::string_view begin() {
    EXPECT_TRUE(queue_.enter());
    return queue_.next();
  }

  OutputQueue queue_;
};

TEST_F(OutputQueueTest, AWriterThatIsToldOfMoreDoesNotLeave) {
  queue_.append("first");
  EXPECT_EQ(begin(), "first");
  queue_.append("second");
  EXPECT_FALSE(queue_.enter()) << "there is one";
  queue_.wrote(5);
  EXPECT_FALSE(queue_.leaveIfIdle()) << "nobody else would write it";
  EXPECT_EQ(queue_.next(), "second");
  queue_.wrote(6);
  EXPECT_TRUE(queue_.leaveIfIdle());
  EXPECT_FALSE(queue_.hasWriter());
}

TEST_F(OutputQueueTest, WhatComesLaterWaitsBehindTheBytesThatAreBeingWritten) {
  queue_.append("first");
  const std::string_view bytes = begin();
  queue_.append(std::string(1000, 'x'));
  EXPECT_EQ(bytes, "first") << "they do not move";
  queue_.wrote(2);
  EXPECT_EQ(queue_.next(), "rst");
  queue_.wrote(3);
  EXPECT_EQ(queue_.next().size(), 1000U);
}

TEST_F(OutputQueueTest, AWriterThatFindsTheSocketFullLeavesItsRoleToWhoFindsRoom) {
  queue_.append("first");
  begin();
  queue_.wrote(2);
  queue_.block();
  EXPECT_TRUE(queue_.blocked());
  EXPECT_FALSE(queue_.enter());
  EXPECT_TRUE(queue_.unblock());
  EXPECT_FALSE(queue_.unblock()) << "for one thread";
  EXPECT_EQ(queue_.next(), "rst");
}

// A connection is taken away when it has no writer.
TEST_F(OutputQueueTest, AConnectionThatFailsHasNoWriterThatWaitsForRoom) {
  queue_.append("first");
  begin();
  queue_.block();
  queue_.drop();
  EXPECT_FALSE(queue_.hasWriter());
  EXPECT_FALSE(queue_.blocked());
}

TEST_F(OutputQueueTest, AConnectionThatFailsLeavesAWriterItsBytes) {
  queue_.append("first");
  const std::string_view bytes = begin();
  queue_.append("second");
  queue_.drop();
  EXPECT_TRUE(queue_.hasWriter());
  EXPECT_EQ(bytes, "first");
  queue_.wrote(5);
  EXPECT_EQ(queue_.next(), "") << "what nobody has begun to write is dropped";
}

TEST_F(OutputQueueTest, ANewConnectionBeginsWithItsOwnBytes) {
  queue_.append("first");
  begin();
  queue_.wrote(3);
  queue_.drop();
  queue_.leave();
  queue_.reset();
  queue_.append("second");
  EXPECT_EQ(begin(), "second");
}

}  // namespace
}  // namespace output_queue_test
}  // namespace rlock::detail::net
