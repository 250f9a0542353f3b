// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace rlock::test {

/// Whether the test that runs checks safety.
inline std::atomic<bool> checksSafety{false};

/// The test that runs checks safety: its failure is final, whatever the host did.
inline void noteSafetyCheck() noexcept {
  checksSafety = true;
}

}  // namespace rlock::test
