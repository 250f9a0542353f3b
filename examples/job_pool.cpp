// SPDX-License-Identifier: Apache-2.0
// A pool of jobs on many workers in several processes, of which three work at a time, say because a
// licence or a database allows no more. A process that is killed takes its permits with it only for
// as long as their lease.
#include "processes.hpp"
#include "redis.hpp"
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <atomic>
#include <chrono>
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

constexpr std::string_view kUsage = R"(Usage: job_pool [URI]

Four processes of three workers each share three permits. One process is killed while it has one.

URI: of the Redis server; by default RLOCK_URI, else redis://127.0.0.1:6379
Exit status: 0 if three worked at a time, never more, and the permit came back, else 1.
)";

constexpr int kProcesses = 4;
constexpr int kWorkers = 3;
constexpr int kPermits = 3;
/// How long the permit of a dead process is out.
constexpr auto kLease = 3s;

/// The workers that are busy, kept by themselves for the one who watches. The permits do not need
/// it.
class Board {
 public:
  Board(const std::string& uri, const std::string& pool)
      : redis_(uri), working_(pool + ":working"), most_(pool + ":most") {}

  void enter(const std::string& worker) {
    static const std::string script = R"(
      redis.call('hset', KEYS[1], ARGV[1], 1)
      local working = redis.call('hlen', KEYS[1])
      if working > tonumber(redis.call('get', KEYS[2]) or 0) then
        redis.call('set', KEYS[2], working)
      end)";
    redis_.command({"EVAL", script, "2", working_, most_, worker});
  }
  void leave(const std::string& worker) { redis_.command({"HDEL", working_, worker}); }

  std::vector<std::string> working() { return redis_.list({"HKEYS", working_}); }
  /// The most that have worked at a time, since the last call of forget().
  long long most() { return redis_.number({"GET", most_}); }
  void forget() { redis_.command({"DEL", most_}); }
  void remove() { redis_.command({"DEL", working_, most_}); }

 private:
  Redis redis_;
  std::string working_;
  std::string most_;
};

/// One worker: takes a permit, then a job, until there are no more jobs.
void work(rlock::PermitExpirableSemaphore permits,
          const std::string& uri,
          const std::string& pool,
          const std::string& worker) {
  Redis redis(uri);
  Board board(uri, pool);
  // The queue hands each job out once. A job whose worker dies is the queue's business.
  while (!redis.command({"LPOP", pool + ":jobs"}).empty()) {
    {
      // Renewed by the watchdog until it is given back at the end of this block.
      const rlock::Permit permit = permits.hold();
      board.enter(worker);
      std::this_thread::sleep_for(30ms);  // the part of the job that is limited
      board.leave(worker);
    }
    redis.command({"INCR", pool + ":done"});
    std::this_thread::sleep_for(10ms);  // the rest of the job
  }
}

/// A process of the pool. @returns its exit status
int runWorkers(const std::string& uri, const std::string& process, const std::string& pool) {
  rlock::Options options = rlock::Options::fromUri(uri);
  options.watchdogTimeout = kLease;
  auto client = rlock::Client::connect(options);
  auto permits = client.getPermitExpirableSemaphore(pool + ":permits");
  permits.trySetPermits(kPermits);  // the first process decides
  std::atomic<int> status = 0;
  std::vector<std::jthread> workers;
  for (int i = 1; i <= kWorkers; ++i) {
    workers.emplace_back([&, worker = process + "/" + std::to_string(i)] {
      try {
        work(permits, uri, pool, worker);
      } catch (const std::exception& error) {
        std::cerr << "worker " + worker + ": " + error.what() + "\n";
        status = 1;
      }
    });
  }
  workers.clear();
  return status;
}

/// Kills a process that has a permit. @returns what it had
std::vector<std::string> killOneAtWork(std::map<std::string, Process>& processes, Board& board) {
  std::vector<std::string> ofTheDead;
  waitUntil("a process is at work", [&] {
    const std::vector<std::string> working = board.working();
    if (working.empty()) {
      return false;
    }
    const std::string process = working.front().substr(0, working.front().find('/'));
    // It may be done with the job while this process looks. So it is frozen first, and looked at
    // again.
    processes.at(process).freeze();
    for (const std::string& worker : board.working()) {
      if (worker.starts_with(process + "/")) {
        ofTheDead.push_back(worker);
      }
    }
    if (ofTheDead.empty()) {
      processes.at(process).resume();
      return false;
    }
    processes.erase(process);
    for (const std::string& worker : ofTheDead) {
      board.leave(worker);  // the dead do not work
    }
    return true;
  });
  return ofTheDead;
}

int run(const std::string& uri) {
  ::setenv("RLOCK_URI", uri.c_str(), 1);  // for the processes; not as an argument, for a password
  const std::string pool = uniqueName("example:pool");
  Redis redis(uri);
  Board board(uri, pool);
  std::vector<std::string> jobs{"RPUSH", pool + ":jobs"};
  jobs.resize(10'000, "job");
  redis.command(jobs);
  std::map<std::string, Process> processes;
  for (int i = 1; i <= kProcesses; ++i) {
    const std::string process = std::to_string(i);
    processes.emplace(process, Process({"--process", process, pool}));
  }
  say(std::to_string(kProcesses * kWorkers) + " workers in " + std::to_string(kProcesses) +
      " processes share " + std::to_string(kPermits) + " permits");

  const auto done = [&] { return redis.number({"GET", pool + ":done"}); };
  waitUntil("jobs are done", [&] { return board.most() >= kPermits && done() > 30; });
  const std::vector<std::string> ofTheDead = killOneAtWork(processes, board);
  const long long before = board.most();
  say("at most " + std::to_string(before) + " have worked at a time");
  say("a process is killed that has " + std::to_string(ofTheDead.size()) + " of them");

  board.forget();
  const long long doneBefore = done();
  const auto killed = std::chrono::steady_clock::now();
  waitUntil("all permits are in use again", [&] { return board.most() >= kPermits; });
  say("all are in use again after " +
      std::to_string((std::chrono::steady_clock::now() - killed) / 1ms) +
      " ms, in which the other processes did " + std::to_string(done() - doneBefore) + " jobs");

  redis.command({"DEL", pool + ":jobs"});
  for (auto& [name, process] : processes) {
    if (process.wait() != 0) {
      throw std::runtime_error("process " + name + " failed");
    }
  }
  const long long after = board.most();
  say("at most " + std::to_string(after) + " have worked at a time since; " +
      std::to_string(done()) + " jobs are done");
  board.remove();
  redis.command({"DEL", pool + ":done"});
  rlock::Client::connect(uri).getPermitExpirableSemaphore(pool + ":permits").remove();
  return before == kPermits && after == kPermits ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 3 && arguments[0] == "--process") {
      return runWorkers(serverUri(1, argv), arguments[1], arguments[2]);
    }
    if (arguments == std::vector<std::string>{"--help"}) {
      std::cout << kUsage;
      return 0;
    }
    return run(serverUri(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "job_pool: " << error.what() << '\n';
    return 1;
  }
}
