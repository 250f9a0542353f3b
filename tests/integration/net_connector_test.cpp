// SPDX-License-Identifier: Apache-2.0
#include "integration/net_harness.hpp"
#include "net/address.hpp"
#include "net/codec.hpp"
#include "net/connector.hpp"
#include "net/dialer.hpp"
#include "net/socket.hpp"
#include "support/captured_log.hpp"
#include "support/free_port.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/tcp_proxy.hpp"
#include <rlock/detail/net/command_format.hpp>

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rlock::detail::net {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using test::connectOnce;
using test::ConnectOutcome;
using test::kLong;
using test::LoopHarness;
using test::RawRedis;
using test::RedisServer;
using test::scaled;
using test::ScriptedServer;
using test::settingsFor;
using test::tcp;
using test::TcpProxy;

/// A socket that connects to this port of 127.0.0.1 gets the same port for its own end, as the
/// kernel may do where nobody listens. 0: none; it is again when that has happened.
constinit std::atomic<std::uint16_t> portForBothEnds{0};

/// The margin by which a deadline may be missed: a loop pass, and the machine's own hiccups.
milliseconds slack() {
  return scaled(milliseconds(50));
}

bool mentions(const Error& error, std::string_view text) {
  return std::string_view(error.what()).find(text) != std::string_view::npos;
}

/// One request and its reply over an established stream, as a blocking caller does it.
Reply exchange(Stream& stream, std::initializer_list<std::string_view> argv) {
  std::string out;
  appendCommand(out, std::span(argv.begin(), argv.size()));
  if (stream.write(out.data(), out.size()) != static_cast<ssize_t>(out.size())) {
    throw std::runtime_error("write");
  }
  ReplyReader reader;
  Reply reply;
  std::array<char, 4096> buffer;
  const test::Deadline deadline(kLong);
  while (reader.next(reply) != ReplyReader::Next::reply) {
    const ssize_t count = stream.read(buffer.data(), buffer.size(), true);
    if (count > 0) {
      reader.feed(buffer.data(), static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EAGAIN || deadline.expired()) {
      throw std::runtime_error("read");
    }
  }
  return reply;
}

class ConnectorTest : public testing::Test {
 protected:
  LoopHarness harness_;
};

class ConnectorRedisTest : public ConnectorTest {
 protected:
  void SetUp() override { RLOCK_REQUIRE_REDIS_SERVER(); }
};

// ------------------------------------------------------------------------------------- it connects

TEST_F(ConnectorRedisTest, EstablishesASessionOverTcp) {
  const RedisServer server;
  LinkSettings settings = settingsFor({tcp(server.port())});
  settings.clientName = "net-test";
  settings.database = 3;
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.connected()) << outcome.error().what();
  const ServerSession& session = outcome.session();
  EXPECT_EQ(session.node, "127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(session.address, session.node);
  EXPECT_TRUE(session.canKill);
  EXPECT_EQ(session.role, "master");
  EXPECT_FALSE(session.serverVersion.empty());

  RawRedis raw(server);
  bool listed = false;
  for (auto& client : raw.clientList()) {
    if (client["id"] == std::to_string(session.clientId)) {
      listed = true;
      EXPECT_EQ(client["name"], "net-test");
      EXPECT_EQ(client["db"], "3");
      EXPECT_EQ(client["addr"], session.clientAddress);
    }
  }
  EXPECT_TRUE(listed);
}

TEST_F(ConnectorRedisTest, HandsOverABlockingConfiguredSocket) {
  const RedisServer server;
  LinkSettings settings = settingsFor({tcp(server.port())});
  settings.tcpUserTimeout = 7s;
  ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.connected());
  Stream& stream = *outcome.result->value().stream;
  const int fd = stream.descriptor();
  EXPECT_EQ(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  const auto option = [fd](int level, int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    EXPECT_EQ(::getsockopt(fd, level, name, &value, &size), 0);
    return value;
  };
  EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_LE(option(IPPROTO_TCP, TCP_KEEPIDLE) +
                option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT),
            30);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 7000);

  char byte = 0;
  errno = 0;
  EXPECT_EQ(stream.read(&byte, 1, false), -1);
  EXPECT_EQ(errno, EAGAIN);
  const test::Stopwatch watch;
  EXPECT_EQ(stream.read(&byte, 1, true), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_GE(watch.elapsedMs(), 30ms);
  EXPECT_LE(watch.elapsedMs(), kReceiveSlice + slack());
  EXPECT_TRUE(exchange(stream, {"SET", "a\r\n", "1"}).is("OK"));
  EXPECT_EQ(exchange(stream, {"INCR", "a\r\n"}).integer, 2);
}

TEST_F(ConnectorRedisTest, SentBytesHaveTheTimeThatAServerHasToAnswer) {
  const RedisServer server;
  LinkSettings settings = settingsFor({tcp(server.port())});
  settings.heartbeatInterval = 5s;
  settings.replyTimeout = 3s;
  ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.connected()) << outcome.error().what();
  const int fd = outcome.result->value().stream->descriptor();
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size), 0);
  EXPECT_EQ(value, 11000) << "a heartbeat and twice the time for its answer";
}

TEST_F(ConnectorRedisTest, ConnectsOverAUnixSocket) {
  RedisServer::Options options;
  options.unixSocketOnly = true;
  const RedisServer server(options);
  Endpoint endpoint;
  endpoint.path = server.socketPath();
  ConnectOutcome outcome = connectOnce(harness_, settingsFor({endpoint}));
  ASSERT_TRUE(outcome.connected()) << outcome.error().what();
  EXPECT_EQ(outcome.session().node, "unix://" + server.socketPath());
  EXPECT_GT(outcome.session().clientId, 0U);
  EXPECT_TRUE(exchange(*outcome.result->value().stream, {"PING"}).is("PONG"));
}

