// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>

#include <cstdint>

namespace rlock::detail {

/// How many fork() calls lie between the first process and this one: an object that remembers
/// another number belongs to a parent. Costs one relaxed load.
RLOCK_EXPORT std::uint32_t forkGeneration() noexcept;

}  // namespace rlock::detail
