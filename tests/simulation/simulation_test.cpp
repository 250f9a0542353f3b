// SPDX-License-Identifier: Apache-2.0
#include "simulation/simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>

namespace rlock::sim {

// Found by argument-dependent lookup, so it cannot hide in the unnamed namespace.
inline void PrintTo(Mutation mutation, std::ostream* out) {
  *out << toString(mutation);
}

namespace {

constexpr std::uint64_t kDefaultSeeds = 3000;

std::optional<std::uint64_t> numberFrom(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') {
    return std::nullopt;
  }
  return std::strtoull(text, nullptr, 10);
}

std::uint64_t seeds() {
  return numberFrom("RLOCK_SIM_SEEDS").value_or(kDefaultSeeds);
}

/// The one command that shows a schedule again, with everything that happens in it.
std::string replayCommand(std::uint64_t seed, const std::string& test) {
  return "RLOCK_SIM_SEED=" + std::to_string(seed) + " " + ::testing::internal::GetArgvs()[0] +
         " --gtest_filter=" + test;
}

std::string describe(const Violation& violation, std::uint64_t seed, const std::string& test) {
  std::ostringstream text;
  text << violation.rule << ": " << violation.what << ", after "
       << std::chrono::duration<double, std::milli>(violation.at).count() << " ms of seed " << seed
       << "\nreplay: " << replayCommand(seed, test);
  return text.str();
}

// RLOCK_SIM_SEEDS=n runs n schedules instead of the default; RLOCK_SIM_SEED=n runs exactly that one
// and prints what happens in it.
TEST(Simulation, KeepsEveryRule) {
  Coverage coverage;
  if (const auto seed = numberFrom("RLOCK_SIM_SEED")) {
    Simulation simulation(*seed, Mutation::none, true, coverage);
    if (const auto violation = simulation.run()) {
      FAIL() << describe(*violation, *seed, "Simulation.KeepsEveryRule");
    }
    return;
  }
  const std::uint64_t last = seeds();
  std::uint64_t events = 0;
  std::uint64_t killed = 0;
  std::uint64_t killedInTime = 0;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    Simulation simulation(seed, Mutation::none, false, coverage);
    if (const auto violation = simulation.run()) {
      FAIL() << describe(*violation, seed, "Simulation.KeepsEveryRule");
    }
    events += simulation.events();
    killed += simulation.network().killed();
    killedInTime += simulation.network().killedWithRequests();
  }
  RecordProperty("events", std::to_string(events));
  if (last < 1000) {
    return;
  }
  // Rules that nothing happens to break prove nothing.
  const auto reached = [](const char* path, std::uint64_t times) {
    EXPECT_GT(times, 0U) << "no schedule reaches: " << path;
    std::printf("%-40s %12llu\n", path, static_cast<unsigned long long>(times));
  };
  reached("events", events);
  reached("connections killed", killed);
  reached("requests kept from running late", killedInTime);
  reached("granted", coverage.granted);
  reached("refused", coverage.refused);
  reached("failed", coverage.failed);
  reached("released", coverage.released);
  reached("still held", coverage.stillHeld);
  reached("not owner", coverage.notOwner);
  reached("queued without a try", coverage.queuedUnasked);
  reached("waited in front of the gate", coverage.gateWaits);
  reached("withdrew an unsent request", coverage.parkedCancelled);
  reached("lost reply: acquire", coverage.unknownAcquires);
  reached("lost reply: release", coverage.unknownReleases);
  reached("lost reply: settle", coverage.unknownSettles);
  reached("lost reply: renewal", coverage.unknownRenewals);
  reached("settled: had been granted", coverage.keptAfterSettle);
  reached("settled: had not been granted", coverage.retriedAfterSettle);
  reached("settled: given back", coverage.undone);
  reached("settle given up", coverage.settlesGivenUp);
  reached("answered early", coverage.earlyAnswers);
  reached("server counts too many", coverage.tooMany);
  reached("hold found gone", coverage.vanished);
  reached("renewed", coverage.renewals);
  reached("renewal refused", coverage.renewalRefusals);
  reached("loss told", coverage.lost);
  reached("loss told: maxHold", coverage.lostByMaxHold);
  reached("lost hold let go", coverage.gone);
  reached("message heard", coverage.messages);
  reached("subscribed again", coverage.resubscribed);
  reached("subscription denied", coverage.deniedChannels);
  reached("unsubscribed", coverage.unsubscribed);
  reached("turn handed on", coverage.turnsHandedOn);
  reached("polled", coverage.polls);
}

TEST(Simulation, SameSeedSameSchedule) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Coverage first;
    Coverage second;
    Simulation one(seed, Mutation::none, false, first);
    Simulation two(seed, Mutation::none, false, second);
    one.run();
    two.run();
    EXPECT_EQ(one.events(), two.events());
    EXPECT_EQ(first.granted, second.granted);
    EXPECT_EQ(first.renewals, second.renewals);
    EXPECT_EQ(first.messages, second.messages);
  }
}

/// The checks above are worth what they find: each known mistake must break a rule within the
/// seeds.
class MutatedSimulation : public ::testing::TestWithParam<Mutation> {};

TEST_P(MutatedSimulation, IsFoundOut) {
  const Mutation mutation = GetParam();
  const std::string test =
      std::string("Mutations/MutatedSimulation.IsFoundOut/") + toString(mutation);
  const auto one = numberFrom("RLOCK_SIM_SEED");
  const std::uint64_t last = one.value_or(std::max(seeds(), kDefaultSeeds));
  for (std::uint64_t seed = one.value_or(1); seed <= last; ++seed) {
    Coverage coverage;
    Simulation simulation(seed, mutation, one.has_value(), coverage);
    if (const auto violation = simulation.run()) {
      std::printf("%s\n", describe(*violation, seed, test).c_str());
      return;
    }
  }
  if (one) {
    GTEST_SKIP() << toString(mutation) << " breaks no rule in this schedule";
  }
  FAIL() << toString(mutation) << " breaks no rule in " << last << " schedules";
}

INSTANTIATE_TEST_SUITE_P(Mutations,
                         MutatedSimulation,
                         ::testing::Values(Mutation::noFence,
                                           Mutation::settleSkipped,
                                           Mutation::earlyGrantKept,
                                           Mutation::lostHoldCounted,
                                           Mutation::settleTimeIgnored,
                                           Mutation::validFromReply,
                                           Mutation::orphansForgotten,
                                           Mutation::lossToldLate,
                                           Mutation::retireSkipped,
                                           Mutation::noRecheckAfterResubscribe,
                                           Mutation::messageIgnored,
                                           Mutation::turnNotHandedOn,
                                           Mutation::gateSkipped,
                                           Mutation::deadlineIgnored),
                         [](const auto& mutation) { return toString(mutation.param); });

}  // namespace
}  // namespace rlock::sim
