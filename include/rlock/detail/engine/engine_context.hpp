// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/engine/telemetry.hpp>
#include <rlock/detail/executor/dispatcher.hpp>
#include <rlock/detail/executor/idempotency_key_pool.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace rlock::detail {

/// The ground that all parts of one client's engine stand on: who the client is, its options, its
/// log, the world, the way to the server, the numbers behind Stats, and whether it is closed. It
/// has no mutex and decides nothing about locks; the parts know it instead of one another.
///
/// It is the base of LockEngine, whose parts live as long as it does. Work that a part posts, and
/// each of its calls, keeps the whole alive by sharing().
///
/// **Thread safety:** Safe to call concurrently from any thread.
class EngineContext : public std::enable_shared_from_this<EngineContext> {
 public:
  using Clock = std::chrono::steady_clock;

  /// Numbers behind Stats; relaxed, they order nothing.
  struct Counters {
    std::atomic<std::uint64_t> acquired{0}, contended{0}, refused{0}, released{0}, renewals{0},
        renewalFailures{0}, lost{0}, lostReplies{0}, undone{0}, messages{0}, wakeUps{0},
        safetyPolls{0}, handlerFailures{0};
  };

  EngineContext(const EngineContext&) = delete;
  EngineContext& operator=(const EngineContext&) = delete;

  [[nodiscard]] const std::string& clientId() const noexcept { return clientId_; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const std::shared_ptr<Env>& env() const noexcept { return env_; }
  [[nodiscard]] Clock::time_point now() const noexcept { return env_->now(); }
  [[nodiscard]] Dispatcher& dispatcher() noexcept { return *dispatcher_; }
  [[nodiscard]] const Dispatcher& dispatcher() const noexcept { return *dispatcher_; }
  [[nodiscard]] const std::shared_ptr<IdempotencyKeyPool>& idempotencyKeys() const noexcept {
    return idempotencyKeys_;
  }
  [[nodiscard]] const Logger& log() const noexcept { return *log_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  [[nodiscard]] Telemetry& telemetry() noexcept { return telemetry_; }
  [[nodiscard]] const Telemetry& telemetry() const noexcept { return telemetry_; }

  [[nodiscard]] std::string ownerField(OwnerId owner) const;
  /// How long a call without a time limit of its own may take.
  [[nodiscard]] std::chrono::milliseconds callTimeout() const noexcept;

  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  /// False in a child after fork(), where the threads that hold mutexes do not exist.
  [[nodiscard]] bool inItsProcess() const noexcept { return forkGeneration() == forkGeneration_; }
  /// Why no call can be made now, or nothing. `blocking` calls are refused on the loop thread.
  [[nodiscard]] std::optional<Error> refuse(bool blocking) const;

  ///@{
  /// Counts the operations under way.
  void operationBegins() noexcept { operations_.fetch_add(1, std::memory_order_relaxed); }
  void operationEnds() noexcept { operations_.fetch_sub(1, std::memory_order_relaxed); }
  ///@}
  /// Why one that is counted already must not go on, or nothing.
  [[nodiscard]] std::optional<Error> tooMany() const;

  /// Fills in what an error does not know yet.
  [[nodiscard]] Error describe(Error error,
                               const LockScripts& scripts,
                               OwnerId owner,
                               Clock::time_point since) const;

  /// A part of the engine, by a pointer that keeps the whole engine alive.
  template <class Part>
  [[nodiscard]] std::shared_ptr<Part> sharing(Part& part) {
    return {shared_from_this(), &part};
  }

 protected:
  EngineContext(std::string clientId,
                const Options& options,
                std::shared_ptr<const Logger> log,
                std::shared_ptr<Env> env,
                const net::Transports& transports,
                DispatcherEvents& events);
  ~EngineContext() = default;

  /// True for the first caller.
  bool setClosed() noexcept { return !closed_.exchange(true); }

 private:
  /// IdempotencyKeyPool::life()
  [[nodiscard]] std::chrono::milliseconds lifeOfKeys() const noexcept;

  const std::string clientId_;
  const Options options_;
  const std::shared_ptr<const Logger> log_;
  const std::uint32_t forkGeneration_;
  Atomic<bool> closed_{false};
  std::atomic<int> operations_{0};
  Counters counters_;
  Telemetry telemetry_;
  const std::shared_ptr<Env> env_;
  const std::shared_ptr<Dispatcher> dispatcher_;
  const std::shared_ptr<IdempotencyKeyPool> idempotencyKeys_;
};

inline EngineContext::EngineContext(std::string clientId,
                                    const Options& options,
                                    std::shared_ptr<const Logger> log,
                                    std::shared_ptr<Env> env,
                                    const net::Transports& transports,
                                    DispatcherEvents& events)
    : clientId_(std::move(clientId)),
      options_(options),
      log_(std::move(log)),
      forkGeneration_(forkGeneration()),
      telemetry_(options_, *log_, counters_.handlerFailures),
      env_(std::move(env)),
      dispatcher_(std::make_shared<Dispatcher>(env_, transports, options_, log_, events)),
      idempotencyKeys_(std::make_shared<IdempotencyKeyPool>(lifeOfKeys())) {}

inline std::chrono::milliseconds EngineContext::lifeOfKeys() const noexcept {
  // Longer than any request is repeated or reconciled. An acquisition that is not acknowledged is
  // undone when the time for that is over.
  const auto awaited =
      options_.sync.any() ? options_.sync.limit : std::chrono::milliseconds::zero();
  return kIdempotencyKeyLife + callTimeout() + 2 * options_.commandTimeout + awaited;
}

inline std::string EngineContext::ownerField(OwnerId owner) const {
  std::string field;
  field.reserve(clientId_.size() + 21);
  field += clientId_;
  field += ':';
  field += std::to_string(owner.value);
  return field;
}

inline std::chrono::milliseconds EngineContext::callTimeout() const noexcept {
  return options_.callTimeout.count() > 0 ? options_.callTimeout : 2 * options_.commandTimeout;
}

inline std::optional<Error> EngineContext::refuse(bool blocking) const {
  if (!inItsProcess()) {
    return Error(Errc::forked);
  }
  if (closed()) {
    return Error(Errc::closed, "the client was closed");
  }
  if (blocking && dispatcher_->onLoopThread()) {
    return Error(Errc::wouldDeadlock,
                 "a blocking call on the loop thread would wait for itself; use its async twin");
  }
  return std::nullopt;
}

inline std::optional<Error> EngineContext::tooMany() const {
  if (operations_.load(std::memory_order_relaxed) <= options_.maxOperations) {
    return std::nullopt;
  }
  return Error(Errc::overloaded,
               "as many operations as maxOperations allows (" +
                   std::to_string(options_.maxOperations) + ") are under way");
}

inline Error EngineContext::describe(Error error,
                                     const LockScripts& scripts,
                                     OwnerId owner,
                                     Clock::time_point since) const {
  try {
    ErrorContext context;
    context.key = scripts.title();
    context.kind = scripts.noun();
    if (scripts.traits.holdKind != HoldKind::none) {
      context.owner = ownerField(owner);
    }
    context.node = dispatcher_->node(scripts.name);
    context.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now() - since);
    return error.withContext(context);
  } catch (const std::bad_alloc&) {
    // An error that says less is of more use than one that says that there was no memory: whether
    // the request may have been executed depends on it.
    return error;
  }
}

}  // namespace rlock::detail
