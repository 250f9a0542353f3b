// SPDX-License-Identifier: Apache-2.0

// Refusals of the server, for a while or for good: the caller gets a typed error or does not
// notice, nothing is half written, and holds survive what they can survive.

#include "integration/lock_harness.hpp"
#include "support/captured_log.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace rlock::test {
namespace {

class ServerErrors : public FaceTest {
 protected:
  /// The outcome of every kind of call on one lock.
  std::vector<std::string> allOutcomes(FaceLock& lock) {
    return {outcomeOf(lock.lock()),
            answerOf(lock.tryLock()),
            answerOf(lock.tryLock(currentOwner(), scaled(5s))),
            outcomeOf(lock.unlock()),
            answerOf(lock.forceUnlock()),
            outcomeOf([&] { static_cast<void>(lock.holdCount()); }),
            outcomeOf([&] { static_cast<void>(lock.isHeldByCurrentThread()); })};
  }
};

class ServerTrouble : public LockTest {
 protected:
  /// Of a user whose rights the test takes away.
  [[nodiscard]] Options ofAUser() {
    raw().run({"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"});
    Options settings = options();
    settings.username = "app";
    settings.password = "pw";
    settings.watchdogTimeout = 30s;
    return settings;
  }
};
class ServerTroubleSlow : public LockTest {};

INSTANTIATE_TEST_SUITE_P(Faces, ServerErrors, ::testing::ValuesIn(kFaces), faceName);

TEST_F(ServerTrouble, XERR1_ScriptFlushUnderLoadIsInvisible) {
  constexpr int kThreads = 8;
  Client client = connect();
  Resource resource;
  std::atomic<bool> end{false};
  std::vector<std::future<std::pair<long, std::string>>> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.push_back(inThread([&] {
      RLock lock = client.getLock("err1");
      long entered = 0;
      const std::string outcome = outcomeOf([&] {
        while (!end.load()) {
          lock.lock();
          resource.use();
          ++entered;
          lock.unlock();
        }
      });
      return std::pair(entered, outcome);
    }));
  }
  const Deadline stop(1s);
  while (!stop.expired()) {
    raw().run({"SCRIPT", "FLUSH"});
    std::this_thread::sleep_for(3ms);
  }
  end = true;
  long entered = 0;
  for (auto& thread : threads) {
    const auto [count, outcome] = thread.get();
    entered += count;
    EXPECT_EQ(outcome, "ok");
  }
  EXPECT_EQ(resource.value(), entered);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_GT(client.stats().scriptsLoaded, 2U);
  expectNoKeys();
}

TEST_P(ServerErrors, XERR1_EveryScriptSurvivesAFlush) {
  Client client = connect(kWatchdog);
  FaceLock lock = lockOf(client, "flush");
  const auto flush = [&] { raw().run({"SCRIPT", "FLUSH"}); };
  flush();
  EXPECT_EQ(outcomeOf(lock.lock()), "ok");
  flush();
  EXPECT_EQ(outcomeOf(lock.lock()), "ok");
  EXPECT_EQ(onlyEntry("flush").second, "2");
  flush();
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_EQ(onlyEntry("flush").second, "1");
  flush();
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= 1);
  flush();
  EXPECT_EQ(answerOf(lock.forceUnlock()), "true");
}

TEST_P(ServerErrors, XERR2_AKeyOfAnotherType) {
  Client client = connect();
  for (const std::string kind : {"string", "list", "set", "zset"}) {
    const std::string name = "err2-" + kind;
    if (kind == "string") {
      raw().set(name, "value");
    } else if (kind == "list") {
      raw().run({"RPUSH", name, "value"});
    } else if (kind == "set") {
      raw().run({"SADD", name, "value"});
    } else {
      raw().run({"ZADD", name, "1", "value"});
    }
    const Value before = raw().run({"DUMP", name});
    FaceLock lock = lockOf(client, name);
    const Stopwatch watch;
    EXPECT_EQ(allOutcomes(lock), std::vector<std::string>(7, "wrongType")) << kind;
    EXPECT_LT(watch.elapsedMs(), scaled(3s)) << "permanent errors come at once";
    EXPECT_EQ(raw().run({"DUMP", name}), before);
    EXPECT_EQ(raw().pttl(name), -1);
  }
  EXPECT_EQ(client.stats().holds, 0U);
  EXPECT_EQ(raw().keys().size(), 4U);
}

