// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/cluster_channels.hpp>
#include <rlock/detail/executor/map_change.hpp>
#include <rlock/detail/executor/map_source.hpp>
#include <rlock/detail/executor/node.hpp>
#include <rlock/detail/executor/node_table.hpp>
#include <rlock/detail/executor/parked_calls.hpp>
#include <rlock/detail/executor/redirection.hpp>
#include <rlock/detail/executor/router.hpp>
#include <rlock/detail/executor/slot_map.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/result.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The masters of a cluster, each with the slots that the map gives it. A node is made when a call
/// needs it first, and closed when the map has it no more. Redirections are followed, and say that
/// the map is to be read again.
///
/// A call is routed by the slot of its first key. A call for which there is no node waits here
/// until the map has one.
///
/// Invariants: a call belongs to one node at a time, or waits here; it is redirected a limited
/// number of times at once, and then after a pause. There is one Node for an address, which is not
/// destroyed while a call refers to it. When the slots of a master go to another one because it
/// failed, all holds are verified: at once, and again when the successor is connected.
///
/// **Thread safety:** route(), nodeName(), placeOf(), parts(), counters() and needsTombstone() from
/// any thread, by way of NodeTable; the rest on the loop thread.
class ClusterRouter final : public Router, private MapEvents {
 public:
  ClusterRouter(NodeTerms terms,
                const net::Transports& transports,
                const Options& options,
                DispatcherEvents& events);
  ~ClusterRouter() override;

  void open(UniqueFunction<void(Result<void>)> ready) override;
  void close() noexcept override;
  void endAcks() override;
  Node* route(Call& call) override;
  [[nodiscard]] std::string nodeName(std::string_view key) const override;
  [[nodiscard]] Place placeOf(std::string_view key) const override { return table_.placeOf(key); }
  [[nodiscard]] std::vector<std::uint16_t> parts() const override { return table_.parts(); }
  void subscribe(std::string channel, Reach reach) override {
    channels_.subscribe(std::move(channel), reach);
  }
  void unsubscribe(const std::string& channel) override { channels_.unsubscribe(channel); }
  void renewSubscriptions() override { channels_.renew(); }
  [[nodiscard]] Counters counters() const noexcept override { return table_.counters(); }

  void nodeUp(Node& node, bool again, bool replaced) override;
  bool nodeDown(Node& node, const Error& error) override;
  void guardChanged() noexcept override;
  [[nodiscard]] bool needsTombstone() const noexcept override {
    return tombstones_.load(std::memory_order_relaxed);
  }
  void resend(const IntrusivePtr<Call>& call) override;
  Follow redirect(Node& node, const IntrusivePtr<Call>& call) override;
  void outOfDate(Node& /*node*/) override { source_.want(); }

 private:
  using NodePtr = std::shared_ptr<Node>;
  using Member = ClusterMember;

  [[nodiscard]] std::vector<MapWitness> witnesses() const override;
  [[nodiscard]] bool unsettled() const override;
  bool mapRead(SlotMap map, bool sharded) override;
  void mapFailed(const Error& error) override;

  [[nodiscard]] NodePtr nodeOf(std::uint16_t slot);
  [[nodiscard]] NodePtr nodeAt(const Endpoint& at);
  bool adopt(SlotMap map, std::vector<NodePtr>& dropped, std::vector<Endpoint>& successors);
  void verify(const std::vector<Endpoint>& successors);
  [[nodiscard]] bool isDown(const Endpoint& at) const;
  void sendWaiting();
  void waitForNode(const IntrusivePtr<Call>& call);
  [[nodiscard]] Error noNode(const Call& call) const;

  NodeTerms terms_;
  const net::Transports transports_;
  const Error over_;
  DispatcherEvents& events_;
  std::atomic<bool> tombstones_;
  ParkedCalls waiting_;
  MapSource source_;
  ClusterChannels channels_;

  NodeTable table_;

  // Loop thread only.
  SlotMap read_;  // the map as it was read last, without what redirections said
  std::vector<Member> members_;
  std::vector<const Node*> successors_;  // of masters that failed, not connected yet
  std::vector<NodePtr> dropped_;         // while calls may still refer to them
  UniqueFunction<void(Result<void>)> ready_;
  std::optional<Error> mapError_;
  bool mapKnown_ = false;
  bool closed_ = false;
};

