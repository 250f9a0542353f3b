// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/request_word.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/detail/net/stall_detector.hpp>
#include <rlock/detail/net/transport.hpp>

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
/// threads, and its done bit is yet to be set, by RequestWord::finish(): once that is set the
/// thread that awaits it may submit it again.
///
/// It also says whose thread is next to read; how the reader and the others tell each other
/// is RequestWord, and how long the server may be silent StallDetector.
///
/// **Thread safety:** the transport calls it under its mutex, on any thread; complete() and
/// enlisted() need none. Nothing here takes memory, reads a clock or can fail.
class PendingRequests {
 public:
  using Clock = CommandTransport::Clock;
  using Mode = CommandTransport::Mode;
  using RequestPtr = IntrusivePtr<Request>;

  /// The requests that ended together, in their order, by how their end is told:
  /// RequestWord::finish() for those that a thread awaits, completed() on the loop for the others.
  struct Ended {
    RequestQueue awaited{};
    RequestQueue background{};
  };
  /// The request whose thread is to read next; null when no thread waits.
  struct Leader {
    RequestPtr request{};
    bool asleep = false;  ///< its thread sleeps on its word and has to be woken
  };

  /// @param replyTimeout  how long a connection with unanswered requests may be silent
  explicit PendingRequests(std::chrono::milliseconds replyTimeout) noexcept
      : stall_(replyTimeout) {}

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
  [[nodiscard]] Clock::time_point stallDue() const noexcept {
    return stall_.due(order_.front()->submittedAt_);
  }
  /// The same, for the loop, which watches only for requests that no thread awaits: max() when
  /// there are none.
  [[nodiscard]] Clock::time_point backgroundDue() const noexcept {
    return background_ > 0 ? stallDue() : Clock::time_point::max();
  }
  /// Judges a connection with pending requests. Returns when to look again; max(): it is dead.
  Clock::time_point judgeStall(Clock::time_point now) noexcept {
    return stall_.judge(order_.front()->submittedAt_, now);
  }

  [[nodiscard]] bool empty() const noexcept { return order_.empty(); }
  /// How many are pending on this connection.
  [[nodiscard]] std::uint64_t size() const noexcept { return submitted_ - answered_; }
  /// How many pending requests no thread awaits.
  [[nodiscard]] std::size_t background() const noexcept { return background_; }
  /// How many replies this connection has brought.
  [[nodiscard]] std::uint64_t answered() const noexcept { return answered_; }
  /// Whether it has answered a request of a user, and not with an error.
  [[nodiscard]] bool useful() const noexcept { return useful_; }
  /// The connection is of no use any more, whatever it has answered.
  void discredit() noexcept { useful_ = false; }

  /// Tells a request that has ended in the background. Loop thread, without the mutex.
  static void complete(Request& request) noexcept { request.completed(); }

 private:
  void end(RequestPtr request, Request::Delivery delivery, Ended& ended) noexcept;

  StallDetector stall_;
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
  WaitingList waiting_;
};

inline void PendingRequests::begin(bool killable, Clock::time_point now) noexcept {
  killable_ = killable;
  useful_ = false;
  submitted_ = 0;
  answered_ = 0;
  appended_ = 0;
  possiblySent_ = 0;
  stall_.heard(now);
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
  RequestWord::begin(request);
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
  stall_.heard(now);
  useful_ = useful_ || (request->purpose_ == Request::Purpose::work && !reply.isError());
  *request->reply_ = std::move(reply);
  request->answeredAt_ = now;
  end(std::move(request), Request::Delivery::replied, ended);
  return true;
}

inline void PendingRequests::end(RequestPtr request,
                                 Request::Delivery delivery,
                                 Ended& ended) noexcept {
  request->delivery_ = delivery;
  if (request->awaited_) {
    waiting_.remove(*request);
    ended.awaited.push(std::move(request));
  } else {
    --background_;
    ended.background.push(std::move(request));
  }
}

inline void PendingRequests::enlist(Request& request) noexcept {
  request.enlisted_ = true;
  waiting_.push(request);
}

inline void PendingRequests::appoint(Request& request) noexcept {
  request.enlisted_ = true;
  RequestWord::appointSelf(request);
}

inline PendingRequests::Leader PendingRequests::appoint() noexcept {
  if (waiting_.first() == nullptr) {
    return {};
  }
  Leader leader{RequestPtr(waiting_.first())};
  waiting_.remove(*leader.request);
  // Under the mutex of the transport: a failure that ends this request must come after, so that its
  // thread cannot miss that it has the role.
  leader.asleep = RequestWord::appoint(*leader.request);
  return leader;
}

inline bool PendingRequests::toBackground(Request& request) noexcept {
  if (request.delivery_ != Request::Delivery::pending) {
    return false;
  }
  waiting_.remove(request);
  request.awaited_ = false;
  ++background_;
  return true;
}

inline bool PendingRequests::leave(Request& request) noexcept {
  return !RequestWord::leads(request) && toBackground(request);
}

}  // namespace rlock::detail::net
