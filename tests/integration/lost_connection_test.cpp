// SPDX-License-Identifier: Apache-2.0

// A request that was sent on a connection that was lost may still be executed. Nothing is granted
// or reported released before that is out of the question, whatever the server lets us do about it.

#include "integration/lost_reply_harness.hpp"

#include <uv.h>

#include <algorithm>

namespace rlock::test {
namespace {

/// A user that may close connections, until it may not.
class LostConnection : public LockTest {
 protected:
  void SetUp() override {
    LockTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) {
      raw().run({"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"});
    }
  }

  [[nodiscard]] Options settings() {
    Options options = proxied();
    options.username = "app";
    options.password = "pw";
    options.watchdogTimeout = 30s;
    options.commandTimeout = 250ms;
    options.callTimeout = scaled(1500ms);
    options.outageTimeout = scaled(1500ms);
    options.reconnectDelayMin = 5ms;
    return options;
  }

  /// All scripts that matter are known to the server.
  static void warm(Client& client) {
    RLock lock = client.getLock("warm");
    lock.lock();
    lock.unlock();
  }

  void mayKill(bool may) {
    if (may) {
      raw().run({"ACL", "SETUSER", "app", "+client|kill"});
    } else {
      raw().denyClient("app", {"kill"});
    }
  }

  TcpProxy::Rule stallOnce(const lua::Script& script) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    return proxy().addRule(running(script), TcpProxy::Action::stallRequest(), once);
  }

  /// The request that was held back arrives, and is executed if the server still listens.
  void deliverLate() {
    proxy().clearRules();
    proxy().releaseStalled();
    std::this_thread::sleep_for(30ms);
  }

  /// A request to close one connection, not the question whether that is allowed.
  [[nodiscard]] static TcpProxy::Matcher kill() {
    return [](const TcpProxy::Argv& argv) {
      return argv.size() >= 4 && argv[0] == "CLIENT" && argv[1] == "KILL" &&
             std::find(argv.begin(), argv.end(), "TYPE") == argv.end();
    };
  }

