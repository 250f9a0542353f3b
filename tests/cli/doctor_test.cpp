// SPDX-License-Identifier: Apache-2.0
// `rlock doctor` names what is wrong with a server, and what to write instead.
#include "cli/cli_harness.hpp"

#include <gmock/gmock.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace rlock::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Answers the bytes that it is given to whatever it is told, on a port of its own.
class FixedAnswer {
 public:
  explicit FixedAnswer(std::string answer) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer)] {
      for (;;) {
        const int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (peer < 0) {
          return;
        }
        char heard = 0;
        if (::recv(peer, &heard, 1, 0) > 0) {
          ::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
        }
        ::shutdown(peer, SHUT_WR);
        while (::recv(peer, &heard, 1, 0) > 0) {
        }
        ::close(peer);
      }
    });
  }
  FixedAnswer(const FixedAnswer&) = delete;
  FixedAnswer& operator=(const FixedAnswer&) = delete;
  ~FixedAnswer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  [[nodiscard]] std::string uri() const { return "redis://127.0.0.1:" + std::to_string(port_); }

 private:
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

class CliDoctor : public CliTest {
 protected:
  std::string userUri(const std::string& user) {
    return "redis://" + user + ":x@127.0.0.1:" + std::to_string(server().port());
  }
  /// A user who may do everything but what `rules` take away.
  CliOutcome examineAs(std::vector<std::string> rules) {
    std::vector<std::string> command{
        "ACL", "SETUSER", "lim", "reset", "on", ">x", "~*", "&*", "+@all"};
    command.insert(command.end(), rules.begin(), rules.end());
    redis().run(command);
    return runCli(userUri("lim"), {"doctor"});
  }
  static void expectBad(const CliOutcome& outcome,
                        const std::string& text,
                        const std::string& advice) {
    EXPECT_EQ(outcome.code, 1) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("BAD"));
    EXPECT_THAT(outcome.output, HasSubstr(text));
    EXPECT_THAT(outcome.output, HasSubstr(advice));
  }
};

TEST_F(CliDoctor, AHealthyServer) {
  const CliOutcome outcome = run({"doctor"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.output, Not(HasSubstr("BAD")));
  EXPECT_THAT(outcome.output, HasSubstr("read-write lock      works"));
  EXPECT_THAT(outcome.output, HasSubstr("waiting              works"));
  EXPECT_THAT(run({"doctor", "--json"}).output, HasSubstr("\"subject\": \"fenced lock\""));
  // The keys that are left expire by themselves.
  for (const std::string& key : redis().keys()) {
    EXPECT_GT(redis().pttl(key), -1) << key;
  }
}

TEST_F(CliDoctor, SeveralAddressesOfOneServer) {
  const CliOutcome outcome =
      runCli("redis://127.0.0.1:1,127.0.0.1:" + std::to_string(server().port()), {"doctor"});
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, Not(HasSubstr("INFO")));
  EXPECT_THAT(outcome.output, HasSubstr("clock"));
}

TEST_F(CliDoctor, AddressesThatLeadNowhere) {
  expectBad(runCli("redis://127.0.0.1:1", {"doctor"}), "refused", "nothing listens there");
  expectBad(runCli("redis://no.such.host.invalid", {"doctor"}),
            "name resolution",
            "name is unknown here");
  expectBad(runCli("unix:///nonexistent/redis.sock", {"doctor"}), "No such file", "no such socket");
  expectBad(runCli("redis:/oops", {"doctor"}), "URI", "docs/configuration.md");
}

TEST_F(CliDoctor, ServersOfAnotherKind) {
  const FixedAnswer web("HTTP/1.1 400 Bad Request\r\n\r\n");
  expectBad(runCli(web.uri() + "?connect-timeout=5s", {"doctor"}),
            "connection",
            "a web server listens there");
  const FixedAnswer secure(std::string("\x15\x03\x03\x00\x02\x02\x32", 7));
  expectBad(
      runCli(secure.uri() + "?connect-timeout=5s", {"doctor"}), "connection", "write rediss://");
  const FixedAnswer protectedServer(
      "-DENIED Redis is running in protected mode because protected mode is enabled\r\n");
  expectBad(runCli(protectedServer.uri() + "?connect-timeout=5s", {"doctor"}),
            "connection",
            "give it a password");
  const FixedAnswer full("-ERR max number of clients reached\r\n");
  expectBad(runCli(full.uri() + "?connect-timeout=5s", {"doctor"}), "connection", "maxclients");
}

TEST_F(CliDoctor, AUriThatDoesNotFitTheServer) {
  const std::string host = "127.0.0.1:" + std::to_string(server().port());
  expectBad(runCli("redis://" + host + "/99", {"doctor"}), "no database 99", "smaller number");
  expectBad(
      runCli("redis+cluster://" + host, {"doctor"}), "no node of a cluster", "write redis://");
  expectBad(
      runCli("redis+sentinel://" + host + "/main", {"doctor"}), "no Sentinel", "write redis://");
  expectBad(runCli("redis://:secret@" + host, {"doctor"}),
            "has none for this user",
            "leave the password out");
  expectBad(runCli("redis://me:secret@" + host, {"doctor"}),
            "refused the user name or password",
            "check user");
}

