// SPDX-License-Identifier: Apache-2.0

// Descriptors that no child process keeps, and the system calls on sockets: options, reads, writes,
// and the plain Stream made of them. Sockets are made on the loop thread; the reader and the writer
// of a connection, which may be any threads, read and write them. Every UniqueFd up to the number
// 65,535 is in openDescriptors, which closeInChild() empties inside fork(), before the child runs
// anything else.
#include "net/socket.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <limits>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

namespace rlock::detail::net {

namespace {

/// A set of descriptors that can be emptied between fork() and whatever the child does first, where
/// no mutex may be used. Greater numbers than it can hold are left out.
class DescriptorSet {
 public:
  void add(int fd) noexcept {
    if (const auto index = wordOf(fd); index < words_.size()) {
      words_[index].fetch_or(bitOf(fd), std::memory_order_relaxed);
    }
  }
  /// Returns whether it was there.
  bool remove(int fd) noexcept {
    const auto index = wordOf(fd);
    return index < words_.size() &&
           (words_[index].fetch_and(~bitOf(fd), std::memory_order_relaxed) & bitOf(fd)) != 0;
  }
  template <class Each>
  void takeAll(Each each) noexcept {
    for (std::size_t index = 0; index < words_.size(); ++index) {
      std::uint64_t word = words_[index].exchange(0, std::memory_order_relaxed);
      for (; word != 0; word &= word - 1) {
        each(static_cast<int>(index * kBits) + std::countr_zero(word));
      }
    }
  }

 private:
  static constexpr std::size_t kBits = 64;
  static std::size_t wordOf(int fd) noexcept { return static_cast<std::size_t>(fd) / kBits; }
  static std::uint64_t bitOf(int fd) noexcept {
    return std::uint64_t{1} << (static_cast<std::size_t>(fd) % kBits);
  }

  std::array<std::atomic<std::uint64_t>, 1024> words_{};
};

constinit DescriptorSet openDescriptors;     // a child process must not keep them
constinit DescriptorSet watchedDescriptors;  // of them, those of loops of the application's

/// An application's loop that goes on in the child adds all that it watches to a set of its own,
/// and libuv aborts where one is closed. An empty epoll set is one that is never ready, for
/// anything.
void closeInChild() noexcept {
  int never = -1;
  bool neverIsWatched = false;
  openDescriptors.takeAll([&](int fd) {
    if (never >= 0 && watchedDescriptors.remove(fd)) {
      static_cast<void>(::dup3(never, fd, O_CLOEXEC));
      return;
    }
    ::close(fd);
    if (watchedDescriptors.remove(fd)) {
      // Not before there is a number for it.
      never = ::epoll_create1(EPOLL_CLOEXEC);
      neverIsWatched = never == fd;
      if (never >= 0 && !neverIsWatched) {
        static_cast<void>(::dup3(never, fd, O_CLOEXEC));
      }
    }
  });
  if (never >= 0 && !neverIsWatched) {
    ::close(never);
  }
}

[[maybe_unused]] const int kRegistered = ::pthread_atfork(nullptr, nullptr, &closeInChild);

}  // namespace

void keepNumberInChild(int fd, bool kept) noexcept {
  if (kept) {
    watchedDescriptors.add(fd);
  } else {
    watchedDescriptors.remove(fd);
  }
}

UniqueFd::UniqueFd(int fd) noexcept : fd_(fd), forkGeneration_(forkGeneration()) {
  if (fd >= 0) {
    openDescriptors.add(fd);
  }
}

UniqueFd::UniqueFd(UniqueFd&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), forkGeneration_(other.forkGeneration_) {}

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    forkGeneration_ = other.forkGeneration_;
  }
  return *this;
}

UniqueFd::~UniqueFd() {
  reset();
}

int UniqueFd::release() noexcept {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0) {
    openDescriptors.remove(fd);
  }
  return fd;
}

void UniqueFd::reset() noexcept {
  if (fd_ < 0 || forkGeneration_ != forkGeneration()) {
    fd_ = -1;
    return;
  }
  const int saved = errno;
  // Forgotten before it is closed: the number may be given to another file at once.
  ::close(release());
  errno = saved;
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

void abortSocket(int fd) noexcept {
  // Closing drops the rest and resets the connection, however long the close is put off.
  const linger dropped{1, 0};
  static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_LINGER, &dropped, sizeof(dropped)));
  sockaddr unspecified{};
  unspecified.sa_family = AF_UNSPEC;
  // Resets a TCP connection at once. Some kernels refuse that while a thread reads.
  if (::connect(fd, &unspecified, sizeof(unspecified)) == 0) {
    return;
  }
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  const bool tcp =
      ::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
  // Without its end, TCP goes on sending what is buffered only until the descriptor is closed.
  static_cast<void>(::shutdown(fd, tcp ? SHUT_RD : SHUT_RDWR));
}

bool setBlocking(int fd, bool blocking) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) {
    return false;
  }
  const int wanted = blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK;
  return wanted == flags || ::fcntl(fd, F_SETFL, wanted) == 0;
}

ssize_t receiveSome(int fd, char* data, std::size_t size, bool mayBlock) noexcept {
  const int flags = mayBlock ? 0 : MSG_DONTWAIT;
  ssize_t count = ::recv(fd, data, size, flags);
  if (count >= 0 || errno != EINTR) {
    return count;
  }
  // Each interruption starts the socket's receive timeout anew, so under a storm of signals only a
  // clock ends the wait.
  const auto end = std::chrono::steady_clock::now() + kReceiveSlice;
  do {
    count = ::recv(fd, data, size, flags);
    if (count >= 0 || errno != EINTR) {
      return count;
    }
  } while (std::chrono::steady_clock::now() < end);
  errno = EAGAIN;
  return -1;
}

ssize_t sendSome(int fd, const char* data, std::size_t size) noexcept {
  ssize_t count = 0;
  do {
    count = ::send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  return count;
}

namespace {

class PlainStream final : public Stream {
 public:
  explicit PlainStream(UniqueFd fd) noexcept : fd_(std::move(fd)) {}
  /// Ends the connection even if a child process has inherited the descriptor; in that child it
  /// ends nothing.
  ~PlainStream() override {
    if (forkGeneration() == forkGeneration_) {
      shutdown();
    }
  }

  ssize_t read(char* data, std::size_t size, bool mayBlock) noexcept override {
    return receiveSome(fd_.get(), data, size, mayBlock);
  }

  ssize_t write(const char* data, std::size_t size) noexcept override {
    return sendSome(fd_.get(), data, size);
  }

  void shutdown() noexcept override { static_cast<void>(::shutdown(fd_.get(), SHUT_RDWR)); }

  void abort() noexcept override { abortSocket(fd_.get()); }

  [[nodiscard]] int descriptor() const noexcept override { return fd_.get(); }

 private:
  UniqueFd fd_;
  const std::uint32_t forkGeneration_ = forkGeneration();
};

}  // namespace

std::unique_ptr<Stream> makePlainStream(UniqueFd fd) {
  return std::make_unique<PlainStream>(std::move(fd));
}

}  // namespace rlock::detail::net
