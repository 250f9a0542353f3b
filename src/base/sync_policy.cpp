// SPDX-License-Identifier: Apache-2.0

// SyncPolicy as text, and its ranges. Pure functions of their arguments.

#include <rlock/duration.hpp>
#include <rlock/sync_policy.hpp>

#include <fmt/format.h>

namespace rlock {

std::string toString(const SyncPolicy& policy) {
  switch (policy.kind) {
    case SyncPolicy::Kind::none:
      return "none";
    case SyncPolicy::Kind::replicas:
      return std::to_string(policy.count);
    case SyncPolicy::Kind::majority:
      return "majority";
    case SyncPolicy::Kind::localAof:
      return "local-aof";
    case SyncPolicy::Kind::remoteAof:
      return policy.count == 1 ? std::string("remote-aof")
                               : "remote-aof:" + std::to_string(policy.count);
  }
  return "unknown";
}

namespace detail {

std::string syncProblem(const SyncPolicy& policy) {
  if (policy.kind > SyncPolicy::Kind::remoteAof) {
    return "an unknown kind of SyncPolicy";
  }
  if (policy.count < 1 || policy.count > kMostReplicas) {
    return fmt::format("{} replicas; allowed: 1 to {}", policy.count, kMostReplicas);
  }
  if (policy.limit < std::chrono::milliseconds(1) || policy.limit > std::chrono::hours(1)) {
    return fmt::format("a limit of {}; allowed: 1ms to 1h", toString(Duration(policy.limit)));
  }
  return {};
}

}  // namespace detail
}  // namespace rlock
