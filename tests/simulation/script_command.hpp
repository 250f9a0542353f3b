// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_network.hpp"
#include <rlock/detail/executor/lua_scripts.hpp>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace rlock::sim {

/// A command that runs one of our scripts, taken apart.
struct ScriptCommand {
  std::string_view script{};  ///< empty: it is none
  std::span<const std::string> keys{};
  std::span<const std::string> arguments{};

  explicit ScriptCommand(const Command& command) {
    if (command.size() < 3 || !command[0].starts_with("EVAL")) {
      return;
    }
    static const std::unordered_map<std::string_view, std::string_view> names = [] {
      std::unordered_map<std::string_view, std::string_view> all;
      for (const auto* each : detail::lua::allScripts()) {
        all.emplace(each->sha1, each->name);
        all.emplace(each->body, each->name);
      }
      return all;
    }();
    const auto found = names.find(command[1]);
    if (found == names.end()) {
      return;
    }
    script = found->second;
    const auto rest = std::span(command).subspan(3);
    const auto count = static_cast<std::size_t>(std::atoi(command[2].c_str()));
    keys = rest.first(count);
    arguments = rest.subspan(count);
  }

  [[nodiscard]] bool is(std::string_view suffix) const noexcept { return script.ends_with(suffix); }
};

}  // namespace rlock::sim
