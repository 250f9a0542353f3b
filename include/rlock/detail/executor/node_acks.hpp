// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/executor/ack_lane.hpp>
#include <rlock/detail/executor/ack_tickets.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/result.hpp>

#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// Finds out which replicas and files have the writes that one node has answered. The second
/// connection that this takes, an AckLane, is made when somebody asks first.
///
/// Invariant: a question is asked of the server process that has answered the write, or not at all:
/// another one may never have received it. Each ticket ends.
///
/// **Thread safety:** loop thread only.
class NodeAcks {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// @param makeLink  kept, for the second connection
  NodeAcks(std::shared_ptr<Env> env,
           AckLane::MakeLink makeLink,
           std::chrono::milliseconds commandTimeout)
      : env_(std::move(env)), makeLink_(std::move(makeLink)), commandTimeout_(commandTimeout) {}

  /// The node has a connection to this server. Takes no memory.
  /// @param since  all that it has answered on that connection was submitted since then, and what
  ///               was answered on the one before was not
  void connected(AckLane::SessionPtr server, TimePoint since) noexcept;
  /// Asks about a write of this key that the node has answered.
  /// @param submittedAt  when it was sent
  void ask(TimePoint submittedAt, std::string_view key, AckTicket ticket);
  /// As CommandTransport::authenticate(), for the second connection; at once if there is none.
  void authenticate(UniqueFunction<void(Result<void>)> done) {
    if (lane_) {
      lane_->authenticate(std::move(done));
    } else {
      done(Result<void>());
    }
  }
  /// Nobody waits for acknowledgements any more: the client is being closed, or the node has ended.
  void end() {
    ended_ = true;
    if (lane_) {
      lane_->close();
    }
  }

 private:
  const std::shared_ptr<Env> env_;
  const AckLane::MakeLink makeLink_;
  const std::chrono::milliseconds commandTimeout_;
  std::unique_ptr<AckLane> lane_;  // null until somebody asks
  AckLane::SessionPtr server_;     // null until there was a connection
  // That server has answered all requests that were submitted since then.
  TimePoint serverSince_ = TimePoint::min();
  bool ended_ = false;
};

inline void NodeAcks::connected(AckLane::SessionPtr server, TimePoint since) noexcept {
  // A server without a name of its own may be another after each reconnection.
  if (server_ && AckLane::sameProcess(*server, *server_) && !server->runId.empty()) {
    return;
  }
  serverSince_ = server_ ? since : serverSince_;
  server_ = std::move(server);
  if (lane_) {
    lane_->setServer(server_);
  }
}

inline void NodeAcks::ask(TimePoint submittedAt, std::string_view key, AckTicket ticket) {
  if (ended_) {
    ticket.done(notMet("its connection was given up"));
    return;
  }
  if (submittedAt < serverSince_) {
    ticket.done(notMet("the server was replaced"));
    return;
  }
  try {
    if (!lane_) {
      lane_ = std::make_unique<AckLane>(env_, makeLink_, commandTimeout_);
      lane_->setServer(server_);
    }
    ticket.markKey = ackMarkKey(key);
    lane_->add(std::move(ticket));
  } catch (const std::bad_alloc&) {
    // NOLINTNEXTLINE(bugprone-use-after-move): what throws has not taken it
    ticket.done(notMet("this process has no memory to ask for it"));
  }
}

}  // namespace rlock::detail
