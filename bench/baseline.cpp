// SPDX-License-Identifier: Apache-2.0
#include "baseline.hpp"

#include <rlock/detail/executor/lua_scripts.hpp>

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <random>
#include <stdexcept>

namespace rlock::bench {

namespace {

// The same Redis commands in the same order as Redisson's scripts.
constexpr std::string_view kRedissonLock = R"lua(
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])
)lua";
constexpr std::string_view kRedissonUnlock = R"lua(
local latch = redis.call('get', KEYS[3])
if latch ~= false then
  return tonumber(latch)
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[5])
return 1
)lua";

constexpr std::string_view kLatchLife = "17000";

std::string randomId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

void expect(bool right, std::string_view what) {
  if (!right) {
    throw std::runtime_error(fmt::format("unexpected reply to {}", what));
  }
}

}  // namespace

Scripts::Scripts(Connection& connection)
    : redissonLock(connection.loadScript(kRedissonLock)),
      redissonUnlock(connection.loadScript(kRedissonUnlock)),
      acquire(connection.loadScript(detail::lua::lock_acquire.body)),
      release(connection.loadScript(detail::lua::lock_release.body)) {}

HiredisLock::HiredisLock(const Context& context,
                         const Scripts& scripts,
                         Protocol protocol,
                         const std::string& name)
    : scripts_(scripts),
      protocol_(protocol),
      name_(name),
      channel_(channelOf(name)),
      latchPrefix_(fmt::format("redisson_unlock_latch:{{{}}}:", name)),
      connection_(context.options) {}

void HiredisLock::lock() {
  if (protocol_ == Protocol::redisson) {
    const auto reply =
        connection_.command({"EVALSHA", scripts_.redissonLock, "1", name_, kLockLease, kLockOwner});
    expect(reply->type == REDIS_REPLY_NIL, "lock");
  } else {
    const auto reply = connection_.command(acquireWords(scripts_, name_));
    expect(isAcquired(*reply), "lock");
  }
}

void HiredisLock::unlock() {
  if (protocol_ == Protocol::redisson) {
    latch_ = latchPrefix_ + randomId();
    const auto reply = connection_.command({"EVALSHA",
                                            scripts_.redissonUnlock,
                                            "3",
                                            name_,
                                            channel_,
                                            latch_,
                                            "0",
                                            kLockLease,
                                            kLockOwner,
                                            "PUBLISH",
                                            kLatchLife});
    expect(reply->type == REDIS_REPLY_INTEGER && reply->integer == 1, "unlock");
    connection_.sendOnly({"DEL", latch_});
  } else {
    const auto reply = connection_.command(releaseWords(scripts_, name_, channel_));
    expect(isReleased(*reply), "unlock");
  }
}

std::vector<std::string_view> acquireWords(const Scripts& scripts, std::string_view name) {
  return {"EVALSHA", scripts.acquire, "1", name, kLockLease, kLockOwner};
}

std::vector<std::string_view> releaseWords(const Scripts& scripts,
                                           std::string_view name,
                                           std::string_view channel) {
  return {"EVALSHA", scripts.release, "1", name, kLockOwner, "0", "PUBLISH", kLockLease, channel};
}

bool isAcquired(const redisReply& reply) {
  return reply.type == REDIS_REPLY_ARRAY && reply.elements == 1 && reply.element[0]->integer == 1;
}

bool isReleased(const redisReply& reply) {
  return reply.type == REDIS_REPLY_INTEGER && reply.integer == 0;
}

std::string channelOf(std::string_view name) {
  return fmt::format("redisson_lock__channel:{{{}}}", name);
}

}  // namespace rlock::bench
