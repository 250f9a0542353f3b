// SPDX-License-Identifier: Apache-2.0
#include "unit/replies.hpp"
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/redirection.hpp>
#include <rlock/detail/executor/slot_map.hpp>
#include <rlock/detail/net/hash_slot.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace slot_map_test {
namespace {

using test::listReply;
using test::numberReply;
using test::textReply;

using namespace std::chrono_literals;

Endpoint at(std::string host, std::uint16_t port) {
  Endpoint endpoint;
  endpoint.host = std::move(host);
  endpoint.port = port;
  return endpoint;
}

Reply node(std::uint16_t port, const char* role, const char* health, Reply endpoint) {
  return listReply({textReply("id"),
                    textReply("x"),
                    textReply("port"),
                    numberReply(port),
                    textReply("tls-port"),
                    numberReply(port + 1000),
                    textReply("ip"),
                    textReply("10.0.0.9"),
                    textReply("endpoint"),
                    std::move(endpoint),
                    textReply("role"),
                    textReply(role),
                    textReply("health"),
                    textReply(health)});
}

Reply shard(Reply::Elements slots, Reply::Elements nodes) {
  return listReply({textReply("slots"),
                    listReply(std::move(slots)),
                    textReply("nodes"),
                    listReply(std::move(nodes))});
}

TEST(HashSlot, IsWhatTheServersCompute) {
  EXPECT_EQ(net::crc16("123456789"), 0x31C3);
  // CLUSTER KEYSLOT of a Redis 7.0.
  EXPECT_EQ(net::hashSlot("foo"), 12182);
  EXPECT_EQ(net::hashSlot("{foo}bar"), 12182);
  EXPECT_EQ(net::hashSlot("a{foo}b{bar}"), 12182);
  EXPECT_EQ(net::hashSlot(""), 0);
  EXPECT_EQ(net::hashSlot("}{foo}"), 12182);
  EXPECT_EQ(net::hashSlot("{}foo"), net::crc16("{}foo") % net::kSlots) << "an empty tag is none";
  EXPECT_EQ(net::hashSlot("{foo"), net::crc16("{foo") % net::kSlots) << "nor an open one";
}

TEST(HashSlot, W60_NamesWhoseDerivedKeysFallIntoAnotherSlot) {
  for (const char* name : {"a", "{tag}x", "a{t}b", "orders:17"}) {
    EXPECT_EQ(net::hashSlot(lockChannel(name)), net::hashSlot(name)) << name;
  }
  for (const char* name : {"a{b", "{}x", "a{}b", "a}b"}) {
    EXPECT_NE(net::hashSlot(lockChannel(name)), net::hashSlot(name)) << name;
  }
  EXPECT_NE(net::hashSlot(latchChannel("{tag}x")), net::hashSlot("{tag}x"));
}

TEST(SlotMap, KnowsTheOwnerOfEachSlot) {
  SlotMap map;
  EXPECT_EQ(map.owner(0), nullptr);
  EXPECT_EQ(map.covered(), 0U);
  map.assign(0, 5460, at("a", 1));
  map.assign(5461, 20000, at("b", 2));
  EXPECT_EQ(*map.owner(5460), at("a", 1));
  EXPECT_EQ(*map.owner(16383), at("b", 2)) << "a range that ends too late is cut";
  EXPECT_EQ(map.covered(), net::kSlots);
  map.assign(std::size_t{7}, at("b", 2));
  EXPECT_EQ(*map.owner(7), at("b", 2));
  EXPECT_EQ(map.masters().size(), 2U);
  EXPECT_EQ(map.parts(), (std::vector<std::uint16_t>{0, 7}));
}

TEST(SlotMap, IsReadFromShards) {
  const Endpoint asked = at("asked", 9);
  const Reply reply =
      listReply({shard({numberReply(0), numberReply(99), numberReply(200), numberReply(299)},
                       {node(7001, "replica", "online", textReply("10.0.0.1")),
                        node(7000, "master", "online", textReply("10.0.0.2"))}),
                 // A master that was replaced may still be named beside the new one.
                 shard({numberReply(100), numberReply(199)},
                       {node(7002, "master", "fail", textReply("10.0.0.3")),
                        node(7003, "master", "online", textReply("10.0.0.4"))}),
                 shard({}, {node(7004, "master", "online", textReply("10.0.0.5"))}),
                 shard({}, {node(7005, "master", "fail", textReply("10.0.0.6"))})});
  const auto map = parseShards(reply, asked, false);
  ASSERT_TRUE(map);
  EXPECT_EQ(*map->owner(0), at("10.0.0.2", 7000));
  EXPECT_EQ(*map->owner(299), at("10.0.0.2", 7000));
  EXPECT_EQ(*map->owner(150), at("10.0.0.4", 7003));
  EXPECT_EQ(map->owner(300), nullptr);
  EXPECT_TRUE(map->has(at("10.0.0.5", 7004))) << "slots may be on their way to it";
  EXPECT_FALSE(map->has(at("10.0.0.6", 7005)));
  EXPECT_EQ(parseShards(reply, asked, true)->owner(0)->port, 8000) << "the port for TLS";
}

TEST(SlotMap, AFailingMasterThatIsNamedLaterTakesNoSlotsBack) {
  const auto map =
      parseShards(listReply({shard({numberReply(0), numberReply(9)},
                                   {node(7003, "master", "online", textReply("10.0.0.4")),
                                    node(7002, "master", "fail", textReply("10.0.0.3"))})}),
                  at("asked", 9),
                  false);
  ASSERT_TRUE(map);
  EXPECT_EQ(*map->owner(3), at("10.0.0.4", 7003));
}

TEST(SlotMap, AFailingMasterKeepsItsSlotsUntilAnotherHasThem) {
  const auto map =
      parseShards(listReply({shard({numberReply(0), numberReply(9)},
                                   {node(7000, "master", "fail", textReply("10.0.0.2")),
                                    node(7001, "replica", "online", textReply("10.0.0.1"))})}),
                  at("asked", 9),
                  false);
  ASSERT_TRUE(map);
  EXPECT_EQ(*map->owner(3), at("10.0.0.2", 7000));
}

TEST(SlotMap, AnAddressThatIsNotToldIsTheOneThatWasAsked) {
  Reply nil;
  EXPECT_EQ(parseShards(listReply({shard({numberReply(0), numberReply(9)},
                                         {node(7000, "master", "online", std::move(nil))})}),
                        at("asked", 9),
                        false)
                ->owner(0)
                ->host,
            "asked");
  EXPECT_EQ(parseShards(listReply({shard({numberReply(0), numberReply(9)},
                                         {node(7000, "master", "online", textReply("?"))})}),
                        at("asked", 9),
                        false)
                ->owner(0)
                ->host,
            "10.0.0.9");
  EXPECT_EQ(
      *parseSlots(
           listReply({listReply(
               {numberReply(0), numberReply(9), listReply({textReply("?"), numberReply(7000)})})}),
           at("asked", 9))
           ->owner(0),
      at("asked", 7000));
}

// Its host name has not come to the node that was asked yet.
TEST(SlotMap, ANameThatIsNotKnownIsNotTheOneThatWasAsked) {
  const auto map = parseSlots(
      listReply({listReply({numberReply(0),
                            numberReply(9),
                            listReply({textReply("?"),
                                       numberReply(7000),
                                       textReply("id"),
                                       listReply({textReply("ip"), textReply("10.0.0.9")})})})}),
      at("asked", 9));
  ASSERT_TRUE(map);
  EXPECT_EQ(*map->owner(0), at("10.0.0.9", 7000));
}

TEST(SlotMap, IsReadFromSlots) {
  const auto map = parseSlots(
      listReply(
          {listReply({numberReply(0),
                      numberReply(5),
                      listReply({textReply("10.0.0.1"), numberReply(7000), textReply("id")}),
                      listReply({textReply("10.0.0.2"), numberReply(7001), textReply("id")})}),
           listReply({numberReply(6),
                      numberReply(9),
                      listReply({textReply(""), numberReply(7002), textReply("id")})})}),
      at("asked", 9));
  ASSERT_TRUE(map);
  EXPECT_EQ(*map->owner(5), at("10.0.0.1", 7000));
  EXPECT_EQ(*map->owner(6), at("asked", 7002));
  EXPECT_EQ(map->covered(), 10U);
}

TEST(SlotMap, WhatIsNoMapIsNone) {
  Reply error;
  error.type = Reply::Type::error;
  error.text = "ERR unknown subcommand";
  EXPECT_FALSE(parseShards(error, at("a", 1), false));
  EXPECT_FALSE(parseSlots(error, at("a", 1)));
  EXPECT_FALSE(
      parseShards(listReply({listReply({textReply("other"), numberReply(1)})}), at("a", 1), false));
  EXPECT_FALSE(parseSlots(listReply({listReply({numberReply(0)})}), at("a", 1)));
  EXPECT_EQ(parseShards(listReply({}), at("a", 1), false)->covered(), 0U);
}

TEST(SlotMap, TheStateOfTheClusterIsRead) {
  const ClusterState state = parseClusterInfo(
      "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_current_epoch:17\r\ncluster_my_epoch:"
      "2\r\n");
  EXPECT_TRUE(state.ok);
  EXPECT_EQ(state.epoch, 17U);
  EXPECT_FALSE(parseClusterInfo("cluster_state:fail\r\n").ok);
  EXPECT_EQ(parseClusterInfo("").epoch, 0U);
}

TEST(Redirection, IsRead) {
  const Endpoint asked = at("asked", 9);
  const auto moved = parseRedirection("MOVED 3999 127.0.0.1:6381", asked);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->kind, Redirection::Kind::moved);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->to, at("127.0.0.1", 6381));
  const auto ask = parseRedirection("ASK 16383 host.example:1", asked);
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->kind, Redirection::Kind::ask);
  EXPECT_EQ(ask->to, at("host.example", 1));
  EXPECT_EQ(parseRedirection("MOVED 1 ::1:7000", asked)->to, at("::1", 7000));
  EXPECT_EQ(parseRedirection("MOVED 1 [::1]:7000", asked)->to, at("::1", 7000));
  EXPECT_EQ(parseRedirection("MOVED 1 :7000", asked)->to, at("asked", 7000));
  EXPECT_EQ(parseRedirection("MOVED 1 ?:7000", asked)->to, at("", 7000));
  for (const char* bad : {"MOVED",
                          "MOVED 1",
                          "MOVED x 127.0.0.1:1",
                          "MOVED 16384 127.0.0.1:1",
                          "MOVED 1 127.0.0.1",
                          "MOVED 1 127.0.0.1:0",
                          "MOVED 1 127.0.0.1:70000",
                          "ERR MOVED 1 127.0.0.1:1"}) {
    EXPECT_FALSE(parseRedirection(bad, asked)) << bad;
  }
}