TEST_F(ConnectorRedisTest, ConnectsOverIpv6) {
  RedisServer::Options options;
  options.extraArgs = {"--bind", "127.0.0.1", "-::1"};
  const RedisServer server(options);
  const UniqueFd probe = openSocket(AF_INET6);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  if (!probe || ::bind(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    GTEST_SKIP() << "no IPv6 loopback";
  }
  const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(server.port(), "::1")}));
  ASSERT_TRUE(outcome.connected()) << outcome.error().what();
  EXPECT_EQ(outcome.session().node, "[::1]:" + std::to_string(server.port()));
}

TEST_F(ConnectorRedisTest, ResolvesNamesAndTriesEveryAddress) {
  addrinfo* found = nullptr;
  if (::getaddrinfo("localhost", nullptr, nullptr, &found) != 0) {
    GTEST_SKIP() << "this machine cannot resolve localhost";
  }
  ::freeaddrinfo(found);
  // Listens on IPv4 only, while the name often has an IPv6 address as well.
  const RedisServer server;
  const ConnectOutcome outcome =
      connectOnce(harness_, settingsFor({tcp(server.port(), "localhost")}));
  ASSERT_TRUE(outcome.connected()) << outcome.error().what();
  EXPECT_EQ(outcome.session().node, "localhost:" + std::to_string(server.port()));
  EXPECT_EQ(outcome.session().address, "127.0.0.1:" + std::to_string(server.port()));
}

TEST_F(ConnectorRedisTest, SkipsDeadEndpoints) {
  const RedisServer server;
  const test::PortReservation refused;
  const test::SilentListener silent;
  LinkSettings settings =
      settingsFor({tcp(refused.port()), tcp(silent.port()), tcp(server.port())});
  settings.connectTimeout = scaled(3s);
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.connected()) << outcome.error().what();
  EXPECT_EQ(outcome.session().node, "127.0.0.1:" + std::to_string(server.port()));
  EXPECT_LT(outcome.elapsed, settings.connectTimeout);
}

TEST_F(ConnectorRedisTest, AuthenticatesWithAPasswordOrAnAclUser) {
  RedisServer::Options options;
  options.password = "main secret";
  options.aclUsers = {
      "worker on >other ~* &* +@all -client +client|id +client|info +client|setname"};
  const RedisServer server(options);
  LinkSettings settings = settingsFor({tcp(server.port())});
  settings.password = "main secret";
  const ConnectOutcome byPassword = connectOnce(harness_, settings);
  ASSERT_TRUE(byPassword.connected()) << byPassword.error().what();
  EXPECT_TRUE(byPassword.session().canKill);

  settings.username = "worker";
  settings.password = "other";
  const ConnectOutcome byUser = connectOnce(harness_, settings);
  ASSERT_TRUE(byUser.connected()) << byUser.error().what();
  EXPECT_FALSE(byUser.session().canKill);
  EXPECT_GT(byUser.session().clientId, 0U);
  EXPECT_FALSE(byUser.session().clientAddress.empty());
}

TEST_F(ConnectorRedisTest, ToleratesAUserWithoutConnectionCommands) {
  RedisServer::Options options;
  options.aclUsers = {"poor on >pw ~* &* +eval"};
  const RedisServer server(options);
  LinkSettings settings = settingsFor({tcp(server.port())});
  settings.username = "poor";
  settings.password = "pw";
  settings.clientName = "anything";
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.connected()) << outcome.error().what();
  // HELLO cannot be taken away from anybody, and it tells the id.
  EXPECT_GT(outcome.session().clientId, 0U);
  EXPECT_TRUE(outcome.session().clientAddress.empty());
  EXPECT_FALSE(outcome.session().canKill);
}

TEST_F(ConnectorRedisTest, LearnsTheIdFromOldServersToo) {
  const RedisServer server;
  TcpProxy proxy(server);
  proxy.addRule(TcpProxy::command("HELLO"),
                TcpProxy::Action::replyWithError("ERR unknown command `HELLO`"));
  proxy.addRule(TcpProxy::command("CLIENT INFO"),
                TcpProxy::Action::replyWithError("ERR Unknown subcommand"));
  const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(proxy.port())}));
  ASSERT_TRUE(outcome.connected()) << outcome.error().what();
  EXPECT_GT(outcome.session().clientId, 0U);
  EXPECT_TRUE(outcome.session().clientAddress.empty());
}

TEST_F(ConnectorRedisTest, ProbesOnlyWhenAsked) {
  const RedisServer server;
  TcpProxy proxy(server);
  proxy.recordCommands(true);
  const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(proxy.port())}), false);
  ASSERT_TRUE(outcome.connected());
  EXPECT_FALSE(outcome.session().canKill);
  EXPECT_EQ(proxy.countCommands(TcpProxy::command("CLIENT KILL")), 0U);
  EXPECT_EQ(proxy.countCommands(TcpProxy::command("AUTH")), 0U);
  EXPECT_EQ(proxy.countCommands(TcpProxy::command("SELECT")), 0U);
  EXPECT_EQ(proxy.countCommands(TcpProxy::command("PING")), 1U);
}

TEST_F(ConnectorRedisTest, TheProbeKillsNobody) {
  const RedisServer server;
  RawRedis bystander(server);
  ConnectOutcome first = connectOnce(harness_, settingsFor({tcp(server.port())}));
  const ConnectOutcome second = connectOnce(harness_, settingsFor({tcp(server.port())}));
  ASSERT_TRUE(first.connected() && second.connected());
  EXPECT_TRUE(exchange(*first.result->value().stream, {"PING"}).is("PONG"));
  EXPECT_TRUE(bystander.ping());
}

TEST_F(ConnectorRedisTest, ManagesOneByteAtATime) {
  const RedisServer server;
  TcpProxy proxy(server);
  proxy.setThrottle(TcpProxy::Direction::both, 1, 1ms);
  LinkSettings settings = settingsFor({tcp(proxy.port())});
  settings.connectTimeout = scaled(10s);
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.connected()) << outcome.error().what();
  EXPECT_GT(outcome.session().clientId, 0U);
}

// ------------------------------------------------------------------------------------ it does not

