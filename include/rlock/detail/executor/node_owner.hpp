// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/live_nodes.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace rlock::detail {

class Node;

/// The owner of nodes knows which of them a call belongs to: a Node tells it of its connection, and
/// hands it the calls that another node may have to take.
///
/// **Thread safety:** called on the loop thread, but for needsTombstone(): any thread.
class NodeOwner {
 public:
  NodeOwner() = default;
  NodeOwner(const NodeOwner&) = delete;
  NodeOwner& operator=(const NodeOwner&) = delete;
  virtual ~NodeOwner() = default;

  /// The node has a connection.
  /// @param again  the server behind it may be another than before, or have lost its data
  /// @param replaced  the server is another process than that of the connection before
  virtual void nodeUp(Node& node, bool again, bool replaced) = 0;
  /// The node has none, or another attempt to connect failed. True: somebody was told why.
  virtual bool nodeDown(Node& node, const Error& error) = 0;
  /// Node::mustGuard() has another answer.
  virtual void guardChanged() noexcept = 0;
  /// Whether requests must carry a tombstone. Any thread.
  [[nodiscard]] virtual bool needsTombstone() const noexcept = 0;

  /// Sends a call once more that did not get through: to the node that has its key by now.
  virtual void resend(const IntrusivePtr<Call>& call) = 0;
  /// The fate of a redirection.
  enum class Follow : std::uint8_t {
    no,     ///< it cannot be followed: the call fails with it
    done,   ///< the call is on its way to the other node
    later,  ///< nodes contradict each other: the call is sent again after a pause
  };
  /// The node answered that another has the call's key.
  virtual Follow redirect(Node& node, const IntrusivePtr<Call>& call) = 0;
  /// The node's answer says that what is known of the nodes is out of date.
  virtual void outOfDate(Node& node) = 0;
};

/// The settings and helpers that the nodes of one client share.
struct NodeTerms {
  NodeTerms(std::shared_ptr<Env> world,
            const Options& options,
            std::shared_ptr<const Logger> logger,
            std::shared_ptr<LiveNodes> liveNodes)
      : env(std::move(world)),
        log(std::move(logger)),
        live(std::move(liveNodes)),
        policy(options.lostReplyPolicy),
        retryMin(options.retryDelayMin),
        retryMax(options.retryDelayMax),
        commandTimeout(options.commandTimeout) {}

  std::shared_ptr<Env> env;
  std::shared_ptr<const Logger> log;
  std::shared_ptr<LiveNodes> live;
  LostReplyPolicy policy;
  std::chrono::nanoseconds retryMin;
  std::chrono::nanoseconds retryMax;
  std::chrono::milliseconds commandTimeout;
  /// The command with which scripts announce something, where it is not PUBLISH.
  std::string_view publish{};
};

}  // namespace rlock::detail
