// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/annotated_mutex.hpp"
#include "executor/call.hpp"
#include "executor/connection_killer.hpp"
#include "executor/script_texts.hpp"
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/result.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {

/// What the dispatcher tells. All on the loop thread.
class DispatcherEvents {
 public:
  DispatcherEvents() = default;
  DispatcherEvents(const DispatcherEvents&) = delete;
  DispatcherEvents& operator=(const DispatcherEvents&) = delete;
  virtual ~DispatcherEvents() = default;

  /// There is a connection again: the server behind it may be another, or have lost its data.
  virtual void reconnected() = 0;

  virtual void channelConfirmed(const std::string& channel) = 0;
  virtual void channelRefused(const std::string& channel, const Error& error) = 0;
  virtual void channelMessage(const std::string& channel, std::string_view payload) = 0;
  virtual void channelsLost() = 0;
};

/// Brings calls to the server and decides what a reply, an error or a broken connection means for
/// them. Knows one node now; whoever uses it names keys and channels, never nodes.
///
/// Two ways: directly, on the calling thread, for the common case that everything works; or through
/// the loop thread, which waits for a connection, repeats what the server did not execute, and
/// gives up at a point in time. A direct call that meets trouble is passed to the loop with
/// resume().
///
/// **Thread safety:** direct(), await(), start(), startAhead(), resume(), post() and the observers
/// from any thread; the rest on the loop thread.
class Dispatcher final : public std::enable_shared_from_this<Dispatcher>, private net::LinkEvents {
 public:
  using Clock = std::chrono::steady_clock;
  using CallPtr = IntrusivePtr<Call>;
  enum class Direct : std::uint8_t {
    replied,      ///< Call::reply() is the answer, no error
    failed,       ///< a fatal error reply, in takeError()
    trouble,      ///< pass it to resume()
    timedOut,     ///< the call goes on in the background and ends in finished()
    interrupted,  ///< likewise
  };

  Dispatcher(std::shared_ptr<Env> env,
             const net::Transports& transports,
             const Options& options,
             std::shared_ptr<const Logger> log,
             DispatcherEvents& events);
  ~Dispatcher() override;

  /// Starts connecting; `ready` is called on the loop when the first attempt has succeeded or
  /// failed.
  void open(UniqueFunction<void(Result<void>)> ready);
  /// Ends all connections; calls under way finish with `closed`.
  void close() noexcept;

  /// Sends on the calling thread, which then takes the reply with await(). False: no connection.
  bool direct(Call& call);
  /// Waits for a direct call. Sends a script's text on this thread if the server wants it.
  Direct await(Call& call, Clock::time_point deadline);
  /// Why await() said `failed`.
  [[nodiscard]] Error takeError(Call& call) const;

  /// Sends in the background; Call::finished() has the outcome. The call is not sent after
  /// `sendBefore`.
  void start(CallPtr call, Clock::time_point sendBefore);
  /// As start(), but where there is a connection the call is ahead of whatever this thread sends
  /// after it.
  void startAhead(const CallPtr& call, Clock::time_point sendBefore);
  /// As start(), after the call has ended in trouble or was lost and is to be judged.
  void resume(CallPtr call, Clock::time_point sendBefore);

  /// Whether requests must carry a tombstone, because a lost one cannot be fenced on this server.
  /// A guess before there is a connection, and where it changes: a call that was composed for
  /// another is composed again before it goes out.
  [[nodiscard]] bool needsTombstone() const noexcept {
    return tombstones_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::chrono::nanoseconds roundTrip() const noexcept { return link_->roundTrip(); }
  /// The node that calls go to, for messages.
  [[nodiscard]] std::string node() const;

  void subscribe(std::string channel) { pubsub_->subscribe(std::move(channel)); }
  void unsubscribe(const std::string& channel) { pubsub_->unsubscribe(channel); }

  void post(UniqueFunction<void()> function) { env_->post(std::move(function)); }
  [[nodiscard]] bool onLoopThread() const noexcept { return env_->onLoopThread(); }

  struct Counters {
    std::uint64_t commands;
    std::uint64_t reconnects;
    std::uint64_t scriptsLoaded;
  };
  [[nodiscard]] Counters counters() const noexcept;

 private:
  friend class Call;
  class Channels;

  void onUp(const std::shared_ptr<const net::ServerSession>& session) override;
  void onDown(const Error& error) override;

  /// Does one step for a call on the loop. A call that there is no memory for is over.
  template <class Step>
  void guarded(const CallPtr& call, Step step) noexcept;
  void begin(Call& call, Clock::time_point sendBefore);
  void send(const CallPtr& call);
  void judge(const CallPtr& call);
  /// False: the call cannot go out yet, and was parked or finished.
  bool passesKills(const CallPtr& call);
  static void prolong(Call& call);
  void supplyScript(Call& call);
  void noteAnswered(Call& call) noexcept;
  void waitForLink(const CallPtr& call);
  void retryLater(const CallPtr& call);
  void park(const CallPtr& call, Clock::time_point until, Call::Wait wait);
  void unpark(Call& call) noexcept;
  void sendParked(const CallPtr& call);
  [[nodiscard]] std::vector<CallPtr> parkedFor(Call::Wait wait) const;
  void timeIsUp(const CallPtr& call);
  void fail(const CallPtr& call, Error error, bool answered = false);
  void leaveReadOnly(const Call& call);
  void finish(const CallPtr& call, Outcome outcome) noexcept;
  [[nodiscard]] Error describe(const Call& call, Errc errc, std::string_view text) const;
  [[nodiscard]] bool firstAhead(const lua::Script& script);

  const std::shared_ptr<Env> env_;
  const std::shared_ptr<const Logger> log_;
  const LostReplyPolicy policy_;
  const std::chrono::nanoseconds retryMin_;
  const std::chrono::nanoseconds retryMax_;
  const Error noMemory_;  // made in time
  std::atomic<bool> tombstones_;
  std::atomic<std::uint64_t> scriptsLoaded_{0};
  ScriptTexts texts_;
  std::shared_ptr<net::CommandTransport> link_;
  ConnectionKiller killer_;
  std::unique_ptr<net::PubSubEvents> channels_;
  std::unique_ptr<net::SubscriptionTransport> pubsub_;

  mutable AnnotatedMutex nodeMutex_;
  std::string node_ RLOCK_GUARDED_BY(nodeMutex_);

  AnnotatedMutex aheadMutex_;
  /// On this connection.
  std::vector<const lua::Script*> sentAhead_ RLOCK_GUARDED_BY(aheadMutex_);

  // Loop thread only.
  UniqueFunction<void(Result<void>)> ready_;
  std::vector<CallPtr> parked_;
  std::optional<Error> linkError_;
  DispatcherEvents& events_;
  std::uint32_t random_ = 1;
  Clock::time_point leaveReadOnlyFrom_{};
  std::chrono::nanoseconds readOnlyPause_{};
  bool closed_ = false;
};

}  // namespace rlock::detail