inline ClusterRouter::ClusterRouter(NodeTerms terms,
                                    const net::Transports& transports,
                                    const Options& options,
                                    DispatcherEvents& events)
    : terms_(std::move(terms)),
      transports_(transports),
      // NOLINTNEXTLINE(bugprone-throw-keyword-missing): kept for the calls under way at the end
      over_(Errc::closed, "the client was closed"),
      events_(events),
      tombstones_(terms_.policy == LostReplyPolicy::marker),
      waiting_(terms_.env,
               [this](const IntrusivePtr<Call>& call) {
                 // Its time is over, and resend() says so.
                 Node::guarded(call, [&] { resend(call); });
               }),
      source_(terms_.env, transports, options, *this),
      channels_(transports, terms_.log, events, [this] { source_.want(); }) {}

inline ClusterRouter::~ClusterRouter() = default;

inline void ClusterRouter::open(UniqueFunction<void(Result<void>)> ready) {
  ready_ = std::move(ready);
  source_.want();
}

inline void ClusterRouter::close() noexcept {
  closed_ = true;
  source_.close();
  channels_.close();
  for (const Member& member : members_) {
    member.node->close(&over_);
  }
  while (!waiting_.empty()) {
    const IntrusivePtr<Call> call = waiting_.last();
    ParkedCalls::unpark(*call);
    Node::finish(call, {Outcome::Kind::failed, over_, false, call->maybeExecuted_});
  }
}

inline void ClusterRouter::endAcks() {
  // A copy: what ends may be sent again, to a node that is made for it.
  const std::vector<Member> all = members_;
  for (const Member& member : all) {
    member.node->acks().end();
  }
}

inline Node* ClusterRouter::route(Call& call) {
  NodePtr node = table_.nodeOf(call.slot());
  Node* const chosen = node.get();
  if (chosen != nullptr) {
    call.setNode(*chosen, std::move(node));
  }
  return chosen;
}

inline std::string ClusterRouter::nodeName(std::string_view key) const {
  // In a child another thread of the parent may have the mutex for ever.
  return terms_.env->abandoned() ? std::string() : table_.nameOf(key);
}

/// Makes the node if need be. Null: the slot has no owner.
inline ClusterRouter::NodePtr ClusterRouter::nodeOf(std::uint16_t slot) {
  NodeTable::Found found = table_.find(slot);
  if (!found.node && found.owner) {
    return nodeAt(*found.owner);
  }
  return std::move(found.node);
}

/// Makes the node if need be.
inline ClusterRouter::NodePtr ClusterRouter::nodeAt(const Endpoint& at) {
  for (const Member& member : members_) {
    if (member.at == at) {
      return member.node;
    }
  }
  auto node = std::make_shared<Node>(
      terms_,
      [this, at](net::LinkEvents& events) { return transports_.commandsTo(at, events); },
      toString(at),
      static_cast<NodeOwner&>(*this));
  table_.put(members_.emplace_back(Member{at, node}));
  node->link().open();
  return node;
}

inline void ClusterRouter::resend(const IntrusivePtr<Call>& call) {
  call->asking_ = false;
  if (closed_) {
    Node::finish(call, {Outcome::Kind::failed, over_, false, call->maybeExecuted_});
    return;
  }
  const NodePtr node = nodeOf(call->slot());
  if (!node) {
    waitForNode(call);
    return;
  }
  call->setNode(*node, node);
  node->send(call);
}

inline void ClusterRouter::waitForNode(const IntrusivePtr<Call>& call) {
  const bool hopeless = mapError_ && isPermanent(mapError_->errc()) && !call->persistent_;
  if (hopeless || terms_.env->now() >= call->sendBefore_) {
    Node::finish(call, {Outcome::Kind::failed, noNode(*call), false, call->maybeExecuted_});
    return;
  }
  waiting_.park(call, call->sendBefore_, Call::Wait::link);
  source_.want();
}

inline Error ClusterRouter::noNode(const Call& call) const {
  if (mapError_) {
    return *mapError_;
  }
  return Error(Errc::connectionFailed,
               fmt::format("no master of the cluster has slot {} of the key", call.slot()));
}

inline NodeOwner::Follow ClusterRouter::redirect(Node& node, const IntrusivePtr<Call>& call) {
  Endpoint asked;
  for (const Member& member : members_) {
    if (member.node.get() == &node) {
      asked = member.at;
    }
  }
  const auto redirection = parseRedirection(call->reply().text, asked);
  if (!redirection || closed_) {
    return Follow::no;
  }
  const bool moved = redirection->kind == Redirection::Kind::moved;
  events_.redirected({toString(asked), toString(redirection->to), redirection->slot, moved});
  if (moved) {
    table_.assign(redirection->slot, redirection->to, members_);
    source_.want();
  }
  if (++call->redirections_ > kRedirectionsAtOnce || redirection->to == asked) {
    call->redirections_ = 0;
    return Follow::later;
  }
  if (moved) {
    resend(call);
    return Follow::done;
  }
  const NodePtr target = nodeAt(redirection->to);
  call->asking_ = true;
  call->setNode(*target, target);
  target->send(call);
  return Follow::done;
}

