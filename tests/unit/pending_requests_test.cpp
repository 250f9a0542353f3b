// SPDX-License-Identifier: Apache-2.0
#include "unit/fake_env.hpp"
#include <rlock/detail/net/pending_requests.hpp>
#include <rlock/detail/net/request_word.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail::net {
namespace pending_requests_test {
namespace {

using namespace std::chrono_literals;

using Clock = PendingRequests::Clock;
using Mode = PendingRequests::Mode;
using Next = RequestWord::Next;
using Delivery = Request::Delivery;

class TestRequest final : public LoneRequest {
 public:
  explicit TestRequest(Purpose purpose = Purpose::work) noexcept : LoneRequest(purpose) {}
  using Request::setOnlyIfKillable;

 private:
  void completed() noexcept override {}
};
using TestRequestPtr = IntrusivePtr<TestRequest>;

Reply status(std::string text) {
  Reply reply;
  reply.type = Reply::Type::status;
  reply.text = std::move(text);
  return reply;
}

Reply error(std::string text) {
  Reply reply = status(std::move(text));
  reply.type = Reply::Type::error;
  return reply;
}

/// The requests of a queue, which is empty afterwards.
std::vector<const Request*> drain(RequestQueue& queue) {
  std::vector<const Request*> all;
  while (const auto request = queue.pop()) {
    all.push_back(request.get());
  }
  return all;
}

class PendingRequestsTest : public ::testing::Test {
 protected:
  static constexpr auto kTimeout = 3000ms;

  PendingRequestsTest() { pending.begin(true, start); }

  TestRequestPtr append(Mode mode = Mode::awaited,
                        std::size_t bytes = 10,
                        std::chrono::milliseconds at = 0ms) {
    auto request = makeIntrusive<TestRequest>();
    pending.append(*request, bytes, mode, start + at);
    return request;
  }
  bool take(Reply reply, std::chrono::milliseconds at = 0ms) {
    return pending.take(std::move(reply), start + at, ended);
  }
  static Next next(Request& request) {
    std::uint32_t word = 0;
    return RequestWord::next(request, word);
  }

