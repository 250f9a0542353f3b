// SPDX-License-Identifier: Apache-2.0

// How a client finds the master: Sentinels that are dead, silent, wrong, or want a password.

#include "integration/sentinel_harness.hpp"
#include "integration/told_sentinel.hpp"
#include "support/contested.hpp"
#include "support/free_port.hpp"
#include "support/tcp_proxy.hpp"

#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace rlock::test {
namespace {

class SentinelSearch : public SentinelTest {
 protected:
  /// Nodes and Sentinels where no master dies: none is taken for dead when it is slow.
  void startForGood(RedisSentinelsOptions setup = {}) {
    setup.downAfter = 60s;
    start(std::move(setup));
  }
  static Endpoint loopback(std::uint16_t port) {
    Endpoint endpoint;
    endpoint.host = "127.0.0.1";
    endpoint.port = port;
    return endpoint;
  }
  static std::string addressOf(const RedisServer& server) {
    return "127.0.0.1:" + std::to_string(server.port());
  }
  static bool works(Client& client) {
    RLock lock = client.getLock("works");
    const bool taken = lock.tryLock();
    lock.unlock();
    return taken;
  }
};

TEST_F(SentinelSearch, TheUriWithUserAndPasswords) {
  RedisSentinelsOptions setup;
  setup.password = "s3cret";
  setup.sentinelPassword = "w4tch";
  startForGood(setup);
  const std::string hosts = world().uri().substr(world().uri().find('@') + 1);
  Client client = Client::connect(options("redis+sentinel://default:s3cret@" + hosts));
  RLock lock = client.getLock("uri");
  lock.lock();
  EXPECT_TRUE(raw(0).exists("uri"));
  lock.unlock();
  EXPECT_EVENTUALLY(kLong, log().contains("connected to " + world().address(0)));
  EXPECT_FALSE(log().contains("s3cret"));
  EXPECT_FALSE(log().contains("w4tch"));
}

TEST_F(SentinelSearch, TheDatabaseIsTheMasters) {
  startForGood();
  Client client = Client::connect(options(world().uri() + "/3"));
  client.getLock("third").lock(30s);
  EXPECT_FALSE(raw(0).exists("third"));
  RawRedis third = raw(0);
  third.run({"SELECT", "3"});
  EXPECT_TRUE(third.exists("third"));
}

TEST_F(SentinelSearch, CredentialsThatAreWrongAreNamedAfterTheirServer) {
  RedisSentinelsOptions setup;
  setup.password = "s3cret";
  setup.sentinelPassword = "w4tch";
  startForGood(setup);
  Options settings = options();

  settings.sentinelPassword.clear();
  Error error = refusal(settings);
  EXPECT_EQ(error.errc(), Errc::authenticationFailed) << error.what();
  EXPECT_TRUE(says(error, "sentinelPassword")) << error.what();
  EXPECT_TRUE(says(error, ":" + std::to_string(world().sentinel(0).port()))) << error.what();

  settings.sentinelPassword = "Tr0ub4dor";
  error = refusal(settings);
  EXPECT_EQ(error.errc(), Errc::authenticationFailed) << error.what();
  EXPECT_TRUE(says(error, "the Sentinel refused")) << error.what();
  EXPECT_FALSE(says(error, "Tr0ub4dor"));

  settings.sentinelPassword = "w4tch";
  settings.password = "Tr0ub4dor";
  error = refusal(settings);
  EXPECT_EQ(error.errc(), Errc::authenticationFailed) << error.what();
  EXPECT_EQ(error.node(), world().address(0)) << error.what();
  EXPECT_FALSE(says(error, "Tr0ub4dor"));
  EXPECT_FALSE(log().contains("Tr0ub4dor"));
}

/// Sentinels that want a password of everybody, and have a user for the client.
class SentinelCredentials : public SentinelSearch {
 protected:
  void SetUp() override {
    SentinelSearch::SetUp();
    if (IsSkipped()) {
      return;
    }
    RedisSentinelsOptions setup;
    setup.sentinelPassword = "others-secret";
    start(setup);
    becomes("first-secret");
  }
  /// At the Sentinels and then in the application.
  void becomes(const std::string& password) {
    atEach([&](RawRedis& sentinel) {
      sentinel.run({"ACL", "SETUSER", "watcher", "reset", "on", ">" + password, "&*", "+@all"});
    });
    const std::lock_guard guard(mutex_);
    password_ = password;
  }
  void cut() {
    atEach([](RawRedis& sentinel) { sentinel.run({"CLIENT", "KILL", "USER", "watcher"}); });
  }
  /// How many connections of the client hear when the master moves.
  int listeners() {
    int count = 0;
    atEach([&](RawRedis& sentinel) {
      for (const auto& entry : sentinel.clientList()) {
        count += entry.at("user") == "watcher" && entry.at("sub") != "0" ? 1 : 0;
      }
    });
    return count;
  }
  [[nodiscard]] Options watched() {
    Options settings = options();
    settings.sentinelPassword.clear();
    settings.sentinelCredentials = [this]() -> Credentials {
      const std::lock_guard guard(mutex_);
      if (password_.empty()) {
        throw std::runtime_error("the vault has lost the secret");
      }
      return {"watcher", password_};
    };
    settings.logLevel = LogLevel::trace;
    settings.reconnectDelayMax = 50ms;
    return settings;
  }
  void haveNoPassword() {
    const std::lock_guard guard(mutex_);
    password_.clear();
  }

