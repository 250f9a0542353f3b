// SPDX-License-Identifier: Apache-2.0
#include <rlock/read_write_lock.hpp>

#include <utility>

namespace rlock {

ReadWriteLock::ReadWriteLock(RLock readSide, RLock writeSide) noexcept
    : read_(std::move(readSide)), write_(std::move(writeSide)) {}

}  // namespace rlock
