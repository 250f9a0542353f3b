// SPDX-License-Identifier: Apache-2.0
#include "net/loop_polls.hpp"

#include "net/loop_core.hpp"
#include "net/socket.hpp"

#include <memory>
#include <utility>

namespace rlock::detail::net {

struct PollHandle {
  uv_poll_t uv{};
  LoopPolls* polls = nullptr;
  Poll* owner = nullptr;
  Poll::Callback callback;
  PollHandle* previous = nullptr;
  PollHandle* next = nullptr;
};

void LoopPolls::start(Poll& poll, int events, Poll::Callback callback) {
  if (poll.handle_ == nullptr) {
    auto handle = std::make_unique<PollHandle>();
    if (const int status = uv_poll_init(core_.raw(), &handle->uv, poll.fd_); status != 0) {
      throwCannot("watch a socket", uv_strerror(status));
    }
    handle->uv.data = handle.get();
    handle->polls = this;
    handle->owner = &poll;
    handle->next = first_;
    if (first_ != nullptr) {
      first_->previous = handle.get();
    }
    first_ = handle.get();
    core_.handleOpened();
    poll.handle_ = handle.release();
    if (core_.adopted()) {
      keepNumberInChild(poll.fd_, true);
    }
  }
  poll.handle_->callback = std::move(callback);
  setEvents(poll, events);
}

void LoopPolls::setEvents(Poll& poll, int events) {
  if (const int status = uv_poll_start(&poll.handle_->uv, events, &LoopPolls::onPoll);
      status != 0) {
    stop(poll);
    throwCannot("watch a socket", uv_strerror(status));
  }
}

void LoopPolls::stop(Poll& poll) noexcept {
  PollHandle* const handle = std::exchange(poll.handle_, nullptr);
  (handle->previous != nullptr ? handle->previous->next : first_) = handle->next;
  if (handle->next != nullptr) {
    handle->next->previous = handle->previous;
  }
  handle->owner = nullptr;
  if (core_.adopted()) {
    keepNumberInChild(poll.fd_, false);
  }
  // Not merely stopped: closing it later would touch the descriptor again, which may be another
  // one's by then.
  uv_close(reinterpret_cast<uv_handle_t*>(&handle->uv), &LoopPolls::onClosed);
}

void LoopPolls::stopAll() noexcept {
  while (first_ != nullptr) {
    stop(*first_->owner);
  }
}

void LoopPolls::onClosed(uv_handle_t* uv) noexcept {
  const std::unique_ptr<PollHandle> handle(static_cast<PollHandle*>(uv->data));
  handle->polls->core_.handleClosed();
}

void LoopPolls::onPoll(uv_poll_t* uv, int status, int events) noexcept {
  auto* const handle = static_cast<PollHandle*>(uv->data);
  LoopThread& thread = handle->polls->thread_;
  thread.enter();
  Poll::Callback callback = std::move(handle->callback);
  thread.run([&] { callback(status, events); });
  if (handle->owner != nullptr && handle->callback == nullptr) {
    handle->callback = std::move(callback);
  }
}

Poll::Poll(Loop& loop, int fd) : core_(loop.core_), fd_(fd) {}

Poll::~Poll() {
  stop();
}

void Poll::start(int uvEvents, Callback callback) {
  if (core_->thread().usable()) {
    core_->polls().start(*this, uvEvents, std::move(callback));
  }
}

void Poll::setEvents(int uvEvents) {
  if (handle_ != nullptr && core_->thread().usable()) {
    core_->polls().setEvents(*this, uvEvents);
  }
}

void Poll::stop() noexcept {
  if (handle_ != nullptr && !core_->thread().abandoned()) {
    core_->polls().stop(*this);
  }
}

}  // namespace rlock::detail::net
