// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal.hpp"
#include <rlock/error.hpp>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::cli {

enum class Verdict { good, note, bad };

/// One thing that `rlock doctor` has looked at.
struct Finding {
  Verdict verdict = Verdict::good;
  std::string subject{};  ///< such as "connection"
  std::string text{};     ///< what was found
  std::string advice{};   ///< what to do about it; empty: nothing
};

/// The service at an address, judged by how it answers a Redis PING.
enum class Peer { unknown, nobody, redis, tls, http, ssh, silent, protectedMode, tooManyClients };

/// By the first bytes of the answer.
[[nodiscard]] Peer peerOf(std::string_view answer);

/// A connection that could not be made.
/// @param peer  what listens there, if somebody has looked
/// @param tls   whether the connection was to be encrypted
[[nodiscard]] Finding judgeConnection(const Error& error, Peer peer, bool tls = false);

/// A lock, or whatever `subject` names, that could not be used.
[[nodiscard]] Finding judgeUse(const std::string& subject, const Error& error);

/// A line of the client's log while it used something: rules that forbid a part of it.
[[nodiscard]] std::optional<Finding> judgeLogLine(const std::string& subject,
                                                  const std::string& line);

/// The server's own account: INFO, and its clock less ours.
[[nodiscard]] std::vector<Finding> judgeServer(const std::map<std::string, std::string>& info,
                                               std::optional<std::chrono::milliseconds> skew);

/// How long round trips took.
[[nodiscard]] Finding judgeRoundTrips(std::vector<std::chrono::nanoseconds> times);

/// Reads INFO's text.
[[nodiscard]] std::map<std::string, std::string> parseInfo(std::string_view text);

[[nodiscard]] std::string textOf(const std::vector<Finding>& findings, const Style& style);
[[nodiscard]] std::string jsonOf(const std::vector<Finding>& findings);

}  // namespace rlock::cli