TEST_F(ConnectorTest, ReportsARefusedPort) {
  const test::PortReservation port;
  const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(port.port())}));
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed);
  EXPECT_TRUE(mentions(outcome.error(), "127.0.0.1:" + std::to_string(port.port())));
  EXPECT_TRUE(mentions(outcome.error(), "refused")) << outcome.error().what();
  EXPECT_EQ(outcome.error().node(), "127.0.0.1:" + std::to_string(port.port()));
  EXPECT_GE(outcome.error().elapsed().count(), 0);
  EXPECT_LT(outcome.elapsed, scaled(1s));
}

TEST_F(ConnectorTest, ASocketThatIsConnectedToItselfIsARefusedPort) {
  const std::uint16_t port = test::freePort();
  portForBothEnds = port;
  const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(port)}));
  ASSERT_EQ(portForBothEnds.exchange(0), 0) << "the socket has got another port";
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed);
  EXPECT_TRUE(mentions(outcome.error(), "refused")) << outcome.error().what();
}

TEST(AddressTest, OnlyASocketWithOneEndIsConnectedToItself) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const UniqueFd itself = openSocket(AF_INET);
  ASSERT_TRUE(setBlocking(itself.get(), true));
  ASSERT_EQ(::bind(itself.get(), generic, size), 0);
  ASSERT_EQ(::getsockname(itself.get(), generic, &size), 0);
  ASSERT_EQ(::connect(itself.get(), generic, size), 0);
  EXPECT_TRUE(connectedToItself(itself.get(), AF_INET));

  const ScriptedServer server({});
  address.sin_port = htons(server.port());
  const UniqueFd other = openSocket(AF_INET);
  ASSERT_TRUE(setBlocking(other.get(), true));
  ASSERT_EQ(::connect(other.get(), generic, size), 0);
  EXPECT_FALSE(connectedToItself(other.get(), AF_INET));

  // Neither end of such a pair has a name, so that they look the same.
  int fds[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const UniqueFd near(fds[0]);
  const UniqueFd far(fds[1]);
  EXPECT_FALSE(connectedToItself(near.get(), AF_UNIX));
}

TEST_F(ConnectorTest, TimesOutOnABlackHoleAccurately) {
  const test::SilentListener silent;
  for (const milliseconds timeout : {50ms, 120ms, 300ms}) {
    LinkSettings settings = settingsFor({tcp(silent.port())});
    settings.connectTimeout = timeout;
    const ConnectOutcome outcome = connectOnce(harness_, settings);
    ASSERT_TRUE(outcome.result);
    EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed);
    EXPECT_TRUE(mentions(outcome.error(), "timed out")) << outcome.error().what();
    EXPECT_GE(outcome.elapsed, timeout);
    EXPECT_LE(outcome.elapsed, timeout + slack());
  }
}

TEST_F(ConnectorTest, TimesOutOnAServerThatNeverAnswers) {
  const ScriptedServer silent({});
  LinkSettings settings = settingsFor({tcp(silent.port())});
  settings.connectTimeout = 600ms;
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed);
  EXPECT_TRUE(mentions(outcome.error(), "without an answer")) << outcome.error().what();
  EXPECT_GE(outcome.elapsed, settings.connectTimeout);
  EXPECT_LE(outcome.elapsed, settings.connectTimeout + slack());
  EXPECT_EQ(silent.accepted(), 1U);
}

TEST_F(ConnectorTest, StaysWithinTheTimeOfAllEndpointsTogether) {
  const test::SilentListener first;
  const test::SilentListener second;
  const ScriptedServer third({});
  LinkSettings settings = settingsFor({tcp(first.port()), tcp(second.port()), tcp(third.port())});
  settings.connectTimeout = 1200ms;
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed);
  for (const std::uint16_t port : {first.port(), second.port(), third.port()}) {
    EXPECT_TRUE(mentions(outcome.error(), ":" + std::to_string(port))) << outcome.error().what();
  }
  EXPECT_GE(outcome.elapsed, settings.connectTimeout);
  EXPECT_LE(outcome.elapsed, settings.connectTimeout + slack());
}

TEST_F(ConnectorTest, ReportsAnUnresolvableName) {
  LinkSettings settings = settingsFor({tcp(6379, "no-such-host.invalid")});
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed);
  EXPECT_TRUE(mentions(outcome.error(), "no-such-host.invalid:6379"));
  EXPECT_TRUE(mentions(outcome.error(), "name resolution")) << outcome.error().what();
  EXPECT_LE(outcome.elapsed, settings.connectTimeout + slack());
}

TEST_F(ConnectorTest, ReportsNamesThatCannotExist) {
  for (const std::string& host : {std::string(),
                                  std::string(300, 'a'),
                                  std::string("a b"),
                                  std::string("\xff\xfe"),
                                  std::string("-::")}) {
    const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(6379, host)}));
    ASSERT_TRUE(outcome.result);
    EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed) << outcome.error().what();
  }
}

TEST_F(ConnectorTest, ReportsUnusableUnixSockets) {
  Endpoint missing;
  missing.path = "/nonexistent/redis.sock";
  const ConnectOutcome outcome = connectOnce(harness_, settingsFor({missing}));
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed);
  EXPECT_TRUE(mentions(outcome.error(), "unix:///nonexistent/redis.sock"));

  Endpoint longPath;
  longPath.path = "/" + std::string(200, 'x');
  const ConnectOutcome tooLong = connectOnce(harness_, settingsFor({longPath}));
  ASSERT_TRUE(tooLong.result);
  EXPECT_EQ(tooLong.error().errc(), Errc::invalidArgument);
}

