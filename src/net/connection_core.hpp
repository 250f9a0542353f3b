// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/connector.hpp"
#include "net/socket_watch.hpp"
#include "net/stream.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/atomic.hpp>
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
#include <string>
#include <string_view>
#include <sys/types.h>

namespace rlock::detail::net {

/// The part of a connection that all threads share: its state, the order of its replies, the bytes
/// to be written, and the socket. It knows how to write, how to have the loop woken, and how to
/// end; ConnectionReader is how threads wait for replies, and SharedConnection what users see. Both
/// lock `mutex` themselves.
///
/// Invariants: the state, the bytes to be written and the order of replies change under the mutex
/// only. At most one thread is the writer (OutputQueue), and at most one the reader (`reading`).
/// The socket is used without the mutex, by these two, so it is closed only once there is neither:
/// a failure shuts it down, which brings both back, and dismantle() takes it away. Between the two
/// no request is pending and none is accepted.
///
/// Guarantees: each request that was appended to `pending` ends once, by its reply or by fail().
///
/// **Thread safety:** as annotated; begin() and dismantle() on the loop thread, the rest from any.
// Its members are in groups by who may touch them.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
class ConnectionCore {
 public:
  using Clock = CommandTransport::Clock;
  enum class State : std::uint8_t { down, up, failing, closed };
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

  ConnectionCore(std::chrono::milliseconds timeout, UniqueFunction<void()> wakesLoop);

  [[nodiscard]] bool up() const noexcept { return up_.load(std::memory_order_acquire); }
  /// Takes over a new connection, after the one before was dismantled.
  void begin(std::unique_ptr<SocketWatch> newWatch, Established established) noexcept
      RLOCK_REQUIRES(mutex);
  /// Nothing while there is no failed connection, or one that is still in use.
  std::optional<Remains> dismantle() noexcept;

  ///@{
  /// Ends the connection, if there is one. A function that is given the lock may release it, also
  /// for good: the lock says whether it did.
  void fail(const Failure& why) noexcept RLOCK_EXCLUDES(mutex);
  void fail(ReleasableLock& lock, const Failure& why) noexcept RLOCK_REQUIRES(mutex);
  ///@}
  /// The failure of a call to the kernel; `error` is its errno.
  [[nodiscard]] Failure socketFailure(const char* what, int error) const;
  /// As SharedConnection::checkStall().
  Clock::time_point checkStall(Clock::time_point now, Watcher who) noexcept;
  /// Sets the done bits of requests that have ended, and wakes their threads.
  static void tell(RequestQueue& ended) noexcept;

  /// A thread awaits the request: it becomes the reader if there is none, and stands in line
  /// otherwise. Returns whether it is the reader.
  bool enlist(Request& request) noexcept RLOCK_REQUIRES(mutex);
  /// The thread that has waited longest is the reader from here on, if there is one. It may read at
  /// once, so that the input is no longer this thread's.
  PendingRequests::Leader passRole() noexcept RLOCK_REQUIRES(mutex);

  ///@{
  /// Has the loop woken: now, or for the events of the socket that nobody else waits for.
  void wakeLoop() noexcept { wakeLoop_(); }
  void arm() noexcept RLOCK_REQUIRES(mutex);
  ///@}

  /// Makes this thread the writer if there is none. Returns the bytes that it is to write().
  std::string_view beginWriting() noexcept RLOCK_REQUIRES(mutex);
  /// The socket may have room again: makes this thread the writer if the role was left behind.
  std::string_view resumeWriting() noexcept RLOCK_REQUIRES(mutex);
  /// Writes until there is no more or the socket is full. Commands that others append during a call
  /// to the kernel are written by the next one.
  void write(std::string_view bytes) noexcept RLOCK_EXCLUDES(mutex);

  const std::chrono::milliseconds replyTimeout;

  AnnotatedMutex mutex;
  State state RLOCK_GUARDED_BY(mutex) = State::down;
  bool reading RLOCK_GUARDED_BY(mutex) = false;    // somebody is the reader
  bool armFailed RLOCK_GUARDED_BY(mutex) = false;  // the loop tries again
  bool buffered RLOCK_GUARDED_BY(mutex) = false;   // the loop reads what the stream has
  PendingRequests pending RLOCK_GUARDED_BY(mutex);
  RequestQueue completed RLOCK_GUARDED_BY(mutex);  // their completed() is due

  // Under the mutex, but for what it says of itself.
  OutputQueue output;

  // Written under the mutex and on the loop thread only, which may read them without.
  bool closing = false;
  Clock::time_point upSince{};

  // Replaced on the loop thread while nobody reads or writes.
  std::unique_ptr<Stream> stream;
  std::unique_ptr<SocketWatch> watch;  // before the stream is closed it must be gone

 private:
  std::string_view nextBytes() noexcept RLOCK_REQUIRES(mutex);
  std::string_view goOnWriting(std::string_view bytes, ssize_t count, int error) noexcept
      RLOCK_EXCLUDES(mutex);

  const std::string stallText_;
  UniqueFunction<void()> wakeLoop_;
  Atomic<bool> up_{false};
  Failure failure_ RLOCK_GUARDED_BY(mutex);
  std::shared_ptr<const ServerSession> session_;  // as upSince
};

}  // namespace rlock::detail::net
