// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/client.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/objects/client_world.hpp>
#include <rlock/lock.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace rlock::detail {

/// A version 4 UUID in lower case.
std::string newUuid();

/// One client: its engine, and the order in which the engine is opened and closed.
///
/// **Thread safety:** close() from any thread; the first call does the work. All else is as safe as
/// the engine.
class ClientCore : public std::enable_shared_from_this<ClientCore> {
 public:
  /// @param id  the client's part of every owner field
  ClientCore(ClientWorld world,
             std::string id,
             const Options& options,
             std::shared_ptr<const Logger> log);

  /// Connects. Waits for the first attempt if the loop has a thread of its own.
  /// @throws Error  connectionFailed, authenticationFailed, ...
  void open(const Options& options);
  /// Closes the client once; a further call does nothing. On the loop thread it returns before the
  /// end.
  void close(std::chrono::milliseconds limit);
  void closeOnDestruction() noexcept;

  [[nodiscard]] bool forked() const noexcept;
  /// Called in a child after fork().
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

/// Makes a client of a core that stands on another world than sockets.
struct ClientAccess {
  static Client make(std::shared_ptr<ClientCore> core) noexcept { return Client(std::move(core)); }
};

}  // namespace rlock::detail