TEST_F(ConnectorTest, WaitsForRoomInAUnixSocketsQueue) {
  const test::TempDir directory;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = directory.file("full.sock");
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  const UniqueFd listener = openSocket(AF_UNIX);
  ASSERT_EQ(::bind(listener.get(), generic, sizeof(address)), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  std::vector<UniqueFd> fillers;
  do {
    fillers.push_back(openSocket(AF_UNIX));
    ASSERT_LT(fillers.size(), 1000U);
  } while (::connect(fillers.back().get(), generic, sizeof(address)) == 0);
  ASSERT_EQ(errno, EAGAIN);

  Endpoint endpoint;
  endpoint.path = path;
  LinkSettings settings = settingsFor({endpoint});
  settings.connectTimeout = 150ms;
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed);
  EXPECT_TRUE(mentions(outcome.error(), "timed out")) << outcome.error().what();
  EXPECT_GE(outcome.elapsed, settings.connectTimeout);
  EXPECT_LE(outcome.elapsed, settings.connectTimeout + slack());

  // With room again, the same attempt gets through to the handshake.
  settings.connectTimeout = scaled(1s);
  std::thread drain([&] {
    EXPECT_TRUE(test::eventually(kLong, [&] {
      const UniqueFd taken(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      return taken && fillers.size() > 0 && (fillers.clear(), true);
    }));
  });
  const ConnectOutcome later = connectOnce(harness_, settings);
  drain.join();
  ASSERT_TRUE(later.result);
  EXPECT_TRUE(mentions(later.error(), "answer") || mentions(later.error(), "closed"))
      << later.error().what();
}

TEST_F(ConnectorTest, NeedsAnEndpoint) {
  LinkSettings settings = settingsFor({});
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::invalidArgument);
}

TEST_F(ConnectorTest, ReportsWhatIsNotARedisServer) {
  struct Case {
    std::string bytes;
    Errc errc;
  };
  const std::vector<Case> cases = {
      {"HTTP/1.1 400 Bad Request\r\n\r\n", Errc::protocolError},
      {"SSH-2.0-OpenSSH_9.2\r\n", Errc::protocolError},
      {std::string("\x15\x03\x01\x00\x02\x02\x0a", 7), Errc::protocolError},
      {"*0\r\n$0\r\n\r\n+HELLO\r\n", Errc::protocolError},
      {test::handshakeAnswer() + "+surplus\r\n", Errc::protocolError},
      {"-ERR max number of clients reached\r\n", Errc::connectionFailed},
      {"-LOADING Redis is loading the dataset in memory\r\n", Errc::connectionFailed},
      {"-BUSY Redis is busy running a script.\r\n", Errc::connectionFailed},
      {"-DENIED Redis is running in protected mode\r\n", Errc::denied},
      {"-NOAUTH Authentication required.\r\n", Errc::authenticationFailed},
  };
  for (const Case& item : cases) {
    const ScriptedServer server({ScriptedServer::Step{"", item.bytes}});
    const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(server.port())}), false);
    ASSERT_TRUE(outcome.result);
    ASSERT_FALSE(outcome.connected()) << item.bytes;
    EXPECT_EQ(outcome.error().errc(), item.errc) << outcome.error().what();
    EXPECT_TRUE(mentions(outcome.error(), "127.0.0.1:" + std::to_string(server.port())))
        << outcome.error().what();
    EXPECT_LT(outcome.elapsed, scaled(1s));
  }
}

TEST_F(ConnectorTest, ReportsAServerThatClosesAtOnce) {
  const ScriptedServer server({ScriptedServer::Step{"", "-ERR max number of clients reached\r\n"}},
                              ScriptedServer::Then::close);
  const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(server.port())}));
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed);
  const ScriptedServer mute({}, ScriptedServer::Then::close);
  const ConnectOutcome closed = connectOnce(harness_, settingsFor({tcp(mute.port())}));
  ASSERT_TRUE(closed.result);
  EXPECT_EQ(closed.error().errc(), Errc::connectionFailed);
}

TEST_F(ConnectorRedisTest, TellsWrongCredentialsApart) {
  RedisServer::Options options;
  options.password = "right secret";
  options.aclUsers = {"worker on >other ~* &* +@all -select"};
  const RedisServer server(options);
  const auto attempt = [&](std::string user, std::string password, int database) {
    LinkSettings settings = settingsFor({tcp(server.port())});
    settings.username = std::move(user);
    settings.password = std::move(password);
    settings.database = database;
    return connectOnce(harness_, settings);
  };
  struct Case {
    std::string user;
    std::string password;
    int database;
    Errc errc;
    std::string word;
  };
  const std::vector<Case> cases = {
      {"", "", 0, Errc::authenticationFailed, "password"},
      {"", "wrong one", 0, Errc::authenticationFailed, "WRONGPASS"},
      {"nobody", "other", 0, Errc::authenticationFailed, "WRONGPASS"},
      {"worker", "wrong one", 0, Errc::authenticationFailed, "WRONGPASS"},
      {"worker", "other", 1, Errc::denied, "database 1"},
      {"", "right secret", 99, Errc::invalidArgument, "database 99"},
  };
  for (const Case& item : cases) {
    const ConnectOutcome outcome = attempt(item.user, item.password, item.database);
    ASSERT_TRUE(outcome.result);
    ASSERT_FALSE(outcome.connected());
    EXPECT_EQ(outcome.error().errc(), item.errc) << outcome.error().what();
    EXPECT_TRUE(mentions(outcome.error(), item.word)) << outcome.error().what();
    if (!item.password.empty()) {
      EXPECT_FALSE(mentions(outcome.error(), item.password)) << outcome.error().what();
    }
    EXPECT_EQ(outcome.error().node(), "127.0.0.1:" + std::to_string(server.port()));
    EXPECT_GE(outcome.error().elapsed().count(), 0);
  }
}

TEST_F(ConnectorRedisTest, ReportsAPasswordThatTheServerDoesNotHave) {
  const RedisServer server;
  LinkSettings settings = settingsFor({tcp(server.port())});
  settings.password = "superfluous";
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::authenticationFailed);
  EXPECT_FALSE(mentions(outcome.error(), "superfluous"));
}

