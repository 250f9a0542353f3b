// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/net/subscription_book.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail::net {
namespace {

using namespace std::chrono_literals;

using Kind = SubscriptionBook::Meaning::Kind;
using Words = std::vector<std::string>;
using Requests = std::vector<Words>;

Reply text(std::string_view bytes, Reply::Type type = Reply::Type::string) {
  Reply reply;
  reply.type = type;
  reply.text = bytes;
  return reply;
}

Reply list(std::string_view kind, std::string_view name, Reply last) {
  Reply reply;
  reply.type = Reply::Type::array;
  reply.elements = {text(kind), text(name), std::move(last)};
  return reply;
}

Reply confirmation(std::string_view kind, std::string_view name) {
  Reply count;
  count.type = Reply::Type::integer;
  return list(kind, name, count);
}

Reply error(std::string_view bytes) {
  return text(bytes, Reply::Type::error);
}

class SubscriptionBookTest : public ::testing::Test {
 protected:
  SubscriptionBookTest() { book.begin(now); }

  /// The requests that the book wants to be written now.
  Requests sent() {
    Requests requests;
    book.sendDue(now, [&](const std::vector<std::string_view>& words) {
      requests.emplace_back(words.begin(), words.end());
    });
    return requests;
  }
  void ping() {
    book.sendPing(now, [](const std::vector<std::string_view>& words) {
      EXPECT_EQ(words, std::vector<std::string_view>{"PING"});
    });
  }
  Kind take(const Reply& reply) { return book.take(reply, now).kind; }
  Kind subscribed(std::string_view name) { return take(confirmation("subscribe", name)); }
  Kind unsubscribed(std::string_view name) { return take(confirmation("unsubscribe", name)); }
  /// Subscribes a channel and has it confirmed.
  void have(const std::string& name) {
    book.subscribe(name);
    sent();
    ASSERT_EQ(subscribed(name), Kind::subscribed);
  }

