// SPDX-License-Identifier: Apache-2.0
#include "peer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

namespace rlock::bench::peers {

namespace {

using namespace std::chrono_literals;

void say(std::string_view line) {
  std::cout << line << std::endl;
}

void pause(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Says whether two were inside at once. Both counts are needed: the plain counter loses an update
/// when two write it at once, the other one sees those that do not.
class Section {
 public:
  void pass() noexcept {
    if (inside_.fetch_add(1) != 0) {
      ++overlaps_;
    }
    unprotected_ = unprotected_ + 1;
    inside_.fetch_sub(1);
  }
  /// @param passed  how often pass() was called
  [[nodiscard]] std::uint64_t overlaps(std::uint64_t passed) const noexcept {
    return overlaps_ + passed - unprotected_;
  }

 private:
  std::atomic<int> inside_{0};
  std::atomic<std::uint64_t> overlaps_{0};
  volatile std::uint64_t unprotected_ = 0;
};

using Operation = std::function<void(std::size_t worker)>;

/// Threads that do the operation again and again.
std::string runThreads(
    Load& load, std::size_t threads, double warmUp, double seconds, const Operation& operation) {
  std::vector<std::thread> running;
  running.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i) {
    running.emplace_back([&load, &operation, i] {
      while (!load.ended()) {
        const std::int64_t began = now();
        operation(i);
        load.count(i, began);
      }
    });
  }
  return load.measure(warmUp, seconds, [&running] {
    for (std::thread& thread : running) {
      thread.join();
    }
  });
}

void pairs(Client& client, std::istream& words) {
  std::size_t threads = 0;
  double warmUp = 0;
  double seconds = 0;
  words >> threads >> warmUp >> seconds;
  std::vector<std::unique_ptr<Lock>> locks;
  for (std::size_t i = 0; i < threads; ++i) {
    locks.push_back(client.lock(fmt::format("peers:pairs:{}", i)));
  }
  Load load(threads);
  say("RESULT " + runThreads(load, threads, warmUp, seconds, [&](std::size_t i) {
        locks[i]->lock();
        locks[i]->unlock();
      }));
}

void chains(Client& client, std::istream& words) {
  std::size_t count = 0;
  double warmUp = 0;
  double seconds = 0;
  words >> count >> warmUp >> seconds;
  Load load(count);
  const std::function<void()> join = client.startChains(count, load);
  say("RESULT " + load.measure(warmUp, seconds, join));
}

void contend(Client& client, std::istream& words) {
  std::string name;
  std::size_t threads = 0;
  double warmUp = 0;
  double seconds = 0;
  words >> name >> threads >> warmUp >> seconds;
  const std::unique_ptr<Lock> lock = client.sharedLock(name);
  Section section;
  Load load(threads);
  const std::string result = runThreads(load, threads, warmUp, seconds, [&](std::size_t) {
    lock->lock();
    section.pass();
    lock->unlock();
  });
  say(fmt::format("RESULT {} {}", result, section.overlaps(load.total())));
}

/// One of two processes that hand a lock to each other: it holds the lock for 1.5 ms and stays away
/// for 0.5 ms. The driver makes the times of the hand-offs out of when each lock() began and
/// returned and each unlock() began.
void handOff(Client& client, std::istream& words) {
  std::string name;
  double seconds = 0;
  std::string file;
  words >> name >> seconds >> file;
  const std::unique_ptr<Lock> lock = client.sharedLock(name);
  std::ofstream holds(file);
  const std::int64_t end = now() + static_cast<std::int64_t>(seconds * 1e9);
  say("BEGIN");
  int count = 0;
  while (now() < end) {
    const std::int64_t called = now();
    lock->lock();
    const std::int64_t returned = now();
    std::this_thread::sleep_for(1500us);
    const std::int64_t unlocking = now();
    lock->unlock();
    holds << called << ' ' << returned << ' ' << unlocking << '\n';
    ++count;
    std::this_thread::sleep_for(500us);
  }
  holds.close();
  say("END");
  say(fmt::format("RESULT {}", count));
}

/// Threads that wait for a lock that somebody else holds; each takes it once.
void wait(Client& client, std::istream& words) {
  std::string name;
  std::size_t threads = 0;
  words >> name >> threads;
  const std::unique_ptr<Lock> lock = client.sharedLock(name);
  Section section;
  std::atomic<std::uint64_t> passed{0};
  std::atomic<std::int64_t> first{0};
  std::atomic<std::int64_t> last{0};
  std::vector<std::thread> running;
  running.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      lock->lock();
      std::int64_t none = 0;
      first.compare_exchange_strong(none, now());
      section.pass();
      ++passed;
      lock->unlock();
      last = now();
    });
  }
  say("BEGIN");
  for (std::thread& thread : running) {
    thread.join();
  }
  say(fmt::format(
      "RESULT {} {} {} {}", passed.load(), section.overlaps(passed), first.load(), last.load()));
}

