// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/detail/net/transport.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace rlock::detail::net {

/// The requests of one connection in the order of their replies: the half of a CommandTransport
/// that needs no socket. The transport says which bytes it wrote, which replies came and when the
/// connection ended; this says whose reply it is, and which requests the server may have seen.
///
/// Invariants: a command is in the stream exactly when its request has a place in this order, so a
/// reply can never reach another request than its own. A request ends once: by its reply (take), or
/// with the connection (fail). A request that ended has left the order and the list of waiting
/// threads, and its done bit is yet to be set, by finish(): once that is set the thread that awaits
/// it may submit it again.
///
/// **Thread safety:** the transport calls it under its mutex, on any thread. The static functions
/// need no mutex: they only touch the word of the request, which is atomic. Nothing here takes
/// memory, reads a clock or can fail.
class PendingRequests {
 public:
  using Clock = CommandTransport::Clock;
  using Mode = CommandTransport::Mode;
  using RequestPtr = IntrusivePtr<Request>;

  /// The requests that ended together, in their order, by how their end is told: finish() for those
  /// that a thread awaits, completed() on the loop for the others.
  struct Ended {
    RequestQueue awaited{};
    RequestQueue background{};
  };
  /// The request whose thread is to read next; null when no thread waits.
  struct Leader {
    RequestPtr request{};
    bool asleep = false;  ///< its thread sleeps on word() and has to be woken
  };
  /// The next step of the thread that awaits a request.
  enum class Next : std::uint8_t {
    lead,       ///< it reads for everybody
    done,       ///< the request has ended
    interrupt,  ///< Request::interrupt() was called
    sleep,      ///< it sleeps while the word is the one it got; it will be woken
  };

  /// @param replyTimeout  how long a connection with unanswered requests may be silent
  explicit PendingRequests(std::chrono::milliseconds replyTimeout) noexcept
      : replyTimeout_(replyTimeout) {}

  // The connection.
  /// A new connection, after the requests of the one before have ended.
  void begin(bool killable, Clock::time_point now) noexcept;
  /// The connection cannot be killed after all.
  void distrust() noexcept { killable_ = false; }
  /// Whether the request may go out on this connection.
  [[nodiscard]] bool accepts(const Request& request) const noexcept {
    return killable_ || !request.onlyIfKillable_;
  }
  /// Ends all requests, in their order: those of which the last byte may have been sent are lost on
  /// `session`, the others unsent.
  void fail(const std::shared_ptr<const ServerSession>& session, Ended& ended) noexcept;

  // The way there.
  /// The request takes the last place, its command the next `bytes` bytes of the stream.
  void append(Request& request, std::size_t bytes, Mode mode, Clock::time_point now) noexcept;
  /// The next `bytes` bytes are offered to the kernel: until it answers, any may be on their way.
  void offer(std::size_t bytes) noexcept { possiblySent_ += bytes; }
  /// The kernel has taken none of the last `bytes` bytes that it was offered.
  void refused(std::size_t bytes) noexcept { possiblySent_ -= bytes; }

  // The way back.
  /// A reply has come, which ends the oldest request. False: there is none, and the connection is
  /// out of step.
  bool take(Reply&& reply, Clock::time_point now, Ended& ended) noexcept;

  // The threads that wait for replies, of which one reads for all.
  /// A thread waits for this request, or is about to, and may be made the reader.
  void enlist(Request& request) noexcept;
  /// The same, and it is the reader now: there is none.
  void appoint(Request& request) noexcept;
  /// Whether enlist() or appoint() was called since it was appended. The request's thread.
  [[nodiscard]] static bool enlisted(const Request& request) noexcept { return request.enlisted_; }
  /// Makes the thread that has waited longest the reader.
  Leader appoint() noexcept;
  /// The reader, or a thread that never waited, awaits the request no longer: it goes on in the
  /// background. False: it has ended already.
  bool toBackground(Request& request) noexcept;
  /// The same for a thread that is not the reader. False also when it has just been made the
  /// reader: it has to pass that role on before it leaves.
  bool leave(Request& request) noexcept;

  // The silence of the server.
  /// When the connection counts as dead if no reply comes; there are pending requests.
  [[nodiscard]] Clock::time_point stallDue() const noexcept;
  /// The same, for the loop, which watches only for requests that no thread awaits: max() when
  /// there are none.
  [[nodiscard]] Clock::time_point backgroundDue() const noexcept {
    return background_ > 0 ? stallDue() : Clock::time_point::max();
  }
  /// Judges a connection with pending requests. Returns when to look again; max(): it is dead.
  ///
  /// The first look that finds it overdue grants a second one: it may be this process that was
  /// stopped, with the replies in the socket and nobody to read them yet.
  Clock::time_point judgeStall(Clock::time_point now) noexcept;

