// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/captured_log.hpp"
#include "support/client_options.hpp"
#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_cluster.hpp"
#include "support/threads.hpp"
#include <rlock/rlock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// For what must happen, however slow the machine is.
inline constexpr std::chrono::milliseconds kLong{30'000};

/// Runs a function on a thread of its own, which is gone when the future has been read.
template <class F>
[[nodiscard]] auto inThread(F function) {
  return startThread(
      rlock::detail::UniqueFunction<std::invoke_result_t<F&>()>(std::move(function)));
}

class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!clusterAvailable()) {
      GTEST_SKIP() << "needs a redis-server of 7.0 or later";
    }
  }

  /// Waiters rely on messages: the safety poll is as good as off.
  [[nodiscard]] Options tuned(std::string_view uri, std::chrono::milliseconds watchdog = 120s) {
    Options options = clientOptions(uri, log_);
    options.watchdogTimeout = watchdog;
    options.safetyPoll = 60s;
    return options;
  }
  [[nodiscard]] CapturedLog& log() { return log_; }

 private:
  CapturedLog log_;
};

/// Waits for a waiter of the client whose channel is subscribed.
[[nodiscard]] inline bool waits(Client& client) {
  return eventually(kLong, [&] { return client.stats().waiters > 0; });
}

}  // namespace rlock::test
