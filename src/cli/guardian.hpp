// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/descriptor.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <sys/types.h>

namespace rlock::cli {

/// A small process that kills the command when this one cannot: when it was killed itself, and when
/// it is frozen at the moment at which the command has to be gone. It shares one page of memory
/// with this process, belongs to a session of its own, and ends with this object.
///
/// One thread at a time. Made before there is a second thread.
class Guardian {
 public:
  /// @param grace  time for the command between SIGTERM and SIGKILL when this process is gone
  /// @throws std::system_error
  explicit Guardian(std::chrono::milliseconds grace);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  ~Guardian();

  /// The command must be gone by then. To be said before it starts: the guardian sleeps until then.
  void setKillTime(std::chrono::steady_clock::time_point at) noexcept;
  /// Names what is to be killed, as for kill(2): a process, or a group as a negative number. Safe
  /// after fork(), so that the child can name itself before it runs anything. 0: nothing any more;
  /// to be said before the command is reaped, for the number may belong to somebody else then.
  void setTarget(pid_t target) noexcept;

  /// Whether that time has come. Safe after fork().
  [[nodiscard]] bool killTimeHasCome() const noexcept;

  /// Whether somebody has killed the guardian, so that nothing acts in this process's place any
  /// more. It is reaped by the call that finds that out.
  [[nodiscard]] bool hasEnded() noexcept;
  /// -1 from when hasEnded() has said so.
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  /// The memory that both processes see.
  struct Shared {
    std::atomic<pid_t> target{0};
    std::atomic<std::int64_t> killAt{INT64_MAX};  ///< ns of the steady clock
    std::int64_t grace = 0;                       ///< ns
  };

 private:
  void tell(char word) const noexcept;

  Shared* shared_ = nullptr;
  Descriptor life_;  // the guardian sees its end
  pid_t pid_ = -1;
};

}  // namespace rlock::cli
