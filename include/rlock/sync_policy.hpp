// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace rlock {

/// Says who must have a grant, besides the master's memory, before its caller is told of it; and
/// each renewal, before the hold counts as renewed. A plain value; see
/// docs/acknowledged-replicas.md for what it does and does not protect from.
///
/// **Thread safety:** A plain value; one thread at a time.
struct SyncPolicy {
  /// The kinds of those who must have it.
  enum class Kind : std::uint8_t {
    none,       ///< nobody: the master's reply is enough
    replicas,   ///< `count` replicas have received it
    majority,   ///< so many replicas that with the master they are more than half of the nodes
    localAof,   ///< the master has written it to its append-only file, synced; Redis 7.2
    remoteAof,  ///< `count` replicas have done that; Redis 7.2
  };

  /// The ones who must have it.
  Kind kind = Kind::none;
  /// With `replicas` and `remoteAof`: how many. 1 to 1000.
  int count = 1;
  /// How long to wait for them, at most until the end of the call's own time. 1 s; 1 ms to 1 h.
  std::chrono::milliseconds limit{1000};

  /// No policy.
  [[nodiscard]] static constexpr SyncPolicy none() noexcept { return {}; }
  /// So many replicas have received it.
  [[nodiscard]] static constexpr SyncPolicy replicas(
      int count, std::chrono::milliseconds limit = std::chrono::seconds(1)) noexcept {
    return {Kind::replicas, count, limit};
  }
  /// With `r` replicas connected to the master at that time: (r + 1) / 2 of them, rounded down. A
  /// master that has lost all its replicas is a majority by itself; replicas() is not so lenient.
  [[nodiscard]] static constexpr SyncPolicy majority(
      std::chrono::milliseconds limit = std::chrono::seconds(1)) noexcept {
    return {Kind::majority, 1, limit};
  }
  /// The master's append-only file has it.
  [[nodiscard]] static constexpr SyncPolicy localAof(
      std::chrono::milliseconds limit = std::chrono::seconds(1)) noexcept {
    return {Kind::localAof, 1, limit};
  }
  /// The append-only files of so many replicas have it.
  [[nodiscard]] static constexpr SyncPolicy remoteAof(
      int count = 1, std::chrono::milliseconds limit = std::chrono::seconds(1)) noexcept {
    return {Kind::remoteAof, count, limit};
  }

  /// Whether there is anything to wait for.
  [[nodiscard]] constexpr bool any() const noexcept { return kind != Kind::none; }

  /// Compares field by field.
  friend constexpr bool operator==(const SyncPolicy&, const SyncPolicy&) = default;
};

/// As the URI parameter `sync` says it, without the limit: `none`, the number of replicas,
/// `majority`, `local-aof`, `remote-aof` or `remote-aof:N`.
RLOCK_EXPORT std::string toString(const SyncPolicy& policy);

namespace detail {

inline constexpr int kMostReplicas = 1000;

/// The reason why a policy cannot be followed, with the allowed values; empty if there is none.
RLOCK_EXPORT std::string syncProblem(const SyncPolicy& policy);

}  // namespace detail
}  // namespace rlock
