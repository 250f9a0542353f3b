// SPDX-License-Identifier: Apache-2.0

// A process that uses locks on command, so that tests can kill, stop and cut off a whole client.
// Reads one command a line, answers each with one line; `id UUID` comes first.
//
//   kind plain|fair              ok; what the names of the following commands mean, plain at first
//   lock NAME [leaseMs]          ok | Errc
//   try NAME waitMs [leaseMs]    true | false | Errc
//   unlock NAME                  ok | Errc
//   count NAME                   number | Errc
//   fenced NAME [leaseMs]        token | Errc; takes a fenced lock
//   write PORT VALUE             written | refused; with the last token, at the resource of the
//                                server there, without asking anybody whether it holds a lock
//   acquire NAME [leaseMs]       ok | Errc; keeps a Lease
//   held                         yes | no REASON; what the Lease says without asking anybody
//   release                      released | stillHeld | lost | unknown
//   permit NAME waitMs [leaseMs] id | none | Errc
//   work NAME COUNTER JOURNAL TAG holdUs   started; lock, count, unlock until `stop`
//   stop                         done SECTIONS ERRORS
//   await NAME THREADS           waiting; that many threads wait for the latch
//   opened                       opened THREADS | Errc, when all of them are through
//   sleep ms                     ok
//   fork-exec SECONDS            PID of a `sleep` that this process started and does not wait for
//   fork SECONDS                 PID of a child that only sleeps
//   exit
//
// NAME is a plain lock; read:NAME and write:NAME are the sides of a read-write lock.

#include "support/fenced_resource.hpp"
#include "support/unprotected_counter.hpp"
#include <rlock/rlock.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <iostream>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <sys/types.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

void answer(const std::string& line) {
  std::cout << line << std::endl;
}

const char* toText(rlock::ReleaseResult result) {
  switch (result) {
    case rlock::ReleaseResult::released:
      return "released";
    case rlock::ReleaseResult::stillHeld:
      return "stillHeld";
    case rlock::ReleaseResult::lost:
      return "lost";
    case rlock::ReleaseResult::unknown:
      return "unknown";
  }
  return "?";
}

rlock::RLock lockNamed(rlock::Client& client, const std::string& name) {
  if (name.starts_with("read:")) {
    return client.getReadWriteLock(name.substr(5)).readLock();
  }
  if (name.starts_with("write:")) {
    return client.getReadWriteLock(name.substr(6)).writeLock();
  }
  return client.getLock(name);
}

struct Work {
  std::atomic<bool> end{false};
  std::uint64_t sections = 0;
  std::uint64_t errors = 0;
  std::thread thread;
};

