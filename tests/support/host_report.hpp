// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rlock::test {

/// The test that runs checks safety: its failure is final, whatever the host did.
void noteSafetyCheck() noexcept;

}  // namespace rlock::test