#ifndef RLOCK_TEST_WITHOUT_TLS
TEST_F(CliDoctor, TlsWhereThereIsNone) {
  expectBad(runCli("rediss://127.0.0.1:" + std::to_string(server().port()) + "?connect-timeout=2s",
                   {"doctor"}),
            "connection",
            "redis:// instead of rediss://");
}
#endif

TEST_F(CliDoctor, AClusterNode) {
  RedisServer::Options options;
  options.extraArgs = {"--cluster-enabled", "yes"};
  RedisServer node(options);
  expectBad(runCli(node.uri(), {"doctor"}), "cluster", "write redis+cluster://");
}

TEST_F(CliDoctor, APasswordThatIsMissing) {
  redis().configSet("requirepass", "secret");
  expectBad(run({"doctor"}), "wants a password", "redis://:PASSWORD@HOST");
}

TEST_F(CliDoctor, AReplicaAndWhoseItIs) {
  RedisServer replica;
  RawRedis(replica).run({"REPLICAOF", "127.0.0.1", std::to_string(server().port())});
  ASSERT_EVENTUALLY(kLong, RawRedis(replica).info("master_link_status") == "up");
  expectBad(runCli(replica.uri(), {"doctor"}),
            "a replica of 127.0.0.1:" + std::to_string(server().port()),
            "write redis://127.0.0.1:" + std::to_string(server().port()));
  // The client uses the other one.
  const CliOutcome both = runCli("redis://127.0.0.1:" + std::to_string(replica.port()) +
                                     ",127.0.0.1:" + std::to_string(server().port()),
                                 {"doctor"});
  EXPECT_EQ(both.code, 0) << both.output;
  EXPECT_THAT(both.output, Not(HasSubstr("a replica of")));
}

TEST_F(CliDoctor, RightsThatAreMissing) {
  expectBad(examineAs({"-evalsha"}), "'evalsha'", "configuration.md lists the rights");
  expectBad(examineAs({"-subscribe"}), "SUBSCRIBE is not permitted", "once a second");
  expectBad(examineAs({"resetchannels"}), "PUBLISH is not permitted", "once a second");
  expectBad(examineAs({"-publish"}), "PUBLISH is not permitted", "once a second");
  expectBad(examineAs({"resetkeys", "~orders:*"}), "permissions to access", "configuration.md");
  expectBad(examineAs({"-zadd"}), "expiring permits", "configuration.md");
  // A counter that somebody has given an expiry could not be kept.
  expectBad(examineAs({"-persist"}), "BAD   fenced lock", "configuration.md");
  for (const std::string& key : redis().keys()) {
    EXPECT_NE(redis().pttl(key), -1) << key << " never expires";
  }
  const CliOutcome without = examineAs({"-info"});
  EXPECT_THAT(without.output, HasSubstr("grant +info"));
  EXPECT_EQ(without.code, 0) << without.output;
}

TEST_F(CliDoctor, RightsThatOnlyWaitersNeed) {
  const CliOutcome fair = examineAs({"-rpush"});
  expectBad(fair, "BAD   fair lock", "configuration.md");
  EXPECT_THAT(fair.output, HasSubstr("ok    waiting"));
  const CliOutcome channels =
      examineAs({"resetchannels", "&redisson_lock__channel:*", "&rlock_client:*"});
  for (const char* const kind : {"read-write lock", "simple lock", "semaphore", "latch"}) {
    expectBad(channels, std::string("BAD   ") + kind, "once a second");
  }
  EXPECT_THAT(channels.output, HasSubstr("ok    waiting"));
  EXPECT_THAT(channels.output, HasSubstr("ok    fair lock"));
  for (const std::string& key : redis().keys()) {
    EXPECT_NE(redis().pttl(key), -1) << key << " never expires";
  }
}

TEST_F(CliDoctor, NamesOfOnesOwn) {
  redis().run({"ACL",
               "SETUSER",
               "orders",
               "reset",
               "on",
               ">x",
               "~orders:*",
               "~*:{orders:*",
               "~{orders:*",
               "&*",
               "+@all"});
  const CliOutcome outcome = runCli(userUri("orders"), {"doctor", "orders"});
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST_F(CliDoctor, MemoryThatIsShort) {
  redis().configSet("maxmemory", "100mb");
  redis().configSet("maxmemory-policy", "allkeys-lru");
  const CliOutcome evicting = run({"doctor"});
  EXPECT_EQ(evicting.code, 0);
  EXPECT_THAT(evicting.output, HasSubstr("set maxmemory-policy noeviction"));
  redis().configSet("maxmemory-policy", "noeviction");
  redis().configSet("maxmemory", "1");
  expectBad(run({"doctor"}), "is reached", "raise maxmemory");
}

TEST_F(CliDoctor, ReplicasThatAreMissing) {
  redis().configSet("min-replicas-to-write", "1");
  expectBad(run({"doctor"}), "too few replicas confirmed the write", "min-replicas-to-write");
}

}  // namespace
}  // namespace rlock::test
