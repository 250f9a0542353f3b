// SPDX-License-Identifier: Apache-2.0
#include "engine/scripted_object.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

namespace rlock::detail {

std::optional<Error> ScriptedObject::check(const AcquireParams& params) {
  if (!params.wait.valid()) {
    return Error(Errc::invalidArgument, "the wait is not a number");
  }
  if (params.lease) {
    if (auto why = checkLease(*params.lease)) {
      return why;
    }
  }
  if (params.maxHold && !params.maxHold->isPositive()) {
    return Error(Errc::invalidArgument,
                 fmt::format("a longest hold of {} is not above 0", toString(*params.maxHold)));
  }
  if (params.label.size() > kLongestLabel) {
    return Error(
        Errc::invalidArgument,
        fmt::format("a label of {} bytes is longer than {}", params.label.size(), kLongestLabel));
  }
  return std::nullopt;
}

std::optional<Error> ScriptedObject::checkLease(Duration lease) {
  if (lease.isPositive() && lease <= kLongestLease) {
    return std::nullopt;
  }
  return Error(
      Errc::invalidArgument,
      fmt::format("a lease of {} is not between 1ns and 365d; leave it out to have the hold "
                  "renewed until it is released",
                  toString(lease)));
}

Result<ScriptedObject::Acquired> ScriptedObject::acquire(Scripts scripts,
                                                         AcquireParams params) const {
  const OwnerId owner = params.owner;
  if (auto why = check(params)) {
    return describe(std::move(*why), owner);
  }
  return runTask<Acquired>(owner, [&] {
    return makeIntrusive<AcquireTask>(engine_, std::move(scripts), std::move(params));
  });
}

void ScriptedObject::acquireAsync(Scripts scripts,
                                  AcquireParams params,
                                  Handler<Acquired> handler) const {
  const OwnerId owner = params.owner;
  if (auto why = check(params)) {
    reject<Acquired>(std::move(*why), owner, std::move(handler));
    return;
  }
  startTask<Acquired>(owner, std::move(handler), [&] {
    return makeIntrusive<AcquireTask>(engine_, std::move(scripts), std::move(params));
  });
}

}  // namespace rlock::detail
