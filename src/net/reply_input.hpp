// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/codec.hpp"
#include "net/stream.hpp"
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/output_queue.hpp>
#include <rlock/detail/net/round_trip.hpp>
#include <rlock/detail/net/yield_gauge.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace rlock::detail::net {

/// How the reader of a shared connection waits for bytes and makes replies of them.
///
/// **Thread safety:** the reader only; the role passes it on from thread to thread.
class ReplyInput {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param spin  a thread that waits polls that long before it sleeps; 0: never
  /// @throws std::bad_alloc
  explicit ReplyInput(std::chrono::microseconds spin);

  /// A new connection, whose replies `reader` cuts.
  void begin(ReplyReader reader) noexcept {
    reader_ = std::move(reader);
    unread_ = {};
  }

  /// Takes what has come. As Stream::read(), and what was read is the next() replies.
  ssize_t take(Stream& stream) noexcept;
  /// The same, and waits for it if nothing has come: at most for `left`, and a little while. While
  /// `output` is blocked it waits for room as well, and says whether there is some.
  ssize_t await(Stream& stream,
                Clock::duration left,
                const OutputQueue& output,
                bool& room) noexcept;
  /// Whether as much came as could be taken at once, so that there may be more.
  [[nodiscard]] bool filled(ssize_t count) const noexcept {
    return static_cast<std::size_t>(count) == buffer_.size();
  }

  struct Batch {
    std::span<Reply> replies{};                            ///< complete ones
    ReplyReader::Next then = ReplyReader::Next::needMore;  ///< `reply`: there may be more
  };
  Batch next() noexcept;
  [[nodiscard]] const char* errorText() const noexcept { return reader_.errorText(); }

  /// How long the reader's own reply took.
  void noteRoundTrip(Clock::duration measured) noexcept { roundTrip_.note(measured); }
  /// How many requests are pending, before the replies that were read are given to them. By the
  /// reader, or the thread that makes one.
  void notePending(std::uint64_t pending) noexcept { roundTrip_.notePending(pending); }

 private:
  ssize_t took(ssize_t count) noexcept;
  ReplyReader::Next read(Reply& reply) noexcept;
  ssize_t spin(Stream& stream) noexcept;
  bool sleep(Stream& stream, Clock::duration left, bool forRoom) noexcept;

  const std::chrono::nanoseconds spin_;
  RoundTrip roundTrip_;
  YieldGauge yields_;  // while it polls
  // Simple replies are read from the buffer itself. From the first one that is not simple on, the
  // bytes go to the ReplyReader, which has bytes of its own only while there are none of these.
  std::vector<char> buffer_;
  std::string_view unread_;
  ReplyReader reader_;
  std::array<Reply, 32> replies_;
};

}  // namespace rlock::detail::net
