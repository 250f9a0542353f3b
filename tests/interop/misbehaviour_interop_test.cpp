// SPDX-License-Identifier: Apache-2.0

// Where Redisson leaves something behind, says nothing or forgets somebody: what becomes of rlock
// beside it.

#include "interop/interop_harness.hpp"
#include "support/tcp_proxy.hpp"
#include <rlock/options.hpp>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rlock::test::interop {
namespace {

constexpr std::string_view kName = "object";
constexpr std::string_view kChannel = "redisson_lock__channel:{object}";
constexpr std::string_view kReadWriteChannel = "redisson_rwlock:{object}";

/// Nobody enters because a lease is over, and Redisson's waiters have no other reason than a
/// message.
constexpr Peer::Tuning kByMessage{.watchdog = 60'000ms, .safetyPoll = 500ms};

std::string text(std::chrono::milliseconds time) {
  return std::to_string(time.count());
}

std::chrono::microseconds between(std::chrono::nanoseconds from, std::chrono::nanoseconds to) {
  return std::chrono::duration_cast<std::chrono::microseconds>(to - from);
}

std::chrono::nanoseconds now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

class MisbehaviourTest : public InteropTest {
 protected:
  using Arguments = std::vector<std::string>;

  Answer ask(Side side,
             int owner,
             std::string_view verb,
             std::string_view kind,
             const Arguments& arguments = {}) {
    return peer(side).ask(1, owner, verb, kind, kName, arguments);
  }
  Call start(Side side,
             int owner,
             std::string_view verb,
             std::string_view kind,
             const Arguments& arguments = {}) {
    return peer(side).start(1, owner, verb, kind, kName, arguments);
  }

  /// Until that many clients listen, and have had the time to look once more and to fall asleep,
  /// which nothing on the server shows.
  void awaitSleeper(std::string_view channel, std::int64_t sleepers = 1) {
    ASSERT_EVENTUALLY(5s, raw().numsub(channel) >= sleepers);
    std::this_thread::sleep_for(50ms);
  }

  /// When the server ends what is under this name, between these two times.
  struct Ending {
    std::chrono::nanoseconds earliest{};
    std::chrono::nanoseconds latest{};
  };
  Ending endOf(std::string_view name) {
    const std::chrono::nanoseconds before = now();
    const std::chrono::milliseconds left(raw().pttl(name));
    return {before + left, now() + left};
  }

  /// From the request that releases to the entry.
  static std::chrono::microseconds handOff(const Answer& released, const Answer& entered) {
    EXPECT_TRUE(released.ok()) << released;
    EXPECT_TRUE(entered.ok()) << entered;
    return between(released.begin, entered.end);
  }

  /// Redisson lets somebody in and says nothing: how long until the waiter of rlock enters.
  std::chrono::microseconds findUnannounced(std::string_view channel,
                                            std::string_view wanted,
                                            std::string_view released) {
    RawSubscriber messages(server());
    messages.subscribe(channel);
    const Call wait = start(Side::cpp, 1, "lock", wanted, {"-1"});
    EXPECT_EVENTUALLY(5s, raw().numsub(channel) > 1);
    const Answer release = ask(Side::java, 1, "unlock", released);
    const std::chrono::microseconds time = handOff(release, peer(Side::cpp).finish(wait));
    // Otherwise Redisson has got better and this tests nothing.
    EXPECT_EQ(messages.count(), 0U);
    EXPECT_LE(time, kByMessage.safetyPoll + scaled(300ms));
    return time;
  }

  /// The reply to the next script that has this key; `action` says how.
  static TcpProxy::Rule loseReply(TcpProxy& proxy, std::string_view key, TcpProxy::Action action) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    once.ignoreErrorReplies = true;
    return proxy.addRule(TcpProxy::script(key), std::move(action), once);
  }

  /// Longer takes what is not due to a message.
  static constexpr std::chrono::milliseconds kAtOnce{250};
};

// -------------------------------------------------------------------------------- stopped holder

TEST_F(MisbehaviourTest, IO9_ARedissonHolderThatSleptThroughItsLeaseDoesNotTouchOurs) {
  ASSERT_NO_FATAL_FAILURE(begin("Redisson's holder stopped", Subject{"plain", kNewest}));
  if (IsSkipped()) {
    return;
  }
  constexpr std::chrono::milliseconds kLease{1500};
  peer(Side::cpp).open(1, uri(), {});
  Peer& cpp = peer(Side::cpp);
  std::unique_ptr<Peer> sleeper = newPeer(Side::java);
  sleeper->open(1, uri(), {.watchdog = kLease});
  const std::vector<std::pair<std::string, std::string>> holds = {{"leased", text(kLease)},
                                                                  {"watched", "-1"}};
  std::vector<Call> waits;
  for (const auto& [name, lease] : holds) {
    ASSERT_ANSWER(sleeper->ask(1, 1, "lock", "plain", name, {lease}));
    waits.push_back(
        cpp.start(1, static_cast<int>(waits.size()) + 1, "lock", "plain", name, {"-1"}));
  }
  sleeper->process().stop();
  std::vector<Ending> ends;
  for (const auto& [name, lease] : holds) {
    ends.push_back(endOf(name));
  }
  for (std::size_t i = 0; i < holds.size(); ++i) {
    const Answer entered = cpp.finish(waits[i]);
    ASSERT_TRUE(entered.ok()) << entered;
    EXPECT_GE(between(ends[i].earliest, entered.end), -10ms) << holds[i].first;
    EXPECT_LE(between(ends[i].latest, entered.end), scaled(300ms)) << holds[i].first;
  }
  sleeper->process().cont();
  // Time for a renewal by Redisson, which would cut our 30 s down.
  std::this_thread::sleep_for(kLease / 2);
  for (std::size_t i = 0; i < holds.size(); ++i) {
    const std::string& name = holds[i].first;
    const int owner = static_cast<int>(i) + 1;
    EXPECT_EQ(sleeper->ask(1, 1, "isHeld", "plain", name).text(), "false");
    EXPECT_EQ(sleeper->ask(1, 1, "unlock", "plain", name).text(), "notOwner");
    EXPECT_EQ(cpp.ask(1, owner, "holdCount", "plain", name).text(), "1");
    EXPECT_EQ(raw().hgetall(name),
              (std::map<std::string, std::string>{{cpp.ownerField(1, owner), "1"}}));
    EXPECT_GT(raw().pttl(name), 10 * kLease.count());
    EXPECT_EQ(cpp.ask(1, owner, "unlock", "plain", name).text(), "true");
    EXPECT_FALSE(raw().exists(name));
  }
}

TEST_F(MisbehaviourTest, IO9_AnRlockHolderThatSleptThroughItsLeaseIsToldAndDoesNotTouchRedissons) {
  ASSERT_NO_FATAL_FAILURE(begin("rlock's holder stopped", Subject{"plain", kNewest}));
  if (IsSkipped()) {
    return;
  }
  constexpr std::chrono::milliseconds kLease{1500};
  peer(Side::java).open(1, uri(), {});
  Peer& java = peer(Side::java);
  std::unique_ptr<Peer> sleeper = newPeer(Side::cpp);
  sleeper->open(1, uri(), {.watchdog = kLease});
  struct Hold {
    std::string name;
    std::string lease;
    std::string loss;
  };
  const std::vector<Hold> holds = {{"leased", text(kLease), "expired"},
                                   {"watched", "-1", "unreachable"}};
  std::vector<Call> waits;
  for (const Hold& hold : holds) {
    ASSERT_ANSWER(sleeper->ask(1, 1, "hold", "plain", hold.name, {hold.lease}));
    waits.push_back(
        java.start(1, static_cast<int>(waits.size()) + 1, "lock", "plain", hold.name, {"-1"}));
  }
  sleeper->process().stop();
  for (const Call wait : waits) {
    ASSERT_ANSWER(java.finish(wait));
  }
  sleeper->process().cont();
  for (std::size_t i = 0; i < holds.size(); ++i) {
    const auto& [name, lease, loss] = holds[i];
    const int owner = static_cast<int>(i) + 1;
    EXPECT_EQ(sleeper->ask(1, 1, "lost", "plain", name, {"2000"}).text(), loss) << name;
    EXPECT_EQ(sleeper->ask(1, 1, "held", "plain", name).text(), "lost: " + loss);
    EXPECT_EQ(sleeper->ask(1, 1, "letGo", "plain", name).text(), "lost");
    EXPECT_EQ(sleeper->ask(1, 1, "unlock", "plain", name).text(), "notOwner");
    EXPECT_EQ(java.ask(1, owner, "holdCount", "plain", name).text(), "1");
    EXPECT_EQ(raw().hgetall(name),
              (std::map<std::string, std::string>{{java.ownerField(1, owner), "1"}}));
    EXPECT_GT(raw().pttl(name), 10 * kLease.count());
    EXPECT_EQ(java.ask(1, owner, "unlock", "plain", name).text(), "true");
  }
}

// ------------------------------------------------------------------------------------ lost reply

TEST_F(MisbehaviourTest, IO9_AHoldThatRedissonNeverHeardOfDelaysUsByItsLeaseOnly) {
  ASSERT_NO_FATAL_FAILURE(begin("reply to Redisson lost", Subject{"plain", kNewest}));
  if (IsSkipped()) {
    return;
  }
  constexpr std::chrono::milliseconds kLease{3000};
  TcpProxy proxy(server());
  peer(Side::java).open(1, proxy.uri(), {.watchdog = kLease, .commandTimeout = 1000ms});
  peer(Side::cpp).open(1, uri(), {});
  Peer& java = peer(Side::java);
  Peer& cpp = peer(Side::cpp);
  struct Hold {
    int owner;
    std::string name;
    std::string verb;
    Arguments arguments;
    Call acquire;
    Call wait;
    Ending end;
  };
  std::vector<Hold> holds = {{1, "leased", "lock", {text(kLease)}, {}, {}, {}},
                             {2, "watched", "lock", {"-1"}, {}, {}, {}},
                             {3, "tried", "tryLock", {"2000", text(kLease)}, {}, {}, {}}};
  // The server refuses a script at first that it has not seen before.
  ASSERT_ANSWER(java.ask(1, 1, "lock", "plain", kName, {"-1"}));
  ASSERT_ANSWER(java.ask(1, 1, "unlock", "plain", kName));
  std::vector<TcpProxy::Rule> lost;
  for (Hold& hold : holds) {
    lost.push_back(loseReply(proxy, hold.name, TcpProxy::Action::stallReply()));
    hold.acquire = java.start(1, hold.owner, hold.verb, "plain", hold.name, hold.arguments);
    ASSERT_TRUE(lost.back().waitForHits(1, 5s));
    hold.wait = cpp.start(1, hold.owner, "lock", "plain", hold.name, {"-1"});
  }
  std::string told;
  for (const Hold& hold : holds) {
    const Answer refused = java.finish(hold.acquire);
    EXPECT_NE(refused.text(), "true") << hold.name;
    told = "Redisson says " + refused.text();
    EXPECT_TRUE(raw().hget(hold.name, java.ownerField(1, hold.owner))) << hold.name;
  }
  for (Hold& hold : holds) {
    EXPECT_FALSE(cpp.finished(hold.wait)) << hold.name;
    hold.end = endOf(hold.name);
  }
  for (const Hold& hold : holds) {
    const Answer entered = cpp.finish(hold.wait);
    ASSERT_TRUE(entered.ok()) << entered;
    EXPECT_GE(between(hold.end.earliest, entered.end), -10ms) << hold.name;
    EXPECT_LE(between(hold.end.latest, entered.end), scaled(300ms)) << hold.name;
  }
  proxy.clearRules();
  proxy.cutAll();
  for (const Hold& hold : holds) {
    EXPECT_EQ(java.ask(1, hold.owner, "unlock", "plain", hold.name).text(), "notOwner")
        << hold.name;
    EXPECT_EQ(cpp.ask(1, hold.owner, "holdCount", "plain", hold.name).text(), "1");
    EXPECT_EQ(cpp.ask(1, hold.owner, "unlock", "plain", hold.name).text(), "true");
  }
  note(told);
}

TEST_F(MisbehaviourTest, IO9_AReplyThatRlockLosesLeavesNothingThatRedissonHasToWaitFor) {
  ASSERT_NO_FATAL_FAILURE(begin("reply to rlock lost", Subject{"plain", kNewest}));
  if (IsSkipped()) {
    return;
  }
  TcpProxy proxy(server());
  constexpr std::chrono::milliseconds kTimeout{500};
  peer(Side::java).open(1, uri(), kByMessage);
  peer(Side::cpp).open(1, proxy.uri(), {.watchdog = 60'000ms, .commandTimeout = kTimeout});
  ASSERT_ANSWER(ask(Side::cpp, 1, "lock", "plain", {"-1"}));
  ASSERT_ANSWER(ask(Side::cpp, 1, "unlock", "plain"));
  std::chrono::microseconds slowest{0};
  for (const bool cut : {false, true}) {
    SCOPED_TRACE(cut ? "cut" : "silent");
    const auto action = [&] {
      return cut ? TcpProxy::Action::swallowReplyAndCut() : TcpProxy::Action::stallReply();
    };
    const TcpProxy::Rule acquisition = loseReply(proxy, kName, action());
    const Answer acquired = ask(Side::cpp, 1, "lock", "plain", {"-1"});
    ASSERT_TRUE(acquired.ok()) << acquired;
    EXPECT_EQ(acquisition.hits(), 1U);
    if (!cut) {
      EXPECT_GE(between(acquired.begin, acquired.end), kTimeout);
    }
    EXPECT_EQ(ask(Side::cpp, 1, "holdCount", "plain").text(), "1");

    const Call wait = start(Side::java, 1, "lock", "plain", {"-1"});
    awaitSleeper(kChannel);
    EXPECT_FALSE(peer(Side::java).finished(wait));
    const TcpProxy::Rule release = loseReply(proxy, kName, action());
    const Answer released = ask(Side::cpp, 1, "unlock", "plain");
    EXPECT_EQ(release.hits(), 1U);
    const std::chrono::microseconds time = handOff(released, peer(Side::java).finish(wait));
    EXPECT_LT(time, scaled(kAtOnce));
    slowest = std::max(slowest, time);
    // Nor was the release made twice.
    EXPECT_EQ(ask(Side::java, 1, "holdCount", "plain").text(), "1");
    EXPECT_EQ(ask(Side::cpp, 1, "unlock", "plain").text(), "notOwner");
    EXPECT_EQ(ask(Side::java, 1, "unlock", "plain").text(), "true");
    EXPECT_EVENTUALLY(1s, raw().keys().empty());
  }
  note("Redisson enters after " + inMs(slowest));
}

// ----------------------------------------------------------------------------------- fair queue

class FairMisbehaviourTest : public MisbehaviourTest {
 protected:
  static constexpr std::string_view kQueue = "redisson_lock_queue:{object}";
  static constexpr std::string_view kTimes = "redisson_lock_timeout:{object}";
  static constexpr int kWaiters = 4;
  static constexpr int kHolder = 9;
  /// The poll would bring the waiters back sooner than their places need.
  static constexpr Peer::Tuning kTuning{.safetyPoll = 10'000ms};
  const std::chrono::milliseconds back_ = Options().fairWaiterLease / 3 + 300ms;

  std::vector<std::string> queue() { return raw().run({"LRANGE", kQueue, "0", "-1"}).strings(); }

  /// The owners in the queue whose time is not over.
  std::vector<std::string> alive() {
    const double at = static_cast<double>(raw().serverTimeUs()) / 1000;
    std::vector<std::string> owners = queue();
    std::erase_if(owners, [&](const std::string& owner) {
      const Value until = raw().run({"ZSCORE", kTimes, owner});
      return until.isNil() || std::stod(until.string()) <= at;
    });
    return owners;
  }

  /// Somebody holds; a Redisson waiter, then ours, queue; that of Redisson gives up.
  void fillAndGiveUp(Side holder) {
    openBoth(kTuning);
    ASSERT_ANSWER(ask(holder, kHolder, "lock", "fair", {"-1"}));
    const Call leaver = start(Side::java, 1, "tryLockAsync", "fair", {"600", "-1"});
    ASSERT_EVENTUALLY(5s, queue().size() == 1);
    for (int owner = 1; owner <= kWaiters; ++owner) {
      fields_.push_back(peer(Side::cpp).ownerField(1, owner));
      waits_.push_back(start(Side::cpp, owner, "lock", "fair", {"-1"}));
      ASSERT_EVENTUALLY(5s, queue().size() == static_cast<std::size_t>(owner) + 1);
    }
    ASSERT_EQ(peer(Side::java).finish(leaver).text(), "false");
    // Otherwise Redisson has got better and this tests nothing.
    ASSERT_LT(alive().size(), fields_.size());
  }

  /// Lets each leave again: who came when.
  std::vector<int> entries() {
    std::vector<int> entered;
    const Deadline end(20s);
    while (entered.size() < waits_.size() && !end.expired()) {
      for (std::size_t i = 0; i < waits_.size(); ++i) {
        const int owner = static_cast<int>(i) + 1;
        if (std::find(entered.begin(), entered.end(), owner) == entered.end() &&
            peer(Side::cpp).finished(waits_[i])) {
          entered.push_back(owner);
          EXPECT_EQ(peer(Side::cpp).finish(waits_[i]).text(), "true");
          EXPECT_EQ(ask(Side::cpp, owner, "unlock", "fair").text(), "true");
        }
      }
      std::this_thread::sleep_for(1ms);
    }
    return entered;
  }

  std::vector<std::string> fields_;
  std::vector<Call> waits_;
};

TEST_F(FairMisbehaviourTest, IO9_WhoRedissonThrowsOutOfTheFairQueueComesBackInTheOldOrder) {
  ASSERT_NO_FATAL_FAILURE(begin("thrown out of the queue", Subject{"fair", kNewest}));
  if (IsSkipped()) {
    return;
  }
  ASSERT_NO_FATAL_FAILURE(fillAndGiveUp(Side::cpp));
  const Stopwatch since;
  EXPECT_EVENTUALLY(back_, alive() == fields_);
  note("all were back after " + inMs(since.elapsedMs()));
  EXPECT_EQ(queue(), fields_);
  ASSERT_ANSWER(ask(Side::cpp, kHolder, "unlock", "fair"));
  EXPECT_EQ(entries(), (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(FairMisbehaviourTest, IO9_WhoRedissonThrowsOutOfTheFairQueueGetsTheFreeLock) {
  ASSERT_NO_FATAL_FAILURE(begin("thrown out, then released", Subject{"fair", kNewest}));
  if (IsSkipped()) {
    return;
  }
  ASSERT_NO_FATAL_FAILURE(fillAndGiveUp(Side::java));
  // Redisson's release takes away all whose time is over: nobody is left whom it could tell.
  ASSERT_ANSWER(ask(Side::java, kHolder, "unlock", "fair"));
  const Stopwatch since;
  EXPECT_EQ(entries().size(), waits_.size());
  EXPECT_LE(since.elapsedMs(), scaled(back_));
  note("all were through after " + inMs(since.elapsedMs()));
}

// ---------------------------------------------------------------------------------- multi-locks

TEST_F(MisbehaviourTest, IO9_MultiLocksNamedInOppositeOrdersGetOn) {
  ASSERT_NO_FATAL_FAILURE(begin("members in opposite orders", Subject{"multi", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth({});
  Peer& java = peer(Side::java);
  Peer& cpp = peer(Side::cpp);
  UnprotectedCounter counter(files().file("counter"));
  OverlapDetector journal(files().file("journal"));
  const auto section = [&](Peer& each, std::string_view members) {
    return each.start(
        1,
        1,
        "hammer",
        "multi",
        members,
        {"1", files().file("counter"), files().file("journal"), toString(each.side()), "200"});
  };
  // Redisson has the one and waits for the other; before it hears of the release rlock has that.
  const std::string ourField = cpp.ownerField(1, 1);
  ASSERT_ANSWER(cpp.ask(1, 9, "lock", "plain", "one", {"-1"}));
  const Call theirs = section(java, "two,one");
  ASSERT_NO_FATAL_FAILURE(awaitSleeper("redisson_lock__channel:{one}"));
  java.process().stop();
  const Call ours = section(cpp, "one,two");
  ASSERT_ANSWER(cpp.ask(1, 9, "unlock", "plain", "one"));
  ASSERT_EVENTUALLY(5s, raw().hget("one", ourField) && raw().exists("two"));
  java.process().cont();

  // Redisson gives up, and begins again, after 1.5 s for each member; rlock does not have to.
  const Answer entered = cpp.finish(ours);
  EXPECT_EQ(entered.text(), "1") << entered;
  EXPECT_EQ(java.finish(theirs).text(), "1");
  const std::chrono::microseconds time = between(entered.begin, entered.end);
  EXPECT_LE(time, 2 * 1500ms + scaled(500ms));
  EXPECT_EQ(counter.value(), 2);
  const OverlapDetector::Result sections = journal.verify();
  EXPECT_EQ(sections.sections, 2U);
  EXPECT_TRUE(sections.ok()) << sections.describe();
  EXPECT_FALSE(raw().exists("one"));
  EXPECT_FALSE(raw().exists("two"));
  note("rlock enters after " + inMs(time));
}

// ------------------------------------------------------------------------------------ spin lock

TEST_F(MisbehaviourTest, IO9_AReleaseThatRedissonsSpinLockDoesNotAnnounceIsFound) {
  ASSERT_NO_FATAL_FAILURE(begin("release not announced", Subject{"spin", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth(kByMessage);
  ASSERT_ANSWER(ask(Side::java, 1, "lock", "spin", {"-1"}));
  const std::chrono::microseconds time = findUnannounced(kChannel, "plain", "spin");
  ASSERT_ANSWER(ask(Side::cpp, 1, "unlock", "plain"));
  note("rlock's plain waiter enters after " + inMs(time));
}

TEST_F(MisbehaviourTest, IO9_OurSpinLockWakesRedissonsPlainWaiter) {
  ASSERT_NO_FATAL_FAILURE(begin("release by rlock", Subject{"spin", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth(kByMessage);
  ASSERT_ANSWER(ask(Side::cpp, 1, "lock", "spin", {"-1"}));
  const Call wait = start(Side::java, 1, "lock", "plain", {"-1"});
  awaitSleeper(kChannel);
  const Answer released = ask(Side::cpp, 1, "unlock", "spin");
  const std::chrono::microseconds time = handOff(released, peer(Side::java).finish(wait));
  EXPECT_LT(time, scaled(kAtOnce));
  ASSERT_ANSWER(ask(Side::java, 1, "unlock", "plain"));
  note("Redisson's plain waiter enters after " + inMs(time));
}

// ------------------------------------------------------------------------------------ semaphore

TEST_F(MisbehaviourTest, IO9_ALargeRequestDoesNotKeepPermitsFromSmallOnes) {
  ASSERT_NO_FATAL_FAILURE(begin("large and small requests", Subject{"semaphore", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth({.safetyPoll = 5000ms});
  Peer& cpp = peer(Side::cpp);
  ASSERT_ANSWER(ask(Side::java, 1, "trySet", "semaphore", {"1"}));
  ASSERT_ANSWER(ask(Side::java, 1, "acquire", "semaphore", {"1"}));
  const Call large = start(Side::cpp, 1, "acquire", "semaphore", {"3"});
  awaitSleeper("redisson_sc:{object}");
  const std::vector<Call> small = {start(Side::cpp, 2, "acquire", "semaphore", {"1"}),
                                   start(Side::cpp, 3, "acquire", "semaphore", {"1"})};
  // A waiter that stands behind another asks nothing, so there is no request to wait for.
  std::this_thread::sleep_for(50ms);

  const Answer two = ask(Side::java, 1, "release", "semaphore", {"2"});
  std::chrono::microseconds slowest{0};
  for (const Call call : small) {
    slowest = std::max(slowest, handOff(two, cpp.finish(call)));
  }
  EXPECT_LT(slowest, scaled(kAtOnce));
  EXPECT_FALSE(cpp.finished(large));
  EXPECT_EQ(raw().get(kName), "0");

  const Answer three = ask(Side::java, 1, "release", "semaphore", {"3"});
  const std::chrono::microseconds last = handOff(three, cpp.finish(large));
  EXPECT_LT(last, scaled(kAtOnce));
  EXPECT_EQ(raw().get(kName), "0");
  note("the small ones after " + inMs(slowest) + ", the large one after " + inMs(last));
}

// ----------------------------------------------------------------------------------- read-write

TEST_F(MisbehaviourTest, IO9_ADowngradeThatRedissonDoesNotAnnounceIsFound) {
  ASSERT_NO_FATAL_FAILURE(begin("downgrade not announced", Subject{"read-write", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth(kByMessage);
  ASSERT_ANSWER(ask(Side::java, 1, "lock", "write", {"-1"}));
  ASSERT_ANSWER(ask(Side::java, 1, "lock", "read", {"-1"}));
  const std::chrono::microseconds time = findUnannounced(kReadWriteChannel, "read", "write");
  EXPECT_EQ(ask(Side::java, 1, "holdCount", "read").text(), "1");
  note("rlock's reader enters after " + inMs(time));
}

TEST_F(MisbehaviourTest, IO9_OurDowngradeWakesRedissonsReaders) {
  ASSERT_NO_FATAL_FAILURE(begin("downgrade by rlock", Subject{"read-write", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth(kByMessage);
  ASSERT_ANSWER(ask(Side::cpp, 1, "lock", "write", {"-1"}));
  ASSERT_ANSWER(ask(Side::cpp, 1, "lock", "read", {"-1"}));
  const std::vector<Call> waits = {start(Side::java, 1, "lock", "read", {"-1"}),
                                   start(Side::java, 2, "lock", "read", {"-1"})};
  awaitSleeper(kReadWriteChannel);
  const Answer released = ask(Side::cpp, 1, "unlock", "write");
  std::chrono::microseconds slowest{0};
  for (const Call wait : waits) {
    slowest = std::max(slowest, handOff(released, peer(Side::java).finish(wait)));
  }
  EXPECT_LT(slowest, scaled(kAtOnce));
  EXPECT_EQ(ask(Side::cpp, 1, "holdCount", "read").text(), "1");
  note("Redisson's readers enter after " + inMs(slowest));
}

TEST_F(MisbehaviourTest, IO9_AWriterThatRedissonsReadersStarveGivesUpInTimeAndEntersAfterThem) {
  ASSERT_NO_FATAL_FAILURE(begin("writer starved", Subject{"read-write", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth({.watchdog = 60'000ms, .safetyPoll = 5000ms});
  Peer& cpp = peer(Side::cpp);
  int reader = 1;
  const auto passOn = [&] {
    const int next = 3 - reader;
    EXPECT_EQ(ask(Side::java, next, "lock", "read", {"-1"}).text(), "true");
    EXPECT_EQ(ask(Side::java, reader, "unlock", "read").text(), "true");
    reader = next;
  };
  ASSERT_ANSWER(ask(Side::java, reader, "lock", "read", {"-1"}));

  constexpr std::chrono::milliseconds kWait{800};
  const Call tried = start(Side::cpp, 1, "tryLock", "write", {text(kWait), "-1"});
  int readers = 0;
  for (; !cpp.finished(tried); ++readers) {
    passOn();
  }
  const Answer refused = cpp.finish(tried);
  EXPECT_EQ(refused.text(), "false");
  EXPECT_GE(readers, 5);
  EXPECT_GE(between(refused.begin, refused.end), kWait);
  EXPECT_LE(between(refused.begin, refused.end), kWait + scaled(200ms));
  const std::string field = peer(Side::java).ownerField(1, reader);
  EXPECT_EQ(raw().keys(),
            (std::set<std::string>{std::string(kName), "{object}:" + field + ":rwlock_timeout:1"}));
  EXPECT_EQ(raw().hgetall(kName),
            (std::map<std::string, std::string>{{"mode", "read"}, {field, "1"}}));

  const Call wait = start(Side::cpp, 1, "lock", "write", {"-1"});
  awaitSleeper(kReadWriteChannel);
  passOn();
  passOn();
  EXPECT_FALSE(cpp.finished(wait));
  const Answer released = ask(Side::java, reader, "unlock", "read");
  const std::chrono::microseconds time = handOff(released, cpp.finish(wait));
  EXPECT_LT(time, scaled(kAtOnce));
  EXPECT_EQ(ask(Side::java, 1, "tryLock", "read", {"0", "-1"}).text(), "false");
  ASSERT_ANSWER(ask(Side::cpp, 1, "unlock", "write"));
  note(std::to_string(readers) + " readers in " + text(kWait) + " ms; after the last one " +
       inMs(time));
}

// --------------------------------------------------------------------------------------- fenced

TEST_F(MisbehaviourTest, IO9_ALockWithoutExpiryIsNotTakenForOurs) {
  ASSERT_NO_FATAL_FAILURE(begin("lock without expiry", Subject{"fenced", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth(kByMessage);
  Peer& cpp = peer(Side::cpp);
  raw().run({"HSET", kName, "somebody:1", "1"});
  const std::map<std::string, std::string> before = raw().hgetall(kName);
  // "Acquired", with that token: otherwise this tests nothing.
  EXPECT_EQ(ask(Side::java, 1, "tryLockToken", "fenced", {"200", "60000"}).text(), "-1");
  EXPECT_EQ(ask(Side::cpp, 1, "tryLockToken", "fenced", {"0", "-1"}).text(), "null");
  EXPECT_EQ(ask(Side::cpp, 1, "tryLockToken", "fenced", {"200", "60000"}).text(), "null");
  EXPECT_EQ(ask(Side::cpp, 1, "unlock", "fenced").text(), "notOwner");
  EXPECT_EQ(raw().hgetall(kName), before);
  EXPECT_EQ(raw().pttl(kName), -1);

  const Call wait = start(Side::cpp, 1, "lockToken", "fenced");
  awaitSleeper(kChannel);
  EXPECT_FALSE(cpp.finished(wait));
  raw().del(kName);
  const auto deleted = now();
  const Answer entered = cpp.finish(wait);
  EXPECT_GT(entered.number(), 0);
  EXPECT_LE(between(deleted, entered.end), kByMessage.safetyPoll + scaled(300ms));
}

// ---------------------------------------------------------------------------------------- latch

TEST_F(MisbehaviourTest, IO9_ALatchThatRedissonSetsAgainAtOnceLetsItsFirstWaitersThrough) {
  ASSERT_NO_FATAL_FAILURE(begin("set again at once", Subject{"latch", kNewest}));
  if (IsSkipped()) {
    return;
  }
  openBoth({.safetyPoll = 5000ms});
  Peer& java = peer(Side::java);
  Peer& cpp = peer(Side::cpp);
  constexpr int kGenerations = 10;
  int missed = 0;
  for (int i = 0; i < kGenerations; ++i) {
    // A name of its own: subscriptions outlive a wait, and would not show that there is one.
    const std::string name = std::string(kName) + std::to_string(i);
    const auto start = [&](Side side,
                           int owner,
                           std::string_view verb,
                           const std::vector<std::string>& arguments = {}) {
      return peer(side).start(1, owner, verb, "latch", name, arguments);
    };
    const auto ask = [&](Side side,
                         int owner,
                         std::string_view verb,
                         const std::vector<std::string>& arguments = {}) {
      return peer(side).finish(start(side, owner, verb, arguments));
    };
    ASSERT_EQ(ask(Side::java, 1, "trySet", {"1"}).text(), "true");
    const Call theirs = start(Side::java, 2, "await", {"-1"});
    const Call ours = start(Side::cpp, 1, "await", {"-1"});
    ASSERT_NO_FATAL_FAILURE(awaitSleeper("redisson_countdownlatch__channel__{" + name + "}", 2));
    const Call zero = start(Side::java, 1, "countDown");
    const Call again = start(Side::java, 1, "trySet", {"1"});
    const Answer opened = java.finish(zero);
    ASSERT_EQ(java.finish(again).text(), "true");
    EXPECT_LT(handOff(opened, cpp.finish(ours)), scaled(kAtOnce));
    // A waiter that comes now waits for the next zero.
    EXPECT_EQ(ask(Side::cpp, 1, "await", {"50"}).text(), "false");
    missed += java.finished(theirs) ? 0 : 1;
    ASSERT_ANSWER(ask(Side::java, 1, "countDown"));
    ASSERT_ANSWER(java.finish(theirs));
    EXPECT_FALSE(raw().exists(name));
  }
  note("Redisson's waiter missed " + std::to_string(missed) + " of " +
       std::to_string(kGenerations) + " zeros");
}

}  // namespace
}  // namespace rlock::test::interop
