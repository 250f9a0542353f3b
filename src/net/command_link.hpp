// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/codec.hpp"
#include "net/dialer.hpp"
#include "net/loop.hpp"
#include <rlock/detail/intrusive_ptr.hpp>
#include <rlock/detail/reply.hpp>
#include <rlock/error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail::net {

/// One command on its way. It is either awaited by a thread that sits in CommandLink::await(), or
/// completes by completed() on the loop thread.
///
/// **Thread safety:** owned by whoever submits it while it is idle; by the link while it is
/// pending.
class Request : public RefCounted<Request> {
 public:
  enum class Delivery : std::uint8_t {
    pending,
    replied,  ///< `reply` is the server's answer
    unsent,  ///< the server cannot have seen the whole command: it was not and will not be executed
    lost,    ///< written, but the connection ended before the reply: executed, or yet to be, or not
  };

  virtual ~Request() = default;

  [[nodiscard]] Delivery delivery() const noexcept { return delivery_; }
  [[nodiscard]] Reply& reply() noexcept { return reply_; }
  /// The connection it was lost on; null unless lost.
  [[nodiscard]] const std::shared_ptr<const ServerSession>& session() const noexcept {
    return session_;
  }
  [[nodiscard]] std::chrono::steady_clock::time_point submittedAt() const noexcept {
    return submittedAt_;
  }

  /// Makes an await() of this request, present or future, return `interrupted`. Any thread.
  void interrupt() noexcept;

 protected:
  Request() noexcept = default;

  /// Called on the loop thread for a request that no thread awaits.
  virtual void completed() noexcept = 0;

  /// The request goes out only on a connection that can be killed once it is lost. While idle.
  void setOnlyIfKillable(bool only) noexcept { onlyIfKillable_ = only; }

 private:
  friend class CommandLink;

  enum Bit : std::uint32_t {
    kDone = 1,
    kLead = 2,      // the thread that awaits this one must read for everybody
    kSleeping = 4,  // it sleeps and needs a wake-up
    kInterrupted = 8,
  };

  [[nodiscard]] bool done() const noexcept {
    return (state_.load(std::memory_order_acquire) & kDone) != 0;
  }

  std::atomic<std::uint32_t> state_{0};
  Delivery delivery_ = Delivery::pending;
  bool awaited_ = false;
  bool onlyIfKillable_ = false;
  bool arrived_ = false;
  std::uint64_t endOffset_ = 0;
  std::chrono::steady_clock::time_point submittedAt_{};
  Reply reply_;
  std::shared_ptr<const ServerSession> session_;
};

class LinkEvents {
 public:
  LinkEvents() = default;
  LinkEvents(const LinkEvents&) = delete;
  LinkEvents& operator=(const LinkEvents&) = delete;
  virtual ~LinkEvents() = default;

  virtual void onUp(const std::shared_ptr<const ServerSession>& session) = 0;
  /// The connection was lost, or another attempt to connect failed.
  virtual void onDown(const Error& error) = 0;
};

/// The connection to one node that everybody shares, driven by whoever needs it. A thread that
/// wants a reply appends its command; if no thread is writing, it writes for all. Among the threads
/// that wait for replies one reads for all and hands the role to the oldest other when its own
/// reply is there. The loop thread sleeps meanwhile; it writes and reads only for requests that no
/// thread awaits, through a nested epoll descriptor that any thread can arm.
///
/// A lost connection is replaced by itself, with back-off. Replies are matched to requests by
/// order; a connection on which a request stays unanswered for the reply timeout is given up, so an
/// answer can never reach the wrong request.
///
/// **Thread safety:** submit(), await() and the observers from any thread; the rest on the loop
/// thread.
class CommandLink : public std::enable_shared_from_this<CommandLink> {
 public:
  using Clock = std::chrono::steady_clock;
  /// How the reply is taken: by a thread in await(), or by completed() on the loop.
  enum class Mode : std::uint8_t { awaited, background };
  enum class Awaited : std::uint8_t { complete, timedOut, interrupted };

  struct Counters {
    std::atomic<std::uint64_t> commands{0};
    std::atomic<std::uint64_t> connections{0};
  };

  /// @param events  must stay valid until close()
  /// @param spin    a reading thread polls that long before it sleeps; 0: never
  CommandLink(std::shared_ptr<Loop> loop,
              LinkSettings settings,
              LinkEvents& events,
              std::chrono::microseconds spin);
  ~CommandLink();

