// SPDX-License-Identifier: Apache-2.0
#include "races/schedule.hpp"

#include <rlock/detail/base/schedule_point.hpp>

#include <chrono>
#include <sched.h>
#include <thread>

namespace rlock::races {

namespace {

thread_local std::uint64_t state = 0x9e3779b97f4a7c15U;

}  // namespace

void seedThread(std::uint64_t seed) noexcept {
  state = seed * 0xbf58476d1ce4e5b9U + 0x9e3779b97f4a7c15U;
}

std::uint64_t draw() noexcept {
  // splitmix64
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t bits = state;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31U);
}

bool chance(const std::atomic<unsigned>& perMille) noexcept {
  const unsigned limit = perMille.load(std::memory_order_relaxed);
  return limit != 0 && draw() % 1000 < limit;
}

}  // namespace rlock::races

namespace rlock::detail {

/// Mostly nothing; now and then the other thread goes first, for one step or for many.
void schedulePoint() noexcept {
  const std::uint64_t lot = races::draw() % 512;
  if (lot == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(races::draw() % 60));
  } else if (lot < 48) {
    ::sched_yield();
  }
}

}  // namespace rlock::detail
