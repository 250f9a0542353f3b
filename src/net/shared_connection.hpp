// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/connector.hpp"
#include "net/loop.hpp"
#include "net/reply_input.hpp"
#include "net/socket_watch.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/net/output_queue.hpp>
#include <rlock/detail/net/pending_requests.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace rlock::detail::net {

/// The connection of a CommandLink, one after the other, as the calling threads use it together
/// with the loop.
///
/// At most one thread is the writer and at most one the reader. A thread that submits a command
/// appends it; if nobody is the writer, it writes for all. Of the threads in await() one reads for
/// all, and hands that role to the one that has waited longest when its own reply is there. The
/// loop is reader and writer only for requests that no thread awaits: it learns of them through a
/// nested epoll descriptor that any thread can arm.
///
/// Invariants: state_, the bytes to be written and the order of replies (PendingRequests) change
/// under mutex_ only. The socket is used without the mutex, by the writer and the reader, so it is
/// closed only once there is neither: a failure shuts it down, which brings both back, and
/// dismantle() takes it away. Between the two no request is pending and none is accepted.
///
/// Guarantees: each accepted request ends once, by its reply or by a failure. Only submit() can
/// fail for want of memory, and then nothing was sent.
///
/// **Thread safety:** the first group of functions from any thread, the second on the loop thread.
// Its members are in groups by who may touch them.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
class SharedConnection {
 public:
  using Clock = CommandTransport::Clock;
  using Mode = CommandTransport::Mode;
  using Awaited = CommandTransport::Awaited;
  using RequestPtr = PendingRequests::RequestPtr;

  /// The watch for replies that do not come: a thread that awaits one, or the loop for requests
  /// that no thread awaits.
  enum class Watcher : std::uint8_t { thread, loop };
  /// Why a connection was given up, in a form that takes no memory.
  struct Failure {
    Errc errc = Errc::connectionFailed;
    const char* what = "";    // static, or of the connection
    const char* detail = "";  // likewise, or of its stream
    int error = 0;            // errno, or 0
  };
  /// A connection that has ended.
  struct Remains {
    Failure failure{};
    bool useful = false;  ///< see PendingRequests::useful()
    Clock::time_point upSince{};
    std::shared_ptr<const ServerSession> session{};
    std::unique_ptr<Stream> stream{};
  };

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
  Awaited await(Request& request, Clock::time_point deadline) noexcept;
  void distrust() noexcept;
  void abandon(Clock::time_point since, Errc errc, const char* what) noexcept;
  [[nodiscard]] bool up() const noexcept { return up_.load(std::memory_order_acquire); }

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
  Clock::time_point checkStall(Clock::time_point now, Watcher who) noexcept;
  /// Adds the requests that have ended in the background, in their order.
  void takeCompleted(RequestQueue& queue) noexcept;
  /// Nothing while there is no failed connection, or one that is still in use.
  std::optional<Remains> dismantle() noexcept;
  /// The replies that the connection has brought; nothing while there is none.
  std::optional<std::uint64_t> answered() noexcept;

 private:
  enum class State : std::uint8_t { down, up, failing, closed };

  // As a thread in await().
  void enlist(Request& request) noexcept RLOCK_REQUIRES(mutex_);
  Awaited lead(Request& request, Clock::time_point deadline, Clock::time_point now) noexcept;
  Awaited follow(Request& request, Clock::time_point deadline) noexcept;
  bool leave(Request& request) noexcept;

  // As the reader.
  /// How far the reader has come.
  enum class Reading : std::uint8_t {
    more,     ///< there may be more at once
    nothing,  ///< that was all for now
    over      ///< its own reply has come, and the role is another's, or nobody's
  };
  Reading receive(const Request* own, Clock::duration left) noexcept;
  Reading hand(const ReplyInput::Batch& batch, const Request* own) noexcept;
  void readOnLoop() noexcept;
  void handOver() noexcept;
  PendingRequests::Leader passRole() noexcept RLOCK_REQUIRES(mutex_);

  // As the writer.
  std::string_view beginWriting() noexcept RLOCK_REQUIRES(mutex_);
  std::string_view nextBytes() noexcept RLOCK_REQUIRES(mutex_);
  std::string_view goOnWriting(std::string_view bytes, ssize_t count, int error) noexcept
      RLOCK_EXCLUDES(mutex_);
  void write(std::string_view bytes) noexcept RLOCK_EXCLUDES(mutex_);

  // A function that is given the lock may release it, also for good: the lock says whether it did.
  void fail(const Failure& why) noexcept RLOCK_EXCLUDES(mutex_);
  void fail(ReleasableLock& lock, const Failure& why) noexcept RLOCK_REQUIRES(mutex_);
  void arm() noexcept RLOCK_REQUIRES(mutex_);

  const std::chrono::milliseconds replyTimeout_;
  const std::string stallText_;
  UniqueFunction<void()> wakeLoop_;
  std::atomic<bool> up_{false};

  AnnotatedMutex mutex_;
  State state_ RLOCK_GUARDED_BY(mutex_) = State::down;
  bool reading_ RLOCK_GUARDED_BY(mutex_) = false;    // somebody is the reader
  bool armFailed_ RLOCK_GUARDED_BY(mutex_) = false;  // the loop tries again
  bool buffered_ RLOCK_GUARDED_BY(mutex_) = false;   // the loop reads what the stream has
  PendingRequests pending_ RLOCK_GUARDED_BY(mutex_);
  RequestQueue completed_ RLOCK_GUARDED_BY(mutex_);  // their completed() is due
  Failure failure_ RLOCK_GUARDED_BY(mutex_);

  // Under mutex_, but for what it says of itself.
  OutputQueue output_;

  // Written under mutex_ and on the loop thread only, which may read them without.
  bool closing_ = false;
  Clock::time_point upSince_{};
  std::shared_ptr<const ServerSession> session_;

  ReplyInput input_;  // owned by the reader

  // Replaced on the loop thread while nobody reads or writes.
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<SocketWatch> watch_;  // before the stream is closed it must be gone
};

}  // namespace rlock::detail::net