TEST_F(ConnectorTest, NeverRepeatsAPassword) {
  test::CapturedLog captured;
  const std::string password = "hunter2hunter2";
  for (const std::string& answer :
       {std::string("-ERR unknown command `AUTH`, with args beginning with: `hunter2hunter2`\r\n"),
        std::string("-ERR unknown command `AUTH`, with args beginning with: `hunter\r\n"),
        std::string("-ERR hunter2hunter2 is wrong\r\n")}) {
    const ScriptedServer server({ScriptedServer::Step{"", answer}});
    LinkSettings settings = settingsFor({tcp(server.port())});
    settings.password = password;
    settings.log = std::make_shared<const Logger>(captured.hook(), LogLevel::trace);
    const ConnectOutcome outcome = connectOnce(harness_, settings);
    ASSERT_TRUE(outcome.result);
    EXPECT_EQ(outcome.error().errc(), Errc::authenticationFailed);
    EXPECT_FALSE(mentions(outcome.error(), "hunter")) << outcome.error().what();
  }
  EXPECT_FALSE(captured.contains("hunter"));
  EXPECT_GT(captured.size(), 0U);
}

TEST_F(ConnectorRedisTest, PrefersTheReasonThatLasts) {
  RedisServer::Options options;
  options.password = "secret";
  const RedisServer server(options);
  const test::PortReservation refused;
  for (const bool refusedFirst : {true, false}) {
    LinkSettings settings = settingsFor({tcp(refused.port()), tcp(server.port())});
    if (!refusedFirst) {
      std::swap(settings.endpoints[0], settings.endpoints[1]);
    }
    settings.password = "wrong";
    const ConnectOutcome outcome = connectOnce(harness_, settings);
    ASSERT_TRUE(outcome.result);
    EXPECT_EQ(outcome.error().errc(), Errc::authenticationFailed) << outcome.error().what();
  }
}

// A name may stand for several servers, of which one is set up otherwise.
TEST_F(ConnectorTest, ALastingErrorOfOneAddressLeavesTheOthersOfItsName) {
  const ScriptedServer good({ScriptedServer::Step{"PING", test::handshakeAnswer()}});
  const ScriptedServer refusing(
      {ScriptedServer::Step{"PING", "-NOAUTH Authentication required.\r\n"}},
      ScriptedServer::Then::hold,
      good.port(),
      INADDR_LOOPBACK + 1);
  const ConnectOutcome outcome =
      connectOnce(harness_, settingsFor({tcp(good.port(), "servers.two.test")}), false);
  ASSERT_TRUE(outcome.result);
  EXPECT_TRUE(outcome.connected()) << outcome.error().what();
  EXPECT_EQ(refusing.accepted(), 1U) << "it comes first";
}

TEST_F(ConnectorRedisTest, AnEndpointThatDropsPacketsDelaysByAHeadStart) {
  const RedisServer server;
  const test::SilentListener blackHole;
  LinkSettings settings = settingsFor({tcp(blackHole.port()), tcp(server.port())});
  settings.connectTimeout = scaled(20s);
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  EXPECT_TRUE(outcome.connected());
  EXPECT_GE(outcome.elapsed, 200ms);
  EXPECT_LE(outcome.elapsed, scaled(1s));
}

TEST_F(ConnectorRedisTest, EveryEndpointHasATurnInAShortTime) {
  const RedisServer server;
  const test::SilentListener first;
  const test::SilentListener second;
  const test::SilentListener third;
  LinkSettings settings =
      settingsFor({tcp(first.port()), tcp(second.port()), tcp(third.port()), tcp(server.port())});
  // Head starts of full length would leave the last one no time at all, however often it is tried.
  settings.connectTimeout = scaled(500ms);
  EXPECT_TRUE(test::eventually(kLong, [&] { return connectOnce(harness_, settings).connected(); }));
}

TEST_F(ConnectorRedisTest, WhatWorkedLastComesFirst) {
  const RedisServer server;
  const ScriptedServer silent({});
  LinkSettings settings = settingsFor({tcp(silent.port()), tcp(server.port())});
  settings.connectTimeout = scaled(20s);
  auto connector =
      harness_.run([&] { return std::make_unique<Connector>(*harness_.loop(), settings, true); });
  const auto connect = [&] {
    std::promise<bool> connected;
    harness_.run([&] {
      connector->start(
          [&](const Result<Established>& result) { connected.set_value(result.has_value()); });
    });
    return connected.get_future().get();
  };
  EXPECT_TRUE(connect());
  ASSERT_TRUE(test::eventually(kLong, [&] { return silent.accepted() == 1; }));
  // The second endpoint begins after a head start. An attempt that lasted longer says nothing.
  int quick = 0;
  std::size_t slow = 0;
  EXPECT_TRUE(test::eventually(kLong, [&] {
    const test::Stopwatch watch;
    EXPECT_TRUE(connect());
    if (watch.elapsedMs() < 200ms) {
      ++quick;
    } else {
      ++slow;
    }
    return quick == 3;
  }));
  EXPECT_LE(silent.accepted(), 1 + slow);
  harness_.run([&] { connector.reset(); });
}

TEST_F(ConnectorRedisTest, AMasterIsPreferredToReplicas) {
  const RedisServer first;
  const RedisServer second;
  RedisServer master;
  for (const RedisServer* const replica : {&first, &second}) {
    RawRedis(*replica).run({"REPLICAOF", "127.0.0.1", "1"});
  }
  const auto connected = [&](std::vector<Endpoint> endpoints, std::chrono::milliseconds timeout) {
    LinkSettings settings = settingsFor(std::move(endpoints));
    settings.connectTimeout = timeout;
    auto connector =
        harness_.run([&] { return std::make_unique<Connector>(*harness_.loop(), settings, true); });
    std::promise<std::string> node;
    harness_.run([&] {
      connector->start([&](const Result<Established>& result) {
        node.set_value(result ? result->session->node : result.error().what());
      });
    });
    std::string found = node.get_future().get();
    harness_.run([&] { connector.reset(); });
    return found;
  };
  const auto nodeOf = [](const RedisServer& server) {
    return "127.0.0.1:" + std::to_string(server.port());
  };
  EXPECT_EQ(connected({tcp(first.port()), tcp(second.port()), tcp(master.port())}, scaled(20s)),
            nodeOf(master));
  EXPECT_EQ(connected({tcp(first.port()), tcp(1)}, scaled(20s)), nodeOf(first))
      << "there is no other";
  // One that is silent is not waited for until the end, when nobody waits for the connection.
  master.freeze();
  const test::Stopwatch watch;
  EXPECT_EQ(connected({tcp(master.port()), tcp(first.port())}, scaled(6s)), nodeOf(first));
  EXPECT_LT(watch.elapsedMs(), scaled(5s));
  master.thaw();
}

