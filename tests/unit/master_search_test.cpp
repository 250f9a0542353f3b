// SPDX-License-Identifier: Apache-2.0
#include "unit/replies.hpp"
#include <rlock/detail/net/master_search.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail::net {
namespace master_search_test {
namespace {

using test::listReply;
using test::textReply;

using std::chrono::milliseconds;
using Kind = MasterSearch::Action::Kind;
using TimePoint = MasterSearch::TimePoint;

Endpoint endpoint(std::string host, std::uint16_t port = 1) {
  Endpoint result;
  result.host = std::move(host);
  result.port = port;
  return result;
}

Error refused() {
  return Error(Errc::connectionFailed, "Connection refused");
}
Error isReplica() {
  return Error(Errc::readOnly, "it is a replica, not the master");
}

/// A search over a list of Sentinels, at a clock that is set by hand.
class MasterSearchTest : public ::testing::Test {
 protected:
  explicit MasterSearchTest() : list_({endpoint("s1"), endpoint("s2"), endpoint("s3")}) { begin(); }

  void begin() { search_.emplace(list_, "main", now_, now_ + milliseconds(3000)); }
  MasterSearch& search() { return *search_; }
  /// A connection to that Sentinel is there, to subscribe at it. Returns whether its word is news.
  bool listensTo(const std::string& sentinel, const std::string& master) {
    SentinelAnswer answer;
    answer.master = endpoint(master);
    return list_.listensTo(endpoint(sentinel), answer, list_.moves(), now_);
  }
  SentinelList& listReply() { return list_; }
  TimePoint now() const { return now_; }
  void pass(milliseconds time) { now_ += time; }

  /// The thing to do now: `ask s1`, `verify m`, `drop m`, `wait 250`, `over`.
  std::string next() {
    const MasterSearch::Action action = search_->next(now_);
    switch (action.kind) {
      case Kind::ask:
        return "ask " + action.endpoint.host;
      case Kind::verify:
        return "verify " + action.endpoint.host;
      case Kind::drop:
        return "drop " + action.endpoint.host;
      case Kind::over:
        return "over";
      case Kind::wait:
        break;
    }
    return "wait " +
           std::to_string(std::chrono::duration_cast<milliseconds>(action.until - now_).count());
  }
  void names(const std::string& sentinel, const std::string& master) {
    SentinelAnswer answer;
    answer.master = endpoint(master);
    search_->answered(endpoint(sentinel), answer, now_);
  }
  void knowsNone(const std::string& sentinel) { search_->answered(endpoint(sentinel), {}, now_); }
  void fails(const std::string& sentinel, const Error& error = refused()) {
    search_->failed(endpoint(sentinel), error, now_);
  }
  void refutes(const std::string& master, const Error& error = isReplica()) {
    search_->refuted(endpoint(master), error, now_);
  }
  /// A server says that it is the master. Returns whether the search ends with that.
  bool accepts(const std::string& master) {
    const std::optional<Error> why = search_->objection(endpoint(master), now_);
    if (why) {
      refutes(master, *why);
    }
    return !why;
  }

