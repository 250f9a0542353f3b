// SPDX-License-Identifier: Apache-2.0
// Measures rlock against a blocking hiredis client and against the server's own limit, in one run.
#include "bench.hpp"
#include "server.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/utsname.h>
#include <thread>
#include <vector>

namespace rlock::bench {
namespace {

struct Mode {
  std::string_view name;
  void (*run)(const Context&, Report&);
  std::string_view description;
};

constexpr std::array kModes{
    Mode{"pairs", runPairs, "uncontended lock + unlock at 1, 4, 16, 64 threads"},
    Mode{"async", runAsync, "asynchronous pairs, 1, 256, 4096 in flight"},
    Mode{"sparse", runSparse, "latency of a pair with random pauses before it"},
    Mode{"handoff", runHandOff, "from an unlock to the next process' entry"},
    Mode{"waiters", runWaiters, "commands per hand-off, and of an idle waiter"},
    Mode{"tls", runTls, "pairs on an encrypted connection, compared with a plain one"},
    Mode{"cluster", runCluster, "pairs on a cluster; renewals while one master stands still"},
    Mode{"renew", runRenew, "processor time of 100,000 renewed holds (takes a minute)"},
    Mode{"reconnect", runReconnect, "many holds after a reconnection (takes minutes)"},
    Mode{"scale", runScale, "operations beside 1,000,000 holds, 100,000 waiters, 1,024 threads"},
    Mode{"memory", runMemory, "bytes per lock object, hold and asynchronous waiter"},
};

struct Settings {
  std::vector<const Mode*> modes;
  std::string uri;
  std::string tlsUri;
  std::string server = "redis-server";
  std::string json;
  Effort effort = Effort::full;
  bool check = false;
  bool help = false;
};

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void printUsage() {
  fmt::print(
      "Usage: rlock_bench [OPTION]... [MODE]...\n\n"
      "  --quick          short runs, for a first impression, not for figures\n"
      "  --smoke          each mode for a moment, only to see that it works\n"
      "  --check          fail if a count is above its bound (memory, cluster)\n"
      "  --json FILE      write all figures there, too\n"
      "  --uri URI        measure against this server (default: one of its own)\n"
      "  --tls-uri URI    the same server's port with TLS, for the mode tls\n"
      "  --server FILE    the redis-server to start (default: the one in PATH)\n"
      "  --help           show this\n\n"
      "Modes (default: all):\n");
  for (const Mode& mode : kModes) {
    fmt::print("  {:<16} {}\n", mode.name, mode.description);
  }
}

Settings parse(const std::vector<std::string_view>& arguments) {
  Settings settings;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const auto value = [&] {
      if (++i == arguments.size()) {
        throw UsageError(fmt::format("{} wants a value", argument));
      }
      return std::string(arguments[i]);
    };
    if (argument == "--quick") {
      settings.effort = Effort::quick;
    } else if (argument == "--smoke") {
      settings.effort = Effort::smoke;
    } else if (argument == "--check") {
      settings.check = true;
    } else if (argument == "--json") {
      settings.json = value();
    } else if (argument == "--uri") {
      settings.uri = value();
    } else if (argument == "--tls-uri") {
      settings.tlsUri = value();
    } else if (argument == "--server") {
      settings.server = value();
    } else if (argument == "--help") {
      settings.help = true;
    } else {
      const auto* const mode = std::find_if(
          kModes.begin(), kModes.end(), [&](const Mode& known) { return known.name == argument; });
      if (mode == kModes.end()) {
        throw UsageError(fmt::format("there is no mode or option {}", argument));
      }
      settings.modes.push_back(&*mode);
    }
  }
  if (settings.modes.empty()) {
    for (const Mode& mode : kModes) {
      settings.modes.push_back(&mode);
    }
  }
  return settings;
}

/// The value of the first line of a file that begins with `key`.
std::string field(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) {
      const std::size_t colon = line.find(": ");
      return colon == std::string::npos ? line : line.substr(colon + 2);
    }
  }
  return "unknown";
}

void gatherFacts(const Context& context, Report& report) {
  utsname system{};
  ::uname(&system);
  std::array<double, 3> load{};
  ::getloadavg(load.data(), 3);
  std::array<char, 32> date{};
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  std::strftime(date.data(), date.size(), "%Y-%m-%d %H:%M UTC", &utc);

  report.fact("date", date.data());
  report.fact(
      "processors",
      fmt::format(
          "{} x {}", std::thread::hardware_concurrency(), field("/proc/cpuinfo", "model name")));
  report.fact("kernel", fmt::format("{} {}", system.sysname, system.release));
  report.fact("load before",
              fmt::format("{:.2f} (anything above 0.3 spoils the figures)", load[0]));
  report.fact("server",
              fmt::format("{}, {}",
                          context.serverVersion,
                          !context.serverPids.empty()
                              ? "on this machine"
                              : "on another machine, its processor time is unknown"));
  report.fact("hiredis", fmt::format("{}.{}.{}", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH));
  report.fact("compiler",
              fmt::format("{}, {}",
#ifdef __clang__
                          "Clang " __clang_version__,
#else
                          "GCC " __VERSION__,
#endif
                          RLOCK_BENCH_BUILD_TYPE));
  report.fact(
      "rlock",
      fmt::format("{}.{}.{}", RLOCK_VERSION_MAJOR, RLOCK_VERSION_MINOR, RLOCK_VERSION_PATCH));
  report.fact("runs", context.effort == Effort::full ? "full" : "short: the figures mean nothing");

  for (const auto& [name, value] : report.facts()) {
    fmt::print("  {:<12} {}\n", name, value);
  }
}

Context makeContext(const std::string& uri, Effort effort) {
  Context context;
  context.uri = uri;
  context.options = Options::fromUri(uri);
  context.effort = effort;
  Connection connection(context.options);
  context.serverVersion = "Redis " + connection.info("server", "redis_version");
  const std::string text = connection.info("server", "process_id");
  pid_t pid = -1;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  // The same number may be another process here if the server is on another machine.
  const std::string comm = field(("/proc/" + text + "/comm").c_str(), "");
  if (comm.find("redis") != std::string::npos || comm.find("valkey") != std::string::npos) {
    context.serverPids = {pid};
  }
  return context;
}

int run(const Settings& settings) {
  std::optional<OwnServer> server;
  if (settings.uri.empty()) {
    server.emplace(settings.server);
  }
  Context context = makeContext(server ? server->uri() : settings.uri, settings.effort);
  context.tlsUri = server ? server->tlsUri() : settings.tlsUri;
  context.program = server ? settings.server : "";
  context.check = settings.check;
  Report report;
  gatherFacts(context, report);
  for (const Mode* mode : settings.modes) {
    mode->run(context, report);
  }
  if (!settings.json.empty()) {
    report.writeJson(settings.json);
  }
  return 0;
}

}  // namespace
}  // namespace rlock::bench

int main(int argc, char** argv) {
  using namespace rlock::bench;
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 3 && arguments[0] == "--child") {
      const char* uri = std::getenv("RLOCK_URI");
      Context context;
      context.uri = uri != nullptr ? uri : "";
      context.options = rlock::Options::fromUri(context.uri);
      return runChild(arguments[1], std::atoi(argv[3]), context);
    }
    const Settings settings = parse(arguments);
    if (settings.help) {
      printUsage();
      return 0;
    }
    return run(settings);
  } catch (const UsageError& error) {
    fmt::print(stderr, "rlock_bench: {}; --help tells more\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rlock_bench: {}\n", error.what());
    return 1;
  }
}
