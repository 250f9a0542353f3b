// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "group/group_lock.hpp"

#include <memory>

namespace rlock::detail {

/// A lock that is held when all its members are. Its hold has no clock of its own: the members'
/// validity, loss and renewal are those of the whole.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class MultiLock final : public GroupLock {
 public:
  explicit MultiLock(Members members);

  [[nodiscard]] AcquireParams forMember(const AcquireParams& params) const override;
  [[nodiscard]] GroupHold::Terms terms(const AcquireParams& params) const override;

 protected:
  [[nodiscard]] std::shared_ptr<GroupAcquire> makeAcquire(AcquireParams params,
                                                          GroupAcquire::Done done) override;
};

}  // namespace rlock::detail
