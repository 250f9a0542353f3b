// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "unit/engine_fixture.hpp"
#include "unit/manual_env.hpp"
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/start_script.hpp>
#include <rlock/detail/net/pending_requests.hpp>
#include <rlock/detail/net/server_session.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// A connection that keeps each request until the test answers it.
class PendingCommands final : public NoCommands {
 public:
  explicit PendingCommands(const ManualEnv& env) : env_(env) {}

  bool submit(net::Request& request, std::span<const std::string_view> argv, Mode mode) override {
    if (!up_) {
      return false;
    }
    if (fullIn_ > 0 && --fullIn_ == 0) {
      throw std::bad_alloc();
    }
    sent_.emplace_back(argv.begin(), argv.end());
    pending_.append(request, 1, mode, env_.now());
    pending_.offer(1);
    return true;
  }
  Awaited await(net::Request& request, Env::Clock::time_point deadline) override {
    return onAwait ? onAwait() : NoCommands::await(request, deadline);
  }
  [[nodiscard]] bool up() const noexcept override { return up_; }
  void abandon(Env::Clock::time_point /*since*/,
               Errc /*errc*/,
               const char* /*what*/) noexcept override {
    ++abandoned_;
  }
  /// A request that was not answered refers to the engine.
  void close() noexcept override { drop(); }

  /// @param canKill  connections that were lost can be closed from this one
  void connect(net::LinkEvents& events, bool canKill = false, std::string_view runId = "run") {
    events.onUp(begin(canKill, runId));
  }
  /// The same, and nobody has been told yet.
  std::shared_ptr<const net::ServerSession> begin(bool canKill, std::string_view runId = "run") {
    pending_.begin(true, env_.now());
    up_ = true;
    session_ = std::make_shared<net::ServerSession>();
    session_->node = "host:6379";
    session_->address = address;
    session_->runId = runId;
    session_->clientId = ++connections_;
    session_->canKill = canKill;
    return session_;
  }
  void disconnect(net::LinkEvents& events) {
    drop();
    events.onDown(Error(Errc::connectionFailed, "cut"));
  }
  /// Nothing is answered any more.
  void drop() {
    up_ = false;
    answered_ = sent_.size();
    net::PendingRequests::Ended ended;
    pending_.fail(session_, ended);
    tell(ended);
  }

  /// The end of a request that a thread awaits; empty: its time is over at once.
  std::function<Awaited()> onAwait;
  /// Where the next connection leads to.
  std::string address;

  /// There is no memory for the `nth` request from here on.
  void failAt(int nth) noexcept { fullIn_ = nth; }

  /// Requests that were not answered.
  [[nodiscard]] std::size_t underWay() const { return sent_.size() - answered_; }
  [[nodiscard]] std::size_t sent() const { return sent_.size(); }
  /// How often it was to be given up for another one.
  [[nodiscard]] int abandoned() const noexcept { return abandoned_; }
  /// The oldest that was not answered.
  [[nodiscard]] const std::vector<std::string>& oldest() const { return sent_.at(answered_); }
  /// The keys of the oldest that was not answered.
  [[nodiscard]] std::vector<std::string> keys() const {
    const std::vector<std::string>& argv = sent_.at(answered_);
    return {argv.begin() + 3, argv.begin() + 3 + std::stol(argv[2])};
  }
  /// Confirms the renewals of the oldest.
  void confirm() { answer(toEach(1)); }
  void confirmAll() {
    while (underWay() > 0) {
      confirm();
    }
  }
  /// Answers the oldest: there is no such hold.
  void findNothing() {
    Reply reply;
    reply.type = Reply::Type::nil;
    answer(std::move(reply));
  }
  void refuse(std::string_view error) {
    Reply reply;
    reply.type = Reply::Type::error;
    reply.text = error;
    answer(std::move(reply));
  }

  /// An answer to the oldest that says this of each key.
  [[nodiscard]] Reply toEach(std::int64_t number) const {
    Reply element;
    element.type = Reply::Type::integer;
    element.integer = number;
    Reply reply;
    reply.type = Reply::Type::array;
    reply.elements.assign(keys().size(), element);
    return reply;
  }
  /// Answers the oldest. Takes no memory of its own.
  void answer(Reply reply) {
    ++answered_;
    net::PendingRequests::Ended ended;
    ASSERT_TRUE(pending_.take(std::move(reply), env_.now(), ended));
    tell(ended);
  }

 private:
  static void tell(net::PendingRequests::Ended& ended) noexcept {
    while (const auto request = ended.background.pop()) {
      net::PendingRequests::complete(*request);
    }
  }

  const ManualEnv& env_;
  net::PendingRequests pending_{std::chrono::seconds(3)};
  std::vector<std::vector<std::string>> sent_;
  std::size_t answered_ = 0;
  std::shared_ptr<net::ServerSession> session_ = std::make_shared<net::ServerSession>();
  std::uint64_t connections_ = 0;
  bool up_ = false;
  int fullIn_ = 0;
  int abandoned_ = 0;
};

/// The engine of a client whose requests the test answers, on a clock and a loop of the test's.
struct PendingEngine {
  explicit PendingEngine(const Options& options)
      : engine(makeEngine(
            env,
            net::Transports{[this](net::LinkEvents& link) {
                              if (events == nullptr) {
                                events = &link;
                              }
                              return server;
                            },
                            [](net::PubSubEvents&) { return std::make_unique<NoSubscriptions>(); }},
            options)) {}
  PendingEngine(const PendingEngine&) = delete;
  PendingEngine& operator=(const PendingEngine&) = delete;
  /// Requests and functions that are left refer to the engine: what waits for a connection is sent,
  /// and lost, and what is tried again after a while is tried.
  ~PendingEngine() {
    if (!server->up()) {
      connect();
    }
    engine->markClosed();
    engine->disconnect();
    env->runPosted();
    server->drop();
    for (int i = 0; i < 10; ++i) {
      env->advance(std::chrono::minutes(1));
      env->runPosted();
    }
  }

  void connect(bool canKill = false, std::string_view runId = "run") {
    server->connect(*events, canKill, runId);
  }
  void disconnect() { server->disconnect(*events); }
  /// The connection is lost, and another one made, by which the first can be closed.
  void reconnect() {
    disconnect();
    env->runPosted();
    connect(true);
    env->runPosted();
  }

  /// A change of "orders" that is numbered.
  void fillInChange(Call& call) const {
    const auto& keys = engine->idempotencyKeys();
    startNumbered(
        call, lua::counter_remove, "orders", {"orders"}, keys->borrow(newRequestId), keys->life());
  }

  const std::shared_ptr<ManualEnv> env = std::make_shared<ManualEnv>();
  const std::shared_ptr<PendingCommands> server = std::make_shared<PendingCommands>(*env);
  net::LinkEvents* events = nullptr;
  const std::shared_ptr<LockEngine> engine;
};

}  // namespace rlock::detail