  /// Starts connecting.
  void open();
  /// Ends the connection for good; pending requests complete. No event comes after it.
  void close() noexcept;

  /// Sends a command. False when there is no connection, or none that the request may go out on:
  /// it is untouched then. A
  /// background request submitted on the loop thread is written at the end of the loop's pass.
  bool submit(Request& request, std::span<const std::string_view> argv, Mode mode);

  /// Waits for the reply of an awaited request, reading for others where needed. After `timedOut`
  /// and `interrupted` the request goes on in the background and ends in completed().
  Awaited await(Request& request, std::chrono::steady_clock::time_point deadline);

  /// The connection cannot be killed after all, whatever its handshake said.
  void distrust() noexcept;
  /// Gives the connection up for another, if it is the one that `since` belongs to. Loop thread.
  void abandon(Clock::time_point since, Errc errc, const char* what);

  [[nodiscard]] bool up() const noexcept { return up_.load(std::memory_order_acquire); }
  /// A smoothed measurement of how long a reply takes; 0 before the first.
  [[nodiscard]] std::chrono::nanoseconds roundTrip() const noexcept {
    return std::chrono::nanoseconds(roundTrip_.load(std::memory_order_relaxed));
  }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using RequestPtr = IntrusivePtr<Request>;
  enum class State : std::uint8_t { down, up, failing, closed };
  class Ping;

  // Any thread.
  Awaited lead(Request& request, Clock::time_point deadline);
  Awaited follow(Request& request, Clock::time_point deadline);
  std::optional<Awaited> leave(Request& request, Awaited why);
  bool suspectStall();
  void readSome(const Request* own, Clock::time_point until);
  void process(const char* data, std::size_t size, const Request* own);
  void handOver();
  void fail(Errc errc, std::string_view what);
  void noteRoundTrip(Clock::duration measured) noexcept;

  // With the mutex held; those that take the Lock may release it for a while.
  void flush(Lock& lock);
  void fail(Lock& lock, Errc errc, std::string_view what);
  void detach(Request& request);
  void arm(bool input) noexcept;
  void leaveRole();

  static void finish(Request& request) noexcept;
  void runCompleted(std::vector<RequestPtr> requests);

  // Loop thread.
  void dial();
  void established(Established established);
  void onPollable();
  void tearDown();
  void heartbeat();
  void watchForStall(Clock::time_point due);
  void checkStall();

  const std::shared_ptr<Loop> loop_;
  const LinkSettings settings_;
  LinkEvents& events_;
  const std::chrono::nanoseconds spin_;
  const bool mayPoll_;
  Counters counters_;
  std::atomic<bool> up_{false};
  std::atomic<std::int64_t> roundTrip_{0};
  std::atomic<bool> polling_;

  std::mutex mutex_;
  // Protected by mutex_.
  State state_ = State::down;
  bool reading_ = false;       // somebody is the reader
  bool writing_ = false;       // somebody is the writer
  bool writeBlocked_ = false;  // the writer is the loop, which waits for room
  bool flushScheduled_ = false;
  bool closing_ = false;
  bool killable_ = false;
  Clock::time_point upSince_{};
  bool stallSuspected_ = false;
  std::uint32_t armed_ = 0;
  std::string out_;
  std::uint64_t appended_ = 0;      // bytes of this connection put into out_
  std::uint64_t possiblySent_ = 0;  // of those, the ones the kernel may have taken
  std::deque<RequestPtr> pending_;
  std::size_t backgroundPending_ = 0;
  std::uint64_t received_ = 0;
  Error failure_{Errc::connectionFailed};
  std::shared_ptr<const ServerSession> session_;

  // Owned by the writer.
  std::string writeBuffer_;
  std::size_t written_ = 0;

  // Owned by the reader.
  ReplyReader reader_;
  std::vector<char> readBuffer_;
  std::vector<Reply> replies_;
  std::vector<RequestPtr> finished_;

  // Replaced on the loop thread while nobody reads or writes.
  std::unique_ptr<Stream> stream_;
  int epoll_ = -1;

  // Loop thread only.
  Dialer dialer_;
  std::unique_ptr<Poll> poll_;
  Timer heartbeat_;
  Timer stall_;
  std::uint64_t receivedAtHeartbeat_ = 0;
};

}  // namespace rlock::detail::net