TEST(RefreshPace, AsksOnceHoweverManyWantIt) {
  RefreshPace pace;
  const RefreshPace::TimePoint start{std::chrono::hours(1)};
  EXPECT_EQ(pace.wanted(start), start) << "at once after a time of calm";
  pace.asked();
  EXPECT_EQ(pace.wanted(start), std::nullopt);
  EXPECT_EQ(pace.wanted(start), std::nullopt);
  EXPECT_TRUE(pace.asking());
  const auto again = pace.answered(start, false);
  ASSERT_TRUE(again) << "it was wanted meanwhile";
  EXPECT_GT(*again, start);
}

TEST(RefreshPace, AsksMoreRarelyWhileNothingChanges) {
  RefreshPace pace;
  RefreshPace::TimePoint now{std::chrono::hours(1)};
  std::chrono::nanoseconds last{};
  for (int i = 0; i < 10; ++i) {
    const auto when = pace.wanted(now);
    ASSERT_TRUE(when);
    EXPECT_GE(*when - now, last);
    last = *when - now;
    now = *when;
    pace.asked();
    EXPECT_EQ(pace.answered(now, false), std::nullopt);
  }
  EXPECT_GE(last, 500ms);
  EXPECT_LE(last, 1s);
  const auto when = pace.wanted(now);
  pace.asked();
  pace.answered(*when, true);
  EXPECT_LE(*pace.wanted(*when) - *when, 100ms) << "something has changed, and more may follow";
}

TEST(RefreshPace, IsPromptAgainAfterATimeOfCalm) {
  RefreshPace pace;
  RefreshPace::TimePoint now{std::chrono::hours(1)};
  for (int i = 0; i < 10; ++i) {
    const auto when = pace.wanted(now);
    ASSERT_TRUE(when);
    now = *when;
    pace.asked();
    pace.answered(now, false);
  }
  now += 10s;
  EXPECT_EQ(pace.wanted(now), now);
  pace.asked();
  pace.answered(now, false);
  const auto next = pace.wanted(now);
  ASSERT_TRUE(next);
  EXPECT_LE(*next - now, 200ms);
}

}  // namespace
}  // namespace slot_map_test
}  // namespace rlock::detail
