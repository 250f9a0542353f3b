// SPDX-License-Identifier: Apache-2.0

// rlock's side of the interoperability tests: the same commands as
// java/src/rlock/interop/Peer.java. README.md has the protocol.

#include "support/unprotected_counter.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class Command {
 public:
  explicit Command(const std::string& line) : words_(line) {
    words_ >> id >> verb >> client >> owner >> kind >> name;
  }

  std::int64_t id = 0;
  std::string verb;
  std::string client;
  std::string owner;
  std::string kind;
  std::string name;

  std::string text() {
    std::string word;
    if (!(words_ >> word)) {
      throw std::invalid_argument(verb + " lacks an argument");
    }
    return word;
  }
  std::int64_t number() { return std::stoll(text()); }
  int count() { return std::stoi(text()); }
  milliseconds duration() { return milliseconds(number()); }
  /// Zero or less: none.
  std::optional<rlock::Duration> lease() {
    const milliseconds given = duration();
    return given.count() > 0 ? std::optional<rlock::Duration>(given) : std::nullopt;
  }

 private:
  std::istringstream words_;
};

/// The answer of a call with a short wait. One that comes too late is none: rlock gives back what
/// came with it.
template <class Call>
auto inTime(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const rlock::Error& error) {
    if (error.errc() != rlock::Errc::timedOut) {
      throw;
    }
    return {};
  }
}

/// A value of JSON, written.
template <std::integral T>
std::string json(T value) {
  if constexpr (std::same_as<T, bool>) {
    return value ? "true" : "false";
  } else {
    return std::to_string(value);
  }
}
std::string json(const std::string& text) {
  std::string quoted = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') {
      quoted += '\\';
    }
    const bool control = static_cast<unsigned char>(character) < ' ';
    quoted += control ? ' ' : character;
  }
  return quoted + '"';
}
std::string jsonNull() {
  return "null";
}

std::int64_t nowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void say(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard guard(mutex);
  std::cout << line << std::endl;
}

/// The holds that a client was told to be lost.
class LostHolds {
 public:
  void add(const rlock::LostHold& lost) {
    {
      const std::lock_guard guard(mutex_);
      reasons_[lost.name + '\n' + lost.owner] = rlock::toString(lost.reason);
    }
    added_.notify_all();
  }
  std::string waitFor(const std::string& name, const std::string& owner, milliseconds limit) {
    std::unique_lock guard(mutex_);
    const std::string key = name + '\n' + owner;
    added_.wait_for(guard, limit, [&] { return reasons_.contains(key); });
    return reasons_.contains(key) ? reasons_[key] : "none";
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::map<std::string, std::string> reasons_;
};

struct OpenClient {
  std::shared_ptr<LostHolds> lost = std::make_shared<LostHolds>();
  std::optional<rlock::Client> client;

