// SPDX-License-Identifier: Apache-2.0
#include "unit/manual_env.hpp"
#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/executor/map_source.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace map_source_test {
namespace {

using test::listReply;
using test::numberReply;
using test::textReply;

using namespace std::chrono_literals;

/// A cluster of one master that has all slots.
Reply shards(std::uint16_t port) {
  return listReply({listReply({textReply("slots"),
                               listReply({numberReply(0), numberReply(16383)}),
                               textReply("nodes"),
                               listReply({listReply({textReply("port"),
                                                     numberReply(port),
                                                     textReply("ip"),
                                                     textReply("10.0.0.1"),
                                                     textReply("endpoint"),
                                                     textReply("10.0.0.1"),
                                                     textReply("role"),
                                                     textReply("master"),
                                                     textReply("health"),
                                                     textReply("online")})})})});
}

/// Whatever connections may tell.
class NoEvents final : public net::LinkEvents {
 public:
  void onUp(const std::shared_ptr<const net::ServerSession>& /*session*/) override {}
  void onDown(const Error& /*error*/) override {}
};

class MapSourceTest : public testing::Test, private MapEvents {
 protected:
  MapSourceTest() {
    first_->connect(links_);
    second_->connect(links_);
  }
  ~MapSourceTest() override {
    source_.close();
    first_->drop();
    second_->drop();
  }

  void want() {
    env_->advance(1s);
    source_.want();
    env_->runPosted();
  }
  /// A node's answers to the three questions.
  static void answer(PendingCommands& node, const std::string& info, std::uint16_t port) {
    ASSERT_EQ(node.underWay(), 3U);
    node.answer(textReply(info));
    node.answer(shards(port));
    node.answer(listReply({}));
  }

  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  NoEvents links_;
  const std::shared_ptr<PendingCommands> first_ = std::make_shared<PendingCommands>(*env_);
  const std::shared_ptr<PendingCommands> second_ = std::make_shared<PendingCommands>(*env_);
  std::vector<std::uint16_t> read_;  // the port of the master in each map
  std::vector<std::string> failures_;
  bool nodes_ = true;
  // Its own connections, to the configured address, and who hears of the last.
  std::vector<std::shared_ptr<PendingCommands>> seeds_;
  net::LinkEvents* seedEvents_ = nullptr;
  MapSource source_{
      env_,
      net::Transports{[this](net::LinkEvents& events) {
                        seedEvents_ = &events;
                        return seeds_.emplace_back(std::make_shared<PendingCommands>(*env_));
                      },
                      {}},
      Options::fromUri("redis://host"),
      *this};

