// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>

#include <string_view>

// The one place where the version is written: CMakeLists.txt reads these three lines.
#define RLOCK_VERSION_MAJOR 0
#define RLOCK_VERSION_MINOR 1
#define RLOCK_VERSION_PATCH 0

#define RLOCK_VERSION_TO_STRING(x) #x
#define RLOCK_VERSION_JOIN(major, minor, patch) \
  RLOCK_VERSION_TO_STRING(major)                \
  "." RLOCK_VERSION_TO_STRING(minor) "." RLOCK_VERSION_TO_STRING(patch)

/// The version of the headers as a string literal, `"0.1.0"`.
#define RLOCK_VERSION_STRING \
  RLOCK_VERSION_JOIN(RLOCK_VERSION_MAJOR, RLOCK_VERSION_MINOR, RLOCK_VERSION_PATCH)

namespace rlock {

/// The version of the library this program runs with, such as `"0.1.0"`. With a shared library it
/// may differ from the version that the program was compiled with, `RLOCK_VERSION_STRING`.
///
/// @par Blocking       no
/// @par Thread safety  safe to call from any thread
RLOCK_EXPORT std::string_view version() noexcept;

}  // namespace rlock
