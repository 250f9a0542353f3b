// SPDX-License-Identifier: Apache-2.0

// Fencing tokens: drawn once for each first hold, strictly increasing whatever happens to holds,
// clients and the server, and told to nobody but the holder.

#include "integration/lost_reply_harness.hpp"
#include "support/fenced_resource.hpp"

#include <algorithm>

namespace rlock::test {
namespace {

using Fields = std::map<std::string, std::string>;
using Token = std::uint64_t;

std::string counterOf(const std::string& name) {
  return name.find('{') == std::string::npos ? "redisson_lock_token:{" + name + "}"
                                             : "redisson_lock_token:" + name;
}

/// The token, or the name of the Errc.
std::string tokenOf(const Result<Token>& result) {
  return result.has_value() ? std::to_string(*result) : outcomeOf(result);
}
/// As above; "none" when somebody else had the lock.
std::string tokenOf(const Result<std::optional<Token>>& result) {
  if (!result.has_value()) {
    return outcomeOf(result);
  }
  return *result ? std::to_string(**result) : "none";
}

class Fenced : public FaceTest {
 protected:
  Fenced() { noteSafetyCheck(); }

  [[nodiscard]] static bool direct(OwnerId owner) {
    return GetParam() == Face::blocking && owner == currentOwner();
  }
  template <class F>
  static std::string told(F call) {
    std::string text;
    const std::string outcome = outcomeOf([&] { text = tokenOf(call()); });
    return outcome == "ok" ? text : outcome;
  }
  static std::string take(FencedLock& lock,
                          OwnerId owner = currentOwner(),
                          std::optional<Duration> lease = {}) {
    return told([&]() -> Result<Token> {
      if (direct(owner)) {
        return lease ? lock.lockAndGetToken(*lease) : lock.lockAndGetToken();
      }
      return runBy(
          GetParam(),
          lease ? lock.lockAndGetTokenAsync(*lease, owner) : lock.lockAndGetTokenAsync(owner));
    });
  }
  static std::string tryTake(FencedLock& lock,
                             OwnerId owner = currentOwner(),
                             std::optional<Duration> wait = {},
                             std::optional<Duration> lease = {}) {
    return told([&]() -> Result<std::optional<Token>> {
      if (direct(owner)) {
        return lease  ? lock.tryLockAndGetToken(wait.value_or(Duration::zero()), *lease)
               : wait ? lock.tryLockAndGetToken(*wait)
                      : lock.tryLockAndGetToken();
      }
      return runBy(GetParam(),
                   wait ? lock.tryLockAndGetTokenAsync(*wait, lease, owner)
                        : lock.tryLockAndGetTokenAsync(owner));
    });
  }
  static std::string own(FencedLock& lock, OwnerId owner = currentOwner()) {
    return told([&]() -> Result<Token> {
      return direct(owner) ? Result<Token>(lock.getToken())
                           : runBy(GetParam(), lock.getTokenAsync(owner));
    });
  }
  static std::string giveBack(FencedLock& lock, OwnerId owner = currentOwner()) {
    return outcomeOf(FaceLock(GetParam(), lock).unlock(owner));
  }
};

INSTANTIATE_TEST_SUITE_P(Faces, Fenced, ::testing::ValuesIn(kFaces), faceName);

TEST_P(Fenced, FE01_EveryAcquisitionDrawsTheNextToken) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("FE01");
  FaceLock plain(GetParam(), lock);
  EXPECT_EQ(take(lock), "1");
  EXPECT_EQ(giveBack(lock), "ok");
  EXPECT_EQ(take(lock), "2");
  EXPECT_EQ(giveBack(lock), "ok");
  EXPECT_EQ(outcomeOf(plain.lock()), "ok");
  EXPECT_EQ(own(lock), "3");
  EXPECT_EQ(giveBack(lock), "ok");
  EXPECT_EQ(outcomeOf(plain.lock(currentOwner(), 10s)), "ok");
  EXPECT_EQ(own(lock), "4");
  EXPECT_EQ(giveBack(lock), "ok");
  EXPECT_EQ(tryTake(lock), "5");
  EXPECT_EQ(giveBack(lock), "ok");
  EXPECT_EQ(tryTake(lock, currentOwner(), 5s), "6");
  EXPECT_EQ(giveBack(lock), "ok");
  EXPECT_EQ(tryTake(lock, currentOwner(), Duration::zero(), 5s), "7");
  EXPECT_EQ(giveBack(lock), "ok");
  EXPECT_EQ(answerOf(plain.tryLock()), "true");
  EXPECT_EQ(own(lock), "8");
  EXPECT_EQ(giveBack(lock), "ok");
}

TEST_P(Fenced, XFE2_OneAttemptAnswersAtOnce) {
  Client client = connect();
  rawHold("XFE2", "foreign:1", 20s);
  FencedLock lock = client.getFencedLock("XFE2");
  const Stopwatch watch;
  EXPECT_EQ(tryTake(lock), "none");
  EXPECT_EQ(tryTake(lock, currentOwner(), -1ms), "none");
  EXPECT_LT(watch.elapsedMs(), scaled(1s));
  const Stopwatch waited;
  EXPECT_EQ(tryTake(lock, currentOwner(), 1s), "none");
  EXPECT_GE(waited.elapsedMs(), 1s);
  EXPECT_FALSE(raw().exists(counterOf("XFE2"))) << "who is refused draws no token";
}

TEST_P(Fenced, XFE3_TheLeaseIsTheKeysTimeToLiveAndNobodyRenewsIt) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("XFE3");
  const Stopwatch watch;
  EXPECT_EQ(take(lock, currentOwner(), 600ms), "1");
  EXPECT_LE(raw().pttl("XFE3"), 600);
  EXPECT_EVENTUALLY(kLong, !raw().exists("XFE3"));
  EXPECT_LT(watch.elapsedMs(), 600ms + scaled(300ms));
  EXPECT_EQ(giveBack(lock), "notOwner");
  EXPECT_EQ(take(lock, currentOwner(), Duration::zero()), "invalidArgument");
  EXPECT_EQ(take(lock, currentOwner(), 20s), "2");
  EXPECT_GT(raw().pttl("XFE3"), 15'000);
}

TEST_P(Fenced, XFE4_NothingThatHappensToTheLockTurnsTheCounterBack) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("XFE4");
  EXPECT_EQ(take(lock), "1");
  EXPECT_EQ(answerOf(FaceLock(GetParam(), lock).forceUnlock()), "true");
  EXPECT_EQ(raw().get(counterOf("XFE4")), "1");
  EXPECT_EQ(take(lock), "2");
  raw().del("XFE4");
  EXPECT_EQ(giveBack(lock), "notOwner");
  EXPECT_EQ(take(lock, currentOwner(), 1s), "3");
  EXPECT_EVENTUALLY(kLong, !raw().exists("XFE4"));
  EXPECT_EQ(take(lock), "4");
  EXPECT_EQ(giveBack(lock), "ok");
  // Another program's client gave it an expiry, as it gives one to the lock.
  raw().run({"PEXPIRE", counterOf("XFE4"), "20000"});
  EXPECT_EQ(take(lock), "5");
  EXPECT_EQ(raw().pttl(counterOf("XFE4")), -1);
  EXPECT_EQ(giveBack(lock), "ok");
  EXPECT_FALSE(raw().exists("XFE4"));
}

