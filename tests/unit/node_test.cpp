// SPDX-License-Identifier: Apache-2.0
#include "unit/dispatched.hpp"
#include "unit/engine_fixture.hpp"
#include "unit/manual_env.hpp"
#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/dispatcher.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/result.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string_view>

namespace rlock::detail {
namespace node_test {
namespace {

using namespace std::chrono_literals;

/// One server, and a call that was sent to it and may wait for a minute.
class NodeTest : public ::testing::Test {
 protected:
  NodeTest() {
    dispatcher_->open([](const Result<void>& /*ready*/) {});
    server_->connect(*link_);
    dispatcher_->start(call_, env_->now() + 1min);
    EXPECT_EQ(server_->underWay(), 1U);
  }
  ~NodeTest() override {
    dispatcher_->close();
    env_->runPosted();
  }

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
      Options::fromUri("redis://host"),
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

}  // namespace
}  // namespace node_test
}  // namespace rlock::detail
