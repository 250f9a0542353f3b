// SPDX-License-Identifier: Apache-2.0
#include "integration/fair_harness.hpp"

namespace rlock::test {

ForeignClient::ForeignClient(RawRedis& redis, std::string name, std::chrono::milliseconds wait)
    : redis_(redis), name_(std::move(name)), wait_(std::to_string(wait.count())) {}

bool ForeignClient::acquire(const std::string& owner, std::chrono::milliseconds lease) {
  constexpr std::string_view kScript = R"(
    while true do
      local first = redis.call('lindex', KEYS[2], 0)
      if not first then break end
      local score = redis.call('zscore', KEYS[3], first)
      if not score or tonumber(score) > tonumber(ARGV[4]) then break end
      redis.call('zrem', KEYS[3], first)
      redis.call('lpop', KEYS[2])
    end
    local first = redis.call('lindex', KEYS[2], 0)
    if redis.call('exists', KEYS[1]) == 0 and (not first or first == ARGV[2]) then
      redis.call('lpop', KEYS[2])
      redis.call('zrem', KEYS[3], ARGV[2])
      for _, other in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
        redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), other)
      end
      redis.call('hset', KEYS[1], ARGV[2], 1)
      redis.call('pexpire', KEYS[1], ARGV[1])
      return 1
    end
    if not redis.call('zscore', KEYS[3], ARGV[2]) then
      local last = redis.call('lindex', KEYS[2], -1)
      local ttl = last and tonumber(redis.call('zscore', KEYS[3], last)) - tonumber(ARGV[4])
                  or redis.call('pttl', KEYS[1])
      redis.call('zadd', KEYS[3], string.format('%.0f', ttl + ARGV[3] + ARGV[4]), ARGV[2])
      redis.call('rpush', KEYS[2], ARGV[2])
    end
    return 0)";
  return redis_.eval(kScript, keys(), {std::to_string(lease.count()), owner, wait_, now()})
             .integer() == 1;
}

void ForeignClient::release() {
  constexpr std::string_view kScript = R"(
    while true do
      local first = redis.call('lindex', KEYS[2], 0)
      if not first then break end
      local score = redis.call('zscore', KEYS[3], first)
      if not score or tonumber(score) > tonumber(ARGV[1]) then break end
      redis.call('zrem', KEYS[3], first)
      redis.call('lpop', KEYS[2])
    end
    redis.call('del', KEYS[1])
    local first = redis.call('lindex', KEYS[2], 0)
    if first then redis.call(ARGV[3], ARGV[2] .. ':' .. first, '0') end
    return 1)";
  redis_.eval(
      kScript, keys(), {now(), "redisson_lock__channel:{" + name_ + "}", redis_.publishing()});
}

void ForeignClient::leave(const std::string& owner) {
  constexpr std::string_view kScript = R"(
    local behind = false
    for _, other in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
      if behind then redis.call('zincrby', KEYS[3], -tonumber(ARGV[2]), other) end
      behind = behind or other == ARGV[1]
    end
    redis.call('zrem', KEYS[3], ARGV[1])
    return redis.call('lrem', KEYS[2], 0, ARGV[1]))";
  redis_.eval(kScript, keys(), {owner, wait_});
}

RawRedis::Args ForeignClient::keys() const {
  return {name_, "redisson_lock_queue:{" + name_ + "}", "redisson_lock_timeout:{" + name_ + "}"};
}

std::string ForeignClient::now() {
  return std::to_string(redis_.serverTimeUs() / 1000);
}

Steps::Steps(RawRedis& redis, std::string name, std::chrono::milliseconds place)
    : redis_(redis), name_(std::move(name)), place_(place) {}

std::optional<std::int64_t> Steps::acquire(const std::string& owner,
                                           std::chrono::milliseconds lease,
                                           Wait wait) {
  const Value reply = redis_.eval(lua::fair_acquire.body,
                                  keys(6),
                                  {std::to_string(lease.count()),
                                   owner,
                                   std::to_string(static_cast<int>(wait)),
                                   std::to_string(place_.count()),
                                   "0",
                                   redis_.publishing(),
                                   channel()});
  if (reply.kind() == Value::Kind::array) {
    return std::nullopt;
  }
  return reply.integer();
}

Value Steps::release(const std::string& owner) {
  return redis_.eval(
      lua::fair_release.body, keys(4), {owner, "0", redis_.publishing(), "0", channel()});
}

std::int64_t Steps::withdraw(const std::string& owner) {
  return redis_.eval(lua::fair_withdraw.body, keys(6), {owner, "0", redis_.publishing(), channel()})
      .integer();
}

std::string Steps::channel() const {
  return "redisson_lock__channel:{" + name_ + "}";
}

RawRedis::Args Steps::keys(std::size_t count) const {
  RawRedis::Args all{name_,
                     "redisson_lock_queue:{" + name_ + "}",
                     "redisson_lock_timeout:{" + name_ + "}",
                     "rlock_lock_waiter_lease:{" + name_ + "}",
                     "rlock_lock_order:{" + name_ + "}",
                     "rlock_lock_foreign_wait:{" + name_ + "}"};
  all.resize(count);
  return all;
}

void Visitors::send(RLock lock, int number, AcquireOptions options) {
  if (!options.stop.stop_possible()) {
    options.stop = stop_.get_token();
  }
  threads_.push_back(inThread([this, lock, number, options]() mutable {
    return outcomeOf([&] {
      Lease lease = lock.acquire(options);
      {
        const std::lock_guard guard(mutex_);
        order_.push_back(number);
      }
      resource_.use(hold_);
      if (lease.release() != ReleaseResult::released) {
        throw std::runtime_error("not released");
      }
    });
  }));
}

Names Visitors::troubles() {
  Names found;
  for (auto& thread : threads_) {
    std::string outcome = thread.get();
    if (outcome != "ok") {
      found.push_back(std::move(outcome));
    }
  }
  threads_.clear();
  if (resource_.overlaps() != 0) {
    found.emplace_back("overlap");
  }
  return found;
}

std::vector<int> Visitors::order() {
  const std::lock_guard guard(mutex_);
  return order_;
}

std::vector<int> upTo(int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) {
    numbers.push_back(i);
  }
  return numbers;
}

}  // namespace rlock::test
