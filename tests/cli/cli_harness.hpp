// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/child_process.hpp"
#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/spawn.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <sys/types.h>
#include <vector>

namespace rlock::test {

constexpr std::chrono::milliseconds kSoon{5'000};
constexpr std::chrono::milliseconds kLong{20'000};

/// The program under test.
[[nodiscard]] std::string cliProgram();

/// Starts the program; its two outputs are read as one.
[[nodiscard]] ChildProcess startCli(const std::string& uri,
                                    const std::vector<std::string>& args,
                                    std::vector<std::string> environment = {});

struct CliOutcome {
  int code = -1;  ///< of the shell: 128 + n for a signal
  std::string output;
};

/// Reads until the program ends. Its input is closed first.
[[nodiscard]] CliOutcome finish(ChildProcess& process);
[[nodiscard]] CliOutcome runCli(const std::string& uri,
                                const std::vector<std::string>& args,
                                std::vector<std::string> environment = {});

/// The letter by which the kernel names what a process does: T if it is stopped, Z if it has ended
/// and is not reaped; 0 if there is none.
[[nodiscard]] char processState(pid_t pid);
/// Whether a process runs: one that has ended and is not reaped does not.
[[nodiscard]] bool alive(pid_t pid);
/// The processes whose parent it is, also those that have ended and are not reaped.
[[nodiscard]] std::vector<pid_t> childrenOf(pid_t parent);
/// Whether a signal was sent to a process that has not taken it yet.
[[nodiscard]] bool signalPending(pid_t pid, int signal);

/// A server for each test.
class CliTest : public ::testing::Test {
 protected:
  void SetUp() override { RLOCK_REQUIRE_REDIS_SERVER(); }

  RedisServer& server() {
    if (!server_) {
      server_ = std::make_unique<RedisServer>();
    }
    return *server_;
  }
  RawRedis& redis() {
    if (!redis_) {
      redis_ = std::make_unique<RawRedis>(server());
    }
    return *redis_;
  }
  CliOutcome run(const std::vector<std::string>& args) { return runCli(server().uri(), args); }
  ChildProcess start(const std::vector<std::string>& args) {
    return startCli(server().uri(), args);
  }

  /// Another owner holds the lock of that name, without end.
  void occupy(const std::string& name) {
    redis().run({"HSET", name, "6f1ed9a2-0b3c-4c57-9d52-3a4e7f60b1aa:1", "1"});
  }
  void vacate(const std::string& name) {
    redis().del(name);
    redis().publish("redisson_lock__channel:{" + name + "}", "0");
  }
  /// Whether anybody waits for that lock.
  bool awaited(const std::string& name) {
    return redis().numsub("redisson_lock__channel:{" + name + "}") > 0;
  }

 private:
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RawRedis> redis_;
};

}  // namespace rlock::test
