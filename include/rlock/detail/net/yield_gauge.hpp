// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace rlock::detail::net {

/// Whether a thread that polls for a reply may give its processor away between two tries
/// (`sched_yield`), so that the server or another caller gets on. On a machine that is busy with
/// other things the processor then goes to somebody who computes, and comes back only after a whole
/// slice of the scheduler, some milliseconds; a thread that sleeps in a read gets it at once when
/// its reply is there.
///
/// So it forbids that for a while once the processor came back late, and for longer each time until
/// it has come back in time for a while. The pauses are counted in occasions to yield, since a
/// reading of the clock for each of them would cost more than the question is worth.
///
/// **Thread safety:** one thread at a time.
class YieldGauge {
 public:
  /// Longer than the server needs for a batch, and shorter than a slice.
  static constexpr std::chrono::microseconds kLate{500};
  /// Without yielding some tens of milliseconds of a caller, and at most some seconds.
  static constexpr std::uint32_t kLeastPause = 256;
  static constexpr std::uint32_t kLongestPause = 16384;

  /// To be asked once for each occasion.
  [[nodiscard]] bool allowed() noexcept {
    if (left_ > 0) {
      --left_;
      return false;
    }
    return true;
  }
  /// The processor was given away, once or several times in a row, and is back.
  /// @param longest  how long it was away at a time
  void returned(std::chrono::nanoseconds longest) noexcept;

 private:
  std::uint32_t left_ = 0;  // occasions without it
  std::uint32_t pause_ = kLeastPause;
  std::uint32_t inTime_ = 0;
};

inline void YieldGauge::returned(std::chrono::nanoseconds longest) noexcept {
  if (longest > kLate) {
    left_ = pause_;
    pause_ = std::min(pause_ * 2, kLongestPause);
    inTime_ = 0;
  } else if (++inTime_ >= kLeastPause) {
    pause_ = kLeastPause;
    inTime_ = 0;
  }
}

}  // namespace rlock::detail::net
