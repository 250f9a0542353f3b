// SPDX-License-Identifier: Apache-2.0
#include "unit/dispatched.hpp"
#include "unit/engine_fixture.hpp"
#include "unit/manual_env.hpp"
#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/executor/ack_tickets.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/dispatcher.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/start_script.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/result.hpp>
#include <rlock/sync_policy.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {
namespace node_test {
namespace {

using namespace std::chrono_literals;

/// There is never memory to write its words anew.
class WordlessCall final : public Call {
 public:
  WordlessCall() {
    setCommand({"TAKE", "key"});
    setLate(Late::takes);
    setSlot(7);
  }

  std::optional<Outcome> outcome;

 private:
  void recompose(bool /*tombstone*/) override { throw std::bad_alloc(); }
  void finished(Outcome end) noexcept override { outcome = std::move(end); }
};

/// One server, and a call that was sent to it and may wait for a minute.
class NodeTest : public ::testing::Test {
 protected:
  NodeTest() : NodeTest("redis://host") {}
  explicit NodeTest(const std::string& uri) : options_(Options::fromUri(uri)) {
    dispatcher_->open([](const Result<void>& /*ready*/) {});
    server_->connect(*link_);
    dispatcher_->start(call_, env_->now() + 1min);
    EXPECT_EQ(server_->underWay(), 1U);
  }
  ~NodeTest() override {
    dispatcher_->close();
    env_->runPosted();
  }

  /// Takes a hold away, and goes on whatever the server says.
  IntrusivePtr<TakingCall> startForGood(std::chrono::milliseconds patience) {
    auto call = makeIntrusive<TakingCall>();
    call->setLate(Call::Late::takes);
    call->setPersistent(true);
    dispatcher_->start(call, env_->now() + patience);
    return call;
  }

  /// Asks for the acknowledgements of an answered call. Returns why there are none.
  std::string untilAcknowledged(Call& call) {
    const auto told = std::make_shared<std::string>("waits");
    const SyncPolicy policy = SyncPolicy::replicas(1);
    Dispatcher::acknowledge(
        call, {policy, env_->now(), env_->now() + policy.limit, [told](const Acks& acks) {
                 *told = acks.why;
               }});
    return *told;
  }

