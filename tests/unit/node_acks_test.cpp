// SPDX-License-Identifier: Apache-2.0
#include "unit/idle_link.hpp"
#include "unit/manual_env.hpp"
#include <rlock/detail/executor/node_acks.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace rlock::detail {
namespace node_acks_test {
namespace {

using namespace std::chrono_literals;

class NodeAcksTest : public ::testing::Test {
 protected:
  using Told = std::shared_ptr<std::optional<Acks>>;

  Told ask(NodeAcks::TimePoint submittedAt) {
    auto told = std::make_shared<std::optional<Acks>>();
    const SyncPolicy policy = SyncPolicy::replicas(1);
    acks_.ask(
        submittedAt, "key", {policy, env_->now(), env_->now() + policy.limit, [told](Acks acks) {
                               ASSERT_FALSE(told->has_value()) << "told twice";
                               *told = std::move(acks);
                             }});
    return told;
  }
  Told askNow() { return ask(env_->now()); }
  void connect(const std::string& runId) {
    auto session = std::make_shared<net::ServerSession>();
    session->runId = runId;
    session->address = "127.0.0.1:1";
    acks_.connected(session, env_->now());
  }
  static bool waits(const Told& told) { return !told->has_value(); }
  static std::string why(const Told& told) { return told->has_value() ? (*told)->why : "waits"; }

  std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  std::shared_ptr<IdleLink> link_;
  bool memory_ = true;
  NodeAcks acks_{env_,
                 [this](net::LinkEvents& /*events*/) {
                   if (!memory_) {
                     throw std::bad_alloc();
                   }
                   link_ = std::make_shared<IdleLink>();
                   return link_;
                 },
                 3s};
};

TEST_F(NodeAcksTest, AConnectionIsMadeWhenSomebodyAsksFirst) {
  connect("a");
  EXPECT_EQ(link_, nullptr);
  EXPECT_TRUE(waits(askNow()));
  ASSERT_NE(link_, nullptr);
  EXPECT_TRUE(link_->opened);
  const auto same = link_;
  EXPECT_TRUE(waits(askNow()));
  EXPECT_EQ(link_, same);
}

TEST_F(NodeAcksTest, AnotherServerIsNotAskedWhoHasAWriteOfTheOneBefore) {
  connect("a");
  const auto submittedAt = env_->now();
  EXPECT_TRUE(waits(ask(submittedAt))) << "of the first server whatever was submitted before it";
  env_->advance(1s);
  connect("a");
  EXPECT_TRUE(waits(ask(submittedAt))) << "the same process";
  connect("b");
  EXPECT_EQ(why(ask(submittedAt)), "the server was replaced");
  EXPECT_TRUE(waits(askNow()));
}

TEST_F(NodeAcksTest, TheTicketsOfAServerThatWasReplacedAreOver) {
  connect("a");
  const auto told = askNow();
  EXPECT_TRUE(waits(told));
  connect("b");
  EXPECT_FALSE(waits(told));
}

TEST_F(NodeAcksTest, AServerWithoutANameMayBeAnotherAfterEachConnection) {
  connect("");
  const auto submittedAt = env_->now();
  EXPECT_TRUE(waits(ask(submittedAt)));
  env_->advance(1s);
  connect("");
  EXPECT_EQ(why(ask(submittedAt)), "the server was replaced");
}

TEST_F(NodeAcksTest, ATicketEndsWhereThereIsNoMemory) {
  connect("a");
  memory_ = false;
  EXPECT_EQ(why(askNow()), "this process has no memory to ask for it");
  memory_ = true;
  EXPECT_TRUE(waits(askNow()));
}

TEST_F(NodeAcksTest, TheEndEndsThem) {
  connect("a");
  const auto told = askNow();
  acks_.end();
  EXPECT_FALSE(waits(told));
  EXPECT_FALSE(waits(askNow()));
}

TEST_F(NodeAcksTest, AfterTheEndNobodyIsAskedAnyMore) {
  connect("a");
  acks_.end();
  EXPECT_FALSE(waits(askNow()));
  EXPECT_EQ(link_, nullptr) << "no connection of a client that is being closed";
}

}  // namespace
}  // namespace node_acks_test
}  // namespace rlock::detail