TEST_P(ServerErrors, XERR2_AKeyThatChangesItsTypeUnderAHoldAndAWaiter) {
  Client client = connect(kWatchdog);
  const OwnerId owner = newOwner();
  FaceLock lock = lockOf(client, "err2");
  lock.lock(owner).value();
  auto waiter = inThread([&] { return outcomeOf(lockOf(client, "err2").lock()); });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("err2")) == 1);
  raw().set("err2", "value");
  raw().publish(channelOf("err2"), "0");
  EXPECT_EQ(waiter.get(), "wrongType");
  EXPECT_EVENTUALLY(kLong, client.stats().lost == 1);
  EXPECT_EQ(raw().get("err2"), "value");
}

TEST_P(ServerErrors, XERR2_ACountThatIsNoNumber) {
  Client client = connect();
  const OwnerId owner = newOwner();
  raw().run({"HSET", "err2", ownerField(client, owner), "many"});
  FaceLock lock = lockOf(client, "err2");
  EXPECT_EQ(outcomeOf(lock.lock(owner)), "serverError");
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "serverError");
  EXPECT_EQ(onlyEntry("err2").second, "many");
  EXPECT_EQ(client.stats().holds, 0U);
}

TEST_P(ServerErrors, XERR3_MemoryLimit) {
  Client client = connect(kWatchdog);
  FaceLock held = lockOf(client, "held");
  FaceLock nested = lockOf(client, "nested");
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(channelOf("held"));
  held.lock().value();
  nested.lock().value();
  nested.lock().value();
  raw().configSet("maxmemory-policy", "noeviction");
  raw().configSet("maxmemory", "1");
  FaceLock refused = lockOf(client, "refused");
  EXPECT_EQ(answerOf(refused.tryLock()), "outOfMemory");
  EXPECT_EQ(outcomeOf(refused.lock()), "outOfMemory");
  EXPECT_FALSE(raw().exists("refused"));
  // Renewing, releasing and forcing go on.
  const std::uint64_t renewals = client.stats().renewals;
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= renewals + 4);
  EXPECT_EQ(outcomeOf(nested.unlock()), "ok");
  EXPECT_EQ(nested.holdCount(), 1);
  EXPECT_EQ(outcomeOf(nested.unlock()), "ok");
  EXPECT_EQ(outcomeOf(held.unlock()), "ok");
  EXPECT_FALSE(raw().exists("held"));
  EXPECT_TRUE(subscriber.waitFor(1, kLong));
  raw().configSet("maxmemory", "0");
  EXPECT_EQ(answerOf(refused.tryLock()), "true");
  raw().configSet("maxmemory", "1");
  EXPECT_EQ(answerOf(refused.forceUnlock()), "true");
  EXPECT_FALSE(raw().exists("refused"));
}

TEST_F(ServerTrouble, XERR5_APasswordThatChangesWhileConnected) {
  raw().run({"ACL", "SETUSER", "svc", "on", ">0ldPassw0rd", "~*", "&*", "+@all"});
  Options settings = options(kWatchdog);
  settings.username = "svc";
  settings.password = "0ldPassw0rd";
  settings.reconnectDelayMax = 50ms;
  Client client = Client::connect(settings);
  Lease lease = client.getLock("err5").acquire();
  raw().run({"ACL", "SETUSER", "svc", "resetpass", ">new"});
  EXPECT_TRUE(lease.held());
  raw().run({"CLIENT", "KILL", "USER", "svc"});
  std::string outcome;
  EXPECT_EVENTUALLY(kLong, (outcome = answerOf([&] {
                              return client.getLock("other").tryLock(5s);
                            })) == "authenticationFailed");
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_EQ(lease.lossReason(), LossReason::unreachable);
  raw().run({"ACL", "SETUSER", "svc", "resetpass", ">0ldPassw0rd"});
  EXPECT_EVENTUALLY(kLong, answerOf([&] { return client.getLock("other").tryLock(); }) == "true");
  EXPECT_EQ(log().count("0ldPassw0rd"), 0U) << "a password in the log";
}

