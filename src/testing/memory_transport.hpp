// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "testing/memory_server.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/net/pending_requests.hpp>
#include <rlock/detail/net/request_word.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/options.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::sim {

/// When a lost connection is replaced: at once, and then after pauses that double. A connection
/// that was of use ends the doubling. Loop thread.
class MemoryRedial {
 public:
  MemoryRedial(detail::Env& env, const Options& options, detail::UniqueFunction<void()> dial);

  /// After the pause that is due, and by this time at the latest.
  void start(
      std::chrono::steady_clock::time_point latest = std::chrono::steady_clock::time_point::max());
  void succeeded() noexcept { failures_ = 0; }
  void stop() noexcept { timer_->disarm(); }

 private:
  detail::Env& env_;
  const std::chrono::milliseconds min_;
  const std::chrono::milliseconds max_;
  const std::unique_ptr<detail::Timer> timer_;
  int failures_ = 0;
};

/// CommandLink to a server in memory: each command is executed where it is submitted.
///
/// **Thread safety:** as CommandTransport.
class MemoryTransport final : public detail::net::CommandTransport,
                              public MemoryPeer,
                              public std::enable_shared_from_this<MemoryTransport> {
 public:
  MemoryTransport(std::shared_ptr<detail::Env> env,
                  std::shared_ptr<MemoryServer> server,
                  const Options& options,
                  detail::net::LinkEvents& events);
  ~MemoryTransport() override;

  void open() override { dial(); }
  void close() noexcept override;
  bool submit(detail::net::Request& request,
              std::span<const std::string_view> argv,
              Mode mode) override;
  Awaited await(detail::net::Request& request, Clock::time_point deadline) override;
  void distrust() noexcept override;
  void abandon(Clock::time_point since, Errc errc, const char* what) noexcept override;
  [[nodiscard]] bool up() const noexcept override { return up_; }
  [[nodiscard]] Totals totals() const noexcept override { return {commands_, connections_}; }

  void broken(Number connection) override;
  void thawed() override;

 private:
  using Command = std::vector<std::string>;
  using Ended = detail::net::PendingRequests::Ended;

  void dial();
  void again(const Error& error);
  void watch();
  void look();
  [[nodiscard]] bool frozen() const { return server_->frozenUntil() > env_->now(); }
  void executeLocked(std::span<const std::string_view> argv, Ended& ended) RLOCK_REQUIRES(mutex_);
  void executeWaitingLocked(Ended& ended) RLOCK_REQUIRES(mutex_);
  void breakLocked(Error why, Ended& ended) RLOCK_REQUIRES(mutex_);
  void tell(Ended& ended) noexcept;
  [[nodiscard]] Error problem(Errc errc, const char* what) const;

  const std::shared_ptr<detail::Env> env_;
  const std::shared_ptr<MemoryServer> server_;
  const int database_;
  const std::chrono::milliseconds lastsAfter_;
  detail::net::LinkEvents& events_;
  MemoryRedial redial_;
  const std::unique_ptr<detail::Timer> look_;
  detail::AnnotatedMutex mutex_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> up_{false};
  std::atomic<std::uint64_t> commands_{0};
  std::atomic<std::uint64_t> connections_{0};
  std::shared_ptr<const detail::net::ServerSession> session_ RLOCK_GUARDED_BY(mutex_);
  Number connection_ RLOCK_GUARDED_BY(mutex_) = 0;
  Clock::time_point upSince_ RLOCK_GUARDED_BY(mutex_){};
  detail::net::PendingRequests pending_ RLOCK_GUARDED_BY(mutex_);
  std::deque<Command> waiting_ RLOCK_GUARDED_BY(mutex_);  ///< the server is frozen
};

}  // namespace rlock::sim