TEST_P(Fenced, XFE4_ACounterThatIsGoneIsAnErrorOfTheHolder) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("gone");
  EXPECT_EQ(take(lock), "1");
  raw().del(counterOf("gone"));
  EXPECT_EQ(take(lock), "serverError");
  EXPECT_EQ(own(lock), "serverError");
  EXPECT_EQ(onlyEntry("gone").second, "1") << "what was refused was counted";
  EXPECT_EQ(giveBack(lock), "ok");
  EXPECT_FALSE(raw().exists("gone"));
}

TEST_P(Fenced, XFE4_ACounterThatIsNoneRefusesAndLeavesNothing) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("bad");
  raw().run({"HSET", counterOf("bad"), "a", "b"});
  EXPECT_EQ(take(lock), "wrongType");
  for (const std::string value : {"-7", "-1", "text", "9223372036854775807"}) {
    raw().set(counterOf("bad"), value);
    EXPECT_EQ(take(lock), "serverError") << value;
    raw().set(counterOf("bad"), value);
    EXPECT_EQ(tryTake(lock), "serverError") << value;
  }
  EXPECT_FALSE(raw().exists("bad"));
  EXPECT_EQ(client.stats().holds, 0U);
}

TEST_P(Fenced, TokensAreExactBeyondWhatADoubleHolds) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("big");
  raw().set(counterOf("big"), "9007199254740992");
  EXPECT_EQ(take(lock), "9007199254740993");
  EXPECT_EQ(own(lock), "9007199254740993");
  EXPECT_EQ(giveBack(lock), "ok");
  raw().set(counterOf("big"), "9223372036854775805");
  EXPECT_EQ(take(lock), "9223372036854775806");
}