TEST_F(ServerTrouble, XERR6_AForbiddenPublishDoesNotMakeAReleaseFail) {
  for (const std::string rules : {"~* &* +@all -publish", "~* resetchannels +@all"}) {
    raw().run({"ACL", "DELUSER", "mute"});
    RawRedis::Args setUser{"ACL", "SETUSER", "mute", "on", ">pw"};
    std::istringstream words(rules);
    for (std::string word; words >> word;) {
      setUser.push_back(word);
    }
    raw().run(setUser);
    Options settings = options();
    settings.username = "mute";
    settings.password = "pw";
    Client client = Client::connect(settings);
    RLock lock = client.getLock("err6");
    lock.lock();
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_FALSE(raw().exists("err6"));
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
    lock.lock();
    EXPECT_TRUE(lock.forceUnlock());
    EXPECT_FALSE(raw().exists("err6"));
    EXPECT_EQ(client.stats().holds, 0U);
  }
}

TEST_F(ServerTrouble, XERR7_WithoutSubscribeWaitersPoll) {
  for (const std::string rules : {"~* &* +@all -subscribe", "~* resetchannels +@all"}) {
    raw().run({"ACL", "DELUSER", "deaf"});
    RawRedis::Args setUser{"ACL", "SETUSER", "deaf", "on", ">pw"};
    std::istringstream words(rules);
    for (std::string word; words >> word;) {
      setUser.push_back(word);
    }
    raw().run(setUser);
    Options settings = options();
    settings.username = "deaf";
    settings.password = "pw";
    settings.safetyPoll = 50ms;
    Client client = Client::connect(settings);
    rawHold("err7", "foreign:1", 60s);
    auto waiter = inThread([&] {
      return answerOf([&] {
        RLock lock = client.getLock("err7");
        return lock.tryLock(20s);
      });
    });
    EXPECT_FALSE(ready(waiter, 300ms));
    const Stopwatch watch;
    rawRelease("err7");
    EXPECT_EQ(waiter.get(), "true");
    EXPECT_LT(watch.elapsedMs(), scaled(1s));
    raw().del("err7");
  }
}

TEST_F(ServerTrouble, XERR7_WhatIsAllowedAgainIsSubscribed) {
  RLOCK_ONE_MASTER_ONLY("forbids a command that sharded channels do not need");
  raw().run({"ACL", "SETUSER", "deaf", "on", ">pw", "~*", "&*", "+@all", "-subscribe"});
  Options settings = options();
  settings.username = "deaf";
  settings.password = "pw";
  Client client = Client::connect(settings);
  RLock held = client.getLock("err7-held");
  held.lock();
  rawHold("err7", "foreign:1", 60s);
  auto waiter = inThread([&] {
    return answerOf([&] {
      RLock lock = client.getLock("err7");
      return lock.tryLock(40s);
    });
  });
  ASSERT_EVENTUALLY(kLong, log().count("cannot subscribe") == 1);
  raw().run({"ACL", "SETUSER", "deaf", "+subscribe"});
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("err7")) == 1);
  EXPECT_EVENTUALLY(kLong, raw().numsub("rlock_client:" + client.id()) == 1);
  const Stopwatch watch;
  rawRelease("err7");
  EXPECT_EQ(waiter.get(), "true");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  held.unlock();
}

TEST_F(ServerTrouble, XERR8_DerivedKeysThatAreForbidden) {
  raw().run({"ACL", "SETUSER", "narrow", "on", ">pw", "~err8", "&*", "+@all"});
  Options settings = options();
  settings.username = "narrow";
  settings.password = "pw";
  {
    Client client = Client::connect(settings);
    RLock lock = client.getLock("err8");
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
    EXPECT_EQ(answerOf([&] { return lock.forceUnlock(); }), "denied");
    EXPECT_TRUE(lock.isHeldByCurrentThread()) << "nothing is half done";
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  }
  settings.lostReplyPolicy = LostReplyPolicy::marker;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("err8");
  const Stopwatch watch;
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "denied");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  expectNoKeys();
}