TEST_F(ConnectorRedisTest, WhatIsNotWantedComesLast) {
  const RedisServer first;
  const RedisServer second;
  LinkSettings settings = settingsFor({tcp(first.port()), tcp(second.port())});
  settings.connectTimeout = scaled(20s);
  auto connector =
      harness_.run([&] { return std::make_unique<Connector>(*harness_.loop(), settings, true); });
  const auto connect = [&] {
    std::promise<std::string> node;
    harness_.run([&] {
      connector->start([&](const Result<Established>& result) {
        node.set_value(result ? result->session->node : result.error().what());
      });
    });
    return node.get_future().get();
  };
  const std::string one = "127.0.0.1:" + std::to_string(first.port());
  const std::string other = "127.0.0.1:" + std::to_string(second.port());
  // Beside a server that takes longer than its head start the next one may be faster, which says
  // nothing of their order. Then there is another round.
  const std::vector<std::string> expected{one, other, other, one, one};
  std::vector<std::string> nodes;
  EXPECT_TRUE(test::eventually(kLong, [&] {
    connector = harness_.run([&] {
      connector.reset();
      return std::make_unique<Connector>(*harness_.loop(), settings, true);
    });
    bool quick = true;
    const auto attempt = [&] {
      const test::Stopwatch watch;
      nodes.push_back(connect());
      quick = quick && watch.elapsedMs() < 200ms;
    };
    nodes.clear();
    attempt();
    for (int i = 0; i < 2; ++i) {
      harness_.run([&] { connector->preferOthers(); });
      attempt();
      attempt();
    }
    return quick || nodes == expected;
  }));
  EXPECT_EQ(nodes, expected);
  harness_.run([&] { connector.reset(); });
}

TEST_F(ConnectorRedisTest, TheFirstCompleteHandshakeWins) {
  const RedisServer first;
  const RedisServer second;
  TcpProxy slow(first);
  slow.setDelay(TcpProxy::Direction::toClient, scaled(3s));
  LinkSettings settings = settingsFor({tcp(slow.port()), tcp(second.port())});
  settings.connectTimeout = scaled(20s);
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.connected());
  EXPECT_EQ(outcome.session().node, "127.0.0.1:" + std::to_string(second.port()));
  RawRedis raw(first);
  EXPECT_TRUE(test::eventually(kLong, [&] { return raw.clientList().size() == 1; }))
      << "the other one is given up";
}

TEST_F(ConnectorRedisTest, SurvivesACutAnywhereInTheHandshake) {
  const RedisServer server;
  const std::size_t before = test::openDescriptors();
  {
    TcpProxy proxy(server);
    std::size_t total = 0;
    {
      const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(proxy.port())}));
      ASSERT_TRUE(outcome.connected());
      total = proxy.stats().serverBytes;
    }
    int failed = 0;
    for (std::size_t n = 0; n < total; n += 7) {
      proxy.cutNextAfterServerBytes(
          n, n % 2 == 0 ? TcpProxy::CutKind::orderly : TcpProxy::CutKind::reset);
      const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(proxy.port())}));
      ASSERT_TRUE(outcome.result);
      ASSERT_FALSE(outcome.connected()) << n;
      ASSERT_EQ(outcome.error().errc(), Errc::connectionFailed) << outcome.error().what();
      ++failed;
    }
    for (const std::size_t n : {0U, 1U, 20U, 60U}) {
      proxy.cutNextAfterClientBytes(n);
      const ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(proxy.port())}));
      ASSERT_TRUE(outcome.result);
      ASSERT_FALSE(outcome.connected()) << n;
    }
    EXPECT_GT(failed, 10);
  }
  EXPECT_TRUE(test::eventually(kLong, [&] { return test::openDescriptors() <= before; }));
}

// ----------------------------------------------------------------------------------------- cancel

/// Starts an attempt, waits for `ready`, cancels, and checks that the handler is gone uncalled.
/// Without `ready` it cancels in the same pass of the loop, after the first step.
void cancelWhen(LoopHarness& harness,
                const LinkSettings& settings,
                const std::function<bool()>& ready,
                bool destroy) {
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> handlerAlive = token;
  std::atomic<bool> called{false};
  std::unique_ptr<Connector> connector;
  const auto cancel = [&] {
    if (destroy) {
      connector.reset();
    } else {
      connector->cancel();
      connector->cancel();
    }
    EXPECT_TRUE(handlerAlive.expired());
  };
  harness.run([&] {
    connector = std::make_unique<Connector>(*harness.loop(), settings, true);
    connector->start([&called, token = std::move(token)](Result<Established>) { called = true; });
    if (!ready) {
      harness.loop()->post(cancel);
    }
  });
  if (ready) {
    EXPECT_TRUE(test::eventually(kLong, ready));
    harness.run(cancel);
  }
  harness.run([&] { connector.reset(); });
  EXPECT_FALSE(called);
}

