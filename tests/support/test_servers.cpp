// SPDX-License-Identifier: Apache-2.0
#include "support/test_servers.hpp"

#include "support/eventually.hpp"
#include "support/redis_cluster.hpp"
#include "support/redis_sentinels.hpp"
#include "support/tcp_proxy.hpp"
#ifdef RLOCK_TEST_WITH_TLS
#include "tls/certificates.hpp"
#endif

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::test {

namespace {

constexpr const char* kVariable = "RLOCK_TEST_TOPOLOGY";
constexpr const char* kUser = "orders";
constexpr const char* kPassword = "s3cret";

Topology readTopology() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr || *text == '\0') {
    return Topology::single;
  }
  for (const Topology each :
       {Topology::single, Topology::tls, Topology::acl, Topology::sentinel, Topology::cluster}) {
    if (text == std::string_view(toString(each))) {
      return each;
    }
  }
  throw std::runtime_error(std::string(kVariable) + ": there is no " + text);
}

/// The function that makes the objects which the running test is about; empty: several kinds.
std::string kindOfSuite() {
  const ::testing::TestSuite* const suite =
      ::testing::UnitTest::GetInstance()->current_test_suite();
  std::string name = suite == nullptr ? "" : suite->name();
  name.erase(0, name.find('/') + 1);
  static const std::vector<std::pair<std::string_view, std::string>> kinds{
      // These have locks of other kinds beside them.
      {"SemaphoreLostReply", ""},
      {"LostPermit", ""},
      {"LatchLostReply", ""},
      {"SimpleLockHoldsSlow", ""},
      {"FairLock", "getFairLock()"},
      {"FairNext", "getFairLock()"},
      {"Fenced", "getFencedLock()"},
      {"ReadWrite", "getReadWriteLock()"},
      {"ReadLeases", "getReadWriteLock()"},
      {"Simple", "getSimpleLock()"},
      {"Semaphore", "getSemaphore()"},
      {"Latch", "getCountDownLatch()"},
      {"Permit", "getPermitExpirableSemaphore()"},
      {"LockConformance", "getLock()"},
      {"LockWakeup", "getLock()"},
      {"LockWatchdog", "getLock()"},
      {"LockWire", "getLock()"},
      {"LockCancel", "getLock()"},
      {"LostReply", "getLock()"},
      {"SpinLock", "getLock()"},
  };
  const auto kind =
      std::ranges::find_if(kinds, [&](const auto& each) { return name.starts_with(each.first); });
  return kind == kinds.end() ? "" : kind->second;
}

/// A user with no more rights than docs/configuration.md gives for the objects that the running
/// test is about, and for looking at them; but for all keys, whose names in the tests begin with
/// anything.
std::string leastRights() {
  std::ifstream file(std::string(RLOCK_TEST_SOURCE_DIR) + "/docs/configuration.md");
  const std::string kind = kindOfSuite();
  std::string heading;
  std::set<std::string> commands;
  std::set<std::string> channels;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('`') && !line.starts_with("```")) {
      heading = line;
    }
    if (!line.starts_with("ACL SETUSER ") || (heading.find("`" + kind) == std::string::npos &&
                                              heading.find("inspect()") == std::string::npos)) {
      continue;
    }
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word.starts_with('+')) {
        commands.insert(word);
      } else if (word.starts_with('&')) {
        // A name with braces of its own gets no others.
        channels.insert(word.substr(0, word.find("{orders:")) +
                        (word.find("{orders:") == std::string::npos ? "" : "*"));
      }
    }
  }
  if (commands.empty() || channels.empty()) {
    throw std::runtime_error("docs/configuration.md has no access rules for " + kind);
  }
  commands.insert("+select");  // for databases other than 0, as the document says below
  std::string user = std::string(kUser) + " on >" + kPassword + " ~* resetchannels";
  for (const std::set<std::string>* const words : {&channels, &commands}) {
    for (const std::string& word : *words) {
      user += " " + word;
    }
  }
  return user;
}

/// The servers that are started once in a program.
class SharedServers {
 public:
  static SharedServers& get() {
    static const bool added = [] {
      ::testing::AddGlobalTestEnvironment(new Ending());
      return true;
    }();
    static_cast<void>(added);
    if (!instance()) {
      instance().reset(new SharedServers());
    }
    return *instance();
  }

