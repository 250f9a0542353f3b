// SPDX-License-Identifier: Apache-2.0

// A release or a count goes on when its caller's time is over, until it is certain, and takes
// effect once however often it is sent.

#include "integration/counter_harness.hpp"
#include "integration/lost_reply_harness.hpp"
#include "integration/permit_harness.hpp"

namespace rlock::test {
namespace {

/// Everything that gives something back or counts. Each adds one to what effects() counts.
enum class Change {
  release,
  releaseIfExists,
  addPermits,
  countDown,
  permitRelease,
  permitTryRelease,
  permitAdd
};
constexpr Change kChanges[] = {Change::release,
                               Change::releaseIfExists,
                               Change::addPermits,
                               Change::countDown,
                               Change::permitRelease,
                               Change::permitTryRelease,
                               Change::permitAdd};

const char* nameOf(Change change) {
  switch (change) {
    case Change::release:
      return "release";
    case Change::releaseIfExists:
      return "releaseIfExists";
    case Change::addPermits:
      return "addPermits";
    case Change::countDown:
      return "countDown";
    case Change::permitRelease:
      return "permitRelease";
    case Change::permitTryRelease:
      return "permitTryRelease";
    case Change::permitAdd:
      return "permitAdd";
  }
  return "unknown";
}

const lua::Script& scriptOf(Change change) {
  switch (change) {
    case Change::countDown:
      return lua::latch_count_down;
    case Change::permitRelease:
    case Change::permitTryRelease:
      return lua::permit_release;
    case Change::permitAdd:
      return lua::permit_change;
    default:
      return lua::semaphore_add;
  }
}

class CounterDelivery : public PermitChecks<CounterTest> {
 protected:
  Options impatient() {
    Options options = proxied();
    options.callTimeout = 200ms;
    options.commandTimeout = 200ms;
    options.reconnectDelayMin = 5ms;
    options.reconnectDelayMax = 20ms;
    options.retryDelayMax = 20ms;
    return options;
  }

  /// Makes the state that the change needs, by a client that is patient.
  void prepare(Change change) {
    raw().flushAll();
    Client client = connect();
    switch (change) {
      case Change::countDown:
        ASSERT_TRUE(client.getCountDownLatch("d").trySetCount(10));
        break;
      case Change::permitRelease:
      case Change::permitTryRelease:
        ASSERT_TRUE(client.getPermitExpirableSemaphore("d").trySetPermits(1));
        id_ = *client.getPermitExpirableSemaphore("d").tryAcquire();
        break;
      case Change::permitAdd:
        ASSERT_TRUE(client.getPermitExpirableSemaphore("d").trySetPermits(0));
        break;
      default:
        ASSERT_TRUE(client.getSemaphore("d").trySetPermits(0));
        break;
    }
  }

  [[nodiscard]] Result<void> make(Client& client, Change change) {
    switch (change) {
      case Change::release:
        return run(client.getSemaphore("d").releaseAsync());
      case Change::releaseIfExists:
        return toVoid(run(client.getSemaphore("d").releaseIfExistsAsync()));
      case Change::addPermits:
        return run(client.getSemaphore("d").addPermitsAsync(1));
      case Change::countDown:
        return run(client.getCountDownLatch("d").countDownAsync());
      case Change::permitRelease:
        return run(client.getPermitExpirableSemaphore("d").releaseAsync(id_));
      case Change::permitTryRelease:
        return toVoid(run(client.getPermitExpirableSemaphore("d").tryReleaseAsync(id_)));
      case Change::permitAdd:
        return run(client.getPermitExpirableSemaphore("d").addPermitsAsync(1));
    }
    return {};
  }

  [[nodiscard]] long effects(Change change) {
    const long value = std::stol(raw().get("d").value_or("0"));
    return change == Change::countDown ? 10 - value : value;
  }

  /// No connection, and none to be had.
  void takeServerAway() {
    proxy().refuseConnections(true);
    proxy().cutAll();
  }

 private:
  template <class T>
  static Result<void> toVoid(const Result<T>& result) {
    if (!result.has_value()) {
      return result.error();
    }
    return {};
  }

