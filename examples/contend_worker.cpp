// SPDX-License-Identifier: Apache-2.0
#include "contend_worker.hpp"

#include "contend_journal.hpp"
#include <rlock/rlock.hpp>

#include <exception>
#include <iostream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

using namespace std::chrono_literals;

namespace contend {

namespace {

/// One write, so that lines of several processes do not mix.
void say(int worker, std::string_view text) {
  std::ostringstream line;
  line << "worker " << worker << ": " << text << '\n';
  std::cerr << line.str() << std::flush;
}

class Worker {
 public:
  explicit Worker(const WorkerOptions& options)
      : options_(options),
        journal_(options.directory),
        slot_(journal_.slot(options.number)),
        client_(connect(options)),
        lock_(client_.getLock(options.lockName)) {}

  void run() {
    slot_.phase = Phase::outside;
    while (!journal_.board().go) {
      std::this_thread::sleep_for(1ms);
    }
    std::minstd_rand random(static_cast<unsigned>(options_.number));
    while (!journal_.board().stop) {
      try {
        visit();
      } catch (const rlock::Error& error) {
        say(options_.number, error.what());  // Redis may be away: go on, it will come back
        std::this_thread::sleep_for(100ms);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
    }
  }

 private:
  static rlock::Client connect(const WorkerOptions& options) {
    auto settings = rlock::Options::fromUri(options.uri);
    settings.watchdogTimeout = options.lease;
    settings.clientName = "contend-" + std::to_string(options.number);
    settings.log = [number = options.number](rlock::LogLevel level, std::string_view text) {
      if (level >= rlock::LogLevel::warning) {
        say(number, text);
      }
    };
    return rlock::Client::connect(settings);
  }

  /// One increment of the counter.
  void visit() {
    Entry entry;
    entry.askedAt = now();
    std::optional<rlock::Lease> lease;
    while (options_.useLock && !lease) {
      if (journal_.board().stop) {
        return;
      }
      lease = lock_.tryAcquire({.wait = 1s});
    }
    entry.enteredAt = now();

    entry.value = journal_.readCounter();
    slot_.value = entry.value;
    slot_.enteredAt = entry.enteredAt;
    slot_.phase = Phase::inside;

    std::this_thread::sleep_for(200us);  // the work that the increment takes

    // After a pause the lock may be somebody else's by now; then the write must not happen.
    if (!lease || lease->held()) {
      journal_.writeCounter(entry.value + 1);
      entry.wrote = 1;
    }
    slot_.phase = Phase::outside;
    slot_.completed.fetch_add(entry.wrote);
    entry.releasedAt = now();
    journal_.append(options_.number, entry);
    if (lease && lease->release() == rlock::ReleaseResult::lost) {
      say(options_.number, "the hold had been lost before it was given back");
    }
  }

  const WorkerOptions options_;
  Journal journal_;
  Slot& slot_;
  rlock::Client client_;
  rlock::RLock lock_;
};

}  // namespace

int runWorker(const WorkerOptions& options) {
  try {
    Worker(options).run();
    return 0;
  } catch (const std::exception& error) {
    say(options.number, error.what());
    return 1;
  }
}

}  // namespace contend
