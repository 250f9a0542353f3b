// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
namespace rlock::cli {
int doctorCommand(const Arguments&) {
  return 0;
}
}  // namespace rlock::cli