TEST_F(ConnectorTest, CanBeCancelledInEveryState) {
  const test::SilentListener blackHole;
  const std::size_t before = test::openDescriptors();
  for (const bool destroy : {false, true}) {
    {
      SCOPED_TRACE("resolving");
      cancelWhen(harness_, settingsFor({tcp(1, "no-such-host.invalid")}), {}, destroy);
    }
    {
      SCOPED_TRACE("connecting");
      cancelWhen(
          harness_,
          settingsFor({tcp(blackHole.port())}),
          [&] { return test::openDescriptors() > before; },
          destroy);
    }
    {
      SCOPED_TRACE("handshake");
      const ScriptedServer silent({ScriptedServer::Step{"PING", "+OK\r\n"}});
      cancelWhen(
          harness_,
          settingsFor({tcp(silent.port())}),
          [&] {
            const auto received = silent.received();
            return !received.empty() && received[0].find("PING") != std::string::npos;
          },
          destroy);
    }
    {
      SCOPED_TRACE("before the first step");
      harness_.run([this, destroy] {
        auto connector = std::make_unique<Connector>(*harness_.loop(), settingsFor({tcp(1)}), true);
        connector->start([](Result<Established>) { ADD_FAILURE(); });
        destroy ? connector.reset() : connector->cancel();
      });
    }
  }
  EXPECT_TRUE(test::eventually(kLong, [&] { return test::openDescriptors() <= before; }));
}

TEST_F(ConnectorTest, LeavesNothingBehindWhenTheLoopStopsInTheMiddle) {
  const test::SilentListener blackHole;
  const ScriptedServer silent({});
  const std::size_t before = test::openDescriptors();
  for (const Endpoint& endpoint :
       {tcp(blackHole.port()), tcp(silent.port()), tcp(1, "no-such-host.invalid")}) {
    LoopHarness harness;
    auto connector = harness.run([&] {
      auto created = std::make_unique<Connector>(*harness.loop(), settingsFor({endpoint}), true);
      // That the name does not exist may be known before the loop stops.
      created->start([](const Result<Established>& result) { EXPECT_FALSE(result); });
      return created;
    });
    harness.run([] {});
    EXPECT_TRUE(harness.stop());
    connector.reset();
  }
  EXPECT_TRUE(test::eventually(kLong, [&] { return test::openDescriptors() <= before + 1; }))
      << before << " " << test::openDescriptors();
}

TEST_F(ConnectorTest, MayBeDestroyedOrRestartedInItsHandler) {
  const test::PortReservation refused;
  std::promise<void> done;
  std::unique_ptr<Connector> connector;
  int calls = 0;
  std::function<void()> next = [&] {
    connector->start([&](Result<Established> result) {
      EXPECT_FALSE(result);
      if (++calls < 3) {
        next();
        return;
      }
      connector.reset();
      done.set_value();
    });
  };
  harness_.run([&] {
    connector =
        std::make_unique<Connector>(*harness_.loop(), settingsFor({tcp(refused.port())}), true);
    next();
    EXPECT_EQ(calls, 0);
  });
  EXPECT_EQ(done.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  harness_.run([] {});
  EXPECT_EQ(calls, 3);
}

TEST_F(ConnectorTest, WhatItsHandlerThrowsIsReported) {
  const test::PortReservation refused;
  std::promise<std::string> reported;
  std::unique_ptr<Connector> connector;
  harness_.loop()->setErrorHook([&](const char* text) { reported.set_value(text); });
  harness_.run([&] {
    connector =
        std::make_unique<Connector>(*harness_.loop(), settingsFor({tcp(refused.port())}), true);
    connector->start(
        [](const Result<Established>&) { throw std::runtime_error("by the handler"); });
  });
  EXPECT_EQ(reported.get_future().get(), "by the handler");
  harness_.run([&] { connector.reset(); });
}

TEST_F(ConnectorTest, StartAgainReplacesTheEarlierAttempt) {
  const test::SilentListener blackHole;
  std::promise<void> done;
  std::unique_ptr<Connector> connector;
  harness_.run([&] {
    LinkSettings settings = settingsFor({tcp(blackHole.port())});
    settings.connectTimeout = 50ms;
    connector = std::make_unique<Connector>(*harness_.loop(), settings, true);
    connector->start([](Result<Established>) { ADD_FAILURE(); });
    connector->start([&](Result<Established>) { done.set_value(); });
  });
  EXPECT_EQ(done.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  harness_.run([&] { connector.reset(); });
}

// ------------------------------------------------------------------------------- streams and dials

TEST_F(ConnectorRedisTest, PutsTheWrappersStreamIntoUse) {
  class Counting final : public Stream {
   public:
    Counting(std::unique_ptr<Stream> inner, std::atomic<int>& reads)
        : inner_(std::move(inner)), reads_(reads) {}
    ssize_t read(char* data, std::size_t size, bool mayBlock) noexcept override {
      ++reads_;
      return inner_->read(data, std::min<std::size_t>(size, 3), mayBlock);
    }
    ssize_t write(const char* data, std::size_t size) noexcept override {
      return inner_->write(data, std::min<std::size_t>(size, 5));
    }
    void shutdown() noexcept override { inner_->shutdown(); }
    [[nodiscard]] int descriptor() const noexcept override { return inner_->descriptor(); }

   private:
    std::unique_ptr<Stream> inner_;
    std::atomic<int>& reads_;
  };
  const RedisServer server;
  std::atomic<int> reads{0};
  LinkSettings settings = settingsFor({tcp(server.port())});
  settings.wrap = [&](int fd, const Endpoint& endpoint) -> std::unique_ptr<Stream> {
    EXPECT_EQ(endpoint.port, server.port());
    return std::make_unique<Counting>(makePlainStream(UniqueFd(fd)), reads);
  };
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.connected()) << outcome.error().what();
  EXPECT_GT(reads, 10);

  settings.wrap = [](int fd, const Endpoint&) -> std::unique_ptr<Stream> {
    ::close(fd);
    throw Error(Errc::authenticationFailed, "certificate not trusted");
  };
  const ConnectOutcome refused = connectOnce(harness_, settings);
  ASSERT_TRUE(refused.result);
  EXPECT_EQ(refused.error().errc(), Errc::authenticationFailed);
  EXPECT_TRUE(mentions(refused.error(), "certificate not trusted"));
}

TEST_F(ConnectorRedisTest, WritingToADeadPeerRaisesNoSignal) {
  const RedisServer server;
  struct sigaction previous {};
  struct sigaction fatal {};
  fatal.sa_handler = SIG_DFL;
  ASSERT_EQ(::sigaction(SIGPIPE, &fatal, &previous), 0);
  ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(server.port())}));
  ASSERT_TRUE(outcome.connected());
  Stream& stream = *outcome.result->value().stream;
  RawRedis raw(server);
  raw.clientKillId(static_cast<std::int64_t>(outcome.session().clientId));
  ssize_t written = 0;
  EXPECT_TRUE(test::eventually(kLong, [&] {
    written = stream.write("PING\r\n", 6);
    return written < 0 && (errno == EPIPE || errno == ECONNRESET);
  }));
  ::sigaction(SIGPIPE, &previous, nullptr);
}

