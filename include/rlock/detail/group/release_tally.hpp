// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace rlock::detail {

/// The outcome of the release of a lock that consists of several.
struct ReleaseTally {
  enum class Result : std::uint8_t { pending, released, notOwner, failed };

  std::size_t members = 0;   ///< members on which a hold is released
  std::size_t released = 0;  ///< members that have confirmed the release
  std::size_t notOwner = 0;  ///< members on which nothing was held any more
  std::size_t failed = 0;    ///< members that could not be asked
  bool valid = false;        ///< the whole was held when the release began
  std::size_t spare = 0;     ///< members that need not have answered

  [[nodiscard]] bool complete() const noexcept {
    return released + notOwner + failed + spare >= members;
  }

  /// For a lock that is held when all members are.
  [[nodiscard]] Result ofAll() const noexcept;

  /// For a lock that is held when `majority` members are. A re-entry may have been granted by other
  /// members than the acquisitions before it; then fewer members are released, and all of them
  /// count.
  [[nodiscard]] Result ofMajority(std::size_t majority) const noexcept;
};

inline ReleaseTally::Result ReleaseTally::ofAll() const noexcept {
  if (!complete()) {
    return Result::pending;
  }
  if (!valid || notOwner > 0) {
    return Result::notOwner;
  }
  return failed > 0 ? Result::failed : Result::released;
}

inline ReleaseTally::Result ReleaseTally::ofMajority(std::size_t majority) const noexcept {
  const std::size_t need = std::min(majority, members);
  if (valid && released >= need) {
    return Result::released;
  }
  if (!complete()) {
    return Result::pending;
  }
  return valid && released + failed >= need ? Result::failed : Result::notOwner;
}

}  // namespace rlock::detail
