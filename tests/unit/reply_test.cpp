// SPDX-License-Identifier: Apache-2.0

// The reading of a server's replies, whatever stands in them.

#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/executor/counter_scripts.hpp>
#include <rlock/detail/executor/fair_lock_scripts.hpp>
#include <rlock/detail/executor/fenced_scripts.hpp>
#include <rlock/detail/executor/permit_scripts.hpp>
#include <rlock/detail/executor/publish_refusal.hpp>
#include <rlock/detail/executor/read_write_scripts.hpp>
#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/detail/executor/reply_number.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {
namespace reply_test {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kTiny = std::numeric_limits<std::int64_t>::min();
constexpr int kMostHolds = std::numeric_limits<int>::max();

Reply number(std::int64_t value) {
  Reply reply;
  reply.type = Reply::Type::integer;
  reply.integer = value;
  return reply;
}

Reply text(std::string value) {
  Reply reply;
  reply.type = Reply::Type::string;
  reply.text = std::move(value);
  return reply;
}

Reply array(std::initializer_list<Reply> elements) {
  Reply reply;
  reply.type = Reply::Type::array;
  reply.elements = elements;
  return reply;
}

/// Kinds of locks, each with its own parsing.
std::vector<std::unique_ptr<LockScripts>> allKinds() {
  std::vector<std::unique_ptr<LockScripts>> kinds;
  kinds.push_back(std::make_unique<LockScripts>("name"));
  kinds.push_back(std::make_unique<FairLockScripts>("name", milliseconds(4000), true));
  kinds.push_back(std::make_unique<FencedScripts>("name", milliseconds(0)));
  kinds.push_back(std::make_unique<ReadLockScripts>("name"));
  kinds.push_back(std::make_unique<WriteLockScripts>("name"));
  kinds.push_back(std::make_unique<SemaphoreScripts>(
      "name", std::make_shared<IdempotencyKeyPool>(kIdempotencyKeyLife)));
  kinds.push_back(std::make_unique<LatchScripts>("name", nullptr));
  kinds.push_back(std::make_unique<PermitScripts>("name", nullptr));
  return kinds;
}

/// It can be added to any time that a clock shows, also in ns.
bool isUsable(milliseconds time) {
  const milliseconds now =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch());
  const milliseconds last =
      std::chrono::duration_cast<milliseconds>(std::chrono::nanoseconds::max());
  return time >= milliseconds(-1) && time < last - now - milliseconds(2);
}

TEST(ReplyTime, IsNeverMoreThanAClockCanAdd) {
  EXPECT_EQ(timeOf(0), milliseconds(0));
  EXPECT_EQ(timeOf(60'000), milliseconds(60'000));
  EXPECT_EQ(timeOf(kLongestTime.count() + 1), kLongestTime);
  EXPECT_EQ(timeOf(kHuge), kLongestTime);
  EXPECT_EQ(timeOf(-1), milliseconds(-1));
  EXPECT_EQ(timeOf(-2), milliseconds(-1));
  EXPECT_EQ(timeOf(kTiny), milliseconds(-1));
  EXPECT_TRUE(isUsable(kLongestTime));
}