void run(Work& work,
         rlock::RLock lock,
         const std::string& counter,
         const std::string& journal,
         const std::string& tag,
         microseconds hold) {
  rlock::test::UnprotectedCounter number(counter);
  rlock::test::OverlapDetector sections(journal);
  while (!work.end.load()) {
    try {
      std::optional<rlock::Lease> lease = lock.tryAcquire({.wait = milliseconds(500)});
      if (!lease) {
        continue;
      }
      sections.enter(tag);
      number.increment(hold);
      sections.leave(tag);
      ++work.sections;
      if (lease->release() != rlock::ReleaseResult::released) {
        ++work.errors;
      }
    } catch (const rlock::Error&) {
      ++work.errors;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
}

class Session {
 public:
  explicit Session(const std::string& uri) : client_(rlock::Client::connect(uri)) {
    answer("id " + client_.id());
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { stopWork(); }

  /// False when the program is to end.
  bool obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    std::string name;
    words >> verb;
    if (verb == "exit" || verb.empty()) {
      return false;
    }
    try {
      if (verb == "kind") {
        std::string kind;
        words >> kind;
        fair_ = kind == "fair";
        answer("ok");
      } else if (verb == "lock") {
        words >> name;
        rlock::RLock mine = lock(name);
        const auto lease = number(words);
        lease ? mine.lock(milliseconds(*lease)) : mine.lock();
        answer("ok");
      } else if (verb == "try") {
        words >> name;
        rlock::RLock mine = lock(name);
        const auto wait = milliseconds(number(words).value_or(0));
        const auto lease = number(words);
        const bool got = lease ? mine.tryLock(wait, milliseconds(*lease)) : mine.tryLock(wait);
        answer(got ? "true" : "false");
      } else if (verb == "unlock") {
        words >> name;
        lock(name).unlock();
        answer("ok");
      } else if (verb == "count") {
        words >> name;
        answer(std::to_string(lock(name).getHoldCount()));
      } else if (verb == "fenced") {
        words >> name;
        rlock::FencedLock fenced = client_.getFencedLock(name);
        const auto lease = number(words);
        token_ = lease ? fenced.lockAndGetToken(milliseconds(*lease)) : fenced.lockAndGetToken();
        answer(std::to_string(token_));
      } else if (verb == "write") {
        const auto port = static_cast<std::uint16_t>(number(words).value_or(0));
        words >> name;
        if (!resource_) {
          resource_.emplace(port);
        }
        answer(resource_->write(token_, name) ? "written" : "refused");
      } else if (verb == "acquire") {
        words >> name;
        rlock::AcquireOptions options;
        if (const auto lease = number(words)) {
          options.lease = milliseconds(*lease);
        }
        lease_ = lock(name).acquire(options);
        answer("ok");
      } else if (verb == "held") {
        answer(lease_.held() ? "yes" : "no " + std::string(rlock::toString(lease_.lossReason())));
      } else if (verb == "release") {
        answer(toText(lease_.release()));
      } else if (verb == "permit") {
        words >> name;
        auto semaphore = client_.getPermitExpirableSemaphore(name);
        const auto wait = milliseconds(number(words).value_or(0));
        const auto lease = number(words);
        const auto id =
            lease ? semaphore.tryAcquire(wait, milliseconds(*lease)) : semaphore.tryAcquire(wait);
        answer(id.value_or("none"));
      } else if (verb == "work") {
        std::string counter;
        std::string journal;
        std::string tag;
        words >> name >> counter >> journal >> tag;
        const auto hold = microseconds(number(words).value_or(0));
        stopWork();
        work_.emplace();
        work_->thread = std::thread([this, name, counter, journal, tag, hold] {
          run(*work_, lock(name), counter, journal, tag, hold);
        });
        answer("started");
      } else if (verb == "stop") {
        stopWork();
        answer("done " + std::to_string(work_ ? work_->sections : 0) + " " +
               std::to_string(work_ ? work_->errors : 0));
      } else if (verb == "await") {
        words >> name;
        for (auto threads = number(words).value_or(1); threads > 0; --threads) {
          latchWaits_.push_back(
              std::async(std::launch::async,
                         [latch = client_.getCountDownLatch(name)]() mutable { latch.await(); }));
        }
        answer("waiting");
      } else if (verb == "opened") {
        const std::size_t count = latchWaits_.size();
        for (std::future<void>& wait : std::exchange(latchWaits_, {})) {
          wait.get();
        }
        answer("opened " + std::to_string(count));
      } else if (verb == "sleep") {
        std::this_thread::sleep_for(milliseconds(number(words).value_or(0)));
        answer("ok");
      } else if (verb == "fork-exec" || verb == "fork") {
        const std::int64_t time = number(words).value_or(1);
        const std::string seconds = std::to_string(time);
        const pid_t child = ::fork();
        if (child == 0 && verb == "fork") {
          ::sleep(static_cast<unsigned>(time));
          ::_exit(0);
        }
        if (child == 0) {
          ::execlp("sleep", "sleep", seconds.c_str(), static_cast<char*>(nullptr));
          ::_exit(127);
        }
        answer(std::to_string(child));
      } else {
        answer("unknown command");
      }
    } catch (const rlock::Error& error) {
      answer(std::string(rlock::toString(error.errc())));
    }
    return true;
  }

 private:
  static std::optional<std::int64_t> number(std::istringstream& words) {
    std::int64_t value = 0;
    if (words >> value) {
      return value;
    }
    return std::nullopt;
  }
  rlock::RLock lock(const std::string& name) {
    return fair_ ? client_.getFairLock(name) : lockNamed(client_, name);
  }
  void stopWork() {
    if (work_ && work_->thread.joinable()) {
      work_->end = true;
      work_->thread.join();
    }
  }

  rlock::Client client_;
  bool fair_ = false;
  rlock::Lease lease_;
  std::uint64_t token_ = 0;
  std::optional<rlock::test::FencedResource> resource_;
  std::optional<Work> work_;
  std::vector<std::future<void>> latchWaits_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: rlock_lock_worker URI\n";
    return 2;
  }
  try {
    Session session(argv[1]);
    std::string line;
    while (std::getline(std::cin, line) && session.obey(line)) {
    }
    return 0;
  } catch (const std::exception& failure) {
    std::cerr << "rlock_lock_worker: " << failure.what() << "\n";
    return 1;
  }
}
