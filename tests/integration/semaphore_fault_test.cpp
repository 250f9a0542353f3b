// SPDX-License-Identifier: Apache-2.0

// That no permit is minted or lost, whatever the network does.

#include "integration/counter_harness.hpp"
#include "integration/lost_reply_harness.hpp"

#include <random>

namespace rlock::test {
namespace {

class SemaphoreLostReply : public LostReplyTest {
 protected:
  void SetUp() override {
    LostReplyTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    Semaphore warm = client().getSemaphore("warm");
    warm.trySetPermits(3);
    warm.acquire();
    warm.release();
    warm.drainPermits();
    warm.remove();
    raw().flushAll();
  }

  void expectMarkersEnd() {
    for (const std::string& key : raw().keys("rlock_request:*")) {
      // For as long as a request that was given up may still come.
      EXPECT_GT(raw().pttl(key), 800'000) << key;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Faults,
                         SemaphoreLostReply,
                         ::testing::Combine(kLostReplyPolicies, kAllFaults),
                         lostReplyName);

TEST_P(SemaphoreLostReply, C7_XAMB8_AcquireTakesOnce) {
  for (const Face face : kFaces) {
    const std::string name = std::string("acquire-") + rlock::test::toString(face);
    Semaphore semaphore = client().getSemaphore(name);
    raw().set(name, "10");
    const auto fault = breakOnce(lua::semaphore_acquire);
    EXPECT_EQ(outcomeOf(runBy(face, semaphore.acquireAsync(2))), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().get(name), "8");
    EXPECT_EQ(outcomeOf(runBy(face, semaphore.acquireAsync(3))), "ok");
    deliverLate();
    EXPECT_EQ(raw().get(name), "5");
  }
  expectMarkersEnd();
}

TEST_P(SemaphoreLostReply, C7_ARefusedAcquireTakesNothing) {
  raw().set("refused", "1");
  Semaphore semaphore = client().getSemaphore("refused");
  const auto fault = breakOnce(lua::semaphore_acquire);
  EXPECT_EQ(answerOf(semaphore.tryAcquireAsync(2).wait()), "false");
  EXPECT_EQ(fault.hits(), 1U);
  raw().set("refused", "10");
  deliverLate();
  EXPECT_EQ(raw().get("refused"), "10");
}

TEST_P(SemaphoreLostReply, C7_ACallerWhoseTimeIsUpFirst) {
  for (const Face face : kFaces) {
    const std::string name = std::string("late-") + rlock::test::toString(face);
    Semaphore semaphore = client().getSemaphore(name);
    raw().set(name, "4");
    const auto fault = breakOnce(lua::semaphore_acquire);
    std::string answer;
    // A slow machine may not even send it in that time, which is a plain no.
    for (const Deadline end(kLong); fault.hits() == 0 && !end.expired();) {
      // The permits that the attempt before may have taken after all are given back first.
      EXPECT_EVENTUALLY(kLong, raw().get(name) == "4");
      answer = answerOf(runBy(face, semaphore.tryAcquireAsync(3, 120ms)));
      EXPECT_TRUE(answer != "false" || fault.hits() == 0) << answer;
      if (answer != "false") {
        static_cast<void>(fault.waitForHits(1, 1s));
      }
    }
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EVENTUALLY(kLong, raw().get(name) == (answer == "true" ? "1" : "4"));
    // Nothing follows.
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(raw().get(name), answer == "true" ? "1" : "4");
  }
}

TEST_P(SemaphoreLostReply, C7_XAMB7_ReleaseAddsOnce) {
  for (const Face face : kFaces) {
    const std::string name = std::string("release-") + rlock::test::toString(face);
    Semaphore semaphore = client().getSemaphore(name);
    auto fault = breakOnce(lua::semaphore_add);
    EXPECT_EQ(outcomeOf(runBy(face, semaphore.releaseAsync(2))), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().get(name), "2");
    fault = breakOnce(lua::semaphore_add);
    EXPECT_EQ(outcomeOf(runBy(face, semaphore.addPermitsAsync(-3))), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().get(name), "-1");
    fault = breakOnce(lua::semaphore_add);
    EXPECT_EQ(answerOf(runBy(face, semaphore.releaseIfExistsAsync(5))), "true");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().get(name), "4");
  }
  expectMarkersEnd();
}

TEST_P(SemaphoreLostReply, C7_SetDrainAndRemoveAnswerForTheirOwnRun) {
  for (const Face face : kFaces) {
    const std::string name = std::string("others-") + rlock::test::toString(face);
    Semaphore semaphore = client().getSemaphore(name);
    auto fault = breakOnce(lua::counter_try_set);
    EXPECT_EQ(answerOf(runBy(face, semaphore.trySetPermitsAsync(7))), "true");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().get(name), "7");
    fault = breakOnce(lua::semaphore_drain);
    EXPECT_EQ(runBy(face, semaphore.drainPermitsAsync()).value(), 7);
    EXPECT_EQ(fault.hits(), 1U);
    raw().set(name, "5");
    deliverLate();
    EXPECT_EQ(raw().get(name), "5");
    fault = breakOnce(lua::counter_remove);
    EXPECT_EQ(answerOf(runBy(face, semaphore.removeAsync())), "true");
    EXPECT_EQ(fault.hits(), 1U);
    raw().set(name, "6");
    deliverLate();
    EXPECT_EQ(raw().get(name), "6");
  }
}

TEST_P(SemaphoreLostReply, C7_TheReconciliationItselfIsLost) {
  raw().set("reconcile", "5");
  Semaphore semaphore = client().getSemaphore("reconcile");
  const auto acquire = breakOnce(lua::semaphore_acquire);
  breakOnce(lua::semaphore_reconcile);
  EXPECT_EQ(answerOf(semaphore.tryAcquireAsync(2, 20s).wait()), "true");
  EXPECT_EQ(acquire.hits(), 1U);
  // The late requests belong to numbers that are used up.
  EXPECT_EQ(answerOf(semaphore.tryAcquireAsync(1).wait()), "true");
  deliverLate();
  EXPECT_EQ(raw().get("reconcile"), "2");
}

TEST_P(SemaphoreLostReply, C7_WithoutAnAnswerItIsSaidWhatBecomesOfIt) {
  Options impatient = settings();
  impatient.callTimeout = 300ms;
  Client client = Client::connect(impatient);
  Semaphore semaphore = client.getSemaphore("doubt");
  semaphore.release();
  proxy().addRule(running(lua::semaphore_add), actionOf(std::get<1>(GetParam())));
  proxy().addRule(running(lua::semaphore_drain), actionOf(std::get<1>(GetParam())));
  const auto expectSaid = [](const auto& result, std::string_view what) {
    ASSERT_FALSE(result.has_value());
    EXPECT_TRUE(result.error().errc() == Errc::timedOut ||
                result.error().errc() == Errc::connectionFailed)
        << result.error().what();
    EXPECT_NE(result.error().message().find(what), std::string::npos) << result.error().what();
  };
  for (const Face face : kFaces) {
    expectSaid(runBy(face, semaphore.releaseAsync()), "goes on in the background");
  }
  expectSaid(runBy(Face::blocking, client.getSemaphore("other").drainPermitsAsync()), "not known");
  proxy().heal();
  client.close(kLong);
  EXPECT_EQ(raw().get("doubt"), "5");
}

TEST_P(SemaphoreLostReply, C7_AtTheMemoryLimitALostReleaseAddsOnce) {
  Semaphore semaphore = client().getSemaphore("full");
  const auto fault = breakOnce(lua::semaphore_add);
  raw().configSet("maxmemory-policy", "noeviction");
  raw().configSet("maxmemory", "1");
  EXPECT_EQ(outcomeOf([&] { semaphore.release(2); }), "ok");
  EXPECT_EQ(fault.hits(), 1U);
  deliverLate();
  EXPECT_EQ(raw().get("full"), "2");
  raw().configSet("maxmemory", "0");
}

TEST_P(SemaphoreLostReply, C7_AtTheMemoryLimitALostAcquireGivesBack) {
  raw().set("full", "4");
  Semaphore semaphore = client().getSemaphore("full");
  const auto fault = breakOnce(lua::semaphore_acquire);
  // The client cannot ask what became of it before its caller has left.
  proxy().refuseConnections(true);
  std::stop_source stop;
  auto caller = inThread(
      [&] { return answerOf([&] { return semaphore.tryAcquire(stop.get_token(), 3, 60s); }); });
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  raw().configSet("maxmemory-policy", "noeviction");
  raw().configSet("maxmemory", "1");
  stop.request_stop();
  EXPECT_EQ(caller.get(), "cancelled");
  proxy().heal();
  EXPECT_EVENTUALLY(kLong, raw().get("full") == "4");
  raw().configSet("maxmemory", "0");
}

/// The scripts themselves, with requests in an order that a network can bring about.
class CounterScript : public LockTest {
 protected:
  Value run(const lua::Script& script, int number, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {std::to_string(number), "60000"});
    return raw().eval(script.body, {"counter", "marker"}, arguments);
  }
};

TEST_F(CounterScript, C7_ARequestThatComesAfterALaterOneDoesNothing) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  const std::vector<std::pair<lua::Script, std::vector<std::string>>> scripts{
      {lua::semaphore_acquire, {"1"}},
      {lua::semaphore_add, {"1", "0", "PUBLISH", "channel"}},
      {lua::semaphore_drain, {}},
      {lua::counter_try_set, {"3", "0", "PUBLISH", "channel", "3"}},
      {lua::counter_remove, {"PUBLISH", "channel", ""}},
      {lua::latch_count_down, {"PUBLISH", "channel", "0"}}};
  for (const auto& [script, arguments] : scripts) {
    raw().flushAll();
    raw().set("counter", "10");
    EXPECT_FALSE(run(script, 5, arguments).isError());
    EXPECT_TRUE(raw().get("marker").value_or("").starts_with("5:"));
    EXPECT_GT(raw().pttl("marker"), 0);
    // Its own repetition changes nothing either.
    raw().set("counter", "100");
    EXPECT_FALSE(run(script, 5, arguments).isError());
    EXPECT_EQ(raw().get("counter"), "100");
    const auto late = run(script, 4, arguments);
    ASSERT_TRUE(late.isError()) << late;
    EXPECT_TRUE(late.error().find("RLOCKSETTLED") != std::string::npos) << late;
    EXPECT_EQ(raw().get("counter"), "100");
    EXPECT_TRUE(raw().get("marker").value_or("").starts_with("5:"));
  }
}

TEST_F(CounterScript, C7_AReconciliationThatComesAfterALaterRequestDoesNothing) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  raw().set("counter", "10");
  const std::vector<std::string> giveBack{"2", "0", "PUBLISH", "channel"};
  EXPECT_FALSE(run(lua::semaphore_acquire, 5, {"2"}).isError());
  run(lua::semaphore_reconcile, 4, giveBack);
  EXPECT_EQ(raw().get("marker"), "5:1");
  EXPECT_EQ(raw().get("counter"), "8");
  run(lua::semaphore_reconcile, 5, giveBack);
  EXPECT_EQ(raw().get("marker"), "5:0");
  EXPECT_EQ(raw().get("counter"), "10");
  run(lua::semaphore_reconcile, 5, giveBack);
  EXPECT_EQ(raw().get("counter"), "10");
  // A request that was given up before it ran never runs.
  run(lua::semaphore_reconcile, 6, giveBack);
  EXPECT_TRUE(run(lua::semaphore_acquire, 6, {"2"}).isError());
  EXPECT_EQ(raw().get("counter"), "10");
  // A semaphore that is gone does not come back.
  EXPECT_FALSE(run(lua::semaphore_acquire, 7, {"2"}).isError());
  raw().del("counter");
  run(lua::semaphore_reconcile, 7, giveBack);
  EXPECT_FALSE(raw().exists("counter"));
}

