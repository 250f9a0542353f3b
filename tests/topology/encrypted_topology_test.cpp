// SPDX-License-Identifier: Apache-2.0

// Encrypted connections to Sentinels and to the nodes of a cluster.

#include "tls/certificates.hpp"
#include "topology/topology_harness.hpp"

namespace rlock::test {
namespace {

class Encrypted : public TopologyTest {
 protected:
  [[nodiscard]] TlsFiles files(const CertificateSpec& spec = {}) {
    const CertificateFiles issued = ca_.issue(spec);
    return {issued.certificate, issued.key, ca_.file()};
  }

 private:
  TestCa ca_;
};

TEST_F(Encrypted, Sentinels) {
  RedisSentinelsOptions options;
  options.tls = files();
  RedisSentinels world(options);
  use([](Client& client) { return client.getLock("used"); }, tuned(world.tlsUri(), 2s));

  // The connection on which the Sentinels tell of a new master is encrypted, too.
  Client client = Client::connect(tuned(world.tlsUri()));
  RLock lock = client.getLock("moved");
  lock.lock();
  // WAIT counts from the connection's own last write.
  RawRedis raw(world.node(0));
  raw.set("replicated", "");
  ASSERT_EQ(raw.run({"WAIT", "1", "20000"}).integer(), 1);
  const std::size_t master = world.failover();
  ASSERT_NE(master, 0U);
  // The master before would release it, too, for as long as it does not know that it is none.
  ASSERT_EVENTUALLY(kLong, client.stats().reconnects >= 1U);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_FALSE(RawRedis(world.node(master)).exists("moved"));

  // Without the certificates of the authority nobody is trusted.
  Options stranger = tuned(world.tlsUri());
  stranger.tlsCaFile.clear();
  stranger.connectTimeout = 3s;
  EXPECT_NE(outcomeOf([&] { Client::connect(stranger); }), "ok");
  // Nor is a plain connection to that port of any use.
  Options plain = tuned(world.tlsUri());
  plain.sentinelTls = false;
  plain.tlsCaFile.clear();
  plain.connectTimeout = 1s;
  EXPECT_NE(outcomeOf([&] { Client::connect(plain); }), "ok");
}

TEST_F(Encrypted, SentinelsAndTheMasterThatTheyName) {
  const TlsFiles files = this->files();
  const PortReservation masterPort;
  RedisServerOptions options;
  options.extraArgs = files.arguments(masterPort.port());
  const RedisServer master(options);
  // The Sentinel speaks TLS with the master, too, and so it names the port for that.
  const PortReservation sentinelPort;
  const RedisSentinel sentinel(
      PortReservation(),
      "tls-port " + std::to_string(sentinelPort.port()) + "\ntls-cert-file " + files.certificate +
          "\ntls-key-file " + files.key + "\ntls-ca-cert-file " + files.ca +
          "\ntls-auth-clients no\ntls-replication yes\nsentinel monitor mymaster 127.0.0.1 " +
          std::to_string(masterPort.port()) +
          " 1\nsentinel down-after-milliseconds mymaster 60000\n",
      "");
  Client client =
      Client::connect(tuned("redis+sentinel://127.0.0.1:" + std::to_string(sentinelPort.port()) +
                            "/mymaster?tls=true&sentinel-tls=true&tls-ca-file=" + files.ca));
  RLock lock = client.getLock("both");
  lock.lock();
  EXPECT_TRUE(RawRedis(master).exists("both"));
  lock.unlock();
}

TEST_F(Encrypted, ClusterNodes) {
  RedisClusterOptions options;
  options.tls = files();
  RedisCluster cluster(options);
  for (std::size_t node = 0; node < cluster.size(); ++node) {
    const std::string name = cluster.nameAt(node, "used:");
    // The first node says where it is, by a port with TLS.
    use([&](Client& client) { return client.getLock(name); }, tuned(cluster.tlsUri(), 2s));
    EXPECT_FALSE(cluster.raw(node).exists(name));
  }
  Client client = Client::connect(tuned(cluster.tlsUri()));
  const std::string name = cluster.nameAt(1, "moves:");
  RLock lock = client.getLock(name);
  lock.lock();
  cluster.migrate(RedisCluster::slotOf(name), 1, 2);
  EXPECT_TRUE(lock.isHeldByCurrentThread()) << "the redirection names a port with TLS";
  lock.unlock();
  EXPECT_FALSE(cluster.raw(2).exists(name));
  Options stranger = tuned(cluster.tlsUri());
  stranger.tlsCaFile.clear();
  stranger.connectTimeout = 3s;
  EXPECT_NE(outcomeOf([&] { Client::connect(stranger); }), "ok");
}

/// The client knows the first node by a name, and the map names all of them by addresses.
TEST_F(Encrypted, ANodeProvesTheHostThatTheMapHas) {
  RedisClusterOptions options;
  options.tls = files({.names = "DNS:localhost"});
  RedisCluster cluster(options);
  std::string uri = cluster.tlsUri();
  uri.replace(uri.find("127.0.0.1"), std::string_view("127.0.0.1").size(), "localhost");
  const std::string name = cluster.nameAt(1, "used:");
  const auto takeBy = [&](const std::string& how) {
    return outcomeOf([&] {
      Client client = Client::connect(tuned(how));
      client.getLock(name).lock();
    });
  };
  EXPECT_EQ(takeBy(uri), "authenticationFailed");
  EXPECT_EQ(takeBy(uri + "&tls-server-name=localhost"), "ok");
  EXPECT_EQ(takeBy(uri + "&tls-server-name=others.example.org"), "authenticationFailed");
}

/// Another name that a node tells of itself is no proof.
TEST_F(Encrypted, TheHostNameThatANodeAnnouncesReplacesNoAddress) {
  RedisClusterOptions options;
  options.tls = files({.names = "DNS:localhost"});
  options.extraArgs = {"--cluster-announce-hostname", "localhost"};
  RedisCluster cluster(options);
  std::string uri = cluster.tlsUri();
  uri.replace(uri.find("127.0.0.1"), std::string_view("127.0.0.1").size(), "localhost");
  EXPECT_EQ(outcomeOf([&] {
              Client client = Client::connect(tuned(uri));
              client.getLock(cluster.nameAt(1, "refused:")).lock();
            }),
            "authenticationFailed");
  for (std::size_t node = 0; node < cluster.size(); ++node) {
    cluster.raw(node).run({"CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname"});
  }
  for (std::size_t node = 0; node < cluster.size(); ++node) {
    const std::string name = cluster.nameAt(node, "used:");
    use([&](Client& client) { return client.getLock(name); }, tuned(uri, 2s));
  }
}

}  // namespace
}  // namespace rlock::test
