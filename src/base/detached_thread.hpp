// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/unique_function.hpp>

#include <memory>
#include <pthread.h>
#include <system_error>
#include <utility>

namespace rlock::detail {

inline void* runDetached(void* function) noexcept {
  const std::unique_ptr<UniqueFunction<void()>> owned(
      static_cast<UniqueFunction<void()>*>(function));
  (*owned)();
  return nullptr;
}

/// Runs a function on a thread of its own, for which nobody waits. It must not throw.
///
/// Race: std::thread::detach() still looks at a thread that ends meanwhile and, detached by then,
/// takes its memory along (glibc bug 19951). A thread that begins detached needs no such look.
/// @throws std::bad_alloc, std::system_error  nothing was started
inline void startDetached(UniqueFunction<void()> function) {
  auto owned = std::make_unique<UniqueFunction<void()>>(std::move(function));
  pthread_attr_t attributes;
  int failure = pthread_attr_init(&attributes);
  if (failure == 0) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread{};
    failure = pthread_create(&thread, &attributes, &runDetached, owned.get());
    pthread_attr_destroy(&attributes);
  }
  if (failure != 0) {
    throw std::system_error(failure, std::generic_category(), "a thread could not be started");
  }
  static_cast<void>(owned.release());
}

}  // namespace rlock::detail
