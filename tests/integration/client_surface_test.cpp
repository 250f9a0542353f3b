// SPDX-License-Identifier: Apache-2.0

// Information that a client gives about its connection and its server, and how it comes by both:
// connecting in the background, readiness, round trips, capabilities, credentials that change.

#include "integration/lock_harness.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rlock::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kWarning = static_cast<int>(LogLevel::warning);

class ClientSurface : public LockTest {
 protected:
  [[nodiscard]] Options lazy() {
    Options settings = options();
    settings.connect = ConnectMode::lazy;
    settings.reconnectDelayMax = 50ms;
    return settings;
  }

  /// Ends all connections of clients but the raw one.
  void cutAll() {
    raw().run({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    raw().run({"CLIENT", "KILL", "TYPE", "pubsub"});
  }
};

using Lazy = ClientSurface;

TEST_F(Lazy, ConnectReturnsBeforeTheServerIsThereAndCallsWaitForIt) {
  server().stop();
  Client client = Client::connect(lazy());
  EXPECT_FALSE(client.connected());
  EXPECT_EQ(client.capabilities(), Capabilities());
  RLock lock = client.getLock("early");
  auto waiter = inThread([&] { return outcomeOf([&] { lock.lock(); }); });
  EXPECT_FALSE(ready(waiter, 100ms));
  server().start();
  reconnectRaw();
  EXPECT_EQ(waiter.get(), "ok");
  EXPECT_TRUE(client.connected());
  EXPECT_TRUE(raw().exists("early"));
}

TEST_F(Lazy, CallsFailAsInAnOutage) {
  server().stop();
  Options settings = lazy();
  settings.outageTimeout = scaled(1s);
  settings.callTimeout = scaled(1s);
  Client client = Client::connect(settings);
  RLock lock = client.getLock("early");
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "connectionFailed");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.isLocked()); }), "connectionFailed");
  EXPECT_EQ(outcomeOf([&] { client.ping(); }), "connectionFailed");
  EXPECT_FALSE(client.connected());
}

TEST_F(Lazy, AWrongPasswordIsToldByTheCallsUntilItIsRight) {
  Options settings = lazy();
  settings.password = "expected";
  raw().configSet("requirepass", "other");
  Client client = Client::connect(settings);
  RLock lock = client.getLock("early");
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "authenticationFailed");
  EXPECT_EQ(outcomeOf([&] { client.ping(); }), "authenticationFailed");
  raw().configSet("requirepass", "expected");
  EXPECT_EVENTUALLY(kLong, client.connected());
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
}

TEST_F(Lazy, IsAnOptionOfTheUri) {
  server().stop();
  EXPECT_EQ(outcomeOf([&] { Client::connect(server().uri() + "?connect=eager"); }),
            "connectionFailed");
  EXPECT_EQ(outcomeOf([&] { Client::connect(server().uri() + "?connect=lazy&log-level=error"); }),
            "ok");
}

/// The states that a client tells.
class States {
 public:
  [[nodiscard]] auto hook() {
    return [this](ConnectionState state) {
      const std::lock_guard lock(mutex_);
      told_.emplace_back(toString(state));
    };
  }
  [[nodiscard]] std::vector<std::string> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> told_;
};

using Readiness = ClientSurface;

TEST_F(Readiness, EachChangeIsToldOnce) {
  States states;
  std::atomic<int> submitted{0};
  Options settings = lazy();
  settings.onStateChange = states.hook();
  settings.executor = [&](const std::function<void()>& task) {
    ++submitted;
    task();
  };
  server().stop();
  {
    Client client = Client::connect(settings);
    ASSERT_TRUE(log().waitFor("no connection", kLong));
    EXPECT_THAT(states.told(), ElementsAre());
    server().start();
    EXPECT_EVENTUALLY(kLong, states.told().size() == 1);
    EXPECT_TRUE(client.connected());
    server().kill();
    EXPECT_EVENTUALLY(kLong, states.told().size() == 2);
    EXPECT_FALSE(client.connected());
    // Further attempts that fail are no change.
    log().clear();
    ASSERT_TRUE(log().waitFor("cannot connect", kLong));
    server().start();
    EXPECT_EVENTUALLY(kLong, states.told().size() == 3);
    EXPECT_TRUE(client.connected());
    client.close(1s);
    EXPECT_FALSE(client.connected());
  }
  EXPECT_THAT(states.told(), ElementsAre("connected", "disconnected", "connected"));
  EXPECT_EQ(submitted, 3);
}