TEST_P(Fenced, XFE6_ANestedHoldKeepsTheTokenOfTheFirst) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("XFE6");
  const OwnerId owner = newOwner();
  EXPECT_EQ(take(lock, owner), "1");
  EXPECT_EQ(take(lock, owner), "1");
  EXPECT_EQ(tryTake(lock, owner), "1");
  EXPECT_EQ(own(lock, owner), "1");
  EXPECT_EQ(giveBack(lock, owner), "ok");
  EXPECT_EQ(own(lock, owner), "1");
  EXPECT_EQ(giveBack(lock, owner), "ok");
  EXPECT_EQ(giveBack(lock, owner), "ok");
  EXPECT_EQ(take(lock, owner), "2");
}

TEST_P(Fenced, W54_TheTokenIsToldToTheHolderOnly) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("W54");
  const OwnerId a = newOwner();
  const OwnerId b = newOwner();
  EXPECT_EQ(own(lock, a), "notOwner");
  EXPECT_EQ(take(lock, a), "1");
  EXPECT_EQ(own(lock, a), "1");
  EXPECT_EQ(own(lock, b), "notOwner");
  EXPECT_EQ(own(lock), "notOwner");
  EXPECT_EQ(giveBack(lock, a), "ok");
  EXPECT_EQ(own(lock, a), "notOwner");
  EXPECT_EQ(take(lock, b, 1s), "2");
  EXPECT_EVENTUALLY(kLong, !raw().exists("W54"));
  EXPECT_EQ(own(lock, b), "notOwner");
}

TEST_P(Fenced, W53_AHoldWithoutExpiryIsNeverGranted) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("W53");
  raw().run({"HSET", "W53", "foreign:1", "1"});
  EXPECT_EQ(tryTake(lock), "none");
  EXPECT_EQ(tryTake(lock, currentOwner(), 1s), "none");
  EXPECT_FALSE(raw().exists(counterOf("W53")));
}

TEST_P(Fenced, V23_StateAfterEachStep) {
  Client client = connect();
  const OwnerId a = newOwner();
  const OwnerId b = newOwner();
  for (const std::string name : {"L", "a{t}b"}) {
    FencedLock lock = client.getFencedLock(name);
    RawSubscriber subscriber(rawOptions());
    subscriber.subscribe(channelOf(name));
    EXPECT_EQ(take(lock, a, 30s), "1");
    EXPECT_EQ(take(lock, a, 30s), "1");
    EXPECT_EQ(raw().hgetall(name), (Fields{{ownerField(client, a), "2"}}));
    EXPECT_EQ(raw().type(counterOf(name)), "string");
    EXPECT_EQ(raw().get(counterOf(name)), "1");
    EXPECT_EQ(raw().pttl(counterOf(name)), -1);
    EXPECT_LE(raw().pttl(name), 30'000);
    EXPECT_GT(raw().pttl(name), 25'000);
    EXPECT_EQ(tryTake(lock, b), "none");
    raw().run({"PERSIST", name});
    EXPECT_EQ(tryTake(lock, b), "none");
    EXPECT_EQ(raw().keys(), (std::set<std::string>{name, counterOf(name)}));
    EXPECT_EQ(giveBack(lock, a), "ok");
    EXPECT_EQ(subscriber.count(), 0U);
    EXPECT_EQ(giveBack(lock, a), "ok");
    ASSERT_TRUE(subscriber.waitFor(1, kLong));
    EXPECT_EQ(subscriber.messages()[0], (RawSubscriber::Message{"", channelOf(name), "0"}));
    EXPECT_EQ(raw().keys(), std::set<std::string>{counterOf(name)});
    raw().del(counterOf(name));
  }
}

TEST_P(Fenced, V10_APeerDrawsFromTheSameCounter) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("shared");
  EXPECT_EQ(take(lock), "1");
  EXPECT_EQ(giveBack(lock), "ok");
  // A peer's acquisition, nested once, as its script does it.
  raw().run({"INCR", counterOf("shared")});
  rawHold("shared", "foreign:1", 20s);
  raw().run({"INCR", counterOf("shared")});
  rawHold("shared", "foreign:1", 20s);
  EXPECT_EQ(own(lock), "notOwner");
  auto waiter = inThread([&] {
    FencedLock mine = client.getFencedLock("shared");
    const std::string got = take(mine);
    return got + "," + giveBack(mine);
  });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("shared")) == 1);
  rawRelease("shared");
  EXPECT_EQ(waiter.get(), "4,ok");
}

