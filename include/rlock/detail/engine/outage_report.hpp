// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/engine/callbacks.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/outage_log.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <new>
#include <string_view>

namespace rlock::detail {

/// Writes the summaries of an OutageLog when they are due, and what several sorts of requests say
/// in the same words.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class OutageReport {
 public:
  using Clock = std::chrono::steady_clock;

  OutageReport(EngineContext& context, Callbacks& callbacks) noexcept
      : context_(context), callbacks_(callbacks) {}

  /// Whether the caller is to write about this, or it is only counted.
  [[nodiscard]] bool tells(OutageLog::Event event, std::size_t times = 1) noexcept;
  /// A request has done its work, and the server refused the message that tells waiters.
  /// @param refusal  in the server's words; empty: it did not
  void untold(const LockScripts& scripts, std::string_view refusal) noexcept;
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

inline void OutageReport::untold(const LockScripts& scripts, std::string_view refusal) noexcept {
  if (!refusal.empty() && tells(OutageLog::Event::untold)) {
    ifThereIsMemory([&] {
      context_.log().write(LogLevel::warning,
                           fmt::format("{} \"{}\": waiters could not be told: {}",
                                       scripts.noun(),
                                       escapeForDisplay(scripts.title()),
                                       refusal));
    });
  }
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
