// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/loop.hpp"
#include "net/loop_thread.hpp"

#include <uv.h>

namespace rlock::detail::net {

class LoopCore;

/// The Polls of a loop that watch their descriptors. libuv gives a closed handle back only after
/// another pass of the loop, so each has its handle on the heap, which may outlive it; the core
/// counts them among the handles it waits for.
///
/// **Thread safety:** the loop thread.
class LoopPolls {
 public:
  LoopPolls(LoopThread& thread, LoopCore& core) noexcept : thread_(thread), core_(core) {}

  /// @throws rlock::Error
  void start(Poll& poll, int events, Poll::Callback callback);
  /// @throws rlock::Error  and the poll is stopped
  void setEvents(Poll& poll, int events);
  void stop(Poll& poll) noexcept;
  void stopAll() noexcept;

 private:
  static void onPoll(uv_poll_t* uv, int status, int events) noexcept;
  static void onClosed(uv_handle_t* uv) noexcept;

  LoopThread& thread_;
  LoopCore& core_;
  PollHandle* first_ = nullptr;
};

}  // namespace rlock::detail::net
