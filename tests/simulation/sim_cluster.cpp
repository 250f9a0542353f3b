// SPDX-License-Identifier: Apache-2.0
#include "simulation/sim_cluster.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <utility>

namespace rlock::sim {

using detail::Reply;
using detail::net::hashSlot;
using detail::net::kSlots;

namespace {

Reply wordReply(Reply::Type type, std::string_view bytes) {
  Reply reply;
  reply.type = type;
  reply.text = bytes;
  return reply;
}

Reply word(std::string_view bytes) {
  return wordReply(Reply::Type::string, bytes);
}

Reply integer(std::size_t value) {
  Reply reply;
  reply.type = Reply::Type::integer;
  reply.integer = static_cast<std::int64_t>(value);
  return reply;
}

Reply arrayOf(std::vector<Reply> elements) {
  Reply reply;
  reply.type = Reply::Type::array;
  for (Reply& element : elements) {
    reply.elements.push_back(std::move(element));
  }
  return reply;
}

std::string hostOf(std::size_t node) {
  return "server" + std::to_string(node);
}

}  // namespace

Cluster::Cluster(
    World& world, const Nodes& nodes, const ClusterConfig& config, Lost lost, Count count)
    : world_(world),
      nodes_(nodes),
      config_(config),
      lost_(std::move(lost)),
      count_(std::move(count)) {
  truth_.shardOf.resize(kSlots);
  truth_.since.resize(kSlots, 1);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    truth_.shardOf[slot] = static_cast<std::uint8_t>(slot * config.shards / kSlots);
  }
  for (std::size_t shard = 0; shard < config.shards; ++shard) {
    truth_.master.push_back(shard);
    truth_.masterSince.push_back(1);
  }
  views_.resize(nodes.size(), truth_);
  for (const auto& node : nodes) {
    node->join(*this);
  }
}

std::size_t Cluster::holderOf(std::string_view key) const {
  const Slot slot = hashSlot(key);
  if (migrating_ && migrating_->slot == slot) {
    return nodes_[migrating_->from]->look({"EXISTS", key}).integer == 1 ? migrating_->from
                                                                        : migrating_->to;
  }
  return truth_.ownerOf(slot);
}

bool Cluster::settled() const {
  return !moving_ && untold_ == 0;
}

// The answers of a server.

std::optional<std::vector<Reply>> Cluster::answer(Node& node,
                                                  Connection& connection,
                                                  const Command& command) {
  const View& view = views_[static_cast<std::size_t>(node.index())];
  const auto one = [](Reply reply) { return std::optional(std::vector{std::move(reply)}); };
  const auto error = [&](std::string_view what) {
    return one(wordReply(Reply::Type::error, what));
  };
  const std::string& name = command.front();
  if (name == "ASKING") {
    connection.asking = true;
    return one(wordReply(Reply::Type::status, "OK"));
  }
  const bool asking = std::exchange(connection.asking, false);
  if (name == "CLUSTER") {
    if (command[1] == "INFO") {
      return one(word("cluster_state:" + std::string(view.ok ? "ok" : "fail") +
                      "\r\ncluster_current_epoch:" + std::to_string(view.epoch) + "\r\n"));
    }
    if (command[1] == "SHARDS" && config_.old) {
      return error("ERR Unknown subcommand or wrong number of arguments for 'SHARDS'");
    }
    return one(slotsOf(view, command[1] == "SHARDS"));
  }
  if (name == "PUBSUB") {
    return config_.old ? error("ERR Unknown subcommand or wrong number of arguments")
                       : one(arrayOf({}));
  }
  if (name == "SSUBSCRIBE" || name == "SUNSUBSCRIBE") {
    const std::vector<std::string> channels(command.begin() + 1, command.end());
    if (const auto refused = refusal(node, asking, channels, true)) {
      return error(*refused);
    }
    std::vector<Reply> replies;
    for (const std::string& channel : channels) {
      if (name == "SSUBSCRIBE") {
        connection.shardChannels.insert(channel);
      } else {
        connection.shardChannels.erase(channel);
      }
      replies.push_back(arrayOf({word(name == "SSUBSCRIBE" ? "ssubscribe" : "sunsubscribe"),
                                 word(channel),
                                 integer(connection.shardChannels.size())}));
    }
    return replies;
  }
  if (name.starts_with("EVAL")) {
    const auto count = static_cast<std::size_t>(std::atoi(command[2].c_str()));
    const auto named = std::span(command).subspan(3, count);
    if (const auto refused = refusal(node, asking, {named.begin(), named.end()}, false)) {
      return error(*refused);
    }
  }
  return std::nullopt;
}

