// SPDX-License-Identifier: Apache-2.0
#include "integration/net_harness.hpp"
#include "net/pubsub_link.hpp"
#include "support/captured_log.hpp"
#include "support/free_port.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/tcp_proxy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>

namespace rlock::detail::net {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using test::eventually;
using test::kLong;
using test::LoopHarness;
using test::RawRedis;
using test::RedisServer;
using test::scaled;
using test::ScriptedServer;
using test::settingsFor;
using test::tcp;
using test::TcpProxy;

/// Collects what the link says. Safe from any thread.
class Recorder : public PubSubEvents {
 public:
  explicit Recorder(Loop& loop) : loop_(loop) {}

  void onSubscribed(const std::string& channel) override {
    record([&] { ++subscribed_[channel]; });
  }
  void onRefused(const std::string& channel, const Error& error) override {
    record([&] {
      refused_.emplace_back(channel, error.errc());
      refusedAt_.push_back(std::chrono::steady_clock::now());
    });
  }
  void onMessage(const std::string& channel, std::string_view payload) override {
    record([&] { messages_.emplace_back(channel, std::string(payload)); });
  }
  void onUp() override {
    record([&] { ++ups_; });
  }
  void onDown(const Error& error) override {
    record([&] { downs_.push_back(error); });
  }

  int subscribed(const std::string& channel) const {
    const std::lock_guard lock(mutex_);
    const auto found = subscribed_.find(channel);
    return found == subscribed_.end() ? 0 : found->second;
  }
  std::size_t subscribedChannels() const {
    const std::lock_guard lock(mutex_);
    return subscribed_.size();
  }
  void forgetSubscribed() {
    const std::lock_guard lock(mutex_);
    subscribed_.clear();
  }
  std::vector<std::pair<std::string, Errc>> refused() const {
    const std::lock_guard lock(mutex_);
    return refused_;
  }
  std::vector<std::chrono::steady_clock::time_point> refusedAt() const {
    const std::lock_guard lock(mutex_);
    return refusedAt_;
  }
  std::vector<std::pair<std::string, std::string>> messages() const {
    const std::lock_guard lock(mutex_);
    return messages_;
  }
  std::size_t messageCount() const {
    const std::lock_guard lock(mutex_);
    return messages_.size();
  }
  int ups() const {
    const std::lock_guard lock(mutex_);
    return ups_;
  }
  std::vector<Error> downs() const {
    const std::lock_guard lock(mutex_);
    return downs_;
  }
  bool offLoop() const { return offLoop_; }

  /// Held around calls to the link: an event in between would be an event inside the call.
  void insideCall(bool inside) { insideCall_ = inside; }
  bool calledInside() const { return calledInside_; }

 private:
  template <class F>
  void record(F&& change) {
    if (!loop_.onLoopThread()) {
      offLoop_ = true;
    }
    if (insideCall_) {
      calledInside_ = true;
    }
    const std::lock_guard lock(mutex_);
    change();
  }

  Loop& loop_;
  std::atomic<bool> offLoop_{false};
  std::atomic<bool> insideCall_{false};
  std::atomic<bool> calledInside_{false};
  mutable std::mutex mutex_;
  std::map<std::string, int> subscribed_;
  std::vector<std::pair<std::string, Errc>> refused_;
  std::vector<std::chrono::steady_clock::time_point> refusedAt_;
  std::vector<std::pair<std::string, std::string>> messages_;
  int ups_ = 0;
  std::vector<Error> downs_;
};

LinkSettings quickSettings(std::uint16_t port) {
  LinkSettings settings = settingsFor({tcp(port)});
  settings.reconnectDelayMin = 5ms;
  settings.reconnectDelayMax = 50ms;
  return settings;
}

/// The fixture's links have names.
std::string handshake() {
  return test::handshakeAnswer(true);
}

class PubSubLinkTest : public testing::Test {
 protected:
  ~PubSubLinkTest() override {
    harness_.run([this] { link_.reset(); });
    EXPECT_FALSE(recorder_.offLoop());
    EXPECT_FALSE(recorder_.calledInside());
  }

