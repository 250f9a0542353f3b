// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/executor/map_doubt.hpp>
#include <rlock/detail/executor/redirection.hpp>
#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/detail/executor/slot_map.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// A node that can be asked for the map of a cluster.
struct MapWitness {
  Endpoint at;
  net::CommandTransport* link;
};

/// The owner of a MapSource, which it asks and tells. Loop thread.
class MapEvents {
 public:
  MapEvents() = default;
  MapEvents(const MapEvents&) = delete;
  MapEvents& operator=(const MapEvents&) = delete;
  virtual ~MapEvents() = default;

  /// The nodes that have a connection now.
  [[nodiscard]] virtual std::vector<MapWitness> witnesses() const = 0;
  /// Masters of the latest map to which there is no connection because no call has needed them.
  [[nodiscard]] virtual std::vector<Endpoint> unneeded() const = 0;
  /// Whether the map should be looked at again soon, because a node cannot be reached.
  [[nodiscard]] virtual bool unsettled() const = 0;
  /// A map was read. Returns whether it says something new.
  /// @param sharded  the servers know sharded channels
  virtual bool mapRead(SlotMap map, bool sharded) = 0;
  /// None could be read now.
  /// @param everywhere  each configured address has had its turn
  virtual void mapFailed(const Error& error, bool everywhere) = 0;
};

/// Reads the map of a cluster: from any node that has a connection, and otherwise over a connection
/// of its own to one of the configured addresses, which is closed again when a map was read. One
/// question is under way at a time, and RefreshPace says when. After an answer of no use others are
/// asked, too, one address at a time, see MapDoubt.
///
/// It guarantees that somebody who wants the map is told of it, or of an error, as long as it is
/// not closed: a question that gets no answer is given up and put to another node. A node that is
/// not with the majority is not believed if it knows an older epoch than another has told.
/// ClusterRouter is its owner.
///
/// **Thread safety:** loop thread only.
class MapSource final : private net::LinkEvents {
 public:
  using Clock = std::chrono::steady_clock;

  MapSource(std::shared_ptr<Env> env,
            const net::Transports& transports,
            const Options& options,
            MapEvents& events);
  ~MapSource() override;

  /// The map may be out of date.
  void want();
  /// Nothing is told after it.
  void close() noexcept;

 private:
  class Question;
  enum class Topic : std::uint8_t { info, shards, slots, channels };

  /// A node that has not answered by then is not waited for.
  static constexpr std::chrono::milliseconds kPatience{1000};
  /// The same for a stranger that is not connected yet: others are to have their turns within the
  /// time of one attempt, which is set to more where connections take longer.
  [[nodiscard]] static std::chrono::milliseconds patienceWithStrangers(const Options& options) {
    return std::max(kPatience, options.connectTimeout / 3);
  }

  void onUp(const std::shared_ptr<const net::ServerSession>& session) override;
  void onDown(const Error& error) override;

  void ask();
  template <class F>
  void begin(F&& question);
  void askAnybody();
  bool askStranger(const std::vector<MapWitness>& witnesses);
  bool askAt(net::CommandTransport& link, const Endpoint& at);
  bool put(net::CommandTransport& link, Topic topic);
  void answered(Topic topic, std::uint64_t round, net::Request& question);
  void take(Topic topic, Reply& reply);
  void conclude();
  void fail(const Error& error, bool doubtful);
  void giveUp();
  void over(bool changed);
  void letSeedGo();
  void dropSeed() noexcept;

  const std::shared_ptr<Env> env_;
  const std::function<std::shared_ptr<net::CommandTransport>(net::LinkEvents&)> makeSeed_;
  const std::function<std::shared_ptr<net::CommandTransport>(const Endpoint&, net::LinkEvents&)>
      makeStranger_;
  const std::chrono::milliseconds patienceWithStrangers_;
  const bool tls_;
  MapEvents& events_;
  const std::unique_ptr<Timer> timer_;           // the next question
  const std::unique_ptr<Timer> patience_;        // the present one
  std::shared_ptr<net::CommandTransport> seed_;  // to any configured address, or to one stranger
  bool seedOpen_ = false;
  Endpoint seedAt_{};
  RefreshPace pace_;
  MapDoubt doubt_;
  std::uint64_t epoch_ = 0;  // the highest that was told
  std::size_t next_ = 0;     // witnesses take turns
  bool closed_ = false;
  // The question under way.
  std::uint64_t round_ = 0;
  int missing_ = 0;
  net::CommandTransport* asked_ = nullptr;  // null: there is no connection yet to ask on
  Endpoint askedAt_{};
  std::optional<SlotMap> map_;
  ClusterState state_{};
  bool sharded_ = false;
  std::optional<Error> refusal_;
  // Questions that are on their way outlive this object and must not call it then.
  std::shared_ptr<MapSource*> self_;
};

class MapSource::Question final : public net::LoneRequest {
 public:
  Question(std::weak_ptr<MapSource*> source, Topic topic, std::uint64_t round)
      : LoneRequest(Purpose::upkeep), source_(std::move(source)), topic_(topic), round_(round) {}