// It is sent again until it is done: a key that says so before would make it look done.
TEST_F(CounterScript, C7_WhatIsForbiddenHalfwayIsDoneByItsRepetition) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"});
  raw().run({"AUTH", "weak", "pw"});
  const auto refused = [&](const std::string& word,
                           const lua::Script& script,
                           int number,
                           const std::vector<std::string>& arguments) {
    raw().run({"ACL", "SETUSER", "weak", "-" + word});
    const bool failed = run(script, number, arguments).isError();
    raw().run({"ACL", "SETUSER", "weak", "+" + word});
    return failed;
  };
  const std::vector<std::string> giveBack{"2", "0", "PUBLISH", "channel"};
  raw().set("counter", "10");
  EXPECT_FALSE(run(lua::semaphore_acquire, 5, {"2"}).isError());
  for (const std::string word : {"exists", "incrby", "set"}) {
    EXPECT_TRUE(refused(word, lua::semaphore_reconcile, 5, giveBack)) << word;
    EXPECT_EQ(raw().get("counter"), "8") << word;
  }
  EXPECT_FALSE(run(lua::semaphore_reconcile, 5, giveBack).isError());
  EXPECT_EQ(raw().get("counter"), "10");

  int number = 5;
  for (const lua::Script* script : {&lua::latch_count_down, &lua::counter_remove}) {
    const std::vector<std::string> arguments{"PUBLISH", "channel", "0"};
    raw().set("counter", "1");
    ++number;
    EXPECT_TRUE(refused("del", *script, number, arguments));
    EXPECT_TRUE(raw().exists("counter"));
    EXPECT_EQ(run(*script, number, arguments).integer(), 1);
    EXPECT_FALSE(raw().exists("counter"));
  }
  reconnectRaw();
}