std::optional<std::string> Cluster::refusal(Node& node,
                                            bool asking,
                                            const std::vector<std::string>& keys,
                                            bool channels) {
  if (keys.empty()) {
    return std::nullopt;
  }
  const auto self = static_cast<std::size_t>(node.index());
  const View& view = views_[self];
  if (!view.ok) {
    count_("cluster: down");
    return "CLUSTERDOWN The cluster is down";
  }
  const Slot slot = hashSlot(keys.front());
  const std::size_t owner = view.ownerOf(slot);
  const bool onItsWay = migrating_ && migrating_->slot == slot && !channels;
  const auto missing = static_cast<std::size_t>(
      !onItsWay ? 0 : std::count_if(keys.begin(), keys.end(), [&](const std::string& key) {
        return node.look({"EXISTS", key}).integer == 0;
      }));
  if (onItsWay && self == migrating_->from && owner == self && missing > 0) {
    if (missing < keys.size()) {
      count_("cluster: TRYAGAIN");
      return "TRYAGAIN Multiple keys request during rehashing of slot";
    }
    count_("cluster: ASK");
    return "ASK " + std::to_string(slot) + ' ' + hostOf(migrating_->to) + ":6379";
  }
  if (onItsWay && self == migrating_->to && owner != self && asking) {
    if (keys.size() > 1 && missing > 0) {
      count_("cluster: TRYAGAIN");
      return "TRYAGAIN Multiple keys request during rehashing of slot";
    }
    count_("cluster: asked");
    return std::nullopt;
  }
  if (owner != self) {
    count_(channels ? "cluster: MOVED, for a channel" : "cluster: MOVED");
    return "MOVED " + std::to_string(slot) + ' ' + hostOf(owner) + ":6379";
  }
  return std::nullopt;
}

/// As CLUSTER SHARDS or CLUSTER SLOTS tells it.
Reply Cluster::slotsOf(const View& view, bool shards) const {
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> ranges(config_.shards);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    auto& of = ranges[view.shardOf[slot]];
    if (!of.empty() && of.back().second + 1 == slot) {
      of.back().second = slot;
    } else {
      of.emplace_back(slot, slot);
    }
  }
  std::vector<Reply> all;
  for (std::size_t shard = 0; shard < config_.shards; ++shard) {
    std::vector<Reply> slots;
    for (const auto& [first, last] : ranges[shard]) {
      if (shards) {
        slots.push_back(integer(first));
        slots.push_back(integer(last));
      } else {
        all.push_back(arrayOf(
            {integer(first),
             integer(last),
             arrayOf({word(hostOf(view.master[shard])), integer(6379), word("id"), arrayOf({})})}));
      }
    }
    std::vector<Reply> members;
    for (const std::size_t member : {shard, shard + config_.shards}) {
      members.push_back(arrayOf({word("id"),
                                 word("id" + std::to_string(member)),
                                 word("port"),
                                 integer(6379),
                                 word("ip"),
                                 word(hostOf(member)),
                                 word("endpoint"),
                                 word(hostOf(member)),
                                 word("role"),
                                 word(view.master[shard] == member ? "master" : "replica"),
                                 word("health"),
                                 word("online")}));
    }
    if (shards) {
      all.push_back(arrayOf(
          {word("slots"), arrayOf(std::move(slots)), word("nodes"), arrayOf(std::move(members))}));
    }
  }
  return arrayOf(std::move(all));
}

/// The bus of the cluster takes a message to all nodes.
void Cluster::published(Node& node, std::string_view channel, std::string_view payload) {
  if (relaying_) {
    return;
  }
  for (const auto& other : nodes_) {
    if (other.get() == &node) {
      continue;
    }
    world_.after(world_.random().between(node.config().delayMin, node.config().delayMax),
                 [this, &to = *other, name = std::string(channel), text = std::string(payload)] {
                   relay(to, name, text);
                 });
  }
}