  void open(LinkSettings settings) {
    settings.clientName = "subscriber";
    harness_.run([&] {
      link_ = std::make_unique<PubSubLink>(harness_.loop(), std::move(settings), recorder_);
    });
  }
  void subscribe(const std::vector<std::string>& channels) {
    harness_.run([&] {
      recorder_.insideCall(true);
      for (const std::string& channel : channels) {
        link_->subscribe(channel);
      }
      recorder_.insideCall(false);
    });
  }
  void unsubscribe(const std::vector<std::string>& channels) {
    harness_.run([&] {
      recorder_.insideCall(true);
      for (const std::string& channel : channels) {
        link_->unsubscribe(channel);
      }
      recorder_.insideCall(false);
    });
  }
  [[nodiscard]] bool up() {
    return harness_.run([this] { return link_->up(); });
  }
  [[nodiscard]] std::size_t channels() {
    return harness_.run([this] { return link_->channels(); });
  }
  [[nodiscard]] bool awaitSubscribed(const std::string& channel, int times = 1) {
    return eventually(kLong, [&] { return recorder_.subscribed(channel) >= times; });
  }
  /// A server that ends each connection is dialled after pauses.
  void expectBackOff(const ScriptedServer& server) {
    LinkSettings settings = quickSettings(server.port());
    settings.reconnectDelayMin = 40ms;
    settings.reconnectDelayMax = 40ms;
    open(settings);
    const test::Stopwatch watch;
    subscribe({"a"});
    ASSERT_TRUE(eventually(kLong, [&] { return server.accepted() >= 4; }));
    EXPECT_GE(watch.elapsedMs(), 3 * 20ms);
  }

  LoopHarness harness_;
  Recorder recorder_{*harness_.loop()};
  std::unique_ptr<PubSubLink> link_;
};

class PubSubLinkRedisTest : public PubSubLinkTest {
 protected:
  void SetUp() override { RLOCK_REQUIRE_REDIS_SERVER(); }

  /// The link's connections, as the server lists them.
  static std::vector<std::string> clientIds(RawRedis& raw) {
    std::vector<std::string> ids;
    for (auto& client : raw.clientList()) {
      if (client["name"] == "subscriber") {
        ids.push_back(client["id"]);
      }
    }
    return ids;
  }
};

// --------------------------------------------------------------------------------------- everyday

TEST_F(PubSubLinkRedisTest, ConnectsOnlyWhenThereIsAChannel) {
  const RedisServer server;
  RawRedis raw(server);
  open(quickSettings(server.port()));
  harness_.run([] {});
  EXPECT_TRUE(clientIds(raw).empty());
  EXPECT_FALSE(up());
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  EXPECT_TRUE(up());
  EXPECT_EQ(channels(), 1U);
  EXPECT_EQ(clientIds(raw).size(), 1U);
  EXPECT_EQ(recorder_.ups(), 1);
}

TEST_F(PubSubLinkRedisTest, DeliversMessagesOfSubscribedChannelsOnly) {
  const RedisServer server;
  RawRedis raw(server);
  open(quickSettings(server.port()));
  subscribe({"a", "b"});
  ASSERT_TRUE(awaitSubscribed("a") && awaitSubscribed("b"));
  EXPECT_EQ(raw.publish("a", "1"), 1);
  EXPECT_EQ(raw.publish("b", "2"), 1);
  EXPECT_EQ(raw.publish("c", "3"), 0);
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.messageCount() == 2; }));
  unsubscribe({"a"});
  EXPECT_TRUE(eventually(kLong, [&] { return raw.numsub("a") == 0; }));
  EXPECT_EQ(raw.publish("b", "4"), 1);
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.messageCount() == 3; }));
  using Message = std::pair<std::string, std::string>;
  EXPECT_EQ(recorder_.messages(), (std::vector<Message>{{"a", "1"}, {"b", "2"}, {"b", "4"}}));
}

TEST_F(PubSubLinkRedisTest, TakesAnyBytesAsNameAndPayload) {
  using namespace std::string_literals;
  const RedisServer server;
  RawRedis raw(server);
  open(quickSettings(server.port()));
  const std::vector<std::string> names = {
      "\0"s, "a\r\nb"s, " *?[{%s"s, "\xff\xfe\0z"s, std::string(65536, 'n'), ""s};
  subscribe(names);
  for (const std::string& name : names) {
    ASSERT_TRUE(awaitSubscribed(name));
    EXPECT_EQ(raw.publish(name, name), 1);
  }
  const std::string large(1 << 20, '\n');
  EXPECT_EQ(raw.publish(names[0], large), 1);
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.messageCount() == names.size() + 1; }));
  const auto messages = recorder_.messages();
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(messages[i].first, names[i]);
    EXPECT_EQ(messages[i].second, names[i]);
  }
  EXPECT_EQ(messages.back().second, large);
}

TEST_F(PubSubLinkRedisTest, AnnouncesAnewWhenSubscribedAgain) {
  const RedisServer server;
  open(quickSettings(server.port()));
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  subscribe({"a"});
  EXPECT_TRUE(awaitSubscribed("a", 2));
  EXPECT_EQ(channels(), 1U);
  harness_.run([this] {
    link_->unsubscribe("a");
    link_->subscribe("a");
    link_->unsubscribe("a");
    link_->subscribe("a");
  });
  EXPECT_TRUE(awaitSubscribed("a", 3));
  EXPECT_EQ(channels(), 1U);
}

