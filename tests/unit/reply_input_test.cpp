// SPDX-License-Identifier: Apache-2.0

// Replies are the same however their bytes are split: a reply that reached another request would
// be a lock that nobody has.

#include "net/reply_input.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

namespace rlock::detail::net {
namespace {

using namespace std::chrono_literals;

/// Gives what it was given, a piece for each read.
class PieceStream final : public Stream {
 public:
  void put(std::string_view piece) { piece_ = piece; }
  ssize_t read(char* data, std::size_t size, bool) noexcept override {
    if (piece_.empty()) {
      errno = EAGAIN;
      return -1;
    }
    const std::size_t count = piece_.copy(data, size);
    piece_.remove_prefix(count);
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char*, std::size_t size) noexcept override {
    return static_cast<ssize_t>(size);
  }
  void shutdown() noexcept override {}
  [[nodiscard]] int descriptor() const noexcept override { return -1; }

 private:
  std::string_view piece_;
};

std::string textOf(const Reply& reply) {
  switch (reply.type) {
    case Reply::Type::nil:
      return "nil";
    case Reply::Type::integer:
      return std::to_string(reply.integer);
    case Reply::Type::array: {
      std::string text = "[";
      for (const Reply& element : reply.elements) {
        text += textOf(element) + " ";
      }
      return text + "]";
    }
    default:
      return "'" + reply.text + "'";
  }
}

class ReplyInputTest : public ::testing::Test {
 protected:
  ReplyInputTest() { input_.begin(ReplyReader()); }

  /// The replies that the piece completes, as text.
  std::string given(std::string_view piece) {
    stream_.put(piece);
    std::string text;
    ReplyInput::Batch batch;
    if (input_.take(stream_) != static_cast<ssize_t>(piece.size())) {
      return "not read";
    }
    do {
      batch = input_.next();
      for (const Reply& reply : batch.replies) {
        text += textOf(reply) + ";";
      }
    } while (batch.then == ReplyReader::Next::reply);
    return batch.then == ReplyReader::Next::needMore ? text : text + input_.errorText();
  }

  PieceStream stream_;
  ReplyInput input_{0us};
};

// Answers of scripts, each followed by one that would show that the order was lost.
constexpr std::string_view kStream =
    ":1\r\n"
    "*1\r\n:2\r\n"
    "$-1\r\n"
    "*2\r\n:3\r\n$1\r\na\r\n"
    "*1\r\n$-1\r\n"
    "*2\r\n*1\r\n:4\r\n:5\r\n"
    "+OK\r\n"
    "*1\r\n*1\r\n*1\r\n:6\r\n"
    "*0\r\n"
    "$2\r\n:7\r\n"
    "-ERR no\r\n"
    "*-1\r\n"
    ":-8\r\n";
constexpr std::string_view kReplies =
    "1;[2 ];nil;[3 'a' ];[nil ];[[4 ] 5 ];'OK';[[[6 ] ] ];[];':7';'ERR no';nil;-8;";

TEST_F(ReplyInputTest, TwoCutsAnywhereChangeNothing) {
  for (std::size_t first = 1; first < kStream.size(); ++first) {
    for (std::size_t second = first; second < kStream.size(); ++second) {
      std::string replies = given(kStream.substr(0, first));
      if (second > first) {
        replies += given(kStream.substr(first, second - first));
      }
      replies += given(kStream.substr(second));
      ASSERT_EQ(replies, kReplies) << "cut at " << first << " and " << second;
    }
  }
}

TEST_F(ReplyInputTest, PiecesOfAnySizeChangeNothing) {
  for (std::size_t size = 1; size <= kStream.size(); ++size) {
    std::string replies;
    for (std::size_t at = 0; at < kStream.size(); at += size) {
      replies += given(kStream.substr(at, size));
    }
    ASSERT_EQ(replies, kReplies) << "pieces of " << size;
  }
}

TEST_F(ReplyInputTest, MoreRepliesThanABatchHolds) {
  std::string bytes;
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    bytes += i % 3 == 0 ? "*1\r\n:" + std::to_string(i) + "\r\n" : ":" + std::to_string(i) + "\r\n";
    expected += i % 3 == 0 ? "[" + std::to_string(i) + " ];" : std::to_string(i) + ";";
  }
  std::string replies;
  const std::string_view all = bytes;
  for (std::size_t at = 0; at < all.size(); at += 701) {
    replies += given(all.substr(at, 701));
  }
  EXPECT_EQ(replies, expected);
}

TEST_F(ReplyInputTest, NothingIsReadBehindWhatIsNoReply) {
  const std::string text = given(":1\r\nx\r\n:2\r\n");
  EXPECT_TRUE(text.starts_with("1;") && text.size() > 2) << text;
  EXPECT_EQ(given(":3\r\n").find("3;"), std::string::npos);
}

/// Has nothing for a thread that polls, and lets it wait for longer than a slice of the scheduler;
/// has a byte for one that sleeps.
class BusyMachineStream final : public Stream {
 public:
  ssize_t read(char* data, std::size_t, bool mayBlock) noexcept override {
    if (!mayBlock) {
      ++polls_;
      std::this_thread::sleep_for(2 * YieldGauge::kLate);
      errno = EAGAIN;
      return -1;
    }
    *data = ':';
    return 1;
  }
  ssize_t write(const char*, std::size_t size) noexcept override {
    return static_cast<ssize_t>(size);
  }
  void shutdown() noexcept override {}
  [[nodiscard]] int descriptor() const noexcept override { return -1; }
  [[nodiscard]] int takePolls() noexcept { return std::exchange(polls_, 0); }

 private:
  int polls_ = 0;
};

TEST(ReplyInput, StopsPollingWhereTheProcessorComesBackLate) {
  if (std::thread::hardware_concurrency() < 2) {
    GTEST_SKIP() << "a single processor: it never polls";
  }
  ReplyInput input(50us);
  input.begin(ReplyReader());
  BusyMachineStream stream;
  const OutputQueue output;
  bool room = false;
  EXPECT_EQ(input.await(stream, 10s, output, room), 1);
  EXPECT_GT(stream.takePolls(), 0);
  for (std::uint32_t i = 0; i < YieldGauge::kLeastPause; ++i) {
    ASSERT_EQ(input.await(stream, 10s, output, room), 1);
  }
  EXPECT_EQ(stream.takePolls(), 0);
  EXPECT_EQ(input.await(stream, 10s, output, room), 1);
  EXPECT_GT(stream.takePolls(), 0) << "it tries again in the end";
}

}  // namespace
}  // namespace rlock::detail::net
