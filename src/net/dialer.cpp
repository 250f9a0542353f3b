// SPDX-License-Identifier: Apache-2.0
#include "net/dialer.hpp"

#include <rlock/detail/base/backoff.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace rlock::detail::net {

namespace {

/// More failures, or hurries, in a row make no pause longer.
constexpr int kEnough = 32;

}  // namespace

Dialer::Dialer(Loop& loop, LinkSettings settings, bool probeKill)
    : delayMin_(settings.reconnectDelayMin),
      delayMax_(settings.reconnectDelayMax),
      source_(connectionSource(loop, std::move(settings), probeKill)),
      timer_(loop, [this] { startWaiting(); }),
      // Clients that lost the same server at the same moment must not come back in step.
      random_(static_cast<std::minstd_rand::result_type>(
          static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) ^
          (reinterpret_cast<std::uintptr_t>(this) >> 4U))) {
  noMemory();
}

void Dialer::dial(ConnectionSource::Handler handler) {
  cancel();
  const auto delay = pause(failures_);
  failures_ = std::min(failures_ + 1, kEnough);
  if (delay <= std::chrono::steady_clock::duration::zero()) {
    source_->start(std::move(handler));
    return;
  }
  waiting_ = std::move(handler);
  timer_.armAt(std::chrono::steady_clock::now() + delay);
}

void Dialer::startWaiting() {
  try {
    source_->start(std::move(waiting_));
  } catch (...) {
    // The handler is still there, and nobody else would dial.
    timer_.armAt(std::chrono::steady_clock::now() + delayMax_);
    throw;
  }
}

void Dialer::hurry() noexcept {
  if (!timer_.armed()) {
    return;
  }
  // The one that hurries may be a link whose connections do not last either, and hear of this one
  // in its turn: without a pause the two would dial a server that only greets for ever.
  const auto at = std::chrono::steady_clock::now() + pause(hurries_);
  if (at < timer_.due()) {
    timer_.armAt(at);
    hurries_ = std::min(hurries_ + 1, kEnough);
  }
}

void Dialer::cancel() noexcept {
  timer_.disarm();
  source_->cancel();
  waiting_ = nullptr;
}

/// @param before  how often it was in vain
std::chrono::steady_clock::duration Dialer::pause(int before) noexcept {
  if (before == 0) {
    return std::chrono::steady_clock::duration::zero();
  }
  return backoffPause(delayMin_, delayMax_, before - 1, static_cast<std::uint32_t>(random_()));
}

}  // namespace rlock::detail::net