TEST_F(ConnectorRedisTest, ShutdownWakesABlockedReader) {
  const RedisServer server;
  ConnectOutcome outcome = connectOnce(harness_, settingsFor({tcp(server.port())}));
  ASSERT_TRUE(outcome.connected());
  Stream& stream = *outcome.result->value().stream;
  std::thread reader([&] {
    char byte = 0;
    EXPECT_TRUE(test::eventually(kLong, [&] { return stream.read(&byte, 1, true) == 0; }));
  });
  stream.shutdown();
  reader.join();
}

TEST(PlainStreamTest, KeepsItsReceiveTimeUnderAStormOfSignals) {
  int fds[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const UniqueFd far(fds[1]);
  configureSocket(fds[0], AF_UNIX, 0ms);
  const auto stream = makePlainStream(UniqueFd(fds[0]));
  struct sigaction previous {};
  struct sigaction ignore {};
  ignore.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &ignore, &previous), 0);
  std::atomic<bool> stop{false};
  const pthread_t target = pthread_self();
  std::thread storm([&] {
    while (!stop) {
      pthread_kill(target, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  });
  char byte = 0;
  const test::Stopwatch watch;
  EXPECT_EQ(stream->read(&byte, 1, true), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_LE(watch.elapsedMs(), 2 * kReceiveSlice + slack());
  ASSERT_EQ(::write(far.get(), "x", 1), 1);
  EXPECT_EQ(stream->read(&byte, 1, true), 1);
  stop = true;
  storm.join();
  ::sigaction(SIGUSR1, &previous, nullptr);
}

/// How long it takes until the dial has failed.
/// @param hurries  how often the dialer is hurried when it has begun
milliseconds timeOfDial(LoopHarness& harness, Dialer& dialer, int hurries) {
  std::promise<void> failed;
  const test::Stopwatch watch;
  harness.run([&] {
    dialer.dial([&](const Result<Established>& result) {
      EXPECT_FALSE(result);
      failed.set_value();
    });
    for (int i = 0; i < hurries; ++i) {
      dialer.hurry();
    }
  });
  EXPECT_EQ(failed.get_future().wait_for(scaled(kLong)), std::future_status::ready);
  return watch.elapsedMs();
}

TEST_F(ConnectorTest, DialerBacksOffAndRecovers) {
  const test::PortReservation refused;
  LinkSettings settings = settingsFor({tcp(refused.port())});
  settings.reconnectDelayMin = 400ms;
  settings.reconnectDelayMax = 1600ms;
  const milliseconds late = scaled(milliseconds(500));
  auto dialer =
      harness_.run([&] { return std::make_unique<Dialer>(*harness_.loop(), settings, false); });
  const auto dial = [&] { return timeOfDial(harness_, *dialer, 0); };
  EXPECT_LT(dial(), late);
  for (const milliseconds whole : {400ms, 800ms, 1600ms, 1600ms}) {
    const milliseconds pause = dial();
    EXPECT_GE(pause, whole / 2);
    EXPECT_LE(pause, whole + late);
  }
  harness_.run([&] { dialer->succeeded(); });
  EXPECT_LT(dial(), late);

  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> handlerAlive = token;
  harness_.run([&] {
    dialer->dial([token = std::move(token)](Result<Established>) { ADD_FAILURE(); });
    dialer->cancel();
  });
  EXPECT_TRUE(handlerAlive.expired());
  harness_.run([&] { dialer.reset(); });
}

// Two links of one client may each find a server that only greets, and tell the other.
TEST_F(ConnectorTest, ADialerThatIsHurriedAgainAndAgainPausesAllTheSame) {
  const test::PortReservation refused;
  LinkSettings settings = settingsFor({tcp(refused.port())});
  settings.reconnectDelayMin = 2s;
  settings.reconnectDelayMax = 8s;
  const milliseconds late = scaled(milliseconds(500));
  auto dialer =
      harness_.run([&] { return std::make_unique<Dialer>(*harness_.loop(), settings, false); });
  // More hurries in the same pause are one.
  const auto dial = [&] { return timeOfDial(harness_, *dialer, 10); };
  EXPECT_LT(dial(), late);
  // The pause of a dialer that nobody hurries is a second or more.
  EXPECT_LT(dial(), late);
  const milliseconds pause = dial();
  EXPECT_GE(pause, 1s);
  EXPECT_LE(pause, 2s + late);
  harness_.run([&] { dialer->succeeded(); });
  EXPECT_LT(dial(), late);
  EXPECT_LT(dial(), late);
  harness_.run([&] { dialer.reset(); });
}

}  // namespace
}  // namespace rlock::detail::net

// The linker prefers the program's own to the C library's.
extern "C" int connect(int fd, const sockaddr* address, socklen_t size) {
  using rlock::detail::net::portForBothEnds;
  using Function = int (*)(int, const sockaddr*, socklen_t);
  const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "connect"));
  const std::uint16_t port = portForBothEnds;
  if (port != 0 && address->sa_family == AF_INET &&
      reinterpret_cast<const sockaddr_in*>(address)->sin_port == htons(port) &&
      ::bind(fd, address, size) == 0) {
    portForBothEnds = 0;
  }
  return real(fd, address, size);
}
