// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/group/group_lock.hpp>
#include <rlock/detail/group/group_release.hpp>
#include <rlock/detail/group/multi_acquire.hpp>

#include <memory>
#include <utility>

namespace rlock::detail {

/// A lock that is held when all its members are. Acquired by MultiAcquire. Its hold has no clock of
/// its own: the members' validity, loss and renewal are those of the whole.
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

inline MultiLock::MultiLock(Members members) : GroupLock("multi", members, members.size()) {}

inline AcquireParams MultiLock::forMember(const AcquireParams& params) const {
  return params;
}

inline GroupHold::Terms MultiLock::terms(const AcquireParams& params) const {
  GroupHold::Terms terms;
  terms.owner = params.owner;
  terms.label = params.label;
  if (params.lease) {
    terms.lease = params.lease->ceilMilliseconds();
  }
  // Each member keeps its own maxHold, margin and notice.
  return terms;
}

inline std::shared_ptr<GroupAcquire> MultiLock::makeAcquire(AcquireParams params,
                                                            GroupAcquire::Done done) {
  return std::make_shared<MultiAcquire>(shared_from_this(), std::move(params), std::move(done));
}

}  // namespace rlock::detail