TEST_F(PubSubLinkRedisTest, SaysNothingOfAChannelThatWasGivenUpMeanwhile) {
  const RedisServer server;
  RawRedis raw(server);
  open(quickSettings(server.port()));
  subscribe({"keep"});
  ASSERT_TRUE(awaitSubscribed("keep"));
  subscribe({"a"});
  unsubscribe({"a", "unknown"});
  subscribe({"end"});
  ASSERT_TRUE(awaitSubscribed("end"));
  EXPECT_TRUE(eventually(kLong, [&] {
    return raw.pubsubChannels() == std::set<std::string>{"keep", "end"};
  }));
}

TEST_F(PubSubLinkRedisTest, EndsRightAfterAnyChurn) {
  const RedisServer server;
  RawRedis raw(server);
  open(quickSettings(server.port()));
  const std::vector<std::string> names = {"c0", "c1", "c2", "c3", "c4"};
  std::mt19937 random(4711);
  std::set<std::string> wanted;
  for (int round = 0; round < 400; ++round) {
    harness_.run([&] {
      for (auto step = random() % 6; step > 0; --step) {
        const std::string& name = names[random() % names.size()];
        if (random() % 2 == 0) {
          link_->subscribe(name);
          wanted.insert(name);
        } else {
          link_->unsubscribe(name);
          link_->unsubscribe(name);
          wanted.erase(name);
        }
      }
    });
    if (round % 40 == 39) {
      ASSERT_TRUE(eventually(kLong, [&] { return raw.pubsubChannels() == wanted; })) << round;
      EXPECT_EQ(channels(), wanted.size());
    }
    if (round % 100 == 50) {
      raw.clientKillType("pubsub");
    }
  }
  recorder_.forgetSubscribed();
  subscribe({names.begin(), names.end()});
  for (const std::string& name : names) {
    ASSERT_TRUE(awaitSubscribed(name));
    EXPECT_EQ(raw.publish(name, "x"), 1);
  }
  unsubscribe({names.begin(), names.end()});
  EXPECT_TRUE(eventually(kLong, [&] { return raw.pubsubChannels().empty(); }));
}

TEST_F(PubSubLinkRedisTest, CarriesTenThousandChannels) {
  constexpr std::size_t kChannels = 10000;
  const RedisServer server;
  RawRedis raw(server);
  LinkSettings settings = quickSettings(server.port());
  settings.replyTimeout = scaled(5s);
  open(settings);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kChannels; ++i) {
    names.push_back("redisson_lock__channel:{name-" + std::to_string(i) + "}");
  }
  subscribe(names);
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.subscribedChannels() == kChannels; }));
  EXPECT_EQ(raw.pubsubChannels().size(), kChannels);
  EXPECT_EQ(raw.publish(names[7777], "x"), 1);
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.messageCount() == 1; }));

  recorder_.forgetSubscribed();
  EXPECT_EQ(raw.clientKillType("pubsub"), 1);
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.subscribedChannels() == kChannels; }));
  EXPECT_EQ(raw.pubsubChannels().size(), kChannels);

  unsubscribe(names);
  EXPECT_TRUE(eventually(kLong, [&] { return raw.pubsubChannels().empty(); }));
  EXPECT_EQ(channels(), 0U);
}

TEST_F(PubSubLinkRedisTest, DeliversAFloodInOrder) {
  constexpr std::size_t kMessages = 20000;
  const RedisServer server;
  RawRedis raw(server);
  open(quickSettings(server.port()));
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  for (std::size_t i = 0; i < kMessages; ++i) {
    raw.send({"PUBLISH", "a", std::to_string(i)});
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    raw.receive();
  }
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.messageCount() == kMessages; }));
  const auto messages = recorder_.messages();
  for (std::size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(messages[i].second, std::to_string(i));
  }
}

TEST_F(PubSubLinkRedisTest, ClosesAnIdleConnectionAndOpensAnother) {
  const RedisServer server;
  RawRedis raw(server);
  LinkSettings settings = quickSettings(server.port());
  settings.idleLinger = 50ms;
  open(settings);
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  unsubscribe({"a"});
  EXPECT_TRUE(eventually(kLong, [&] { return clientIds(raw).empty(); }));
  EXPECT_FALSE(up());
  EXPECT_TRUE(recorder_.downs().empty());
  subscribe({"a"});
  EXPECT_TRUE(awaitSubscribed("a", 2));
  EXPECT_EQ(recorder_.ups(), 2);
}

TEST_F(PubSubLinkRedisTest, KeepsTheConnectionWhileChannelsComeAndGo) {
  const RedisServer server;
  open(quickSettings(server.port()));
  for (int i = 1; i <= 20; ++i) {
    subscribe({"a"});
    ASSERT_TRUE(awaitSubscribed("a", i));
    unsubscribe({"a"});
  }
  EXPECT_EQ(recorder_.ups(), 1);
}

// -----------------------------------------------------------------------------------------
// refusals