inline void ClusterRouter::nodeUp(Node& node, bool again, bool replaced) {
  const bool successor = std::erase(successors_, &node) > 0;
  if (again) {
    events_.nodeReconnected(node.name(), replaced);
  }
  if (again || successor) {
    events_.reconnected(replaced || successor);
  }
}

inline bool ClusterRouter::nodeDown(Node& /*node*/, const Error& /*error*/) {
  source_.want();
  return false;
}

inline void ClusterRouter::guardChanged() noexcept {
  tombstones_.store(terms_.policy == LostReplyPolicy::marker ||
                        std::any_of(members_.begin(),
                                    members_.end(),
                                    [](const Member& member) { return member.node->mustGuard(); }),
                    std::memory_order_relaxed);
}

inline std::vector<MapWitness> ClusterRouter::witnesses() const {
  std::vector<MapWitness> result;
  for (const Member& member : members_) {
    if (member.node->link().up()) {
      result.push_back({member.at, &member.node->link()});
    }
  }
  return result;
}

inline bool ClusterRouter::unsettled() const {
  return !waiting_.empty() || std::any_of(members_.begin(), members_.end(), [](const Member& m) {
    return !m.node->link().up();
  });
}

inline bool ClusterRouter::mapRead(SlotMap map, bool sharded) {
  mapError_.reset();
  if (!std::exchange(mapKnown_, true)) {
    // Once for all, and before the first node: all clients of a cluster must publish alike.
    terms_.publish = sharded ? "SPUBLISH" : "";
  }
  std::erase_if(dropped_, [](const NodePtr& node) { return node.use_count() == 1; });
  std::vector<NodePtr> dropped;
  std::vector<Endpoint> successors;
  const bool changed = adopt(std::move(map), dropped, successors);
  for (const NodePtr& node : dropped) {
    node->close(nullptr);
  }
  dropped_.insert(dropped_.end(), dropped.begin(), dropped.end());
  guardChanged();
  // Redirections may have said before what is new.
  channels_.follow(read_, !terms_.publish.empty());
  sendWaiting();
  if (ready_) {
    std::exchange(ready_, nullptr)(Result<void>());
  }
  if (!successors.empty() && !closed_) {
    verify(successors);
  }
  return changed;
}

/// Returns whether a slot has another owner than when the map was read before.
/// @param dropped     receives the nodes that the map has no more
/// @param successors  receives the masters that have slots of one of those, or of one that cannot
/// be reached
inline bool ClusterRouter::adopt(SlotMap map,
                                 std::vector<NodePtr>& dropped,
                                 std::vector<Endpoint>& successors) {
  MapChange change = changeOf(read_, map, [this](const Endpoint& at) { return isDown(at); });
  successors = std::move(change.successors);
  std::erase_if(members_, [&](const Member& member) {
    if (map.has(member.at)) {
      return false;
    }
    std::erase(successors_, member.node.get());
    dropped.push_back(member.node);
    return true;
  });
  read_ = map;
  table_.replace(std::move(map), members_, dropped);
  return change.any;
}

/// Has all holds verified, of which those whose slots these masters have taken over may be gone:
/// now, and when there is a connection where there is none yet.
inline void ClusterRouter::verify(const std::vector<Endpoint>& successors) {
  for (const Endpoint& at : successors) {
    const NodePtr node = nodeAt(at);
    if (!node->link().up() &&
        std::find(successors_.begin(), successors_.end(), node.get()) == successors_.end()) {
      successors_.push_back(node.get());
    }
  }
  events_.reconnected(true);
}

inline bool ClusterRouter::isDown(const Endpoint& at) const {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.at == at && !member.node->link().up();
  });
}

/// The map is another: what waits for a node may have one now, and what waits for a connection may
/// have another node.
inline void ClusterRouter::sendWaiting() {
  const std::vector<Member> members = members_;
  for (const Member& member : members) {
    member.node->sendParked();
  }
  waiting_.each(Call::Wait::link, [this](const IntrusivePtr<Call>& call) {
    if (ParkedCalls::unpark(*call)) {
      Node::guarded(call, [&] { resend(call); });
    }
  });
}

inline void ClusterRouter::mapFailed(const Error& error) {
  const bool known = mapError_ && mapError_->errc() == error.errc();
  mapError_ = error;
  if (ready_) {
    std::exchange(ready_, nullptr)(Result<void>(error));
  } else {
    terms_.log->write(
        known ? LogLevel::debug : LogLevel::warning,
        fmt::format("the map of the cluster cannot be read, trying again: {}", error.what()));
  }
}

}  // namespace rlock::detail
