// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/connection_core.hpp"
#include "net/connection_reader.hpp"
#include "net/connector.hpp"
#include "net/loop.hpp"
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace rlock::detail::net {

/// The connection of a CommandLink, one after the other, as the calling threads use it together
/// with the loop.
///
/// At most one thread is the writer and at most one the reader. A thread that submits a command
/// appends it; if nobody is the writer, it writes for all. Of the threads in await() one reads for
/// all (ConnectionReader). The loop is reader and writer only for requests that no thread awaits:
/// it learns of them through a nested epoll descriptor that any thread can arm. They all share
/// the ConnectionCore.
///
/// Invariant: a command is in the bytes to be written exactly when its request has a place in the
/// order of replies.
///
/// Guarantees: each accepted request ends once, by its reply or by a failure. Only submit() can
/// fail for want of memory, and then nothing was sent.
///
/// **Thread safety:** the first group of functions from any thread, the second on the loop thread.
class SharedConnection {
 public:
  using Clock = CommandTransport::Clock;
  using Mode = CommandTransport::Mode;
  using Awaited = CommandTransport::Awaited;
  using Watcher = ConnectionCore::Watcher;
  using Failure = ConnectionCore::Failure;
  using Remains = ConnectionCore::Remains;

  /// @param spin      a reading thread polls that long before it sleeps; 0: never
  /// @param wakeLoop  has the loop call maintain(), dismantle() and takeCompleted() soon; called on
  ///                  any thread, also under the mutex, and cannot fail
  SharedConnection(std::chrono::milliseconds replyTimeout,
                   std::chrono::microseconds spin,
                   UniqueFunction<void()> wakeLoop);

  /// As CommandTransport::submit(). On the loop the command is only appended, for flush().
  bool submit(Request& request, std::span<const std::string_view> argv, Mode mode, bool onLoop);
  /// As CommandTransport::submitGroup().
  bool submitGroup(std::span<const CommandTransport::Part> group);
  Awaited await(Request& request, Clock::time_point deadline) noexcept {
    return reader_.await(request, deadline);
  }
  void distrust() noexcept;
  void abandon(Clock::time_point since, Errc errc, const char* what) noexcept;
  [[nodiscard]] bool up() const noexcept { return core_.up(); }

  /// Takes over a new connection, after the one before was dismantled.
  /// @param onPollable  has serve() called
  /// @throws rlock::Error, std::bad_alloc  nothing has changed then
  void start(Loop& loop, Established established, Poll::Callback onPollable);
  /// Ends the connection for good.
  void close() noexcept;
  /// Reads and writes after an event of the nested epoll descriptor. False: there is nothing new.
  bool serve() noexcept;
  /// Writes what submit() was given on the loop. Returns when checkStall() is due; max(): never.
  Clock::time_point flush() noexcept;
  /// Does what needs no event of the socket: tries again what could not be done elsewhere, and
  /// reads what the stream has already. Returns when checkStall() is due; max(): never.
  Clock::time_point maintain() noexcept;
  /// The one judgement of a silent connection: ends it if the server has been silent for too long
  /// about a request that `who` waits for. Returns when to look again; max() when it has ended it,
  /// or there is nothing to wait for. The loop then looks when maintain() or flush() says so.
  Clock::time_point checkStall(Clock::time_point now, Watcher who) noexcept {
    return core_.checkStall(now, who);
  }
  /// Reads what has come while nothing is pending. A reply that nobody asked for ends the
  /// connection: it would be taken for the reply to the next request.
  void checkIdle() noexcept;
  /// Adds the requests that have ended in the background, in their order.
  void takeCompleted(RequestQueue& queue) noexcept;
  /// Nothing while there is no failed connection, or one that is still in use.
  std::optional<Remains> dismantle() noexcept { return core_.dismantle(); }
  /// The replies that the connection has brought; nothing while there is none.
  std::optional<std::uint64_t> answered() noexcept;

 private:
  using State = ConnectionCore::State;

  ConnectionCore core_;
  ConnectionReader reader_;
};

}  // namespace rlock::detail::net