TEST_F(PubSubLinkRedisTest, AsksAgainForARefusedChannelAndKeepsTheOthers) {
  RedisServer::Options options;
  options.aclUsers = {"limited on >pw ~* resetchannels &ok:* +@all"};
  const RedisServer server(options);
  RawRedis raw(server);
  LinkSettings settings = quickSettings(server.port());
  settings.username = "limited";
  settings.password = "pw";
  open(settings);
  subscribe({"ok:1", "bad:1", "ok:2", "bad:2", "ok:3"});
  for (const char* const channel : {"ok:1", "ok:2", "ok:3"}) {
    EXPECT_TRUE(awaitSubscribed(channel));
  }
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.refused().size() == 2; }));
  using Refusal = std::pair<std::string, Errc>;
  auto refused = recorder_.refused();
  std::sort(refused.begin(), refused.end());
  EXPECT_EQ(refused, (std::vector<Refusal>{{"bad:1", Errc::denied}, {"bad:2", Errc::denied}}));
  EXPECT_EQ(channels(), 5U) << "what is refused stays wanted";
  EXPECT_EQ(recorder_.ups(), 1);
  EXPECT_TRUE(recorder_.downs().empty());

  unsubscribe({"bad:2"});
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.refused().size() >= 3; }));
  EXPECT_EQ(recorder_.refused().back().first, "bad:1");
  EXPECT_GT(recorder_.refusedAt().at(2) - recorder_.refusedAt().at(0), 500ms) << "there is a pause";
  raw.run({"ACL", "SETUSER", "limited", "&bad:*"});
  EXPECT_TRUE(awaitSubscribed("bad:1"));
  EXPECT_EQ(raw.publish("bad:1", "x"), 1);
  EXPECT_EQ(raw.publish("ok:2", "x"), 1);
  EXPECT_EQ(recorder_.subscribed("bad:2"), 0);
  EXPECT_EQ(recorder_.ups(), 1);
}

TEST_F(PubSubLinkRedisTest, ReportsWrongCredentialsAndGoesOnTrying) {
  RedisServer::Options options;
  options.password = "right";
  const RedisServer server(options);
  RawRedis raw(server);
  LinkSettings settings = quickSettings(server.port());
  settings.password = "wrong";
  open(settings);
  subscribe({"a"});
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.downs().size() >= 3; }));
  EXPECT_EQ(recorder_.downs().front().errc(), Errc::authenticationFailed);
  EXPECT_EQ(recorder_.ups(), 0);
  raw.configSet("requirepass", "wrong");
  EXPECT_TRUE(awaitSubscribed("a"));
}

TEST_F(PubSubLinkRedisTest, TriesAgainWhileTheServerIsBusy) {
  const RedisServer server;
  TcpProxy proxy(server);
  TcpProxy::RuleOptions twice;
  twice.limit = 2;
  const auto rule =
      proxy.addRule(TcpProxy::command("SUBSCRIBE"),
                    TcpProxy::Action::replyWithError("BUSY Redis is busy running a script"),
                    twice);
  open(quickSettings(proxy.port()));
  subscribe({"a", "b"});
  EXPECT_TRUE(awaitSubscribed("a") && awaitSubscribed("b"));
  EXPECT_EQ(rule.hits(), 2U);
  EXPECT_EQ(recorder_.ups(), 1);
  EXPECT_TRUE(recorder_.refused().empty());
}

TEST_F(PubSubLinkTest, ReportsAServerWithoutSubscriptions) {
  const ScriptedServer server({{"PING", handshake()}, {"SUBSCRIBE", "-ERR unknown command\r\n"}});
  open(quickSettings(server.port()));
  subscribe({"a"});
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.refused().size() == 1; }));
  EXPECT_EQ(recorder_.refused()[0].second, Errc::serverError);
  EXPECT_TRUE(up());
}

// ------------------------------------------------------------------------------------------ repair

TEST_F(PubSubLinkRedisTest, SubscribesAgainWhenTheServerKillsTheConnection) {
  const RedisServer server;
  RawRedis raw(server);
  open(quickSettings(server.port()));
  subscribe({"a", "b"});
  ASSERT_TRUE(awaitSubscribed("a") && awaitSubscribed("b"));
  for (int round = 2; round < 7; ++round) {
    EXPECT_EQ(raw.clientKillType("pubsub"), 1);
    ASSERT_TRUE(awaitSubscribed("a", round) && awaitSubscribed("b", round));
    EXPECT_EQ(raw.publish("a", "x"), 1);
  }
  EXPECT_EQ(recorder_.ups(), 6);
  ASSERT_EQ(recorder_.downs().size(), 5U);
  EXPECT_EQ(recorder_.downs()[0].errc(), Errc::connectionFailed);
  EXPECT_TRUE(eventually(kLong, [&] { return recorder_.messageCount() == 5; }));
}

