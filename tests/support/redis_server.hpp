// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/free_port.hpp"
#include "support/temp_dir.hpp"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace rlock::test {

struct RedisServerOptions {
  std::vector<std::string> extraArgs;  ///< command-line arguments, e.g. {"--maxmemory", "1mb"}
  std::string password;                ///< of the default user; empty: none
  std::vector<std::string> aclUsers;   ///< ACL rules, e.g. "alice on >secret ~* &* +@all"
  bool unixSocket = false;             ///< listen on a Unix socket as well
  bool unixSocketOnly = false;         ///< listen on a Unix socket and on no port
  std::uint16_t port = 0;              ///< 0: a free one; otherwise this one or an exception
  /// true: append-only file, fsync always, so that every acknowledged write survives kill() and
  /// restart(). false: no persistence, every start is empty.
  bool persistence = false;
  std::chrono::milliseconds startTimeout{10'000};
};

struct RedisServerVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;
};

/// A redis-server of its own on a loopback port (and/or Unix socket) with its data in a temporary
/// directory. The program is `RLOCK_TEST_REDIS_SERVER` or `redis-server` from PATH. Keeps its port
/// over kill(), stop() and restart(); while it does not run, connecting is refused. The kernel
/// kills it when the test process ends. Any number of them may run at once. Methods are safe from
/// any thread; start and stop calls throw std::runtime_error with the server's log on failure. The
/// destructor ends the server, unless it runs in a forked child.
class RedisServer {
 public:
  using Options = RedisServerOptions;

  /// Whether the program can be started.
  [[nodiscard]] static bool available();
  /// Of the program; zeros when it is not available.
  [[nodiscard]] static RedisServerVersion version();

  /// Starts the server and returns when it answers.
  RedisServer();
  explicit RedisServer(Options options);
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;
  ~RedisServer();

  /// 0 with unixSocketOnly.
  [[nodiscard]] std::uint16_t port() const;
  /// Empty without unixSocket and unixSocketOnly.
  [[nodiscard]] const std::string& socketPath() const { return socketPath_; }
  /// `redis://[:password@]127.0.0.1:port`, or unixUri() with unixSocketOnly.
  [[nodiscard]] std::string uri() const;
  /// `unix://[:password@]/path`.
  [[nodiscard]] std::string unixUri() const;
  [[nodiscard]] const Options& options() const { return options_; }
  /// Of the last started process.
  [[nodiscard]] pid_t pid() const;
  [[nodiscard]] bool running() const;

  /// SIGKILL; returns when the process is gone.
  void kill();
  /// SIGTERM, also to a frozen server; returns when the process is gone.
  void stop();
  /// Starts a stopped or killed server on the same port and returns when it answers.
  void start();
  /// stop() and start().
  void restart();
  /// SIGSTOP: connections stay open, nothing is answered, connecting still succeeds.
  void freeze();
  /// SIGCONT.
  void thaw();

  /// The output of the server since construction.
  [[nodiscard]] std::string log() const;
  [[nodiscard]] const TempDir& directory() const { return directory_; }

 private:
  void startLocked();
  bool launch();
  bool waitUntilReady();
  void endLocked(int signal);
  bool runningLocked() const;
  void writeConfig() const;

  const Options options_;
  const pid_t owner_;
  TempDir directory_;
  std::string socketPath_;
  mutable std::mutex mutex_;
  std::optional<PortReservation> reservation_;
  mutable pid_t pid_ = -1;
  mutable bool alive_ = false;
};

/// The choice of RLOCK_REQUIRE_REDIS_SERVER: run when a server is available, else skip, or fail
/// when RLOCK_TEST_REQUIRE_REDIS=1 asks for it.
enum class RedisAvailability { run, skip, fail };
[[nodiscard]] RedisAvailability redisAvailability();

}  // namespace rlock::test

/// First line of a test or of SetUp() that needs a server (include gtest before using it).
#define RLOCK_REQUIRE_REDIS_SERVER()                                                        \
  do {                                                                                      \
    const auto availability = ::rlock::test::redisAvailability();                           \
    if (availability == ::rlock::test::RedisAvailability::fail) {                           \
      FAIL() << "redis-server not found, and RLOCK_TEST_REQUIRE_REDIS asks for it";         \
    }                                                                                       \
    if (availability == ::rlock::test::RedisAvailability::skip) {                           \
      GTEST_SKIP() << "redis-server not found (RLOCK_TEST_REDIS_SERVER names another one)"; \
    }                                                                                       \
  } while (false)
