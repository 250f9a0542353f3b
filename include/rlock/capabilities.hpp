// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace rlock {

/// The facts about a server that the latest connection to it has found. An empty one: it did not
/// say, or the user may not ask (`COMMAND INFO`, `HELLO`, `INFO`).
struct Capabilities {
  std::string server{};   ///< `redis`, `valkey`, or another name that it gives itself
  std::string version{};  ///< such as `7.2.4`
  std::string mode{};     ///< `standalone`, `cluster`, `sentinel`
  std::string role{};     ///< `master` or `replica`
  /// It executes scripts (EVALSHA and EVAL). Nothing works without.
  std::optional<bool> scripts{};
  /// It knows SCRIPT, with which scripts are loaded. The client does without: it sends the text.
  std::optional<bool> scriptLoad{};
  /// INFO is allowed.
  std::optional<bool> info{};
  /// CLIENT KILL is allowed. Without it, and without a way to tell connections apart, requests
  /// carry tombstones: see LostReplyPolicy.
  std::optional<bool> clientKill{};
  std::optional<bool> wait{};           ///< it knows WAIT
  std::optional<bool> waitAof{};        ///< it knows WAITAOF
  std::optional<bool> shardedPubSub{};  ///< it knows SPUBLISH and SSUBSCRIBE

  /// Compares field by field.
  friend bool operator==(const Capabilities&, const Capabilities&) = default;
};

}  // namespace rlock
