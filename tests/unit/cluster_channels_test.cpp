// SPDX-License-Identifier: Apache-2.0

// Where the channels of a client of a cluster are, also after a want of memory.

#include <rlock/detail/executor/cluster_channels.hpp>
#include <rlock/detail/net/hash_slot.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace cluster_channels_test {
namespace {

const std::string kName = "channel";

Endpoint address(std::uint16_t port) {
  Endpoint result;
  result.host = "host";
  result.port = port;
  return result;
}

/// The slot of the channel has this master (0: nobody), and slot 0 the other one.
SlotMap map(std::uint16_t owner, std::uint16_t other) {
  SlotMap result;
  result.assign(std::size_t{0}, address(other));
  if (owner != 0) {
    result.assign(net::hashSlot(kName), address(owner));
  }
  return result;
}

/// The channels that the connection to one node was asked for, and how often it has no memory for
/// one.
struct Node {
  std::set<std::string> wanted{};
  net::PubSubEvents* events = nullptr;  // null: there is no connection
  int noMemory = 0;
  bool late = false;  // the memory ends after the channel was noted
};

class ClusterChannelsTest : public testing::Test, private DispatcherEvents {
 protected:
  [[nodiscard]] bool subscribe(Router::Reach reach = Router::Reach::slot) {
    return did([&] { channels_.subscribe(kName, reach); });
  }
  /// At node 1, where there is no memory twice.
  void subscribeInVain(bool late) {
    ASSERT_TRUE(follow(1, 9));
    nodes_[1].late = late;
    nodes_[1].noMemory = 2;
    EXPECT_FALSE(subscribe());
    EXPECT_FALSE(subscribe());
  }
  [[nodiscard]] bool unsubscribe() {
    return did([this] { channels_.unsubscribe(kName); });
  }
  [[nodiscard]] bool follow(std::uint16_t owner, std::uint16_t other) {
    return did([&] { channels_.follow(map(owner, other), true); });
  }

  std::map<std::uint16_t, Node> nodes_;
  std::vector<std::string> lost_;
  int outOfDate_ = 0;

 private:
  class Connection final : public net::SubscriptionTransport {
   public:
    Connection(Node& node, net::PubSubEvents& events) : node_(node) { node_.events = &events; }
    ~Connection() override {
      node_.wanted.clear();
      node_.events = nullptr;
    }

    void subscribe(std::string channel) override {
      takeMemory(!node_.late);
      node_.wanted.insert(std::move(channel));
      takeMemory(node_.late);
    }
    void unsubscribe(const std::string& channel) override {
      // As the real one: only what was wanted takes memory to leave.
      takeMemory(!node_.late && node_.wanted.contains(channel));
      node_.wanted.erase(channel);
    }
    void close() noexcept override { node_.wanted.clear(); }

   private:
    void takeMemory(bool now) {
      if (now && node_.noMemory > 0) {
        --node_.noMemory;
        throw std::bad_alloc();
      }
    }

    Node& node_;
  };

  void reconnected(bool /*replaced*/) override {}
  void channelConfirmed(const std::string& /*channel*/) override {}
  void channelRefused(const std::string& /*channel*/, const Error& /*error*/) override {}
  void channelMessage(const std::string& /*channel*/, std::string_view /*payload*/) override {}
  void channelsLost() override {}
  void channelLost(const std::string& channel) override { lost_.push_back(channel); }