/// To one that is frozen it comes when that one goes on; one that was down has no subscriber.
void Cluster::relay(Node& to, const std::string& channel, const std::string& payload) {
  if (to.awake() > world_.now()) {
    world_.after(to.awake() - world_.now(),
                 [this, &to, channel, payload] { relay(to, channel, payload); });
    return;
  }
  relaying_ = true;
  to.look({"PUBLISH", channel, payload});
  relaying_ = false;
}

// The servers' knowledge of the cluster.

void Cluster::changed(std::size_t node, const std::function<void(View&)>& change) {
  View& view = views_[node];
  change(view);
  view.epoch = std::max(view.epoch, truth_.epoch);
  nodes_[node]->dropShardChannels(
      [&](const std::string& channel) { return view.ownerOf(hashSlot(channel)) != node; });
}

void Cluster::tell(std::size_t node, Time delay, std::function<void(View&)> change) {
  ++untold_;
  world_.after(delay, [this, node, change = std::move(change)]() mutable {
    --untold_;
    if (awake(node)) {
      changed(node, change);
    } else {
      tell(node, nodes_[node]->awake() - world_.now(), std::move(change));
    }
  });
}

void Cluster::tellOthers(std::initializer_list<std::size_t> known,
                         const std::function<void(View&)>& change) {
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (std::find(known.begin(), known.end(), node) == known.end()) {
      tell(node, world_.random().someMs(0, world_.random().oneIn(4) ? 400 : 40), change);
    }
  }
}

// Slots that move.

void Cluster::migrate(const std::string& key) {
  if (!settled()) {
    return;
  }
  Random& random = world_.random();
  const Slot slot = hashSlot(key);
  const std::size_t shard = truth_.shardOf[slot];
  const std::size_t other = (shard + 1 + random.below(config_.shards - 1)) % config_.shards;
  const Migration migration{slot, truth_.master[shard], truth_.master[other]};
  if (!awake(migration.from) || !awake(migration.to)) {
    return;
  }
  count_("cluster: slot migrated");
  world_.trace("slot ", slot, " moves from server ", migration.from, " to ", migration.to);
  moving_ = true;
  migrating_ = migration;
  if (random.below(100) < static_cast<std::size_t>(config_.hasty)) {
    settle();
    return;
  }
  world_.after(random.someMs(0, 30),
               [this] { moveKeys(nodes_[migrating_->from]->model().keys()); });
}

/// One key after the other, as MIGRATE does, and then the slot.
void Cluster::moveKeys(const std::vector<std::string>& left) {
  const auto next = std::find_if(left.begin(), left.end(), [this](const std::string& key) {
    return hashSlot(key) == migrating_->slot;
  });
  if (next == left.end()) {
    world_.after(world_.random().someMs(0, 20), [this] { settle(); });
    return;
  }
  if (awake(migrating_->from) && awake(migrating_->to)) {
    world_.trace("key ", *next, " moves to server ", migrating_->to);
    nodes_[migrating_->from]->model().migrate(*next, nodes_[migrating_->to]->model());
  }
  world_.after(world_.random().someMs(1, 25),
               [this] { moveKeys(nodes_[migrating_->from]->model().keys()); });
}

/// The new owner knows first, as SETSLOT is to be used.
void Cluster::settle() {
  const Migration migration = *migrating_;
  if (!awake(migration.from) || !awake(migration.to)) {
    world_.after(milliseconds(10), [this] { settle(); });
    return;
  }
  RedisModel& source = nodes_[migration.from]->model();
  for (const std::string& key : source.keys()) {
    if (hashSlot(key) == migration.slot) {
      source.migrate(key, nodes_[migration.to]->model());
    }
  }
  migrating_.reset();
  moving_ = false;
  const auto shard = static_cast<std::size_t>(
      std::find(truth_.master.begin(), truth_.master.end(), migration.to) - truth_.master.begin());
  const std::uint64_t epoch = ++truth_.epoch;
  const auto change = [this, slot = migration.slot, shard, epoch](View& view) {
    assign(view, slot, shard, epoch);
  };
  change(truth_);
  world_.trace("slot ", migration.slot, " is server ", migration.to, "'s");
  // Nothing of the slot is at the source any more that it could answer with.
  changed(migration.to, change);
  changed(migration.from, change);
  tellOthers({migration.from, migration.to}, change);
}

