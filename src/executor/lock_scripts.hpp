// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "executor/call.hpp"
#include <rlock/detail/reply.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rlock::detail {

/// What is derived once from the name of a lock.
struct LockKeys {
  explicit LockKeys(std::string_view lockName);

  const std::string name;
  const std::string channel;
};

/// A fresh name for one request: 32 hexadecimal characters.
std::string newRequestId();

/// How long a tombstone keeps a lost request from being executed.
inline constexpr std::chrono::milliseconds kTombstoneLife{120'000};

// Each compose function fills a call for one script of lua/; the bytes that it is given must
// outlive the call. Each parse function reads the reply; empty: not what the script returns.

/// @param tombstone  empty: a lost request can be fenced
void composeAcquire(Call& call,
                    const LockKeys& keys,
                    std::string_view owner,
                    std::chrono::milliseconds lease,
                    std::string_view tombstone);
struct AcquireReply {
  bool granted = false;
  std::int64_t count = 0;  ///< granted: holds now
  std::chrono::milliseconds remaining{
      -1};  ///< refused: how long the holder has it; -1: without end
};
std::optional<AcquireReply> parseAcquire(const Reply& reply);

/// @param restore  lease to restore when holds remain; zero: leave it
void composeRelease(Call& call,
                    const LockKeys& keys,
                    std::string_view owner,
                    std::chrono::milliseconds restore,
                    std::string_view tombstone);
struct ReleaseReply {
  bool owned = false;
  std::int64_t remain = 0;
  std::string_view publishError;  ///< why waiters were not told; empty: they were
};
std::optional<ReleaseReply> parseRelease(const Reply& reply);

void composeSettle(Call& call,
                   const LockKeys& keys,
                   std::string_view owner,
                   std::int64_t target,
                   std::string_view tombstone);
struct SettleReply {
  std::int64_t before = 0;
  std::int64_t now = 0;
};
std::optional<SettleReply> parseSettle(const Reply& reply);

/// Starts a renewal of `count` holds: add the names, then for each its lease in ms and its owner.
void composeRenewal(Call& call, std::size_t count);

/// Makes its own marker, so that the call may be repeated.
void composeForceRelease(Call& call, const LockKeys& keys);

/// The channel payload that says a lock is free.
inline constexpr std::string_view kReleaseMessage = "0";

}  // namespace rlock::detail
