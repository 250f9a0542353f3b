// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace rlock::test {

/// Takes the place of the system's resolver for names that end in ".hangs.test": they are not
/// answered before release(), and then stand for 127.0.0.1. Names that end in ".two.test" stand for
/// 127.0.0.2 and 127.0.0.1, in this order, and those that end in ".moves.test" for what moveNames()
/// has said last, with such an object or without. Other names are resolved as ever. One at a time.
class HangingNames {
 public:
  HangingNames() noexcept;
  HangingNames(const HangingNames&) = delete;
  HangingNames& operator=(const HangingNames&) = delete;
  /// Releases.
  ~HangingNames();

  void release() noexcept;
  /// How many lookups of such names have begun since this object was made.
  [[nodiscard]] static int begun() noexcept;
  /// How many have not ended.
  [[nodiscard]] static int running() noexcept;
};

/// From now on names that end in ".moves.test" stand for 127.0.0.`host`. 1 at first.
void moveNames(int host) noexcept;

}  // namespace rlock::test
