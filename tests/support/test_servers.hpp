// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace rlock::test {

class TcpProxy;

/// The servers that the suites run on. `RLOCK_TEST_TOPOLOGY` names them by these words; without it:
/// single.
enum class Topology {
  single,    ///< a server for each test
  tls,       ///< the same, encrypted
  acl,       ///< the same, with a user who has no more than the rights of docs/configuration.md
  sentinel,  ///< a master, a replica and three Sentinels for the whole program
  cluster,   ///< a cluster of three masters for the whole program
};

[[nodiscard]] Topology testTopology();
[[nodiscard]] const char* toString(Topology topology);
/// Whether all tests of the program share their servers, which are empty when a test begins.
[[nodiscard]] inline bool serversAreShared() {
  return testTopology() == Topology::sentinel || testTopology() == Topology::cluster;
}

/// Ends the test that is running, skipped, where the topology does not have what it asks for.
[[noreturn]] void endForTopology(std::string_view why);

/// The servers of one test. One thread at a time.
class TestServers {
 public:
  /// Starts what the topology needs, or empties what is shared. Ends the test where it is shared
  /// and the options are not the default ones.
  explicit TestServers(const RedisServerOptions& options);
  TestServers(const TestServers&) = delete;
  TestServers& operator=(const TestServers&) = delete;
  ~TestServers();

  /// The one server of the test, to stop it or to look into it; without one, ends the test.
  [[nodiscard]] RedisServer& server();
  /// For clients of the library.
  [[nodiscard]] std::string uri() const;
  /// For a raw connection with all rights, which finds each key.
  [[nodiscard]] RawRedisOptions raw() const;

  /// A proxy before the master; ends the test where there cannot be one.
  [[nodiscard]] std::unique_ptr<TcpProxy> makeProxy();
  /// As uri(), through that proxy.
  [[nodiscard]] std::string uriThrough(const TcpProxy& proxy) const;

 private:
  struct Tls;

  std::unique_ptr<Tls> tls_;
  std::unique_ptr<RedisServer> own_;
};

/// A URI with one more parameter, or several.
[[nodiscard]] std::string with(std::string_view uri, std::string_view parameters);

}  // namespace rlock::test

/// First line of a test that is about one server: the servers of others may not be treated so, or
/// what they do is counted. (RLOCK_ONE_MASTER_ONLY: that cannot be in a cluster.
/// RLOCK_DEFAULT_USER_ONLY: it is about what that user may do, or how.)
#define RLOCK_ONE_SERVER_ONLY(why)           \
  do {                                       \
    if (::rlock::test::serversAreShared()) { \
      ::rlock::test::endForTopology(why);    \
    }                                        \
  } while (false)
#define RLOCK_ONE_MASTER_ONLY(why)                                           \
  do {                                                                       \
    if (::rlock::test::testTopology() == ::rlock::test::Topology::cluster) { \
      ::rlock::test::endForTopology(why);                                    \
    }                                                                        \
  } while (false)
#define RLOCK_DEFAULT_USER_ONLY(why)                                     \
  do {                                                                   \
    if (::rlock::test::testTopology() == ::rlock::test::Topology::acl) { \
      ::rlock::test::endForTopology(why);                                \
    }                                                                    \
  } while (false)