  [[nodiscard]] static std::string messageOf(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(LostConnection, AReleaseThatCannotBeFencedIsNotReportedAsDone) {
  Client client = Client::connect(settings());
  Client other = connect();
  warm(client);
  RLock lock = client.getLock("revoked");
  RLock foreign = other.getLock("revoked");
  lock.lock();
  const auto stalled = stallOnce(lua::lock_release);
  std::string message;
  auto release = inThread([&] {
    ASSERT_TRUE(stalled.waitForHits(1, kLong));
    mayKill(false);
  });
  message = messageOf([&] { lock.unlock(); });
  release.get();
  EXPECT_NE(message.find("not known"), std::string::npos) << message;
  // Nothing may rely on it until the old request is out of the world.
  EXPECT_NE(answerOf([&] { return lock.tryLock(); }), "true");
  EXPECT_NE(outcomeOf([&] { lock.lock(); }), "ok");
  deliverLate();
  const bool foreignHas = foreign.tryLock();
  EXPECT_NE(answerOf([&] { return lock.tryLock(); }), "true");
  if (foreignHas) {
    foreign.unlock();
  }
  // Once the server closes the old connection, all is as before.
  mayKill(true);
  EXPECT_EVENTUALLY(kLong, answerOf([&] { return lock.tryLock(); }) == "true");
  EXPECT_FALSE(foreign.tryLock());
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_FALSE(raw().exists("revoked"));
}

TEST_F(LostConnection, AnAcquisitionThatCannotBeFencedIsNotGranted) {
  Client client = Client::connect(settings());
  warm(client);
  RLock lock = client.getLock("revoked");
  const auto stalled = stallOnce(lua::lock_acquire);
  auto revoke = inThread([&] {
    ASSERT_TRUE(stalled.waitForHits(1, kLong));
    mayKill(false);
  });
  const std::string message = messageOf([&] { lock.lock(); });
  revoke.get();
  EXPECT_NE(message.find("not known"), std::string::npos) << message;
  deliverLate();
  // The hold that it obtained is given back as soon as that is certain.
  mayKill(true);
  EXPECT_EVENTUALLY(kLong, !raw().exists("revoked"));
  EXPECT_EVENTUALLY(kLong, answerOf([&] { return lock.tryLock(); }) == "true");
  EXPECT_EQ(onlyEntry("revoked").second, "1");
}

TEST_F(LostConnection, ARequestComposedInAnOutageSuitsTheConnectionItGoesOutOn) {
  Options patient = settings();
  patient.callTimeout = scaled(5s);
  Client client = Client::connect(patient);
  Client other = connect();
  warm(client);
  RLock lock = client.getLock("outage");
  lock.lock();
  proxy().refuseConnections(true);
  proxy().cutAll();
  mayKill(false);
  const auto stalled = stallOnce(lua::lock_release);
  const OwnerId owner = currentOwner();
  auto released = inThread([&] {
    FaceLock face(Face::blocking, client.getLock("outage"));
    return outcomeOf(face.unlock(owner));
  });
  std::this_thread::sleep_for(500ms);
  proxy().refuseConnections(false);
  EXPECT_EQ(released.get(), "ok");
  EXPECT_EQ(stalled.hits(), 1U);
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
  deliverLate();
  EXPECT_EQ(raw().hgetall("outage").size(), 1U) << "a late release took a later hold";
  EXPECT_FALSE(other.getLock("outage").tryLock());
}

TEST_F(LostConnection, ARequestComposedBeforeTheFirstConnectionSuitsIt) {
  mayKill(false);
  {
    Client once = connect();
    warm(once);
  }
  uv_loop_t loop;
  ASSERT_EQ(::uv_loop_init(&loop), 0);
  Options adopted = settings();
  adopted.loop = &loop;
  adopted.outageTimeout = 30s;
  {
    Client client = Client::connect(adopted);
    RLock lock = client.getLock("adopted");
    const OwnerId owner = newOwner();
    const auto stalled = stallOnce(lua::lock_acquire);
    auto locked = lock.tryLockAsync({.wait = 20s}, owner).toFuture();
    std::thread runner([&] { ::uv_run(&loop, UV_RUN_DEFAULT); });
    EXPECT_EQ(answerOf([&] { return locked.get(); }), "true");
    EXPECT_EQ(stalled.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().hget("adopted", ownerField(client, owner)), "1");
    lock.unlockAsync(owner).toFuture().get();
    EXPECT_FALSE(raw().exists("adopted"));
    client.close(1s);
    runner.join();
  }
  EXPECT_EQ(::uv_loop_close(&loop), 0);
}

TEST_F(LostConnection, WithoutTheRightToCloseConnectionsALateReconcilingTakesNoLaterHold) {
  mayKill(false);
  Client client = Client::connect(settings());
  const ReadWriteLock sides = client.getReadWriteLock("rw");
  struct Case {
    RLock lock;
    const lua::Script* release;
    const lua::Script* reconcile;
  };
  for (Case each : {
           Case{client.getLock("plain"), &lua::lock_release, &lua::lock_reconcile},
           Case{client.getFencedLock("fenced"), &lua::lock_release, &lua::fenced_reconcile},
           Case{client.getFairLock("fair"), &lua::fair_release, &lua::fair_reconcile},
           Case{client.getSimpleLock("simple"), &lua::simple_release, &lua::simple_reconcile},
           Case{sides.readLock(), &lua::rw_read_release, &lua::rw_read_reconcile},
           Case{sides.writeLock(), &lua::rw_write_release, &lua::rw_write_reconcile},
       }) {
    const std::string name = each.lock.getName();
    SCOPED_TRACE(name);
    each.lock.lock();
    each.lock.unlock();
    each.lock.lock();
    TcpProxy::RuleOptions once;
    once.limit = 1;
    const auto lost =
        proxy().addRule(running(*each.release), TcpProxy::Action::swallowReplyAndCut(), once);
    // The server learns the script first: what comes late is to be executed.
    const auto known =
        proxy().addRule(running(*each.reconcile), TcpProxy::Action::swallowReplyAndCut(), once);
    EXPECT_EVENTUALLY(kLong, outcomeOf([&] { each.lock.unlock(); }) != "timedOut");
    proxy().clearRules();
    each.lock.lock();
    const auto again =
        proxy().addRule(running(*each.release), TcpProxy::Action::swallowReplyAndCut(), once);
    const auto late = stallOnce(*each.reconcile);
    static_cast<void>(outcomeOf([&] { each.lock.unlock(); }));
    EXPECT_EVENTUALLY(kLong, answerOf([&] { return each.lock.tryLock(); }) == "true");
    EXPECT_EQ(late.hits(), 1U);
    const std::int64_t before = raw().commandCalls("evalsha");
    deliverLate();
    EXPECT_EVENTUALLY(kLong, raw().commandCalls("evalsha") > before);
    EXPECT_EQ(each.lock.getHoldCount(), 1);
    EXPECT_EQ(outcomeOf([&] { each.lock.unlock(); }), "ok");
    static_cast<void>(lost);
    static_cast<void>(known);
    static_cast<void>(again);
  }
  raw().run({"DEL", "redisson_lock_token:{fenced}"});
  expectNoEternalKeys();
}

TEST_F(LostConnection, NothingIsReconciledBeforeTheServerHasClosedTheOldConnection) {
  Client client = Client::connect(settings());
  warm(client);
  RLock lock = client.getLock("busy");
  lock.lock();
  proxy().recordCommands(true);
  const auto busy = proxy().addRule(
      kill(), TcpProxy::Action::replyWithError("BUSY Redis is busy running a script."));
  TcpProxy::RuleOptions once;
  once.limit = 1;
  proxy().addRule(running(lua::lock_release), TcpProxy::Action::swallowReplyAndCut(), once);
  const OwnerId owner = currentOwner();
  auto released = inThread([&] {
    FaceLock face(Face::blocking, client.getLock("busy"));
    return outcomeOf(face.unlock(owner));
  });
  ASSERT_TRUE(busy.waitForHits(2, kLong));
  EXPECT_EQ(proxy().countCommands(running(lua::lock_reconcile)), 0U);
  proxy().removeRule(busy);
  const std::string outcome = released.get();
  EXPECT_TRUE(outcome == "ok" || outcome == "timedOut") << outcome;
  EXPECT_TRUE(proxy().waitForCommands(running(lua::lock_reconcile), 1, kLong));
  EXPECT_EVENTUALLY(kLong, answerOf([&] { return lock.tryLock(); }) == "true");
}

TEST_F(LostConnection, ALostConnectionIsClosedOnceForAllThatWasOnIt) {
  Client client = Client::connect(settings());
  warm(client);
  proxy().recordCommands(true);
  proxy().blackHole(TcpProxy::Direction::toClient, TcpProxy::commandsOnly());
  std::vector<std::future<bool>> calls;
  for (int i = 0; i < 200; ++i) {
    calls.push_back(client.getLock("many" + std::to_string(i))
                        .tryLockAsync({.wait = 20s}, newOwner())
                        .toFuture());
  }
  EXPECT_TRUE(proxy().waitForCommands(running(lua::lock_acquire), 200, kLong));
  const std::uint64_t before = proxy().stats().accepted;
  proxy().cutAll(TcpProxy::CutKind::reset, TcpProxy::commandsOnly());
  proxy().endBlackHole();
  for (auto& call : calls) {
    EXPECT_EQ(answerOf([&] { return call.get(); }), "true");
  }
  EXPECT_GE(proxy().countCommands(kill()), 1U);
  EXPECT_LE(proxy().countCommands(kill()), proxy().stats().accepted - before);
}

TEST_F(LostConnection, AServerThatWasStartedAnewIsNotAskedToCloseAnybody) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  raw().denyClient("default", {"info"});
  Options options = proxied();
  options.commandTimeout = 2s;
  Client client = Client::connect(options);
  warm(client);
  proxy().recordCommands(true);
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto lost =
      proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::stallReply(), once);
  auto locked =
      inThread([&] { return answerOf([&] { return client.getLock("restarted").tryLock(20s); }); });
  ASSERT_TRUE(lost.waitForHits(1, kLong));
  server().kill();
  server().restart();
  EXPECT_EQ(locked.get(), "true");
  EXPECT_EQ(proxy().countCommands(kill()), 0U);
}

