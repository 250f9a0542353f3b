// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/executor/permit_scripts.hpp>
#include <rlock/detail/executor/reply_number.hpp>
#include <rlock/duration.hpp>
#include <rlock/result.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rlock::detail {

/// A semaphore of one node whose permits have ids and may expire.
///
/// Each call is first described, and then made: on the calling thread or in the background.
///
/// **Thread safety:** Immutable, safe from any thread.
class PermitSemaphore {
 public:
  template <class T>
  using Handler = UniqueFunction<void(Result<T>)>;
  using Acquired = LockBackend::Acquired;

  /// How many permits one call may name. The server does nothing else meanwhile: about 25 ms.
  static constexpr int kMost = 10'000;

  PermitSemaphore(const std::shared_ptr<LockEngine>& engine,
                  std::shared_ptr<const PermitScripts> scripts)
      : object_(engine, scripts), scripts_(std::move(scripts)) {}

  [[nodiscard]] const std::string& name() const noexcept { return object_.name(); }

  /// Permits that are to be acquired, under ids that are known before.
  struct Acquisition {
    std::optional<Error> refusal;  ///< what is wrong with it
    std::shared_ptr<const PermitScripts> scripts;
    AcquireParams params;
    bool nothing = false;  ///< no permits: there is nothing to do
  };
  /// @param kept  the permit is to be held as an object, and renewed unless it has a lease
  [[nodiscard]] Acquisition acquisition(int permits, bool kept, AcquireParams params) const;
  Result<Acquired> acquire(Acquisition what) const;
  void acquireAsync(Acquisition what, Handler<Acquired> handler) const;
  /// The lock that releases a kept permit.
  [[nodiscard]] std::shared_ptr<LockBackend> holder(const Acquisition& what) const;

  /// One call that may be repeated.
  template <class T>
  struct Request {
    std::optional<Error> refusal;
    std::function<void(Call&, const PermitScripts&)> compose;
    std::function<std::optional<std::int64_t>(const Reply&)> parse;
    std::function<Result<T>(std::int64_t)> convert;
  };
  [[nodiscard]] Request<int> availablePermits() const;
  [[nodiscard]] Request<int> getPermits() const;
  [[nodiscard]] Request<int> acquiredPermits() const;
  [[nodiscard]] Request<bool> trySetPermits(int permits) const;
  [[nodiscard]] Request<void> setPermits(int permits) const;
  [[nodiscard]] Request<void> addPermits(int delta) const;
  [[nodiscard]] Request<bool> remove() const;
  [[nodiscard]] Request<int> tryRelease(std::span<const std::string_view> ids) const;
  [[nodiscard]] Request<void> release(std::span<const std::string_view> ids) const;
  [[nodiscard]] Request<bool> updateLeaseTime(std::string_view id,
                                              std::optional<Duration> lease) const;
  using LeaseTime = std::optional<std::chrono::milliseconds>;
  [[nodiscard]] Request<LeaseTime> getLeaseTime(std::string_view id) const;

  template <class T>
  Result<T> run(const Request<T>& request) const {
    if (request.refusal) {
      return object_.describe(*request.refusal);
    }
    return converted(request, object_.ask<std::int64_t>({}, composeOf(request), request.parse));
  }
  template <class T>
  void start(const Request<T>& request, Handler<T> handler) const {
    if (request.refusal) {
      object_.reject<T>(*request.refusal, {}, std::move(handler));
      return;
    }
    object_.askAsync<std::int64_t>(
        {},
        [self = *this, request, handler = std::move(handler)](Result<std::int64_t> reply) mutable {
          handler(self.converted(request, std::move(reply)));
        },
        composeOf(request),
        request.parse);
  }

 private:
  using Scripts = std::shared_ptr<const PermitScripts>;

