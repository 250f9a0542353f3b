// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/captured_log.hpp"
#include "support/client_options.hpp"
#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_sentinels.hpp"
#include "support/redis_server.hpp"
#include "support/threads.hpp"
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/rlock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace rlock::test {

using namespace std::chrono_literals;

/// For what must happen, however slow the machine is.
inline constexpr std::chrono::milliseconds kLong{30'000};

template <class F>
[[nodiscard]] auto inThread(F function) {
  return startThread(
      rlock::detail::UniqueFunction<std::invoke_result_t<F&>()>(std::move(function)));
}

/// "ok", or the name of the Errc.
template <class F>
[[nodiscard]] std::string outcomeOf(F call) {
  try {
    call();
    return "ok";
  } catch (const Error& error) {
    return std::string(rlock::toString(error.errc()));
  }
}

/// A master with replicas, Sentinels, and clients.
class SentinelTest : public ::testing::Test {
 protected:
  void SetUp() override { RLOCK_REQUIRE_REDIS_SERVER(); }

  void start(RedisSentinelsOptions options = {}) {
    password_ = options.password;
    world_ = std::make_unique<RedisSentinels>(std::move(options));
  }
  [[nodiscard]] RedisSentinels& world() { return *world_; }
  [[nodiscard]] CapturedLog& log() { return log_; }
  [[nodiscard]] RawRedis raw(std::size_t node) { return RawRedis(world_->node(node)); }

  [[nodiscard]] Options options(std::string_view uri, std::chrono::milliseconds watchdog = 60s) {
    Options options = clientOptions(uri, log_);
    options.watchdogTimeout = watchdog;
    options.outageTimeout = 120s;
    return options;
  }
  [[nodiscard]] Options options(std::chrono::milliseconds watchdog = 60s) {
    return options(world_->uri(), watchdog);
  }
  /// As long as nobody hears that the master has moved, nothing happens for long, and waiters rely
  /// on messages.
  [[nodiscard]] static Options patient(Options options) {
    options.commandTimeout = 60s;
    options.heartbeatInterval = 60s;
    options.safetyPoll = 60s;
    return options;
  }

  /// Everything that a master has is known to its replicas.
  void replicate(std::size_t master) {
    RawRedis client = raw(master);
    // The server counts from the connection's own last write.
    client.set("replicated", "");
    const auto replicas = std::to_string(world_->nodes() - 1);
    ASSERT_EVENTUALLY(kLong,
                      client.command({"WAIT", replicas, "1000"}).integer() >=
                          static_cast<std::int64_t>(world_->nodes() - 1));
  }

  /// The error of a client that cannot be had.
  [[nodiscard]] static Error refusal(const Options& options) {
    try {
      Client client = Client::connect(options);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "connected";
    return Error(Errc::serverError, "none");
  }
  [[nodiscard]] static bool says(const Error& error, std::string_view text) {
    return std::string_view(error.what()).find(text) != std::string_view::npos;
  }

 private:
  CapturedLog log_;
  std::string password_;
  std::unique_ptr<RedisSentinels> world_;
};

}  // namespace rlock::test
