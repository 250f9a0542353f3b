// SPDX-License-Identifier: Apache-2.0
#include "support/eventually.hpp"

#include <algorithm>
#include <thread>

namespace rlock::test {

bool eventually(std::chrono::milliseconds deadline, Condition pred) {
  const Deadline end(deadline);
  auto pause = std::chrono::microseconds(200);
  while (true) {
    const bool last = end.expired();
    if (pred()) {
      return true;
    }
    if (last) {
      return false;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(end.at() - Deadline::Clock::now());
    std::this_thread::sleep_for(
        std::clamp(left, std::chrono::microseconds(0), std::chrono::microseconds(pause)));
    pause = std::min(pause * 2, std::chrono::microseconds(10'000));
  }
}

}  // namespace rlock::test
