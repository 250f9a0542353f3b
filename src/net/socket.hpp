// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/stream.hpp"
#include <rlock/detail/base/fork.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/socket.h>
#include <sys/types.h>

namespace rlock::detail::net {

/// A descriptor that is closed with its object, by the process that made it. A child process closes
/// its copy inside fork(): as long as it had one of a socket, the peer would not hear that this
/// process has died. Later the number may be another file's there, so the object does nothing.
class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  explicit UniqueFd(int fd) noexcept;
  UniqueFd(UniqueFd&& other) noexcept;
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int release() noexcept;
  void reset() noexcept;

 private:
  int fd_ = -1;
  std::uint32_t forkGeneration_ = 0;
};

/// In a child process the number of this descriptor of a UniqueFd stays taken from here on, or no
/// longer: by a file that is never ready, for a loop that watches it and goes on there.
void keepNumberInChild(int fd, bool kept) noexcept;

/// How long a Stream::read() that may block waits for the first byte.
inline constexpr std::chrono::milliseconds kReceiveSlice{40};

/// A non-blocking, close-on-exec stream socket of this family, not yet connected. Empty with errno.
UniqueFd openSocket(int family) noexcept;

/// No Nagle delay, keep-alive that notices a dead peer in about 30 s, TCP_USER_TIMEOUT (0 = the
/// kernel's own), and the receive timeout. Options that the socket's family does not have are left
/// out. Failures are ignored: the link's own deadlines still hold.
void configureSocket(int fd, int family, std::chrono::milliseconds tcpUserTimeout) noexcept;

/// Ends a connection without delivering what is still in the kernel's buffers, as far as the
/// socket's family allows it; blocked readers return. Does not close the descriptor.
void abortSocket(int fd) noexcept;

/// Returns false with errno.
bool setBlocking(int fd, bool blocking) noexcept;

/// Reads what has come from a socket that configureSocket() has seen. As Stream::read().
ssize_t receiveSome(int fd, char* data, std::size_t size, bool mayBlock) noexcept;
/// As Stream::write().
ssize_t sendSome(int fd, const char* data, std::size_t size) noexcept;

/// Plain bytes over a connected socket, which the stream owns from here on.
/// @throws std::bad_alloc  then the descriptor is closed
std::unique_ptr<Stream> makePlainStream(UniqueFd fd);

}  // namespace rlock::detail::net
