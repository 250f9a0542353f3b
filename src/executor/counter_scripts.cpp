// SPDX-License-Identifier: Apache-2.0
#include "executor/counter_scripts.hpp"

#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <utility>

namespace rlock::detail {

namespace {

/// The message of a latch that opened, and of one that was set.
constexpr std::string_view kOpened = "0";
constexpr std::string_view kNewCount = "1";

LockTraits semaphoreTraits(int need, std::chrono::milliseconds settleWithin) {
  LockTraits traits;
  traits.holdKind = HoldKind::none;
  traits.wakeRule = WakeRule::fitting;
  traits.need = need;
  traits.settleWithin = settleWithin;
  return traits;
}

LockTraits latchTraits() {
  LockTraits traits;
  traits.holdKind = HoldKind::none;
  traits.wakeRule = WakeRule::each;
  traits.changesState = false;
  traits.opensOn = kOpened;
  return traits;
}

}  // namespace

CounterScripts::CounterScripts(std::string_view counterName,
                               const LockTraits& lockTraits,
                               std::string counterChannel,
                               std::shared_ptr<MarkerPool> markers)
    : LockScripts(counterName, lockTraits, std::move(counterChannel)),
      markers_(std::move(markers)) {}

MarkerPool::Loan CounterScripts::borrowMarker() const {
  return markers_->borrow(newRequestId);
}

void CounterScripts::startChange(Call& call, const lua::Script& script) const {
  startChange(call, script, borrowMarker());
}

void CounterScripts::startChange(Call& call,
                                 const lua::Script& script,
                                 const MarkerPool::Loan& marker) const {
  ++marker->number;
  startNumbered(call, script, {name}, marker, markers_->life());
}

void CounterScripts::trySet(Call& call,
                            std::int64_t value,
                            std::chrono::milliseconds life,
                            std::string_view message) const {
  startChange(call, lua::counter_try_set);
  call.addNumber(value);
  call.addNumber(life.count());
  call.addArgument(kPublish);
  call.addArgument(channel);
  call.addArgument(call.store(message));
}

void CounterScripts::remove(Call& call, std::string_view message) const {
  startChange(call, lua::counter_remove);
  call.addArgument(kPublish);
  call.addArgument(channel);
  call.addArgument(message);
  call.setFreesMemory(true);
}

SemaphoreScripts::SemaphoreScripts(std::string_view semaphoreName,
                                   std::shared_ptr<MarkerPool> markers)
    : SemaphoreScripts(
          semaphoreName, semaphoreTraits(1, trustedPart(kMarkerLife)), std::move(markers)) {}

SemaphoreScripts::SemaphoreScripts(std::string_view semaphoreName,
                                   const LockTraits& lockTraits,
                                   std::shared_ptr<MarkerPool> markers)
    : CounterScripts(
          semaphoreName, lockTraits, semaphoreChannel(semaphoreName), std::move(markers)) {}

void SemaphoreScripts::composeTrySet(Call& call,
                                     std::int64_t value,
                                     std::chrono::milliseconds life) const {
  trySet(call, value, life, value > 0 ? std::to_string(value) : std::string());
}

void SemaphoreScripts::composeRemove(Call& call) const {
  remove(call, {});
}

void SemaphoreScripts::composeAdd(Call& call, std::int64_t permits, bool onlyIfExists) const {
  startChange(call, lua::semaphore_add);
  call.addNumber(permits);
  call.addNumber(onlyIfExists ? 1 : 0);
  call.addArgument(kPublish);
  call.addArgument(channel);
  // At the memory limit others wait for exactly this.
  call.setFreesMemory(true);
  addsUp(call);
}

std::optional<SemaphoreScripts::Sum> SemaphoreScripts::parseSum(const Reply& reply) {
  if (!reply.isArray() || reply.elements.size() != 2 || !reply.elements[0].isInteger() ||
      !reply.elements[1].isInteger()) {
    return std::nullopt;
  }
  const std::int64_t code = reply.elements[0].integer;
  const Sum::Kind kind = code == 1   ? Sum::Kind::added
                         : code == 0 ? Sum::Kind::missing
                                     : Sum::Kind::outOfRange;
  return Sum{kind, reply.elements[1].integer};
}

void SemaphoreScripts::composeDrain(Call& call) const {
  startChange(call, lua::semaphore_drain);
}

PermitAcquisition::PermitAcquisition(const SemaphoreScripts& semaphore, int permits)
    : SemaphoreScripts(
          semaphore.name, semaphoreTraits(permits, trustedPart(kMarkerLife)), semaphore.markers()),
      marker_(borrowMarker()) {}

void PermitAcquisition::composeAcquire(Call& call, const AcquireRequest& /*request*/) const {
  startChange(call, lua::semaphore_acquire, marker_);
  call.addNumber(traits.need);
  call.setRepeatable(false);
}

void PermitAcquisition::composeSettle(Call& call, const SettleRequest& request) const {
  startNumbered(call, lua::semaphore_settle, {name}, marker_, markers()->life());
  call.addNumber(traits.need);
  call.addNumber(request.target > 0 ? 1 : 0);
  call.addArgument(kPublish);
  call.addArgument(channel);
  call.setFreesMemory(true);
}

LatchScripts::LatchScripts(std::string_view latchName, std::shared_ptr<MarkerPool> markers)
    : CounterScripts(latchName, latchTraits(), latchChannel(latchName), std::move(markers)) {}

void LatchScripts::composeTrySet(Call& call,
                                 std::int64_t value,
                                 std::chrono::milliseconds life) const {
  trySet(call, value, life, kNewCount);
}

// Redisson announces a deletion as a new count, and its waiters sleep on. A latch that is gone is
// open, so it is announced as what it is.
void LatchScripts::composeRemove(Call& call) const {
  remove(call, kOpened);
}

void LatchScripts::composeCountDown(Call& call) const {
  startChange(call, lua::latch_count_down);
  call.addArgument(kPublish);
  call.addArgument(channel);
  call.addArgument(kOpened);
  call.setFreesMemory(true);
  addsUp(call);
}

void LatchScripts::composeAcquire(Call& call, const AcquireRequest& /*request*/) const {
  startScript(call, lua::latch_await, name, {});
  call.setRepeatable(true);
}

}  // namespace rlock::detail
