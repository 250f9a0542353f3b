// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fault/faults.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace rlock::test {

/// Runs the test with each allocation failing in turn, until there are no more.
/// @param once  does all with a new object, and lets the k-th allocation fail on the way. Returns
///              whether there were as many
inline void eachAllocation(const std::function<bool(long k)>& once) {
  bool failed = true;
  for (long k = 1; failed; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    ASSERT_LT(k, 500);
    failed = once(k);
    if (::testing::Test::HasFailure()) {
      FailedAllocation::print();
      return;
    }
  }
}

/// Whether the k-th allocation of this thread happened, and failed, in `act`.
inline bool failing(long k, const std::function<void()>& act) {
  const FailedAllocation failure(k, FailedAllocation::Of::thisThread);
  act();
  return FailedAllocation::happened();
}

}  // namespace rlock::test
