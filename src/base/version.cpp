// SPDX-License-Identifier: Apache-2.0
#include <rlock/version.hpp>

namespace rlock {

std::string_view version() noexcept {
  return RLOCK_VERSION_STRING;
}

}  // namespace rlock
