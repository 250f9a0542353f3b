// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/backoff.hpp>

#include <chrono>
#include <optional>

namespace rlock::detail {

/// When a server that has turned read-only is left for a new connection, which may lead to the
/// master by now: at once after a time of calm, and more and more rarely while that helps nothing,
/// for it may be read-only for good.
///
/// **Thread safety:** one thread at a time. It reads no clock.
class ReadOnlyBackOff {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// @param min  the first pause
  /// @param max  the longest one
  ReadOnlyBackOff(std::chrono::nanoseconds min, std::chrono::nanoseconds max) noexcept
      : pause_(min, max) {}

  /// A request was refused. Returns whether the connection is to be left.
  [[nodiscard]] bool leaves(TimePoint now) noexcept;

 private:
  DoublingPause pause_;
  /// When it may be left again; empty: it never was.
  std::optional<TimePoint> from_;
};

inline bool ReadOnlyBackOff::leaves(TimePoint now) noexcept {
  if (from_ && now < *from_) {
    return false;
  }
  constexpr int kCalm = 10;
  if (!from_ || now - *from_ > kCalm * pause_.current()) {
    pause_.reset();
  } else {
    pause_.grow();
  }
  from_ = now + pause_.current();
  return true;
}

}  // namespace rlock::detail
