// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/capabilities.hpp>
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/sync_policy.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

class Node;

/// The commands besides scripts that a client needs of its servers, by its options.
struct Wants {
  bool kills = true;     ///< lost requests are to be kept from running late by killing
  bool wait = false;     ///< Options::sync asks for replicas
  bool waitAof = false;  ///< it asks for append-only files
};

inline Wants wantsOf(const Options& options) noexcept {
  using Kind = SyncPolicy::Kind;
  const Kind sync = options.sync.kind;
  return {.kills = options.lostReplyPolicy != LostReplyPolicy::marker,
          .wait = sync == Kind::replicas || sync == Kind::majority,
          .waitAof = sync == Kind::localAof || sync == Kind::remoteAof};
}

/// Judges what a server found on a connection means for the client: warnings, most of the time
/// none.
inline std::vector<std::string_view> shortcomings(const net::ServerSession& session,
                                                  const Wants& wants) {
  std::vector<std::string_view> found;
  if (session.found.scripts == false) {
    found.emplace_back("has no EVALSHA or no EVAL: no lock works there");
  }
  if (wants.kills && !session.canKill) {
    found.emplace_back(
        "does not allow CLIENT KILL: each request carries a tombstone, which costs an EXISTS");
  } else if (wants.kills && !session.canBeKilled()) {
    found.emplace_back(
        "does not tell connections apart (INFO, CLIENT INFO): each request carries a tombstone, "
        "which costs an EXISTS");
  }
  if (wants.wait && session.found.wait == false) {
    found.emplace_back("has no WAIT, which Options::sync needs: every acquisition is `notSynced`");
  }
  if (wants.waitAof && session.found.waitAof == false) {
    found.emplace_back(
        "has no WAITAOF (Redis 7.2 has it first), which Options::sync needs: every acquisition is "
        "`notSynced`");
  }
  return found;
}

/// As it is told to the application.
inline Capabilities capabilitiesOf(const net::ServerSession& session) {
  Capabilities result = session.found;
  result.version = session.serverVersion;
  result.role = session.role == "slave" ? "replica" : session.role;
  return result;
}

/// The nodes of a client that have a connection, and what the latest of them has told of itself.
///
/// **Thread safety:** connected() and capabilities() from any thread, the rest on the loop thread.
class LiveNodes {
 public:
  /// Told when connected() has changed.
  using Listener = std::function<void(bool connected)>;

  LiveNodes(std::shared_ptr<const Logger> log, Wants wants, Listener listener)
      : log_(std::move(log)), wants_(wants), listener_(std::move(listener)) {}

  void up(Node& node, const net::ServerSession& session);
  void down(Node& node);

  [[nodiscard]] bool connected() const noexcept {
    return connected_.load(std::memory_order_acquire);
  }
  [[nodiscard]] Capabilities capabilities() const {
    const MutexLock lock(mutex_);
    return capabilities_;
  }
  [[nodiscard]] const std::vector<Node*>& nodes() const noexcept { return nodes_; }

 private:
  void changed();

  const std::shared_ptr<const Logger> log_;
  const Wants wants_;
  const Listener listener_;
  std::vector<Node*> nodes_;
  std::vector<std::string_view> warned_;  // once for a client
  Atomic<bool> connected_{false};
  mutable AnnotatedMutex mutex_;
  Capabilities capabilities_ RLOCK_GUARDED_BY(mutex_);
};

inline void LiveNodes::up(Node& node, const net::ServerSession& session) {
  {
    const MutexLock lock(mutex_);
    capabilities_ = capabilitiesOf(session);
  }
  for (const std::string_view text : shortcomings(session, wants_)) {
    if (std::find(warned_.begin(), warned_.end(), text) == warned_.end()) {
      warned_.push_back(text);
      log_->write(LogLevel::warning, session.node + ' ' + std::string(text));
    }
  }
  if (std::find(nodes_.begin(), nodes_.end(), &node) == nodes_.end()) {
    nodes_.push_back(&node);
  }
  changed();
}

inline void LiveNodes::down(Node& node) {
  std::erase(nodes_, &node);
  changed();
}

inline void LiveNodes::changed() {
  const bool now = !nodes_.empty();
  if (connected_.exchange(now, std::memory_order_acq_rel) != now && listener_) {
    listener_(now);
  }
}

}  // namespace rlock::detail