 private:
  template <class F>
  void atEach(F act) {
    for (std::size_t i = 0; i < world().sentinels(); ++i) {
      RawRedisOptions target;
      target.port = world().sentinel(i).port();
      target.password = "others-secret";
      RawRedis sentinel(target);
      act(sentinel);
    }
  }

  std::mutex mutex_;
  std::string password_;
};

TEST_F(SentinelCredentials, AreAskedForAnewByEachConnection) {
  Client client = Client::connect(watched());
  EXPECT_TRUE(works(client));
  ASSERT_EVENTUALLY(kLong, listeners() == 1);
  becomes("second-secret");
  cut();
  ASSERT_EVENTUALLY(kLong, listeners() == 1);
  world().node(0).kill();
  const std::size_t master = world().awaitMaster(0);
  EXPECT_EVENTUALLY(kLong, outcomeOf([&] { client.getLock("rotated").lock(60s); }) == "ok");
  EXPECT_TRUE(raw(master).exists("rotated"));
  EXPECT_FALSE(log().contains("secret"));
}

TEST_F(SentinelCredentials, AFunctionThatThrowsIsAFailedAttempt) {
  haveNoPassword();
  Options settings = watched();
  settings.connectTimeout = 2s;
  const Error error = refusal(settings);
  EXPECT_EQ(error.errc(), Errc::connectionFailed) << error.what();
  EXPECT_TRUE(says(error, "Options::sentinelCredentials threw an exception")) << error.what();
  EXPECT_TRUE(says(error, ":" + std::to_string(world().sentinel(0).port()))) << error.what();
  EXPECT_FALSE(says(error, "secret")) << error.what();
  settings.connect = ConnectMode::lazy;
  settings.connectTimeout = 3s;
  Client client = Client::connect(settings);
  becomes("first-secret");
  EXPECT_EVENTUALLY(kLong, outcomeOf([&] { client.getLock("thrown").lock(60s); }) == "ok");
  EXPECT_FALSE(log().contains("secret"));
}

TEST_F(SentinelCredentials, ThatAreRefusedAreNamed) {
  Options settings = watched();
  settings.sentinelCredentials = [] { return Credentials{"watcher", "wrong-secret"}; };
  const Error error = refusal(settings);
  EXPECT_EQ(error.errc(), Errc::authenticationFailed) << error.what();
  EXPECT_TRUE(says(error, "the Sentinel refused what sentinelCredentials gave")) << error.what();
  EXPECT_FALSE(says(error, "secret")) << error.what();
}

TEST_F(SentinelSearch, AWrongNameIsSaid) {
  startForGood();
  Options settings = options();
  settings.sentinelMaster = "another";
  const Error error = refusal(settings);
  EXPECT_EQ(error.errc(), Errc::invalidArgument) << error.what();
  EXPECT_TRUE(says(error, "\"another\"")) << error.what();
  EXPECT_TRUE(says(error, "knows no master of that name")) << error.what();
}

TEST_F(SentinelSearch, AServerIsNoSentinel) {
  startForGood();
  Options settings = options();
  settings.endpoints = {loopback(world().node(0).port())};
  const Error error = refusal(settings);
  EXPECT_EQ(error.errc(), Errc::invalidArgument) << error.what();
  EXPECT_TRUE(says(error, "no Sentinel")) << error.what();
}

TEST_F(SentinelSearch, DeadSentinelsAreNamed) {
  startForGood();
  for (std::size_t i = 0; i < world().sentinels(); ++i) {
    world().sentinel(i).kill();
  }
  const Error error = refusal(options());
  EXPECT_EQ(error.errc(), Errc::connectionFailed) << error.what();
  for (std::size_t i = 0; i < world().sentinels(); ++i) {
    EXPECT_TRUE(says(error, ":" + std::to_string(world().sentinel(i).port()))) << error.what();
  }
}

TEST_F(SentinelSearch, TheFirstSentinelIsDead) {
  startForGood();
  world().sentinel(0).kill();
  Client client = Client::connect(options());
  EXPECT_TRUE(works(client));
}

TEST_F(SentinelSearch, ASilentSentinelCostsItsHeadStart) {
  startForGood();
  world().sentinel(0).freeze();
  const Stopwatch watch;
  Client client = Client::connect(options());
  EXPECT_LT(watch.elapsedMs(), scaled(1500ms));
  EXPECT_TRUE(works(client));
  world().sentinel(0).thaw();
}

TEST_F(SentinelSearch, FurtherSentinelsAreLearnt) {
  start();
  Options settings = options();
  settings.endpoints = {loopback(world().sentinel(0).port())};
  Client client = Client::connect(settings);
  EXPECT_TRUE(works(client));
  // The only one that was configured is gone when the others move the master.
  world().sentinel(0).kill();
  world().node(0).kill();
  const std::size_t master = world().awaitMaster(0);
  EXPECT_EVENTUALLY(kLong, outcomeOf([&] { client.getLock("learnt").lock(60s); }) == "ok");
  EXPECT_TRUE(raw(master).exists("learnt"));
}

TEST_F(SentinelSearch, ALearntSentinelIsHeard) {
  start();
  // A master that is frozen keeps its connections, so that only a Sentinel can say that there is
  // another.
  Options settings = patient(options());
  settings.endpoints = {loopback(world().sentinel(0).port())};
  settings.connectTimeout = 20s;
  Client client = Client::connect(settings);
  EXPECT_TRUE(works(client));
  const auto listeners = [&] {
    int count = 0;
    for (std::size_t i = 0; i < world().sentinels(); ++i) {
      if (world().sentinel(i).running()) {
        RawRedisOptions target;
        target.port = world().sentinel(i).port();
        RawRedis sentinel(target);
        for (const auto& entry : sentinel.clientList()) {
          count += entry.at("sub") != "0" ? 1 : 0;
        }
      }
    }
    return count;
  };
  ASSERT_EVENTUALLY(kLong, listeners() == 1);
  world().sentinel(0).kill();
  ASSERT_EVENTUALLY(kLong, listeners() == 1);
  world().node(0).freeze();
  const std::size_t master = world().awaitMaster(0);
  ASSERT_TRUE(log().waitFor("connected to " + world().address(master), kLong));
  EXPECT_EVENTUALLY(kLong, outcomeOf([&] { client.getLock("heard").lock(60s); }) == "ok");
  EXPECT_TRUE(raw(master).exists("heard"));
}

TEST_F(SentinelSearch, AStaleSentinelIsNotBelieved) {
  startForGood();
  // It says that a replica is the master, and knows nobody who knows better.
  const RedisServer elsewhere;
  RedisServerOptions replicaOf;
  replicaOf.extraArgs = {"--replicaof", "127.0.0.1", std::to_string(elsewhere.port())};
  const RedisServer replica(replicaOf);
  RedisSentinel stale(PortReservation(),
                      "sentinel monitor mymaster 127.0.0.1 " + std::to_string(replica.port()) +
                          " 5\nsentinel down-after-milliseconds mymaster 60000\n",
                      "");
  Options settings = options();
  settings.endpoints.insert(settings.endpoints.begin(), loopback(stale.port()));
  const Stopwatch watch;
  Client client = Client::connect(settings);
  EXPECT_LT(watch.elapsedMs(), scaled(1500ms));
  EXPECT_TRUE(works(client));
  // Alone it leads nowhere, and the error says where it led.
  settings.endpoints = {loopback(stale.port())};
  settings.connectTimeout = 2s;
  const Error error = refusal(settings);
  EXPECT_EQ(error.errc(), Errc::connectionFailed) << error.what();
  EXPECT_EQ(error.node(), "127.0.0.1:" + std::to_string(replica.port())) << error.what();
  EXPECT_TRUE(says(error, "not the master")) << error.what();
}

TEST_F(SentinelSearch, ConnectingDuringAFailoverTakesAsLongAsThat) {
  start();
  world().node(0).kill();
  Options settings = options();
  settings.connectTimeout = 20s;
  Client client = Client::connect(settings);
  EXPECT_TRUE(works(client));
  EXPECT_FALSE(log().contains("connected to " + world().address(0)));
}

TEST_F(SentinelSearch, AllSentinelsDieAndHoldsGoOn) {
  start();
  Client client = Client::connect(options(scaled(2s)));
  Client other = Client::connect(options(scaled(2s)));
  const auto objects = contestedObjects(client, [](const std::string& kind, std::size_t member) {
    return kind + std::to_string(member);
  });
  ASSERT_TRUE(contendAll(objects, other));
  for (std::size_t i = 0; i < world().sentinels(); ++i) {
    world().sentinel(i).kill();
  }
  const auto gone = std::chrono::steady_clock::now();
  for (const auto& object : objects) {
    SCOPED_TRACE(object->kind().name);
    if (object->kind().watched) {
      // Renewed more than once, long after the lease that it had then.
      EXPECT_EVENTUALLY(kLong, object->lease()->validUntil() > gone + scaled(3s));
    }
    EXPECT_TRUE(object->held());
    EXPECT_FALSE(object->entered());
    EXPECT_TRUE(object->giveBack());
    EXPECT_EQ(object->outcome(), "ok");
    EXPECT_EQ(object->overlaps(), 0);
  }
  EXPECT_EQ(client.stats().reconnects, 0U);
  // They come back, and the client hears from them again.
  for (std::size_t i = 0; i < world().sentinels(); ++i) {
    world().sentinel(i).start();
  }
  world().awaitSettled();
  world().node(0).kill();
  const std::size_t master = world().awaitMaster(0);
  EXPECT_EVENTUALLY(kLong, outcomeOf([&] { client.getLock("again").lock(60s); }) == "ok");
  EXPECT_TRUE(raw(master).exists("again"));
}

/// Two masters, and a Sentinel that says which of them it is.
class ToldSearch : public SentinelSearch {
 protected:
  /// @returns a client of the first master, which hears the Sentinel
  Client connectHeard(const Options& settings) {
    Client client = Client::connect(settings);
    EXPECT_TRUE(works(client));
    EXPECT_EVENTUALLY(kLong, sentinel_.heard());
    return client;
  }
  /// The same, for one that waits for a frozen server.
  Client connectPatiently() {
    Options settings = patient(options(sentinel_.uri()));
    settings.connectTimeout = 20s;
    return connectHeard(settings);
  }
  void expectMoved(Client& client) {
    EXPECT_EVENTUALLY(kLong, outcomeOf([&] { client.getLock("moved").lock(60s); }) == "ok");
    EXPECT_TRUE(RawRedis(after_).exists("moved"));
  }