 private:
  SentinelList list_;
  TimePoint now_{milliseconds(1'000'000)};
  std::optional<MasterSearch> search_;
};

TEST_F(MasterSearchTest, OneAnswerIsEnoughForACandidate) {
  EXPECT_EQ(next(), "ask s1");
  EXPECT_EQ(next(), "wait 250");
  names("s1", "m");
  EXPECT_EQ(next(), "verify m");
  EXPECT_EQ(next(), "wait 250");
}

TEST_F(MasterSearchTest, ASentinelThatFailsHandsOnAtOnce) {
  EXPECT_EQ(next(), "ask s1");
  fails("s1");
  EXPECT_EQ(next(), "ask s2");
  EXPECT_EQ(next(), "wait 250");
}

TEST_F(MasterSearchTest, ASilentSentinelHasItsHeadStart) {
  EXPECT_EQ(next(), "ask s1");
  pass(milliseconds(249));
  EXPECT_EQ(next(), "wait 1");
  pass(milliseconds(1));
  EXPECT_EQ(next(), "ask s2");
  names("s2", "m");
  EXPECT_EQ(next(), "verify m");
}

TEST_F(MasterSearchTest, EverybodyHasATurnInAShortTime) {
  static_cast<void>(search().next(now()));
  pass(milliseconds(2900));
  EXPECT_EQ(next(), "ask s2");
  EXPECT_EQ(next(), "wait 33");
}

TEST_F(MasterSearchTest, ACandidateThatIsNoneHasTheOthersAskedAtOnce) {
  EXPECT_EQ(next(), "ask s1");
  names("s1", "stale");
  EXPECT_EQ(next(), "verify stale");
  refutes("stale");
  EXPECT_EQ(next(), "ask s2");
  names("s2", "stale");
  EXPECT_EQ(next(), "ask s3") << "it is not tried again in the same round";
  names("s3", "m");
  EXPECT_EQ(next(), "verify m");
}

TEST_F(MasterSearchTest, WhatIsRefusedByAllIsTriedAgainAfterAPause) {
  const auto round = [&] {
    std::string asked = next();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(asked.substr(0, 4), "ask ") << asked;
      names(asked.substr(4), "m");
      asked = next();
      if (asked == "verify m") {
        refutes("m");
        asked = next();
      }
    }
    return asked;
  };
  EXPECT_EQ(round(), "wait 50");
  pass(milliseconds(50));
  EXPECT_EQ(round(), "wait 100");
  pass(milliseconds(100));
  EXPECT_EQ(round(), "wait 200");
  pass(milliseconds(200));
  EXPECT_EQ(round(), "wait 400");
  pass(milliseconds(400));
  EXPECT_EQ(round(), "wait 500");
  pass(milliseconds(500));
  EXPECT_EQ(round(), "wait 500");
  pass(milliseconds(1750));
  EXPECT_EQ(next(), "over");
  const Error error = search().failure();
  EXPECT_EQ(error.errc(), Errc::connectionFailed);
  EXPECT_EQ(error.node(), "m:1");
  EXPECT_NE(error.message().find("not the master"), std::string::npos) << error.message();
}

TEST_F(MasterSearchTest, AFrozenMasterIsLeftWhenTheSentinelsNameAnother) {
  EXPECT_EQ(next(), "ask s1");
  names("s1", "frozen");
  EXPECT_EQ(next(), "verify frozen");
  pass(milliseconds(250));
  EXPECT_EQ(next(), "ask s2");
  names("s2", "frozen");
  pass(milliseconds(250));
  EXPECT_EQ(next(), "ask s3");
  names("s3", "frozen");
  EXPECT_EQ(next(), "wait 50");
  pass(milliseconds(50));
  // They have moved the master meanwhile.
  EXPECT_EQ(next(), "ask s1");
  names("s1", "m");
  EXPECT_EQ(next(), "verify m");
  pass(milliseconds(250));
  EXPECT_EQ(next(), "ask s2");
  names("s2", "m");
  pass(milliseconds(250));
  EXPECT_EQ(next(), "ask s3");
  names("s3", "m");
  EXPECT_EQ(next(), "drop frozen");
}

TEST_F(MasterSearchTest, WithoutAnySentinelItIsOverAtOnce) {
  for (const char* const sentinel : {"s1", "s2", "s3"}) {
    EXPECT_EQ(next(), std::string("ask ") + sentinel);
    fails(sentinel);
  }
  EXPECT_EQ(next(), "over");
  const Error error = search().failure();
  EXPECT_EQ(error.errc(), Errc::connectionFailed);
  for (const char* const sentinel : {"s1:1", "s2:1", "s3:1", "refused", "\"main\""}) {
    EXPECT_NE(error.message().find(sentinel), std::string::npos) << error.message();
  }
}

TEST_F(MasterSearchTest, ANameThatNobodyKnowsIsWrong) {
  EXPECT_EQ(next(), "ask s1");
  knowsNone("s1");
  EXPECT_EQ(next(), "ask s2");
  fails("s2");
  EXPECT_EQ(next(), "ask s3");
  knowsNone("s3");
  EXPECT_EQ(next(), "over");
  EXPECT_EQ(search().failure().errc(), Errc::invalidArgument);
  EXPECT_NE(search().failure().message().find("knows no master of that name"), std::string::npos);
}

TEST_F(MasterSearchTest, ANameThatWasRightOnceIsNotWrongLater) {
  listReply().found(endpoint("m"), now());
  pass(milliseconds(60'000));
  begin();
  for (const char* const sentinel : {"s1", "s2", "s3"}) {
    EXPECT_EQ(next(), std::string("ask ") + sentinel);
    knowsNone(sentinel);
  }
  EXPECT_EQ(next(), "over");
  EXPECT_EQ(search().failure().errc(), Errc::connectionFailed);
}

TEST_F(MasterSearchTest, ASentinelThatRefusesUsDoesNotStandInTheWay) {
  EXPECT_EQ(next(), "ask s1");
  fails("s1", Error(Errc::authenticationFailed, "no"));
  EXPECT_EQ(next(), "ask s2");
  names("s2", "m");
  EXPECT_EQ(next(), "verify m");
}

TEST_F(MasterSearchTest, WhatWaitingDoesNotCureEndsTheSearch) {
  EXPECT_EQ(next(), "ask s1");
  names("s1", "m");
  EXPECT_EQ(next(), "verify m");
  refutes("m", Error(Errc::authenticationFailed, "no"));
  // The others may know a better one.
  EXPECT_EQ(next(), "ask s2");
  names("s2", "m");
  EXPECT_EQ(next(), "ask s3");
  names("s3", "m");
  EXPECT_EQ(next(), "over");
  EXPECT_EQ(search().failure().errc(), Errc::authenticationFailed);
}

// A Sentinel that is behind names an address that another server has by now.
TEST_F(MasterSearchTest, WhatWaitingDoesNotCureOfOneAddressIsNoEndWhileAnotherMayCome) {
  EXPECT_EQ(next(), "ask s1");
  names("s1", "stale");
  EXPECT_EQ(next(), "verify stale");
  refutes("stale", Error(Errc::authenticationFailed, "no"));
  EXPECT_EQ(next(), "ask s2");
  names("s2", "m");
  EXPECT_EQ(next(), "verify m");
  refutes("m", refused());
  EXPECT_EQ(next(), "ask s3");
  names("s3", "m");
  EXPECT_EQ(next(), "wait 50");
  EXPECT_EQ(search().failure().errc(), Errc::connectionFailed);
}

TEST_F(MasterSearchTest, ASentinelThatRefusesUsIsNoReasonToGiveUpWhileOthersAreAway) {
  EXPECT_EQ(next(), "ask s1");
  fails("s1", Error(Errc::authenticationFailed, "no"));
  EXPECT_EQ(next(), "ask s2");
  fails("s2", refused());
  EXPECT_EQ(next(), "ask s3");
  fails("s3", refused());
  EXPECT_EQ(next(), "over");
  EXPECT_EQ(search().failure().errc(), Errc::connectionFailed);
}

TEST_F(MasterSearchTest, AHintIsTriedFirstAndForAMomentOnly) {
  listReply().hint(endpoint("hinted"), now());
  begin();
  EXPECT_EQ(next(), "verify hinted");
  refutes("hinted", refused());
  EXPECT_EQ(next(), "ask s1");
  names("s1", "hinted");
  EXPECT_EQ(next(), "ask s2") << "it is not tried again in the same round";
  pass(milliseconds(2000));
  begin();
  EXPECT_EQ(next(), "ask s1");
}

TEST_F(MasterSearchTest, ASearchThatIsUnderWayHearsThatTheMasterHasMoved) {
  EXPECT_EQ(next(), "ask s1");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  EXPECT_TRUE(accepts("old"));
  listReply().hint(endpoint("m"), now());
  EXPECT_EQ(next(), "verify m");
  EXPECT_TRUE(accepts("m"));
}

// A master that is cut off says that it is the master, too.
TEST_F(MasterSearchTest, WhatWasNamedBeforeTheMasterMovedIsNotAccepted) {
  EXPECT_EQ(next(), "ask s1");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  listReply().hint(endpoint("m"), now());
  EXPECT_FALSE(accepts("old"));
  EXPECT_EQ(next(), "verify m");
  EXPECT_TRUE(accepts("m"));
}

TEST_F(MasterSearchTest, AHintFromBeforeTheMasterMovedIsNotAccepted) {
  listReply().found(endpoint("old"), now());
  begin();
  EXPECT_EQ(next(), "verify old");
  listReply().hint(endpoint("m"), now());
  EXPECT_FALSE(accepts("old"));
  EXPECT_EQ(next(), "verify m");
  // The links find it one after the other.
  listReply().found(endpoint("m"), now());
  EXPECT_TRUE(accepts("m"));
}

TEST_F(MasterSearchTest, TheAnswerToAQuestionFromBeforeTheMasterMovedIsNotAccepted) {
  EXPECT_EQ(next(), "ask s1");
  listReply().hint(endpoint("m"), now());
  EXPECT_EQ(next(), "verify m");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  EXPECT_FALSE(accepts("old"));
  refutes("m", refused());
  EXPECT_EQ(next(), "ask s2") << "it is asked when the master has moved already";
  names("s2", "m2");
  EXPECT_EQ(next(), "verify m2");
  EXPECT_TRUE(accepts("m2"));
}

// The message may be wrong, or late.
TEST_F(MasterSearchTest, WhatIsNamedSinceTheMasterMovedIsAccepted) {
  EXPECT_EQ(next(), "ask s1");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  listReply().hint(endpoint("m"), now());
  EXPECT_FALSE(accepts("old"));
  EXPECT_EQ(next(), "verify m");
  refutes("m");
  for (const char* const sentinel : {"s2", "s3"}) {
    EXPECT_EQ(next(), std::string("ask ") + sentinel);
    names(sentinel, "old");
  }
  EXPECT_EQ(next(), "wait 50");
  pass(milliseconds(50));
  EXPECT_EQ(next(), "ask s1");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  EXPECT_TRUE(accepts("old"));
}

TEST_F(MasterSearchTest, AServerThatTheMasterHasMovedToMeanwhileIsTriedAgain) {
  EXPECT_EQ(next(), "ask s1");
  names("s1", "m");
  EXPECT_EQ(next(), "verify m");
  refutes("m");
  // It has been promoted.
  listReply().hint(endpoint("m"), now());
  EXPECT_EQ(next(), "verify m");
  EXPECT_TRUE(accepts("m"));
}

TEST_F(MasterSearchTest, AMessageThatCannotBeReadHasTheSentinelsAsked) {
  EXPECT_EQ(next(), "ask s1");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  listReply().found(endpoint("old"), now());
  listReply().hint(std::nullopt, now());
  EXPECT_FALSE(accepts("old"));
  EXPECT_EQ(next(), "ask s2");
  names("s2", "m");
  EXPECT_EQ(next(), "verify m");
  EXPECT_TRUE(accepts("m"));
  begin();
  EXPECT_EQ(next(), "ask s2") << "what was found before is no hint any more";
}

// The message was said while nobody listened.
TEST_F(MasterSearchTest, AnotherWordOfTheSentinelThatIsListenedToIsAMove) {
  EXPECT_FALSE(listensTo("s1", "old"));
  EXPECT_EQ(next(), "ask s1");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  EXPECT_TRUE(listensTo("s1", "m"));
  EXPECT_FALSE(accepts("old"));
  EXPECT_EQ(next(), "verify m");
  EXPECT_TRUE(accepts("m"));
}

TEST_F(MasterSearchTest, AnotherAnswerOfTheSentinelThatIsListenedToIsAMoveForEverySearch) {
  EXPECT_FALSE(listensTo("s1", "old"));
  EXPECT_EQ(next(), "ask s1");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  MasterSearch other(listReply(), "main", now(), now() + milliseconds(3000));
  EXPECT_EQ(other.next(now()).endpoint, endpoint("s1"));
  SentinelAnswer answer;
  answer.master = endpoint("m");
  other.answered(endpoint("s1"), answer, now());
  EXPECT_FALSE(accepts("old"));
  EXPECT_EQ(next(), "verify m");
}

TEST_F(MasterSearchTest, AWordThatIsOnlyRepeatedMakesNoNameStale) {
  EXPECT_FALSE(listensTo("s1", "m"));
  EXPECT_EQ(next(), "ask s1");
  names("s1", "m");
  EXPECT_EQ(next(), "verify m");
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(listensTo("s1", "m"));
  }
  EXPECT_TRUE(accepts("m"));
}

TEST_F(MasterSearchTest, AnAnswerFromBeforeTheLastWordIsNone) {
  EXPECT_FALSE(listensTo("s1", "older"));
  EXPECT_EQ(next(), "ask s1");
  listReply().hint(endpoint("old"), now());
  listReply().hint(endpoint("m"), now());
  names("s1", "older");
  EXPECT_EQ(listReply().moves(), 2U);
  EXPECT_EQ(listReply().movedTo(), endpoint("m"));
}

TEST_F(MasterSearchTest, AnAnswerOfAnotherSentinelIsNoMove) {
  EXPECT_FALSE(listensTo("s1", "m"));
  EXPECT_EQ(next(), "ask s1");
  names("s1", "m");
  EXPECT_EQ(next(), "verify m");
  pass(milliseconds(250));
  EXPECT_EQ(next(), "ask s2");
  names("s2", "other");
  EXPECT_TRUE(accepts("m"));
}

// Its subscription may have been confirmed just after the master has moved.
TEST_F(MasterSearchTest, WhatWasFoundJustNowIsNoHintForWhoDoubtsIt) {
  listReply().found(endpoint("old"), now());
  begin();
  EXPECT_EQ(next(), "verify old");
  listReply().doubt();
  begin();
  EXPECT_EQ(next(), "ask s1");
}

// The Sentinels learn of a move from each other.
TEST_F(MasterSearchTest, ASentinelThatHasNotHeardOfTheMoveDoesNotReviveTheOldMaster) {
  EXPECT_FALSE(listensTo("s1", "old"));
  listReply().hint(endpoint("m"), now());
  begin();
  EXPECT_EQ(next(), "verify m");
  pass(milliseconds(250));
  EXPECT_EQ(next(), "ask s1");
  fails("s1");
  EXPECT_EQ(next(), "ask s2");
  names("s2", "old");
  EXPECT_EQ(next(), "verify old");
  EXPECT_FALSE(accepts("old"));
  EXPECT_TRUE(accepts("m"));
}

TEST_F(MasterSearchTest, NorDoesOneThatIsListenedToInPlaceOfTheOneThatHas) {
  EXPECT_FALSE(listensTo("s1", "old"));
  listReply().hint(endpoint("m"), now());
  EXPECT_FALSE(listensTo("s2", "old"));
  EXPECT_EQ(listReply().moves(), 1U);
  EXPECT_EQ(listReply().movedTo(), endpoint("m"));
  EXPECT_EQ(next(), "verify m");
}

TEST_F(MasterSearchTest, TheOldMasterIsAcceptedWhenTheNewOneSaysThatItIsNone) {
  EXPECT_FALSE(listensTo("s1", "old"));
  listReply().hint(endpoint("m"), now());
  begin();
  EXPECT_EQ(next(), "verify m");
  refutes("m", isReplica());
  EXPECT_EQ(next(), "ask s1");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  EXPECT_TRUE(accepts("old"));
}

TEST_F(MasterSearchTest, TheOldMasterIsAcceptedWhenItIsStillNamedAfterAWhile) {
  EXPECT_FALSE(listensTo("s1", "old"));
  listReply().hint(endpoint("m"), now());
  pass(milliseconds(3999));
  begin();
  EXPECT_EQ(next(), "ask s1");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  EXPECT_FALSE(accepts("old"));
  pass(milliseconds(1));
  begin();
  EXPECT_EQ(next(), "ask s1");
  names("s1", "old");
  EXPECT_EQ(next(), "verify old");
  EXPECT_TRUE(accepts("old"));
}

// The message and the promotion have come while the dial was under way.
TEST_F(MasterSearchTest, ARefusalFromBeforeTheMoveProvesNothing) {
  EXPECT_FALSE(listensTo("s1", "old"));
  EXPECT_EQ(next(), "ask s1");
  names("s1", "m");
  EXPECT_EQ(next(), "verify m");
  listReply().hint(endpoint("m2"), now());
  listReply().hint(endpoint("m"), now());
  pass(milliseconds(250));
  EXPECT_EQ(next(), "ask s2");
  refutes("m", isReplica());
  EXPECT_TRUE(listReply().left(endpoint("m2"), now()));
  EXPECT_EQ(next(), "verify m");
  EXPECT_TRUE(accepts("m"));
}

TEST_F(MasterSearchTest, FurtherSentinelsAreAskedInTheSameSearch) {
  EXPECT_EQ(next(), "ask s1");
  SentinelAnswer answer;
  answer.master = endpoint("m");
  answer.others = {endpoint("s4"), endpoint("s2")};
  search().answered(endpoint("s1"), answer, now());
  EXPECT_EQ(next(), "verify m");
  refutes("m");
  for (const char* const sentinel : {"s2", "s3", "s4"}) {
    EXPECT_EQ(next(), std::string("ask ") + sentinel);
    fails(sentinel);
  }
}

TEST(SentinelList, TheOneThatAnsweredLastIsAskedFirst) {
  SentinelList list({endpoint("a"), endpoint("b"), endpoint("c")});
  EXPECT_EQ(list.order().front().host, "a");
  list.answered(endpoint("c"), {endpoint("d")});
  std::vector<std::string> hosts;
  for (const Endpoint& each : list.order()) {
    hosts.push_back(each.host);
  }
  EXPECT_EQ(hosts, (std::vector<std::string>{"c", "a", "b", "d"}));
}

TEST(SentinelList, TheConfiguredOnesAreNeverForgotten) {
  SentinelList list({endpoint("a")});
  for (std::uint16_t port = 2; port < 1000; ++port) {
    list.answered(endpoint("a", static_cast<std::uint16_t>(port - 1)), {endpoint("a", port)});
  }
  const auto order = list.order();
  EXPECT_EQ(order.size(), 17U);
  EXPECT_NE(std::find(order.begin(), order.end(), endpoint("a")), order.end());
  EXPECT_EQ(order.front(), endpoint("a", 998)) << "the one that answers";
}

// Others have been named later, but it is the one that is there.
TEST(SentinelList, TheOneThatAnswersIsNotForgottenForOthersThatAreNamed) {
  SentinelList list({endpoint("a")});
  list.answered(endpoint("a"), {endpoint("b")});
  for (std::uint16_t port = 1; port < 100; ++port) {
    list.answered(endpoint("b"), {endpoint("c", port)});
  }
  EXPECT_EQ(list.order().front(), endpoint("b"));
  EXPECT_EQ(list.order().size(), 17U);
}

// It makes no difference which of them answered last.
TEST(SentinelList, ThoseThatDoNotTellAreListenedToLast) {
  SentinelList list({endpoint("a"), endpoint("b"), endpoint("c")});
  const auto refuses = [&](const std::string& sentinel) {
    EXPECT_EQ(list.orderToListen().front().host, sentinel);
    list.listensTo(endpoint(sentinel), {}, list.moves(), {});
    return list.refused();
  };
  EXPECT_FALSE(list.refused()) << "nobody is listened to";
  EXPECT_TRUE(refuses("a"));
  EXPECT_TRUE(refuses("b"));
  EXPECT_FALSE(refuses("c")) << "nobody is left";
  // All of them are tried again, this one last.
  EXPECT_TRUE(list.refused());
  EXPECT_EQ(list.orderToListen().back().host, "c");
  EXPECT_TRUE(refuses("a"));
  EXPECT_FALSE(refuses("b"));
}

// A Sentinel names each one that it has ever heard of, until it is reset by hand.
TEST(SentinelList, DeadOnesDoNotPushLiveOnesOut) {
  SentinelList list({endpoint("a")});
  list.answered(endpoint("a"), {endpoint("b"), endpoint("c")});
  std::vector<Endpoint> all{endpoint("b"), endpoint("c")};
  std::vector<Endpoint> dead;
  for (std::uint16_t port = 1; port < 40; ++port) {
    dead.push_back(endpoint("dead", port));
  }
  all.insert(all.end(), dead.begin(), dead.end());
  list.answered(endpoint("a"), all, dead);
  auto order = list.order();
  EXPECT_EQ(order.size(), 17U);
  EXPECT_NE(std::find(order.begin(), order.end(), endpoint("b")), order.end());
  EXPECT_NE(std::find(order.begin(), order.end(), endpoint("c")), order.end());
  // Another cannot reach it, but it answers the client.
  dead.push_back(endpoint("b"));
  list.answered(endpoint("b"), all, dead);
  EXPECT_EQ(list.order().front(), endpoint("b"));
}

// The list is where a search and a connection leave what they were told.
TEST_F(MasterSearchTest, OfTheSentinelsThatAreNamedTheDeadOnesAreForgottenFirst) {
  SentinelAnswer answer;
  answer.others = {endpoint("s4")};
  for (std::uint16_t port = 1; port < 40; ++port) {
    answer.dead.push_back(endpoint("dead", port));
  }
  answer.others.insert(answer.others.end(), answer.dead.begin(), answer.dead.end());
  const auto knowsTheLiveOne = [&] {
    const auto order = listReply().order();
    return std::find(order.begin(), order.end(), endpoint("s4")) != order.end();
  };
  EXPECT_EQ(next(), "ask s1");
  search().answered(endpoint("s1"), answer, now());
  EXPECT_TRUE(knowsTheLiveOne());
  listReply().listensTo(endpoint("s1"), answer, listReply().moves(), now());
  EXPECT_TRUE(knowsTheLiveOne());
}

TEST(SentinelReplies, AreRead) {
  EXPECT_EQ(masterOf(listReply({textReply("10.0.0.1"), textReply("6380")})),
            endpoint("10.0.0.1", 6380));
  EXPECT_EQ(masterOf(Reply()), std::nullopt);
  EXPECT_EQ(masterOf(listReply({textReply("10.0.0.1")})), std::nullopt);
  EXPECT_EQ(masterOf(listReply({textReply("10.0.0.1"), textReply("70000")})), std::nullopt);
  EXPECT_EQ(masterOf(listReply({textReply(""), textReply("1")})), std::nullopt);
  const Reply one = listReply({textReply("name"),
                               textReply("x"),
                               textReply("ip"),
                               textReply("::1"),
                               textReply("port"),
                               textReply("7")});
  const Reply broken = listReply({textReply("ip"), textReply("h"), textReply("port")});
  const Reply dead = listReply({textReply("ip"),
                                textReply("h"),
                                textReply("port"),
                                textReply("8"),
                                textReply("flags"),
                                textReply("s_down,sentinel,disconnected")});
  SentinelAnswer answer;
  readSentinels(listReply({one, broken, textReply("?"), dead}), answer);
  EXPECT_EQ(answer.others, (std::vector{endpoint("::1", 7), endpoint("h", 8)}));
  EXPECT_EQ(answer.dead, (std::vector{endpoint("h", 8)}));
  EXPECT_EQ(switchedTo("main 10.0.0.1 1 10.0.0.2 2"), endpoint("10.0.0.2", 2));
  EXPECT_EQ(switchedTo("main 10.0.0.1 1"), std::nullopt);
  EXPECT_EQ(switchedTo("main 10.0.0.1 1 10.0.0.2 0"), std::nullopt);
  EXPECT_TRUE(isAbout("main 10.0.0.1 1 10.0.0.2 2", "main"));
  EXPECT_TRUE(isAbout("main", "main"));
  EXPECT_FALSE(isAbout("mainly 10.0.0.1 1 10.0.0.2 2", "main"));
  EXPECT_FALSE(isAbout("", "main"));
}

}  // namespace
}  // namespace master_search_test
}  // namespace rlock::detail::net
