// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/group/multi_lock.hpp>
#include <rlock/detail/group/red_lock.hpp>
#include <rlock/multi_lock.hpp>

#include <memory>

namespace rlock {

namespace {

detail::GroupLock::Members partsOf(const std::vector<RLock>& locks) {
  std::vector<std::shared_ptr<detail::LockBackend>> backends;
  backends.reserve(locks.size());
  for (const RLock& lock : locks) {
    backends.push_back(detail::LockAccess::backend(lock));
  }
  return detail::membersOf(backends);
}

}  // namespace

RLock multiLock(std::vector<RLock> members) {
  return RLock(std::make_shared<detail::MultiLock>(partsOf(members)));
}

RLock redLock(std::vector<RLock> members) {
  return RLock(std::make_shared<detail::RedLock>(partsOf(members)));
}

}  // namespace rlock