TEST_F(PubSubLinkRedisTest, ConnectsAgainAtOnceAfterASubscriptionThatHasLasted) {
  const RedisServer server;
  RawRedis raw(server);
  LinkSettings settings = quickSettings(server.port());
  // At least half of it would be waited for.
  const milliseconds pause = scaled(2s);
  settings.reconnectDelayMin = pause;
  settings.reconnectDelayMax = pause;
  open(settings);
  subscribe({"a"});
  for (int round = 1; round < 3; ++round) {
    ASSERT_TRUE(awaitSubscribed("a", round));
    test::Stopwatch watch;
    ASSERT_TRUE(eventually(kLong, [&] { return watch.elapsedMs() > pause; }));
    EXPECT_EQ(raw.clientKillType("pubsub"), 1);
    watch.restart();
    ASSERT_TRUE(awaitSubscribed("a", round + 1));
    EXPECT_LT(watch.elapsedMs(), pause / 2);
  }
}

TEST_F(PubSubLinkRedisTest, ConnectsAgainAtOnceAfterItHasClosedAnIdleConnection) {
  const RedisServer server;
  LinkSettings settings = quickSettings(server.port());
  // At least half of it would be waited for, which is longer than the test waits.
  settings.reconnectDelayMin = scaled(60s);
  settings.reconnectDelayMax = scaled(60s);
  settings.idleLinger = 1ms;
  open(settings);
  for (int round = 1; round < 4; ++round) {
    subscribe({"a"});
    ASSERT_TRUE(awaitSubscribed("a", round));
    unsubscribe({"a"});
    ASSERT_TRUE(eventually(kLong, [&] { return !up(); }));
  }
}

TEST_F(PubSubLinkRedisTest, SurvivesARestartOfTheServer) {
  RedisServer server;
  open(quickSettings(server.port()));
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  server.kill();
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.downs().size() >= 3; }));
  subscribe({"b"});
  unsubscribe({"a"});
  server.start();
  ASSERT_TRUE(awaitSubscribed("b"));
  RawRedis raw(server);
  EXPECT_EQ(raw.pubsubChannels(), std::set<std::string>{"b"});
}

TEST_F(PubSubLinkRedisTest, GivesUpConnectingWhenNoChannelIsLeft) {
  const test::PortReservation refused;
  open(quickSettings(refused.port()));
  subscribe({"a"});
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.downs().size() >= 2; }));
  unsubscribe({"a"});
  // At most the attempt under way ends after this.
  std::size_t seen = 0;
  EXPECT_TRUE(eventually(kLong, [&] {
    const std::size_t before = seen;
    seen = recorder_.downs().size();
    std::this_thread::sleep_for(100ms);
    return before == seen;
  }));
  EXPECT_EQ(channels(), 0U);
}

TEST_F(PubSubLinkRedisTest, NoticesAFrozenServerInTime) {
  RedisServer server;
  LinkSettings settings = quickSettings(server.port());
  settings.heartbeatInterval = 200ms;
  settings.replyTimeout = 300ms;
  settings.connectTimeout = 500ms;
  open(settings);
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  const test::Stopwatch watch;
  server.freeze();
  ASSERT_TRUE(eventually(kLong, [&] { return !recorder_.downs().empty(); }));
  EXPECT_LE(watch.elapsedMs(),
            settings.heartbeatInterval + settings.replyTimeout + scaled(milliseconds(100)));
  server.thaw();
  EXPECT_TRUE(awaitSubscribed("a", 2));
}

TEST_F(PubSubLinkRedisTest, NoticesAnUnansweredSubscriptionSooner) {
  RedisServer server;
  LinkSettings settings = quickSettings(server.port());
  settings.heartbeatInterval = 60s;
  settings.replyTimeout = 200ms;
  settings.connectTimeout = 500ms;
  open(settings);
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  server.freeze();
  const test::Stopwatch watch;
  subscribe({"b"});
  ASSERT_TRUE(eventually(kLong, [&] { return !recorder_.downs().empty(); }));
  EXPECT_GE(watch.elapsedMs(), settings.replyTimeout);
  EXPECT_LE(watch.elapsedMs(), settings.replyTimeout + scaled(milliseconds(100)));
  server.thaw();
  EXPECT_TRUE(awaitSubscribed("b"));
}

TEST_F(PubSubLinkRedisTest, NoticesBlackHolesInEitherDirection) {
  const RedisServer server;
  TcpProxy proxy(server);
  LinkSettings settings = quickSettings(proxy.port());
  settings.heartbeatInterval = 100ms;
  settings.replyTimeout = 150ms;
  settings.connectTimeout = 300ms;
  open(settings);
  subscribe({"a"});
  int round = 1;
  for (const TcpProxy::Direction direction :
       {TcpProxy::Direction::both, TcpProxy::Direction::toClient, TcpProxy::Direction::toServer}) {
    ASSERT_TRUE(eventually(kLong, [&] { return up() && recorder_.subscribed("a") >= round; }));
    const std::size_t downs = recorder_.downs().size();
    const test::Stopwatch watch;
    proxy.blackHole(direction);
    ASSERT_TRUE(eventually(kLong, [&] { return recorder_.downs().size() > downs; }));
    EXPECT_LE(watch.elapsedMs(),
              settings.heartbeatInterval + settings.replyTimeout + scaled(milliseconds(100)));
    proxy.heal();
    ++round;
  }
  EXPECT_TRUE(awaitSubscribed("a", round));
}