TEST_F(ServerTrouble, XERR8_CommandsThatAreForbidden) {
  raw().run({"ACL", "SETUSER", "noscript", "on", ">pw", "~*", "&*", "+@all", "-eval", "-evalsha"});
  Options settings = options();
  settings.username = "noscript";
  settings.password = "pw";
  Client client = Client::connect(settings);
  RLock lock = client.getLock("err8");
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "denied");
  EXPECT_EQ(answerOf([&] { return lock.tryLock(1s); }), "denied");
  try {
    lock.lock();
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("err8"), std::string::npos) << error.what();
    EXPECT_NE(error.serverMessage().find("NOPERM"), std::string::npos) << error.what();
  }
  expectNoKeys();
}

/// An owner whose unlock() is refused takes the lock again, while the first hold has not expired.
TEST_F(ServerTrouble, ARefusedUnlockLeavesNothingThatTheNextOneDoesNotEnd) {
  Client client = Client::connect(ofAUser());
  const ReadWriteLock both = client.getReadWriteLock("both");
  for (RLock lock : {client.getLock("plain"), both.readLock(), both.writeLock()}) {
    SCOPED_TRACE(lock.getName());
    lock.lock();
    raw().run({"ACL", "SETUSER", "app", "-evalsha", "-eval"});
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "denied");
    raw().run({"ACL", "SETUSER", "app", "+@all"});
    lock.lock();
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_EVENTUALLY(kLong, !raw().exists(lock.getName()));
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
    EXPECT_EQ(client.stats().holds, 0U);
    // A refused unlock() may be called again.
    lock.lock();
    raw().run({"ACL", "SETUSER", "app", "-evalsha", "-eval"});
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "denied");
    raw().run({"ACL", "SETUSER", "app", "+@all"});
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_FALSE(raw().exists(lock.getName()));
  }
  expectNoKeys();
}

/// A group does not know any more of what it has asked a member to release.
TEST_F(ServerTrouble, ARefusedUnlockOfAGroupGoesOnInTheBackground) {
  Client client = Client::connect(ofAUser());
  RLock group = multiLock({client.getLock("one"), client.getLock("two")});
  const auto countIs = [&](const std::string& count) {
    return raw().run({"HVALS", "one"}).strings() == std::vector{count} &&
           raw().run({"HVALS", "two"}).strings() == std::vector{count};
  };
  group.lock();
  group.lock();
  ASSERT_TRUE(countIs("2"));
  raw().run({"ACL", "SETUSER", "app", "-evalsha", "-eval"});
  EXPECT_EQ(outcomeOf([&] { group.unlock(); }), "denied");
  EXPECT_TRUE(countIs("2"));
  raw().run({"ACL", "SETUSER", "app", "+@all"});
  EXPECT_EVENTUALLY(kLong, countIs("1"));
  EXPECT_EQ(outcomeOf([&] { group.unlock(); }), "ok");
  expectNoKeys();
  EXPECT_EQ(client.stats().holds, 0U);
}

/// The server refuses an inner release for longer than a hold lasts, and renews the hold meanwhile.
TEST_F(ServerTrouble, AnUnlockOfAGroupThatIsGivenUpEndsWithTheLast) {
  test::CapturedLog log;
  Options settings = ofAUser();
  settings.watchdogTimeout = 1s;
  settings.callTimeout = 500ms;
  settings.log = log.hook();
  Client client = Client::connect(settings);
  RLock group = multiLock({client.getLock("one"), client.getLock("two")});
  group.lock();
  group.lock();
  raw().run({"ACL", "SETUSER", "app", "-hincrby"});
  EXPECT_EQ(outcomeOf([&] { group.unlock(); }), "denied");
  EXPECT_EVENTUALLY(kLong, log.contains("could not be completed"));
  EXPECT_TRUE(raw().exists("one") && raw().exists("two"));
  raw().run({"ACL", "SETUSER", "app", "+@all"});
  EXPECT_EQ(outcomeOf([&] { group.unlock(); }), "ok");
  EXPECT_EVENTUALLY(kLong, !raw().exists("one") && !raw().exists("two"));
  EXPECT_EQ(client.stats().holds, 0U);
  EXPECT_EQ(client.stats().lost, 0U);
}

