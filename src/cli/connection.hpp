// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/arguments.hpp"
#include <rlock/client.hpp>
#include <rlock/options.hpp>

#include <string>
#include <string_view>

namespace rlock::cli {

/// The settings of a client of this program. Its log lines go to standard error: warnings with
/// --verbose only, for what fails is said anyway.
/// @throws rlock::Error  invalidArgument
[[nodiscard]] Options clientOptions(const Arguments& arguments, const std::string& uri);

/// Connects, or throws rlock::Error.
[[nodiscard]] Client connectClient(const Arguments& arguments);

/// To standard error. Text that cannot be written is dropped: a closed pipe, a full disk and a
/// terminal that has gone must not end a program that watches over a command.
void writeError(std::string_view text) noexcept;

/// `rlock: text` on standard error, as writeError().
void complain(const std::string& text);

/// Has standard output written.
/// @throws std::runtime_error  it cannot be
void flushOutput();

/// The same, but only where standard error takes text at once, for somebody who must not wait until
/// it is read. @returns whether it was said
bool complainWithoutWaiting(const std::string& text);

/// Reports an error that ends the program. @returns its exit code
int reportError(const std::exception& error);

/// The address without user and password, for people.
[[nodiscard]] std::string uriWithoutSecrets(const std::string& uri);

}  // namespace rlock::cli