TEST_F(PubSubLinkRedisTest, TakesItsOwnStandstillForNoSilenceOfTheServer) {
  const RedisServer server;
  RawRedis raw(server);
  TcpProxy proxy(server);
  LinkSettings settings = quickSettings(proxy.port());
  settings.replyTimeout = scaled(1500ms);
  open(settings);
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  proxy.blackHole(TcpProxy::Direction::toClient);
  subscribe({"b"});
  ASSERT_TRUE(eventually(kLong, [&] { return raw.numsub("b") == 1; }));
  // The answer comes while the loop stands still, so the time is over before the loop can read it.
  harness_.run([&] {
    proxy.endBlackHole();
    std::this_thread::sleep_for(2 * settings.replyTimeout);
  });
  ASSERT_TRUE(awaitSubscribed("b"));
  EXPECT_TRUE(up());
  EXPECT_TRUE(recorder_.downs().empty());
  EXPECT_EQ(recorder_.ups(), 1);
}

TEST_F(PubSubLinkRedisTest, NoticesThatOnlyMessagesStillArrive) {
  const RedisServer server;
  RawRedis raw(server);
  TcpProxy proxy(server);
  LinkSettings settings = quickSettings(proxy.port());
  settings.replyTimeout = scaled(500ms);
  open(settings);
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  const std::size_t downs = recorder_.downs().size();
  proxy.blackHole(TcpProxy::Direction::toServer);
  std::atomic<bool> stop{false};
  std::thread publisher([&] {
    while (!stop) {
      raw.publish("a", "x");
      std::this_thread::sleep_for(10ms);
    }
  });
  subscribe({"b"});
  EXPECT_TRUE(eventually(kLong, [&] { return recorder_.downs().size() > downs; }));
  proxy.heal();
  EXPECT_TRUE(awaitSubscribed("b"));
  stop = true;
  publisher.join();
}

TEST_F(PubSubLinkRedisTest, PingsAnIdleConnectionOnly) {
  const RedisServer server;
  RawRedis raw(server);
  TcpProxy proxy(server);
  LinkSettings settings = quickSettings(proxy.port());
  settings.heartbeatInterval = 100ms;
  open(settings);
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  proxy.recordCommands(true);
  ASSERT_TRUE(proxy.waitForCommands(TcpProxy::command("PING"), 3, kLong));
  EXPECT_TRUE(recorder_.downs().empty());
  // On a host that is busy a message may come so late that the connection was idle after all. A
  // round in which that cannot be ruled out says nothing, and there is another one.
  std::size_t pings = 0;
  const auto alwaysBusy = [&] {
    const test::Stopwatch watch;
    // Until a message has come the silence may have lasted since the one before was sent.
    test::Stopwatch silence;
    auto longest = silence.elapsed();
    const auto ended = [&] { longest = std::max(longest, silence.elapsed()); };
    proxy.clearCommands();
    while (watch.elapsedMs() < 400ms) {
      const std::size_t before = recorder_.messageCount();
      const test::Stopwatch sent;
      raw.publish("a", "x");
      if (!eventually(kLong, [&] { return recorder_.messageCount() > before; })) {
        return false;
      }
      ended();
      silence = sent;
    }
    pings = proxy.countCommands(TcpProxy::command("PING"));
    ended();
    return longest < settings.heartbeatInterval;
  };
  ASSERT_TRUE(eventually(kLong, alwaysBusy));
  EXPECT_LE(pings, 1U);
}

TEST_F(PubSubLinkRedisTest, NeverBlocksOnAPeerThatDoesNotRead) {
  const RedisServer server;
  TcpProxy proxy(server);
  LinkSettings settings = quickSettings(proxy.port());
  settings.replyTimeout = scaled(1500ms);
  settings.connectTimeout = scaled(1500ms);
  open(settings);
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  proxy.blackHole();
  std::vector<std::string> names;
  for (int i = 0; i < 400; ++i) {
    names.push_back(std::string(60000, 'x') + std::to_string(i));
  }
  subscribe(names);
  // A write that waited would hold the loop until the proxy reads again, which it does below.
  harness_.run([] {});
  ASSERT_TRUE(eventually(kLong, [&] { return !recorder_.downs().empty(); }));
  proxy.heal();
  for (const std::string& name : names) {
    ASSERT_TRUE(awaitSubscribed(name));
  }
}

