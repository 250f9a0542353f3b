// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <sys/types.h>

namespace rlock::detail::net {

/// Ordered bytes to and from one peer over one socket: the seam where TLS goes in. Plain sockets
/// pass bytes through; a TLS stream keeps its own buffers and may need several socket operations
/// per call.
///
/// **Thread safety:** one reader and one writer at a time, from any threads; shutdown() from any
/// thread at any time. The socket stays in blocking mode; calls say per call whether they may
/// block.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// Ends the connection and closes the socket; in a child process only closes its copy.
  virtual ~Stream() = default;

  /// Reads at most `size` bytes. Returns the count, 0 at end of stream, or -1 with errno: EAGAIN
  /// when nothing has come (at once when `mayBlock` is false, else after the socket's receive
  /// timeout).
  virtual ssize_t read(char* data, std::size_t size, bool mayBlock) noexcept = 0;

  /// Writes at most `size` bytes without blocking and without SIGPIPE. Returns the count or -1 with
  /// errno.
  virtual ssize_t write(const char* data, std::size_t size) noexcept = 0;

  /// Ends both directions; blocked readers return. Does not close the descriptor.
  virtual void shutdown() noexcept = 0;

  /// As shutdown(), but what the kernel has not delivered yet is dropped where the transport allows
  /// it: the peer must not see tomorrow what is given up today.
  virtual void abort() noexcept { shutdown(); }

  /// The socket, for polling only.
  [[nodiscard]] virtual int descriptor() const noexcept = 0;

  /// True when bytes already taken from the socket wait inside the stream (TLS), so that polling
  /// the descriptor would not tell.
  [[nodiscard]] virtual bool hasBufferedInput() const noexcept { return false; }
};

}  // namespace rlock::detail::net
