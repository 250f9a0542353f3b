// SPDX-License-Identifier: Apache-2.0
#include "executor/lock_scripts.hpp"

#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/reply_number.hpp>

#include <random>
#include <utility>

namespace rlock::detail {

namespace {

void composeHashRenewals(Call& call, std::span<const RenewalRequest> renewals) {
  startRenewals(call, lua::lock_renew, renewals);
}

}  // namespace

void startRenewals(Call& call,
                   const lua::Script& script,
                   std::span<const RenewalRequest> renewals) {
  call.setScript(script, renewals.size());
  for (const RenewalRequest& renewal : renewals) {
    call.addArgument(renewal.scripts->name);
  }
  for (const RenewalRequest& renewal : renewals) {
    call.addNumber(renewal.lease.count());
    call.addArgument(renewal.scripts->fieldOf(call, renewal.owner));
  }
  call.setRepeatable(false);
}

std::uint64_t randomBits() {
  const auto seeded = [] {
    std::random_device device;
    std::seed_seq seed{
        device(), device(), device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  };
  thread_local std::mt19937_64 random = seeded();
  thread_local std::uint32_t generation = forkGeneration();
  if (generation != forkGeneration()) {
    // A copy of the parent's state, which goes on there.
    random = seeded();
    generation = forkGeneration();
  }
  return random();
}

std::string newRequestId() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  id.reserve(32);
  for (int half = 0; half < 2; ++half) {
    std::uint64_t bits = randomBits();
    for (int i = 0; i < 16; ++i, bits >>= 4U) {
      id += kDigits[bits & 15U];
    }
  }
  return id;
}

LockScripts::LockScripts(std::string_view lockName, LockTraits lockTraits)
    : LockScripts(lockName, lockTraits, lockChannel(lockName)) {}

LockScripts::LockScripts(std::string_view lockName,
                         LockTraits lockTraits,
                         std::string releaseChannel)
    : name(lockName), traits(lockTraits), channel(std::move(releaseChannel)) {}

void LockScripts::startScript(Call& call,
                              const lua::Script& script,
                              std::string_view key,
                              std::string_view tombstone) {
  startScript(call, script, {key}, tombstone);
}

void LockScripts::startScript(Call& call,
                              const lua::Script& script,
                              std::initializer_list<std::string_view> keys,
                              std::string_view tombstone) {
  call.setScript(script, keys.size() + (tombstone.empty() ? 0 : 1));
  for (const std::string_view key : keys) {
    call.addArgument(key);
  }
  if (!tombstone.empty()) {
    call.addArgument(tombstone);
  }
  call.setRepeatable(false);
}

void LockScripts::startMarked(Call& call,
                              const lua::Script& script,
                              std::initializer_list<std::string_view> keys) const {
  call.setScript(script, keys.size() + 1);
  for (const std::string_view key : keys) {
    call.addArgument(key);
  }
  call.addArgument(call.store(requestKey(name, newRequestId())));
  call.setRepeatable(true);
}

void LockScripts::startNumbered(Call& call,
                                const lua::Script& script,
                                std::initializer_list<std::string_view> keys,
                                const MarkerPool::Loan& marker,
                                std::chrono::milliseconds life) const {
  call.setScript(script, keys.size() + 1);
  for (const std::string_view key : keys) {
    call.addArgument(key);
  }
  call.addMarker(call.store(requestKey(name, marker->id)), marker->number, life);
  call.keep(marker);
  call.setRepeatable(true);
}

void LockScripts::composeAcquire(Call& call, const AcquireRequest& request) const {
  startScript(call, lua::lock_acquire, name, request.tombstone);
  call.addNumber(request.lease.count());
  call.addArgument(request.owner);
  if (!traits.reentrant) {
    call.addArgument(kReacquired);
  }
}

std::optional<AcquireReply> LockScripts::parseAcquire(const Reply& reply) const {
  AcquireReply result;
  if (reply.isInteger()) {
    result.remaining = timeOf(reply.integer);
    return result;
  }
  const auto count =
      reply.isArray() && reply.elements.size() == 1 ? countIn(reply.elements[0]) : std::nullopt;
  if (!count) {
    return std::nullopt;
  }
  result.granted = true;
  result.count = *count;
  return result;
}

void LockScripts::composeRelease(Call& call, const ReleaseRequest& request) const {
  startScript(call, lua::lock_release, name, request.tombstone);
  addReleaseArguments(call, request);
}

void LockScripts::addReleaseArguments(Call& call, const ReleaseRequest& request) const {
  call.addArgument(request.owner);
  call.addArgument(kReleaseMessage);
  call.addArgument(kPublish);
  call.addNumber(request.restore.count());
  call.addArgument(channel);
  call.setFreesMemory(true);
}

std::optional<ReleaseReply> LockScripts::parseRelease(const Reply& reply) const {
  ReleaseReply result;
  if (reply.isNil()) {
    return result;
  }
  result.owned = true;
  const bool pair = reply.isArray() && reply.elements.size() == 2;
  const auto remain = countIn(pair ? reply.elements[0] : reply);
  if (!remain) {
    return std::nullopt;
  }
  result.remain = *remain;
  if (pair) {
    result.publishError = reply.elements[1].text;
  }
  return result;
}

void LockScripts::composeSettle(Call& call, const SettleRequest& request) const {
  startScript(call, lua::lock_settle, name, request.tombstone);
  addSettleArguments(call, request);
}

void LockScripts::addSettleArguments(Call& call, const SettleRequest& request) const {
  call.addArgument(request.owner);
  call.addNumber(request.target);
  call.addArgument(kReleaseMessage);
  call.addArgument(kPublish);
  call.addNumber(kTombstoneLife.count());
  call.addArgument(channel);
  call.addNumber(request.number);
  call.setRepeatable(true);
  call.setFreesMemory(true);
}

std::optional<SettleReply> LockScripts::parseSettle(const Reply& reply) const {
  if (!reply.isArray() || reply.elements.size() < 3) {
    return std::nullopt;
  }
  const auto before = countIn(reply.elements[0]);
  const auto now = countIn(reply.elements[1]);
  if (!before || !now) {
    return std::nullopt;
  }
  SettleReply result;
  result.before = *before;
  result.now = *now;
  if (reply.elements[2].isInteger() && reply.elements[2].integer >= 0) {
    result.remaining = timeOf(reply.elements[2].integer);
  }
  return result;
}

ComposeRenewals LockScripts::renewals() const noexcept {
  return &composeHashRenewals;
}

void LockScripts::composeForceRelease(Call& call) const {
  startMarked(call, lua::lock_force_release, {name});
  addForceArguments(call);
}

void LockScripts::addForceArguments(Call& call) const {
  call.addArgument(kReleaseMessage);
  call.addArgument(kPublish);
  call.addNumber(kTombstoneLife.count());
  call.addArgument(channel);
  call.setFreesMemory(true);
}

void LockScripts::composeIsLocked(Call& call) const {
  call.setCommand({"EXISTS", name});
}

void LockScripts::composeHoldCount(Call& call, std::string_view owner) const {
  call.setCommand({"HGET", name, fieldOf(call, owner)});
}

void LockScripts::composeTimeToLive(Call& call) const {
  call.setCommand({"PTTL", name});
}

}  // namespace rlock::detail
