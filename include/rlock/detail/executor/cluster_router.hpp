// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/cluster_channels.hpp>
#include <rlock/detail/executor/cluster_nodes.hpp>
#include <rlock/detail/executor/cluster_opening.hpp>
#include <rlock/detail/executor/map_source.hpp>
#include <rlock/detail/executor/node.hpp>
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

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Brings calls to the masters of a cluster, and follows what is told of the cluster: redirections,
/// which also say that the map is to be read again, maps (MapSource), and connections that come and
/// go. The nodes themselves are in ClusterNodes. A node is made when a call needs it first, and
/// closed when the map has it no more.
///
/// A call is routed by the slot of its first key. A call for which there is no node waits here
/// until the map has one.
///
/// Invariants: a call belongs to one node at a time, or waits here; it is redirected a limited
/// number of times at once, and then after a pause. When the slots of a master go to another one
/// because it failed, all holds are verified: at once, and again when the successor is connected.
///
/// **Thread safety:** route(), nodeName(), placeOf(), parts(), counters() and needsTombstone() from
/// any thread, by way of NodeTable; the rest on the loop thread.
class ClusterRouter final : public Router, private MapEvents {
 public:
  ClusterRouter(NodeTerms terms,
                const net::Transports& transports,
                const Options& options,
                DispatcherEvents& events);

  void open(UniqueFunction<void(Result<void>)> ready) override;
  void close() noexcept override;
  [[nodiscard]] std::vector<Node*> nodes() override;
  void endAcks() override;
  Node* route(Call& call) override;
  [[nodiscard]] std::string nodeName(std::string_view key) const override;
  [[nodiscard]] Place placeOf(std::string_view key) const override {
    return nodes_.table().placeOf(key);
  }
  [[nodiscard]] std::vector<std::uint16_t> parts() const override { return nodes_.table().parts(); }
  void subscribe(std::string channel, Reach reach) override {
    channels_.subscribe(std::move(channel), reach);
  }
  void unsubscribe(const std::string& channel) override { channels_.unsubscribe(channel); }
  void renewSubscriptions() override { channels_.renew(); }
  [[nodiscard]] Counters counters() const noexcept override { return nodes_.table().counters(); }

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
  [[nodiscard]] std::vector<MapWitness> witnesses() const override { return nodes_.witnesses(); }
  [[nodiscard]] std::vector<Endpoint> unneeded() const override { return nodes_.unneeded(); }
  [[nodiscard]] bool unsettled() const override { return !waiting_.empty() || !nodes_.allUp(); }
  bool mapRead(SlotMap map, bool sharded) override;
  void mapFailed(const Error& error, bool everywhere) override;

  void send(const std::shared_ptr<Node>& node, const IntrusivePtr<Call>& call);
  void sendWaiting();
  void waitForNode(const IntrusivePtr<Call>& call);

  NodeTerms terms_;
  const net::Transports transports_;
  const Error over_;
  DispatcherEvents& events_;
  Atomic<bool> tombstones_;
  ParkedCalls waiting_;
  MapSource source_;
  ClusterChannels channels_;

  ClusterNodes nodes_;

