// SPDX-License-Identifier: Apache-2.0

// The access rules in docs/configuration.md: each line is applied, and the kind that it is for is
// used under it, losing replies, too. The server must have refused nothing.

#include "integration/counter_harness.hpp"
#include "integration/lock_harness.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace rlock::test {
namespace {

class AccessRules : public LockTest, public ::testing::WithParamInterface<LostReplyPolicy> {
 protected:
  /// Applies the line below the sentence that begins with `call`, less some words.
  void allow(const std::string& call, const std::set<std::string>& without = {}) {
    RawRedis::Args rule = ruleOf(call);
    std::erase_if(rule, [&](const std::string& word) { return without.contains(word); });
    apply(rule);
  }

  /// The same for names that begin with `{orders}`, as the note on such names says.
  void allowBraced(const std::string& call) {
    const auto prefixOf = [](const std::string& word) { return word.substr(0, word.find('{')); };
    std::map<std::string, std::string> named;
    for (const std::string& word : wordsOfNoteOnBraces()) {
      named[prefixOf(word)] = word;
    }
    ASSERT_GE(named.size(), 3U);
    RawRedis::Args rule = ruleOf(call);
    for (std::string& word : rule) {
      const std::size_t brace = word.find("{orders:*");
      const auto instead = named.find(word == "~orders:*" ? "~" : prefixOf(word));
      if (instead != named.end()) {
        word = instead->second;
      } else if (brace != std::string::npos) {
        word.replace(brace, std::string::npos, "{orders}*");
      }
    }
    apply(rule);
  }

  /// The commands that the line allows, as words of rules.
  static std::vector<std::string> commandsOf(const std::string& call) {
    RawRedis::Args words = ruleOf(call);
    std::erase_if(words, [](const std::string& word) { return !word.starts_with('+'); });
    return words;
  }

  [[nodiscard]] Options user() {
    Options settings = proxied(scaled(2s));
    settings.username = "orders";
    settings.password = "s3cret";
    settings.clientName = "orders-service";
    settings.lostReplyPolicy = GetParam();
    settings.commandTimeout = scaled(300ms);
    settings.callTimeout = scaled(5s);
    settings.reconnectDelayMin = 5ms;
    return settings;
  }

  void loseReplyOnce(const lua::Script& script) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    rules_.push_back(
        proxy().addRule(running(script), TcpProxy::Action::swallowReplyAndCut(), once));
  }

  void expectNothingWasRefused() {
    const Value refused = raw().run({"ACL", "LOG"});
    EXPECT_TRUE(refused.array().empty()) << refused;
    for (const CapturedLog::Line& line : log().lines()) {
      EXPECT_EQ(line.text.find("NOPERM"), std::string::npos) << line.text;
      EXPECT_EQ(line.text.find("does not allow"), std::string::npos) << line.text;
    }
  }

  void useLock(const std::function<RLock(Client&)>& make,
               const lua::Script& acquire,
               const lua::Script& release,
               bool reentrant = true) {
    Client mine = Client::connect(user());
    Client others = Client::connect(user());
    RLock lock = make(mine);
    RLock other = make(others);
    lock.lock();
    if (reentrant) {
      lock.lock(60s);
      lock.unlock();
    }
    EXPECT_TRUE(lock.isLocked());
    EXPECT_GT(lock.getHoldCount(), 0);
    EXPECT_TRUE(lock.remainTimeToLive());
    // The read side lets the other one in.
    if (other.tryLock(1s)) {
      other.unlock();
    }
    auto waiter = inThread([&] { return answerOf([&] { return other.tryLock(scaled(10s)); }); });
    const auto renewals = mine.stats().renewals;
    EXPECT_EVENTUALLY(kLong, mine.stats().renewals >= renewals + 2);
    lock.unlock();
    EXPECT_EQ(waiter.get(), "true");
    EXPECT_TRUE(other.forceUnlock());
    Lease labelled = lock.acquire({.label = "import"});
    EXPECT_TRUE(labelled.held());
    loseReplyOnce(release);
    EXPECT_EQ(labelled.release(), ReleaseResult::released);
    loseReplyOnce(acquire);
    EXPECT_EQ(answerOf([&] { return lock.tryLock(scaled(5s)); }), "true");
    lock.unlock();
    lock.lock();
    EXPECT_TRUE(other.forceUnlock());
    mine.close(scaled(2s));
    others.close(scaled(2s));
    expectNothingWasRefused();
  }