TEST_F(CounterScript, C7_WaitersAreToldOfWhatAReconciliationGivesBack) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  raw().set("counter", "3");
  RawSubscriber listener(rawOptions());
  listener.subscribe("channel");
  EXPECT_FALSE(run(lua::semaphore_acquire, 5, {"2"}).isError());
  EXPECT_FALSE(run(lua::semaphore_reconcile, 5, {"2", "0", "PUBLISH", "channel"}).isError());
  ASSERT_TRUE(listener.waitFor(1, kLong));
  EXPECT_EQ(listener.messages()[0].payload, "3");
}

// Its repetition would take them for its own, and its reconciliation would give them back.
TEST_F(CounterScript, C7_PermitsThatWereForbiddenAreNotTakenForTaken) {
  RLOCK_ONE_MASTER_ONLY("runs scripts with keys of several slots");
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-decrby"});
  raw().run({"AUTH", "weak", "pw"});
  raw().set("counter", "10");
  EXPECT_TRUE(run(lua::semaphore_acquire, 5, {"2"}).isError());
  EXPECT_TRUE(run(lua::semaphore_acquire, 5, {"2"}).isError());
  EXPECT_FALSE(run(lua::semaphore_reconcile, 5, {"2", "0", "PUBLISH", "channel"}).isError());
  EXPECT_EQ(raw().get("counter"), "10");
  reconnectRaw();
}

