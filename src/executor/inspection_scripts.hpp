// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "executor/call.hpp"
#include <rlock/detail/base/reply.hpp>
#include <rlock/inspection.hpp>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {

/// Everything about one name. The name is copied into the call.
void composeInspect(Call& call, std::string_view name);
/// Nothing: not what the script returns. Empty: nothing stands there.
std::optional<std::optional<LockInfo>> parseInspect(std::string_view name, const Reply& reply);

/// One step of a walk through the names that match a glob pattern.
void composeScan(Call& call, std::string_view cursor, std::string_view pattern);
struct ScanStep {
  std::string cursor;  ///< "0": the walk is over
  std::vector<std::string> names;
};
/// Names that only belong to a lock of another name are left out.
std::optional<ScanStep> parseScan(const Reply& reply);

/// The label of one hold.
struct LabelNote {
  std::string name;
  std::string owner;
  std::string label;  ///< empty: take it away
  std::chrono::milliseconds atLeast;
};
/// @param notes  must stay until the call is finished, and so must `keys`
/// @param keys   filled in
void composeLabels(Call& call, std::span<const LabelNote> notes, std::vector<std::string>& keys);

}  // namespace rlock::detail
