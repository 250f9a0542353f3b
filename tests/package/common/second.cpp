// SPDX-License-Identifier: Apache-2.0
// A second translation unit: a function that a header defines without `inline` fails to link.
#include <rlock/rlock.hpp>

#include <string_view>

std::string_view versionSeenElsewhere() {
  return rlock::version();
}
