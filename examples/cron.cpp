// SPDX-License-Identifier: Apache-2.0
// Three hosts have the same line in their crontab, and each run of the job is to happen once. Even
// when the host that runs it is killed meanwhile: then another one runs it again from the
// beginning.
#include "fenced_journal.hpp"
#include "processes.hpp"
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr std::string_view kUsage = R"(Usage: cron [URI]

Three processes, each of them a host, run a job six times, twice a second. One of them is killed in
the middle of the third.

URI: of the Redis server; by default RLOCK_URI, else redis://127.0.0.1:6379
Exit status: 0 if each run was completed once, else 1.
)";

constexpr int kHosts = 3;
constexpr int kTicks = 6;
constexpr auto kPeriod = 500ms;
/// How long a job stands still when its host dies.
constexpr auto kLease = 2s;

using Clock = std::chrono::system_clock;

/// Entries of the journal: what has begun, with the host, and what is done.
std::string begun(int tick, const std::string& host) {
  return "run " + std::to_string(tick) + " begun by host " + host;
}
std::string done(int tick) {
  return "run " + std::to_string(tick) + " done";
}

bool contains(FencedJournal& journal, const std::string& text) {
  const std::vector<FencedJournal::Entry> entries = journal.entries();
  return std::any_of(
      entries.begin(), entries.end(), [&](const auto& entry) { return entry.text == text; });
}

/// The crontab of one host. A run has a number, as in life a date: so a host whose clock is late,
/// or which was asleep, finds that it is done.
void keepCrontab(const std::string& uri,
                 const std::string& host,
                 const std::string& job,
                 Clock::time_point start) {
  rlock::Options options = rlock::Options::fromUri(uri);
  options.watchdogTimeout = kLease;
  options.fencingTokenRetention = 1h;  // a service keeps the numbers for ever
  auto client = rlock::Client::connect(options);
  rlock::FencedLock lock = client.getFencedLock(job + ":lock");
  FencedJournal journal(uri, job);

  for (int tick = 1; tick <= kTicks; ++tick) {
    std::this_thread::sleep_until(start + tick * kPeriod);
    while (!contains(journal, done(tick))) {
      // The first to come runs the job. The others wait, to see that it was completed: the lock
      // of one that dies is free when its lease is over.
      const rlock::Lease lease = lock.acquire({.label = "host " + host});
      if (contains(journal, done(tick))) {
        break;
      }
      const std::uint64_t token = lease.token().value();
      journal.append(token, begun(tick, host));
      say(begun(tick, host));
      std::this_thread::sleep_for(200ms);  // the job
      // A host that stood still for longer than its lease is refused here if another has begun.
      journal.append(token, done(tick));
    }
  }
}

/// Kills a host in the middle of a run, when two are done. @returns which it was
std::string killInTheMiddle(std::map<std::string, Process>& hosts, FencedJournal& journal) {
  std::string victim;
  const auto isAtIt = [&](const std::string& host) {
    const std::vector<FencedJournal::Entry> entries = journal.entries();
    return entries.size() > 4 && entries.back().text.ends_with("begun by host " + host);
  };
  waitUntil("a host runs the job", [&] {
    for (auto& [host, process] : hosts) {
      if (!isAtIt(host)) {
        continue;
      }
      // It may end while this process looks. So it is frozen first, and looked at again.
      process.freeze();
      if (isAtIt(host)) {
        process.kill();
        victim = host;
        return true;
      }
      process.resume();
    }
    return false;
  });
  return victim;
}

int run(const std::string& uri) {
  ::setenv("RLOCK_URI", uri.c_str(), 1);  // for the processes; not as an argument, for a password
  const std::string job = uniqueName("example:cron");
  FencedJournal journal(uri, job);
  const std::string start = std::to_string(
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
          .count());
  std::map<std::string, Process> hosts;
  for (int i = 1; i <= kHosts; ++i) {
    const std::string host = std::to_string(i);
    hosts.emplace(host, Process({"--host", host, job, start}));
  }

  const std::string victim = killInTheMiddle(hosts, journal);
  hosts.erase(victim);
  say("-- host " + victim + " is killed in the middle of it");
  for (auto& [host, process] : hosts) {
    if (process.wait() != 0) {
      throw std::runtime_error("host " + host + " failed");
    }
  }

  const std::vector<FencedJournal::Entry> entries = journal.entries();
  bool once = true;
  for (int tick = 1; tick <= kTicks; ++tick) {
    const auto times = std::count_if(entries.begin(), entries.end(), [&](const auto& entry) {
      return entry.text == done(tick);
    });
    if (times != 1) {
      once = false;
      say(done(tick) + " " + std::to_string(times) + " times");
    }
  }
  if (once) {
    say("each of " + std::to_string(kTicks) + " runs was completed once");
  }
  journal.remove();
  return once ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 4 && arguments[0] == "--host") {
      const Clock::time_point start{std::chrono::milliseconds(std::stoll(arguments[3]))};
      keepCrontab(serverUri(1, argv), arguments[1], arguments[2], start);
      return 0;
    }
    if (arguments == std::vector<std::string>{"--help"}) {
      std::cout << kUsage;
      return 0;
    }
    return run(serverUri(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "cron: " << error.what() << '\n';
    return 1;
  }
}
