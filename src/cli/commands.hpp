// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/arguments.hpp"

namespace rlock::cli {

///@{
/// One subcommand each. @returns the exit code; throws what reportError() takes
int runCommand(const Arguments& arguments);  ///< run and try
int holdCommand(const Arguments& arguments);
int waitCommand(const Arguments& arguments);
int showCommand(const Arguments& arguments);
int listCommand(const Arguments& arguments);
int topCommand(const Arguments& arguments);
int unlockCommand(const Arguments& arguments);
int doctorCommand(const Arguments& arguments);
int benchCommand(const Arguments& arguments);
int completionCommand(const Arguments& arguments);
int manCommand(const Arguments& arguments);
///@}

}  // namespace rlock::cli