  // Loop thread only.
  ClusterOpening opening_;
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
      channels_(transports, terms_.log, events, [this] { source_.want(); }),
      nodes_([this](const Endpoint& at) {
        return std::make_shared<Node>(
            terms_,
            [this, at](net::LinkEvents& link) { return transports_.commandsTo(at, link); },
            toString(at),
            static_cast<NodeOwner&>(*this));
      }),
      opening_(terms_.env, options.connectTimeout) {}

inline void ClusterRouter::open(UniqueFunction<void(Result<void>)> ready) {
  opening_.begin(std::move(ready));
  source_.want();
}

inline void ClusterRouter::close() noexcept {
  closed_ = true;
  opening_.close();
  source_.close();
  channels_.close();
  // None is made any more: no copy, for which there may be no memory.
  for (const ClusterMember& member : nodes_.members()) {
    member.node->close(&over_);
  }
  while (!waiting_.empty()) {
    const IntrusivePtr<Call> call = waiting_.last();
    ParkedCalls::unpark(*call);
    Node::finish(call, {Outcome::Kind::failed, over_, false, call->room_->maybeExecuted});
  }
}

inline std::vector<Node*> ClusterRouter::nodes() {
  const std::vector<ClusterMember> members = nodes_.members();
  std::vector<Node*> nodes;
  nodes.reserve(members.size());
  for (const ClusterMember& member : members) {
    nodes.push_back(member.node.get());
  }
  return nodes;
}

inline void ClusterRouter::endAcks() {
  const std::vector<ClusterMember> members = nodes_.members();
  for (const ClusterMember& member : members) {
    member.node->acks().end();
  }
}

inline Node* ClusterRouter::route(Call& call) {
  std::shared_ptr<Node> node = nodes_.table().nodeOf(call.slot());
  Node* const chosen = node.get();
  if (chosen != nullptr) {
    call.setNode(*chosen, std::move(node));
  }
  return chosen;
}

inline std::string ClusterRouter::nodeName(std::string_view key) const {
  // In a child another thread of the parent may have the mutex for ever.
  return terms_.env->abandoned() ? std::string() : nodes_.table().nameOf(key);
}

inline void ClusterRouter::resend(const IntrusivePtr<Call>& call) {
  call->room_->asking = false;
  if (closed_) {
    Node::finish(call, {Outcome::Kind::failed, over_, false, call->room_->maybeExecuted});
    return;
  }
  if (const std::shared_ptr<Node> node = nodes_.ofSlot(call->slot())) {
    send(node, call);
  } else {
    waitForNode(call);
  }
}

inline void ClusterRouter::send(const std::shared_ptr<Node>& node, const IntrusivePtr<Call>& call) {
  if (Node* const before = call->room_->node; before != nullptr && before != node.get()) {
    before->leftBy(*call);
  }
  call->setNode(*node, node);
  node->send(call);
}

inline void ClusterRouter::waitForNode(const IntrusivePtr<Call>& call) {
  const bool hopeless = mapError_ && isPermanent(mapError_->errc()) && !call->persistent_;
  if (hopeless || terms_.env->now() >= call->room_->sendBefore) {
    Error why =
        mapError_
            ? *mapError_
            : Error(Errc::connectionFailed,
                    fmt::format("no master of the cluster has slot {} of the key", call->slot()));
    Node::finish(call, {Outcome::Kind::failed, std::move(why), false, call->room_->maybeExecuted});
    return;
  }
  waiting_.park(call, call->room_->sendBefore, Call::Wait::link);
  source_.want();
}

inline NodeOwner::Follow ClusterRouter::redirect(Node& node, const IntrusivePtr<Call>& call) {
  const Endpoint asked = nodes_.addressOf(node);
  const auto redirection = parseRedirection(call->reply().text, asked);
  if (!redirection || closed_) {
    return Follow::no;
  }
  if (asked == Endpoint()) {
    // Race: the map that dropped the node came after its answer, and is the newer word. A
    // redirection without a host would lead nowhere.
    call->room_->lastError.reset();
    resend(call);
    return Follow::done;
  }
  const bool moved = redirection->kind == Redirection::Kind::moved;
  if (redirection->to.host.empty()) {
    // At a guessed address there may be a node of another cluster, which would grant the same lock.
    // The map has the address where the name is missing.
    if (moved) {
      source_.want();
    }
    return Follow::later;
  }
  events_.redirected({toString(asked), toString(redirection->to), redirection->slot, moved});
  if (moved) {
    nodes_.assign(redirection->slot, redirection->to);
    source_.want();
  }
  if (++call->room_->redirections > kRedirectionsAtOnce || redirection->to == asked) {
    call->room_->redirections = 0;
    return Follow::later;
  }
  // A redirection that is followed is no reason why a call fails whose time is over now.
  call->room_->lastError.reset();
  if (moved) {
    resend(call);
    return Follow::done;
  }
  const std::shared_ptr<Node> target = nodes_.at(redirection->to);
  call->room_->asking = true;
  send(target, call);
  return Follow::done;
}

inline void ClusterRouter::nodeUp(Node& node, bool again, bool replaced) {
  const bool successor = nodes_.expects(node);
  if (again || successor) {
    events_.reconnected(replaced || successor);
  }
  nodes_.arrived(node);
  if (again) {
    events_.nodeReconnected(node.name(), replaced);
  }
}

inline bool ClusterRouter::nodeDown(Node& /*node*/, const Error& /*error*/) {
  source_.want();
  return false;
}

inline void ClusterRouter::guardChanged() noexcept {
  tombstones_.store(terms_.policy == LostReplyPolicy::marker || nodes_.mustGuard(),
                    std::memory_order_relaxed);
}

inline bool ClusterRouter::mapRead(SlotMap map, bool sharded) {
  mapError_.reset();
  if (!std::exchange(mapKnown_, true)) {
    // Once for all, and before the first node: all clients of a cluster must publish alike.
    terms_.publish = sharded ? "SPUBLISH" : "";
    if (!sharded) {
      terms_.log->write(
          LogLevel::warning,
          "the cluster has no sharded channels (PUBSUB SHARDNUMSUB, from Redis 7 on): "
          "each message goes to all of its nodes");
    }
  }
  const ClusterNodes::Adopted adopted = nodes_.adopt(std::move(map));
  for (const std::shared_ptr<Node>& node : adopted.dropped) {
    node->close(nullptr);
  }
  guardChanged();
  // From here on each step is taken whatever becomes of the others: a map that is adopted says only
  // once who has taken slots over. Redirections may have said before what is new.
  if (!ifThereIsMemorySoon([&] { channels_.follow(nodes_.map(), !terms_.publish.empty()); })) {
    source_.want();
  }
  ifThereIsMemorySoon([&] { sendWaiting(); });
  opening_.succeeded();
  if (!adopted.successors.empty() && !closed_) {
    // Their holds may be gone: all are verified now, and when there is a connection where there is
    // none yet.
    ifThereIsMemorySoon([&] { nodes_.expect(adopted.successors); });
    events_.reconnected(true);
  }
  return adopted.changed;
}

/// The map is another: what waits for a node may have one now, and what waits for a connection may
/// have another node.
inline void ClusterRouter::sendWaiting() {
  const std::vector<ClusterMember> members = nodes_.members();
  for (const ClusterMember& member : members) {
    member.node->sendParked();
  }
  waiting_.each(Call::Wait::link, [this](const IntrusivePtr<Call>& call) {
    if (ParkedCalls::unpark(*call)) {
      Node::guarded(call, [&] { resend(call); });
    }
  });
}

inline void ClusterRouter::mapFailed(const Error& error, bool everywhere) {
  const bool known = mapError_ && mapError_->errc() == error.errc();
  mapError_ = error;
  if (!opening_.failed(error, everywhere)) {
    // Without memory to say so, the calls that wait are ended nevertheless.
    ifThereIsMemory([&] {
      terms_.log->write(
          known ? LogLevel::debug : LogLevel::warning,
          fmt::format("the map of the cluster cannot be read, trying again: {}", error.what()));
    });
  }
  if (!everywhere || !isPermanent(error.errc())) {
    return;
  }
  waiting_.each(Call::Wait::link, [this](const IntrusivePtr<Call>& call) {
    if (!call->persistent_ && ParkedCalls::unpark(*call)) {
      // It ends with that error, unless there is a node for it.
      Node::guarded(call, [&] { resend(call); });
    }
  });
}

}  // namespace rlock::detail