TEST(ReplyTime, OfARefusedAcquisitionIsUsableForEachKind) {
  for (const auto& scripts : allKinds()) {
    for (const std::int64_t pttl : {kTiny,
                                    std::int64_t{-2},
                                    std::int64_t{0},
                                    std::int64_t{300} * 365 * 86'400'000,
                                    std::int64_t{9'223'372'036'854'775},
                                    kHuge / 2,
                                    kHuge}) {
      const auto refused = scripts->parseAcquire(number(pttl));
      ASSERT_TRUE(refused) << scripts->noun() << ' ' << pttl;
      EXPECT_FALSE(refused->granted);
      EXPECT_TRUE(isUsable(refused->remaining)) << scripts->noun() << ' ' << pttl;
    }
    for (const Reply& wrong :
         {text("60000"), Reply(), array({}), array({text("1")}), array({number(-1)})}) {
      EXPECT_FALSE(scripts->parseAcquire(wrong)) << scripts->noun();
    }
  }
}

TEST(ReplyTime, OfWhatAReconciliationLeavesIsUsableForEachKind) {
  for (const auto& scripts : allKinds()) {
    for (const std::int64_t pttl : {kTiny, std::int64_t{-1}, std::int64_t{0}, kHuge}) {
      auto reply = array({number(1), number(1), number(pttl)});
      if (dynamic_cast<const FencedScripts*>(scripts.get()) != nullptr) {
        reply.elements.push_back(text("7"));
      }
      const auto reconciled = scripts->parseReconcile(reply);
      ASSERT_TRUE(reconciled) << scripts->noun() << ' ' << pttl;
      EXPECT_TRUE(!reconciled->remaining || isUsable(*reconciled->remaining))
          << scripts->noun() << ' ' << pttl;
    }
    for (const Reply& wrong : {number(1),
                               Reply(),
                               array({}),
                               array({number(1)}),
                               array({number(-1), number(0), number(0), number(0)}),
                               array({text("1"), number(0), number(0), number(0)})}) {
      EXPECT_FALSE(scripts->parseReconcile(wrong)) << scripts->noun();
    }
  }
}

TEST(ReplyTime, OfTheReadHoldsThatRemainIsUsable) {
  const ReadLockScripts scripts("name");
  const auto released = scripts.parseRelease(
      array({number(1), number(2), number(kHuge), text(""), array({number(1), number(2)})}));
  ASSERT_TRUE(released);
  ASSERT_TRUE(released->remaining);
  EXPECT_TRUE(isUsable(*released->remaining));
  EXPECT_FALSE(scripts.parseRelease(
      array({number(1), number(2), number(-5), text(""), array({number(1), number(2)})})));
  EXPECT_FALSE(scripts.parseRelease(
      array({number(1), number(2), number(5), text(""), array({number(0), number(2)})})));
  EXPECT_FALSE(scripts.parseRelease(array({number(1), number(2)})));
}

TEST(ReplyTime, OfAReconciledReadHoldSaysWhichAreOver) {
  const ReadLockScripts scripts("name");
  const auto of = [&](Reply fourth) {
    return scripts.parseReconcile(array({number(3), number(2), number(5), std::move(fourth)}));
  };
  const auto released = of(array({number(1), number(3)}));
  ASSERT_TRUE(released);
  EXPECT_EQ(released->over, (PartIndexes{1, 3}));
  EXPECT_FALSE(released->taken);
  for (const std::int64_t lasts : {std::int64_t{0}, std::int64_t{1}, kHuge}) {
    const auto acquired = of(number(lasts));
    ASSERT_TRUE(acquired);
    ASSERT_TRUE(acquired->taken);
    EXPECT_TRUE(isUsable(*acquired->taken));
    EXPECT_EQ(acquired->taken->count() > 0, lasts > 0);
    EXPECT_TRUE(acquired->over.empty());
  }
  EXPECT_FALSE(of(array({number(0)})));
}

TEST(ReplyCount, IsNeverMoreThanAnInt) {
  EXPECT_EQ(countIn(number(0)), 0);
  EXPECT_EQ(countIn(number(kMostHolds)), kMostHolds);
  EXPECT_EQ(countIn(number(std::int64_t{kMostHolds} + 1)), kMostHolds);
  EXPECT_EQ(countIn(number(kHuge)), kMostHolds);
  EXPECT_FALSE(countIn(number(-1)));
  EXPECT_FALSE(countIn(text("1")));
  const LockScripts scripts("name");
  EXPECT_EQ(scripts.parseAcquire(array({number(kHuge)}))->count, kMostHolds);
  EXPECT_EQ(scripts.parseRelease(number(kHuge))->remain, kMostHolds);
}

// Scripts that have done their work add the error text of a message that the server refused.
TEST(PublishRefusal, StandsBesideTheAnswer) {
  EXPECT_EQ(publishRefusal(array({number(1), text("NOPERM")})), "NOPERM");
  EXPECT_EQ(publishRefusal(array({number(1), number(2)})), "");
  EXPECT_EQ(publishRefusal(number(1)), "");
  EXPECT_EQ(parseNumber(array({number(7), text("NOPERM")})), 7);
  EXPECT_EQ(parseYesNo(array({number(0), text("NOPERM")})), false);
  EXPECT_FALSE(parseNumber(array({number(7), number(8)})));
  EXPECT_EQ(SemaphoreScripts::parseSum(array({number(1), number(4)}))->permits, 4);
  EXPECT_EQ(SemaphoreScripts::parseSum(array({number(1), number(4), text("NOPERM")}))->permits, 4);
  EXPECT_FALSE(SemaphoreScripts::parseSum(array({number(1), text("NOPERM")})));
}

TEST(PublishRefusal, OfAnAcquisition) {
  // The parsed results refer to the replies, which therefore stay.
  const Reply grant = array({number(1), text("NOPERM")});
  const Reply refusal = array({number(0), number(50), text("NOPERM")});
  const Reply undoing = array({number(1), number(0), text("NOPERM")});
  const Reply givingBack = array({number(1), number(0), number(-1), text("NOPERM")});
  const PermitScripts permits("name", nullptr);
  const auto granted = permits.parseAcquire(grant);
  ASSERT_TRUE(granted);
  EXPECT_TRUE(granted->granted);
  EXPECT_EQ(granted->publishError, "NOPERM");
  const auto refused = permits.parseAcquire(refusal);
  ASSERT_TRUE(refused);
  EXPECT_FALSE(refused->granted);
  EXPECT_EQ(refused->remaining, milliseconds(50));
  EXPECT_EQ(refused->publishError, "NOPERM");
  const auto undone = permits.parseReconcile(undoing);
  ASSERT_TRUE(undone);
  EXPECT_EQ(undone->publishError, "NOPERM");
  const PermitAcquisition acquisition(
      SemaphoreScripts("name", std::make_shared<IdempotencyKeyPool>(kIdempotencyKeyLife)), 2);
  const auto given = acquisition.parseReconcile(givingBack);
  ASSERT_TRUE(given);
  EXPECT_EQ(given->publishError, "NOPERM");
}

TEST(ErrorReply, DeniedInsideAScriptIsDenied) {
  for (const char* const said :
       {"NOPERM this user has no permissions to run the 'evalsha' command",
        "@user_script: 30: The user executing the script can't run this command or subcommand",
        "ERR Error running script (call to f_01): @user_script:30: @user_script: 30: The user "
        "executing the script can't access at least one of the keys mentioned in the command "
        "arguments",
        "ERR The user executing the script can't run this command or subcommand script: "
        "0123456789abcdef, on @user_script:3.",
        "ERR ACL failure in script: User app has no permissions to run the 'pexpire' command "
        "script: 0123456789abcdef, on @user_script:12.",
        "ERR ACL failure in script: No permissions to access a key script: 01, on "
        "@user_script:12."}) {
    const ErrorClass known = classifyError(said);
    EXPECT_EQ(known.errc, Errc::denied) << said;
    EXPECT_EQ(known.action, ErrorAction::fatal) << said;
  }
  EXPECT_EQ(classifyError("ERR ACL failure").errc, Errc::serverError);
  EXPECT_EQ(classifyError("ERR something in a script went wrong").errc, Errc::serverError);
  EXPECT_EQ(classifyError("@user_script: 30: Something went wrong").errc, Errc::serverError);
  EXPECT_EQ(
      classifyError("@user_script: 30: -OOM command not allowed when used memory > 'maxmemory'.")
          .errc,
      Errc::outOfMemory);
  EXPECT_EQ(classifyError("").errc, Errc::serverError);
}

TEST(ErrorReply, EachKnownWordHasItsMeaning) {
  struct Case {
    std::string_view said;
    ErrorAction action;
    Errc errc;
  };
  for (const Case& each :
       {Case{"NOREPLICAS Not enough good replicas", ErrorAction::retry, Errc::notSynced},
        Case{"READONLY You can't write", ErrorAction::retry, Errc::readOnly},
        Case{"MASTERDOWN Link with MASTER is down", ErrorAction::retry, Errc::connectionFailed},
        Case{"BUSY Redis is busy", ErrorAction::retry, Errc::serverError},
        Case{"MISCONF Errors writing to the AOF", ErrorAction::fatal, Errc::serverError},
        Case{"WRONGPASS invalid", ErrorAction::fatal, Errc::authenticationFailed},
        Case{"OOM command not allowed", ErrorAction::fatal, Errc::outOfMemory},
        Case{"CROSSSLOT Keys in request", ErrorAction::fatal, Errc::invalidArgument},
        Case{"NON_REENTRANT_REACQUIRE this owner", ErrorAction::fatal, Errc::reentry},
        Case{"RLOCKUPGRADE this owner reads", ErrorAction::fatal, Errc::wouldDeadlock}}) {
    const ErrorClass known = classifyError(each.said);
    EXPECT_EQ(known.action, each.action) << each.said;
    EXPECT_EQ(known.errc, each.errc) << each.said;
  }
}

TEST(ErrorReply, WordsAreFoundInsideTheTextsOfOlderServers) {
  EXPECT_EQ(classifyError("ERR Error running script (call to f_1): @user_script:1: -OOM command "
                          "not allowed when used memory > 'maxmemory'.")
                .errc,
            Errc::outOfMemory);
  EXPECT_EQ(
      classifyError("ERR Error running script: @user_script:1: WRONGTYPE Operation against").errc,
      Errc::wrongType);
  EXPECT_EQ(classifyError("WRONGTYPE Operation").errc, Errc::wrongType);
  EXPECT_EQ(classifyError("NOSCRIPT No matching script").action, ErrorAction::reload);
}

}  // namespace
}  // namespace reply_test
}  // namespace rlock::detail
