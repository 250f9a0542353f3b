// SPDX-License-Identifier: Apache-2.0

// RedLock against nodes that crash and restart empty, clocks that drift and a network that delays
// and loses. The decisions are those of QuorumFsm and Quorum; time and nodes are made up.

#include <rlock/detail/engine/watchdog.hpp>
#include <rlock/detail/group/quorum_fsm.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace {

using namespace std::chrono_literals;
using Nanos = std::chrono::nanoseconds;
using TimePoint = Quorum::Clock::time_point;

/// A rule that is broken on purpose.
enum class Mutation {
  none,
  noRestartDelay,      ///< a node that lost its data is used again at once
  countedFromReply,    ///< the validity begins with the reply, not with the request
  noGiveBackOnFailure  ///< what a failed attempt obtained is kept; harmless for safety
};

constexpr std::size_t kClients = 4;
constexpr std::chrono::milliseconds kLease{1000};
constexpr double kWorstRate = 0.004;

/// A clock that runs a little too fast or too slow.
struct DriftingClock {
  double rate = 1.0;
  Nanos offset{0};

  [[nodiscard]] Nanos local(Nanos real) const { return scaled(real, rate) + offset; }
  [[nodiscard]] Nanos real(Nanos local) const { return scaled(local - offset, 1.0 / rate); }
  [[nodiscard]] Nanos realLength(Nanos local) const { return scaled(local, 1.0 / rate); }
  static Nanos scaled(Nanos length, double factor) {
    return Nanos(static_cast<std::int64_t>(static_cast<double>(length.count()) * factor));
  }
};

class Model {
 public:
  Model(std::uint64_t seed, std::size_t nodes, Mutation mutation)
      : random_(seed), mutation_(mutation), nodes_(nodes) {
    for (Node& node : nodes_) {
      node.clock = drifting();
      scheduleCrash(node);
    }
    for (std::size_t i = 0; i < kClients; ++i) {
      clients_.push_back(std::make_unique<Client>());
      clients_.back()->clock = drifting();
      after(upTo(200ms), [this, i] { acquire(*clients_[i]); });
    }
  }

  void run(Nanos length) {
    while (!events_.empty() && events_.begin()->first <= length) {
      now_ = events_.begin()->first;
      const auto event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      event();
    }
  }

  [[nodiscard]] int grants() const { return grants_; }
  [[nodiscard]] int violations() const { return violations_; }

 private:
  using Step = QuorumFsm::Step;

  struct Node {
    DriftingClock clock;
    bool up = true;
    std::optional<std::uint64_t> owner;
    Nanos until{0};  // on its own clock
  };

  struct Client {
    DriftingClock clock;
    std::unique_ptr<QuorumFsm> fsm;
    std::uint64_t attempt = 0;  // its owner on the nodes: no two attempts share one
    std::vector<TimePoint> until;
    TimePoint sentAt{};
    std::optional<Nanos> validUntil;  // real time; while it has the lock
  };