TEST_F(LostConnection, AnIdThatMayBeAnotherProcesssIsNotKilled) {
  raw().run({"ACL", "SETUSER", "app", "-info"});
  raw().denyClient("app", {"info"});
  Client client = Client::connect(settings());
  warm(client);
  proxy().recordCommands(true);
  RLock lock = client.getLock("unknown");
  lock.lock();
  const auto stalled = stallOnce(lua::lock_release);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(stalled.hits(), 1U);
  lock.lock();
  deliverLate();
  EXPECT_EQ(lock.getHoldCount(), 1);
  EXPECT_EQ(proxy().countCommands(kill()), 0U);
}

// A request that was executed is not reported as failed for certain.

TEST_F(LostConnection, AnErrorAfterALostReplySaysThatItIsNotCertain) {
  Client client = Client::connect(settings());
  Semaphore permits = client.getSemaphore("permits");
  permits.trySetPermits(3);
  permits.release();
  RLock lock = client.getLock("lock");
  lock.lock();
  const auto loseAndRefuse = [&](const lua::Script& script, const std::function<void()>& call) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    const auto lost = proxy().addRule(running(script), TcpProxy::Action::stallReply(), once);
    auto refuse = inThread([&] {
      ASSERT_TRUE(lost.waitForHits(1, kLong));
      raw().run({"ACL", "SETUSER", "app", "resetpass", ">other"});
    });
    const std::string message = messageOf(call);
    refuse.get();
    const bool open = message.find("not known") != std::string::npos ||
                      message.find("goes on in the background") != std::string::npos;
    EXPECT_TRUE(open) << message;
    raw().run({"ACL", "SETUSER", "app", "resetpass", ">pw"});
    proxy().clearRules();
    proxy().releaseStalled();
    EXPECT_EVENTUALLY(kLong,
                      outcomeOf([&] { static_cast<void>(permits.availablePermits()); }) == "ok");
  };
  loseAndRefuse(lua::semaphore_add, [&] { permits.release(); });
  EXPECT_EQ(permits.availablePermits(), 5);
  loseAndRefuse(lua::lock_release, [&] { lock.unlock(); });
  EXPECT_EVENTUALLY(kLong, !raw().exists("lock"));
  loseAndRefuse(lua::lock_acquire, [&] { client.getLock("second").lock(); });
  EXPECT_EVENTUALLY(kLong, !raw().exists("second"));
  loseAndRefuse(lua::semaphore_acquire, [&] { permits.acquire(); });
  EXPECT_EVENTUALLY(kLong, permits.availablePermits() == 5);
}

