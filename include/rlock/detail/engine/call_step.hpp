// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/no_memory.hpp>
#include <rlock/error.hpp>

#include <chrono>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>

namespace rlock::detail {

/// The next step of a call, as its state machine says. The caller's answer and the end of the call
/// are two things: a caller may leave while a request is on its way.
enum class CallStep : std::uint8_t {
  none,           ///< wait for the next event
  attempt,        ///< send the request
  queue,          ///< sleep behind the other waiters until it is this one's turn
  reconcileKeep,  ///< find out whether a lost request was executed; keep one hold more than before
  reconcileBack,  ///< bring the holds down to what they must be
  acknowledge,    ///< wait until those have it who must have it
  finish,         ///< give the caller its answer; no event is expected after it
  finishEarly,    ///< give the caller its answer, then wait for the event that is still to come
  finishAndReconcileBack,  ///< both
  end                      ///< the caller has its answer already; nothing is left to do
};

/// How long after its time is up a caller still waits for a reply that is on its way: nearly always
/// it comes at once, and then the answer is certain. Part of the 50 ms that every call may be late.
inline constexpr std::chrono::milliseconds kReplyGrace{25};

/// Says of a failure that it is none for certain.
inline Error doubtful(const Error& error, std::string_view doubt) {
  return Error(error.errc(), error.message() + "; " + std::string(doubt), error.context());
}

inline Error closedError() {
  return Error(Errc::closed, "the client was closed");
}

/// Takes no memory once a client has been made.
inline Error memoryError() {
  return noMemory();
}

/// The end of a call that nobody will answer, with or without memory to say so.
inline Error unansweredError() noexcept {
  try {
    return closedError();
  } catch (const std::bad_alloc&) {
    return memoryError();
  }
}

}  // namespace rlock::detail
