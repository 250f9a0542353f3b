// SPDX-License-Identifier: Apache-2.0
#include "simulation/simulation.hpp"

#include "simulation/counter_scenarios.hpp"
#include "simulation/lock_scenario.hpp"
#include "simulation/permit_scenario.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace rlock::sim {
namespace {

/// A few million events for each kind.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Ten times as slow, and there is one thread: a sanitizer sees no more in more of them.
constexpr std::uint64_t kSeeds = 40;
#else
constexpr std::uint64_t kSeeds = 200;
#endif
/// So many schedules reach everything that there is.
constexpr std::uint64_t kManySeeds = 200;

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
    const std::uint64_t first = one.value_or(1);
    const std::uint64_t last = one.value_or(numberFrom("RLOCK_SIM_SEEDS").value_or(kSeeds));
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

constexpr std::initializer_list<const char*> kOfLocks{"granted",
                                                      "refused",
                                                      "released",
                                                      "dropped",
                                                      "renewals sent",
                                                      "lost: unreachable",
                                                      "lost: expired",
                                                      "lost: refused",
                                                      "lost: maxHold",
                                                      "connections killed",
                                                      "requests kept from coming late",
                                                      "requests that came late"};

TEST_F(SimulationTest, PlainLocks) {
  std::vector<const char*> reached(kOfLocks);
  reached.insert(reached.end(), {"handed over", "others go first"});
  runAll(locksOf(Family::plain), reached);
}

TEST_F(SimulationTest, FairLocks) {
  runAll(locksOf(Family::fair), kOfLocks);
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
  runAll(locksOf(Family::multi), {"granted", "refused", "released", "renewals sent"});
}

TEST_F(SimulationTest, RedLocks) {
  runAll(locksOf(Family::red), {"granted", "refused", "released", "renewals sent"});
}

template <class Kind>
std::unique_ptr<Scenario> make(Simulation& simulation) {
  return std::make_unique<Kind>(simulation);
}

TEST_F(SimulationTest, Permits) {
  runAll(make<PermitScenario>, {"granted", "released", "dropped", "renewals sent"});
}

TEST_F(SimulationTest, Semaphores) {
  runAll(make<SemaphoreScenario>, {"granted", "released", "released in the background"});
}

TEST_F(SimulationTest, Latches) {
  runAll(make<LatchScenario>, {"rounds", "let through"});
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
