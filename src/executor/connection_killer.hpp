// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace rlock::detail {

/// Has the server close connections that were lost, so that nothing that was sent on them can still
/// be executed. A connection counts as dead only when the server has said so, or is another process
/// than the one it led to. One request for each, however many ask; it is repeated, after a pause
/// where it was refused, for as long as somebody keeps the session.
///
/// **Thread safety:** loop thread only.
class ConnectionKiller {
 public:
  using SessionPtr = std::shared_ptr<const net::ServerSession>;

  enum class State : std::uint8_t {
    dead,     ///< nothing of it can come any more
    asked,    ///< not known yet: `changed` will be called
    refused,  ///< the server does not close it, and says so at each try; refusal() tells why
  };

  /// @param changed  called when check() has another answer for some session
  /// @param denied   called when the server does not let us close connections, whatever its
  /// handshake said
  ConnectionKiller(std::shared_ptr<Env> env,
                   std::shared_ptr<net::CommandTransport> link,
                   std::shared_ptr<const Logger> log,
                   std::function<void()> changed,
                   std::function<void()> denied);
  ~ConnectionKiller();
  ConnectionKiller(const ConnectionKiller&) = delete;
  ConnectionKiller& operator=(const ConnectionKiller&) = delete;

  /// What is known of a lost connection; asks the server if nothing is.
  State check(const SessionPtr& lost);
  /// Why, if it was refused.
  [[nodiscard]] std::optional<Error> refusal(const SessionPtr& lost) const;

  /// There is a connection again.
  void up(SessionPtr session);
  /// Asks for nothing any more.
  void close() noexcept;

 private:
  class Kill;
  struct Open {
    SessionPtr lost;
    bool asking = false;
    bool refused = false;  // for good, as it seems
    std::optional<Error> refusal{};
  };

  Open* find(const SessionPtr& lost) noexcept;
  void forget(SessionPtr lost) noexcept;
  State ask(Open& open);
  void answered(const SessionPtr& lost, net::Request& kill);
  void refuse(Open& open, Error error, bool passing);
  void askAgain();

  const std::shared_ptr<Env> env_;
  const std::shared_ptr<net::CommandTransport> link_;
  const std::shared_ptr<const Logger> log_;
  const std::function<void()> changed_;
  const std::function<void()> denied_;
  SessionPtr current_;
  std::vector<Open> open_;
  const std::unique_ptr<Timer> again_;
  std::chrono::milliseconds pause_;
  // Kills that are on their way outlive this object and must not call it then.
  std::shared_ptr<ConnectionKiller*> self_;
};

}  // namespace rlock::detail
