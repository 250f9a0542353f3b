// SPDX-License-Identifier: Apache-2.0
#include "net/reply_input.hpp"

#include "net/socket.hpp"
#include <rlock/detail/net/simple_reply.hpp>

#include <algorithm>
#include <cerrno>
#include <new>
#include <poll.h>
#include <sched.h>
#include <thread>

namespace rlock::detail::net {

namespace {

constexpr std::size_t kReplyReadSize = std::size_t{64} << 10;

}  // namespace

ReplyInput::ReplyInput(std::chrono::microseconds spin)
    : spin_(spin),
      roundTrip_(spin.count() > 0 && std::thread::hardware_concurrency() > 1),
      buffer_(kReplyReadSize) {}

ssize_t ReplyInput::take(Stream& stream) noexcept {
  return took(stream.read(buffer_.data(), buffer_.size(), false));
}

ssize_t ReplyInput::took(ssize_t count) noexcept {
  if (count > 0) {
    unread_ = {buffer_.data(), static_cast<std::size_t>(count)};
  }
  return count;
}

ssize_t ReplyInput::await(Stream& stream,
                          Clock::duration left,
                          const OutputQueue& output,
                          bool& room) noexcept {
  room = false;
  if (roundTrip_.polls() && yields_.allowed()) {
    const ssize_t count = spin(stream);
    if (count >= 0 || errno != EAGAIN) {
      return count;
    }
  }
  // The loop may be busy with application code for longer than a request may wait, so that the
  // reader looks for room, too.
  if (const bool forRoom = output.blocked() && !stream.writeAwaitsInput();
      forRoom || left < kReceiveSlice) {
    room = sleep(stream, left, forRoom);
    // After a pause of the process the reply may be there although its time is over.
    return take(stream);
  }
  return took(stream.read(buffer_.data(), buffer_.size(), true));
}

ssize_t ReplyInput::spin(Stream& stream) noexcept {
  const auto start = Clock::now();
  auto before = start;
  Clock::duration longest{};
  for (;;) {
    const ssize_t count = take(stream);
    const int error = errno;
    const bool came = count >= 0 || error != EAGAIN;
    const auto now = Clock::now();
    longest = std::max(longest, now - before);
    if (came || now - start >= spin_) {
      yields_.returned(longest);
      errno = error;
      return count;
    }
    before = now;
    // The server or another caller may need this processor to make the reply possible.
    ::sched_yield();
  }
}

/// Returns whether the socket has room.
bool ReplyInput::sleep(Stream& stream, Clock::duration left, bool forRoom) noexcept {
  if (left <= Clock::duration::zero() || stream.hasBufferedInput()) {
    return false;
  }
  pollfd descriptor{stream.descriptor(), POLLIN, 0};
  if (forRoom) {
    descriptor.events |= POLLOUT;
  }
  const auto wait = std::min<Clock::duration>(left, kReceiveSlice);
  ::poll(
      &descriptor, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count()));
  return forRoom && (descriptor.revents & POLLOUT) != 0;
}

ReplyReader::Next ReplyInput::read(Reply& reply) noexcept {
  const bool readerIdle = reader_.betweenReplies() && *reader_.errorText() == '\0';
  if (readerIdle && unread_.empty()) {
    return ReplyReader::Next::needMore;
  }
  if (readerIdle) {
    try {
      const std::size_t size = SimpleReply::read(unread_, reply);
      unread_.remove_prefix(size);
      if (size > 0) {
        return ReplyReader::Next::reply;
      }
    } catch (const std::bad_alloc&) {
      // The reader has its own way to say so.
    }
  }
  reader_.feed(unread_.data(), unread_.size());
  unread_ = {};
  return reader_.next(reply);
}

ReplyInput::Batch ReplyInput::next() noexcept {
  std::size_t count = 0;
  auto next = ReplyReader::Next::reply;
  while (count < replies_.size()) {
    next = read(replies_[count]);
    if (next != ReplyReader::Next::reply) {
      break;
    }
    ++count;
  }
  return {std::span(replies_).first(count), next};
}

}  // namespace rlock::detail::net
