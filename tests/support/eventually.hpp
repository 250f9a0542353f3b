// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <type_traits>

namespace rlock::test {

/// Factor for every deadline of the test support code: `RLOCK_TEST_TIME_FACTOR` (a number above
/// 0), 1 when unset or unusable. Deadlines grow with it on slow machines; injected delays do not.
[[nodiscard]] inline double timeFactor() {
  static const double factor = [] {
    const char* text = std::getenv("RLOCK_TEST_TIME_FACTOR");
    if (text == nullptr) {
      return 1.0;
    }
    const double parsed = std::strtod(text, nullptr);
    return parsed > 0.0 && parsed < 1000.0 ? parsed : 1.0;
  }();
  return factor;
}

/// `duration` times timeFactor().
[[nodiscard]] inline std::chrono::milliseconds scaled(std::chrono::milliseconds duration) {
  return std::chrono::milliseconds(static_cast<std::chrono::milliseconds::rep>(
      static_cast<double>(duration.count()) * timeFactor()));
}

/// Time since construction or the last restart().
class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;

  void restart() { start_ = Clock::now(); }
  [[nodiscard]] Clock::duration elapsed() const { return Clock::now() - start_; }
  [[nodiscard]] std::chrono::milliseconds elapsedMs() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(elapsed());
  }

 private:
  Clock::time_point start_ = Clock::now();
};

/// The moment `timeout` times timeFactor() from construction on.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(std::chrono::milliseconds timeout) : at_(Clock::now() + scaled(timeout)) {}

  [[nodiscard]] Clock::time_point at() const { return at_; }
  [[nodiscard]] bool expired() const { return Clock::now() >= at_; }
  /// Never negative; rounded up, so that a poll() with it does not spin in the last millisecond.
  [[nodiscard]] std::chrono::milliseconds remaining() const {
    return std::max(std::chrono::milliseconds(0),
                    std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()));
  }

 private:
  Clock::time_point at_;
};

/// Refers to a callable that is asked again and again; it must outlive the reference. Not a
/// template parameter of eventually(), so that its loop is compiled once.
class Condition {
 public:
  template <class Pred>
  requires(!std::is_same_v<std::remove_cvref_t<Pred>, Condition>)
      // NOLINTNEXTLINE(google-explicit-constructor): a lambda is a condition
      Condition(Pred&& pred)
      : pred_(const_cast<void*>(static_cast<const void*>(std::addressof(pred)))),
        ask_([](void* target) {
          return static_cast<bool>((*static_cast<std::remove_reference_t<Pred>*>(target))());
        }) {}

  [[nodiscard]] bool operator()() const { return ask_(pred_); }

 private:
  void* pred_;
  bool (*ask_)(void*);
};

/// Polls `pred` with a short growing back-off until it is true or `deadline` (scaled by
/// timeFactor()) has passed. The predicate runs at least once, and once more after the deadline, so
/// a machine that slept through the deadline does not fail a condition that already holds.
[[nodiscard]] bool eventually(std::chrono::milliseconds deadline, Condition pred);

}  // namespace rlock::test

/// `deadline` is any std::chrono duration of whole milliseconds; `expr` is polled.
#define EXPECT_EVENTUALLY(deadline, expr)                                        \
  EXPECT_TRUE(::rlock::test::eventually((deadline), [&] { return bool(expr); })) \
      << "not within the deadline: " #expr
#define ASSERT_EVENTUALLY(deadline, expr)                                        \
  ASSERT_TRUE(::rlock::test::eventually((deadline), [&] { return bool(expr); })) \
      << "not within the deadline: " #expr
