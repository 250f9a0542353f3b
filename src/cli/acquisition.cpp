// SPDX-License-Identifier: Apache-2.0

// How an Acquisition connects and acquires. The functions at the top and the one in the constructor
// run on its thread: they make a client for each server, say in `connected` that the first can be
// asked, and take the permit or the lock. The result, or whatever was thrown, is in the promise
// before the event is set: result() does not wait for a server once descriptor() is readable.
#include "cli/acquisition.hpp"

#include "cli/connection.hpp"
#include "cli/loss_plan.hpp"
#include "cli/settings.hpp"
#include <rlock/multi_lock.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace rlock::cli {

namespace {

std::string ownerField(const Client& client, const Lease& lease) {
  return fmt::format("{}:{}", client.id(), lease.owner().value);
}

AcquireOptions acquireOptions(const LockChoice& choice,
                              const std::string& label,
                              std::stop_token stop) {
  AcquireOptions options;
  options.wait = choice.wait.value_or(Duration::max());
  options.maxHold = choice.maxHold;
  options.stop = std::move(stop);
  options.label = label;
  return options;
}

RLock lockOf(Client& client, const LockChoice& choice, const std::string& name) {
  if (choice.fair) {
    return client.getFairLock(name);
  }
  if (choice.read) {
    return client.getReadWriteLock(name).readLock();
  }
  if (choice.write) {
    return client.getReadWriteLock(name).writeLock();
  }
  if (choice.fenced) {
    return client.getFencedLock(name);
  }
  return client.getLock(name);
}

bool takePermit(Held& held, const LockChoice& choice, AcquireOptions options) {
  auto semaphore = held.clients.front()->getPermitExpirableSemaphore(choice.name);
  if (!semaphore.trySetPermits(choice.semaphore)) {
    const int present = semaphore.getPermits();
    if (present != choice.semaphore) {
      throw SettingsError(fmt::format(
          "semaphore \"{}\" has {} permits, not {}: all who use it must say the same --semaphore",
          choice.name,
          present,
          choice.semaphore));
    }
  }
  auto permit = semaphore.tryHold(std::move(options));
  if (!permit) {
    return false;
  }
  held.permitId = permit->id();
  held.owner = permit->id();
  held.lease = std::move(*permit);
  return true;
}

bool takeLock(Held& held, const LockChoice& choice, AcquireOptions options) {
  std::vector<RLock> members;
  for (const auto& client : held.clients) {
    members.push_back(lockOf(*client, choice, choice.name));
  }
  for (const std::string& name : choice.also) {
    members.push_back(lockOf(*held.clients.front(), choice, name));
  }
  RLock lock = !choice.red.empty()    ? redLock(members)
               : !choice.also.empty() ? multiLock(members)
                                      : members.front();
  auto lease = lock.tryAcquire(std::move(options));
  if (!lease) {
    return false;
  }
  held.lease = std::move(*lease);
  held.owner = ownerField(*held.clients.front(), held.lease);
  return true;
}

// A hold is valid from its request. When the reply to that took long there is little left until the
// renewal, which is due by then: a command that began before it would be told to end at once.
void awaitRenewal(const Held& held, const Arguments& arguments, const std::stop_token& stop) {
  if (arguments.lock.maxHold && arguments.lock.maxHold->ceilMilliseconds() <= held.span) {
    return;  // there is none
  }
  constexpr std::chrono::milliseconds kBetweenLooks(5);
  const std::stop_token lost = held.lease.lostToken();
  for (;;) {
    const auto now = std::chrono::steady_clock::now();
    const auto validUntil = held.lease.validUntil();
    const LossPlan plan = planLoss(validUntil, held.span, arguments.command.killAfter);
    if (now < plan.terminateAt || now >= validUntil || lost.stop_requested() ||
        stop.stop_requested()) {
      return;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

Event::Event() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!descriptor_) {
    throw std::system_error(errno, std::generic_category(), "eventfd");
  }
}

void Event::set() const noexcept {
  ::eventfd_t one = 1;
  if (::write(descriptor_.get(), &one, sizeof one) < 0) {
    // It is set already.
  }
}

Acquisition::Acquisition(const Arguments& arguments, std::string label)
    : done_(std::make_shared<Event>()), shared_(std::make_shared<Shared>()) {
  std::promise<std::optional<Held>> promise;
  future_ = promise.get_future();
  const auto began = std::chrono::steady_clock::now();
  thread_ = std::thread([&arguments,
                         began,
                         label = std::move(label),
                         done = done_,
                         shared = shared_,
                         stop = stop_.get_token(),
                         promise = std::move(promise)]() mutable {
    try {
      const LockChoice& choice = arguments.lock;
      Held held;
      const std::vector<std::string> uris =
          choice.red.empty() ? std::vector<std::string>{arguments.uri} : choice.red;
      held.span = std::chrono::milliseconds::max();
      for (const std::string& uri : uris) {
        Options options = clientOptions(arguments, uri);
        if (!choice.red.empty()) {
          // A minority of the servers may be away.
          options.connect = ConnectMode::lazy;
        }
        held.span = std::min(held.span, options.watchdogTimeout);
        held.clients.push_back(std::make_shared<Client>(Client::connect(options)));
      }
      if (choice.maxHold) {
        held.span = std::min(held.span, choice.maxHold->ceilMilliseconds());
      }
      shared->first = held.clients.front();
      shared->connected.store(true);
      AcquireOptions options = acquireOptions(choice, label, stop);
      if (!options.wait->isInfinite() && options.wait->isPositive()) {
        // Connecting has taken some of the time.
        options.wait = std::max<std::chrono::nanoseconds>(
            options.wait->nanoseconds() - (std::chrono::steady_clock::now() - began),
            std::chrono::nanoseconds(0));
      }
      const bool got = choice.semaphore > 0 ? takePermit(held, choice, std::move(options))
                                            : takeLock(held, choice, std::move(options));
      if (got) {
        awaitRenewal(held, arguments, stop);
        promise.set_value(std::move(held));
      } else {
        promise.set_value(std::nullopt);
      }
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
    done->set();
  });
}

Acquisition::~Acquisition() {
  stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::optional<Held> Acquisition::result() {
  std::optional<Held> held = future_.get();
  thread_.join();
  return held;
}

}  // namespace rlock::cli
