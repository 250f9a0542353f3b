// SPDX-License-Identifier: Apache-2.0
// A writer is frozen between its last look at the lock and its write, for longer than its lease. A
// second writer writes meanwhile. The late write of the first is refused, because the resource has
// seen a younger fencing token. docs/fencing.md shows the same for SQL.
#include "fenced_journal.hpp"
#include "processes.hpp"
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr std::string_view kUsage = R"(Usage: fenced [URI]

Two processes write under a fenced lock. The first is frozen at the worst moment.

URI: of the Redis server; by default RLOCK_URI, else redis://127.0.0.1:6379
Exit status: 0 if the second wrote and the late write of the first was refused, else 1.
)";

enum Outcome { kWritten = 0, kFailed = 1, kLockLost = 3, kRefused = 4 };

/// A writer. Only the first one meets with `freeze`.
Outcome write(const std::string& uri,
              const std::string& number,
              const std::string& ledger,
              bool freeze) {
  rlock::Options options = rlock::Options::fromUri(uri);
  options.watchdogTimeout = 2s;  // how long the lock of a frozen process is kept
  // A service keeps the numbers for ever, as its ledger does.
  options.fencingTokenRetention = 1h;
  auto client = rlock::Client::connect(options);
  FencedJournal journal(uri, ledger);

  rlock::Lease lease = client.getFencedLock(ledger + ":lock").acquire();
  const std::uint64_t token = lease.token().value();
  say("writer " + number + " has the lock, token " + std::to_string(token));
  if (!lease.held()) {
    return kLockLost;
  }
  if (freeze) {
    std::raise(SIGSTOP);  // swapped out, stopped, moved to another machine
  }
  // The lock may be another's by now, whatever held() has said. Only the resource can know.
  const bool written = journal.append(token, "by writer " + number);
  if (lease.release() == rlock::ReleaseResult::lost) {
    say("writer " + number + " finds that it had lost the lock");
  }
  return written ? kWritten : kRefused;
}

int run(const std::string& uri) {
  ::setenv("RLOCK_URI", uri.c_str(), 1);  // for the processes; not as an argument, for a password
  const std::string ledger = uniqueName("example:ledger");
  FencedJournal journal(uri, ledger);

  Process first({"--write", "1", ledger, "freeze"});
  first.awaitFrozen();
  say("-- writer 1 is frozen, just before it writes");
  Process second({"--write", "2", ledger, "go on"});
  const bool written = second.wait() == kWritten;
  say(written ? "writer 2 has written" : "writer 2 has not written");

  first.resume();
  say("-- writer 1 goes on");
  const bool refused = first.wait() == kRefused;
  say(refused ? "its late write was refused" : "its late write was not refused");

  bool good = written && refused;
  for (const FencedJournal::Entry& entry : journal.entries()) {
    say("the ledger has: " + entry.text + ", token " + std::to_string(entry.token));
    good = good && entry.text == "by writer 2";
  }
  journal.remove();
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 4 && arguments[0] == "--write") {
      return write(serverUri(1, argv), arguments[1], arguments[2], arguments[3] == "freeze");
    }
    if (arguments == std::vector<std::string>{"--help"}) {
      std::cout << kUsage;
      return 0;
    }
    return run(serverUri(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "fenced: " << error.what() << '\n';
    return kFailed;
  }
}
