// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/loop.hpp"
#include "net/socket.hpp"

#include <cstdint>

namespace rlock::detail::net {

/// Tells the loop of events of a socket that other threads read and write: through an epoll set of
/// its own, which any thread may arm and which wakes the loop only when it is armed. Unarmed it
/// still tells of a connection that the server closed, once.
///
/// **Thread safety:** made and destroyed on the loop thread; arm() and disarmed() under the mutex
/// of the socket's owner, events() on the loop thread.
class SocketWatch {
 public:
  /// @param onEvents  called on the loop; calls events() and then disarmed()
  /// @throws rlock::Error, std::bad_alloc
  SocketWatch(Loop& loop, int descriptor, Poll::Callback onEvents);

  /// Has the loop told of these events of epoll, once, besides those asked for before. False: the
  /// kernel has no room for that; it has to be tried again.
  bool arm(std::uint32_t events) noexcept;
  /// The events that have come; 0: there is nothing new.
  [[nodiscard]] std::uint32_t events() noexcept;
  /// After events(): it has switched off whatever was armed.
  void disarmed() noexcept { armed_ = 0; }

 private:
  const int descriptor_;
  UniqueFd epoll_;
  Poll poll_;  // before epoll_ is closed it must be gone
  std::uint32_t armed_;
};

}  // namespace rlock::detail::net
