// SPDX-License-Identifier: Apache-2.0
#include "simulation/simulation.hpp"

#include "simulation/cluster_scenario.hpp"
#include "simulation/counter_scenarios.hpp"
#include "simulation/lock_scenario.hpp"
#include "simulation/permit_scenario.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace rlock::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Ten times as slow, and there is one thread: a sanitizer sees no more in more of them.
constexpr std::uint64_t kSeeds = 40;
#else
constexpr std::uint64_t kSeeds = 200;
#endif
/// So many schedules reach everything that there is.
constexpr std::uint64_t kManySeeds = 200;
/// Ten kinds, so a million events in all.
constexpr std::uint64_t kLeastEvents = 100'000 * kSeeds / kManySeeds;

std::optional<std::uint64_t> numberFrom(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') {
    return std::nullopt;
  }
  return std::strtoull(text, nullptr, 10);
}

Simulation::MakeScenario locksOf(Family family) {
  return [family](Simulation& simulation) {
    return std::make_unique<LockScenario>(simulation, family);
  };
}

/// Schedules of one kind of object. RLOCK_SIM_SEEDS=n runs n schedules of each kind instead of the
/// default; RLOCK_SIM_SEED=n runs exactly that one, and prints what happens in it.
class SimulationTest : public ::testing::Test {
 protected:
  /// @param reached  what must happen in some of them: a rule that nothing happens to break proves
  ///                 nothing
  static void runAll(const Simulation::MakeScenario& make,
                     const std::vector<const char*>& reached) {
    const auto one = numberFrom("RLOCK_SIM_SEED");
    const auto asked = numberFrom("RLOCK_SIM_SEEDS");
    const std::uint64_t first = one.value_or(1);
    const std::uint64_t last = one.value_or(asked.value_or(kSeeds));
    std::uint64_t events = 0;
    Coverage coverage;
    for (std::uint64_t seed = first; seed <= last; ++seed) {
      Simulation simulation(seed, one.has_value(), coverage, make);
      const auto violation = simulation.run();
      events += simulation.events();
      if (violation) {
        FAIL() << describe(*violation, seed);
      }
    }
    RecordProperty("events", std::to_string(events));
    std::printf("%-40s %10llu\n", "events", static_cast<unsigned long long>(events));
    for (const auto& [what, times] : coverage) {
      std::printf("%-40s %10llu\n", what.c_str(), static_cast<unsigned long long>(times));
    }
    if (!one && !asked) {
      // A scenario that soon has nothing to do any more would pass unnoticed.
      EXPECT_GE(events, kLeastEvents);
    }
    if (last - first + 1 >= kManySeeds) {
      for (const char* const what : reached) {
        EXPECT_GT(coverage[what], 0U) << "no schedule reaches: " << what;
      }
    }
  }

 private:
  static std::string describe(const Violation& violation, std::uint64_t seed) {
    const auto* const info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::ostringstream text;
    text << violation.rule << ": " << violation.what << ", after "
         << std::chrono::duration<double, std::milli>(violation.at).count() << " ms of seed "
         << seed << "\nreplay: RLOCK_SIM_SEED=" << seed << ' ' << ::testing::internal::GetArgvs()[0]
         << " --gtest_filter=" << info->test_suite_name() << '.' << info->name();
    return text.str();
  }
};

using Names = std::vector<const char*>;