 private:
  [[nodiscard]] std::vector<MapWitness> witnesses() const override {
    if (!nodes_) {
      return {};
    }
    return {{Endpoint{"10.0.0.1", 1, {}}, first_.get()},
            {Endpoint{"10.0.0.2", 2, {}}, second_.get()}};
  }
  [[nodiscard]] bool unsettled() const override { return false; }
  bool mapRead(SlotMap map, bool /*sharded*/) override {
    read_.push_back(map.owner(0)->port);
    return true;
  }
  void mapFailed(const Error& error) override { failures_.emplace_back(error.what()); }
};

// It goes on telling how the cluster was when it was cut off.
TEST_F(MapSourceTest, ANodeWithoutTheMajorityIsNotBelievedWhatIsOlder) {
  want();
  answer(*first_, "cluster_state:ok\r\ncluster_current_epoch:5\r\n", 7000);
  EXPECT_EQ(read_, std::vector<std::uint16_t>{7000});
  want();
  answer(*second_, "cluster_state:fail\r\ncluster_current_epoch:4\r\n", 7001);
  EXPECT_EQ(read_.size(), 1U);
  want();
  answer(*first_, "cluster_state:fail\r\ncluster_current_epoch:6\r\n", 7002);
  EXPECT_EQ(read_.back(), 7002) << "what is newer is, although the cluster does not work";
}

TEST_F(MapSourceTest, ANodeThatDoesNotAnswerIsNotWaitedFor) {
  want();
  ASSERT_EQ(first_->underWay(), 3U);
  EXPECT_EQ(second_->underWay(), 0U);
  env_->advance(1100ms);
  EXPECT_EQ(failures_.size(), 1U);
  env_->advance(1s);
  answer(*second_, "cluster_state:ok\r\ncluster_current_epoch:5\r\n", 7000);
  EXPECT_EQ(read_, std::vector<std::uint16_t>{7000});
  // Its answers come after all, and are those to another question.
  answer(*first_, "cluster_state:ok\r\ncluster_current_epoch:5\r\n", 7009);
  EXPECT_EQ(read_.size(), 1U);
}

// Redis 7.4, after a failover, until the dead master is back.
TEST_F(MapSourceTest, SlotsThatTheShardsLeaveOutAreAskedForInTheOtherWay) {
  want();
  ASSERT_EQ(first_->underWay(), 3U);
  first_->answer(textReply("cluster_state:ok\r\ncluster_current_epoch:5\r\n"));
  Reply without = shards(7000);
  without.elements[0].elements[1].elements.clear();
  first_->answer(std::move(without));
  first_->answer(listReply({}));
  EXPECT_TRUE(read_.empty());
  ASSERT_EQ(first_->underWay(), 1U);
  first_->answer(listReply({listReply({numberReply(0),
                                       numberReply(16383),
                                       listReply({textReply("10.0.0.1"), numberReply(7001)})})}));
  EXPECT_EQ(read_, std::vector<std::uint16_t>{7001});
}

// Half a question went out, and nothing but its end would have it asked again.
TEST_F(MapSourceTest, AQuestionThatThereIsNoMemoryForIsAskedAgain) {
  first_->failAt(2);
  EXPECT_THROW(want(), std::bad_alloc);
  EXPECT_EQ(first_->underWay(), 1U);
  env_->advance(2s);
  answer(*second_, "cluster_state:ok\r\ncluster_current_epoch:5\r\n", 7000);
  EXPECT_EQ(read_, std::vector<std::uint16_t>{7000});
}

TEST_F(MapSourceTest, AQuestionOverItsOwnConnectionIsAskedAgainToo) {
  nodes_ = false;
  want();
  ASSERT_EQ(seeds_.size(), 1U);
  seeds_[0]->failAt(2);
  EXPECT_THROW(seeds_[0]->connect(*seedEvents_), std::bad_alloc);
  env_->advance(2s);
  ASSERT_EQ(seeds_[0]->underWay(), 4U);
  seeds_[0]->answer(textReply("cluster_state:ok\r\ncluster_current_epoch:4\r\n"));
  answer(*seeds_[0], "cluster_state:ok\r\ncluster_current_epoch:5\r\n", 7000);
  EXPECT_EQ(read_, std::vector<std::uint16_t>{7000});
}

// It was kept for want of memory, and never has a connection again.
TEST_F(MapSourceTest, AConnectionOfItsOwnThatWasClosedIsReplaced) {
  nodes_ = false;
  want();
  ASSERT_EQ(seeds_.size(), 1U);
  seeds_[0]->connect(*seedEvents_);
  env_->setFull(true);
  answer(*seeds_[0], "cluster_state:ok\r\ncluster_current_epoch:5\r\n", 7000);
  env_->setFull(false);
  ASSERT_EQ(read_.size(), 1U);
  want();
  ASSERT_EQ(seeds_.size(), 2U);
  seeds_[1]->connect(*seedEvents_);
  answer(*seeds_[1], "cluster_state:ok\r\ncluster_current_epoch:6\r\n", 7001);
  EXPECT_EQ(read_.back(), 7001);
}

}  // namespace
}  // namespace map_source_test
}  // namespace rlock::detail
