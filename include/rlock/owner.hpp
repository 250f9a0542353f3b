// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>

#include <compare>
#include <cstdint>
#include <string>

namespace rlock {

/// The holder of a lock inside one client: a number that, together with the client's id, makes the
/// owner field on the server. It is not the operating system's thread id, which gets reused.
///
/// **Thread safety:** Immutable, safe from any thread.
struct OwnerId {
  std::uint64_t value = 0;  ///< unique in this process; 0: no owner; even: a thread's owner

  /// Orders owners by their numbers.
  friend constexpr auto operator<=>(OwnerId, OwnerId) noexcept = default;
};

/// The owner that stands for the calling thread: the same for the thread's whole life, never given
/// to another thread of this process. Does not block, cannot fail.
RLOCK_EXPORT OwnerId currentOwner() noexcept;

/// An owner that nobody has: for coroutines, tasks and handles that move between threads.
RLOCK_EXPORT OwnerId newOwner() noexcept;

}  // namespace rlock