  const Clock::time_point start = Clock::time_point(1h);
  PendingRequests pending{kTimeout};
  PendingRequests::Ended ended;
};

using Requests = std::vector<const Request*>;

TEST_F(PendingRequestsTest, GivesRepliesInTheOrderOfTheCommands) {
  const auto first = append();
  const auto second = append(Mode::background);
  const auto third = append();
  EXPECT_TRUE(take(status("1")));
  EXPECT_TRUE(take(status("2")));
  EXPECT_TRUE(take(status("3")));
  EXPECT_EQ(first->reply().text, "1");
  EXPECT_EQ(second->reply().text, "2");
  EXPECT_EQ(third->reply().text, "3");
  EXPECT_EQ(second->delivery(), Delivery::replied);
  EXPECT_EQ(drain(ended.awaited), (Requests{first.get(), third.get()}));
  EXPECT_EQ(drain(ended.background), Requests{second.get()});
  EXPECT_EQ(pending.answered(), 3U);
  EXPECT_TRUE(pending.empty());
}

TEST_F(PendingRequestsTest, KnowsAReplyThatNobodyAskedFor) {
  EXPECT_FALSE(take(status("OK")));
  const auto request = append();
  EXPECT_TRUE(take(status("OK")));
  EXPECT_FALSE(take(status("OK")));
  EXPECT_EQ(pending.answered(), 1U);
}

TEST_F(PendingRequestsTest, KeepsARequestAliveWhileItIsPending) {
  auto request = append();
  EXPECT_EQ(request->useCount(), 2U);
  take(status("OK"));
  drain(ended.awaited);
  EXPECT_EQ(request->useCount(), 1U);
}

TEST_F(PendingRequestsTest, CountsTheRequestsThatNoThreadAwaits) {
  const auto awaited = append();
  const auto background = append(Mode::background);
  EXPECT_EQ(pending.background(), 1U);
  EXPECT_TRUE(pending.toBackground(*awaited));
  EXPECT_EQ(pending.background(), 2U);
  take(status("OK"));
  EXPECT_EQ(pending.background(), 1U);
  EXPECT_EQ(drain(ended.background), Requests{awaited.get()});
  EXPECT_FALSE(pending.toBackground(*awaited)) << "it has ended";
  pending.fail(nullptr, ended);
  EXPECT_EQ(pending.background(), 0U);
}

TEST_F(PendingRequestsTest, IsLostWhenItsLastByteMayHaveBeenSent) {
  const auto session = std::make_shared<const ServerSession>();
  const auto whole = append(Mode::awaited, 10);
  const auto half = append(Mode::background, 10);
  pending.offer(20);
  pending.refused(1);
  pending.fail(session, ended);
  EXPECT_EQ(whole->delivery(), Delivery::lost);
  EXPECT_EQ(whole->session(), session);
  EXPECT_EQ(half->delivery(), Delivery::unsent);
  EXPECT_EQ(half->session(), nullptr);
  EXPECT_EQ(drain(ended.awaited), Requests{whole.get()});
  EXPECT_EQ(drain(ended.background), Requests{half.get()});
  EXPECT_TRUE(pending.empty());
}

TEST_F(PendingRequestsTest, IsLostWhileTheKernelHasNotAnswered) {
  const auto request = append(Mode::awaited, 10);
  pending.offer(10);
  pending.fail(std::make_shared<const ServerSession>(), ended);
  EXPECT_EQ(request->delivery(), Delivery::lost);
}

TEST_F(PendingRequestsTest, IsUnsentWhenTheKernelTookNothing) {
  const auto request = append(Mode::awaited, 10);
  pending.offer(10);
  pending.refused(10);
  pending.fail(std::make_shared<const ServerSession>(), ended);
  EXPECT_EQ(request->delivery(), Delivery::unsent);
}

TEST_F(PendingRequestsTest, CountsTheBytesOfAnsweredRequestsToo) {
  const auto answered = append(Mode::awaited, 10);
  pending.offer(10);
  take(status("OK"));
  const auto request = append(Mode::awaited, 10);
  pending.fail(std::make_shared<const ServerSession>(), ended);
  EXPECT_EQ(answered->delivery(), Delivery::replied);
  EXPECT_EQ(request->delivery(), Delivery::unsent);
}

TEST_F(PendingRequestsTest, CountsTheBytesOfEachConnectionAnew) {
  append(Mode::awaited, 100);
  pending.offer(100);
  pending.fail(std::make_shared<const ServerSession>(), ended);
  drain(ended.awaited);
  pending.begin(true, start + 1s);
  const auto request = append(Mode::awaited, 10);
  pending.fail(std::make_shared<const ServerSession>(), ended);
  EXPECT_EQ(request->delivery(), Delivery::unsent);
}

TEST_F(PendingRequestsTest, ForgetsTheFateOfTheLastTime) {
  const auto request = append();
  pending.offer(10);
  pending.fail(std::make_shared<const ServerSession>(), ended);
  drain(ended.awaited);
  EXPECT_FALSE(RequestWord::finish(*request));
  pending.begin(true, start + 1s);
  pending.append(*request, 10, Mode::background, start + 2s);
  EXPECT_EQ(request->delivery(), Delivery::pending);
  EXPECT_EQ(request->session(), nullptr);
  EXPECT_EQ(request->submittedAt(), start + 2s);
  EXPECT_FALSE(RequestWord::done(*request));
}

TEST_F(PendingRequestsTest, GoesOutOnlyOnAConnectionThatCanBeKilledIfItMust) {
  TestRequest any;
  TestRequest picky;
  picky.setOnlyIfKillable(true);
  EXPECT_TRUE(pending.accepts(any));
  EXPECT_TRUE(pending.accepts(picky));
  pending.distrust();
  EXPECT_TRUE(pending.accepts(any));
  EXPECT_FALSE(pending.accepts(picky));
  pending.begin(true, start);
  EXPECT_TRUE(pending.accepts(picky));
  pending.begin(false, start);
  EXPECT_FALSE(pending.accepts(picky));
}

TEST_F(PendingRequestsTest, IsOfUseOnceItAnswersAUserWithoutAnError) {
  append();
  take(error("LOADING"));
  EXPECT_FALSE(pending.useful());
  const auto ping = makeIntrusive<TestRequest>(Request::Purpose::upkeep);
  pending.append(*ping, 10, Mode::background, start);
  take(status("PONG"));
  EXPECT_FALSE(pending.useful());
  append();
  take(status("OK"));
  EXPECT_TRUE(pending.useful());
  append();
  take(error("LOADING"));
  EXPECT_TRUE(pending.useful());
  pending.begin(true, start);
  EXPECT_FALSE(pending.useful());
}

TEST_F(PendingRequestsTest, IsOverdueWhenTheOldestHasWaitedTooLong) {
  append(Mode::awaited, 10, 100ms);
  append(Mode::awaited, 10, 200ms);
  EXPECT_EQ(pending.stallDue(), start + 100ms + kTimeout);
  EXPECT_EQ(pending.judgeStall(start + 500ms), start + 100ms + kTimeout);
}

TEST_F(PendingRequestsTest, AReplyToAnotherPutsOffTheEnd) {
  append();
  append();
  take(status("OK"), 2000ms);
  EXPECT_EQ(pending.stallDue(), start + 2000ms + kTimeout);
}

TEST_F(PendingRequestsTest, ASilentConnectionGetsOneSecondLook) {
  append();
  const auto due = start + kTimeout;
  const auto again = pending.judgeStall(due);
  EXPECT_GT(again, due);
  EXPECT_LT(again, due + 100ms);
  EXPECT_EQ(pending.judgeStall(again - 1ns), again) << "it is not granted anew";
  EXPECT_EQ(pending.judgeStall(again), Clock::time_point::max());
}

TEST_F(PendingRequestsTest, AReplyEndsTheSuspicion) {
  append();
  append();
  const auto again = pending.judgeStall(start + kTimeout);
  take(status("OK"), kTimeout + 1ms);
  const auto due = start + kTimeout + 1ms + kTimeout;
  EXPECT_EQ(pending.judgeStall(again), due);
  EXPECT_GT(pending.judgeStall(due), due) << "the next silence gets a second look of its own";
  EXPECT_NE(pending.judgeStall(due), Clock::time_point::max());
}

TEST_F(PendingRequestsTest, ANewConnectionIsNotSuspected) {
  append();
  pending.judgeStall(start + kTimeout);
  pending.fail(nullptr, ended);
  drain(ended.awaited);
  pending.begin(true, start + 1h);
  append();
  EXPECT_EQ(pending.stallDue(), start + 1h + kTimeout) << "the connection counts like a reply";
  EXPECT_NE(pending.judgeStall(start + 2h), Clock::time_point::max());
}

TEST_F(PendingRequestsTest, AThreadIsAskedToSleepUntilItsRequestIsFinished) {
  const auto request = append();
  std::uint32_t word = 0;
  EXPECT_EQ(RequestWord::next(*request, word), Next::sleep);
  EXPECT_EQ(word, RequestWord::word(*request).load());
  take(status("OK"));
  EXPECT_EQ(next(*request), Next::sleep) << "the reader has yet to say so";
  EXPECT_TRUE(RequestWord::finish(*request)) << "it sleeps";
  EXPECT_NE(word, RequestWord::word(*request).load());
  EXPECT_EQ(next(*request), Next::done);
}

TEST_F(PendingRequestsTest, AThreadThatIsAwakeNeedsNoWakeUp) {
  const auto request = append();
  take(status("OK"));
  EXPECT_FALSE(RequestWord::finish(*request));
  EXPECT_TRUE(RequestWord::done(*request));
}

TEST_F(PendingRequestsTest, TheThreadThatHasWaitedLongestReadsNext) {
  const auto first = append();
  const auto second = append();
  const auto third = append();
  pending.enlist(*second);
  pending.enlist(*first);
  pending.enlist(*third);
  EXPECT_EQ(next(*second), Next::sleep);
  auto leader = pending.appoint();
  EXPECT_EQ(leader.request, second);
  EXPECT_TRUE(leader.asleep);
  EXPECT_EQ(next(*second), Next::lead);
  leader = pending.appoint();
  EXPECT_EQ(leader.request, first);
  EXPECT_FALSE(leader.asleep);
  EXPECT_EQ(next(*third), Next::sleep);
  leader = pending.appoint();
  EXPECT_EQ(leader.request, third);
  EXPECT_EQ(pending.appoint().request, nullptr);
}

TEST_F(PendingRequestsTest, ARequestThatEndsWaitsNoLonger) {
  const auto first = append();
  const auto second = append();
  const auto third = append();
  for (const auto& request : {first, second, third}) {
    pending.enlist(*request);
  }
  take(status("OK"));
  EXPECT_TRUE(pending.leave(*third));
  EXPECT_EQ(pending.background(), 1U);
  EXPECT_EQ(pending.appoint().request, second);
  EXPECT_EQ(pending.appoint().request, nullptr);
}

TEST_F(PendingRequestsTest, AFailureLeavesNobodyToRead) {
  const auto first = append();
  pending.enlist(*first);
  pending.fail(nullptr, ended);
  EXPECT_EQ(pending.appoint().request, nullptr);
}

TEST_F(PendingRequestsTest, AReaderHandsOnBeforeItLeaves) {
  const auto request = append();
  pending.enlist(*request);
  pending.appoint();
  EXPECT_FALSE(pending.leave(*request));
  EXPECT_EQ(pending.background(), 0U);
  EXPECT_TRUE(pending.toBackground(*request));
  EXPECT_EQ(pending.background(), 1U);
}

TEST_F(PendingRequestsTest, AReaderIsToldSoEvenWhenItsRequestHasEnded) {
  const auto request = append();
  pending.enlist(*request);
  pending.appoint();
  pending.fail(nullptr, ended);
  EXPECT_FALSE(RequestWord::finish(*request));
  EXPECT_EQ(next(*request), Next::lead);
}

TEST_F(PendingRequestsTest, AnEndedRequestCannotBeLeft) {
  const auto request = append();
  pending.enlist(*request);
  take(status("OK"));
  EXPECT_FALSE(pending.leave(*request));
}

TEST_F(PendingRequestsTest, AnInterruptBeforeTheCommandCounts) {
  const auto request = makeIntrusive<TestRequest>();
  FakeEnv env;
  request->interrupt(env);
  pending.append(*request, 10, Mode::awaited, start);
  EXPECT_TRUE(RequestWord::interrupted(*request));
  EXPECT_EQ(next(*request), Next::interrupt);
  take(status("OK"));
  EXPECT_FALSE(RequestWord::finish(*request));
  EXPECT_EQ(next(*request), Next::done) << "the reply is of more use";
}

}  // namespace
}  // namespace pending_requests_test
}  // namespace rlock::detail::net
