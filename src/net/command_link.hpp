// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/codec.hpp"
#include "net/dialer.hpp"
#include "net/loop.hpp"
#include "net/socket.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail::net {

/// The connection to one node that everybody shares, driven by whoever needs it. A thread that
/// wants a reply appends its command; if no thread is writing, it writes for all. Among the threads
/// that wait for replies one reads for all and hands the role to the oldest other when its own
/// reply is there. The loop thread sleeps meanwhile; it writes and reads only for requests that no
/// thread awaits, through a nested epoll descriptor that any thread can arm.
///
/// A lost connection is replaced by itself, with back-off until a connection has proved of use.
/// Replies are matched to requests by order. A connection is given up when requests are unanswered
/// and no reply has been completed for the reply timeout, so an answer can never reach the wrong
/// request; what the kernel has not delivered by then is dropped.
///
/// Nothing of it fails for want of memory but submit(), and then nothing was sent: requests are
/// linked to each other, and what the loop has to do is asked for by tasks made in advance.
///
/// Application code, which may take its time, runs on the loop as the last thing: by then the loop
/// is neither reader nor writer, so that other threads do not feel it.
///
/// **Thread safety:** submit(), await() and the observers from any thread; the rest on the loop
/// thread.
class CommandLink final : public CommandTransport,
                          public std::enable_shared_from_this<CommandLink> {
 public:
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
  ~CommandLink() override;

  void open() override;
  void close() noexcept override;
  bool submit(Request& request, std::span<const std::string_view> argv, Mode mode) override;
  /// Reads for others where needed.
  Awaited await(Request& request, Clock::time_point deadline) override;
  void distrust() noexcept override;
  void abandon(Clock::time_point since, Errc errc, const char* what) noexcept override;
  [[nodiscard]] bool up() const noexcept override { return up_.load(std::memory_order_acquire); }
  [[nodiscard]] Totals totals() const noexcept override {
    return {counters_.commands.load(std::memory_order_relaxed),
            counters_.connections.load(std::memory_order_relaxed)};
  }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

 private:
  using RequestPtr = IntrusivePtr<Request>;
  enum class State : std::uint8_t { down, up, failing, closed };
  class Ping;

  /// Why a connection was given up, in a form that takes no memory.
  struct Failure {
    Errc errc = Errc::connectionFailed;
    const char* what = "";    // static, or of reader_
    const char* detail = "";  // likewise
    int error = 0;            // errno, or 0
  };

  // Any thread.
  Awaited lead(Request& request, Clock::time_point deadline) noexcept;
  Awaited follow(Request& request, Clock::time_point deadline) noexcept;
  std::optional<Awaited> leave(Request& request, Awaited why) noexcept;
  Clock::time_point endStall(Clock::time_point now) noexcept;
  std::size_t readSome(const Request* own, Clock::time_point until) noexcept;
  void waitForSocket(Clock::duration left) noexcept;
  void process(std::size_t size, const Request* own) noexcept;
  bool hand(std::span<Reply> replies, const Request* own) noexcept;
  void handOver() noexcept;
  void resumeWriting() noexcept;
  void fail(const Failure& why) noexcept;
  void noteRoundTrip(Clock::duration measured) noexcept;

  // Those that take the lock may release it, also for good: all that is known then is what it says.
  void flush(ReleasableLock& lock) noexcept RLOCK_REQUIRES(mutex_);
  void fail(ReleasableLock& lock, const Failure& why) noexcept RLOCK_REQUIRES(mutex_);
  void detach(Request& request) noexcept RLOCK_REQUIRES(mutex_);
  void enlist(Request& request) noexcept RLOCK_REQUIRES(mutex_);
  void delist(Request& request) noexcept RLOCK_REQUIRES(mutex_);
  void arm() noexcept RLOCK_REQUIRES(mutex_);
  [[nodiscard]] Clock::time_point stallDue() const noexcept RLOCK_REQUIRES(mutex_);
  Clock::time_point judgeStall(ReleasableLock& lock, Clock::time_point now) noexcept
      RLOCK_REQUIRES(mutex_);
  /// Has work() run soon.
  void wakeLoop() noexcept { work_.post(shared_from_this()); }

  static void finish(Request& request) noexcept;

  // Loop thread.
  void dial() noexcept;
  void established(Established established) noexcept;
  void startOn(Established established);
  void onPollable() noexcept;
  void work() noexcept;
  void runCompleted() noexcept;
  void flushAtPassEnd() noexcept;
  void tearDown() noexcept;
  [[nodiscard]] Error describe(const Failure& why) const;
  template <class F>
  void tell(F&& event) noexcept;
  void heartbeat();
  void checkStall() noexcept;

  const std::shared_ptr<Loop> loop_;
  const LinkSettings settings_;
  LinkEvents& events_;
  const std::chrono::nanoseconds spin_;
  const bool mayPoll_;
  Counters counters_;
  std::atomic<bool> up_{false};
  std::atomic<std::int64_t> roundTrip_{0};
  std::atomic<bool> polling_;

  const std::string stallText_;

  AnnotatedMutex mutex_;
  State state_ RLOCK_GUARDED_BY(mutex_) = State::down;
  bool reading_ RLOCK_GUARDED_BY(mutex_) = false;  // somebody is the reader
  bool writing_ RLOCK_GUARDED_BY(mutex_) = false;  // somebody is the writer
  // The writer is whoever first finds room in the socket. Read without the mutex by the reader,
  // which then looks for room, too.
  std::atomic<bool> writeBlocked_{false};
  bool killable_ RLOCK_GUARDED_BY(mutex_) = false;
  bool armFailed_ RLOCK_GUARDED_BY(mutex_) = false;  // the loop tries again
  // Set while the connection is suspected to be dead.
  Clock::time_point secondLook_ RLOCK_GUARDED_BY(mutex_) = Clock::time_point::max();
  bool useful_ RLOCK_GUARDED_BY(mutex_) = false;  // a request was answered on this connection
  std::uint32_t armed_ RLOCK_GUARDED_BY(mutex_) = 0;
  std::string out_ RLOCK_GUARDED_BY(mutex_);
  /// Bytes of this connection put into out_.
  std::uint64_t appended_ RLOCK_GUARDED_BY(mutex_) = 0;
  /// Of those, the ones the kernel may have taken.
  std::uint64_t possiblySent_ RLOCK_GUARDED_BY(mutex_) = 0;
  RequestQueue pending_ RLOCK_GUARDED_BY(mutex_);
  Request* firstArrived_ RLOCK_GUARDED_BY(mutex_) = nullptr;
  Request* lastArrived_ RLOCK_GUARDED_BY(mutex_) = nullptr;
  std::size_t backgroundPending_ RLOCK_GUARDED_BY(mutex_) = 0;
  std::uint64_t answered_ RLOCK_GUARDED_BY(mutex_) = 0;  // replies of this connection
  /// When the last of them was complete, or the connection.
  Clock::time_point lastReply_ RLOCK_GUARDED_BY(mutex_){};
  RequestQueue completed_ RLOCK_GUARDED_BY(mutex_);  // their completed() is due
  Failure failure_ RLOCK_GUARDED_BY(mutex_);

  // Written under mutex_ and on the loop thread only, which may read them without.
  bool closing_ = false;
  Clock::time_point upSince_{};
  std::shared_ptr<const ServerSession> session_;

  // Owned by the writer.
  std::string writeBuffer_;
  std::size_t written_ = 0;

  // Owned by the reader.
  ReplyReader reader_;
  std::vector<char> readBuffer_;
  std::array<Reply, 32> replies_;

  // Replaced on the loop thread while nobody reads or writes.
  std::unique_ptr<Stream> stream_;
  UniqueFd epoll_;

  // Loop thread only.
  Dialer dialer_;
  std::unique_ptr<Poll> poll_;  // before epoll_ is closed it must be gone
  LoopTask work_;               // may be posted by any thread
  LoopTask flush_;
  Timer redial_;
  Timer heartbeat_;
  Timer stall_;
  RequestQueue running_;
  std::uint64_t answeredAtHeartbeat_ = 0;
};

}  // namespace rlock::detail::net