  /// Nothing is left of the test before: keys, scripts, settings, users, counters.
  void clear() {
    for (RawRedis& each : everyMaster()) {
      (void)each.command({"CLIENT", "UNPAUSE"});
      (void)each.command({"REPLICAOF", "NO", "ONE"});  // refused by a cluster's
      restoreSettings(each);
      for (const std::string& user : each.run({"ACL", "USERS"}).strings()) {
        if (user != "default") {
          each.run({"ACL", "DELUSER", user});
        }
      }
      each.run({"ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "&*", "+@all"});
      each.run({"ACL", "LOG", "RESET"});
      each.run({"FLUSHALL"});
      each.run({"SCRIPT", "FLUSH"});
      each.run({"CONFIG", "RESETSTAT"});
    }
  }

  [[nodiscard]] std::string uri() const { return cluster_ ? cluster_->uri() : sentinels_->uri(); }
  [[nodiscard]] RawRedisOptions raw() {
    RawRedisOptions options;
    options.port = master().port();
    if (cluster_) {
      for (std::size_t i = 0; i < cluster_->size(); ++i) {
        options.clusterPorts.push_back(cluster_->node(i).port());
      }
    }
    return options;
  }
  [[nodiscard]] RedisServer& master() { return cluster_ ? cluster_->node(0) : sentinels_->node(0); }

  ///@{
  /// A Sentinel watches the proxy as another master.
  [[nodiscard]] std::string uriThrough(std::uint16_t proxy) const {
    return "redis+sentinel://127.0.0.1:" + std::to_string(sentinels_->sentinel(0).port()) + "/" +
           nameOf(proxy);
  }
  void watch(std::uint16_t proxy) {
    RawRedis sentinel(sentinels_->sentinel(0).port());
    sentinel.run({"SENTINEL", "MONITOR", nameOf(proxy), "127.0.0.1", std::to_string(proxy), "1"});
    // Nobody shall take over, whatever becomes of the proxy.
    sentinel.run({"SENTINEL", "SET", nameOf(proxy), "down-after-milliseconds", "3600000"});
    watched_ = nameOf(proxy);
  }
  void forget() {
    if (watched_) {
      RawRedis sentinel(sentinels_->sentinel(0).port());
      (void)sentinel.command({"SENTINEL", "REMOVE", *watched_});
      watched_.reset();
    }
  }
  ///@}

 private:
  SharedServers() {
    if (testTopology() == Topology::cluster) {
      RedisClusterOptions options;
      // No test breaks it, and a host that stands still for a while shall not either.
      options.nodeTimeout = std::chrono::minutes(1);
      cluster_ = std::make_unique<RedisCluster>(options);
    } else {
      RedisSentinelsOptions options;
      options.downAfter = std::chrono::minutes(10);
      sentinels_ = std::make_unique<RedisSentinels>(options);
    }
    settings_ = settingsOf(everyMaster().front());
  }

  static std::unique_ptr<SharedServers>& instance() {
    static std::unique_ptr<SharedServers> servers;
    return servers;
  }
  /// Ends the servers with the tests, before the program's static objects are gone.
  class Ending : public ::testing::Environment {
   public:
    void TearDown() override { instance().reset(); }
  };

  static std::string nameOf(std::uint16_t proxy) { return "proxy-" + std::to_string(proxy); }

  std::vector<RawRedis> everyMaster() {
    std::vector<RawRedis> result;
    for (std::size_t i = 0; i < (cluster_ ? cluster_->size() : 1); ++i) {
      result.emplace_back(cluster_ ? cluster_->node(i) : sentinels_->node(0));
    }
    return result;
  }

  static std::map<std::string, std::string> settingsOf(RawRedis& server) {
    const std::vector<std::string> all = server.run({"CONFIG", "GET", "*"}).strings();
    std::map<std::string, std::string> result;
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
      result.emplace(all[i], all[i + 1]);
    }
    return result;
  }

  void restoreSettings(RawRedis& server) {
    for (const auto& [name, value] : settingsOf(server)) {
      const auto before = settings_.find(name);
      if (before != settings_.end() && before->second != value) {
        // A setting that differs from node to node, such as the port, cannot be set.
        (void)server.command({"CONFIG", "SET", name, before->second});
      }
    }
  }

  std::unique_ptr<RedisCluster> cluster_;
  std::unique_ptr<RedisSentinels> sentinels_;
  std::map<std::string, std::string> settings_;
  std::optional<std::string> watched_;
};

bool special(const RedisServerOptions& options) {
  return !options.extraArgs.empty() || !options.password.empty() || !options.aclUsers.empty() ||
         options.unixSocket || options.unixSocketOnly || options.port != 0 || options.persistence;
}

}  // namespace