  std::string id_;
};

INSTANTIATE_TEST_SUITE_P(Faces, CounterDelivery, ::testing::ValuesIn(kFaces), faceName);

TEST_P(CounterDelivery, GoesOnWhenNoServerWasFoundInTime) {
  for (const Change change : kChanges) {
    SCOPED_TRACE(nameOf(change));
    Client client = Client::connect(impatient());
    prepare(change);
    takeServerAway();
    // Else the request may go out on the connection whose end the client is yet to learn of.
    ASSERT_EVENTUALLY(kLong, !client.connected());
    const Stopwatch watch;
    const auto result = make(client, change);
    EXPECT_LT(watch.elapsedMs(), scaled(2s));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().errc(), Errc::connectionFailed) << result.error().what();
    EXPECT_NE(std::string(result.error().what()).find("goes on in the background"),
              std::string::npos)
        << result.error().what();
    EXPECT_EQ(effects(change), 0);
    proxy().heal();
    EXPECT_EVENTUALLY(kLong, effects(change) == 1);
    client.close(kLong);
    EXPECT_EQ(effects(change), 1);
  }
}

TEST_P(CounterDelivery, TakesEffectOnceWhenTheReplyIsLostInAnOutage) {
  for (const Change change : kChanges) {
    SCOPED_TRACE(nameOf(change));
    TcpProxy::RuleOptions once;
    once.limit = 1;
    for (const auto& action :
         {TcpProxy::Action::swallowReplyAndCut(), TcpProxy::Action::dropRequest()}) {
      Client client = Client::connect(impatient());
      prepare(change);
      const auto fault = proxy().addRule(running(scriptOf(change)), action, once);
      // Before the cut, lest the client be back before this thread.
      proxy().refuseConnections(true);
      auto caller = inThread([&] { return make(client, change); });
      ASSERT_TRUE(fault.waitForHits(1, kLong));
      takeServerAway();
      const auto result = caller.get();
      ASSERT_FALSE(result.has_value());
      EXPECT_NE(std::string(result.error().what()).find("goes on in the background"),
                std::string::npos)
          << result.error().what();
      proxy().heal();
      client.close(kLong);
      EXPECT_EQ(effects(change), 1);
    }
  }
}

TEST_P(CounterDelivery, ARequestThatIsLostAgainAndAgainTakesEffectOnce) {
  Options settings = impatient();
  settings.callTimeout = 20s;
  settings.commandTimeout = scaled(2s);
  Client client = Client::connect(settings);
  for (const Change change : {Change::release, Change::countDown, Change::permitAdd}) {
    SCOPED_TRACE(nameOf(change));
    prepare(change);
    ASSERT_TRUE(make(client, change).has_value());
    TcpProxy::RuleOptions thrice;
    thrice.limit = 3;
    const auto change1 =
        proxy().addRule(running(scriptOf(change)), TcpProxy::Action::swallowReplyAndCut(), thrice);
    const auto again1 =
        proxy().addRule(running(lua::change_again), TcpProxy::Action::swallowReplyAndCut(), thrice);
    EXPECT_TRUE(make(client, change).has_value());
    EXPECT_EQ(change1.hits(), 3U);
    EXPECT_EQ(again1.hits(), 3U);
    EXPECT_EQ(effects(change), 2);
    proxy().heal();
  }
}

TEST_P(CounterDelivery, APassingRefusalIsTheCallersUntilItHasLeft) {
  raw().run({"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"});
  Options settings = impatient();
  settings.callTimeout = scaled(1500ms);
  settings.commandTimeout = scaled(1s);
  settings.username = "app";
  settings.password = "pw";
  Client client = Client::connect(settings);
  prepare(Change::release);
  raw().run({"ACL", "SETUSER", "app", "-incrby"});
  const auto refused = make(client, Change::release);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().errc(), Errc::denied);
  EXPECT_EQ(std::string(refused.error().what()).find("background"), std::string::npos);
  raw().run({"ACL", "SETUSER", "app", "+incrby"});
  EXPECT_EQ(outcomeOf(make(client, Change::release)), "ok");
  EXPECT_EQ(effects(Change::release), 1) << "what was refused came back";
  // A caller that was told of the outage cannot do it again.
  takeServerAway();
  ASSERT_FALSE(make(client, Change::release).has_value());
  raw().run({"ACL", "SETUSER", "app", "-incrby"});
  proxy().heal();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(effects(Change::release), 1);
  raw().run({"ACL", "SETUSER", "app", "+incrby"});
  EXPECT_EVENTUALLY(kLong, effects(Change::release) == 2);
}

TEST_P(CounterDelivery, WhatIsRefusedInTheBackgroundIsDoneWhenItIsAllowed) {
  raw().run({"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"});
  Options settings = impatient();
  settings.username = "app";
  settings.password = "pw";
  for (const Change change : {Change::release, Change::countDown}) {
    SCOPED_TRACE(nameOf(change));
    const std::string command = change == Change::countDown ? "decr" : "incrby";
    Client client = Client::connect(settings);
    prepare(change);
    takeServerAway();
    ASSERT_FALSE(make(client, change).has_value());
    raw().run({"ACL", "SETUSER", "app", "-" + command});
    proxy().heal();
    const auto tries = proxy().addRule(running(scriptOf(change)), TcpProxy::Action::pass());
    // The first of two was refused when the second comes.
    ASSERT_TRUE(tries.waitForHits(2, kLong));
    EXPECT_EQ(effects(change), 0);
    raw().run({"ACL", "SETUSER", "app", "+" + command});
    EXPECT_EVENTUALLY(kLong, effects(change) == 1);
    client.close(kLong);
    EXPECT_EQ(effects(change), 1) << "it was counted twice";
  }
}