TEST_P(Fenced, AsAnRLockItIsStillFenced) {
  Client client = connect();
  RLock lock = client.getFencedLock("plain");
  EXPECT_EQ(lock.acquire().token(), 1U);
  // The first one is being released in the background.
  std::optional<Lease> tried = lock.tryAcquire({.wait = kLong});
  ASSERT_TRUE(tried);
  EXPECT_EQ(tried->token(), 2U);
  EXPECT_FALSE(lock.tryAcquire());
  const OwnerId owner = tried->owner();
  Lease nested = lock.acquire({}, owner);
  EXPECT_EQ(nested.token(), 2U);
  EXPECT_EQ(nested.release(), ReleaseResult::stillHeld);
  EXPECT_EQ(tried->release(), ReleaseResult::released);
  EXPECT_EQ(tried->token(), std::nullopt);
  Result<Lease> lease = runBy(GetParam(), lock.acquireAsync());
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->token(), 3U);
  EXPECT_EQ(client.getLock("other").acquire().token(), std::nullopt);
}

TEST_P(Fenced, AClosedClientSaysSo) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("closed");
  EXPECT_EQ(take(lock), "1");
  client.close(2s);
  EXPECT_EQ(take(lock), "closed");
  EXPECT_EQ(tryTake(lock), "closed");
  EXPECT_EQ(own(lock), "closed");
  EXPECT_EQ(raw().keys(), std::set<std::string>{counterOf("closed")});
}

class FencedKinds : public SafetyTest {
 protected:
  [[nodiscard]] RedisServerOptions serverOptions() override {
    RedisServerOptions options;
    options.persistence = true;
    return options;
  }
};

TEST_F(FencedKinds, ABlockingCallOnTheLoopThreadWouldDeadlock) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("loop");
  std::promise<std::string> said;
  lock.lockAndGetTokenAsync().start([&](const Result<Token>& /*token*/) {
    said.set_value(outcomeOf([&] { static_cast<void>(lock.getToken()); }) + "," +
                   outcomeOf([&] { static_cast<void>(lock.lockAndGetToken()); }) + "," +
                   outcomeOf([&] { static_cast<void>(lock.tryLockAndGetToken()); }));
  });
  EXPECT_EQ(said.get_future().get(), "wouldDeadlock,wouldDeadlock,wouldDeadlock");
}

TEST_F(FencedKinds, XFE4_TokensGoOnAfterARestartThatKeptTheData) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client client = connect();
  FencedLock lock = client.getFencedLock("kept");
  EXPECT_EQ(lock.lockAndGetToken(), 1U);
  lock.unlock();
  EXPECT_EQ(lock.lockAndGetToken(), 2U);
  server().kill();
  server().start();
  EXPECT_EQ(lock.getToken(), 2U);
  lock.unlock();
  EXPECT_EQ(lock.lockAndGetToken(), 3U);
  lock.unlock();
}