TEST_F(LostConnection, WhatIsToBeGivenBackOutlivesARefusedPassword) {
  Client client = Client::connect(settings());
  PermitExpirableSemaphore permits = client.getPermitExpirableSemaphore("permits");
  permits.trySetPermits(3);
  permits.release(permits.acquire());
  Semaphore counted = client.getSemaphore("counted");
  counted.trySetPermits(3);
  static_cast<void>(counted.tryAcquire());
  counted.release();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto lose = [&](const lua::Script& script, const std::function<void()>& call) {
    const auto lost = proxy().addRule(running(script), TcpProxy::Action::stallReply(), once);
    auto refuse = inThread([&] {
      ASSERT_TRUE(lost.waitForHits(1, kLong));
      raw().run({"ACL", "SETUSER", "app", "resetpass", ">other"});
    });
    EXPECT_EQ(outcomeOf(call), "authenticationFailed");
    refuse.get();
    // Several attempts to connect are refused.
    std::this_thread::sleep_for(100ms);
    raw().run({"ACL", "SETUSER", "app", "resetpass", ">pw"});
    proxy().clearRules();
    proxy().releaseStalled();
  };
  lose(lua::permit_acquire, [&] { static_cast<void>(permits.tryAcquire()); });
  EXPECT_EVENTUALLY(kLong, raw().run({"GET", "permits"}).string() == "3");
  lose(lua::semaphore_acquire, [&] { static_cast<void>(counted.tryAcquire()); });
  EXPECT_EVENTUALLY(kLong, raw().run({"GET", "counted"}).string() == "3");
}