TEST_F(PubSubLinkRedisTest, ManagesOneByteAtATime) {
  const RedisServer server;
  RawRedis raw(server);
  TcpProxy proxy(server);
  LinkSettings settings = quickSettings(proxy.port());
  settings.connectTimeout = scaled(10s);
  settings.replyTimeout = scaled(10s);
  open(settings);
  proxy.setThrottle(TcpProxy::Direction::both, 1, 1ms);
  subscribe({"a", "b"});
  ASSERT_TRUE(awaitSubscribed("a") && awaitSubscribed("b"));
  raw.publish("a", "hello");
  EXPECT_TRUE(eventually(kLong, [&] { return recorder_.messageCount() == 1; }));
}

// ----------------------------------------------------------------------------------- strange
// servers

TEST_F(PubSubLinkTest, IgnoresForeignFrames) {
  const ScriptedServer server(
      {{"PING", handshake()},
       {"SUBSCRIBE",
        "*3\r\n$9\r\nsubscribe\r\n$7\r\nforeign\r\n:1\r\n"
        "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"
        "*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\na\r\n$1\r\nx\r\n"
        "*3\r\n$7\r\nmessage\r\n$7\r\nforeign\r\n$1\r\nx\r\n"
        "+OK\r\n:5\r\n$-1\r\n*0\r\n*1\r\n:1\r\n+PONG\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n"
        "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
        "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$3\r\nyes\r\n"}});
  open(quickSettings(server.port()));
  subscribe({"a"});
  ASSERT_TRUE(awaitSubscribed("a"));
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.messageCount() == 1; }));
  EXPECT_EQ(recorder_.messages()[0].second, "yes");
  EXPECT_EQ(recorder_.subscribedChannels(), 1U);
  EXPECT_TRUE(recorder_.downs().empty());
}

TEST_F(PubSubLinkTest, TakesConfirmationsInAnyOrder) {
  const ScriptedServer server({{"PING", handshake()},
                               {"SUBSCRIBE",
                                "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
                                "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:2\r\n"
                                "*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:3\r\n"}});
  LinkSettings settings = quickSettings(server.port());
  settings.replyTimeout = scaled(5s);
  open(settings);
  subscribe({"a", "b", "c"});
  EXPECT_TRUE(awaitSubscribed("a") && awaitSubscribed("b") && awaitSubscribed("c"));
  EXPECT_TRUE(recorder_.downs().empty());
}

