// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/executor/call.hpp>

namespace rlock::detail {

/// A question that any node answers at once.
inline void composePing(Call& call) {
  call.setCommand({"PING"});
  call.setSlot(0);
}
inline bool isPong(const Reply& reply) {
  return reply.is("PONG");
}

}  // namespace rlock::detail