TEST_F(LostConnection, AReleaseGoesOnWhenThePasswordIsRefusedForAMoment) {
  Options quick = settings();
  quick.reconnectDelayMax = 50ms;
  Client client = Client::connect(quick);
  warm(client);
  RLock lock = client.getLock("password");
  lock.lock();
  raw().run({"ACL", "SETUSER", "app", "resetpass", ">other"});
  proxy().cutAll();
  EXPECT_EVENTUALLY(kLong, log().contains("refused the user name"));
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "authenticationFailed");
  EXPECT_TRUE(raw().exists("password"));
  raw().run({"ACL", "SETUSER", "app", "resetpass", ">pw"});
  EXPECT_EVENTUALLY(kLong, !raw().exists("password"));
}

// A master that became a replica.

TEST_F(LostConnection, AServerThatTakesNoWritesAnyMoreIsLeftForTheNewMaster) {
  RLOCK_ONE_SERVER_ONLY("makes a replica of its server");
  RedisServer promoted;
  Options patient = settings();
  patient.username.clear();
  patient.password.clear();
  patient.callTimeout = scaled(5s);
  patient.outageTimeout = scaled(5s);
  Client client = Client::connect(patient);
  warm(client);
  RLock held = client.getLock("held");
  held.lock();
  const auto before = client.stats().reconnects;
  raw().run({"REPLICAOF", "127.0.0.1", std::to_string(promoted.port())});
  proxy().setTarget(promoted.port());
  EXPECT_EQ(answerOf([&] { return client.getLock("failover").tryLock(); }), "true");
  RawRedis master(promoted);
  EXPECT_TRUE(master.exists("failover"));
  EXPECT_GT(client.stats().reconnects, before);
  EXPECT_LE(client.stats().reconnects, before + 3);
}

TEST_F(LostConnection, AServerThatIsReadOnlyForGoodIsNotConnectedToOverAndOver) {
  RLOCK_ONE_SERVER_ONLY("makes a replica of its server");
  RedisServer elsewhere;
  Options short_ = settings();
  short_.username.clear();
  short_.password.clear();
  // Twenty threads at once may keep a loaded machine busy for a while.
  short_.commandTimeout = scaled(2s);
  short_.callTimeout = scaled(2s);
  Client client = Client::connect(short_);
  warm(client);
  raw().run({"REPLICAOF", "127.0.0.1", std::to_string(elsewhere.port())});
  std::vector<std::future<std::string>> calls;
  for (int i = 0; i < 20; ++i) {
    calls.push_back(inThread([&client, i] {
      return answerOf([&] { return client.getLock("ro" + std::to_string(i)).tryLock(); });
    }));
  }
  int refused = 0;
  for (auto& call : calls) {
    const std::string answer = call.get();
    refused += static_cast<int>(answer == "readOnly");
    // The refusal of another may have cut it off at the very end of its time: then it is not known
    // what the server would have said.
    EXPECT_TRUE(answer == "readOnly" || answer == "connectionFailed") << answer;
  }
  EXPECT_GT(refused, 10);
  EXPECT_LE(client.stats().reconnects, 30U);
}

}  // namespace
}  // namespace rlock::test