TEST_F(FencedKinds, RetentionGivesTheCounterAnExpiry) {
  Options settings = options();
  settings.fencingTokenRetention = 5s;
  Client client = Client::connect(settings);
  FencedLock lock = client.getFencedLock("short");
  const auto remaining = [&] { return raw().pttl(counterOf("short")); };
  lock.lock(2s);
  EXPECT_LE(remaining(), 5'000);
  EXPECT_GT(remaining(), 2'500);
  // A lease that is longer keeps it for longer, and nothing shortens it again.
  lock.lock(20s);
  EXPECT_LE(remaining(), 20'000);
  EXPECT_GT(remaining(), 15'000);
  lock.lock(1s);
  EXPECT_GT(remaining(), 15'000);
  EXPECT_EQ(lock.getToken(), 1U);
  EXPECT_TRUE(lock.forceUnlock());
  EXPECT_GT(remaining(), 15'000);
  EXPECT_EQ(lock.lockAndGetToken(2s), 2U);
  // A client that keeps counters for ever takes the expiry away.
  lock.unlock();
  Client other = connect();
  EXPECT_EQ(other.getFencedLock("short").lockAndGetToken(2s), 3U);
  EXPECT_EQ(remaining(), -1);
}

TEST_F(FencedKinds, RenewalsKeepTheCounterAsLongAsTheHold) {
  Options settings = options();
  settings.watchdogTimeout = 1200ms;
  settings.fencingTokenRetention = 1500ms;
  Client client = Client::connect(settings);
  // One request renews holds of one form; these are two.
  Lease one = client.getFencedLock("one").acquire();
  Lease two = client.getFencedLock("two").acquire();
  Lease plain = client.getLock("plain").acquire();
  const Stopwatch watch;
  while (watch.elapsedMs() < 2s) {
    ASSERT_GE(raw().pttl(counterOf("one")), 100);
    ASSERT_GE(raw().pttl(counterOf("two")), 100);
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_TRUE(one.held() && two.held() && plain.held());
  raw().del("two");
  EXPECT_EVENTUALLY(kLong, two.lossReason() == LossReason::refused);
  EXPECT_TRUE(one.held());
  EXPECT_EQ(one.release(), ReleaseResult::released);
  EXPECT_EVENTUALLY(kLong, !raw().exists(counterOf("one")));
}

// A token that is drawn anew would be given out twice.
TEST_F(FencedKinds, ARenewalKeepsTheCounterForTheLongerOfBothTimes) {
  const std::string counter = counterOf("kept");
  const auto renew = [&](const std::string& lease, const std::string& retention) {
    const Value reply =
        raw().eval(lua::fenced_renew.body, {"kept", counter}, {lease, "foreign:1", retention});
    return reply.array().at(0).integer();
  };
  rawHold("kept", "foreign:1", 20s);
  raw().set(counter, "5", 20s);
  EXPECT_EQ(renew("60000", "1000"), 1);
  EXPECT_GT(raw().pttl("kept"), 50'000);
  EXPECT_GT(raw().pttl(counter), 50'000) << "the hold would outlive its token";
  EXPECT_EQ(renew("1000", "900000"), 1);
  EXPECT_GT(raw().pttl(counter), 800'000);
  EXPECT_EQ(renew("1000", "1000"), 1);
  EXPECT_GT(raw().pttl(counter), 800'000) << "a renewal has shortened it";
  EXPECT_GT(raw().pttl("kept"), 40'000);
  // Somebody else keeps it for ever.
  raw().run({"PERSIST", counter});
  EXPECT_EQ(renew("60000", "1000"), 1);
  EXPECT_EQ(raw().pttl(counter), -1);
}

TEST_F(FencedKinds, AHoldWhoseTokenIsGoneIsGivenBack) {
  Client client = Client::connect(proxied());
  FencedLock lock = client.getFencedLock("tokenless");
  const OwnerId owner = newOwner();
  // The server knows the script from here on, so that the rule meets the request that matters.
  EXPECT_EQ(lock.lockAndGetTokenAsync(owner).toFuture().get(), 1U);
  lock.unlockAsync(owner).toFuture().get();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  proxy().addRule(running(lua::fenced_acquire), TcpProxy::Action::swallowReplyAndCut(), once);
  const auto reconciles =
      proxy().addRule(running(lua::fenced_reconcile), TcpProxy::Action::stallRequest(), once);
  auto token = lock.lockAndGetTokenAsync(owner).toFuture();
  ASSERT_TRUE(reconciles.waitForHits(1, kLong));
  EXPECT_EQ(onlyEntry("tokenless").second, "1") << "it was granted";
  raw().del(counterOf("tokenless"));
  proxy().releaseStalled();
  ASSERT_TRUE(ready(token, kLong));
  try {
    const Token got = token.get();
    ADD_FAILURE() << "it has the token " << got;
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::serverError);
    EXPECT_NE(std::string_view(error.what()).find("the fencing counter is gone"),
              std::string_view::npos)
        << error.what();
  }
  EXPECT_EVENTUALLY(kLong, !raw().exists("tokenless"));
  EXPECT_EVENTUALLY(kLong, client.stats().holds == 0);
}

// The resource's side.

TEST_F(FencedKinds, TheWriteScriptRefusesOlderTokens) {
  const auto write = [&](const std::string& token, const std::string& value) {
    const Value reply =
        raw().eval(lua::fenced_write.body, {"{r}value", "{r}token"}, {token, value});
    return reply.isError() ? std::string("error") : std::to_string(reply.integer());
  };
  EXPECT_EQ(write("9", "a"), "1");
  EXPECT_EQ(write("9", "b"), "1");
  EXPECT_EQ(write("8", "c"), "0");
  EXPECT_EQ(raw().get("{r}value"), "b");
  EXPECT_EQ(write("10", "d"), "1");
  EXPECT_EQ(write("9", "e"), "0");
  EXPECT_EQ(write("9007199254740993", "f"), "1");
  EXPECT_EQ(write("9007199254740992", "g"), "0");
  EXPECT_EQ(write("18446744073709551615", "h"), "1");
  EXPECT_EQ(raw().get("{r}value"), "h");
  EXPECT_EQ(raw().get("{r}token"), "18446744073709551615");
  for (const std::string bad : {"", "0", "-1", "1.5", "1e3", "01", " 1", "x"}) {
    EXPECT_EQ(write(bad, "i"), "error") << bad;
  }
  EXPECT_EQ(raw().get("{r}value"), "h");
}

TEST_F(FencedKinds, AHolderThatLostTheLockCannotWrite) {
  Client client = connect();
  FencedLock lock = client.getFencedLock("resource");
  const auto write = [&](Token token, const std::string& value) {
    return raw()
        .eval(lua::fenced_write.body, {"{r}value", "{r}token"}, {std::to_string(token), value})
        .integer();
  };
  const Token stalled = lock.lockAndGetToken(50ms);
  EXPECT_EQ(write(stalled, "in time"), 1);
  EXPECT_EVENTUALLY(kLong, !raw().exists("resource"));
  EXPECT_EQ(inThread([&] { return write(lock.lockAndGetToken(), "the next one"); }).get(), 1);
  EXPECT_EQ(write(stalled, "too late"), 0);
  EXPECT_EQ(raw().get("{r}value"), "the next one");
}

class FencedWriters : public SafetyTest {};

TEST_F(FencedWriters, C3_XCLK2_AWriterStoppedPastItsLeaseIsRefusedAtTheResource) {
  const RedisServer storage;
  FencedResource resource(storage.port());
  const std::string write = "write " + std::to_string(storage.port()) + " ";
  Worker stopped(uri("watchdog-timeout=600ms"));
  EXPECT_EQ(stopped.ask("fenced XCLK2"), "1");
  EXPECT_EQ(stopped.ask(write + "early"), "written");
  stopped.process().stop();
  // The first thing that it does when it goes on, before it can hear of anything.
  stopped.tell(write + "late");
  Client client = connect();
  FencedLock lock = client.getFencedLock("XCLK2");
  const std::optional<Token> token = lock.tryLockAndGetToken(scaled(kLong));
  ASSERT_EQ(token, 2U);
  EXPECT_TRUE(resource.write(*token, "next"));
  // Nobody holds the lock any more: nothing but the token is wrong with the late write.
  lock.unlock();
  EXPECT_FALSE(raw().exists("XCLK2"));
  stopped.process().cont();
  EXPECT_EQ(stopped.answer(), "refused");
  EXPECT_EQ(resource.value(), "next");
  // With a hold of its own it may write again.
  EXPECT_EQ(stopped.ask("fenced XCLK2"), "3");
  EXPECT_EQ(stopped.ask(write + "again"), "written");
  EXPECT_EQ(resource.value(), "again");
  EXPECT_FALSE(resource.write(*token, "next")) << "now the other one is late";
}

// Contention, expiries and kills.

class FencedSlow : public SafetyTest {};

TEST_F(FencedSlow, XFE1_TokensGrowOverExpiriesAndKills) {
  constexpr int kClients = 10;
  constexpr int kRounds = 40;
  std::mutex mutex;
  std::set<Token> all;
  std::vector<std::string> odd;
  std::atomic<Token> highest{0};
  // A token that was asked for after another one was granted must be greater.
  const auto note = [&](Token before, Token token) {
    const std::lock_guard guard(mutex);
    if (token <= before) {
      odd.push_back(std::to_string(token) + " was drawn after " + std::to_string(before));
    }
    if (!all.insert(token).second) {
      odd.push_back(std::to_string(token) + " was drawn twice");
    }
    highest = std::max(highest.load(), token);
  };
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(connect()));
  }
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.push_back(inThread([&, i] {
      FencedLock lock = clients[static_cast<std::size_t>(i)]->getFencedLock("XFE1");
      return outcomeOf([&] {
        for (int round = 0; round < kRounds; ++round) {
          const Token before = highest;
          const bool stays = (i + round) % 20 == 0;
          const Token token = stays ? lock.lockAndGetToken(30ms) : lock.lockAndGetToken();
          note(before, token);
          if (stays) {
            // It is late, and finds out.
            std::this_thread::sleep_for(60ms);
            static_cast<void>(outcomeOf([&] { lock.unlock(); }));
          } else {
            lock.unlock();
          }
        }
      });
    }));
  }
  int killed = 0;
  for (int victim = 0; victim < 4; ++victim) {
    Worker worker(uri("watchdog-timeout=150ms"));
    const Token before = highest;
    const std::string answer = worker.ask("fenced XFE1");
    ASSERT_FALSE(answer.empty());
    note(before, std::stoull(answer));
    worker.process().kill();
    ++killed;
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(odd, std::vector<std::string>());
  EXPECT_EQ(all.size(), static_cast<std::size_t>(kClients * kRounds + killed));
  EXPECT_EQ(std::to_string(*all.rbegin()), raw().get(counterOf("XFE1")));
}

// Lost replies.

class FencedLostReply : public LostReplyTest {
 protected:
  [[nodiscard]] RLock warmLock() override { return client().getFencedLock("warm"); }
  [[nodiscard]] Token counter(const std::string& name) {
    return std::stoull(raw().get(counterOf(name)).value_or("0"));
  }
};

INSTANTIATE_TEST_SUITE_P(Faults,
                         FencedLostReply,
                         ::testing::Combine(kLostReplyPolicies, kFewFaults),
                         lostReplyName);

TEST_P(FencedLostReply, XAMB12_TheTokenIsThatOfTheOneHold) {
  for (const Face face : kFaces) {
    const std::string name = std::string("first-") + rlock::test::toString(face);
    const OwnerId owner = newOwner();
    FencedLock lock = client().getFencedLock(name);
    for (Token round = 1; round <= 2; ++round) {
      const auto fault = breakOnce(lua::fenced_acquire);
      EXPECT_EQ(tokenOf(runBy(face, lock.lockAndGetTokenAsync(owner))), std::to_string(round));
      EXPECT_EQ(fault.hits(), 1U);
      deliverLate();
      EXPECT_EQ(counter(name), round);
      EXPECT_EQ(countOnServer(name, owner), "1");
      EXPECT_EQ(tokenOf(runBy(face, lock.getTokenAsync(owner))), std::to_string(round));
      EXPECT_EQ(outcomeOf(runBy(face, lock.unlockAsync(owner))), "ok");
    }
  }
}

TEST_P(FencedLostReply, ANestedHoldKeepsTheToken) {
  const OwnerId owner = newOwner();
  FencedLock lock = client().getFencedLock("nested");
  EXPECT_EQ(tokenOf(lock.lockAndGetTokenAsync(owner).wait()), "1");
  const auto fault = breakOnce(lua::fenced_acquire);
  EXPECT_EQ(tokenOf(lock.lockAndGetTokenAsync(owner).wait()), "1");
  EXPECT_EQ(fault.hits(), 1U);
  deliverLate();
  EXPECT_EQ(countOnServer("nested", owner), "2");
  const auto release = breakOnce(lua::lock_release);
  EXPECT_EQ(outcomeOf(lock.unlockAsync(owner).wait()), "ok");
  EXPECT_EQ(release.hits(), 1U);
  deliverLate();
  EXPECT_EQ(countOnServer("nested", owner), "1");
  EXPECT_EQ(outcomeOf(lock.unlockAsync(owner).wait()), "ok");
  EXPECT_FALSE(raw().exists("nested"));
  EXPECT_EQ(counter("nested"), 1U);
}

TEST_P(FencedLostReply, AnAttemptThatWasGivenUpLeavesNoHold) {
  const OwnerId owner = newOwner();
  FencedLock lock = client().getFencedLock("late");
  const auto fault = breakOnce(lua::fenced_acquire);
  std::string got;
  // A slow machine may not even send it in that time, which is a plain no.
  const Deadline end(kLong);
  do {
    got = tokenOf(lock.tryLockAndGetTokenAsync(120ms, {}, owner).wait());
  } while (!fault.waitForHits(1, 100ms) && !end.expired());
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_NE(got, "none");
  // The late request comes after the doubt was reconciled.
  EXPECT_EVENTUALLY(kLong, client().stats().reconnects > 0);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.getToken()); }), "notOwner");
  deliverLate();
  if (got == "1") {
    EXPECT_EQ(outcomeOf(lock.unlockAsync(owner).wait()), "ok");
  }
  EXPECT_EVENTUALLY(kLong, !raw().exists("late"));
  const Token before = counter("late");
  EXPECT_EQ(tokenOf(lock.lockAndGetTokenAsync(owner).wait()), std::to_string(before + 1));
}

TEST_P(FencedLostReply, QuestionsAndForceAreAskedAgain) {
  FencedLock lock = client().getFencedLock("asked");
  // No renewal may follow a request that is dropped: TCP loses what is behind it, too.
  EXPECT_EQ(lock.lockAndGetToken(60s), 1U);
  EXPECT_EQ(lock.getToken(), 1U);
  const auto question = breakOnce(lua::fenced_token);
  EXPECT_EQ(lock.getToken(), 1U);
  EXPECT_EQ(question.hits(), 1U);
  breakOnce(lua::lock_force_release);
  EXPECT_TRUE(lock.forceUnlock());
  deliverLate();
  EXPECT_EQ(counter("asked"), 1U);
  EXPECT_EQ(lock.lockAndGetToken(), 2U);
}

TEST_F(LockTest, Fenced_ARenewalTakesAStrangersExpiryFromTheCounter) {
  Client client = connect(kWatchdog);
  FencedLock lock = client.getFencedLock("expiring");
  EXPECT_EQ(lock.lockAndGetToken(), 1U);
  raw().run({"PEXPIRE", "redisson_lock_token:{expiring}", "60000"});
  EXPECT_EVENTUALLY(kLong, raw().pttl("redisson_lock_token:{expiring}") == -1);
  lock.unlock();
}

class FencedWeakUser : public SafetyTest {};

TEST_F(FencedWeakUser, TombstonesWhereTheServerForbidsKilling) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"});
  raw().denyClient("weak", {"kill"});
  Options settings = proxied();
  settings.username = "weak";
  settings.password = "pw";
  settings.watchdogTimeout = 30s;
  settings.commandTimeout = 250ms;
  Client client = Client::connect(settings);
  FencedLock lock = client.getFencedLock("weak");
  EXPECT_EQ(lock.lockAndGetToken(), 1U);
  lock.unlock();
  for (const auto* script : {&lua::fenced_acquire, &lua::lock_release}) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    proxy().addRule(running(*script), TcpProxy::Action::stallRequest(), once);
  }
  EXPECT_EQ(lock.lockAndGetToken(), 2U);
  proxy().releaseStalled();
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(onlyEntry("weak").second, "1");
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_FALSE(raw().exists("weak"));
  EXPECT_EQ(raw().get(counterOf("weak")), "2");
}

TEST_F(FencedWeakUser, WhatIsForbiddenAfterTheGrantUndoesIt) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-persist"});
  Options settings = options();
  settings.username = "weak";
  settings.password = "pw";
  Client client = Client::connect(settings);
  FencedLock lock = client.getFencedLock("weak");
  EXPECT_EQ(lock.lockAndGetToken(), 1U) << "the counter has no expiry that would have to go";
  // One more hold, while the counter gets one.
  raw().run({"PEXPIRE", counterOf("weak"), "60000"});
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.lockAndGetToken()); }), "denied");
  EXPECT_EQ(onlyEntry("weak").second, "1");
  lock.unlock();
  EXPECT_FALSE(raw().exists("weak"));
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.lockAndGetToken()); }), "denied");
  EXPECT_FALSE(raw().exists("weak")) << "nobody waits for a lock that nobody has";
  EXPECT_GT(raw().pttl(counterOf("weak")), 0);
}

}  // namespace
}  // namespace rlock::test