TEST_F(Readiness, APingTellsTheRoundTrip) {
  Client client = connect();
  raw().resetStats();
  EXPECT_GT(client.ping(), 0ns);
  EXPECT_LT(client.ping(), kLong);
  EXPECT_GT(client.pingAsync().toFuture().get(), 0ns);
  EXPECT_EQ(raw().commandCalls("ping"), 3);
  client.close(1s);
  EXPECT_EQ(outcomeOf([&] { client.ping(); }), "closed");
  Client moved = std::move(client);
  EXPECT_EQ(outcomeOf([&] { client.ping(); }),
            "invalidArgument");      // NOLINT(bugprone-use-after-move)
  EXPECT_FALSE(client.connected());  // NOLINT
}

TEST_F(Readiness, HandshakesAndSubscriptionsAreNoCommandsThatCount) {
  proxy().recordCommands(true);
  Options settings = proxied();
  // No ping but the one below.
  settings.heartbeatInterval = 600s;
  Client client = Client::connect(settings);
  EXPECT_GE(proxy().countCommands(TcpProxy::anyCommand()), 1U) << "the handshake";
  EXPECT_EQ(client.stats().commands, 0U);
  client.ping();
  EXPECT_EQ(client.stats().commands, 1U);
  Client other = connect();
  RLock taken = other.getLock("taken");
  taken.lock();
  auto waiter = client.getLock("taken").lockAsync({}, newOwner()).toFuture();
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("taken")) == 1);
  taken.unlock();
  ASSERT_TRUE(ready(waiter, kLong));
  EXPECT_EQ(outcomeOf([&] { waiter.get(); }), "ok");
  EXPECT_GE(proxy().countCommands(TcpProxy::command("SUBSCRIBE")), 1U);
  const std::size_t scripts = proxy().countCommands(TcpProxy::command("EVALSHA")) +
                              proxy().countCommands(TcpProxy::command("EVAL"));
  EXPECT_GE(scripts, 2U);
  EXPECT_EQ(client.stats().commands, scripts + 1);
}

TEST_F(Readiness, APingOfASilentServerEnds) {
  Options settings = options();
  settings.commandTimeout = scaled(200ms);
  settings.callTimeout = scaled(300ms);
  Client client = Client::connect(settings);
  server().freeze();
  const std::string outcome = outcomeOf([&] { client.ping(); });
  server().thaw();
  EXPECT_THAT(outcome, ::testing::AnyOf("timedOut", "connectionFailed"));
}

using Ability = ClientSurface;

TEST_F(Ability, IsWhatTheHandshakeFound) {
  Client client = connect();
  const RedisServerVersion version = RedisServer::version();
  const Capabilities found = client.capabilities();
  EXPECT_THAT(found.version,
              ::testing::StartsWith(std::to_string(version.major) + "." +
                                    std::to_string(version.minor) + "."));
  EXPECT_FALSE(found.server.empty());
  EXPECT_EQ(found.mode, "standalone");
  EXPECT_EQ(found.role, "master");
  EXPECT_EQ(found.scripts, true);
  EXPECT_EQ(found.scriptLoad, true);
  EXPECT_EQ(found.info, true);
  EXPECT_EQ(found.clientKill, true);
  EXPECT_EQ(found.wait, true);
  EXPECT_EQ(found.waitAof, std::pair(version.major, version.minor) >= std::pair(7, 2));
  EXPECT_EQ(found.shardedPubSub, version.major >= 7);
  EXPECT_EQ(log().countLevel(kWarning), 0U);
}