TEST_F(ServerTrouble, XERR8_WithoutTheClientCommandEverythingElseWorks) {
  raw().run({"ACL", "SETUSER", "noclient", "on", ">pw", "~*", "&*", "+@all", "-client"});
  Options settings = options();
  settings.username = "noclient";
  settings.password = "pw";
  Client client = Client::connect(settings);
  RLock lock = client.getLock("err8");
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
  auto waiter =
      inThread([&] { return answerOf([&] { return client.getLock("err8").tryLock(20s); }); });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("err8")) == 1);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(waiter.get(), "true");
}

TEST_F(ServerTrouble, XERR9_AReplicaByMistake) {
  RLOCK_ONE_SERVER_ONLY("makes a replica of its server");
  Client client = connect();
  ASSERT_TRUE(client.getLock("warm").tryLock());
  raw().run({"REPLICAOF", "127.0.0.1", "1"});
  RLock lock = client.getLock("err9");
  const Stopwatch watch;
  const std::string outcome = answerOf([&] { return lock.tryLock(400ms); });
  EXPECT_EQ(outcome, "readOnly");
  EXPECT_LT(watch.elapsedMs(), 400ms + scaled(2 * kLate));
  EXPECT_FALSE(raw().exists("err9"));
  auto waiter = inThread([&] { return answerOf([&] { return lock.tryLock(20s); }); });
  EXPECT_FALSE(ready(waiter, 200ms));
  raw().run({"REPLICAOF", "NO", "ONE"});
  EXPECT_EQ(waiter.get(), "true");
}

TEST_P(ServerErrors, XERR10_LoadingIsWaitedFor) {
  Client client = Client::connect(proxied());
  FaceLock lock = lockOf(client, "err10");
  lock.lock().value();
  lock.unlock().value();
  TcpProxy::RuleOptions few;
  few.limit = 3;
  const auto loading = [&] {
    return proxy().addRule(
        TcpProxy::command("EVALSHA"),
        TcpProxy::Action::replyWithError("LOADING Redis is loading the dataset in memory"),
        few);
  };
  const auto first = loading();
  EXPECT_EQ(outcomeOf(lock.lock()), "ok");
  const auto second = loading();
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  const auto third = loading();
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), scaled(5s))), "true");
  EXPECT_EQ(first.hits() + second.hits() + third.hits(), 9U);
  EXPECT_EQ(onlyEntry("err10").second, "1");
}

// As behind a proxy that was started again while its clients stayed connected.
TEST_P(ServerErrors, AnAuthenticationThatTheServerForgetsIsDoneAgain) {
  Client client = Client::connect(proxied());
  FaceLock lock = lockOf(client, "forgotten");
  lock.lock().value();
  lock.unlock().value();
  const auto before = client.stats().reconnects;
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto forgets = [&] {
    return proxy().addRule(TcpProxy::command("EVALSHA"),
                           TcpProxy::Action::replyWithError("NOAUTH Authentication required."),
                           once);
  };
  const auto first = forgets();
  EXPECT_EQ(outcomeOf(lock.lock()), "ok");
  const auto between = client.stats().reconnects;
  EXPECT_GT(between, before);
  const auto second = forgets();
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_GT(client.stats().reconnects, between);
  EXPECT_EQ(first.hits() + second.hits(), 2U);
  EXPECT_FALSE(raw().exists("forgotten"));
}

TEST_F(ServerTrouble, AnAuthenticationThatIsForgottenForGoodIsTheError) {
  Options settings = proxied(kWatchdog);
  // So that the time is up in a pause and not while a request is under way.
  settings.retryDelayMin = 10s;
  settings.retryDelayMax = 10s;
  Client client = Client::connect(settings);
  const auto forgets =
      proxy().addRule(TcpProxy::command("EVALSHA"),
                      TcpProxy::Action::replyWithError("NOAUTH Authentication required."));
  RLock lock = client.getLock("forgotten");
  EXPECT_EQ(answerOf([&] { return lock.tryLock(1s); }), "authenticationFailed");
  EXPECT_EQ(forgets.hits(), 1U);
  proxy().heal();
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
}

