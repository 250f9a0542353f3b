// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rlock::detail {

/// A place where another thread may get in between: a mutex is about to be taken or has just been
/// given back, an atomic that orders threads is about to be used. It does nothing, except in the
/// tests' build with RLOCK_SCHEDULE_POINTS, where the test says what happens there: it yields or
/// sleeps by seed, so that races are looked for and not left to luck.
#if defined(RLOCK_SCHEDULE_POINTS)
void schedulePoint() noexcept;
#else
inline void schedulePoint() noexcept {}
#endif

}  // namespace rlock::detail
