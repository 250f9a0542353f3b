// SPDX-License-Identifier: Apache-2.0

// Mistyped input: the right Errc, in time, with a message that says what to correct, and Redis as
// it was.

#include "integration/lock_harness.hpp"
#include "support/free_port.hpp"

namespace rlock::test {
namespace {

class BadInput : public LockTest {
 protected:
  void SetUp() override {
    LockTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) {
      raw().set("untouched", "1");
      raw().resetStats();
    }
  }
  void TearDown() override {
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    EXPECT_EQ(raw().get("untouched"), "1");
    EXPECT_EQ(raw().commandCalls("hincrby") + raw().commandCalls("pexpire"), 0)
        << "something was written";
  }

  /// The call throws rlock::Error with this Errc within the time, and its text has these parts.
  template <class F>
  void expectError(F call,
                   Errc errc,
                   std::chrono::milliseconds within,
                   const std::vector<std::string>& parts) {
    const Stopwatch watch;
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.errc(), errc) << text;
      EXPECT_LE(watch.elapsedMs(), within + scaled(2 * kLate)) << text;
      for (const std::string& part : parts) {
        EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
      }
      EXPECT_EQ(text.find("s3cret"), std::string::npos) << "a password in: " << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
  void expectConnectError(const std::string& uri,
                          Errc errc,
                          std::chrono::milliseconds within,
                          const std::vector<std::string>& parts) {
    SCOPED_TRACE(uri);
    expectError(
        [&] {
          Options settings = Options::fromUri(uri);
          settings.connectTimeout = 500ms;
          settings.log = log().hook();
          static_cast<void>(Client::connect(settings));
        },
        errc,
        within,
        parts);
    EXPECT_EQ(log().count("s3cret"), 0U);
  }
};

TEST_F(BadInput, UnknownScheme) {
  expectConnectError("http://127.0.0.1:6379", Errc::invalidArgument, 0ms, {"http"});
  expectConnectError("127.0.0.1:6379", Errc::invalidArgument, 0ms, {"redis://"});
  expectConnectError("", Errc::invalidArgument, 0ms, {});
}

TEST_F(BadInput, Ports) {
  expectConnectError("redis://127.0.0.1:0", Errc::invalidArgument, 0ms, {"port", "0", "65535"});
  expectConnectError(
      "redis://127.0.0.1:70000", Errc::invalidArgument, 0ms, {"port", "127.0.0.1", "65535"});
  expectConnectError("redis://127.0.0.1:abc", Errc::invalidArgument, 0ms, {"port", "127.0.0.1"});
  Options settings = options();
  settings.endpoints[0].port = 0;
  expectError(
      [&] { static_cast<void>(Client::connect(settings)); }, Errc::invalidArgument, 0ms, {"port"});
}

TEST_F(BadInput, WrongPassword) {
  RLOCK_ONE_SERVER_ONLY("connects to the address of its server");
  raw().run({"ACL", "SETUSER", "svc", "on", ">right", "~*", "&*", "+@all"});
  const std::string address = "127.0.0.1:" + std::to_string(server().port());
  expectConnectError(
      "redis://svc:s3cret@" + address, Errc::authenticationFailed, 500ms, {address, "password"});
  expectConnectError(
      "redis://nobody:s3cret@" + address, Errc::authenticationFailed, 500ms, {address});
  raw().configSet("requirepass", "right");
  expectConnectError("redis://:s3cret@" + address, Errc::authenticationFailed, 500ms, {address});
  expectConnectError("redis://" + address, Errc::authenticationFailed, 500ms, {address});
  raw().configSet("requirepass", "");
}

TEST_F(BadInput, UnresolvableHost) {
  expectConnectError(
      "redis://no-such-host.invalid:6379", Errc::connectionFailed, 500ms, {"no-such-host.invalid"});
}

TEST_F(BadInput, RefusedPort) {
  const PortReservation port;
  const std::string address = "127.0.0.1:" + std::to_string(port.port());
  expectConnectError("redis://" + address, Errc::connectionFailed, 500ms, {address, "refused"});
}

TEST_F(BadInput, BlackHoledAddress) {
  const SilentListener silent;
  const std::string address = "127.0.0.1:" + std::to_string(silent.port());
  expectConnectError("redis://" + address, Errc::connectionFailed, 500ms, {address});
}

TEST_F(BadInput, MissingUnixSocket) {
  expectConnectError(
      "unix:///no/such/redis.sock", Errc::connectionFailed, 500ms, {"/no/such/redis.sock"});
}

TEST_F(BadInput, ADatabaseThatDoesNotExist) {
  RLOCK_ONE_SERVER_ONLY("connects to the address of its server");
  const std::string uri = "redis://127.0.0.1:" + std::to_string(server().port());
  const Stopwatch watch;
  const std::string outcome =
      outcomeOf([&] { static_cast<void>(Client::connect(uri + "/99?connect-timeout=500ms")); });
  EXPECT_TRUE(outcome == "invalidArgument" || outcome == "serverError") << outcome;
  EXPECT_LE(watch.elapsedMs(), 500ms + scaled(2 * kLate));
  expectConnectError(uri + "/-1", Errc::invalidArgument, 0ms, {"database"});
}

TEST_F(BadInput, Names) {
  Client client = connect();
  expectError([&] { static_cast<void>(client.getLock("")); },
              Errc::invalidArgument,
              0ms,
              {"name", "0 bytes"});
  expectError([&] { static_cast<void>(client.getLock(std::string(70'000, 'x'))); },
              Errc::invalidArgument,
              0ms,
              {"name", "70000", "65536"});
}

TEST_F(BadInput, Leases) {
  Client client = connect();
  RLock lock = client.getLock("orders:17");
  const std::vector<std::pair<Duration, std::string>> leases{
      {Duration(0s), "0"},
      {Duration(-1s), "-1s"},
      {Duration(std::chrono::hours(24) * 400), "400d"}};
  for (const auto& [lease, shown] : leases) {
    const std::vector<std::string> parts{"orders:17", "lease", shown, "365d"};
    expectError([&] { lock.lock(lease); }, Errc::invalidArgument, 0ms, parts);
    expectError(
        [&] { static_cast<void>(lock.tryLock(1s, lease)); }, Errc::invalidArgument, 0ms, parts);
    expectError([&] { static_cast<void>(lock.acquire({.lease = lease})); },
                Errc::invalidArgument,
                0ms,
                parts);
    expectError([&] { lock.lockAsync({.lease = lease}).toFuture().get(); },
                Errc::invalidArgument,
                0ms,
                parts);
  }
  EXPECT_FALSE(raw().exists("orders:17"));
}

TEST_F(BadInput, ALockNameThatHoldsAString) {
  Client client = connect();
  RLock lock = client.getLock("untouched");
  for (const auto& call :
       std::vector<std::function<void()>>{[&] { lock.lock(); },
                                          [&] { lock.lock(1s); },
                                          [&] { static_cast<void>(lock.tryLock()); },
                                          [&] { static_cast<void>(lock.tryLock(1s)); },
                                          [&] { lock.unlock(); },
                                          [&] { static_cast<void>(lock.forceUnlock()); },
                                          [&] { static_cast<void>(lock.getHoldCount()); },
                                          [&] { static_cast<void>(lock.acquire()); }}) {
    expectError(call, Errc::wrongType, 0ms, {"untouched"});
  }
  EXPECT_EQ(raw().pttl("untouched"), -1);
}

TEST_F(BadInput, UnknownOptions) {
  RLOCK_ONE_SERVER_ONLY("connects to the address of its server");
  const std::string uri = server().uri();
  expectConnectError(uri + "?watchdog=1s", Errc::invalidArgument, 0ms, {"watchdog"});
  expectConnectError(
      uri + "?watchdog-timeout=5", Errc::invalidArgument, 0ms, {"watchdog-timeout", "100ms", "5s"});
  expectConnectError(
      uri + "?watchdog-timeout=soon", Errc::invalidArgument, 0ms, {"watchdog-timeout", "soon"});
}

TEST_F(BadInput, WhatAClusterOrSentinelsCannotHave) {
  expectConnectError(
      "redis+cluster://127.0.0.1/1", Errc::invalidArgument, 0ms, {"cluster", "database"});
  expectConnectError("redis+sentinel://127.0.0.1", Errc::invalidArgument, 0ms, {"sentinelMaster"});
}

TEST_F(BadInput, UnlockOfWhatIsNotHeld) {
  Client client = connect();
  expectError([&] { client.getLock("orders:17").unlock(); },
              Errc::notOwner,
              0ms,
              {"orders:17", client.id(), "127.0.0.1:"});
}

TEST_F(BadInput, NoEndpoint) {
  Options settings;
  expectError([&] { static_cast<void>(Client::connect(settings)); },
              Errc::invalidArgument,
              0ms,
              {"endpoint"});
}

}  // namespace
}  // namespace rlock::test