  template <class F>
  static bool did(F act) {
    try {
      act();
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  static net::Transports transports(std::map<std::uint16_t, Node>& nodes) {
    net::Transports result;
    result.subscriptionsTo =
        [&nodes](const Endpoint& at, net::ChannelKind /*kind*/, net::PubSubEvents& events) {
          return std::make_unique<Connection>(nodes[at.port], events);
        };
    return result;
  }

  ClusterChannels channels_{
      transports(nodes_),
      std::make_shared<const Logger>([](LogLevel, std::string_view) {}, LogLevel::error),
      *this,
      [this] { ++outOfDate_; }};
};

TEST_F(ClusterChannelsTest, AChannelWaitsWhileItsSlotHasNobody) {
  ASSERT_TRUE(follow(1, 9));
  ASSERT_TRUE(subscribe());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(follow(0, 1));
    EXPECT_TRUE(nodes_[1].wanted.empty());
  }
  EXPECT_EQ(lost_, std::vector<std::string>{kName});
  ASSERT_TRUE(follow(2, 1));
  EXPECT_TRUE(nodes_[2].wanted.contains(kName));
}

TEST_F(ClusterChannelsTest, AChannelThatCouldNotBeSubscribedIsSubscribedWhereItsSlotGoes) {
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late ? "after it was noted" : "before it was noted");
    ASSERT_NO_FATAL_FAILURE(subscribeInVain(late));
    ASSERT_TRUE(follow(2, 1));
    EXPECT_TRUE(nodes_[1].wanted.empty());
    EXPECT_TRUE(nodes_[2].wanted.contains(kName));
    // The fate of the first node is nothing to the channel.
    lost_.clear();
    nodes_[1].events->onDown(Error(Errc::connectionFailed));
    EXPECT_TRUE(lost_.empty());
    ASSERT_TRUE(follow(2, 9));
    EXPECT_EQ(nodes_[1].events, nullptr) << "a connection that nothing needs";
    ASSERT_TRUE(unsubscribe());
  }
}

TEST_F(ClusterChannelsTest, AChannelThatCouldNotBeSubscribedIsSubscribedWithTheNextMap) {
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late ? "after it was noted" : "before it was noted");
    ASSERT_NO_FATAL_FAILURE(subscribeInVain(late));
    nodes_[1].wanted.clear();
    ASSERT_TRUE(follow(1, 9));
    EXPECT_TRUE(nodes_[1].wanted.contains(kName));
    ASSERT_TRUE(unsubscribe());
    EXPECT_TRUE(nodes_[1].wanted.empty());
  }
}

TEST_F(ClusterChannelsTest, AChannelThatCouldNotBeSubscribedCanBeGivenUp) {
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late ? "after it was noted" : "before it was noted");
    ASSERT_NO_FATAL_FAILURE(subscribeInVain(late));
    ASSERT_TRUE(unsubscribe());
    EXPECT_TRUE(nodes_[1].wanted.empty());
    ASSERT_TRUE(follow(2, 9));
    EXPECT_EQ(nodes_[1].events, nullptr) << "a connection that nothing needs";
    EXPECT_TRUE(nodes_[2].wanted.empty());
  }
}

/// The slot comes back before the channel could leave: it has stayed there, and its loss is told.
TEST_F(ClusterChannelsTest, AChannelThatCouldNotLeave) {
  ASSERT_TRUE(follow(1, 9));
  ASSERT_TRUE(subscribe());
  nodes_[1].noMemory = 2;
  EXPECT_FALSE(follow(2, 1));
  EXPECT_FALSE(follow(2, 1));
  ASSERT_TRUE(follow(1, 9));
  EXPECT_TRUE(nodes_[1].wanted.contains(kName));
  lost_.clear();
  nodes_[1].events->onDown(Error(Errc::connectionFailed));
  EXPECT_EQ(lost_, std::vector<std::string>{kName});
  ASSERT_TRUE(unsubscribe());
  EXPECT_TRUE(nodes_[1].wanted.empty());
}

// Nothing else would say so to a client that only listens there.
TEST_F(ClusterChannelsTest, AChannelThatItsNodeHasNoMoreIsAReasonToReadTheMap) {
  ASSERT_TRUE(follow(1, 9));
  ASSERT_TRUE(subscribe());
  nodes_[1].events->onMoved(kName);
  EXPECT_EQ(lost_, std::vector<std::string>{kName});
  EXPECT_EQ(outOfDate_, 1);
  nodes_[1].events->onDown(Error(Errc::connectionFailed));
  EXPECT_EQ(outOfDate_, 2);
}

TEST_F(ClusterChannelsTest, AChannelOfAllNodesLeavesOneThatIsGone) {
  ASSERT_TRUE(follow(1, 9));
  ASSERT_TRUE(subscribe(Router::Reach::everywhere));
  ASSERT_TRUE(follow(2, 1));
  EXPECT_TRUE(nodes_[1].wanted.contains(kName)) << "it has other slots";
  ASSERT_TRUE(follow(2, 9));
  EXPECT_TRUE(nodes_[1].wanted.empty());
  EXPECT_TRUE(nodes_[2].wanted.contains(kName) || nodes_[9].wanted.contains(kName));
  EXPECT_EQ(lost_, std::vector<std::string>{kName});
}

}  // namespace
}  // namespace cluster_channels_test
}  // namespace rlock::detail
