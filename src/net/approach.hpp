// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/address.hpp"
#include "net/handshake.hpp"
#include "net/link_settings.hpp"
#include "net/loop.hpp"
#include "net/socket.hpp"
#include "net/stream.hpp"
#include <rlock/detail/base/unique_function.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>

namespace rlock::detail::net {

/// A connection that is ready for commands. The descriptor is in blocking mode.
struct Established {
  std::unique_ptr<Stream> stream;
  std::shared_ptr<const ServerSession> session;
  std::shared_ptr<const SentinelAnswer> sentinel{};  ///< where the peer is a Sentinel, never null
};

/// Connects to one address and shakes hands with whoever is there.
///
/// It goes through its stages in their order and is done at the first failure or with the last
/// answer; nothing is watched any more then. The Connector calls it, the loop's socket and timer
/// call it back, and it holds itself while it calls the handler, which may drop it.
///
/// **Thread safety:** loop thread only. May be dropped in its own handler.
class Approach : public std::enable_shared_from_this<Approach> {
 public:
  using Outcome = std::variant<ConnectFailure, Established>;
  using Handler = UniqueFunction<void(Outcome)>;

  Approach(Loop& loop,
           std::shared_ptr<const LinkSettings> settings,
           Endpoint endpoint,
           Address address,
           bool probeKill);

  /// Begins. A failure at once is returned, and the handler is not called then; else it is called
  /// once, never inside start(). It has no time limit of its own.
  std::optional<ConnectFailure> start(Handler handler);

  /// Drops connection and handler.
  void cancel() noexcept;

  /// The error to report if the time is over now.
  [[nodiscard]] std::string_view whatIsMissing() const noexcept;

 private:
  enum class Stage { idle, connecting, queueFull, opening, handshake, done };

  /// These return what has gone wrong at once.
  std::optional<ConnectFailure> connect();
  std::optional<ConnectFailure> connected();
  void openStream(std::unique_ptr<Stream> stream);

  void onConnectable();
  void onTimer();
  void onReady(int status);
  bool opened();
  bool writeHandshake();
  bool readReplies();
  void handshakeDone();
  void fail(ConnectFailure failure);
  void finish(Outcome outcome);
  void closeSocket() noexcept;

  template <class F>
  void guarded(F&& step);

  Loop& loop_;
  const std::shared_ptr<const LinkSettings> settings_;
  const Endpoint endpoint_;
  const Address address_;
  const bool probeKill_;
  Handler handler_;
  Timer timer_;
  Stage stage_ = Stage::idle;
  UniqueFd fd_;
  std::unique_ptr<Stream> stream_;
  std::optional<Poll> poll_;
  std::optional<Handshake> handshake_;
};

}  // namespace rlock::detail::net
