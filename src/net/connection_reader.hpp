// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/codec.hpp"
#include "net/connection_core.hpp"
#include "net/reply_input.hpp"
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/transport.hpp>

#include <chrono>
#include <cstdint>
#include <utility>

namespace rlock::detail::net {

/// How threads wait for the replies of a connection: of those in await() one reads for all, the
/// *leader*, and hands that role to the one that has waited longest when its own reply is there;
/// the others, *followers*, sleep, each in its own request. The loop is the reader only for
/// requests that no thread awaits.
///
/// Invariants: `reading` of the core is true while somebody is the reader, and the input is that
/// one's. A reader passes its role on, or gives it back, before it leaves, also when its own
/// request has ended or the connection has. A request that was given to its thread as ended is not
/// touched any more, for it may be submitted again.
///
/// **Thread safety:** await() from any thread, readOnLoop() and begin() on the loop thread.
class ConnectionReader {
 public:
  using Clock = CommandTransport::Clock;
  using Awaited = CommandTransport::Awaited;

  /// @param core  the connection; outlives this
  /// @param spin  a reading thread polls that long before it sleeps; 0: never
  ConnectionReader(ConnectionCore& core, std::chrono::microseconds spin)
      : core_(core), input_(spin) {}

  /// A new connection, whose replies `reader` cuts, while nobody reads.
  void begin(ReplyReader reader) noexcept { input_.begin(std::move(reader)); }
  /// ConnectionCore::enlist() has made this thread the reader.
  /// @param pending  how many requests are
  void appointed(std::uint64_t pending) noexcept { input_.notePending(pending); }

  /// As CommandTransport::await().
  Awaited await(Request& request, Clock::time_point deadline) noexcept;
  /// Takes what has come, as the reader, and hands the role over.
  void readOnLoop() noexcept;

 private:
  /// How far the reader has come.
  enum class Reading : std::uint8_t {
    more,     ///< there may be more at once
    nothing,  ///< that was all for now
    over      ///< its own reply has come, and the role is another's, or nobody's
  };

  Awaited lead(Request& request, Clock::time_point deadline, Clock::time_point now) noexcept;
  Awaited follow(Request& request, Clock::time_point deadline) noexcept;
  bool leave(Request& request) noexcept;
  Reading receive(const Request* own, Clock::duration left) noexcept;
  Reading hand(const ReplyInput::Batch& batch, const Request* own) noexcept;
  void handOver() noexcept;
  /// Wakes a thread that was made the reader.
  static void wake(const PendingRequests::Leader& leader) noexcept;

  ConnectionCore& core_;
  ReplyInput input_;  // owned by the reader
};

}  // namespace rlock::detail::net
