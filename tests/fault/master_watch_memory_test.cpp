// SPDX-License-Identifier: Apache-2.0

// The watch for the master that Sentinels name, while an allocation fails.

#include "fault/faults.hpp"
#include "integration/net_harness.hpp"
#include "integration/told_sentinel.hpp"
#include "net/link_settings.hpp"
#include "net/master_watch.hpp"
#include "net/sentinel_access.hpp"
#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include <rlock/detail/net/server_session.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::test {
namespace {

using namespace std::chrono_literals;
namespace net = ::rlock::detail::net;

/// A watch with its loop. It knows which master was found last.
class Watcher {
 public:
  explicit Watcher(const std::string& uri) {
    harness_.loop()->setErrorHook([](const char* /*text*/) {});
    Options options = Options::fromUri(uri);
    options.connectTimeout = scaled(3s);
    options.reconnectDelayMin = 1ms;
    options.reconnectDelayMax = 10ms;
    const auto log = std::make_shared<const ::rlock::detail::Logger>(
        [](LogLevel /*level*/, std::string_view /*text*/) {}, LogLevel::debug);
    net::LinkSettings toSentinels = net::sentinelSettings(options);
    toSentinels.log = log;
    net::LinkSettings settings = net::linkSettings(options);
    settings.log = log;
    settings.peer = net::Peer::master;
    settings.sentinels = std::make_shared<net::SentinelAccess>(std::move(toSentinels));
    harness_.run([&] {
      watch_ = std::make_shared<net::MasterWatch>(harness_.loop(), settings);
      watch_->follow([this](const net::ServerSession& master) {
        // Takes no memory, so that each failure is one of the watch.
        const char* const port = master.node.c_str() + master.node.rfind(':') + 1;
        master_ = static_cast<std::uint16_t>(std::strtoul(port, nullptr, 10));
      });
      watch_->open();
    });
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher() {
    harness_.run([this] {
      watch_->close();
      watch_.reset();
    });
  }

  /// The port of its server; 0: none was found yet.
  [[nodiscard]] std::uint16_t master() const { return master_; }

 private:
  LoopHarness harness_;
  std::shared_ptr<net::MasterWatch> watch_;
  std::atomic<std::uint16_t> master_{0};
};

/// The Sentinel says it once.
TEST(MasterWatchMemory, AMasterThatMovesIsFoundWhateverFailsUntilThen) {
  RLOCK_REQUIRE_REDIS_SERVER();
  std::array<RedisServer, 2> servers;
  std::vector<RawRedis> raw;
  for (const RedisServer& server : servers) {
    raw.emplace_back(server);
  }
  const auto promote = [&](std::size_t master) {
    raw[1 - master].run({"REPLICAOF", "127.0.0.1", "1"});
    raw[master].run({"REPLICAOF", "NO", "ONE"});
  };
  promote(0);
  ToldSentinel sentinel(servers[0].port());
  const Watcher watcher(sentinel.uri());
  ASSERT_EVENTUALLY(kLong, sentinel.heard() && watcher.master() == servers[0].port());
  for (long k = 1;; ++k) {
    ASSERT_LT(k, 2000);
    const std::size_t next = static_cast<std::size_t>(k) % 2;
    promote(next);
    sentinel.answer(servers[next].port());
    const FailedAllocation failure(k, FailedAllocation::Of::otherThreads);
    sentinel.announce(servers[next].port());
    ASSERT_EVENTUALLY(kLong, watcher.master() == servers[next].port()) << k;
    FailedAllocation::disarm();
    if (!FailedAllocation::happened()) {
      break;
    }
  }
}

}  // namespace
}  // namespace rlock::test