TEST_F(ServerTroubleSlow, XERR11_ABusyServer) {
  RLOCK_ONE_MASTER_ONLY("keeps one node busy, which may have another slot");
  raw().configSet("lua-time-limit", "20");
  Options settings = options();
  settings.watchdogTimeout = 5s;
  Client client = Client::connect(settings);
  Lease held = client.getLock("held").acquire();
  RLock toRelease = client.getLock("release");
  toRelease.lock();
  RawRedis other(rawOptions());
  const auto occupy = [&] {
    other.send({"EVAL",
                "local t = redis.call('time'); local s = t[1] * 1000000 + t[2]; "
                "repeat t = redis.call('time') until t[1] * 1000000 + t[2] - s > 800000; return 1",
                "0"});
    std::this_thread::sleep_for(60ms);
  };
  occupy();
  EXPECT_EQ(outcomeOf([&] { toRelease.unlock(); }), "ok");
  static_cast<void>(other.receive());
  EXPECT_FALSE(raw().exists("release"));
  occupy();
  EXPECT_EQ(outcomeOf([&] { client.getLock("new").lock(); }), "ok");
  static_cast<void>(other.receive());
  occupy();
  const Stopwatch watch;
  // A busy server reads its connections from time to time only, so that the last request may have
  // no answer.
  EXPECT_THAT(answerOf([&] { return client.getLock("timed").tryLock(200ms); }),
              ::testing::AnyOf("serverError", "timedOut"));
  EXPECT_LT(watch.elapsedMs(), 200ms + scaled(2 * kLate));
  static_cast<void>(other.receive());
  EXPECT_TRUE(held.held());
  EXPECT_EQ(held.release(), ReleaseResult::released);
}

TEST_F(ServerTrouble, XERR11_AServerThatStaysBusy) {
  Options settings = proxied(kWatchdog);
  // So that the time is up in a pause and not while a request is under way.
  settings.retryDelayMin = 10s;
  settings.retryDelayMax = 10s;
  Client client = Client::connect(settings);
  const auto busy =
      proxy().addRule(TcpProxy::command("EVALSHA"),
                      TcpProxy::Action::replyWithError("BUSY Redis is busy running a script"));
  RLock lock = client.getLock("err11");
  EXPECT_EQ(answerOf([&] { return lock.tryLock(1s); }), "serverError");
  EXPECT_EQ(busy.hits(), 1U);
  proxy().heal();
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
}

TEST_F(ServerTrouble, XERR11_AReleaseOutlastsABusyServer) {
  Options settings = proxied();
  // So that the time is up in a pause and not while a request is under way.
  settings.callTimeout = 1s;
  settings.retryDelayMin = 3s;
  settings.retryDelayMax = 3s;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("err11");
  lock.lock();
  for (const char* const words : {"BUSY Redis is busy running a script",
                                  "TRYAGAIN Multiple keys request during rehashing of slot"}) {
    SCOPED_TRACE(words);
    const auto busy =
        proxy().addRule(TcpProxy::command("EVALSHA"), TcpProxy::Action::replyWithError(words));
    try {
      lock.unlock();
      ADD_FAILURE() << "nothing was executed";
    } catch (const Error& error) {
      EXPECT_EQ(error.errc(), Errc::serverError);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("goes on in the background"));
    }
    EXPECT_TRUE(raw().exists("err11"));
    proxy().heal();
    EXPECT_EVENTUALLY(kLong, !raw().exists("err11")) << "it would be renewed for ever";
    EXPECT_EVENTUALLY(kLong, client.stats().holds == 0);
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
  }
}

TEST_F(ServerTrouble, XERR13_WritesThatNeedReplicas) {
  RLOCK_ONE_SERVER_ONLY("wants a master without replicas");
  Options settings = options(kWatchdog);
  // So that the time is up in a pause and not while a request is under way.
  settings.retryDelayMin = 10s;
  settings.retryDelayMax = 10s;
  Client client = Client::connect(settings);
  Lease held = client.getLock("held").acquire();
  raw().configSet("min-replicas-to-write", "1");
  RLock lock = client.getLock("err13");
  EXPECT_EQ(answerOf([&] { return lock.tryLock(1s); }), "notSynced");
  EXPECT_FALSE(raw().exists("err13"));
  EXPECT_EVENTUALLY(kLong, held.lostToken().stop_requested());
  raw().configSet("min-replicas-to-write", "0");
  EXPECT_EQ(answerOf([&] { return lock.tryLock(scaled(5s)); }), "true");
}

