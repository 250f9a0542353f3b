// SPDX-License-Identifier: Apache-2.0
#include "engine/release_task.hpp"
#include <rlock/detail/engine/lock_engine.hpp>

namespace rlock::detail {

void LockEngine::giveBack(const std::shared_ptr<const LockScripts>& scripts, ReleaseTarget target) {
  ReleaseTask::releaseQuietly(sharing(*this), scripts, target);
}

}  // namespace rlock::detail
