// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interop/differential.hpp"

#include <vector>

namespace rlock::test::interop {

/// Everything that both sides do, kind by kind.
const std::vector<Script>& scripts();

}  // namespace rlock::test::interop
