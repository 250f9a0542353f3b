// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/reply_number.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// A question about a lock: how it is put to the server, and the meaning of the answer. It may be
/// sent several times.
template <class T>
struct LockQuestion {
  std::function<void(Call&, const LockScripts&, std::string_view ownerField)> compose;
  std::function<std::optional<T>(const Reply&)> parse;  ///< empty: it makes no sense
};

/// The questions that are the same for all kinds of locks; LockScripts knows the words. A forced
/// release is one of them, too: it takes no gate and belongs to no owner.
///
/// **Thread safety:** Functions without state, safe from any thread.
struct LockQuestions {
  using TimeToLive = LockBackend::TimeToLive;

  [[nodiscard]] static LockQuestion<bool> isLocked() {
    return {[](Call& call, const LockScripts& scripts, std::string_view /*owner*/) {
              scripts.composeIsLocked(call);
            },
            parseYesNo};
  }

  [[nodiscard]] static LockQuestion<int> holdCount();

  /// Answer: empty: there is no such lock; milliseconds::max(): it does not expire.
  [[nodiscard]] static LockQuestion<TimeToLive> timeToLive() {
    return {[](Call& call, const LockScripts& scripts, std::string_view /*owner*/) {
              scripts.composeTimeToLive(call);
            },
            parseTimeToLive};
  }

  /// Frees the lock, whoever holds it. When the answer is read, HoldEvents tells the holders of
  /// this client; what they were granted before this moment is over.
  [[nodiscard]] static LockQuestion<bool> forceRelease(std::shared_ptr<LockEngine> engine,
                                                       std::shared_ptr<const LockScripts> scripts);

 private:
  static std::optional<TimeToLive> parseTimeToLive(const Reply& reply);
};

inline LockQuestion<int> LockQuestions::holdCount() {
  return {[](Call& call, const LockScripts& scripts, std::string_view owner) {
            scripts.composeHoldCount(call, owner);
          },
          [](const Reply& reply) -> std::optional<int> {
            const std::optional<std::int64_t> count = parseNumber(reply);
            return count ? std::optional(saturated(*count)) : std::nullopt;
          }};
}

inline LockQuestion<bool> LockQuestions::forceRelease(std::shared_ptr<LockEngine> engine,
                                                      std::shared_ptr<const LockScripts> scripts) {
  // It may be repeated for as long as the call may take.
  const auto remember = kTombstoneLife + engine->callTimeout();
  const auto sentAt = engine->now();
  return {[remember](Call& call, const LockScripts& words, std::string_view /*owner*/) {
            words.composeForceRelease(call, remember);
          },
          [engine = std::move(engine), scripts = std::move(scripts), sentAt](
              const Reply& reply) -> std::optional<bool> {
            const std::optional<bool> freed = parseYesNo(reply);
            if (freed.value_or(false)) {
              engine->events().forced(*scripts, sentAt);
            }
            return freed;
          }};
}

inline std::optional<LockQuestions::TimeToLive> LockQuestions::parseTimeToLive(const Reply& reply) {
  if (!reply.isInteger()) {
    return std::nullopt;
  }
  if (reply.integer == -2) {
    return TimeToLive();
  }
  return TimeToLive(reply.integer < 0 ? std::chrono::milliseconds::max()
                                      : std::chrono::milliseconds(reply.integer));
}

}  // namespace rlock::detail
