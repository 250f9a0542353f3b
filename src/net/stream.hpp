// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/error.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>

namespace rlock::detail::net {

/// The reason behind EPROTO, as the stream knows it.
struct StreamFailure {
  Errc errc = Errc::protocolError;
  std::string text{};
};

/// Whether a write() that failed with this errno has met the end that the peer has made of the
/// connection. The bytes that the peer sent before can still be read.
inline bool closedByPeer(int error) noexcept {
  return error == EPIPE || error == ECONNRESET;
}

/// Ordered bytes to and from one peer over one socket: the seam where TLS goes in. Plain sockets
/// pass bytes through; a TLS stream keeps its own buffers and may need several socket operations
/// per call.
///
/// Before the first read() or write() open() has to be done.
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

  /// The event that open() waits for.
  enum class Opening : std::uint8_t { done, needsInput, needsRoom };
  /// Goes on with what the two ends have to say to each other before anything else (TLS), without
  /// blocking: called again whenever the descriptor has what the last call waits for, until it is
  /// done. By one thread.
  /// @throws rlock::Error  the peer cannot be talked to, or must not be
  virtual Opening open() { return Opening::done; }

  /// Reads at most `size` bytes. Returns the count, 0 at end of stream, or -1 with errno: EAGAIN
  /// when nothing has come (at once when `mayBlock` is false, else after the socket's receive
  /// timeout, or earlier when only a part of something has). Fewer bytes than `size` do not mean
  /// that there are no more.
  virtual ssize_t read(char* data, std::size_t size, bool mayBlock) noexcept = 0;

  /// Writes at most `size` bytes without blocking and without SIGPIPE. Returns the count of bytes
  /// that the kernel has, or -1 with errno. After EAGAIN the next call begins with the same bytes,
  /// of which a part may be on its way in a form that the peer cannot read yet.
  virtual ssize_t write(const char* data, std::size_t size) noexcept = 0;

  /// Ends both directions; blocked readers return. Does not close the descriptor.
  virtual void shutdown() noexcept = 0;

  /// As shutdown(), but what the kernel has not delivered yet is dropped where the transport allows
  /// it: the peer must not see tomorrow what is given up today.
  virtual void abort() noexcept { shutdown(); }

  /// The socket, for polling only.
  [[nodiscard]] virtual int descriptor() const noexcept = 0;

  /// True when bytes already taken from the socket may wait inside the stream (TLS), so that
  /// polling the descriptor would not tell. By the reader, or while there is none.
  [[nodiscard]] virtual bool hasBufferedInput() const noexcept { return false; }

  /// True when the peer reads what was written in one call apart from the rest (TLS), so that many
  /// small writes cost it much more than one.
  [[nodiscard]] virtual bool packsWrites() const noexcept { return false; }

  /// Why a call has failed with EPROTO; null before. Stays as it is then. From any thread.
  [[nodiscard]] virtual const StreamFailure* failure() const noexcept { return nullptr; }

  /// True when write() waits for the peer and not for room (TLS): room is no reason to call it
  /// again before read() has taken what is missing. From any thread.
  [[nodiscard]] virtual bool writeAwaitsInput() const noexcept { return false; }
};

}  // namespace rlock::detail::net