  /// One owner of a client gives the lock to the next one on the server, unless requests carry
  /// tombstones.
  void handOver() {
    Options settings = user();
    settings.handOverLimit = 16;
    Client client = Client::connect(settings);
    RLock lock = client.getLock("orders:17");
    const bool handsOver = GetParam() != LostReplyPolicy::marker;
    // Once the channel is subscribed and all messages have come, whoever is counted as a waiter has
    // been refused and sleeps; a waiter that is just asking is not offered the lock.
    rawHold("orders:17", "foreign:1", 60s);
    const OwnerId one = newOwner();
    auto asleep = inThread([&] { return outcomeOf(lock.lockAsync({}, one).wait()); });
    EXPECT_EVENTUALLY(kLong, raw().numsub(channelOf("orders:17")) == 1);
    rawRelease("orders:17");
    EXPECT_EQ(asleep.get(), "ok");
    lock.unlockAsync(one).get();
    EXPECT_EVENTUALLY(kLong, client.stats().messages == 2);
    TcpProxy::RuleOptions once;
    once.limit = 1;
    for (const auto& fate : {TcpProxy::Action::pass(), TcpProxy::Action::swallowReplyAndCut()}) {
      const OwnerId first = newOwner();
      const OwnerId next = newOwner();
      const std::uint64_t messages = client.stats().messages;
      lock.lockAsync({}, first).get();
      auto waiter = inThread([&] { return outcomeOf(lock.lockAsync({}, next).wait()); });
      EXPECT_EVENTUALLY(kLong, client.stats().waiters == 1);
      const auto handOvers = proxy().addRule(running(lua::lock_hand_over), fate, once);
      lock.unlockAsync(first).get();
      EXPECT_EQ(waiter.get(), "ok");
      EXPECT_EQ(handOvers.hits(), handsOver ? 1U : 0U);
      lock.unlockAsync(next).get();
      EXPECT_EVENTUALLY(kLong, client.stats().messages >= messages + (handsOver ? 1 : 2));
    }
    client.close(scaled(2s));
    expectNothingWasRefused();
  }

 private:
  static std::ifstream page() {
    return std::ifstream(std::string(RLOCK_TEST_SOURCE_DIR) + "/docs/configuration.md");
  }

  static RawRedis::Args ruleOf(const std::string& call) {
    std::ifstream file = page();
    std::string line;
    bool found = false;
    while (std::getline(file, line)) {
      found = found || line.starts_with("`" + call);
      if (found && line.starts_with("ACL SETUSER ")) {
        break;
      }
    }
    EXPECT_TRUE(found && !file.eof()) << call;
    std::istringstream words(line);
    RawRedis::Args rule;
    for (std::string word; words >> word;) {
      rule.push_back(word);
    }
    return rule;
  }

  /// The rules that it names, which stand in it as code.
  static std::vector<std::string> wordsOfNoteOnBraces() {
    std::ifstream file = page();
    std::string note;
    for (std::string line; std::getline(file, line);) {
      const bool begins = line.starts_with("- A name that has a brace of its own");
      if (begins || (!note.empty() && line.starts_with("  "))) {
        note += line;
      } else if (!note.empty()) {
        break;
      }
    }
    std::vector<std::string> words;
    for (std::size_t at = note.find('`'); at != std::string::npos;) {
      const std::size_t end = note.find('`', at + 1);
      const std::string word = note.substr(at + 1, end - at - 1);
      if (word.starts_with('~') || word.starts_with('&')) {
        words.push_back(word);
      }
      at = end == std::string::npos ? end : note.find('`', end + 1);
    }
    return words;
  }

  void apply(const RawRedis::Args& rule) {
    const auto answer = raw().run(rule);
    ASSERT_FALSE(answer.isError()) << answer;
    raw().run({"ACL", "LOG", "RESET"});
  }

  std::vector<TcpProxy::Rule> rules_;
};

