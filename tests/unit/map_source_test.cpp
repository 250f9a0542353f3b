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
Reply shards(std::uint16_t port, const std::string& host = "10.0.0.1") {
  return listReply({listReply({textReply("slots"),
                               listReply({numberReply(0), numberReply(16383)}),
                               textReply("nodes"),
                               listReply({listReply({textReply("port"),
                                                     numberReply(port),
                                                     textReply("ip"),
                                                     textReply(host),
                                                     textReply("endpoint"),
                                                     textReply(host),
                                                     textReply("role"),
                                                     textReply("master"),
                                                     textReply("health"),
                                                     textReply("online")})})})});
}

/// Ignores all that connections may tell.
class NoEvents final : public net::LinkEvents {
 public:
  void onUp(const std::shared_ptr<const net::ServerSession>& /*session*/) override {}
  void onDown(const Error& /*error*/) override {}
};

class MapSourceTest : public testing::Test, private MapEvents {
 protected:
  explicit MapSourceTest(const std::string& uri = "redis+cluster://one:7000,two:7000,three:7000")
      : options_(Options::fromUri(uri)) {
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
  /// The next question goes to an address that has had no connection.
  [[nodiscard]] PendingCommands& connectStranger(const std::string& address) {
    env_->advance(900ms);
    EXPECT_EQ(strangers_.empty() ? "" : strangers_.back(), address);
    seeds_.back()->connect(*seedEvents_);
    env_->runPosted();
    return *seeds_.back();
  }
  /// A node that has lost its slots answers.
  static void answerWithoutSlots(PendingCommands& node) {
    ASSERT_EQ(node.underWay(), 3U);
    node.answer(textReply("cluster_state:ok\r\ncluster_current_epoch:1\r\n"));
    Reply without = shards(7000);
    without.elements[0].elements[1].elements.clear();
    node.answer(std::move(without));
    node.answer(listReply({}));
    node.answer(listReply({}));
  }
  /// A node's answers to the three questions.
  static void answer(PendingCommands& node, const std::string& info, std::uint16_t port) {
    ASSERT_EQ(node.underWay(), 3U);
    node.answer(textReply(info));
    node.answer(shards(port));
    node.answer(listReply({}));
  }

  const Options options_;
  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  NoEvents links_;
  const std::shared_ptr<PendingCommands> first_ = std::make_shared<PendingCommands>(*env_);
  const std::shared_ptr<PendingCommands> second_ = std::make_shared<PendingCommands>(*env_);
  std::vector<std::uint16_t> read_;  // the port of the master in each map
  std::vector<std::string> hosts_;   // and its address
  std::vector<std::string> failures_;
  std::vector<bool> everywhere_;  // of each failure
  std::size_t nodes_ = 2;
  std::vector<Endpoint> unneeded_;
  bool unsettled_ = false;
  // Its own connections, those of them to one address, and who hears of the last.
  std::vector<std::shared_ptr<PendingCommands>> seeds_;
  std::vector<std::string> strangers_;
  net::LinkEvents* seedEvents_ = nullptr;
  MapSource source_{
      env_,
      net::Transports{[this](net::LinkEvents& events) {
                        seedEvents_ = &events;
                        return seeds_.emplace_back(std::make_shared<PendingCommands>(*env_));
                      },
                      {},
                      [this](const Endpoint& address, net::LinkEvents& events) {
                        seedEvents_ = &events;
                        strangers_.push_back(toString(address));
                        return seeds_.emplace_back(std::make_shared<PendingCommands>(*env_));
                      },
                      {}},
      options_,
      *this};

 private:
  [[nodiscard]] std::vector<MapWitness> witnesses() const override {
    std::vector<MapWitness> all{{Endpoint{"10.0.0.1", 1, {}}, first_.get()},
                                {Endpoint{"10.0.0.2", 2, {}}, second_.get()}};
    all.resize(nodes_, MapWitness{{}, nullptr});
    return all;
  }
  [[nodiscard]] std::vector<Endpoint> unneeded() const override { return unneeded_; }
  [[nodiscard]] bool unsettled() const override { return unsettled_; }
  bool mapRead(SlotMap map, bool /*sharded*/) override {
    read_.push_back(map.owner(0)->port);
    hosts_.push_back(map.owner(0)->host);
    return true;
  }
  void mapFailed(const Error& error, bool everywhere) override {
    failures_.emplace_back(error.what());
    everywhere_.push_back(everywhere);
  }
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

TEST_F(MapSourceTest, ANodeWithoutTheMajorityIsNotBelievedTheSecondTimeEither) {
  want();
  answer(*first_, "cluster_state:ok\r\ncluster_current_epoch:5\r\n", 7000);
  want();
  answer(*second_, "cluster_state:fail\r\ncluster_current_epoch:4\r\n", 7001);
  want();
  answer(*first_, "cluster_state:fail\r\ncluster_current_epoch:4\r\n", 7001);
  EXPECT_EQ(read_, std::vector<std::uint16_t>{7000});
}

// A cluster of one node that has met no other does not know its own address.
TEST_F(MapSourceTest, AMasterThatNamesNoAddressIsWhereItWasAsked) {
  for (const auto& [asked, host] :
       {std::pair("10.0.0.7:7000", "10.0.0.7"), std::pair("[::1]:7000", "::1")}) {
    nodes_ = 0;
    want();
    seeds_.back()->address = asked;
    seeds_.back()->connect(*seedEvents_);
    env_->runPosted();
    PendingCommands& seed = *seeds_.back();
    seed.answer(textReply("cluster_state:ok\r\ncluster_current_epoch:1\r\n"));
    seed.answer(shards(7000, ""));
    seed.answer(listReply({}));
    ASSERT_FALSE(hosts_.empty());
    EXPECT_EQ(hosts_.back(), host);
  }
}

class PatientMapSourceTest : public MapSourceTest {
 protected:
  PatientMapSourceTest()
      : MapSourceTest("redis+cluster://one:7000,two:7000,three:7000?connect-timeout=30s") {}
};

TEST_F(PatientMapSourceTest, AStrangerIsWaitedForAsLongAsConnectingMayTake) {
  nodes_ = 1;
  want();
  answerWithoutSlots(*first_);
  env_->advance(900ms);
  ASSERT_EQ(strangers_.size(), 1U);
  env_->advance(9s);
  EXPECT_EQ(failures_.size(), 1U);
  env_->advance(1100ms);
  EXPECT_EQ(failures_.size(), 2U);
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

// They are about the cluster as it was, and by another node's account.
TEST_F(MapSourceTest, LateAnswersAreNotThoseToTheQuestionUnderWay) {
  want();
  ASSERT_EQ(first_->underWay(), 3U);
  env_->advance(1100ms);
  ASSERT_EQ(failures_.size(), 1U);
  env_->advance(1s);
  ASSERT_EQ(second_->underWay(), 3U);
  answer(*first_, "cluster_state:ok\r\ncluster_current_epoch:5\r\n", 7009);
  EXPECT_EQ(read_, std::vector<std::uint16_t>{});
  answer(*second_, "cluster_state:ok\r\ncluster_current_epoch:6\r\n", 7000);
  EXPECT_EQ(read_, std::vector<std::uint16_t>{7000});
}

// A master that does not answer at all may never say that it has no connection.
TEST_F(MapSourceTest, WhileANodeCannotBeReachedTheMapIsLookedAtAgain) {
  unsettled_ = true;
  want();
  answer(*first_, "cluster_state:ok\r\ncluster_current_epoch:5\r\n", 7000);
  env_->advance(900ms);
  ASSERT_EQ(second_->underWay(), 3U);
  unsettled_ = false;
  answer(*second_, "cluster_state:ok\r\ncluster_current_epoch:6\r\n", 7001);
  env_->advance(10s);
  EXPECT_EQ(first_->underWay() + second_->underWay(), 0U);
}

// It is the only one that a call has needed, and the others elect another.
TEST_F(MapSourceTest, ANodeThatIsCutOffIsNotTheOnlyOneThatIsAsked) {
  nodes_ = 1;
  want();
  answer(*first_, "cluster_state:ok\r\ncluster_current_epoch:5\r\n", 7000);
  want();
  answer(*first_, "cluster_state:fail\r\ncluster_current_epoch:5\r\n", 7000);
  EXPECT_TRUE(strangers_.empty());
  want();
  PendingCommands& stranger = connectStranger("two:7000");
  EXPECT_EQ(seeds_.size(), 1U);
  answer(stranger, "cluster_state:ok\r\ncluster_current_epoch:6\r\n", 7001);
  EXPECT_EQ(read_.back(), 7001);
  want();
  EXPECT_EQ(first_->underWay(), 3U) << "there is no doubt any more";
  EXPECT_EQ(seeds_.size(), 1U);
}

TEST_F(MapSourceTest, ANodeThatHasLostItsSlotsTakesTurnsWithTheOthers) {
  nodes_ = 1;
  want();
  answerWithoutSlots(*first_);
  PendingCommands& stranger = connectStranger("two:7000");
  answerWithoutSlots(stranger);
  env_->advance(900ms);
  answerWithoutSlots(*first_);
  EXPECT_EQ(strangers_.size(), 1U);
  PendingCommands& next = connectStranger("three:7000");
  answer(next, "cluster_state:ok\r\ncluster_current_epoch:6\r\n", 7001);
  EXPECT_EQ(read_, std::vector<std::uint16_t>{7001});
}

TEST_F(MapSourceTest, EachAddressHasATurnWhereTheFirstIsOfNoUse) {
  nodes_ = 0;
  unneeded_ = {Endpoint{"10.0.0.3", 3, {}}, Endpoint{"two", 7000, {}}};
  want();
  ASSERT_EQ(seeds_.size(), 1U);
  EXPECT_TRUE(strangers_.empty()) << "it is to any of them";
  seeds_[0]->connect(*seedEvents_);
  answerWithoutSlots(*seeds_[0]);
  for (const char* const address : {"two:7000", "three:7000", "10.0.0.3:3", "one:7000"}) {
    answerWithoutSlots(connectStranger(address));
  }
  EXPECT_EQ(everywhere_, (std::vector<bool>{false, false, false, true, true}));
  EXPECT_FALSE(seeds_[0]->up()) << "a connection that is of no use is not kept";
}

// As many attempts as ever, and each is to all addresses.
TEST_F(MapSourceTest, AddressesThatCannotBeReachedAreNotTriedOneByOne) {
  nodes_ = 0;
  want();
  seedEvents_->onDown(Error(Errc::authenticationFailed, "wrong password"));
  EXPECT_EQ(everywhere_, std::vector<bool>{true});
  env_->advance(2s);
  EXPECT_EQ(seeds_.size(), 1U);
  EXPECT_TRUE(strangers_.empty());
}

// The only configured address is that of the only master in use, which is dead.
TEST_F(MapSourceTest, MastersThatNoCallHasNeededAreAskedWhereNoAddressCanBeReached) {
  nodes_ = 0;
  unneeded_ = {Endpoint{"10.0.0.3", 3, {}}};
  want();
  for (const char* const address : {"two:7000", "three:7000", "10.0.0.3:3"}) {
    seedEvents_->onDown(Error(Errc::connectionFailed, "connection refused"));
    env_->advance(900ms);
    ASSERT_FALSE(strangers_.empty());
    EXPECT_EQ(strangers_.back(), address);
  }
  answer(connectStranger("10.0.0.3:3"), "cluster_state:ok\r\ncluster_current_epoch:6\r\n", 7001);
  EXPECT_EQ(read_, std::vector<std::uint16_t>{7001});
}

TEST_F(MapSourceTest, AStrangerThatCannotBeReachedIsNotWaitedFor) {
  nodes_ = 1;
  want();
  answerWithoutSlots(*first_);
  env_->advance(900ms);
  ASSERT_EQ(strangers_.size(), 1U);
  EXPECT_EQ(first_->underWay(), 0U);
  // Its packets are dropped.
  env_->advance(1s);
  EXPECT_EQ(failures_.size(), 2U);
  env_->advance(900ms);
  answer(*first_, "cluster_state:ok\r\ncluster_current_epoch:6\r\n", 7001);
  EXPECT_EQ(read_, std::vector<std::uint16_t>{7001});
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
  nodes_ = 0;
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
  nodes_ = 0;
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
