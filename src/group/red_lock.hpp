// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "group/group_lock.hpp"

#include <memory>

namespace rlock::detail {

/// A lock that is held when a majority of its members is; each member is on a node of its own.
/// While a hold lasts, members that are missing from it are asked for again.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class RedLock final : public GroupLock {
 public:
  explicit RedLock(Members members);

  [[nodiscard]] AcquireParams forMember(const AcquireParams& params) const override;
  [[nodiscard]] GroupHold::Terms terms(const AcquireParams& params) const override;
  /// Looks after a hold from here on: announces its loss in time and asks for missing members.
  void tend(const IntrusivePtr<GroupHold>& hold);

 protected:
  [[nodiscard]] std::shared_ptr<GroupAcquire> makeAcquire(AcquireParams params,
                                                          GroupAcquire::Done done) override;

 private:
  void look(const IntrusivePtr<GroupHold>& hold);
  void repair(const IntrusivePtr<GroupHold>& hold, std::size_t member);
};

}  // namespace rlock::detail
