// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace rlock::cli {

/// The completion script for `bash`, `zsh` or `fish`, made from the table of options.
[[nodiscard]] std::string completionScript(std::string_view shell);

/// The manual page rlock(1), in roff, made from the same table.
[[nodiscard]] std::string manualPage();

}  // namespace rlock::cli
