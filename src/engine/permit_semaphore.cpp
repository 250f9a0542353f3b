// SPDX-License-Identifier: Apache-2.0
#include "engine/permit_semaphore.hpp"

#include "engine/scripted_lock.hpp"
#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/executor/reply_number.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <type_traits>

namespace rlock::detail {

namespace {

/// How long an object that holds a permit without expiry counts on it.
constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365);

Result<bool> isOne(std::int64_t number) {
  return number == 1;
}

Result<int> toInt(std::int64_t number) {
  return saturated(number);
}

void composeCount(Call& call, const PermitScripts& scripts) {
  scripts.composeCount(call);
}

struct Counts {
  std::int64_t available;
  std::int64_t acquired;
  bool exists;
};

/// Reads a count. `pick` says which one is asked for.
template <class Pick>
auto countsOf(Pick pick) {
  return [pick](const Reply& reply) -> std::optional<std::int64_t> {
    const auto& elements = reply.elements;
    if (!reply.isArray() || elements.size() != 3 ||
        !std::all_of(elements.begin(), elements.end(), [](const Reply& element) {
          return element.isInteger();
        })) {
      return std::nullopt;
    }
    return pick(Counts{elements[0].integer, elements[1].integer, elements[2].integer == 1});
  };
}

std::optional<Error> negative(int permits) {
  if (permits >= 0) {
    return std::nullopt;
  }
  return Error(Errc::invalidArgument, fmt::format("{} permits are less than none", permits));
}

Error tooMany(std::size_t permits) {
  return Error(Errc::invalidArgument,
               fmt::format("{} permits are more than {} at once", permits, PermitSemaphore::kMost));
}

Error malformedId() {
  return Error(Errc::invalidArgument, "a permit's id is 32 hexadecimal digits");
}

Error notTaken() {
  return Error(Errc::notOwner,
               "no such permit is taken: it was released, has expired, or never was");
}

}  // namespace

PermitSemaphore::Acquisition PermitSemaphore::acquisition(int permits,
                                                          bool kept,
                                                          AcquireParams params) const {
  Acquisition result;
  params.owner = newOwner();
  params.wantsHandle = kept;
  result.refusal = negative(permits);
  if (permits > kMost) {
    result.refusal = tooMany(static_cast<std::size_t>(permits));
  }
  result.nothing = permits == 0;
  if (!result.refusal && !result.nothing) {
    result.scripts = std::make_shared<const PermitScripts>(
        *scripts_, permits, kept ? HoldKind::permit : HoldKind::none, kept || params.lease);
  }
  result.params = std::move(params);
  return result;
}

Result<PermitSemaphore::Acquired> PermitSemaphore::acquire(Acquisition what) const {
  if (what.refusal) {
    return object_.describe(std::move(*what.refusal));
  }
  if (what.nothing) {
    if (auto why = object_.engine().refuse(true)) {
      return object_.describe(std::move(*why));
    }
    return Acquired(Grant());
  }
  return object_.acquire(std::move(what.scripts), std::move(what.params));
}

void PermitSemaphore::acquireAsync(Acquisition what, Handler<Acquired> handler) const {
  auto why = what.refusal;
  if (!why && what.nothing) {
    why = object_.engine().refuse(false);
  }
  if (why) {
    object_.reject<Acquired>(std::move(*why), {}, std::move(handler));
  } else if (what.nothing) {
    object_.engine().callbacks().reject(
        [handler = std::move(handler)]() mutable { handler(Acquired(Grant())); });
  } else {
    object_.acquireAsync(std::move(what.scripts), std::move(what.params), std::move(handler));
  }
}

std::shared_ptr<LockBackend> PermitSemaphore::holder(const Acquisition& what) const {
  return std::make_shared<ScriptedLock>(object_.enginePtr(), what.scripts);
}

PermitSemaphore::Request<int> PermitSemaphore::availablePermits() const {
  return {{}, composeCount, countsOf([](const Counts& counts) { return counts.available; }), toInt};
}

PermitSemaphore::Request<int> PermitSemaphore::getPermits() const {
  return {{},
          composeCount,
          countsOf([](const Counts& counts) {
            return counts.exists ? counts.available + counts.acquired : 0;
          }),
          toInt};
}

PermitSemaphore::Request<int> PermitSemaphore::acquiredPermits() const {
  return {{}, composeCount, countsOf([](const Counts& counts) { return counts.acquired; }), toInt};
}

template <class T>
PermitSemaphore::Request<T> PermitSemaphore::change(PermitScripts::Change what, int number) const {
  Request<T> request;
  if (what != PermitScripts::Change::add) {
    request.refusal = negative(number);
  }
  request.compose = [what, number](Call& call, const PermitScripts& scripts) {
    scripts.composeChange(call, what, number);
  };
  request.parse = parseNumber;
  request.convert = [](std::int64_t done) -> Result<T> {
    if (done < 0) {
      return Error(Errc::invalidArgument, "the number of free permits would leave 32 bits");
    }
    if constexpr (std::is_void_v<T>) {
      return {};
    } else {
      return done == 1;
    }
  };
  return request;
}

