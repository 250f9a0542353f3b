// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/codec.hpp"
#include "net/link_settings.hpp"
#include <rlock/detail/net/sentinel_list.hpp>
#include <rlock/detail/net/server_session.hpp>
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

/// Why a server, or one of its addresses, cannot be used.
struct ConnectFailure {
  Errc errc = Errc::connectionFailed;
  std::string reason;
  std::string serverMessage{};  ///< what the server said, made printable
};

/// One printable line of bounded length of what a server said, without any password.
std::string quoteServer(std::string_view text);

/// Why a server refuses an AUTH.
ConnectFailure classifyAuth(std::string_view text, const Credentials& credentials);

/// The words on a new connection before its first command: who we are, which database, and what
/// the server tells of itself; a Sentinel is asked for the master, too. The requests go out
/// together.
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
    role,
    clientInfo,
    clientId,
    masterAddress,
    otherSentinels,
    serverInfo,
    probeKill,
    commands,
    ping,
  };

  /// @param node     where the connection leads, as configured
  /// @param address  the address connected to
  /// @throws Error  as currentCredentials()
  Handshake(std::shared_ptr<const LinkSettings> settings,
            bool probeKill,
            std::string node,
            std::string address);

  /// The bytes to be sent next. received() may add to them.
  [[nodiscard]] std::string_view unsent() const noexcept {
    return std::string_view(out_).substr(sent_);
  }
  void sent(std::size_t bytes) noexcept { sent_ += bytes; }

  /// @returns why the server cannot be used; nothing is to be done after that but closing
  std::optional<ConnectFailure> received(const char* data, std::size_t size);

  /// Every reply has come, and nothing else.
  [[nodiscard]] bool done() const noexcept { return stepIndex_ == steps_.size(); }

  /// The facts learnt so far; complete when done().
  [[nodiscard]] const ServerSession& session() const noexcept { return session_; }
  /// The answer of a Sentinel; null for other peers.
  [[nodiscard]] const std::shared_ptr<SentinelAnswer>& sentinelAnswer() const noexcept {
    return sentinel_;
  }

 private:
  void append(Step step, std::initializer_list<std::string_view> argv);
  /// When all has been answered: the mode and role, which servers older than 6 do not tell by
  /// HELLO, and the id of the connection.
  void askWhatIsMissing();
  std::optional<ConnectFailure> acceptReply(Step step, const Reply& reply);
  std::optional<ConnectFailure> acceptError(Step step, const Reply& reply);
  std::optional<ConnectFailure> acceptHello(const Reply& reply);
  void acceptClientInfo(const Reply& reply);
  /// The role of a server, where only a master will do.
  [[nodiscard]] std::optional<ConnectFailure> judgeRole() const;
  void askSentinel();
  [[nodiscard]] std::optional<ConnectFailure> refusedBySentinel(Step step,
                                                                const Reply& reply) const;
  std::optional<ConnectFailure> acceptServerInfo(const Reply& reply);
  void acceptCommands(const Reply& reply);

  std::shared_ptr<const LinkSettings> settings_;
  const Credentials credentials_;
  std::vector<Step> steps_;
  std::size_t stepIndex_ = 0;
  std::string out_;
  std::size_t sent_ = 0;
  ReplyReader reader_;
  ServerSession session_;
  std::shared_ptr<SentinelAnswer> sentinel_;
  bool withoutHello_ = false;                      // it was refused
  std::optional<ConnectFailure> refusedPassword_;  // told unless the next reply says more
};

}  // namespace rlock::detail::net
