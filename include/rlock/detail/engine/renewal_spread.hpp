// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace rlock::detail {

/// By how much the next renewals of a batch come before they are due, so that what was renewed
/// together does not stay together: up to a tenth of the time from one renewal to the next, and
/// never after. The holds of one batch get the same, for they are still to share a request.
///
/// The fractions of the multiples of the golden ratio are spread evenly, however many are taken.
///
/// **Thread safety:** One thread at a time.
class RenewalSpread {
 public:
  using Duration = std::chrono::steady_clock::duration;

  /// @param period  from one renewal to the next
  explicit RenewalSpread(Duration period) noexcept : step_(period / 10 / 1024) {}

  /// For another batch.
  [[nodiscard]] Duration next() noexcept {
    fraction_ += 0x9e3779b9U;
    return step_ * static_cast<Duration::rep>(fraction_ >> 22U);
  }

 private:
  const Duration step_;
  std::uint32_t fraction_ = 0;  // of 2^32
};

}  // namespace rlock::detail
