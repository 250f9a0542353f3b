// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/executor/reply_verdict.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace rlock::detail {
namespace reply_verdict_test {
namespace {

/// The verdict in short: r(edirect) o(ut of date) l(eave), then again or f(ail).
std::string verdict(std::string_view refusal, bool persistent = false) {
  const ReplyVerdict verdict = verdictOn(classifyError(refusal), persistent);
  std::string text;
  text += verdict.redirect ? "r" : "";
  text += verdict.outOfDate ? "o" : "";
  text += verdict.leave ? "l" : "";
  return text + (verdict.retry ? " again" : " fail");
}

TEST(ReplyVerdict, WhatPassesIsSentAgain) {
  EXPECT_EQ(verdict("TRYAGAIN Multiple keys"), " again");
  EXPECT_EQ(verdict("BUSY Redis is busy"), " again");
  EXPECT_EQ(verdict("NOREPLICAS Not enough"), " again");
  // This is about a connection that was authenticated: a wrong password is refused before that.
  EXPECT_EQ(verdict("NOAUTH Authentication required."), " again");
}

TEST(ReplyVerdict, AServerThatHasNoDataSaysThatAnotherMayHaveIt) {
  EXPECT_EQ(verdict("LOADING Redis is loading"), "o again");
  EXPECT_EQ(verdict("CLUSTERDOWN The cluster is down"), "o again");
  EXPECT_EQ(verdict("MASTERDOWN Link with MASTER is down"), "o again");
}

TEST(ReplyVerdict, AReplicaIsLeft) {
  EXPECT_EQ(verdict("READONLY You can't write"), "ol again");
}

TEST(ReplyVerdict, ARedirectionIsFollowedOrFails) {
  EXPECT_EQ(verdict("MOVED 1 127.0.0.1:1"), "r fail");
  EXPECT_EQ(verdict("ASK 1 127.0.0.1:1"), "r fail");
  EXPECT_EQ(verdict("MOVED 1 127.0.0.1:1", true), "r again");
}

TEST(ReplyVerdict, WhatStaysIsTheCallersMatter) {
  for (const std::string_view refusal : {"NOPERM this user",
                                         "OOM command not allowed",
                                         "MISCONF Redis is configured",
                                         "NOSCRIPT No matching script",
                                         "ERR unknown"}) {
    EXPECT_EQ(verdict(refusal), " fail") << refusal;
    EXPECT_EQ(verdict(refusal, true), " again") << refusal;
  }
}

TEST(ReplyVerdict, NoPatienceHelpsAgainstAMistake) {
  for (const std::string_view refusal :
       {"WRONGTYPE Operation against a key", "CROSSSLOT Keys in request"}) {
    EXPECT_EQ(verdict(refusal), " fail") << refusal;
    EXPECT_EQ(verdict(refusal, true), " fail") << refusal;
  }
}

}  // namespace
}  // namespace reply_verdict_test
}  // namespace rlock::detail
