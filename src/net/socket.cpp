// SPDX-License-Identifier: Apache-2.0
#include "net/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

namespace rlock::detail::net {

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

UniqueFd::~UniqueFd() {
  reset();
}

int UniqueFd::release() noexcept {
  return std::exchange(fd_, -1);
}

void UniqueFd::reset() noexcept {
  if (fd_ >= 0) {
    const int saved = errno;
    ::close(std::exchange(fd_, -1));
    errno = saved;
  }
}

UniqueFd openSocket(int family) noexcept {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

namespace {

void setOption(int fd, int level, int name, int value) noexcept {
  static_cast<void>(::setsockopt(fd, level, name, &value, sizeof(value)));
}

}  // namespace

void configureSocket(int fd, int family, std::chrono::milliseconds tcpUserTimeout) noexcept {
  timeval slice{};
  slice.tv_usec = std::chrono::duration_cast<std::chrono::microseconds>(kReceiveSlice).count();
  static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof(slice)));
  if (family != AF_INET && family != AF_INET6) {
    return;
  }
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Three probes, five seconds apart, after a quarter of a minute of silence.
  setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  setOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  const auto timeout = std::clamp<std::chrono::milliseconds::rep>(
      tcpUserTimeout.count(), 0, std::numeric_limits<int>::max());
  setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(timeout));
}

bool setBlocking(int fd, bool blocking) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) {
    return false;
  }
  const int wanted = blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK;
  return wanted == flags || ::fcntl(fd, F_SETFL, wanted) == 0;
}

namespace {

class PlainStream final : public Stream {
 public:
  explicit PlainStream(UniqueFd fd) noexcept : fd_(std::move(fd)) {}

  ssize_t read(char* data, std::size_t size, bool mayBlock) noexcept override {
    const int flags = mayBlock ? 0 : MSG_DONTWAIT;
    ssize_t count = ::recv(fd_.get(), data, size, flags);
    if (count >= 0 || errno != EINTR) {
      return count;
    }
    // Each interruption starts the socket's receive timeout anew, so under a storm of signals only
    // a clock ends the wait.
    const auto end = std::chrono::steady_clock::now() + kReceiveSlice;
    do {
      count = ::recv(fd_.get(), data, size, flags);
      if (count >= 0 || errno != EINTR) {
        return count;
      }
    } while (std::chrono::steady_clock::now() < end);
    errno = EAGAIN;
    return -1;
  }

  ssize_t write(const char* data, std::size_t size) noexcept override {
    ssize_t count = 0;
    do {
      count = ::send(fd_.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    return count;
  }

  void shutdown() noexcept override { static_cast<void>(::shutdown(fd_.get(), SHUT_RDWR)); }

  [[nodiscard]] int descriptor() const noexcept override { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace

std::unique_ptr<Stream> makePlainStream(UniqueFd fd) {
  return std::make_unique<PlainStream>(std::move(fd));
}

}  // namespace rlock::detail::net