INSTANTIATE_TEST_SUITE_P(Policies,
                         AccessRules,
                         ::testing::Values(LostReplyPolicy::automatic, LostReplyPolicy::marker),
                         [](const auto& test) { return std::string(toString(test.param)); });

TEST_P(AccessRules, OfPlainLocks) {
  allow("getLock()");
  useLock([](Client& client) { return client.getLock("orders:17"); },
          lua::lock_acquire,
          lua::lock_release);
  useLock([](Client& client) { return client.getSpinLock("orders:17"); },
          lua::lock_acquire,
          lua::lock_release);
  useLock([](Client& client) { return client.getNonReentrantLock("orders:17"); },
          lua::lock_acquire,
          lua::lock_release,
          false);
  handOver();
}

TEST_P(AccessRules, TheWordsThatMayBeLeftOut) {
  allow("getLock()",
        {"+client|info",
         "+client|id",
         "+client|setname",
         "+client|kill",
         "+command|info",
         "+info",
         "+unsubscribe"});
  Client client = Client::connect(user());
  RLock lock = client.getLock("orders:17");
  for (const lua::Script* script : {&lua::lock_acquire, &lua::lock_release}) {
    loseReplyOnce(*script);
    EXPECT_EQ(answerOf([&] { return lock.tryLock(scaled(5s)); }), "true");
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_FALSE(raw().exists("orders:17"));
  }
}

TEST_P(AccessRules, OfFairLocks) {
  allow("getFairLock()");
  useLock([](Client& client) { return client.getFairLock("orders:17"); },
          lua::fair_acquire,
          lua::fair_release);
  useLock([](Client& client) { return client.getNonReentrantFairLock("orders:17"); },
          lua::fair_acquire,
          lua::fair_release,
          false);
}

TEST_P(AccessRules, OfFencedLocks) {
  allow("getFencedLock()");
  useLock([](Client& client) -> RLock { return client.getFencedLock("orders:17"); },
          lua::fenced_acquire,
          lua::lock_release);
  Client client = Client::connect(user());
  FencedLock lock = client.getFencedLock("orders:17");
  const std::uint64_t token = lock.lockAndGetToken();
  EXPECT_EQ(lock.getToken(), token);
  lock.unlock();
  expectNothingWasRefused();
}

TEST_P(AccessRules, OfReadWriteLocks) {
  allow("getReadWriteLock()");
  useLock([](Client& client) { return client.getReadWriteLock("orders:17").writeLock(); },
          lua::rw_write_acquire,
          lua::rw_write_release);
  useLock([](Client& client) { return client.getReadWriteLock("orders:17").readLock(); },
          lua::rw_read_acquire,
          lua::rw_read_release);
  Client client = Client::connect(user());
  Client other = Client::connect(user());
  RLock reading = client.getReadWriteLock("orders:17").readLock();
  RLock writing = other.getReadWriteLock("orders:17").writeLock();
  reading.lock();
  EXPECT_FALSE(writing.tryLock(1s));
  reading.unlock();
  EXPECT_TRUE(writing.tryLock());
  writing.unlock();
  expectNothingWasRefused();
}

TEST_P(AccessRules, ALockThatIsRefusedIsNobodys) {
  const std::vector<std::pair<std::string, std::function<RLock(Client&)>>> kinds{
      {"getLock()", [](Client& client) { return client.getLock("orders:17"); }},
      {"getFairLock()", [](Client& client) { return client.getFairLock("orders:17"); }},
      {"getFencedLock()",
       [](Client& client) -> RLock { return client.getFencedLock("orders:17"); }}};
  for (const auto& [call, make] : kinds) {
    std::vector<std::set<std::string>> missing{{"+pexpire", "+del"}};
    for (const std::string& word : commandsOf(call)) {
      missing.push_back({word});
    }
    for (const std::set<std::string>& words : missing) {
      SCOPED_TRACE(call + " without " + ::testing::PrintToString(words));
      raw().flushAll();
      allow(call);
      Client client = Client::connect(user());
      RLock lock = make(client);
      allow(call, words);
      const std::string answer = answerOf([&] { return lock.tryLock(); });
      EXPECT_EQ(raw().exists("orders:17"), answer == "true") << answer;
      allow(call);
    }
  }
}

