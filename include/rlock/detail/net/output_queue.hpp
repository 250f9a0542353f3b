// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/net/command_format.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rlock::detail::net {

/// The bytes that one connection is still to send, and whether a thread has the role of the writer.
///
/// Bytes that others append during a call to the kernel wait behind the bytes of that call, which
/// do not move meanwhile. A writer that finds the socket full leaves its role behind: the thread
/// that first finds room takes it up again and goes on with the same bytes.
///
/// **Thread safety:** under the connection's mutex, on any thread, but blocked(), wrote() and
/// leaveIfIdle(), which need none. The bytes of next() belong to the writer, who reads them without
/// the mutex.
class OutputQueue {
 public:
  /// Appends a command, and returns its size.
  /// @throws std::bad_alloc, std::length_error  nothing was appended then
  std::size_t append(std::span<const std::string_view> argv) {
    return CommandFormat::append(waiting_, argv);
  }
  /// Appends commands that are formatted already.
  /// @throws std::bad_alloc, std::length_error  nothing was appended then
  void append(std::string_view bytes) { waiting_ += bytes; }

  /// Whether a thread has the role, or has left it behind.
  [[nodiscard]] bool hasWriter() const noexcept { return writer_.load() != Writer::none; }
  /// Whether the caller has the role now. Otherwise another has it, who is told that there is more
  /// to write.
  [[nodiscard]] bool enter() noexcept {
    if (writer_.exchange(Writer::hasMore) != Writer::none) {
      return false;
    }
    writer_.store(Writer::busy);
    return true;
  }
  void leave() noexcept { writer_.store(Writer::none); }
  /// The writer has written all that it had. It leaves, unless it was told of more since next();
  /// returns whether it left.
  [[nodiscard]] bool leaveIfIdle() noexcept {
    Writer busy = Writer::busy;
    return writer_.compare_exchange_strong(busy, Writer::none);
  }
  /// The bytes to be written next, until wrote() takes some away; empty: there are none.
  std::string_view next() noexcept;
  void wrote(std::size_t count) noexcept { written_ += count; }

  /// The writer found the socket full.
  void block() noexcept { blocked_.store(true, std::memory_order_relaxed); }
  /// The socket may have room again. True: the role had been left behind, and is the caller's now.
  bool unblock() noexcept { return blocked_.exchange(false, std::memory_order_relaxed); }
  [[nodiscard]] bool blocked() const noexcept { return blocked_.load(std::memory_order_relaxed); }

  /// The connection has failed. A writer goes on to have its bytes, until it leaves.
  void drop() noexcept;
  /// A new connection; there is no writer.
  void reset() noexcept;

 private:
  // A buffer keeps no more memory of a burst.
  static constexpr std::size_t kKept = std::size_t{1} << 20;

  enum class Writer : std::uint8_t {
    none,
    busy,    // it has all that there is to write
    hasMore  // or others have appended since
  };

  Atomic<Writer> writer_{Writer::none};
  Atomic<bool> blocked_{false};
  std::string waiting_;
  std::string writing_;  // of the writer
  std::size_t written_ = 0;
};

inline std::string_view OutputQueue::next() noexcept {
  if (written_ == writing_.size()) {
    writer_.store(Writer::busy);
    writing_.clear();
    written_ = 0;
    if (writing_.capacity() > kKept) {
      writing_ = std::string();
    }
    writing_.swap(waiting_);
  }
  return std::string_view(writing_).substr(written_);
}

inline void OutputQueue::drop() noexcept {
  waiting_.clear();
  if (unblock()) {
    leave();
  }
}

inline void OutputQueue::reset() noexcept {
  waiting_.clear();
  writing_.clear();
  written_ = 0;
}

}  // namespace rlock::detail::net
