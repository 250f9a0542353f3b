// SPDX-License-Identifier: Apache-2.0
#include "failover_nodes.hpp"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace rlock::bench {

namespace {

constexpr std::chrono::seconds kLongest{20};
constexpr std::size_t kChunk = 65536;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void close(int& descriptor) {
  if (descriptor >= 0) {
    ::close(std::exchange(descriptor, -1));
  }
}

/// A link has one connection.
void replicateByOneConnection(Connection& server) {
  try {
    server.command({"CONFIG", "SET", "repl-rdb-channel", "no"});
  } catch (const std::runtime_error&) {
    // Before Redis 8 there is nothing else.
  }
}

std::uint16_t portOf(const std::string& uri) {
  return Options::fromUri(uri).endpoints.front().port;
}

}  // namespace

ReplicationLink::ReplicationLink(std::uint16_t master) : master_(master) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener_, generic, size) != 0 || ::listen(listener_, 4) != 0 ||
      ::getsockname(listener_, generic, &size) != 0) {
    const int error = errno;
    close(listener_);
    close(wake_);
    throw std::system_error(error, std::generic_category(), "a link");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

ReplicationLink::~ReplicationLink() {
  stop_ = true;
  wake();
  thread_.join();
  closeBoth();
  close(listener_);
  close(wake_);
}

void ReplicationLink::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

void ReplicationLink::give(Order order) {
  order_ = order;
  wake();
  while (obeyed_ != order) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void ReplicationLink::holdUp() {
  give(Order::holdUp);
}

void ReplicationLink::cut() {
  give(Order::cut);
  give(Order::pass);
}

void ReplicationLink::closeBoth() {
  close(toReplica_);
  close(toMaster_);
}

bool ReplicationLink::pump(int from, int to) {
  char chunk[kChunk];
  const ssize_t got = ::read(from, chunk, sizeof chunk);
  if (got <= 0) {
    return false;
  }
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t now =
        ::send(to, chunk + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
    if (now <= 0) {
      return false;
    }
    sent += now;
  }
  return true;
}

void ReplicationLink::run() {
  while (!stop_) {
    const Order order = order_;
    if (order == Order::cut) {
      closeBoth();
    }
    obeyed_ = order;
    // A descriptor of -1 is passed over.
    const bool listens = toReplica_ < 0 && order == Order::pass;
    pollfd entries[4] = {{wake_, POLLIN, 0},
                         {listens ? listener_ : -1, POLLIN, 0},
                         {toReplica_, POLLIN, 0},
                         {order == Order::pass ? toMaster_ : -1, POLLIN, 0}};
    ::poll(entries, 4, -1);
    if (entries[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(wake_, &count, sizeof count);
      continue;
    }
    bool works = true;
    if (entries[1].revents != 0) {
      toReplica_ = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      toMaster_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const int on = 1;
      ::setsockopt(toReplica_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ::setsockopt(toMaster_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const sockaddr_in address = loopback(master_);
      works =
          ::connect(toMaster_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    if (entries[2].revents != 0) {
      works = works && pump(toReplica_, toMaster_);
    }
    if (entries[3].revents != 0) {
      works = works && pump(toMaster_, toReplica_);
    }
    if (!works) {
      closeBoth();
    }
  }
}

ReplicatedServers::ReplicatedServers(const std::string& program, bool aof) {
  const std::vector<std::string> settings{"--repl-diskless-sync-delay",
                                          "0",
                                          "--repl-timeout",
                                          "3600",
                                          "--appendfsync",
                                          "always",
                                          "--appendonly",
                                          aof ? "yes" : "no"};
  master_ = std::make_unique<OwnServer>(program, settings);
  onMaster_ = std::make_unique<Connection>(Options::fromUri(master_->uri()));
  for (std::size_t i = 0; i < kReplicas; ++i) {
    replicas_[i] = std::make_unique<OwnServer>(program, settings);
    onReplica_[i] = std::make_unique<Connection>(Options::fromUri(replicas_[i]->uri()));
    replicateByOneConnection(*onReplica_[i]);
    links_[i] = std::make_unique<ReplicationLink>(portOf(master_->uri()));
    replicate(i);
  }
  awaitSynced();
}

void ReplicatedServers::replicate(std::size_t index) {
  onReplica_[index]->command({"REPLICAOF", "127.0.0.1", std::to_string(links_[index]->port())});
}

void ReplicatedServers::promote(std::size_t index) {
  // The writes that the link has kept are lost, as with a master that died or was cut off.
  onReplica_[index]->command({"REPLICAOF", "NO", "ONE"});
  links_[index]->cut();
}

void ReplicatedServers::restore(std::size_t promoted) {
  for (std::size_t i = 0; i < kReplicas; ++i) {
    links_[i]->cut();
    if (i != promoted) {
      // It finds its master again by itself, but looks only once a second.
      onReplica_[i]->command({"REPLICAOF", "NO", "ONE"});
    }
    replicate(i);
  }
  awaitSynced();
}

void ReplicatedServers::awaitSynced() {
  const auto until = std::chrono::steady_clock::now() + kLongest;
  while (std::chrono::steady_clock::now() < until) {
    onMaster_->command({"SET", "synced", "", "PX", "60000"});
    if (onMaster_->command({"WAIT", std::to_string(kReplicas), "100"})->integer >=
        static_cast<long long>(kReplicas)) {
      return;
    }
  }
  throw std::runtime_error("the replicas did not catch up");
}

bool ReplicatedServers::has(std::size_t index, const std::string& key) {
  return onReplica_[index]->command({"EXISTS", key})->integer != 0;
}

bool ReplicatedServers::knowsWaitAof() {
  const ReplyPtr reply = onMaster_->command({"COMMAND", "INFO", "WAITAOF"});
  return reply->elements == 1 && reply->element[0]->type == REDIS_REPLY_ARRAY;
}

std::string ReplicatedServers::version() {
  return onMaster_->info("server", "redis_version");
}

}  // namespace rlock::bench
