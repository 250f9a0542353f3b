// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/fork.hpp>

// The leak sanitizer asks for this function by name at the exit of the process. A forked child has
// the sanitizer's list of its parent's threads, but not the threads: what only they knew it would
// report, or wait for ever for a mutex that one of them held.
#if defined(__SANITIZE_ADDRESS__)
extern "C" [[gnu::used]] inline int __lsan_is_turned_off() {
  return rlock::detail::forkGeneration() > 0 ? 1 : 0;
}
#endif
