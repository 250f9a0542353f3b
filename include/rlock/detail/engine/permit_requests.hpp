// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/engine/hold_events.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/executor/idempotency_key_pool.hpp>
#include <rlock/detail/executor/permit_scripts.hpp>
#include <rlock/detail/executor/publish_refusal.hpp>
#include <rlock/detail/executor/reply_number.hpp>
#include <rlock/detail/executor/start_script.hpp>
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
  std::function<void(bool)> unanswered{};          ///< as QueryTask's
};

/// One request for another lease of a permit, as HoldEvents is told of it if this client holds the
/// permit as an object: before it is sent, and once how it ended. One that is dropped before its
/// end is known counts as lost.
///
/// **Thread safety:** begin() comes first; the rest is safe from any thread.
class LeaseUpdate {
 public:
  /// @param endless  the permit will not expire
  LeaseUpdate(std::shared_ptr<LockEngine> engine,
              std::chrono::milliseconds lease,
              bool endless) noexcept
      : engine_(std::move(engine)), lease_(lease), endless_(endless) {}
  LeaseUpdate(const LeaseUpdate&) = delete;
  LeaseUpdate& operator=(const LeaseUpdate&) = delete;
  ~LeaseUpdate() { unanswered(false); }

  /// It is about to be sent. Returns the idempotency key for it.
  IdempotencyKeyPool::Loan begin(std::string_view semaphore, std::string_view id);
  void answered(bool taken);
  /// @param notDone  it certainly took no effect
  void unanswered(bool notDone) noexcept;

 private:
  const std::shared_ptr<LockEngine> engine_;
  const std::chrono::milliseconds lease_;
  const bool endless_;
  LockEngine::Clock::time_point sentAt_{};
  /// Its end is not told yet. The thread that closes it has the three below.
  Atomic<bool> open_{false};
  HoldPtr hold_;
  IdempotencyKeyPool::Loan key_;
  bool rulesOut_ = false;  // an earlier one, which had this key
};

/// Describes the calls to a PermitSemaphore that acquire nothing: checks their arguments, and says
/// what is sent and what the answer means.
///
/// Nothing is sent here, and a request whose arguments are wrong has a `refusal` instead of
/// throwing. The requests that change what a holder of this client has, remove(), release() by ids
/// and updateLeaseTime(), tell HoldEvents about it: a shorter lease before it is sent, everything
/// else when the answer is read, or when there will be none.
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
  /// How long an object that holds a permit without expiry counts on it, also where nobody renews
  /// it. No process lives for longer, and the sum of two and of a moment in time has no overflow.
  static constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365 * 100);

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
  [[nodiscard]] PermitRequest<T> giveBack(std::span<const std::string_view> ids,
                                          std::function<Result<T>(std::int64_t)> convert) const;

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
    const std::size_t size = publishRefusal(reply).empty() ? 3 : 4;
    if (!reply.isArray() || elements.size() != size ||
        !std::all_of(elements.begin(), elements.begin() + 3, [](const Reply& element) {
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
                                          std::function<Result<T>(std::int64_t)> convert) const {
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
  request.compose = [bytes](Call& call, const PermitScripts& scripts) {
    scripts.composeGiveBack(call, bytes);
  };
  // Holders of this client that keep one of them as an object are told.
  request.parse = [engine = engine_, scripts = scripts_, bytes](const Reply& reply) {
    const std::optional<std::int64_t> released = parseNumber(reply);
    if (released && *released > 0) {
      engine->events().releasedById(scripts->name, bytes);
    }
    return released;
  };
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

inline IdempotencyKeyPool::Loan LeaseUpdate::begin(std::string_view semaphore,
                                                   std::string_view id) {
  IdempotencyKeyPool::Loan key = engine_->idempotencyKeys()->borrow(newRequestId);
  sentAt_ = engine_->now();
  HoldEvents::LeaseChange change =
      engine_->events().changingLease(semaphore, id, sentAt_, lease_, endless_);
  if (change.hold) {
    if (change.key) {
      rulesOut_ = true;
      key = std::move(change.key);
    }
    key_ = key;
    hold_ = std::move(change.hold);
    open_.store(true);
  }
  return key;
}

inline void LeaseUpdate::answered(bool taken) {
  if (open_.exchange(false)) {
    key_ = nullptr;
    engine_->events().leaseChanged(*std::exchange(hold_, nullptr), sentAt_, lease_, taken);
  }
}

inline void LeaseUpdate::unanswered(bool notDone) noexcept {
  // In a child after fork() another thread of the parent may have had the mutex.
  if (open_.exchange(false) && engine_->inItsProcess()) {
    IdempotencyKeyPool::Loan key = std::exchange(key_, nullptr);
    engine_->events().leaseNotChanged(*std::exchange(hold_, nullptr),
                                      notDone && !rulesOut_ ? nullptr : std::move(key));
  }
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
  const auto update = std::make_shared<LeaseUpdate>(engine_, lease ? length : kForEver, !lease);
  request.compose = [update, bytes, length](Call& call, const PermitScripts& scripts) {
    scripts.composeUpdateLease(call, bytes, length, update->begin(scripts.name, bytes));
  };
  request.parse = [update](const Reply& reply) {
    const std::optional<std::int64_t> done = parseNumber(reply);
    if (done) {
      update->answered(*done == 1);
    }
    return done;
  };
  request.convert = isOne;
  request.unanswered = [update](bool notDone) { update->unanswered(notDone); };
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
