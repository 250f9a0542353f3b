// SPDX-License-Identifier: Apache-2.0
#include "executor/lock_scripts.hpp"

#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/lua_scripts.hpp>

#include <array>
#include <random>

namespace rlock::detail {

namespace {

constexpr std::string_view kPublish = "PUBLISH";

bool isCount(const Reply& reply) {
  return reply.isInteger() && reply.integer >= 0;
}

}  // namespace

LockKeys::LockKeys(std::string_view lockName) : name(lockName), channel(lockChannel(lockName)) {}

std::string newRequestId() {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{
        device(), device(), device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  id.reserve(32);
  for (int half = 0; half < 2; ++half) {
    std::uint64_t bits = random();
    for (int i = 0; i < 16; ++i, bits >>= 4U) {
      id += kDigits[bits & 15U];
    }
  }
  return id;
}

void composeAcquire(Call& call,
                    const LockKeys& keys,
                    std::string_view owner,
                    std::chrono::milliseconds lease,
                    std::string_view tombstone) {
  call.setScript(lua::lock_acquire, tombstone.empty() ? 1 : 2);
  call.addArgument(keys.name);
  if (!tombstone.empty()) {
    call.addArgument(tombstone);
  }
  call.addNumber(lease.count());
  call.addArgument(owner);
  call.setRepeatable(false);
}

std::optional<AcquireReply> parseAcquire(const Reply& reply) {
  if (reply.isInteger()) {
    return AcquireReply{false, 0, std::chrono::milliseconds(reply.integer)};
  }
  if (reply.isArray() && reply.elements.size() == 1 && isCount(reply.elements[0])) {
    return AcquireReply{true, reply.elements[0].integer, std::chrono::milliseconds(-1)};
  }
  return std::nullopt;
}

void composeRelease(Call& call,
                    const LockKeys& keys,
                    std::string_view owner,
                    std::chrono::milliseconds restore,
                    std::string_view tombstone) {
  call.setScript(lua::lock_release, tombstone.empty() ? 1 : 2);
  call.addArgument(keys.name);
  if (!tombstone.empty()) {
    call.addArgument(tombstone);
  }
  call.addArgument(owner);
  call.addArgument(kReleaseMessage);
  call.addArgument(kPublish);
  call.addNumber(restore.count());
  call.addArgument(keys.channel);
  call.setRepeatable(false);
  call.setFreesMemory(true);
}

std::optional<ReleaseReply> parseRelease(const Reply& reply) {
  if (reply.isNil()) {
    return ReleaseReply{};
  }
  if (isCount(reply)) {
    return ReleaseReply{true, reply.integer, {}};
  }
  if (reply.isArray() && reply.elements.size() == 2 && isCount(reply.elements[0])) {
    return ReleaseReply{true, reply.elements[0].integer, reply.elements[1].text};
  }
  return std::nullopt;
}

void composeSettle(Call& call,
                   const LockKeys& keys,
                   std::string_view owner,
                   std::int64_t target,
                   std::string_view tombstone) {
  call.setScript(lua::lock_settle, tombstone.empty() ? 1 : 2);
  call.addArgument(keys.name);
  if (!tombstone.empty()) {
    call.addArgument(tombstone);
  }
  call.addArgument(owner);
  call.addNumber(target);
  call.addArgument(kReleaseMessage);
  call.addArgument(kPublish);
  call.addNumber(kTombstoneLife.count());
  call.addArgument(keys.channel);
  call.setRepeatable(true);
  call.setFreesMemory(true);
}

std::optional<SettleReply> parseSettle(const Reply& reply) {
  if (reply.isArray() && reply.elements.size() == 3 && isCount(reply.elements[0]) &&
      isCount(reply.elements[1])) {
    return SettleReply{reply.elements[0].integer, reply.elements[1].integer};
  }
  return std::nullopt;
}

void composeRenewal(Call& call, std::size_t count) {
  call.setScript(lua::lock_renew, count);
  call.setRepeatable(false);
}

void composeForceRelease(Call& call, const LockKeys& keys) {
  call.setScript(lua::lock_force_release, 2);
  call.addArgument(keys.name);
  call.addArgument(call.store(requestKey(keys.name, newRequestId())));
  call.addArgument(kReleaseMessage);
  call.addArgument(kPublish);
  call.addNumber(kTombstoneLife.count());
  call.addArgument(keys.channel);
  call.setRepeatable(true);
  call.setFreesMemory(true);
}

}  // namespace rlock::detail
