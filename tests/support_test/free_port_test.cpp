// SPDX-License-Identifier: Apache-2.0
#include "support/free_port.hpp"

#include "support/raw_redis.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <set>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace rlock::test {
namespace {

/// The result of connecting to the port within `waitMs`: 0, an errno, or EINPROGRESS.
int connectResult(std::uint16_t port, int waitMs) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int result = 0;
  if (::connect(fd,
                static_cast<const sockaddr*>(static_cast<const void*>(&address)),
                sizeof address) != 0) {
    result = errno;
    pollfd entry{fd, POLLOUT, 0};
    if (result == EINPROGRESS && ::poll(&entry, 1, waitMs) > 0) {
      socklen_t length = sizeof result;
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &length);
    }
  }
  ::close(fd);
  return result;
}

TEST(PortReservation, RefusesConnectionsAndIsExclusive) {
  const PortReservation reservation;
  EXPECT_EQ(connectResult(reservation.port(), 1'000), ECONNREFUSED);
  EXPECT_EQ(connectResult(freePort(), 1'000), ECONNREFUSED);
  std::set<std::uint16_t> ports{reservation.port()};
  std::vector<PortReservation> more;
  for (int i = 0; i < 50; ++i) {
    more.emplace_back();
    EXPECT_TRUE(ports.insert(more.back().port()).second);
  }
}

TEST(PortReservation, FixedPortIsTakenOrRefused) {
  std::uint16_t port = 0;
  {
    PortReservation reservation;
    port = reservation.port();
    const int fd = reservation.release();
    ASSERT_EQ(::listen(fd, 1), 0);
    EXPECT_THROW(PortReservation{port}, std::runtime_error);
    ::close(fd);
  }
  const PortReservation again(port);
  EXPECT_EQ(again.port(), port);
}

TEST(SilentListener, NeitherAcceptsNorRefuses) {
  const SilentListener silent;
  EXPECT_EQ(connectResult(silent.port(), 200), EINPROGRESS);
  EXPECT_EQ(connectResult(silent.port(), 0), EINPROGRESS);
}

}  // namespace
}  // namespace rlock::test