TEST_F(Ability, IsNotKnownWhereTheUserMayNotAsk) {
  raw().run({"ACL", "SETUSER", "default", "-command"});
  Client client = connect();
  const Capabilities found = client.capabilities();
  EXPECT_EQ(found.wait, std::nullopt);
  EXPECT_EQ(found.scripts, std::nullopt);
  EXPECT_EQ(found.info, true);
  EXPECT_EQ(log().countLevel(kWarning), 0U);
  EXPECT_EQ(outcomeOf([&] { client.getLock("plain").lock(); }), "ok");
}

TEST_F(Ability, WhatIsMissingIsToldOnceAndLocksGoOn) {
  raw().run({"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"});
  raw().denyClient("app", {"kill"});
  Options settings = options();
  settings.username = "app";
  settings.password = "secret";
  Client client = Client::connect(settings);
  EXPECT_EQ(client.capabilities().clientKill, false);
  constexpr std::string_view kWarned =
      "does not allow CLIENT KILL: each request carries a tombstone";
  EXPECT_EQ(log().count(kWarned), 1U);
  RLock lock = client.getLock("plain");
  lock.lock();
  cutAll();
  EXPECT_EVENTUALLY(kLong, client.stats().reconnects > 0 && client.connected());
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(log().count(kWarned), 1U);
}

TEST_F(Ability, AClientThatKillsNothingIsToldNothing) {
  raw().denyClient("default", {"kill"});
  Options settings = options();
  settings.lostReplyPolicy = LostReplyPolicy::marker;
  Client client = Client::connect(settings);
  EXPECT_EQ(client.capabilities().clientKill, false);
  EXPECT_EQ(log().countLevel(kWarning), 0U);
}

class RenamedCommands : public ClientSurface {
 protected:
  RedisServerOptions serverOptions() override {
    RedisServerOptions settings;
    for (const char* const command : {"WAIT", "INFO", "SCRIPT"}) {
      settings.extraArgs.insert(settings.extraArgs.end(),
                                {"--rename-command", command, std::string(command) + "-OF-OURS"});
    }
    return settings;
  }
};

TEST_F(RenamedCommands, XERR17_AreKnownToBeMissingAndLocksGoOn) {
  Client client = connect();
  const Capabilities found = client.capabilities();
  EXPECT_EQ(found.wait, false);
  EXPECT_EQ(found.info, false);
  EXPECT_EQ(found.scriptLoad, false);
  EXPECT_EQ(found.scripts, true);
  EXPECT_EQ(found.mode, "standalone");
  RLock lock = client.getLock("plain");
  lock.lock();
  Client other = connect();
  auto waiter = inThread([&] { return outcomeOf([&] { other.getLock("plain").lock(); }); });
  EXPECT_EVENTUALLY(kLong, other.stats().waiters == 1);
  lock.unlock();
  EXPECT_EQ(waiter.get(), "ok");
  // By its own address a connection is told apart without INFO.
  EXPECT_EQ(log().countLevel(kWarning), 0U);
}

class RenamedEval : public ClientSurface {
 protected:
  RedisServerOptions serverOptions() override {
    RedisServerOptions settings;
    settings.extraArgs = {"--rename-command", "EVALSHA", "EVALSHA-OF-OURS"};
    return settings;
  }
};

TEST_F(RenamedEval, XERR17_IsWarnedOf) {
  Client client = connect();
  EXPECT_EQ(client.capabilities().scripts, false);
  EXPECT_EQ(log().count("has no EVALSHA or no EVAL"), 1U);
  EXPECT_NE(outcomeOf([&] { client.getLock("plain").lock(); }), "ok");
}