  const Options options_;
  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  const std::shared_ptr<PendingCommands> server_ = std::make_shared<PendingCommands>(*env_);
  net::LinkEvents* link_ = nullptr;
  NotedEvents events_;
  const std::shared_ptr<Dispatcher> dispatcher_ = std::make_shared<Dispatcher>(
      env_,
      net::Transports{[this](net::LinkEvents& events) {
                        link_ = &events;
                        return server_;
                      },
                      [](net::PubSubEvents&) { return std::make_unique<NoSubscriptions>(); }},
      options_,
      std::make_shared<const Logger>([](LogLevel, std::string_view) {}, LogLevel::error),
      events_);
  const IntrusivePtr<TakingCall> call_ = makeIntrusive<TakingCall>();
};

TEST_F(NodeTest, ACallGoesOutOnTheConnectionThatIsAuthenticatedAgain) {
  server_->refuse("NOAUTH Authentication required.");
  server_->disconnect(*link_);
  EXPECT_FALSE(call_->outcome.has_value());
  env_->advance(1s);
  EXPECT_EQ(server_->underWay(), 0U) << "there is no connection yet";
  server_->connect(*link_);
  ASSERT_EQ(server_->underWay(), 1U);
  server_->answer(test::numberReply(1));
  ASSERT_TRUE(call_->outcome.has_value());
  EXPECT_EQ(call_->outcome->kind, Outcome::Kind::replied);
}

// The connection was given up for the refusal, so that the call ends while there is none.
TEST_F(NodeTest, AnAuthenticationThatIsForgottenForGoodIsTheError) {
  server_->refuse("NOAUTH Authentication required.");
  server_->disconnect(*link_);
  env_->advance(1s);
  env_->advance(1min);
  ASSERT_TRUE(call_->outcome.has_value());
  ASSERT_TRUE(call_->outcome->error.has_value());
  EXPECT_EQ(call_->outcome->error->errc(), Errc::authenticationFailed);
  EXPECT_EQ(call_->outcome->error->serverMessage(), "NOAUTH Authentication required.");
}

TEST_F(NodeTest, AnAuthenticationThatWasForgottenBeforeIsNotTheReasonOfALaterOutage) {
  server_->refuse("NOAUTH Authentication required.");
  server_->disconnect(*link_);
  server_->connect(*link_);
  server_->disconnect(*link_);
  env_->advance(1s);
  EXPECT_EQ(server_->underWay(), 0U) << "its pause was longer than the connection";
  env_->advance(1min);
  ASSERT_TRUE(call_->outcome.has_value());
  ASSERT_TRUE(call_->outcome->error.has_value());
  EXPECT_EQ(call_->outcome->error->errc(), Errc::connectionFailed);
  EXPECT_EQ(call_->outcome->error->message(), "cut");
}

TEST_F(NodeTest, AServerThatIsGoneSinceItForgotTheAuthenticationIsTheError) {
  server_->refuse("NOAUTH Authentication required.");
  server_->disconnect(*link_);
  env_->advance(1s);
  link_->onDown(Error(Errc::connectionFailed, "connection refused"));
  env_->advance(1min);
  ASSERT_TRUE(call_->outcome.has_value());
  ASSERT_TRUE(call_->outcome->error.has_value());
  EXPECT_EQ(call_->outcome->error->errc(), Errc::connectionFailed);
  EXPECT_EQ(call_->outcome->error->message(), "connection refused");
}

TEST_F(NodeTest, AConnectionThatIsMissingForAnotherReasonIsTheError) {
  server_->refuse("LOADING Redis is loading the dataset in memory");
  server_->disconnect(*link_);
  env_->advance(1s);
  env_->advance(1min);
  ASSERT_TRUE(call_->outcome.has_value());
  ASSERT_TRUE(call_->outcome->error.has_value());
  EXPECT_EQ(call_->outcome->error->errc(), Errc::connectionFailed);
  EXPECT_EQ(call_->outcome->error->message(), "cut");
}

TEST_F(NodeTest, ACallThatGoesOnWaitsAlsoWhileNobodyIsLetIn) {
  const Error refusal(Errc::authenticationFailed, "wrong password");
  server_->answer(test::numberReply(1));
  server_->drop();
  link_->onDown(refusal);
  const auto other = makeIntrusive<TakingCall>();
  dispatcher_->start(other, env_->now() + 1min);
  EXPECT_TRUE(other->outcome.has_value()) << "waiting is of no use";
  const auto call = startForGood(1min);
  EXPECT_FALSE(call->outcome.has_value());
  link_->onDown(refusal);
  EXPECT_FALSE(call->outcome.has_value());
  server_->connect(*link_, true);
  ASSERT_EQ(server_->underWay(), 1U);
  server_->answer(test::numberReply(1));
  ASSERT_TRUE(call->outcome.has_value());
  EXPECT_EQ(call->outcome->kind, Outcome::Kind::replied);
}

TEST_F(NodeTest, ACallThatWaitsForAKillEndsWhenNobodyIsLetInAnyMore) {
  server_->disconnect(*link_);
  server_->connect(*link_, true);
  ASSERT_EQ(server_->underWay(), 1U);
  ASSERT_EQ(server_->oldest().front(), "CLIENT");
  server_->drop();
  EXPECT_FALSE(call_->outcome.has_value());
  link_->onDown(Error(Errc::authenticationFailed, "wrong password"));
  ASSERT_TRUE(call_->outcome.has_value());
  ASSERT_TRUE(call_->outcome->error.has_value());
  EXPECT_EQ(call_->outcome->error->errc(), Errc::authenticationFailed);
  EXPECT_TRUE(call_->outcome->maybeExecuted);
}

TEST_F(NodeTest, ACallThatGoesOnIsSentWhenThereIsMemoryAgain) {
  server_->answer(test::numberReply(1));
  server_->failAt(1);
  const auto call = startForGood(1min);
  EXPECT_FALSE(call->outcome.has_value());
  EXPECT_EQ(server_->underWay(), 0U);
  env_->advance(kMemoryPause);
  ASSERT_EQ(server_->underWay(), 1U);
  server_->answer(test::numberReply(1));
  ASSERT_TRUE(call->outcome.has_value());
  EXPECT_EQ(call->outcome->kind, Outcome::Kind::replied);
}

TEST_F(NodeTest, ACallThatHasGotItsMemoryEndsForAnotherReason) {
  server_->answer(test::numberReply(1));
  server_->failAt(1);
  const auto call = startForGood(1min);
  env_->advance(kMemoryPause);
  ASSERT_EQ(server_->underWay(), 1U);
  env_->advance(1min);
  call->setLate(Call::Late::harmless);
  server_->disconnect(*link_);
  ASSERT_TRUE(call->outcome.has_value());
  ASSERT_TRUE(call->outcome->error.has_value());
  EXPECT_NE(call->outcome->error->errc(), Errc::overloaded) << call->outcome->error->what();
}

TEST_F(NodeTest, ACallThatGoesOnWithoutMemoryEndsInItsTime) {
  server_->answer(test::numberReply(1));
  server_->failAt(1);
  const auto call = startForGood(10 * kMemoryPause);
  for (int pause = 0; pause < 9; ++pause) {
    server_->failAt(1);
    env_->advance(kMemoryPause);
    EXPECT_FALSE(call->outcome.has_value());
  }
  server_->failAt(1);
  env_->advance(kMemoryPause);
  ASSERT_TRUE(call->outcome.has_value());
  ASSERT_TRUE(call->outcome->error.has_value());
  EXPECT_EQ(call->outcome->error->errc(), Errc::overloaded);
}

TEST_F(NodeTest, ACallThatGoesOnWithoutMemoryForItsWordsEndsInItsTime) {
  server_->answer(test::numberReply(1));
  server_->failAt(1);
  const auto call = makeIntrusive<WordlessCall>();
  call->setPersistent(true);
  dispatcher_->start(call, env_->now() + 10 * kMemoryPause);
  env_->advance(9 * kMemoryPause);
  EXPECT_FALSE(call->outcome.has_value());
  env_->advance(kMemoryPause);
  ASSERT_TRUE(call->outcome.has_value());
  ASSERT_TRUE(call->outcome->error.has_value());
  EXPECT_EQ(call->outcome->error->errc(), Errc::overloaded);
}

TEST_F(NodeTest, ACallThatSomebodyAwaitsEndsWithoutMemory) {
  server_->answer(test::numberReply(1));
  server_->failAt(1);
  const auto call = makeIntrusive<TakingCall>();
  dispatcher_->start(call, env_->now() + 1min);
  ASSERT_TRUE(call->outcome.has_value());
  ASSERT_TRUE(call->outcome->error.has_value());
  EXPECT_EQ(call->outcome->error->errc(), Errc::overloaded);
}

// Its sender would send what finds out about the lost one, again and again without memory.
TEST_F(NodeTest, ARequestThatThereIsNoMemoryToSendIsNotLostBecauseTheOneBeforeWas) {
  call_->setLate(Call::Late::harmless);
  call_->setRepeatable(false);
  server_->disconnect(*link_);
  ASSERT_TRUE(call_->outcome.has_value());
  EXPECT_EQ(call_->outcome->kind, Outcome::Kind::unknown);
  server_->connect(*link_);
  server_->failAt(1);
  dispatcher_->start(call_, env_->now() + 1min);
  EXPECT_EQ(call_->outcome->kind, Outcome::Kind::failed);
}

// A request that was lost may take a later hold away, whether the call's own time is over or not.
TEST_F(NodeTest, ACallThatGoesOnIsSentWhenWhatWasLostOfItCanDoNoHarm) {
  server_->answer(test::numberReply(1));
  const auto call = startForGood(1s);
  ASSERT_EQ(server_->underWay(), 1U);
  server_->disconnect(*link_);
  env_->advance(kTombstoneLife);
  EXPECT_FALSE(call->outcome.has_value());
  server_->connect(*link_, true);
  ASSERT_EQ(server_->underWay(), 1U);
  EXPECT_EQ(server_->oldest().front(), "TAKE") << "nothing is left to be killed";
  server_->answer(test::numberReply(1));
  ASSERT_TRUE(call->outcome.has_value());
  EXPECT_EQ(call->outcome->kind, Outcome::Kind::replied);
}

// Other threads use a connection as soon as it is there, before the node has heard of it.
TEST_F(NodeTest, AnAnswerOfANewServerThatTheNodeHasNotHeardOfIsOfThatServer) {
  server_->answer(test::numberReply(1));
  env_->advance(1s);
  server_->disconnect(*link_);
  env_->advance(1s);
  const auto session = server_->begin(true, "another run");
  const auto call = makeIntrusive<TakingCall>();
  ASSERT_TRUE(dispatcher_->direct(*call, Dispatcher::Mode::background));
  env_->advance(1s);
  link_->onUp(session);
  server_->answer(test::numberReply(1));
  ASSERT_TRUE(call->outcome.has_value());
  EXPECT_EQ(untilAcknowledged(*call), "waits");
  EXPECT_EQ(untilAcknowledged(*call_), "the server was replaced");
}

// Calls are used again for the next request about the same hold.
TEST_F(NodeTest, ALostReplyIsNoDoubtAboutTheNextRequestOfTheCall) {
  server_->disconnect(*link_);
  server_->connect(*link_, true);
  ASSERT_EQ(server_->underWay(), 1U);
  ASSERT_EQ(server_->oldest().front(), "CLIENT");
  server_->answer(test::numberReply(1));
  ASSERT_EQ(server_->underWay(), 1U);
  server_->refuse("NOPERM this user has no permissions");
  ASSERT_TRUE(call_->outcome.has_value());
  EXPECT_TRUE(call_->outcome->maybeExecuted);
  call_->outcome.reset();
  dispatcher_->start(call_, env_->now() + 1min);
  ASSERT_EQ(server_->underWay(), 1U);
  server_->refuse("NOPERM this user has no permissions");
  ASSERT_TRUE(call_->outcome.has_value());
  EXPECT_FALSE(call_->outcome->maybeExecuted);
}

/// Runs a script, and may be repeated.
class ScriptCall final : public Call {
 public:
  ScriptCall() {
    setScript(lua::lock_acquire, 0);
    setRepeatable(true);
  }

