// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/random_bits.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/idempotency_key_pool.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace rlock::detail {

/// For a numbered request that adds to a number, or takes from it. It must take effect exactly
/// once: it goes on when its caller has left, and it is not sent again as it is when its reply was
/// lost, because its idempotency key may have lapsed (QueryTask).
inline void addsUp(Call& call) noexcept {
  call.setGoesOn(true);
  call.setRepeatable(false);
}

/// A fresh name for one request: 32 hexadecimal characters.
std::string newRequestId();

/// How long a tombstone keeps a lost request from being executed, and an idempotency key that is
/// used once remembers one.
inline constexpr std::chrono::milliseconds kTombstoneLife{120'000};
/// How long the idempotency key of a numbered request is kept at least after its latest use: a
/// request that was lost in an outage can be reconciled if the outage ends within this time.
inline constexpr std::chrono::milliseconds kIdempotencyKeyLife{900'000};
/// The part of an idempotency key's life in which it has certainly not lapsed, whatever the clocks'
/// rates.
constexpr std::chrono::milliseconds trustedPart(std::chrono::milliseconds life) noexcept {
  return life - life / 10;
}

// The beginnings of scripts. Arguments follow by Call::addArgument().

/// Starts a script that is not to be repeated when its reply was lost.
/// @param tombstone  the last key; empty: none is needed
void startScript(Call& call,
                 const lua::Script& script,
                 std::initializer_list<std::string_view> keys,
                 std::string_view tombstone);
/// As the other, for one key.
void startScript(Call& call,
                 const lua::Script& script,
                 std::string_view key,
                 std::string_view tombstone);
/// Starts a script that makes an idempotency key of its own, the last key, so that the call may be
/// repeated.
/// @param name  of the object, on the server
void startWithKey(Call& call,
                  const lua::Script& script,
                  std::string_view name,
                  std::initializer_list<std::string_view> keys);
/// As startWithKey(), with an idempotency key that the next request uses again. The first two
/// arguments are the number of this request and for how many ms the script remembers it. The call
/// keeps the loan.
void startNumbered(Call& call,
                   const lua::Script& script,
                   std::string_view name,
                   std::initializer_list<std::string_view> keys,
                   const IdempotencyKeyPool::Loan& idempotencyKey,
                   std::chrono::milliseconds life);

inline std::string newRequestId() {
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

inline void startScript(Call& call,
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

inline void startScript(Call& call,
                        const lua::Script& script,
                        std::string_view key,
                        std::string_view tombstone) {
  startScript(call, script, {key}, tombstone);
}

inline void startWithKey(Call& call,
                         const lua::Script& script,
                         std::string_view name,
                         std::initializer_list<std::string_view> keys) {
  call.setScript(script, keys.size() + 1);
  for (const std::string_view key : keys) {
    call.addArgument(key);
  }
  call.addArgument(call.store(requestKey(name, newRequestId())));
  call.setRepeatable(true);
}

inline void startNumbered(Call& call,
                          const lua::Script& script,
                          std::string_view name,
                          std::initializer_list<std::string_view> keys,
                          const IdempotencyKeyPool::Loan& idempotencyKey,
                          std::chrono::milliseconds life) {
  call.setScript(script, keys.size() + 1);
  for (const std::string_view key : keys) {
    call.addArgument(key);
  }
  call.addIdempotencyKey(
      call.store(requestKey(name, idempotencyKey->id)), idempotencyKey->number, life);
  call.keep(idempotencyKey);
  call.setRepeatable(true);
}

}  // namespace rlock::detail
