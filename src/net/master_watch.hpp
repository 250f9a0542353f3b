// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/link_settings.hpp"
#include "net/loop.hpp"
#include "net/master_connector.hpp"
#include "net/pubsub_link.hpp"
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail::net {

/// Keeps the connections of a client at one master. A master that is frozen or cut off does not say
/// that it is none any more, so one of the Sentinels is subscribed to, and its message that the
/// master has moved is a hint: a server is searched for, and only when one has said itself that it
/// is the master do the connections learn of it. The Sentinel says it once, so a search that finds
/// none is repeated until one does. While all is well it asks nobody anything but for a heartbeat.
///
/// The connections of a client share it, and some of them end before others: it listens from the
/// first open() until each of these has been followed by a close().
///
/// **Thread safety:** loop thread only.
class MasterWatch : public std::enable_shared_from_this<MasterWatch>, private PubSubEvents {
 public:
  /// Told of the server that is the master; it may be the one that it was.
  using Follower = UniqueFunction<void(const ServerSession& master)>;

  /// @param settings  those of the connections to the master
  MasterWatch(std::shared_ptr<Loop> loop, const LinkSettings& settings);
  ~MasterWatch() override;

  void open();
  void close() noexcept;
  /// The follower is called until the last close().
  void follow(Follower follower) { followers_.push_back(std::move(follower)); }
  /// A connection has found the master: the others go there, too.
  void tell(const ServerSession& master);

 private:
  void onSubscribed(const std::string& channel) override;
  void onRefused(const std::string& channel, const Error& error) override;
  void onMessage(const std::string& channel, std::string_view payload) override;
  void onUp() override {}
  void onDown(const Error& error) override;

  void search() noexcept;
  void searchLater(const Error& why) noexcept;

  const std::shared_ptr<Loop> loop_;
  const std::shared_ptr<SentinelAccess> access_;
  const std::shared_ptr<const Logger> log_;
  const std::chrono::milliseconds pause_;  ///< before a search is repeated
  std::unique_ptr<PubSubLink> sentinel_;
  MasterConnector connector_;
  Timer again_;
  std::vector<Follower> followers_;
  int users_ = 0;
  bool searching_ = false;
  bool repeat_ = false;   ///< something may have been missed since the search has begun
  bool refused_ = false;  ///< no Sentinel that was asked last says when the master moves
  bool failing_ = false;  ///< the last search has found no master
  bool closed_ = false;
};

}  // namespace rlock::detail::net
