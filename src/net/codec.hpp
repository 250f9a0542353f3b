// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>

#include <cstddef>
#include <memory>

// Declared as in hiredis, whose header only codec.cpp needs.
struct redisReader;

namespace rlock::detail::net {

/// Cuts a stream of bytes into replies, however the bytes are split.
///
/// **Thread safety:** one thread at a time. May be moved to another thread between calls.
///
/// Bytes that are not RESP2, or beyond the limits below, are a protocol error; the reader answers
/// Next::protocolError from then on.
class ReplyReader {
 public:
  /// Bytes of one reply, received but not yet complete.
  static constexpr std::size_t kMaxPendingBytes = std::size_t{64} << 20;
  /// Bytes of a status, error or integer.
  static constexpr std::size_t kMaxLineBytes = std::size_t{64} << 10;
  /// Elements of one reply, nested ones included.
  static constexpr std::size_t kMaxElements = std::size_t{1} << 20;
  /// Arrays within arrays; hiredis 0.14 takes no more than 7.
  static constexpr std::size_t kMaxDepth = 32;

  enum class Next { reply, needMore, protocolError };

  /// @throws std::bad_alloc
  ReplyReader();
  ReplyReader(ReplyReader&&) noexcept;
  ReplyReader& operator=(ReplyReader&&) noexcept;
  ~ReplyReader();

  /// Copies the bytes in. Out of memory shows as a protocol error of the following next().
  void feed(const char* data, std::size_t size) noexcept;

  /// Moves the next complete reply into `out`, which is unspecified otherwise.
  Next next(Reply& out) noexcept;

  /// Why next() said protocolError; a static empty string before.
  [[nodiscard]] const char* errorText() const noexcept;

  /// Whether all bytes fed belong to replies that were handed out. A reply may have begun although
  /// no byte of it is left in the reader's buffer: a type or the header of an array.
  [[nodiscard]] bool betweenReplies() const noexcept;

 private:
  struct State;
  struct ReaderDeleter {
    void operator()(redisReader* reader) const noexcept;
  };

  std::unique_ptr<State> state_;
  std::unique_ptr<redisReader, ReaderDeleter> reader_;
};

}  // namespace rlock::detail::net