TEST_P(AccessRules, APermitThatIsRefusedIsNotLost) {
  const std::string call = "getPermitExpirableSemaphore()";
  const std::string taken = "{orders:17}:timeout";
  const auto all = [&] {
    return std::stoll(raw().get("orders:17").value_or("0")) + raw().run({"ZCARD", taken}).integer();
  };
  for (const std::string& word : commandsOf(call)) {
    SCOPED_TRACE("without " + word);
    raw().flushAll();
    raw().set("orders:17", "5");
    allow(call);
    Client client = Client::connect(user());
    PermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore("orders:17");
    const std::string id = semaphore.acquire(60s);
    Permit held = semaphore.hold();
    const auto expire = [&] { raw().run({"ZADD", taken, "1", "expired-expired-"}); };
    expire();
    ASSERT_EQ(all(), 6);
    allow(call, {word});
    static_cast<void>(outcomeOf([&] { semaphore.release(id); }));
    EXPECT_EQ(all(), 6) << "a release";
    static_cast<void>(
        outcomeOf([&] { static_cast<void>(semaphore.tryAcquire(Duration::zero(), 60s)); }));
    EXPECT_EQ(all(), 6) << "an acquisition";
    static_cast<void>(outcomeOf([&] { static_cast<void>(semaphore.availablePermits()); }));
    EXPECT_EQ(all(), 6) << "a question";
    static_cast<void>(held.release());
    EXPECT_EQ(all(), 6) << "a release by an object";
    allow(call);
  }
}

TEST_P(AccessRules, OfSimpleLocks) {
  allow("getSimpleLock()");
  useLock([](Client& client) { return client.getSimpleLock("orders:17"); },
          lua::simple_acquire,
          lua::simple_release,
          false);
}