  SubscriptionBook::TimePoint now = SubscriptionBook::TimePoint(1h);
  SubscriptionBook book{{.replyTimeout = 3000ms,
                         .heartbeatInterval = 5000ms,
                         .idleLinger = 10000ms,
                         .retryDelayMin = 20ms,
                         .retryDelayMax = 100ms}};
};

TEST_F(SubscriptionBookTest, AsksForWhatIsWanted) {
  EXPECT_FALSE(book.due());
  book.subscribe("a");
  book.subscribe("b");
  EXPECT_TRUE(book.due());
  EXPECT_EQ(book.wanted(), 2U);
  EXPECT_EQ(sent(), (Requests{{"SUBSCRIBE", "a", "b"}}));
  EXPECT_FALSE(book.due());
  EXPECT_EQ(sent(), Requests{});
  const Reply reply = confirmation("subscribe", "a");
  const auto meaning = book.take(reply, now);
  EXPECT_EQ(meaning.kind, Kind::subscribed);
  EXPECT_TRUE(meaning.answered);
  ASSERT_NE(meaning.channel, nullptr);
  EXPECT_EQ(*meaning.channel, "a");
  EXPECT_EQ(subscribed("b"), Kind::subscribed);
  EXPECT_FALSE(book.due());
}

TEST_F(SubscriptionBookTest, PassesOnMessagesOfWantedChannelsOnly) {
  have("a");
  EXPECT_EQ(take(list("message", "a", text("payload"))), Kind::message);
  EXPECT_EQ(take(list("message", "b", text("payload"))), Kind::nothing);
  book.unsubscribe("a", now);
  EXPECT_EQ(take(list("message", "a", text("payload"))), Kind::nothing);
}

TEST_F(SubscriptionBookTest, IgnoresRepliesOfNoKnownForm) {
  EXPECT_EQ(take(text("OK", Reply::Type::status)), Kind::nothing);
  EXPECT_EQ(take(Reply{}), Kind::nothing);
  EXPECT_EQ(take(list("smessage", "a", text("payload"))), Kind::nothing);
  EXPECT_EQ(subscribed("stranger"), Kind::nothing);
  Reply empty;
  empty.type = Reply::Type::array;
  EXPECT_EQ(take(empty), Kind::nothing);
}

TEST_F(SubscriptionBookTest, GivesUpAChannelAndForgetsIt) {
  have("a");
  book.unsubscribe("a", now);
  EXPECT_EQ(book.wanted(), 0U);
  EXPECT_EQ(sent(), (Requests{{"UNSUBSCRIBE", "a"}}));
  EXPECT_EQ(unsubscribed("a"), Kind::nothing);
  EXPECT_TRUE(book.idle(now + 10s));
}

TEST_F(SubscriptionBookTest, AnAnswerToAnEarlierRequestConfirmsNothing) {
  book.subscribe("a");
  sent();
  book.subscribe("a");
  EXPECT_EQ(sent(), Requests{}) << "one request of a channel at a time";
  EXPECT_EQ(subscribed("a"), Kind::nothing);
  EXPECT_EQ(sent(), (Requests{{"SUBSCRIBE", "a"}}));
  EXPECT_EQ(subscribed("a"), Kind::subscribed);
}

TEST_F(SubscriptionBookTest, AConfirmedChannelIsConfirmedAnew) {
  have("a");
  book.subscribe("a");
  EXPECT_EQ(sent(), (Requests{{"SUBSCRIBE", "a"}}));
  EXPECT_EQ(subscribed("a"), Kind::subscribed);
}

TEST_F(SubscriptionBookTest, AChannelGivenUpBeforeItsAnswerIsUnsubscribedThen) {
  book.subscribe("a");
  sent();
  book.unsubscribe("a", now);
  EXPECT_EQ(sent(), Requests{});
  EXPECT_EQ(subscribed("a"), Kind::nothing);
  EXPECT_EQ(sent(), (Requests{{"UNSUBSCRIBE", "a"}}));
}

TEST_F(SubscriptionBookTest, AChannelWantedAgainBeforeItsEndIsSubscribedThen) {
  have("a");
  book.unsubscribe("a", now);
  sent();
  book.subscribe("a");
  EXPECT_EQ(sent(), Requests{});
  EXPECT_EQ(unsubscribed("a"), Kind::nothing);
  EXPECT_EQ(sent(), (Requests{{"SUBSCRIBE", "a"}}));
}

TEST_F(SubscriptionBookTest, ASubscriptionThatTheServerEndsIsMadeAgain) {
  have("a");
  const Reply reply = confirmation("unsubscribe", "a");
  const auto meaning = book.take(reply, now);
  EXPECT_FALSE(meaning.answered);
  EXPECT_EQ(sent(), (Requests{{"SUBSCRIBE", "a"}}));
}

TEST_F(SubscriptionBookTest, ASecondWishIsForgottenWithTheChannel) {
  book.subscribe("a");
  sent();
  book.subscribe("a");
  book.unsubscribe("a", now);
  book.subscribe("a");
  // One more request confirms this wish; a third would be for the one that was given up.
  EXPECT_EQ(subscribed("a"), Kind::nothing);
  EXPECT_EQ(sent(), (Requests{{"SUBSCRIBE", "a"}}));
  EXPECT_EQ(subscribed("a"), Kind::subscribed);
  EXPECT_EQ(sent(), Requests{});
}

TEST_F(SubscriptionBookTest, ARefusalAnswersTheSecondWishToo) {
  book.subscribe("a");
  sent();
  book.subscribe("a");
  EXPECT_EQ(take(error("NOPERM no")), Kind::refused);
  now += 1s;
  book.retry(now);
  EXPECT_EQ(sent(), (Requests{{"SUBSCRIBE", "a"}}));
  EXPECT_EQ(subscribed("a"), Kind::subscribed);
  EXPECT_EQ(sent(), Requests{});
}

TEST_F(SubscriptionBookTest, SaysNothingWhenAChannelComesAndGoesAtOnce) {
  book.subscribe("a");
  book.unsubscribe("a", now);
  EXPECT_EQ(sent(), Requests{});
  EXPECT_TRUE(book.idle(now + 10s)) << "it is forgotten";
}

TEST_F(SubscriptionBookTest, SplitsLongRequests) {
  std::set<std::string> names;
  for (int i = 0; i < 300; ++i) {
    names.insert("channel" + std::to_string(i));
    book.subscribe("channel" + std::to_string(i));
  }
  const Requests requests = sent();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].size(), 129U);
  for (const Words& words : requests) {
    for (std::size_t i = 1; i < words.size(); ++i) {
      EXPECT_EQ(names.erase(words[i]), 1U);
    }
  }
  EXPECT_TRUE(names.empty());
  book.subscribe(std::string(20'000, 'x'));
  book.subscribe(std::string(20'000, 'y'));
  EXPECT_EQ(sent().size(), 2U);
}

TEST_F(SubscriptionBookTest, ANewConnectionStartsFromWhatIsWanted) {
  have("confirmed");
  book.subscribe("asked");
  sent();
  have("given up");
  book.unsubscribe("given up", now);
  book.end();
  EXPECT_FALSE(book.due());
  EXPECT_EQ(book.wanted(), 2U);
  book.subscribe("meanwhile");
  EXPECT_EQ(sent(), Requests{}) << "there is no connection";
  book.begin(now);
  const Requests requests = sent();
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(std::set<std::string>(requests[0].begin(), requests[0].end()),
            (std::set<std::string>{"SUBSCRIBE", "confirmed", "asked", "meanwhile"}));
  EXPECT_EQ(subscribed("asked"), Kind::subscribed);
}

TEST_F(SubscriptionBookTest, StartsOverAfterAWriteThatThrew) {
  book.subscribe("a");
  EXPECT_THROW(
      book.sendDue(
          now, [](const std::vector<std::string_view>&) { throw std::runtime_error("no memory"); }),
      std::runtime_error);
  book.end();
  book.begin(now);
  EXPECT_EQ(sent(), (Requests{{"SUBSCRIBE", "a"}}));
  EXPECT_EQ(subscribed("a"), Kind::subscribed);
}

TEST_F(SubscriptionBookTest, ARefusedChannelIsAskedForAgainMoreAndMoreRarely) {
  book.subscribe("a");
  for (const auto pause : {1s, 2s, 4s, 8s, 16s, 30s, 30s}) {
    ASSERT_EQ(sent(), (Requests{{"SUBSCRIBE", "a"}}));
    const Reply reply = error("NOPERM no");
    const auto meaning = book.take(reply, now);
    EXPECT_EQ(meaning.kind, Kind::refused);
    EXPECT_EQ(meaning.errc, Errc::denied);
    EXPECT_EQ(*meaning.channel, "a");
    EXPECT_FALSE(meaning.answered);
    book.retry(now + pause - 1ms);
    EXPECT_EQ(sent(), Requests{});
    now += pause;
    book.retry(now);
  }
  sent();
  EXPECT_EQ(subscribed("a"), Kind::subscribed);
  book.subscribe("a");
  sent();
  EXPECT_EQ(take(error("ERR no")), Kind::refused);
  now += 1s;
  EXPECT_EQ(book.nextDue(), now) << "the pauses begin anew";
}

TEST_F(SubscriptionBookTest, ARefusalOfManyIsFoundOutOneByOne) {
  book.subscribe("a");
  book.subscribe("b");
  sent();
  EXPECT_EQ(take(error("NOPERM no")), Kind::nothing);
  EXPECT_EQ(sent(), (Requests{{"SUBSCRIBE", "a"}, {"SUBSCRIBE", "b"}}));
  EXPECT_EQ(take(error("NOPERM no")), Kind::refused);
  EXPECT_EQ(subscribed("b"), Kind::subscribed);
}

TEST_F(SubscriptionBookTest, ARefusedChannelThatNobodyWantsIsForgotten) {
  book.subscribe("a");
  sent();
  book.unsubscribe("a", now);
  EXPECT_EQ(take(error("NOPERM no")), Kind::nothing);
  EXPECT_TRUE(book.idle(now + 10s));
}

TEST_F(SubscriptionBookTest, ABusyServerIsAskedAgainForAll) {
  book.subscribe("a");
  book.subscribe("b");
  for (const auto pause : {20ms, 40ms, 80ms, 100ms, 100ms}) {
    ASSERT_EQ(sent().size(), 1U);
    EXPECT_EQ(take(error("LOADING")), Kind::nothing);
    EXPECT_EQ(book.nextDue(), now + pause);
    now += pause;
    book.retry(now);
  }
  sent();
  subscribed("a");
  subscribed("b");
  have("c");
  book.subscribe("c");
  sent();
  take(error("BUSY"));
  EXPECT_EQ(book.nextDue(), now + 20ms);
}

TEST_F(SubscriptionBookTest, ABusyServerMakesNoPauseOverAnotherConnectionLonger) {
  book.subscribe("a");
  for (int i = 0; i < 3; ++i) {
    sent();
    take(error("LOADING"));
    now = book.nextDue();
    book.retry(now);
  }
  book.end();
  book.begin(now);
  sent();
  take(error("LOADING"));
  EXPECT_EQ(book.nextDue(), now + 20ms);
}

TEST_F(SubscriptionBookTest, ARefusedUnsubscriptionEndsTheChannelHere) {
  have("a");
  book.unsubscribe("a", now);
  sent();
  EXPECT_EQ(take(error("ERR no")), Kind::nothing);
  EXPECT_EQ(sent(), Requests{});
  EXPECT_TRUE(book.idle(now + 10s));
}

TEST_F(SubscriptionBookTest, AnErrorOutOfTheBlueBreaksTheConnection) {
  const Reply reply = error("ERR max number of clients reached");
  const auto meaning = book.take(reply, now);
  EXPECT_EQ(meaning.kind, Kind::broken);
  EXPECT_EQ(meaning.errc, Errc::connectionFailed);
  book.subscribe("a");
  sent();
  EXPECT_EQ(book.take(error("NOAUTH"), now).errc, Errc::authenticationFailed);
}

TEST_F(SubscriptionBookTest, AnErrorBelongsToTheOldestRequest) {
  ping();
  book.subscribe("a");
  sent();
  EXPECT_EQ(take(error("BUSY")), Kind::nothing) << "the answer to PING";
  EXPECT_EQ(subscribed("a"), Kind::subscribed);
}

TEST_F(SubscriptionBookTest, TakesConfirmationsInAnyOrder) {
  have("b");
  book.unsubscribe("b", now);
  book.subscribe("a");
  ASSERT_EQ(sent().size(), 2U);
  EXPECT_EQ(subscribed("a"), Kind::subscribed);
  EXPECT_TRUE(book.silent(now + 3s)) << "one request is unanswered";
  unsubscribed("b");
  EXPECT_FALSE(book.silent(now + 3s));
}

TEST_F(SubscriptionBookTest, NoticesARequestWithoutAnswer) {
  now += 1s;
  book.subscribe("a");
  sent();
  EXPECT_EQ(book.nextDue(), now + 3s);
  EXPECT_FALSE(book.silent(now + 2999ms));
  EXPECT_TRUE(book.silent(now + 3s));
}

TEST_F(SubscriptionBookTest, MessagesAloneDoNotProveThatTheServerHearsUs) {
  have("a");
  ping();
  const auto begin = now;
  for (int i = 0; i < 5; ++i) {
    now += 1s;
    take(list("message", "a", text("payload")));
    EXPECT_FALSE(book.silent(now + 999ms)) << i;
  }
  EXPECT_EQ(book.nextDue(), begin + 6s);
  EXPECT_TRUE(book.silent(begin + 6s));
  EXPECT_TRUE(book.take(text("PONG", Reply::Type::status), now).answered);
  EXPECT_FALSE(book.silent(begin + 6s));
}

TEST_F(SubscriptionBookTest, PingsAnIdleConnectionOnly) {
  have("a");
  EXPECT_EQ(book.nextDue(), now + 5s);
  EXPECT_FALSE(book.pingDue(now + 4999ms));
  EXPECT_TRUE(book.pingDue(now + 5s));
  now += 1s;
  take(list("message", "a", text("payload")));
  EXPECT_FALSE(book.pingDue(now + 4s));
  now += 5s;
  ping();
  EXPECT_FALSE(book.pingDue(now + 1s)) << "one is unanswered";
  EXPECT_TRUE(book.take(list("pong", "", text("")), now).answered);
  EXPECT_FALSE(book.take(text("PONG", Reply::Type::status), now).answered);
}

TEST_F(SubscriptionBookTest, IsIdleSomeTimeAfterTheLastChannel) {
  have("a");
  EXPECT_FALSE(book.idle(now + 1h));
  now += 2s;
  book.unsubscribe("a", now);
  EXPECT_FALSE(book.idle(now + 1h)) << "it has yet to be unsubscribed";
  sent();
  EXPECT_FALSE(book.idle(now + 1h));
  unsubscribed("a");
  EXPECT_FALSE(book.idle(now + 9999ms));
  EXPECT_TRUE(book.idle(now + 10s));
}

/// A server that answers each request at some later time, and a user that changes its mind.
TEST_F(SubscriptionBookTest, EndsRightAfterAnyChurn) {
  std::mt19937 random(11);                                   // NOLINT: the same numbers every time
  std::vector<std::pair<std::string, std::string>> answers;  // of the server, still to come
  std::set<std::string> onServer;
  std::map<std::string, bool> confirmed;  // of each wanted channel
  std::size_t next = 0;
  const auto serve = [&] {
    for (const Words& words : sent()) {
      for (std::size_t i = 1; i < words.size(); ++i) {
        if (words[0] == "SUBSCRIBE") {
          onServer.insert(words[i]);
          answers.emplace_back("subscribe", words[i]);
        } else {
          onServer.erase(words[i]);
          answers.emplace_back("unsubscribe", words[i]);
        }
      }
    }
  };
  const auto answer = [&] {
    const auto [kind, name] = answers[next++];
    if (take(confirmation(kind, name)) == Kind::subscribed) {
      ASSERT_TRUE(confirmed.contains(name));
      confirmed[name] = true;
    }
  };
  for (int step = 0; step < 20'000; ++step) {
    const std::string name(1, static_cast<char>('a' + random() % 8));
    switch (random() % 4) {
      case 0:
        book.subscribe(name);
        confirmed[name] = false;
        break;
      case 1:
        book.unsubscribe(name, now);
        confirmed.erase(name);
        break;
      case 2:
        serve();
        break;
      default:
        if (next < answers.size()) {
          answer();
        }
    }
    ASSERT_EQ(book.wanted(), confirmed.size());
  }
  for (serve(); next < answers.size(); serve()) {
    answer();
  }
  std::set<std::string> wanted;
  for (const auto& [name, isConfirmed] : confirmed) {
    wanted.insert(name);
    EXPECT_TRUE(isConfirmed) << name;
  }
  EXPECT_EQ(onServer, wanted);
}

/// Sharded channels: `foo` and `{foo}1` share a slot, `bar` has another.
class ShardedBookTest : public SubscriptionBookTest {
 protected:
  ShardedBookTest() {
    shards.begin(now);
    for (const char* name : {"foo", "bar", "{foo}1"}) {
      shards.subscribe(name);
    }
  }
  Requests asked() {
    Requests requests;
    shards.sendDue(now, [&](const std::vector<std::string_view>& words) {
      requests.emplace_back(words.begin(), words.end());
    });
    return requests;
  }
  Kind told(const Reply& reply) { return shards.take(reply, now).kind; }

  SubscriptionBook shards{{.replyTimeout = 3000ms,
                           .heartbeatInterval = 5000ms,
                           .idleLinger = 10000ms,
                           .retryDelayMin = 20ms,
                           .retryDelayMax = 100ms},
                          ChannelKind::sharded};
};

TEST_F(ShardedBookTest, OneRequestNamesChannelsOfOneSlot) {
  EXPECT_EQ(asked(), (Requests{{"SSUBSCRIBE", "bar"}, {"SSUBSCRIBE", "foo", "{foo}1"}}));
  EXPECT_EQ(told(confirmation("ssubscribe", "bar")), Kind::subscribed);
  EXPECT_EQ(told(confirmation("ssubscribe", "foo")), Kind::subscribed);
  EXPECT_EQ(told(list("smessage", "foo", text("0"))), Kind::message);
  EXPECT_EQ(told(list("message", "foo", text("0"))), Kind::nothing);
  shards.unsubscribe("foo", now);
  shards.unsubscribe("bar", now);
  EXPECT_EQ(asked(), (Requests{{"SUNSUBSCRIBE", "bar"}, {"SUNSUBSCRIBE", "foo"}}));
}

TEST_F(ShardedBookTest, AChannelThatHasMovedIsToldAndAskedForAgainAfterAPause) {
  asked();
  EXPECT_EQ(told(error("MOVED 5061 127.0.0.1:7001")), Kind::moved);
  EXPECT_EQ(asked(), Requests{}) << "this is a storm";
  shards.retry(now + 20ms);
  EXPECT_EQ(asked(), (Requests{{"SSUBSCRIBE", "bar"}}));
  EXPECT_EQ(told(confirmation("ssubscribe", "foo")), Kind::subscribed);
  // The slot is given away later.
  EXPECT_EQ(told(confirmation("sunsubscribe", "foo")), Kind::moved);
  EXPECT_EQ(asked(), (Requests{{"SSUBSCRIBE", "foo"}}));
}

class EndedUnaskedTest : public ShardedBookTest {
 protected:
  /// Two channels of one slot are given up; the server has not read that yet.
  EndedUnaskedTest() {
    asked();
    for (const char* name : {"bar", "foo", "{foo}1"}) {
      told(confirmation("ssubscribe", name));
    }
    shards.unsubscribe("foo", now);
    shards.unsubscribe("{foo}1", now);
    EXPECT_EQ(asked(), (Requests{{"SUNSUBSCRIBE", "foo", "{foo}1"}}));
  }
  const std::string kMoved = "MOVED " + std::to_string(hashSlot("foo")) + " 127.0.0.1:7001";
};

// A channel is forgotten with the end of its subscription, so that the error must not reach it.
TEST_F(EndedUnaskedTest, TheErrorIsOnlyForTheChannelsThatRemain) {
  EXPECT_EQ(told(confirmation("sunsubscribe", "foo")), Kind::nothing);
  EXPECT_EQ(told(error(kMoved)), Kind::nothing);
  EXPECT_EQ(told(list("smessage", "bar", text("0"))), Kind::message);
  shards.unsubscribe("bar", now);
  EXPECT_EQ(asked(), (Requests{{"SUNSUBSCRIBE", "bar"}}));
  told(confirmation("sunsubscribe", "bar"));
  EXPECT_TRUE(shards.idle(now + 1h)) << "nothing is left";
}

TEST_F(EndedUnaskedTest, TheErrorIsNoneOfAnotherRequest) {
  told(confirmation("sunsubscribe", "foo"));
  told(confirmation("sunsubscribe", "{foo}1"));
  shards.subscribe("qux");
  EXPECT_EQ(asked(), (Requests{{"SSUBSCRIBE", "qux"}}));
  EXPECT_EQ(told(error(kMoved)), Kind::nothing);
  EXPECT_EQ(told(confirmation("ssubscribe", "qux")), Kind::subscribed);
  shards.sendPing(now, [](const std::vector<std::string_view>&) {});
  EXPECT_EQ(told(error(kMoved)), Kind::nothing);
  EXPECT_TRUE(shards.take(text("PONG", Reply::Type::status), now).answered);
}

TEST_F(EndedUnaskedTest, TheErrorIsNoReasonToGiveTheConnectionUp) {
  told(confirmation("sunsubscribe", "foo"));
  told(confirmation("sunsubscribe", "{foo}1"));
  EXPECT_EQ(told(error(kMoved)), Kind::nothing);
  EXPECT_EQ(told(list("smessage", "bar", text("0"))), Kind::message);
}

// An earlier request is still unanswered when the server ends what a later one is about.
TEST_F(EndedUnaskedTest, TheErrorsOfTwoRequestsOneOfWhichIsOver) {
  told(confirmation("sunsubscribe", "foo"));
  told(confirmation("sunsubscribe", "{foo}1"));
  told(error(kMoved));
  shards.subscribe("qux");
  EXPECT_EQ(asked(), (Requests{{"SSUBSCRIBE", "qux"}}));
  shards.unsubscribe("bar", now);
  EXPECT_EQ(asked(), (Requests{{"SUNSUBSCRIBE", "bar"}}));
  told(confirmation("sunsubscribe", "bar"));
  EXPECT_EQ(told(error("MOVED " + std::to_string(hashSlot("qux")) + " 127.0.0.1:7001")),
            Kind::moved);
  EXPECT_EQ(told(error("MOVED " + std::to_string(hashSlot("bar")) + " 127.0.0.1:7001")),
            Kind::nothing);
}

TEST_F(EndedUnaskedTest, ThereIsNoClusterAnyMore) {
  told(confirmation("sunsubscribe", "foo"));
  told(confirmation("sunsubscribe", "{foo}1"));
  EXPECT_EQ(told(error("CLUSTERDOWN Hash slot not served")), Kind::nothing);
  shards.sendPing(now, [](const std::vector<std::string_view>&) {});
  EXPECT_EQ(told(error("CLUSTERDOWN Hash slot not served")), Kind::nothing);
  EXPECT_TRUE(shards.take(text("PONG", Reply::Type::status), now).answered);
}

TEST_F(EndedUnaskedTest, OneThatIsWantedAgainIsToldThatItMoved) {
  told(confirmation("sunsubscribe", "foo"));
  told(confirmation("sunsubscribe", "{foo}1"));
  shards.subscribe("foo");
  EXPECT_EQ(asked(), (Requests{{"SSUBSCRIBE", "foo"}}));
  EXPECT_EQ(told(error(kMoved)), Kind::moved) << "its own error says the same";
  EXPECT_EQ(told(error(kMoved)), Kind::nothing);
}

}  // namespace
}  // namespace rlock::detail::net
