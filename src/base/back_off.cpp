// SPDX-License-Identifier: Apache-2.0
#include <rlock/back_off.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/base/random_bits.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

namespace rlock {

namespace {

using std::chrono::milliseconds;

/// The longest pause. Longer pauses would have the same effect, and this one leaves room for the
/// random extra.
constexpr milliseconds kLongest = std::chrono::hours(24 * 365);

milliseconds checked(Duration delay, const char* what) {
  if (!delay.isPositive()) {
    throw Error(Errc::invalidArgument,
                std::string(what) + " of a back-off is " + toString(delay) + ", not above 0");
  }
  return std::min(delay.ceilMilliseconds(), kLongest);
}

}  // namespace

BackOff BackOff::exponential(Duration initial, Duration max, int multiplier) {
  const milliseconds first = checked(initial, "the first pause");
  const milliseconds longest = checked(max, "the longest pause");
  if (multiplier <= 0) {
    throw Error(Errc::invalidArgument,
                "the multiplier of a back-off is " + std::to_string(multiplier) + ", not above 0");
  }
  return BackOff(std::min(first, longest), longest, multiplier);
}

BackOff BackOff::constant(Duration delay) {
  const milliseconds always = checked(delay, "the pause");
  return BackOff(always, always, 1);
}

milliseconds BackOff::base(int attempts) const noexcept {
  return std::chrono::duration_cast<milliseconds>(
      detail::exponentialPause(initial_, max_, attempts - 1, multiplier_));
}

milliseconds BackOff::longestExtra(int attempts) const noexcept {
  return std::min(milliseconds(std::max(attempts - 1, 0)), base(attempts) / 4);
}

milliseconds BackOff::next(int attempts) const {
  const auto choices = static_cast<std::uint64_t>(longestExtra(attempts).count()) + 1;
  return base(attempts) + milliseconds(detail::randomBits() % choices);
}

}  // namespace rlock