PermitSemaphore::Request<bool> PermitSemaphore::trySetPermits(int permits) const {
  return change<bool>(PermitScripts::Change::init, permits);
}

PermitSemaphore::Request<void> PermitSemaphore::setPermits(int permits) const {
  return change<void>(PermitScripts::Change::total, permits);
}

PermitSemaphore::Request<void> PermitSemaphore::addPermits(int delta) const {
  return change<void>(PermitScripts::Change::add, delta);
}

PermitSemaphore::Request<bool> PermitSemaphore::remove() const {
  Request<bool> request;
  request.compose = [](Call& call, const PermitScripts& scripts) {
    scripts.composeForceRelease(call);
  };
  // Holders of this client that keep permits as objects are told.
  request.parse = [engine = object_.enginePtr(),
                   scripts = scripts_,
                   sentAt = object_.engine().now()](const Reply& reply) {
    if (reply.isInteger() && reply.integer == 1) {
      engine->holds().forced(*scripts, sentAt);
    }
    return parseNumber(reply);
  };
  request.convert = isOne;
  return request;
}

template <class T>
PermitSemaphore::Request<T> PermitSemaphore::giveBack(
    std::span<const std::string_view> ids, std::function<Result<T>(std::int64_t)> convert) const {
  Request<T> request;
  if (ids.empty()) {
    request.refusal.emplace(Errc::invalidArgument, "no permit is named");
    return request;
  }
  if (ids.size() > static_cast<std::size_t>(kMost)) {
    request.refusal = tooMany(ids.size());
    return request;
  }
  std::string bytes;
  std::set<std::string> seen;
  for (const std::string_view id : ids) {
    auto one = permitIdFromHex(id);
    if (!one) {
      request.refusal = malformedId();
      return request;
    }
    bytes += *one;
    if (!seen.insert(std::move(*one)).second) {
      request.refusal.emplace(Errc::invalidArgument, "the same permit is named twice");
      return request;
    }
  }
  request.compose = [bytes = std::move(bytes)](Call& call, const PermitScripts& scripts) {
    scripts.composeGiveBack(call, bytes);
  };
  request.parse = parseNumber;
  request.convert = std::move(convert);
  return request;
}

PermitSemaphore::Request<int> PermitSemaphore::tryRelease(
    std::span<const std::string_view> ids) const {
  return giveBack<int>(ids, toInt);
}

PermitSemaphore::Request<void> PermitSemaphore::release(
    std::span<const std::string_view> ids) const {
  return giveBack<void>(ids, [](std::int64_t released) -> Result<void> {
    if (released == 0) {
      return notTaken();
    }
    return {};
  });
}

PermitSemaphore::Request<bool> PermitSemaphore::updateLeaseTime(
    std::string_view id, std::optional<Duration> lease) const {
  Request<bool> request;
  if (lease) {
    request.refusal = ScriptedObject::checkLease(*lease);
  }
  // No permit has an empty id, nor one that is no id: the answer is the same.
  const std::string bytes = permitIdFromHex(id).value_or(std::string());
  const auto length = lease ? lease->ceilMilliseconds() : std::chrono::milliseconds::zero();
  // A holder that keeps it as an object sees the shorter lease before the server has it.
  struct Held {
    LockEngine::Clock::time_point sentAt{};
    HoldPtr hold;
  };
  const auto held = std::make_shared<Held>();
  const auto asHeld = lease ? length : kForEver;
  request.compose = [engine = object_.enginePtr(), held, asHeld, bytes, length, endless = !lease](
                        Call& call, const PermitScripts& scripts) {
    if (!held->hold) {
      held->sentAt = engine->now();
      held->hold =
          engine->holds().changingLease(scripts.name, bytes, held->sentAt, asHeld, endless);
    }
    scripts.composeUpdateLease(call, bytes, length);
  };
  request.parse = [engine = object_.enginePtr(), held, asHeld](const Reply& reply) {
    const std::optional<std::int64_t> done = parseNumber(reply);
    if (done && held->hold) {
      engine->holds().leaseChanged(
          *std::exchange(held->hold, nullptr), held->sentAt, asHeld, *done == 1);
    }
    return done;
  };
  request.convert = isOne;
  return request;
}

PermitSemaphore::Request<PermitSemaphore::LeaseTime> PermitSemaphore::getLeaseTime(
    std::string_view id) const {
  Request<LeaseTime> request;
  auto bytes = permitIdFromHex(id);
  if (!bytes) {
    request.refusal = malformedId();
    return request;
  }
  request.compose = [bytes = std::move(*bytes)](Call& call, const PermitScripts& scripts) {
    scripts.composeGetLease(call, bytes);
  };
  request.parse = parseNumber;
  request.convert = [](std::int64_t remaining) -> Result<LeaseTime> {
    if (remaining < -1) {
      return notTaken();
    }
    return remaining < 0 ? LeaseTime() : LeaseTime(std::chrono::milliseconds(remaining));
  };
  return request;
}

}  // namespace rlock::detail
