// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/dialer.hpp"
#include "net/loop.hpp"
#include "net/shared_connection.hpp"
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace rlock::detail::net {

class MasterWatch;

/// The connection to one node that everybody shares, kept alive and replaced when it is lost.
///
/// The threads of callers write and read it themselves, in its SharedConnection; the loop thread
/// connects, and works for the requests that no thread awaits. A lost connection is replaced by
/// itself, with back-off until a connection has proved of use. A connection is given up when
/// requests are unanswered and no reply has been completed for the reply timeout; replies are
/// matched to requests by order, so an answer can never reach the wrong request, and what the
/// kernel has not delivered by then is dropped.
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
  /// @param events  must stay valid until close()
  /// @param spin    a reading thread polls that long before it sleeps; 0: never
  /// @param watch   leads the link to the master, and is told by it; open while the link is. null:
  ///                the server does not move
  CommandLink(std::shared_ptr<Loop> loop,
              LinkSettings settings,
              LinkEvents& events,
              std::chrono::microseconds spin,
              std::shared_ptr<MasterWatch> watch = nullptr);
  ~CommandLink() override;

  void open() override;
  void close() noexcept override;
  bool submit(Request& request, std::span<const std::string_view> argv, Mode mode) override;
  bool submitGroup(std::span<const Part> group) override;
  Awaited await(Request& request, Clock::time_point deadline) override {
    return connection_.await(request, deadline);
  }
  void distrust() noexcept override { connection_.distrust(); }
  void abandon(Clock::time_point since, Errc errc, const char* what) noexcept override {
    connection_.abandon(since, errc, what);
  }
  void authenticate(UniqueFunction<void(Result<void>)> done) override;
  [[nodiscard]] bool up() const noexcept override { return connection_.up(); }
  [[nodiscard]] Totals totals() const noexcept override {
    return {commands_.load(std::memory_order_relaxed),
            connections_.load(std::memory_order_relaxed)};
  }

 private:
  using RequestPtr = IntrusivePtr<Request>;
  class Ping;
  class Auth;

  /// Has work() run soon. Any thread.
  void wakeLoop() noexcept { work_.post(shared_from_this()); }

  // Loop thread.
  void watchMaster();
  void dial() noexcept;
  void established(Established established) noexcept;
  void masterIs(const ServerSession& master) noexcept;
  void onPollable() noexcept;
  void work() noexcept;
  void runCompleted() noexcept;
  void flushAtPassEnd() noexcept;
  void watchForStall(Clock::time_point due) noexcept;
  void tearDown() noexcept;
  [[nodiscard]] static Error describe(const SharedConnection::Failure& why,
                                      const std::string& node);
  template <class F>
  void tell(F&& event) noexcept;
  void heartbeat();
  void checkStall() noexcept;

  const std::shared_ptr<Loop> loop_;
  const LinkSettings settings_;
  LinkEvents& events_;
  const std::shared_ptr<MasterWatch> watch_;
  std::atomic<std::uint64_t> commands_{0};
  std::atomic<std::uint64_t> connections_{0};
  SharedConnection connection_;

  // Loop thread only.
  std::shared_ptr<const ServerSession> session_;  ///< of the last connection
  Dialer dialer_;
  bool watching_ = false;  ///< watch_ was opened and is to be closed
  bool closing_ = false;
  bool credentialsChanged_ = false;  ///< since the dial() that is under way
  LoopTask work_;                    // may be posted by any thread
  LoopTask flush_;
  Timer redial_;
  Timer heartbeat_;
  Timer stall_;
  RequestQueue running_;
  std::uint64_t answeredAtHeartbeat_ = 0;
};

}  // namespace rlock::detail::net
