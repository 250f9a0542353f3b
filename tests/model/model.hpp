// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace rlock::test {

/// One random step: what is done, by whom, with which argument. Subjects and models read `action`
/// and `argument` as they like.
struct ModelStep {
  int action = 0;
  int client = 0;
  int owner = 0;
  int argument = 0;
};

/// The outcome of a step: a word, and a number where there is one.
struct ModelOutcome {
  std::string word;
  std::int64_t number = 0;
};

/// When a step was made: it took effect somewhere in between.
struct ModelWindow {
  std::chrono::steady_clock::time_point from;
  std::chrono::steady_clock::time_point to;
};

/// The point in time at which something ends that was begun within a window.
class ModelEnd {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Never.
  ModelEnd() = default;
  ModelEnd(const ModelWindow& window, std::chrono::milliseconds lease)
      // A client gives its hold up a twentieth of the lease and its allowance before the server
      // does, and both count whole milliseconds, which a lease begins in the midst of. The server
      // may be late by some.
      : earliest_(window.from + lease - lease / 20 - std::chrono::milliseconds(3)),
        latest_(window.to + lease + std::chrono::milliseconds(3)) {}

  [[nodiscard]] bool certainlyBefore(const ModelWindow& window) const {
    return latest_ < window.from;
  }
  [[nodiscard]] bool certainlyAfter(const ModelWindow& window) const {
    return earliest_ > window.to;
  }
  /// The later of two.
  [[nodiscard]] static ModelEnd later(const ModelEnd& a, const ModelEnd& b) {
    ModelEnd result;
    result.earliest_ = std::max(a.earliest_, b.earliest_);
    result.latest_ = std::max(a.latest_, b.latest_);
    return result;
  }

 private:
  TimePoint earliest_ = TimePoint::max();
  TimePoint latest_ = TimePoint::max();
};

/// The real objects and what they ought to do.
class ModelCase {
 public:
  ModelCase() = default;
  ModelCase(const ModelCase&) = delete;
  ModelCase& operator=(const ModelCase&) = delete;
  virtual ~ModelCase() = default;

  /// How many actions there are.
  [[nodiscard]] virtual int actions() const = 0;
  /// For people.
  [[nodiscard]] virtual std::string describe(const ModelStep& step) const = 0;
  /// Makes a step on the real objects.
  virtual ModelOutcome perform(const ModelStep& step) = 0;
  /// Says what is wrong with an outcome; nothing: it is what the model does, which makes the step
  /// too.
  virtual std::optional<std::string> judge(const ModelStep& step,
                                           const ModelOutcome& outcome,
                                           const ModelWindow& window) = 0;
};

using MakeModelCase = std::function<std::unique_ptr<ModelCase>()>;

/// Runs steps on a fresh case. Returns what went wrong, after how many steps.
struct ModelFailure {
  std::size_t step = 0;
  std::string what;
};
inline std::optional<ModelFailure> runModel(const MakeModelCase& make,
                                            const std::vector<ModelStep>& steps) {
  const std::unique_ptr<ModelCase> subject = make();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    ModelWindow window{std::chrono::steady_clock::now(), {}};
    const ModelOutcome outcome = subject->perform(steps[i]);
    window.to = std::chrono::steady_clock::now();
    if (auto wrong = subject->judge(steps[i], outcome, window)) {
      return ModelFailure{i,
                          subject->describe(steps[i]) + " gave " + outcome.word + " " +
                              std::to_string(outcome.number) + ": " + *wrong};
    }
  }
  return std::nullopt;
}

inline std::vector<ModelStep> randomSteps(const MakeModelCase& make,
                                          std::uint64_t seed,
                                          std::size_t count) {
  std::mt19937_64 random(seed);
  const int actions = make()->actions();
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(limit));
  };
  std::vector<ModelStep> steps(count);
  for (ModelStep& step : steps) {
    step.action = below(actions);
    step.client = below(2);
    step.owner = below(3);
    step.argument = below(1000);
  }
  return steps;
}

/// Leaves out steps as long as it still goes wrong, by running it again and again.
inline std::vector<ModelStep> shrink(const MakeModelCase& make, std::vector<ModelStep> steps) {
  int runs = 0;
  for (std::size_t chunk = steps.size() / 2; chunk > 0; chunk /= 2) {
    for (std::size_t at = 0; at + chunk <= steps.size() && runs < 200;) {
      std::vector<ModelStep> fewer = steps;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at),
                  fewer.begin() + static_cast<std::ptrdiff_t>(at + chunk));
      ++runs;
      if (const auto failure = runModel(make, fewer)) {
        fewer.resize(failure->step + 1);
        steps = std::move(fewer);
      } else {
        at += chunk;
      }
    }
  }
  return steps;
}

/// Everything about a failing run, smallest form first. Empty: all is well.
inline std::string checkModel(const MakeModelCase& make, std::uint64_t seed, std::size_t count) {
  std::vector<ModelStep> steps = randomSteps(make, seed, count);
  const auto failure = runModel(make, steps);
  if (!failure) {
    return {};
  }
  std::string text = "seed " + std::to_string(seed) + ", step " + std::to_string(failure->step) +
                     ": " + failure->what + "\nas few steps as were found to go wrong:\n";
  steps.resize(failure->step + 1);
  steps = shrink(make, std::move(steps));
  const std::unique_ptr<ModelCase> names = make();
  for (const ModelStep& step : steps) {
    text += "  " + names->describe(step) + "\n";
  }
  if (const auto again = runModel(make, steps)) {
    text += "  -> " + again->what + "\n";
  }
  return text;
}

}  // namespace rlock::test