  [[nodiscard]] bool empty() const noexcept { return order_.empty(); }
  /// How many are pending on this connection.
  [[nodiscard]] std::uint64_t size() const noexcept { return submitted_ - answered_; }
  /// How many pending requests no thread awaits.
  [[nodiscard]] std::size_t background() const noexcept { return background_; }
  /// How many replies this connection has brought.
  [[nodiscard]] std::uint64_t answered() const noexcept { return answered_; }
  /// Whether it has answered a request of a user, and not with an error.
  [[nodiscard]] bool useful() const noexcept { return useful_; }

  // The word of one request, which its thread and the reader share.
  /// Sets the done bit of a request that has ended. True: its thread sleeps on word() and has to be
  /// woken; the caller keeps the request alive until then.
  [[nodiscard]] static bool finish(Request& request) noexcept;
  /// Tells a request that has ended in the background. Loop thread, without the mutex.
  static void complete(Request& request) noexcept { request.completed(); }
  [[nodiscard]] static bool done(const Request& request) noexcept {
    return (request.state_.load(std::memory_order_acquire) & Request::kDone) != 0;
  }
  [[nodiscard]] static bool interrupted(const Request& request) noexcept {
    return (request.state_.load(std::memory_order_acquire) & Request::kInterrupted) != 0;
  }
  /// @param word  with `sleep`: the value to sleep on
  [[nodiscard]] static Next next(Request& request, std::uint32_t& word) noexcept;
  [[nodiscard]] static const std::atomic<std::uint32_t>& word(const Request& request) noexcept {
    return request.state_.word();
  }

 private:
  static constexpr std::chrono::milliseconds kSecondLook{10};

  void delist(Request& request) noexcept;
  void end(RequestPtr request, Request::Delivery delivery, Ended& ended) noexcept;

  const std::chrono::milliseconds replyTimeout_;
  bool killable_ = false;
  bool useful_ = false;
  std::uint64_t submitted_ = 0;
  std::uint64_t answered_ = 0;
  RequestQueue order_;
  std::size_t background_ = 0;
  // Bytes of this connection: all that have a place in the stream, and of those the ones that the
  // kernel may have taken.
  std::uint64_t appended_ = 0;
  std::uint64_t possiblySent_ = 0;
  Request* firstWaiting_ = nullptr;
  Request* lastWaiting_ = nullptr;
  Clock::time_point lastReply_{};                            // or the beginning of the connection
  Clock::time_point secondLook_ = Clock::time_point::max();  // not max(): it is suspected
};

inline void PendingRequests::begin(bool killable, Clock::time_point now) noexcept {
  killable_ = killable;
  useful_ = false;
  submitted_ = 0;
  answered_ = 0;
  appended_ = 0;
  possiblySent_ = 0;
  lastReply_ = now;
  secondLook_ = Clock::time_point::max();
}

inline void PendingRequests::fail(const std::shared_ptr<const ServerSession>& session,
                                  Ended& ended) noexcept {
  while (RequestPtr request = order_.pop()) {
    // A server executes no command that it has only a part of.
    const bool sent = request->endOffset_ <= possiblySent_;
    if (sent) {
      request->session_ = session;
    }
    end(std::move(request), sent ? Request::Delivery::lost : Request::Delivery::unsent, ended);
  }
}

inline void PendingRequests::append(Request& request,
                                    std::size_t bytes,
                                    Mode mode,
                                    Clock::time_point now) noexcept {
  ++submitted_;
  appended_ += bytes;
  // An interrupt() may come before the request is submitted, and counts.
  request.state_.fetch_and(Request::kInterrupted, std::memory_order_relaxed);
  request.delivery_ = Request::Delivery::pending;
  request.awaited_ = mode != Mode::background;
  request.waiting_ = false;
  request.enlisted_ = false;
  request.session_.reset();
  request.submittedAt_ = now;
  request.endOffset_ = appended_;
  background_ += request.awaited_ ? 0 : 1;
  order_.push(RequestPtr(&request));
}

