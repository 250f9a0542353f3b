// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/captured_log.hpp"
#include "support/client_options.hpp"
#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_cluster.hpp"
#include "support/redis_sentinels.hpp"
#include "support/redis_server.hpp"
#include "support/threads.hpp"
#include <rlock/rlock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rlock::test {

using namespace std::chrono_literals;

/// For what must happen, however slow the machine is.
inline constexpr std::chrono::milliseconds kLong{30'000};

template <class F>
[[nodiscard]] auto inThread(F function) {
  return startThread(
      rlock::detail::UniqueFunction<std::invoke_result_t<F&>()>(std::move(function)));
}

template <class F>
[[nodiscard]] std::string outcomeOf(F call) {
  try {
    call();
    return "ok";
  } catch (const Error& error) {
    return std::string(rlock::toString(error.errc()));
  }
}

/// Both of the topologies that have a master for a name and somebody who knows which it is.
enum class Place { sentinel, cluster };

inline std::string placeName(const ::testing::TestParamInfo<Place>& info) {
  return info.param == Place::sentinel ? "sentinel" : "cluster";
}

class TopologyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!clusterAvailable()) {
      GTEST_SKIP() << "needs a redis-server of 7.0 or later";
    }
  }
  [[nodiscard]] Options tuned(std::string_view uri, std::chrono::milliseconds watchdog = 60s) {
    Options options = clientOptions(uri, log_);
    options.watchdogTimeout = watchdog;
    options.safetyPoll = 60s;
    return options;
  }
  [[nodiscard]] CapturedLog& log() { return log_; }

  /// A lock is taken, waited for, handed over by a message, renewed and given back.
  void use(const std::function<RLock(Client&)>& make, const Options& options) {
    Client mine = Client::connect(options);
    Client others = Client::connect(options);
    RLock lock = make(mine);
    RLock other = make(others);
    lock.lock();
    auto waiter = inThread([&] {
      return outcomeOf([&] {
        other.lock();
        other.unlock();
      });
    });
    EXPECT_EVENTUALLY(kLong, others.stats().waiters > 0 && others.stats().channels > 0);
    const auto renewals = mine.stats().renewals;
    EXPECT_EVENTUALLY(kLong, mine.stats().renewals > renewals);
    lock.unlock();
    EXPECT_EQ(waiter.get(), "ok");
    lock.lock();
    EXPECT_TRUE(other.forceUnlock());
  }

 private:
  CapturedLog log_;
};

}  // namespace rlock::test
