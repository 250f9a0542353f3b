// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/codec.hpp"
#include "net/link_settings.hpp"
#include <rlock/error.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail::net {

/// What a server said of itself and of one connection to it.
struct ServerSession {
  std::string node{};          ///< `host:port` or `unix:path`, as configured
  std::string address{};       ///< the address connected to: `10.0.0.5:6379` or `unix:path`
  std::uint64_t clientId = 0;  ///< the server's id of this connection; 0: unknown
  /// Ours as the server sees it, `ip:port`; empty: unknown, or it does not tell us from others.
  std::string clientAddress{};
  std::string runId{};          ///< another for each process of the server; empty: unknown
  bool canKill = false;         ///< CLIENT KILL with filters is allowed
  std::string serverVersion{};  ///< empty: unknown
  std::string role{};           ///< `master`, `replica`; empty: unknown
  /// Nothing that was sent on it can still be executed: the server has closed it, or is another
  /// process. Set by the executor on the loop thread, once.
  mutable bool dead = false;

  /// Whether another connection can name this one to the server, and nobody else's.
  [[nodiscard]] bool identified() const noexcept {
    return clientId != 0 && (!runId.empty() || !clientAddress.empty());
  }
  /// Whether it can be closed from another connection once it is lost.
  [[nodiscard]] bool canBeFenced() const noexcept { return canKill && identified(); }
};

/// Why a server, or one of its addresses, cannot be used.
struct ConnectFailure {
  Errc errc = Errc::connectionFailed;
  std::string reason;
  std::string serverMessage{};  ///< what the server said, made printable
};

/// What is said on a new connection before its first command: who we are, which database, and what
/// the server tells of itself. The requests go out together.
///
/// Moves no bytes: the owner sends unsent() and hands in what comes.
///
/// **Thread safety:** one thread at a time.
class Handshake {
 public:
  enum class Step : std::uint8_t {
    auth,
    select,
    setName,
    hello,
    clientInfo,
    clientId,
    serverInfo,
    probeKill,
    ping,
  };

  /// @param node     where the connection leads, as configured
  /// @param address  the address connected to
  Handshake(std::shared_ptr<const LinkSettings> settings,
            bool probeKill,
            std::string node,
            std::string address);

  /// What is to be sent next. received() may add to it.
  [[nodiscard]] std::string_view unsent() const noexcept {
    return std::string_view(out_).substr(sent_);
  }
  void sent(std::size_t bytes) noexcept { sent_ += bytes; }

  /// @returns why the server cannot be used; nothing is to be done after that but closing
  std::optional<ConnectFailure> received(const char* data, std::size_t size);

  /// Every reply has come, and nothing else.
  [[nodiscard]] bool done() const noexcept { return stepIndex_ == steps_.size(); }

  /// What was learnt; complete when done().
  [[nodiscard]] const ServerSession& session() const noexcept { return session_; }

 private:
  void append(Step step, std::initializer_list<std::string_view> argv);
  std::optional<ConnectFailure> acceptReply(Step step, const Reply& reply);
  std::optional<ConnectFailure> acceptError(Step step, const Reply& reply);
  std::optional<ConnectFailure> acceptHello(const Reply& reply);
  void acceptClientInfo(const Reply& reply);

  std::shared_ptr<const LinkSettings> settings_;
  std::vector<Step> steps_;
  std::size_t stepIndex_ = 0;
  std::string out_;
  std::size_t sent_ = 0;
  ReplyReader reader_;
  ServerSession session_;
  std::optional<ConnectFailure> refusedPassword_;  // told unless the next reply says more
};

}  // namespace rlock::detail::net
