// SPDX-License-Identifier: Apache-2.0
// A configuration that is read all the time and written now and then. Its parts are separate keys,
// so a reader in the middle of a change gets some old and some new ones. A read-write lock keeps
// the writer out while anybody reads, and lets the readers read at the same time.
#include "processes.hpp"
#include "redis.hpp"
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr std::string_view kUsage = R"(Usage: config [URI]

Four processes read a configuration while one changes it ten times, first without a lock, then with a
read-write lock.

URI: of the Redis server; by default RLOCK_URI, else redis://127.0.0.1:6379
Exit status: 0 if torn reads were seen without the lock, none with it, and several read at a time;
else 1.
)";

constexpr int kReaders = 4;
constexpr int kChanges = 10;
constexpr std::array kParts{"host", "user", "password"};

/// One process. The work it does under the lock, it does without one to show the difference.
class Service {
 public:
  Service(const std::string& uri, const std::string& config, bool useLock)
      : config_(config),
        useLock_(useLock),
        redis_(uri),
        client_(rlock::Client::connect(uri)),
        lock_(client_.getReadWriteLock(config + ":lock")) {}

  /// Reads again and again, until the last version is there.
  void readAll() {
    redis_.command({"INCR", config_ + ":ready"});
    while (read() < kChanges) {
    }
  }

  /// Each version has its number in all parts.
  void changeAll() {
    for (int version = 1; version <= kChanges; ++version) {
      std::this_thread::sleep_for(50ms);
      std::optional<rlock::Lease> lease;
      if (useLock_) {
        lease = lock_.writeLock().acquire();  // new readers wait as soon as the writer does
      }
      for (const char* const part : kParts) {
        redis_.command({"SET", config_ + ":" + part, std::to_string(version)});
        std::this_thread::sleep_for(2ms);
      }
    }
  }

 private:
  /// @returns the version that was read
  long long read() {
    std::optional<rlock::Lease> lease;
    if (useLock_) {
      lease = lock_.readLock().acquire();
    }
    const long long reading = redis_.number({"INCR", config_ + ":reading"});
    bool torn = false;
    const long long version = redis_.number({"GET", config_ + ":" + kParts.front()});
    for (const char* const part : kParts) {
      std::this_thread::sleep_for(500us);
      torn = torn || redis_.number({"GET", config_ + ":" + part}) != version;
    }
    redis_.command({"DECR", config_ + ":reading"});
    lease.reset();  // given back, in the background

    redis_.command({"INCR", config_ + (torn ? ":torn" : ":whole")});
    if (reading > 1) {
      redis_.command({"INCR", config_ + ":together"});
    }
    return torn ? 0 : version;
  }

  const std::string config_;
  const bool useLock_;
  Redis redis_;
  rlock::Client client_;
  rlock::ReadWriteLock lock_;
};

struct Counts {
  long long torn = 0;
  long long together = 0;
};

/// Has the configuration read and changed.
Counts serve(Redis& redis, const std::string& lock) {
  const std::string config = uniqueName("example:config");
  std::vector<Process> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back(std::vector<std::string>{"--read", config, lock});
  }
  waitUntil("all readers are ready", [&] {
    return redis.number({"GET", config + ":ready"}) == kReaders;
  });
  Process writer({"--write", config, lock});
  bool good = writer.wait() == 0;
  for (Process& reader : readers) {
    good = reader.wait() == 0 && good;
  }
  if (!good) {
    throw std::runtime_error("a process failed");
  }

  const auto count = [&](const std::string& what) {
    return redis.number({"GET", config + ":" + what});
  };
  const Counts counts{.torn = count("torn"), .together = count("together")};
  say(lock + ": " + std::to_string(counts.torn + count("whole")) + " reads, " +
      std::to_string(counts.torn) + " torn; " + std::to_string(counts.together) +
      " began while another process read");
  for (const char* const part : kParts) {
    redis.command({"DEL", config + ":" + part});
  }
  for (const char* const what : {"ready", "reading", "torn", "whole", "together"}) {
    redis.command({"DEL", config + ":" + what});
  }
  return counts;
}

int run(const std::string& uri) {
  ::setenv("RLOCK_URI", uri.c_str(), 1);  // for the processes; not as an argument, for a password
  Redis redis(uri);
  say(std::to_string(kReaders) + " processes read a configuration of " +
      std::to_string(kParts.size()) + " parts, one changes it " + std::to_string(kChanges) +
      " times");
  const Counts without = serve(redis, "without a lock");
  const Counts with = serve(redis, "with a read-write lock");
  return without.torn > 0 && with.torn == 0 && with.together > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 3 && (arguments[0] == "--read" || arguments[0] == "--write")) {
      Service service(serverUri(1, argv), arguments[1], arguments[2] != "without a lock");
      arguments[0] == "--read" ? service.readAll() : service.changeAll();
      return 0;
    }
    if (arguments == std::vector<std::string>{"--help"}) {
      std::cout << kUsage;
      return 0;
    }
    return run(serverUri(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "config: " << error.what() << '\n';
    return 1;
  }
}