TEST_P(CounterDelivery, ClosingWaitsForItAndSaysWhatItGivesUp) {
  for (const Change change : {Change::release, Change::countDown, Change::permitRelease}) {
    SCOPED_TRACE(nameOf(change));
    Client client = Client::connect(impatient());
    prepare(change);
    takeServerAway();
    ASSERT_FALSE(make(client, change).has_value());
    auto healer = inThread([&] {
      std::this_thread::sleep_for(100ms);
      proxy().heal();
    });
    client.close(kLong);
    healer.get();
    EXPECT_EQ(effects(change), 1);

    Client other = Client::connect(impatient());
    prepare(change);
    takeServerAway();
    ASSERT_FALSE(make(other, change).has_value());
    log().clear();
    const Stopwatch watch;
    other.close(150ms);
    EXPECT_LT(watch.elapsedMs(), scaled(2s));
    EXPECT_TRUE(log().waitFor("given up", kLong));
    proxy().heal();
    EXPECT_EQ(effects(change), 0);
  }
}

TEST_P(CounterDelivery, ClosingIsOverWithTheLastDelivery) {
  Client client = Client::connect(impatient());
  Semaphore semaphore = client.getSemaphore("d");
  prepare(Change::release);
  takeServerAway();
  ASSERT_FALSE(make(client, Change::release).has_value());
  auto closing = inThread([&] {
    const Stopwatch watch;
    client.close(scaled(kLong));
    return watch.elapsedMs();
  });
  const auto ask = [&] { static_cast<void>(semaphore.availablePermits()); };
  EXPECT_EVENTUALLY(kLong, outcomeOf(ask) == "closed");
  proxy().heal();
  EXPECT_LT(closing.get(), scaled(kLong) / 2);
  EXPECT_EQ(effects(Change::release), 1);
}

TEST_P(CounterDelivery, WhatCannotEverBeDoneEnds) {
  Client client = Client::connect(impatient());
  prepare(Change::release);
  takeServerAway();
  ASSERT_FALSE(make(client, Change::release).has_value());
  raw().del("d");
  raw().run({"HSET", "d", "field", "1"});
  proxy().heal();
  EXPECT_TRUE(log().waitFor("given up", kLong));
  const Stopwatch watch;
  client.close(kLong);
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
}

// ---- The marker

class NumberedScripts : public LockTest {
 protected:
  Value add(const std::string& number) {
    return raw().command({"EVAL",
                          std::string(lua::semaphore_add.body),
                          "2",
                          "s",
                          "marker",
                          number,
                          "60000",
                          "1",
                          "0",
                          "PUBLISH",
                          "channel"});
  }
  Value again(const std::string& number) {
    return raw().command(
        {"EVAL", std::string(lua::change_again.body), "1", "marker", number, "60000"});
  }
};

TEST_F(NumberedScripts, OneThatMayHaveRunDoesNothingWithoutItsKey) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  add("7");
  EXPECT_EQ(raw().get("s"), "1");
  raw().del("marker");
  EXPECT_TRUE(add("7!").isError());
  EXPECT_EQ(raw().get("s"), "1");
}

TEST_F(NumberedScripts, PreparingOneThatHasRunKeepsItsAnswer) {
  raw().set("marker", "7:1", 20s);
  EXPECT_EQ(again("7").integer(), 1);
  EXPECT_EQ(raw().get("marker"), "7:1");
  EXPECT_GT(raw().pttl("marker"), 50'000) << "it may be sent again for as long as that";
}

TEST_F(NumberedScripts, OneThatIsPreparedRunsOnceInWhateverOrderItsCopiesCome) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  EXPECT_EQ(again("7").integer(), 0);
  EXPECT_GT(raw().pttl("marker"), 0);
  // The first copy comes after all.
  add("7");
  add("7!");
  EXPECT_EQ(again("7").integer(), 1);
  add("7!");
  add("7");
  EXPECT_EQ(raw().get("s"), "1");
  // Preparing is not for a request that is over.
  add("8");
  EXPECT_TRUE(again("7").isError());
  EXPECT_TRUE(add("7!").isError());
  EXPECT_EQ(raw().get("s"), "2");
}

}  // namespace
}  // namespace rlock::test
