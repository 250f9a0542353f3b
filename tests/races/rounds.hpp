// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace rlock::races {

/// By how much a sanitizer makes a round slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::uint64_t kSlowness = 10;
#else
inline constexpr std::uint64_t kSlowness = 1;
#endif

/// A number of the environment.
inline std::uint64_t fromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// The command that begins the running test with the round of a seed. How the threads run is up to
/// the kernel, so it goes on with some more rounds.
inline std::string replayCommand(std::uint64_t seed, std::uint64_t rounds = 1000) {
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  return "replay: RLOCK_RACE_SEED=" + std::to_string(seed) +
         " RLOCK_RACE_ROUNDS=" + std::to_string(rounds) + ' ' + testing::internal::GetArgvs()[0] +
         " --gtest_filter=" + test->test_suite_name() + '.' + test->name();
}

}  // namespace rlock::races
