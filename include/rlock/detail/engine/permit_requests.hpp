// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/executor/permit_scripts.hpp>
#include <rlock/detail/executor/reply_number.hpp>
#include <rlock/duration.hpp>
#include <rlock/error.hpp>
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

namespace rlock::detail {

/// One call to a PermitSemaphore, described and not yet made. It may be sent several times.
template <class T>
struct PermitRequest {
  std::optional<Error> refusal;  ///< what is wrong with its arguments: it is not sent
  std::function<void(Call&, const PermitScripts&)> compose;
  std::function<std::optional<std::int64_t>(const Reply&)> parse;
  std::function<Result<T>(std::int64_t)> convert;  ///< of what `parse` has read
};

/// Describes the calls to a PermitSemaphore that acquire nothing: checks their arguments, and says
/// what is sent and what the answer means.
///
/// Nothing is sent here, and a request whose arguments are wrong has a `refusal` instead of
/// throwing. The requests that change what a holder of this client has, remove() and
/// updateLeaseTime(), tell HoldEvents about it: a shorter lease before it is sent, everything else
/// when the answer is read.
///
/// **Thread safety:** Immutable, safe from any thread.
class PermitRequests {
 public:
  /// How many permits one call may name. The server does nothing else meanwhile: about 25 ms.
  static constexpr int kMost = 10'000;

  PermitRequests(std::shared_ptr<LockEngine> engine, std::shared_ptr<const PermitScripts> scripts)
      : engine_(std::move(engine)), scripts_(std::move(scripts)) {}

  [[nodiscard]] PermitRequest<int> availablePermits() const;
  [[nodiscard]] PermitRequest<int> getPermits() const;
  [[nodiscard]] PermitRequest<int> acquiredPermits() const;
  [[nodiscard]] PermitRequest<bool> trySetPermits(int permits) const;
  [[nodiscard]] PermitRequest<void> setPermits(int permits) const;
  [[nodiscard]] PermitRequest<void> addPermits(int delta) const;
  [[nodiscard]] PermitRequest<bool> remove() const;
  [[nodiscard]] PermitRequest<int> tryRelease(std::span<const std::string_view> ids) const;
  [[nodiscard]] PermitRequest<void> release(std::span<const std::string_view> ids) const;
  [[nodiscard]] PermitRequest<bool> updateLeaseTime(std::string_view id,
                                                    std::optional<Duration> lease) const;
  using LeaseTime = std::optional<std::chrono::milliseconds>;
  [[nodiscard]] PermitRequest<LeaseTime> getLeaseTime(std::string_view id) const;

  /// Refuses a number of permits below zero; nothing: it is not.
  [[nodiscard]] static std::optional<Error> negative(int permits);
  [[nodiscard]] static Error tooMany(std::size_t permits);

 private:
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
  [[nodiscard]] static Error malformedId();
  [[nodiscard]] static Error notTaken();

  template <class T>
  static PermitRequest<T> change(PermitScripts::Change what, int number);
  template <class T>
  static PermitRequest<T> giveBack(std::span<const std::string_view> ids,
                                   std::function<Result<T>(std::int64_t)> convert);

