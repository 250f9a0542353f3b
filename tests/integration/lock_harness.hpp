// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/captured_log.hpp"
#include "support/child_process.hpp"
#include "support/client_options.hpp"
#include "support/eventually.hpp"
#include "support/faces.hpp"
#include "support/host_report.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_dir.hpp"
#include "support/test_servers.hpp"
#include "support/threads.hpp"
#include "support/unprotected_counter.hpp"
#include "support/worker.hpp"
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/rlock.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace rlock::test {

using namespace std::chrono_literals;
namespace lua = ::rlock::detail::lua;
using Clock = std::chrono::steady_clock;

/// For what must happen, however slow the machine is.
inline constexpr std::chrono::milliseconds kLong{15'000};
/// How late a call may be.
inline constexpr std::chrono::milliseconds kLate{50};

/// Runs a function on a thread of its own, which is gone when the future has been read.
template <class F>
[[nodiscard]] auto inThread(F function) {
  return startThread(
      rlock::detail::UniqueFunction<std::invoke_result_t<F&>()>(std::move(function)));
}

/// The outcome of a call: "ok", the name of its Errc, or the text of another exception.
template <class F>
[[nodiscard]] std::string outcomeOf(F call) {
  try {
    call();
    return "ok";
  } catch (const Error& error) {
    return std::string(rlock::toString(error.errc()));
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

template <class T>
[[nodiscard]] std::string outcomeOf(const Result<T>& result) {
  return result.has_value() ? "ok" : std::string(rlock::toString(result.error().errc()));
}

/// As outcomeOf(), for calls that say yes or no.
template <class F>
[[nodiscard]] std::string answerOf(F call) {
  bool answer = false;
  const std::string outcome = outcomeOf([&] { answer = call(); });
  return outcome != "ok" ? outcome : answer ? "true" : "false";
}

inline std::string answerOf(const Result<bool>& result) {
  return !result.has_value() ? outcomeOf(result) : *result ? "true" : "false";
}

/// Whether a future is ready within the time (scaled).
template <class T>
[[nodiscard]] bool ready(const std::future<T>& future, std::chrono::milliseconds within) {
  return future.wait_for(scaled(within)) == std::future_status::ready;
}

[[nodiscard]] inline std::chrono::milliseconds wholeMs(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

/// A server, or what RLOCK_TEST_TOPOLOGY says, a raw connection to it, and clients. A test that
/// asks for server() or for a proxy is about one server, and ends, skipped, where there is none.
class LockTest : public ::testing::Test {
 protected:
  /// For tests that wait for a renewal or an expiry.
  static constexpr std::chrono::milliseconds kWatchdog{1000};
  /// For all others: what goes within kLong was released and has not expired.
  static constexpr std::chrono::milliseconds kLongWatchdog{120'000};

  void SetUp() override {
    RLOCK_REQUIRE_REDIS_SERVER();
    servers_ = std::make_unique<TestServers>(serverOptions());
    reconnectRaw();
  }

  virtual RedisServerOptions serverOptions() { return {}; }

  [[nodiscard]] RedisServer& server() { return servers_->server(); }
  /// For clients, with more parameters if there are any.
  [[nodiscard]] std::string uri(std::string_view parameters = "") const {
    return parameters.empty() ? servers_->uri() : with(servers_->uri(), parameters);
  }
  [[nodiscard]] RawRedis& raw() { return *raw_; }
  /// For more raw connections and subscribers.
  [[nodiscard]] RawRedisOptions rawOptions() const { return servers_->raw(); }
  void reconnectRaw() { raw_ = std::make_unique<RawRedis>(rawOptions()); }
  [[nodiscard]] CapturedLog& log() { return log_; }

  /// A proxy before the server, made at the first call.
  [[nodiscard]] TcpProxy& proxy() {
    if (!proxy_) {
      proxy_ = servers_->makeProxy();
    }
    return *proxy_;
  }

  /// As uri(), through the proxy.
  [[nodiscard]] std::string proxyUri() { return servers_->uriThrough(proxy()); }

  /// Waiters rely on messages: the safety poll is as good as off.
  [[nodiscard]] Options options(std::chrono::milliseconds watchdog = kLongWatchdog) {
    return tuned(uri(), watchdog);
  }
  [[nodiscard]] Options proxied(std::chrono::milliseconds watchdog = kLongWatchdog) {
    return tuned(proxyUri(), watchdog);
  }
  [[nodiscard]] Options tuned(std::string_view uri,
                              std::chrono::milliseconds watchdog = kLongWatchdog) {
    Options options = clientOptions(uri, log_);
    options.watchdogTimeout = watchdog;
    options.safetyPoll = 60s;
    return options;
  }
  [[nodiscard]] Client connect(std::chrono::milliseconds watchdog = kLongWatchdog) {
    return Client::connect(options(watchdog));
  }

  [[nodiscard]] static std::string ownerField(const Client& client, OwnerId owner) {
    return client.id() + ":" + std::to_string(owner.value);
  }
  [[nodiscard]] static std::string channelOf(const std::string& name) {
    return name.find('{') == std::string::npos ? "redisson_lock__channel:{" + name + "}"
                                               : "redisson_lock__channel:" + name;
  }

  /// The only field of a hash and its value, or how many there are instead.
  [[nodiscard]] std::pair<std::string, std::string> onlyEntry(const std::string& name) {
    const auto fields = raw().hgetall(name);
    if (fields.size() == 1) {
      return *fields.begin();
    }
    const std::string instead = std::to_string(fields.size()) + " fields";
    return {instead, instead};
  }

  /// Takes the lock as another program's client would, with raw commands.
  void rawHold(const std::string& name, const std::string& owner, std::chrono::milliseconds lease) {
    raw().run({"HINCRBY", name, owner, "1"});
    raw().run({"PEXPIRE", name, std::to_string(lease.count())});
  }
  /// Gives it back as another program's client would.
  void rawRelease(const std::string& name) {
    raw().run({"DEL", name});
    raw().publish(channelOf(name), "0");
  }

  /// Nothing is left: no key but fencing counters, which are to stay, and what an ack lane has
  /// written within the last millisecond.
  void expectNoKeys() {
    std::set<std::string> keys = raw().keys();
    std::erase_if(keys, [](const std::string& key) {
      return key.starts_with("redisson_lock_token:") || key.ends_with("}:acks");
    });
    EXPECT_EQ(keys, std::set<std::string>());
  }
  /// Every key ends by itself.
  void expectNoEternalKeys() {
    for (const std::string& key : raw().keys()) {
      EXPECT_NE(raw().pttl(key), -1) << key;
    }
  }

 private:
  CapturedLog log_;
  std::unique_ptr<TestServers> servers_;
  std::unique_ptr<RawRedis> raw_;
  std::unique_ptr<TcpProxy> proxy_;
};

/// For checks of safety that no Resource or counter makes: who has a lock, for how long, and how
/// often.
class SafetyTest : public LockTest {
 protected:
  SafetyTest() { noteSafetyCheck(); }
};

/// That nobody got what another holds. No slow host is to blame for a second holder: such a failure
/// is final.
inline void expectNotObtained(const std::string& answer) {
  if (answer == "true") {
    noteSafetyCheck();
  }
  EXPECT_NE(answer, "true");
}

/// The same by each of the four faces.
class FaceTest : public LockTest, public ::testing::WithParamInterface<Face> {
 protected:
  [[nodiscard]] FaceLock lockOf(Client& client, std::string_view name) {
    return {GetParam(), client.getLock(name)};
  }
};

inline std::string faceName(const ::testing::TestParamInfo<Face>& info) {
  return toString(info.param);
}

/// A resource that only the lock protects: a number and an "inside" flag, deliberately not atomic
/// in what they mean, though the memory is, so that a broken lock shows as a wrong number and not
/// as undefined behaviour.
class Resource {
 public:
  Resource() { noteSafetyCheck(); }

  /// One section: reads, lets others run, writes.
  void use(std::chrono::microseconds pause = std::chrono::microseconds(0)) {
    if (inside_.exchange(true, std::memory_order_relaxed)) {
      overlaps_.fetch_add(1, std::memory_order_relaxed);
    }
    const long seen = value_.load(std::memory_order_relaxed);
    if (pause.count() > 0) {
      std::this_thread::sleep_for(pause);
    } else {
      std::this_thread::yield();
    }
    value_.store(seen + 1, std::memory_order_relaxed);
    inside_.store(false, std::memory_order_relaxed);
  }
  [[nodiscard]] long value() const { return value_.load(); }
  [[nodiscard]] long overlaps() const { return overlaps_.load(); }

 private:
  std::atomic<long> value_{0};
  std::atomic<long> overlaps_{0};
  std::atomic<bool> inside_{false};
};

/// Requests that run one of the library's scripts, by hash or by text.
[[nodiscard]] inline TcpProxy::Matcher running(const lua::Script& script) {
  return [hash = std::string(script.sha1),
          text = std::string(script.body)](const TcpProxy::Argv& argv) {
    return argv.size() > 1 && (argv[1] == hash || argv[1] == text);
  };
}

}  // namespace rlock::test