/// A secret that changes.
class Secret {
 public:
  explicit Secret(std::string user, std::string password)
      : now_{std::move(user), std::move(password)} {}
  void set(std::string password) {
    const std::lock_guard lock(mutex_);
    now_.password = std::move(password);
  }
  [[nodiscard]] auto hook() {
    return [this] {
      const std::lock_guard lock(mutex_);
      ++asked_;
      return now_;
    };
  }
  [[nodiscard]] int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  Credentials now_;
  int asked_ = 0;
};

class ChangingCredentials : public ClientSurface {
 protected:
  void SetUp() override {
    LockTest::SetUp();
    allow("first-secret");
  }
  void allow(const std::string& password) {
    raw().run({"ACL", "SETUSER", "app", "reset", "on", ">" + password, "~*", "&*", "+@all"});
  }
  [[nodiscard]] Options user(Secret& secret) {
    Options settings = options();
    settings.credentials = secret.hook();
    settings.logLevel = LogLevel::trace;
    settings.reconnectDelayMax = 50ms;
    return settings;
  }
  void expectNoSecretInTheLog() {
    for (const CapturedLog::Line& line : log().lines()) {
      EXPECT_THAT(line.text, Not(HasSubstr("secret")));
    }
  }
};

TEST_F(ChangingCredentials, AreAskedForAnewByEachConnection) {
  Secret secret("app", "first-secret");
  Client client = Client::connect(user(secret));
  EXPECT_EQ(secret.asked(), 1);
  allow("second-secret");
  secret.set("second-secret");
  cutAll();
  EXPECT_EVENTUALLY(kLong, client.stats().reconnects > 0);
  EXPECT_EQ(outcomeOf([&] { client.getLock("plain").lock(); }), "ok");
  EXPECT_GE(secret.asked(), 2);
  expectNoSecretInTheLog();
}

TEST_F(ChangingCredentials, AreTakenWhileConnected) {
  Secret secret("app", "first-secret");
  Client client = Client::connect(user(secret));
  RLock lock = client.getLock("plain");
  lock.lock();
  Client other = Client::connect(user(secret));
  auto waiter = inThread([&] { return outcomeOf([&] { other.getLock("plain").lock(); }); });
  EXPECT_EVENTUALLY(kLong, raw().numsub("redisson_lock__channel:{plain}") == 1);
  const auto subscriber = [&] {
    std::string id;
    for (const auto& entry : raw().clientList()) {
      if (entry.at("sub") != "0") {
        id += entry.at("id") + ' ' + entry.at("user") + ' ';
      }
    }
    return id;
  };
  const std::string before = subscriber();

  allow("second-secret");
  secret.set("second-secret");
  raw().resetStats();
  client.refreshCredentials();
  other.refreshCredentialsAsync().toFuture().get();
  EXPECT_GE(raw().commandCalls("auth"), 2);
  // The connection for commands stays, that of the waiter is another.
  EXPECT_EQ(client.stats().reconnects, 0U);
  EXPECT_EVENTUALLY(kLong, subscriber() != before && !subscriber().empty());
  EXPECT_EVENTUALLY(kLong, raw().numsub("redisson_lock__channel:{plain}") == 1);
  EXPECT_FALSE(ready(waiter, 1ms));
  lock.unlock();
  EXPECT_EQ(waiter.get(), "ok");
  EXPECT_EQ(other.stats().reconnects, 0U);
  expectNoSecretInTheLog();
}

TEST_F(ChangingCredentials, AreTakenByAConnectionWhoseHandshakeIsUnderWay) {
  Secret secret("app", "first-secret");
  Options settings = proxied();
  settings.credentials = secret.hook();
  settings.reconnectDelayMax = 50ms;
  Client client = Client::connect(settings);
  raw().run({"ACL", "SETUSER", "app", ">second-secret"});
  raw().resetStats();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto late =
      proxy().addRule(TcpProxy::command("AUTH"), TcpProxy::Action::stallReply(), once);
  proxy().cutAll();
  ASSERT_TRUE(late.waitForHits(1, kLong));
  secret.set("second-secret");
  client.refreshCredentials();
  proxy().releaseStalled();
  EXPECT_EVENTUALLY(kLong, client.connected());
  EXPECT_EVENTUALLY(kLong, raw().commandCalls("auth") == 2);
}