  /// How long an object that holds a permit without expiry counts on it.
  static constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365);

  struct Counts {
    std::int64_t available;
    std::int64_t acquired;
    bool exists;
  };
  static void composeCount(Call& call, const PermitScripts& scripts);
  /// Reads a count. `pick` says which one is asked for.
  template <class Pick>
  static auto countsOf(Pick pick);
  static Result<bool> isOne(std::int64_t number);
  static Result<int> toInt(std::int64_t number);
  [[nodiscard]] static std::optional<Error> negative(int permits);
  [[nodiscard]] static Error tooMany(std::size_t permits);
  [[nodiscard]] static Error malformedId();
  [[nodiscard]] static Error notTaken();

  template <class T>
  auto composeOf(const Request<T>& request) const {
    return [this, &request](Call& call, const LockScripts& /*same*/, std::string_view /*owner*/) {
      request.compose(call, *scripts_);
    };
  }
  template <class T>
  Result<T> converted(const Request<T>& request, Result<std::int64_t> reply) const {
    if (!reply.has_value()) {
      return reply.error();
    }
    Result<T> result = request.convert(*reply);
    if (!result.has_value()) {
      return object_.describe(result.error());
    }
    return result;
  }
  template <class T>
  Request<T> change(PermitScripts::Change what, int number) const;
  template <class T>
  Request<T> giveBack(std::span<const std::string_view> ids,
                      std::function<Result<T>(std::int64_t)> convert) const;

  const ScriptedObject object_;
  const Scripts scripts_;
};

inline Result<bool> PermitSemaphore::isOne(std::int64_t number) {
  return number == 1;
}

inline Result<int> PermitSemaphore::toInt(std::int64_t number) {
  return saturated(number);
}

inline void PermitSemaphore::composeCount(Call& call, const PermitScripts& scripts) {
  scripts.composeCount(call);
}

template <class Pick>
auto PermitSemaphore::countsOf(Pick pick) {
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

inline std::optional<Error> PermitSemaphore::negative(int permits) {
  if (permits >= 0) {
    return std::nullopt;
  }
  return Error(Errc::invalidArgument, fmt::format("{} permits are less than none", permits));
}

inline Error PermitSemaphore::tooMany(std::size_t permits) {
  return Error(Errc::invalidArgument,
               fmt::format("{} permits are more than {} at once", permits, kMost));
}

inline Error PermitSemaphore::malformedId() {
  return Error(Errc::invalidArgument, "a permit's id is 32 hexadecimal digits");
}

inline Error PermitSemaphore::notTaken() {
  return Error(Errc::notOwner,
               "no such permit is taken: it was released, has expired, or never was");
}

inline PermitSemaphore::Acquisition PermitSemaphore::acquisition(int permits,
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

inline Result<PermitSemaphore::Acquired> PermitSemaphore::acquire(Acquisition what) const {
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

inline void PermitSemaphore::acquireAsync(Acquisition what, Handler<Acquired> handler) const {
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

inline std::shared_ptr<LockBackend> PermitSemaphore::holder(const Acquisition& what) const {
  return std::make_shared<ScriptedLock>(object_.enginePtr(), what.scripts);
}

inline PermitSemaphore::Request<int> PermitSemaphore::availablePermits() const {
  return {{}, composeCount, countsOf([](const Counts& counts) { return counts.available; }), toInt};
}

inline PermitSemaphore::Request<int> PermitSemaphore::getPermits() const {
  return {{},
          composeCount,
          countsOf([](const Counts& counts) {
            return counts.exists ? counts.available + counts.acquired : 0;
          }),
          toInt};
}

inline PermitSemaphore::Request<int> PermitSemaphore::acquiredPermits() const {
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

inline PermitSemaphore::Request<bool> PermitSemaphore::trySetPermits(int permits) const {
  return change<bool>(PermitScripts::Change::init, permits);
}

inline PermitSemaphore::Request<void> PermitSemaphore::setPermits(int permits) const {
  return change<void>(PermitScripts::Change::total, permits);
}

inline PermitSemaphore::Request<void> PermitSemaphore::addPermits(int delta) const {
  return change<void>(PermitScripts::Change::add, delta);
}

inline PermitSemaphore::Request<bool> PermitSemaphore::remove() const {
  Request<bool> request;
  request.compose = [](Call& call, const PermitScripts& scripts) {
    scripts.composeForceRelease(call, kTombstoneLife);
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

inline PermitSemaphore::Request<int> PermitSemaphore::tryRelease(
    std::span<const std::string_view> ids) const {
  return giveBack<int>(ids, toInt);
}

inline PermitSemaphore::Request<void> PermitSemaphore::release(
    std::span<const std::string_view> ids) const {
  return giveBack<void>(ids, [](std::int64_t released) -> Result<void> {
    if (released == 0) {
      return notTaken();
    }
    return {};
  });
}

inline PermitSemaphore::Request<bool> PermitSemaphore::updateLeaseTime(
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

inline PermitSemaphore::Request<PermitSemaphore::LeaseTime> PermitSemaphore::getLeaseTime(
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