 private:
  void completed() noexcept override {
    if (const auto source = source_.lock()) {
      try {
        (*source)->answered(topic_, round_, *this);
      } catch (const std::exception&) {
        // The time limit of the question ends it.
      }
    }
  }

  const std::weak_ptr<MapSource*> source_;
  const Topic topic_;
  const std::uint64_t round_;
};

inline MapSource::MapSource(std::shared_ptr<Env> env,
                            const net::Transports& transports,
                            const Options& options,
                            MapEvents& events)
    : env_(std::move(env)),
      makeSeed_(transports.commands),
      makeStranger_(transports.commandsTo),
      patienceWithStrangers_(patienceWithStrangers(options)),
      tls_(options.tls),
      events_(events),
      timer_(env_->makeTimer([this] { ask(); })),
      patience_(env_->makeTimer([this] {
        doubt_.raise();
        // First, for the error needs memory, and this timer is used up.
        giveUp();
        events_.mapFailed(
            Error(Errc::connectionFailed, "a node of the cluster did not tell its map in time"),
            doubt_.allHadATurn());
      })),
      doubt_(options.endpoints),
      self_(std::make_shared<MapSource*>(this)) {}

inline MapSource::~MapSource() = default;

inline void MapSource::close() noexcept {
  closed_ = true;
  self_.reset();
  timer_->disarm();
  patience_->disarm();
  if (seed_) {
    seed_->close();
  }
}

inline void MapSource::want() {
  if (closed_) {
    return;
  }
  const auto now = env_->now();
  if (const auto when = pace_.wanted(now)) {
    if (*when <= now) {
      ask();
    } else if (!timer_->armed()) {
      timer_->armAt(*when);
    }
  }
}

inline void MapSource::ask() {
  if (closed_ || pace_.asking()) {
    return;
  }
  pace_.asked();
  begin([this] { askAnybody(); });
}

/// An exception may leave no question under way, and nothing that would end it.
template <class F>
void MapSource::begin(F&& question) {
  try {
    question();
  } catch (...) {
    giveUp();
    throw;
  }
}

inline void MapSource::askAnybody() {
  const std::vector<MapWitness> witnesses = events_.witnesses();
  if (doubt_.looksBeyond(witnesses.size()) && askStranger(witnesses)) {
    return;
  }
  for (std::size_t i = 0; i < witnesses.size(); ++i) {
    const MapWitness& witness = witnesses[next_++ % witnesses.size()];
    if (askAt(*witness.link, witness.at)) {
      return;
    }
  }
  asked_ = nullptr;
  if (!seedOpen_) {
    // One that was closed, and kept for want of memory, never has a connection again.
    seed_ = makeSeed_(*this);
    seed_->open();
    seedOpen_ = seed_ != nullptr;
  } else if (seed_->up()) {
    askAt(*seed_, seedAt_);
  }
  // Until it has a connection, or cannot get one.
}

/// False: there is none.
inline bool MapSource::askStranger(const std::vector<MapWitness>& witnesses) {
  const std::optional<Endpoint> stranger =
      doubt_.next(events_.unneeded(), [&](const Endpoint& address) {
        return std::any_of(witnesses.begin(), witnesses.end(), [&](const MapWitness& witness) {
          return witness.at == address;
        });
      });
  if (!stranger) {
    return false;
  }
  letSeedGo();
  asked_ = nullptr;
  patience_->armAt(env_->now() + patienceWithStrangers_);
  seed_ = makeStranger_(*stranger, *this);
  seed_->open();
  seedOpen_ = seed_ != nullptr;
  return true;
}

inline bool MapSource::askAt(net::CommandTransport& link, const Endpoint& at) {
  ++round_;
  missing_ = 0;
  asked_ = &link;
  askedAt_ = at;
  map_.reset();
  state_ = {};
  refusal_.reset();
  if (!put(link, Topic::info) || !put(link, Topic::shards) || !put(link, Topic::channels)) {
    return false;
  }
  patience_->armAt(env_->now() + kPatience);
  return true;
}

inline bool MapSource::put(net::CommandTransport& link, Topic topic) {
  static constexpr std::array<std::string_view, 2> kInfo{"CLUSTER", "INFO"};
  static constexpr std::array<std::string_view, 2> kShards{"CLUSTER", "SHARDS"};
  static constexpr std::array<std::string_view, 2> kSlotList{"CLUSTER", "SLOTS"};
  static constexpr std::array<std::string_view, 2> kChannels{"PUBSUB", "SHARDNUMSUB"};
  const std::span<const std::string_view> words = topic == Topic::info     ? kInfo
                                                  : topic == Topic::shards ? kShards
                                                  : topic == Topic::slots  ? kSlotList
                                                                           : kChannels;
  const auto question = makeIntrusive<Question>(self_, topic, round_);
  if (!link.submit(*question, words, net::CommandTransport::Mode::background)) {
    return false;
  }
  ++missing_;
  return true;
}