void Cluster::assign(View& view, Slot slot, std::size_t shard, std::uint64_t epoch) {
  if (view.since[slot] < epoch) {
    view.since[slot] = epoch;
    view.shardOf[slot] = static_cast<std::uint8_t>(shard);
  }
}

// Masters that are replaced.

void Cluster::failOver() {
  if (!settled()) {
    return;
  }
  Random& random = world_.random();
  const std::size_t shard = random.below(config_.shards);
  const std::size_t master = truth_.master[shard];
  const std::size_t successor = master == shard ? shard + config_.shards : shard;
  if (!awake(master) || !awake(successor)) {
    return;
  }
  moving_ = true;
  if (random.chance(40)) {
    // On request: the master answers nothing until its replica has all that it has.
    count_("cluster: failover on request");
    world_.trace("server ", successor, " takes over from server ", master, ", which waits");
    nodes_[successor]->model().replicate(nodes_[master]->model());
    promote(shard, successor);
    return;
  }
  const bool lags = config_.lagMax > Time(0) && random.chance(50);
  const Time lag = lags ? random.between(Time(milliseconds(1)), config_.lagMax) : Time(0);
  if (lags) {
    world_.trace("server ", successor, " gets nothing from server ", master, " any more");
    nodes_[successor]->model().replicate(nodes_[master]->model());
  }
  world_.after(lag, [this, shard, master, successor, lag] { die(shard, master, successor, lag); });
}

void Cluster::die(std::size_t shard, std::size_t master, std::size_t successor, Time lag) {
  if (!awake(master) || !awake(successor)) {
    moving_ = false;
    return;
  }
  Random& random = world_.random();
  count_(lag > Time(0) ? "cluster: master died, its replica lags" : "cluster: master died");
  world_.trace("server ", master, " dies", lag > Time(0) ? " with its last writes" : "");
  if (lag == Time(0)) {
    nodes_[successor]->model().replicate(nodes_[master]->model());
  }
  const Time election = random.someMs(10, random.oneIn(4) ? 400 : 100);
  nodes_[master]->restart(false, election + random.someMs(1, 400));
  truth_.master[shard] = successor;
  truth_.masterSince[shard] = ++truth_.epoch;
  if (lag > Time(0)) {
    lost_(*nodes_[successor]);
  }
  if (random.chance(50)) {
    // Without one of the masters nobody serves anything.
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      if (node != master) {
        tell(node, election / 2, [shard, died = truth_.epoch](View& view) {
          view.ok = view.ok && view.masterSince[shard] > died;
        });
      }
    }
  }
  world_.after(election, [this, shard, successor] { promote(shard, successor); });
}

void Cluster::promote(std::size_t shard, std::size_t successor) {
  const std::size_t master = successor == shard ? shard + config_.shards : shard;
  if (!awake(successor)) {
    // The old master, which has lost its data, would serve as if it still were one.
    nodes_[master]->stayDown(milliseconds(20));
    world_.after(milliseconds(10), [this, shard, successor] { promote(shard, successor); });
    return;
  }
  moving_ = false;
  const std::uint64_t epoch = ++truth_.epoch;
  const auto change = [shard, successor, epoch](View& view) {
    if (view.masterSince[shard] < epoch) {
      view.masterSince[shard] = epoch;
      view.master[shard] = successor;
    }
    view.ok = true;
  };
  change(truth_);
  world_.trace("server ", successor, " is the master of its shard");
  changed(successor, change);
  // One that died learns so before it serves anybody, and begins with nothing.
  changed(master, change);
  for (const std::string& key : nodes_[master]->model().keys()) {
    RedisModel nowhere([] { return std::int64_t{0}; });
    nodes_[master]->model().migrate(key, nowhere);
  }
  tellOthers({successor, master}, change);
}

}  // namespace rlock::sim
