// SPDX-License-Identifier: Apache-2.0
// The modes of the benchmark, and the context that all of them are given.
#pragma once

#include "report.hpp"
#include <rlock/options.hpp>

#include <chrono>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace rlock::bench {

/// How much is measured.
enum class Effort {
  full,   ///< figures to publish
  quick,  ///< a first impression
  smoke,  ///< each mode for a moment: only shows that it works
};

struct Context {
  std::string uri;
  std::string tlsUri;  ///< of the same server; empty: it has no port with TLS
  Options options;     ///< made from the URI
  /// One, or the nodes of a cluster; empty: not on this machine, the CPU time is unknown.
  std::vector<pid_t> serverPids;
  std::string program;  ///< the redis-server to start more of; empty: the server is the caller's
  std::string serverVersion;
  Effort effort = Effort::full;
  bool check = false;  ///< a count above its bound is a failure

  /// The one of three values that fits the effort.
  template <class T>
  [[nodiscard]] T pick(T full, T quick, T smoke) const {
    return effort == Effort::full ? full : effort == Effort::quick ? quick : smoke;
  }
};

// Each prints a table and adds its figures to the report.
void runPairs(const Context& context, Report& report);
void runAsync(const Context& context, Report& report);
void runSparse(const Context& context, Report& report);
void runHandOff(const Context& context, Report& report);
void runTls(const Context& context, Report& report);
void runCluster(const Context& context, Report& report);
void runWaiters(const Context& context, Report& report);
void runRenew(const Context& context, Report& report);
void runReconnect(const Context& context, Report& report);
void runScale(const Context& context, Report& report);
void runMemory(const Context& context, Report& report);

/// The work of a process that startChild() started: returns its exit status.
int runChild(std::string_view role, int sharedMemory, const Context& context);

}  // namespace rlock::bench