TEST_F(PubSubLinkTest, SubscribesAgainWhenTheServerEndsASubscription) {
  const ScriptedServer server({{"PING", handshake()},
                               {"SUBSCRIBE",
                                "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
                                "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n"},
                               {"SUBSCRIBE", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"}});
  open(quickSettings(server.port()));
  subscribe({"a"});
  EXPECT_TRUE(awaitSubscribed("a", 2));
  EXPECT_TRUE(recorder_.downs().empty());
}

TEST_F(PubSubLinkTest, ConnectsAgainAfterBytesThatAreNoProtocol) {
  const ScriptedServer server({{"PING", handshake()}, {"SUBSCRIBE", "garbage\r\n"}});
  open(quickSettings(server.port()));
  subscribe({"a"});
  ASSERT_TRUE(eventually(kLong, [&] { return recorder_.downs().size() >= 3; }));
  EXPECT_EQ(recorder_.downs()[0].errc(), Errc::protocolError);
  EXPECT_GE(server.accepted(), 3U);
}

TEST_F(PubSubLinkTest, BacksOffFromAServerThatClosesEachConnection) {
  const ScriptedServer server({{"PING", handshake()}, {"SUBSCRIBE", ""}},
                              ScriptedServer::Then::close);
  expectBackOff(server);
}

TEST_F(PubSubLinkTest, BacksOffFromAServerThatConfirmsAndCloses) {
  const ScriptedServer server(
      {{"PING", handshake()}, {"SUBSCRIBE", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"}},
      ScriptedServer::Then::close);
  expectBackOff(server);
}

// --------------------------------------------------------------------------------------------
// close

TEST_F(PubSubLinkRedisTest, LeavesNothingBehindWhenClosed) {
  const RedisServer server;
  RawRedis raw(server);
  const std::size_t before = test::openDescriptors();
  for (int i = 0; i < 10; ++i) {
    open(quickSettings(server.port()));
    subscribe({"a"});
    ASSERT_TRUE(awaitSubscribed("a", i + 1));
    harness_.run([this] {
      link_->close();
      link_->close();
      link_->subscribe("b");
      link_->unsubscribe("a");
      EXPECT_FALSE(link_->up());
      EXPECT_EQ(link_->channels(), 0U);
    });
    EXPECT_TRUE(eventually(kLong, [&] { return clientIds(raw).empty(); }));
  }
  EXPECT_EQ(recorder_.ups(), 10);
  EXPECT_TRUE(eventually(kLong, [&] { return test::openDescriptors() <= before; }));
}

TEST_F(PubSubLinkRedisTest, MayBeClosedOrDestroyedInAnyEvent) {
  /// Ends the link at the first event of one kind.
  class Ender : public PubSubEvents {
   public:
    explicit Ender(std::string when, bool destroy) : when_(std::move(when)), destroy_(destroy) {}
    void onSubscribed(const std::string&) override { end("subscribed"); }
    void onRefused(const std::string&, const Error&) override { end("refused"); }
    void onMessage(const std::string&, std::string_view) override { end("message"); }
    void onUp() override { end("up"); }
    void onDown(const Error&) override { end("down"); }
    void end(const std::string& event) {
      EXPECT_FALSE(ended) << event << " after the end";
      if (event != when_) {
        return;
      }
      ended = true;
      link->close();
      if (destroy_) {
        link.reset();
      }
    }
    std::unique_ptr<PubSubLink> link;
    std::atomic<bool> ended{false};

   private:
    std::string when_;
    bool destroy_;
  };
  RedisServer::Options options;
  options.aclUsers = {"limited on >pw ~* resetchannels &ok:* +@all"};
  const RedisServer server(options);
  RawRedis raw(server);
  for (const std::string_view when : {"up", "subscribed", "refused", "message", "down"}) {
    for (const bool destroy : {false, true}) {
      SCOPED_TRACE(std::string(when));
      LinkSettings settings = quickSettings(server.port());
      settings.username = "limited";
      settings.password = "pw";
      Ender ender(std::string(when), destroy);
      harness_.run([&] {
        ender.link = std::make_unique<PubSubLink>(harness_.loop(), settings, ender);
        ender.link->subscribe("ok:1");
        ender.link->subscribe("bad:1");
        ender.link->subscribe("ok:2");
      });
      EXPECT_TRUE(eventually(kLong, [&] {
        if (when == "message") {
          raw.publish("ok:1", "x");
          raw.publish("ok:1", "y");
        } else if (when == "down") {
          raw.clientKillType("pubsub");
        }
        return ender.ended.load();
      }));
      harness_.run([&] { ender.link.reset(); });
    }
  }
}

TEST_F(PubSubLinkRedisTest, MayBeClosedInEveryState) {
  const RedisServer server;
  const test::SilentListener blackHole;
  const ScriptedServer silent({});
  const test::PortReservation refused;
  for (const std::uint16_t port :
       {server.port(), blackHole.port(), silent.port(), refused.port()}) {
    for (int pause = 0; pause < 4; ++pause) {
      harness_.run([&] {
        link_ = std::make_unique<PubSubLink>(harness_.loop(), quickSettings(port), recorder_);
        link_->subscribe("a");
      });
      for (int i = 0; i < pause; ++i) {
        harness_.run([] {});
      }
      harness_.run([this] { link_.reset(); });
    }
  }
}

TEST_F(PubSubLinkRedisTest, SurvivesEventsThatThrow) {
  class Thrower : public PubSubEvents {
   public:
    void onSubscribed(const std::string&) override { fail(); }
    void onRefused(const std::string&, const Error&) override { fail(); }
    void onMessage(const std::string&, std::string_view) override { fail(); }
    void onUp() override { fail(); }
    void onDown(const Error&) override { fail(); }
    void fail() {
      ++calls;
      throw std::runtime_error("from an event");
    }
    std::atomic<int> calls{0};
  };
  const RedisServer server;
  RawRedis raw(server);
  Thrower thrower;
  test::CapturedLog captured;
  LinkSettings settings = quickSettings(server.port());
  settings.log = std::make_shared<const Logger>(captured.hook(), LogLevel::trace);
  auto link = harness_.run([&] {
    auto created = std::make_unique<PubSubLink>(harness_.loop(), settings, thrower);
    created->subscribe("a");
    created->subscribe("b");
    return created;
  });
  ASSERT_TRUE(eventually(kLong, [&] { return thrower.calls >= 3; }));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(raw.publish("a", "x"), 1);
  }
  EXPECT_TRUE(eventually(kLong, [&] { return thrower.calls >= 6; }));
  raw.clientKillType("pubsub");
  EXPECT_TRUE(eventually(kLong, [&] { return thrower.calls >= 10; }));
  EXPECT_TRUE(captured.contains("from an event"));
  harness_.run([&] { link.reset(); });
}

TEST_F(PubSubLinkRedisTest, LeavesNothingBehindWhenTheLoopStopsFirst) {
  const RedisServer server;
  RawRedis raw(server);
  LoopHarness harness;
  Recorder recorder(*harness.loop());
  auto link = harness.run([&] {
    auto created =
        std::make_unique<PubSubLink>(harness.loop(), quickSettings(server.port()), recorder);
    created->subscribe("a");
    return created;
  });
  ASSERT_TRUE(eventually(kLong, [&] { return recorder.subscribed("a") == 1; }));
  EXPECT_TRUE(harness.stop());
  link.reset();
  EXPECT_TRUE(eventually(kLong, [&] { return raw.numsub("a") == 0; }));
}

}  // namespace
}  // namespace rlock::detail::net