TEST_F(ChangingCredentials, AreTakenByASubscriberWhoseHandshakeIsUnderWay) {
  Secret secret("app", "first-secret");
  Options settings = proxied();
  settings.credentials = secret.hook();
  settings.connectTimeout = 60s;
  Client client = Client::connect(settings);
  Client holder = connect();
  RLock held = holder.getLock("plain");
  held.lock();
  raw().run({"ACL", "SETUSER", "app", ">second-secret"});
  raw().resetStats();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto late =
      proxy().addRule(TcpProxy::command("AUTH"), TcpProxy::Action::stallReply(), once);
  auto waiter = inThread([&] { return outcomeOf([&] { client.getLock("plain").lock(); }); });
  ASSERT_TRUE(late.waitForHits(1, kLong));
  secret.set("second-secret");
  client.refreshCredentials();
  proxy().releaseStalled();
  // That of the commands, the subscriber's first, and the one that follows it.
  EXPECT_EVENTUALLY(kLong, raw().commandCalls("auth") >= 3);
  held.unlock();
  EXPECT_EQ(waiter.get(), "ok");
}

TEST_F(ChangingCredentials, ThatAreRefusedLeaveTheConnectionAsItIs) {
  Secret secret("app", "first-secret");
  Client client = Client::connect(user(secret));
  RLock lock = client.getLock("plain");
  lock.lock();
  secret.set("wrong-secret");
  try {
    client.refreshCredentials();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::authenticationFailed);
    EXPECT_THAT(error.what(), HasSubstr("WRONGPASS"));
    EXPECT_THAT(error.what(), Not(HasSubstr("secret")));
  }
  EXPECT_EQ(log().count("the connections go on with the old credentials"), 1U);
  lock.unlock();
  EXPECT_EQ(client.stats().reconnects, 0U);
  // A new connection does not come up with them, and does once they are right.
  cutAll();
  EXPECT_EVENTUALLY(kLong, outcomeOf([&] { client.ping(); }) == "authenticationFailed");
  secret.set("first-secret");
  EXPECT_EVENTUALLY(kLong, client.connected());
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
  expectNoSecretInTheLog();
}

TEST_F(ChangingCredentials, AFunctionThatThrowsIsAFailedAttempt) {
  Options settings = options();
  std::atomic<bool> works{false};
  settings.credentials = [&]() -> Credentials {
    if (!works) {
      throw std::runtime_error("no secret");
    }
    return {"app", "first-secret"};
  };
  settings.logLevel = LogLevel::trace;
  EXPECT_EQ(outcomeOf([&] { Client::connect(settings); }), "connectionFailed");
  settings.connect = ConnectMode::lazy;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("plain");
  auto waiter = inThread([&] { return outcomeOf([&] { lock.lock(); }); });
  EXPECT_FALSE(ready(waiter, 100ms));
  works = true;
  EXPECT_EQ(waiter.get(), "ok");
  works = false;
  EXPECT_EQ(outcomeOf([&] { client.refreshCredentials(); }), "connectionFailed");
  EXPECT_TRUE(client.connected());
  expectNoSecretInTheLog();
}

TEST_F(ChangingCredentials, NeedAFunction) {
  Client client = connect();
  EXPECT_EQ(outcomeOf([&] { client.refreshCredentials(); }), "invalidArgument");
  EXPECT_EQ(outcomeOf([&] { client.refreshCredentialsAsync().toFuture().get(); }),
            "invalidArgument");
  Secret secret("app", "first-secret");
  Options both = user(secret);
  both.password = "first-secret";
  EXPECT_EQ(outcomeOf([&] { Client::connect(both); }), "invalidArgument");
  Client other = Client::connect(user(secret));
  other.close(1s);
  EXPECT_EQ(outcomeOf([&] { other.refreshCredentials(); }), "closed");
}

}  // namespace
}  // namespace rlock::test
