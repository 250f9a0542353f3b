// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integration/lock_harness.hpp"

namespace rlock::test {

/// Operations by one of the four faces.
class CounterTest : public FaceTest {
 protected:
  template <class T>
  [[nodiscard]] static Result<T> run(Operation<T> operation) {
    return runBy(GetParam(), std::move(operation));
  }
  template <class T>
  [[nodiscard]] static std::string outcome(Operation<T> operation) {
    return outcomeOf(run(std::move(operation)));
  }
  [[nodiscard]] static std::string answer(Operation<bool> operation) {
    return answerOf(run(std::move(operation)));
  }
  /// In a thread of its own, for what waits.
  template <class Start>
  [[nodiscard]] static std::future<std::string> later(Start start) {
    return inThread(
        [start, face = GetParam()]() mutable { return outcomeOf(runBy(face, start())); });
  }

  /// Nobody is waiting for a subscription to be confirmed, so that only a message can wake.
  void awaitSubscribed(const std::string& channel) {
    ASSERT_EVENTUALLY(kLong, raw().numsub(channel) >= 1);
    std::this_thread::sleep_for(50ms);
  }
};

inline std::string semaphoreChannelOf(const std::string& name) {
  return "redisson_sc:{" + name + "}";
}

inline std::string latchChannelOf(const std::string& name) {
  return "redisson_countdownlatch__channel__{" + name + "}";
}

/// The payloads that a subscriber has heard.
inline std::vector<std::string> payloads(const RawSubscriber& subscriber) {
  std::vector<std::string> result;
  for (const auto& message : subscriber.messages()) {
    result.push_back(message.payload);
  }
  return result;
}

}  // namespace rlock::test
