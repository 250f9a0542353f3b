// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/slot_map.hpp>
#include <rlock/detail/net/hash_slot.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rlock::detail {

/// The difference between two maps of one cluster, as far as it matters to holds.
///
/// A slot that moves between two living masters takes its keys along. A slot whose master is gone
/// from the map, or cannot be reached, was taken over: the new owner may lack the last writes, so
/// its holds must be verified. A slot that had no owner for a while had one that died, as far as
/// anybody can tell. ClusterRouter asks for each map that it reads.
struct MapChange {
  bool any = false;  ///< a slot has another owner than before
  /// The masters that have taken slots over, each once.
  std::vector<Endpoint> successors;
};

/// @param isDown  `bool(const Endpoint&)`: there is no connection to this master
template <class IsDown>
MapChange changeOf(const SlotMap& before, const SlotMap& after, IsDown isDown) {
  MapChange change;
  const bool first = before.covered() == 0;
  for (std::size_t slot = 0; slot < net::kSlots; ++slot) {
    const Endpoint* const was = before.owner(slot);
    const Endpoint* const is = after.owner(slot);
    if (was == nullptr || is == nullptr ? was == is : *was == *is) {
      continue;
    }
    change.any = true;
    const bool replaced = was == nullptr ? !first : !after.has(*was) || isDown(*was);
    if (replaced && is != nullptr &&
        std::find(change.successors.begin(), change.successors.end(), *is) ==
            change.successors.end()) {
      change.successors.push_back(*is);
    }
  }
  return change;
}

}  // namespace rlock::detail
