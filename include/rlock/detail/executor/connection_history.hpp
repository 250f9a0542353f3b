// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/net/server_session.hpp>
#include <rlock/error.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace rlock::detail {

/// Failures to connect that waiting does not cure.
inline bool isPermanent(Errc errc) noexcept {
  return errc == Errc::authenticationFailed || errc == Errc::denied ||
         errc == Errc::invalidArgument;
}

/// The connections of one node so far: why there is none, whether a new one may lead to another
/// server, and which failures are news. Its Node tells it of each event, and asks.
///
/// Invariants: error() is there from a failure until the next connection; nothing was submitted on
/// the present connection, or the last one, before since(), and nothing on an earlier one after it.
///
/// **Thread safety:** loop thread only. It reads no clock.
class ConnectionHistory {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using SessionPtr = std::shared_ptr<const net::ServerSession>;

  /// The meaning of a new connection.
  struct Up {
    bool again;     ///< the server may be another than before, or have lost its data
    bool replaced;  ///< it is another process than that of the connection before
  };
  /// There is a connection. Other threads may have submitted requests on it already.
  Up up(const SessionPtr& session, TimePoint now);
  /// There is none, or another attempt failed. Returns whether that is news: of an outage only its
  /// beginning is, and what it turns into.
  bool down(const Error& error, TimePoint now);

  /// When the connection before the present one, or the last one, had ended.
  [[nodiscard]] TimePoint since() const noexcept { return since_; }
  /// The server asked for the authentication again in answer to a request that was submitted then.
  /// The transport gives the connection up for that.
  void authenticationForgotten(TimePoint submittedAt) noexcept {
    forgotten_ = forgotten_ || (submittedAt >= since_ && !dialFailed_);
  }
  /// Whether that is the last that was heard of the server.
  [[nodiscard]] bool endedForgotten() const noexcept { return forgotten_; }
  /// Why there is no connection.
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }
  /// Whether waiting for one is of no use.
  [[nodiscard]] bool hopeless() const noexcept { return error_ && isPermanent(error_->errc()); }

 private:
  std::optional<Error> error_;
  SessionPtr session_;  // the last connection
  TimePoint since_ = TimePoint::min();
  std::optional<TimePoint> endedAt_;  // of the last connection; empty: nobody told of it
  bool dialFailed_ = false;           // an attempt to make the next one
  bool forgotten_ = false;
  TimePoint readOnlyToldUntil_{};
};

inline ConnectionHistory::Up ConnectionHistory::up(const SessionPtr& session, TimePoint now) {
  if (session_) {
    // Nobody may have been told of its end, for want of memory.
    since_ = endedAt_.value_or(now);
  }
  endedAt_.reset();
  dialFailed_ = false;
  forgotten_ = false;
  if (session->role == "master") {
    readOnlyToldUntil_ = {};
  }
  const bool again = error_ || session_;
  const bool replaced = session_ && !session->sameServer(*session_);
  session_ = session;
  error_.reset();
  return {again, replaced};
}

inline bool ConnectionHistory::down(const Error& error, TimePoint now) {
  // Its time is that of one attempt to connect; the calls that it ends have times of their own.
  ErrorContext context = error.context();
  context.elapsed = ErrorContext().elapsed;
  // Made before anything changes: without memory for it, this is called once more.
  Error latest(error.errc(), error.message(), std::move(context));
  bool known = error_ && error_->errc() == error.errc();
  if (error.errc() == Errc::readOnly) {
    // A replica is left and connected to again and again: that is no news until a master is found.
    constexpr std::chrono::minutes kToldFor{1};
    known = known || now < readOnlyToldUntil_;
    readOnlyToldUntil_ = now + kToldFor;
  }
  if (endedAt_) {
    dialFailed_ = true;
    forgotten_ = false;
  }
  endedAt_ = endedAt_.value_or(now);
  error_ = std::move(latest);
  return !known;
}

}  // namespace rlock::detail
