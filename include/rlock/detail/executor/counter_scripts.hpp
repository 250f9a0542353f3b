// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/idempotency_key_pool.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/publish_refusal.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// The scripts that semaphores and latches share, about one decimal number that belongs to nobody.
/// A request that changes it carries an idempotency key: the script notes it with its answer, so
/// that a repetition after a lost reply changes nothing and is answered alike.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class CounterScripts : public LockScripts {
 public:
  [[nodiscard]] const std::shared_ptr<IdempotencyKeyPool>& idempotencyKeys() const noexcept {
    return idempotencyKeys_;
  }

  /// Sets the counter if it does not exist. The reply is 1 or 0.
  /// @param life  until it expires; zero: never
  virtual void composeTrySet(Call& call,
                             std::int64_t value,
                             std::chrono::milliseconds life) const = 0;
  /// Deletes it. The reply is 1 or 0.
  virtual void composeRemove(Call& call) const = 0;
  /// The reply is the number as text, or nothing.
  void composeGet(Call& call) const { call.setCommand({"GET", name}); }

 protected:
  CounterScripts(std::string_view counterName,
                 const LockTraits& lockTraits,
                 std::string counterChannel,
                 std::shared_ptr<IdempotencyKeyPool> idempotencyKeys);

  void trySet(Call& call,
              std::int64_t value,
              std::chrono::milliseconds life,
              std::string_view message) const;
  void remove(Call& call, std::string_view message) const;

  /// An idempotency key for one request after the other.
  [[nodiscard]] IdempotencyKeyPool::Loan borrowIdempotencyKey() const;
  /// Starts a script with an idempotency key of its own.
  void startChange(Call& call, const lua::Script& script) const;
  void startChange(Call& call,
                   const lua::Script& script,
                   const IdempotencyKeyPool::Loan& idempotencyKey) const;

 private:
  const std::shared_ptr<IdempotencyKeyPool> idempotencyKeys_;
};

/// A semaphore: the number is what is available.
class SemaphoreScripts : public CounterScripts {
 public:
  SemaphoreScripts(std::string_view semaphoreName,
                   std::shared_ptr<IdempotencyKeyPool> idempotencyKeys);

  [[nodiscard]] std::string_view noun() const noexcept override { return "semaphore"; }
  [[nodiscard]] std::string_view kind() const noexcept override { return "semaphore"; }

  void composeTrySet(Call& call, std::int64_t value, std::chrono::milliseconds life) const override;
  void composeRemove(Call& call) const override;

  struct Sum {
    enum class Kind : std::uint8_t { added, missing, outOfRange };
    Kind kind;
    std::int64_t permits;  ///< now
  };
  void composeAdd(Call& call, std::int64_t permits, bool onlyIfExists) const;
  [[nodiscard]] static std::optional<Sum> parseSum(const Reply& reply);
  /// The reply is the number there was.
  void composeDrain(Call& call) const;

 protected:
  SemaphoreScripts(std::string_view semaphoreName,
                   const LockTraits& lockTraits,
                   std::shared_ptr<IdempotencyKeyPool> idempotencyKeys);
};

/// One acquisition of permits. On the server the permits that are taken belong to nobody, so its
/// idempotency key says what became of a request whose reply was lost.
///
/// **Thread safety:** One thread at a time, as its acquisition.
class PermitAcquisition final : public SemaphoreScripts {
 public:
  PermitAcquisition(const SemaphoreScripts& semaphore, int permits);

  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  void composeReconcile(Call& call, const ReconcileRequest& request) const override;
  [[nodiscard]] std::optional<ReconcileReply> parseReconcile(const Reply& reply) const override;

 private:
  const IdempotencyKeyPool::Loan idempotencyKey_;
};

/// A latch: the number is how often it must be counted down until it opens.
class LatchScripts final : public CounterScripts {
 public:
  LatchScripts(std::string_view latchName, std::shared_ptr<IdempotencyKeyPool> idempotencyKeys);

  [[nodiscard]] std::string_view noun() const noexcept override { return "latch"; }
  [[nodiscard]] std::string_view kind() const noexcept override { return "latch"; }

  void composeTrySet(Call& call, std::int64_t value, std::chrono::milliseconds life) const override;
  void composeRemove(Call& call) const override;
  /// The reply is the count before.
  void composeCountDown(Call& call) const;
  /// Granted: the latch is open.
  void composeAcquire(Call& call, const AcquireRequest& request) const override;
};

/// The message of a latch that opened, and of one that was set.
inline constexpr std::string_view kOpened = "0";
inline constexpr std::string_view kNewCount = "1";

inline LockTraits semaphoreTraits(int need, std::chrono::milliseconds reconcileWithin) {
  LockTraits traits;
  traits.holdKind = HoldKind::none;
  traits.wakeRule = WakeRule::bestFit;
  traits.need = need;
  traits.reconcileWithin = reconcileWithin;
  return traits;
}

inline LockTraits latchTraits() {
  LockTraits traits;
  traits.holdKind = HoldKind::none;
  traits.wakeRule = WakeRule::broadcast;
  traits.changesState = false;
  traits.opensOn = kOpened;
  return traits;
}

inline CounterScripts::CounterScripts(std::string_view counterName,
                                      const LockTraits& lockTraits,
                                      std::string counterChannel,
                                      std::shared_ptr<IdempotencyKeyPool> idempotencyKeys)
    : LockScripts(counterName, lockTraits, std::move(counterChannel)),
      idempotencyKeys_(std::move(idempotencyKeys)) {}

inline IdempotencyKeyPool::Loan CounterScripts::borrowIdempotencyKey() const {
  return idempotencyKeys_->borrow(newRequestId);
}