 private:
  void finished(Outcome /*outcome*/) noexcept override {}
};

// The others would go out by the hash once more, in vain.
TEST_F(NodeTest, ATextThatCouldNotBeSentIsUnderWayNoMore) {
  constexpr std::string_view kNoScript = "NOSCRIPT No matching script. Please use EVAL.";
  server_->answer(test::numberReply(1));
  const auto first = makeIntrusive<ScriptCall>();
  ASSERT_TRUE(dispatcher_->direct(*first));
  server_->onAwait = [&] {
    server_->refuse(kNoScript);
    server_->drop();
    return net::CommandTransport::Awaited::complete;
  };
  ASSERT_EQ(dispatcher_->await(*first, env_->now() + 1s), Dispatcher::Direct::trouble);
  dispatcher_->resume(first, env_->now() + 1min);
  server_->connect(*link_);
  const auto second = makeIntrusive<ScriptCall>();
  dispatcher_->start(second, env_->now() + 1min);
  server_->refuse(kNoScript);
  ASSERT_EQ(server_->underWay(), 1U);
  EXPECT_EQ(server_->oldest().front(), "EVAL");
  env_->runPosted();
  server_->answer(test::numberReply(1));
  ASSERT_EQ(server_->underWay(), 1U);
  EXPECT_EQ(server_->oldest().front(), "EVALSHA") << "of the first, which goes out behind it";
  server_->answer(test::numberReply(1));
}

class PausingNodeTest : public NodeTest {
 protected:
  PausingNodeTest() : NodeTest("redis://host?retry-delay-min=64ms&retry-delay-max=256ms") {}
};

TEST_F(PausingNodeTest, ThePausesAfterRefusalsGrowAsFarAsTheOptionsSay) {
  for (const std::chrono::milliseconds longest : {64ms, 128ms, 256ms, 256ms}) {
    SCOPED_TRACE(longest.count());
    server_->refuse("BUSY Redis is busy running a script");
    // A random part of its second half is left out.
    env_->advance(longest / 2 - 1ms);
    EXPECT_EQ(server_->underWay(), 0U);
    env_->advance(longest / 2 + 1ms);
    ASSERT_EQ(server_->underWay(), 1U);
  }
}

}  // namespace
}  // namespace node_test
}  // namespace rlock::detail