  const std::shared_ptr<LockEngine> engine_;
  const std::shared_ptr<const PermitScripts> scripts_;
};

inline Result<bool> PermitRequests::isOne(std::int64_t number) {
  return number == 1;
}

inline Result<int> PermitRequests::toInt(std::int64_t number) {
  return saturated(number);
}

inline void PermitRequests::composeCount(Call& call, const PermitScripts& scripts) {
  scripts.composeCount(call);
}

template <class Pick>
auto PermitRequests::countsOf(Pick pick) {
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

inline std::optional<Error> PermitRequests::negative(int permits) {
  if (permits >= 0) {
    return std::nullopt;
  }
  return Error(Errc::invalidArgument, fmt::format("{} permits are less than none", permits));
}

inline Error PermitRequests::tooMany(std::size_t permits) {
  return Error(Errc::invalidArgument,
               fmt::format("{} permits are more than {} at once", permits, kMost));
}

inline Error PermitRequests::malformedId() {
  return Error(Errc::invalidArgument, "a permit's id is 32 hexadecimal digits");
}

inline Error PermitRequests::notTaken() {
  return Error(Errc::notOwner,
               "no such permit is taken: it was released, has expired, or never was");
}

inline PermitRequest<int> PermitRequests::availablePermits() const {
  return {{}, composeCount, countsOf([](const Counts& counts) { return counts.available; }), toInt};
}

inline PermitRequest<int> PermitRequests::getPermits() const {
  return {{},
          composeCount,
          countsOf([](const Counts& counts) {
            return counts.exists ? counts.available + counts.acquired : 0;
          }),
          toInt};
}

inline PermitRequest<int> PermitRequests::acquiredPermits() const {
  return {{}, composeCount, countsOf([](const Counts& counts) { return counts.acquired; }), toInt};
}

template <class T>
PermitRequest<T> PermitRequests::change(PermitScripts::Change what, int number) {
  PermitRequest<T> request;
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

inline PermitRequest<bool> PermitRequests::trySetPermits(int permits) const {
  return change<bool>(PermitScripts::Change::init, permits);
}

inline PermitRequest<void> PermitRequests::setPermits(int permits) const {
  return change<void>(PermitScripts::Change::total, permits);
}

inline PermitRequest<void> PermitRequests::addPermits(int delta) const {
  return change<void>(PermitScripts::Change::add, delta);
}

inline PermitRequest<bool> PermitRequests::remove() const {
  PermitRequest<bool> request;
  request.compose = [](Call& call, const PermitScripts& scripts) {
    scripts.composeForceRelease(call, kTombstoneLife);
  };
  // Holders of this client that keep permits as objects are told.
  request.parse =
      [engine = engine_, scripts = scripts_, sentAt = engine_->now()](const Reply& reply) {
        if (reply.isInteger() && reply.integer == 1) {
          engine->events().forced(*scripts, sentAt);
        }
        return parseNumber(reply);
      };
  request.convert = isOne;
  return request;
}

template <class T>
PermitRequest<T> PermitRequests::giveBack(std::span<const std::string_view> ids,
                                          std::function<Result<T>(std::int64_t)> convert) {
  PermitRequest<T> request;
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

inline PermitRequest<int> PermitRequests::tryRelease(std::span<const std::string_view> ids) const {
  return giveBack<int>(ids, toInt);
}

inline PermitRequest<void> PermitRequests::release(std::span<const std::string_view> ids) const {
  return giveBack<void>(ids, [](std::int64_t released) -> Result<void> {
    if (released == 0) {
      return notTaken();
    }
    return {};
  });
}

inline PermitRequest<bool> PermitRequests::updateLeaseTime(std::string_view id,
                                                           std::optional<Duration> lease) const {
  PermitRequest<bool> request;
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
  request.compose = [engine = engine_, held, asHeld, bytes, length, endless = !lease](
                        Call& call, const PermitScripts& scripts) {
    if (!held->hold) {
      held->sentAt = engine->now();
      held->hold =
          engine->events().changingLease(scripts.name, bytes, held->sentAt, asHeld, endless);
    }
    scripts.composeUpdateLease(call, bytes, length);
  };
  request.parse = [engine = engine_, held, asHeld](const Reply& reply) {
    const std::optional<std::int64_t> done = parseNumber(reply);
    if (done && held->hold) {
      engine->events().leaseChanged(
          *std::exchange(held->hold, nullptr), held->sentAt, asHeld, *done == 1);
    }
    return done;
  };
  request.convert = isOne;
  return request;
}

inline PermitRequest<PermitRequests::LeaseTime> PermitRequests::getLeaseTime(
    std::string_view id) const {
  PermitRequest<LeaseTime> request;
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
