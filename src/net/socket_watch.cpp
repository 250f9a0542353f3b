// SPDX-License-Identifier: Apache-2.0
#include "net/socket_watch.hpp"

#include <rlock/error.hpp>

#include <fmt/format.h>
#include <uv.h>

#include <cerrno>
#include <cstring>
#include <sys/epoll.h>
#include <utility>

namespace rlock::detail::net {

namespace {

UniqueFd watchedAlone(int descriptor) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLRDHUP | EPOLLONESHOT;
  if (!epoll || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    throw Error(Errc::connectionFailed,
                fmt::format("cannot watch the socket: {}", std::strerror(errno)));
  }
  return epoll;
}

}  // namespace

SocketWatch::SocketWatch(Loop& loop, int descriptor, Poll::Callback onEvents)
    : descriptor_(descriptor),
      epoll_(watchedAlone(descriptor)),
      poll_(loop, epoll_.get()),
      armed_(EPOLLRDHUP) {
  poll_.start(UV_READABLE, std::move(onEvents));
}

bool SocketWatch::arm(std::uint32_t events) noexcept {
  const std::uint32_t wanted = armed_ | events | EPOLLRDHUP;
  if (wanted == armed_) {
    return true;
  }
  epoll_event event{};
  event.events = wanted | EPOLLONESHOT;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor_, &event) != 0) {
    return false;
  }
  armed_ = wanted;
  return true;
}

std::uint32_t SocketWatch::events() noexcept {
  epoll_event event{};
  return ::epoll_wait(epoll_.get(), &event, 1, 0) > 0 ? event.events : 0;
}

}  // namespace rlock::detail::net
