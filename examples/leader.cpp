// SPDX-License-Identifier: Apache-2.0
// Three processes of which one leads. The leader is killed, and another takes over. The next is
// frozen for longer than its lease, and goes on when there is a new leader: it must know that its
// term is over. A term is one hold of a fenced lock, so each has a number, by which what the leader
// writes is checked.
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
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr std::string_view kUsage = R"(Usage: leader [URI]

Three processes elect a leader. The leader is killed, the next one is frozen for longer than its lease.

URI: of the Redis server; by default RLOCK_URI, else redis://127.0.0.1:6379
Exit status: 0 if there was always another leader, and no two at a time, else 1.
)";

constexpr int kCandidates = 3;
/// How long nobody leads when a leader dies. A leader that stands still for longer loses its term.
constexpr auto kLease = 2s;

/// One candidate: waits until it leads, leads until it does not any more, and so on.
void stand(const std::string& uri, const std::string& number, const std::string& election) {
  rlock::Options options = rlock::Options::fromUri(uri);
  options.watchdogTimeout = kLease;
  // The numbers of the terms go on for so long after the last one. A service keeps them for ever.
  options.fencingTokenRetention = 1h;
  auto client = rlock::Client::connect(options);
  rlock::FencedLock leadership = client.getFencedLock(election + ":leader");
  FencedJournal journal(uri, election);
  Redis redis(uri);

  for (;;) {
    const rlock::Lease term = leadership.acquire({.label = "candidate " + number});
    const std::uint64_t token = term.token().value();
    say("candidate " + number + " leads, term " + std::to_string(token));
    // Asked before each piece of work, and no piece takes long. It is no question to the server.
    bool accepted = true;
    while (term.held() && accepted) {
      // A pause right here is what only the journal notices.
      accepted = journal.append(token, number);  // the work of a leader
      std::this_thread::sleep_for(20ms);
    }
    say("candidate " + number + " stands back from term " + std::to_string(token) +
        (accepted ? ": its lease is over" : ": what it wrote was refused"));
    redis.command(
        {"HSET", election + ":ends", std::to_string(token), accepted ? "noticed" : "refused"});
  }
}

/// Waits until the leader of a later term has written a few times. @returns the last thing
FencedJournal::Entry awaitTermAfter(std::uint64_t token, FencedJournal& journal) {
  FencedJournal::Entry last;
  waitUntil("a candidate leads", [&] {
    const std::vector<FencedJournal::Entry> entries = journal.entries();
    last = entries.empty() ? FencedJournal::Entry() : entries.back();
    return last.token > token &&
           std::count_if(entries.begin(), entries.end(), [&](const FencedJournal::Entry& entry) {
             return entry.token == last.token;
           }) > 5;
  });
  return last;
}

/// Nobody may have written in another's term: neither have two leaders the same number, nor has one
/// tried to write after a later one. Except for a single attempt of one that was frozen.
bool termsWereSeparate(FencedJournal& journal, std::set<std::uint64_t> frozen) {
  std::map<std::uint64_t, std::string> leaders;
  std::uint64_t term = 0;
  for (const FencedJournal::Entry& entry : journal.entries()) {
    const std::string& leader = leaders.try_emplace(entry.token, entry.text).first->second;
    if (entry.token < term || entry.text != leader) {
      return false;
    }
    term = entry.token;
  }
  const std::vector<FencedJournal::Entry> refused = journal.refused();
  return std::all_of(refused.begin(), refused.end(), [&](const FencedJournal::Entry& entry) {
    return frozen.erase(entry.token) == 1;
  });
}

int run(const std::string& uri) {
  ::setenv("RLOCK_URI", uri.c_str(), 1);  // for the processes; not as an argument, for a password
  const std::string election = uniqueName("example:election");
  Redis redis(uri);
  FencedJournal journal(uri, election);
  std::map<std::string, Process> candidates;
  for (int i = 1; i <= kCandidates; ++i) {
    const std::string number = std::to_string(i);
    candidates.emplace(number, Process({"--candidate", number, election}));
  }

  FencedJournal::Entry leader = awaitTermAfter(0, journal);
  candidates.at(leader.text).kill();
  say("-- candidate " + leader.text + " is killed");
  const auto killed = std::chrono::steady_clock::now();
  leader = awaitTermAfter(leader.token, journal);
  say("-- nobody led for " + std::to_string((std::chrono::steady_clock::now() - killed) / 1ms) +
      " ms");

  // One that is frozen just between its look at the lease and its write cannot notice. Then it was
  // the journal that refused the write, and the next one is frozen.
  std::string end;
  std::set<std::uint64_t> frozen;
  while (end != "noticed" && frozen.size() < 3) {
    Process& process = candidates.at(leader.text);
    process.freeze();
    frozen.insert(leader.token);
    say("-- candidate " + leader.text + " is frozen");
    const FencedJournal::Entry next = awaitTermAfter(leader.token, journal);
    process.resume();
    say("-- candidate " + leader.text + " goes on");
    waitUntil("the frozen candidate stands back", [&] {
      end = redis.command({"HGET", election + ":ends", std::to_string(leader.token)});
      return !end.empty();
    });
    leader = next;
  }

  candidates.clear();
  const bool separate = termsWereSeparate(journal, frozen);
  say(std::to_string(journal.entries().size()) + " entries in the journal, " +
      std::to_string(journal.refused().size()) +
      " refused: " + (separate ? "nobody wrote in another's term" : "two led at a time"));
  journal.remove();
  redis.command({"DEL", election + ":ends"});
  return separate && end == "noticed" ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 3 && arguments[0] == "--candidate") {
      stand(serverUri(1, argv), arguments[1], arguments[2]);
      return 0;
    }
    if (arguments == std::vector<std::string>{"--help"}) {
      std::cout << kUsage;
      return 0;
    }
    return run(serverUri(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "leader: " << error.what() << '\n';
    return 1;
  }
}