inline void CounterScripts::startChange(Call& call, const lua::Script& script) const {
  startChange(call, script, borrowIdempotencyKey());
}

inline void CounterScripts::startChange(Call& call,
                                        const lua::Script& script,
                                        const IdempotencyKeyPool::Loan& idempotencyKey) const {
  ++idempotencyKey->number;
  startNumbered(call, script, name, {name}, idempotencyKey, idempotencyKeys_->life());
}

inline void CounterScripts::trySet(Call& call,
                                   std::int64_t value,
                                   std::chrono::milliseconds life,
                                   std::string_view message) const {
  startChange(call, lua::counter_try_set);
  call.addNumber(value);
  call.addNumber(life.count());
  call.addPublish();
  call.addArgument(channel);
  call.addArgument(call.store(message));
}

inline void CounterScripts::remove(Call& call, std::string_view message) const {
  startChange(call, lua::counter_remove);
  call.addPublish();
  call.addArgument(channel);
  call.addArgument(message);
  call.setFreesMemory(true);
}

inline SemaphoreScripts::SemaphoreScripts(std::string_view semaphoreName,
                                          std::shared_ptr<IdempotencyKeyPool> idempotencyKeys)
    // In braces, for the order.
    : SemaphoreScripts{semaphoreName,
                       semaphoreTraits(1, trustedPart(idempotencyKeys->life())),
                       std::move(idempotencyKeys)} {}

inline SemaphoreScripts::SemaphoreScripts(std::string_view semaphoreName,
                                          const LockTraits& lockTraits,
                                          std::shared_ptr<IdempotencyKeyPool> idempotencyKeys)
    : CounterScripts(
          semaphoreName, lockTraits, semaphoreChannel(semaphoreName), std::move(idempotencyKeys)) {}

inline void SemaphoreScripts::composeTrySet(Call& call,
                                            std::int64_t value,
                                            std::chrono::milliseconds life) const {
  trySet(call, value, life, value > 0 ? std::to_string(value) : std::string());
}

inline void SemaphoreScripts::composeRemove(Call& call) const {
  remove(call, {});
}

inline void SemaphoreScripts::composeAdd(Call& call,
                                         std::int64_t permits,
                                         bool onlyIfExists) const {
  startChange(call, lua::semaphore_add);
  call.addNumber(permits);
  call.addNumber(onlyIfExists ? 1 : 0);
  call.addPublish();
  call.addArgument(channel);
  // At the memory limit others wait for exactly this.
  call.setFreesMemory(true);
  addsUp(call);
}

inline std::optional<SemaphoreScripts::Sum> SemaphoreScripts::parseSum(const Reply& reply) {
  const std::size_t size = publishRefusal(reply).empty() ? 2 : 3;
  if (!reply.isArray() || reply.elements.size() != size || !reply.elements[0].isInteger() ||
      !reply.elements[1].isInteger()) {
    return std::nullopt;
  }
  const std::int64_t code = reply.elements[0].integer;
  const Sum::Kind kind = code == 1   ? Sum::Kind::added
                         : code == 0 ? Sum::Kind::missing
                                     : Sum::Kind::outOfRange;
  return Sum{kind, reply.elements[1].integer};
}

inline void SemaphoreScripts::composeDrain(Call& call) const {
  startChange(call, lua::semaphore_drain);
}

inline PermitAcquisition::PermitAcquisition(const SemaphoreScripts& semaphore, int permits)
    : SemaphoreScripts(semaphore.name,
                       semaphoreTraits(permits, trustedPart(semaphore.idempotencyKeys()->life())),
                       semaphore.idempotencyKeys()),
      idempotencyKey_(borrowIdempotencyKey()) {
  setTitle(semaphore.title());
}

inline void PermitAcquisition::composeAcquire(Call& call, const AcquireRequest& /*request*/) const {
  startChange(call, lua::semaphore_acquire, idempotencyKey_);
  call.addNumber(traits.need);
  call.setRepeatable(false);
}

inline void PermitAcquisition::composeReconcile(Call& call, const ReconcileRequest& request) const {
  startNumbered(
      call, lua::semaphore_reconcile, name, {name}, idempotencyKey_, idempotencyKeys()->life());
  call.addNumber(traits.need);
  call.addNumber(request.target > 0 ? 1 : 0);
  call.addPublish();
  call.addArgument(channel);
  call.setFreesMemory(true);
}

inline std::optional<ReconcileReply> PermitAcquisition::parseReconcile(const Reply& reply) const {
  auto result = SemaphoreScripts::parseReconcile(reply);
  if (result) {
    result->publishError = publishRefusal(reply);
  }
  return result;
}

inline LatchScripts::LatchScripts(std::string_view latchName,
                                  std::shared_ptr<IdempotencyKeyPool> idempotencyKeys)
    : CounterScripts(
          latchName, latchTraits(), latchChannel(latchName), std::move(idempotencyKeys)) {}

inline void LatchScripts::composeTrySet(Call& call,
                                        std::int64_t value,
                                        std::chrono::milliseconds life) const {
  trySet(call, value, life, kNewCount);
}

// Redisson announces a deletion as a new count, and its waiters sleep on. A latch that is gone is
// open, so it is announced as what it is.
inline void LatchScripts::composeRemove(Call& call) const {
  remove(call, kOpened);
}

inline void LatchScripts::composeCountDown(Call& call) const {
  startChange(call, lua::latch_count_down);
  call.addPublish();
  call.addArgument(channel);
  call.addArgument(kOpened);
  call.setFreesMemory(true);
  addsUp(call);
}

inline void LatchScripts::composeAcquire(Call& call, const AcquireRequest& /*request*/) const {
  startScript(call, lua::latch_await, name, {});
  call.setRepeatable(true);
}

}  // namespace rlock::detail
