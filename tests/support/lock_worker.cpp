// SPDX-License-Identifier: Apache-2.0

// A process that uses locks on command, so that tests can kill, stop and cut off a whole client.
// Reads one command a line, answers each with one line; `id UUID` comes first.
//
//   lock NAME [leaseMs]          ok | Errc
//   try NAME waitMs [leaseMs]    true | false | Errc
//   unlock NAME                  ok | Errc
//   count NAME                   number | Errc
//   acquire NAME [leaseMs]       ok | Errc; keeps a Lease
//   held                         yes | no REASON; what the Lease says without asking anybody
//   release                      released | stillHeld | lost | unknown
//   work NAME COUNTER JOURNAL TAG holdUs   started; lock, count, unlock until `stop`
//   stop                         done SECTIONS ERRORS
//   sleep ms                     ok
//   fork-exec SECONDS            PID of a `sleep` that this process started and does not wait for
//   exit

#include "support/unprotected_counter.hpp"
#include <rlock/rlock.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <sys/types.h>
#include <thread>
#include <unistd.h>

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

struct Work {
  std::atomic<bool> end{false};
  std::uint64_t sections = 0;
  std::uint64_t errors = 0;
  std::thread thread;
};

void run(Work& work,
         rlock::Client& client,
         const std::string& name,
         const std::string& counter,
         const std::string& journal,
         const std::string& tag,
         microseconds hold) {
  rlock::test::UnprotectedCounter number(counter);
  rlock::test::OverlapDetector sections(journal);
  rlock::RLock lock = client.getLock(name);
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
      if (verb == "lock") {
        words >> name;
        rlock::RLock lock = client_.getLock(name);
        const auto lease = number(words);
        lease ? lock.lock(milliseconds(*lease)) : lock.lock();
        answer("ok");
      } else if (verb == "try") {
        words >> name;
        rlock::RLock lock = client_.getLock(name);
        const auto wait = milliseconds(number(words).value_or(0));
        const auto lease = number(words);
        const bool got = lease ? lock.tryLock(wait, milliseconds(*lease)) : lock.tryLock(wait);
        answer(got ? "true" : "false");
      } else if (verb == "unlock") {
        words >> name;
        client_.getLock(name).unlock();
        answer("ok");
      } else if (verb == "count") {
        words >> name;
        answer(std::to_string(client_.getLock(name).getHoldCount()));
      } else if (verb == "acquire") {
        words >> name;
        rlock::AcquireOptions options;
        if (const auto lease = number(words)) {
          options.lease = milliseconds(*lease);
        }
        lease_ = client_.getLock(name).acquire(options);
        answer("ok");
      } else if (verb == "held") {
        answer(lease_.held() ? "yes" : "no " + std::string(rlock::toString(lease_.lossReason())));
      } else if (verb == "release") {
        answer(toText(lease_.release()));
      } else if (verb == "work") {
        std::string counter;
        std::string journal;
        std::string tag;
        words >> name >> counter >> journal >> tag;
        const auto hold = microseconds(number(words).value_or(0));
        stopWork();
        work_.emplace();
        work_->thread = std::thread([this, name, counter, journal, tag, hold] {
          run(*work_, client_, name, counter, journal, tag, hold);
        });
        answer("started");
      } else if (verb == "stop") {
        stopWork();
        answer("done " + std::to_string(work_ ? work_->sections : 0) + " " +
               std::to_string(work_ ? work_->errors : 0));
      } else if (verb == "sleep") {
        std::this_thread::sleep_for(milliseconds(number(words).value_or(0)));
        answer("ok");
      } else if (verb == "fork-exec") {
        const std::string seconds = std::to_string(number(words).value_or(1));
        const pid_t child = ::fork();
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
  void stopWork() {
    if (work_ && work_->thread.joinable()) {
      work_->end = true;
      work_->thread.join();
    }
  }

  rlock::Client client_;
  rlock::Lease lease_;
  std::optional<Work> work_;
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