Topology testTopology() {
  static const Topology topology = readTopology();
  return topology;
}

const char* toString(Topology topology) {
  switch (topology) {
    case Topology::single:
      return "single";
    case Topology::tls:
      return "tls";
    case Topology::acl:
      return "acl";
    case Topology::sentinel:
      return "sentinel";
    case Topology::cluster:
      return "cluster";
  }
  return "?";
}

void endForTopology(std::string_view why) {
  const std::string text =
      std::string(kVariable) + "=" + toString(testTopology()) + ": " + std::string(why);
  GTEST_MESSAGE_(text.c_str(), ::testing::TestPartResult::kSkip);
  // GoogleTest takes this exception for one whose reason has been recorded.
  throw ::testing::AssertionException(::testing::TestPartResult(
      ::testing::TestPartResult::kSkip, __FILE__, __LINE__, text.c_str()));
}

#ifdef RLOCK_TEST_WITH_TLS
struct TestServers::Tls {
  TestCa ca;
  CertificateFiles certificate = ca.issue();
  PortReservation port;
};
#else
struct TestServers::Tls {};
#endif

TestServers::TestServers(const RedisServerOptions& options) {
  if (serversAreShared()) {
    if (special(options)) {
      endForTopology("wants a server that is set up in its own way");
    }
    SharedServers::get().forget();
    SharedServers::get().clear();
    return;
  }
  RedisServerOptions settings = options;
  if (testTopology() == Topology::acl) {
    settings.aclUsers.push_back(leastRights());
  }
  if (testTopology() == Topology::tls) {
#ifdef RLOCK_TEST_WITH_TLS
    tls_ = std::make_unique<Tls>();
    const std::vector<std::string> words =
        TlsFiles{tls_->certificate.certificate, tls_->certificate.key, tls_->ca.file()}.arguments(
            tls_->port.port());
    settings.extraArgs.insert(settings.extraArgs.end(), words.begin(), words.end());
#else
    endForTopology("the library was built without TLS");
#endif
  }
  own_ = std::make_unique<RedisServer>(settings);
}

TestServers::~TestServers() = default;

RedisServer& TestServers::server() {
  if (!own_) {
    endForTopology("is about one server, which it stops or looks into");
  }
  return *own_;
}

std::string TestServers::uri() const {
  if (!own_) {
    return SharedServers::get().uri();
  }
#ifdef RLOCK_TEST_WITH_TLS
  if (tls_) {
    return "rediss://127.0.0.1:" + std::to_string(tls_->port.port()) +
           "?tls-ca-file=" + tls_->ca.file();
  }
#endif
  if (testTopology() == Topology::acl && own_->port() != 0) {
    return std::string("redis://") + kUser + ":" + kPassword +
           "@127.0.0.1:" + std::to_string(own_->port());
  }
  return own_->uri();
}

RawRedisOptions TestServers::raw() const {
  return own_ ? rawOptionsFor(*own_) : SharedServers::get().raw();
}

std::unique_ptr<TcpProxy> TestServers::makeProxy() {
  if (testTopology() == Topology::cluster) {
    endForTopology("goes through a proxy before one server");
  }
  if (testTopology() == Topology::tls) {
    endForTopology("goes through a proxy, which cannot read what is encrypted");
  }
  if (own_) {
    return std::make_unique<TcpProxy>(*own_);
  }
  auto proxy = std::make_unique<TcpProxy>(SharedServers::get().master());
  SharedServers::get().watch(proxy->port());
  return proxy;
}

std::string TestServers::uriThrough(const TcpProxy& proxy) const {
  if (!own_) {
    return SharedServers::get().uriThrough(proxy.port());
  }
  if (testTopology() == Topology::acl) {
    return std::string("redis://") + kUser + ":" + kPassword +
           "@127.0.0.1:" + std::to_string(proxy.port());
  }
  return proxy.uri();
}

std::string with(std::string_view uri, std::string_view parameters) {
  const char* separator = uri.find('?') == std::string_view::npos ? "?" : "&";
  return std::string(uri) + separator + std::string(parameters);
}

}  // namespace rlock::test
