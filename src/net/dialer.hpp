// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/connection_source.hpp"
#include "net/link_settings.hpp"
#include "net/loop.hpp"

#include <chrono>
#include <memory>
#include <random>

namespace rlock::detail::net {

/// Connects again and again, with growing pauses while it does not work.
///
/// **Thread safety:** loop thread only. May be destroyed in its own handler.
class Dialer {
 public:
  Dialer(Loop& loop, LinkSettings settings, bool probeKill);

  /// One attempt: at once, or after the back-off pause when the last one was not followed by
  /// succeeded(). The pause doubles from reconnectDelayMin to reconnectDelayMax; a random part of
  /// its second half is left out.
  void dial(ConnectionSource::Handler handler);

  /// The connection of the last dial() has proved usable: the next dial() starts at once. An owner
  /// that never says so makes each reconnect wait longer.
  void succeeded() noexcept {
    failures_ = 0;
    hurries_ = 0;
  }

  /// As ConnectionSource::preferOthers().
  void preferOthers() noexcept { source_->preferOthers(); }

  /// Something has changed: the pause of a dial() that waits is over. If that is in vain it is only
  /// shortened the next time, to a pause that grows as that of dial() does, until a connection has
  /// proved usable.
  void hurry() noexcept;

  /// Drops the handler uncalled; the back-off is kept.
  void cancel() noexcept;

 private:
  void startWaiting();
  std::chrono::steady_clock::duration pause(int before) noexcept;

  std::chrono::milliseconds delayMin_;
  std::chrono::milliseconds delayMax_;
  const std::unique_ptr<ConnectionSource> source_;
  ConnectionSource::Handler waiting_;
  Timer timer_;
  int failures_ = 0;
  int hurries_ = 0;  ///< that have shortened a pause, since a connection has proved usable
  std::minstd_rand random_;
};

}  // namespace rlock::detail::net
