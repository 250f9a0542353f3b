// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/connector.hpp"
#include "net/loop.hpp"
#include "support/eventually.hpp"
#include <rlock/result.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace rlock::test {

inline constexpr std::chrono::seconds kLong{15};

/// An owned loop. Any error it reports fails the test.
class LoopHarness {
 public:
  LoopHarness() : loop_(detail::net::Loop::createOwned("rlock-test")) {
    loop_->setErrorHook([](const char* text) { ADD_FAILURE() << "loop: " << text; });
  }
  LoopHarness(const LoopHarness&) = delete;
  LoopHarness& operator=(const LoopHarness&) = delete;
  ~LoopHarness() { EXPECT_TRUE(stop()); }

  [[nodiscard]] const std::shared_ptr<detail::net::Loop>& loop() const { return loop_; }
  [[nodiscard]] bool stop() {
    return loop_->stop(std::chrono::steady_clock::now() + scaled(kLong));
  }

  /// Runs the function on the loop and waits for it.
  template <class F>
  auto run(F function) {
    std::packaged_task<decltype(function())()> task(std::move(function));
    auto future = task.get_future();
    loop_->post([task = std::move(task)]() mutable { task(); });
    if (future.wait_for(scaled(kLong)) != std::future_status::ready) {
      throw std::runtime_error("the loop does not run");
    }
    return future.get();
  }

 private:
  std::shared_ptr<detail::net::Loop> loop_;
};

struct ConnectOutcome {
  std::optional<Result<detail::net::Established>> result;  ///< empty: no answer at all
  std::chrono::milliseconds elapsed{};

  [[nodiscard]] bool connected() const { return result && result->has_value(); }
  [[nodiscard]] const Error& error() const {
    if (!result || result->has_value()) {
      throw std::runtime_error("no error");
    }
    return result->error();
  }
  [[nodiscard]] const detail::net::ServerSession& session() const {
    if (!result) {
      throw std::runtime_error("no answer");
    }
    return *result->value().session;
  }
};

/// One attempt to connect, from another thread.
inline ConnectOutcome connectOnce(LoopHarness& harness,
                                  detail::net::LinkSettings settings,
                                  bool probeKill = true) {
  using detail::net::Connector;
  using detail::net::Established;
  auto answer = std::make_shared<std::promise<Result<Established>>>();
  auto future = answer->get_future();
  const Stopwatch watch;
  auto connector = harness.run([&] {
    auto created = std::make_shared<Connector>(*harness.loop(), std::move(settings), probeKill);
    created->start([answer](Result<Established> result) { answer->set_value(std::move(result)); });
    return created;
  });
  ConnectOutcome outcome;
  if (future.wait_for(scaled(kLong)) == std::future_status::ready) {
    outcome.elapsed = watch.elapsedMs();
    outcome.result.emplace(future.get());
  }
  harness.run([&] { connector.reset(); });
  return outcome;
}

/// A TCP server on loopback that follows a script, the same for each connection.
class ScriptedServer {
 public:
  struct Step {
    std::string awaited;  ///< read until this has come; empty: at once
    std::string answer;   ///< then send this
  };
  enum class Then { hold, close };

  /// @param port     0: any that is free
  /// @param address  of loopback
  explicit ScriptedServer(std::vector<Step> script,
                          Then then = Then::hold,
                          std::uint16_t port = 0,
                          std::uint32_t address = INADDR_LOOPBACK);
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;
  ~ScriptedServer();

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::size_t accepted() const;
  /// The bytes that the clients have sent, one string per connection.
  [[nodiscard]] std::vector<std::string> received() const;

 private:
  void serve();
  struct Connection;

  std::vector<Step> script_;
  Then then_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> received_;
  std::thread thread_;
};

/// The answer of a server to the handshake of a link without credentials: HELLO, CLIENT SETNAME if
/// the link is `named`, CLIENT INFO, PING.
[[nodiscard]] std::string handshakeAnswer(bool named = false);

/// Open descriptors of this process.
[[nodiscard]] std::size_t openDescriptors();

[[nodiscard]] inline Endpoint tcp(std::uint16_t port, std::string host = "127.0.0.1") {
  Endpoint endpoint;
  endpoint.host = std::move(host);
  endpoint.port = port;
  return endpoint;
}

[[nodiscard]] inline detail::net::LinkSettings settingsFor(std::vector<Endpoint> endpoints) {
  detail::net::LinkSettings settings = detail::net::linkSettings(Options());
  settings.endpoints = std::move(endpoints);
  settings.connectTimeout = scaled(std::chrono::seconds(3));
  return settings;
}

}  // namespace rlock::test