  DriftingClock drifting() {
    std::uniform_real_distribution<double> rate(1.0 - kWorstRate, 1.0 + kWorstRate);
    return {rate(random_), upTo(1h)};
  }
  Nanos upTo(Nanos most) {
    return Nanos(std::uniform_int_distribution<std::int64_t>(0, most.count())(random_));
  }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }

  void after(Nanos delay, std::function<void()> event) {
    events_.emplace(now_ + delay, std::move(event));
  }
  /// Most messages are quick, some are not, and some never arrive.
  void send(std::function<void()> arrival) {
    if (!chance(0.03)) {
      after(chance(0.15) ? upTo(900ms) : upTo(5ms), std::move(arrival));
    }
  }

  void scheduleCrash(Node& node) {
    after(500ms + upTo(6s), [this, &node] {
      node.up = false;
      node.owner.reset();
      const Nanos longest = DriftingClock::scaled(kLease, 1.0 + 2 * kWorstRate);
      after(mutation_ == Mutation::noRestartDelay ? upTo(10ms) : longest, [this, &node] {
        node.up = true;
        scheduleCrash(node);
      });
    });
  }

  bool grantOn(Node& node, std::uint64_t owner) {
    const Nanos local = node.clock.local(now_);
    if (node.owner && local < node.until) {
      return false;
    }
    node.owner = owner;
    node.until = local + kLease;
    return true;
  }
  void releaseOn(std::size_t number, std::uint64_t owner) {
    send([this, number, owner] {
      Node& node = nodes_[number];
      if (node.up && node.owner == owner) {
        node.owner.reset();
      }
    });
  }

  [[nodiscard]] TimePoint localNow(const Client& client) const {
    return TimePoint(client.clock.local(now_));
  }

  void acquire(Client& client) {
    client.fsm = std::make_unique<QuorumFsm>(nodes_.size(), false);
    perform(client, client.fsm->start());
  }

  void perform(Client& client, Step step) {
    switch (step) {
      case Step::none:
      case Step::end:
      case Step::finishEarly:
        return;
      case Step::attempt:
        attempt(client);
        return;
      case Step::giveBack:
        giveBack(client);
        return;
      case Step::pause:
        after(upTo(60ms), [this, &client, attempt = client.attempt] {
          if (attempt == client.attempt) {
            perform(client, client.fsm->pauseOver(true));
          }
        });
        return;
      case Step::finish:
        enter(client);
        return;
    }
  }

  void attempt(Client& client) {
    const std::uint64_t attempt = client.attempt = ++lastAttempt_;
    client.until.assign(nodes_.size(), TimePoint::min());
    client.sentAt = localNow(client);
    // A patience that lets slow answers in: they are what endangers the validity.
    after(client.clock.realLength(900ms), [this, &client, attempt] {
      if (attempt == client.attempt) {
        perform(client, client.fsm->limitReached(false));
      }
    });
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      send([this, &client, attempt, i] {
        if (!nodes_[i].up) {
          return;
        }
        const bool granted = grantOn(nodes_[i], attempt);
        send([this, &client, attempt, i, granted] { answered(client, attempt, i, granted); });
      });
    }
  }

  void answered(Client& client, std::uint64_t attempt, std::size_t node, bool granted) {
    if (attempt != client.attempt || !client.fsm->asking()) {
      if (granted && !(attempt == client.attempt && client.validUntil)) {
        releaseOn(node, attempt);
      }
      return;
    }
    if (!granted) {
      perform(client, client.fsm->refused(node));
      return;
    }
    const TimePoint from =
        mutation_ == Mutation::countedFromReply ? localNow(client) : client.sentAt;
    client.until[node] = from + kLease - Validity::allowance(kLease);
    perform(client, client.fsm->granted(node, localNow(client) < validUntil(client)));
  }

  [[nodiscard]] TimePoint validUntil(const Client& client) const {
    std::vector<TimePoint> until = client.until;
    const TimePoint end = Quorum::validUntil(until, Quorum::majority(nodes_.size()));
    return end == TimePoint::min() ? end : end - Quorum::drift(kLease);
  }

  void giveBack(Client& client) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (client.until[i] != TimePoint::min() && mutation_ != Mutation::noGiveBackOnFailure) {
        releaseOn(i, client.attempt);
      }
    }
    perform(client, client.fsm->givenBack(true));
  }

  void enter(Client& client) {
    if (client.fsm->result() != QuorumFsm::Result::granted) {
      after(upTo(20ms), [this, &client] { acquire(client); });
      return;
    }
    ++grants_;
    for (const auto& other : clients_) {
      if (other.get() != &client && other->validUntil && now_ < *other->validUntil) {
        ++violations_;
      }
    }
    client.validUntil = client.clock.real(validUntil(client).time_since_epoch());
    // Some let it run out.
    after(chance(0.5) ? upTo(300ms) : upTo(1500ms), [this, &client] {
      client.validUntil.reset();
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        releaseOn(i, client.attempt);
      }
      after(upTo(20ms), [this, &client] { acquire(client); });
    });
  }

  std::mt19937_64 random_;
  const Mutation mutation_;
  Nanos now_{0};
  std::multimap<Nanos, std::function<void()>> events_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::uint64_t lastAttempt_ = 0;
  int grants_ = 0;
  int violations_ = 0;
};

struct Total {
  int grants = 0;
  int violations = 0;
  std::optional<std::uint64_t> firstBadSeed;
};

Total explore(std::size_t nodes, Mutation mutation, std::uint64_t seeds) {
  Total total;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Model model(seed, nodes, mutation);
    model.run(30s);
    total.grants += model.grants();
    total.violations += model.violations();
    if (model.violations() > 0 && !total.firstBadSeed) {
      total.firstBadSeed = seed;
    }
  }
  return total;
}

TEST(RedLockModel, C10_NeverTwoValidHolders) {
  for (const std::size_t nodes : {3U, 4U, 5U}) {
    const Total total = explore(nodes, Mutation::none, 600);
    EXPECT_EQ(total.violations, 0)
        << nodes << " nodes, first in seed " << total.firstBadSeed.value_or(0);
    EXPECT_GT(total.grants, 1000) << nodes << " nodes: otherwise it shows nothing";
  }
}

TEST(RedLockModel, C10_WithoutTheDelayedRestartThereAreTwo) {
  const Total total = explore(3, Mutation::noRestartDelay, 150);
  EXPECT_GT(total.violations, 0);
}

TEST(RedLockModel, C10_WithoutCountingFromTheRequestThereAreTwo) {
  const Total total = explore(3, Mutation::countedFromReply, 150);
  EXPECT_GT(total.violations, 0);
}

TEST(RedLockModel, C10_AnAttemptThatKeepsWhatItGotIsSafeAllTheSame) {
  const Total total = explore(3, Mutation::noGiveBackOnFailure, 150);
  EXPECT_EQ(total.violations, 0);
}

}  // namespace
}  // namespace rlock::detail