  /// The lease that `hold` took in the name of this owner; only that owner may use it.
  rlock::Lease& leaseOf(const std::string& owner, const std::string& name) {
    const std::lock_guard guard(mutex_);
    return leases_[owner + ' ' + name];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, rlock::Lease> leases_;
};

/// `hammer TIMES COUNTER JOURNAL TAG HOLD_US`: sections around what only the lock protects.
template <class Acquire, class Release>
std::string hammer(Command& command, bool shared, Acquire acquire, Release release) {
  const int times = command.count();
  rlock::test::UnprotectedCounter counter(command.text());
  rlock::test::OverlapDetector journal(command.text());
  const std::string tag = command.text();
  const microseconds hold(command.number());
  for (int i = 0; i < times; ++i) {
    acquire();
    if (shared) {
      journal.enterShared(tag);
      std::this_thread::sleep_for(hold);
    } else {
      journal.enter(tag);
      counter.increment(hold);
    }
    journal.leave(tag);
    release();
  }
  return json(times);
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

/// The verbs of every kind of object, in the calling thread.
class Objects {
 public:
  explicit Objects(OpenClient& open) : open_(open), client_(*open.client) {}

  std::string perform(Command& command) {
    if (command.kind == "semaphore") {
      return semaphore(client_.getSemaphore(command.name), command);
    }
    if (command.kind == "latch") {
      return latch(client_.getCountDownLatch(command.name), command);
    }
    if (command.kind == "permits") {
      return permits(client_.getPermitExpirableSemaphore(command.name), command);
    }
    if (command.kind == "fenced") {
      return fenced(client_.getFencedLock(command.name), command);
    }
    return lock(lockOf(command.kind, command.name), command);
  }

 private:
  rlock::RLock lockOf(const std::string& kind, const std::string& name) {
    if (kind == "plain") {
      return client_.getLock(name);
    }
    if (kind == "fair") {
      return client_.getFairLock(name);
    }
    if (kind == "nonreentrant") {
      return client_.getNonReentrantLock(name);
    }
    if (kind == "nonreentrantfair") {
      return client_.getNonReentrantFairLock(name);
    }
    if (kind == "spin") {
      return client_.getSpinLock(name);
    }
    if (kind == "read") {
      return client_.getReadWriteLock(name).readLock();
    }
    if (kind == "write") {
      return client_.getReadWriteLock(name).writeLock();
    }
    if (kind == "multi") {
      return rlock::multiLock(members(name));
    }
    if (kind == "red") {
      return rlock::redLock(members(name));
    }
    throw std::invalid_argument("no kind " + kind);
  }

  std::vector<rlock::RLock> members(const std::string& names) {
    std::vector<rlock::RLock> locks;
    std::istringstream each(names);
    for (std::string name; std::getline(each, name, ',');) {
      locks.push_back(client_.getLock(name));
    }
    return locks;
  }

  std::string lock(rlock::RLock lock, Command& command) {
    const std::string& verb = command.verb;
    if (verb == "lock") {
      const auto lease = command.lease();
      lease ? lock.lock(*lease) : lock.lock();
      return json(true);
    }
    if (verb == "tryLock") {
      const milliseconds wait = command.duration();
      const auto lease = command.lease();
      return json(lease ? lock.tryLock(wait, *lease) : lock.tryLock(wait));
    }
    if (verb == "unlock") {
      lock.unlock();
      return json(true);
    }
    if (verb == "forceUnlock") {
      return json(lock.forceUnlock());
    }
    if (verb == "holdCount") {
      return json(lock.getHoldCount());
    }
    if (verb == "isHeld") {
      return json(lock.isHeldByCurrentThread());
    }
    if (verb == "isLocked") {
      return json(lock.isLocked());
    }
    if (verb == "ttl") {
      const auto left = lock.remainTimeToLive();
      if (!left) {
        return json(-2);
      }
      return json(*left == milliseconds::max() ? -1 : left->count());
    }
    if (verb == "hold") {
      rlock::AcquireOptions options;
      options.lease = command.lease();
      leaseOf(command) = lock.acquire(options, rlock::currentOwner());
      return json(true);
    }
    if (verb == "held") {
      const rlock::Lease& lease = leaseOf(command);
      const bool stopped = lease.lostToken().stop_requested();
      return json(lease.held() && !stopped
                      ? std::string("held")
                      : "lost: " + std::string(rlock::toString(lease.lossReason())));
    }
    if (verb == "letGo") {
      return json(std::string(toText(leaseOf(command).release())));
    }
    if (verb == "lost") {
      return json(open_.lost->waitFor(command.name, ownerField(), command.duration()));
    }
    if (verb == "hammer") {
      return hammer(
          command, command.kind == "read", [&] { lock.lock(); }, [&] { lock.unlock(); });
    }
    throw unknown(command);
  }

  std::string fenced(rlock::FencedLock fenced, Command& command) {
    if (command.verb == "lockToken") {
      return json(fenced.lockAndGetToken());
    }
    if (command.verb == "tryLockToken") {
      const milliseconds wait = command.duration();
      const auto lease = command.lease();
      const auto token =
          lease ? fenced.tryLockAndGetToken(wait, *lease) : fenced.tryLockAndGetToken(wait);
      return token ? json(*token) : jsonNull();
    }
    if (command.verb == "token") {
      return json(fenced.getToken());
    }
    return lock(fenced, command);
  }

  std::string semaphore(rlock::Semaphore semaphore, Command& command) {
    const std::string& verb = command.verb;
    if (verb == "acquire") {
      semaphore.acquire(command.count());
      return json(true);
    }
    if (verb == "tryAcquire") {
      const int permits = command.count();
      return json(semaphore.tryAcquire(permits, command.duration()));
    }
    if (verb == "release") {
      semaphore.release(command.count());
      return json(true);
    }
    if (verb == "releaseIfExists") {
      return json(semaphore.releaseIfExists(command.count()));
    }
    if (verb == "available") {
      return json(semaphore.availablePermits());
    }
    if (verb == "drain") {
      return json(semaphore.drainPermits());
    }
    if (verb == "add") {
      semaphore.addPermits(command.count());
      return json(true);
    }
    if (verb == "trySet") {
      return json(semaphore.trySetPermits(command.count()));
    }
    if (verb == "remove") {
      return json(semaphore.remove());
    }
    if (verb == "hammer") {
      return hammer(
          command, false, [&] { semaphore.acquire(); }, [&] { semaphore.release(); });
    }
    if (verb == "churn") {
      const int operations = command.count();
      std::mt19937 random(static_cast<unsigned>(command.number()));
      int held = 0;
      int grants = 0;
      for (int i = 0; i < operations; ++i) {
        const int permits = 1 + static_cast<int>(random() % 2);
        if (held >= permits && random() % 2 == 0) {
          semaphore.release(permits);
          held -= permits;
        } else if (random() % 16 == 0) {
          held += semaphore.drainPermits();
        } else if (inTime(
                       [&] { return semaphore.tryAcquire(permits, milliseconds(random() % 3)); })) {
          held += permits;
          ++grants;
          std::this_thread::sleep_for(milliseconds(random() % 3));
        }
      }
      if (held > 0) {
        semaphore.release(held);
      }
      return json(grants);
    }
    throw unknown(command);
  }

  std::string latch(rlock::CountDownLatch latch, Command& command) {
    const std::string& verb = command.verb;
    if (verb == "trySet") {
      return json(latch.trySetCount(command.number()));
    }
    if (verb == "countDown") {
      latch.countDown();
      return json(true);
    }
    if (verb == "count") {
      return json(latch.getCount());
    }
    if (verb == "await") {
      const milliseconds wait = command.duration();
      if (wait.count() < 0) {
        latch.await();
        return json(true);
      }
      return json(latch.await(wait));
    }
    if (verb == "remove") {
      return json(latch.remove());
    }
    if (verb == "churn") {
      const int times = command.count();
      std::mt19937 random(static_cast<unsigned>(command.number()));
      for (int i = 0; i < times; ++i) {
        while (random() % 2 == 0) {
          if (random() % 2 == 0 ? latch.trySetCount(7)
                                : inTime([&] { return latch.await(milliseconds(random() % 3)); })) {
            throw std::runtime_error("a latch that is not open was set, or let through");
          }
        }
        latch.countDown();
      }
      return json(times);
    }
    throw unknown(command);
  }

  std::string permits(rlock::PermitExpirableSemaphore permits, Command& command) {
    const std::string& verb = command.verb;
    if (verb == "acquire") {
      const auto lease = command.lease();
      return json(lease ? permits.acquire(*lease) : permits.acquire());
    }
    if (verb == "tryAcquire") {
      const milliseconds wait = command.duration();
      const auto lease = command.lease();
      const auto id = lease ? permits.tryAcquire(wait, *lease) : permits.tryAcquire(wait);
      return id ? json(*id) : jsonNull();
    }
    if (verb == "release") {
      permits.release(command.text());
      return json(true);
    }
    if (verb == "tryRelease") {
      return json(permits.tryRelease(command.text()));
    }
    if (verb == "available") {
      return json(permits.availablePermits());
    }
    if (verb == "total") {
      return json(permits.getPermits());
    }
    if (verb == "acquired") {
      return json(permits.acquiredPermits());
    }
    if (verb == "trySet") {
      return json(permits.trySetPermits(command.count()));
    }
    if (verb == "set") {
      permits.setPermits(command.count());
      return json(true);
    }
    if (verb == "add") {
      permits.addPermits(command.count());
      return json(true);
    }
    if (verb == "updateLease") {
      const std::string id = command.text();
      return json(permits.updateLeaseTime(id, command.lease()));
    }
    if (verb == "leaseTime") {
      const auto left = permits.getLeaseTime(command.text());
      return json(left ? left->count() : -1);
    }
    if (verb == "remove") {
      return json(permits.remove());
    }
    if (verb == "hammer") {
      std::string id;
      return hammer(
          command, false, [&] { id = permits.acquire(); }, [&] { permits.release(id); });
    }
    if (verb == "churn") {
      const int operations = command.count();
      std::mt19937 random(static_cast<unsigned>(command.number()));
      std::vector<std::string> held;
      int grants = 0;
      for (int i = 0; i < operations; ++i) {
        if (!held.empty() && random() % 2 == 0) {
          const auto each = held.begin() + static_cast<std::ptrdiff_t>(random() % held.size());
          if (random() % 4 == 0 && !permits.updateLeaseTime(*each, milliseconds(90'000))) {
            throw std::runtime_error("a permit that is held has no lease time");
          }
          permits.release(*each);
          if (random() % 4 == 0 && permits.tryRelease(*each)) {
            throw std::runtime_error("a permit was released twice");
          }
          held.erase(each);
        } else if (auto id = inTime([&] {
                     return permits.tryAcquire(milliseconds(random() % 3), milliseconds(60'000));
                   })) {
          held.push_back(*std::move(id));
          ++grants;
          std::this_thread::sleep_for(milliseconds(random() % 3));
        }
      }
      for (const std::string& id : held) {
        permits.release(id);
      }
      return json(grants);
    }
    throw unknown(command);
  }

  std::string ownerField() const {
    return client_.id() + ":" + std::to_string(rlock::currentOwner().value);
  }
  rlock::Lease& leaseOf(const Command& command) {
    return open_.leaseOf(command.owner, command.name);
  }
  static std::invalid_argument unknown(const Command& command) {
    return std::invalid_argument("no " + command.verb + " of kind " + command.kind);
  }

  OpenClient& open_;
  rlock::Client& client_;
};

/// One thread that does what it is told in order.
class Owner {
 public:
  Owner() : thread_([this] { run(); }) { thread_.detach(); }

  void execute(std::function<void()> task) {
    {
      const std::lock_guard guard(mutex_);
      tasks_.push_back(std::move(task));
    }
    added_.notify_one();
  }

 private:
  [[noreturn]] void run() {
    while (true) {
      std::unique_lock guard(mutex_);
      added_.wait(guard, [this] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      guard.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

class Driver {
 public:
  void obey(const std::shared_ptr<Command>& command) {
    auto& owner = owners_[command->owner];
    if (!owner) {
      owner = std::make_unique<Owner>();
    }
    owner->execute([this, command] { answer(*command); });
  }

 private:
  void answer(Command& command) {
    const std::int64_t begin = nowNs();
    std::string outcome;
    std::int64_t end = 0;
    const auto failed = [&](std::string_view name, const char* what) {
      end = nowNs();
      outcome = "\"error\":" + json(std::string(name)) + ",\"message\":" + json(std::string(what));
    };
    try {
      const std::string value = perform(command);
      end = nowNs();
      outcome = "\"value\":" + value;
    } catch (const rlock::Error& error) {
      failed(rlock::toString(error.errc()), error.what());
    } catch (const std::exception& failure) {
      failed("exception", failure.what());
    }
    say("{\"id\":" + json(command.id) + ",\"begin\":" + json(begin) + ",\"end\":" + json(end) +
        "," + outcome + "}");
  }

  std::string perform(Command& command) {
    if (command.verb == "open") {
      return open(command);
    }
    OpenClient& client = clientOf(command);
    if (command.verb == "close") {
      client.client->close(milliseconds(2000));
      return json(true);
    }
    if (command.verb == "owner") {
      return json(client.client->id() + ":" + std::to_string(rlock::currentOwner().value));
    }
    return Objects(client).perform(command);
  }

  std::string open(Command& command) {
    rlock::Options options = rlock::Options::fromUri(command.name);
    options.watchdogTimeout = command.duration();
    options.safetyPoll = command.duration();
    if (const milliseconds fair = command.duration(); fair.count() > 0) {
      options.fairWaiterLease = fair;
    }
    if (const milliseconds timeout = command.duration(); timeout.count() > 0) {
      options.commandTimeout = timeout;
    }
    auto opened = std::make_unique<OpenClient>();
    options.onLost = [lost = opened->lost](const rlock::LostHold& hold) { lost->add(hold); };
    // Losses are what many of the tests are about.
    options.log = [](rlock::LogLevel, std::string_view) {};
    opened->client.emplace(rlock::Client::connect(options));
    const std::string id = opened->client->id();
    const std::lock_guard guard(mutex_);
    clients_[command.client] = std::move(opened);
    return json(id);
  }

  OpenClient& clientOf(const Command& command) {
    const std::lock_guard guard(mutex_);
    const auto found = clients_.find(command.client);
    if (found == clients_.end()) {
      throw std::invalid_argument("no client " + command.client);
    }
    return *found->second;
  }

  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<OpenClient>> clients_;
  std::map<std::string, std::unique_ptr<Owner>> owners_;
};

}  // namespace

int main() {
  say("{\"id\":0,\"value\":" + json("rlock " RLOCK_VERSION_STRING) + "}");
  // Neither is ever destroyed: owners may still be waiting when the process ends.
  auto* driver = new Driver;
  std::string line;
  while (std::getline(std::cin, line)) {
    auto command = std::make_shared<Command>(line);
    if (command->verb == "exit") {
      break;
    }
    driver->obey(command);
  }
  std::cout.flush();
  std::_Exit(0);
}
