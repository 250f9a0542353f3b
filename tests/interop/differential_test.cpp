// SPDX-License-Identifier: Apache-2.0
#include "interop/differential.hpp"

#include "interop/differential_scripts.hpp"
#include "interop/interop_harness.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

namespace rlock::test::interop {
namespace {

struct Casting {
  const char* about;
  Cast cast;
};

const Casting kRedissonAlone{"Redisson alone",
                             {{'A', Side::java}, {'B', Side::java}, {'C', Side::java}}};
const Casting kCastings[] = {
    {"rlock alone", {{'A', Side::cpp}, {'B', Side::cpp}, {'C', Side::cpp}}},
    {"Redisson first", {{'A', Side::java}, {'B', Side::cpp}, {'C', Side::java}}},
    {"rlock first", {{'A', Side::cpp}, {'B', Side::java}, {'C', Side::cpp}}}};

std::vector<Subject> scriptSubjects() {
  std::vector<std::string> kinds;
  for (const Script& script : scripts()) {
    kinds.emplace_back(script.kind);
  }
  return newest(kinds);
}

class DifferentialTest : public SubjectTest {};

TEST_P(DifferentialTest, IO3_TheStateAfterEachStepIsRedissons) {
  ASSERT_NO_FATAL_FAILURE(begin("same state", GetParam()));
  if (IsSkipped()) {
    return;
  }
  const auto script = std::find_if(
      scripts().begin(), scripts().end(), [&](const Script& each) { return each.kind == kind(); });
  ASSERT_NE(script, scripts().end());
  ScriptRun run(server(), uri(), peer(Side::java), peer(Side::cpp));
  const std::vector<Observation> redisson = run.perform(*script, kRedissonAlone.cast);
  std::set<std::string> seen;
  for (const Casting& casting : kCastings) {
    SCOPED_TRACE(casting.about);
    const std::vector<Observation> actual = run.perform(*script, casting.cast);
    const Comparison comparison = compare(*script, redisson, actual, casting.cast);
    for (const std::string& difference : comparison.unexpected) {
      ADD_FAILURE() << difference;
    }
    seen.insert(comparison.seen.begin(), comparison.seen.end());
  }
  for (const std::string& id : seen) {
    EXPECT_TRUE(std::any_of(differences().begin(),
                            differences().end(),
                            [&](const Difference& each) { return each.id == id; }))
        << id << " has no reason";
  }
  note(std::to_string(script->steps.size()) + " steps, " + std::to_string(seen.size()) +
       (seen.size() == 1 ? " known difference" : " known differences"));
}

TEST(DifferentialScripts, IO3_HaveTwoHundredStepsAtLeast) {
  std::size_t steps = 0;
  for (const Script& script : scripts()) {
    steps += script.steps.size();
  }
  EXPECT_GE(steps, 200U);
  // For the document; see write_matrix.sh.
  std::filesystem::create_directories(RLOCK_INTEROP_RESULT_DIR);
  std::ofstream file(RLOCK_INTEROP_RESULT_DIR "/differences");
  for (const Difference& difference : differences()) {
    file << "- " << difference.reason << '\n';
  }
}

INSTANTIATE_TEST_SUITE_P(Interop,
                         DifferentialTest,
                         ::testing::ValuesIn(scriptSubjects()),
                         subjectName);

}  // namespace
}  // namespace rlock::test::interop
