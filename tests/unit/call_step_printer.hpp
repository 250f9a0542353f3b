// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/call_step.hpp>

#include <ostream>

namespace rlock::detail {

inline void PrintTo(CallStep step, std::ostream* out) {
  static constexpr const char* kNames[]{"none",
                                        "attempt",
                                        "queue",
                                        "reconcileKeep",
                                        "reconcileBack",
                                        "acknowledge",
                                        "finish",
                                        "finishEarly",
                                        "finishAndReconcileBack",
                                        "end"};
  *out << kNames[static_cast<int>(step)];
}

}  // namespace rlock::detail
