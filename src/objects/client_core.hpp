// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/lock.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace rlock::detail {

/// A version 4 UUID in lower case.
std::string newUuid();

/// What a client stands on.
struct ClientWorld {
  std::shared_ptr<Env> env;
  net::Transports transports;
  /// The loop has a thread of its own, so that its client can wait for it.
  bool ownsLoop = true;
};

/// One client: its engine, and the order in which that is opened and closed.
///
/// **Thread safety:** close() from any thread, once; the rest as the engine's.
class ClientCore : public std::enable_shared_from_this<ClientCore> {
 public:
  /// @param id  stands in every owner field
  ClientCore(ClientWorld world,
             std::string id,
             const Options& options,
             std::shared_ptr<const Logger> log);

  /// Connects, and waits for the first attempt where the loop has a thread of its own.
  /// @throws Error  connectionFailed, authenticationFailed, ...
  void open(const Options& options);
  /// Once; a further call does nothing. On the loop thread it returns before the end.
  void close(std::chrono::milliseconds limit);
  void closeOnDestruction() noexcept;

  [[nodiscard]] bool forked() const noexcept;
  /// In a child after fork().
  void abandon() noexcept { env_->abandonInChild(); }
  [[nodiscard]] const std::shared_ptr<LockEngine>& engine() const noexcept { return engine_; }
  [[nodiscard]] RLock lock(std::shared_ptr<const LockScripts> scripts) const;

 private:
  void closeInOrder(std::chrono::milliseconds limit);

  const std::shared_ptr<const Logger> log_;
  const std::uint32_t forkGeneration_;
  const bool ownsLoop_;
  const std::chrono::milliseconds closeTimeout_;
  const std::shared_ptr<Env> env_;
  const std::shared_ptr<LockEngine> engine_;
  const std::unique_ptr<ReadyTask> disconnect_;
  std::atomic<bool> closing_{false};
};

}  // namespace rlock::detail
