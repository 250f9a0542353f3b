// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/server_session.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

namespace rlock::detail::net {

/// One command on its way. It is either awaited by a thread that sits in CommandTransport::await(),
/// or completes by completed() on the loop thread.
///
/// **Thread safety:** owned by whoever submits it while it is idle; by the link while it is
/// pending.
class Request : public RefCounted<Request> {
 public:
  /// Says what a reply to it means for the connection.
  enum class Purpose : std::uint8_t {
    work,    ///< that the connection is of use
    upkeep,  ///< nothing: the link sends it for its own sake
  };
  enum class Delivery : std::uint8_t {
    pending,
    replied,  ///< `reply` is the server's answer
    unsent,  ///< the server cannot have seen the whole command: it was not and will not be executed
    lost,    ///< written, but the connection ended before the reply: executed, or yet to be, or not
  };

  virtual ~Request() = default;

  [[nodiscard]] Delivery delivery() const noexcept { return delivery_; }
  /// A reply is put there, so there must be a place for it before the request is sent.
  [[nodiscard]] Reply& reply() noexcept { return *reply_; }
  /// The connection it was lost on; null unless lost.
  [[nodiscard]] const std::shared_ptr<const ServerSession>& session() const noexcept {
    return session_;
  }
  [[nodiscard]] std::chrono::steady_clock::time_point submittedAt() const noexcept {
    return submittedAt_;
  }
  /// Once there is a reply and await() has returned, or in completed(): a moment after the reply
  /// came, and after the thread that is told of it last waited for anything.
  [[nodiscard]] std::chrono::steady_clock::time_point answeredAt() const noexcept {
    return answeredAt_;
  }
  /// The time is `now`: the next submit(), which is about to follow, need not look at the clock.
  void setSubmitTime(std::chrono::steady_clock::time_point now) noexcept { submitTime_ = now; }
  /// The time that was set, once; `time_point()` otherwise. For transports.
  [[nodiscard]] std::chrono::steady_clock::time_point takeSubmitTime() noexcept {
    return std::exchange(submitTime_, {});
  }
  void setAnsweredAt(std::chrono::steady_clock::time_point now) noexcept { answeredAt_ = now; }

  /// Makes an await() of this request, present or future, return `interrupted`. Any thread.
  /// @param env  where await() sleeps
  void interrupt(Env& env) noexcept;

 protected:
  /// @param reply  where the reply is to be put; null: that is said by setReplyPlace()
  explicit Request(Purpose purpose = Purpose::work, Reply* reply = nullptr) noexcept
      : purpose_(purpose), reply_(reply) {}

  /// While idle. It must stay until the request has ended.
  void setReplyPlace(Reply* reply) noexcept { reply_ = reply; }

  /// Called on the loop thread for a request that no thread awaits.
  virtual void completed() noexcept = 0;

  /// The request goes out only on a connection that can be killed once it is lost. While idle.
  void setOnlyIfKillable(bool only) noexcept { onlyIfKillable_ = only; }

 private:
  friend class PendingRequests;
  friend class RequestQueue;
  friend class RequestWord;
  friend class WaitingList;

  enum Bit : std::uint32_t {
    kDone = 1,
    kLead = 2,      // the thread that awaits this one must read for everybody
    kSleeping = 4,  // it sleeps and needs a wake-up
    kInterrupted = 8,
  };

  Atomic<std::uint32_t> state_{0};
  Delivery delivery_ = Delivery::pending;
  const Purpose purpose_;
  bool awaited_ = false;
  bool onlyIfKillable_ = false;
  bool waiting_ = false;   // its thread may be made the reader
  bool enlisted_ = false;  // it may, or is it, or was
  std::uint64_t endOffset_ = 0;
  std::chrono::steady_clock::time_point submitTime_{};
  std::chrono::steady_clock::time_point submittedAt_{};
  std::chrono::steady_clock::time_point answeredAt_{};
  Reply* reply_;
  std::shared_ptr<const ServerSession> session_;
  // The queue it is in, and the list of those whose threads wait. Links in the requests take no
  // memory, so nothing can fail between a command and its place in the order of replies.
  Request* next_ = nullptr;
  Request* previousWaiting_ = nullptr;
  Request* nextWaiting_ = nullptr;
};

inline void Request::interrupt(Env& env) noexcept {
  const std::uint32_t before = state_.fetch_or(kInterrupted, std::memory_order_acq_rel);
  // Race: its thread may be about to sleep. It sets kSleeping and sleeps only if the word is
  // unchanged, so it sees this bit, or this thread sees kSleeping.
  if ((before & kSleeping) != 0) {
    env.wakeOne(&state_.word());
  }
}

/// A request with a place for its reply.
class LoneRequest : public Request {
 protected:
  explicit LoneRequest(Purpose purpose = Purpose::work) noexcept : Request(purpose, &own_) {}

 private:
  Reply own_;
};

/// Requests, first in, first out. A request is in one queue at most.
///
/// **Thread safety:** one thread at a time.
class RequestQueue {
 public:
  using RequestPtr = IntrusivePtr<Request>;

  RequestQueue() noexcept = default;
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;
  ~RequestQueue() {
    while (pop()) {
    }
  }

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  /// The oldest; null when empty.
  [[nodiscard]] const Request* front() const noexcept { return first_; }

  void push(RequestPtr request) noexcept {
    Request* const raw = request.detach();
    raw->next_ = nullptr;
    (last_ == nullptr ? first_ : last_->next_) = raw;
    last_ = raw;
  }
  /// Null when empty.
  RequestPtr pop() noexcept;
  /// Takes all of `other` behind its own.
  void append(RequestQueue& other) noexcept {
    if (other.first_ == nullptr) {
      return;
    }
    (last_ == nullptr ? first_ : last_->next_) = other.first_;
    last_ = other.last_;
    other.first_ = other.last_ = nullptr;
  }

 private:
  Request* first_ = nullptr;
  Request* last_ = nullptr;
};

inline RequestQueue::RequestPtr RequestQueue::pop() noexcept {
  Request* const raw = first_;
  if (raw == nullptr) {
    return nullptr;
  }
  first_ = std::exchange(raw->next_, nullptr);
  if (first_ == nullptr) {
    last_ = nullptr;
  }
  return RequestPtr::adopt(raw);
}

/// The requests whose threads wait and may be made the reader, in the order in which they came. It
/// keeps none of them alive: who ends a request removes it first.
///
/// **Thread safety:** one thread at a time.
class WaitingList {
 public:
  /// The one that has waited longest; null when empty.
  [[nodiscard]] Request* first() const noexcept { return first_; }

  void push(Request& request) noexcept {
    request.waiting_ = true;
    request.nextWaiting_ = nullptr;
    request.previousWaiting_ = last_;
    (last_ == nullptr ? first_ : last_->nextWaiting_) = &request;
    last_ = &request;
  }
  /// Does nothing for one that is not in it.
  void remove(Request& request) noexcept;

 private:
  Request* first_ = nullptr;
  Request* last_ = nullptr;
};

inline void WaitingList::remove(Request& request) noexcept {
  if (!std::exchange(request.waiting_, false)) {
    return;
  }
  (request.previousWaiting_ == nullptr ? first_ : request.previousWaiting_->nextWaiting_) =
      request.nextWaiting_;
  (request.nextWaiting_ == nullptr ? last_ : request.nextWaiting_->previousWaiting_) =
      request.previousWaiting_;
}

}  // namespace rlock::detail::net