/// Resident memory and time that the holds take.
void hold(Client& client, std::istream& words) {
  std::size_t locks = 0;
  words >> locks;
  const double before = residentBytes();
  const std::int64_t began = now();
  client.hold(locks);
  say(fmt::format("RESULT {:.0f} {:.3f}",
                  (residentBytes() - before) / static_cast<double>(locks),
                  static_cast<double>(now() - began) / 1e9));
}

void obey(Client& client, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  if (command == "pairs") {
    pairs(client, words);
  } else if (command == "async") {
    chains(client, words);
  } else if (command == "contend") {
    contend(client, words);
  } else if (command == "handoff") {
    handOff(client, words);
  } else if (command == "waiters") {
    wait(client, words);
  } else if (command == "hold") {
    hold(client, words);
  } else if (command == "free") {
    client.free();
    say("RESULT");
  } else {
    throw std::invalid_argument("no such command: " + command);
  }
}

}  // namespace

void Load::count(std::size_t worker, std::int64_t began) {
  Worker& mine = workers_[worker];
  if (measuring_.load(std::memory_order_relaxed)) {
    mine.latencies.add(now() - began);
  }
  mine.done.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t Load::total() const noexcept {
  std::uint64_t sum = 0;
  for (const Worker& worker : workers_) {
    sum += worker.done.load(std::memory_order_relaxed);
  }
  return sum;
}

std::string Load::measure(double warmUp, double seconds, const std::function<void()>& join) {
  pause(warmUp);
  say("BEGIN");
  measuring_ = true;
  const std::int64_t began = now();
  const std::uint64_t before = total();
  pause(seconds);
  const std::uint64_t operations = total() - before;
  const double took = static_cast<double>(now() - began) / 1e9;
  measuring_ = false;
  say("END");
  // The driver reads the processor times of all threads now.
  pause(0.06);
  ended_ = true;
  join();
  Samples all;
  for (const Worker& worker : workers_) {
    all.append(worker.latencies);
  }
  return fmt::format(
      "{} {:.6f} {:.1f} {:.1f}", operations, took, all.percentile(0.5), all.percentile(0.99));
}

int serve(int argc,
          char** argv,
          const std::function<std::unique_ptr<Client>(std::uint16_t port)>& connect) {
  if (argc < 2) {
    std::cerr << "usage: " << argv[0] << " PORT [first-lock]\n";
    return 2;
  }
  const std::unique_ptr<Client> client =
      connect(static_cast<std::uint16_t>(std::strtoul(argv[1], nullptr, 10)));
  if (argc > 2 && std::string_view(argv[2]) == "first-lock") {
    const std::unique_ptr<Lock> lock = client->lock("peers:first");
    lock->lock();
    say("LOCKED");
    lock->unlock();
    return 0;
  }
  say("READY");
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    try {
      obey(*client, line);
    } catch (const std::exception& error) {
      say(fmt::format("REFUSED {}", error.what()));
    }
  }
  return 0;
}

}  // namespace rlock::bench::peers