inline bool PendingRequests::take(Reply&& reply, Clock::time_point now, Ended& ended) noexcept {
  RequestPtr request = order_.pop();
  if (!request) {
    return false;
  }
  ++answered_;
  lastReply_ = now;
  secondLook_ = Clock::time_point::max();
  useful_ = useful_ || (request->purpose_ == Request::Purpose::work && !reply.isError());
  request->reply_ = std::move(reply);
  request->answeredAt_ = now;
  end(std::move(request), Request::Delivery::replied, ended);
  return true;
}

inline void PendingRequests::end(RequestPtr request,
                                 Request::Delivery delivery,
                                 Ended& ended) noexcept {
  request->delivery_ = delivery;
  if (request->awaited_) {
    delist(*request);
    ended.awaited.push(std::move(request));
  } else {
    --background_;
    ended.background.push(std::move(request));
  }
}

inline void PendingRequests::enlist(Request& request) noexcept {
  request.enlisted_ = true;
  request.waiting_ = true;
  request.nextWaiting_ = nullptr;
  request.previousWaiting_ = lastWaiting_;
  (lastWaiting_ == nullptr ? firstWaiting_ : lastWaiting_->nextWaiting_) = &request;
  lastWaiting_ = &request;
}

inline void PendingRequests::appoint(Request& request) noexcept {
  request.enlisted_ = true;
  request.state_.fetch_or(Request::kLead, std::memory_order_relaxed);
}

inline void PendingRequests::delist(Request& request) noexcept {
  if (!std::exchange(request.waiting_, false)) {
    return;
  }
  (request.previousWaiting_ == nullptr ? firstWaiting_ : request.previousWaiting_->nextWaiting_) =
      request.nextWaiting_;
  (request.nextWaiting_ == nullptr ? lastWaiting_ : request.nextWaiting_->previousWaiting_) =
      request.previousWaiting_;
}

inline PendingRequests::Leader PendingRequests::appoint() noexcept {
  if (firstWaiting_ == nullptr) {
    return {};
  }
  Leader leader{RequestPtr(firstWaiting_)};
  delist(*leader.request);
  // Under the mutex of the transport: a failure that ends this request must come after, so that its
  // thread cannot miss that it has the role.
  const std::uint32_t before =
      leader.request->state_.fetch_or(Request::kLead, std::memory_order_acq_rel);
  leader.asleep = (before & Request::kSleeping) != 0;
  return leader;
}

inline bool PendingRequests::toBackground(Request& request) noexcept {
  if (request.delivery_ != Request::Delivery::pending) {
    return false;
  }
  delist(request);
  request.awaited_ = false;
  ++background_;
  return true;
}

inline bool PendingRequests::leave(Request& request) noexcept {
  return (request.state_.load(std::memory_order_acquire) & Request::kLead) == 0 &&
         toBackground(request);
}

inline PendingRequests::Clock::time_point PendingRequests::stallDue() const noexcept {
  // Bytes do not count: a server that sends one now and then answers nobody. Replies to others do,
  // namely to those before this one in a long queue.
  return std::max(order_.front()->submittedAt_, lastReply_) + replyTimeout_;
}

inline PendingRequests::Clock::time_point PendingRequests::judgeStall(
    Clock::time_point now) noexcept {
  const auto due = stallDue();
  if (now < due) {
    return due;
  }
  if (secondLook_ == Clock::time_point::max()) {
    secondLook_ = now + kSecondLook;
  }
  return now < secondLook_ ? secondLook_ : Clock::time_point::max();
}

inline bool PendingRequests::finish(Request& request) noexcept {
  const std::uint32_t before = request.state_.fetch_or(Request::kDone, std::memory_order_acq_rel);
  return (before & Request::kSleeping) != 0;
}

inline PendingRequests::Next PendingRequests::next(Request& request, std::uint32_t& word) noexcept {
  word = request.state_.load(std::memory_order_acquire);
  for (;;) {
    // The role comes first: a reader has to pass it on even when its own request has ended.
    if ((word & Request::kLead) != 0) {
      return Next::lead;
    }
    if ((word & Request::kDone) != 0) {
      return Next::done;
    }
    if ((word & Request::kInterrupted) != 0) {
      return Next::interrupt;
    }
    if ((word & Request::kSleeping) != 0) {
      return Next::sleep;
    }
    // The bit is set before the thread sleeps on the word, so an end that comes in between changes
    // the word, and the sleep returns at once.
    if (request.state_.compare_exchange_weak(
            word, word | Request::kSleeping, std::memory_order_acq_rel)) {
      word |= Request::kSleeping;
      return Next::sleep;
    }
  }
}

}  // namespace rlock::detail::net
