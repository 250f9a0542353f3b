// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/approach.hpp"
#include "net/link_settings.hpp"
#include "net/loop.hpp"
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <exception>
#include <memory>
#include <new>

namespace rlock::detail::net {

/// Where a Dialer gets its connections from: one attempt at a time to make one, from the first look
/// for an address to the end of the handshake.
///
/// **Thread safety:** loop thread only. May be destroyed in its own handler.
class ConnectionSource {
 public:
  using Handler = UniqueFunction<void(Result<Established>)>;

  ConnectionSource() = default;
  ConnectionSource(const ConnectionSource&) = delete;
  ConnectionSource& operator=(const ConnectionSource&) = delete;
  /// Cancels.
  virtual ~ConnectionSource() = default;

  /// Calls the handler once, never inside start(), within connectTimeout. Cancels an earlier start.
  /// If it throws, the handler was not moved from and will not be called.
  virtual void start(Handler&& handler) = 0;

  /// Drops the handler uncalled.
  virtual void cancel() noexcept = 0;

  /// The server of the last connection is not the one that is wanted: the next start() should lead
  /// elsewhere, where there is a choice.
  virtual void preferOthers() noexcept = 0;
};

/// The error of an attempt that ended by an exception, also when there is no memory to describe it.
inline Error attemptFailure(const std::exception& thrown) noexcept {
  try {
    return Error(Errc::connectionFailed, thrown.what());
  } catch (const std::bad_alloc&) {
    return noMemory();
  }
}

/// The source for what the settings say: the endpoints, the master that the Sentinels name, or one
/// of the Sentinels.
/// @param probeKill  whether to find out ServerSession::canKill
std::unique_ptr<ConnectionSource> connectionSource(Loop& loop,
                                                   LinkSettings settings,
                                                   bool probeKill);

}  // namespace rlock::detail::net
