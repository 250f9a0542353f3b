// SPDX-License-Identifier: Apache-2.0
#include "objects/moved_from.hpp"

#include "base/detached_thread.hpp"

#include <utility>

namespace rlock::detail {

Error movedFromError() {
  return Error(Errc::invalidArgument,
               "this handle was moved from; use the one that it was moved to");
}

void callElsewhere(UniqueFunction<void()> function) {
  startDetached([function = std::move(function)]() mutable {
    try {
      function();
    } catch (...) {
      // There is no client whose log could report the exception.
    }
  });
}

}  // namespace rlock::detail