class SemaphoreLostReplySlow : public LostReplyTest {};

INSTANTIATE_TEST_SUITE_P(Policies,
                         SemaphoreLostReplySlow,
                         ::testing::Combine(kLostReplyPolicies,
                                            ::testing::Values(Fault::swallowReplyAndCut)),
                         lostReplyName);

TEST_P(SemaphoreLostReplySlow, C7_XPROP3_CutsUnderLoadMintNothingAndLoseNothing) {
  constexpr int kThreads = 8;
  constexpr int kAll = 6;
  raw().set("load", std::to_string(kAll));
  Options patient = settings();
  // So that every release has its answer.
  patient.callTimeout = 60s;
  patient.safetyPoll = 100ms;
  Client client = Client::connect(patient);
  std::atomic<bool> end{false};
  std::atomic<int> out{0};
  std::atomic<int> overdrawn{0};
  std::atomic<long> acquired{0};
  std::vector<std::future<std::vector<std::string>>> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.push_back(inThread([&, thread] {
      std::vector<std::string> odd;
      std::minstd_rand random(static_cast<unsigned>(thread) + 1);
      Semaphore semaphore = client.getSemaphore("load");
      while (!end.load()) {
        const int permits = static_cast<int>(random() % 3) + 1;
        const std::string got = answerOf([&] { return semaphore.tryAcquire(permits, 300ms); });
        if (got != "true") {
          if (got != "false" && got != "timedOut" && got != "connectionFailed") {
            odd.push_back("tryAcquire " + got);
          }
          continue;
        }
        ++acquired;
        if ((out += permits) > kAll) {
          ++overdrawn;
        }
        out -= permits;
        const std::string gone = outcomeOf([&] { semaphore.release(permits); });
        if (gone != "ok") {
          odd.push_back("release " + gone);
        }
      }
      return odd;
    }));
  }
  breakUnderLoad(proxy(), [] {});
  end = true;
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), std::vector<std::string>());
  }
  EXPECT_GT(acquired.load(), 20);
  EXPECT_EQ(overdrawn.load(), 0);
  EXPECT_EVENTUALLY(kLong, raw().get("load") == std::to_string(kAll));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(raw().get("load"), std::to_string(kAll));
  EXPECT_GT(client.stats().lostReplies, 0U);
  EXPECT_LE(raw().keys("rlock_request:*").size(), 4U * kThreads);
}

class SemaphoreWeakUser : public LockTest {};

TEST_F(SemaphoreWeakUser, C7_AServerThatForbidsKilling) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"});
  raw().denyClient("weak", {"kill"});
  raw().set("weak", "5");
  Options settings = proxied();
  settings.username = "weak";
  settings.password = "pw";
  settings.commandTimeout = 250ms;
  settings.callTimeout = scaled(10 * settings.commandTimeout);
  Client client = Client::connect(settings);
  Semaphore semaphore = client.getSemaphore("weak");
  semaphore.acquire();
  for (const auto& action : {TcpProxy::Action::swallowReplyAndCut(),
                             TcpProxy::Action::stallRequest(),
                             TcpProxy::Action::stallReply()}) {
    raw().set("weak", "5");
    TcpProxy::RuleOptions once;
    once.limit = 1;
    const auto fault = proxy().addRule(running(lua::semaphore_acquire), action, once);
    EXPECT_EQ(outcomeOf([&] { semaphore.acquire(2); }), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    proxy().releaseStalled();
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(raw().get("weak"), "3");
  }
}

}  // namespace
}  // namespace rlock::test
