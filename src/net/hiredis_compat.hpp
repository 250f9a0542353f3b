// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one place that tells hiredis versions apart. Included by codec.cpp only.

#include <hiredis/hiredis.h>

#include <cstddef>

namespace rlock::detail::net::compat {

/// The last type of RESP2. Higher numbers exist since hiredis 1.0 and come only from a server that
/// speaks RESP3 unasked.
inline constexpr int kLastResp2Type = REDIS_REPLY_ERROR;

#if HIREDIS_MAJOR >= 1
/// Element count in redisReplyObjectFunctions::createArray.
using ArrayCount = std::size_t;
#else
using ArrayCount = int;
#endif

/// Installs what RESP3 added, so that no function pointer is left null.
inline void setResp3Functions(
    [[maybe_unused]] redisReplyObjectFunctions& functions,
    [[maybe_unused]] void* (*createDouble)(const redisReadTask*, double, char*, std::size_t),
    [[maybe_unused]] void* (*createBool)(const redisReadTask*, int)) noexcept {
#if HIREDIS_MAJOR >= 1
  functions.createDouble = createDouble;
  functions.createBool = createBool;
#endif
}

/// The item the reader is in the middle of, or null between two replies.
inline const redisReadTask* currentTask(const redisReader& reader) noexcept {
  if (reader.ridx < 0) {
    return nullptr;
  }
#if HIREDIS_MAJOR >= 1
  return reader.task[reader.ridx];
#else
  return &reader.rstack[reader.ridx];
#endif
}

}  // namespace rlock::detail::net::compat