Names operator+(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

/// The faults that every kind of object meets.
const Names kFaults{fault::kCutCommands,
                    fault::kCut,
                    fault::kCutUnnoticed,
                    fault::kBlackHole,
                    fault::kOutage,
                    fault::kFreeze,
                    fault::kPause,
                    fault::kRestart,
                    fault::kFlush,
                    fault::kLate,
                    fault::kWriteBlocked,
                    "scripts found missing"};
/// Where waiters are told something.
const Names kOfMessages{fault::kCutSubscriber, fault::kMessageLost};
/// Where a request that comes late would do harm.
const Names kOfKills{fault::kKillRefused, "connections killed", "requests kept from coming late"};

const Names kOfLocks = kFaults + kOfMessages + kOfKills +
                       Names{fault::kCrash,
                             fault::kForce,
                             fault::kLoss,
                             "granted",
                             "refused",
                             "released",
                             "dropped",
                             "renewals sent",
                             "lost: unreachable",
                             "lost: expired",
                             "lost: refused",
                             "lost: forced",
                             "lost: maxHold"};

TEST_F(SimulationTest, PlainLocks) {
  runAll(locksOf(Family::plain), kOfLocks + Names{"handed over", "others go first"});
}

TEST_F(SimulationTest, FairLocks) {
  runAll(locksOf(Family::fair), kOfLocks + Names{"served in order among faults"});
}

TEST_F(SimulationTest, SimpleLocks) {
  runAll(locksOf(Family::simple), kOfLocks);
}

TEST_F(SimulationTest, FencedLocks) {
  runAll(locksOf(Family::fenced), kOfLocks);
}

TEST_F(SimulationTest, ReadWriteLocks) {
  runAll(locksOf(Family::readWrite), kOfLocks);
}

TEST_F(SimulationTest, MultiLocks) {
  runAll(locksOf(Family::multi), kOfLocks + Names{"looked for a lost wake-up of several locks"});
}

// Waiters try again by themselves. No server loses its data, and nobody frees a lock by force.
TEST_F(SimulationTest, RedLocks) {
  runAll(locksOf(Family::red),
         kFaults + kOfKills +
             Names{fault::kCrash,
                   "looked for a lost wake-up of several locks",
                   "granted",
                   "refused",
                   "released",
                   "dropped",
                   "renewals sent",
                   "lost: expired",
                   "lost: maxHold"});
}

/// Locks of one of these families, as the seed says.
Simulation::MakeScenario onACluster(std::vector<Family> families) {
  return [families = std::move(families)](Simulation& simulation) {
    const Family family = families[simulation.random().below(families.size())];
    return std::make_unique<ClusterScenario>(simulation, family);
  };
}

const Names kOfClusters{"granted",
                        "released",
                        "renewals sent",
                        "cluster: slot migrated",
                        "cluster: ASK",
                        "cluster: asked",
                        "cluster: TRYAGAIN",
                        "cluster: MOVED",
                        "cluster: MOVED, for a channel",
                        "cluster: down",
                        "cluster: failover on request",
                        "cluster: master died",
                        "cluster: master died, its replica lags"};

TEST_F(SimulationTest, PlainLocksOnACluster) {
  runAll(onACluster({Family::plain}), kFaults + kOfMessages + kOfClusters);
}

TEST_F(SimulationTest, OtherLocksOnACluster) {
  runAll(
      onACluster({Family::fair, Family::simple, Family::fenced, Family::readWrite, Family::multi}),
      kFaults + kOfMessages + kOfClusters);
}

template <class Kind>
std::unique_ptr<Scenario> make(Simulation& simulation) {
  return std::make_unique<Kind>(simulation);
}

TEST_F(SimulationTest, Permits) {
  runAll(make<PermitScenario>,
         kFaults + kOfMessages + kOfKills +
             Names{fault::kCrash,
                   "granted",
                   "released",
                   "dropped",
                   "renewals sent",
                   "lost: unreachable",
                   "lost: expired"});
}

// Each request of these has a key of its own, so that one that comes late does nothing.
TEST_F(SimulationTest, Semaphores) {
  runAll(make<SemaphoreScenario>,
         kFaults + kOfMessages + Names{"granted", "released", "released in the background"});
}

TEST_F(SimulationTest, Latches) {
  runAll(make<LatchScenario>, kFaults + kOfMessages + Names{"rounds", "let through"});
}

TEST_F(SimulationTest, TheSameSeedIsTheSameSchedule) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    for (const Family family :
         {Family::plain, Family::fair, Family::readWrite, Family::red, Family::multi}) {
      Coverage coverage;
      Simulation one(seed, false, coverage, locksOf(family));
      one.run();
      const auto hash = one.hash();
      Simulation two(seed, false, coverage, locksOf(family));
      two.run();
      EXPECT_EQ(one.events(), two.events());
      EXPECT_EQ(hash, two.hash()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace rlock::sim
