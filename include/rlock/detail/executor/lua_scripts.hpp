// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>

#include <span>
#include <string_view>

namespace rlock::detail::lua {

/// A Lua script of `lua/`, embedded at build time.
struct Script {
  std::string_view name;  ///< File name without `.lua`.
  std::string_view sha1;  ///< 40 lower-case hex digits, what `EVALSHA` takes.
  std::string_view body;  ///< The file, byte for byte.
};

/// Every embedded script, in the order of the list in `CMakeLists.txt`.
RLOCK_EXPORT std::span<const Script* const> allScripts() noexcept;

}  // namespace rlock::detail::lua

// Declares one `Script` per file of `lua/`. Generated, so that a script is listed in one place
// only.
#include <rlock/detail/executor/lua_names.hpp>
