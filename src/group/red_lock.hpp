// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "group/group_lock.hpp"

#include <memory>

namespace rlock::detail {

/// A lock that is held when a majority of its members is, each of which is on a node of its own.
/// Members that are missing from a hold are obtained while it lasts, if they can be.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class RedLock final : public GroupLock {
 public:
  explicit RedLock(Members members);

  [[nodiscard]] AcquireParams forMember(const AcquireParams& params) const override;
  [[nodiscard]] GroupHold::Terms terms(const AcquireParams& params) const override;
  /// Looks after a hold from here on: tells its loss in time and completes it.
  void tend(const IntrusivePtr<GroupHold>& hold);

 protected:
  [[nodiscard]] std::shared_ptr<GroupAcquire> makeAcquire(AcquireParams params,
                                                          GroupAcquire::Done done) override;

 private:
  void look(const IntrusivePtr<GroupHold>& hold);
  void repair(const IntrusivePtr<GroupHold>& hold, std::size_t member);
};

}  // namespace rlock::detail