TEST_F(ServerTroubleSlow, XERR14_TheLimitOfConnections) {
  RLOCK_ONE_MASTER_ONLY("uses up the connections of one node");
  Client client = connect(kWatchdog);
  Lease held = client.getLock("held").acquire();
  EXPECT_FALSE(inThread([&] { return client.getLock("held").tryLock(100ms); }).get());
  const auto now = raw().clientList().size();
  raw().configSet("maxclients", std::to_string(now));
  Options settings = options(kWatchdog);
  settings.connectTimeout = 400ms;
  const Stopwatch watch;
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(Client::connect(settings)); }), "connectionFailed");
  EXPECT_LT(watch.elapsedMs(), 400ms + scaled(2 * kLate));
  std::this_thread::sleep_for(kWatchdog + kWatchdog / 2);
  EXPECT_TRUE(held.held());
  raw().configSet("maxclients", "1000");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(Client::connect(settings)); }), "ok");
}

TEST_F(ServerTroubleSlow, XERR15_APauseLongerThanTheLease) {
  for (const std::string mode : {"WRITE", "ALL"}) {
    Client holder = connect();
    Client other = connect();
    Lease lease = holder.getLock("err15").acquire({.lease = 1500ms});
    std::atomic<bool> toldFirst{false};
    auto waiter = inThread([&] {
      RLock lock = other.getLock("err15");
      const std::string got = answerOf([&] { return lock.tryLock(20s); });
      toldFirst = !lease.held();
      return got;
    });
    ASSERT_EVENTUALLY(kLong, other.stats().waiters == 1);
    raw().clientPause(2500ms, mode);
    EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
    EXPECT_EQ(waiter.get(), "true");
    EXPECT_TRUE(toldFirst.load());
    EXPECT_EQ(lease.release(), ReleaseResult::lost);
    EXPECT_EQ(raw().hgetall("err15").size(), 1U);
    EXPECT_EQ(onlyEntry("err15").first.substr(0, 36), other.id());
    other.getLock("err15").forceUnlock();
  }
}

TEST_F(ServerTroubleSlow, XERR16_ConnectionsKilledUnderLoad) {
  constexpr int kThreads = 8;
  Client client = connect();
  Resource resource;
  std::atomic<bool> end{false};
  std::vector<std::future<std::pair<long, std::vector<std::string>>>> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.push_back(inThread([&] {
      RLock lock = client.getLock("err16");
      long entered = 0;
      std::vector<std::string> odd;
      while (!end.load()) {
        try {
          lock.lock();
        } catch (const Error& error) {
          odd.push_back(error.what());
          continue;
        }
        resource.use();
        ++entered;
        try {
          lock.unlock();
        } catch (const Error& error) {
          odd.push_back(error.what());
        }
      }
      return std::pair(entered, odd);
    }));
  }
  const Deadline stop(2s);
  while (!stop.expired()) {
    raw().clientKillType("normal");
    raw().clientKillType("pubsub");
    std::this_thread::sleep_for(25ms);
  }
  end = true;
  long entered = 0;
  for (auto& thread : threads) {
    const auto [count, odd] = thread.get();
    entered += count;
    EXPECT_EQ(odd, std::vector<std::string>());
  }
  EXPECT_GT(entered, 0);
  EXPECT_EQ(resource.value(), entered);
  EXPECT_EQ(resource.overlaps(), 0);
  expectNoKeys();
}

TEST_F(ServerTrouble, XERR16_AServerThatClosesIdleConnections) {
  raw().configSet("timeout", "1");
  Options settings = options();
  settings.heartbeatInterval = 300ms;
  Client client = Client::connect(settings);
  std::this_thread::sleep_for(2500ms);
  EXPECT_EQ(answerOf([&] { return client.getLock("idle").tryLock(); }), "true");
  EXPECT_EQ(client.stats().reconnects, 0U);
}

}  // namespace
}  // namespace rlock::test