  RedisServer before_;
  RedisServer after_;
  ToldSentinel sentinel_{before_.port()};
};

TEST_F(ToldSearch, WhoPausesGoesToANewMasterAtOnce) {
  Options settings = options(sentinel_.uri());
  settings.connectTimeout = scaled(2s);
  settings.reconnectDelayMin = 10min;
  settings.reconnectDelayMax = 10min;
  Client client = connectHeard(settings);
  before_.kill();
  // The pause has begun before that is said.
  ASSERT_TRUE(log().waitFor("no connection, trying again: no Sentinel leads to a master", kLong));
  sentinel_.answer(after_.port());
  sentinel_.announce(after_.port());
  expectMoved(client);
}

/// It has lost its configuration, and would never say that the master has moved.
TEST_F(ToldSearch, ASentinelThatDoesNotKnowTheMasterIsNotListenedTo) {
  ToldSentinel stranger(0);
  Options settings = patient(options(ToldSentinel::uriOf({&stranger, &sentinel_})));
  settings.connectTimeout = 20s;
  Client client = connectHeard(settings);
  EXPECT_EQ(stranger.subscriptions(), 0);
  before_.freeze();
  sentinel_.answer(after_.port());
  sentinel_.announce(after_.port());
  expectMoved(client);
}

TEST_F(ToldSearch, AMoveToAnAddressThatCannotBeReadIsAMove) {
  Client client = connectPatiently();
  before_.freeze();
  sentinel_.answer(after_.port());
  sentinel_.announce("other 127.0.0.1 1 127.0.0.1 2");
  sentinel_.announce("mymaster 127.0.0.1 1 127.0.0.1 ?");
  ASSERT_TRUE(log().waitFor("connected to " + addressOf(after_), kLong));
  expectMoved(client);
}

TEST_F(ToldSearch, SentinelsThatDoNotTellAreLeftForOneThatDoes) {
  ToldSentinel first(before_.port());
  ToldSentinel second(before_.port());
  first.refuse();
  second.refuse();
  Client client =
      connectHeard(patient(options(ToldSentinel::uriOf({&first, &second, &sentinel_}))));
  ASSERT_TRUE(sentinel_.heard());
  EXPECT_GE(first.subscriptions(), 1);
  before_.freeze();
  sentinel_.answer(after_.port());
  sentinel_.announce(after_.port());
  expectMoved(client);
}

TEST_F(ToldSearch, TheOnlySentinelIsNotLeftThoughItDoesNotTell) {
  ToldSentinel only(before_.port());
  only.refuse();
  Options settings = options(only.uri());
  settings.logLevel = LogLevel::debug;
  Client client = Client::connect(settings);
  EXPECT_TRUE(works(client));
  // It is asked again, on the same connection.
  ASSERT_EVENTUALLY(kLong, only.subscriptions() >= 2);
  EXPECT_FALSE(log().contains("subscriber connection to"));
}

TEST_F(ToldSearch, WhatNobodyHeardIsAskedFor) {
  Client client = connectPatiently();
  // It keeps its connections, so that nothing but a Sentinel shows that it is the master no more.
  before_.freeze();
  sentinel_.answer(after_.port());
  sentinel_.cut();
  ASSERT_TRUE(log().waitFor("connected to " + addressOf(after_), kLong));
  expectMoved(client);
}

/// The one before answers all the while.
TEST_F(ToldSearch, AMoveWhileNobodyIsSubscribedIsAMove) {
  TcpProxy toBefore(before_);
  sentinel_.answer(toBefore.port());
  Client client = connectPatiently();
  // The search that follows the subscription is over: it would ask as well.
  ASSERT_EVENTUALLY(kLong, toBefore.stats().accepted >= 2 && toBefore.stats().open == 1);
  sentinel_.answer(after_.port());
  sentinel_.cut();
  EXPECT_TRUE(log().waitFor("now, which was not heard", kLong));
  ASSERT_TRUE(log().waitFor("connected to " + addressOf(after_) + " as client", kLong));
  expectMoved(client);
}

/// Nor does it matter that the one before was found just now.
TEST_F(ToldSearch, AMoveJustBeforeTheSubscriptionIsNotMissed) {
  Client client = connectPatiently();
  // Its connection is there by then, and has said where the master was.
  sentinel_.answerOnceSubscribed(after_.port());
  sentinel_.cut();
  ASSERT_TRUE(log().waitFor("connected to " + addressOf(after_) + " as client", kLong));
  expectMoved(client);
}

TEST_F(ToldSearch, ASlowMasterIsFoundAlthoughNoSubscriptionLasts) {
  TcpProxy toAfter(after_);
  toAfter.addRule(TcpProxy::command("HELLO"), TcpProxy::Action::delayReply(500ms));
  Options settings = patient(options(sentinel_.uri()));
  settings.connectTimeout = 20s;
  settings.reconnectDelayMin = 1ms;
  settings.reconnectDelayMax = 1ms;
  Client client = connectHeard(settings);
  // The one before goes on to answer, so that only a search leads away from it.
  sentinel_.answer(toAfter.port());
  const std::string moved = "connected to 127.0.0.1:" + std::to_string(toAfter.port());
  EXPECT_EVENTUALLY(kLong, [&] {
    sentinel_.cut();
    return log().contains(moved + " as client");
  }());
  expectMoved(client);
}

TEST_F(ToldSearch, AMoveThatIsMissedDuringASearchIsAskedForAfterIt) {
  TcpProxy toBefore(before_);
  sentinel_.answer(toBefore.port());
  Client client = connectPatiently();
  // The search that follows the subscription is over: nobody else connects from here on.
  ASSERT_EVENTUALLY(kLong, toBefore.stats().accepted >= 2 && toBefore.stats().open == 1);
  const auto dialled = toBefore.addRule(TcpProxy::command("HELLO"), TcpProxy::Action::stallReply());
  sentinel_.cut();
  ASSERT_TRUE(dialled.waitForHits(1, kLong));
  ASSERT_EVENTUALLY(kLong, sentinel_.heard());
  sentinel_.answerOnceSubscribed(after_.port());
  sentinel_.cut();
  ASSERT_EVENTUALLY(kLong, sentinel_.subscriptions() == 3);
  // The search ends where the master was.
  toBefore.removeRule(dialled);
  toBefore.releaseStalled();
  ASSERT_TRUE(log().waitFor("connected to " + addressOf(after_) + " as client", kLong));
  expectMoved(client);
}

TEST_F(ToldSearch, ASentinelThatHasNotHeardOfTheMoveDoesNotLeadBack) {
  TcpProxy toAfter(after_);
  const ToldSentinel behind(before_.port());
  Options settings = patient(options(ToldSentinel::uriOf({&sentinel_, &behind})));
  settings.connectTimeout = 20s;
  Client client = connectHeard(settings);
  // The new one is slow, so that the other Sentinel is asked, too.
  const auto found = toAfter.addRule(TcpProxy::command("HELLO"), TcpProxy::Action::stallReply());
  sentinel_.answer(toAfter.port());
  sentinel_.announce(toAfter.port());
  ASSERT_TRUE(log().waitFor("says that it is the master, but", kLong));
  toAfter.removeRule(found);
  toAfter.releaseStalled();
  const std::string moved = "connected to 127.0.0.1:" + std::to_string(toAfter.port());
  ASSERT_TRUE(log().waitFor(moved + " as client", kLong));
  expectMoved(client);
}

TEST_F(ToldSearch, WhatASentinelSaysMeanwhileIsLookedAtAtOnce) {
  Client client = connectPatiently();
  // The search for a frozen server does not end, and no answer leads it elsewhere.
  before_.freeze();
  sentinel_.answer(0);
  sentinel_.announce(before_.port());
  sentinel_.announce(after_.port());
  ASSERT_TRUE(log().waitFor("connected to " + addressOf(after_), kLong));
  sentinel_.answer(after_.port());
  expectMoved(client);
}

/// The old master answers after all, and says of itself that it is the master.
TEST_F(ToldSearch, ADialOfTheOldMasterThatIsUnderWayDoesNotEndThere) {
  TcpProxy toBefore(before_);
  TcpProxy toAfter(after_);
  sentinel_.answer(toBefore.port());
  Client client = connectPatiently();
  // The search that follows the subscription is over: nobody else connects from here on.
  ASSERT_EVENTUALLY(kLong, toBefore.stats().accepted >= 2 && toBefore.stats().open == 1);
  const auto dialled = toBefore.addRule(TcpProxy::command("HELLO"), TcpProxy::Action::stallReply());
  toBefore.cutAll();
  ASSERT_TRUE(dialled.waitForHits(1, kLong));
  // Neither the new one nor a Sentinel ends the dial before the old one does.
  const auto found = toAfter.addRule(TcpProxy::command("HELLO"), TcpProxy::Action::stallReply());
  sentinel_.answer(0);
  sentinel_.announce(toAfter.port());
  ASSERT_TRUE(log().waitFor("a Sentinel says that the master is", kLong));
  toBefore.releaseStalled();
  ASSERT_TRUE(log().waitFor("says that it is the master, but", kLong));
  sentinel_.answer(toAfter.port());
  toAfter.removeRule(found);
  toAfter.releaseStalled();
  expectMoved(client);
}

TEST_F(ToldSearch, AMasterThatCannotBeUsedYetIsLookedForAgain) {
  Options settings = options(sentinel_.uri());
  settings.connectTimeout = scaled(1s);
  settings.reconnectDelayMax = 100ms;
  Client client = connectHeard(settings);
  // The one before goes on to answer: nothing but what the Sentinel has said once leads away.
  after_.freeze();
  sentinel_.answer(after_.port());
  sentinel_.announce(after_.port());
  ASSERT_TRUE(log().waitFor("looked for the master in vain", kLong));
  after_.thaw();
  // The connection of the commands, and not only that of the messages, which may be the first.
  ASSERT_TRUE(log().waitFor("connected to " + addressOf(after_) + " as client", kLong));
  expectMoved(client);
}

TEST_F(ToldSearch, AClientThatIsBeingClosedHearsToTheEnd) {
  Client client = connectPatiently();
  // Replicas are asked for on a second connection, which ends as soon as closing begins.
  Lease lease = client.getLock("given-back").acquire({.sync = SyncPolicy::majority()});
  before_.freeze();
  sentinel_.answer(after_.port());
  auto closed = inThread([&] { client.close(kLong); });
  // The loop does that in the same step.
  ASSERT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  sentinel_.announce(after_.port());
  EXPECT_TRUE(log().waitFor("connected to " + addressOf(after_), kLong));
  closed.get();
  EXPECT_EQ(sentinel_.subscriptions(), 1) << "the second connection has nobody search once more";
}

TEST_F(SentinelSearch, WhileAllIsWellNobodyIsAsked) {
  startForGood();
  Client client = Client::connect(options());
  ASSERT_TRUE(works(client));
  RawRedisOptions target;
  const auto questions = [&] {
    std::int64_t all = 0;
    for (std::size_t i = 0; i < world().sentinels(); ++i) {
      target.port = world().sentinel(i).port();
      RawRedis sentinel(target);
      for (const auto& [name, calls] : sentinel.commandStats()) {
        all += name == "sentinel|get-master-addr-by-name" ? calls : 0;
      }
    }
    return all;
  };
  // The connections, and one look when the subscription stands.
  ASSERT_EVENTUALLY(kLong, log().contains("connected to " + world().address(0)));
  std::int64_t before = questions();
  Stopwatch quiet;
  ASSERT_EVENTUALLY(kLong, [&] {
    const std::int64_t now = questions();
    if (now != before) {
      before = now;
      quiet.restart();
    }
    return quiet.elapsedMs() >= 1s;
  }());
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(works(client));
  }
  EXPECT_LE(questions(), before + 1);
}

}  // namespace
}  // namespace rlock::test
