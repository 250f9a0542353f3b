// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/callbacks.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/outage_log.hpp>

#include <chrono>
#include <cstddef>
#include <new>

namespace rlock::detail {

/// Writes the summaries of an OutageLog when they are due.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class OutageReport {
 public:
  using Clock = std::chrono::steady_clock;

  OutageReport(EngineContext& context, Callbacks& callbacks) noexcept
      : context_(context), callbacks_(callbacks) {}

  /// Whether the caller is to write about this, or it is only counted.
  [[nodiscard]] bool tells(OutageLog::Event event, std::size_t times = 1) noexcept;
  /// The server works again, or at least did for one request.
  void over(Clock::time_point now) { log_.over(context_.log(), now); }
  /// The client ends: what was counted is written now.
  void finish() noexcept;

 private:
  void summariseAt(Clock::time_point when);

  EngineContext& context_;
  Callbacks& callbacks_;
  OutageLog log_;
};

inline bool OutageReport::tells(OutageLog::Event event, std::size_t times) noexcept {
  const OutageLog::Noted noted = log_.note(event, times, context_.now());
  if (noted.summariseAt) {
    try {
      summariseAt(*noted.summariseAt);
    } catch (const std::bad_alloc&) {
      // The counts are told when the outage is over.
    }
  }
  return noted.first;
}

inline void OutageReport::summariseAt(Clock::time_point when) {
  if (context_.closed()) {
    log_.summarise(context_.log(), context_.now());
    return;
  }
  callbacks_.callAt(when, [self = context_.sharing(*this)] {
    if (const auto again = self->log_.summarise(self->context_.log(), self->context_.now())) {
      self->summariseAt(*again);
    }
  });
}

inline void OutageReport::finish() noexcept {
  try {
    log_.summarise(context_.log(), context_.now());
  } catch (const std::bad_alloc&) {
    // Nobody learns the number.
  }
}

}  // namespace rlock::detail