TEST_P(AccessRules, OfSemaphores) {
  allow("getSemaphore()");
  Client client = Client::connect(user());
  Semaphore semaphore = client.getSemaphore("orders:17");
  EXPECT_TRUE(semaphore.trySetPermits(3, 60s));
  loseReplyOnce(lua::semaphore_acquire);
  semaphore.acquire();
  EXPECT_FALSE(semaphore.tryAcquire(5, 1s));
  loseReplyOnce(lua::semaphore_add);
  semaphore.release();
  EXPECT_TRUE(semaphore.releaseIfExists());
  EXPECT_EQ(semaphore.availablePermits(), 4);
  loseReplyOnce(lua::semaphore_drain);
  EXPECT_NE(outcomeOf([&] { static_cast<void>(semaphore.drainPermits()); }), "denied");
  semaphore.addPermits(-2);
  auto waiter = inThread([&] { return answerOf([&] { return semaphore.tryAcquire(1, 10s); }); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters >= 1);
  semaphore.addPermits(9);
  EXPECT_EQ(waiter.get(), "true");
  EXPECT_TRUE(semaphore.remove());
  client.close(scaled(2s));
  expectNothingWasRefused();
}

TEST_P(AccessRules, OfLatches) {
  allow("getCountDownLatch()");
  Client client = Client::connect(user());
  CountDownLatch latch = client.getCountDownLatch("orders:17");
  EXPECT_TRUE(latch.trySetCount(2));
  EXPECT_FALSE(latch.await(scaled(1s)));
  auto waiter = inThread([&] { return answerOf([&] { return latch.await(scaled(10s)); }); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters >= 1);
  loseReplyOnce(lua::latch_count_down);
  latch.countDown();
  EXPECT_EQ(latch.getCount(), 1);
  latch.countDown();
  EXPECT_EQ(waiter.get(), "true");
  EXPECT_TRUE(latch.trySetCount(1));
  EXPECT_TRUE(latch.remove());
  client.close(scaled(2s));
  expectNothingWasRefused();
}

TEST_P(AccessRules, OfNamesWithBraces) {
  allowBraced("getCountDownLatch()");
  {
    Client client = Client::connect(user());
    CountDownLatch latch = client.getCountDownLatch("{orders}:17");
    EXPECT_TRUE(latch.trySetCount(1));
    auto waiter = inThread([&] { return answerOf([&] { return latch.await(scaled(10s)); }); });
    ASSERT_EVENTUALLY(kLong, client.stats().waiters >= 1);
    latch.countDown();
    EXPECT_EQ(waiter.get(), "true");
    client.close(scaled(2s));
    expectNothingWasRefused();
  }
  allowBraced("getSemaphore()");
  Client client = Client::connect(user());
  Semaphore semaphore = client.getSemaphore("{orders}:18");
  EXPECT_TRUE(semaphore.trySetPermits(1, 60s));
  semaphore.acquire();
  auto waiter = inThread([&] { return answerOf([&] { return semaphore.tryAcquire(10s); }); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters >= 1);
  semaphore.release();
  EXPECT_EQ(waiter.get(), "true");
  EXPECT_TRUE(semaphore.remove());
  client.close(scaled(2s));
  expectNothingWasRefused();
}

TEST_P(AccessRules, OfPermits) {
  allow("getPermitExpirableSemaphore()");
  Client client = Client::connect(user());
  PermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore("orders:17");
  EXPECT_TRUE(semaphore.trySetPermits(2));
  loseReplyOnce(lua::permit_acquire);
  const std::string id = semaphore.acquire(60s);
  EXPECT_TRUE(semaphore.updateLeaseTime(id, 90s));
  EXPECT_TRUE(semaphore.getLeaseTime(id));
  Permit held = semaphore.hold({.label = "import"});
  auto waiter = inThread([&] { return semaphore.tryAcquire(scaled(10s), 1s); });
  const auto renewals = client.stats().renewals;
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= renewals + 2);
  loseReplyOnce(lua::permit_release);
  semaphore.release(id);
  EXPECT_TRUE(waiter.get());
  EXPECT_EQ(held.release(), ReleaseResult::released);
  semaphore.addPermits(1);
  semaphore.setPermits(4);
  EXPECT_EQ(semaphore.getPermits(), 4);
  EXPECT_GE(semaphore.availablePermits(), 3);
  EXPECT_LE(semaphore.acquiredPermits(), 1);
  EXPECT_TRUE(semaphore.remove());
  client.close(scaled(2s));
  expectNothingWasRefused();
}

TEST_P(AccessRules, OfInspection) {
  Client owner = connect();
  RLock plain = owner.getLock("orders:plain");
  RLock fair = owner.getFairLock("orders:fair");
  RLock reading = owner.getReadWriteLock("orders:rw").readLock();
  RLock simple = owner.getSimpleLock("orders:simple");
  FencedLock fenced = owner.getFencedLock("orders:fenced");
  const Lease labelled = plain.acquire({.label = "import"});
  fair.lock();
  reading.lock();
  simple.lock();
  fenced.lock();
  EXPECT_TRUE(owner.getSemaphore("orders:semaphore").trySetPermits(1));
  EXPECT_TRUE(owner.getCountDownLatch("orders:latch").trySetCount(1));
  EXPECT_TRUE(owner.getPermitExpirableSemaphore("orders:permit").trySetPermits(1));
  const Permit permit = owner.getPermitExpirableSemaphore("orders:permit").hold();
  // More than are shown are looked at in another way.
  RawRedis::Args readers{"HSET", "orders:many", "mode", "read"};
  RawRedis::Args labels{"HSET", "rlock_label:{orders:many}"};
  for (int i = 0; i < 1200; ++i) {
    const std::string reader = owner.id() + ":" + std::to_string(i);
    readers.insert(readers.end(), {reader, "1"});
    labels.insert(labels.end(), {reader, "import"});
  }
  raw().run(readers);
  raw().run(labels);
  allow("Client::inspect()");
  log().clear();
  Client client = Client::connect(user());
  for (const char* name :
       {"plain", "fair", "rw", "simple", "fenced", "semaphore", "latch", "permit", "many"}) {
    EXPECT_TRUE(client.inspect(std::string("orders:") + name)) << name;
  }
  EXPECT_EQ(client.list("orders:*").size(), 9U);
  client.close(scaled(2s));
  expectNothingWasRefused();
}

}  // namespace
}  // namespace rlock::test