inline void MapSource::answered(Topic topic, std::uint64_t round, net::Request& question) {
  if (closed_ || round != round_ || !pace_.asking()) {
    return;
  }
  --missing_;
  if (question.delivery() != net::Request::Delivery::replied) {
    // A node is no witness until it has another connection. The one of our own would be asked
    // again.
    fail(Error(Errc::connectionFailed, "the connection was lost while the map was read"),
         asked_ == seed_.get());
    return;
  }
  take(topic, question.reply());
  if (missing_ == 0) {
    conclude();
  }
}

inline void MapSource::take(Topic topic, Reply& reply) {
  switch (topic) {
    case Topic::info:
      if (!reply.isError()) {
        state_ = parseClusterInfo(reply.text);
      }
      return;
    case Topic::channels:
      sharded_ = reply.isArray();
      return;
    case Topic::shards:
      map_ = parseShards(reply, askedAt_, tls_);
      // Servers before 7.0 know another question only. Redis 7.4 leaves out the slots of a shard
      // whose dead master is not a replica of the new one yet, and tells them by the other.
      if ((!map_ || map_->covered() < net::kSlots) && !put(*asked_, Topic::slots)) {
        refusal_.emplace(Errc::connectionFailed, "the connection was lost while the map was read");
      }
      return;
    case Topic::slots: {
      const auto told = parseSlots(reply, askedAt_);
      if (map_ && told) {
        map_->complete(*told);
      } else if (!map_) {
        map_ = told;
      }
      if (!map_) {
        ErrorContext context;
        context.node = toString(askedAt_);
        context.serverMessage = reply.text;
        refusal_.emplace(reply.isError() ? classifyError(reply.text).errc : Errc::protocolError,
                         "the node does not tell the map of its cluster",
                         std::move(context));
      }
      return;
    }
  }
}

inline void MapSource::conclude() {
  if (!map_) {
    fail(
        refusal_ ? *refusal_ : Error(Errc::protocolError, "the map of the cluster is not readable"),
        true);
    return;
  }
  if (map_->covered() == 0) {
    ErrorContext context;
    context.node = toString(askedAt_);
    fail(Error(Errc::connectionFailed,
               "the node knows no master of its cluster that has slots",
               std::move(context)),
         true);
    return;
  }
  // A node that is cut off from the others goes on telling how the cluster was.
  const bool cutOff = state_.epoch != 0 && !state_.ok;
  const bool stale = cutOff && state_.epoch < epoch_;
  if (cutOff) {
    doubt_.raise();
  } else {
    doubt_.settle();
  }
  epoch_ = std::max(epoch_, state_.epoch);
  const bool changed = !stale && events_.mapRead(std::move(*map_), sharded_);
  if (closed_) {
    return;
  }
  dropSeed();
  over(changed);
}

/// @param doubtful  the node is of no use, as far as can be seen
inline void MapSource::fail(const Error& error, bool doubtful) {
  if (doubtful || doubt_.there()) {
    doubt_.raise();
  }
  giveUp();
  events_.mapFailed(error, doubt_.allHadATurn());
}

inline void MapSource::giveUp() {
  // Another may know it.
  pace_.wanted(env_->now());
  over(false);
}

inline void MapSource::over(bool changed) {
  patience_->disarm();
  asked_ = nullptr;
  ++round_;
  const auto now = env_->now();
  auto next = pace_.answered(now, changed);
  if (!next && events_.unsettled()) {
    next = pace_.wanted(now);
  }
  if (next) {
    timer_->armAt(*next);
  }
}

/// Not at once: it may be what calls. Without memory it is closed, and kept.
inline void MapSource::letSeedGo() {
  if (seed_) {
    seedOpen_ = false;
    seed_->close();
    env_->post([seed = seed_] {});
    seed_.reset();
  }
}

inline void MapSource::dropSeed() noexcept {
  try {
    letSeedGo();
  } catch (const std::bad_alloc&) {
    // The next question that needs one replaces it.
  }
}

inline void MapSource::onUp(const std::shared_ptr<const net::ServerSession>& session) {
  const std::string_view address = session->address;
  const auto colon = address.rfind(':');
  std::string_view host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') {
    host = host.substr(1, host.size() - 2);
  }
  seedAt_ = {};
  seedAt_.host = host;
  if (colon != std::string_view::npos) {
    std::from_chars(address.data() + colon + 1, address.data() + address.size(), seedAt_.port);
  }
  if (!closed_ && pace_.asking() && asked_ == nullptr) {
    begin([this] { askAt(*seed_, seedAt_); });
  } else {
    want();
  }
}

inline void MapSource::onDown(const Error& error) {
  if (closed_) {
    return;
  }
  if (pace_.asking() && (asked_ == nullptr || asked_ == seed_.get())) {
    // Another node may have a connection by now. If none has, and no configured address can be
    // reached, a master that no call has needed may still know who took over.
    fail(error, asked_ != nullptr || !events_.unneeded().empty());
  } else {
    events_.mapFailed(error, doubt_.allHadATurn());
  }
  want();
}

}  // namespace rlock::detail
