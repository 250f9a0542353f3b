// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/executor/map_change.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace map_change_test {
namespace {

Endpoint at(std::uint16_t port) {
  Endpoint endpoint;
  endpoint.host = "host";
  endpoint.port = port;
  return endpoint;
}

/// Slots 0 to 99 and 100 to 199 are the two masters'.
SlotMap mapOf(std::uint16_t first, std::uint16_t second) {
  SlotMap map;
  map.assign(0, 99, at(first));
  map.assign(100, 199, at(second));
  return map;
}

bool noneDown(const Endpoint& /*at*/) {
  return false;
}

using Endpoints = std::vector<Endpoint>;

TEST(MapChange, NothingInTheSameMap) {
  const MapChange change = changeOf(mapOf(1, 2), mapOf(1, 2), noneDown);
  EXPECT_FALSE(change.any);
  EXPECT_EQ(change.successors, Endpoints{});
}

TEST(MapChange, TheFirstMapHasNoSuccessors) {
  const MapChange change = changeOf(SlotMap(), mapOf(1, 2), noneDown);
  EXPECT_TRUE(change.any);
  EXPECT_EQ(change.successors, Endpoints{});
}

TEST(MapChange, ASlotThatMovesBetweenLivingMastersTakesItsKeysAlong) {
  SlotMap after = mapOf(1, 2);
  after.assign(5, at(2));
  const MapChange change = changeOf(mapOf(1, 2), after, noneDown);
  EXPECT_TRUE(change.any);
  EXPECT_EQ(change.successors, Endpoints{});
}

TEST(MapChange, AMasterThatIsGoneHasASuccessorOnce) {
  const MapChange change = changeOf(mapOf(1, 2), mapOf(3, 2), noneDown);
  EXPECT_TRUE(change.any);
  EXPECT_EQ(change.successors, Endpoints{at(3)});
}

TEST(MapChange, AMasterThatCannotBeReachedHasASuccessorToo) {
  SlotMap after = mapOf(3, 2);
  after.add(at(1));
  const auto firstDown = [](const Endpoint& master) { return master == at(1); };
  EXPECT_EQ(changeOf(mapOf(1, 2), after, noneDown).successors, Endpoints{});
  EXPECT_EQ(changeOf(mapOf(1, 2), after, firstDown).successors, Endpoints{at(3)});
}

TEST(MapChange, ASlotThatNobodyHasForAWhileHasASuccessorThen) {
  SlotMap meanwhile;
  meanwhile.assign(100, 199, at(2));
  const MapChange change = changeOf(mapOf(1, 2), meanwhile, noneDown);
  EXPECT_TRUE(change.any);
  EXPECT_EQ(change.successors, Endpoints{});
  EXPECT_EQ(changeOf(meanwhile, mapOf(3, 2), noneDown).successors, Endpoints{at(3)});
}

}  // namespace
}  // namespace map_change_test
}  // namespace rlock::detail
