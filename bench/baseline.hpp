// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench.hpp"
#include "server.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace rlock::bench {

// Of every lock of the baselines.
inline constexpr std::string_view kLockLease = "30000";
inline constexpr std::string_view kLockOwner = "6f1a0c5e-37a2-4f4e-9d3c-0123456789ab:1";

/// The requests to the server for one lock and one unlock.
enum class Protocol {
  /// Redisson's: the unlock script writes a latch for this request and publishes; the latch is
  /// deleted by a command of its own.
  redisson,
  /// rlock's own scripts, which need no latch.
  rlock,
};

/// The scripts' SHA-1, after they have been loaded.
struct Scripts {
  std::string redissonLock;
  std::string redissonUnlock;
  std::string acquire;
  std::string release;

  explicit Scripts(Connection& connection);
};

/// One lock with a blocking hiredis connection of its own.
class HiredisLock {
 public:
  HiredisLock(const Context& context,
              const Scripts& scripts,
              Protocol protocol,
              const std::string& name);

  /// Throws when the lock is not free.
  void lock();
  /// Throws when it was not held.
  void unlock();

 private:
  const Scripts& scripts_;
  const Protocol protocol_;
  const std::string name_;
  const std::string channel_;
  const std::string latchPrefix_;
  std::string latch_;
  Connection connection_;
};

/// One lock and one unlock by rlock's scripts, as words of a command.
std::vector<std::string_view> acquireWords(const Scripts& scripts, std::string_view name);
std::vector<std::string_view> releaseWords(const Scripts& scripts,
                                           std::string_view name,
                                           std::string_view channel);

/// The answers of rlock's scripts when a lock that was free is taken, and when it is free again.
bool isAcquired(const redisReply& reply);
bool isReleased(const redisReply& reply);

std::string channelOf(std::string_view name);

}  // namespace rlock::bench
